"""The wrist camera's place in the hand: from real measurements, and from a board drawn at a known pose."""

import json
from pathlib import Path

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.robots import handeye
from robocoach.sim import camera

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "franka-handeye" / "data"
REAL = pytest.mark.skipif(not DATA.is_dir(), reason="the real hand-eye data is not here")


def real_views() -> list[handeye.View]:
    import cv2

    views = []
    for file in sorted(DATA.glob("captured-data/*/data.json")):
        found = json.loads(file.read_text())
        pose = np.eye(4)
        pose[:3, :3] = cv2.Rodrigues(np.array(found["T_cam_target_rvec"], dtype=float))[0]
        pose[:3, 3] = np.ravel(found["T_cam_target_tvec"])
        views.append(handeye.View(np.reshape(found["O_T_EE"], (4, 4)), pose))
    return views


@REAL
def test_real_measurements_give_the_solution_that_came_with_them():
    solved = handeye.solve(real_views())
    theirs = np.array(
        json.loads((DATA / "hand-eye-calibration-output/calibration_result.json").read_text())["T_cam_gripper"]
    )
    assert np.linalg.norm(solved.camera_in_hand[:3, 3] - theirs[:3, 3]) < 0.005
    turned = solved.camera_in_hand[:3, :3].T @ theirs[:3, :3]
    assert np.rad2deg(np.arccos((np.trace(turned) - 1) / 2)) < 0.5
    assert solved.board_spread_m < 0.004


def perfect_views(camera_in_hand: np.ndarray, count: int) -> list[handeye.View]:
    import cv2

    rng = np.random.default_rng(3)
    board = np.eye(4)
    board[:3, 3] = (0.5, 0.0, 0.0)
    views = []
    for _ in range(count):
        hand = np.eye(4)
        hand[:3, :3] = np.diag([1.0, -1.0, -1.0]) @ cv2.Rodrigues(rng.uniform(-0.5, 0.5, 3))[0]
        hand[:3, 3] = np.array([0.5, 0.0, 0.35]) + rng.uniform(-0.1, 0.1, 3)
        views.append(handeye.View(hand, np.linalg.inv(hand @ camera_in_hand) @ board))
    return views


def test_a_camera_on_the_contracts_mount_is_recognised():
    mounted = camera.pose_in_hand() @ np.diag([1.0, -1.0, -1.0, 1.0])
    mount = handeye.compare(handeye.solve(perfect_views(mounted, 10)))
    assert mount.away_m < 1e-6 and mount.turned_deg < 1e-3


def test_a_camera_that_was_knocked_is_measured():
    knocked = camera.pose_in_hand(np.array([0.01, 0, 0]), np.array([0, 0.05, 0])) @ np.diag([1.0, -1.0, -1.0, 1.0])
    mount = handeye.compare(handeye.solve(perfect_views(knocked, 10)))
    assert mount.away_m == pytest.approx(0.01, abs=1e-5)
    assert mount.turned_deg == pytest.approx(np.rad2deg(0.05), rel=0.02)


def test_too_few_views_are_refused():
    with pytest.raises(UserError, match="too few"):
        handeye.solve(perfect_views(np.eye(4), 3))


def test_a_board_in_a_picture_of_the_contracts_size_is_found_where_it_is(tmp_path):
    import cv2
    from PIL import Image

    handeye.print_board(tmp_path / "board.png")
    printed = np.asarray(Image.open(tmp_path / "board.png"))
    focal = 112 / np.tan(np.deg2rad(camera.FOV_DEG) / 2)
    matrix = np.array([[focal, 0, 111.5], [0, focal, 111.5], [0, 0, 1]])
    truth = np.eye(4)
    truth[:3, :3] = cv2.Rodrigues(np.array([0.25, -0.2, 0.1]))[0]
    truth[:3, 3] = (-0.08, -0.11, 0.34)
    size = np.array([handeye.COLUMNS, handeye.ROWS]) * handeye.SQUARE_M
    corners = np.array([[0, 0, 0], [size[0], 0, 0], [size[0], size[1], 0], [0, size[1], 0]])
    seen = (matrix @ (truth[:3, :3] @ corners.T + truth[:3, 3:])).T
    pixels = np.array([[0, 0], [printed.shape[1], 0], [printed.shape[1], printed.shape[0]], [0, printed.shape[0]]])
    warp = cv2.getPerspectiveTransform(pixels.astype(np.float32), (seen[:, :2] / seen[:, 2:]).astype(np.float32))
    # Drawn four times as large and averaged, as a sensor's pixel does.
    scale = np.diag([4.0, 4.0, 1.0])
    drawn = cv2.warpPerspective(printed, scale @ warp, (896, 896), borderValue=255)
    picture = cv2.cvtColor(cv2.resize(drawn, (224, 224), interpolation=cv2.INTER_AREA), cv2.COLOR_GRAY2RGB)
    found = handeye.find_board(picture, matrix)
    assert found is not None
    assert np.linalg.norm(found[:3, 3] - truth[:3, 3]) < 0.006
    assert handeye.find_board(np.full((224, 224, 3), 200, np.uint8), matrix) is None
