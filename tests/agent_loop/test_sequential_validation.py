import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robocoach.agent_loop.sequential import Boundary


def chance_of_wrong_stop(boundary: Boundary, rate: float) -> float:
    """By listing every outcome of every rollout."""
    wrong = 0.0
    for outcomes in itertools.product((0, 1), repeat=boundary.n):
        stopped = any(boundary.stops(done, sum(outcomes[:done])) for done in range(1, boundary.n))
        if stopped and sum(outcomes) > boundary.best:
            wins = sum(outcomes)
            wrong += rate**wins * (1 - rate) ** (boundary.n - wins)
    return wrong


@pytest.mark.parametrize("best", [0, 3, 6, 9, 10])
@pytest.mark.parametrize("error", [0.0, 0.02, 0.2])
def test_the_chance_of_a_wrong_stop_is_that_of_listing_every_outcome(best, error):
    boundary = Boundary(10, best, error)
    for rate in (best / 10, min(1.0, best / 10 + 0.13)):
        wrong = chance_of_wrong_stop(boundary, rate)
        assert wrong == pytest.approx(boundary.stopped_share(rate), abs=1e-12)
        assert wrong <= error + 1e-12


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.floats(0, 1), st.sampled_from([0.005, 0.02, 0.1, 0.2]), st.floats(0, 1))
def test_no_attempt_as_good_as_the_best_is_ended_in_error_more_often_than_stated(n, share, error, above):
    boundary = Boundary(n, round(share * n), error)
    measured = boundary.best / n
    assert boundary.stopped_share(measured + above * (1 - measured)) <= error


def test_a_slightly_better_attempt_is_the_hardest_case_and_held_too():
    boundary = Boundary(30, 6, 0.1)
    assert boundary.stopped_share(6 / 30) < boundary.stopped_share(0.25) <= 0.1


@given(st.integers(1, 12), st.data())
def test_without_an_error_exactly_what_cannot_become_the_best_is_stopped(n, data):
    best = data.draw(st.integers(0, n))
    boundary = Boundary(n, best, 0.0)
    for done in range(1, n):
        for successes in range(done + 1):
            assert boundary.stops(done, successes) == (successes + n - done <= best)


def test_an_error_never_stops_later_than_curtailment():
    for best in range(21):
        exact, spent = Boundary(20, best, 0.0), Boundary(20, best, 0.05)
        assert all(a <= b for a, b in zip(exact.bounds, spent.bounds, strict=True))


def test_a_tie_with_the_best_cannot_win():
    assert Boundary(4, 4, 0.0).stops(1, 1)


def test_a_whole_validation_is_never_early():
    assert not Boundary(4, 4, 0.0).stops(4, 3)
    assert not Boundary(4, 2, 0.1).stops(0, 0)


def test_a_bound_never_falls_so_that_a_look_may_be_left_out():
    bounds = Boundary(40, 17, 0.1).bounds
    assert list(bounds) == sorted(bounds)


def test_an_attempt_above_what_the_best_measured_is_never_stopped():
    boundary = Boundary(20, 10, 0.2)
    assert not any(boundary.stops(done, (done + 1) // 2) for done in range(1, 20))


def test_rollouts_are_saved_as_the_docstring_says():
    assert Boundary(20, 15, 0.02).expected_rollouts(0.2) == pytest.approx(4.0, abs=0.05)
    assert Boundary(20, 15, 0.0).expected_rollouts(0.2) == pytest.approx(6.2, abs=0.06)
    assert Boundary(20, 5, 0.02).expected_rollouts(0.2) == pytest.approx(15.7, abs=0.05)
    assert Boundary(20, 5, 0.0).expected_rollouts(0.2) == pytest.approx(18.3, abs=0.05)


def test_the_mean_of_rollouts_agrees_with_listing_every_outcome():
    boundary, mean = Boundary(8, 5, 0.1), 0.0
    for outcomes in itertools.product((0, 1), repeat=8):
        ended = next((k for k in range(1, 8) if boundary.stops(k, sum(outcomes[:k]))), 8)
        mean += ended * 0.3 ** sum(outcomes) * 0.7 ** (8 - sum(outcomes))
    assert boundary.expected_rollouts(0.3) == pytest.approx(mean)


@pytest.mark.parametrize(("n", "best", "error"), [(4, 5, 0.0), (4, -1, 0.0), (4, 2, 1.0), (4, 2, -0.1)])
def test_counts_that_cannot_be_are_refused(n, best, error):
    with pytest.raises(ValueError, match="no boundary"):
        Boundary(n, best, error)
