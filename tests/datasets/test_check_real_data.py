"""What is odd about real recordings is found: a Dobot with wall-clock times, DROID-style folders, 1 kHz logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from robocoach.datasets.check_read import open_dataset
from robocoach.datasets.check_run import Checked, check_dataset

# Modules are checked once: their videos take seconds to decode.


@pytest.fixture(scope="module")
def cr5(shared_data: Path) -> Checked:
    return check_dataset(open_dataset(shared_data / "cr5-banana-lerobot-v21"))


@pytest.fixture(scope="module")
def droid(shared_data: Path) -> Checked:
    return check_dataset(open_dataset(shared_data / "droid-panda"))


def found(checked: Checked, fault: str, severity: str) -> dict[str | None, str]:
    """By episode, what was seen of one fault."""
    return {one.episode: one.what for one in checked.findings if one.fault.name == fault and one.severity == severity}


def test_the_dobots_clock_is_the_walls(cr5):
    seen = found(cr5, "wall-clock timestamps", "error")
    assert sorted(map(str, seen)) == ["0", "1", "2", "3", "4", "5"]
    assert "49 to 288 ms" in seen["1"]
    assert "288 ms" in found(cr5, "gap in time", "warning")["1"]


def test_the_dobot_has_six_joints_and_velocities_as_actions(cr5):
    assert len(found(cr5, "actions are velocities", "error")) == 6
    assert "6 joints" in found(cr5, "columns are not those of the contract", "error")[None]
    assert found(cr5, "no data contract", "error")
    assert "v2.1" in found(cr5, "old LeRobot format", "warning")[None]


def test_the_dobots_episode_statistics_were_copied(cr5):
    seen = found(cr5, "episode statistics of other episodes", "warning")
    assert len(seen) == 6
    assert "episode_index 73 to 73, data 0 to 0" in seen["0"]


def test_the_new_setup_has_no_actions_and_no_documented_rate(droid):
    for fault, severity in (("no actions", "error"), ("rate not documented", "warning")):
        seen = found(droid, fault, severity)
        assert len(seen) == 13
        assert all(name is not None and name.startswith("droid_new_setup/") for name in seen)


def test_three_videos_of_the_new_setup_have_one_frame_more(droid):
    seen = found(droid, "image count differs from the states", "warning")
    assert sorted(map(str, seen)) == [f"droid_new_setup/val/{number}" for number in ("0003", "0006", "0013")]
    assert all(what.endswith("(+1)") for what in seen.values())


def test_droids_images_are_slower_than_its_states(droid):
    seen = found(droid, "images slower than the states", "warning")
    assert len(seen) == 11
    assert all(name is not None and name.startswith("droid_subset/") for name in seen)
    assert all("15 Hz" in what and "5 Hz" in what for what in seen.values())


def test_droids_empty_instructions_are_found(droid):
    seen = found(droid, "no instruction", "warning")
    assert sorted(map(str, seen)) == [
        f"droid_subset/{name}" for name in ("train/0", "train/4", "train/5", "train/6", "val/1799")
    ]


def test_droids_failures_that_succeed_and_its_compliant_arm_are_found(droid):
    assert "droid_subset/val/899" in found(droid, "failure that looks like a success", "note")
    assert droid.lag_s is not None and 0.2 < droid.lag_s < 0.35
    assert found(droid, "commands lead the arm", "warning")


def test_droids_only_errors_are_the_missing_actions(droid):
    assert {one.fault.name for one in droid.findings if one.severity == "error"} == {"no actions"}


def test_logs_at_a_kilohertz_pass_but_for_their_clock_and_gripper(shared_data):
    checked = check_dataset(open_dataset(shared_data / "fr3-1khz-logs"))
    assert checked.frames == 10384 + 9546
    assert {one.fault.name for one in checked.findings} == {"gap in time", "no gripper in the data", "no images"}
    assert checked.count("error") == 0
