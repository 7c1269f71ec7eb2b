"""Normalisation statistics over sources that are sampled with different weights.

LeRobot merges datasets by averaging their quantiles, which is no quantile of anything: 9,000 simulated and 1,000
real frames gave q99 = 0.31 where 0.92 is true. Here every frame carries the probability with which it is sampled
and the quantiles are those of that weighted distribution. A dimension that hardly moves gets a floor under its
range, so that a thousandth of a radian of difference at run time stays a small number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robocoach.configs.errors import UserError

QUANTILES: Mapping[str, float] = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}

JOINT_RANGE_FLOOR_RAD = 0.02
"""Smallest q01–q99 range of a joint: being 1 mrad off the middle is then 0.1 of the normalised range [-1, 1]."""
GRIPPER_RANGE_FLOOR_M = 0.002
"""Smallest q01–q99 range of the opening width."""

_NORMAL_RANGE = 4.6527
"""q01–q99 range of a normal distribution in standard deviations."""


@dataclass(frozen=True)
class Statistics:
    """Weighted statistics, float64 (D,) each, in the unit of the dimension."""

    names: tuple[str, ...]
    min: np.ndarray
    max: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    q01: np.ndarray
    q10: np.ndarray
    q50: np.ndarray
    q90: np.ndarray
    q99: np.ndarray
    count: int
    """Frames looked at, over all sources."""
    floored: tuple[str, ...]
    """Dimensions whose range was widened to the floor."""

    def lerobot(self) -> dict[str, np.ndarray]:
        """As LeRobot's normaliser wants it: float32 (D,) by name, and `count` (1,)."""
        named = ("min", "max", "mean", "std", *QUANTILES)
        return {name: getattr(self, name).astype(np.float32) for name in named} | {"count": np.array([self.count])}


def weighted_statistics(
    arrays: Sequence[np.ndarray],
    shares: Sequence[float] | np.ndarray,
    names: Sequence[str],
    *,
    floors: Sequence[float] | None = None,
    labels: Sequence[str] | None = None,
    within: Sequence[np.ndarray | None] | None = None,
) -> Statistics:
    """Statistics of rows drawn from `arrays[i]` (rows, D) with probability `shares[i]`, uniformly within it.

    `within[i]` (rows,) draws the rows of that array in proportion to it instead (None: uniformly).
    `floors` is the smallest q01–q99 range of each dimension (default: by name, a gripper in metres, else radians);
    `labels` names the arrays in errors. Raises UserError when a number that would be sampled is not finite.
    """
    labels = labels or [f"source {index}" for index in range(len(arrays))]
    floors = [default_floor(name) for name in names] if floors is None else floors
    used = [index for index, share in enumerate(shares) if share > 0]
    for index in used:
        _refuse_not_finite(arrays[index], names, labels[index])
    rows = np.concatenate([np.asarray(arrays[index], dtype=np.float64) for index in used])
    chances = within or [None] * len(arrays)
    weights = np.concatenate([_row_weights(len(arrays[index]), shares[index], chances[index]) for index in used])
    weights /= weights.sum()

    mean = weights @ rows
    std = np.sqrt(weights @ (rows - mean) ** 2)
    quantiles = weighted_quantiles(rows, weights, list(QUANTILES.values()))
    by_name = dict(zip(QUANTILES, quantiles, strict=True))

    floor = np.asarray(floors, dtype=np.float64)
    narrow = by_name["q99"] - by_name["q01"] < floor
    middle = (by_name["q99"] + by_name["q01"]) / 2
    by_name["q01"] = np.where(narrow, middle - floor / 2, by_name["q01"])
    by_name["q99"] = np.where(narrow, middle + floor / 2, by_name["q99"])
    return Statistics(
        names=tuple(names),
        min=np.minimum(rows.min(axis=0), by_name["q01"]),
        max=np.maximum(rows.max(axis=0), by_name["q99"]),
        mean=mean,
        std=np.maximum(std, floor / _NORMAL_RANGE),
        count=len(rows),
        floored=tuple(name for name, widened in zip(names, narrow, strict=True) if widened),
        **by_name,
    )


def weighted_quantiles(rows: np.ndarray, weights: np.ndarray, quantiles: Sequence[float]) -> np.ndarray:
    """Quantiles (Q, D) of rows (N, D) with weights (N,) that sum to 1.

    Each row stands at the middle of its own weight and values in between are interpolated, so that the result does
    not jump when a row is added. With equal weights this is NumPy's `method="hazen"`.
    """
    result = np.empty((len(quantiles), rows.shape[1]))
    for dimension in range(rows.shape[1]):
        order = np.argsort(rows[:, dimension], kind="stable")
        ordered = weights[order]
        result[:, dimension] = np.interp(quantiles, np.cumsum(ordered) - ordered / 2, rows[order, dimension])
    return result


def _row_weights(rows: int, share: float, chance: np.ndarray | None) -> np.ndarray:
    """float64 (rows,): the probability of each row; they sum to `share`."""
    if chance is None:
        return np.full(rows, share / rows)
    return share * (chance / chance.sum())


def default_floor(name: str) -> float:
    """The floor under a dimension's range by its name: metres for a gripper, radians for everything else."""
    return GRIPPER_RANGE_FLOOR_M if "gripper" in name else JOINT_RANGE_FLOOR_RAD


def _refuse_not_finite(array: np.ndarray, names: Sequence[str], label: str) -> None:
    if array.ndim != 2 or array.shape[1] != len(names) or len(array) == 0:
        raise ValueError(f"{label}: expected (rows > 0, {len(names)}), got {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        row, dimension = bad[0]
        raise UserError(
            f"{label}: {names[dimension]} of frame {row} is {array[row, dimension]}, {len(bad)} numbers in all are "
            "not finite; remove or mend those episodes"
        )
