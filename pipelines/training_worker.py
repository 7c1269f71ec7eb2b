"""Runs a function in a child of a pre-imported forkserver, to its end or to a deadline, and says how it ended.

Importing what a training needs takes a quarter of a minute; a server process imports it once and every training is
forked from it in a fraction of a second, fresh, with an exit that can be told from others. A crash, a NaN, a hang or
memory that ran out ends the child, never the search. The child writes into a log of its own, dies with the main
process, and when asked to stop is given time to save. Knows nothing of what the function does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection, forkserver
from pathlib import Path
from types import FunctionType
from typing import Any, Literal

from robocoach.pipelines import training_child

PRELOAD = ("robocoach.pipelines.training_preload",)
START_S = 300.0
"""Time for a child to begin; the first one waits until the server has imported everything."""
MOST_REASON = 300
_LOOKING = threading.Lock()
"""multiprocessing looks after every child whenever one begins; two threads that read one exit code lose it."""

Status = Literal["finished", "nan", "crashed", "timeout", "out of memory", "interrupted"]


@dataclass(frozen=True)
class Outcome:
    """How a child ended."""

    status: Status
    result: dict[str, Any]
    """What the function returned; empty unless `finished` or `nan`."""
    reason: str
    """One line; empty when it finished."""
    startup_s: float
    """From the call to the function's first line, data and model not counted."""
    seconds: float
    """From the function's first line to the child's end."""


class TrainingWorker:
    """Starts children one after the other, or several at once from several threads."""

    def __init__(self, preload: Sequence[str] = PRELOAD) -> None:
        """`preload` are the modules that the server imports; the process's first server decides."""
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))
        self._lock = threading.Lock()
        self._running: set[_Child] = set()

    def warm(self) -> None:
        """Starts the server, which imports in the background; returns at once."""
        forkserver.ensure_running()

    def run(
        self,
        function: str | FunctionType,
        kwargs: Mapping[str, Any],
        *,
        deadline_s: float,
        log: Path,
        grace_s: float = 30.0,
        progress: Callable[[Any], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Calls `function(**kwargs, progress=…)` in a child and waits for its end.

        `function` is a module's function or its path (`package.module:function`). It returns a dict; with
        `status: nan` in it the outcome is `nan`. What it hands to its progress arrives at `progress` here. At
        `deadline_s` after its first line it gets SIGTERM, and SIGKILL `grace_s` later. `environment` is set in the
        child only. stdout and stderr are appended to `log`. A crash is an outcome; raised are KeyboardInterrupt
        (Ctrl-C: the child is asked to save and waited for) and what `progress` raises (the child is killed).
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        child = _Child(self._context, _path_of(function), dict(kwargs), log, dict(environment or {}))
        with self._lock:
            self._running.add(child)
        try:
            child.start()
            try:
                return child.follow(deadline_s, grace_s, progress)
            except KeyboardInterrupt:
                child.ask("interrupted")
                child.follow(deadline_s, grace_s, progress)
                raise
        finally:
            with self._lock:
                self._running.discard(child)
            child.close()

    def interrupt(self) -> None:
        """Asks every running child to save and end; their `run` returns `interrupted`. For any thread."""
        with self._lock:
            for child in self._running:
                child.wake()


@dataclass(eq=False)
class _Child:
    """One child as the main process follows it."""

    context: Any
    path: str
    kwargs: dict[str, Any]
    log: Path
    environment: dict[str, str]
    asked: Status | None = None
    """Why it was sent SIGTERM."""
    asked_at: float = 0.0
    told: tuple[Any, ...] | None = None
    """Its last word: `("result", dict)` or `("failed", status, reason)`."""
    killed: bool = False
    began_at: float | None = None
    """When its function was called (monotonic)."""
    called_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._oom_kills = _oom_kills()
        self._receiver, self._sender = self.context.Pipe(duplex=False)
        self._alarm, self._bell = self.context.Pipe(duplex=False)
        self._open = True
        self._process: Any = self.context.Process(
            target=training_child.main,
            args=(self.path, self.kwargs, self._sender, os.getpid(), str(self.log), self.environment),
            name="training",
        )

    def start(self) -> None:
        """Forks it. Interrupted before it is there, it will find nobody to talk to, and leave."""
        with _LOOKING:
            self._process.start()
        self._sender.close()

    def follow(self, deadline_s: float, grace_s: float, progress: Callable[[Any], None] | None) -> Outcome:
        """Waits for the end; may be called again after an exception."""
        while True:
            now = time.monotonic()
            if self.asked is None:
                end = self.called_at + START_S if self.began_at is None else self.began_at + deadline_s
                if now >= end:
                    self.ask("timeout")
                    continue
            else:
                end = self.asked_at + grace_s
                if now >= end and not self.killed:
                    self.kill()
            watched = [self._process.sentinel, self._alarm, *([self._receiver] if self._open else [])]
            ready = connection.wait(watched, None if self.killed else max(0.0, end - now))
            if self._alarm in ready:
                self._alarm.recv_bytes()
                if self.asked is None:
                    self.ask("interrupted")
            if self._receiver in ready:
                self._read(progress)
            elif self._process.sentinel in ready:  # all that was sent before the end has been read
                self._reap()
                return self._outcome(deadline_s, grace_s)

    def ask(self, why: Status) -> None:
        """Sends SIGTERM: policies/interrupts.py ends the step, saves, and raises KeyboardInterrupt."""
        self.asked, self.asked_at = self.asked or why, time.monotonic()
        if self._process.pid is not None and self._alive():
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)

    def wake(self) -> None:
        """Makes `follow` ask for an end."""
        self._bell.send_bytes(b"stop")

    def kill(self) -> None:
        """Ends the child and what it started."""
        self.killed = True
        if self._process.pid is None or not self._alive():
            return
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Nothing of the child stays."""
        self.kill()
        if self._process.pid is not None:
            connection.wait([self._process.sentinel])
            self._reap()
        for end in (self._receiver, self._sender, self._alarm, self._bell):
            end.close()

    def _alive(self) -> bool:
        with _LOOKING:
            return self._process.is_alive()

    def _reap(self) -> None:
        """Takes up the exit code, which is there."""
        with _LOOKING:
            self._process.join()

    def _read(self, progress: Callable[[Any], None] | None) -> None:
        try:
            kind, *content = self._receiver.recv()
        except (EOFError, OSError):
            self._open = False
            return
        if kind == "progress":
            if progress is not None:
                progress(content[0])
        elif kind == "began":
            self.began_at = time.monotonic()
        else:
            self.told = (kind, *content)

    def _outcome(self, deadline_s: float, grace_s: float) -> Outcome:
        now = time.monotonic()
        began = self.began_at if self.began_at is not None else now
        status, result, reason = self._ending(deadline_s, grace_s)
        reason = " ".join(reason.split())[:MOST_REASON]
        return Outcome(status, result, reason, round(began - self.called_at, 3), round(now - began, 3))

    def _ending(self, deadline_s: float, grace_s: float) -> tuple[Status, dict[str, Any], str]:
        if self.told is not None and self.told[0] == "result":
            result = self.told[1]
            if result.get("status") == "nan":
                return "nan", result, str(result.get("message", "not finite"))
            return "finished", result, ""
        if self.asked is not None:
            why = "asked to stop"
            if self.asked == "timeout":
                why = f"ran past its deadline of {deadline_s:g} s" if self.began_at is not None else "never began"
            how = f"killed {grace_s:g} s after it was asked to save" if self.killed else "ended when asked to save"
            return self.asked, {}, f"{why}, {how}"
        if self.told is not None:
            return self.told[1], {}, self.told[2]
        return _by_exit_code(self._process.exitcode, _oom_kills() > self._oom_kills)


def _by_exit_code(code: int, oom_killed: bool) -> tuple[Status, dict[str, Any], str]:
    """What the exit code of a child says that left without a word."""
    if code == -signal.SIGKILL and oom_killed:
        return "out of memory", {}, "killed by the kernel: out of memory"
    if code == -signal.SIGTERM:
        return "interrupted", {}, "ended by SIGTERM from outside"
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return "crashed", {}, f"killed by {names.get(-code, f'signal {-code}')}"
    if code == 255:
        return "crashed", {}, "the server that trainings are forked from died; the next training starts another"
    return "crashed", {}, f"left with exit code {code} without a result"


def _oom_kills() -> int:
    """How often the kernel has ended a process because memory ran out, here and in this control group."""
    count = 0
    for path in ("/proc/vmstat", "/sys/fs/cgroup/memory.events"):
        with suppress(OSError, ValueError):
            lines = (line.split() for line in Path(path).read_text().splitlines())
            count += sum(int(words[1]) for words in lines if words[0] == "oom_kill")
    return count


def _path_of(function: str | FunctionType) -> str:
    """A function as `package.module:function`, by which the child finds it."""
    if isinstance(function, str):
        return function
    return f"{function.__module__}:{function.__qualname__}"
