"""The hand stays in its box and above the table: forward kinematics, scaling back, and the way back in."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robocoach.configs.models import SafetyConfig
from robocoach.robots import safety
from robocoach.robots.kinematics import FACES, Workspace, hand_poses
from robocoach.robots.limits import FR3
from robocoach.robots.safety import Command, Fault, Moment, Stop
from robocoach.sim.kinematics import Arm, down_rotation
from robocoach.sim.robot_model import HAND_TO_TCP_M, HOME_Q
from robocoach.sim.tasks.stack_cube import BASE_REGION_M, EDGE_M, MAX_YAW_RAD, TOP_REGION_M

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
HOME = np.array(HOME_Q)
CONFIG = SafetyConfig()
SPACE = Workspace.of(CONFIG)


@pytest.fixture(scope="module")
def arm() -> Arm:
    return Arm()


def above_table(arm: Arm, height_m: float, x_m: float = 0.45, y_m: float = 0.0) -> np.ndarray:
    """Joints with the TCP over a place on the table, the hand pointing down; fingertips are 9 mm lower."""
    return arm.solve(np.array([x_m, y_m, height_m]), down_rotation(0.0))


def ask(q: np.ndarray, wish: np.ndarray, config: SafetyConfig = CONFIG, **more):
    last = np.append(q, 0.08)
    return safety.check(replace(Moment(np.append(wish, 0.08), None, last, 0.0, 0.0), **more), config)


def test_the_hand_is_where_the_simulators_kinematics_put_it(arm):
    rng = np.random.default_rng(0)
    for q in arm.q_min + rng.uniform(size=(20, 7)) * (arm.q_max - arm.q_min):
        rotation, position = hand_poses(q[None])
        expected = arm.hand_pose(q)
        np.testing.assert_allclose(position[0], expected[0], atol=1e-5)
        np.testing.assert_allclose(rotation[0], expected[1], atol=1e-5)


@pytest.mark.skipif(not (DATA / "franka-handeye").is_dir(), reason="recorded poses are not here")
def test_the_hand_is_where_a_real_arm_says_it_is():
    files = sorted((DATA / "franka-handeye").glob("data/captured-data/*/data.json"))
    assert len(files) == 12
    for file in files:
        recorded = json.loads(file.read_text())
        pose = np.array(recorded["O_T_EE"]).reshape(4, 4)
        rotation, position = hand_poses(np.array(recorded["joint_pose"])[None])
        np.testing.assert_allclose(position[0] + HAND_TO_TCP_M * rotation[0, :, 2], pose[:3, 3], atol=1e-6)
        np.testing.assert_allclose(rotation[0], pose[:3, :3], atol=1e-4)


@pytest.mark.skipif(not (DATA / "fr3-1khz-logs").is_dir(), reason="recorded motion is not here")
def test_the_tcp_is_where_a_moving_fr3_says_it_is():
    for file in sorted((DATA / "fr3-1khz-logs").glob("*.npz")):
        data = np.load(file)["data"][::100]
        rotation, position = hand_poses(data[:, 1:8])
        np.testing.assert_allclose(position + HAND_TO_TCP_M * rotation[:, :, 2], data[:, 29:32], atol=1e-3)


@pytest.mark.skipif(not (DATA / "droid-panda").is_dir(), reason="recorded motion is not here")
def test_a_panda_has_the_same_kinematics():
    files = sorted((DATA / "droid-panda" / "droid_subset" / "annotation").glob("*/*.json"))
    assert files
    for file in files:
        recorded = json.loads(file.read_text())
        q = np.array(recorded["observation.state.joint_position"])
        flange = np.array(recorded["observation.state.cartesian_position"])[:, :3]
        np.testing.assert_allclose(hand_poses(q)[1], flange, atol=1e-5)


def test_the_table_is_met_by_the_fingertips(arm):
    excess = SPACE.excess_m(above_table(arm, 0.05)[None])[0]
    assert FACES[int(np.argmax(excess))] == "table"
    assert excess.max() == pytest.approx(0.001 + 0.0089 - 0.05, abs=3e-4)


def test_all_the_demonstrator_needs_is_inside(arm):
    for region in (TOP_REGION_M, BASE_REGION_M):
        for x in region[0]:
            for y in region[1]:
                for yaw in (-MAX_YAW_RAD - 0.2, MAX_YAW_RAD + 0.2):
                    for height in (EDGE_M / 2 - 0.008, 0.32):
                        q = arm.solve(np.array([x, y, height]), down_rotation(yaw))
                        assert SPACE.excess_m(q[None]).max() < 0


def test_a_step_into_the_table_is_scaled_back_to_just_above_it(arm):
    start, wish = above_table(arm, 0.016), above_table(arm, 0.004)
    answer = ask(start, wish)
    assert isinstance(answer, Command) and answer.clamps == ("table",)
    excess = SPACE.excess_m(answer.values[None, :7])[0].max()
    assert -0.001 < excess <= 1e-8
    share = (answer.values[:7] - start) / (wish - start)
    np.testing.assert_allclose(share, share[0], atol=1e-6)


def test_a_step_out_of_the_box_is_scaled_back_and_named(arm):
    config = SafetyConfig(workspace_y_max_m=0.15)
    start = above_table(arm, 0.2)
    turned = start + np.array([0.1, 0, 0, 0, 0, 0, 0])
    start = start + np.array([0.06, 0, 0, 0, 0, 0, 0])
    answer = ask(start, turned, config)
    assert isinstance(answer, Command) and answer.clamps == ("workspace",)
    assert Workspace.of(config).excess_m(answer.values[None, :7]).max() <= 1e-8
    assert isinstance(ask(start, turned), Command)


@pytest.mark.parametrize("tick_s", [0.1, 1 / 30])
def test_a_fast_hand_begins_to_brake_before_it_meets_the_table(arm, tick_s):
    start, down = above_table(arm, 0.2), above_table(arm, 0.15) - above_table(arm, 0.2)
    last, velocity, heights, clamped_at = np.append(start, 0.08), None, [], []
    for _ in range(round(0.9 / tick_s)):
        wish = np.append(last[:7] + down * tick_s / 0.1, 0.08)  # half a metre a second
        answer = safety.check(
            Moment(wish, last, last, 0.0, 0.0, tick_s=tick_s, last_velocity_rad_s=velocity), SafetyConfig()
        )
        assert isinstance(answer, Command), answer
        velocity, last = (answer.values[:7] - last[:7]) / tick_s, answer.values
        heights.append(-SPACE.excess_m(last[None, :7]).max())
        if "table" in answer.clamps:
            clamped_at.append(heights[-1])
    assert min(heights) > -1e-8 and heights[-1] < 0.002
    assert clamped_at[0] > 0.004


def test_a_way_between_two_allowed_ends_is_looked_at(arm):
    """Joint 7 turns a hand that lies on its side, whose corner passes under the table between two allowed poses."""
    on_its_side = np.array([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [1.0, 0.0, 0.0]])
    turns = np.repeat(arm.solve(np.array([0.5, 0.0, 0.3]), on_its_side)[None], 401, axis=0)
    turns[:, 6] = np.linspace(-1.2, -0.8, 401)
    table = SPACE.excess_m(turns)[:, FACES.index("table")]
    lowest = int(np.argmax(table))
    start, end = turns[lowest - 35], turns[lowest + 35]
    ends = max(table[lowest - 35], table[lowest + 35])
    config = SafetyConfig(table_z_m=-(ends + table[lowest]) / 2)
    assert Workspace.of(config).excess_m(np.stack([start, end])).max() < 0
    assert Workspace.of(config).excess_m(turns).max() > 0
    answer = ask(start, end, config)
    assert isinstance(answer, Command) and answer.clamps == ("table",) and answer.values[6] < turns[lowest, 6]


def test_a_hand_far_outside_stops_the_arm_unless_it_moves_back(arm):
    config = SafetyConfig(table_z_m=0.05)
    low = above_table(arm, 0.02)
    stay, further, back = ask(low, low, config), ask(low, above_table(arm, 0.01), config), None
    back = ask(low, above_table(arm, 0.04), config)
    for answer in (stay, further):
        assert isinstance(answer, Stop) and answer.fault is Fault.OUTSIDE_WORKSPACE and "table" in answer.detail
    assert isinstance(back, Command) and back.clamps == ()


def test_a_hand_slightly_outside_may_stay_or_return_but_goes_no_further(arm):
    config = SafetyConfig(table_z_m=0.02)
    low = above_table(arm, 0.02)
    stay, further = ask(low, low, config), ask(low, above_table(arm, 0.01), config)
    assert isinstance(stay, Command) and stay.clamps == ()
    assert isinstance(further, Command) and further.clamps == ("table",)
    np.testing.assert_allclose(further.values[:7], low, atol=2e-3)
    assert (
        Workspace.of(config).excess_m(further.values[None, :7]).max()
        <= Workspace.of(config).excess_m(low[None]).max() + 1e-8
    )


def test_an_arm_beyond_its_joint_limit_whose_way_back_leads_out_of_the_box_stops():
    beyond = HOME.copy()
    beyond[0] = FR3.q_max_rad[0] - CONFIG.limit_inset_rad + 0.004
    points = SafetyConfig(workspace_x_min_m=-1.0, workspace_y_min_m=-1.2, workspace_y_max_m=1.0)
    reach = 1.0 + Workspace.of(points).excess_m(beyond[None])[0, FACES.index("y_max")]
    free, shut = (points.model_copy(update={"workspace_y_max_m": reach + room}) for room in (0.01, 0.0))
    assert isinstance(ask(beyond, beyond, free), Command)
    answer = ask(beyond, beyond, shut)
    assert isinstance(answer, Stop) and answer.fault is Fault.NO_WAY
