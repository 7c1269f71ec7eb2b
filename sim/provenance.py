"""What data of this product's arm, wrist camera and controller says of its origin, wherever it was made."""

from __future__ import annotations

from collections.abc import Mapping

from robocoach.datasets.contract import Contract, Provenance
from robocoach.sim import camera


def contract(
    source: str, simulator_version: str | None, *, robot: str = "fr3", measured: Mapping[str, object] | None = None
) -> Contract:
    """The data contract of `sim:genesis`, `twin` or `real` data from an arm with the wrist camera of `camera.py`.

    `measured` replaces what a live camera knows better of itself: `camera`, `fov_deg`, `crop`.
    """
    described = {"camera": camera.CAMERA, "fov_deg": camera.FOV_DEG, "crop": camera.CROP, **(measured or {})}
    return Contract(
        provenance=Provenance.model_validate(
            {
                **described,
                "robot": robot,
                "mount": camera.MOUNT,
                "controller": "joint position, linear over the 0.1 s tick",
                "source": source,
                "simulator_version": simulator_version,
            }
        )
    )
