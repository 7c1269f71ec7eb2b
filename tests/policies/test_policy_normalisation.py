"""Normalisation of a policy: relative to the state, step by step, over the mixture as it is sampled, with floors."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np
import pytest
import torch

from robocoach.datasets.mixture import Mixture
from robocoach.policies import synthetic
from robocoach.policies.batches import Batches
from robocoach.policies.normalisation import policy_statistics


def _source(name: str, slope: float, start: float = 0.0, privileged=None):
    """Joint 1 grows by `slope` rad a frame from `start`; the command is one frame ahead. Everything else rests."""
    base = synthetic.make_source(1, 32, name=name)
    count, length = 400, 20
    states = np.zeros((count, 8), np.float32)
    states[:, 0] = start + slope * np.tile(np.arange(length), count // length)
    states[:, 7] = 0.04
    actions = states.copy()
    actions[:, 0] += slope
    return dataclasses.replace(
        base,
        images=np.zeros((count, 32, 32, 3), np.uint8),
        states=states,
        actions=actions,
        privileged=privileged,
        episode=np.repeat(np.arange(count // length), length),
        instruction=np.zeros(count, np.int64),
        stages=np.zeros(count, np.int64),
    )


def _statistics(*sources, weights=None, chunk=5):
    return policy_statistics(Batches(Mixture(sources, weights or {"sim": 1.0}), chunk, seed=0))


def test_relative_actions_grow_along_the_chunk():
    found = _statistics(_source("sim", slope=0.1))
    # Frames near the end of an episode repeat its last action, so the later means fall a little short of k * slope.
    assert found.action_mean[0, 0] == pytest.approx(0.1, abs=1e-6)
    assert np.all(np.diff(found.action_mean[:, 0]) > 0.05)


def test_the_gripper_stays_absolute():
    assert _statistics(_source("sim", slope=0.1)).action_mean[:, 7] == pytest.approx(0.04)


def test_where_the_arm_is_does_not_matter_to_relative_actions():
    near, far = (_statistics(_source("sim", slope=0.1, start=s)) for s in (0.0, 2.0))
    np.testing.assert_allclose(near.action_mean, far.action_mean, atol=1e-5)


def test_statistics_weigh_sources_as_they_are_sampled():
    sources = _source("sim", slope=0.0), _source("real", slope=0.1)
    found = _statistics(*sources, weights={"sim": 9.0, "real": 1.0})
    assert found.action_mean[0, 0] == pytest.approx(0.01, rel=0.01)


def test_a_dimension_that_rests_gets_a_floor():
    found = _statistics(_source("sim", slope=0.1))
    assert (found.state_high - found.state_low)[1] == pytest.approx(0.1)
    assert np.all(found.action_std > 1e-3)
    assert "joint_2.pos" in found.floored


def test_object_poses_are_normalised_over_the_sources_that_have_them():
    poses = np.random.default_rng(0).normal(3.0, 2.0, size=(400, 2)).astype(np.float32)
    poses[5] = np.nan  # unknown in this frame
    sources = _source("sim", 0.1, privileged=poses), _source("real", 0.1)
    found = _statistics(*sources, weights={"sim": 1.0, "real": 5.0})
    np.testing.assert_allclose(found.privileged_mean, 3.0, atol=0.3)
    np.testing.assert_allclose(found.privileged_std, 2.0, atol=0.3)


def test_a_policys_normalisation_and_its_inverse_agree(checkpoint):
    from robocoach.policies.checkpoint import load_policy

    policy = cast(Any, load_policy(checkpoint)).policy
    state = torch.randn(3, 8) * 0.1
    actions = state[:, None] + 0.01 * torch.randn(3, 6, 8)
    back = policy.absolute_actions(policy.normalise_actions(actions, state), state)
    inside = policy.normalise_actions(actions, state).abs() < 6
    torch.testing.assert_close(back[inside], actions[inside], atol=1e-5, rtol=0)
