"""One module a task: scene, stages, success, randomisation and the scripted demonstrator."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

from robocoach.configs.errors import UserError

if TYPE_CHECKING:
    from robocoach.sim.task import Task

_MODULES = {"stack-cube": "robocoach.sim.tasks.stack_cube"}


def task_names() -> tuple[str, ...]:
    """Names that `--task` takes; cheap, imports no task."""
    return tuple(_MODULES)


def get_task(name: str) -> Task:
    """The task of that name; raises UserError with the nearest names."""
    if name not in _MODULES:
        near = difflib.get_close_matches(name, _MODULES, n=1, cutoff=0.0)
        raise UserError(f"no task {name!r}; did you mean {near[0]!r}? Tasks: {', '.join(_MODULES)}")
    return import_module(_MODULES[name]).TASK
