"""Checks on a dataset as a whole: near-duplicates, ranges that explode when normalised, statistics, the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robocoach.datasets.arms import JOINT_RANGE_RAD
from robocoach.datasets.check_findings import Fault, Finding
from robocoach.datasets.contract import (
    ACTION_KEY,
    ACTION_NAMES,
    STATE_KEY,
    STATE_NAMES,
    Contract,
    Meaning,
    differences,
)
from robocoach.datasets.statistics import default_floor

POINTS = 32
"""A trajectory is compared at this many points, spread evenly over its length."""
SAME_RAD = 0.01
"""Root mean square of the joints' difference below which two trajectories are nearly the same. Two demonstrations of
one script in different scenes differ by 0.027 rad at the least (200 episodes)."""
SAME_LENGTH = 0.1
"""Relative difference in length that near-duplicates may have."""
SAME_BITS = 6
"""Bits of the start image's hash, of 72, in which like images may differ."""
_BLOCK = 512

DUPLICATE = Fault(
    "near-duplicate episodes",
    "the same episode counts twice, and if the copies fall into training and validation, the validation is worthless.",
    "keep one of each pair",
)
SAME_MOTION = Fault(
    "same motion in another scene",
    "two episodes move alike although their first images differ: a replay, or a motion that ignores the scene.",
    "keep one, unless the replay is meant",
)
SAME_SEED = Fault(
    "scene used twice",
    "two episodes come from one seed: the scene counts double.",
    "give every episode a seed of its own",
)
NARROW = Fault(
    "dimension that hardly moves",
    "its range becomes the unit of the policy's input, so a thousandth of a radian at run time is a huge number.",
    "train with floors under the ranges (this project's trainer has them), or drop the dimension",
)
STATISTICS_OFF = Fault(
    "stored statistics do not fit the data",
    "a policy is normalised by these numbers, so it sees values outside the range it was promised.",
    "compute the statistics again from the frames",
)
STATISTICS_COPIED = Fault(
    "episode statistics of other episodes",
    "the stored index statistics name other episode or frame numbers: the statistics were copied when the dataset was "
    "cut or renumbered.",
    "compute the episode statistics again, or at least correct episode_index and index",
)
OTHER_COLUMNS = Fault(
    "columns are not those of the contract",
    "another arm or another order of the numbers: a policy for a seven-joint Franka cannot use them as they are.",
    "convert states and actions to seven joints [rad] and the gripper's opening width [m]",
)
NO_CONTRACT = Fault(
    "no data contract",
    "nothing says what the numbers mean (units, rate, what an action is), so this project refuses to train on it.",
    "convert it: `pipeline record` and `generate` write contract.json, `--real` converts DROID-style folders",
)
BROKEN_CONTRACT = Fault(
    "data contract broken",
    "contract.json cannot be read or does not match its own hash; what the data means is open.",
    "take a fresh copy of the dataset",
)
OTHER_MEANING = Fault(
    "data contract of another meaning",
    "the numbers mean something else than everywhere else in this project.",
    "convert the data to the contract",
)
CONTRADICTS = Fault(
    "data contradicts its contract",
    "what is declared and what lies in the files differ.",
    "write the contract again from what was recorded",
)
UNKNOWN_ARM = Fault(
    "contract names an unknown arm", "joint limits cannot be checked.", "name a known arm in provenance.robot"
)


def descriptor(joints: np.ndarray) -> np.ndarray:
    """Joints (T, J) [rad] at 32 evenly spread points, float32 (32 J,)."""
    at = np.linspace(0, len(joints) - 1, POINTS)
    rows = np.arange(len(joints))
    return np.stack([np.interp(at, rows, column) for column in np.asarray(joints).T], axis=1).astype(np.float32).ravel()


def near_duplicates(
    episodes: Sequence[str], descriptors: np.ndarray, frames: Sequence[int], hashes: Sequence[np.ndarray | None]
) -> list[Finding]:
    """Pairs of episodes whose trajectories (descriptors (N, P)) are nearly the same.

    Where both start images are known and differ, it is the same motion in another scene.
    """
    found = []
    length = np.asarray(frames, dtype=np.float64)
    for first in range(0, len(descriptors), _BLOCK):
        block = descriptors[first : first + _BLOCK].astype(np.float64)
        for other in range(first, len(descriptors), _BLOCK):
            against = descriptors[other : other + _BLOCK].astype(np.float64)
            square = (block**2).sum(1)[:, None] + (against**2).sum(1) - 2 * block @ against.T
            distance = np.sqrt(np.maximum(square, 0) / descriptors.shape[1])
            for row, column in np.argwhere(distance < SAME_RAD):
                a, b = first + int(row), other + int(column)
                if a >= b or abs(length[a] / length[b] - 1) > SAME_LENGTH:
                    continue
                found.append(_pair(episodes, a, b, descriptors, hashes))
    return found


def _pair(
    episodes: Sequence[str], a: int, b: int, descriptors: np.ndarray, hashes: Sequence[np.ndarray | None]
) -> Finding:
    apart = float(np.sqrt(np.mean((descriptors[a].astype(np.float64) - descriptors[b]) ** 2)))
    what = f"nearly the same as {episodes[a]}, joints {apart * 1e3:.1f} mrad apart"
    one, other = hashes[a], hashes[b]
    if one is not None and other is not None and int((one != other).sum()) > SAME_BITS:
        return Finding(SAME_MOTION, "warning", f"{what}, first images differ", episodes[b])
    return Finding(DUPLICATE, "warning", what, episodes[b])


def seeds(episodes: Sequence[str], used: Sequence[int | None]) -> list[Finding]:
    """No scene is used twice; None and negative seeds belong to no scene."""
    first: dict[int, str] = {}
    found = []
    for episode, seed in zip(episodes, used, strict=True):
        if seed is None or seed < 0:
            continue
        if seed in first:
            found.append(Finding(SAME_SEED, "warning", f"seed {seed} as in {first[seed]}", episode))
        first.setdefault(seed, episode)
    return found


def narrow(rows: np.ndarray, names: Sequence[str], label: str, ours: bool) -> list[Finding]:
    """Dimensions of sampled rows (N, D) whose q01 to q99 range is below its floor.

    A warning for data of unknown consumers, a note for this project's, whose trainer applies the floors.
    """
    if len(rows) < 2:
        return []
    low, high = np.nanquantile(np.asarray(rows, dtype=np.float64), (0.01, 0.99), axis=0)
    found = []
    for column, name in enumerate(names):
        width, floor = float(high[column] - low[column]), default_floor(name)
        if width < floor:
            blown = f"0.001 off becomes {2e-3 / width:.2g} in a range of -1 to 1" if width > 1e-9 else "it is constant"
            what = f"{label} {name}: q01 to q99 spans {width:.2g}, floor {floor:g}; {blown}"
            found.append(Finding(NARROW, "note" if ours else "warning", what))
    return found


def stored_statistics(
    stored: Mapping[str, np.ndarray], rows: np.ndarray, names: Sequence[str], label: str
) -> list[Finding]:
    """Stored statistics by name (D,) against sampled rows (N, D) of the data: the range and the mean must fit.

    The rows are a sample, so only what a sample can refute is an error: values beyond the stored range, or a range
    of which the sample covers less than half, or a mean that is off by more than a tenth of the range.
    """
    low, high, mean = (np.ravel(np.asarray(stored.get(name, ()), dtype=np.float64)) for name in ("min", "max", "mean"))
    size = rows.shape[1] if rows.ndim == 2 else 0
    if len(rows) < 2 or any(len(one) != size for one in (low, high, mean)):
        return []
    true_low, true_high, true_mean = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0), np.nanmean(rows, axis=0)
    reach = np.maximum(high - low, 1e-9)
    slack = 0.02 * reach + 1e-4
    found = []
    for column, name in enumerate(names):
        beyond = max(low[column] - true_low[column], true_high[column] - high[column]) > slack[column]
        unused = (true_high[column] - true_low[column]) < 0.5 * reach[column] - 1e-3
        shifted = abs(true_mean[column] - mean[column]) > 0.1 * reach[column] + 1e-3
        if beyond or unused or shifted:
            what = (
                f"{label} {name}: stored {low[column]:.3g} to {high[column]:.3g} (mean {mean[column]:.3g}), data "
                f"{true_low[column]:.3g} to {true_high[column]:.3g} (mean {true_mean[column]:.3g})"
            )
            found.append(Finding(STATISTICS_OFF, "error", what))
    return found


def index_statistics(
    stored: Mapping[str, tuple[float, float]], true: Mapping[str, tuple[int, int]], episode: str
) -> list[Finding]:
    """Stored (min, max) of an episode's `episode_index` and `index` against those of its frames."""
    wrong = [key for key, span in stored.items() if key in true and tuple(span) != tuple(true[key])]
    if not wrong:
        return []
    told = "; ".join(
        f"{key} {stored[key][0]:g} to {stored[key][1]:g}, data {true[key][0]} to {true[key][1]}" for key in wrong
    )
    return [Finding(STATISTICS_COPIED, "warning", told, episode)]


def columns(names: Mapping[str, tuple[str, ...]]) -> list[Finding]:
    """States and actions by key have the contract's columns."""
    found = []
    for key, expected in ((STATE_KEY, STATE_NAMES), (ACTION_KEY, ACTION_NAMES)):
        own = names.get(key)
        if own is None or own == expected:
            continue
        joints = [name for name in own if "grip" not in name.lower()]
        hand = f"{len(own) - len(joints)} gripper columns"
        what = f"{key} has {len(joints)} joints ({own[0]} to {joints[-1]}) and {hand}, expected 7 and 1"
        if len(joints) == 7 and len(own) == 8:
            what = f"{key} is named {own[0]} to {own[-1]}, expected {expected[0]} to {expected[-1]}"
        found.append(Finding(OTHER_COLUMNS, "error", what))
    return found


def contract(
    found: Contract | None, fps: float | None, names: Mapping[str, tuple[str, ...]], robot: str
) -> list[Finding]:
    """A dataset's contract against this project's meaning and against what its own files declare."""
    if found is None:
        return [Finding(NO_CONTRACT, "error", "there is no contract.json")]
    result = []
    meaning = differences(Meaning(), found.meaning)
    if meaning:
        listed = "; ".join(f"{key}: expected {ours!r}, it has {theirs!r}" for key, (ours, theirs) in meaning.items())
        result.append(Finding(OTHER_MEANING, "error", listed))
    declared = {
        found.meaning.state_key: found.meaning.state_names,
        found.meaning.action_key: found.meaning.action_names,
    }
    for key, expected in declared.items():
        if key not in names:
            result.append(Finding(CONTRADICTS, "error", f"the contract has {key}, the files do not"))
        elif tuple(names[key]) != expected:
            result.append(
                Finding(CONTRADICTS, "error", f"{key}: the contract names {expected}, the files {names[key]}")
            )
    if fps is not None and fps != found.meaning.fps:
        result.append(Finding(CONTRADICTS, "error", f"the contract says {found.meaning.fps} fps, the files {fps:g}"))
    known = found.provenance.robot.partition("+")[0]
    if known not in JOINT_RANGE_RAD:
        result.append(
            Finding(UNKNOWN_ARM, "warning", f"{found.provenance.robot!r}; known: {', '.join(JOINT_RANGE_RAD)}")
        )
    if robot and robot != found.provenance.robot:
        what = f"the contract names {found.provenance.robot!r}, robot_type {robot!r}"
        result.append(Finding(CONTRADICTS, "error", what))
    return result
