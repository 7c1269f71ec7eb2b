"""`--real PATH`: what becomes of a DROID-style folder and of a dataset of the contract, and what is refused."""

import json
import re

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.datasets import real, real_droid, video
from robocoach.datasets.columns import read_columns
from robocoach.datasets.contract import Contract, Meaning
from robocoach.datasets.frames import open_source
from robocoach.datasets.journal import Journal
from robocoach.datasets.real import command_lead_s, import_real
from robocoach.datasets.record import assemble

EVERYTHING = frozenset({"robot", "camera", "fov_deg", "mount", "crop", "controller"})
HOME = np.array([0.0, -0.3, 0.0, -2.2, 0.0, 2.0, 0.8])


def write_droid(folder, number, states=31, gripper=0.0, texts=("tidy up",), images=None, **changes):
    """One episode in DROID's form: joints that drift slowly, wrist images 320×192 whose brightness is their number."""
    ramp = np.linspace(0, 0.3, states)[:, None] * np.ones(7)
    raw = {
        "texts": list(texts),
        "success": 1,
        "observation.state.joint_position": (HOME + ramp).tolist(),
        "observation.state.gripper_position": np.full(states, gripper).tolist(),
        "action.joint_position": (HOME + ramp + 0.02).tolist(),
        "action.gripper_position": np.full(states, gripper).tolist(),
    }
    raw.update(changes)
    raw = {key: value for key, value in raw.items() if value is not None}
    annotation = folder / f"annotation/train/{number}.json"
    annotation.parent.mkdir(parents=True, exist_ok=True)
    annotation.write_text(json.dumps(raw))
    count = -(-states // 3) if images is None else images
    wrist = folder / f"videos/train/{number}/2.mp4"
    wrist.parent.mkdir(parents=True, exist_ok=True)
    frames = np.full((count, 192, 320, 3), 20, np.uint8) + (10 * np.arange(count, dtype=np.uint8))[:, None, None, None]
    video.encode(frames, wrist)
    return wrist


@pytest.fixture
def droid(tmp_path):
    folder = tmp_path / "droid"
    write_droid(folder, 0)
    return folder


def one_episode(folder) -> real_droid.Episode:
    (found,) = real_droid.find(folder)
    return real_droid.read(found)


# How one episode is converted


def test_states_are_interpolated_at_ten_hertz(droid):
    states = one_episode(droid).states
    raw = np.array(json.loads((droid / "annotation/train/0.json").read_text())["observation.state.joint_position"])
    assert states[2, :7] == pytest.approx(raw[3])
    assert states[1, :7] == pytest.approx((raw[1] + raw[2]) / 2)


def test_an_action_is_what_was_commanded_for_the_next_tick(droid):
    actions = one_episode(droid).actions
    raw = np.array(json.loads((droid / "annotation/train/0.json").read_text())["action.joint_position"])
    # Command 0 is for 1/15 s and command 1 for 2/15 s, so the one for 0.1 s lies in the middle.
    assert actions[0, :7] == pytest.approx((raw[0] + raw[1]) / 2)
    # Command 2 is for 3/15 s = 0.2 s.
    assert actions[1, :7] == pytest.approx(raw[2])


def test_a_tick_shows_the_nearest_earlier_image(droid):
    brightness = one_episode(droid).images.mean(axis=(1, 2, 3))
    assert brightness[:6] == pytest.approx([20, 20, 30, 30, 40, 40], abs=2)


def test_the_last_tick_is_the_last_with_a_command_for_the_next_one(droid):
    # 31 commands reach 31/15 s = 2.07 s, so the last tick whose next tick is covered is at 1.9 s.
    assert len(one_episode(droid)) == 20


@pytest.mark.parametrize(("gripper", "width"), [(0.0, 0.080), (0.5, 0.0425), (1.0, 0.0), (1.2, 0.0)])
def test_the_gripper_becomes_metres_within_the_contract(gripper, width, tmp_path):
    write_droid(tmp_path / "droid", 0, gripper=gripper)
    episode = one_episode(tmp_path / "droid")
    assert episode.states[:, 7] == pytest.approx(np.full(len(episode), width))
    assert episode.actions[:, 7] == pytest.approx(np.full(len(episode), width))


def test_the_image_is_the_centre_square():
    image = np.zeros((192, 320, 3), np.uint8)
    image[:, 64:256] = 100
    assert (real_droid.crop_square(image) == 100).all()
    assert real_droid.crop_square(image).shape == (192, 192, 3)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["", " stack "], "stack"),
        (["stack", "pile"], "stack"),
        ([""], real_droid.UNLABELLED),
        ([], real_droid.UNLABELLED),
        (None, real_droid.UNLABELLED),
    ],
)
def test_the_instruction_is_the_first_text_that_says_something(texts, expected):
    assert real_droid.instruction(texts) == expected


def test_the_lead_of_the_commands_is_measured():
    joints = np.sin(np.linspace(0, 6, 80))[:, None] * np.ones(7)
    ahead = np.sin(np.linspace(0, 6, 80) + 0.3 * 10 * 6 / 79)[:, None] * np.ones(7)
    assert command_lead_s(joints, ahead, np.zeros(80)) == pytest.approx(0.3, abs=0.011)


# What is left out, and why


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"action.joint_position": None}, "no actions"),
        ({"action.gripper_position": None}, "action is missing or broken"),
        ({"observation.state.gripper_position": [0.0] * 7}, r"gripper \(7,\), expected"),
        ({"observation.state.joint_position": [[9.0] * 7] * 31}, "joint 1 is at 9.000 rad, outside the limits"),
        ({"action.joint_position": [[float("nan")] * 7] * 31}, "not finite"),
        ({"images": 4}, "4 wrist images for 31 states"),
    ],
)
def test_an_unusable_episode_is_left_out_with_its_reason(changes, reason, droid, sim_contract, tmp_path):
    write_droid(droid, 1, **changes)
    summary = import_real(droid, tmp_path / "real", sim_contract, EVERYTHING).summary
    assert summary.episodes == 1
    (told,) = summary.left_out
    assert told.startswith("droid/train/1: ")
    assert re.search(reason, told)


def test_a_broken_wrist_video_is_left_out_with_its_reason(droid, sim_contract, tmp_path):
    write_droid(droid, 1).write_bytes(b"no video")
    (told,) = import_real(droid, tmp_path / "real", sim_contract, EVERYTHING).summary.left_out
    assert "its wrist video cannot be decoded" in told


def test_a_folder_of_unusable_episodes_is_refused(tmp_path, sim_contract):
    write_droid(tmp_path / "droid", 0, **{"action.joint_position": None})
    with pytest.raises(UserError, match=r"no episode of .* can be used \(droid/train/0: no actions"):
        import_real(tmp_path / "droid", tmp_path / "real", sim_contract, EVERYTHING)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["droid"]


# Importing as a whole


def test_the_difference_in_provenance_is_shown_and_has_to_be_accepted(droid, sim_contract, tmp_path):
    with pytest.raises(UserError, match=r"robot: 'fr3' here, 'panda\+robotiq-2f85' there.*add --accept robot,camera"):
        import_real(droid, tmp_path / "real", sim_contract, frozenset())
    summary = import_real(droid, tmp_path / "real", sim_contract, EVERYTHING).summary
    assert any(line.startswith("robot: 'fr3' here") for line in summary.differences)
    assert any("meant to be mixed" in line for line in summary.differences)


def test_the_same_input_is_not_imported_twice(droid, sim_contract, tmp_path, monkeypatch):
    first = import_real(droid, tmp_path / "real", sim_contract, EVERYTHING)
    monkeypatch.setattr(real, "assemble", lambda *_: pytest.fail("imported again"))
    assert import_real(droid, tmp_path / "real", sim_contract, EVERYTHING) == first


def test_changed_input_is_imported_again(droid, sim_contract, tmp_path):
    import_real(droid, tmp_path / "real", sim_contract, EVERYTHING)
    write_droid(droid, 1)
    assert import_real(droid, tmp_path / "real", sim_contract, EVERYTHING).summary.episodes == 2


def test_a_damaged_import_is_made_again(droid, sim_contract, tmp_path):
    first = import_real(droid, tmp_path / "real", sim_contract, EVERYTHING)
    (first.root / "meta/stats.json").write_text("{}")
    assert import_real(droid, tmp_path / "real", sim_contract, EVERYTHING) == first


def test_nothing_is_left_beside_the_import(droid, sim_contract, tmp_path):
    import_real(droid, tmp_path / "out" / "real", sim_contract, EVERYTHING)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["real", "real.json"]


# Datasets of the contract


@pytest.fixture
def real_dataset(make_episode, sim_contract, tmp_path):
    """A LeRobotDataset as a lab with the same arm and camera would bring it."""
    provenance = sim_contract.provenance.model_copy(update={"source": "real", "simulator_version": None})
    journal = Journal(tmp_path / "journal")
    episode = make_episode(ticks=12, seed=-1, privileged=None)
    states = np.tile(np.append(HOME, 0.08), (12, 1)).astype(np.float32)
    journal.add(0, type(episode)(**{**vars(episode), "states": states, "actions": states}))
    return assemble(journal, tmp_path / "lab", sim_contract.model_copy(update={"provenance": provenance})).root


def test_a_dataset_of_the_contract_is_used_where_it_lies(real_dataset, sim_contract, tmp_path):
    imported = import_real(real_dataset, tmp_path / "real", sim_contract)
    assert imported.root == real_dataset
    assert (imported.summary.kind, imported.summary.episodes, imported.summary.frames) == ("lerobot", 1, 12)
    assert not (tmp_path / "real").exists()


def test_a_dataset_of_another_meaning_is_refused(real_dataset, sim_contract, tmp_path):
    target = sim_contract.model_copy(update={"meaning": Meaning(action_meaning="joint velocities")})
    with pytest.raises(UserError, match="action_meaning: expected 'joint velocities'"):
        import_real(real_dataset, tmp_path / "real", target, EVERYTHING)


def test_simulated_data_is_not_real(make_episode, sim_contract, tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.add(0, make_episode())
    root = assemble(journal, tmp_path / "sim", sim_contract).root
    with pytest.raises(UserError, match="comes from sim:genesis, not from a robot"):
        import_real(root, tmp_path / "real", sim_contract, EVERYTHING)


def test_joints_beyond_the_named_arm_are_refused(real_dataset, sim_contract, tmp_path, make_episode):
    journal = Journal(tmp_path / "wild")
    journal.add(0, make_episode(ticks=50, seed=5))
    provenance = sim_contract.provenance.model_copy(update={"source": "real"})
    root = assemble(journal, tmp_path / "bad", sim_contract.model_copy(update={"provenance": provenance})).root
    with pytest.raises(UserError, match="joints outside the limits of fr3"):
        import_real(root, tmp_path / "real", sim_contract)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda info: info.update(codebase_version="v2.1"), "it is LeRobotDataset v2.1, expected v3.0"),
        (lambda info: info.update(fps=30), "it runs at 30 fps, expected 10"),
        (
            lambda info: info["features"]["action"].update(names=[f"j{i}.vel" for i in range(7)] + ["gripper"]),
            "its actions are joint velocities (j0.vel to j6.vel)",
        ),
        (
            lambda info: info["features"]["observation.images.wrist"].update(shape=[480, 640, 3]),
            "observation.images.wrist is (480, 640, 3)",
        ),
        (lambda info: info["features"].pop("action"), "it has no action"),
    ],
)
def test_a_foreign_dataset_is_refused_with_the_reason(change, reason, real_dataset, sim_contract, tmp_path):
    path = real_dataset / "meta/info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))
    with pytest.raises(UserError) as refused:
        import_real(real_dataset, tmp_path / "real", sim_contract, EVERYTHING)
    assert reason in str(refused.value)


def test_velocities_are_recognised_whatever_they_are_called(make_episode, sim_contract, tmp_path):
    episode = make_episode(ticks=60, privileged=None)
    wave = np.sin(np.linspace(0, 12, 61))[:, None] * np.full(8, 0.3) + np.append(HOME, 0.04)
    states, speeds = wave[:-1].astype(np.float32), (np.diff(wave, axis=0) * 10).astype(np.float32)
    provenance = sim_contract.provenance.model_copy(update={"source": "real"})
    journal = Journal(tmp_path / "journal")
    journal.add(0, type(episode)(**{**vars(episode), "states": states, "actions": speeds}))
    root = assemble(journal, tmp_path / "lab", sim_contract.model_copy(update={"provenance": provenance})).root
    with pytest.raises(UserError, match="its actions are joint velocities, expected absolute joint positions"):
        import_real(root, tmp_path / "real", sim_contract)


def test_a_dataset_without_contract_is_refused(real_dataset, sim_contract, tmp_path):
    (real_dataset / "contract.json").unlink()
    with pytest.raises(UserError, match=r"it has no contract\.json that says what its numbers mean"):
        import_real(real_dataset, tmp_path / "real", sim_contract, EVERYTHING)


# What is no data at all


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is empty"),
        (lambda path: path.write_text("x"), "is a file"),
        (lambda path: (path / "photos").mkdir(parents=True), "holds neither a LeRobotDataset"),
    ],
)
def test_what_holds_no_episodes_is_refused_in_one_line(make, told, sim_contract, tmp_path):
    make(tmp_path / "thing")
    with pytest.raises(UserError, match=told) as refused:
        import_real(tmp_path / "thing", tmp_path / "real", sim_contract, EVERYTHING)
    assert "\n" not in str(refused.value)


def test_a_broken_description_is_refused_in_one_line(sim_contract, tmp_path):
    (tmp_path / "thing/meta").mkdir(parents=True)
    (tmp_path / "thing/meta/info.json").write_text("[]")
    with pytest.raises(UserError, match=r"info\.json cannot be read"):
        import_real(tmp_path / "thing", tmp_path / "real", sim_contract, EVERYTHING)


# The real data


@pytest.fixture(scope="module")
def imported(shared_data, tmp_path_factory):
    target = Contract(provenance=real_droid.PROVENANCE)
    return import_real(shared_data / "droid-panda", tmp_path_factory.mktemp("out") / "real", target)


def test_the_real_episodes_with_actions_come_in_and_the_others_are_named(imported):
    summary = imported.summary
    assert (summary.episodes, summary.frames) == (11, 1693)
    assert "Put the blue block in the green bowl" in summary.instructions
    assert (summary.unlabelled, summary.marked_successful, summary.grasping) == (5, 4, 9)
    assert summary.left_out == (
        "droid_new_setup/val/0001, droid_new_setup/val/0002, droid_new_setup/val/0003 and 10 more: "
        "no actions, only states at an undocumented rate",
    )


def test_real_commands_lead_the_arm_as_the_module_says(imported):
    assert imported.summary.command_lead_s == pytest.approx(0.30, abs=0.05)


def test_real_numbers_are_plausible_for_the_arm(imported):
    columns = read_columns(imported.root).frames
    states, actions = columns["observation.state"], columns["action"]
    assert np.isfinite(states).all()
    assert states[:, 7].min() >= 0
    assert states[:, 7].max() == pytest.approx(0.08)
    assert actions[:, 7].min() == pytest.approx(0.0)
    assert np.abs(actions[:, :7] - states[:, :7]).max() < 0.4
    same_episode = np.diff(columns["episode_index"]) == 0
    speed = np.abs(np.diff(states[:, :7], axis=0)[same_episode]) * 10
    assert speed.max() < 2.61


def test_real_images_are_the_wrist_videos_frames(imported, shared_data):
    columns = read_columns(imported.root)
    number = columns.episodes["tasks"].index(["Put the blue block in the green bowl"])
    first = columns.episodes["dataset_from_index"][number]
    source = open_source(imported.root, 64, "real")
    wrist = list(video.decode(shared_data / "droid-panda/droid_subset/videos/train/1/2.mp4"))
    for tick in (0, 1, 40, 41, 120):
        squares = [video.resize(real_droid.crop_square(wrist[tick // 2 + step]), 224) for step in (0, 1)]
        errors = [
            np.abs(video.resize(square, 64).astype(int) - source.images[first + tick]).mean() for square in squares
        ]
        assert errors[0] < 2.5
        assert errors[0] < errors[1]


@pytest.mark.parametrize("inner", ["", "cr5_banana_subset_v2.1"])
def test_the_cr5_dataset_is_refused_with_all_its_reasons_in_one_line(inner, shared_data, sim_contract, tmp_path):
    with pytest.raises(UserError) as refused:
        import_real(shared_data / "cr5-banana-lerobot-v21" / inner, tmp_path / "real", sim_contract, EVERYTHING)
    told = str(refused.value)
    for reason in (
        "it is LeRobotDataset v2.1, expected v3.0",
        "its arm has six joints (joint_0 to joint_5)",
        "its actions are joint velocities (joint_0_vel to joint_5_vel)",
        "its timestamps are wall-clock (steps of 49 to 288 ms)",
    ):
        assert reason in told
    assert "\n" not in told


def test_real_episodes_without_actions_are_refused_on_their_own(shared_data, sim_contract, tmp_path):
    with pytest.raises(UserError, match="no actions, only states at an undocumented rate"):
        import_real(shared_data / "droid-panda/droid_new_setup", tmp_path / "real", sim_contract, EVERYTHING)
