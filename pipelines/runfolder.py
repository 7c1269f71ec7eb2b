"""The folder of a run: who may write it, which configuration it holds, and how to go on with it.

config.yaml       the whole resolved configuration
campaign.db       tree of attempts, budget, events
stages/           what is done (`ledger.py`)
attempts/0000/    one folder an attempt, as in DESIGN.md
report.html  result.json
"""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically
from robocoach.configs.models import Sim2RealConfig
from robocoach.pipelines.cli import command
from robocoach.pipelines.ledger import Ledger

CONFIG_FILE = "config.yaml"
RUNS = Path("runs")


def default_folder(task: str) -> Path:
    """`runs/<task>-<date>-<time>` under the current folder."""
    return RUNS / f"{task}-{time.strftime('%Y%m%d-%H%M%S')}"


def latest_run() -> Path:
    """The run in `runs/` that was begun last. Raises UserError when there is none."""
    found = sorted(RUNS.glob(f"*/{CONFIG_FILE}"), key=lambda path: path.stat().st_mtime)
    found = [path for path in found if not (path.parent / "task.md").is_file()]  # a campaign has its own verb
    if not found:
        raise UserError(f"--resume: no run in {RUNS.resolve()}; name its folder with --out DIR")
    return found[-1].parent


def resume_command(folder: Path) -> str:
    """What to type to go on."""
    return f"{command()} sim2real --resume --out {shlex.quote(str(folder))}"


def is_written(folder: Path) -> bool:
    """Whether a process holds the folder's lock now."""
    try:
        handle = os.open(folder / ".lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Creates the folder where needed and keeps every other writer out while the block runs.

    Raises UserError when another process writes there, or when the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UserError(f"--out {folder} cannot be written ({error.strerror}); take another folder") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 20).decode(errors="replace").strip() or "unknown"
            raise UserError(
                f"--out {folder} is being written by another pipeline (process {owner}); wait, or take another --out"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def settle(
    folder: Path,
    given: Mapping[str, Any],
    names: Mapping[str, str],
    *,
    resume: bool | None,
    profile: str | None,
    file: Path | None,
) -> Sim2RealConfig:
    """The configuration of a run: of a new one as given, of one that exists as saved, with what is given on top.

    A run that exists is gone on with when its settings are the given ones, when none of its stages is done, or with
    `resume` (None: a verb that does not know it). Raises UserError when the folder holds something else, or results
    of other settings and no `resume`.
    """
    saved_path = folder / CONFIG_FILE
    if not saved_path.is_file():
        if resume:
            raise UserError(f"--resume: {folder} holds no run; leave --resume out to begin one there")
        if folder.is_file():
            raise UserError(f"--out {folder} is a file; name a folder")
        strangers = [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
        if strangers:
            raise UserError(f"--out {folder} holds other files ({', '.join(sorted(strangers)[:3])}); take a new folder")
        return load.load(given, profile=profile, file=file, names=names)
    saved = load.build(load.flatten(load.read_yaml(saved_path), str(saved_path)))
    if resume and profile is None and file is None:
        return load.build({**load.flatten(saved.model_dump(), "saved"), **given}, names)
    wanted = load.load(given, profile=profile, file=file, names=names)
    other = load.changes(saved, wanted)
    if other and not resume and Ledger(folder).finished():
        listed = ", ".join(f"{key} {old} there, {new} now" for key, (old, new) in list(other.items())[:4])
        again = "" if resume is None else ", or add --resume to do again the stages that they change"
        raise UserError(f"{folder} holds a run with other settings ({listed}); take another --out{again}")
    return wanted


def save(folder: Path, config: Sim2RealConfig) -> None:
    """Writes `config.yaml`."""
    write_atomically(folder / CONFIG_FILE, load.dump(config))
