"""DROID-style folders for the checks, at their own rates and before any conversion (`real_droid.py` converts)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.datasets.check_action import NO_ACTIONS
from robocoach.datasets.check_findings import Fault, Finding
from robocoach.datasets.check_read_lerobot import BROKEN_EPISODE, decode
from robocoach.datasets.check_view import DatasetView, EpisodeView, layout
from robocoach.datasets.contract import ACTION_NAMES, STATE_NAMES
from robocoach.datasets.real_droid import STATE_HZ, STROKE_M, VIDEO_HZ, DroidEpisode, instruction

STATE, ACTION = "observation.state", "action"
GRIPPER_SPAN_M = (0.0, STROKE_M)

DECLARED_LENGTH = Fault(
    "declared length differs from the data",
    "the annotation was edited or belongs to another video.",
    "take a fresh copy, or leave the episode out",
)


def open_droid(path: Path, episodes: list[DroidEpisode]) -> DatasetView:
    """The episodes that `real_droid.find` found at a path; joints [rad] and opening width [m], as in the contract."""

    def read() -> Iterator[EpisodeView]:
        for episode in episodes:
            yield _read(episode)

    return DatasetView(
        path=str(path),
        kind="DROID-style folder",
        state=layout(STATE_NAMES),
        action=layout(ACTION_NAMES),
        arm="panda",
        count=len(episodes),
        episodes=read,
        gripper_span=GRIPPER_SPAN_M,
        camera="2 (wrist)",
    )


def _read(source: DroidEpisode) -> EpisodeView:
    try:
        raw = json.loads(source.annotation.read_text())
        raw_rate = f"{STATE}.joint_position" in raw
        states = _rows(raw, STATE) if raw_rate else _width(np.asarray(raw["joints"], dtype=np.float64))
        acts = f"{ACTION}.joint_position" in raw
        actions = _rows(raw, ACTION) if acts else None
        if actions is not None and len(actions) != len(states):
            raise ValueError(f"{len(states)} states and {len(actions)} actions")
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        what = f"{source.annotation.name}: {error}"
        broken = Finding(BROKEN_EPISODE, "error", what, source.name)
        return EpisodeView(source.name, None, np.zeros((0, len(STATE_NAMES))), problems=(broken,))
    problems = []
    if actions is None:
        problems.append(Finding(NO_ACTIONS, "error", "the annotation has no action.joint_position", source.name))
    declared = raw.get("raw_length" if raw_rate else "video_length")
    if declared is not None and declared != len(states):
        what = f"{declared} declared, {len(states)} states"
        problems.append(Finding(DECLARED_LENGTH, "warning", what, source.name))
    label = raw.get("success")
    return EpisodeView(
        name=source.name,
        rate_hz=STATE_HZ if raw_rate else None,
        states=states,
        actions=actions,
        task=instruction(raw.get("texts")),
        success=None if label is None else bool(label),
        images=partial(decode, source.wrist) if source.wrist.is_file() else None,
        image_hz=_header_hz(source.wrist),
        every=STATE_HZ // VIDEO_HZ if raw_rate else 1,
        problems=tuple(problems),
    )


def _rows(raw: dict[str, Any], prefix: str) -> np.ndarray:
    joints = np.asarray(raw[f"{prefix}.joint_position"], dtype=np.float64)
    gripper = np.asarray(raw[f"{prefix}.gripper_position"], dtype=np.float64)
    return _width(np.concatenate([joints, gripper[:, None]], axis=1))


def _width(rows: np.ndarray) -> np.ndarray:
    """(N, 8) with the gripper as 0 open to 1 closed → with its opening width [m], unclipped."""
    if rows.ndim != 2 or rows.shape[1] != len(STATE_NAMES):
        raise ValueError(f"joints and gripper have shape {rows.shape}, expected (N, {len(STATE_NAMES)})")
    return np.concatenate([rows[:, :7], (1.0 - rows[:, 7:]) * STROKE_M], axis=1)


def _header_hz(path: Path) -> float | None:
    import av

    try:
        with av.open(str(path)) as container:
            rate = container.streams.video[0].average_rate
            return None if rate is None else float(rate)
    except (OSError, av.FFmpegError, IndexError):
        return None
