"""Whatever comes in, the envelope sends nothing outside the limits."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robocoach.configs.models import SafetyConfig
from robocoach.robots import safety
from robocoach.robots.safety import FR3, Command, Fault, Hold, Moment, Stop

HOME = np.array([0.0, -0.3, 0.0, -2.4, 0.0, 2.1, 0.78, 0.08])
CONFIG = SafetyConfig()

any_float = st.floats(allow_nan=True, allow_infinity=True, width=64)
near = st.floats(-4.0, 5.0)
vectors = hnp.arrays(np.float64, 8, elements=st.one_of(near, any_float))
sound = hnp.arrays(np.float64, 8, elements=near)
ages = st.one_of(st.floats(0, 0.2), any_float)
configs = st.builds(
    SafetyConfig,
    limit_inset_rad=st.floats(0, 0.5),
    max_step_rad=st.floats(0.001, 0.25),
    max_jump_rad=st.floats(0.01, 2),
    max_tracking_rad=st.floats(0.01, 2),
)
anything = st.one_of(
    vectors,
    sound,
    hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=9), elements=any_float),
    hnp.arrays(np.float32, 8, elements=st.floats(-4, 4, width=32)),
    st.none(),
    st.text(),
    st.lists(any_float, max_size=9),
)


def inside_limits(moment: Moment, answer: Command, config: SafetyConfig) -> None:
    joints = answer.values[:7]
    low, high = np.array(FR3.q_min_rad), np.array(FR3.q_max_rad)
    assert np.isfinite(answer.values).all()
    assert (joints >= low + config.limit_inset_rad).all() and (joints <= high - config.limit_inset_rad).all()
    reference = moment.last_command if moment.last_command is not None else moment.state
    step = joints - np.asarray(reference, dtype=float)[:7]
    assert np.abs(step).max() <= config.max_step_rad + 1e-12
    assert (np.abs(step) / 0.1 <= np.array(FR3.velocity_rad_s) + 1e-9).all()
    assert (np.abs(step) / 0.1 <= FR3.velocity_towards(joints, np.sign(step)) + 1e-9).all()
    assert 0 <= answer.values[7] <= 0.08


@settings(max_examples=500, deadline=None)
@given(anything, st.one_of(st.none(), vectors), vectors, ages, ages, ages, configs)
def test_no_input_yields_a_command_outside_the_limits(action, last, state, frame, state_age, wait, config):
    moment = Moment(action, last, state, frame, state_age, wait)
    answer = safety.check(moment, config)
    if isinstance(answer, Command):
        inside_limits(moment, answer, config)


legal_q = st.tuples(*(st.floats(low, high) for low, high in zip(FR3.q_min_rad, FR3.q_max_rad, strict=True)))
offsets = hnp.arrays(np.float64, 8, elements=st.floats(-0.6, 0.6))


@settings(max_examples=500, deadline=None)
@given(legal_q, offsets, offsets, configs)
def test_sound_inputs_near_the_limits_are_clamped_inside(q, offset, behind, config):
    last = np.append(q, 0.04)
    moment = Moment(last + offset, last, last + 0.4 * behind, 0.0, 0.0)
    answer = safety.check(moment, config)
    if isinstance(answer, Command):
        inside_limits(moment, answer, config)
    else:
        assert isinstance(answer, Stop)
        assert answer.fault in (Fault.JUMP, Fault.NOT_FOLLOWING, Fault.OUTSIDE_LIMITS)


@settings(max_examples=200, deadline=None)
@given(hnp.arrays(np.float64, 7, elements=st.floats(-0.1, 0.1)), st.floats(0, 0.08))
def test_a_gentle_action_passes_unchanged(step, width):
    action = np.append(HOME[:7] + step, width)
    answer = safety.check(Moment(action, HOME, HOME, 0.05, 0.01), CONFIG)
    assert isinstance(answer, Command) and answer.clamps == ()
    np.testing.assert_allclose(answer.values, action, atol=1e-12)


SOUND = Moment(action=HOME, last_command=HOME, state=HOME, frame_age_s=0.05, state_age_s=0.01)


def with_value(index: int, value: float) -> np.ndarray:
    changed = HOME.copy()
    changed[index] = value
    return changed


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"action": with_value(3, math.nan)}, Fault.NOT_FINITE),
        ({"action": with_value(7, math.inf)}, Fault.NOT_FINITE),
        ({"action": HOME[:7]}, Fault.SHAPE),
        ({"action": "left"}, Fault.SHAPE),
        ({"action": with_value(0, 0.7)}, Fault.JUMP),
        ({"frame_age_s": 0.26}, Fault.STALE_FRAME),
        ({"frame_age_s": math.nan}, Fault.STALE_FRAME),
        ({"state_age_s": 0.26}, Fault.STALE_STATE),
        ({"state_age_s": -1.0}, Fault.STALE_STATE),
        ({"state": with_value(2, math.nan)}, Fault.BAD_STATE),
        ({"state": with_value(2, 0.4)}, Fault.NOT_FOLLOWING),
        ({"last_command": with_value(3, -0.16), "state": with_value(3, -0.16)}, Fault.OUTSIDE_LIMITS),
        ({"action": None, "policy_wait_s": 0.31}, Fault.LATE_POLICY),
    ],
)
def test_each_fault_stops_the_arm_and_is_named(changes, fault):
    answer = safety.check(replace(SOUND, **changes), CONFIG)
    assert isinstance(answer, Stop) and answer.fault is fault and "\n" not in answer.detail


def test_waiting_briefly_for_the_policy_holds():
    assert isinstance(safety.check(replace(SOUND, action=None, policy_wait_s=0.1), CONFIG), Hold)


def test_a_fast_action_is_cut_to_the_largest_step_and_named():
    answer = safety.check(replace(SOUND, action=with_value(0, 0.4)), CONFIG)
    assert isinstance(answer, Command)
    assert answer.values[0] == pytest.approx(CONFIG.max_step_rad) and answer.clamps == ("joint_1 step",)


def test_an_action_towards_the_stop_is_slowed_by_position():
    last = with_value(1, 1.6)
    answer = safety.check(replace(SOUND, action=with_value(1, 1.72), last_command=last, state=last), CONFIG)
    assert isinstance(answer, Command)
    assert 1.6 < answer.values[1] < 1.65 and answer.clamps == ("joint_2 step",)


def test_a_wrong_start_pose_is_refused():
    found = safety.check_start(with_value(5, 2.2), HOME[:7], CONFIG)
    assert found is not None and found.fault is Fault.START_POSE and "joint 6" in found.detail
    assert safety.check_start(HOME, HOME[:7], CONFIG) is None
    assert safety.check_start(with_value(0, math.nan), HOME[:7], CONFIG) is not None


@pytest.mark.parametrize(
    ("fault", "policy"), [(Fault.NOT_FINITE, True), (Fault.JUMP, True), (Fault.STALE_FRAME, False)]
)
def test_faults_of_the_policy_are_told_from_faults_of_the_equipment(fault, policy):
    assert fault.of_policy is policy
