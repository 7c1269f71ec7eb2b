"""The live picture beside the data's start frames, on frames that the twin's renderer made of the task's scenes."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from robocoach.datasets.episode import Episode
from robocoach.datasets.journal import Journal
from robocoach.robots import camera_compare, camera_mount
from robocoach.robots.camera_compare import Reference
from robocoach.robots.camera_recorded import find_clip
from robocoach.sim.mujoco_scene import render_starts
from robocoach.sim.tasks import get_task

SHARED = Path(__file__).resolve().parents[3] / "shared/data"
LEARNED, FRESH = 32, 40
FIRST_SEED = 100


@pytest.fixture(scope="module")
def rendered() -> tuple[np.ndarray, np.ndarray]:
    """Start frames with the camera moved at random, as simulated data has it, and with a camera that stands still."""
    scenes = [get_task("stack-cube").sample_scene(FIRST_SEED + k) for k in range(LEARNED + FRESH)]
    fixed = [replace(scene, camera_shift_m=np.zeros(3), camera_turn_rad=np.zeros(3)) for scene in scenes[:24]]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
        wandering = other.submit(render_starts, "stack-cube", scenes)
        still = other.submit(render_starts, "stack-cube", fixed)
        return wandering.result(), still.result()


@pytest.fixture(scope="module")
def wandering(rendered) -> Reference:
    return camera_compare.learn(rendered[0][:LEARNED])


@pytest.fixture(scope="module")
def still(rendered) -> Reference:
    return camera_compare.learn(rendered[1][:12])


def moved(image: np.ndarray, right: float, down: float, turn_deg: float) -> np.ndarray:
    warp = camera_mount._turn(turn_deg)
    warp[:, 2] += [right, down]
    return cv2.warpAffine(image, warp, (224, 224), borderMode=cv2.BORDER_REPLICATE)


def test_the_datas_own_pictures_raise_no_alarm(rendered, wandering):
    """Those it was learned from and forty fresh scenes of the same randomisation."""
    compared = [camera_compare.compare(wandering, image) for image in rendered[0]]
    assert sum(c.moved for c in compared) == 0
    assert sum(not c.light.as_in_the_data for c in compared) <= 2


@pytest.mark.parametrize(
    "shift", [(14.0, 0.0, 0.0), (0.0, -12.0, 0.0), (-6.0, 5.0, 4.0), (0.0, 0.0, -5.0), (20.0, -8.0, 2.0)]
)
def test_a_known_movement_is_recovered_and_reported(rendered, still, shift):
    for image in rendered[1][12:16]:
        found = camera_compare.compare(still, moved(image, *shift))
        assert found.moved and "the mount has moved" in found.mount_words
        assert found.motion is not None
        assert np.abs(found.motion.numbers[:2] - shift[:2]).max() < 1.0
        assert abs(found.motion.turn_deg - shift[2]) < 0.3


def test_a_camera_that_stands_still_allows_little(rendered, still):
    low, high = still.mount.limits
    assert (high - low < [5.0, 5.0, 1.5]).all()
    assert not any(camera_compare.compare(still, image).moved for image in rendered[1][12:])
    assert all(camera_compare.compare(still, moved(image, 3.0, 0.0, 0.0)).moved for image in rendered[1][12:16])


def test_the_error_the_data_has_on_purpose_is_measured(rendered, wandering):
    """The shifts that are found follow the camera errors that the scenes were rendered with."""
    scenes = [get_task("stack-cube").sample_scene(FIRST_SEED + k) for k in range(LEARNED)]
    errors = np.array([[*scene.camera_shift_m, *scene.camera_turn_rad, 1] for scene in scenes])
    left = wandering.mount.motions - errors @ np.linalg.lstsq(errors, wandering.mount.motions, rcond=None)[0]
    assert (left.std(axis=0) < [0.5, 0.5, 0.1]).all()


def test_a_real_gripper_is_found_and_its_movement_measured():
    """Start frames of thirteen real episodes (ZED on a Panda with a Robotiq hand), whose mount stood still."""
    films = sorted((SHARED / "droid-panda/droid_new_setup/videos/val").glob("*/2.mp4"))
    if not films:
        pytest.skip("the shared real data is not on this machine")
    images = np.stack([next(find_clip(film).images()) for film in films])
    mount = camera_mount.learn(images)
    assert mount is not None
    low, high = mount.limits
    assert (high - low < [5.0, 5.0, 2.0]).all()
    for image in images[:4]:
        here, there = camera_mount.locate(mount, image), camera_mount.locate(mount, moved(image, 8.0, -5.0, 2.0))
        assert here is not None and there is not None
        assert not mount.moved(here) and mount.moved(there)
        assert np.abs(there.numbers - here.numbers - [8.0, -5.0, 2.0]).max() < 0.5


def test_a_covered_camera_has_not_found_the_hand(wandering):
    black = np.zeros((224, 224, 3), np.uint8)
    found = camera_compare.compare(wandering, black)
    assert found.motion is None and found.moved and "not where the data shows it" in found.mount_words
    assert found.light.words.startswith("darker than the data (mean 0")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda image: image // 3, "darker than the data"),
        (lambda image: 255 - (255 - image) // 4, "brighter than the data"),
        (lambda image: (image * [1.0, 0.7, 0.6]).astype(np.uint8), "redder"),
        (lambda image: (image * [1.0, 1.0, 0.5]).astype(np.uint8), "yellower than the data"),
        (lambda image: np.where(image > image.mean(), 255, 40).astype(np.uint8), "than the data"),
    ],
    ids=["dark", "bright", "red", "yellow", "harsh"],
)
def test_light_that_the_data_never_had_is_named(rendered, change, words):
    """Data of one bench: the third of the scenes in the middle of the range of light."""
    sorted_ = sorted(rendered[0], key=lambda image: image.mean())
    bench = sorted_[len(sorted_) // 3 : 2 * len(sorted_) // 3]
    histograms = np.stack([camera_compare.histogram(image) for image in bench[::2]])
    reference = Reference(tuple(range(len(histograms))), np.stack(bench[::2]), histograms, None)
    assert camera_compare.compare_light(reference, bench[len(bench) // 2]).as_in_the_data
    light = camera_compare.compare_light(reference, change(bench[len(bench) // 2]))
    assert words in light.words and not light.as_in_the_data


def test_the_mount_is_found_in_another_light(rendered, wandering):
    image = rendered[0][LEARNED]
    one, other = (camera_mount.locate(wandering.mount, picture) for picture in (image, image // 2))
    assert one is not None and other is not None
    assert np.abs(one.numbers - other.numbers).max() < 0.5


def test_a_few_episodes_say_nothing_about_the_mount(rendered):
    reference = camera_compare.learn(rendered[0][:3])
    assert reference.mount is None
    found = camera_compare.compare(reference, rendered[0][5])
    assert not found.moved and "mount not checked" in found.mount_words


def test_pictures_with_nothing_in_the_same_place_say_nothing_about_the_mount():
    rng = np.random.default_rng(0)
    images = np.full((12, 224, 224, 3), 128, np.uint8)
    for image in images:
        x, y = rng.integers(0, 180, 2)
        image[y : y + 40, x : x + 40] = 20
    assert camera_mount.learn(images) is None


def test_a_reference_is_learned_once(rendered, tmp_path, monkeypatch):
    journal = Journal(tmp_path / "journal")
    states = np.full((1, 8), 0.08, np.float32)
    for number, image in enumerate(rendered[1][:6]):
        journal.add(number, Episode(image[None], states, states, np.zeros(1, np.int64), None, "stack", number, True))
    first = camera_compare.load(journal.folder)
    monkeypatch.setattr(camera_mount, "learn", lambda images: pytest.fail("learned again"))
    second = camera_compare.load(journal.folder)
    assert first.mount is not None and second.mount is not None
    assert np.array_equal(first.mount.motions, second.mount.motions)
    assert np.array_equal(first.histogram, second.histogram)


pictures = arrays(np.uint8, (4, 4, 3))


@given(pictures, pictures)
def test_a_histogram_distance_is_a_distance(one, other):
    a, b = camera_compare.histogram(one), camera_compare.histogram(other)
    assert camera_compare.distance(a, b) == pytest.approx(camera_compare.distance(b, a))
    assert (camera_compare.distance(a, a) == 0).all() and (camera_compare.distance(a, b) <= 255).all()


@given(st.integers(0, 200), st.integers(0, 55))
def test_a_histogram_distance_counts_levels(level, more):
    a, b = (camera_compare.histogram(np.full((4, 4, 3), value, np.uint8)) for value in (level, level + more))
    assert camera_compare.distance(a, b) == pytest.approx(np.full(3, more))
