"""Which colour mode of a camera serves the contract: large enough, fast enough, of the right field of view, and small.

A smaller mode costs less transfer and conversion, so less age; the picture ends as 224×224 anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robocoach.configs.errors import UserError
from robocoach.configs.models import CameraConfig
from robocoach.datasets.contract import FPS, IMAGE_SIZE

FOV_TOLERANCE_DEG = 1.5
"""Modes of one camera whose fields of view differ by less are cut alike."""


@dataclass(frozen=True)
class Mode:
    """A colour mode."""

    width: int
    height: int
    fps: int
    fov_deg: float
    """Vertical field of view of its centre square."""

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.width}x{self.height} at {self.fps} Hz"


def choose(modes: Sequence[Mode], config: CameraConfig, fov_deg: float) -> tuple[Mode, tuple[str, ...]]:
    """The mode to open and what somebody should know of it.

    Of the modes whose square holds 224 pixels, those with the contract's field of view `fov_deg` are preferred, then
    those that reach `config.camera_fps`, then the smallest. Raises UserError, with the modes, when none serves.
    """
    notes = []
    sizes = ", ".join(mode.text for mode in sorted(modes, key=lambda mode: (mode.width, mode.height, mode.fps)))
    fitting = [
        mode
        for mode in modes
        if min(mode.width, mode.height) >= IMAGE_SIZE
        and mode.fps >= FPS
        and config.camera_width_px in (0, mode.width)
        and config.camera_height_px in (0, mode.height)
    ]
    if not fitting:
        asked = f"{config.camera_width_px or 'any'}x{config.camera_height_px or 'any'}"
        raise UserError(
            f"the RealSense has no colour mode of {asked} pixels with a side of {IMAGE_SIZE} and {FPS} Hz at least; "
            f"it has {sizes or 'none'}: choose one with --camera-width-px and --camera-height-px, or use USB 3"
        )
    alike = [mode for mode in fitting if abs(mode.fov_deg - fov_deg) <= FOV_TOLERANCE_DEG]
    fitting = alike or fitting
    fast = [mode for mode in fitting if mode.fps >= config.camera_fps]
    if not fast:
        rate = max(mode.fps for mode in fitting)
        notes.append(f"it gives {rate} Hz at most where {config.camera_fps} Hz was asked for")
        fast = [mode for mode in fitting if mode.fps == rate]
    return min(fast, key=lambda mode: (min(mode.width, mode.height), mode.width, mode.fps)), tuple(notes)
