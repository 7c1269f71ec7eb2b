"""The task's scripted demonstrator as a policy of the control loop: it proves the twin, and nothing else.

It sees ground truth from the twin's side channel, which no policy ever does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

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

    def act(self, image: np.ndarray, state: np.ndarray, instruction: str) -> np.ndarray:
        """float32 (1, 8); the image is ignored."""
        assert self._truth is not None, "watch() comes first"
        return self._demonstrator.act(self._truth())[None]
