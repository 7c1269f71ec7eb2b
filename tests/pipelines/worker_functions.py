"""What the tests of the training worker run in a child: each function takes `progress`, as a training does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from robocoach.configs.errors import UserError
from robocoach.policies.interrupts import interrupts


def double(number: int, progress: Any) -> dict[str, Any]:
    """Counts to the number, prints, and says where it runs."""
    for done in range(number):
        progress(done)
    print("said on stdout")
    print("said on stderr", file=sys.stderr)
    return {"double": 2 * number, "pid": os.getpid(), "device": os.environ.get("CUDA_VISIBLE_DEVICES")}


def diverge(progress: Any) -> dict[str, Any]:
    return {"status": "nan", "message": "loss was not finite at step 3"}


def fail(kind: str, progress: Any) -> dict[str, Any]:
    """Ends in the named way."""
    if kind == "error":
        raise ValueError("no such\nlayer")
    if kind == "user error":
        raise UserError("the data is of another task; use its own")
    if kind == "memory":
        raise MemoryError
    if kind == "gpu memory":
        raise RuntimeError("CUDA error: out of memory while allocating 3 GB")
    if kind == "no dict":
        return [1]  # ty: ignore[invalid-explicit-return]
    if kind == "not to be sent":
        return {"x": lambda: 1}
    if kind == "exit":
        os._exit(3)
    if kind == "sys.exit":
        sys.exit("enough")
    os.kill(os.getpid(), getattr(signal, kind))
    time.sleep(10)
    return {}


def polite(file: str, progress: Any) -> dict[str, Any]:
    """Works until it is asked to stop, then saves."""
    with interrupts() as seen:
        progress(os.getpid())
        while not seen:
            time.sleep(0.01)
    Path(file).write_text("saved")
    raise KeyboardInterrupt


def stubborn(file: str, progress: Any) -> dict[str, Any]:
    """Does not stop when asked, and has a process of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    other = subprocess.Popen(["sleep", "60"])
    Path(file).write_text(f"{os.getpid()} {other.pid}")
    progress(os.getpid())
    while True:
        sum(range(100_000))


def look(progress: Any) -> dict[str, Any]:
    """What the child finds: what is imported, and how many threads its server has."""
    began = time.monotonic()
    import torch

    from robocoach.policies import nano, train  # noqa: F401

    return {
        "imports_s": time.monotonic() - began,
        "server_threads": len(list(Path(f"/proc/{os.getppid()}/task").iterdir())),
        "simulators": sorted({"genesis", "mujoco"} & set(sys.modules)),
        "cuda": torch.cuda.is_initialized(),
        "blas": os.environ.get("OPENBLAS_NUM_THREADS"),
    }
