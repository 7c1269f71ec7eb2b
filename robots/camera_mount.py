"""Whether the wrist camera still sits where it sat for a dataset: its own fingers, open, stand still in its picture.

`learn` finds what stands still in a dataset's start frames and how much it wanders from episode to episode (simulated
data moves its camera on purpose); `locate` finds the same in a live picture. Everything works on edges, so that light
and colours do not matter: start frames are aligned to their median again and again, ever sharper, by maximising the
correlation (ECC, Evangelidis and Psarakis 2008, `cv2.findTransformECC`), and what the median keeps is what stands
still. A motion is a shift of the picture's centre [px: right, down] and a rotation [degrees, clockwise as seen].
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from robocoach.datasets.contract import IMAGE_SIZE

FEWEST_EPISODES = 5
"""Below this the median does not tell what stands still from what lies in the same place by chance."""
EDGE_BLUR_PX, EDGE_LEVELS = 1.2, 10.0
"""Blur before the gradient, and the gradient [levels/px] that counts as half an edge."""
BLURS_PX = (6.0, 6.0, 4.0, 2.0, 1.0)
"""Of the edges, round by round: wide enough first for a wandering camera, sharp in the end."""
HALVED_FROM_PX = 4.0
"""Pictures blurred so much lose nothing at half their size, where a match takes a quarter of the time."""
STANDING_SHARE, LEAST_EDGE, LEAST_PX = 0.5, 0.3, 150
"""What stands still: this share of the strongest aligned edge, which is at least so strong, over so many pixels."""
AROUND_PX = 6
"""Margin around the standing edges that takes part in the match."""
FURTHEST_PX, COARSE = 64, 4
"""How far a moved mount is looked for, and the shrinking of the picture for that."""
TURNS_DEG = (-12.0, -8.0, -4.0, 0.0, 4.0, 8.0, 12.0)
MATCH_SHARE = 0.75
"""Of the dataset's poorest correlation: below it the hand is not in the picture as it was."""
SPREAD, MARGIN_PX, MARGIN_DEG = 1.2, 1.0, 0.3
"""Widening of the dataset's range, and the error of the match (0.2 px and 0.04 degrees on rendered frames)."""

DEVIATIONS = 3.0
"""A sum of small errors, as a mount's is, has rarer and further ends than a few episodes show."""


@dataclass(frozen=True)
class Motion:
    """How far the static part lies from the dataset's mean."""

    right_px: float
    down_px: float
    turn_deg: float
    """Clockwise as seen in the picture."""
    match: float
    """Correlation of the edges, 1 is perfect."""

    @property
    def numbers(self) -> np.ndarray:
        """(3,) right [px], down [px], turn [degrees]."""
        return np.array([self.right_px, self.down_px, self.turn_deg])


@dataclass(frozen=True)
class Mount:
    """What stands still in a dataset's start frames."""

    edges: np.ndarray
    """float32 (224, 224) in [0, 1]: the aligned edges, at the dataset's mean position."""
    mask: np.ndarray
    """uint8 (224, 224): 255 where they count."""
    motions: np.ndarray
    """(N, 3) of the episodes, relative to their mean."""
    least_match: float
    """Poorest correlation that still counts as a match."""

    @functools.cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest (3,) motion that is as in the data."""
        return widened(self.motions, np.array([MARGIN_PX, MARGIN_PX, MARGIN_DEG]), DEVIATIONS)

    def moved(self, motion: Motion | None) -> bool:
        """Whether the mount is not where it was in any episode; a hand that cannot be found counts as moved."""
        if motion is None:
            return True
        low, high = self.limits
        return bool(((motion.numbers < low) | (motion.numbers > high)).any())


def widened(values: np.ndarray, margin: np.ndarray | float, deviations: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """The range a further sample may fall in, from (N, …) samples: their range, widened.

    For N, by a fifth, and by a margin: N samples of an even spread cover (N − 1) / (N + 1) of it on average. It is at
    least so many standard deviations wide to either side of its middle.
    """
    count = len(values)
    low, high = values.min(axis=0), values.max(axis=0)
    half = (
        np.maximum((high - low) / 2 * (count + 1) / max(1, count - 1) * SPREAD, deviations * values.std(axis=0))
        + margin
    )
    return (low + high) / 2 - half, (low + high) / 2 + half


def learn(starts: np.ndarray) -> Mount | None:
    """From uint8 (N, 224, 224, 3) start frames with the hand open; None when nothing stands still in them."""
    import cv2

    if len(starts) < FEWEST_EPISODES:
        return None
    seen = np.stack([edges(image) for image in starts])
    warps = [np.eye(2, 3, dtype=np.float32)] * len(seen)
    model = seen.mean(axis=0)
    mask = np.full(model.shape, 255, np.uint8)
    matches = np.zeros(len(seen))
    for blur_px in BLURS_PX:
        found = [_refine(model, mask, image, warp, blur_px) for image, warp in zip(seen, warps, strict=True)]
        matches = np.array([match for match, _ in found])
        warps = _centred([warp if match else old for (match, warp), old in zip(found, warps, strict=True)])
        model = _median(seen, warps)
        standing = model > STANDING_SHARE * model.max()
        if model.max() < LEAST_EDGE or standing.sum() < LEAST_PX:
            return None
        around = np.ones((2 * AROUND_PX + 1,) * 2, np.uint8)
        mask = 255 * cv2.dilate(standing.astype(np.uint8), around)
    if (matches > 0).sum() < FEWEST_EPISODES:
        return None
    # Once more against the final model, in the way a live picture is looked at.
    mount = Mount(model, mask, np.zeros((1, 3)), 0.0)
    motions = [motion for image in starts if (motion := locate(mount, image)) is not None]
    least = MATCH_SHARE * min(motion.match for motion in motions)
    return Mount(model, mask, np.stack([motion.numbers for motion in motions]), least)


def locate(mount: Mount, image: np.ndarray) -> Motion | None:
    """Where the static part lies in a uint8 (224, 224, 3) picture; None when it is not there."""
    seen = edges(image)
    match, warp = _descend(mount, seen, np.eye(2, 3, dtype=np.float32))
    if not match or match < mount.least_match / MATCH_SHARE:
        match, warp = max(
            (match, warp), _descend(mount, seen, _search(mount.edges, mount.mask, seen)), key=lambda m: m[0]
        )
    if not match:
        return None
    right, down, turn = _motion(warp)
    if match < mount.least_match or math.hypot(right, down) > 1.5 * FURTHEST_PX:
        return None
    return Motion(right, down, turn, match)


def _descend(mount: Mount, seen: np.ndarray, warp: np.ndarray) -> tuple[float, np.ndarray]:
    """Round by round from a first guess; a blurred round that finds nothing leaves its guess to the next one."""
    match = 0.0
    for blur_px in BLURS_PX[1:]:
        match, warp = _refine(mount.edges, mount.mask, seen, warp, blur_px)
    return match, warp


def edges(image: np.ndarray) -> np.ndarray:
    """float32 (H, W) in [0, 1): how much of an edge each pixel of a uint8 RGB picture is, hardly depending on light."""
    import cv2

    grey = cv2.GaussianBlur(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32), (0, 0), EDGE_BLUR_PX)
    across = cv2.Sobel(grey, cv2.CV_32F, 1, 0, scale=1 / 8)
    along = cv2.Sobel(grey, cv2.CV_32F, 0, 1, scale=1 / 8)
    strength = np.hypot(across, along)
    return strength / (strength + EDGE_LEVELS)


def _refine(
    model: np.ndarray, mask: np.ndarray, seen: np.ndarray, warp: np.ndarray, blur_px: float
) -> tuple[float, np.ndarray]:
    """Correlation and the warp that takes a pixel of `seen` to the model's; correlation 0 when it finds none."""
    import cv2

    shrink = 2 if blur_px >= HALVED_FROM_PX else 1
    size = (IMAGE_SIZE // shrink,) * 2
    small = [
        cv2.GaussianBlur(cv2.resize(p, size, interpolation=cv2.INTER_AREA), (0, 0), blur_px / shrink)
        for p in (seen, model)
    ]
    ends = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 50, 1e-4)
    begin = _rescaled(warp, 1 / shrink)
    try:
        match, found = cv2.findTransformECC(
            *small, begin, cv2.MOTION_EUCLIDEAN, ends, cv2.resize(mask, size, interpolation=cv2.INTER_AREA), 1
        )
    except cv2.error:
        return 0.0, warp
    return (float(match), _rescaled(found, shrink)) if np.isfinite(match) and match > 0 else (0.0, warp)


def _rescaled(warp: np.ndarray, scale: float) -> np.ndarray:
    """The same warp for pictures `scale` times the size, pixel centres at integers."""
    found = warp.astype(np.float32)
    half = np.full(2, 0.5)
    found[:, 2] = scale * (warp[:, 2] + half - warp[:, :2] @ half) - half + warp[:, :2] @ half
    return found


def _search(model: np.ndarray, mask: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """A coarse warp by trying turns and all shifts up to `FURTHEST_PX`."""
    import cv2

    def small(picture: np.ndarray) -> np.ndarray:
        return cv2.resize(picture, None, fx=1 / COARSE, fy=1 / COARSE, interpolation=cv2.INTER_AREA)

    border = FURTHEST_PX // COARSE
    field = np.pad(small(seen), border)
    whole = np.pad(np.ones((IMAGE_SIZE // COARSE,) * 2, np.float32), border)
    best, found = -1.0, np.eye(2, 3, dtype=np.float32)
    for turn in TURNS_DEG:
        turned = _turn(turn)
        pattern = small(cv2.warpAffine(model, turned, model.shape))
        weight = small(cv2.warpAffine(mask, turned, mask.shape).astype(np.float32) / 255)
        score = cv2.matchTemplate(field, pattern, cv2.TM_CCORR_NORMED, mask=weight)
        # The less of the pattern is left in the picture, the easier it matches: count only what is.
        inside = cv2.matchTemplate(whole, weight, cv2.TM_CCORR) / max(1e-6, float(weight.sum()))
        score = np.where(np.isfinite(score), score, -1.0) * np.sqrt(np.clip(inside, 0.0, 1.0))
        _, value, _, at = cv2.minMaxLoc(score)
        if value > best:
            best = value
            shifted = turned.copy()
            shifted[:, 2] += [COARSE * (at[0] - border), COARSE * (at[1] - border)]
            found = cv2.invertAffineTransform(shifted).astype(np.float32)
    return found


def _turn(degrees: float) -> np.ndarray:
    """(2, 3) rotation about the picture's centre, clockwise as seen."""
    import cv2

    middle = (IMAGE_SIZE - 1) / 2
    return cv2.getRotationMatrix2D((middle, middle), -degrees, 1.0)


def _motion(warp: np.ndarray) -> tuple[float, float, float]:
    """Shift of the picture's centre and turn of the static part, from the warp of a picture to the model."""
    import cv2

    forward = cv2.invertAffineTransform(warp)
    centre = np.array([(IMAGE_SIZE - 1) / 2] * 2)
    right, down = forward[:, :2] @ centre + forward[:, 2] - centre
    return float(right), float(down), math.degrees(math.atan2(forward[1, 0], forward[0, 0]))


def _centred(warps: list[np.ndarray]) -> list[np.ndarray]:
    """The warps to a model that lies at the mean of all pictures."""
    right, down, turn = np.mean([_motion(warp) for warp in warps], axis=0)
    mean = _turn(turn)
    mean[:, 2] += [right, down]
    return [(mean @ np.vstack([warp, [0, 0, 1]])).astype(np.float32) for warp in warps]


def _median(seen: np.ndarray, warps: list[np.ndarray]) -> np.ndarray:
    """Median of the aligned edges; 0 where half of them see nothing."""
    import cv2

    aligned = np.empty_like(seen)
    for image, warp, into in zip(seen, warps, aligned, strict=True):
        into[:] = cv2.warpAffine(image, warp, image.shape, borderMode=cv2.BORDER_CONSTANT, borderValue=(-1.0,))
    return np.maximum(0.0, np.median(aligned, axis=0)).astype(np.float32)
