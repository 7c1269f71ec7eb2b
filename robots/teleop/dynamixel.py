"""Dynamixel servos of a leader arm as a source of joint angles: protocol 2.0 over a serial adapter, torque off.

Only what a leader needs: switch the torque off, read all positions in one sync read. `dynamixel_sdk` is imported
when a bus is opened. Register addresses: ROBOTIS e-Manual, X series control table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError

PROTOCOL = 2.0
TICKS_PER_TURN = 4096
TORQUE_ENABLE, TORQUE_BYTES = 64, 1
PRESENT_POSITION, POSITION_BYTES = 132, 4


class ServoSilent(RuntimeError):
    """The servos did not answer a read."""


class DynamixelBus:
    """Some servos on one port."""

    def __init__(self, port: str, baud: int, ids: Sequence[int]) -> None:
        """Opens the port and switches every servo's torque off. Raises UserError when one does not answer."""
        try:
            import dynamixel_sdk
        except ImportError as error:
            raise UserError("a GELLO leader needs the package dynamixel-sdk; install it") from error
        self._sdk: Any = dynamixel_sdk
        self._ids = tuple(ids)
        self._port = dynamixel_sdk.PortHandler(port)
        self._packets = dynamixel_sdk.PacketHandler(PROTOCOL)
        try:
            self._port.openPort()
            self._port.setBaudRate(baud)
        except OSError as error:
            raise UserError(
                f"cannot open the leader's port {port} ({error.strerror or error}): plug the adapter in, and add "
                "yourself to the group dialout"
            ) from error
        self._reader = dynamixel_sdk.GroupSyncRead(self._port, self._packets, PRESENT_POSITION, POSITION_BYTES)
        for servo in self._ids:
            self._reader.addParam(servo)
            result, fault = self._packets.write1ByteTxRx(self._port, servo, TORQUE_ENABLE, 0)
            if result != dynamixel_sdk.COMM_SUCCESS or fault:
                self.close()
                raise UserError(
                    f"servo {servo} of the leader on {port} does not answer at {baud} baud: check its cable, its "
                    "power and its id"
                )

    def read(self) -> np.ndarray:
        """Angles (n,) [rad] in the order of the ids, 0 at the servos' own zero. Raises ServoSilent."""
        result = self._reader.txRxPacket()
        if result != self._sdk.COMM_SUCCESS:
            raise ServoSilent(self._packets.getTxRxResult(result))
        ticks = [self._reader.getData(servo, PRESENT_POSITION, POSITION_BYTES) for servo in self._ids]
        signed = [tick - 2**32 if tick >= 2**31 else tick for tick in ticks]
        return np.array(signed) * (2 * math.pi / TICKS_PER_TURN)

    def close(self) -> None:
        """Frees the port."""
        self._port.closePort()
