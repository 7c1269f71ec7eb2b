"""A 3Dconnexion space mouse moves the hand: its six axes are velocities of the TCP, its buttons close and open it.

pyspacemouse reads the device over HID and needs Debian's `libhidapi-hidraw0` and read access to /dev/hidraw*. It is
imported when the device is connected. A thread reads, since a report is only there while the cap moves.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.robots.teleop.jog import Jog
from robocoach.robots.teleop.operator import TICK_S

DEAD_BAND = 0.08
"""Share of an axis' range that counts as rest: a hand on the cap is never quite still."""
READ_S = 0.004
QUIET_S = 0.3
"""A cap that is let go reports zeros once; without any report for so long the device is taken to be at rest."""


class SpaceMouse:
    """Cartesian velocities from the cap; the first button closes the hand, the second opens it."""

    moves_arm = True
    finished = False
    controls = "push, lift and turn the cap: the hand moves with it (x away from the base)  buttons: close, open"

    def __init__(self, speed_m_s: float = 0.12, turn_rad_s: float = 0.6) -> None:
        """Speeds at full deflection."""
        self._speed_m_s, self._turn_rad_s = speed_m_s, turn_rad_s
        self._device: Any = None
        self._jog: Jog | None = None
        self._thread: threading.Thread | None = None
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._axes = np.zeros(6)
        self._buttons: list[int] = []
        self._reported_at_s = 0.0
        self._lost: str | None = None

    def connect(self) -> None:
        """Opens the first space mouse that is plugged in. Raises UserError when there is none."""
        try:
            import pyspacemouse

            # Forward, left, up: the arm's base frame, with the operator behind the base.
            device = pyspacemouse.open(axis_convention=pyspacemouse.AxisConvention.ROS)
        except (RuntimeError, ImportError, OSError, AttributeError) as error:
            raise UserError(
                f"no space mouse ({error}): plug it in, install libhidapi-hidraw0, and allow reading /dev/hidraw*"
            ) from error
        self.watch(device)

    def watch(self, device: Any) -> None:
        """Reads an open `pyspacemouse.SpaceMouseDevice` from here on."""
        self._device, self._jog = device, Jog()
        self._thread = threading.Thread(target=self._run, name="spacemouse", daemon=True)
        self._thread.start()

    def begin(self, state: np.ndarray) -> str | None:
        """Moves from here; refuses while the cap is held down."""
        assert self._jog is not None, "connect() comes first"
        self._jog.begin(state)
        shift, turn = self._wish()
        return "let go of the space mouse" if np.any(shift) or np.any(turn) else self._lost

    def read(self, state: np.ndarray) -> np.ndarray | None:
        """The action that follows the cap; None once the device is gone."""
        assert self._jog is not None, "connect() comes first"
        if self._lost is not None:
            return None
        with self._lock:
            buttons = list(self._buttons)
        if any(buttons[:2]):
            self._jog.closed = bool(buttons[0])
        return self._jog.move(state, *self._wish())

    def key(self, key: str) -> bool:
        """Uses no key."""
        return False

    def close(self) -> None:
        """Ends the thread and frees the device."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)
        if self._device is not None:
            self._device.close()
            self._device = None

    def _wish(self) -> tuple[np.ndarray, np.ndarray]:
        """Shift [m] and rotation vector [rad] of this tick."""
        with self._lock:
            axes = self._axes if time.monotonic() - self._reported_at_s < QUIET_S else np.zeros(6)
        live = np.sign(axes) * np.clip((np.abs(axes) - DEAD_BAND) / (1 - DEAD_BAND), 0, 1)
        return live[:3] * self._speed_m_s * TICK_S, live[3:] * self._turn_rad_s * TICK_S

    def _run(self) -> None:
        stamp = -1.0
        while not self._done.wait(READ_S):
            try:
                state = self._device.read()
            except Exception as error:  # a HID error has no common base with Python's own
                self._lost = f"the space mouse is gone ({' '.join(str(error).split())}): plug it in again"
                return
            if state.t == stamp:
                continue
            stamp = state.t
            with self._lock:
                self._axes = np.array([state.x, state.y, state.z, state.roll, state.pitch, state.yaw])
                self._buttons = list(state.buttons)
                self._reported_at_s = time.monotonic()
