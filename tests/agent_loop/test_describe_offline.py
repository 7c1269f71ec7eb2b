"""The offline describer: the structure of a video summary from accounts and signals."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_attempts import STAGES, account, record
from pydantic import ValidationError

from robocoach.agent_loop.describe import (
    HAPPENED_MOST,
    JERK_RAD_S3,
    Described,
    VideoSummary,
    describe,
    read_summary,
    summary_path,
    write_summary,
)
from robocoach.agent_loop.evidence import rollout_from
from robocoach.configs.errors import UserError

QUIET = {"jerk_rad_s3": 5.0, "idle_ticks": 0, "reversals": 0, "closings": 1, "dropped": 0, "path_m": 0.9}
FLAGS = ("jerk", "contact", "grasp_posture", "inefficiency", "near_goal")


def summary(stage=1, signals=None, **changed):
    signals = QUIET | (signals or {})
    return describe(rollout_from(record(1, stage, signals=signals, **changed), Path("x")), STAGES).summary


def flags(found):
    return {name for name in FLAGS if getattr(found, name)}


def centred(stage, **changed):
    return account(stage, offset_m={"x": 0.001, "y": 0.0, "z": 0.0}, turn_deg=1.0, aperture_m=0.04, **changed)


def test_the_stage_that_failed_is_told_with_its_ticks():
    found = summary()
    assert (found.stage, found.frames, found.confidence) == ("grasp", (14, 22, 90), 0.9)
    assert "the jaws closed 11 mm off the red cube's centre" in found.happened and "no grip" in found.happened.lower()


def test_a_success_has_no_stage_that_failed():
    found = summary(5)
    assert found.stage == "none" and flags(found) == set() and "goal held" in found.happened


@pytest.mark.parametrize(
    ("flag", "stage", "changed"),
    [
        ("jerk", 1, {"signals": {"jerk_rad_s3": JERK_RAD_S3 + 1}}),
        ("jerk", 1, {"signals": {"reversals": 6}}),
        ("contact", 1, {"signals": {"dropped": 1}}),
        ("contact", 1, {"accounts": [centred("grasp", contact="lost")]}),
        ("grasp_posture", 1, {"accounts": [account("grasp")]}),
        ("grasp_posture", 1, {"accounts": [centred("grasp") | {"turn_deg": -20.0}]}),
        ("grasp_posture", 1, {"accounts": [centred("grasp") | {"aperture_m": 0.001}]}),
        ("grasp_posture", 1, {"accounts": [centred("grasp") | {"offset_m": {"x": 0.0, "y": 0.0, "z": 0.03}}]}),
        ("inefficiency", 1, {"signals": {"idle_ticks": 60}}),
        ("inefficiency", 1, {"signals": {"closings": 3}}),
        ("near_goal", 3, {"accounts": [centred("place", relative_to="green_cube")]}),
        ("near_goal", 4, {"measures": {"goal_reached": 1.0, "carried": 1.0}, "accounts": [centred("release")]}),
    ],
)
def test_each_flag_follows_from_its_own_sign(flag, stage, changed):
    assert flags(summary(stage, **{"accounts": [centred("grasp")], **changed})) == {flag}


def test_jaws_that_hold_the_object_are_well_placed_wherever_they_are():
    assert not summary(1, accounts=[account("grasp", contact="gained")]).grasp_posture


def test_a_placement_far_from_its_place_is_not_near_the_goal():
    far = account("place", relative_to="green_cube", offset_m={"x": 0.2, "y": 0.0, "z": 0.0}, moment="closest")
    assert flags(summary(3, accounts=[far])) == set()


def test_confidence_falls_with_what_is_known():
    told, measured, bare = summary(), summary(accounts=[]), summary(accounts=[], measures={})
    assert told.confidence > measured.confidence > bare.confidence > 0


def test_a_goal_that_held_for_a_moment_is_told_with_what_was_missing():
    goal = {"on the green cube": True, "let go": False}
    found = summary(4, measures={"goal_reached": 1.0}, goal=goal)
    assert "held for a moment; at the end not: let go." in found.happened


@given(
    st.integers(0, 5),
    st.dictionaries(st.sampled_from([*QUIET]), st.floats(0, 1e6)),
    st.lists(st.builds(account, st.text(max_size=90), reached=st.booleans()), max_size=3),
)
def test_any_rollout_gives_a_summary_that_the_schema_takes(stage, signals, accounts):
    found = summary(stage, signals, accounts=accounts)
    assert VideoSummary.model_validate_json(found.model_dump_json()) == found
    assert 0 < len(found.happened) <= HAPPENED_MOST


def test_a_summary_comes_back_from_its_file(tmp_path):
    written = Described(described_by="signals", summary=summary())
    write_summary(tmp_path, 7, written)
    assert read_summary(tmp_path, 7) == written and read_summary(tmp_path, 8) is None


def test_a_damaged_summary_is_refused_by_its_name(tmp_path):
    summary_path(tmp_path, 7).write_text('{"described_by": "x"}')
    with pytest.raises(UserError, match=r"7-summary\.json is no video summary"):
        read_summary(tmp_path, 7)


@pytest.mark.parametrize("changed", [{"confidence": 1.1}, {"happened": ""}, {"score": 3}, {"frames": (-1,)}])
def test_a_model_s_answer_outside_the_structure_is_refused(changed):
    with pytest.raises(ValidationError):
        VideoSummary(**({"happened": "x", "stage": "grasp", "confidence": 0.5} | changed))
