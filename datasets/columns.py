"""The numbers of a LeRobotDataset v3 as arrays, without LeRobot, torch or video: frames, episodes, instructions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import ACTION_DIM, ACTION_KEY, IMAGE_KEY, STATE_DIM, STATE_KEY


@dataclass(frozen=True)
class Columns:
    """What the parquet files of a dataset hold."""

    frames: dict[str, np.ndarray]
    """By key: (N,) or (N, D), in the order of `index`."""
    episodes: dict[str, list[Any]]
    """By name, without the statistics: one value an episode, in order."""
    instructions: tuple[str, ...]
    """By `task_index`."""
    videos: tuple[Path, ...]
    """The wrist video's files, in order."""


def read_columns(root: Path) -> Columns:
    """Reads a dataset of the contract. Raises UserError when a file is missing, cut off or out of order."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        frames = _arrays(_table(pq, root / "data"))
        episodes = _table(pq, root / "meta/episodes")
        names = [name for name in episodes.column_names if not name.startswith("stats/")]
        tasks = pd.read_parquet(root / "meta/tasks.parquet").sort_values("task_index")
        _refuse_unfit(frames)
        return Columns(
            frames=frames,
            episodes={name: episodes.column(name).to_pylist() for name in names},
            instructions=tuple(str(task) for task in tasks.index),
            videos=tuple(sorted((root / "videos" / IMAGE_KEY).glob("*/*.mp4"))),
        )
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{root} is not a whole LeRobotDataset v3 ({reason}); take a fresh copy or make it again"
        ) from error


def to_numpy(column: Any) -> np.ndarray:
    """An Arrow column as (N,), or as (N, D) when it holds lists of equal length."""
    import pyarrow as pa

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_fixed_size_list(column.type) or pa.types.is_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def _table(pq: Any, folder: Path) -> Any:
    import pyarrow as pa

    files = sorted(folder.glob("*/*.parquet"))
    if not files:
        raise ValueError(f"{folder.name} holds no parquet file")
    return pa.concat_tables([pq.read_table(path) for path in files])


def _arrays(table: Any) -> dict[str, np.ndarray]:
    return {name: to_numpy(table.column(name)) for name in table.column_names}


def _refuse_unfit(frames: dict[str, np.ndarray]) -> None:
    missing = [key for key in (STATE_KEY, ACTION_KEY, "index", "episode_index", "task_index") if key not in frames]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    for key, size in ((STATE_KEY, STATE_DIM), (ACTION_KEY, ACTION_DIM)):
        if frames[key].shape[1:] != (size,):
            raise ValueError(f"{key} has shape {frames[key].shape[1:]}, expected ({size},)")
    if not np.array_equal(frames["index"], np.arange(len(frames["index"]))):
        raise ValueError("its frames are not in order")
