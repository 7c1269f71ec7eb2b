"""What the wrist camera shows now beside what a dataset's start frames looked like: light, colours, and the mount.

Every limit comes from the dataset's own spread over its episodes, so data that was recorded in all lights allows all
lights, and data from one bench asks for that bench's. A `Reference` is made once a dataset and kept beside it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robocoach.robots import camera_mount
from robocoach.robots.camera_mount import Motion, Mount
from robocoach.robots.camera_recorded import read_starts

MOST_EPISODES = 64
CHANNELS = ("red", "green", "blue")
LEVELS = 256
MARGIN_DISTANCE, MARGIN_LEVELS, MARGIN_TINT = 2.0, 3.0, 0.02
"""What a picture may differ beyond the data's range: noise and quantisation of a camera, in levels of 255 and as the
logarithm of a ratio of channels."""
CACHE_VERSION = 1


@dataclass(frozen=True)
class Reference:
    """A dataset's start frames, and what they have in common."""

    episodes: tuple[int, ...]
    images: np.ndarray
    """uint8 (N, 224, 224, 3)."""
    histograms: np.ndarray
    """(N, 3, 256), each channel sums to 1."""
    mount: Mount | None
    """None when nothing stands still in them, or too few episodes say so."""

    @property
    def histogram(self) -> np.ndarray:
        """(3, 256) of all pictures together."""
        return self.histograms.mean(axis=0)


@dataclass(frozen=True)
class Light:
    """A picture's light beside the data's."""

    distance: np.ndarray
    """(3,) earth mover's distance of each channel's histogram to the data's [levels of 255]."""
    allowed_distance: np.ndarray
    """(3,) what the data's own pictures stay below."""
    brightness: float
    """Mean level."""
    brightness_range: tuple[float, float]
    words: str
    """The verdict, such as `darker than the data (mean 43, data 92 to 246); colours as in the data`."""

    @property
    def as_in_the_data(self) -> bool:
        """Whether brightness, tint and all three histograms are within the data's range."""
        return self.words == AS_IN_THE_DATA


AS_IN_THE_DATA = "light and colours as in the data"


@dataclass(frozen=True)
class Comparison:
    """One live picture beside the data."""

    light: Light
    motion: Motion | None
    """None when the hand is not found, or there is nothing to look for."""
    moved: bool
    mount_words: str


def learn(images: np.ndarray, episodes: tuple[int, ...] | None = None) -> Reference:
    """From uint8 (N, 224, 224, 3) start frames."""
    numbers = tuple(range(len(images))) if episodes is None else episodes
    histograms = np.stack([histogram(image) for image in images])
    return Reference(numbers, images, histograms, camera_mount.learn(images))


def load(root: Path, cache_dir: Path | None = None) -> Reference:
    """The reference of a dataset or a journal; made once (about ten seconds) and kept in `cache_dir`
    (default `<root>.frames`). Raises UserError when the dataset cannot be read.
    """
    root = Path(root)
    starts = read_starts(root, MOST_EPISODES)
    cache = root.with_name(f"{root.name}.frames") if cache_dir is None else Path(cache_dir)
    # The pictures themselves are the key: reading them takes a second, learning from them ten.
    path = cache / f"camera-{CACHE_VERSION}-{_digest(starts.images)}.npz"
    if path.is_file():
        with contextlib.suppress(OSError, ValueError, KeyError), np.load(path) as kept:
            mount = Mount(kept["edges"], kept["mask"], kept["motions"], float(kept["least_match"]))
            histograms = np.stack([histogram(image) for image in starts.images])
            return Reference(starts.episodes, starts.images, histograms, mount if len(mount.motions) else None)
    made = learn(starts.images, starts.episodes)
    with contextlib.suppress(OSError):  # a folder that cannot be written costs the ten seconds again
        cache.mkdir(parents=True, exist_ok=True)
        nothing = Mount(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((0, 3)), 0.0)
        mount = made.mount or nothing
        part = path.with_name(f".{os.getpid()}-{path.name}")
        np.savez(part, edges=mount.edges, mask=mount.mask, motions=mount.motions, least_match=mount.least_match)
        part.replace(path)
    return made


def compare(reference: Reference, image: np.ndarray) -> Comparison:
    """A uint8 (224, 224, 3) picture, taken with the hand open, beside the data."""
    light = compare_light(reference, image)
    mount = reference.mount
    if mount is None:
        return Comparison(light, None, False, "nothing stands still in the data's start frames: mount not checked")
    motion = camera_mount.locate(mount, image)
    return Comparison(light, motion, mount.moved(motion), mount_words(mount, motion))


def compare_light(reference: Reference, image: np.ndarray) -> Light:
    """Histograms, brightness and tint of a uint8 RGB picture beside the data's."""
    pooled = reference.histogram
    mine = histogram(image)
    own = np.stack([distance(h, pooled) for h in reference.histograms])
    _, allowed = camera_mount.widened(np.concatenate([np.zeros((1, 3)), own]), MARGIN_DISTANCE)
    apart = distance(mine, pooled)
    brightness, (dark, bright) = _brightness(mine), _range(reference, _brightness, MARGIN_LEVELS)
    words = []
    if not dark <= brightness <= bright:
        seen = [_brightness(h) for h in reference.histograms]
        word = "darker" if brightness < dark else "brighter"
        words.append(f"{word} than the data (mean {brightness:.0f}, data {min(seen):.0f} to {max(seen):.0f})")
    tints = []
    for tint, more, less in ((_redness, "redder", "less red"), (_blueness, "bluer", "yellower")):
        low, high = _range(reference, tint, MARGIN_TINT)
        tints += [more] if tint(mine) > high else [less] if tint(mine) < low else []
    if tints:
        words.append(f"{' and '.join(tints)} than the data")
    wide = [name for name, far in zip(CHANNELS, apart > allowed, strict=True) if far]
    if wide and not words:
        words.append(f"{', '.join(wide)} spread unlike the data")
    return Light(apart, allowed, brightness, (dark, bright), "; ".join(words) or AS_IN_THE_DATA)


def mount_words(mount: Mount, motion: Motion | None) -> str:
    """Where the camera sits, in words."""
    if motion is None:
        return (
            "the open hand is not where the data shows it: the mount has moved far, the hand is closed, or something "
            "covers it"
        )
    sideways, along = motion.right_px, motion.down_px
    where = (
        f"{abs(sideways):.1f} px {'right' if sideways >= 0 else 'left'}, "
        f"{abs(along):.1f} px {'down' if along >= 0 else 'up'}, {motion.turn_deg:+.1f} deg"
    )
    if not mount.moved(motion):
        return f"mount as in the data ({where})"
    low, high = mount.limits
    names = (("sideways", "px"), ("up and down", "px"), ("turned", "deg"))
    beyond = [
        f"{name} {low[k]:+.1f} to {high[k]:+.1f} {unit}"
        for k, (name, unit) in enumerate(names)
        if not low[k] <= motion.numbers[k] <= high[k]
    ]
    return f"the mount has moved: {where}; the data stays within {', '.join(beyond)}"


def histogram(image: np.ndarray) -> np.ndarray:
    """(3, 256) share of the pixels of a uint8 RGB picture on each level."""
    counts = np.stack([np.bincount(image[..., c].ravel(), minlength=LEVELS) for c in range(3)])
    return counts / counts.sum(axis=1, keepdims=True)


def distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(3,) earth mover's distance of two (3, 256) histograms: by how many levels a pixel differs on average."""
    return np.abs(np.cumsum(one - other, axis=1)).sum(axis=1)


def _means(levels: np.ndarray) -> np.ndarray:
    return levels @ np.arange(LEVELS)


def _brightness(levels: np.ndarray) -> float:
    return float(_means(levels).mean())


def _redness(levels: np.ndarray) -> float:
    red, green, _ = _means(levels) + 1.0
    return float(np.log(red / green))


def _blueness(levels: np.ndarray) -> float:
    _, green, blue = _means(levels) + 1.0
    return float(np.log(blue / green))


def _range(reference: Reference, of: Callable[[np.ndarray], float], margin: float) -> tuple[float, float]:
    low, high = camera_mount.widened(np.array([of(h) for h in reference.histograms]), margin)
    return float(low), float(high)


def _digest(images: np.ndarray) -> str:
    import hashlib

    return hashlib.sha256(np.ascontiguousarray(images)).hexdigest()[:16]
