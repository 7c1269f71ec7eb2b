"""Where the wrist camera sits in the hand: measured with a ChArUco board, and compared with what the data says.

The board lies still on the table; the arm is guided to a dozen poses that see it from all sides. Corners and the
solution are OpenCV's (`cv2.aruco`, `cv2.calibrateHandEye`). Camera frames are OpenCV's here: x right, y down, z ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.sim import camera

COLUMNS, ROWS = 5, 7
SQUARE_M, MARKER_M = 0.034, 0.028
"""The board fits on A4 with a margin."""
LEAST_POSES = 8
LEAST_CORNERS = 6
PRINT_DPI = 300


@dataclass(frozen=True)
class View:
    """The board seen from one pose of the hand."""

    hand_in_base: np.ndarray
    """(4, 4), by forward kinematics of the measured joints."""
    board_in_camera: np.ndarray
    """(4, 4)."""


@dataclass(frozen=True)
class HandEye:
    """A solution and how well the views agree on it."""

    camera_in_hand: np.ndarray
    """(4, 4)."""
    board_spread_m: float
    """Mean distance of the board's place in the base frame, view by view, from its mean: 0 for perfect data."""
    views: int


@dataclass(frozen=True)
class Mount:
    """How far a measured camera is from the one the data was made with."""

    away_m: float
    turned_deg: float


def board() -> Any:
    """OpenCV's ChArUco board."""
    import cv2

    return cv2.aruco.CharucoBoard(
        (COLUMNS, ROWS), SQUARE_M, MARKER_M, cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_4X4_50)
    )


def print_board(path: Path) -> None:
    """Writes the board as a PNG to be printed at 100 % (the file says 300 dpi)."""
    from PIL import Image

    width, height = (round(1000 * SQUARE_M * count / 25.4 * PRINT_DPI) for count in (COLUMNS, ROWS))
    picture = board().generateImage((width, height))
    Image.fromarray(picture).save(path, dpi=(PRINT_DPI, PRINT_DPI))


def find_board(image: np.ndarray, matrix: np.ndarray) -> np.ndarray | None:
    """The board's pose in the camera (4, 4) from a uint8 RGB image and the camera matrix (3, 3); None if not seen."""
    import cv2

    corners, ids, _, _ = cv2.aruco.CharucoDetector(board()).detectBoard(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))
    if ids is None or len(ids) < LEAST_CORNERS:
        return None
    points, pixels = board().matchImagePoints(corners, ids)
    found, turn, shift = cv2.solvePnP(points, pixels, matrix, None)
    if not found:
        return None
    turn, shift = cv2.solvePnPRefineLM(points, pixels, matrix, None, turn, shift)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = cv2.Rodrigues(turn)[0], shift[:, 0]
    return pose


def solve(views: Sequence[View]) -> HandEye:
    """The camera's pose in the hand, by Daniilidis' method. Raises UserError for too few views."""
    import cv2

    if len(views) < LEAST_POSES:
        raise UserError(
            f"{len(views)} views of the board are too few for a hand-eye solution; take {LEAST_POSES} or more"
        )
    hands = [view.hand_in_base for view in views]
    boards = [view.board_in_camera for view in views]
    turn, shift = cv2.calibrateHandEye(
        [pose[:3, :3] for pose in hands],
        [pose[:3, 3] for pose in hands],
        [pose[:3, :3] for pose in boards],
        [pose[:3, 3] for pose in boards],
        method=cv2.CALIB_HAND_EYE_DANIILIDIS,
    )
    found = np.eye(4)
    found[:3, :3], found[:3, 3] = turn, shift[:, 0]
    places = np.array([(view.hand_in_base @ found @ view.board_in_camera)[:3, 3] for view in views])
    spread = float(np.linalg.norm(places - places.mean(axis=0), axis=1).mean())
    return HandEye(found, spread, len(views))


def compare(found: HandEye) -> Mount:
    """How far the measured camera is from the one that the simulators render (`sim/camera.py`)."""
    wanted = camera.pose_in_hand() @ np.diag([1.0, -1.0, -1.0, 1.0])  # OpenGL's axes to OpenCV's
    turned = wanted[:3, :3].T @ found.camera_in_hand[:3, :3]
    angle = np.arccos(np.clip((np.trace(turned) - 1) / 2, -1, 1))
    return Mount(float(np.linalg.norm(found.camera_in_hand[:3, 3] - wanted[:3, 3])), float(np.rad2deg(angle)))
