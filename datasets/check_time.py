"""Checks on time: the clock of an episode, gaps in it, its rate, and how many images belong to how many states."""

from __future__ import annotations

import numpy as np

from robocoach.datasets.check_findings import Fault, Finding, Severity

GRID_TOLERANCE_S = 1e-3
"""A timestamp may be this far from its place on the grid; LeRobot's loader allows a tenth of it by default."""
GAP = 2.5
"""A step of this many usual steps is a gap."""
RATE_TOLERANCE = 0.05
"""Relative difference between the declared and the measured rate."""

WALL_CLOCK = Fault(
    "wall-clock timestamps",
    "the times are when a computer got round to it, not frame number / fps: LeRobot's loader refuses them, and steps "
    "of different length look like different speeds to a policy.",
    "resample states and actions to a fixed rate by these times, then write timestamp = frame_index / fps",
)
OFF_GRID = Fault(
    "timestamps off the grid",
    "some frames are not where frame number / fps puts them: LeRobot's loader refuses the dataset or hands out a "
    "neighbouring image.",
    "write timestamp = frame_index / fps; if frames were lost, cut the episode there",
)
BACKWARDS = Fault(
    "clock goes backwards",
    "frames are out of order or two recordings were joined: differences in time are zero or negative there.",
    "sort the frames, or cut the episode at that place",
)
NOT_FINITE_TIME = Fault(
    "times that are no numbers", "nothing can be aligned with such a frame.", "remove the episode or restore its times"
)
GAP_FAULT = Fault(
    "gap in time",
    "nothing was recorded for several steps: the arm seems to jump and the action before the gap is wrong.",
    "cut the episode at the gap, or fill short ones by interpolation",
)
WRONG_RATE = Fault(
    "rate differs from the declared fps",
    "every chunk of actions is played too fast or too slow by that factor.",
    "declare the true rate, or resample",
)
RATE_UNKNOWN = Fault(
    "rate not documented",
    "nobody wrote down how many frames make a second: speeds, lags and the length of a chunk are unknown.",
    "ask the authors for the rate; a video header is no proof",
)
VIDEO_RATE = Fault(
    "images slower than the states",
    "only every n-th state has an image of its own; between them an image is older than its state.",
    "give every tick the nearest earlier image (`--real` does it on import), or train at the images' rate",
)
IMAGE_COUNT = Fault(
    "image count differs from the states",
    "states and images are shifted against each other or an end is missing; which image belongs to which state is a "
    "guess.",
    "find out whether the first or the last image is the extra one, then cut it; leave the episode out when unsure",
)


def timestamps(times_s: np.ndarray, fps: float | None, episode: str) -> list[Finding]:
    """An episode's times (T,) [s] against its declared rate; `fps` None means a free-running log."""
    times = np.asarray(times_s, dtype=np.float64)
    if len(times) == 0:
        return []
    bad = np.flatnonzero(~np.isfinite(times))
    if len(bad):
        what = f"{len(bad)} of {len(times)} times are not finite"
        return [Finding(NOT_FINITE_TIME, "error", what, episode, int(bad[0]), len(bad))]
    if len(times) < 2:
        return []
    steps = np.diff(times)
    found: list[Finding] = []
    back = np.flatnonzero(steps <= 0)
    if len(back):
        worst = steps.min()
        what = f"{len(back)} steps are not forward, the worst {worst * 1e3:.0f} ms"
        found.append(Finding(BACKWARDS, "error", what, episode, int(back[0]) + 1))
    usual = float(np.median(steps))
    if fps is not None:
        found += _against_grid(times, steps, fps, episode)
        if not back.size and abs(usual * fps - 1) > RATE_TOLERANCE:
            what = f"declared {fps:g} fps, but a usual step is {usual * 1e3:.1f} ms, {1 / usual:.1f} a second"
            found.append(Finding(WRONG_RATE, "error", what, episode))
    if usual > 0:
        for at in np.flatnonzero(steps > GAP * usual):
            what = f"{_ms(steps[at])} ms without a frame where {_ms(usual)} ms is usual"
            found.append(Finding(GAP_FAULT, "warning", what, episode, int(at), 2, size=float(steps[at])))
    return found


def _against_grid(times: np.ndarray, steps: np.ndarray, fps: float, episode: str) -> list[Finding]:
    wrong = np.abs(steps - 1 / fps) > GRID_TOLERANCE_S
    if not wrong.any():
        drift = np.abs(times - times[0] - np.arange(len(times)) / fps)
        if drift.max() <= 0.5 / fps:
            return []
        at = int(np.argmax(drift > 0.5 / fps))
        return [Finding(OFF_GRID, "error", "small steps add up to half a frame", episode, at)]
    what = f"steps of {_ms(steps.min())} to {_ms(steps.max())} ms, expected {_ms(1 / fps)} ms"
    first = int(np.argmax(wrong))
    worst = float(steps.max())
    if wrong.mean() > 0.2:
        return [Finding(WALL_CLOCK, "error", f"{what} ({wrong.mean():.0%} of the steps differ)", episode, size=worst)]
    return [Finding(OFF_GRID, "error", f"{what} ({wrong.sum()} of {len(steps)} steps differ)", episode, first, 2)]


def _ms(seconds: float) -> str:
    milliseconds = seconds * 1e3
    return f"{milliseconds:.0f}" if abs(milliseconds) >= 20 else f"{milliseconds:.2f}"


def rates(rate_hz: float | None, image_hz: float | None, every: int, episode: str) -> list[Finding]:
    """What is declared about the rates of states and images."""
    if rate_hz is None:
        header = f"the mp4 header says {image_hz:g} fps" if image_hz else "no times, no rate"
        return [Finding(RATE_UNKNOWN, "warning", header, episode)]
    if every > 1:
        shown = f"{rate_hz / every:g}" if image_hz is None else f"{image_hz:g}"
        what = f"states at {rate_hz:g} Hz, images at {shown} Hz: image j belongs to state {every} j"
        return [Finding(VIDEO_RATE, "warning", what, episode)]
    if image_hz is not None and abs(image_hz / rate_hz - 1) > RATE_TOLERANCE:
        what = f"states at {rate_hz:g} Hz, images at {image_hz:g} Hz by the video's header"
        return [Finding(WRONG_RATE, "warning", what, episode)]
    return []


def image_count(images: int, expected: int, episode: str) -> list[Finding]:
    """How many images were decoded and how many the states need."""
    if images == expected:
        return []
    severity: Severity = "error" if images < expected else "warning"
    what = f"{images} images where the states need {expected} ({images - expected:+d})"
    return [Finding(IMAGE_COUNT, severity, what, episode, min(images, expected) - 1 if images else 0)]
