"""Small episodes, a contract and the place of the real data, for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robocoach.datasets.contract import Contract, Provenance
from robocoach.datasets.episode import Episode

SHARED = Path(__file__).resolve().parents[3] / "shared/data"


def small_episode(
    ticks: int = 6, seed: int = 0, task: str = "stack the cubes", success: bool = True, privileged: int | None = 3
) -> Episode:
    """An episode whose every number depends on the seed and whose images show tick and seed in broad stripes."""
    rng = np.random.default_rng(abs(seed))
    images = np.zeros((ticks, 224, 224, 3), np.uint8)
    for tick in range(ticks):
        images[tick, :, : 16 + 12 * (tick % 16), 0] = 200
        images[tick, : 16 + 12 * (seed % 16), :, 1] = 150
    states = rng.normal(size=(ticks, 8)).astype(np.float32)
    return Episode(
        images=images,
        states=states,
        actions=states + 0.1,
        stages=np.minimum(np.arange(ticks), 4),
        privileged=None if privileged is None else rng.normal(size=(ticks, privileged)).astype(np.float32),
        task=task,
        seed=seed,
        success=success,
    )


@pytest.fixture
def make_episode() -> Callable[..., Episode]:
    return small_episode


@pytest.fixture
def sim_contract() -> Contract:
    return Contract(
        provenance=Provenance(
            robot="fr3",
            camera="realsense-d435-colour",
            fov_deg=42.5,
            mount="hand front",
            crop="centre square",
            controller="joint targets at 10 Hz",
            source="sim:genesis",
            simulator_version="1.4.5",
        )
    )


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the shared real data is not on this machine")
    return SHARED
