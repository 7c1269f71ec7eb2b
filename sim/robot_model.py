"""The FR3 with its hand, as one MJCF file that MuJoCo and Genesis both load (franky-sim ships it)."""

from __future__ import annotations

import os
import tempfile
import zlib
from importlib.resources import files
from pathlib import Path

HAND_TO_TCP_M = 0.1034
"""Hand frame to the point between the fingertips, along the hand's z axis (Franka Hand product manual)."""

ARM_JOINTS = tuple(f"fr3_joint{i}" for i in range(1, 8))
FINGER_JOINTS = ("finger_joint1", "finger_joint2")
HOME_Q = (0.0, -0.3139, 0.0, -2.4299, 0.0, 2.1161, 0.7854)
"""Start posture [rad]: the hand looks straight down at the table, the TCP 0.32 m above it."""

KP = (4500.0, 4500.0, 3500.0, 3500.0, 2000.0, 2000.0, 2000.0)
KV = (450.0, 450.0, 350.0, 350.0, 200.0, 200.0, 200.0)
"""Joint position gains [N m/rad] and damping [N m s/rad], those of franky-sim's arm."""


def fr3_mjcf() -> Path:
    """A copy of franky-sim's `fr3.xml` whose mesh folder is right; written once for each content.

    The shipped file says `meshdir="assets"` though its meshes lie in `meshes/`.
    """
    assets = Path(str(files("franky_sim"))) / "assets"
    text = (assets / "fr3.xml").read_text().replace('meshdir="assets"', f'meshdir="{assets / "meshes"}"')
    folder = Path(tempfile.gettempdir()) / f"robocoach-fr3-{zlib.crc32(text.encode()):08x}"
    path = folder / "fr3.xml"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{os.getpid()}.part"
        part.write_text(text)
        part.replace(path)
    return path
