"""What the control loop asks of a wrist camera, whatever delivers the frames."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from robocoach.robots.camera_geometry import Intrinsics


@dataclass(frozen=True)
class Frame:
    """One picture as the policy sees it."""

    image: np.ndarray
    """uint8 RGB (224, 224, 3)."""
    captured_s: float
    """Monotonic time at which it shows the world."""


class Camera(Protocol):
    """A source of wrist frames that never blocks the loop."""

    def trigger(self) -> None:
        """Asks for a frame as soon as possible; a free-running camera does nothing here."""
        ...

    def latest(self) -> Frame | None:
        """The newest frame, None before the first."""
        ...

    def newer_than(self, moment_s: float, timeout_s: float) -> Frame | None:
        """Waits for a frame captured after a monotonic time; None when none comes in time."""
        ...

    def close(self) -> None:
        """Frees the device."""
        ...


RECORDED = "recorded"
"""Model of the camera behind a recording that does not say."""


@dataclass
class Counters:
    """What has happened to a camera's frames since it was opened."""

    frames: int = 0
    """Frames handed on."""
    drops: int = 0
    """Frames the camera numbered and nobody saw."""
    reconnects: int = 0


@dataclass(frozen=True)
class CameraInfo:
    """What a camera says of itself, measured where it can be."""

    camera: str
    """As in a contract's provenance, such as `realsense-d435-colour`."""
    crop: str
    """As in a contract's provenance."""
    fov_deg: float | None
    """Vertical field of view of the picture after cropping; None when unknown."""
    mode: str
    """Resolution and rate, in words."""
    intrinsics: Intrinsics | None = None
    """Of the 224×224 picture; None when unknown."""
    exposure: str = ""
    """Exposure, gain and white balance, and whether they are fixed."""
    serial: str = ""
    notes: tuple[str, ...] = ()
    """What somebody should know, one line each."""

    @property
    def provenance(self) -> dict[str, object]:
        """The fields of a contract's provenance that the camera measures itself."""
        return {"camera": self.camera, "fov_deg": self.fov_deg, "crop": self.crop}


class FrameBox:
    """The newest frame, handed from a camera's thread to the loop's."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._frame: Frame | None = None

    def put(self, frame: Frame) -> None:
        """Replaces the newest frame."""
        with self._arrived:
            self._frame = frame
            self._arrived.notify_all()

    def latest(self) -> Frame | None:
        """The newest frame, None before the first."""
        return self._frame

    def newer_than(self, moment_s: float, timeout_s: float) -> Frame | None:
        """Waits for a frame captured after a monotonic time; None when none comes in time."""
        with self._arrived:
            found = self._arrived.wait_for(
                lambda: self._frame is not None and self._frame.captured_s > moment_s, timeout_s
            )
            return self._frame if found else None
