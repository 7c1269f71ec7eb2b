"""The GELLO leader against servos that speak Dynamixel protocol 2.0 on a pseudo-terminal."""

import os
import pty
import threading
import time
import tty
from collections.abc import Iterator

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.robots.teleop.gello import STALE_S, Gello, LeaderCalibration, calibrate
from robocoach.sim.robot_model import HOME_Q

HOME = np.append(HOME_Q, 0.08)
SIGNS = (1, -1, 1, 1, 1, -1, 1)
OFFSETS = np.array([3, 2, 1, 4, 2, 3, 4]) * np.pi / 2
OPEN_RAD, CLOSED_RAD = 3.4, 2.65
HEADER = b"\xff\xff\xfd\x00"
PING, READ, WRITE, SYNC_READ, STATUS = 0x01, 0x02, 0x03, 0x82, 0x55


def crc(data: bytes) -> bytes:
    """CRC-16 with polynomial 0x8005, as the e-Manual has it."""
    register = 0
    for byte in data:
        register ^= byte << 8
        for _ in range(8):
            register = ((register << 1) ^ 0x8005) & 0xFFFF if register & 0x8000 else register << 1
    return register.to_bytes(2, "little")


class Servos:
    """Eight servos on one line: answers pings, reads, writes and sync reads of their registers."""

    def __init__(self) -> None:
        self._line, self._device = pty.openpty()
        tty.setraw(self._device)
        self.port = os.ttyname(self._device)
        self.registers = {servo: bytearray(256) for servo in range(1, 9)}
        for registers in self.registers.values():
            registers[64] = 1  # somebody left the torque on
        self.silent: set[int] = set()
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, angles_rad: np.ndarray) -> None:
        for servo, angle in enumerate(angles_rad, start=1):
            ticks = round(float(angle) * 4096 / (2 * np.pi))
            self.registers[servo][132:136] = ticks.to_bytes(4, "little", signed=True)

    def hold(self, q: np.ndarray, trigger_rad: float = OPEN_RAD) -> None:
        """Holds the leader in an arm's pose."""
        self.put(np.append(OFFSETS + np.array(SIGNS) * q, trigger_rad))

    def _run(self) -> None:
        received = b""
        while True:
            try:
                received += os.read(self._line, 1024)
            except OSError:
                return
            while (start := received.find(HEADER)) >= 0 and len(received) >= start + 7:
                received = received[start:]
                size = 7 + int.from_bytes(received[5:7], "little")
                if len(received) < size:
                    break
                packet, received = received[:size], received[size:]
                assert packet[-2:] == crc(packet[:-2])
                self._answer(packet[4], packet[7], packet[8:-2])

    def _answer(self, servo: int, instruction: int, parameters: bytes) -> None:
        if instruction == SYNC_READ:
            address, length = (int.from_bytes(parameters[at : at + 2], "little") for at in (0, 2))
            for each in parameters[4:]:
                self._send(each, bytes(self.registers[each][address : address + length]))
        elif servo in self.registers and instruction == WRITE:
            address, data = int.from_bytes(parameters[:2], "little"), parameters[2:]
            self.registers[servo][address : address + len(data)] = data
            self._send(servo, b"")

    def _send(self, servo: int, data: bytes) -> None:
        if servo in self.silent:
            return
        body = HEADER + bytes([servo]) + (4 + len(data)).to_bytes(2, "little") + bytes([STATUS, 0]) + data
        os.write(self._line, body + crc(body))

    def close(self) -> None:
        os.close(self._line)
        os.close(self._device)


@pytest.fixture
def servos() -> Iterator[Servos]:
    made = Servos()
    made.hold(HOME[:7])
    yield made
    made.close()


@pytest.fixture
def leader(servos) -> Iterator[Gello]:
    calibration = LeaderCalibration(
        port=servos.port,
        signs=SIGNS,
        offsets_rad=tuple(OFFSETS),
        trigger_open_rad=OPEN_RAD,
        trigger_closed_rad=CLOSED_RAD,
    )
    teleop = Gello(calibration, tolerance_rad=0.25)
    teleop.connect()
    yield teleop
    teleop.close()


def soon(leader: Gello) -> np.ndarray:
    time.sleep(0.1)
    action = leader.read(HOME)
    assert action is not None
    return action


def test_connecting_lets_go_of_every_servo(servos, leader):
    assert all(registers[64] == 0 for registers in servos.registers.values())


def test_the_arm_is_asked_to_be_where_the_leader_is(servos, leader):
    assert leader.begin(HOME) is None
    pose = HOME[:7] + np.array([0.1, -0.05, 0.2, 0.1, -0.3, 0.15, 0.4])
    servos.hold(pose)
    np.testing.assert_allclose(soon(leader)[:7], pose, atol=2e-3)  # a servo has 4096 steps a turn


def test_the_trigger_is_the_width_of_the_hand(servos, leader):
    leader.begin(HOME)
    widths = []
    for trigger in (OPEN_RAD + 0.2, (OPEN_RAD + CLOSED_RAD) / 2, CLOSED_RAD):
        servos.hold(HOME[:7], trigger)
        widths.append(soon(leader)[7])
    np.testing.assert_allclose(widths, [0.08, 0.04, 0.0], atol=1e-3)


def test_a_leader_elsewhere_is_refused_with_the_joint(servos, leader):
    pose = HOME[:7].copy()
    pose[2] += 0.4
    servos.hold(pose)
    time.sleep(0.1)
    refused = leader.begin(HOME)
    assert refused is not None and "joint 3" in refused and "-0.40" in refused and "joint 2" not in refused


def test_a_leader_that_was_turned_around_once_is_still_in_place(servos, leader):
    servos.hold(HOME[:7] + np.array([0, 0, 0, 0, 0, 0, 2 * np.pi]))
    time.sleep(0.1)
    assert leader.begin(HOME) is None
    np.testing.assert_allclose(soon(leader)[:7], HOME[:7], atol=2e-3)


def test_a_leader_that_falls_silent_gives_no_action(servos, leader):
    leader.begin(HOME)
    servos.silent.add(4)
    time.sleep(STALE_S + 0.15)
    assert leader.read(HOME) is None
    assert "does not answer" in (leader.begin(HOME) or "")


def test_a_missing_servo_is_named(servos):
    servos.silent.add(5)
    calibration = LeaderCalibration(
        port=servos.port, offsets_rad=tuple(OFFSETS), trigger_open_rad=1.0, trigger_closed_rad=2.0
    )
    with pytest.raises(UserError, match="servo 5"):
        Gello(calibration).connect()


def test_a_missing_port_is_one_line():
    calibration = LeaderCalibration(
        port="/dev/nothing", offsets_rad=tuple(OFFSETS), trigger_open_rad=1.0, trigger_closed_rad=2.0
    )
    with pytest.raises(UserError, match="/dev/nothing"):
        Gello(calibration).connect()


def test_a_calibration_from_a_held_pose_is_exact_to_the_horns(tmp_path):
    held = HOME[:7] + np.random.default_rng(0).uniform(-0.15, 0.15, 7)  # nobody holds it exactly
    released = np.append(OFFSETS + np.array(SIGNS) * held, OPEN_RAD)
    squeezed = np.append(released[:7], CLOSED_RAD)
    calibrate("port", released, squeezed, HOME[:7], signs=SIGNS).save(tmp_path / "leader.json")
    calibration = LeaderCalibration.load(tmp_path / "leader.json")
    np.testing.assert_allclose(calibration.joints(released), held, atol=1e-9)


def test_a_wrong_sign_is_found_while_calibrating():
    released = np.append(OFFSETS + np.array(SIGNS) * HOME[:7], OPEN_RAD)
    with pytest.raises(UserError, match=r"joint [26]"):
        calibrate("port", released, released, HOME[:7], signs=(1, 1, 1, 1, 1, 1, 1))


@pytest.mark.parametrize(
    ("text", "said"), [("{}", "port"), ("nonsense", "JSON"), ('{"port": "p", "offsets_rad": [1]}', "offsets_rad")]
)
def test_a_broken_calibration_file_is_one_line(tmp_path, text, said):
    (tmp_path / "leader.json").write_text(text)
    with pytest.raises(UserError, match=said):
        LeaderCalibration.load(tmp_path / "leader.json")
