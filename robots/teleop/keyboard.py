"""The terminal's keys jog the hand: works over ssh, needs no device and no display.

A terminal tells of keys pressed, never of keys released, so each press asks for one step; held down, the terminal's
own repeat asks for more. Steps are carried out at a bounded speed, and few of them wait, so that the hand stops soon
after the key is let go.
"""

from __future__ import annotations

import numpy as np

from robocoach.robots.teleop.jog import Jog
from robocoach.robots.teleop.operator import TICK_S

STEP_M = 0.01
STEP_RAD = 0.05
STEPS_WAITING = 3
"""Steps in one direction that wait to be carried out; what is typed beyond them is dropped."""
FINER, COARSER = "-", "+"
GRIP = "g"

SHIFTS = {
    "w": (1, 0, 0),
    "s": (-1, 0, 0),
    "a": (0, 1, 0),
    "d": (0, -1, 0),
    "r": (0, 0, 1),
    "f": (0, 0, -1),
    "up": (1, 0, 0),
    "down": (-1, 0, 0),
    "left": (0, 1, 0),
    "right": (0, -1, 0),
    "pageup": (0, 0, 1),
    "pagedown": (0, 0, -1),
}
"""Key → direction in the base frame: x away from the base, y to its left, z up."""
TURNS = {"q": (0, 0, 1), "e": (0, 0, -1), "i": (0, 1, 0), "k": (0, -1, 0), "j": (-1, 0, 0), "l": (1, 0, 0)}
"""Key → axis about which the hand turns, base frame."""


class Keyboard:
    """Jogs the TCP with the keys it is given."""

    moves_arm = True
    finished = False

    def __init__(self, speed_m_s: float = 0.12, turn_rad_s: float = 0.6) -> None:
        """`speed_m_s` and `turn_rad_s` bound the motion of the target, whatever is typed."""
        self._speed_m_s, self._turn_rad_s = speed_m_s, turn_rad_s
        self._scale = 1.0
        self._jog: Jog | None = None
        self._shift, self._turn = np.zeros(3), np.zeros(3)
        self.controls = (
            "w/s forward, back  a/d left, right  r/f up, down  (or arrows, page keys)  q/e turn  i/k j/l tilt  "
            f"{GRIP} grip  {COARSER}/{FINER} step"
        )

    def connect(self) -> None:
        """Loads the kinematics."""
        self._jog = Jog()

    def begin(self, state: np.ndarray) -> str | None:
        """Jogs from here."""
        assert self._jog is not None, "connect() comes first"
        self._jog.begin(state)
        self._shift, self._turn = np.zeros(3), np.zeros(3)
        return None

    def key(self, key: str) -> bool:
        """Takes a key typed."""
        assert self._jog is not None, "connect() comes first"
        if key in SHIFTS:
            step = self._scale * STEP_M
            self._shift = _asked(self._shift, step * np.array(SHIFTS[key]), STEPS_WAITING * step)
        elif key in TURNS:
            step = self._scale * STEP_RAD
            self._turn = _asked(self._turn, step * np.array(TURNS[key]), STEPS_WAITING * step)
        elif key == GRIP:
            self._jog.closed = not self._jog.closed
        elif key in (FINER, COARSER):
            self._scale = float(np.clip(self._scale * (2.0 if key == COARSER else 0.5), 0.25, 2.0))
        else:
            return False
        return True

    def read(self, state: np.ndarray) -> np.ndarray:
        """As much of the waiting steps as the speed allows."""
        assert self._jog is not None, "connect() comes first"
        shift, turn = _share(self._shift, self._speed_m_s), _share(self._turn, self._turn_rad_s)
        self._shift, self._turn = self._shift - shift, self._turn - turn
        return self._jog.move(state, shift, turn)

    def close(self) -> None:
        """Nothing to free."""


def _asked(waiting: np.ndarray, step: np.ndarray, most: float) -> np.ndarray:
    """A step more; one against the way that waits takes that way back at once."""
    against = waiting * step < 0
    return np.clip(np.where(against, 0.0, waiting) + step, -most, most)


def _share(waiting: np.ndarray, speed: float) -> np.ndarray:
    return waiting * min(1.0, speed * TICK_S / max(1e-9, float(np.linalg.norm(waiting))))
