"""The safety envelope: one pure function between every action and the arm.

It answers each tick with a command that is inside all limits, or with a stop and its reason. It never repairs what
looks broken (a NaN, a jump, an old frame, a state that cannot be): those stop the arm. Only an action that is sound but
too fast, too sudden or too far is clamped, and each clamp is named, so that a log shows it. Knows nothing of franky,
cameras or policies.

What a command keeps to, from the last command (from rest where there is none) and over a tick of any length:

- Positions inside the joint limits with an inset, velocities inside the arm's limits at both ends of the tick
  (`ArmLimits.velocity_range`), `max_step_rad`, and a change of velocity of at most acceleration × tick.
- The hand inside a box and above the table, on the way there and while it brakes from there (`kinematics`).

Both bounds count on braking, so that the next tick always has a command inside all of them: a stream of the envelope's
own commands is never cornered. A step that would leave the box is scaled back towards braking, to the last allowed
point. The wish that an arm lags behind is caught up with no faster than it can be braked for, so clamping adds no
overshoot.

One check takes 0.15 to 0.22 ms, and about 0.4 ms in ticks that the box or the table clamps (medians, one core of a busy
two-core machine). The first one also loads the kinematics, unless `kinematics.load` did.
All arrays are joint order 1…7.
"""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from robocoach.configs.models import SafetyConfig
from robocoach.robots.kinematics import FACES, Workspace
from robocoach.robots.limits import FR3, ArmLimits, braking_speed

ARM_DOF = 7
TICK_S = 0.1
"""The tick that `max_step_rad` and `max_jump_rad` are stated for; others get their share."""
SHORTEST_TICK_S, LONGEST_TICK_S = 0.01, 0.2
WIDTH_SLACK_M = 0.005
"""A commanded width this far outside the hand's range is read as its end, without counting a clamp: the width is a
decision (see `GripperRule`), and a regressed 0.0801 m means open."""

RETURN_RAD = 0.005
"""A last command (or, at the start, an arm) this far outside its inset limits is brought back inside; further stops."""
READING_RAD = 0.02
"""Measured joints this far outside the arm's own limits are no reading of a joint."""
READING_M = 0.02
"""The same for the hand's width: fingers that are pushed apart give way a little."""
READING_RAD_S = 0.3
"""The same for joint velocities."""
UNEXPLAINED_RAD = 0.05
"""Change between two states that neither time nor velocity has to explain. Real FR3 motion at 10 Hz (up to 0.9 rad/s)
leaves 0.018 rad, the twin in free motion less."""
OUTSIDE_M = 0.02
"""A hand measured this far outside its box stops the arm, unless the command leads back."""
AIM_M, SCALING_TRIES = 0.0003, 5
"""A step that leads out is scaled back to this far inside, in so many tries."""
MOST_TICKS = 40
"""Ticks that braking is looked ahead for; from the fastest step of a Franka it takes 12, at 30 Hz."""
ROUNDING_M = 1e-12
"""Rounding of the kinematics: by so much a hand on the edge of its workspace may be further out in every tick."""
SLACK = 1e-9
"""Rounding, in any unit."""


class Fault(StrEnum):
    """Why the envelope stopped the arm."""

    SHAPE = "shape"
    NOT_FINITE = "not finite"
    JUMP = "jump"
    STALE_FRAME = "stale frame"
    FROZEN_FRAME = "frozen frame"
    STALE_STATE = "stale state"
    BAD_STATE = "bad state"
    """The state, or what the loop remembers, cannot be true: not finite, out of range, an unexplained change."""
    LATE_POLICY = "late policy"
    NOT_FOLLOWING = "not following"
    """The arm lags far behind its command: it was driven into something."""
    OUTSIDE_LIMITS = "outside limits"
    OUTSIDE_WORKSPACE = "outside workspace"
    NO_WAY = "no way"
    """No command is inside all limits: the last velocity is none that the envelope allowed."""
    START_POSE = "start pose"

    @property
    def of_policy(self) -> bool:
        """True for what the policy did: a malformed, endless or wild action, or driving the arm into something.

        Everything else is the equipment, the operator or the computer (pictures, states, timing, where the arm was
        left), and says nothing about how well a policy drives.
        """
        return self in (Fault.SHAPE, Fault.NOT_FINITE, Fault.JUMP, Fault.NOT_FOLLOWING)


@dataclass(frozen=True)
class Moment:
    """Everything the envelope looks at in one tick."""

    action: np.ndarray | None
    """(8,) joints [rad] and width [m] the policy asks for; None while its answer is awaited."""
    last_command: np.ndarray | None
    """(8,) what was sent last; None before the first command, then the arm's own pose takes its place."""
    state: np.ndarray
    """(8,) measured joints [rad] and width [m]."""
    frame_age_s: float
    state_age_s: float
    policy_wait_s: float = 0.0
    """How long the loop has been waiting for an action past the tick that needed it."""
    tick_s: float = TICK_S
    """Time in which the command is to be reached."""
    last_velocity_rad_s: np.ndarray | None = None
    """(7,) velocity of the last command; None when the arm was at rest."""
    velocity_rad_s: np.ndarray | None = None
    """(7,) measured joint velocity; None when the arm reports none."""
    frame_unchanged_s: float = 0.0
    """For how long new frames have shown the very same pixels."""
    previous_state: np.ndarray | None = None
    """(8,) the state before this one."""
    previous_state_s: float = 0.0
    """Time between the two states."""
    last_action: np.ndarray | None = None
    """(8,) the action of the last tick, as it was wished; None at the start."""


@dataclass(frozen=True)
class Command:
    """An action that may be sent, and what had to be clamped for it."""

    values: np.ndarray
    """float64 (8,): joints [rad], width [m]."""
    clamps: tuple[str, ...] = ()
    """`joint_3 limit` (position), `joint_3 step` (velocity), `joint_3 acceleration`, `workspace`, `table`, `width`."""


@dataclass(frozen=True)
class Hold:
    """Nothing to send: the policy is still thinking, within its time."""


@dataclass(frozen=True)
class Stop:
    """The arm has to come to rest now."""

    fault: Fault
    detail: str
    """One line."""


def check(moment: Moment, safety: SafetyConfig, limits: ArmLimits = FR3) -> Command | Hold | Stop:
    """The envelope's answer for one tick. Never raises, whatever is in the moment.

    The rules come in a fixed order: clock, picture, state, policy's time, action, joints, workspace.
    """
    stop = (
        _clock_fault(moment)
        or _frame_fault(moment, safety)
        or _state_fault(moment, safety, limits)
        or _wait_fault(moment, safety)
    )
    if stop is not None:
        return stop
    if moment.action is None:
        return Hold()
    known = _remembered(moment)
    if isinstance(known, Stop):
        return known
    action = _vector(moment.action, finite=False)
    stop = _action_fault(moment, action, known, safety) or _reference_fault(known, safety, limits)
    if stop is not None or action is None:
        return stop or Stop(Fault.SHAPE, "no action")
    allowed = _allowed_velocity(action[:ARM_DOF], known, safety, limits)
    if isinstance(allowed, Stop):
        return allowed
    velocity, clamps = allowed
    inside = _inside_workspace(velocity, known, safety, limits)
    if isinstance(inside, Stop):
        return inside
    velocity, more = inside
    low, high = _position_range(safety, limits)
    wanted = known.reference + velocity * known.tick_s
    joints = _clip(wanted, low, high)
    if np.abs(joints - wanted).max() > SLACK:
        return Stop(Fault.NO_WAY, "the way back inside the joint limits leads out of the workspace")
    width = min(max(float(action[ARM_DOF]), 0.0), limits.width_max_m)
    if abs(width - action[ARM_DOF]) > WIDTH_SLACK_M:
        more = [*more, "width"]
    return Command(np.append(joints, width), (*clamps, *more))


def check_start(state: np.ndarray, start_q: np.ndarray, safety: SafetyConfig) -> Stop | None:
    """A stop when the arm (8,) is not where a rollout begins (7,) [rad], else None."""
    now, wanted = _vector(state), _vector(start_q, ARM_DOF)
    if now is None:
        return Stop(Fault.BAD_STATE, f"a state is eight finite numbers, this one {_describe(state)}")
    if wanted is None:
        return Stop(Fault.START_POSE, f"a start pose is seven finite numbers, this one {_describe(start_q)}")
    away = np.abs(now[:ARM_DOF] - wanted)
    if away.max() > safety.start_tolerance_rad:
        joint = int(away.argmax())
        return Stop(
            Fault.START_POSE,
            f"joint {joint + 1} is {away[joint]:.3f} rad from the start pose, {safety.start_tolerance_rad} at most",
        )
    return None


def _clock_fault(moment: Moment) -> Stop | None:
    tick_s = _number(moment.tick_s)
    if not SHORTEST_TICK_S <= tick_s <= LONGEST_TICK_S:
        return Stop(Fault.BAD_STATE, f"a tick of {tick_s:.3f} s, expected {SHORTEST_TICK_S} to {LONGEST_TICK_S}")
    return None


def _frame_fault(moment: Moment, safety: SafetyConfig) -> Stop | None:
    age_s, unchanged_s = _number(moment.frame_age_s), _number(moment.frame_unchanged_s)
    if not 0 <= age_s <= safety.max_frame_age_s:
        return Stop(Fault.STALE_FRAME, f"the newest frame is {age_s:.3f} s old")
    if not 0 <= unchanged_s <= safety.max_frame_age_s:
        return Stop(Fault.FROZEN_FRAME, f"frames have shown the very same picture for {unchanged_s:.3f} s")
    return None


def _state_fault(moment: Moment, safety: SafetyConfig, limits: ArmLimits) -> Stop | None:
    age_s = _number(moment.state_age_s)
    if not 0 <= age_s <= safety.max_state_age_s:
        return Stop(Fault.STALE_STATE, f"the newest robot state is {age_s:.3f} s old")
    state = _vector(moment.state)
    if state is None:
        return Stop(Fault.BAD_STATE, f"a state is eight finite numbers, this one {_describe(moment.state)}")
    q = state[:ARM_DOF]
    beyond = np.maximum(limits.q_min - q, q - limits.q_max)
    if beyond.max() > READING_RAD:
        joint = int(beyond.argmax())
        return Stop(Fault.BAD_STATE, f"joint {joint + 1} reads {q[joint]:.3f} rad, where no joint can be")
    if not -READING_M <= state[ARM_DOF] <= limits.width_max_m + READING_M:
        return Stop(Fault.BAD_STATE, f"the hand reads a width of {state[ARM_DOF]:.3f} m")
    velocity = None
    if moment.velocity_rad_s is not None:
        velocity = _vector(moment.velocity_rad_s, ARM_DOF)
        if velocity is None:
            return Stop(Fault.BAD_STATE, f"joint velocities are seven, these {_describe(moment.velocity_rad_s)}")
        beyond = np.abs(velocity) - limits.velocity
        if beyond.max() > READING_RAD_S:
            joint = int(beyond.argmax())
            return Stop(Fault.BAD_STATE, f"joint {joint + 1} reads {velocity[joint]:.2f} rad/s, more than it can do")
    return _change_fault(moment, q, velocity, limits)


def _change_fault(moment: Moment, q: np.ndarray, velocity: np.ndarray | None, limits: ArmLimits) -> Stop | None:
    """Whether joints `q` can have come from the previous state in the time between, at the velocity measured."""
    if moment.previous_state is None:
        return None
    before, between_s = _vector(moment.previous_state), _number(moment.previous_state_s)
    if before is None or not 0 <= between_s < np.inf:
        return Stop(Fault.BAD_STATE, f"the previous state {_describe(moment.previous_state)}, {between_s:.3f} s before")
    change = q - before[:ARM_DOF]
    # The state's own time may lag that of its joints (the hand reports more slowly), so a tick is granted in any case.
    shortest_s, longest_s = sorted((between_s, _number(moment.tick_s)))
    unexplained = np.abs(change) - limits.velocity * longest_s
    if unexplained.max() <= UNEXPLAINED_RAD and velocity is not None:
        # What its velocity, now, and the largest acceleration before explain.
        one, other = velocity * shortest_s, velocity * longest_s
        expected = _clip(change, np.minimum(one, other), np.maximum(one, other))
        unexplained = np.abs(change - expected) - limits.acceleration * longest_s**2 / 2
    if unexplained.max() > UNEXPLAINED_RAD:
        joint = int(unexplained.argmax())
        speed = "" if velocity is None else f" at {velocity[joint]:.2f} rad/s"
        return Stop(
            Fault.BAD_STATE, f"joint {joint + 1} reads {change[joint]:+.2f} rad within {between_s:.3f} s{speed}"
        )
    return None


def _wait_fault(moment: Moment, safety: SafetyConfig) -> Stop | None:
    wait_s = _number(moment.policy_wait_s)
    if not 0 <= wait_s <= safety.max_policy_wait_s:
        return Stop(Fault.LATE_POLICY, f"waiting for an action for {wait_s:.3f} s")
    return None


@dataclass(frozen=True)
class _Known:
    """Where a command starts from."""

    q: np.ndarray
    """(7,) measured joints."""
    reference: np.ndarray
    """(7,) the last command, or the arm's own pose."""
    velocity: np.ndarray
    """(7,) of the last command."""
    wished: np.ndarray | None
    """(7,) the last action."""
    tick_s: float


def _remembered(moment: Moment) -> _Known | Stop:
    state = np.asarray(moment.state, dtype=float)
    last = _vector(moment.last_command if moment.last_command is not None else state)
    if last is None:
        return Stop(Fault.BAD_STATE, f"the last command {_describe(moment.last_command)}, not eight finite numbers")
    at_rest = moment.last_velocity_rad_s is None
    velocity = np.zeros(ARM_DOF) if at_rest else _vector(moment.last_velocity_rad_s, ARM_DOF)
    if velocity is None:
        return Stop(
            Fault.BAD_STATE, f"the last velocity {_describe(moment.last_velocity_rad_s)}, not seven finite numbers"
        )
    wished = _vector(moment.last_action)
    return _Known(
        state[:ARM_DOF],
        last[:ARM_DOF],
        velocity,
        wished[:ARM_DOF] if wished is not None else None,
        _number(moment.tick_s),
    )


def _action_fault(moment: Moment, action: np.ndarray | None, known: _Known, safety: SafetyConfig) -> Stop | None:
    if action is None:
        return Stop(Fault.SHAPE, f"an action has shape ({ARM_DOF + 1},), this one {_describe(moment.action)}")
    if not np.isfinite(action).all():
        return Stop(Fault.NOT_FINITE, f"the action holds NaN or infinity: {_describe(moment.action)}")
    jump, largest = np.abs(action[:ARM_DOF] - known.reference), safety.max_jump_rad * known.tick_s / TICK_S
    if jump.max() > largest + SLACK:
        joint = int(jump.argmax())
        return Stop(Fault.JUMP, f"joint {joint + 1} is asked to jump {jump[joint]:.2f} rad, {largest:.2f} at most")
    behind = np.abs(known.reference - known.q)
    if behind.max() > safety.max_tracking_rad:
        joint = int(behind.argmax())
        return Stop(Fault.NOT_FOLLOWING, f"joint {joint + 1} is {behind[joint]:.2f} rad from its command")
    return None


def _reference_fault(known: _Known, safety: SafetyConfig, limits: ArmLimits) -> Stop | None:
    low, high = _position_range(safety, limits)
    beyond = np.maximum(low - known.reference, known.reference - high)
    if beyond.max() > RETURN_RAD:
        joint = int(beyond.argmax())
        return Stop(
            Fault.OUTSIDE_LIMITS,
            f"joint {joint + 1} is at {known.reference[joint]:.3f} rad, allowed {low[joint]:.3f} to {high[joint]:.3f}: "
            "guide the arm back by hand",
        )
    return None


def _position_range(safety: SafetyConfig, limits: ArmLimits) -> tuple[np.ndarray, np.ndarray]:
    return limits.q_min + safety.limit_inset_rad, limits.q_max - safety.limit_inset_rad


def _allowed_velocity(
    wish: np.ndarray, known: _Known, safety: SafetyConfig, limits: ArmLimits
) -> tuple[np.ndarray, list[str]] | Stop:
    """The velocity (7,) inside every limit of the joints that comes closest to the wished joints (7,), and clamps."""
    low, high = _position_range(safety, limits)
    inside = _clip(wish, low, high)
    fastest = safety.max_step_rad / TICK_S
    slowest, quickest = limits.velocity_range(known.reference, low, high, known.tick_s)
    slowest, quickest = np.maximum(slowest, -fastest), np.minimum(quickest, fastest)
    gain = limits.acceleration * known.tick_s
    least, most = known.velocity - gain, known.velocity + gain
    cornered = np.maximum(slowest, least) > np.minimum(quickest, most) + SLACK
    if cornered.any():
        joint = int(cornered.argmax())
        return Stop(
            Fault.NO_WAY,
            f"joint {joint + 1} was sent {known.velocity[joint]:.2f} rad/s and cannot come to between "
            f"{slowest[joint]:.2f} and {quickest[joint]:.2f} rad/s in a tick",
        )
    wished = (inside - known.reference) / known.tick_s
    bounded = _clip(wished, slowest, quickest)
    gentle = _clip(_catching_up(bounded, inside, known, low, high, limits), slowest, quickest)
    gentle = _clip(gentle, least, most)
    clamps = [
        *_named("limit", inside, wish),
        *_named("step", bounded, wished),
        *_named("acceleration", gentle, bounded),
    ]
    return gentle, clamps


def _named(what: str, one: np.ndarray, other: np.ndarray) -> list[str]:
    """A clamp for each joint at which two (7,) differ."""
    different = np.abs(one - other) > SLACK
    return [f"joint_{joint + 1} {what}" for joint in np.flatnonzero(different)] if different.any() else []


def _clip(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """`np.clip` without its overhead, which would be half the time of a check."""
    return np.minimum(np.maximum(values, low), high)


def _catching_up(
    velocity: np.ndarray, wish: np.ndarray, known: _Known, low: np.ndarray, high: np.ndarray, limits: ArmLimits
) -> np.ndarray:
    """The velocity, slowed where the command lags behind the wish and could not brake once it gets there.

    The wish itself moves; what counts is the speed beyond its own.
    """
    if known.wished is None:
        return velocity
    before = _clip(known.wished, low, high)
    lag = before - known.reference
    if np.abs(lag).max() <= SLACK:
        return velocity
    side = np.sign(lag)
    own = side * (wish - before) / known.tick_s
    most = np.maximum(0.0, own + braking_speed(np.abs(lag), limits.braking, known.tick_s))
    return side * np.minimum(side * velocity, most) + (side == 0) * velocity


def _inside_workspace(
    velocity: np.ndarray, known: _Known, safety: SafetyConfig, limits: ArmLimits
) -> tuple[np.ndarray, list[str]] | Stop:
    """The velocity (7,) scaled back towards braking as far as the box and the table demand, and clamps."""
    space = Workspace.of(safety)
    change = limits.braking * known.tick_s
    way = _way(known.reference, velocity, change, known.tick_s)
    excess = space.excess_m(np.concatenate([known.q[None], known.reference[None], way]))
    measured, here, reaches = excess[0], excess[1], excess[2:].max(axis=0)
    # A hand that is outside already may be as far outside as it is, and no further.
    allowed = np.maximum(here + ROUNDING_M, SLACK)
    chosen, clamps = velocity, []
    if (reaches > allowed).any():
        faces = {FACES[index] for index in np.flatnonzero(reaches > allowed)}
        clamps = [*(["workspace"] if faces - {"table"} else []), *(["table"] if "table" in faces else [])]

        def leads_out(velocity: np.ndarray) -> np.ndarray:
            way = _way(known.reference, velocity, change, known.tick_s)
            return space.excess_m(way).max(axis=0) - allowed

        chosen = braked = _braked(known.velocity, change)
        beyond = leads_out(braked)
        if beyond.max() > 0:
            return Stop(Fault.NO_WAY, f"the hand cannot brake before the side {_worst(beyond)} of its workspace")
        # False position: how far out a share of the step leads is nearly linear in it.
        share, inside, too_much, outside = 0.0, beyond.max(), 1.0, (reaches - allowed).max()
        for _ in range(SCALING_TRIES):
            aim = (-AIM_M - inside) / (outside - inside)
            tried = share + min(max(aim, 0.05), 0.95) * (too_much - share)
            mixed = braked + tried * (velocity - braked)
            reach = leads_out(mixed).max()
            if reach > 0:
                too_much, outside = tried, reach
                continue
            share, inside, chosen = tried, reach, mixed
            if inside > -2 * AIM_M:
                break
    if measured.max() > OUTSIDE_M:
        end = space.excess_m((known.reference + chosen * known.tick_s)[None])[0]
        if end.max() > measured.max() - SLACK:
            return Stop(
                Fault.OUTSIDE_WORKSPACE,
                f"the hand is {1000 * measured.max():.0f} mm beyond the side {_worst(measured)} of its workspace: "
                "guide it back by hand",
            )
    return chosen, clamps


def _worst(excess: np.ndarray) -> str:
    return FACES[int(excess.argmax())]


def _braked(velocity: np.ndarray, change: np.ndarray) -> np.ndarray:
    """The velocity (7,) after one more tick of braking by `change` (7,) at most."""
    return np.sign(velocity) * np.maximum(0.0, np.abs(velocity) - change)


def _way(reference: np.ndarray, velocity: np.ndarray, change: np.ndarray, tick_s: float) -> np.ndarray:
    """Joints (n, 7) on the way through a tick at a velocity (7,), and through the ticks of braking after it.

    Points lie 0.05 rad apart at most at the largest step; between two of them the hand bulges by less than 1 mm. The
    braking of one tick is the way of the next tick's slowest command, point by point: what was allowed stays so.
    """
    points = max(1, round(40 * tick_s))
    ticks = min(MOST_TICKS, max(1, math.ceil((np.abs(velocity) / change).max())))
    slowing = np.arange(ticks)[:, None] * change
    steps = np.sign(velocity) * np.maximum(0.0, np.abs(velocity) - slowing) * tick_s
    ends = reference + np.cumsum(steps, axis=0)
    parts = np.arange(1 - points, 1)[:, None] / points
    return (ends[:, None, :] + parts * steps[:, None, :]).reshape(-1, ARM_DOF)


def _number(value: object) -> float:
    """The value as a float; NaN when it is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return float("nan")
    try:
        return float(value)
    except OverflowError:
        return float("nan")


def _vector(values: object, size: int = ARM_DOF + 1, *, finite: bool = True) -> np.ndarray | None:
    """float64 (size,), or None when the input is something else (or not finite)."""
    try:
        array = np.asarray(values)
        if array.shape != (size,) or array.dtype.kind not in "fiu":
            return None
        array = array.astype(float)
    except Exception:  # whatever an object does when it is asked
        return None
    return array if not finite or np.isfinite(array).all() else None


def _describe(values: object) -> str:
    try:
        shape = getattr(values, "shape", None)
        text = " ".join((repr(values) if isinstance(values, np.ndarray) else reprlib.repr(values)).split())
        return (f"has shape {shape}: {text}" if shape is not None else f"is {text}")[:200]
    except Exception:  # whatever an object does when it is asked
        return f"is a {type(values).__name__}"
