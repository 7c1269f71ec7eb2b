"""The rule coach on trees: which parent, no change twice, poor settings mended, always what the guard lets pass."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from coach_views import FALLING, FLAT, Tree, asked, config_of
from hypothesis import given, settings
from hypothesis import strategies as st

from robocoach.agent_loop.coaches.priors import priors
from robocoach.agent_loop.coaches.rules import RuleCoach, propose
from robocoach.agent_loop.guard import guard
from robocoach.agent_loop.lessons import lesson_from
from robocoach.configs import load

COACH = RuleCoach()
STUCK = [1] * 10
NAN = [1.0, float("nan")]


def tree_of(*attempts, **base):
    tree = Tree(config_of(**base))
    for stages in attempts:
        tree.add(stages)
    return tree


def test_the_incumbent_is_extended():
    tree = tree_of(STUCK)
    tree.add([2] * 10, {"train.executed_steps": 4})
    tree.incumbent = 1
    proposal = asked(COACH, tree.view())
    assert (proposal.parent, proposal.start) == (1, "parent")


def test_a_stalled_branch_is_left_for_the_best_and_the_numbers_say_so():
    tree = tree_of([5, 5, 5, 1, 1, 1])
    for value in (4, 3):
        tree.add([5, 5, 1, 1, 1, 1], {"train.executed_steps": value})
        tree.incumbent = len(tree.nodes) - 1
    proposal = asked(COACH, tree.view())
    assert proposal.parent == 0
    assert "attempt 0, the best: 2 attempts since" in proposal.rationale


def test_one_attempt_without_gain_does_not_end_a_branch():
    tree = tree_of([5, 5, 5, 1, 1, 1])
    tree.add([5, 5, 1, 1, 1, 1], {"train.executed_steps": 4})
    tree.incumbent = 1
    assert asked(COACH, tree.view()).parent == 1


def test_a_loss_that_was_not_finite_twice_restarts_from_the_base_with_a_lower_rate():
    tree = tree_of(STUCK)
    for rate in (4e-3, 5e-3):
        tree.add(STUCK, {"train.learning_rate": rate}, losses=NAN, reverted=True)
    proposal = asked(COACH, tree.view())
    assert (proposal.parent, proposal.start, proposal.rule) == (0, "base", "loss not finite")
    assert proposal.change["train.learning_rate"] < 2e-3
    assert "2 times in a row" in proposal.rationale


def test_a_loss_that_was_not_finite_once_keeps_the_parents_weights():
    tree = tree_of(STUCK)
    tree.add(STUCK, {"train.learning_rate": 4e-3}, losses=NAN, reverted=True)
    assert asked(COACH, tree.view()).start == "parent"


def test_without_branching_the_parent_is_the_latest_attempt():
    tree = tree_of([5] * 5 + [1] * 5)
    tree.without = frozenset({"branching"})
    tree.add([0] * 10, {"train.executed_steps": 4}, reverted=True)
    tree.add([0] * 10, {"train.executed_steps": 3}, reverted=True)
    assert asked(COACH, tree.view()).parent == 2


def test_a_first_attempt_that_failed_is_mended_from_its_reason_and_the_bases_weights():
    tree = Tree()
    tree.add(None, reason="out of memory at step 3")
    proposal = asked(COACH, tree.view())
    assert (proposal.rule, proposal.start) == ("out of memory", "base")
    assert proposal.change["train.batch_size"] == 32


def test_a_change_that_was_tried_from_the_parent_is_not_tried_again():
    tree = tree_of(STUCK)
    first = asked(COACH, tree.view())
    tree.add([0] * 10, first.change, reverted=True)
    second = asked(COACH, tree.view())
    assert second.parent == 0 and second.change != first.change
    assert "generate.corrective" in second.change


def test_what_the_engine_set_by_itself_does_not_make_a_change_new():
    tree = tree_of(STUCK)
    first = asked(COACH, tree.view())
    tree.add([0] * 10, {**first.change, "train.minutes": 3.0}, reverted=True)
    assert asked(COACH, tree.view()).change != first.change


def test_a_refused_change_that_is_not_its_own_is_followed_by_its_first():
    view = tree_of(STUCK).view()
    foreign = replace(asked(COACH, view), change={"train.ema": 0.5})
    assert asked(COACH, view, foreign) == asked(COACH, view)


def test_a_refused_change_is_followed_by_another_each_time():
    view = tree_of(STUCK).view()
    first = asked(COACH, view)
    second = asked(COACH, view, first)
    third = asked(COACH, view, second)
    changes = [tuple(sorted(one.change.items())) for one in (first, second, third)]
    assert len(set(changes)) == 3


def test_two_settings_of_different_kinds_are_mended_at_once_and_no_more():
    tree = Tree(config_of(train__learning_rate=2e-4, train__executed_steps=16, train__clip_norm=0.001))
    tree.add(STUCK)
    proposal = asked(COACH, tree.view())
    assert proposal.rule == "outside the usual range"
    assert proposal.change == {"train.learning_rate": 2e-3, "train.executed_steps": 8}
    assert "0.0002" in proposal.rationale and "0.0005 to 0.006" in proposal.rationale


def test_a_branch_is_not_given_the_same_kind_of_change_twice_in_a_row():
    tree = tree_of([3] * 10)
    first = asked(COACH, tree.view())
    tree.add([3] * 10, first.change)
    tree.incumbent = 1
    second = asked(COACH, tree.view())
    assert "generate.corrective" in first.change and "generate.corrective" not in second.change


def test_the_main_jobs_second_attempt_keeps_its_parents_weights():
    tree = Tree(config_of(train__chunk_size=4, train__executed_steps=4))
    tree.add(STUCK)
    assert "train.chunk_size" not in propose(tree.evidence(0), 0).change


def test_a_chunk_out_of_range_starts_from_the_base_since_the_shape_changes():
    tree = Tree(config_of(train__chunk_size=4, train__executed_steps=4))
    tree.add(STUCK)
    proposal = asked(COACH, tree.view())
    assert proposal.change["train.chunk_size"] == 16 and proposal.start == "base"
    assert guard(proposal, tree.nodes, tree.base).train.chunk_size == 16


POOR = {
    "learning rate ten times too low": ({"train__learning_rate": 2e-4}, FALLING),
    "learning rate ten times too high": ({"train__learning_rate": 2e-2}, [1, 1, 0.1, 0.1, 0.1, 9.0, *[0.1] * 10]),
    "16 steps without a look": ({"train__executed_steps": 16}, FLAT),
    "tiny batch": ({"train__batch_size": 2}, FLAT),
    "huge batch": ({"train__batch_size": 4096}, FLAT),
    "average too slow": ({"train__ema": 0.9999}, FLAT),
    "too much augmentation": ({"train__image_shift_px": 20, "train__colour_jitter": 0.9}, FLAT),
    "clipping too tight": ({"train__clip_norm": 0.01}, FLAT),
    "hardly any warm up left": ({"train__warmup_steps": 5_000}, FLAT),
}


@pytest.mark.parametrize("kind", POOR)
def test_a_poor_setting_is_mended_within_two_attempts(kind):
    base, losses = POOR[kind]
    tree = Tree(config_of(**base))
    tree.add([0] * 10, losses=losses)
    for _ in range(2):
        proposal = asked(COACH, tree.view())
        config = guard(proposal, tree.nodes, tree.base)
        tree.add([0] * 9 + [1], proposal.change, parent=proposal.parent, start=proposal.start)
        tree.incumbent = len(tree.nodes) - 1
        now = load.flatten(config.model_dump(), "now")
        if all(priors()[key.replace("__", ".")].holds(now[key.replace("__", ".")]) for key in base):
            return
    pytest.fail(f"{kind}: still {now}")


def test_an_average_over_more_steps_than_were_made_is_made_faster():
    tree = Tree(config_of(train__ema=0.998))
    tree.add([0] * 10, every=12)
    proposal = asked(COACH, tree.view())
    assert proposal.change["train.ema"] == pytest.approx(0.948)
    assert "500 steps, of which only 192" in proposal.rationale


def test_a_goal_that_was_reached_and_lost_draws_the_release_more_often():
    tree = Tree()
    tree.add([3] * 10, measures={"goal_reached": 1.0})
    assert asked(COACH, tree.view()).change["data.oversample"] == "release=2"


def test_a_channel_that_is_off_does_not_reach_a_diagnosis():
    rules = {}
    for without in ((), ("numbers",), ("video",)):
        tree = Tree(without=without)
        tree.add(STUCK, losses=FALLING)
        rules[without] = asked(COACH, tree.view()).rule
    assert rules[()] == "loss still falling"
    assert rules[("numbers",)] == "reached, not lifted"
    tree = Tree(without=("numbers", "video"))
    tree.add(STUCK, losses=FALLING)
    assert asked(COACH, tree.view()).rule == "no one fault"


def campaign(seed, length=12):
    """A campaign whose outcomes are drawn; returns its tree and proposals."""
    draw = random.Random(seed)
    tree = Tree(config_of(train__learning_rate=2e-4, train__executed_steps=16, train__ema=0.9995), seed=seed)
    made = []
    tree.add([draw.choice([0, 1, 2, 3, 5]) for _ in range(10)], losses=draw.choice([FLAT, FALLING]))
    while len(tree.nodes) < length:
        proposal = asked(COACH, tree.view())
        guard(proposal, tree.nodes, tree.base, stages=("reach", "grasp", "lift", "place", "release"))
        made.append(proposal)
        stages = [draw.choice([0, 1, 2, 3, 5]) for _ in range(10)] if draw.random() < 0.9 else None
        losses = draw.choice([FLAT, FALLING, NAN])
        tree.add(stages, proposal.change, parent=proposal.parent, start=proposal.start, losses=losses)
        if stages and draw.random() < 0.6:
            tree.incumbent = len(tree.nodes) - 1
    return tree, made


@pytest.mark.parametrize("seed", range(5))
def test_twelve_attempts_bring_twelve_different_changes_that_the_guard_lets_pass(seed):
    _, made = campaign(seed)
    marks = {(one.parent, one.start, tuple(sorted(one.change.items()))) for one in made}
    assert len(marks) == len(made) == 11


def test_the_same_tree_brings_the_same_proposal_from_a_new_coach():
    tree, _ = campaign(3)
    assert asked(RuleCoach(), tree.view()) == asked(RuleCoach(), tree.view())


def test_a_long_campaign_always_finds_something_new():
    tree = tree_of(STUCK)
    for _ in range(40):
        proposal = asked(COACH, tree.view())
        tree.add([0] * 10, proposal.change, parent=proposal.parent, start=proposal.start, reverted=True)
    assert len({node.parent for node in tree.nodes}) > 2  # attempt 0 has not that many children


POORLY = st.fixed_dictionaries(
    {
        "train__learning_rate": st.floats(1e-6, 1),
        "train__batch_size": st.integers(1, 65_536),
        "train__clip_norm": st.floats(1e-4, 1_000),
        "train__warmup_steps": st.integers(0, 1_000_000),
        "train__weight_decay": st.floats(0, 1),
        "train__ema": st.floats(0, 0.99999),
        "train__executed_steps": st.integers(1, 20),
        "train__chunk_size": st.integers(20, 100),
        "train__flow_samples": st.integers(1, 64),
        "train__auxiliary_weight": st.floats(0, 100),
        "train__image_shift_px": st.integers(0, 32),
        "train__colour_jitter": st.floats(0, 1),
        "train__state_noise": st.floats(0, 1),
        "deploy__blend_steps": st.integers(0, 20),
        "deploy__smoothing": st.floats(0, 0.9),
        "generate__variation": st.floats(0, 2),
        "generate__corrective": st.integers(0, 1_000),
        "generate__extra": st.integers(0, 2_000),
        "train__schedule": st.sampled_from(["cosine", "linear", "constant"]),
        "train__frozen": st.sampled_from(["none", "vision"]),
        "train__policy": st.sampled_from(["pi05_nano", "pi05"]),
    }
)
OUTCOME = st.one_of(st.none(), st.lists(st.integers(0, 5), min_size=4, max_size=10))
CURVE = st.lists(st.one_of(st.floats(0, 100), st.just(float("nan"))), max_size=20)


@settings(max_examples=200, deadline=None)
@given(base=POORLY, outcome=OUTCOME, curve=CURVE, every=st.integers(1, 200))
def test_whatever_it_is_given_a_proposal_passes(base, outcome, curve, every):
    tree = Tree(config_of(**base))
    tree.add(outcome, losses=curve, every=every, reason="" if outcome else "the loss was not finite")
    proposal = asked(COACH, tree.view())
    assert proposal is not None
    guard(proposal, tree.nodes, tree.base, stages=("reach", "grasp", "lift", "place", "release"))


def taught(tree, number):
    told = COACH.lesson(tree.view(), number)
    assert told is not None
    return lesson_from(told)


def test_a_clear_gain_on_the_same_seeds_becomes_a_lesson_that_holds_no_layout():
    tree = tree_of([1] * 10)
    proposal = asked(COACH, tree.view())
    tree.add([5] * 6 + [1] * 4, proposal.change, rule=proposal.rule)
    lesson = taught(tree, 1)
    assert lesson.status == "hypothesis" and "a lower train.executed_steps" in lesson.claim
    assert lesson.operation == ("grasp", "lift")
    assert (lesson.supports[0].campaign, lesson.supports[0].result) == ("night", "0/10 to 6/10")


def test_a_clear_loss_contradicts_and_a_small_difference_teaches_nothing():
    tree = tree_of([5] * 6 + [1] * 4)
    tree.add([1] * 10, {"train.executed_steps": 4}, rule="reached, not lifted", reverted=True)
    tree.add([5] * 8 + [1] * 2, {"train.executed_steps": 3}, rule="reached, not lifted")
    lesson = taught(tree, 1)
    assert lesson.status == "contradicted" and not lesson.supports
    assert COACH.lesson(tree.view(), 2) is None


def test_every_lesson_of_a_campaign_can_be_kept():
    trees = [campaign(seed)[0] for seed in range(3)]
    told = [COACH.lesson(tree.view(), number) for tree in trees for number in range(12)]
    assert len([lesson_from(one) for one in told if one is not None]) > 3
