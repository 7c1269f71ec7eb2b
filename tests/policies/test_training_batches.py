"""Batches: chunks stay inside their episode, kept-apart episodes are never drawn, a step always gets the same batch."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.datasets.mixture import Mixture
from robocoach.policies import synthetic
from robocoach.policies.batches import Batches, colour_changes, shift_images


def _numbered(name: str, episodes: int, length: int, privileged: bool = True, dims: int = 4):
    """A source whose states hold their frame's number and whose actions hold it too."""
    source = synthetic.make_source(1, 32, name=name, privileged=privileged)
    count = episodes * length
    number = np.arange(count, dtype=np.float32)
    return dataclasses.replace(
        source,
        images=np.zeros((count, 32, 32, 3), np.uint8),
        states=np.repeat(number[:, None], 8, axis=1),
        actions=np.repeat(number[:, None], 8, axis=1),
        privileged=np.zeros((count, dims), np.float32) if privileged else None,
        episode=np.repeat(np.arange(episodes), length),
        instruction=np.zeros(count, np.int64),
        stages=np.zeros(count, np.int64),
    )


def _batches(*sources, weights=None, chunk=4) -> Batches:
    return Batches(Mixture(sources, weights or {source.name: 1.0 for source in sources}), chunk, seed=0)


def test_a_chunk_past_the_end_repeats_the_last_action_of_its_episode():
    batches = _batches(_numbered("sim", episodes=3, length=5))
    np.testing.assert_array_equal(batches.chunks(0, np.array([8]))[0, :, 0], [8, 9, 9, 9])


def test_training_never_draws_an_episode_that_is_kept_apart():
    source = _numbered("sim", episodes=25, length=4)
    batches = _batches(source)
    drawn = {int(n) // 4 for step in range(60) for n in batches.training(step, 32)[0].states[:, 0]}
    kept = batches.validation(500)
    assert kept is not None
    apart = {int(n) // 4 for n in kept.states[:, 0]}
    assert len(apart) == batches.validation_episodes == 2
    assert drawn | apart == set(range(25))
    assert not drawn & apart


def test_a_step_gets_the_same_batch_whenever_it_is_asked_for():
    batches = _batches(_numbered("sim", 8, 10))
    first = batches.training(7, 16)[0].states
    batches.training(8, 16)
    np.testing.assert_array_equal(batches.training(7, 16)[0].states, first)
    assert not np.array_equal(batches.training(8, 16)[0].states, first)


def test_two_processes_get_different_frames_in_the_same_step():
    batches = _batches(_numbered("sim", 8, 10))
    assert not np.array_equal(batches.training(0, 16, 0)[0].states, batches.training(0, 16, 1)[0].states)


def test_sources_are_drawn_by_their_weight_and_without_poses_are_marked_unknown():
    sources = _numbered("sim", 8, 10), _numbered("real", 8, 100, privileged=False)
    batches = _batches(*sources, weights={"sim": 3.0, "real": 1.0})
    batch = batches.training(0, 4000)[0]
    assert np.mean(batch.source == 0) == pytest.approx(0.75, abs=0.03)
    np.testing.assert_array_equal(batch.known, batch.source == 0)


def test_sources_that_describe_different_objects_are_refused():
    sources = _numbered("sim", 4, 5, dims=4), _numbered("real", 4, 5, dims=6)
    with pytest.raises(UserError, match="different objects"):
        _batches(*sources)


def test_three_episodes_keep_nothing_apart():
    assert _batches(_numbered("sim", 3, 5)).validation(8) is None


def test_a_shift_moves_the_image_and_repeats_its_edge():
    image = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1).repeat(3, axis=3)

    class AlwaysOneRight:
        def integers(self, low, high, size):
            assert (low, high) == (-1, 2)
            return np.array([[0, 1]])

    moved = shift_images(image, 1, cast(Any, AlwaysOneRight()))
    np.testing.assert_array_equal(moved[0, 0, :, 0], [1, 2, 3, 3])


def test_no_colour_change_at_strength_zero():
    gain, bias = colour_changes(5, 0.0, np.random.default_rng(0))
    np.testing.assert_array_equal(gain, np.ones((5, 3)))
    np.testing.assert_allclose(bias, 0, atol=1e-7)


def test_contrast_turns_around_middle_grey():
    gain, bias = colour_changes(1000, 0.4, np.random.default_rng(0))
    np.testing.assert_allclose((0.5 * gain + bias).mean(0), 0.5, atol=0.02)
