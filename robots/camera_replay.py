"""Recorded pictures as a wrist camera, at the rate they were recorded: for tests and for dry runs without a camera."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import Contract
from robocoach.robots.camera import RECORDED, CameraInfo, Counters, Frame, FrameBox
from robocoach.robots.camera_recorded import Clip, contract_of, find_clip


class Replay:
    """Plays a clip; a frame is captured when its turn comes. Use `close` at the end."""

    def __init__(self, clip: Clip, *, repeat: bool = True, contract: Contract | None = None) -> None:
        """Starts playing. Without `repeat` frames stop after the last one; `contract` is the recording's."""
        self._clip, self._repeat, self._contract = clip, repeat, contract
        self._box = FrameBox()
        self.counters = Counters()
        self._fault = ""
        next(clip.images())  # a broken file shows here, not in the thread
        self._done = threading.Event()
        self._player = threading.Thread(target=self._play, name="replay", daemon=True)
        self._player.start()

    def trigger(self) -> None:
        """Does nothing: the clip plays on."""

    def latest(self) -> Frame | None:
        """The newest frame."""
        return self._box.latest()

    def newer_than(self, moment_s: float, timeout_s: float) -> Frame | None:
        """Waits for a frame captured after a monotonic time; None when none comes in time."""
        return self._box.newer_than(moment_s, timeout_s)

    def close(self) -> None:
        """Ends playing."""
        self._done.set()
        self._player.join(timeout=2.0)

    def info(self) -> CameraInfo:
        """What the recording says of its camera."""
        of = self._contract.provenance if self._contract is not None else None
        return CameraInfo(
            camera=of.camera if of else RECORDED,
            crop=of.crop if of else "unknown",
            fov_deg=of.fov_deg if of else None,
            mode=f"{self._clip.path.name} at {self._clip.rate_hz:g} Hz",
            notes=(self._fault,) if self._fault else (),
        )

    def _play(self) -> None:
        try:
            self._play_through()
        except UserError as error:  # broken in the middle: the frames stop, as those of a broken camera do
            self._fault = str(error)

    def _play_through(self) -> None:
        begin = time.monotonic()
        count = itertools.count()
        while not self._done.is_set():
            for image in self._clip.images():
                due = begin + next(count) / self._clip.rate_hz
                if self._done.wait(max(0.0, due - time.monotonic())):
                    return
                self._box.put(Frame(image, time.monotonic()))
                self.counters.frames += 1
            if not self._repeat:
                return


def open_replay(path: Path, episode: int = 0, *, repeat: bool = True) -> Replay:
    """An mp4, or an episode of a dataset or a journal, as a camera. Raises UserError when there is none."""
    path = Path(path)
    contract = contract_of(path) if path.is_dir() else None
    return Replay(find_clip(path, episode), repeat=repeat, contract=contract)
