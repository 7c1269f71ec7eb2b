"""Seed ranges: no scene on which a policy is judged is ever shown to it or to the coach."""

from itertools import combinations
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robocoach.datasets.splits import PER_RUN, RANGES, SPAN, Split, seeds

SPLITS = get_args(Split)


def test_no_two_ranges_share_a_seed():
    assert set(RANGES) == set(SPLITS)
    for one, other in combinations(RANGES.values(), 2):
        assert one.stop <= other.start or other.stop <= one.start


@given(
    st.sampled_from(SPLITS),
    st.integers(0, 10**6),
    st.integers(0, PER_RUN).flatmap(lambda start: st.tuples(st.just(start), st.integers(0, PER_RUN - start))),
)
def test_the_seeds_of_a_run_stay_in_their_range(split, run_seed, window):
    start, count = window
    chosen = seeds(split, run_seed, count, start)
    assert len(chosen) == count
    assert all(seed in RANGES[split] for seed in (chosen[0], chosen[-1])) if count else True


@given(st.sampled_from(SPLITS), st.integers(0, 999), st.integers(0, 999))
def test_two_runs_share_no_scene(split, one, other):
    a, b = seeds(split, one, PER_RUN), seeds(split, other, PER_RUN)
    assert a == b if one == other else a.stop <= b.start or b.stop <= a.start


@given(st.sampled_from(SPLITS), st.integers(0, 999), st.integers(0, 5000), st.integers(0, 5000))
def test_asking_in_two_parts_gives_the_same_seeds(split, run_seed, first, second):
    parts = [*seeds(split, run_seed, first), *seeds(split, run_seed, second, start=first)]
    assert parts == list(seeds(split, run_seed, first + second))


@pytest.mark.parametrize(("count", "start"), [(PER_RUN + 1, 0), (1, PER_RUN), (-1, 0), (1, -1)])
def test_a_run_cannot_leave_its_share(count, start):
    with pytest.raises(ValueError, match="seeds a split"):
        seeds("heldout", 0, count, start)


def test_every_run_seed_of_the_settings_has_its_own_share():
    assert SPAN // PER_RUN >= 1000
