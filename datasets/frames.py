"""A dataset as arrays for training: every frame decoded once into a memory map, numbers in memory.

Decoding video in every epoch costs more than a training step of a small policy. Here a dataset's wrist images are
decoded and shrunk once into a memory map, beside the dataset and named after its content hash and the image size,
so that a second attempt, or a second process, opens it in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FrameSource:
    """All frames of one dataset, N in all; the frames of an episode are contiguous and in order."""

    name: str
    """`sim` or `real`."""
    images: np.ndarray
    """uint8 memory map (N, px, px, 3), RGB."""
    states: np.ndarray
    """float32 (N, 8): joints [rad], opening width [m]."""
    actions: np.ndarray
    """float32 (N, 8): joint targets [rad], commanded width [m]."""
    privileged: np.ndarray | None
    """float32 (N, P): training targets known in simulation; None when the dataset has none."""
    episode: np.ndarray
    """int64 (N,): episode index."""
    instruction: np.ndarray
    """int64 (N,): index into `instructions`."""
    instructions: tuple[str, ...]
    stages: np.ndarray
    """int64 (N,): index into the task's stages, -1 unknown."""
    digest: str
    """Content hash of the dataset."""
