"""What cropping and shrinking do to a picture and to its intrinsics: the centre square of a camera's frame, 224×224.

Pixel coordinates are OpenCV's and librealsense's: integers at pixel centres, so a picture spans −0.5 to width − 0.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from robocoach.datasets.contract import IMAGE_SIZE
from robocoach.datasets.video import resize


@dataclass(frozen=True)
class Intrinsics:
    """A pinhole camera; all but the sizes in pixels."""

    width: int
    height: int
    fx: float
    fy: float
    ppx: float
    ppy: float
    distortion: tuple[float, ...] = ()
    """Coefficients in normalised coordinates, which neither cropping nor scaling changes."""

    def cropped(self, left: int, top: int, side: int) -> Intrinsics:
        """Of the square that begins at pixel (left, top)."""
        return replace(self, width=side, height=side, ppx=self.ppx - left, ppy=self.ppy - top)

    def scaled(self, px: int) -> Intrinsics:
        """Of a square picture resized to px × px."""
        scale = px / self.width
        return replace(
            self,
            width=px,
            height=px,
            fx=self.fx * scale,
            fy=self.fy * scale,
            ppx=(self.ppx + 0.5) * scale - 0.5,
            ppy=(self.ppy + 0.5) * scale - 0.5,
        )

    def as_contract(self) -> Intrinsics:
        """Of the picture that `as_contract` makes of a frame."""
        return self.cropped(*centre_square(self.width, self.height)).scaled(IMAGE_SIZE)

    def ray(self, x: float, y: float) -> tuple[float, float]:
        """Direction of a pixel at unit depth, without distortion: x to the right, y down."""
        return (x - self.ppx) / self.fx, (y - self.ppy) / self.fy

    @property
    def fov_deg(self) -> float:
        """Vertical field of view, from the upper edge of the picture to the lower."""
        above, below = (self.ppy + 0.5) / self.fy, (self.height - 0.5 - self.ppy) / self.fy
        return math.degrees(math.atan(above) + math.atan(below))


def centre_square(width: int, height: int) -> tuple[int, int, int]:
    """Left, top and side of the largest centred square."""
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side


def as_contract(colour: np.ndarray) -> np.ndarray:
    """uint8 RGB (H, W, 3) → (224, 224, 3): the centre square, area-resized."""
    left, top, side = centre_square(colour.shape[1], colour.shape[0])
    return np.ascontiguousarray(resize(colour[top : top + side, left : left + side], IMAGE_SIZE))
