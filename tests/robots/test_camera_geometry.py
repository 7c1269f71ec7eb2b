"""Crop, scale, modes and clocks of a camera, as pure functions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robocoach.configs.errors import UserError
from robocoach.configs.models import CameraConfig
from robocoach.robots import camera_modes
from robocoach.robots.camera_clock import ARRIVAL, GLOBAL, HARDWARE, SOURCES, SYSTEM, FrameClock
from robocoach.robots.camera_geometry import Intrinsics, as_contract, centre_square
from robocoach.robots.camera_modes import Mode

cameras = st.builds(
    Intrinsics,
    width=st.integers(224, 1920),
    height=st.integers(224, 1080),
    fx=st.floats(200, 2000),
    fy=st.floats(200, 2000),
    ppx=st.floats(100, 1000),
    ppy=st.floats(100, 600),
)


@given(cameras, st.floats(0, 223), st.floats(0, 223))
def test_a_pixel_looks_the_same_way_before_and_after_crop_and_scale(camera, x, y):
    left, top, side = centre_square(camera.width, camera.height)
    scale = side / 224
    before = camera.ray((x + 0.5) * scale - 0.5 + left, (y + 0.5) * scale - 0.5 + top)
    assert camera.as_contract().ray(x, y) == pytest.approx(before, abs=1e-9)


@pytest.mark.parametrize(("width", "height"), [(424, 240), (640, 480), (1280, 720)])
def test_a_thing_in_the_frame_is_where_the_intrinsics_say(width, height):
    """A bright blob drawn along a ray of the full frame lies, in the contract's picture, on the same ray."""
    full = Intrinsics(width, height, 1.28 * height, 1.28 * height, width / 2 + 4, height / 2 - 3)
    x, y = width / 2 + 0.2 * height, height / 2 - 0.11 * height
    rows, columns = np.mgrid[:height, :width]
    blob = np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * (height / 60) ** 2))
    seen = as_contract(np.repeat((255 * blob).astype(np.uint8)[..., None], 3, axis=2))[..., 0].astype(float)
    rows, columns = np.mgrid[:224, :224]
    found = (seen * columns).sum() / seen.sum(), (seen * rows).sum() / seen.sum()
    k = full.as_contract()
    assert k.ray(*found) == pytest.approx(full.ray(x, y), abs=0.1 / k.fx)


def test_the_field_of_view_is_between_the_edges_of_the_picture():
    k = Intrinsics(224, 224, 300.0, 300.0, 111.5, 111.5)
    assert k.fov_deg == pytest.approx(2 * math.degrees(math.atan(112 / 300)))
    high = Intrinsics(224, 224, 300.0, 300.0, 111.5, 91.5)
    assert high.fov_deg == pytest.approx(math.degrees(math.atan(92 / 300) + math.atan(132 / 300)))


def modes(*sizes):
    return [Mode(width, height, fps, fov) for width, height, fps, fov in sizes]


D435 = modes(
    (1280, 720, 30, 42.6), (640, 480, 30, 42.6), (424, 240, 60, 42.6), (424, 240, 30, 42.6), (320, 180, 60, 42)
)


def test_small_and_just_fast_enough_is_best():
    assert camera_modes.choose(D435, CameraConfig(), 42.5)[0] == Mode(424, 240, 30, 42.6)
    assert camera_modes.choose(D435, CameraConfig(camera_fps=60), 42.5)[0] == Mode(424, 240, 60, 42.6)


def test_the_contracts_field_of_view_comes_before_size():
    cropping = modes((424, 240, 30, 30.0), (640, 480, 30, 42.6))
    assert camera_modes.choose(cropping, CameraConfig(), 42.5)[0].width == 640
    assert camera_modes.choose(cropping, CameraConfig(), 55.0)[0].width == 424


def test_too_slow_a_camera_is_taken_with_a_note():
    mode, notes = camera_modes.choose(modes((640, 480, 15, 42.6), (1280, 720, 10, 42.6)), CameraConfig(), 42.5)
    assert mode.fps == 15 and notes == ("it gives 15 Hz at most where 30 Hz was asked for",)


def test_a_camera_slower_than_the_loop_is_refused():
    with pytest.raises(UserError, match=r"has no colour mode of anyxany pixels .*10 Hz.*it has 640x480 at 6 Hz"):
        camera_modes.choose(modes((640, 480, 6, 42.6)), CameraConfig(), 42.5)


@pytest.mark.parametrize("domain", [GLOBAL, SYSTEM])
def test_a_stamp_on_the_wall_clock_becomes_an_age(domain):
    clock = FrameClock()
    assert clock.captured_s(999.95, domain, arrived_s=50.0, wall_s=1000.0) == pytest.approx(49.95)
    assert clock.source == SOURCES[domain]


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.sampled_from([GLOBAL, SYSTEM, HARDWARE, "unknown"]))
def test_no_frame_is_from_the_future(stamp, wall, domain):
    assert FrameClock().captured_s(stamp, domain, arrived_s=100.0, wall_s=wall) <= 100.0


def test_a_stamp_of_another_clock_gives_the_arrival():
    clock = FrameClock()
    for stamp in (5.0, 1010.0):
        assert clock.captured_s(stamp, SYSTEM, arrived_s=50.0, wall_s=1000.0) == 50.0
        assert clock.source == ARRIVAL


def test_a_late_frame_of_the_hardware_clock_is_old():
    clock = FrameClock()
    for k in range(30):
        clock.captured_s(7.0 + k / 30, HARDWARE, arrived_s=100.0 + k / 30)
    captured = clock.captured_s(8.0, HARDWARE, arrived_s=101.2)
    assert captured == pytest.approx(101.0) and clock.source == SOURCES[HARDWARE]
