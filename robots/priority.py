"""Lets the threads that must be on time go first, where the user may; silently does nothing where not."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Generator

PRIORITY = -10
"""Linux niceness of the twin's controller and of the control loop's threads."""


def go_first(priority: int = PRIORITY) -> None:
    """Raises the calling thread; threads that it starts later inherit this."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), priority)


def keep_time() -> None:
    """Makes the calling thread real-time, for the twin's 1 kHz controller, which takes half a core at most."""
    go_first()
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


@contextlib.contextmanager
def going_first() -> Generator[None]:
    """Makes the calling thread real-time for a while, for a loop that sleeps most of the time."""
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    with keeping_policy():
        keep_time()
        try:
            yield
        finally:
            go_first(before)


@contextlib.contextmanager
def keeping_policy() -> Generator[None]:
    """Gives the calling thread back the scheduling it had.

    libfranka makes the thread that connects real-time at the highest priority and leaves it so; whatever it started
    later, simulators included, would inherit that and starve its own helpers.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy, parameters)


@contextlib.contextmanager
def without_collection() -> Generator[None]:
    """Python's cyclic garbage waits until the block ends.

    With a quarter of a million objects alive, as beside a terminal screen, a full collection holds every thread up for
    0.1 to 0.25 s, which is a stale frame and an aborted rollout.
    """
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
