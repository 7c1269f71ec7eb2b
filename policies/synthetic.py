"""A table in two dimensions: the learning problem of stacking without a simulator, for tests and benchmarks.

A camera looks straight down from a hand that moves in x and y. The red square is to be fetched and let go over the
green one. Joints 1 and 2 are the hand's position (0.01 rad a pixel of a 96 px image), the other joints only tremble.
The object poses are where the two squares are, relative to the hand. Runs closed loop, so that a policy is judged by
what it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

from robocoach.datasets.contract import Contract, Provenance
from robocoach.datasets.frames import FrameSource

INSTRUCTION = "put the red square on the green square"
VIEW_PX = 96
RAD_PER_PX = 0.01
FASTEST_PX = 5.0
OPEN_M, CLOSED_M = 0.08, 0.0
GRASP_PX = 4.0
"""Closing grasps the red square when the hand is at most this far from it."""
TICKS = 60

CONTRACT = Contract(
    provenance=Provenance(
        robot="fr3", camera="synthetic", fov_deg=None, mount="down", crop="none", controller="none", source="synthetic"
    )
)


@dataclass
class Table:
    """One scene: hand, red and green square in pixels; what the camera sees, and how it moves."""

    hand: np.ndarray
    red: np.ndarray
    green: np.ndarray
    yaw: np.ndarray
    rng: np.random.Generator
    closed: bool = False
    holding: bool = False

    @classmethod
    def random(cls, seed: int) -> Table:
        rng = np.random.default_rng(seed)
        while True:
            red, green = rng.uniform(-26, 26, size=(2, 2))
            if np.abs(red - green).max() > 16:
                return cls(rng.uniform(-6, 6, size=2), red, green, rng.uniform(-0.5, 0.5, size=2), rng)

    def state(self) -> np.ndarray:
        """float32 (8,)"""
        width = 0.03 if self.holding else CLOSED_M if self.closed else OPEN_M
        joints = np.array([*(self.hand * RAD_PER_PX), 0.1, -1.8, 0.0, 1.9, 0.7]) + self.rng.normal(0, 1e-3, 7)
        return np.array([*joints, width], dtype=np.float32)

    def privileged(self) -> np.ndarray:
        """float32 (4,): red and green relative to the hand [m], 4 mm a pixel."""
        return np.concatenate([self.red - self.hand, self.green - self.hand]).astype(np.float32) * 0.004

    def image(self, px: int) -> np.ndarray:
        """uint8 (px, px, 3)"""
        look = np.random.default_rng(int(self.yaw[0] * 1e9) & 0xFFFF)
        scale = px / VIEW_PX
        base = look.uniform(90, 170) + look.uniform(-15, 15, size=3)
        ramp = np.linspace(-1, 1, px, dtype=np.float32)
        slope_x, slope_y = look.uniform(-25, 25, size=2)
        image = np.broadcast_to(base, (px, px, 3)) + (slope_x * ramp[None, :] + slope_y * ramp[:, None])[..., None]
        image = np.ascontiguousarray(image, dtype=np.float32)
        light = look.uniform(0.7, 1.2)
        for place, yaw, colour in ((self.green, self.yaw[1], (40, 160, 60)), (self.red, self.yaw[0], (190, 40, 40))):
            corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * 6.0
            turn = np.array([[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]])
            points = ((corners @ turn.T + place - self.hand + VIEW_PX / 2) * scale * 16).round().astype(np.int32)
            tint = np.array(colour) * light + look.uniform(-15, 15, size=3)
            cv2.fillPoly(image, [points], tint.tolist(), lineType=cv2.LINE_AA, shift=4)
        image += self.rng.normal(0, 4, size=image.shape)
        return image.clip(0, 255).astype(np.uint8)

    def step(self, action: np.ndarray) -> None:
        """One tick with an absolute action (8,)."""
        move = action[:2] / RAD_PER_PX - self.hand
        self.hand = self.hand + move * min(1.0, 2 * FASTEST_PX / max(1e-9, float(np.abs(move).max())))
        closed = action[7] < 0.03 if not self.closed else action[7] < 0.05
        if closed and not self.closed:
            self.holding = bool(np.abs(self.red - self.hand).max() < GRASP_PX)
        self.holding &= bool(closed)
        self.closed = bool(closed)
        if self.holding:
            self.red = self.hand.copy()

    def error_px(self) -> float:
        """How far the red square is from the green one, infinite while it is held."""
        return math.inf if self.holding else float(np.abs(self.red - self.green).max())


class Demonstrator:
    """Goes to the red square, closes, goes to the green one, opens, rests."""

    def __init__(self) -> None:
        self._wait, self._done = 0, 0

    def act(self, table: Table) -> np.ndarray:
        goal = table.green if table.holding or self._done else table.red
        offset = goal - table.hand
        there = np.abs(offset).max() < 0.7
        closing = table.closed
        if not self._done:
            if not table.holding and there:
                closing = True
            elif table.holding and there:
                self._wait += 1
                if self._wait > 1:
                    closing, self._done = False, 1
        else:
            self._done += 1
        move = np.zeros(2) if self._done else 0.5 * offset
        move *= min(1.0, FASTEST_PX / max(1e-9, float(np.abs(move).max())))
        joints = np.array([*((table.hand + move) * RAD_PER_PX), 0.1, -1.8, 0.0, 1.9, 0.7])
        return np.array([*joints, CLOSED_M if closing else OPEN_M], dtype=np.float32)

    @property
    def finished(self) -> bool:
        """Whether it has rested for a few ticks."""
        return self._done > 4


def make_source(episodes: int, px: int, seed: int = 0, name: str = "sim", privileged: bool = True) -> FrameSource:
    """Demonstrations as a FrameSource; in two of three the hand is pushed about, so that recovering is shown."""
    rng = np.random.default_rng(seed)
    images, states, actions, poses, episode = [], [], [], [], []
    for index in range(episodes):
        table, demonstrator = Table.random(seed * 1_000_000 + index), Demonstrator()
        push = 1.2 if index % 3 else 0.0
        for _ in range(TICKS):
            action = demonstrator.act(table)
            images.append(table.image(px))
            states.append(table.state())
            actions.append(action)
            poses.append(table.privileged())
            episode.append(index)
            if demonstrator.finished:
                break
            table.step(action)
            table.hand = table.hand + rng.normal(0, push, 2)
            if table.holding:
                table.red = table.hand.copy()
    count = len(states)
    return FrameSource(
        name=name,
        images=np.stack(images),
        states=np.stack(states),
        actions=np.stack(actions),
        privileged=np.stack(poses) if privileged else None,
        episode=np.array(episode),
        instruction=np.zeros(count, np.int64),
        instructions=(INSTRUCTION,),
        stages=np.full(count, -1),
        digest=f"synthetic-{episodes}-{px}-{seed}-{privileged}",
    )


def rollout(act: Callable[[np.ndarray, np.ndarray, str], np.ndarray], seed: int, px: int) -> float:
    """Runs a policy closed loop; returns how far red ends from green [px], infinite when it was never let go."""
    table, lifted = Table.random(seed), False
    queue: list[np.ndarray] = []
    for _ in range(TICKS):
        if not queue:
            queue = list(act(table.image(px), table.state(), INSTRUCTION))
        table.step(queue.pop(0))
        lifted |= table.holding
    return table.error_px() if lifted else math.inf
