"""The `franka` robot: LeRobot's own recorder and replay drive the twin, and nothing gets past the envelope."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.datasets.columns import read_columns
from robocoach.datasets.contract import ACTION_KEY, ACTION_NAMES, IMAGE_KEY, STATE_KEY, STATE_NAMES
from robocoach.robots.rig import Rig
from robocoach.sim import provenance
from robocoach.sim.tasks import get_task

PLUG = "--plug.discover_packages_path=robocoach.robots.lerobot"
START = get_task("stack-cube").sample_scene(3).start_q


def lerobot(tool: str, folder: Path, *arguments: str) -> str:
    """Runs one of LeRobot's tools on the twin; returns what it said."""
    command = [sys.executable, "-m", f"lerobot.scripts.lerobot_{tool}", PLUG, "--robot.type=franka", *arguments]
    command += ["--robot.scene_seed=3", "--play_sounds=false", "--dataset.repo_id=local/set"]
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_LEROBOT_HOME": str(folder / "home"),
    }
    done = subprocess.run(
        [*command, f"--dataset.root={folder / 'set'}"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lerobot")
    lerobot(
        "record",
        folder,
        "--teleop.type=franka_script",
        "--dataset.fps=10",
        "--dataset.num_episodes=1",
        "--dataset.episode_time_s=2.5",
        "--dataset.reset_time_s=0",
        "--dataset.single_task=stack the red cube on the green cube",
        "--dataset.push_to_hub=false",
        "--dataset.rgb_encoder.vcodec=h264",
        "--dataset.rgb_encoder.preset=ultrafast",
        # Pictures are written by another process: encoding in this one would keep the arm's servo thread waiting.
        "--dataset.num_image_writer_processes=1",
        "--dataset.num_image_writer_threads_per_camera=1",
    )
    return folder


def test_lerobots_recorder_writes_the_contracts_names_and_a_moving_arm(recorded):
    info = json.loads((recorded / "set/meta/info.json").read_text())
    assert info["fps"] == 10 and info["robot_type"] == "franka"
    assert tuple(info["features"][STATE_KEY]["names"]) == STATE_NAMES
    assert tuple(info["features"][ACTION_KEY]["names"]) == ACTION_NAMES
    assert tuple(info["features"][IMAGE_KEY]["shape"]) == (224, 224, 3)
    frames = read_columns(recorded / "set").frames
    states, actions = frames[STATE_KEY], frames[ACTION_KEY]
    assert len(states) >= 12
    np.testing.assert_allclose(states[0, :7], START, atol=0.02)
    assert np.abs(states[-1, :7] - states[0, :7]).max() > 0.1
    lead = np.abs(actions[:-1, :7] - states[1:, :7]).mean()
    assert lead < np.abs(actions[:-1, :7] - states[:-1, :7]).mean()  # an action is where the arm is a tick later


def test_lerobots_replay_brings_the_arm_to_where_the_episode_ended(recorded):
    said = lerobot("replay", recorded, "--dataset.episode=0")
    joints = re.search(r"at rest at ([-\d. ]+) rad", said)
    assert joints is not None, said[-2000:]
    actions = read_columns(recorded / "set").frames[ACTION_KEY][:, :7]
    away = np.abs(np.array(joints[1].split(), dtype=float) - actions[-1]).max()
    # The replay lets go of the arm a tick after the last action, while it still moves.
    assert away < 0.06 and away < 0.25 * np.abs(actions[-1] - START).max()


def test_the_plugin_loads_and_makes_its_devices_without_any_sdk():
    code = """
import sys
for name in ("franky", "pyrealsense2", "dynamixel_sdk", "pyspacemouse", "mujoco", "pinocchio"):
    sys.modules[name] = None
from lerobot.configs.parser import load_plugin
load_plugin("robocoach.robots.lerobot")
from lerobot.robots import RobotConfig, make_robot_from_config
from lerobot.teleoperators import TeleoperatorConfig, make_teleoperator_from_config
made = [make_robot_from_config(RobotConfig.get_choice_class("franka")())]
for name in ("franka_gello", "franka_spacemouse", "franka_keyboard", "franka_script"):
    made.append(make_teleoperator_from_config(TeleoperatorConfig.get_choice_class(name)()))
print([each.name for each in made], sorted(made[0].action_features) == sorted(made[1].action_features))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'franka', 'franka_gello'" in done.stdout and done.stdout.rstrip().endswith("True")


@pytest.fixture
def robot(arm, twin, monkeypatch, tmp_path):
    """The robot on the folder's twin."""
    from robocoach.robots.lerobot import franka
    from robocoach.robots.lerobot.config_franka import FrankaConfig

    @contextlib.contextmanager
    def shared(config, task_name, camera):
        yield Rig("twin", arm, twin.camera, twin, provenance.contract("twin", "test"))

    monkeypatch.setattr(franka, "open_rig", shared)
    made = franka.Franka(FrankaConfig(calibration_dir=tmp_path))
    made.connect()
    yield made
    made.disconnect()


def action_of(observation: dict) -> dict[str, float]:
    return {name: observation[name] for name in ACTION_NAMES}


def test_a_jump_stops_the_arm_with_one_line_and_every_later_action_is_refused(robot):
    from robocoach.robots.lerobot.franka import FrankaStopped

    observation = robot.get_observation()
    assert observation["wrist"].shape == (224, 224, 3)
    robot.send_action(action_of(observation))
    with pytest.raises(FrankaStopped, match=r"^jump: joint 2[^\n]*$"):
        robot.send_action({**action_of(observation), "joint_2.pos": observation["joint_2.pos"] + 1.0})
    with pytest.raises(FrankaStopped, match="jump: joint 2"):
        robot.send_action(action_of(observation))


def test_what_was_sent_is_what_the_envelope_let_through(robot):
    observation = robot.get_observation()
    sent = robot.send_action({**action_of(observation), "joint_1.pos": observation["joint_1.pos"] + 0.4})
    assert 0 < sent["joint_1.pos"] - observation["joint_1.pos"] < 0.25 and robot.clamps == 1


def test_a_caller_that_is_too_fast_is_held_to_ten_actions_a_second(robot):
    hold = action_of(robot.get_observation())
    robot.send_action(hold)
    begin = time.monotonic()
    for _ in range(10):
        robot.send_action(hold)
    assert 0.85 < time.monotonic() - begin < 1.4
    begin = time.monotonic()
    for _ in range(10):
        robot.send_action(action_of(robot.get_observation()))
    assert 0.85 < time.monotonic() - begin < 1.4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "ur5"}, "--robot.model"),
        ({"fps": 100}, "--robot.fps"),
        ({"safety": {"max_step_rad": 9.0}}, "max_step_rad"),
        ({"safety": {"no_limit": 1.0}}, "no_limit"),
        ({"wrist": {"camera_fps": "fast"}}, "camera_fps"),
        ({"start": "there"}, "stay or home"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(settings, said, tmp_path):
    from robocoach.robots.lerobot.config_franka import FrankaConfig
    from robocoach.robots.lerobot.franka import Franka

    with pytest.raises(UserError, match=said):
        Franka(FrankaConfig(calibration_dir=tmp_path, **settings))
