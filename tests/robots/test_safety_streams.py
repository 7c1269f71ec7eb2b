"""A stream of the envelope's own commands stays inside every limit and is never cornered, whatever is wished."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robocoach.configs.models import SafetyConfig
from robocoach.robots import safety
from robocoach.robots.kinematics import Workspace
from robocoach.robots.limits import FR3, PANDA, ArmLimits, braking_speed
from robocoach.robots.safety import Command, Moment

HOME = np.array([0.0, -0.3, 0.0, -2.4, 0.0, 2.1, 0.78])
EVERYWHERE = {
    "table_z_m": -0.5,
    "workspace_x_min_m": -1.0,
    "workspace_x_max_m": 1.2,
    "workspace_y_min_m": -1.2,
    "workspace_y_max_m": 1.2,
    "workspace_z_max_m": 1.5,
}
"""A box that an arm only leaves through the table."""
EPS = 1e-8


class Stream:
    """The envelope with what the guard remembers, over an arm that follows exactly."""

    def __init__(self, q: np.ndarray, config: SafetyConfig, limits: ArmLimits = FR3, tick_s: float = 0.1) -> None:
        self.config, self.limits, self.tick_s = config, limits, tick_s
        self.commands, self.clamps = [np.append(q, 0.04)], []
        self._velocity = self._wished = None

    @property
    def q(self) -> np.ndarray:
        return self.commands[-1][:7]

    def wish(self, q: np.ndarray) -> None:
        last, wished = self.commands[-1], np.append(q, 0.04)
        answer = safety.check(
            Moment(
                wished,
                last if len(self.commands) > 1 else None,
                last,
                0.0,
                0.0,
                tick_s=self.tick_s,
                last_velocity_rad_s=self._velocity,
                last_action=self._wished,
            ),
            self.config,
            self.limits,
        )
        assert isinstance(answer, Command), answer
        self._velocity, self._wished = (answer.values[:7] - last[:7]) / self.tick_s, wished
        self.commands.append(answer.values)
        self.clamps.append(answer.clamps)

    def assert_within_limits(self) -> None:
        joints = np.array(self.commands)[:, :7]
        low, high = self.limits.q_min + self.config.limit_inset_rad, self.limits.q_max - self.config.limit_inset_rad
        assert (joints >= low).all() and (joints <= high).all()
        velocity = np.diff(joints, axis=0) / self.tick_s
        assert (np.abs(velocity) <= self.config.max_step_rad / 0.1 + EPS).all()
        for ends in (joints[:-1], joints[1:]):
            allowed = np.array(
                [self.limits.velocity_towards(q, np.sign(v)) for q, v in zip(ends, velocity, strict=True)]
            )
            outwards = np.abs(joints[1:] - (low + high) / 2) > np.abs(joints[:-1] - (low + high) / 2)
            assert ((np.abs(velocity) <= allowed + EPS) | ~outwards).all()
        change = np.diff(np.vstack([np.zeros(7), velocity]), axis=0)
        assert (np.abs(change) <= self.limits.acceleration * self.tick_s + EPS).all()
        space = Workspace.of(self.config)
        assert space.excess_m(joints).max() <= EPS
        between = np.concatenate([joints[:-1] + share * np.diff(joints, axis=0) for share in (0.2, 0.5, 0.8)])
        assert space.excess_m(between).max() <= 0.002


directions = hnp.arrays(np.float64, 7, elements=st.sampled_from([-1.0, -0.3, 0.0, 0.3, 1.0]))
segments = st.lists(st.tuples(directions, st.integers(1, 12)), min_size=1, max_size=6)
shares = hnp.arrays(np.float64, 7, elements=st.floats(0, 1))
ticks = st.sampled_from([0.1, 1 / 15, 1 / 20, 1 / 30])


def run(stream: Stream, legs: list[tuple[np.ndarray, int]]) -> None:
    """Wishes that run away from the last command in one direction for some ticks, then in another."""
    furthest = 0.99 * stream.config.max_jump_rad * stream.tick_s / 0.1
    for direction, length in legs:
        for _ in range(length):
            stream.wish(stream.q + furthest * direction)


@settings(max_examples=120, deadline=None)
@given(shares, segments, ticks, st.sampled_from([FR3, PANDA]), st.floats(0, 0.2), st.floats(0.02, 0.25))
def test_streams_with_reversals_and_runs_into_the_joint_limits_stay_inside(share, legs, tick_s, limits, inset, step):
    config = SafetyConfig(limit_inset_rad=inset, max_step_rad=step, **EVERYWHERE)
    low, high = limits.q_min + inset, limits.q_max - inset
    start = np.clip(low + share * (high - low), low, high)
    assume(Workspace.of(config).excess_m(start[None]).max() < 0)
    stream = Stream(start, config, limits, tick_s)
    run(stream, legs)
    stream.assert_within_limits()


@settings(max_examples=120, deadline=None)
@given(hnp.arrays(np.float64, 7, elements=st.floats(-0.4, 0.4)), segments, ticks)
def test_streams_with_runs_into_the_table_and_out_of_the_box_stay_inside(offset, legs, tick_s):
    config = SafetyConfig()
    assume(Workspace.of(config).excess_m((HOME + offset)[None]).max() < 0)
    stream = Stream(HOME + offset, config, FR3, tick_s)
    run(stream, legs)
    stream.assert_within_limits()


@pytest.mark.parametrize("tick_s", [0.1, 1 / 30])
@pytest.mark.parametrize("limits", [FR3, PANDA], ids=["fr3", "panda"])
def test_at_full_speed_every_joint_comes_to_rest_at_its_limit(limits, tick_s):
    config = SafetyConfig(limit_inset_rad=0.01, max_step_rad=0.25, **EVERYWHERE)
    middle = (limits.q_min + limits.q_max) / 2
    for joint, side in itertools.product(range(7), (-1, 1)):
        start = middle.copy()
        start[3], start[5] = -1.8, 1.9
        start[joint] -= 0.3 * side
        stream = Stream(start, config, limits, tick_s)
        for _ in range(round(4.5 / tick_s)):
            stream.wish(stream.q + side * 0.5 * tick_s / 0.1 * np.eye(7)[joint])
        end = limits.q_max[joint] - 0.01 if side > 0 else limits.q_min[joint] + 0.01
        if "table" in itertools.chain(*stream.clamps) or "workspace" in itertools.chain(*stream.clamps):
            continue  # this joint meets the table before its limit
        assert stream.q[joint] == pytest.approx(end, abs=0.003)
        stream.assert_within_limits()


@pytest.mark.parametrize("tick_s", [0.1, 1 / 30])
def test_a_jump_of_the_wish_is_followed_without_overshoot(tick_s):
    stream = Stream(HOME, SafetyConfig(max_jump_rad=2.0), FR3, tick_s)
    goal = HOME + np.array([0.5, 0, 0, 0, 0, 0, -0.5])
    for _ in range(round(1.5 / tick_s)):
        stream.wish(goal)
    joints = np.array(stream.commands)[:, [0, 6]]
    assert joints[:, 0].max() <= goal[0] + 1e-6 and joints[:, 1].min() >= goal[6] - 1e-6
    assert stream.q[0] == pytest.approx(goal[0], abs=1e-6)
    assert "joint_1 acceleration" in stream.clamps[0]


def test_a_wish_that_moves_steadily_is_caught_up_with_and_then_left_alone():
    stream = Stream(HOME, SafetyConfig(), FR3, 1 / 30)
    for tick in range(18):
        stream.wish(HOME + np.array([1.2 * (tick + 1) / 30, 0, 0, 0, 0, 0, 0]))
    joints = np.array(stream.commands)[:, 0]
    assert not any(stream.clamps[9:]) and joints[-1] == pytest.approx(HOME[0] + 1.2 * 18 / 30)
    assert (np.diff(joints) >= 0).all()


def test_braking_from_the_braking_speed_ends_within_the_distance():
    distances = np.linspace(0.0, 2.0, 400)
    for tick_s in (0.1, 1 / 30):
        travelled = np.zeros_like(distances)
        speed = braking_speed(distances, np.full(400, 5.0), tick_s)
        while speed.any():
            travelled += speed * tick_s
            speed = np.maximum(0.0, speed - 5.0 * tick_s)
        assert (travelled <= distances + EPS).all()
        assert (travelled >= 0.9 * distances - 5.0 * tick_s**2).all()


def test_per_step_and_jump_limits_hold_per_tenth_of_a_second():
    slow = Stream(HOME, SafetyConfig(max_step_rad=0.03), FR3, 0.1)
    fast = Stream(HOME, SafetyConfig(max_step_rad=0.03), FR3, 1 / 30)
    for _ in range(3):
        fast.wish(fast.q + 0.1 * np.eye(7)[0])
    slow.wish(slow.q + 0.3 * np.eye(7)[0])
    assert slow.q[0] == pytest.approx(0.03) and fast.q[0] == pytest.approx(0.03)
    jump = Moment(np.append(HOME + 0.21, 0.04), None, np.append(HOME, 0.04), 0.0, 0.0, tick_s=1 / 30)
    answer = safety.check(jump, SafetyConfig(max_jump_rad=0.6))
    assert isinstance(answer, safety.Stop) and answer.fault is safety.Fault.JUMP
