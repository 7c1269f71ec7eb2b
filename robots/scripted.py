"""The task's scripted demonstrator as a policy of the control loop: it proves the twin, and nothing else.

It sees ground truth from the twin's side channel, which no policy ever does. In the simulator that makes the data it
starts and turns round within one tick, faster than an arm can (up to 18 rad/s²); here it keeps to the arm's
acceleration, so that the envelope has nothing to clamp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from robocoach.robots.limits import FR3
from robocoach.sim.state import TICK_S
from robocoach.sim.tasks import get_task

if TYPE_CHECKING:
    from robocoach.sim.state import SimState


class ScriptedPolicy:
    """Answers within a millisecond or two, one action a tick."""

    contract = None
    """Nothing was trained, so there is nothing to agree on."""

    def __init__(self, task_name: str) -> None:
        self._task = get_task(task_name)
        self._truth: Callable[[], SimState] | None = None
        self.reset()

    def watch(self, truth: Callable[[], SimState]) -> None:
        """Gives it eyes."""
        self._truth = truth

    def reset(self) -> None:
        """Starts anew."""
        self._demonstrator = self._task.demonstrator()
        self._last: np.ndarray | None = None
        self._velocity = np.zeros(7)

    def act(self, image: np.ndarray, state: np.ndarray, instruction: str) -> np.ndarray:
        """float32 (1, 8); the image is ignored."""
        assert self._truth is not None, "watch() comes first"
        return self._gently(self._demonstrator.act(self._truth()), state)[None]

    def _gently(self, wish: np.ndarray, state: np.ndarray) -> np.ndarray:
        """The wish (8,), as close to it as the arm can accelerate; a percent is left for rounding."""
        last = self._last if self._last is not None else np.asarray(state[:7], dtype=float)
        change = 0.99 * FR3.acceleration * TICK_S
        self._velocity = np.clip((wish[:7] - last) / TICK_S, self._velocity - change, self._velocity + change)
        self._last = last + self._velocity * TICK_S
        return np.append(self._last, wish[7]).astype(np.float32)
