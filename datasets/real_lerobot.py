"""LeRobotDatasets that a user brings: every reason against one of them in a single line, before anything is read.

A dataset is fit when it is v3.0 with the contract's keys, shapes, names and rate, absolute joint positions as
actions, timestamps on the frame grid, and a `contract.json`. Most foreign datasets miss several of these at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets.columns import to_numpy
from robocoach.datasets.contract import (
    ACTION_KEY,
    ACTION_NAMES,
    CONTRACT_FILE,
    FPS,
    IMAGE_KEY,
    IMAGE_SIZE,
    STATE_KEY,
    STATE_NAMES,
)

VERSION = "v3.0"
TIME_TOLERANCE_S = 1e-3


def find(path: Path) -> Path | None:
    """The LeRobotDataset at a path or in its only subfolder that is one."""
    candidates = [path, *sorted(child for child in path.iterdir() if child.is_dir())]
    roots = [folder for folder in candidates if (folder / "meta/info.json").is_file()]
    return roots[0] if roots and (roots[0] == path or len(roots) == 1) else None


def reasons_against(root: Path) -> list[str]:
    """Why a LeRobotDataset cannot be used, one clause each; empty when its form satisfies the contract.

    Raises UserError when its description cannot be read.
    """
    try:
        info = json.loads((root / "meta/info.json").read_text())
        features: Mapping[str, Mapping[str, Any]] = info["features"]
        version, fps = info["codebase_version"], info["fps"]
        names = {key: names_of(feature) for key, feature in features.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{root}/meta/info.json cannot be read ({error!r}); take a fresh copy of the dataset"
        ) from error
    columns = _columns(root)
    reasons = []
    if version != VERSION:
        reasons.append(f"it is LeRobotDataset {version}, expected {VERSION}")
    if fps != FPS:
        reasons.append(f"it runs at {fps} fps, expected {FPS}")
    reasons += _state_reasons(names.get(STATE_KEY))
    reasons += _action_reasons(names.get(ACTION_KEY), columns)
    reasons += _image_reasons(features)
    reasons += _time_reasons(columns, fps)
    if not (root / CONTRACT_FILE).is_file():
        reasons.append(f"it has no {CONTRACT_FILE} that says what its numbers mean")
    return reasons


def names_of(feature: Mapping[str, Any]) -> list[str]:
    """Names of the entries; numbered ones where the dataset gives none."""
    names = feature.get("names")
    if isinstance(names, dict):
        names = [name for group in names.values() for name in group]
    return [str(name) for name in names] if names else [f"[{index}]" for index in range(feature["shape"][0])]


def _state_reasons(names: list[str] | None) -> list[str]:
    if names is None:
        return [f"it has no {STATE_KEY}"]
    if tuple(names) == STATE_NAMES:
        return []
    joints = [name for name in names if "grip" not in name.lower()]
    if len(joints) != 7:
        return [f"its arm has {_count(len(joints))} joints ({_span(joints)}), expected seven and a gripper"]
    return [f"{STATE_KEY} is {_span(names)}, expected {_span(STATE_NAMES)}"]


def _action_reasons(names: list[str] | None, columns: Mapping[str, np.ndarray]) -> list[str]:
    if names is None:
        return [f"it has no {ACTION_KEY}"]
    named = [name for name in names if "vel" in name.lower()]
    if named or _moves_like_velocity(columns):
        told = f" ({_span(named)})" if named else ""
        return [f"its actions are joint velocities{told}, expected absolute joint positions"]
    if tuple(names) == ACTION_NAMES:
        return []
    return [f"{ACTION_KEY} is {_span(names)}, expected {_span(ACTION_NAMES)}"]


def _moves_like_velocity(columns: Mapping[str, np.ndarray]) -> bool:
    """Whether the actions follow the speed of the joints and not their positions, whatever they are called."""
    state, action, episode = (columns.get(key) for key in (STATE_KEY, ACTION_KEY, "episode_index"))
    if state is None or action is None or episode is None or state.ndim != 2 or action.ndim != 2 or len(state) < 3:
        return False
    joints = min(state.shape[1], action.shape[1], 7)
    same_episode = episode[1:] == episode[:-1]
    speed = np.diff(state[:, :joints], axis=0)[same_episode].ravel()
    command = action[:-1, :joints][same_episode].ravel()
    position = state[:-1, :joints][same_episode].ravel()
    if min(speed.std(), command.std(), position.std()) == 0:
        return False
    return np.corrcoef(command, speed)[0, 1] > max(0.5, np.corrcoef(command, position)[0, 1])


def _image_reasons(features: Mapping[str, Mapping[str, Any]]) -> list[str]:
    images = [key for key, feature in features.items() if feature.get("dtype") in ("video", "image")]
    if IMAGE_KEY not in images:
        return [f"it has no {IMAGE_KEY} (it has {', '.join(images) or 'no images'})"]
    shape = tuple(features[IMAGE_KEY]["shape"])
    expected = (IMAGE_SIZE, IMAGE_SIZE, 3)
    return [] if shape == expected else [f"{IMAGE_KEY} is {shape}, expected {expected}"]


def _time_reasons(columns: Mapping[str, np.ndarray], fps: float) -> list[str]:
    times, episode = columns.get("timestamp"), columns.get("episode_index")
    if times is None or episode is None:
        return ["its frames cannot be read"]
    steps = np.diff(times.astype(np.float64))[episode[1:] == episode[:-1]]
    if len(steps) == 0 or np.abs(steps - 1 / fps).max() <= TIME_TOLERANCE_S:
        return []
    low, high = steps.min() * 1e3, steps.max() * 1e3
    return [f"its timestamps are wall-clock (steps of {low:.0f} to {high:.0f} ms), expected {1e3 / fps:.0f} ms each"]


def _columns(root: Path) -> dict[str, np.ndarray]:
    """The columns of all frames that the checks look at; those that cannot be read are left out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = ("timestamp", "episode_index", STATE_KEY, ACTION_KEY)
    try:
        parts = [pq.read_table(path) for path in sorted((root / "data").glob("*/*.parquet"))]
        table = pa.concat_tables(
            [part.select([name for name in wanted if name in part.column_names]) for part in parts]
        )
        return {name: to_numpy(table.column(name)) for name in table.column_names}
    except (OSError, ValueError, pa.ArrowException):
        return {}


def _span(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) < 3 else f"{names[0]} to {names[-1]}"


def _count(number: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[number] if number < len(words) else str(number)
