"""One recorded episode in memory: wrist images, states, actions, stages, instruction, seed and success.

The unit that demonstrators, the twin and the import of real teleoperation hand to the journal. Units and meaning
are the contract's (`contract.py`); this module only holds the arrays and refuses arrays that cannot be an episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocoach.datasets.contract import ACTION_DIM, IMAGE_SIZE, STATE_DIM

REAL_SEED = -1
"""Seed of an episode that no random scene produced."""

UNKNOWN_STAGE = -1
"""Stage of a frame for which nobody judged the stage."""


@dataclass(frozen=True)
class Episode:
    """T ticks of 0.1 s. Raises ValueError on wrong shapes or dtypes and on numbers that are not finite."""

    images: np.ndarray
    """uint8 (T, 224, 224, 3), RGB wrist images, one a tick, taken before the tick's action."""
    states: np.ndarray
    """float32 (T, 8): joints [rad], opening width [m]."""
    actions: np.ndarray
    """float32 (T, 8): joint targets [rad] for the next tick, commanded width [m]."""
    stages: np.ndarray
    """int64 (T,): index into the task's stages, -1 unknown."""
    privileged: np.ndarray | None
    """float32 (T, P): object poses in the hand frame, simulation only. A training target, never a policy input."""
    task: str
    """The instruction."""
    seed: int
    """Seed of the scene, -1 for real."""
    success: bool

    def __post_init__(self) -> None:
        ticks = len(self.states)
        if ticks == 0:
            raise ValueError("an episode needs at least one frame")
        _expect("images", self.images, np.uint8, (ticks, IMAGE_SIZE, IMAGE_SIZE, 3))
        _expect("states", self.states, np.float32, (ticks, STATE_DIM))
        _expect("actions", self.actions, np.float32, (ticks, ACTION_DIM))
        _expect("stages", self.stages, np.int64, (ticks,))
        if self.privileged is not None:
            _expect("privileged", self.privileged, np.float32, (ticks, *self.privileged.shape[1:2]))
        if not self.task.strip():
            raise ValueError("an episode needs an instruction")

    def __len__(self) -> int:
        """Number of ticks."""
        return len(self.states)


def _expect(name: str, array: np.ndarray, dtype: type, shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(f"{name}: expected {np.dtype(dtype)} {shape}, got {array.dtype} {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        frame = int(np.argwhere(~np.isfinite(array))[0][0])
        raise ValueError(f"{name}: a number of frame {frame} is not finite")
