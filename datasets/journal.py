"""The journal: finished episodes, one folder each, committed atomically, from which a dataset is assembled.

LeRobot's recorder writes its parquet footer only when it finalises, so a kill loses the whole recording. Here an
episode is written into a hidden folder, flushed to the disk and renamed: it is there completely or not at all, and
a kill loses at most the episode in flight. Several processes may write different indices at once. Knows nothing of
LeRobot (`record.py` assembles) and nothing of who makes the episodes.

    <folder>/000012/wrist.mp4      the images, encoded once
    <folder>/000012/numbers.npz    states, actions, stages, privileged
    <folder>/000012/episode.json   task, seed, success, length, statistics of the pixels
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import zipfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.configs.files import sync
from robocoach.datasets import video
from robocoach.datasets.episode import Episode

VIDEO_FILE = "wrist.mp4"
NUMBERS_FILE = "numbers.npz"
EPISODE_FILE = "episode.json"
IN_FLIGHT = ".writing-"


@dataclass(frozen=True)
class Record:
    """What the journal knows of one episode without decoding its images."""

    index: int
    video: Path
    states: np.ndarray
    """float32 (T, 8) [rad, m]"""
    actions: np.ndarray
    """float32 (T, 8) [rad, m]"""
    stages: np.ndarray
    """int64 (T,)"""
    privileged: np.ndarray | None
    """float32 (T, P)"""
    task: str
    seed: int
    success: bool
    pixels: dict[str, list[float]]
    """Statistics of the pixels in [0, 1] by name (`mean`, `q01`, …), three channels each, and `count`."""

    def episode(self) -> Episode:
        """The episode with its images decoded."""
        images = np.stack(list(video.decode(self.video)))
        return Episode(
            images, self.states, self.actions, self.stages, self.privileged, self.task, self.seed, self.success
        )


class Journal:
    """A folder of finished episodes. Opening it removes what a killed writer left half written.

    Raises UserError when the folder cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the journal folder {folder} ({error.strerror}); choose another") from error
        self._remove_abandoned()

    def add(self, index: int, episode: Episode) -> None:
        """Commits one episode under its index (0 or more); returns when it is on the disk.

        Raises FileExistsError when the index is taken, and UserError when the disk is full or read-only.
        """
        final = self._path(index)
        try:
            with self._in_flight(index) as folder:
                video.encode(episode.images, folder / VIDEO_FILE)
                _write_numbers(folder / NUMBERS_FILE, episode)
                (folder / EPISODE_FILE).write_text(json.dumps(_description(episode), indent=1) + "\n")
                for path in (*folder.iterdir(), folder):
                    sync(path)
                if final.exists():
                    raise FileExistsError(f"episode {index} is already in {self.folder}")
                folder.rename(final)
                sync(self.folder)
        except FileExistsError:
            raise
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(
                f"cannot write episode {index} to {self.folder} ({reason}); make room, then resume"
            ) from error

    def done(self) -> list[int]:
        """The indices of finished episodes, ascending."""
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def read(self, index: int) -> Record:
        """One finished episode without its images. Raises UserError when its files are broken."""
        folder = self._path(index)
        try:
            described = json.loads((folder / EPISODE_FILE).read_text())
            with np.load(folder / NUMBERS_FILE) as numbers:
                arrays = {name: numbers[name] for name in numbers.files}
            return Record(
                index=index,
                video=folder / VIDEO_FILE,
                states=arrays["states"],
                actions=arrays["actions"],
                stages=arrays["stages"],
                privileged=arrays.get("privileged"),
                task=described["task"],
                seed=described["seed"],
                success=described["success"],
                pixels=described["pixels"],
            )
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(f"episode {folder} cannot be read ({error}); delete that folder, then resume") from error

    def _path(self, index: int) -> Path:
        if index < 0:
            raise ValueError(f"an episode's index is 0 or more, got {index}")
        return self.folder / f"{index:06d}"

    @contextlib.contextmanager
    def _in_flight(self, index: int) -> Generator[Path]:
        """A hidden folder that this process holds locked, so that nobody takes it for abandoned."""
        folder = self.folder / f"{IN_FLIGHT}{index:06d}-{os.getpid()}"
        with self._exclusive():
            folder.mkdir()
            held = os.open(folder, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)

    def _remove_abandoned(self) -> None:
        """Removes hidden folders whose writer is gone: a process's locks end with it, however it ended."""
        with self._exclusive():
            for folder in self.folder.glob(f"{IN_FLIGHT}*"):
                held = os.open(folder, os.O_RDONLY)
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                except BlockingIOError:
                    pass
                finally:
                    os.close(held)

    @contextlib.contextmanager
    def _exclusive(self) -> Generator[None]:
        """Keeps making a hidden folder and looking for abandoned ones apart."""
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _write_numbers(path: Path, episode: Episode) -> None:
    arrays = {"states": episode.states, "actions": episode.actions, "stages": episode.stages}
    if episode.privileged is not None:
        arrays["privileged"] = episode.privileged
    np.savez(path, allow_pickle=False, **arrays)


def _description(episode: Episode) -> dict[str, object]:
    return {
        "task": episode.task,
        "seed": episode.seed,
        "success": episode.success,
        "length": len(episode),
        "pixels": pixel_statistics(episode.images),
    }


def pixel_statistics(images: np.ndarray) -> dict[str, list[float]]:
    """Statistics per channel in [0, 1] that LeRobot keeps of images, from every fourth pixel of every fourth frame."""
    sample = images[::4, ::4, ::4].reshape(-1, 3)
    levels = np.arange(256) / 255.0
    names = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")
    statistics: dict[str, list[float]] = {name: [] for name in names}
    for channel in sample.T:
        counts = np.bincount(channel, minlength=256)
        share = np.cumsum(counts) / counts.sum()
        mean = float(levels @ counts / counts.sum())
        deviation = float(np.sqrt((levels - mean) ** 2 @ counts / counts.sum()))
        present = np.flatnonzero(counts)
        at = [int(np.searchsorted(share, q)) for q in (0.01, 0.1, 0.5, 0.9, 0.99)]
        values = [levels[present[0]], levels[present[-1]], mean, deviation, *levels[at]]
        for name, value in zip(names, values, strict=True):
            statistics[name].append(float(value))
    statistics["count"] = [float(len(images))]
    return statistics
