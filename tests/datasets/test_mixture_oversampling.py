"""Oversampled stages: their shares, in samples and in statistics, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import STATE_KEY
from robocoach.datasets.frames import FrameSource
from robocoach.datasets.mixture import HIGHEST_OVERSAMPLE, Mixture, parse_oversample

STAGES = ("reach", "grasp", "lift", "place", "release")


def source(name: str, stages: list[int], values: list[float] | None = None) -> FrameSource:
    count = len(stages)
    numbers = np.repeat(np.array(values or [0.0] * count, np.float32)[:, None], 8, axis=1)
    zeros, images = np.zeros(count, np.int64), np.zeros((count, 2, 2, 3), np.uint8)
    return FrameSource(name, images, numbers, numbers, None, zeros, zeros, ("stack",), np.array(stages), "digest")


def test_stages_are_read_as_weights_of_their_indices():
    assert parse_oversample(" grasp=2, place = 3.5", STAGES) == {1: 2.0, 3: 3.5}
    assert parse_oversample("", STAGES) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("grip=2", "unknown stage 'grip'; choose from reach, grasp, lift, place, release"),
        ("grasp", "'grasp' is not stage=weight; write for example reach=2"),
        ("grasp=2,", "'' is not stage=weight"),
        ("grasp=2,grasp=3", "'grasp' is given twice"),
        ("grasp=much", "the weight of grasp is not a number: 'much'"),
        ("grasp=0", "the weight of grasp is 0; it must be above 0 and at most 100"),
        ("grasp=-1", "must be above 0"),
        ("grasp=nan", "must be above 0"),
        ("grasp=101", "at most 100"),
    ],
)
def test_a_bad_oversample_is_refused_in_one_line(text, told):
    with pytest.raises(UserError) as refused:
        parse_oversample(text, STAGES)
    assert told in str(refused.value)


@given(st.text(max_size=20) | st.text("graspplace=,.0123456789 ", max_size=20))
def test_any_text_is_an_oversample_or_one_line(text):
    try:
        weights = parse_oversample(text, STAGES)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert all(0 < weight <= HIGHEST_OVERSAMPLE for weight in weights.values())


WEIGHTS = st.dictionaries(st.integers(0, 4), st.floats(0.05, HIGHEST_OVERSAMPLE), min_size=1)
FRAMES = st.lists(st.integers(-1, 5), min_size=1, max_size=60)


@settings(max_examples=100, deadline=None)
@given(FRAMES, WEIGHTS, st.integers(0, 2**32 - 1))
def test_stages_are_drawn_in_proportion_to_weight_and_frames(stages, weights, seed):
    mixture = Mixture((source("sim", stages),), {"sim": 1.0}, weights)
    _, frame = mixture.sample(np.random.default_rng(seed), 4000)
    each = np.array([weights.get(stage, 1.0) for stage in stages])
    for stage in set(stages):
        mine = np.array(stages) == stage
        share = each[mine].sum() / each.sum()
        # Six standard deviations of a binomial share over 4,000 draws.
        assert abs(mine[frame].mean() - share) <= 6 * np.sqrt(share * (1 - share) / 4000) + 1e-9


@settings(max_examples=50, deadline=None)
@given(FRAMES, WEIGHTS, st.floats(0.01, 0.99))
def test_the_sources_keep_their_shares(stages, weights, real):
    pair = (source("sim", stages), source("real", [1] * 7))
    mixture = Mixture(pair, {"sim": 1 - real, "real": real}, weights)
    which, frame = mixture.sample(np.random.default_rng(0), 4000)
    assert abs(which.mean() - real) <= 6 * np.sqrt(real * (1 - real) / 4000) + 1e-9
    assert (frame < np.array([len(stages), 7])[which]).all()


@settings(max_examples=100, deadline=None)
@given(FRAMES, WEIGHTS, st.randoms(use_true_random=False))
def test_the_statistics_are_those_of_what_is_drawn(stages, weights, random):
    values = [random.uniform(-1, 1) for _ in stages]
    mixture = Mixture((source("sim", stages, values),), {"sim": 1.0}, weights)
    each = np.array([weights.get(stage, 1.0) for stage in stages])
    mean = float(each @ np.array(values) / each.sum())
    assert mixture.statistics()[STATE_KEY].mean == pytest.approx(np.full(8, mean), abs=1e-6)


def test_some_frames_are_weighed_as_those_frames():
    mixture = Mixture((source("sim", [0, 0, 1, 1]),), {"sim": 1.0}, {1: 3.0})
    rows = np.array([[0.0], [1.0]])
    found = mixture.weighted([rows], ["joint_1.pos"], frames=[np.array([1, 2])])
    assert found.mean[0] == pytest.approx(0.75)


def test_real_frames_are_alike_whatever_their_stage():
    mixture = Mixture((source("real", [0, 1, 1]),), {"real": 1.0}, {1: 50.0})
    assert mixture.frame_weights == (None,)


def test_corrective_frames_are_oversampled_too():
    mixture = Mixture((source("corrective", [0, 1]),), {"corrective": 1.0}, {1: 3.0})
    _, frame = mixture.sample(np.random.default_rng(0), 4000)
    assert frame.mean() == pytest.approx(0.75, abs=0.04)


def test_without_oversampling_the_draws_are_the_old_ones():
    pair = (source("sim", [0, 1, 2, -1]), source("real", [0] * 3))
    plain, named = (
        Mixture(pair, {"sim": 2.0, "real": 1.0}, oversample).sample(np.random.default_rng(3), 500)
        for oversample in ({}, {4: 9.0})
    )
    rng = np.random.default_rng(3)
    which = rng.choice(2, size=500, p=np.array([2, 1]) / 3)
    assert np.array_equal(plain[0], which)
    assert np.array_equal(plain[1], rng.integers(0, np.array([4, 3])[which]))
    assert np.array_equal(plain[1], named[1])


def test_a_mixture_can_be_copied_with_its_weights():
    mixture = Mixture((source("sim", [0, 1]),), {"sim": 1.0}, {1: 3.0})
    assert mixture.frame_weights[0] is not None
    assert dataclasses.replace(mixture, oversample={}).frame_weights == (None,)
