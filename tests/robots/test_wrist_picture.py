"""What the policy sees: the RealSense's picture cut to the contract, and the twin's after Genesis' colours."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.robots.realsense import RealSense, as_contract
from robocoach.sim.mujoco_scene import render_starts
from robocoach.sim.tasks import get_task


def test_a_colour_frame_is_cut_to_its_centre_square():
    frame = np.zeros((480, 640, 3), np.uint8)
    frame[:, 80:560] = 200
    frame[:, 315:325, 0] = 255
    seen = as_contract(frame)
    assert seen.shape == (224, 224, 3) and seen.dtype == np.uint8
    assert (seen[:, [0, -1], 1] == 200).all() and seen[112, 112, 0] > 240


def test_no_camera_is_one_line():
    import pyrealsense2 as rs

    if len(rs.context().query_devices()):
        pytest.skip("a RealSense is plugged in")
    with pytest.raises(UserError, match="no RealSense camera found"):
        RealSense()


@pytest.fixture(scope="module")
def pictures() -> dict[int, np.ndarray]:
    """The wrist camera of three scenes' starts, in a process that has not imported MuJoCo yet."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
        seeds = (1, 2, 3)
        scenes = [get_task("stack-cube").sample_scene(seed) for seed in seeds]
        return dict(zip(seeds, other.submit(render_starts, "stack-cube", scenes).result(), strict=True))


def test_the_table_has_the_brightness_that_genesis_gives_it(pictures):
    """Genesis' shader: linear light is colour × (ambient + main light × cosine), then a gamma of 2.2."""
    for seed, picture in pictures.items():
        scene = get_task("stack-cube").sample_scene(seed)
        colour = ((np.array(scene.table_colour) + 0.055) / 1.055) ** 2.4
        cosine = 1 / np.linalg.norm(scene.light_direction)
        linear = colour * scene.ambient + (colour + 0.043) * scene.light_strength * cosine
        wanted = 255 * np.minimum(1, linear) ** (1 / 2.2)
        assert np.abs(np.median(picture[:60].reshape(-1, 3), axis=0) - wanted).max() < 5


def test_every_scene_shows_a_red_thing_or_a_green_one(pictures):
    for picture in pictures.values():
        red, green, blue = np.moveaxis(picture.astype(int), -1, 0)
        coloured = ((red > 1.4 * green) & (red > 1.4 * blue)) | ((green > 1.4 * red) & (green > 1.4 * blue))
        assert 300 < coloured.sum() < 30_000
