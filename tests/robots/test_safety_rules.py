"""Each rule of the envelope by itself: what stops the arm, what is clamped, and what passes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robocoach.configs.models import SafetyConfig
from robocoach.robots import safety
from robocoach.robots.limits import FR3, LIMITS, PANDA
from robocoach.robots.safety import Command, Fault, Hold, Moment, Stop

HOME = np.array([0.0, -0.3, 0.0, -2.4, 0.0, 2.1, 0.78, 0.08])
CONFIG = SafetyConfig()
STILL = np.zeros(7)
SOUND = Moment(
    action=HOME,
    last_command=HOME,
    state=HOME,
    frame_age_s=0.05,
    state_age_s=0.01,
    last_velocity_rad_s=STILL,
    velocity_rad_s=STILL,
    previous_state=HOME,
    previous_state_s=0.1,
    last_action=HOME,
)
ROOMY = SafetyConfig(workspace_x_min_m=-1, workspace_y_min_m=-1.2, workspace_y_max_m=1.2, table_z_m=-0.5)


def with_value(index: int, value: float) -> np.ndarray:
    changed = HOME.copy()
    changed[index] = value
    return changed


def joint(index: int, value: float) -> np.ndarray:
    return value * np.eye(7)[index]


@settings(max_examples=200, deadline=None)
@given(hnp.arrays(np.float64, 7, elements=st.floats(-0.07, 0.07)), st.floats(0, 0.08))
def test_a_gentle_action_passes_unchanged(step, width):
    action = np.append(HOME[:7] + step, width)
    answer = safety.check(replace(SOUND, action=action), CONFIG)
    assert isinstance(answer, Command) and answer.clamps == ()
    np.testing.assert_allclose(answer.values, action, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"action": with_value(3, math.nan)}, Fault.NOT_FINITE),
        ({"action": with_value(7, math.inf)}, Fault.NOT_FINITE),
        ({"action": HOME[:7]}, Fault.SHAPE),
        ({"action": "left"}, Fault.SHAPE),
        ({"action": ["0.1"] * 8}, Fault.SHAPE),
        ({"action": with_value(0, 0.7)}, Fault.JUMP),
        ({"frame_age_s": 0.26}, Fault.STALE_FRAME),
        ({"frame_age_s": math.nan}, Fault.STALE_FRAME),
        ({"frame_unchanged_s": 0.26}, Fault.FROZEN_FRAME),
        ({"state_age_s": 0.26}, Fault.STALE_STATE),
        ({"state_age_s": -1.0}, Fault.STALE_STATE),
        ({"state": with_value(2, math.nan)}, Fault.BAD_STATE),
        ({"state": with_value(1, 1.81), "previous_state": None}, Fault.BAD_STATE),
        ({"state": with_value(7, 0.12)}, Fault.BAD_STATE),
        ({"state": with_value(7, -0.03)}, Fault.BAD_STATE),
        ({"velocity_rad_s": joint(0, math.nan)}, Fault.BAD_STATE),
        ({"velocity_rad_s": joint(1, 3.0), "previous_state": None}, Fault.BAD_STATE),
        ({"previous_state": with_value(0, 0.4), "velocity_rad_s": None}, Fault.BAD_STATE),
        ({"previous_state": with_value(0, 0.12)}, Fault.BAD_STATE),
        ({"previous_state": HOME[:7]}, Fault.BAD_STATE),
        ({"previous_state_s": math.nan}, Fault.BAD_STATE),
        ({"last_command": with_value(0, math.nan)}, Fault.BAD_STATE),
        ({"last_velocity_rad_s": joint(0, math.nan)}, Fault.BAD_STATE),
        ({"tick_s": 0.0}, Fault.BAD_STATE),
        ({"tick_s": math.inf}, Fault.BAD_STATE),
        ({"last_command": with_value(2, 0.4)}, Fault.NOT_FOLLOWING),
        ({"last_command": with_value(1, 1.75), "action": with_value(1, 1.75)}, Fault.NOT_FOLLOWING),
        ({"action": None, "policy_wait_s": 0.21}, Fault.LATE_POLICY),
        ({"last_velocity_rad_s": joint(0, 4.0)}, Fault.NO_WAY),
    ],
)
def test_each_fault_stops_the_arm_and_is_named(changes, fault):
    changed = replace(SOUND, **changes)
    if "last_command" in changes and "action" not in changes:
        changed = replace(changed, action=changes["last_command"])
    answer = safety.check(changed, CONFIG)
    assert isinstance(answer, Stop) and answer.fault is fault and "\n" not in answer.detail


def test_sound_moments_stop_for_none_of_these():
    assert isinstance(safety.check(SOUND, CONFIG), Command)


def test_an_arm_left_beyond_its_inset_limits_has_to_be_guided_back():
    outside = with_value(1, 1.75)
    moment = Moment(outside, None, outside, 0.0, 0.0)
    answer = safety.check(moment, ROOMY)
    assert isinstance(answer, Stop) and answer.fault is Fault.OUTSIDE_LIMITS and "joint 2" in answer.detail


@pytest.mark.parametrize("tick_s", [0.1, 1 / 30])
def test_an_arm_a_hair_beyond_its_inset_limits_is_brought_back_inside(tick_s):
    edge = FR3.q_max_rad[0] - CONFIG.limit_inset_rad
    outside = with_value(0, edge + 0.004)
    answer = safety.check(Moment(outside, None, outside, 0.0, 0.0, tick_s=tick_s), ROOMY)
    assert isinstance(answer, Command) and answer.values[0] == pytest.approx(edge)
    assert "joint_1 limit" in answer.clamps


def test_waiting_briefly_for_the_policy_holds():
    assert isinstance(safety.check(replace(SOUND, action=None, policy_wait_s=0.2), CONFIG), Hold)


def test_an_action_beyond_a_joint_limit_is_cut_there_and_named():
    last = with_value(0, 2.66)
    moment = replace(SOUND, action=with_value(0, 2.75), last_command=last, state=last, previous_state=last)
    answer = safety.check(moment, ROOMY)
    assert isinstance(answer, Command) and "joint_1 limit" in answer.clamps
    assert answer.values[0] <= FR3.q_max_rad[0] - ROOMY.limit_inset_rad


def test_a_fast_action_is_cut_to_the_largest_step_and_named():
    moment = replace(SOUND, action=with_value(0, 0.4), last_velocity_rad_s=joint(0, 1.5))
    answer = safety.check(moment, CONFIG)
    assert isinstance(answer, Command)
    assert answer.values[0] == pytest.approx(CONFIG.max_step_rad) and answer.clamps == ("joint_1 step",)


def test_from_rest_an_action_is_cut_to_the_acceleration_and_named():
    answer = safety.check(replace(SOUND, action=with_value(0, 0.15)), CONFIG)
    assert isinstance(answer, Command)
    assert answer.values[0] == pytest.approx(10.0 * 0.1**2) and answer.clamps == ("joint_1 acceleration",)


def test_a_reversal_is_cut_to_the_acceleration():
    moment = replace(SOUND, action=with_value(1, -0.4), last_velocity_rad_s=joint(1, 0.5))
    answer = safety.check(moment, CONFIG)
    assert isinstance(answer, Command)
    assert answer.values[1] == pytest.approx(-0.3 + 0.1 * (0.5 - 7.5 * 0.1)) and answer.clamps == (
        "joint_2 acceleration",
    )


def test_an_action_towards_the_stop_is_slowed_by_position():
    last = with_value(1, 1.6)
    moment = replace(SOUND, action=with_value(1, 1.72), last_command=last, state=last, previous_state=last)
    answer = safety.check(moment, ROOMY)
    assert isinstance(answer, Command)
    assert 1.6 < answer.values[1] < 1.67 and answer.clamps == ("joint_2 step",)
    panda = safety.check(replace(moment, action=with_value(1, 1.65)), ROOMY, PANDA)
    assert isinstance(panda, Command) and panda.values[1] == pytest.approx(1.65)


def test_a_width_outside_the_hand_is_cut_and_a_regressed_end_is_not_counted():
    wide = safety.check(replace(SOUND, action=with_value(7, 0.2)), CONFIG)
    regressed = safety.check(replace(SOUND, action=with_value(7, 0.0801)), CONFIG)
    assert isinstance(wide, Command) and wide.values[7] == 0.08 and wide.clamps == ("width",)
    assert isinstance(regressed, Command) and regressed.values[7] == 0.08 and regressed.clamps == ()


def test_a_change_that_the_measured_velocity_explains_is_believed():
    moment = replace(SOUND, previous_state=with_value(0, -0.15), velocity_rad_s=joint(0, 1.5))
    assert isinstance(safety.check(moment, CONFIG), Command)
    # The same from a state read late, as a loop that lost a tick sees it.
    late = replace(moment, previous_state=with_value(0, -0.28), previous_state_s=0.2)
    assert isinstance(safety.check(late, CONFIG), Command)


def test_two_joints_that_change_places_are_no_motion():
    swapped = HOME.copy()
    swapped[[4, 6]] = HOME[[6, 4]]
    answer = safety.check(replace(SOUND, state=swapped), CONFIG)
    assert isinstance(answer, Stop) and answer.fault is Fault.BAD_STATE


def test_the_picture_is_judged_before_the_state_and_the_state_before_the_action():
    everything = replace(
        SOUND, action=with_value(0, math.nan), state=with_value(0, math.nan), frame_age_s=1.0, policy_wait_s=9.0
    )
    faults = []
    for repair in ({"frame_age_s": 0.0}, {"state": HOME}, {"policy_wait_s": 0.0}, {"action": HOME}):
        answer = safety.check(everything, CONFIG)
        faults.append(answer.fault if isinstance(answer, Stop) else None)
        everything = replace(everything, **repair)
    assert faults == [Fault.STALE_FRAME, Fault.BAD_STATE, Fault.LATE_POLICY, Fault.NOT_FINITE]


def test_a_wrong_start_pose_is_refused():
    found = safety.check_start(with_value(5, 2.2), HOME[:7], CONFIG)
    assert found is not None and found.fault is Fault.START_POSE and "joint 6" in found.detail
    assert safety.check_start(HOME, HOME[:7], CONFIG) is None
    assert safety.check_start(with_value(0, math.nan), HOME[:7], CONFIG) is not None
    assert safety.check_start(HOME, np.full(7, math.nan), CONFIG) is not None


def test_faults_of_the_policy_are_told_from_faults_of_the_equipment():
    assert {fault for fault in Fault if fault.of_policy} == {
        Fault.SHAPE,
        Fault.NOT_FINITE,
        Fault.JUMP,
        Fault.NOT_FOLLOWING,
    }


def test_the_twin_has_the_limits_of_the_arm_it_simulates():
    assert LIMITS["twin"] is LIMITS["fr3"] is FR3 and LIMITS["panda"] is PANDA
    assert PANDA.near_stop is None and PANDA.velocity_towards(STILL, STILL).max() == 2.61
    np.testing.assert_allclose(FR3.velocity_towards(HOME[:7], np.ones(7)), [2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26])
