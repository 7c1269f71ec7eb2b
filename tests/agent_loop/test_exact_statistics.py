"""Intervals and the paired test against SciPy and against published figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from robocoach.agent_loop.statistics import Rate, clopper_pearson, mcnemar_exact, pair


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_interval_equals_scipys_exact_one(counts):
    successes, n = counts
    expected = binomtest(successes, n).proportion_ci(method="exact")
    assert clopper_pearson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


@pytest.mark.parametrize(("k", "n", "low", "high"), [(8, 10, 44, 97), (17, 20, 62, 97), (50, 100, 40, 60)])
def test_interval_equals_published_percentages(k, n, low, high):
    got = clopper_pearson(k, n)
    assert [round(100 * edge) for edge in got] == [low, high]


def test_interval_of_nothing_is_everything():
    assert clopper_pearson(0, 0) == (0.0, 1.0)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="11 successes of 10"):
        clopper_pearson(11, 10)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_equals_scipys_binomial_test(a, b):
    expected = binomtest(a, a + b, 0.5).pvalue if a + b else 1.0
    assert mcnemar_exact(a, b) == pytest.approx(expected, abs=1e-12)


def test_pairing_counts_each_kind_of_scene():
    paired = pair([True, True, False, False, False], [True, False, True, True, False])
    assert (paired.both, paired.only_a, paired.only_b, paired.neither) == (1, 1, 2, 1)


def test_pairing_of_different_lengths_is_refused():
    with pytest.raises(ValueError):
        pair([True], [True, False])


def test_a_rate_is_never_printed_without_n_and_interval():
    assert str(Rate(8, 10)) == "8/10 = 80 % (95 % CI 44–97 %)"
