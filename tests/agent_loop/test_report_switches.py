"""Form, space, unit and channels: what is asked away is really absent."""

from __future__ import annotations

import json

import pytest
from made_attempts import FACTS, SETTINGS, STAGES, account, node, record, write_attempt

from robocoach.agent_loop.describe import Described, VideoSummary, write_summary
from robocoach.agent_loop.evidence import read_evidence
from robocoach.agent_loop.report import feedback
from robocoach.configs.models import CampaignConfig

GEOMETRY = ("off the red cube's centre", "along its", "turned 4°", "nearest part")
BEHAVIOUR = (
    "failed at",
    "Got through",
    "closest",
    "carried",
    "goal geometry",
    "Behaviour",
    "Jaws",
    "Failures by category",
)
NUMBERS = ("Trend", "grad_norm", "kept-apart", "joint_4.pos", "Training: learning", "steps in")
TEXT = (
    "UserWarning",
    "Traceback",
    "boom",
    "may not change seed",
    "ImportError",
    "its time was over",
    "it said",
    "OOMED",
)
VIDEO = ("some-vlm", "It closes early", "grasp posture")


@pytest.fixture
def write(tmp_path):
    """A function that writes the report on a child whose every channel holds something."""
    records = [
        record(1, 1, accounts=[account("reach", reached=True, moment="reached", end_tick=20), account("grasp")]),
        record(2, 1),
        record(3, 2, aborted="RuntimeError: boom", ending="aborted"),
    ]
    log = "UserWarning: two\nTraceback (most recent call last):\n  x\nRuntimeError: y\n"
    first = node(write_attempt(tmp_path / "0", [record(1, 5)]), state="failed", reason="OOMED")
    child = node(
        write_attempt(tmp_path / "1", records, log=log), 1, 0, reverted=True, reason="carried 0 against 3, closest 9 mm"
    )
    (child.folder / "refusals.json").write_text(json.dumps(["may not change seed"]))
    (child.folder / "preflight.json").write_text(json.dumps({"ok": False, "reason": "ImportError: no x"}))
    seen = VideoSummary(happened="It closes early.", stage="grasp", confidence=0.7, grasp_posture=True)
    for seed in (1, 2):
        write_summary(child.folder / "rollouts" / "train", seed, Described(described_by="some-vlm", summary=seen))
    (child.folder / "train.json").write_text(json.dumps({"status": "finished", "message": "it said", "steps": 800}))

    def made(**changed):
        evidence = read_evidence(child.folder, STAGES, SETTINGS, "deadline")
        return feedback(evidence, child, (first, child), FACTS, CampaignConfig(**changed))

    return made


def present(text, words):
    return [word for word in words if word in text]


def test_with_every_channel_on_all_of_it_is_there(write):
    text = write()
    for words in (GEOMETRY, BEHAVIOUR, NUMBERS, VIDEO):
        assert present(text, words) == list(words)
    assert present(text, TEXT) == list(TEXT)


@pytest.mark.parametrize(
    ("channel", "gone", "kept"),
    [
        ("video", (*VIDEO, *GEOMETRY, *BEHAVIOUR), (*NUMBERS, *TEXT)),
        ("numbers", NUMBERS, (*VIDEO, *GEOMETRY, *BEHAVIOUR, *TEXT)),
        ("text", TEXT, (*VIDEO, *GEOMETRY, *BEHAVIOUR, *NUMBERS)),
    ],
)
def test_a_channel_that_is_off_is_absent_and_the_others_stay(write, channel, gone, kept):
    text = write(without=channel)
    assert present(text, gone) == []
    assert present(text, kept) == list(kept)


def test_outcomes_stay_with_every_channel_off(write):
    text = write(without="video, text, numbers, branching")
    assert present(text, (*VIDEO, *GEOMETRY, *BEHAVIOUR, *NUMBERS, *TEXT)) == []
    assert "Success: **0/3" in text and "**1 rollout aborted** (seed 3)." in text and "**Reverted**" in text
    assert "`train.executed_steps` 8 → 4" in text


def test_the_form_outcome_tells_no_stage_and_no_geometry(write):
    text = write(form="outcome")
    assert present(text, (*GEOMETRY, *BEHAVIOUR, *VIDEO)) == []
    assert "| 1 | failure | 120 | time limit |" in text and present(text, NUMBERS) == list(NUMBERS)


def test_the_form_state_gives_numbers_without_relating_them(write):
    text = write(form="state")
    assert present(text, (*GEOMETRY, "over all", "no grip")) == []
    assert "offset x 0.000 y 0.017 z 0.001 m, aperture 0.021 m, contact none" in text


def test_the_space_world_knows_no_axes_of_objects(write):
    text = write(space="world")
    assert "17 mm off the red cube's centre (17 mm along world +y)" in text
    assert present(text, ("along its", "turned 4°", "nearest part", "Parts of", "face")) == []


def test_the_space_object_names_no_parts(write):
    text = write(space="object")
    assert "11 mm along its −x axis), turned 4° against it." in text
    assert present(text, ("nearest part", "Parts of", "face")) == []


def test_the_space_parts_declares_its_words_first(write):
    assert "Parts of the red cube: face +x, face −x, edge +x+z." in write(space="parts")


def test_the_unit_motion_tells_moments_and_no_stages(write):
    text = write(unit="motion")
    assert present(text, ("**not reached**", "ticks 14–90")) == []
    assert "- tick 22: the jaws closed" in text and "RMS jerk 20.0 rad/s³, 3 idle ticks" in text
    assert text.count("- tick 22:") == 3


def test_the_unit_episode_tells_one_moment_a_rollout(write):
    text = write(unit="episode")
    assert text.count("- tick 22:") == 2 and "at the stage's end" not in text
