import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robocoach.agent_loop.stopping import Facts, should_stop, since_best
from robocoach.configs.models import CampaignConfig

RULES = CampaignConfig(hours=1, attempts=9, target=0.9, unchanged=3, stalled=4, spend_usd=5, gpu_hours=2)
GOING = Facts(
    rules=RULES,
    attempts=3,
    validations=((5, 20), (8, 20), None),
    validation_n=20,
    unchanged=0,
    spent_usd=0.0,
    spent_s=600.0,
    gpu_s=0.0,
    attempt_s=300.0,
    confirm_s=60.0,
)
LIMITS = [
    ({"attempts": 9}, "attempts are made"),
    ({"validations": ((18, 20), None, None, None, None)}, "target of 90 %"),
    ({"unchanged": 3}, "unchanged"),
    ({"validations": ((5, 20), (4, 20), None, (5, 20), None)}, "no better"),
    ({"spent_usd": 5.0}, "money"),
    ({"spent_s": 3300.0}, "wall time"),
    ({"gpu_s": 7000.0}, "GPU hours"),
]


@pytest.mark.parametrize(("change", "word"), LIMITS)
def test_each_limit_ends_a_campaign(change, word):
    assert should_stop(GOING) == ""
    assert word in should_stop(replace(GOING, **change))


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(range(len(LIMITS)), 2)))
def test_of_two_limits_the_one_that_comes_first_in_the_order_is_told(first, second):
    (change, word), (other, _) = LIMITS[first], LIMITS[second]
    assert word in should_stop(replace(GOING, **{**other, **change}))


def test_a_short_validation_never_holds_the_target():
    assert should_stop(replace(GOING, validations=((5, 5),))) == ""


@given(st.integers(1, 200), st.integers(1, 100))
def test_the_target_is_held_by_exactly_the_successes_that_it_names(n, percent):
    needed = -(-percent * n // 100)
    rules = RULES.model_copy(update={"target": percent / 100})
    held = replace(GOING, rules=rules, validation_n=n, validations=((needed, n),))
    missed = replace(held, validations=((needed - 1, n),))
    assert "target" in should_stop(held) and should_stop(missed) == ""


def test_the_first_attempt_is_begun_whatever_it_takes():
    first = replace(GOING, attempts=0, validations=(), spent_s=3599.0)
    assert should_stop(first) == "" and should_stop(replace(first, attempts=1)) != ""


def test_the_last_attempt_is_begun_when_it_just_fits_with_its_confirmation():
    assert should_stop(replace(GOING, spent_s=3240.0)) == ""
    assert "wall time" in should_stop(replace(GOING, spent_s=3240.1))


def test_a_limit_of_nothing_on_money_and_gpu_time_is_none():
    free = RULES.model_copy(update={"spend_usd": 0.0, "gpu_hours": 0.0})
    assert should_stop(replace(GOING, rules=free, spent_usd=99.0, gpu_s=1e6)) == ""


def test_a_tie_does_not_count_as_an_improvement():
    assert since_best(((5, 20), (5, 20), (5, 20))) == 2


def test_attempts_that_were_never_validated_count_as_no_improvement():
    assert since_best((None, None)) == 2 and since_best(()) == 0
