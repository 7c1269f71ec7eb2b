"""The policies that the trainer can train, behind one interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from robocoach.configs.models import TrainConfig
from robocoach.policies.batches import Batch, Batches


class Learner(Protocol):
    """A policy in training."""

    policy: Any
    """Its forward takes `tensors(...)` and returns the loss and a dict of its parts (names end in `_loss`)."""
    notes: list[str]
    """What the log should say about how it was built."""

    def tensors(self, batch: Batch, rng: np.random.Generator | None) -> dict[str, Tensor]:
        """A batch as the policy takes it; `rng` (training only) changes the images at random."""
        ...

    def errors(self, policy: Any, batch: Batch) -> dict[str, float]:
        """Further measures on a few kept-apart frames, for the metrics; names begin with `validation_`."""
        ...

    def save(self, policy: Any, folder: Path) -> None:
        """Writes LeRobot's files of a checkpoint into a folder."""
        ...


def make_learner(cfg: TrainConfig, batches: Batches, device: torch.device, init_from: Path | None) -> Learner:
    """The learner for `cfg.policy`. Raises UserError when its weights or tokenizer are not at hand."""
    if cfg.policy == "pi05":
        from robocoach.policies.pi05 import PI05Learner

        return PI05Learner(cfg, batches, device, init_from)
    from robocoach.policies.nano import NanoLearner

    return NanoLearner(cfg, batches, device, init_from)
