"""The twin's FCI server: franky-sim's, with what an arm can suffer and a tape of what it is commanded each millisecond.

Imported in the twin's process only (it loads franky-sim). The faults answer over the Franka Control Interface as an
arm's controller does, so the client meets nothing it would not meet on hardware. What the arm does once a motion is
aborted (it holds where it is) is franky-sim's, and stands for the arm's own stop, which no client commands.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from franky_sim import FrankaRobotServer
from franky_sim.franka_gripper_protocol import GripperCommand, GripperCommandStatus
from franky_sim.franka_robot_protocol import (
    AutomaticErrorRecoveryCommand,
    AutomaticErrorRecoveryStatus,
    MoveCommand,
    MoveStatus,
    RobotCommand,
    RobotMode,
)
from franky_sim.franka_server import BaseCommand, Command, ConnectCommand, ConnectStatus

from robocoach.robots.twin_tape import MILLISECOND_S, Mode, Tape

ERRORS = {"joint_reflex": 6, "joint_velocity_violation": 3, "communication_constraints_violation": 25}
"""Position of some errors in libfranka's `Errors` (`errors.h`)."""
ERROR_COUNT = 41
SERVER_VERSION = 10
"""Of the FR3 that franky-sim simulates."""
LOST_STEPS = 250
"""A motion without a new command for this many milliseconds is aborted. An arm gives up after 20; the twin's client
runs without a real-time kernel."""


class TwinArm(FrankaRobotServer):
    """One simulated arm behind FCI."""

    def __init__(self, robot: Any, hosts: Iterable[str], tape: Tape) -> None:
        super().__init__(robot, hosts)
        self._tape = tape
        self._row_mode, self._commanded = Mode.IDLE, np.zeros(7)
        self._message_id = self._noted_id = self._steps_without_command = 0
        self._velocity, self._acceleration = np.zeros(7), np.zeros(7)
        self._robot_mode: RobotMode | None = None
        self._error = ""
        self._closed_until_s = 0.0
        self._silent = False
        # franky-sim leaves no other door to the answers and to the version.
        answers = vars(self)["_FrankaServer__command_class_map"]
        answers[Command.kConnect] = _Connect
        answers[RobotCommand.kMove] = _Move
        answers[RobotCommand.kAutomaticErrorRecovery] = _Recover
        for name, mode in (
            ("joint_position_control", Mode.POSITION),
            ("joint_velocity_control", Mode.VELOCITY),
            ("torque_control", Mode.TORQUE),
        ):
            setattr(robot, name, partial(self._note, mode, getattr(robot, name)))

    def suffer(self, fault: str, **detail: Any) -> float:
        """Makes a fault happen now; returns the monotonic time at which it took effect. Raises KeyError."""
        {
            "cut": self._cut,
            "silent": self._fall_silent,
            "reflex": self._reflex,
            "user stop": partial(self._abort, RobotMode.kUserStopped, MoveStatus.kEmergencyAborted),
            "locked": partial(self._abort, RobotMode.kOther, MoveStatus.kAborted),
            "hand fails": self._fail_hand,
            "hand cut": lambda: self.gripper_server.reset_state(),
            "version": self._speak_version,
            "heal": self._heal,
        }[fault](**detail)
        return time.monotonic()

    def write_tape(self, q: np.ndarray, dq: np.ndarray) -> None:
        """Puts this millisecond on the tape; `q`, `dq` (7,) are measured."""
        self._tape.write(self._row_mode, self._message_id, self._commanded, q, dq)

    # --- faults ---

    def _cut(self, seconds: float = 0.0) -> None:
        """Closes every connection; for `seconds` no new one is served, as when another client is."""
        self.reset_state()
        self.gripper_server.reset_state()
        self._closed_until_s = time.monotonic() + seconds

    def _fall_silent(self) -> None:
        """No state is sent any more, the connections stay."""
        self._silent = True

    def _reflex(self, error: str = "joint_reflex") -> None:
        self._abort(RobotMode.kReflex, MoveStatus.kReflexAborted, error)

    def _abort(self, mode: RobotMode, status: MoveStatus, error: str = "") -> None:
        motion = self.current_motion_id
        self.stop_motion(send_preemption_signal=False)
        self.reset_current_motion_id()
        self._robot_mode, self._error = mode, error
        if motion:
            BaseCommand.send_response(self._tcp_socket, RobotCommand.kMove, motion, status)

    def _fail_hand(self) -> None:
        """Every hand command is answered as failed."""
        hand = self.gripper_server
        for name, command in (("start_move", GripperCommand.kMove), ("start_grasp", GripperCommand.kGrasp)):
            setattr(hand, name, partial(_refuse_hand, command))

    def _speak_version(self, version: int) -> None:
        vars(self)["_FrankaServer__library_version"] = version

    def _heal(self) -> None:
        """Ends every fault that lasts; what a fault did to a running motion or connection stays done."""
        self._robot_mode, self._error, self._closed_until_s, self._silent = None, "", 0.0, False
        self._speak_version(SERVER_VERSION)
        for name in ("start_move", "start_grasp"):
            vars(self.gripper_server).pop(name, None)

    # --- what the client meets ---

    @property
    def refusal(self) -> MoveStatus | None:
        """Why a motion cannot start now."""
        return {
            None: None,
            RobotMode.kUserStopped: MoveStatus.kCommandRejectedDueToActivatedSafetyFunctions,
        }.get(self._robot_mode, MoveStatus.kCommandNotPossibleRejected)

    def recover(self) -> AutomaticErrorRecoveryStatus:
        """The answer to an automatic error recovery; only a reflex is cured by it."""
        if self._robot_mode is RobotMode.kUserStopped:
            return AutomaticErrorRecoveryStatus.kCommandRejectedDueToActivatedSafetyFunctions
        if self._robot_mode is RobotMode.kOther:
            return AutomaticErrorRecoveryStatus.kCommandNotPossibleRejected
        self._robot_mode, self._error = None, ""
        return AutomaticErrorRecoveryStatus.kSuccess

    @property
    def robot_state(self) -> Any:
        """franky-sim's state, with the mode and the errors of a fault.

        Its desired velocity and acceleration are smoothed over 20 ms, and franky starts each new motion from them; an
        arm reports those of the commands, and so does this.
        """
        state = super().robot_state
        if self._row_mode in (Mode.POSITION, Mode.VELOCITY):
            state = state.replace(dq_d=tuple(self._velocity), ddq_d=tuple(self._acceleration))
        if self._robot_mode is None:
            return state
        errors = [False] * ERROR_COUNT
        if self._error:
            errors[ERRORS[self._error]] = True
        return state.replace(robot_mode=self._robot_mode, errors=tuple(errors), reflex_reason=tuple(errors))

    def start_motion(self, controller_mode: Any, motion_generator_mode: Any, motion_id: int) -> None:
        """Begins a motion; the client has to send commands from now on."""
        super().start_motion(controller_mode, motion_generator_mode, motion_id)
        self._steps_without_command = 0

    def process_commands(self) -> None:
        """Serves the client, unless its connection is cut."""
        if time.monotonic() >= self._closed_until_s:
            super().process_commands()
        else:
            self._post_process_commands()

    def send_state(self) -> None:
        """Sends the state to the client, unless the arm has fallen silent."""
        if not self._silent:
            super().send_state()

    def _handle_udp_command(self, command_data: bytes) -> None:
        self._message_id = int.from_bytes(command_data[:8], "little")
        self._steps_without_command = 0
        super()._handle_udp_command(command_data)

    def _post_process_commands(self) -> None:
        self._steps_without_command += 1
        if self.current_motion_id and self._steps_without_command > LOST_STEPS:
            self._reflex("communication_constraints_violation")
        super()._post_process_commands()

    def _note(self, mode: Mode, control: Any, command: np.ndarray, has_new_command: bool | None = None) -> None:
        """Keeps what the server asks of the robot. Only the server says whether a command is new; the rest are the
        robot's own inner calls, and its hold while nobody commands."""
        if has_new_command is None and mode is not Mode.POSITION:
            control(command)
            return
        now = mode if has_new_command is not None else Mode.IDLE
        if now is not self._row_mode:  # a motion begins at rest
            self._velocity, self._acceleration = np.zeros(7), np.zeros(7)
        elif has_new_command and now is not Mode.TORQUE:
            self._differentiate(now, command)
        self._row_mode, self._commanded, self._noted_id = now, command, self._message_id
        control(command, **({} if has_new_command is None else {"has_new_command": has_new_command}))

    def _differentiate(self, mode: Mode, command: np.ndarray) -> None:
        """Velocity and acceleration of the commands, by the client's clock."""
        elapsed_s = max(1, self._message_id - self._noted_id) * MILLISECOND_S
        velocity = command if mode is Mode.VELOCITY else (command - self._commanded) / elapsed_s
        self._velocity, self._acceleration = velocity, (velocity - self._velocity) / elapsed_s


class _Connect(ConnectCommand):
    """Refuses a client of another version, as an arm does and franky-sim does not."""

    def handle(self, server: Any, command_type_struct: str = "I") -> None:
        if self.version == server.library_version:
            super().handle(server, command_type_struct)
            return
        answer = struct.pack("<HH4x", ConnectStatus.kIncompatibleLibraryVersion, server.library_version)
        header = struct.pack("<III", self.command_type, self.command_id, 12 + len(answer))
        self.client_socket.sendall(header + answer)


class _Move(MoveCommand):
    """Refuses to move in a mode that does not allow it."""

    def handle(self, server: Any) -> None:
        if server.refusal is not None:
            self.reply(server.refusal)
        else:
            super().handle(server)


class _Recover(AutomaticErrorRecoveryCommand):
    """Recovers from what can be recovered from."""

    def handle(self, server: Any) -> None:
        self.reply(server.recover())


def _refuse_hand(command: GripperCommand, *arguments: Any) -> None:
    command_id, client = arguments[-2:]
    BaseCommand.send_response(
        client, command, command_id, GripperCommandStatus.kFail, command_type_struct="H", status_type_struct="H"
    )
