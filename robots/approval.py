"""What is remembered of an arm: that it was commissioned, by whom, and what each check printed.

An arm on the network moves only after `pipeline commission` has passed on it once. The record lies in the user's
configuration folder under the serial number on the arm's base (libfranka cannot read it), and holds for the address,
the model and the server version it was made with.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically
from robocoach.configs.models import DeployConfig


class Check(BaseModel):
    """One line of a commissioning."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    passed: bool
    seen: str
    """What was measured."""
    mend: str = ""


class Approval(BaseModel):
    """A commissioning that has passed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    serial: str
    robot: str
    host: str
    server_version: int
    client: str
    operator: str
    passed_at: str
    """Local time, ISO 8601."""
    checks: tuple[Check, ...]


def folder() -> Path:
    """Where approvals lie: `$XDG_CONFIG_HOME/robocoach/arms`, by default under ~/.config."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "robocoach" / "arms"


def path(serial: str) -> Path:
    """The approval's file. Raises UserError for a serial number that cannot be one."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", serial):
        raise UserError(f"--serial {serial!r}: type the serial number on the arm's base, letters, digits, . _ - only")
    return folder() / f"{serial}.json"


def save(approval: Approval) -> Path:
    """Writes it; returns the file."""
    file = path(approval.serial)
    write_atomically(file, approval.model_dump_json(indent=1) + "\n")
    return file


def require(config: DeployConfig) -> Approval:
    """The approval of the arm a configuration names. Raises UserError, with what to do, when it may not move yet."""
    again = f"pipeline commission --robot {config.robot} --host {config.host or 'IP'} --serial SERIAL"
    if not config.serial:
        raise UserError(
            f"--robot {config.robot} moves only an arm that was commissioned: name it with --serial (first run {again}"
            "), or take --dry-run"
        )
    file = path(config.serial)
    if not file.is_file():
        raise UserError(f"arm {config.serial} was never commissioned here: run {again}, or take --dry-run")
    try:
        found = Approval.model_validate_json(file.read_bytes())
    except ValidationError:
        raise UserError(f"{file} cannot be read; run {again}") from None
    if (found.robot, found.host) != (config.robot, config.host):
        raise UserError(
            f"arm {config.serial} was commissioned as {found.robot} at {found.host}, not as {config.robot} at "
            f"{config.host}: check both, or run {again}"
        )
    return found
