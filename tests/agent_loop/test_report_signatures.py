"""Failures sorted: signatures, the rollout that stands for those alike, and categories by precedence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_attempts import STAGES, account, record

from robocoach.agent_loop.evidence import RolloutEvidence, rollout_from
from robocoach.agent_loop.report.signatures import (
    GROUPS_MOST,
    categories,
    category,
    groups,
    representatives,
    signature,
)


def made(seed, stage, **changed) -> RolloutEvidence:
    return rollout_from(record(seed, stage, **changed), Path("x"))


def missing_by(seed, metres):
    return made(seed, 1, accounts=[account("grasp", offset_m={"x": metres, "y": 0.0, "z": 0.0})])


def test_a_signature_is_stage_ending_and_goal_clauses():
    first = made(1, 1)
    assert signature(first, STAGES) == signature(made(2, 1), STAGES)
    others = (made(3, 2), made(4, 1, ending="stopped early"), made(5, 1, goal={**first.goal, "let go": True}))
    assert len({signature(one, STAGES) for one in (first, *others)}) == 4


def test_a_rollout_that_reached_every_stage_failed_at_the_end_state():
    assert signature(made(1, 5, success=False, ending="time limit"), STAGES).stage == "end state"


def test_the_median_by_the_miss_of_the_failing_stage_stands_for_those_alike():
    misses = {1: 0.030, 2: 0.001, 3: 0.012, 4: 0.013}
    (group,) = groups([missing_by(seed, value) for seed, value in misses.items()], STAGES)
    assert group.representative.seed == 3 and [one.seed for one in group.rollouts] == [1, 2, 3, 4]


def test_without_accounts_the_closest_approach_decides():
    given_ = [made(s, 0, accounts=[], measures={"closest_m": m}) for s, m in ((1, 0.3), (2, 0.1), (3, 0.2))]
    assert groups(given_, STAGES)[0].representative.seed == 3


def test_the_most_frequent_kind_comes_first_and_no_success_is_in_any():
    found = groups([made(1, 0), made(2, 1), made(3, 1), made(4, 5)], STAGES)
    assert [(group.signature.stage, len(group.rollouts)) for group in found] == [("grasp", 2), ("reach", 1)]


def test_at_most_six_stand_for_all_failures_and_a_success_where_none_failed():
    many = [made(seed, 1, ending=f"ending {seed}") for seed in range(9)]
    assert len(representatives(many, STAGES)) == GROUPS_MOST
    assert [one.seed for one in representatives([made(8, 5), made(3, 5)], STAGES)] == [3]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["time limit", "aborted"])), max_size=20))
def test_every_failure_is_in_exactly_one_group(kinds):
    given_ = [made(seed, stage, ending=ending, success=stage == 5) for seed, (stage, ending) in enumerate(kinds)]
    found = groups(given_, STAGES)
    seeds = [one.seed for group in found for one in group.rollouts]
    assert sorted(seeds) == [one.seed for one in given_ if not one.success]
    assert all(group.representative in group.rollouts for group in found)


MEASURES = {"closest_m": 0.01, "goal_reached": 0.0, "carried": 0.0}


@pytest.mark.parametrize(
    ("name", "stage", "changed"),
    [
        ("policy error", 3, {"aborted": "RuntimeError: x", "ending": "aborted"}),
        ("stopped early", 3, {"ending": "stopped early"}),
        ("approach", 0, {"measures": MEASURES}),
        ("grasp", 1, {"measures": MEASURES}),
        ("placement", 3, {"measures": MEASURES | {"carried": 1.0}}),
        ("release or rest", 4, {"measures": MEASURES | {"carried": 1.0, "goal_reached": 1.0}}),
        ("unclear", 2, {"measures": {}}),
    ],
)
def test_each_category_from_its_record(name, stage, changed):
    assert category(made(1, stage, **changed)) == name


@pytest.mark.parametrize("changed", [{"signals": {"dropped": 1}}, {"accounts": [account("place", contact="lost")]}])
def test_carried_and_lost_is_lost_on_the_way(changed):
    assert category(made(1, 3, measures=MEASURES | {"carried": 1.0}, **changed)) == "lost on the way"


def test_a_grip_let_go_of_in_a_stage_that_was_reached_is_no_loss():
    accounts = [account("place", reached=True, contact="lost")]
    assert category(made(1, 3, measures=MEASURES | {"carried": 1.0}, accounts=accounts)) == "placement"


def test_an_error_comes_before_a_goal_that_held():
    one = made(1, 4, measures=MEASURES | {"carried": 1.0, "goal_reached": 1.0})
    assert category(replace(one, aborted="boom")) == "policy error"


def test_categories_are_counted_in_the_order_of_precedence():
    given_ = [made(1, 1, measures=MEASURES), made(2, 0, measures=MEASURES), made(3, 5), made(4, 1, measures=MEASURES)]
    assert list(categories(given_).items()) == [("approach", 1), ("grasp", 2)]
