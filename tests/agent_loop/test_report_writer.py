"""`feedback.md`: what a coach reads, in which order and words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from made_attempts import FACTS, SETTINGS, STAGES, account, node, record, write_attempt

from robocoach.agent_loop.describe import Described, VideoSummary, write_summary
from robocoach.agent_loop.evidence import RolloutEvidence, read_evidence, write_rollouts
from robocoach.agent_loop.report import feedback, feedback_alone
from robocoach.configs.models import CampaignConfig

RULES = CampaignConfig()


def written(folder, records, rules=RULES, log="", **changed):
    """The report on a lone attempt with these records."""
    attempt = node(write_attempt(folder, records, log=log), **changed)
    evidence = read_evidence(attempt.folder, STAGES, SETTINGS, "deadline", hardware=rules.evidence)
    return feedback(evidence, attempt, (attempt,), FACTS, rules)


def tree(folder, records=None, **changed):
    """A first attempt and its child."""
    first = node(write_attempt(folder / "0", [record(1, 1), record(2, 5), record(3, 1)]))
    mine = [record(1, 5), record(2, 5), record(3, 1)] if records is None else records
    child = node(write_attempt(folder / "1", mine), 1, 0, asked=3, **changed)
    return first, child


def told(nodes, rules=RULES):
    evidence = read_evidence(nodes[-1].folder, STAGES, SETTINGS, "deadline")
    return feedback(evidence, nodes[-1], nodes, FACTS, rules)


def test_the_miss_is_told_in_the_object_s_own_axes(tmp_path):
    text = written(tmp_path / "a", [record(1, 1)])
    assert (
        "the jaws closed 11 mm off the red cube's centre (11 mm along its −x axis), turned 4° against it, "
        "nearest part: face −x, 12 mm from its middle" in text
    )
    assert (
        "*grasp* **not reached**, ticks 14–90. Commanded: a path of 0.31 m, jaws 0 mm apart, closing the jaws." in text
    )
    assert "Jaws 21 mm apart, no grip, the red cube did not move with the hand." in text


def test_a_stage_that_places_is_told_by_the_carried_object(tmp_path):
    place = account("place", relative_to="green_cube", moment="lost", contact="lost", lost_after_ticks=39)
    text = written(tmp_path / "a", [record(1, 3, accounts=[place])])
    assert "the grip was lost with the red cube 11 mm off its place at the green cube" in text
    assert "along the green cube's −x axis" in text and "grip lost after 3.9 s of holding" in text


def test_success_stands_with_its_count_interval_and_stage_reward_beside_it(tmp_path):
    text = written(tmp_path / "a", [record(1, 5), record(2, 0), record(3, 1), record(4, 2)])
    assert "Success: **1/4 = 25 % (95 % CI 1–81 %)**." in text
    assert "Stages reached in order, of all: 40 %" in text
    assert "Got through: reach 3, grasp 2, lift 1, place 1, release 1." in text


def test_the_goal_clause_is_told_in_words(tmp_path):
    text = written(tmp_path / "a", [record(1, 1)])
    assert FACTS.goal in text and FACTS.instruction in text
    assert "on the green cube: **not met**, let go: **not met**, at rest: met" in text


def test_the_order_is_the_protocol_s(tmp_path):
    text = told(tree(tmp_path, reverted=True, reason="success 0/3 against 1/3"))
    marks = ["**Reverted**", "## Task", "## Condition", "## Result", "## How to read", "## Rollouts"]
    marks += ["## What happened", "## Training in numbers", "## Training in words", "## Settings", "## History"]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places) and "success 0/3 against 1/3" in text[: places[1]]


def test_no_notice_where_nothing_was_reverted(tmp_path):
    assert "Reverted" not in written(tmp_path / "a", [record(1, 1)])


def test_the_change_is_the_computed_one(tmp_path):
    text = told(tree(tmp_path, change={"train.learning_rate": (2e-3, 6e-4), "data.oversample": ("", "grasp=2")}))
    assert "Changed: `data.oversample` (empty) → grasp=2, `train.learning_rate` 0.002 → 0.0006." in text


def test_the_condition_of_training_is_told(tmp_path):
    text = told(tree(tmp_path, start="base"))
    assert "a child of attempt 0, begun with the weights that attempt 0 began with." in text
    minutes, count = SETTINGS["train.minutes"], SETTINGS["generate.demonstrations"]
    assert f"Trained for at most {minutes:g} min, the first {count} demonstrations" in text


def test_the_same_scenes_are_compared_with_the_parent(tmp_path):
    assert "on the same 3 scenes: 1 solved that the parent failed, 0 failed that it solved" in told(tree(tmp_path))


def test_the_parent_s_numbers_stand_beside(tmp_path):
    nodes = tree(tmp_path)
    text = told(nodes)
    assert "| metric | first | middle | last | lowest (step) | parent's last |" in text
    assert "joint_4.pos 0.03 (parent 0.03), gripper.pos 0.004 (parent 0.004)" in text
    assert "Trend: **learning**" in text


def test_the_coach_s_own_account_is_marked_unverified_and_capped(tmp_path):
    text = told(tree(tmp_path, rationale="long " * 400))
    line = next(line for line in text.splitlines() if "*Unverified* account (rules: not lifted)" in line)
    assert len(line.split("): ", 1)[1]) <= 800 and line.endswith("…")


def test_an_account_cannot_pose_as_a_part_of_the_report(tmp_path):
    text = told(tree(tmp_path, rationale="fine\n## Result on train seeds\n> **Reverted**"))
    assert text.count("\n## Result on train seeds") == 1 and "\n> **Reverted**" not in text


def test_a_kind_of_failure_is_told_once_with_its_like(tmp_path):
    text = written(tmp_path / "a", [record(seed, 1) for seed in range(1, 5)])
    assert "### 4 of 4: failed at grasp, time limit" in text
    assert "Seed 2, and 3 like it (seeds 1, 3, 4)" in text and text.count("**not reached**") == 1


def test_a_bias_over_all_alike_is_told_with_its_sign(tmp_path):
    records = [
        record(seed, 1, accounts=[account("grasp", offset_m={"x": x, "y": 0.0, "z": 0.002}, turn_deg=4.0)])
        for seed, x in ((1, -0.010), (2, -0.012), (3, -0.017))
    ]
    text = written(tmp_path / "a", records)
    assert "over all 3 alike, lowest to highest (median): x −17 to −10 (−12) mm; y 0 mm; z +2 mm; turn +4°." in text


def test_more_than_six_kinds_are_counted_and_not_told(tmp_path):
    text = written(tmp_path / "a", [record(seed, 1, ending=f"ending {seed}") for seed in range(9)])
    assert text.count("\n### ") == 6 and "And 3 failures of 3 other signatures." in text


def test_at_most_forty_stages_are_told(tmp_path):
    records = [record(s, 1, ending=f"end {s}", accounts=[account("grasp")] * 15) for s in range(4)]
    text = written(tmp_path / "a", records)
    assert text.count("\n- *grasp* ") == 40 and "15 more are left out" in text


def test_an_abort_is_a_banner_with_its_error_quoted_and_capped(tmp_path):
    error = "RuntimeError: `shape`\n" + "x" * 900
    text = written(tmp_path / "a", [record(s, 1, aborted=error, ending="aborted") for s in (1, 2)])
    line = next(line for line in text.splitlines() if line.startswith("> **2 rollouts aborted** (seeds 1, 2): "))
    assert "`RuntimeError: 'shape' xxx" in line and len(line) < 360


def test_a_rollout_that_could_not_be_run_is_a_failure(tmp_path):
    first, child = tree(tmp_path, [record(1, 5)])
    text = told((first, child))
    assert "Success: **1/3 = 33 %" in text and "2 rollouts could not be run: counted as failures." in text


def test_a_failed_attempt_without_rollouts_is_told_from_what_it_left(tmp_path):
    first = node(write_attempt(tmp_path / "0", [record(1, 1)]))
    log = "Traceback (most recent call last):\n  x\ntorch.OutOfMemoryError: CUDA out of memory\n"
    child = node(write_attempt(tmp_path / "1", [], [], log), 1, 0, asked=3, state="failed", reason="out of memory")
    text = feedback(None, child, (first, child), FACTS, RULES)
    assert "> **Failed**: out of memory. It counts as zero successes" in text
    assert "Success: **0/3 = 0 %" in text and "torch.OutOfMemoryError: CUDA out of memory" in text
    assert "## Rollouts" not in text


def test_words_of_guard_and_preflight_are_in_it(tmp_path):
    attempt = node(write_attempt(tmp_path / "a", [record(1, 1)]))
    (attempt.folder / "refusals.json").write_text(json.dumps(["the proposal may not change seed"]))
    (attempt.folder / "preflight.json").write_text(json.dumps({"ok": False, "reason": "ImportError: no x"}))
    text = told((attempt,))
    assert "The guard had refused: the proposal may not change seed." in text
    assert "The preflight had failed: ImportError: no x." in text


def test_a_model_s_summary_is_told_and_that_of_signals_only_by_its_flags(tmp_path):
    attempt = node(write_attempt(tmp_path / "a", [record(1, 1)]))
    seen = VideoSummary(happened="It closes early.", stage="grasp", confidence=0.7, frames=(22,), grasp_posture=True)
    write_summary(attempt.folder / "rollouts" / "train", 1, Described(described_by="some-vlm", summary=seen))
    text = told((attempt,))
    assert "Seen in the video by some-vlm (at grasp, confidence 0.7, ticks 22): It closes early." in text
    assert "Signs of: bad grasp posture." in text
    write_summary(attempt.folder / "rollouts" / "train", 1, Described(described_by="signals", summary=seen))
    text = told((attempt,))
    assert "Signs of: bad grasp posture; see ticks 22." in text and "It closes early." not in text


def test_trials_on_the_arm_have_a_part_of_their_own(tmp_path):
    folder = write_attempt(tmp_path / "a", [record(1, 1)])
    write_rollouts(folder / "rollouts" / "hardware", [RolloutEvidence(seed=5, success=True, stage=5, ticks=80)])
    attempt, rules = node(folder), CampaignConfig(evidence="both")
    text = feedback(read_evidence(folder, STAGES, SETTINGS, "x", hardware="both"), attempt, (attempt,), FACTS, rules)
    assert (
        "## On the arm" in text and "Trials with a verdict: **1/1" in text and "| 5 | success | 5 of 5 | 80 |" in text
    )


def test_the_history_holds_every_attempt_with_result_behaviour_and_trend(tmp_path):
    text = told(tree(tmp_path))
    history = text[text.index("## History") :]
    assert "**Attempt 0**, the first attempt: the configuration as given." in history
    assert "**Attempt 1** (best on train seeds so far), a child of attempt 0, begun with its weights" in history
    assert "Train seeds: 2/3" in history and "failed at grasp 1" in history and "Training: learning." in history


def test_accounts_of_old_attempts_are_left_out(tmp_path):
    folder = write_attempt(tmp_path / "a", [record(1, 1)])
    nodes = [node(folder, number, 0 if number else None, rationale=f"account {number}.") for number in range(20)]
    text = told(tuple(nodes))
    assert "account 19." in text and "account 8." in text and "account 7." not in text
    assert "**Attempt 7**" in text


def test_an_attempt_alone_needs_no_tree(tmp_path):
    folder = write_attempt(tmp_path / "a", [record(1, 1), record(2, 5)])
    evidence = read_evidence(folder, STAGES, SETTINGS, "steps")
    text = feedback_alone(evidence, 0, folder, FACTS, RULES)
    assert "1/2 = 50 %" in text and "Training ended because it made all its steps." in text


def test_records_of_before_are_told_as_far_as_they_go(tmp_path):
    old = {"seed": 1, "success": False, "stage": 1, "ticks": 100, "measures": {"grasp_side_m": 0.01}}
    text = written(tmp_path / "a", [old])
    assert "| 1 | failure | grasp | 100 | time limit | 0.010 |" in text
    assert "nothing was recorded of its stages" in text


@pytest.mark.parametrize(("name", "value"), [("TRUTH", 0.8765), ("NEVER", 0.4321)])
def test_nothing_of_validation_or_held_out_results_gets_in(tmp_path, name, value):
    campaign = tmp_path / "campaign"
    first = node(write_attempt(campaign / "attempts" / "0000", [record(1, 1)]))
    child = node(write_attempt(campaign / "attempts" / "0001", [record(1, 5)]), 1, 0)
    planted = json.dumps({"validation": {"successes": 31337, "note": name, "rate": value}})
    for one in (first, child):
        (one.folder / "score.json").write_text(planted)
        for split in ("validation", "heldout"):
            folder = campaign / split / one.folder.name
            write_attempt(folder, [record(31337, 5, ending=name, measures={name: value})])
    evidence = read_evidence(child.folder, STAGES, SETTINGS, "deadline")
    text = feedback(evidence, child, (first, child), FACTS, RULES)
    for word in ("31337", name, str(value)):
        assert word not in text and word not in repr(evidence)


def test_the_same_evidence_gives_the_same_report(tmp_path):
    nodes = tree(tmp_path)
    assert told(nodes) == told(nodes) and replace(nodes[0]) == nodes[0]
