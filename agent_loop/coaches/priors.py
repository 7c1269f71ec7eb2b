"""Priors: for each setting the range in which runs of this product have learned, and where the number comes from.

A value outside its range is no fault by itself; the coaches ask there first. Typical values of the small policy are the
defaults of `configs/models.py`. The same table is printed in the task document, so that every coach starts with it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from robocoach.agent_loop.guard import NANO_KEYS
from robocoach.configs.fields import fields

Scale = Literal["log", "linear", "decay"]
"""How distances are measured: `decay` is logarithmic in 1 - value, as fits the decay of an average."""
WIDER = 2.0
"""The baselines search this factor beyond each end of a range."""


@dataclass(frozen=True)
class Prior:
    """One row."""

    key: str
    low: float
    high: float
    typical: float
    scale: Scale
    group: str
    """Settings of one group act on the same thing, so that only one of them is changed at a time."""
    source: str
    """Where the numbers come from."""

    def holds(self, value: float) -> bool:
        """Whether a value lies in the range."""
        return self.low <= value <= self.high

    def excess(self, value: float) -> float:
        """How far a value lies outside, in factors of two; 0 inside. On a linear scale the range's width is one."""
        if self.holds(value):
            return 0.0
        nearest = self.low if value < self.low else self.high
        if self.scale == "linear":
            return abs(value - nearest) / (self.high - self.low)
        a, b = (value, nearest) if self.scale == "log" else (1 - value, 1 - nearest)
        return abs(_log2(a) - _log2(b))

    def wider(self) -> tuple[float, float]:
        """The range that the baselines search: WIDER beyond each end, within the setting's own bounds."""
        low, high = self.low / WIDER, self.high * WIDER
        if self.scale == "decay":
            low, high = 1 - (1 - self.low) * WIDER, 1 - (1 - self.high) / WIDER
        spec = fields()[self.key]
        return max(low, spec.low or 0.0), high if spec.high is None else min(high, spec.high)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


def _log2(value: float) -> float:
    return math.log2(max(value, 1e-12))


NANO: tuple[tuple[str, float, float, Scale, str, str], ...] = (
    # key, low, high, scale, group, source of the range; in the order in which the rule coach mends them
    ("train.learning_rate", 5e-4, 6e-3, "log", "optimiser", "docs/learning.md: 2e-3 beat 1e-3 after equal work"),
    ("train.executed_steps", 2, 10, "log", "execution", "docs/learning.md: 4 and 8 alike; 10 are 1 s without a look"),
    ("train.batch_size", 16, 512, "log", "optimiser", "profiles: 64 on two cores, 256 on a GPU; a factor of 2 to 4"),
    ("train.ema", 0.9, 0.999, "decay", "average", "default 0.995: 200 steps; at most 1,000 of about 2,400"),
    ("train.image_shift_px", 0, 6, "linear", "augmentation", "docs/learning.md: 4 px move the picture by 6 mm"),
    ("train.colour_jitter", 0, 0.4, "linear", "augmentation", "default 0.2; scenes vary colours and lights already"),
    ("train.state_noise", 0, 0.06, "linear", "noise", "default 0.02 of a standard deviation; up to three times it"),
    ("train.clip_norm", 0.2, 10, "log", "clipping", "LeRobot's pi05 clips at 1; a factor of 5 to 10"),
    ("train.warmup_steps", 0, 500, "linear", "optimiser", "default 100; a fifth of a 12-minute run on two cores"),
    ("train.chunk_size", 8, 50, "log", "execution", "default 16; LeRobot's pi05 predicts 50"),
    ("train.auxiliary_weight", 0.2, 10, "log", "auxiliary", "docs/learning.md: object poses seen to 2-6 mm at 1"),
    ("train.flow_samples", 1, 8, "log", "sampling", "default 4; docs/learning.md names 2 as next to try"),
    ("train.weight_decay", 0, 0.1, "linear", "regularisation", "LeRobot's pi05: 0.01; AdamW's usual decade"),
    ("deploy.smoothing", 0, 0.5, "linear", "smoothing", "default 0; at 0.5 commands lag by one tick"),
    ("deploy.blend_steps", 0, 4, "linear", "chunk overlap", "default 2; no more than half of the executed steps"),
    ("generate.variation", 0.5, 1.5, "linear", "data", "1 is the task's own randomisation, on which it is judged"),
)
PI05: dict[str, dict[str, Any]] = {
    "train.learning_rate": {
        "low": 5e-6,
        "high": 1e-4,
        "typical": 2.5e-5,
        "source": "LeRobot's pi05 preset: 2.5e-5; a factor of 4 to 5",
    },
    "train.warmup_steps": {"high": 1_000, "source": "LeRobot's pi05 preset: 1,000, scaled down in short runs"},
    "train.executed_steps": {"high": 25, "source": "half of the 50 steps that LeRobot's pi05 predicts"},
}
"""What differs for the large policy."""


@functools.cache
def priors(policy: str = "pi05_nano") -> Mapping[str, Prior]:
    """The table for a policy type, by key, in the order of the table."""
    specs = fields()
    table = {
        key: Prior(key, low, high, specs[key].default, scale, group, source)
        for key, low, high, scale, group, source in NANO
    }
    if policy == "pi05":
        table |= {key: replace(table[key], **differs) for key, differs in PI05.items()}
        table = {key: prior for key, prior in table.items() if key not in NANO_KEYS}
    return MappingProxyType(table)
