"""Where the hand is, for given joints: forward kinematics with pinocchio, and how far the hand reaches out of a box.

The model is franky-sim's `fr3.urdf` (Franka's own description), loaded once a thread, without its meshes. The Panda has
the same kinematics: the tests compare joints and hand poses recorded from both arms. All positions are in the arm's
base frame [m]. Knows nothing of commands or limits of joints.

A check of one step with its braking (2 to 16 poses, 20 points each) takes 0.02 to 0.06 ms.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.configs.models import SafetyConfig
from robocoach.sim.camera import POSITION_IN_HAND_M

ARM_DOF = 7
FINGER_HALF_WIDTH_M = 0.051
"""Half the opening of the hand, and the fingertip's thickness: `fr3.xml`'s finger meshes with the hand open."""


def _corners(x: tuple[float, float], y: tuple[float, float], z: tuple[float, float]) -> list[tuple[float, ...]]:
    return list(product(x, y, z))


_CAMERA_X, _, _CAMERA_Z = POSITION_IN_HAND_M

HAND_POINTS_M = np.array(
    [
        # Both fingertips, 9 mm below the TCP, as far apart as they can be.
        *_corners((-0.0105, 0.0105), (-FINGER_HALF_WIDTH_M, FINGER_HALF_WIDTH_M), (0.1123,)),  # ty: ignore
        # The hand's outer corners (collision mesh of the hand).
        *_corners((-0.0316, 0.0316), (-0.104, 0.1004), (-0.026, 0.066)),
        # The wrist camera: a D435's body, 90 × 25 × 25 mm, around its place on the mount, with its tilt and its plug.
        *_corners((_CAMERA_X - 0.015, _CAMERA_X + 0.015), (-0.05, 0.05), (_CAMERA_Z - 0.02, _CAMERA_Z + 0.015)),
    ]
)
"""(20, 3) points of the hand in its frame (x to the front, y across the fingers, z along them) that stay in the box."""
_POINTS_T = np.ascontiguousarray(HAND_POINTS_M.T)

FACES = ("x_min", "y_min", "table", "x_max", "y_max", "z_max")
"""Sides of the workspace, in the order of every array (…, 6) of this module."""


@dataclass(frozen=True)
class Workspace:
    """A box over the table that the hand stays in."""

    low_m: np.ndarray
    """(3,) lowest x and y, and the height of the table with its clearance."""
    high_m: np.ndarray
    """(3,)."""

    @classmethod
    def of(cls, safety: SafetyConfig) -> Workspace:
        """The box that the settings describe."""
        floor = safety.table_z_m + safety.table_clearance_m
        return cls(
            np.array([safety.workspace_x_min_m, safety.workspace_y_min_m, floor]),
            np.array([safety.workspace_x_max_m, safety.workspace_y_max_m, safety.workspace_z_max_m]),
        )

    def excess_m(self, q: np.ndarray) -> np.ndarray:
        """How far the hand sticks out at each of the joints (n, 7): (n, 6) [m] by `FACES`, negative inside."""
        rotation, position = hand_poses(q)
        points = (rotation.reshape(-1, 3) @ _POINTS_T).reshape(len(q), 3, -1) + position[:, :, None]
        return np.concatenate([self.low_m - points.min(axis=2), points.max(axis=2) - self.high_m], axis=1)


class _Model(threading.local):
    """pinocchio's model with its working memory, which two threads must not share."""

    def __init__(self) -> None:
        try:
            import pinocchio
        except ImportError as error:
            raise UserError(f"no kinematics ({error}): install the `pin` package of requirements.lock") from error
        path = _urdf()
        whole = pinocchio.buildModelFromUrdf(str(path))
        fingers = [whole.getJointId(f"fr3_finger_joint{index}") for index in (1, 2)]
        self.model: Any = pinocchio.buildReducedModel(whole, fingers, pinocchio.neutral(whole))
        self.data = self.model.createData()
        self.hand = self.model.getFrameId("fr3_hand")
        self.forward = pinocchio.forwardKinematics
        self.place = pinocchio.updateFramePlacement


_model: _Model | None = None


def load() -> None:
    """Loads the model in this thread, so that the first check is as fast as all others. Raises UserError."""
    global _model
    if _model is None:
        _model = _Model()
    assert _model.model.nq == ARM_DOF


def hand_poses(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotations (n, 3, 3) and positions (n, 3) [m] of the hand frame in the base frame, for joints (n, 7) [rad].

    The hand frame is the flange's turned by −45° about z, as in Franka's description; the TCP lies 0.1034 m along z.
    """
    load()
    kept = _model
    assert kept is not None
    rotation, position = np.empty((len(q), 3, 3)), np.empty((len(q), 3))
    for index, joints in enumerate(np.ascontiguousarray(q, dtype=float)):
        kept.forward(kept.model, kept.data, joints)
        placed = kept.place(kept.model, kept.data, kept.hand)
        rotation[index], position[index] = placed.rotation, placed.translation
    return rotation, position


def _urdf() -> Path:
    found = find_spec("franky_sim")  # its folder alone: importing it would bring MuJoCo along
    if found is None or not found.submodule_search_locations:
        raise UserError("no description of the arm: install the `franky-sim` package of requirements.lock")
    return Path(found.submodule_search_locations[0]) / "assets" / "fr3.urdf"
