"""Learning rate over a run that ends by the clock or by steps, and the averaged weights that are kept."""

from __future__ import annotations

import copy
import math
from typing import Any, Literal

import torch
from torch import nn

FRACTION_GRAIN = 1000
FLOOR = 0.02
"""Learning rate at the end, as a share of its peak; a constant one stays at its peak."""
Schedule = Literal["cosine", "linear", "constant"]


def fraction_done(step: int, steps: int, elapsed_s: float, deadline_s: float) -> float:
    """How much of the run is over, in [0, 1]: by steps or by the clock, whichever is further.

    The clock counts in thousandths, so that a run that ends by steps does not depend on it.
    """
    by_clock = math.floor(FRACTION_GRAIN * elapsed_s / deadline_s) / FRACTION_GRAIN
    return min(1.0, max(step / steps, by_clock))


def learning_rate(peak: float, step: int, warmup_steps: int, fraction: float, schedule: Schedule = "cosine") -> float:
    """Linear warm-up, then from the peak to FLOOR of it over the whole run, by the schedule; `constant` stays."""
    warm = min(1.0, (step + 1) / max(1, warmup_steps))
    if schedule == "constant":
        return peak * warm
    left = 1 - fraction if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * fraction))
    return peak * warm * (FLOOR + (1 - FLOOR) * left)


class Average:
    """An exponential moving average of a model's weights, in a second model of the same shape.

    The decay grows from 0 to its final value over the first steps, so that the start is forgotten. With decay 0 there
    is no second model: `model` is the one in training.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False) if decay else model

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Moves the average towards `model` after its `step`-th update."""
        if self.decay:
            decay = min(self.decay, step / (step + 10))
            torch._foreach_lerp_(list(self.model.parameters()), list(model.parameters()), 1 - decay)


def decayed_groups(policy: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: matrices and kernels with weight decay, vectors (biases, norms) without."""
    parameters = [p for p in policy.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
