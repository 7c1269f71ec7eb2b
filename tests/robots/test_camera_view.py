"""What is shown of a camera: words, numbers, pictures and the contact sheet."""

import dataclasses
import json
import time

import numpy as np
import pytest

from robocoach.robots import camera_compare, camera_view
from robocoach.robots.camera import RECORDED, CameraInfo, Counters, Frame, FrameBox
from robocoach.robots.camera_geometry import Intrinsics
from robocoach.robots.camera_sheet import sheet
from robocoach.robots.camera_view import Look, Watch
from robocoach.sim import provenance

CONTRACT = provenance.contract("sim:genesis", "1.4.5")
D435 = CameraInfo(
    camera=CONTRACT.provenance.camera,
    crop=CONTRACT.provenance.crop,
    fov_deg=42.9,
    mode="424x240 at 30 Hz",
    intrinsics=Intrinsics(224, 224, 287.0, 287.0, 111.0, 112.0),
    exposure="15.6 ms, gain 64, fixed; 4600 K, fixed",
)


def start(light: int, shift: int = 0) -> np.ndarray:
    image = np.full((224, 224, 3), light, np.uint8)
    image[160:210, 20 + shift : 80 + shift] = 30
    image[170:200, 140 + shift : 200 + shift] = 40
    return image


class Source(FrameBox):
    """A camera that shows what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.counters = Counters()
        self.asked = 0

    def trigger(self) -> None:
        self.asked += 1

    def close(self) -> None: ...

    def show(self, image: np.ndarray, captured_s: float | None = None) -> None:
        self.counters.frames += 1
        self.put(Frame(image, time.monotonic() if captured_s is None else captured_s))


@pytest.fixture(scope="module")
def reference():
    return camera_compare.learn(np.stack([start(light) for light in (180, 190, 200, 185, 195, 205)]))


@pytest.fixture
def watched(reference):
    source = Source()
    watch = Watch(source, reference)
    yield source, watch
    watch.close()


def until(true, timeout_s: float = 5.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def test_nothing_is_said_before_the_first_frame(watched):
    assert watched[1].now().words() == "no frame yet"


def test_frames_are_counted_and_compared(watched):
    source, watch = watched
    for _ in range(20):
        source.show(start(190))
        time.sleep(0.1)
    look = watch.now()
    assert look.frames == pytest.approx(20, abs=2) and look.rate_hz == pytest.approx(10, abs=2)
    assert source.asked >= 15
    assert look.comparison is not None and not look.comparison.moved
    assert "0 lost; light and colours as in the data; mount as in the data" in look.words()


def test_a_camera_faster_than_the_eye_has_its_own_rate(watched):
    source, watch = watched
    due = time.monotonic()
    for _ in range(120):
        source.show(start(190))
        due += 1 / 60
        time.sleep(max(0.0, due - time.monotonic()))
    assert watch.now().rate_hz == pytest.approx(60, rel=0.15)


def test_lost_frames_and_returns_are_told(watched):
    source, watch = watched
    source.counters.drops, source.counters.reconnects = 7, 2
    source.show(start(190))
    assert until(lambda: "7 lost, back 2 times" in watch.now().words())


def test_a_camera_that_is_gone_is_told(watched):
    source, watch = watched
    source.show(start(190), time.monotonic() - 3.2)
    assert watch.now().words().startswith("no frame for 3.2 s")
    assert camera_view.as_json(watch.now(), None)["gone"]


def test_the_start_frame_nearest_in_light_stands_beside(watched, reference):
    source, watch = watched
    source.show(start(204))
    assert until(lambda: watch.now().beside is not None)
    assert np.array_equal(watch.now().beside, reference.images[5])


def test_the_start_frame_that_is_shown_does_not_flicker(reference):
    between = start(186)  # a little nearer to 185 than to 190
    assert camera_view.nearest(reference, between) == 3
    assert camera_view.nearest(reference, start(188), shown=1) == 1
    assert camera_view.nearest(reference, start(205), shown=1) == 5


def test_a_field_of_view_within_a_degree_agrees_and_another_camera_does_not():
    assert all(field.alike for field in camera_view.fields(D435, CONTRACT))
    other = dataclasses.replace(D435, camera="zed", fov_deg=55.0)
    differing = [field for field in camera_view.fields(other, CONTRACT) if not field.alike]
    assert [field.words for field in differing] == [
        "camera: 'zed' here, 'realsense-d435-colour' in the data",
        "fov_deg: 55.0 here, 42.5 in the data",
    ]


def test_a_recording_without_a_contract_is_held_against_none():
    assert camera_view.fields(CameraInfo(RECORDED, "unknown", None, "film.mp4"), CONTRACT) == []


def look_at(reference, image: np.ndarray) -> Look:
    return Look(image, 0.04, 29.9, 100, camera_compare.compare(reference, image), reference.images[0], drops=3)


def test_everything_that_is_shown_is_json(reference):
    found = json.loads(json.dumps(camera_view.as_json(look_at(reference, start(190)), D435, reference)))
    assert found["drops"] == 3 and found["camera"]["intrinsics"]["fx"] == 287.0
    assert found["mount"]["limits"][0][0] < found["mount"]["right_px"] < found["mount"]["limits"][0][1]
    for histogram in (*found["histograms"]["live"], *found["histograms"]["data"]):
        assert len(histogram) == 32 and sum(histogram) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    "image", [start(190), start(190, 14), np.zeros((224, 224, 3), np.uint8)], ids=["as is", "moved", "black"]
)
def test_the_sheet_shows_the_pictures_twice_as_large(reference, image):
    made = sheet(look_at(reference, image), reference, camera_view.fields(D435, CONTRACT))
    assert made.dtype == np.uint8 and made.shape[1] > 4 * 448
    corner = made[84 : 84 + 448, 32 : 32 + 448]
    assert np.array_equal(corner[::2, ::2], image)


def test_the_sheet_needs_no_data():
    made = sheet(Look(start(190), 0.04, 30.0, 9, None), None, about="a camera")
    assert made.shape[0] < 700
