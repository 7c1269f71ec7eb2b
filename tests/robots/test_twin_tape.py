"""The twin's tape: what the 1 kHz commands are differentiated to, and which of them count as unsafe."""

import numpy as np
import pytest

from robocoach.robots.limits import FR3
from robocoach.robots.twin_tape import Mode, Stretch, unsafe_commands

HOME = np.array([0.0, -0.3, 0.0, -2.4, 0.0, 2.1, 0.8])
JOINT_1 = np.eye(7)[0]


def velocities(profile: np.ndarray, numbers: np.ndarray | None = None, rest: int = 5) -> Stretch:
    """A motion of joint 1 with these velocities (n,), one a state number, after a rest."""
    n = len(profile) + rest
    command = np.concatenate([np.tile(HOME, (rest, 1)), profile[:, None] * JOINT_1])
    mode = np.array([Mode.IDLE] * rest + [Mode.VELOCITY] * len(profile))
    if numbers is None:
        numbers = np.arange(1, len(profile) + 1)
    number = np.concatenate([np.zeros(rest, int), numbers])
    return Stretch(np.arange(n) / 1000, mode, number, command, np.tile(HOME, (n, 1)), np.zeros((n, 7)))


def ramp(acceleration: float, milliseconds: int) -> np.ndarray:
    return acceleration * np.arange(1, milliseconds + 1) / 1000


def test_a_ramp_within_the_limits_is_safe():
    assert sum(unsafe_commands(velocities(ramp(9.9, 100)), FR3).values()) == 0


def test_a_client_that_was_late_is_not_unsafe():
    numbers = np.array([*range(1, 40), *range(49, 101)])  # ten milliseconds without an answer
    profile = ramp(9.9, 100)[numbers - 1]
    gap = np.flatnonzero(np.diff(numbers) > 1)[0] + 1
    held = np.insert(profile, [gap] * 9, profile[gap - 1])
    tape = velocities(held, np.insert(numbers, [gap] * 9, numbers[gap - 1]))
    assert sum(unsafe_commands(tape, FR3).values()) == 0


def test_a_first_command_that_another_overtook_is_not_unsafe():
    profile, numbers = ramp(9.9, 50), np.arange(1, 51)
    profile[0], numbers[0] = 0.0, 0  # nothing new in the first millisecond, two commands in the second
    assert sum(unsafe_commands(velocities(profile, numbers), FR3).values()) == 0


@pytest.mark.parametrize(
    ("profile", "exceeded"),
    [
        (ramp(11.0, 100), "acceleration"),
        (np.append(ramp(9.9, 50), np.full(20, np.nan)), "not finite"),
        (ramp(9.9, 300), "velocity"),
        (np.concatenate([ramp(9.9, 250), np.full(1_200, 2.4)]), "position"),
    ],
)
def test_what_exceeds_a_limit_counts_by_what_it_exceeds(profile, exceeded):
    assert unsafe_commands(velocities(profile), FR3)[exceeded] > 0


def test_speed_is_a_mean_that_a_buzz_does_not_reach():
    n = 200
    q = HOME + 4e-5 * (-1.0) ** np.arange(n)[:, None] * JOINT_1  # 0.08 rad/s from one millisecond to the next
    tape = Stretch(np.arange(n) / 1000, np.zeros(n, int), np.zeros(n, int), q, q, np.zeros((n, 7)))
    assert tape.speed()[5:-5].max() < 1e-9 and tape.standstill_s() == 0.0


def test_standstill_is_when_the_last_motion_is_over():
    n = 400
    q = HOME + np.minimum(np.arange(n), 200)[:, None] * 1e-3 * JOINT_1
    tape = Stretch(np.arange(n) / 1000, np.zeros(n, int), np.zeros(n, int), q, q, np.zeros((n, 7)))
    assert tape.standstill_s() == pytest.approx(0.2, abs=0.007)
