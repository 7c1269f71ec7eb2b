"""The Franka Hand behind the contract's gripper rule: commanded widths in, one hand command in flight, never blocking.

The hand has no 10 Hz width servo: `GripperRule` turns a width into open or closed. A worker thread carries the
decision out with a blocking `move` or `grasp`; a new decision waits until the hand has answered, because a second
command or a stop during a move leaves the first one's future pending for ever (franky-sim). What the hand reports as
failed is raised once, by the next `width()`; reading goes on.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from robocoach.datasets.contract import GripperRule

READ_PERIOD_S = 0.03
OPEN_SHARE = 0.95
"""Of the full opening width from which on a hand is all open."""
BROKEN_PERIOD_S = 0.5
"""Time between two readings while reading fails."""


class HandFailed(RuntimeError):
    """The hand answered that it has not done what it was told."""


class GripperWorker:
    """Owns a `franky.Gripper`: reads its width and carries out decisions, each in its own thread."""

    def __init__(self, gripper: Any, rule: GripperRule) -> None:
        self._gripper: Any = gripper
        self._rule = rule
        self._width_m = float(gripper.width)
        self._width_at = time.monotonic()
        self._closed: bool | None = rule.wants_closed(self._width_m, False)
        self._wanted_closed = self._closed
        self._done = threading.Event()
        self._changed = threading.Condition()
        self._busy = False
        self._fault: Exception | None = None
        self._unreadable = False
        self.broken = False
        """True once the connection itself has failed: the hand needs a new one."""
        self.commands = 0
        """Hand commands issued so far."""
        self._threads = [
            threading.Thread(target=run, name=f"gripper-{name}", daemon=True)
            for name, run in (("reader", self._read), ("worker", self._work))
        ]
        for thread in self._threads:
            thread.start()

    def command(self, width_m: float) -> None:
        """Takes the commanded width of this tick; returns at once."""
        with self._changed:
            self._wanted_closed = self._rule.wants_closed(width_m, bool(self._wanted_closed))
            self._changed.notify_all()

    def open(self) -> None:
        """Opens a hand that is not all open, whatever was decided last: one that held something when this client
        connected counts as open by the rule. Returns at once."""
        with self._changed:
            if self._width_m < OPEN_SHARE * self._rule.open_width_m:
                self._closed = None
            self._wanted_closed = False
            self._changed.notify_all()

    def width(self) -> tuple[float, float]:
        """Opening width [m] and the monotonic time it was read [s]; raises what the hand reported meanwhile, once."""
        with self._changed:
            fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        return self._width_m, self._width_at

    def settle(self, timeout_s: float = 5.0) -> bool:
        """Waits until the last decision is carried out or has failed; False when it takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy and self._closed == self._wanted_closed, timeout_s)

    def close(self) -> None:
        """Ends the threads; a command in flight is left to finish."""
        self._done.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=2.0)
        self._gripper = None

    def _read(self) -> None:
        while not self._done.wait(BROKEN_PERIOD_S if self._unreadable else READ_PERIOD_S):
            try:
                self._width_m = float(self._gripper.width)
            except Exception as error:  # franky's exceptions share no public base with Python's own OSError
                if not self._unreadable:
                    self._report(error)
                self._unreadable = True
            else:
                self._width_at = time.monotonic()
                self._unreadable = False

    def _report(self, error: Exception) -> None:
        with self._changed:
            self._fault = self._fault or error
            self.broken = self.broken or type(error).__name__ not in ("CommandException", "HandFailed")

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._done.is_set() or self._wanted_closed not in (None, self._closed))
                if self._done.is_set():
                    return
                closing, self._busy = bool(self._wanted_closed), True
            done: bool | None = closing
            try:
                self._carry_out(closing)
            except Exception as error:
                self._report(error)
                done = None
            with self._changed:
                self._busy, self._closed = False, done
                if done is None:  # nobody knows how the hand stands: the next command is carried out, whatever it is
                    self._wanted_closed = None
                self._changed.notify_all()

    def _carry_out(self, closing: bool) -> None:
        rule = self._rule
        self.commands += 1
        if closing:
            # Any width counts as grasped: whether something is held is judged from the state, not by the hand.
            done = self._gripper.grasp(
                rule.closed_width_m,
                rule.speed_m_s,
                rule.force_n,
                epsilon_inner=rule.open_width_m,
                epsilon_outer=rule.open_width_m,
            )
        else:
            done = self._gripper.move(rule.open_width_m, rule.speed_m_s)
        if not done:
            raise HandFailed(f"the hand has not {'closed' if closing else 'opened'}: is something in its way?")
