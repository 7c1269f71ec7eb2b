"""Opens any dataset for the checks: LeRobotDataset v3 or v2.1, journal, DROID-style folder, 1 kHz log of an FR3."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets import check_read_droid, check_read_lerobot, real_droid, real_lerobot
from robocoach.datasets.arms import JOINT_RANGE_RAD
from robocoach.datasets.check_findings import Fault, Finding
from robocoach.datasets.check_read_lerobot import BROKEN_EPISODE
from robocoach.datasets.check_view import CONTRACT_SPAN_M, DatasetView, EpisodeView, layout
from robocoach.datasets.check_whole import BROKEN_CONTRACT
from robocoach.datasets.contract import ACTION_NAMES, CONTRACT_FILE, FPS, JOINT_NAMES, STATE_NAMES, Contract
from robocoach.datasets.journal import EPISODE_FILE, IN_FLIGHT, NUMBERS_FILE, VIDEO_FILE

LOG_COLUMNS = 42
"""Columns of a 1 kHz log: time [ns], q (7), dq (7), torque (7), external torque (7), pose (7), twist (6)."""

UNFINISHED = Fault(
    "unfinished episodes",
    "a writer was killed, or is at work now; these folders are not part of the data.",
    "resume the recording, which removes them",
)
TAKES = (
    "a LeRobotDataset (meta/info.json), a journal (000000/episode.json), DROID-style episodes (annotation/, videos/) "
    "or 1 kHz logs (.npz)"
)


def open_dataset(path: Path) -> DatasetView:
    """Recognises what lies at a path. Raises UserError when it is nothing that the checks can read."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path} does not exist; `data check` takes {TAKES}")
    if path.is_file():
        if path.suffix in (".npz", ".npy"):
            return _logs(path, [path])
        raise UserError(f"{path} is a file; `data check` takes {TAKES}")
    root = real_lerobot.find(path)
    if root is not None:
        return check_read_lerobot.open_lerobot(root)
    journal = next((one for one in (path, path / "episodes", path / "journal") if _journal_folders(one)), None)
    if journal is not None:
        return _journal(journal)
    episodes = real_droid.find(path)
    if episodes:
        return check_read_droid.open_droid(path, episodes)
    logs = sorted((*path.glob("*.npz"), *path.glob("*.npy")))
    if logs:
        return _logs(path, logs)
    several = sorted(child.name for child in path.iterdir() if child.is_dir() and (child / "meta/info.json").is_file())
    if several:
        raise UserError(f"{path} holds several datasets; name one of {', '.join(several)}")
    raise UserError(f"{path} holds no dataset; `data check` takes {TAKES}")


def _journal_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return sorted(child for child in path.iterdir() if child.name.isdigit() and (child / EPISODE_FILE).is_file())


def _journal(path: Path) -> DatasetView:
    """A journal is read as it lies: opening it as one would remove what a killed writer left."""
    folders = _journal_folders(path)
    contract, problems = _contract_near(path)
    waiting = [child.name for child in path.glob(f"{IN_FLIGHT}*")]
    if waiting:
        problems.append(Finding(UNFINISHED, "note", f"{len(waiting)}, such as {waiting[0]}"))
    robot = contract.provenance.robot.partition("+")[0] if contract else ""
    return DatasetView(
        path=str(path),
        kind="journal",
        state=layout(STATE_NAMES),
        action=layout(ACTION_NAMES),
        arm=robot if robot in JOINT_RANGE_RAD else None,
        count=len(folders),
        episodes=lambda: map(_journal_episode, folders),
        gripper_span=CONTRACT_SPAN_M,
        contract=contract,
        ours=True,
        camera=VIDEO_FILE,
        problems=tuple(problems),
    )


def _contract_near(path: Path) -> tuple[Contract | None, list[Finding]]:
    for folder in (path, path.parent, path.parent / "dataset"):
        if (folder / CONTRACT_FILE).is_file():
            try:
                return Contract.load(folder), []
            except UserError as error:
                return None, [Finding(BROKEN_CONTRACT, "error", str(error).partition(";")[0])]
    return None, []


def _journal_episode(folder: Path) -> EpisodeView:
    try:
        described = json.loads((folder / EPISODE_FILE).read_text())
        with np.load(folder / NUMBERS_FILE) as numbers:
            states, actions, stages = numbers["states"], numbers["actions"], numbers["stages"]
        return EpisodeView(
            name=folder.name,
            rate_hz=FPS,
            states=states,
            actions=actions,
            times_s=None,
            stages=stages,
            task=described["task"],
            success=described["success"],
            seed=described["seed"],
            images=partial(check_read_lerobot.decode, folder / VIDEO_FILE),
        )
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        return _broken(folder.name, len(STATE_NAMES), f"{folder.name}: {error!r}")


def _broken(name: str, size: int, what: str) -> EpisodeView:
    return EpisodeView(name, None, np.zeros((0, size)), problems=(Finding(BROKEN_EPISODE, "error", what, name),))


def _logs(path: Path, files: list[Path]) -> DatasetView:
    def episodes() -> Iterator[EpisodeView]:
        for file in files:
            yield _log(file)

    return DatasetView(
        path=str(path),
        kind="1 kHz log",
        state=layout(JOINT_NAMES),
        action=None,
        arm="fr3",
        count=len(files),
        episodes=episodes,
        has_images=False,
    )


def _log(file: Path) -> EpisodeView:
    try:
        loaded = np.load(file)
        rows = np.asarray(loaded["data"] if file.suffix == ".npz" else loaded, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != LOG_COLUMNS:
            raise ValueError(f"shape {rows.shape}, expected (N, {LOG_COLUMNS})")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        return _broken(file.stem, 7, f"{file.name} is no 1 kHz log ({error})")
    times_s = (rows[:, 0] - rows[0, 0]) * 1e-9
    return EpisodeView(name=file.stem, rate_hz=None, states=rows[:, 1:8], times_s=times_s)
