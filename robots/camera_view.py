"""The live picture beside the data's, as pictures: the blend, the data's edges drawn over it, one sheet of all.

`Watch` follows a camera and keeps what is to be shown; whoever shows it (a page, a file, a terminal) only reads. The
pictures that are compared come from a thread of their own, so that the camera is never waited for.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from robocoach.datasets.contract import IMAGE_SIZE, Contract
from robocoach.robots import camera_compare, camera_mount
from robocoach.robots.camera import Camera, CameraInfo
from robocoach.robots.camera_compare import Comparison, Reference

COMPARE_EVERY_S = 0.5
POLL_S = 0.02
RATE_OVER_S = 2.0
SAME_FOV_DEG = 0.5
ENLARGED = 2
EDGE_COLOUR = (0, 255, 120)
VIEWS = ("live", "data", "blend", "edges")


@dataclass(frozen=True)
class Look:
    """What there is to be seen now."""

    image: np.ndarray | None
    """uint8 RGB (224, 224, 3); None before the first frame."""
    age_s: float
    rate_hz: float
    """Frames a second, over the last two seconds."""
    frames: int
    comparison: Comparison | None
    """None without a dataset, or before the first comparison."""

    def words(self) -> str:
        """One line for a terminal."""
        if self.image is None:
            return "no frame yet"
        line = f"{self.rate_hz:4.1f} frames/s, {1000 * self.age_s:3.0f} ms old"
        found = self.comparison
        return f"{line}; {found.light.words}; {found.mount_words}" if found is not None else line


class Watch:
    """Follows a camera until closed."""

    def __init__(self, camera: Camera, reference: Reference | None) -> None:
        self._camera, self.reference = camera, reference
        self._arrivals: list[float] = []
        self._frames, self._last = 0, None
        self._comparison: Comparison | None = None
        self._done = threading.Event()
        jobs = [self._follow] if reference is None else [self._follow, self._compare]
        self._threads = [threading.Thread(target=job, name="camera-watch", daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()

    def now(self) -> Look:
        """The newest of everything."""
        frame, now = self._camera.latest(), time.monotonic()
        recent = [at for at in list(self._arrivals) if at > now - RATE_OVER_S]
        return Look(
            image=frame.image if frame is not None else None,
            age_s=now - frame.captured_s if frame is not None else np.inf,
            rate_hz=(len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 2 else 0.0,
            frames=self._frames,
            comparison=self._comparison,
        )

    def close(self) -> None:
        """Ends the threads; the camera is the caller's."""
        self._done.set()
        for thread in self._threads:
            thread.join(timeout=2.0)

    def _follow(self) -> None:
        while not self._done.wait(POLL_S):
            self._camera.trigger()
            frame = self._camera.latest()
            if frame is not None and frame is not self._last:
                self._last = frame
                self._frames += 1
                self._arrivals = [*self._arrivals[-200:], time.monotonic()]

    def _compare(self) -> None:
        while not self._done.wait(COMPARE_EVERY_S):
            frame = self._camera.latest()
            if frame is not None and self.reference is not None:
                self._comparison = camera_compare.compare(self.reference, frame.image)


def nearest(reference: Reference, image: np.ndarray) -> np.ndarray:
    """The data's start frame whose light is most like this picture's, uint8 (224, 224, 3)."""
    mine = camera_compare.histogram(image)
    far = [camera_compare.distance(mine, other).sum() for other in reference.histograms]
    return reference.images[int(np.argmin(far))]


def views(image: np.ndarray, reference: Reference | None) -> dict[str, np.ndarray]:
    """`live`, and with a dataset `data`, `blend` and `edges`: uint8 RGB pictures of one size."""
    if reference is None:
        return {"live": image}
    beside = nearest(reference, image)
    return {
        "live": image,
        "data": beside,
        "blend": ((image.astype(np.uint16) + beside) // 2).astype(np.uint8),
        "edges": _drawn_over(image, reference),
    }


def sheet(image: np.ndarray, reference: Reference | None) -> np.ndarray:
    """All views side by side, twice as large, uint8 RGB."""
    import cv2

    titles = {"live": "now", "data": "the data", "blend": "both", "edges": "now, the data's hand in green"}
    shown = []
    for name, picture in views(image, reference).items():
        side = ENLARGED * IMAGE_SIZE
        large = cv2.resize(picture, (side, side), interpolation=cv2.INTER_NEAREST)
        head = np.full((28, side, 3), 255, np.uint8)
        cv2.putText(head, titles[name], (8, 20), cv2.FONT_HERSHEY_SIMPLEX, 0.55, (40, 40, 40), 1, cv2.LINE_AA)
        shown.append(np.vstack([head, large]))
        shown.append(np.full((large.shape[0] + 28, 8, 3), 255, np.uint8))
    return np.hstack(shown[:-1])


def differences(info: CameraInfo | None, contract: Contract | None) -> list[str]:
    """What the camera says of itself and the data's contract says otherwise, one line each."""
    if info is None or contract is None:
        return []
    lines = []
    for name, here in info.provenance.items():
        there = getattr(contract.provenance, name)
        if isinstance(here, float) and isinstance(there, float):
            alike = abs(here - there) < SAME_FOV_DEG
        else:
            alike = here == there
        if not alike:
            lines.append(f"{name}: {here!r} here, {there!r} in the data")
    return lines


def as_json(look: Look, info: CameraInfo | None) -> dict[str, Any]:
    """Everything that is known, for a page or a file."""
    found: dict[str, Any] = {
        "frames": look.frames,
        "rate_hz": round(look.rate_hz, 1),
        "age_ms": round(1000 * look.age_s, 1) if np.isfinite(look.age_s) else None,
    }
    if info is not None:
        described = dataclasses.asdict(info)
        found["camera"] = {key: value for key, value in described.items() if value not in (None, "", ())}
    if look.comparison is not None:
        light, motion = look.comparison.light, look.comparison.motion
        found["light"] = {
            "words": light.words,
            "as_in_the_data": light.as_in_the_data,
            "distance_levels": [round(float(x), 1) for x in light.distance],
            "allowed_levels": [round(float(x), 1) for x in light.allowed_distance],
            "brightness": round(light.brightness, 1),
            "brightness_range": [round(x, 1) for x in light.brightness_range],
        }
        found["mount"] = {
            "words": look.comparison.mount_words,
            "moved": look.comparison.moved,
            "right_px": round(motion.right_px, 1) if motion is not None else None,
            "down_px": round(motion.down_px, 1) if motion is not None else None,
            "turn_deg": round(motion.turn_deg, 2) if motion is not None else None,
        }
    return found


def _drawn_over(image: np.ndarray, reference: Reference) -> np.ndarray:
    """The picture with the edges of the data's standing hand drawn over it; of its start frames where none stands."""
    if reference.mount is not None:
        strength = reference.mount.edges * (reference.mount.mask > 0)
    else:
        strength = np.mean([camera_mount.edges(other) for other in reference.images[:16]], axis=0)
    weight = np.clip(strength / max(1e-6, float(strength.max())), 0, 1)[..., None]
    return (image * (1 - weight) + np.array(EDGE_COLOUR) * weight).astype(np.uint8)
