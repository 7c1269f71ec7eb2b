"""A GELLO leader (Wu et al., 2023): a small copy of the arm, of Dynamixel servos, whose joints the arm follows.

What its servos read is turned into the arm's joints by a calibration file: a sign and an offset a joint, and the two
ends of the trigger. The leader must be near the arm's own pose before the arm follows it; each joint may be off by a
whole turn, which is taken out at the start of an episode.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import GripperRule
from robocoach.robots.teleop.dynamixel import DynamixelBus, ServoSilent

STALE_S = 0.2
"""A leader that has said nothing for so long gives no action, and the envelope stops the arm."""
SIGNS: dict[str, tuple[Literal[-1, 1], ...]] = {"fr3": (1, 1, 1, 1, 1, -1, 1), "panda": (1, -1, 1, 1, 1, -1, 1)}
"""Which way the servos of GELLO's own designs turn (README of github.com/wuphilipp/gello_software)."""
QUARTER_RAD = np.pi / 2
"""Servo horns sit in steps of a quarter turn, so offsets are multiples of it."""
CALIBRATION_SLACK_RAD = 0.3
"""How far from the arm's pose the leader may be held while it is calibrated."""


class LeaderCalibration(BaseModel):
    """How one leader's servos map to the arm's joints: the calibration file, JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    port: str
    """Serial port, best by its stable name below /dev/serial/by-id."""
    baud: int = 57_600
    ids: tuple[int, ...] = Field((1, 2, 3, 4, 5, 6, 7, 8), min_length=8, max_length=8)
    """Servos of joints 1…7 and of the trigger."""
    signs: tuple[Literal[-1, 1], ...] = Field(SIGNS["fr3"], min_length=7, max_length=7)
    """1 or −1: which way a servo turns."""
    offsets_rad: tuple[float, ...] = Field(min_length=7, max_length=7)
    """Servo angle at joint angle zero."""
    trigger_open_rad: float
    trigger_closed_rad: float

    def joints(self, servos_rad: np.ndarray) -> np.ndarray:
        """Joints (7,) [rad] from servo angles (8,)."""
        return np.array(self.signs) * (np.asarray(servos_rad)[:7] - np.array(self.offsets_rad))

    def width(self, servos_rad: np.ndarray) -> float:
        """Commanded width [m] from servo angles (8,): the trigger's way between its ends."""
        way = (servos_rad[7] - self.trigger_open_rad) / (self.trigger_closed_rad - self.trigger_open_rad)
        return float(GripperRule().open_width_m * (1.0 - np.clip(way, 0.0, 1.0)))

    @classmethod
    def load(cls, path: Path) -> LeaderCalibration:
        """Reads a calibration file. Raises UserError."""
        try:
            calibration = cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise UserError(
                f"no leader calibration at {path}; make one with `pipeline record --teleop gello --calibrate-leader`"
            ) from None
        except (OSError, ValidationError) as error:
            reason = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
            where = ".".join(str(part) for part in reason["loc"])
            raise UserError(f"{path} is not a leader calibration ({where} {reason['msg']}); make it again") from error
        if abs(calibration.trigger_closed_rad - calibration.trigger_open_rad) < 0.05:
            raise UserError(f"{path}: the trigger's two ends are the same; calibrate the leader again")
        return calibration

    def save(self, path: Path) -> None:
        """Writes the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=1) + "\n")


def calibrate(
    port: str,
    released_rad: np.ndarray,
    squeezed_rad: np.ndarray,
    arm_q: np.ndarray,
    *,
    signs: Sequence[Literal[-1, 1]] = SIGNS["fr3"],
    baud: int = 57_600,
) -> LeaderCalibration:
    """A calibration from a leader held in the arm's pose `arm_q` (7,) [rad].

    `released_rad` and `squeezed_rad` are servo angles (8,) with the trigger released and squeezed. Raises UserError
    that names the joint when the leader was not in that pose, by quarter turns of its servo horns.
    """
    raw = np.asarray(released_rad, dtype=float)[:7] - np.array(signs) * np.asarray(arm_q, dtype=float)
    offsets = QUARTER_RAD * np.round(raw / QUARTER_RAD)
    away = np.abs(raw - offsets)
    if away.max() > CALIBRATION_SLACK_RAD:
        joint = int(away.argmax())
        raise UserError(
            f"joint {joint + 1} of the leader is {away[joint]:.2f} rad from the arm's pose: hold the leader as the arm "
            "stands, check the joint's sign, and calibrate again"
        )
    return LeaderCalibration(
        port=port,
        baud=baud,
        signs=tuple(signs),
        offsets_rad=tuple(float(offset) for offset in offsets),
        trigger_open_rad=float(released_rad[7]),
        trigger_closed_rad=float(squeezed_rad[7]),
    )


class Gello:
    """The arm follows the leader's joints; the trigger closes the hand."""

    moves_arm = True
    finished = False
    controls = "move the leader, the arm follows  trigger: hand"

    def __init__(self, calibration: LeaderCalibration, tolerance_rad: float = 0.25) -> None:
        """`tolerance_rad` is how far leader and arm may differ in a joint when an episode begins."""
        self._calibration, self._tolerance_rad = calibration, tolerance_rad
        self._bus: DynamixelBus | None = None
        self._turns_rad = np.zeros(7)
        self._newest: tuple[np.ndarray, float] | None = None
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def connect(self) -> None:
        """Opens the servos' port and reads them from here on. Raises UserError."""
        self._bus = DynamixelBus(self._calibration.port, self._calibration.baud, self._calibration.ids)
        self._thread = threading.Thread(target=self._run, name="gello", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 1.0
        while self._newest is None and time.monotonic() < deadline:
            time.sleep(0.01)

    def begin(self, state: np.ndarray) -> str | None:
        """Refuses, with the joints by name, while the leader is not where the arm is."""
        servos = self._servos()
        if servos is None:
            return "the leader does not answer: check its cable and its power"
        leader = self._calibration.joints(servos)
        self._turns_rad = 2 * np.pi * np.round((state[:7] - leader) / (2 * np.pi))
        away = leader + self._turns_rad - state[:7]
        beyond = np.flatnonzero(np.abs(away) > self._tolerance_rad)
        if not beyond.size:
            return None
        listed = ", ".join(f"joint {joint + 1} by {-away[joint]:+.2f} rad" for joint in beyond)
        return f"move the leader to the arm's pose: {listed} ({self._tolerance_rad} rad may be left)"

    def read(self, state: np.ndarray) -> np.ndarray | None:
        """The leader's joints and width."""
        servos = self._servos()
        if servos is None:
            return None
        return np.append(self._calibration.joints(servos) + self._turns_rad, self._calibration.width(servos))

    def key(self, key: str) -> bool:
        """Uses no key."""
        return False

    def close(self) -> None:
        """Ends the thread and frees the port."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def _servos(self) -> np.ndarray | None:
        newest = self._newest
        return newest[0] if newest is not None and time.monotonic() - newest[1] < STALE_S else None

    def _run(self) -> None:
        assert self._bus is not None
        while not self._done.is_set():
            try:
                self._newest = self._bus.read(), time.monotonic()
            except ServoSilent:
                self._done.wait(0.01)
            except OSError:
                return  # the adapter was pulled: the reading grows old, which stops the arm
