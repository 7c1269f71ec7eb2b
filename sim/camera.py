"""The wrist camera both simulators render: a D435-like colour stream on a mount at the front of the Franka Hand.

Field of view: the D435's colour sensor sees 69° × 42° (Intel RealSense D400 datasheet, table "RGB sensor"); a centre
square of it, resized to 224×224, sees its vertical angle both ways.
"""

from __future__ import annotations

import numpy as np

FOV_DEG = 42.5
"""Vertical and, for a square image, horizontal field of view."""

POSITION_IN_HAND_M = np.array([0.07, 0.0, -0.01])
"""Optical centre in the hand frame (x to the front, z along the fingers; fingertips lie 0.1034 m along z)."""

TILT_DEG = 16.0
"""How far the optical axis leans from the hand's z axis back towards the fingertips."""

MOUNT = "hand front x=0.070 z=-0.010 m, tilted 16 deg to the fingertips"
CROP = "centre square of the colour stream, area-resized to 224x224"
CAMERA = "realsense-d435-colour"


def rotation_in_hand(tilt_deg: float = TILT_DEG) -> np.ndarray:
    """Camera axes in the hand frame, (3, 3), OpenGL convention: x right, y up in the image, looking along −z.

    The camera looks along the hand's z axis, leaning to the fingertips; up in the image is the hand's x axis.
    """
    tilt = np.deg2rad(tilt_deg)
    looking = np.array([-np.sin(tilt), 0.0, np.cos(tilt)])
    up = np.array([np.cos(tilt), 0.0, np.sin(tilt)])
    backward = -looking
    right = np.cross(up, backward)
    return np.stack([right, up, backward], axis=1)


def pose_in_hand(shift_m: np.ndarray | None = None, turn_rad: np.ndarray | None = None) -> np.ndarray:
    """Camera-to-hand transform (4, 4), OpenGL convention, with the scene's small mounting error.

    `shift_m` (3,) moves the optical centre in the hand frame, `turn_rad` (3,) is a small rotation vector.
    """
    pose = np.eye(4)
    pose[:3, :3] = rotation_in_hand()
    pose[:3, 3] = POSITION_IN_HAND_M
    if shift_m is not None:
        pose[:3, 3] += shift_m
    if turn_rad is not None:
        x, y, z = turn_rad
        pose[:3, :3] = pose[:3, :3] @ (np.eye(3) + np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]))
        u, _, vt = np.linalg.svd(pose[:3, :3])
        pose[:3, :3] = u @ vt
    return pose
