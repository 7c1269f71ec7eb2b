"""Normalisation statistics of a policy, taken over the mixture as it is sampled, in the form the policy keeps them.

Actions are taken relative to the state in which the chunk begins (joints; the gripper's width stays absolute) and
get their own mean and spread at each step of the chunk: changes grow along it, and the small first ones carry the
precision. Floors keep a dimension that hardly moves from being blown up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robocoach.datasets.contract import ACTION_NAMES, STATE_NAMES
from robocoach.datasets.statistics import weighted_statistics
from robocoach.policies.batches import Batches

MOST_FRAMES = 20_000
"""Frames of each source that are looked at, evenly spaced."""
STATE_RANGE_FLOOR = (0.1,) * 7 + (0.02,)
"""Smallest q01–q99 range of the state [rad, m]."""
ACTION_RANGE_FLOOR = (0.02,) * 7 + (0.04,)
"""Smallest q01–q99 range of a relative action [rad], of the commanded width [m]."""
PRIVILEGED_RANGE_FLOOR = 0.02
RELATIVE = np.array(["gripper" not in name for name in ACTION_NAMES], dtype=np.float32)
"""Joints are relative to the state, the gripper is absolute."""


@dataclass(frozen=True)
class PolicyStatistics:
    """float32 arrays, named as the policy's buffers."""

    state_low: np.ndarray
    """(8,) 1 % quantile."""
    state_high: np.ndarray
    """(8,) 99 % quantile."""
    action_mean: np.ndarray
    """(chunk, 8)"""
    action_std: np.ndarray
    """(chunk, 8)"""
    privileged_mean: np.ndarray
    """(P,)"""
    privileged_std: np.ndarray
    """(P,)"""
    floored: tuple[str, ...]
    """Dimensions of the state that hardly move."""


def policy_statistics(batches: Batches) -> PolicyStatistics:
    """Statistics over the training episodes. Raises UserError when a number that would be sampled is not finite."""
    mixture = batches.mixture
    frames = [batches.training_frames(index, MOST_FRAMES) for index in range(len(mixture.sources))]
    state = mixture.weighted(
        [source.states[rows] for source, rows in zip(mixture.sources, frames, strict=True)],
        STATE_NAMES,
        STATE_RANGE_FLOOR,
        frames,
    )
    relative = []
    for index, rows in enumerate(frames):
        origin = mixture.sources[index].states[rows] * RELATIVE
        relative.append((batches.chunks(index, rows) - origin[:, None]).reshape(len(rows), -1))
    steps = range(batches.chunk_size)
    names = [f"{name} (step {step})" for step in steps for name in ACTION_NAMES]
    action = mixture.weighted(relative, names, ACTION_RANGE_FLOOR * batches.chunk_size, frames)
    shape = (batches.chunk_size, len(ACTION_NAMES))
    mean, std = _privileged(batches, frames)
    return PolicyStatistics(
        state_low=state.q01.astype(np.float32),
        state_high=state.q99.astype(np.float32),
        action_mean=action.mean.reshape(shape).astype(np.float32),
        action_std=action.std.reshape(shape).astype(np.float32),
        privileged_mean=mean,
        privileged_std=std,
        floored=state.floored,
    )


def _privileged(batches: Batches, frames: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of the known object poses, over the sources that have them."""
    rows, shares, chances = [], [], []
    mixture = batches.mixture
    for source, share, chosen, chance in zip(
        mixture.sources, mixture.shares, frames, mixture.chances(frames), strict=True
    ):
        if source.privileged is not None:
            values = source.privileged[chosen]
            known = np.isfinite(values).all(axis=1)
            values = values[known]
            if len(values) and share:
                rows.append(values)
                shares.append(share)
                chances.append(None if chance is None else chance[known])
    size = batches.privileged_size
    if not rows:
        return np.zeros(size, np.float32), np.ones(size, np.float32)
    names = [f"privileged {index}" for index in range(size)]
    found = weighted_statistics(rows, shares, names, floors=[PRIVILEGED_RANGE_FLOOR] * size, within=chances)
    return found.mean.astype(np.float32), found.std.astype(np.float32)
