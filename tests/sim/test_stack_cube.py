"""The stack-cube task without a simulator: scenes, judge, demonstrator's decisions and the arm's kinematics."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import GripperRule
from robocoach.sim.kinematics import Arm, down_rotation
from robocoach.sim.state import SimState, wrap_quarter, yaw_quaternion
from robocoach.sim.tasks import get_task
from robocoach.sim.tasks.stack_cube import (
    BASE,
    BASE_REGION_M,
    EDGE_M,
    MAX_YAW_RAD,
    REST_TICKS,
    TOP,
    TOP_REGION_M,
    StackCubeDemonstrator,
    StackCubeJudge,
    sample_scene,
)

ARM = Arm()
HALF = EDGE_M / 2


def state(tcp, top, base, width=0.08, speed=0.0, yaw=0.0) -> SimState:
    return SimState(
        q=ARM.solve(np.asarray(tcp, dtype=float), down_rotation(yaw)),
        gripper_width=width,
        objects={TOP: np.append(top, yaw_quaternion(0.0)), BASE: np.append(base, yaw_quaternion(0.0))},
        speeds={TOP: speed, BASE: 0.0},
    )


TABLE_TOP, TABLE_BASE = (0.44, 0.10, HALF), (0.44, -0.10, HALF)
STACKED = (0.44, -0.10, HALF + EDGE_M)


def test_a_seed_fixes_the_whole_scene():
    first, second = (dataclasses.asdict(sample_scene(7)) for _ in range(2))
    assert str(first) == str(second)
    assert str(first) != str(dataclasses.asdict(sample_scene(8)))


def test_regions_and_yaw_are_at_least_what_the_issue_asks():
    for region in (TOP_REGION_M, BASE_REGION_M):
        assert all(high - low >= 0.10 for low, high in region)
    scenes = [sample_scene(seed) for seed in range(300)]
    yaws = [2 * np.arctan2(s.objects[TOP][6], s.objects[TOP][3]) for s in scenes]
    assert pytest.approx(0.52, abs=0.02) == MAX_YAW_RAD
    assert min(yaws) < -0.45 and max(yaws) > 0.45
    assert np.ptp([s.objects[TOP][0] for s in scenes]) > 0.11


def test_every_random_start_is_reachable_and_inside_the_joint_limits():
    for seed in range(100):
        q = sample_scene(seed).start_q
        assert np.all(q > ARM.q_min + 0.03) and np.all(q < ARM.q_max - 0.03)


@given(st.floats(0.35, 0.53), st.floats(-0.18, 0.18), st.floats(0.02, 0.35), st.floats(-0.8, 0.8))
@settings(max_examples=60, deadline=None)
def test_inverse_kinematics_reaches_the_workspace(x, y, z, yaw):
    wanted = np.array([x, y, z])
    position, rotation = ARM.tcp_pose(ARM.solve(wanted, down_rotation(yaw)))
    assert np.linalg.norm(position - wanted) < 2e-4
    assert np.abs(rotation - down_rotation(yaw)).max() < 1e-3


@given(st.floats(-20, 20))
def test_a_square_face_folds_into_an_eighth_turn_either_way(angle):
    folded = wrap_quarter(angle)
    assert -np.pi / 4 <= folded <= np.pi / 4
    assert abs(np.sin(4 * folded) - np.sin(4 * angle)) < 1e-6


def run(judge, *states):
    for each in states:
        judge.update(each)
    return judge


def test_a_stack_let_go_of_and_at_rest_is_a_success_only_after_half_a_second():
    judge = StackCubeJudge()
    standing = state((0.44, -0.10, 0.20), STACKED, TABLE_BASE)
    run(judge, *[standing] * (REST_TICKS - 1))
    assert not judge.success
    assert run(judge, standing).success


def test_a_stack_that_topples_is_no_success():
    judge = StackCubeJudge()
    standing = state((0.44, -0.10, 0.20), STACKED, TABLE_BASE)
    fallen = state((0.44, -0.10, 0.20), (0.44, -0.04, HALF), TABLE_BASE)
    run(judge, *[standing] * 20, fallen)
    assert not judge.success


def test_a_cube_still_held_or_still_moving_or_beside_the_other_is_no_success():
    held = state((0.44, -0.10, HALF + EDGE_M), STACKED, TABLE_BASE, width=EDGE_M)
    moving = state((0.44, -0.10, 0.20), STACKED, TABLE_BASE, speed=0.1)
    beside = state((0.44, -0.10, 0.20), (0.44, -0.10 + 0.6 * EDGE_M, HALF + EDGE_M), TABLE_BASE)
    for each in (held, moving, beside):
        assert not run(StackCubeJudge(), *[each] * 20).success


def test_stages_are_reached_in_order():
    judge = StackCubeJudge()
    seen = []
    for each in (
        state((0.44, 0.10, 0.20), TABLE_TOP, TABLE_BASE),
        state(TABLE_TOP, TABLE_TOP, TABLE_BASE),
        state(TABLE_TOP, TABLE_TOP, TABLE_BASE, width=EDGE_M),
        state((0.44, 0.10, 0.12), (0.44, 0.10, 0.12), TABLE_BASE, width=EDGE_M),
        state(STACKED, STACKED, TABLE_BASE, width=EDGE_M),
        *[state((0.44, -0.10, 0.2), STACKED, TABLE_BASE)] * REST_TICKS,
    ):
        judge.update(each)
        seen.append(judge.stage)
    assert seen[:5] == [0, 1, 2, 3, 4] and seen[-1] == 5


@pytest.mark.parametrize(
    ("situation", "closes"),
    [
        (state((0.44, 0.10, 0.20), TABLE_TOP, TABLE_BASE), False),
        (state(TABLE_TOP, TABLE_TOP, TABLE_BASE), True),
        (state((0.44, 0.0, 0.2), (0.44, 0.0, 0.2), TABLE_BASE, width=EDGE_M), True),
        (state(STACKED, STACKED, TABLE_BASE, width=EDGE_M), False),
        (state((0.44, 0.10, 0.03), (0.50, 0.10, HALF), TABLE_BASE, width=0.0), False),
    ],
)
def test_the_demonstrator_opens_and_closes_by_what_it_sees(situation, closes):
    action = StackCubeDemonstrator().act(situation)
    assert GripperRule().wants_closed(float(action[7]), not closes) is closes


def test_the_demonstrator_heads_for_the_cube_it_has_not_got():
    now = state((0.44, 0.0, 0.30), TABLE_TOP, TABLE_BASE)
    position, _ = ARM.tcp_pose(StackCubeDemonstrator().act(now)[:7].astype(float))
    assert np.linalg.norm(position - TABLE_TOP) < np.linalg.norm(np.array([0.44, 0.0, 0.30]) - TABLE_TOP) - 0.02


def test_privileged_poses_are_in_the_hand_frame():
    task = get_task("stack-cube")
    values = task.privileged(state((0.44, 0.10, 0.20), TABLE_TOP, TABLE_BASE))
    assert values.shape == (len(task.privileged_names),)
    np.testing.assert_allclose(values[:3], [0.0, 0.0, 0.20 - HALF], atol=1e-3)


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(UserError, match="stack-cube"):
        get_task("stack-cubes")
