"""Runs every check on a dataset, an episode at a time, and collects the findings.

Memory stays flat: of each episode only its numbers and small grey images are held while it is checked; what is kept
is a trajectory of 32 points, at most 256 rows of numbers and a hash of the first image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from robocoach.datasets import (
    check_action,
    check_images,
    check_labels,
    check_motion,
    check_time,
    check_whole,
)
from robocoach.datasets.check_findings import SEVERITIES, Finding, Group, Severity, grouped
from robocoach.datasets.check_view import DatasetView, EpisodeView, Layout, opening
from robocoach.datasets.contract import ACTION_KEY, STATE_KEY
from robocoach.datasets.real_droid import UNLABELLED

ROWS_KEPT = 256
"""Rows of numbers kept of each episode for the dataset's ranges."""


@dataclass(frozen=True)
class Checked:
    """The result of all checks."""

    path: str
    kind: str
    camera: str | None
    episodes: int
    frames: int
    seconds: float | None
    """How long all episodes last; None when no rate is documented."""
    successes: int | None
    """Episodes marked successful; None when none is marked."""
    lag_s: float | None
    """Usual lag from commands to motion."""
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...]
    """What could not be checked and why."""

    def groups(self) -> list[Group]:
        """The findings by fault, most serious first."""
        return grouped(self.findings)

    def count(self, severity: Severity) -> int:
        """Number of findings of one severity."""
        return sum(found.severity == severity for found in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Plain values for a file or another program."""
        values = {key: value for key, value in vars(self).items() if key != "findings"}
        findings = [
            {"fault": found.fault.name, **{k: v for k, v in asdict(found).items() if k != "fault"}}
            | {"means": found.fault.means, "mend": found.fault.mend}
            for found in self.findings
        ]
        counts = {f"{severity}s": self.count(severity) for severity in SEVERITIES}
        return {**values, **counts, "skipped": list(self.skipped), "findings": findings}


@dataclass
class _Kept:
    """What is remembered of the episodes until all were seen."""

    names: list[str] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    seeds: list[int | None] = field(default_factory=list)
    descriptors: list[np.ndarray] = field(default_factory=list)
    hashes: list[np.ndarray | None] = field(default_factory=list)
    states: list[np.ndarray] = field(default_factory=list)
    actions: list[np.ndarray] = field(default_factory=list)
    stage_frames: list[float] = field(default_factory=list)
    lags: list[check_action.Lag] = field(default_factory=list)
    labels: list[bool | None] = field(default_factory=list)
    hands: list[np.ndarray | None] = field(default_factory=list)
    stages: list[np.ndarray | None] = field(default_factory=list)
    seconds: list[float | None] = field(default_factory=list)
    lacks: Counter[str] = field(default_factory=Counter)


def check_dataset(view: DatasetView, progress: Callable[[int, int], None] | None = None) -> Checked:
    """Checks a dataset; `progress(done, total)` is called per episode."""
    kept = _Kept()
    findings: list[Finding] = list(view.problems)
    for number, episode in enumerate(view.episodes()):
        findings += _check_episode(view, episode, kept)
        if progress is not None:
            progress(number + 1, view.count)
    findings += _check_whole(view, kept)
    seconds = [one for one in kept.seconds if one is not None]
    labelled = [one for one in kept.labels if one is not None]
    clear = [one.seconds for one in kept.lags if one.correlation >= check_action.CLEAR_PEAK]
    return Checked(
        path=view.path,
        kind=view.kind,
        camera=view.camera,
        episodes=view.count,
        frames=sum(kept.frames),
        seconds=sum(seconds) if seconds and len(seconds) == len(kept.seconds) else None,
        successes=sum(labelled) if labelled else None,
        lag_s=float(np.median(clear)) if clear else None,
        findings=tuple(findings),
        skipped=tuple(f"{what} ({count} of {view.count} episodes)" for what, count in kept.lacks.items()),
    )


def steps_s(episode: EpisodeView) -> np.ndarray | None:
    """Time from each state to the next (T - 1,) [s]: by the clock when it runs, else by the rate, else unknown."""
    count = len(episode) - 1
    if episode.times_s is not None and count > 0:
        steps = np.diff(episode.times_s)
        if np.isfinite(steps).all() and (steps > 0).all():
            return steps
    return None if episode.rate_hz is None or count < 1 else np.full(count, 1 / episode.rate_hz)


def joints_of(rows: np.ndarray, columns: Layout) -> np.ndarray | None:
    """The joint columns (T, J) [rad]; None when the columns hold no joints or the rows are narrower."""
    if not columns.angles or not columns.joints or max(columns.joints) >= rows.shape[1]:
        return None
    return np.asarray(rows[:, list(columns.joints)], dtype=np.float64)


def openings(view: DatasetView, episode: EpisodeView) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The gripper's opening (T,), 0 closed to 1 open, measured and commanded; None where there is no such column."""
    pairs = ((episode.states, view.state), (episode.actions, view.action))
    measured, commanded = (
        None
        if rows is None or columns is None or columns.gripper is None or columns.gripper >= rows.shape[1]
        else opening(rows[:, columns.gripper], view.gripper_span)
        for rows, columns in pairs
    )
    return measured, commanded


def _check_episode(view: DatasetView, episode: EpisodeView, kept: _Kept) -> list[Finding]:
    name = episode.name
    found = list(episode.problems)
    if len(episode) == 0:
        return found
    kept.names.append(name)
    kept.frames.append(len(episode))
    kept.labels.append(episode.success)
    kept.seconds.append(episode.seconds())
    kept.seeds.append(episode.seed)
    found += _time(episode, kept)
    numbers = check_motion.finite(episode.states, episode.actions, view.state.names, name)
    found += numbers
    joints = joints_of(episode.states, view.state)
    if not numbers:  # arithmetic on NaN says nothing
        found += _motion(view, episode, joints, kept)
    found += check_labels.instruction(episode.task, UNLABELLED, name)
    measured, commanded = openings(view, episode)
    kept.hands.append(commanded if commanded is not None else measured)
    kept.stages.append(episode.stages)
    found += check_labels.stage_range(episode.stages, len(view.stage_names), name)
    if (length := check_labels.stage_length(episode.stages)) is not None:
        kept.stage_frames.append(length)
    if episode.success is None:
        kept.lacks["no success label"] += 1
    found += _images(episode, joints, kept)
    pick = np.unique(np.linspace(0, len(episode) - 1, ROWS_KEPT).astype(int))
    kept.states.append(episode.states[pick])
    if episode.actions is not None:
        kept.actions.append(episode.actions[pick])
    usable = joints is not None and not numbers
    kept.descriptors.append(check_whole.descriptor(joints) if usable and joints is not None else np.zeros(0))
    return found


def _time(episode: EpisodeView, kept: _Kept) -> list[Finding]:
    if episode.times_s is not None:
        return check_time.timestamps(episode.times_s, episode.rate_hz, episode.name)
    kept.lacks["no timestamps"] += 1
    return check_time.rates(episode.rate_hz, episode.image_hz, episode.every, episode.name)


def _motion(view: DatasetView, episode: EpisodeView, joints: np.ndarray | None, kept: _Kept) -> list[Finding]:
    name = episode.name
    found: list[Finding] = []
    steps = steps_s(episode)
    measured, commanded = openings(view, episode)
    found += check_motion.gripper_moves(measured, commanded, name)
    if joints is None:
        kept.lacks["no joints"] += 1
        return found
    found += check_motion.joint_limits(joints, view.arm, name)
    if steps is None:
        kept.lacks["no rate, so no speeds and no lag"] += 1
    else:
        found += check_motion.jumps(joints, steps, view.arm, name)
        found += check_motion.standing(joints, measured if measured is not None else commanded, steps, name)
    if episode.actions is None or view.action is None:
        kept.lacks["no actions"] += 1
        return found
    commands = joints_of(episode.actions, view.action)
    names = tuple(view.action.names[at] for at in view.action.joints)
    if commands is None or commands.shape[1] != joints.shape[1]:
        kept.lacks["actions and states have other joints"] += 1
        return found
    kinds = check_action.meaning(joints, commands, names, name)
    found += kinds
    if not any(one.fault in (check_action.VELOCITY, check_action.COPIES) for one in kinds):
        found += check_motion.joint_limits(
            commands, view.arm, name, fault=check_motion.COMMAND_OUTSIDE, severity="warning"
        )
        if steps is not None:
            found += check_motion.jumps(
                commands, steps, view.arm, name, fault=check_motion.COMMAND_JUMP, severity="warning"
            )
        if steps is not None and (lag := check_action.lag(joints, commands, float(np.median(steps)), name)):
            kept.lags.append(lag)
    return found


def _images(episode: EpisodeView, joints: np.ndarray | None, kept: _Kept) -> list[Finding]:
    kept.hashes.append(None)
    if episode.images is None:
        kept.lacks["no images"] += 1
        return []
    import av

    try:
        greys = np.array([check_images.small(image) for image in episode.images()])
    except (OSError, ValueError, IndexError, av.FFmpegError) as error:
        return [Finding(check_images.UNREADABLE, "error", str(error).splitlines()[0], episode.name)]
    found = check_time.image_count(len(greys), episode.expected_images(), episode.name)
    if len(greys):
        kept.hashes[-1] = check_images.image_hash(greys[0])
        found += check_images.dark(greys, episode.every, episode.name)
        if joints is not None and np.isfinite(joints).all():
            found += check_images.frozen(greys, joints, episode.every, episode.name)
    return found


def _success(view: DatasetView, kept: _Kept) -> Iterator[Finding]:
    """Labels against stages and gripper; the last stage is that of the names, or the highest that occurs at all."""
    tops = [int(stages.max()) for stages in kept.stages if stages is not None and len(stages)]
    last = len(view.stage_names) - 1 if view.stage_names else max(tops, default=-1)
    for name, label, hand, stages in zip(kept.names, kept.labels, kept.hands, kept.stages, strict=True):
        yield from check_labels.success(label, hand, stages, last if last >= 0 else None, name)


def _check_whole(view: DatasetView, kept: _Kept) -> Iterator[Finding]:
    yield from _success(view, kept)
    rate = view.contract.meaning.fps if view.contract else None
    yield from check_labels.lengths(kept.names, kept.frames, kept.stage_frames, rate)
    marked = [label for label in kept.labels if label is not None]
    yield from check_labels.failures(marked.count(False), len(marked))
    yield from check_whole.seeds(kept.names, kept.seeds)
    yield from _duplicates(kept)
    yield from check_action.lags(kept.lags)
    if kept.names and view.state.gripper is None and (view.action is None or view.action.gripper is None):
        yield Finding(check_motion.NO_GRIPPER, "note", f"the columns are {', '.join(view.state.names)}")
    if view.arm is None and view.state.joints:
        what = f"{len(view.state.joints)} joints, {view.state.names[0]} to {view.state.names[view.state.joints[-1]]}"
        yield Finding(check_motion.LIMITS_UNKNOWN, "note", what)
    yield from _ranges(view, kept)
    if kept.names and len(kept.hashes) == kept.lacks["no images"]:
        yield Finding(check_images.NO_IMAGES, "error" if view.has_images else "note", "no episode has any")
    if view.needs_contract:
        names = {STATE_KEY: view.state.names}
        if view.action is not None:
            names[ACTION_KEY] = view.action.names
        if view.contract is None:
            yield from check_whole.columns(names)
        if not any(one.fault is check_whole.BROKEN_CONTRACT for one in view.problems):
            yield from check_whole.contract(view.contract, view.declared_fps, names, view.declared_robot)


def _duplicates(kept: _Kept) -> list[Finding]:
    usable = [at for at, one in enumerate(kept.descriptors) if len(one)]
    if len(usable) < 2:
        return []
    return check_whole.near_duplicates(
        [kept.names[at] for at in usable],
        np.stack([kept.descriptors[at] for at in usable]),
        [kept.frames[at] for at in usable],
        [kept.hashes[at] for at in usable],
    )


def _ranges(view: DatasetView, kept: _Kept) -> Iterator[Finding]:
    for key, parts, columns in ((STATE_KEY, kept.states, view.state), (ACTION_KEY, kept.actions, view.action)):
        if not parts or columns is None:
            continue
        rows = np.concatenate(parts)
        if rows.shape[1] != len(columns.names):
            continue
        label = "state" if key == STATE_KEY else "action"
        yield from check_whole.narrow(rows, columns.names, label, view.ours)
        if view.statistics and key in view.statistics:
            yield from check_whole.stored_statistics(view.statistics[key], rows, columns.names, label)
