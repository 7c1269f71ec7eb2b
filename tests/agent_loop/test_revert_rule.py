import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robocoach.agent_loop import evidence
from robocoach.agent_loop.revert import compare, order, success_margin
from robocoach.agent_loop.tree import Batch


def batch(successes=0, goal=0, closest_m=0.05, carries=0, aborted=0, n=10):
    return Batch(n, successes, goal, closest_m, carries, aborted)


TEN, SIZES = st.just(10), st.integers(1, 20)


@st.composite
def batches(draw, sizes=TEN):
    n = draw(sizes)
    successes = draw(st.integers(0, n))
    return Batch(
        n,
        successes,
        draw(st.integers(0, n - successes)),
        draw(st.one_of(st.floats(0, 0.5), st.just(math.inf))),
        draw(st.integers(0, n)),
        draw(st.integers(0, n - successes)),
    )


@pytest.mark.parametrize(("n", "margin"), [(8, 2), (12, 3), (10, 3), (4, 2), (1, 2), (100, 25)])
def test_the_margin_of_success_is_a_quarter_and_at_least_two(n, margin):
    assert success_margin(n) == margin


@pytest.mark.parametrize(("n", "least"), [(8, 2), (12, 3)])
def test_success_decides_from_its_margin_on(n, least):
    assert compare(batch(4 + least, n=n), batch(4, n=n)).key == "success"
    assert compare(batch(4 + least - 1, n=n), batch(4, n=n)).key == ""


def test_success_decides_before_every_other_key():
    verdict = compare(batch(2, closest_m=0.0, goal=8, carries=10), batch(6, closest_m=0.4))
    assert verdict.worse and verdict.key == "success" and "2/10 against 6/10" in verdict.reason


@pytest.mark.parametrize(
    ("better", "within", "key"),
    [
        ({"goal": 3}, {"goal": 2}, "goal"),
        ({"closest_m": 0.03}, {"closest_m": 0.031}, "approach"),
        ({"carries": 3}, {"carries": 2}, "carries"),
    ],
)
def test_attempts_at_zero_success_are_still_ordered_from_each_margin_on(better, within, key):
    assert (compare(batch(**better), batch()).word, compare(batch(**better), batch()).key) == ("better", key)
    assert (compare(batch(), batch(**better)).word, compare(batch(), batch(**better)).key) == ("worse", key)
    assert compare(batch(**within), batch()).word == "equal"


def test_a_higher_key_decides_before_a_lower_one():
    assert compare(batch(goal=3, closest_m=0.2), batch()).word == "better"
    assert compare(batch(closest_m=0.2, carries=9), batch()).key == "approach"


def test_a_lower_key_does_not_overrule_the_direction_of_success():
    assert compare(batch(5, goal=0), batch(4, goal=5)).word == "equal"
    assert compare(batch(5, closest_m=0.3), batch(4)).word == "equal"


def test_a_lower_key_decides_in_the_direction_of_success():
    assert compare(batch(4, goal=0), batch(5, goal=4)).key == "goal"


def test_a_failure_at_the_goal_that_becomes_a_success_is_no_loss():
    assert compare(batch(3, goal=0), batch(1, goal=4, n=10)).word != "worse"
    assert compare(batch(2, goal=0), batch(0, goal=2)).word == "equal"


def test_a_batch_without_an_approach_is_far():
    verdict = compare(batch(closest_m=math.inf, aborted=6), batch(closest_m=0.4))
    assert verdict.worse and "none against 400 mm" in verdict.reason


def test_an_approach_that_is_no_number_is_far_and_still_ordered():
    raw = {"seed": 0, "success": False, "stage": 0, "ticks": 9, "measures": {"closest_m": math.nan, "carried": 0.0}}
    found = evidence.batch([evidence.rollout_from(raw, Path("0.json"))], 1)
    assert found.closest_m == math.inf
    assert compare(found, batch(n=1)).key == "approach" and order(found) < order(batch(n=1))


def test_a_batch_that_aborted_as_a_whole_is_always_a_regression():
    crashed = batch(aborted=10, closest_m=math.inf)
    assert compare(crashed, batch(closest_m=0.9)).worse and compare(crashed, crashed).worse
    assert order(batch(aborted=10, closest_m=0.0)) < order(batch(closest_m=math.inf))


@given(batches(SIZES), batches(SIZES))
def test_a_batch_that_aborted_as_a_whole_loses_against_any_that_ran(crashed, ran):
    crashed = replace(crashed, successes=0, aborted=crashed.n)
    if ran.aborted == ran.n:
        return
    assert compare(crashed, ran).worse and compare(ran, crashed).word == "better"
    assert order(crashed) < order(ran)


@given(batches(SIZES), batches(SIZES))
def test_comparing_is_antisymmetric(a, b):
    if a.aborted < a.n or b.aborted < b.n:
        assert compare(a, b).direction == -compare(b, a).direction


@given(batches(), batches(), st.booleans())
def test_one_more_success_never_makes_it_worse(a, b, was_at_the_goal):
    if a.aborted or a.successes == a.n:
        return
    goal = a.reached_goal - 1 if a.reached_goal and was_at_the_goal else a.reached_goal
    more = replace(a, successes=a.successes + 1, reached_goal=min(goal, a.n - a.successes - 1))
    assert order(more) > order(a)
    assert compare(more, b).direction >= compare(a, b).direction
    assert not compare(more, a).worse


@given(batches(SIZES), batches(SIZES))
def test_no_lower_key_turns_the_direction_of_success_around(a, b):
    if a.aborted == a.n or b.aborted == b.n:
        return
    won = a.successes * b.n - b.successes * a.n
    assert compare(a, b).direction * won >= 0


@given(batches(SIZES), st.integers(2, 4))
def test_batches_of_unlike_size_are_compared_by_their_shares(a, times):
    if a.aborted == a.n:
        return
    counts = (a.successes, a.reached_goal, a.carries, a.aborted)
    wins, goal, carries, aborted = (times * count for count in counts)
    assert compare(Batch(times * a.n, wins, goal, a.closest_m, carries, aborted), a).word == "equal"


@given(batches(SIZES), batches(SIZES))
def test_a_reason_is_one_line_with_numbers(a, b):
    reason = compare(a, b).reason
    assert "\n" not in reason and any(character.isdigit() for character in reason)
