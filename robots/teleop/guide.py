"""Kinesthetic guiding: the operator leads the arm by hand, and the arm is only watched.

Franka's own guiding (the button at the wrist, in programming mode) makes the arm weightless without any command from
here, and its state can still be read. What the arm did in a tick is that tick's action: the recording takes the next
state's joints. The hand is opened and closed by a key, since the operator's hands are on the arm.
"""

from __future__ import annotations

import numpy as np

from robocoach.datasets.contract import GripperRule

GRIP = "g"


class Guide:
    """Answers with the arm's own joints and the width that was asked for."""

    moves_arm = False
    finished = False
    controls = f"press the arm's guiding button and lead it by hand  {GRIP} grip"

    def __init__(self) -> None:
        self._rule = GripperRule()
        self._closed = False

    def connect(self) -> None:
        """Nothing to open."""

    def begin(self, state: np.ndarray) -> str | None:
        """The hand stays as it is."""
        self._closed = self._rule.wants_closed(float(state[7]), False)
        return None

    def read(self, state: np.ndarray) -> np.ndarray:
        """The joints as they are, and the width wanted."""
        width = self._rule.closed_width_m if self._closed else self._rule.open_width_m
        return np.append(np.asarray(state[:7], dtype=float), width)

    def key(self, key: str) -> bool:
        """Takes the key that closes and opens the hand."""
        if key != GRIP:
            return False
        self._closed = not self._closed
        return True

    def close(self) -> None:
        """Nothing to free."""
