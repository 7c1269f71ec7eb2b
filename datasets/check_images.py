"""Checks on images, made on small grey copies: black, uniform and frozen frames; a hash of the start frame."""

from __future__ import annotations

import numpy as np

from robocoach.datasets.check_findings import Fault, Finding, Severity, runs

SMALL_PX = 48
"""Side of the grey copies."""
BLACK_LEVEL = 8
"""Mean grey level, of 255, below which a frame is black."""
UNIFORM_LEVELS = 2.0
"""Standard deviation below which a frame shows nothing."""
FROZEN_LEVELS = 1
"""Largest change of any small pixel between two frozen frames; re-encoding alone makes about 1. Moving wrist
cameras, real and simulated, change some pixel by 2 at the very least."""
FROZEN_MOTION_RAD = 0.02
"""What a joint must move for a still image to be odd."""
FROZEN_ERROR_FRAMES = 3

BLACK = Fault(
    "black frames",
    "the camera showed nothing: the policy learns to act blind.",
    "cut the frames out, or leave the episode out; check exposure and cable",
)
UNIFORM = Fault(
    "frames of one colour",
    "the image carries no information, as from a lost stream or a covered lens.",
    "cut the frames out, or leave the episode out",
)
FROZEN = Fault(
    "frozen frames",
    "the image stays while the arm moves: it is older than its state, and the policy learns to act on an old view.",
    "cut the stretch out, or leave the episode out; check the camera's frame rate",
)
UNREADABLE = Fault(
    "images cannot be decoded",
    "the training stops at this file.",
    "take a fresh copy of the file, or leave the episode out",
)
NO_IMAGES = Fault(
    "no images",
    "a vision policy cannot learn from states alone.",
    "nothing to mend for a log of joint motion; otherwise restore the videos",
)


def small(image: np.ndarray) -> np.ndarray:
    """A uint8 (H, W, 3) image as uint8 (48, 48) grey, each pixel the mean of its area."""
    import cv2

    return cv2.resize(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), (SMALL_PX, SMALL_PX), interpolation=cv2.INTER_AREA)


def dark(greys: np.ndarray, every: int, episode: str) -> list[Finding]:
    """Black and uniform frames among small grey images (N, 48, 48); image j belongs to state `every` × j."""
    if not len(greys):
        return []
    level, spread = greys.mean(axis=(1, 2)), greys.std(axis=(1, 2))
    black = level < BLACK_LEVEL
    found = []
    for fault, flags in ((BLACK, black), (UNIFORM, (spread < UNIFORM_LEVELS) & ~black)):
        for first, length in runs(flags):
            what = f"{length} of {len(greys)} images, grey level {level[first]:.0f} of 255"
            found.append(Finding(fault, "error", what, episode, first * every, length * every, size=length))
    return found


def frozen(greys: np.ndarray, joints: np.ndarray, every: int, episode: str) -> list[Finding]:
    """Stretches of equal images (N, 48, 48) while the joints (T, J) [rad] move."""
    count = min(len(greys), -(-len(joints) // every))
    if count < 2:
        return []
    at = np.asarray(joints, dtype=np.float64)[np.arange(count) * every]
    images = greys[:count].astype(np.int16)
    same = np.array([np.abs(images[k + 1] - images[k]).max() <= FROZEN_LEVELS for k in range(count - 1)])
    found = []
    for first, length in runs(same):
        moved = float(np.abs(at[first : first + length + 1] - at[first]).max())
        if moved > FROZEN_MOTION_RAD:
            severity: Severity = "error" if length >= FROZEN_ERROR_FRAMES else "warning"
            what = f"{length + 1} equal images while a joint moves {moved:.2f} rad"
            found.append(Finding(FROZEN, severity, what, episode, first * every, (length + 1) * every, size=moved))
    return found


def image_hash(grey: np.ndarray) -> np.ndarray:
    """bool (72,): whether each of 9 × 8 areas is brighter than its right neighbour; like images differ in few."""
    rows = np.array_split(np.asarray(grey, dtype=np.float64), 8, axis=0)
    cells = np.array([[cell.mean() for cell in np.array_split(row, 10, axis=1)] for row in rows])
    return (cells[:, 1:] > cells[:, :-1]).ravel()
