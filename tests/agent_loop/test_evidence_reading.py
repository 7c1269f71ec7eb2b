"""What is read of an attempt's folder, and the batch that the revert rule compares."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_attempts import SETTINGS, STAGES, account, record, write_attempt

from robocoach.agent_loop.describe import Described, VideoSummary, write_summary
from robocoach.agent_loop.evidence import (
    RolloutEvidence,
    batch,
    read_evidence,
    read_remains,
    read_rollouts,
    write_rollouts,
)
from robocoach.configs.errors import UserError


def read(folder, **options):
    return read_evidence(folder, STAGES, SETTINGS, "deadline", **options)


def test_every_field_of_a_record_arrives(tmp_path):
    one = read(write_attempt(tmp_path / "a", [record(7, 1)])).rollouts[0]
    assert (one.seed, one.ending, one.goal["let go"], one.signals["path_m"]) == (7, "time limit", False, 0.9)
    told = one.accounts[0]
    assert (told.stage, told.moment, told.turn_deg, told.nearest_part) == ("grasp", "jaws closed", 4.1, "face -x")
    assert told.miss_m == pytest.approx(math.hypot(0.011, 0.0004, 0.001))
    assert told.moved_with_hand is False and told.lost_after_ticks is None


def test_an_old_record_reads_with_an_ending_that_follows(tmp_path):
    old = [
        {"seed": i, "success": i == 0, "stage": 0, "ticks": 9, "aborted": "boom" if i == 1 else ""} for i in range(3)
    ]
    found = read(write_attempt(tmp_path / "a", old)).rollouts
    assert [one.ending for one in found] == ["success", "aborted", "time limit"]
    assert all(one.accounts == () and one.goal == {} for one in found)


def test_a_record_that_is_none_is_refused_by_its_name(tmp_path):
    folder = write_attempt(tmp_path / "a", [record(7, 1, accounts=[{"reached": True}])])
    with pytest.raises(UserError, match=r"7\.json is no rollout"):
        read(folder)


def test_a_summary_beside_a_record_is_no_rollout_and_joins_the_evidence(tmp_path):
    folder = write_attempt(tmp_path / "a", [record(7, 1)])
    summary = VideoSummary(happened="It missed.", stage="grasp", confidence=0.7, frames=(22,))
    write_summary(folder / "rollouts" / "train", 7, Described(described_by="some-model", summary=summary))
    found = read(folder)
    assert len(found.rollouts) == 1 and found.summaries[7].summary == summary


def test_words_of_guard_and_preflight_are_read_when_they_are_there(tmp_path):
    folder = write_attempt(tmp_path / "a", [record(7, 1)])
    assert read(folder).preflight == "" and read(folder).refusals == ()
    (folder / "preflight.json").write_text(json.dumps({"ok": False, "reason": "ImportError: x", "log": "…"}))
    (folder / "refusals.json").write_text(json.dumps(["may not change seed"]))
    assert read(folder).preflight == "ImportError: x" and read(folder).refusals == ("may not change seed",)


def test_the_exit_reason_holds_the_training_s_own_message(tmp_path):
    folder = write_attempt(tmp_path / "a", [record(7, 1)])
    assert read(folder).exit_reason == "deadline"
    (folder / "train.json").write_text(json.dumps({"status": "nan", "message": "not finite at step 3"}))
    assert read_evidence(folder, STAGES, SETTINGS, "nan").exit_reason == "nan; not finite at step 3"
    assert read(folder).without(["text"]).exit_reason == ""


def test_a_preflight_that_passed_says_nothing(tmp_path):
    folder = write_attempt(tmp_path / "a", [record(7, 1)])
    (folder / "preflight.json").write_text(json.dumps({"ok": True, "reason": ""}))
    assert read(folder).preflight == ""


def test_without_a_rollout_there_is_no_evidence_but_remains(tmp_path):
    folder = write_attempt(tmp_path / "a", [])
    with pytest.raises(UserError, match="no train-seed rollouts"):
        read(folder)
    assert read_remains(folder, STAGES, SETTINGS, "crashed").curve


@pytest.mark.parametrize(("source", "rollouts", "trials"), [("sim", 2, 0), ("both", 2, 1), ("hardware", 1, 0)])
def test_trials_on_the_arm_stand_beside_or_instead(tmp_path, source, rollouts, trials):
    folder = write_attempt(tmp_path / "a", [record(7, 1), record(8, 2)])
    write_rollouts(folder / "rollouts" / "hardware", [RolloutEvidence(seed=1, success=True, stage=5, ticks=80)])
    found = read(folder, hardware=source)
    assert (len(found.rollouts), len(found.trials)) == (rollouts, trials)
    assert found.source == ("hardware" if source == "hardware" else "sim")


def test_hardware_before_any_trial_is_the_simulator(tmp_path):
    found = read(write_attempt(tmp_path / "a", [record(7, 1)]), hardware="hardware")
    assert len(found.rollouts) == 1 and found.source == "sim"


def test_rollouts_written_are_rollouts_read(tmp_path):
    given_ = read(write_attempt(tmp_path / "a", [record(7, 1), record(8, 5)])).rollouts
    write_rollouts(tmp_path / "b", given_)
    assert read_rollouts(tmp_path / "b") == given_


def test_a_batch_counts_what_the_revert_rule_compares(tmp_path):
    measures = {"closest_m": 0.02, "goal_reached": 1.0, "carried": 1.0}
    records = [record(1, 5), record(2, 4, measures=measures), record(3, 1), record(4, 3)]
    found = batch(read(write_attempt(tmp_path / "a", records)).rollouts, 4)
    assert (found.n, found.successes, found.reached_goal, found.carries, found.aborted) == (4, 1, 1, 3, 0)
    assert found.closest_m == 0.004


def test_a_rollout_that_aborted_is_no_success_whatever_it_says():
    found = batch([RolloutEvidence(seed=1, success=True, stage=5, ticks=9, aborted="boom")], 1)
    assert (found.successes, found.aborted) == (0, 1)


def test_more_rollouts_than_asked_for_are_no_batch():
    with pytest.raises(ValueError, match="1 were asked for"):
        batch([RolloutEvidence(1, False, 0, 9), RolloutEvidence(2, False, 0, 9)], 1)


outcome = st.builds(
    RolloutEvidence,
    seed=st.integers(0, 99),
    success=st.booleans(),
    stage=st.integers(0, 5),
    ticks=st.just(9),
    measures=st.fixed_dictionaries(
        {},
        optional={"closest_m": st.floats(0, 1), "carried": st.sampled_from([0.0, 1.0]), "goal_reached": st.just(1.0)},
    ),
)


@given(st.lists(outcome, max_size=8), st.integers(0, 8))
def test_a_missing_rollout_is_an_aborted_failure_and_never_helps(rollouts, missing):
    full, short = batch(rollouts, len(rollouts)), batch(rollouts, len(rollouts) + missing)
    assert short.n == full.n + missing and short.aborted == full.aborted + missing
    assert (short.successes, short.reached_goal, short.carries) == (full.successes, full.reached_goal, full.carries)
    assert short.closest_m >= full.closest_m


def test_what_belongs_to_another_channel_stays_when_one_is_off(tmp_path):
    folder = write_attempt(tmp_path / "a", [record(7, 1, aborted="RuntimeError: boom", ending="aborted")])
    whole = read(folder)
    text, numbers, video = (whole.without([name]) for name in ("text", "numbers", "video"))
    assert text.decisive == () and text.rollouts[0].aborted == "not told" and text.curve and text.rollouts[0].accounts
    assert numbers.curve == () and numbers.folder is None and numbers.decisive and numbers.rollouts[0].accounts
    assert video.stages == () and video.rollouts[0].accounts == () and video.curve and video.decisive
    assert whole.without([]) == whole


def test_a_damaged_optional_file_is_as_if_it_were_missing(tmp_path):
    folder = write_attempt(tmp_path / "a", [record(7, 1, accounts=[account("grasp")])])
    for name in ("train.json", "preflight.json", "refusals.json"):
        (folder / name).write_text('{"cut off')
    found = read(folder)
    assert found.training == {} and found.preflight == "" and found.refusals == ()
