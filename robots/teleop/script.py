"""The task's demonstrator in the operator's place, for the twin: tests and practice recordings without a person.

It looks at the twin's ground truth, as in Genesis; an arm has none, so there it cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from robocoach.sim.tasks import get_task

if TYPE_CHECKING:
    from robocoach.sim.state import SimState
    from robocoach.sim.task import Demonstrator


class Script:
    """Demonstrates a task on the twin."""

    moves_arm = True
    controls = "the task's demonstrator steers"

    def __init__(self, task_name: str) -> None:
        self._task = get_task(task_name)
        self._truth: Callable[[], SimState] | None = None
        self._demonstrator: Demonstrator = self._task.demonstrator()

    def watch(self, truth: Callable[[], SimState]) -> None:
        """Gives it eyes: `Twin.state`."""
        self._truth = truth

    def connect(self) -> None:
        """Nothing to open."""

    def begin(self, state: np.ndarray) -> str | None:
        """Starts anew."""
        self._demonstrator = self._task.demonstrator()
        return None

    def read(self, state: np.ndarray) -> np.ndarray:
        """What the demonstrator does now."""
        assert self._truth is not None, "watch() comes first"
        return np.asarray(self._demonstrator.act(self._truth()), dtype=float)

    def key(self, key: str) -> bool:
        """Uses no key."""
        return False

    @property
    def finished(self) -> bool:
        """The task is done."""
        return self._demonstrator.finished

    def close(self) -> None:
        """Nothing to free."""
