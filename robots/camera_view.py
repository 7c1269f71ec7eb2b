"""The live picture beside the data's: what a page, a file or a terminal shows of a camera.

`Watch` follows a camera and keeps what is to be shown; whoever shows it only reads. The pictures that are compared come
from a thread of its own, so that the camera is never waited for.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets import contract as contracts
from robocoach.datasets.contract import Contract
from robocoach.robots import camera_compare, camera_mount
from robocoach.robots.camera import RECORDED, Camera, CameraInfo, Counters
from robocoach.robots.camera_compare import Comparison, Reference

COMPARE_EVERY_S = 0.5
TRIGGER_EVERY_S = 1 / 15
"""Often enough for the eye; the twin renders a picture for each."""
RATE_OVER_S = 2.0
GONE_S = 1.0
"""A newest frame older than this means that the camera is gone."""
NEARER_SHARE = 0.8
"""Another start frame is shown instead when its light is so much nearer; without that the page would flicker."""
BINS = 32
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
    beside: np.ndarray | None = None
    """The data's start frame that is shown beside it, uint8 RGB (224, 224, 3)."""
    drops: int | None = None
    """Frames that were lost; None from a camera that does not number its frames."""
    reconnects: int = 0
    age_from: str = ""
    """Where the age comes from, in words."""

    def words(self) -> str:
        """One line for a terminal."""
        if self.image is None:
            return "no frame yet"
        if self.age_s > GONE_S:
            return f"no frame for {self.age_s:.1f} s: is the camera plugged in?"
        line = f"{self.rate_hz:4.1f} frames/s, {1000 * self.age_s:3.0f} ms old"
        line += f", {self.drops} lost" if self.drops is not None else ""
        line += f", back {self.reconnects} times" if self.reconnects else ""
        found = self.comparison
        return f"{line}; {found.light.words}; {found.mount_words}" if found is not None else line


@dataclass(frozen=True)
class Field:
    """One field of the camera's provenance, here and in the contract it is held against."""

    name: str
    here: object
    there: object
    alike: bool
    """Equal, or different in a way that needs no `--accept`."""

    @property
    def words(self) -> str:
        """One line."""
        return f"{self.name}: {self.here!r} here, {self.there!r} in the data"


class Watch:
    """Follows a camera until closed."""

    def __init__(self, camera: Camera, reference: Reference | None) -> None:
        self._camera, self.reference = camera, reference
        self._seen: list[tuple[float, int]] = []
        self._frames, self._last = 0, None
        self._comparison: Comparison | None = None
        self._beside: int | None = None
        self._done = threading.Event()
        jobs = [self._follow] if reference is None else [self._follow, self._compare]
        self._threads = [threading.Thread(target=job, name="camera-watch", daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()

    def now(self) -> Look:
        """The newest of everything."""
        frame, now = self._camera.latest(), time.monotonic()
        recent = [(at, frames) for at, frames in self._seen if at > now - RATE_OVER_S] or [(now, self._frames)]
        (begun, before), (ended, after) = recent[0], recent[-1]
        counted = self._counters()
        beside = self._beside
        return Look(
            image=frame.image if frame is not None else None,
            age_s=now - frame.captured_s if frame is not None else np.inf,
            rate_hz=(after - before) / (ended - begun) if ended > begun else 0.0,
            frames=self._frames,
            comparison=self._comparison,
            beside=None if beside is None or self.reference is None else self.reference.images[beside],
            drops=None if counted is None else counted.drops,
            reconnects=0 if counted is None else counted.reconnects,
            age_from=getattr(self._camera, "age_from", ""),
        )

    def close(self) -> None:
        """Ends the threads; the camera is the caller's."""
        self._done.set()
        for thread in self._threads:
            thread.join(timeout=2.0)

    def _counters(self) -> Counters | None:
        counters = getattr(self._camera, "counters", None)
        return counters if isinstance(counters, Counters) else None

    def _follow(self) -> None:
        while not self._done.is_set():
            begun = time.monotonic()
            self._camera.trigger()
            frame = self._camera.newer_than(self._last.captured_s if self._last else 0.0, TRIGGER_EVERY_S)
            if frame is not None and frame is not self._last:
                self._last = frame
                counted = self._counters()  # a camera that counts sends more than are looked at here
                self._frames = counted.frames if counted is not None else self._frames + 1
                self._seen = [*self._seen[-200:], (time.monotonic(), self._frames)]
            self._done.wait(max(0.0, begun + TRIGGER_EVERY_S - time.monotonic()))

    def _compare(self) -> None:
        compared = None
        while not self._done.wait(COMPARE_EVERY_S if compared is not None else 0.05):
            frame = self._camera.latest()
            if frame is not None and self.reference is not None and frame is not compared:
                self._beside = nearest(self.reference, frame.image, self._beside)
                self._comparison = camera_compare.compare(self.reference, frame.image)
                compared = frame


def nearest(reference: Reference, image: np.ndarray, shown: int | None = None) -> int:
    """Which of the data's start frames is most like this picture in light; `shown` stays unless another is nearer."""
    mine = camera_compare.histogram(image)
    far = [float(camera_compare.distance(mine, other).sum()) for other in reference.histograms]
    best = int(np.argmin(far))
    return shown if shown is not None and far[best] > NEARER_SHARE * far[shown] else best


def views(image: np.ndarray, reference: Reference | None, beside: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """`live`, and with a dataset `data`, `blend` and `edges`: uint8 RGB pictures of one size.

    `beside` is the start frame to show (the nearest in light if None).
    """
    if reference is None:
        return {"live": image}
    beside = reference.images[nearest(reference, image)] if beside is None else beside
    return {
        "live": image,
        "data": beside,
        "blend": ((image.astype(np.uint16) + beside) // 2).astype(np.uint8),
        "edges": _drawn_over(image, reference),
    }


def fields(info: CameraInfo | None, contract: Contract | None) -> list[Field]:
    """What the camera measures of its provenance, held against a contract by the rule that `deploy` goes by.

    Empty for a recording that says nothing of its camera.
    """
    if info is None or contract is None or info.camera == RECORDED:
        return []
    found = []
    for name, here in info.provenance.items():
        ours = contract.model_copy(update={"provenance": contract.provenance.model_copy(update={name: here})})
        try:
            contracts.check(ours, contract, "the data")
            alike = True
        except UserError:
            alike = False
        found.append(Field(name, here, getattr(contract.provenance, name), alike))
    return found


def as_json(look: Look, info: CameraInfo | None, reference: Reference | None = None) -> dict[str, Any]:
    """Everything that is known, for a page or a file."""
    found: dict[str, Any] = {
        "frames": look.frames,
        "rate_hz": round(look.rate_hz, 1),
        "age_ms": round(1000 * look.age_s, 1) if np.isfinite(look.age_s) else None,
        "age_from": look.age_from,
        "drops": look.drops,
        "reconnects": look.reconnects,
        "gone": look.age_s > GONE_S,
    }
    if info is not None:
        described = dataclasses.asdict(info)
        found["camera"] = {key: value for key, value in described.items() if value not in (None, "", ())}
    if look.comparison is not None:
        light = look.comparison.light
        found["light"] = {
            "words": light.words,
            "as_in_the_data": light.as_in_the_data,
            "distance_levels": [round(float(x), 1) for x in light.distance],
            "allowed_levels": [round(float(x), 1) for x in light.allowed_distance],
            "brightness": round(light.brightness, 1),
            "brightness_range": [round(x, 1) for x in light.brightness_range],
        }
        found["mount"] = _mount(look.comparison, reference)
    if reference is not None and look.image is not None:
        found["histograms"] = {
            "live": _binned(camera_compare.histogram(look.image)),
            "data": _binned(reference.histogram),
        }
        found["episodes"] = len(reference.episodes)
    return found


def _mount(comparison: Comparison, reference: Reference | None) -> dict[str, Any]:
    motion = comparison.motion
    found: dict[str, Any] = {
        "words": comparison.mount_words,
        "moved": comparison.moved,
        "right_px": round(motion.right_px, 1) if motion is not None else None,
        "down_px": round(motion.down_px, 1) if motion is not None else None,
        "turn_deg": round(motion.turn_deg, 2) if motion is not None else None,
    }
    if reference is not None and reference.mount is not None:
        low, high = reference.mount.limits
        found["limits"] = [[round(float(a), 1), round(float(b), 1)] for a, b in zip(low, high, strict=True)]
        found["episodes"] = [[round(float(x), 1) for x in row] for row in reference.mount.motions]
    return found


def _binned(levels: np.ndarray) -> list[list[float]]:
    """(3, 256) → 3 lists of 32 shares."""
    return [[round(float(share), 4) for share in channel] for channel in levels.reshape(3, BINS, -1).sum(axis=2)]


def _drawn_over(image: np.ndarray, reference: Reference) -> np.ndarray:
    """The picture with the edges of the data's standing hand drawn over it; of its start frames where none stands."""
    if reference.mount is not None:
        strength = reference.mount.edges * (reference.mount.mask > 0)
    else:
        strength = np.mean([camera_mount.edges(other) for other in reference.images[:16]], axis=0)
    weight = np.clip(strength / max(1e-6, float(strength.max())), 0, 1)[..., None]
    return (image * (1 - weight) + np.array(EDGE_COLOUR) * weight).astype(np.uint8)
