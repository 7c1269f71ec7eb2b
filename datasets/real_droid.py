"""DROID-style folders of real Panda teleoperation, read as episodes of the contract.

A folder holds `annotation/<split>/<id>.json` and `videos/<split>/<id>/2.mp4`, where camera 2 is the wrist. States
and actions come at 15 Hz, the wrist video at 5 Hz (image j belongs to state 3j), the gripper as 0 = open to
1 = closed. Here they become 10 Hz:

- State of tick k: linear interpolation at k / 10 s.
- Image of tick k: the nearest earlier one, image k // 2; on odd ticks it is 0.1 s old.
- Action of tick k: what was commanded for the next tick. Command i was sent at i / 15 s for the step that ends at
  (i + 1) / 15 s, so the command for (k + 1) / 10 s is interpolated at i = 1.5 k + 0.5.
- Width: (1 − gripper) × 0.085 m, the stroke of the Robotiq 2F-85, clipped to the contract's 0 to 0.080 m.
- Instruction: the first text that is not empty; an episode without one gets `UNLABELLED`, so that a policy can tell
  it from the labelled ones. Nothing is made up, nothing is dropped for it.
- Success: as the folder marks it. The mark is kept per episode and nothing is dropped for it: several episodes
  marked 0 plainly succeed (`val/899` moves its banana).

What `action.joint_position` is, checked on the 11 episodes of Ctrl-World's subset: the measured joints plus about
0.25 rad times DROID's normalised joint velocity (correlation with `action.joint_velocity` 0.991 to 0.997). So it is
an absolute joint position and it was commanded, but DROID's soft impedance control covers only 18 to 26 % of the
way within its step of 1/15 s: measured at 10 Hz, the commands match the joints best 0.28 to 0.36 s later (0.30 s
over all), and reach up to 0.32 rad ahead. A stiff joint tracker that is given these commands moves about three
times as fast as the demonstration. They are imported as they were given, as the contract says; the lead is measured
again on every import (`RealSummary.command_lead_s`) and is why the provenance field `controller` has to be accepted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.datasets import video
from robocoach.datasets.contract import FPS, IMAGE_SIZE, Contract, GripperRule, Provenance
from robocoach.datasets.episode import REAL_SEED, UNKNOWN_STAGE, Episode

STATE_HZ = 15
VIDEO_HZ = 5
STROKE_M = 0.085
"""Opening of a Robotiq 2F-85 at gripper position 0."""
WRIST_CAMERA = "2"
UNLABELLED = "teleoperation without a recorded instruction"

PROVENANCE = Provenance(
    robot="panda+robotiq-2f85",
    camera="zed, wrist, model not recorded",
    fov_deg=None,
    mount="DROID wrist mount, pose not recorded",
    crop="320x192 as published, centre square of 192, bilinear to 224x224",
    controller="DROID joint impedance, commands at 15 Hz that lead the arm by about 0.3 s",
    source="real",
)


@dataclass(frozen=True)
class DroidEpisode:
    """Where one episode lies."""

    name: str
    """Folder, split and number, `droid_subset/train/1`."""
    annotation: Path
    wrist: Path


class LeftOut(Exception):
    """An episode cannot be imported; the text says why."""


def find(path: Path) -> list[DroidEpisode]:
    """The DROID-style episodes in a folder or in its direct subfolders, in a fixed order."""
    found = []
    for folder in (path, *sorted(child for child in path.iterdir() if child.is_dir())):
        for annotation in sorted((folder / "annotation").glob("*/*.json"), key=_natural):
            split, number = annotation.parent.name, annotation.stem
            wrist = folder / "videos" / split / number / f"{WRIST_CAMERA}.mp4"
            found.append(DroidEpisode(f"{folder.name}/{split}/{number}", annotation, wrist))
    return found


def contract() -> Contract:
    """The contract of what `read` returns."""
    return Contract(provenance=PROVENANCE)


def read(source: DroidEpisode) -> Episode:
    """One episode at the contract's rate. Raises LeftOut with the reason when it cannot be used."""
    try:
        raw = json.loads(source.annotation.read_text())
        if not isinstance(raw, dict):
            raise ValueError("not an object")
    except (OSError, ValueError) as error:
        raise LeftOut(f"its annotation cannot be read ({error})") from error
    if "action.joint_position" not in raw:
        raise LeftOut("no actions, only states at an undocumented rate")
    states = _with_width(raw, "observation.state")
    commands = _with_width(raw, "action")
    if len(states) != len(commands) or len(states) < STATE_HZ // VIDEO_HZ:
        raise LeftOut(f"{len(states)} states and {len(commands)} actions")
    if not (np.isfinite(states).all() and np.isfinite(commands).all()):
        raise LeftOut("some states or actions are not finite")

    ticks = np.arange(tick_count(len(states)))
    images = _images(source.wrist)
    earlier = ticks * VIDEO_HZ // FPS
    if earlier[-1] >= len(images):
        raise LeftOut(f"{len(images)} wrist images for {len(states)} states, expected one in three")
    return Episode(
        images=images[earlier],
        states=interpolate(states, ticks * STATE_HZ / FPS),
        actions=interpolate(commands, (ticks + 1) * STATE_HZ / FPS - 1),
        stages=np.full(len(ticks), UNKNOWN_STAGE),
        privileged=None,
        task=instruction(raw.get("texts")),
        seed=REAL_SEED,
        success=bool(raw.get("success", False)),
    )


def tick_count(states: int) -> int:
    """Ticks of 0.1 s for which a state, and a command for the next tick, exist."""
    last_command = states - 1
    return int((last_command + 1) * FPS / STATE_HZ - 1) + 1


def interpolate(rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Rows (N, D) at fractional row numbers (T,), linearly; float32 (T, D). The joints never wrap."""
    at = np.arange(len(rows))
    return np.stack([np.interp(positions, at, column) for column in rows.T], axis=1).astype(np.float32)


def width_m(gripper: np.ndarray) -> np.ndarray:
    """DROID's gripper position, 0 open to 1 closed, as the contract's opening width [m]."""
    rule = GripperRule()
    return np.clip((1.0 - gripper) * STROKE_M, rule.closed_width_m, rule.open_width_m)


def instruction(texts: Any) -> str:
    """The first text that is not empty, else `UNLABELLED`."""
    candidates = texts if isinstance(texts, list) else []
    return next((text.strip() for text in candidates if isinstance(text, str) and text.strip()), UNLABELLED)


def crop_square(image: np.ndarray) -> np.ndarray:
    """The centre square (S, S, 3) of an image (H, W, 3), S the shorter side."""
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return image[top : top + side, left : left + side]


def _with_width(raw: dict[str, Any], prefix: str) -> np.ndarray:
    """float64 (N, 8): joints [rad] and opening width [m]."""
    try:
        joints = np.asarray(raw[f"{prefix}.joint_position"], dtype=np.float64)
        gripper = np.asarray(raw[f"{prefix}.gripper_position"], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise LeftOut(f"{prefix} is missing or broken ({error})") from error
    if joints.ndim != 2 or joints.shape[1] != 7 or gripper.shape != (len(joints),):
        raise LeftOut(f"{prefix} has joints {joints.shape} and gripper {gripper.shape}, expected (N, 7) and (N,)")
    return np.concatenate([joints, width_m(gripper)[:, None]], axis=1)


def _images(path: Path) -> np.ndarray:
    import av

    if not path.is_file():
        raise LeftOut("no wrist video")
    try:
        return np.stack([video.resize(crop_square(image), IMAGE_SIZE) for image in video.decode(path)])
    except (av.FFmpegError, ValueError, IndexError) as error:
        raise LeftOut(f"its wrist video cannot be decoded ({error})") from error


def _natural(path: Path) -> tuple[str, int, str]:
    number = int(path.stem) if path.stem.isdigit() else 0
    return path.parent.name, number, path.stem
