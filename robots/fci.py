"""First contact with a Franka Control Interface: who answers at an address, before franky is let loose on it.

libfranka waits without a limit when another client holds the interface, and says "refused" for most other mishaps.
This module speaks only the protocol's connect request, gives up in time, and says in one line what to do. It knows
nothing of motions. Protocol: libfranka's `research_interface/robot/service_types.h`.
"""

from __future__ import annotations

import socket
import struct

from robocoach.configs.errors import UserError

FCI_PORT = 1337
SERVER_VERSION = {"fr3": 10, "panda": 5}
"""FCI server version that each arm's system software speaks (FR3 system 5.9 and later; Panda system 4.2)."""
_HEADER = "<III"
_SUCCESS = 0


def check_model(robot: str) -> None:
    """Refuses an arm that this installation's franky cannot talk to."""
    if robot == "panda":
        raise UserError(
            "--robot panda needs a franky-control wheel built for FCI server version 5 (libfranka 0.9); this one is "
            "built for version 10 (libfranka 0.21, FR3 with system 5.9 or later): see franky's FAQ 'server version "
            "mismatch' for the wheel, or use --robot fr3 or twin"
        )


def probe(host: str, timeout_s: float = 3.0) -> int:
    """The server version that answers at `host`; raises UserError when nobody does, or another client is served."""
    try:
        connection = socket.create_connection((host, FCI_PORT), timeout=timeout_s)
    except ConnectionRefusedError:
        raise UserError(
            f"{host} refuses FCI connections on port {FCI_PORT}: switch on FCI in Franka Desk, or check --host"
        ) from None
    except OSError as error:
        raise UserError(
            f"{host} does not answer on FCI port {FCI_PORT} ({error or 'timed out'}): check --host, cable and network"
        ) from None
    with connection, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as states:
        states.bind(("", 0))
        connection.settimeout(timeout_s)
        request = struct.pack("<HH", SERVER_VERSION["fr3"], states.getsockname()[1])
        size = struct.calcsize(_HEADER) + len(request)
        try:
            connection.sendall(struct.pack(_HEADER, 0, 1, size) + request)
            answer = _receive(connection, struct.calcsize(_HEADER) + 4)
        except OSError:
            raise UserError(
                f"the FCI at {host} is busy: it accepts, but serves another client; end that program and try again"
            ) from None
    status, version = struct.unpack_from("<HH", answer, struct.calcsize(_HEADER))
    if status != _SUCCESS:
        raise UserError(wrong_version(host, version))
    return version


def wrong_version(host: str, version: int | None) -> str:
    """One line for a server of another version."""
    found = f"version {version}" if version is not None else "another version"
    return (
        f"the FCI at {host} speaks server {found}, this franky-control speaks version {SERVER_VERSION['fr3']}: update "
        "the arm's system software (FR3: 5.9 or later), or install the wheel for its version (franky's FAQ, 'server "
        "version mismatch')"
    )


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("closed by the other side")
        received += part
    return received
