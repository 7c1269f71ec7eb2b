"""The mixture of simulated and real frames: which share of the samples each source gets, and drawing them.

`--mix sim=10,real=1` means that ten of eleven samples are simulated frames, whatever the sources' sizes; within a
source every frame is equally likely, unless stages are oversampled: `grasp=2` makes a simulated frame that works
towards the grasp twice as likely as one of an unnamed stage, and leaves the sources' shares as they are. The statistics
that normalise states and actions are taken over the mixture as it is sampled (`statistics.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import ACTION_KEY, ACTION_NAMES, STATE_KEY, STATE_NAMES
from robocoach.datasets.frames import FrameSource
from robocoach.datasets.statistics import Statistics, weighted_statistics

SOURCES = ("sim", "real")
HIGHEST_OVERSAMPLE = 100.0


def parse_mix(text: str, known: Sequence[str] = SOURCES) -> dict[str, float]:
    """`"sim=10,real=1"` → `{"sim": 10.0, "real": 1.0}`.

    Raises UserError on an unknown or repeated source, on a weight that is no finite number of 0 or more, and when
    all weights are 0.
    """
    example = ",".join(f"{name}=1" for name in known)
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UserError(f"--mix {text}: '{part.strip()}' is not source=weight; write for example {example}")
        if name not in known:
            raise UserError(f"--mix {text}: unknown source '{name}'; choose from {', '.join(known)}")
        if name in weights:
            raise UserError(f"--mix {text}: '{name}' is given twice; give each source one weight")
        try:
            weight = float(number)
        except ValueError:
            raise UserError(f"--mix {text}: the weight of {name} is not a number: '{number}'") from None
        if not math.isfinite(weight) or weight < 0:
            raise UserError(f"--mix {text}: the weight of {name} is {number}; it must be finite and 0 or more")
        weights[name] = weight
    if sum(weights.values()) <= 0:
        raise UserError(f"--mix {text}: all weights are 0, nothing would be sampled; give one source a weight")
    return weights


def parse_oversample(text: str, stages: Sequence[str]) -> dict[int, float]:
    """`"grasp=2,place=3"` → weights by the stages' indices, `{1: 2.0, 3: 3.0}`; no text, no weights.

    Raises UserError on an unknown or repeated stage and on a weight that is not above 0 and at most
    HIGHEST_OVERSAMPLE.
    """
    weights: dict[int, float] = {}
    for part in text.split(",") if text.strip() else ():
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UserError(
                f"data.oversample {text!r}: {part.strip()!r} is not stage=weight; write for example {stages[0]}=2"
            )
        if name not in stages:
            raise UserError(f"data.oversample {text!r}: unknown stage {name!r}; choose from {', '.join(stages)}")
        if stages.index(name) in weights:
            raise UserError(f"data.oversample {text!r}: {name!r} is given twice; give each stage one weight")
        try:
            weight = float(number)
        except ValueError:
            raise UserError(f"data.oversample {text!r}: the weight of {name} is not a number: {number!r}") from None
        if not 0 < weight <= HIGHEST_OVERSAMPLE:
            raise UserError(
                f"data.oversample {text!r}: the weight of {name} is {number}; it must be above 0 and at most "
                f"{HIGHEST_OVERSAMPLE:g}"
            )
        weights[stages.index(name)] = weight
    return weights


@dataclass(frozen=True)
class Mixture:
    """Sources and their sampling weights.

    `oversample` weighs the frames of simulated sources (all but `real`) by the index of the stage that they work
    towards, which is the number of stages reached so far; stages that are not named, and unknown ones, weigh 1.

    A weight without its source is left out (no real data given); a source without a weight raises UserError, as do
    sources whose weights are all 0.
    """

    sources: tuple[FrameSource, ...]
    weights: Mapping[str, float]
    oversample: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for source in self.sources:
            if source.name not in self.weights:
                raise UserError(f"the mixture has no weight for the source {source.name}; add {source.name}=1 to --mix")
            if len(source.states) == 0:
                raise UserError(f"the source {source.name} has no frames; give it episodes or leave it out")
        if sum(self.weights[source.name] for source in self.sources) <= 0:
            names = ", ".join(source.name for source in self.sources) or "none"
            raise UserError(f"the sources at hand ({names}) have no weight in --mix; give one of them a weight")

    @cached_property
    def frame_weights(self) -> tuple[np.ndarray | None, ...]:
        """For each source float64 (frames,): how likely its frames are against each other; None when all are alike."""
        return tuple(self._frame_weights(source) for source in self.sources)

    def _frame_weights(self, source: FrameSource) -> np.ndarray | None:
        if source.name == "real" or not np.isin(source.stages, list(self.oversample)).any():
            return None
        weights = np.ones(len(source.stages))
        for stage, weight in self.oversample.items():
            weights[source.stages == stage] = weight
        return weights

    @cached_property
    def _cumulative(self) -> tuple[np.ndarray | None, ...]:
        return tuple(None if weights is None else np.cumsum(weights) for weights in self.frame_weights)

    @property
    def shares(self) -> np.ndarray:
        """float64 (sources,): the share of the samples that each source gets; sums to 1."""
        weights = np.array([self.weights[source.name] for source in self.sources], dtype=np.float64)
        # Divided by the largest first: the sum of huge or tiny weights would over- or underflow.
        weights = weights / weights.max()
        return weights / weights.sum()

    @property
    def instructions(self) -> tuple[str, ...]:
        """Every instruction of every source, each once, in order of appearance."""
        return tuple(dict.fromkeys(text for source in self.sources for text in source.instructions))

    def sample(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """`count` draws with replacement: int64 source indices (count,) and int64 frame indices (count,)."""
        source_index = rng.choice(len(self.sources), size=count, p=self.shares)
        sizes = np.array([len(source.states) for source in self.sources])
        frame_index = rng.integers(0, sizes[source_index])
        for index, cumulative in enumerate(self._cumulative):
            if cumulative is not None:
                mine = np.flatnonzero(source_index == index)
                drawn = np.searchsorted(cumulative, cumulative[-1] * rng.random(len(mine)), side="right")
                frame_index[mine] = np.minimum(drawn, len(cumulative) - 1)  # a product may round up to the whole
        return source_index, frame_index

    def statistics(self) -> dict[str, Statistics]:
        """Statistics of state and action over the mixture as sampled, keyed by the contract's keys."""
        return {
            STATE_KEY: self.weighted([source.states for source in self.sources], STATE_NAMES),
            ACTION_KEY: self.weighted([source.actions for source in self.sources], ACTION_NAMES),
        }

    def weighted(
        self,
        arrays: Iterable[np.ndarray],
        names: Sequence[str],
        floors: Sequence[float] | None = None,
        frames: Sequence[np.ndarray] | None = None,
    ) -> Statistics:
        """Statistics of one array (rows, D) a source, each row weighed as its frame is sampled.

        `frames[i]` (rows,) says which frames of a source the rows belong to (default: all of them, in order).
        For quantities that a policy derives from the sources, such as actions relative to the state; see
        `statistics.weighted_statistics` for `floors`.
        """
        labels = [source.name for source in self.sources]
        return weighted_statistics(
            list(arrays), self.shares, names, floors=floors, labels=labels, within=self.chances(frames)
        )

    def chances(self, frames: Sequence[np.ndarray] | None = None) -> list[np.ndarray | None]:
        """`frame_weights` of some frames (rows,) of each source, by default of all."""
        if frames is None:
            return list(self.frame_weights)
        return [
            None if weights is None else weights[rows] for weights, rows in zip(self.frame_weights, frames, strict=True)
        ]
