"""A small task and a short training that the tests of the policies share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from robocoach.configs.models import TrainConfig
from robocoach.datasets.mixture import Mixture
from robocoach.policies import synthetic
from robocoach.policies.train import TrainResult, train

PX = 32


def small_settings(**changes) -> TrainConfig:
    """A training of seconds: 32 px images, batches of eight, one thread."""
    settings: dict[str, Any] = {
        "steps": 6,
        "batch_size": 8,
        "image_px": PX,
        "chunk_size": 6,
        "executed_steps": 4,
        "threads": 1,
        "image_shift_px": 1,
        "warmup_steps": 2,
        "flow_samples": 2,
        "precision": "fp32",
    }
    return TrainConfig(**(settings | changes))


@pytest.fixture
def settings_of() -> Callable[..., TrainConfig]:
    """The settings of a training of seconds, with changes."""
    return small_settings


@pytest.fixture(scope="session")
def mixture() -> Mixture:
    """Eight short demonstrations."""
    torch.set_num_threads(1)
    return Mixture((synthetic.make_source(8, PX),), {"sim": 1.0})


@pytest.fixture
def run(mixture: Mixture) -> Callable[..., TrainResult]:
    """Trains on the small task: run(folder, seed=…, init_from=…, progress=…, **settings)."""

    def call(out: Path, *, seed: int = 0, init_from=None, progress=None, sources=mixture, **changes) -> TrainResult:
        settings = small_settings(**changes)
        return train(settings, sources, synthetic.CONTRACT, out, seed=seed, init_from=init_from, progress=progress)

    return call


@pytest.fixture(scope="session")
def trained(mixture: Mixture, tmp_path_factory) -> TrainResult:
    """One finished training; do not change its folders, copy them."""
    out = tmp_path_factory.mktemp("trained")
    return train(small_settings(), mixture, synthetic.CONTRACT, out, seed=0)


@pytest.fixture
def checkpoint(trained: TrainResult, tmp_path: Path) -> Path:
    """A copy of a checkpoint, in another place than it was written to, to do anything with."""
    return Path(shutil.copytree(str(trained.last), tmp_path / "moved" / "checkpoint"))
