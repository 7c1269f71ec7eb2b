"""What recording asks of a teleoperator, whatever the device: where does the operator want the arm a tick from now?

A teleoperator answers ten times a second with the contract's action (8,): absolute joint targets [rad] and the hand's
opening width [m]. It never talks to the arm; what it answers goes through the safety envelope like any other action.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

TICK_S = 0.1


class Teleop(Protocol):
    """One input device, or a script in its place."""

    controls: str
    """One line: how the operator steers."""
    moves_arm: bool
    """False when the operator moves the arm itself by hand: then the arm is only watched, and of the action only the
    width counts."""

    def connect(self) -> None:
        """Opens the device. Raises UserError when it is not there."""
        ...

    def begin(self, state: np.ndarray) -> str | None:
        """An episode begins with the arm at `state` (8,); answers why that cannot be, or None."""
        ...

    def read(self, state: np.ndarray) -> np.ndarray | None:
        """The action (8,) for the arm at `state` (8,), at once; None while the device says nothing."""
        ...

    def key(self, key: str) -> bool:
        """A key of the terminal that means nothing to the recording; True when it means something here."""
        ...

    @property
    def finished(self) -> bool:
        """The operator is done with the episode; only a script ever knows."""
        ...

    def close(self) -> None:
        """Frees the device."""
        ...
