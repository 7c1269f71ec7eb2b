"""The mixture of simulated and real frames: which share of the samples each source gets, and drawing them.

`--mix sim=10,real=1` means that ten of eleven samples are simulated frames, whatever the sources' sizes; within a
source every frame is equally likely. The statistics that normalise states and actions are taken over the mixture
as it is sampled (`statistics.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import ACTION_KEY, ACTION_NAMES, STATE_KEY, STATE_NAMES
from robocoach.datasets.frames import FrameSource
from robocoach.datasets.statistics import Statistics, weighted_statistics

SOURCES = ("sim", "real")


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


@dataclass(frozen=True)
class Mixture:
    """Sources and their sampling weights.

    A weight without its source is left out (no real data given); a source without a weight raises UserError, as do
    sources whose weights are all 0.
    """

    sources: tuple[FrameSource, ...]
    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        for source in self.sources:
            if source.name not in self.weights:
                raise UserError(f"the mixture has no weight for the source {source.name}; add {source.name}=1 to --mix")
            if len(source.states) == 0:
                raise UserError(f"the source {source.name} has no frames; give it episodes or leave it out")
        if sum(self.weights[source.name] for source in self.sources) <= 0:
            names = ", ".join(source.name for source in self.sources) or "none"
            raise UserError(f"the sources at hand ({names}) have no weight in --mix; give one of them a weight")

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
        return source_index, rng.integers(0, sizes[source_index])

    def statistics(self) -> dict[str, Statistics]:
        """Statistics of state and action over the mixture as sampled, keyed by the contract's keys."""
        return {
            STATE_KEY: self.weighted([source.states for source in self.sources], STATE_NAMES),
            ACTION_KEY: self.weighted([source.actions for source in self.sources], ACTION_NAMES),
        }

    def weighted(
        self, arrays: Iterable[np.ndarray], names: Sequence[str], floors: Sequence[float] | None = None
    ) -> Statistics:
        """Statistics of one array (rows, D) a source, each weighed as its source is sampled.

        For quantities that a policy derives from the sources, such as actions relative to the state; see
        `statistics.weighted_statistics` for `floors`.
        """
        labels = [source.name for source in self.sources]
        return weighted_statistics(list(arrays), self.shares, names, floors=floors, labels=labels)
