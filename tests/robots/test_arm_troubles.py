"""What an arm can suffer, met by the real franky client: each in one line, recovery bounded, the session goes on."""

import time

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.robots.franka import ArmFault, FrankaArm

TICK_S = 0.1
JOINT_1 = np.eye(7)[0]


@pytest.fixture
def mended(twin):
    """The twin, healed whatever the test did to it."""
    yield twin
    twin.inject("heal")


def drive(arm: FrankaArm, ticks: int, width: float = 0.08) -> None:
    """Waves joint 1 a little."""
    begin, start = time.monotonic(), arm.state().values[:7]
    for tick in range(ticks):
        time.sleep(max(0.0, begin + tick * TICK_S - time.monotonic()))
        arm.state()
        arm.command(np.append(start + 0.02 * (tick % 4) * JOINT_1, width), begin + tick * TICK_S)
    time.sleep(TICK_S)


def one_line(caught: pytest.ExceptionInfo) -> str:
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    return text


@pytest.mark.parametrize(
    ("trouble", "detail", "words"),
    [
        ("user stop", {}, "release it"),
        ("locked", {}, "unlock its joints"),
        ("version", {"version": 5}, "speaks server version 5"),
        ("cut", {"seconds": 30.0}, "busy"),
    ],
)
def test_what_is_in_the_way_of_a_connection_is_said_in_one_line(mended, trouble, detail, words):
    mended.inject(trouble, **detail)
    with pytest.raises(UserError) as caught:
        FrankaArm(mended.host, realtime=False)
    assert words in one_line(caught)


def test_a_stopped_arm_can_still_be_watched(mended):
    mended.inject("user stop")
    with FrankaArm(mended.host, realtime=False, watch=True) as arm:
        assert np.isfinite(arm.state().values).all()


def test_a_reflex_is_named_at_the_next_tick_and_cured_by_recovery(arm, mended):
    drive(arm, 2)
    mended.inject("reflex", error="joint_velocity_violation")
    with pytest.raises(ArmFault) as caught:
        drive(arm, 3)
    assert "joint_velocity_violation" in one_line(caught)
    arm.stop()
    arm.recover()
    drive(arm, 3)


def test_recovery_from_a_user_stop_is_bounded_and_says_what_to_do(arm, mended):
    drive(arm, 2)
    mended.inject("user stop")
    with pytest.raises(ArmFault):
        drive(arm, 3)
    begin = time.monotonic()
    with pytest.raises(ArmFault) as caught:
        arm.recover(tries=2)
    assert "release it (tried 2 times)" in one_line(caught) and time.monotonic() - begin < 3
    mended.inject("heal")  # the operator releases it
    arm.recover()
    drive(arm, 2)


@pytest.mark.parametrize("trouble", ["cut", "silent"])
def test_a_lost_connection_is_noticed_and_made_anew(arm, mended, trouble):
    drive(arm, 2)
    struck = mended.inject(trouble)
    with pytest.raises(ArmFault) as caught:
        drive(arm, 6)
    assert time.monotonic() - struck < 0.35
    assert "connection" in one_line(caught)
    arm.stop()
    mended.inject("heal")
    arm.recover()
    arm.open_hand()
    drive(arm, 3)


@pytest.mark.parametrize("trouble", ["hand fails", "hand cut"])
def test_a_hand_that_fails_is_told_once_and_works_again_after_recovery(arm, mended, trouble):
    mended.inject(trouble)
    with pytest.raises(ArmFault) as caught:
        drive(arm, 4, width=0.0)
    assert "hand" in one_line(caught)
    arm.stop()
    mended.inject("heal")
    arm.recover()
    arm.open_hand()
    drive(arm, 2)
    assert arm.state().values[7] > 0.07
    drive(arm, 2, width=0.0)
    assert arm.gripper.settle(3.0) and mended.state().gripper_width < 0.005


def test_home_is_never_outside_the_limits(arm):
    with pytest.raises(ValueError, match="inside the limits"):
        arm.go_to(np.full(7, 3.2))


def test_the_impedance_mode_follows_and_stops(mended):
    with FrankaArm(mended.host, realtime=False, mode="impedance") as arm:
        arm.recover()
        drive(arm, 8)
        arm.stop()
        first = mended.state().q
        time.sleep(0.1)
        np.testing.assert_allclose(mended.state().q, first, atol=3e-3)


def test_another_control_mode_is_one_line(mended):
    with pytest.raises(UserError) as caught:
        FrankaArm(mended.host, realtime=False, mode="torque")
    assert "velocity, impedance" in one_line(caught)


def test_a_panda_gets_its_own_limits(mended):
    with FrankaArm(mended.host, realtime=False, model="panda") as arm:
        assert arm.limits.name == "panda"
        assert arm._robot.joint_velocity_limit.get()[0] == pytest.approx(2.175)
