"""Whatever comes in, the envelope does not raise and sends nothing outside the limits."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robocoach.configs.models import SafetyConfig
from robocoach.robots import safety
from robocoach.robots.kinematics import Workspace
from robocoach.robots.limits import FR3, PANDA, ArmLimits
from robocoach.robots.safety import Command, Fault, Hold, Moment, Stop

HOME = np.array([0.0, -0.3, 0.0, -2.4, 0.0, 2.1, 0.78, 0.08])
EPS = 1e-8

any_float = st.floats(allow_nan=True, allow_infinity=True, width=64)
near = st.floats(-4.0, 5.0)
vectors = hnp.arrays(np.float64, 8, elements=st.one_of(near, any_float))
velocities = hnp.arrays(np.float64, 7, elements=st.one_of(st.floats(-3, 3), any_float))
anything = st.one_of(
    vectors,
    hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=9), elements=any_float),
    hnp.arrays(np.float32, 8, elements=st.floats(-4, 4, width=32)),
    hnp.arrays(np.int64, st.sampled_from([7, 8])),
    hnp.arrays(np.complex128, 8),
    st.none(),
    st.text(),
    st.lists(st.one_of(any_float, st.none(), st.text(max_size=2), st.lists(any_float, max_size=2)), max_size=9),
    st.integers(min_value=-(10**400), max_value=10**400),
)
numbers = st.one_of(st.floats(0, 0.2), any_float, st.none(), st.text(max_size=3), st.integers(), vectors)
configs = st.builds(
    SafetyConfig,
    limit_inset_rad=st.floats(0, 0.5),
    max_step_rad=st.floats(0.001, 0.25),
    max_jump_rad=st.floats(0.01, 2),
    max_tracking_rad=st.floats(0.01, 2),
    table_clearance_m=st.floats(0, 0.1),
)
arms = st.sampled_from([FR3, PANDA])


def assert_within(moment: Moment, answer: Command, config: SafetyConfig, limits: ArmLimits) -> None:
    """What every command keeps to."""
    joints, tick_s = answer.values[:7], float(moment.tick_s)
    assert answer.values.shape == (8,) and answer.values.dtype == np.float64 and np.isfinite(answer.values).all()
    assert (joints >= limits.q_min + config.limit_inset_rad - 1e-12).all()
    assert (joints <= limits.q_max - config.limit_inset_rad + 1e-12).all()
    reference = np.asarray(moment.last_command if moment.last_command is not None else moment.state, dtype=float)[:7]
    velocity = (joints - reference) / tick_s
    assert (np.abs(velocity) <= config.max_step_rad / 0.1 + EPS).all()
    inwards = np.sign(velocity) * (reference - (limits.q_min + limits.q_max) / 2) < 0
    for place in (reference, joints):
        allowed = limits.velocity_towards(place, np.sign(velocity))
        assert ((np.abs(velocity) <= allowed + EPS) | inwards).all()
    before = moment.last_velocity_rad_s if moment.last_velocity_rad_s is not None else np.zeros(7)
    assert (np.abs(velocity - before) <= limits.acceleration * tick_s + EPS).all()
    out = Workspace.of(config).excess_m(np.stack([reference, joints]))
    assert (out[1] <= np.maximum(out[0], 0) + EPS).all()
    assert 0 <= answer.values[7] <= limits.width_max_m


@settings(max_examples=600, deadline=None)
@given(
    anything,
    st.one_of(vectors, anything),
    st.one_of(vectors, anything),
    numbers,
    numbers,
    numbers,
    st.one_of(st.floats(1 / 30, 0.1), numbers),
    st.one_of(st.none(), velocities, anything),
    st.one_of(st.none(), velocities, anything),
    numbers,
    anything,
    numbers,
    anything,
    configs,
    arms,
)
def test_no_input_raises_or_yields_a_command_outside_the_limits(
    action, last, state, frame, age, wait, tick, moved, moves, same, before, between, wished, config, limits
):
    moment = Moment(action, last, state, frame, age, wait, tick, moved, moves, same, before, between, wished)
    answer = safety.check(moment, config, limits)
    assert isinstance(answer, (Command, Hold, Stop))
    if isinstance(answer, Command):
        assert_within(moment, answer, config, limits)


SOUND = Moment(action=HOME, last_command=HOME, state=HOME, frame_age_s=0.05, state_age_s=0.01)
FIELDS = tuple(name for name in Moment.__dataclass_fields__)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(FIELDS), st.one_of(anything, numbers))
def test_one_broken_field_in_a_sound_moment_neither_raises_nor_harms(field, value):
    moment = replace(SOUND, **{field: value})
    answer = safety.check(moment, SafetyConfig())
    if isinstance(answer, Command):
        assert_within(moment, answer, SafetyConfig(), FR3)
    elif isinstance(answer, Stop):
        assert "\n" not in answer.detail and len(answer.detail) < 400


legal_q = st.tuples(*(st.floats(low, high) for low, high in zip(FR3.q_min_rad, FR3.q_max_rad, strict=True)))
offsets = hnp.arrays(np.float64, 8, elements=st.floats(-0.6, 0.6))
speeds = hnp.arrays(np.float64, 7, elements=st.floats(-2, 2))


@settings(max_examples=600, deadline=None)
@given(legal_q, offsets, offsets, speeds, st.floats(1 / 30, 0.1), configs)
def test_sound_inputs_anywhere_are_clamped_inside_or_stop_for_a_named_reason(q, offset, behind, moved, tick_s, config):
    last = np.append(q, 0.04)
    moment = Moment(
        last + offset, last, last + 0.4 * behind, 0.0, 0.0, tick_s=tick_s, last_velocity_rad_s=moved, last_action=last
    )
    answer = safety.check(moment, config)
    if isinstance(answer, Command):
        assert_within(moment, answer, config, FR3)
    else:
        assert isinstance(answer, Stop)
        assert answer.fault in (
            Fault.JUMP,
            Fault.NOT_FOLLOWING,
            Fault.OUTSIDE_LIMITS,
            Fault.OUTSIDE_WORKSPACE,
            Fault.NO_WAY,
            Fault.BAD_STATE,
        )


class Hostile:
    """An object that raises whatever it is asked."""

    shape = property(lambda self: 1 / 0)

    def __array__(self, *_, **__):
        raise RuntimeError("no array")

    def __float__(self):
        raise RuntimeError("no number")

    def __repr__(self):
        raise RuntimeError("no text")


def test_an_object_that_raises_on_every_question_stops_the_arm():
    for field in FIELDS:
        moment = replace(SOUND, previous_state=HOME, previous_state_s=0.1)
        answer = safety.check(replace(moment, **{field: Hostile()}), SafetyConfig())
        assert isinstance(answer, Stop) or field == "last_action"
