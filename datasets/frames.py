"""A dataset as arrays for training: every frame decoded once into a memory map, numbers in memory.

Decoding video in every epoch costs more than a training step of a small policy. Here a dataset's wrist images are
decoded and shrunk once into a memory map, beside the dataset and named after its content hash and the image size,
so that a second attempt, or a second process, opens it in milliseconds.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets import video
from robocoach.datasets.columns import read_columns
from robocoach.datasets.contract import ACTION_KEY, IMAGE_SIZE, STATE_KEY, Contract, Meaning, differences
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
    columns = read_columns(root)
    table, frames = columns.frames, len(columns.frames["index"])
    cache = root.with_name(f"{root.name}.frames") if cache_dir is None else Path(cache_dir)
    return FrameSource(
        name=name,
        images=_open_images(columns.videos, frames, image_px, cache, digest, progress),
        states=table[STATE_KEY],
        actions=table[ACTION_KEY],
        privileged=table.get(PRIVILEGED_KEY),
        episode=table["episode_index"],
        instruction=table["task_index"],
        instructions=columns.instructions,
        stages=table.get(STAGE_KEY, np.full(frames, UNKNOWN_STAGE)),
        digest=digest,
    )


def _open_images(
    videos: Sequence[Path],
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
        raise UserError(
            f"cannot write the decoded frames to {cache} ({reason}); make room or make it writable, then resume"
        ) from error
    images = np.load(path, mmap_mode="r")
    if images.shape != (frames, px, px, 3):
        raise UserError(f"{path} does not belong to this dataset ({images.shape}); delete it, then resume")
    return images


def _decode_into(
    path: Path, videos: Sequence[Path], frames: int, px: int, progress: Callable[[int, int], None] | None
) -> None:
    """Decodes all videos into a new file beside `path` and renames it: `path` is whole or not there."""
    import av

    unfinished = path.with_suffix(".decoding")
    images = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.uint8, shape=(frames, px, px, 3))
    with unfinished.open("r+b") as file:
        # Claims the space now: writing to a map on a full disk would kill the process instead of raising.
        os.posix_fallocate(file.fileno(), 0, unfinished.stat().st_size)
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
