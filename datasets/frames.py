"""A dataset as arrays for training: every frame decoded once into a memory map, numbers in memory.

Decoding video in every epoch costs more than a training step of a small policy. Here a dataset's wrist images are
decoded and shrunk once into a memory map, beside the dataset and named after its content hash and the image size,
so that a second attempt, or a second process, opens it in milliseconds.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets import video
from robocoach.datasets.contract import ACTION_KEY, IMAGE_KEY, IMAGE_SIZE, STATE_KEY, Contract, Meaning, differences
from robocoach.datasets.episode import UNKNOWN_STAGE
from robocoach.datasets.record import PRIVILEGED_KEY, STAGE_KEY, dataset_digest


@dataclass(frozen=True)
class FrameSource:
    """All frames of one dataset, N in all; the frames of an episode are contiguous and in order."""

    name: str
    """`sim` or `real`."""
    images: np.ndarray
    """uint8 memory map (N, px, px, 3), RGB."""
    states: np.ndarray
    """float32 (N, 8): joints [rad], opening width [m]."""
    actions: np.ndarray
    """float32 (N, 8): joint targets [rad], commanded width [m]."""
    privileged: np.ndarray | None
    """float32 (N, P): training targets known in simulation; None when the dataset has none."""
    episode: np.ndarray
    """int64 (N,): episode index."""
    instruction: np.ndarray
    """int64 (N,): index into `instructions`."""
    instructions: tuple[str, ...]
    stages: np.ndarray
    """int64 (N,): index into the task's stages, -1 unknown."""
    digest: str
    """Content hash of the dataset."""


def open_source(
    root: Path,
    image_px: int,
    name: str,
    cache_dir: Path | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> FrameSource:
    """Opens a dataset that satisfies the contract, with images of `image_px` × `image_px`.

    The first caller decodes (others wait for it), everyone maps the same file in `cache_dir` (default
    `<root>.frames`). `progress(frames, total)` is called while it decodes. Raises UserError when the folder is no
    dataset of this contract, when a file of it is broken, and when the cache cannot be written.
    """
    root = Path(root)
    if not 1 <= image_px <= IMAGE_SIZE:
        raise UserError(f"image_px is {image_px}; choose 1 to {IMAGE_SIZE}, the size of the stored images")
    meaning = differences(Meaning(), Contract.load(root).meaning)
    if meaning:
        listed = "; ".join(f"{key}: expected {ours!r}, it has {theirs!r}" for key, (ours, theirs) in meaning.items())
        raise UserError(f"{root} has another data contract and cannot be used: {listed}")
    digest = dataset_digest(root)
    table, instructions, videos = _read_tables(root)
    frames = len(table["index"])
    cache = root.with_name(f"{root.name}.frames") if cache_dir is None else Path(cache_dir)
    return FrameSource(
        name=name,
        images=_open_images(videos, frames, image_px, cache, digest, progress),
        states=table[STATE_KEY],
        actions=table[ACTION_KEY],
        privileged=table.get(PRIVILEGED_KEY),
        episode=table["episode_index"],
        instruction=table["task_index"],
        instructions=instructions,
        stages=table.get(STAGE_KEY, np.full(frames, UNKNOWN_STAGE)),
        digest=digest,
    )


def _read_tables(root: Path) -> tuple[dict[str, np.ndarray], tuple[str, ...], list[Path]]:
    """All columns of the frames in order, the instructions by index, and the video files in order."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parts = [pq.read_table(path) for path in sorted((root / "data").glob("*/*.parquet"))]
        columns = {name: _numpy(column) for name, column in _named(pa.concat_tables(parts))}
        tasks = pd.read_parquet(root / "meta/tasks.parquet").sort_values("task_index")
        instructions = tuple(str(task) for task in tasks.index)
        missing = [key for key in (STATE_KEY, ACTION_KEY, "index", "episode_index", "task_index") if key not in columns]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        if not np.array_equal(columns["index"], np.arange(len(columns["index"]))):
            raise ValueError("its frames are not in order")
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{root} is not a whole LeRobotDataset v3 ({reason}); take a fresh copy or make it again"
        ) from error
    return columns, instructions, sorted((root / "videos" / IMAGE_KEY).glob("*/*.mp4"))


def _named(table: Any) -> list[tuple[str, Any]]:
    return [(name, table.column(name).combine_chunks()) for name in table.column_names]


def _numpy(column: Any) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def _open_images(
    videos: list[Path],
    frames: int,
    px: int,
    cache: Path,
    digest: str,
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    path = cache / f"{digest}-{px}.npy"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{digest}-{px}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file():
                _decode_into(path, videos, frames, px, progress)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot write the decoded frames to {cache} ({reason}); make room, then resume") from error
    images = np.load(path, mmap_mode="r")
    if images.shape != (frames, px, px, 3):
        raise UserError(f"{path} does not belong to this dataset ({images.shape}); delete it, then resume")
    return images


def _decode_into(
    path: Path, videos: list[Path], frames: int, px: int, progress: Callable[[int, int], None] | None
) -> None:
    """Decodes all videos into a new file beside `path` and renames it: `path` is whole or not there."""
    import av

    unfinished = path.with_suffix(".decoding")
    images = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.uint8, shape=(frames, px, px, 3))
    done = 0
    try:
        for source in videos:
            for image in video.decode(source, px):
                if done == frames:
                    raise UserError(f"{source} has more images than there are frames of data; make the dataset again")
                images[done] = image
                done += 1
                if progress is not None and done % 100 == 0:
                    progress(done, frames)
    except av.FFmpegError as error:
        raise UserError(f"{source} cannot be decoded ({error}); take a fresh copy or make the dataset again") from error
    if done != frames:
        raise UserError(f"the videos hold {done} images for {frames} frames of data; make the dataset again")
    images.flush()
    unfinished.replace(path)
    if progress is not None:
        progress(frames, frames)
