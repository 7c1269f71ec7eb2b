"""Keyboard and space mouse: what the hand is asked to do follows from keys and from the device's own reports."""

import time

import numpy as np
import pytest
from pyspacemouse import AxisConvention, apply_axis_convention, get_device_specs
from pyspacemouse.device import SpaceMouseDevice

from robocoach.configs.errors import UserError
from robocoach.robots.teleop.jog import FLOOR_M, LEASH_M, Jog
from robocoach.robots.teleop.keyboard import SHIFTS, STEP_M, STEPS_WAITING, TURNS, Keyboard
from robocoach.robots.teleop.operator import TICK_S
from robocoach.robots.teleop.spacemouse import SpaceMouse
from robocoach.sim.kinematics import Arm, hand_yaw
from robocoach.sim.robot_model import HOME_Q

HOME = np.append(HOME_Q, 0.08)


@pytest.fixture(scope="module")
def kinematics() -> Arm:
    return Arm()


@pytest.fixture
def keyboard() -> Keyboard:
    teleop = Keyboard(speed_m_s=0.1)
    teleop.connect()
    teleop.begin(HOME)
    return teleop


def follow(teleop, ticks: int, state: np.ndarray = HOME) -> np.ndarray:
    """An arm that is at its target a tick later."""
    for _ in range(ticks):
        state = teleop.read(state)
    return state


@pytest.mark.parametrize("key", SHIFTS)
def test_a_key_moves_the_hand_its_way_and_turns_nothing(keyboard, kinematics, key):
    before, upright = kinematics.tcp_pose(HOME[:7])
    assert keyboard.key(key)
    after, turned = kinematics.tcp_pose(follow(keyboard, 8)[:7])
    np.testing.assert_allclose(after - before, STEP_M * np.array(SHIFTS[key]), atol=5e-4)
    np.testing.assert_allclose(turned, upright, atol=2e-3)


def test_a_turning_key_turns_about_the_vertical_and_stays_in_place(keyboard, kinematics):
    before, upright = kinematics.tcp_pose(HOME[:7])
    for _ in range(3):
        keyboard.key("q")
    after, turned = kinematics.tcp_pose(follow(keyboard, 12)[:7])
    assert hand_yaw(turned) - hand_yaw(upright) == pytest.approx(0.15, abs=0.01)
    np.testing.assert_allclose(after, before, atol=1e-3)


def test_the_hand_never_moves_faster_than_it_may(keyboard, kinematics):
    state, places = HOME, []
    for _ in range(20):
        for _ in range(5):
            keyboard.key("a")
        state = keyboard.read(state)
        places.append(kinematics.tcp_pose(state[:7])[0])
    assert np.linalg.norm(np.diff(places, axis=0), axis=1).max() < 1.1 * 0.1 * TICK_S


def test_the_hand_stops_soon_after_the_key_is_let_go(keyboard, kinematics):
    for _ in range(50):
        keyboard.key("w")
    before = kinematics.tcp_pose(HOME[:7])[0]
    after = kinematics.tcp_pose(follow(keyboard, 40)[:7])[0]
    assert after[0] - before[0] < (STEPS_WAITING + 0.5) * STEP_M


def test_the_opposite_key_turns_back_at_once(keyboard, kinematics):
    for _ in range(3):
        keyboard.key("w")
    keyboard.key("s")
    after = kinematics.tcp_pose(follow(keyboard, 10)[:7])[0]
    assert after[0] == pytest.approx(kinematics.tcp_pose(HOME[:7])[0][0] - STEP_M, abs=1e-3)


def test_the_grip_key_closes_and_opens(keyboard):
    keyboard.key("g")
    assert keyboard.read(HOME)[7] == 0.0
    keyboard.key("g")
    assert keyboard.read(HOME)[7] == pytest.approx(0.08)


def test_other_keys_are_left_to_the_recording(keyboard):
    assert not any(keyboard.key(key) for key in ("enter", "space", "backspace", "h", "x", "escape", "tab"))
    assert keyboard.key(next(iter(TURNS)))


def test_the_target_does_not_run_away_from_an_arm_that_does_not_follow(kinematics):
    jog = Jog()
    jog.begin(HOME)
    for _ in range(100):
        action = jog.move(HOME, np.array([0.01, 0, 0]), np.zeros(3))
    here, asked = kinematics.tcp_pose(HOME[:7])[0], kinematics.tcp_pose(action[:7])[0]
    assert np.linalg.norm(asked - here) < LEASH_M + 1e-3


def test_the_hand_is_never_asked_below_the_floor(kinematics):
    jog, state = Jog(), HOME
    jog.begin(state)
    for _ in range(60):
        state = jog.move(state, np.array([0, 0, -0.01]), np.zeros(3))
    assert kinematics.tcp_pose(state[:7])[0][2] == pytest.approx(FLOOR_M, abs=2e-3)


class Reports:
    """A HID device that hands out reports in the format of a SpaceMouse Wireless."""

    product_string = manufacturer_string = serial_number = ""
    release_number = 0

    def __init__(self) -> None:
        self.queue: list[bytes] = []

    def open(self) -> None: ...

    def close(self) -> None: ...

    def read(self, size: int) -> bytes:
        if self.queue and self.queue[0] == b"gone":
            raise OSError("device disconnected")
        return self.queue.pop(0) if self.queue else b""


def report(x: int = 0, y: int = 0, z: int = 0, rx: int = 0, ry: int = 0, rz: int = 0) -> bytes:
    return bytes([1]) + b"".join(value.to_bytes(2, "little", signed=True) for value in (x, y, z, rx, ry, rz))


@pytest.fixture
def mouse():
    specs = get_device_specs()
    info = apply_axis_convention(specs["SpaceMouseWirelessNew"], AxisConvention.ROS)
    reports = Reports()
    teleop = SpaceMouse(speed_m_s=0.1)
    teleop.watch(SpaceMouseDevice(info=info, device=reports))
    teleop.begin(HOME)
    yield teleop, reports
    teleop.close()


def test_pushing_the_cap_forward_moves_the_hand_away_from_the_base(mouse, kinematics):
    teleop, reports = mouse
    state, start = HOME, kinematics.tcp_pose(HOME[:7])[0]
    for _ in range(5):
        reports.queue.append(report(y=-350))  # HID: y towards the user
        time.sleep(0.03)
        state = teleop.read(state)
    moved = kinematics.tcp_pose(state[:7])[0] - start
    assert moved[0] == pytest.approx(5 * 0.1 * TICK_S, rel=0.1) and np.abs(moved[1:]).max() < 2e-3


def test_a_hand_resting_on_the_cap_moves_nothing(mouse):
    teleop, reports = mouse
    reports.queue.append(report(x=20, y=-20, z=15))
    time.sleep(0.03)
    np.testing.assert_allclose(teleop.read(HOME)[:7], HOME[:7], atol=1e-3)


def test_the_buttons_close_and_open_the_hand(mouse):
    teleop, reports = mouse
    widths = []
    for pressed in (0b01, 0b00, 0b10):
        reports.queue.append(bytes([3, pressed, 0]))
        time.sleep(0.03)
        widths.append(float(teleop.read(HOME)[7]))
    assert widths == pytest.approx([0.0, 0.0, 0.08])


def test_a_device_that_is_gone_gives_no_action(mouse):
    teleop, reports = mouse
    reports.queue.append(b"gone")
    time.sleep(0.05)
    assert teleop.read(HOME) is None
    assert "gone" in (teleop.begin(HOME) or "")


def test_without_a_space_mouse_one_line_says_what_to_do():
    with pytest.raises(UserError, match="plug it in"):
        SpaceMouse().connect()
