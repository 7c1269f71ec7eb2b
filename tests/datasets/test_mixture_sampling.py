"""The mixture: parsing `--mix`, and drawing frames with the weights it says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import ACTION_KEY, STATE_KEY
from robocoach.datasets.frames import FrameSource
from robocoach.datasets.mixture import Mixture, parse_mix


def source(name: str, frames: int, value: float = 0.0, instruction: str = "stack") -> FrameSource:
    numbers = np.full((frames, 8), value, np.float32)
    zeros = np.zeros(frames, np.int64)
    images = np.zeros((frames, 2, 2, 3), np.uint8)
    return FrameSource(name, images, numbers, numbers + 1, None, zeros, zeros, (instruction,), zeros - 1, "digest")


def test_a_mix_is_read_as_weights():
    assert parse_mix("sim=10, real=1") == {"sim": 10.0, "real": 1.0}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sim=10,reel=1", "unknown source 'reel'; choose from sim, real"),
        ("sim=-1", "the weight of sim is -1; it must be finite and 0 or more"),
        ("sim=0,real=0", "all weights are 0"),
        ("sim=ten", "the weight of sim is not a number: 'ten'"),
        ("sim=nan", "must be finite"),
        ("sim=inf", "must be finite"),
        ("sim", "'sim' is not source=weight"),
        ("", "is not source=weight"),
        ("sim=1,", "is not source=weight"),
        ("sim=1,sim=2", "'sim' is given twice"),
    ],
)
def test_a_bad_mix_is_refused_in_one_line(text, told):
    with pytest.raises(UserError) as refused:
        parse_mix(text)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.text(max_size=20))
def test_any_text_is_a_mix_or_one_line(text):
    try:
        weights = parse_mix(text)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert sum(weights.values()) > 0


WEIGHTS = st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)).filter(lambda pair: sum(pair) > 0)


@settings(max_examples=50, deadline=None)
@given(WEIGHTS, st.integers(1, 500), st.integers(1, 500), st.integers(0, 2**32 - 1))
def test_samples_stay_in_their_source_and_keep_the_shares(weights, sim_frames, real_frames, seed):
    mixture = Mixture((source("sim", sim_frames), source("real", real_frames)), {"sim": weights[0], "real": weights[1]})
    which, frame = mixture.sample(np.random.default_rng(seed), 4000)
    assert (frame >= 0).all()
    assert (frame < np.array([sim_frames, real_frames])[which]).all()
    share = weights[1] / sum(weights)
    # Six standard deviations of a binomial share over 4,000 draws.
    assert abs(which.mean() - share) <= 6 * np.sqrt(share * (1 - share) / 4000) + 1e-9


def test_the_shares_do_not_depend_on_the_sizes():
    mixture = Mixture((source("sim", 10_000), source("real", 10)), {"sim": 10, "real": 1})
    which, _ = mixture.sample(np.random.default_rng(0), 22_000)
    assert which.mean() == pytest.approx(1 / 11, abs=0.01)


def test_every_frame_of_a_source_is_drawn():
    mixture = Mixture((source("sim", 50), source("real", 5)), {"sim": 1, "real": 1})
    which, frame = mixture.sample(np.random.default_rng(0), 5000)
    assert set(frame[which == 0]) == set(range(50))
    assert set(frame[which == 1]) == set(range(5))


def test_the_same_seed_draws_the_same_samples():
    mixture = Mixture((source("sim", 50), source("real", 5)), {"sim": 2, "real": 1})
    first, second = (mixture.sample(np.random.default_rng(7), 100) for _ in range(2))
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])


def test_a_source_of_weight_zero_is_never_drawn():
    mixture = Mixture((source("sim", 50), source("real", 5)), {"sim": 1, "real": 0})
    assert (mixture.sample(np.random.default_rng(0), 1000)[0] == 0).all()


def test_a_weight_without_its_source_is_left_out():
    mixture = Mixture((source("sim", 50),), parse_mix("sim=10,real=1"))
    assert mixture.shares.tolist() == [1.0]


def test_a_source_without_a_weight_is_refused():
    with pytest.raises(UserError, match="no weight for the source real; add real=1"):
        Mixture((source("sim", 5), source("real", 5)), {"sim": 1})


def test_sources_that_all_weigh_nothing_are_refused():
    with pytest.raises(UserError, match=r"the sources at hand \(sim\) have no weight"):
        Mixture((source("sim", 5),), {"sim": 0, "real": 1})


def test_an_empty_source_is_refused():
    with pytest.raises(UserError, match="the source sim has no frames"):
        Mixture((source("sim", 0),), {"sim": 1})


def test_instructions_of_all_sources_are_listed_once():
    pair = (source("sim", 5, instruction="stack"), source("real", 5, instruction="pour"))
    assert Mixture((*pair, source("real", 5, instruction="stack")), {"sim": 1, "real": 1}).instructions == (
        "stack",
        "pour",
    )


def test_statistics_follow_the_weights_and_not_the_sizes():
    mixture = Mixture((source("sim", 1000, value=0.0), source("real", 10, value=1.0)), {"sim": 1, "real": 1})
    statistics = mixture.statistics()
    assert statistics[STATE_KEY].mean == pytest.approx(np.full(8, 0.5))
    assert statistics[ACTION_KEY].mean == pytest.approx(np.full(8, 1.5))
