"""The safety envelope: one pure function between every action and the arm.

It answers each tick with a command that is inside the limits, or with a stop and its reason. It never repairs what
looks broken (a NaN, a jump, an old frame): those stop the arm. Only an action that is sound but slightly too fast or
too far is clamped, and each clamp is named, so that a log shows it. Knows nothing of franky, cameras or policies.

Limits of the FR3: Franka Control Interface documentation, "Robot limits" (positions, velocities and the
position-dependent velocity bound). All arrays are joint order 1…7.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from robocoach.configs.models import SafetyConfig
from robocoach.robots.limits import FR3, ArmLimits

ARM_DOF = 7
TICK_S = 0.1
WIDTH_SLACK_M = 0.005
"""A commanded width this far outside the hand's range is read as its end, without counting a clamp: the width is a
decision (see `GripperRule`), and a regressed 0.0801 m means open."""


class Fault(StrEnum):
    """Why the envelope stopped the arm."""

    SHAPE = "shape"
    NOT_FINITE = "not finite"
    JUMP = "jump"
    STALE_FRAME = "stale frame"
    STALE_STATE = "stale state"
    BAD_STATE = "bad state"
    LATE_POLICY = "late policy"
    NOT_FOLLOWING = "not following"
    """The arm lags far behind its command: it was driven into something."""
    OUTSIDE_LIMITS = "outside limits"
    START_POSE = "start pose"

    @property
    def of_policy(self) -> bool:
        """True when the policy itself is to blame, so that the rollout counts as its failure and not as invalid."""
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


@dataclass(frozen=True)
class Command:
    """An action that may be sent, and what had to be clamped for it."""

    values: np.ndarray
    """float64 (8,): joints [rad], width [m]."""
    clamps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hold:
    """Nothing to send: the policy is still thinking, within its time."""


@dataclass(frozen=True)
class Stop:
    """The arm has to come to rest now."""

    fault: Fault
    detail: str


def check(moment: Moment, safety: SafetyConfig, limits: ArmLimits = FR3) -> Command | Hold | Stop:
    """The envelope's answer for one tick. Never raises, whatever the input.

    Every command is inside the joint limits with their inset, no further than `max_step_rad` and than the velocity
    limits allow from the last command.
    """
    broken = _observation_fault(moment, safety)
    if broken is not None:
        return broken
    state = np.asarray(moment.state, dtype=float)
    last = _vector(moment.last_command if moment.last_command is not None else state)
    if last is None:
        return Stop(Fault.BAD_STATE, "the last command is not eight finite numbers")
    if moment.action is None:
        return Hold()
    action = _vector(moment.action, finite=False)
    if action is None:
        return Stop(Fault.SHAPE, f"an action has shape ({ARM_DOF + 1},), this one {_describe(moment.action)}")
    if not np.isfinite(action).all():
        return Stop(Fault.NOT_FINITE, f"the action holds NaN or infinity: {_describe(moment.action)}")

    reference = last[:ARM_DOF]
    low = np.array(limits.q_min_rad) + safety.limit_inset_rad
    high = np.array(limits.q_max_rad) - safety.limit_inset_rad
    beyond = np.flatnonzero((reference < low) | (reference > high))
    if beyond.size:
        joint = int(beyond[0])
        return Stop(
            Fault.OUTSIDE_LIMITS,
            f"joint {joint + 1} is at {reference[joint]:.3f} rad, allowed {low[joint]:.3f} to {high[joint]:.3f}: "
            "guide the arm back by hand",
        )
    jump = np.abs(action[:ARM_DOF] - reference)
    if jump.max() > safety.max_jump_rad:
        joint = int(jump.argmax())
        return Stop(
            Fault.JUMP, f"joint {joint + 1} is asked to jump {jump[joint]:.2f} rad, {safety.max_jump_rad} at most"
        )
    behind = np.abs(reference - state[:ARM_DOF])
    if behind.max() > safety.max_tracking_rad:
        joint = int(behind.argmax())
        return Stop(Fault.NOT_FOLLOWING, f"joint {joint + 1} is {behind[joint]:.2f} rad from its command")
    return _clamped(action, reference, low, high, safety, limits)


def check_start(state: np.ndarray, start_q: np.ndarray, safety: SafetyConfig) -> Stop | None:
    """A stop when the arm (8,) is not where a rollout begins (7,) [rad], else None."""
    now, wanted = _vector(state), np.asarray(start_q, dtype=float)
    if now is None:
        return Stop(Fault.BAD_STATE, "the arm's state is not eight finite numbers")
    away = np.abs(now[:ARM_DOF] - wanted)
    if not away.max() <= safety.start_tolerance_rad:
        joint = int(away.argmax())
        return Stop(
            Fault.START_POSE,
            f"joint {joint + 1} is {away[joint]:.3f} rad from the start pose, {safety.start_tolerance_rad} at most",
        )
    return None


def _observation_fault(moment: Moment, safety: SafetyConfig) -> Stop | None:
    if not 0 <= moment.frame_age_s <= safety.max_frame_age_s:
        return Stop(Fault.STALE_FRAME, f"the newest frame is {moment.frame_age_s:.3f} s old")
    if not 0 <= moment.state_age_s <= safety.max_state_age_s:
        return Stop(Fault.STALE_STATE, f"the newest robot state is {moment.state_age_s:.3f} s old")
    if not 0 <= moment.policy_wait_s <= safety.max_policy_wait_s:
        return Stop(Fault.LATE_POLICY, f"waiting for an action for {moment.policy_wait_s:.3f} s")
    if _vector(moment.state) is None:
        return Stop(Fault.BAD_STATE, f"a state is eight finite numbers, this one {_describe(moment.state)}")
    return None


def _clamped(
    action: np.ndarray,
    reference: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    safety: SafetyConfig,
    limits: ArmLimits,
) -> Command:
    wanted = action[:ARM_DOF]
    inside = np.clip(wanted, low, high)
    clamps = [f"joint_{joint + 1} limit" for joint in np.flatnonzero(inside != wanted)]
    step = inside - reference
    # The bound is taken at the target, where it is tightest, so it holds on the whole way there.
    largest = np.minimum(safety.max_step_rad, TICK_S * limits.velocity_towards(inside, np.sign(step)))
    bounded = np.clip(step, -largest, largest)
    clamps += [f"joint_{joint + 1} step" for joint in np.flatnonzero(bounded != step)]
    width = float(np.clip(action[ARM_DOF], 0.0, limits.width_max_m))
    if abs(width - action[ARM_DOF]) > WIDTH_SLACK_M:
        clamps.append("width")
    joints = np.clip(reference + bounded, low, high)
    return Command(np.append(joints, width), tuple(clamps))


def _vector(values: object, *, finite: bool = True) -> np.ndarray | None:
    """float64 (8,), or None when the input is something else (or not finite)."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return None
    if array.shape != (ARM_DOF + 1,) or (finite and not np.isfinite(array).all()):
        return None
    return array


def _describe(values: object) -> str:
    shape = getattr(values, "shape", None)
    return f"has shape {shape}: {values!r}"[:200] if shape is not None else f"is {values!r}"[:200]
