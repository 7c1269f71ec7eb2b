"""`--real PATH`: real teleoperation episodes as a LeRobotDataset of the contract, whatever form they come in.

Takes a LeRobotDataset that satisfies the contract (used where it lies) or a DROID-style folder (converted). Compares
its provenance with that of the data it will be mixed with, checks the numbers, and says what it took and what it
left out, and why. Everything else is refused in one line.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from robocoach.configs.errors import UserError
from robocoach.datasets import real_droid, real_lerobot
from robocoach.datasets.arms import JOINT_RANGE_RAD
from robocoach.datasets.columns import read_columns
from robocoach.datasets.contract import ACTION_KEY, FPS, STATE_KEY, Contract, GripperRule, check
from robocoach.datasets.episode import Episode
from robocoach.datasets.journal import Journal
from robocoach.datasets.record import assemble, dataset_digest

IMPORTER_VERSION = 1
"""Raised when the same input gives other output, so that older imports are made again."""


@dataclass(frozen=True)
class RealSummary:
    """What was imported, in numbers a person can judge."""

    kind: str
    """`droid` or `lerobot`."""
    source: str
    input_digest: str
    """Content hash of what was read."""
    digest: str
    """Content hash of the dataset, as `record.dataset_digest` gives it."""
    episodes: int
    frames: int
    seconds: float
    instructions: tuple[str, ...]
    unlabelled: int
    """Episodes without an instruction."""
    marked_successful: int
    grasping: int
    """Episodes whose commands close the gripper by the contract's rule."""
    joint_min_rad: tuple[float, ...]
    joint_max_rad: tuple[float, ...]
    command_lead_s: float
    """How far ahead of the measured joints the commands are, by the best match."""
    left_out: tuple[str, ...]
    """What was not imported, with the reason."""
    differences: tuple[str, ...]
    """Provenance that differs from the target's and was accepted or is declared compatible."""

    def lines(self) -> list[str]:
        """The summary as text, a line each."""
        return [
            f"{self.episodes} real episodes, {self.frames} frames ({self.seconds:.0f} s) from {self.source}",
            f"{len(self.instructions)} instructions, {self.unlabelled} episodes without one; "
            f"{self.marked_successful} marked successful; {self.grasping} close the gripper",
            f"commands lead the joints by {self.command_lead_s:.2f} s",
            *(f"left out: {reason}" for reason in self.left_out),
            *(f"differs: {difference}" for difference in self.differences),
        ]


@dataclass(frozen=True)
class RealImport:
    """A dataset of real episodes that satisfies the contract, and what is in it."""

    summary: RealSummary
    root: Path


def import_real(
    path: Path,
    out: Path,
    target_contract: Contract,
    accept: frozenset[str] = frozenset(),
    progress: Callable[[int, int], None] | None = None,
) -> RealImport:
    """Makes the real episodes at `path` usable beside data of `target_contract`.

    A DROID-style folder is converted into a LeRobotDataset at `out` (skipped when `out` was made from the same
    input); a LeRobotDataset of the contract is used where it lies. `accept` names provenance fields that may differ,
    `progress(done, total)` is called per episode. Raises UserError when there is nothing usable, when the meaning
    differs, or when a provenance difference was neither accepted nor declared compatible.
    """
    path, out = Path(path), Path(out)
    _refuse_no_folder(path)
    dataset = real_lerobot.find(path)
    if dataset is not None:
        return _use_lerobot(dataset, target_contract, accept)
    episodes = real_droid.find(path)
    if not episodes:
        raise UserError(
            f"{path} holds neither a LeRobotDataset (meta/info.json) nor DROID-style episodes (annotation/, videos/); "
            "name the folder that does"
        )
    return _convert_droid(path, episodes, out, target_contract, accept, progress)


def _refuse_no_folder(path: Path) -> None:
    if not path.exists():
        raise UserError(f"{path} does not exist; --real takes a folder of real episodes")
    if not path.is_dir():
        raise UserError(f"{path} is a file; --real takes a folder of real episodes")
    if not any(path.iterdir()):
        raise UserError(f"{path} is empty; --real takes a folder of real episodes")


def _use_lerobot(root: Path, target: Contract, accept: frozenset[str]) -> RealImport:
    reasons = real_lerobot.reasons_against(root)
    if reasons:
        raise UserError(f"{root} cannot be used as real data: {'; '.join(reasons)}; convert it first")
    contract = Contract.load(root)
    if contract.provenance.source != "real":
        raise UserError(f"{root} comes from {contract.provenance.source}, not from a robot; --real takes real episodes")
    noted = check(target, contract, str(root), accept)
    summary = _summary("lerobot", root, dataset_digest(root), root, contract, (), tuple(noted))
    return RealImport(summary, root)


def _convert_droid(
    path: Path,
    episodes: list[real_droid.DroidEpisode],
    out: Path,
    target: Contract,
    accept: frozenset[str],
    progress: Callable[[int, int], None] | None,
) -> RealImport:
    contract = real_droid.contract()
    noted = tuple(check(target, contract, str(path), accept))
    digest = _input_digest(episodes)
    earlier = _imported(out, digest)
    if earlier is not None:
        return RealImport(dataclasses.replace(earlier, source=str(path), differences=noted), out)

    folder = out.with_name(f".{out.name}.journal-{digest}")
    journal = Journal(folder)
    done = set(journal.done())
    reasons: dict[str, list[str]] = {}
    for index, episode in enumerate(episodes):
        if index not in done:
            try:
                journal.add(index, _checked(real_droid.read(episode), contract))
            except real_droid.LeftOut as error:
                reasons.setdefault(str(error), []).append(episode.name)
        if progress is not None:
            progress(index + 1, len(episodes))
    left_out = tuple(f"{_listed(names)}: {reason}" for reason, names in reasons.items())
    if not journal.done():
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(
            f"no episode of {path} can be used ({'; '.join(left_out)}); name a folder with states and actions"
        )
    assemble(journal, out, contract, {"input_digest": digest})
    summary = _summary("droid", path, digest, out, contract, left_out, noted)
    _note(out, summary)
    shutil.rmtree(folder, ignore_errors=True)
    return RealImport(summary, out)


def _checked(episode: Episode, contract: Contract) -> Episode:
    """The episode, when its joints are where that arm can be; else LeftOut."""
    low, high = _limits(contract)
    outside = np.argwhere((episode.states[:, :7] < low) | (episode.states[:, :7] > high))
    if len(outside):
        tick, joint = outside[0]
        angle = episode.states[tick, joint]
        raise real_droid.LeftOut(f"joint {joint + 1} is at {angle:.3f} rad, outside the limits of the arm")
    return episode


def _limits(contract: Contract) -> tuple[np.ndarray, np.ndarray]:
    arm = contract.provenance.robot.partition("+")[0]
    if arm not in JOINT_RANGE_RAD:
        raise UserError(f"the robot '{contract.provenance.robot}' is unknown; choose from {', '.join(JOINT_RANGE_RAD)}")
    low, high = JOINT_RANGE_RAD[arm]
    return np.array(low), np.array(high)


def _summary(
    kind: str,
    source: Path,
    input_digest: str,
    root: Path,
    contract: Contract,
    left_out: tuple[str, ...],
    noted: tuple[str, ...],
) -> RealSummary:
    """Looks at the numbers of a whole dataset; raises UserError when they are not those of the arm it names."""
    columns = read_columns(root)
    states, actions = columns.frames[STATE_KEY], columns.frames[ACTION_KEY]
    if not (np.isfinite(states).all() and np.isfinite(actions).all()):
        raise UserError(f"{root} has states or actions that are not finite; remove or mend those episodes")
    low, high = _limits(contract)
    if (states[:, :7] < low).any() or (states[:, :7] > high).any():
        robot = contract.provenance.robot
        raise UserError(f"{root} has joints outside the limits of {robot}, which its contract names; mend the contract")
    episode = columns.frames["episode_index"]
    rule = GripperRule()
    closing = {int(index) for index in episode[actions[:, 7] < rule.close_below_m]}
    tasks = Counter(task for tasks in columns.episodes["tasks"] for task in tasks)
    successes = columns.episodes.get("success", [])
    return RealSummary(
        kind=kind,
        source=str(source),
        input_digest=input_digest,
        digest=dataset_digest(root),
        episodes=len(columns.episodes["tasks"]),
        frames=len(states),
        seconds=len(states) / FPS,
        instructions=tuple(sorted(task for task in tasks if task != real_droid.UNLABELLED)),
        unlabelled=tasks[real_droid.UNLABELLED],
        marked_successful=sum(bool(success) for success in successes),
        grasping=len(closing),
        joint_min_rad=tuple(float(value) for value in states[:, :7].min(axis=0)),
        joint_max_rad=tuple(float(value) for value in states[:, :7].max(axis=0)),
        command_lead_s=command_lead_s(states[:, :7], actions[:, :7], episode),
        left_out=left_out,
        differences=noted,
    )


def command_lead_s(joints: np.ndarray, commands: np.ndarray, episode: np.ndarray, most_s: float = 0.6) -> float:
    """By how many seconds the commanded joints (N, 7) lead the measured ones (N, 7), where they match best.

    Compares a command with the joints interpolated some time after it, within episodes (N,); 0 when nothing moves.
    """
    leads = np.arange(0.0, most_s + 1e-9, 0.02)
    errors = np.zeros(len(leads))
    for index in np.unique(episode):
        own, sent = joints[episode == index], commands[episode == index]
        compared = len(own) - int(np.ceil(most_s * FPS))
        if compared < 1:
            continue
        for number, lead in enumerate(leads):
            later = real_droid.interpolate(own, np.arange(compared) + lead * FPS)
            errors[number] += ((sent[:compared] - later) ** 2).sum()
    return float(leads[int(np.argmin(errors))])


def _input_digest(episodes: list[real_droid.DroidEpisode]) -> str:
    total = hashlib.sha256(f"importer {IMPORTER_VERSION}\n{real_droid.contract().model_dump_json()}\n".encode())
    for episode in episodes:
        for file in (episode.annotation, episode.wrist):
            content = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "missing"
            total.update(f"{episode.name} {file.name} {content}\n".encode())
    return total.hexdigest()[:16]


def _note(out: Path, summary: RealSummary) -> None:
    """Keeps the summary beside the dataset; it is written last, so its presence says that the import is whole."""
    path = _note_path(out)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(dataclasses.asdict(summary), indent=2) + "\n")
    unfinished.replace(path)


def _imported(out: Path, digest: str) -> RealSummary | None:
    """The summary of an earlier import of the same input, when the dataset is still there."""
    try:
        summary = TypeAdapter(RealSummary).validate_json(_note_path(out).read_text())
        whole = summary.input_digest == digest and summary.digest == dataset_digest(out)
    except (OSError, ValidationError, UserError):
        return None
    return summary if whole else None


def _note_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.json")


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
