"""Recorded pictures: the right frames of the right episode, at the rate they were recorded."""

import json
import time

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.datasets import video
from robocoach.datasets.episode import Episode
from robocoach.datasets.journal import Journal
from robocoach.datasets.record import assemble
from robocoach.robots.camera_recorded import contract_of, find_clip, read_starts
from robocoach.robots.camera_replay import open_replay
from robocoach.sim import provenance

TICKS = 7


def level(episode: int, tick: int) -> int:
    return 20 + 60 * episode + 6 * tick


def recorded(number: int, width_m: float) -> Episode:
    images = np.stack([np.full((224, 224, 3), level(number, tick), np.uint8) for tick in range(TICKS)])
    states = np.zeros((TICKS, 8), np.float32)
    states[:, -1] = width_m
    return Episode(images, states, states, np.zeros(TICKS, np.int64), None, "stack", number, True)


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    made = Journal(tmp_path_factory.mktemp("recorded") / "journal")
    for number, width_m in enumerate((0.08, 0.08, 0.02)):
        made.add(number, recorded(number, width_m))
    return made


@pytest.fixture(scope="module")
def root(journal):
    return assemble(journal, journal.folder.with_name("data"), provenance.contract("sim:genesis", "1.4.5")).root


def shown(images) -> list[int]:
    return [int(np.median(image)) for image in images]


def near(episode: int) -> list:
    return [pytest.approx(level(episode, tick), abs=2) for tick in range(TICKS)]


@pytest.mark.parametrize("episode", [0, 1, 2])
def test_an_episode_of_a_joined_video_is_found(root, episode):
    assert shown(find_clip(root, episode).images()) == near(episode)


def test_an_episode_of_a_journal_is_found(journal):
    assert shown(find_clip(journal.folder, 1).images()) == near(1)


@pytest.mark.parametrize("kind", ["dataset", "journal"])
def test_start_frames_are_those_with_an_open_hand(root, journal, kind):
    starts = read_starts(root if kind == "dataset" else journal.folder, 64)
    assert starts.episodes == (0, 1)
    assert shown(starts.images) == [near(0)[0], near(1)[0]]


def test_start_frames_are_spread_over_the_data(root):
    assert read_starts(root, 1).images.shape == (1, 224, 224, 3)


def test_an_episode_that_is_not_there_is_one_line(root):
    with pytest.raises(UserError, match="has no episode 9; it has 3, 0 to 2"):
        find_clip(root, 9)


def test_something_else_is_one_line(tmp_path):
    with pytest.raises(UserError, match="is no recording; name a LeRobotDataset"):
        find_clip(tmp_path)
    (tmp_path / "film.mp4").write_bytes(b"no film")
    with pytest.raises(UserError, match="is no video"):
        find_clip(tmp_path / "film.mp4")


def test_a_video_that_breaks_off_stops_and_says_so(root, tmp_path):
    (whole,) = root.glob("videos/*/*/*.mp4")
    content = whole.read_bytes()
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(content[: 3 * len(content) // 4])
    replay = open_replay(cut)
    replay._player.join(timeout=5.0)
    assert not replay._player.is_alive()
    assert any("cannot be decoded" in note for note in replay.info().notes)
    replay.close()


def test_a_replay_shows_the_recording_at_its_rate(root):
    replay = open_replay(root, 1, repeat=False)
    seen, moment = [], 0.0
    try:
        while (frame := replay.newer_than(moment, 0.5)) is not None:
            seen.append(frame)
            moment = frame.captured_s
    finally:
        replay.close()
    assert shown(frame.image for frame in seen) == near(1)
    assert np.diff([frame.captured_s for frame in seen]) == pytest.approx(np.full(TICKS - 1, 0.1), abs=0.05)
    last = replay.latest()
    assert (
        last is not None and time.monotonic() - last.captured_s >= 0.4
    )  # the recording is over: its last frame grows old


def test_a_replay_begins_again(journal):
    replay = open_replay(journal.folder, 2)
    try:
        assert replay.newer_than(time.monotonic() + 0.1 * TICKS, 3.0) is not None
    finally:
        replay.close()
    assert not replay._player.is_alive()


def test_a_film_of_another_size_is_cut_to_the_contract(tmp_path):
    images = np.zeros((3, 240, 320, 3), np.uint8)
    images[:, :, 40:280] = 180
    video.encode(images, tmp_path / "wide.mp4")
    (first, *_) = find_clip(tmp_path / "wide.mp4").images()
    assert first.shape == (224, 224, 3) and np.abs(first.astype(int) - 180).max() < 8


def test_a_replay_has_the_camera_of_its_contract(root):
    replay = open_replay(root)
    replay.close()
    contract = contract_of(root)
    assert contract is not None
    assert replay.info().provenance["fov_deg"] == contract.provenance.fov_deg == 42.5
    assert json.loads((root / "contract.json").read_text())["provenance"]["camera"] == replay.info().camera
