"""First contact with a Franka Control Interface: who answers at an address, before franky is let loose on it.

libfranka waits without a limit when another client holds the interface, and says "refused" for most other mishaps.
This module speaks only the protocol's connect request, gives up in time, and says in one line what to do. It knows
nothing of motions. Protocol: libfranka's `research_interface/robot/service_types.h`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from functools import cache
from random import SystemRandom

from robocoach.configs.errors import UserError

FCI_PORT = 1337
SERVER_VERSION = {"fr3": 10, "panda": 5}
"""FCI server version of each arm's newest system software (FR3 5.9 and later; Panda 4.2)."""
WHEELS = "franky's package index whl/by-robot-server-version/"
"""Where its README keeps the wheels, by FCI server version."""
_HEADER = "<III"
_SUCCESS, _INCOMPATIBLE = 0, 1


def loopback_hosts(tries: int = 20) -> Iterator[str]:
    """Random loopback addresses: the FCI port is fixed, so each server needs an address of its own."""
    random = SystemRandom()
    for _ in range(tries):
        yield f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}.{random.randrange(1, 255)}"


@cache
def client_server_version() -> int:
    """The FCI server version that the installed franky is built for, read from its own connect request on loopback.

    No wheel carries this number in its name. Raises UserError when it cannot be found out.
    """
    import franky

    def knock(host: str) -> None:
        # In a thread that ends: libfranka makes the thread that connects real-time.
        with contextlib.suppress(Exception):
            franky.Robot(host, realtime_config=franky.RealtimeConfig.Ignore)

    for host in loopback_hosts():
        try:
            server = socket.create_server((host, FCI_PORT))
        except OSError:
            continue
        with server:
            server.settimeout(5.0)
            thread = threading.Thread(target=knock, args=(host,), daemon=True)
            thread.start()
            try:
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(5.0)
                    request = _receive(connection, struct.calcsize(_HEADER) + 4)
                    command, number, _ = struct.unpack_from(_HEADER, request)
                    answer = struct.pack("<HH4x", _INCOMPATIBLE, 0)
                    size = struct.calcsize(_HEADER) + len(answer)
                    connection.sendall(struct.pack(_HEADER, command, number, size) + answer)
            except OSError:
                continue
        thread.join(timeout=5.0)
        return struct.unpack_from("<H", request, struct.calcsize(_HEADER))[0]
    raise UserError("the installed franky-control does not say which FCI server version it is built for; reinstall it")


def check_model(robot: str) -> None:
    """Refuses an arm that this installation's franky cannot talk to. Raises UserError."""
    if robot == "twin":
        return
    built_for = client_server_version()
    if (robot == "panda") != (built_for == SERVER_VERSION["panda"]):
        needed = SERVER_VERSION[robot]
        raise UserError(
            f"--robot {robot} needs the franky-control wheel for FCI server version {needed} "
            f"({'libfranka 0.9' if robot == 'panda' else 'libfranka 0.18 or later, FR3 with system 5.9 or later'}), "
            f"this one is built for version {built_for}: install it from {WHEELS}{needed}"
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
        request = struct.pack("<HH", client_server_version(), states.getsockname()[1])
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
        f"the FCI at {host} speaks server {found}, this franky-control speaks version {client_server_version()}: "
        "update the arm's system software (FR3: 5.9 or later), or install the wheel for the arm's version from "
        f"{WHEELS}{version if version is not None else ''}"
    )


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("closed by the other side")
        received += part
    return received
