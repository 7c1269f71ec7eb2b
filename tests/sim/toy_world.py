"""A world without physics for tests: the arm goes where it is told, closed fingers take a near cube along.

Stands in for the Genesis environment in a `SimulatorPool`, so that what surrounds the simulator is tested in seconds.
"""

import os
import time
from pathlib import Path

import numpy as np

from robocoach.datasets.contract import GripperRule
from robocoach.sim.kinematics import Arm
from robocoach.sim.state import SimState
from robocoach.sim.tasks.stack_cube import BASE, EDGE_M, TOP

RULE = GripperRule()
FINGERS_M = 0.04
"""What the fingers move in a tick."""


class ToyWorld:
    def __init__(self, task_name: str) -> None:
        self.task_name = task_name
        self.arm = Arm()

    def reset(self, scene):
        self.scene, self.q, self.width = scene, np.array(scene.start_q), RULE.open_width_m
        self.objects = {name: pose.copy() for name, pose in scene.objects.items()}
        self.closed, self.grip = False, None
        return self.state()

    def step(self, action):
        self.q = np.asarray(action[:7], dtype=float)
        self.closed = RULE.wants_closed(float(action[7]), self.closed)
        tcp, top = self.arm.tcp_pose(self.q)[0], self.objects[TOP]
        if not self.closed:
            self.width = min(RULE.open_width_m, self.width + FINGERS_M)
            if self.grip is not None:
                self.grip = None
                on_base = np.hypot(*(top - self.objects[BASE])[:2]) < EDGE_M / 2
                top[2] = EDGE_M * (1.5 if on_base else 0.5)
        elif self.grip is None:
            near = np.linalg.norm(top[:3] - tcp) < 0.4 * EDGE_M
            self.width = max(EDGE_M if near else 0.0, self.width - FINGERS_M)
            if near and self.width == EDGE_M:
                self.grip = top[:3] - tcp
        if self.grip is not None:
            top[:3] = tcp + self.grip
        return self.state()

    def state(self):
        objects = {name: pose.copy() for name, pose in self.objects.items()}
        return SimState(self.q, self.width, objects, dict.fromkeys(objects, 0.0))

    def wrist(self):
        return np.full((224, 224, 3), int(255 * self.scene.colours[TOP][0]), dtype=np.uint8)

    def side(self):
        return np.zeros((240, 320, 3), dtype=np.uint8)


class StandStill:
    """Repeats where the arm is."""

    def reset(self):
        pass

    def act(self, image, state, instruction):
        return np.repeat(state[None], 8, axis=0)


class Crashes(StandStill):
    def act(self, image, state, instruction):
        raise RuntimeError("out of ideas")


class Dies(StandStill):
    """Takes its worker along, `times` times altogether (counted in a folder); −1: always."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder, self.times = folder, times

    def act(self, image, state, instruction):
        count = len(list(self.folder.iterdir()))
        if self.times < 0 or count < self.times:
            (self.folder / str(count)).touch()
            os._exit(1)
        return super().act(image, state, instruction)


class Hangs(StandStill):
    def act(self, image, state, instruction):
        time.sleep(60)


class Reaches(StandStill):
    """Goes down by a fixed joint step a tick and closes: fails the same way in every scene."""

    def act(self, image, state, instruction):
        rows = np.repeat(state[None], 8, axis=0)
        rows[:, 1] += 0.02 * np.arange(1, 9)
        rows[:, 7] = 0.0 if state[1] > 0.2 else 0.08
        return rows


def no_policy():
    from robocoach.configs.errors import UserError

    raise UserError("there is no checkpoint at nowhere")
