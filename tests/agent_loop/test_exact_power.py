"""Power of the exact tests, against values worked out by hand and against counting all outcomes."""

import itertools
import math

import pytest

from robocoach.agent_loop import power
from robocoach.agent_loop.statistics import clopper_pearson, mcnemar_exact


def test_six_one_sided_disagreements_are_the_fewest_that_mcnemar_rejects():
    assert mcnemar_exact(5, 0) == pytest.approx(0.0625) and mcnemar_exact(6, 0) == pytest.approx(0.03125)
    # n = 6 pairs: all six must disagree, so the power is difference⁶ and the threshold 0.8^(1/6).
    assert power.detectable_difference(6) == pytest.approx(0.8 ** (1 / 6), abs=2e-3)
    assert power.detectable_difference(5) is None


def test_ten_pairs_by_the_binomial_tail():
    found = power.detectable_difference(10)
    assert found is not None

    def tail(p):
        return sum(math.comb(10, k) * p**k * (1 - p) ** (10 - k) for k in range(6, 11))

    assert tail(found) >= 0.8 > tail(found - 0.002)
    assert found == pytest.approx(0.674, abs=0.002)


def test_pair_power_is_the_sum_over_all_outcomes():
    n, only_a, only_b = 7, 0.5, 0.1
    total = 0.0
    for outcome in itertools.product("ab=", repeat=n):
        a, b = outcome.count("a"), outcome.count("b")
        if mcnemar_exact(a, b) <= 0.05:
            total += only_a**a * only_b**b * (1 - only_a - only_b) ** (n - a - b)
    assert power.pair_power(n, only_a, only_b) == pytest.approx(total)


@pytest.mark.parametrize("n", [1, 6, 13, 40])
def test_the_table_of_rejections_is_mcnemars(n):
    for m, table in enumerate(power._rejected(n, 0.05)):
        assert table.tolist() == [float(mcnemar_exact(a, m - a) <= 0.05) for a in range(m + 1)]


def test_disagreements_both_ways_need_a_larger_difference():
    best, independent = power.detectable_difference(20), power.detectable_difference_independent(20, 0.5)
    assert best is not None and independent is not None and best < independent


def test_more_pairs_see_smaller_differences():
    found = [power.detectable_difference(n) for n in (10, 20, 50, 100)]
    assert None not in found and found == sorted(found, key=lambda value: -(value or 0))


def test_a_rate_is_told_from_a_reference_by_its_interval():
    below, above = power.distinguishable_rates(10, 0.5)
    assert below is not None and above is not None and below < 0.5 < above
    # Ten trials leave 50 % out only with 0, 1, 9 or 10 successes.
    told = [k for k in range(11) if not clopper_pearson(k, 10)[0] <= 0.5 <= clopper_pearson(k, 10)[1]]
    assert told == [0, 1, 9, 10]
    chance = above**10 + 10 * above**9 * (1 - above)
    assert chance == pytest.approx(0.8, abs=0.01)


def test_what_cannot_be_told_is_none():
    assert power.distinguishable_rates(3, 0.5) == (None, None)
    assert power.distinguishable_rates(10, 0.9)[1] is None


def test_no_pairs_see_nothing():
    assert power.pair_power(0, 0.9, 0.0) == 0.0 and power.detectable_difference(0) is None
