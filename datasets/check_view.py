"""Every kind of dataset as the checks see it: episodes with joints, gripper, times and lazily decoded images.

The checks know arrays only. The readers (`check_read*.py`) bring this project's datasets and journals, foreign
LeRobotDatasets, DROID-style folders and 1 kHz logs into these two classes; a value that a kind of dataset does not
hold is None, and the checks that need it are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from robocoach.datasets.check_findings import Finding
from robocoach.datasets.contract import Contract, GripperRule


@dataclass(frozen=True)
class Layout:
    """Which columns of a state or of an action are what."""

    names: tuple[str, ...]
    joints: tuple[int, ...]
    """Columns that hold the arm's joints."""
    gripper: int | None
    """Column that holds the gripper."""
    angles: bool
    """Whether the joint columns are joint values at all, as far as their names tell."""


@dataclass(frozen=True)
class EpisodeView:
    """One episode. T states; the arrays are as recorded, nothing is resampled."""

    name: str
    rate_hz: float | None
    """Documented rate of the states; None when nobody wrote it down."""
    states: np.ndarray
    """(T, D), joints [rad], in the dataset's layout."""
    actions: np.ndarray | None = None
    """(T, A)"""
    times_s: np.ndarray | None = None
    """float64 (T,), as recorded; None when the dataset keeps no times."""
    stages: np.ndarray | None = None
    """int64 (T,), -1 unknown."""
    task: str | None = None
    """The instruction; None when this kind of dataset has none."""
    success: bool | None = None
    seed: int | None = None
    """Seed of the scene; None when no random scene produced it."""
    images: Callable[[], Iterator[np.ndarray]] | None = None
    """Decodes the images in order, uint8 (H, W, 3) RGB; each call begins anew."""
    image_hz: float | None = None
    """Documented rate of the images; None as for the states."""
    every: int = 1
    """States from one image to the next: image j belongs to state `every` × j."""
    problems: tuple[Finding, ...] = ()
    """What the reader noticed."""

    def __len__(self) -> int:
        """Number of states."""
        return len(self.states)

    def expected_images(self) -> int:
        """How many images belong to the states."""
        return -(-len(self) // self.every)

    def seconds(self) -> float | None:
        """How long it lasts: by its clock, else by its rate, else unknown."""
        if self.times_s is not None and len(self) > 1:
            return float(self.times_s[-1] - self.times_s[0])
        return None if self.rate_hz is None else len(self) / self.rate_hz


@dataclass(frozen=True)
class DatasetView:
    """A dataset whose episodes are read one at a time."""

    path: str
    kind: str
    """What it is, in words: `LeRobotDataset v2.1`, `journal`, …"""
    state: Layout
    action: Layout | None
    arm: str | None
    """Key of `arms.JOINT_RANGE_RAD`; None for an arm whose limits are unknown."""
    count: int
    """Number of episodes."""
    episodes: Callable[[], Iterator[EpisodeView]]
    """Reads the episodes in order; each call begins anew."""
    gripper_span: tuple[float, float] | None = None
    """Gripper value when closed and when open; None when nobody wrote it down."""
    contract: Contract | None = None
    ours: bool = False
    """Whether this project wrote it, so that its trainer's floors apply."""
    needs_contract: bool = False
    """Whether it has to carry a contract to be trained on; a journal gets one when it is assembled, a DROID-style
    folder when it is imported."""
    has_images: bool = True
    """Whether this kind of dataset holds images at all."""
    declared_fps: float | None = None
    """What the dataset's own description says, next to the contract."""
    declared_robot: str = ""
    stage_names: tuple[str, ...] = ()
    statistics: Mapping[str, Mapping[str, np.ndarray]] | None = None
    """What the dataset stores as its statistics, by key and name, such as `action`, `q99`."""
    camera: str | None = None
    """The camera whose images are looked at."""
    problems: tuple[Finding, ...] = ()
    """What the reader noticed about the whole."""


def layout(names: tuple[str, ...]) -> Layout:
    """Finds joints and gripper by their names; eight unnamed numbers are seven joints and a gripper."""
    unnamed = all(name.strip("[]").isdigit() or name.startswith(("motor_", "dim_")) for name in names)
    if unnamed:
        gripper = 7 if len(names) == 8 else None
    else:
        gripper = next((at for at, name in enumerate(names) if "grip" in name.lower()), None)
    joints = tuple(at for at in range(len(names)) if at != gripper)
    named = any("joint" in names[at].lower() or names[at].lower().endswith(".pos") for at in joints)
    return Layout(names, joints, gripper, named or unnamed)


def opening(gripper: np.ndarray, span: tuple[float, float] | None) -> np.ndarray:
    """A gripper's values (T,) as its opening, 0 closed to 1 open.

    When nobody wrote down which value is open, the episode is taken to begin open, and to have closed when the value
    went to its other end.
    """
    values = np.asarray(gripper, dtype=np.float64)
    if span is not None:
        closed, opened = span
        return (values - closed) / (opened - closed)
    if len(values) == 0 or np.ptp(values) == 0:
        return np.ones(len(values))
    far = values[np.argmax(np.abs(values - values[0]))]
    return (values - far) / (values[0] - far)


CONTRACT_SPAN_M = (GripperRule().closed_width_m, GripperRule().open_width_m)
"""Opening width [m] of the contract when closed and when open."""
