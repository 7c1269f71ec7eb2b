"""The wrist camera's image of one scene's start, from Genesis and from the twin's MuJoCo scene, for the report."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robocoach.sim.tasks import get_task

if TYPE_CHECKING:
    from robocoach.sim.genesis_env import GenesisEnvironment

TIMEOUT_S = 60.0


def genesis(environment: GenesisEnvironment, seed: int, path: str) -> None:
    """A job for the simulator pool: resets to the scene and writes what the wrist camera sees."""
    environment.reset(get_task(environment.task_name).sample_scene(seed))
    _write(environment.wrist(), Path(path))


def twin(task_name: str, seed: int, path: Path) -> bool:
    """The same in MuJoCo, in a process of its own (OpenGL belongs to one process); False when it does not render."""
    process = multiprocessing.get_context("spawn").Process(target=_mujoco, args=(task_name, seed, str(path)))
    process.start()
    process.join(TIMEOUT_S)
    if process.is_alive():
        process.terminate()
        process.join()
    return process.exitcode == 0


def _mujoco(task_name: str, seed: int, path: str) -> None:
    from robocoach.sim import mujoco_scene

    mujoco_scene.choose_gl()  # before sampling a scene, whose kinematics import MuJoCo
    scene = get_task(task_name).sample_scene(seed)
    _write(mujoco_scene.render_starts(task_name, [scene])[0], Path(path))


def _write(image: np.ndarray, path: Path) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)
