"""The child's side of `training_worker.py`: what a forked process does before, around and after the function it runs.

It becomes a session of its own (Ctrl-C at the terminal reaches the main process only), writes into its log, is the
first that the kernel ends when memory runs out, and dies with the main process. Its words go back over a pipe:
`("began",)`, `("progress", anything)`, then `("result", dict)` or `("failed", status, reason)`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import io
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from robocoach.configs.errors import UserError

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = 500
"""Added to the child's badness, so that the kernel takes it and not the search."""


def main(
    path: str, kwargs: dict[str, Any], pipe: Connection, main_process: int, log: str, environment: dict[str, str]
) -> None:
    """Runs the function at `path` (`package.module:function`); see the module's first lines."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with(main_process)
    _write_into(log)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    os.environ.update(environment)

    def tell(*words: Any) -> None:
        try:
            pipe.send(words)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)  # nobody listens any more

    try:
        function = resolve(path)
        tell("began")
        result = function(**kwargs, progress=lambda now: tell("progress", now))
        if not isinstance(result, dict):
            raise TypeError(f"{path} returned a {type(result).__name__}, expected a dict")
        tell("result", result)
    except KeyboardInterrupt:
        tell("failed", "interrupted", "asked to stop, its state is saved")
    except UserError as error:
        print(error, flush=True)
        tell("failed", "crashed", str(error))
    except BaseException as error:
        traceback.print_exc()
        tell("failed", "out of memory" if is_out_of_memory(error) else "crashed", reason_of(error))
    sys.stdout.flush()
    sys.stderr.flush()


def resolve(path: str) -> Callable[..., Any]:
    """The function that `package.module:function` names."""
    module, _, names = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


def die_with(main_process: int) -> None:
    """Ends this process, and what it started, when the main process ends or the server that it was forked from does.

    PDEATHSIG watches the server only, since a fork's parent is the server; and the server itself stays as long as
    anyone holds its `alive` pipe, whose end every child inherits. So this end is closed, which lets the server follow
    the main process and PDEATHSIG this one follow the server, and a thread watches the main process directly.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    server = forkserver._forkserver  # no public way to leave the pipe
    alive = getattr(server, "_forkserver_alive_fd", None)
    if alive is not None:
        os.close(alive)
        vars(server)["_forkserver_alive_fd"] = None
    try:
        handle = os.pidfd_open(main_process)
    except ProcessLookupError:
        os._exit(1)

    def watch() -> None:
        select.select([handle], [], [])
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="main process", daemon=True).start()


def _write_into(log: str) -> None:
    """Appends everything that this process and its libraries print to the log, a native crash's stack too."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    faulthandler.enable()


def reason_of(error: BaseException) -> str:
    """An exception in one line: its type and message."""
    return " ".join("".join(traceback.format_exception_only(error)).split())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says that memory ran out, on the processor or on the GPU."""
    text = f"{type(error).__name__} {error}".lower()
    words = ("outofmemory", "out of memory", "allocate memory", "bad_alloc")
    return isinstance(error, MemoryError) or any(word in text for word in words)
