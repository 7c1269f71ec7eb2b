"""Wrist pictures that were recorded: an mp4, an episode of a LeRobotDataset, an episode of this project's journal.

Reads single frames by seeking (every episode of this project begins with a key frame), so that the start frames of two
hundred episodes take a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets.columns import Columns, read_columns
from robocoach.datasets.contract import CONTRACT_FILE, FPS, IMAGE_KEY, STATE_KEY, Contract, GripperRule
from robocoach.datasets.journal import VIDEO_FILE, Journal
from robocoach.robots.camera_geometry import as_contract

VIDEO_ENDINGS = (".mp4", ".mkv", ".avi", ".mov")


@dataclass(frozen=True)
class Clip:
    """A stretch of a video file."""

    path: Path
    begin_s: float
    frames: int | None
    """None is up to the end of the file."""
    rate_hz: float

    def images(self) -> Iterator[np.ndarray]:
        """Yields uint8 RGB (224, 224, 3) in order. Raises UserError when the file cannot be decoded."""
        return (as_contract(image) for image in islice(_decode(self.path, self.begin_s), self.frames))


@dataclass(frozen=True)
class Starts:
    """The first wrist picture of episodes that begin with an open hand."""

    episodes: tuple[int, ...]
    images: np.ndarray
    """uint8 (N, 224, 224, 3)."""


def find_clip(path: Path, episode: int = 0) -> Clip:
    """The video of a file, or of an episode of a dataset or a journal. Raises UserError when there is none."""
    path = Path(path)
    if path.is_file() and path.suffix.lower() in VIDEO_ENDINGS:
        return Clip(path, 0.0, None, _rate_hz(path))
    clips = _clips(path)
    if episode not in clips:
        raise UserError(f"{path} has no episode {episode}; it has {len(clips)}, {min(clips)} to {max(clips)}")
    return clips[episode][0]


def read_starts(root: Path, most: int) -> Starts:
    """The first pictures of up to `most` episodes, spread evenly over a dataset or a journal. Raises UserError."""
    clips = _clips(Path(root))
    opened = [index for index, (_, width_m) in clips.items() if width_m > GripperRule().open_above_m]
    if not opened:
        raise UserError(f"no episode of {root} begins with an open hand, so its start frames compare with nothing")
    chosen = [opened[k] for k in np.unique(np.linspace(0, len(opened) - 1, min(most, len(opened))).astype(int))]
    return Starts(tuple(chosen), np.stack([next(clips[index][0].images()) for index in chosen]))


def contract_of(root: Path) -> Contract | None:
    """The contract in a dataset, a journal or a checkpoint; None when there is none. Raises UserError."""
    return Contract.load(Path(root)) if (Path(root) / CONTRACT_FILE).is_file() else None


def _clips(root: Path) -> dict[int, tuple[Clip, float]]:
    """By episode: its video, and the hand's width [m] in its first frame."""
    if (root / "meta").is_dir():
        return _dataset_clips(read_columns(root))
    if root.is_dir() and any((folder / VIDEO_FILE).is_file() for folder in root.glob("[0-9]*")):
        journal = Journal(root)
        records = [journal.read(index) for index in journal.done()]
        return {r.index: (Clip(r.video, 0.0, len(r.states), FPS), float(r.states[0, -1])) for r in records}
    raise UserError(f"{root} is no recording; name a LeRobotDataset, a journal of episodes, or an mp4")


def _dataset_clips(columns: Columns) -> dict[int, tuple[Clip, float]]:
    episodes = columns.episodes
    files = {(int(path.parent.name.split("-")[1]), int(path.stem.split("-")[1])): path for path in columns.videos}
    clips = {}
    for k, index in enumerate(episodes["episode_index"]):
        place = tuple(episodes[f"videos/{IMAGE_KEY}/{part}"][k] for part in ("chunk_index", "file_index"))
        if place not in files:
            raise UserError(f"the video of episode {index} is missing; take a fresh copy or make the dataset again")
        begin_s = float(episodes[f"videos/{IMAGE_KEY}/from_timestamp"][k])
        width_m = float(columns.frames[STATE_KEY][episodes["dataset_from_index"][k], -1])
        clips[index] = Clip(files[place], begin_s, episodes["length"][k], FPS), width_m
    return clips


def _decode(path: Path, begin_s: float) -> Iterator[np.ndarray]:
    import av

    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.thread_count = 1
            assert stream.time_base is not None
            if begin_s > 0:
                container.seek(round(begin_s / stream.time_base), stream=stream)
            for frame in container.decode(stream):
                if frame.time is None or frame.time >= begin_s - 0.5 / FPS:
                    yield frame.to_ndarray(format="rgb24")
    except (av.FFmpegError, IndexError) as error:
        raise UserError(f"{path} cannot be decoded ({error}); take a fresh copy or record it again") from error


def _rate_hz(path: Path) -> float:
    import av

    try:
        with av.open(str(path)) as container:
            rate = container.streams.video[0].average_rate
    except (av.FFmpegError, IndexError) as error:
        raise UserError(f"{path} is no video ({error}); name an mp4, a dataset or a journal") from error
    return float(rate or FPS)
