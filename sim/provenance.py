"""What data of this product's arm, wrist camera and controller says of its origin, wherever it was made."""

from __future__ import annotations

from robocoach.datasets.contract import Contract, Provenance
from robocoach.sim import camera


def contract(source: str, simulator_version: str | None) -> Contract:
    """The data contract of `sim:genesis`, `twin` or `real` data from an FR3 with the wrist camera of `camera.py`."""
    return Contract(
        provenance=Provenance(
            robot="fr3",
            camera=camera.CAMERA,
            fov_deg=camera.FOV_DEG,
            mount=camera.MOUNT,
            crop=camera.CROP,
            controller="joint position, linear over the 0.1 s tick",
            source=source,
            simulator_version=simulator_version,
        )
    )
