"""Ctrl-C and SIGTERM that wait for a step to end, so that what is saved is consistent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def interrupts() -> Generator[list[int]]:
    """A list that SIGINT and SIGTERM append to while the block runs, so that they take effect between steps."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda received, frame: seen.append(received))
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
