"""A dataset as arrays: the right pixels, decoded once, whoever comes first."""

import threading

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.datasets import frames, video
from robocoach.datasets.contract import Meaning
from robocoach.datasets.frames import open_source
from robocoach.datasets.journal import Journal
from robocoach.datasets.record import assemble


@pytest.fixture
def journal(make_episode, tmp_path) -> Journal:
    journal = Journal(tmp_path / "journal")
    journal.add(0, make_episode(ticks=7, seed=1))
    journal.add(1, make_episode(ticks=5, seed=2, task="pour"))
    return journal


@pytest.fixture
def root(journal, sim_contract, tmp_path):
    return assemble(journal, tmp_path / "data", sim_contract).root


@pytest.fixture
def decoded(monkeypatch) -> list:
    """The videos that were decoded, in order."""
    calls = []
    real = video.decode

    def counting(path, px=None):
        calls.append(path)
        return real(path, px)

    monkeypatch.setattr(frames.video, "decode", counting)
    return calls


def test_images_are_the_stored_ones_shrunk(journal, root):
    source = open_source(root, 96, "sim")
    stored = np.concatenate([journal.read(index).episode().images for index in (0, 1)])
    assert np.array_equal(source.images, np.stack([video.resize(image, 96) for image in stored]))


def test_numbers_and_instructions_are_the_stored_ones(journal, root):
    source = open_source(root, 32, "sim")
    records = [journal.read(index) for index in (0, 1)]
    assert np.array_equal(source.states, np.concatenate([record.states for record in records]))
    assert np.array_equal(source.actions, np.concatenate([record.actions for record in records]))
    assert source.privileged is not None
    assert np.array_equal(source.privileged, np.concatenate([record.privileged for record in records]))
    assert np.array_equal(source.stages, np.concatenate([record.stages for record in records]))
    assert source.episode.tolist() == [0] * 7 + [1] * 5
    assert [source.instructions[index] for index in source.instruction] == ["stack the cubes"] * 7 + ["pour"] * 5
    assert (source.states.dtype, source.actions.dtype, source.episode.dtype) == (np.float32, np.float32, np.int64)


def test_a_dataset_without_privileged_values_says_so(make_episode, sim_contract, tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.add(0, make_episode(privileged=None))
    root = assemble(journal, tmp_path / "data", sim_contract).root
    assert open_source(root, 32, "real").privileged is None


def test_the_second_opening_decodes_nothing(root, decoded):
    first = open_source(root, 48, "sim")
    assert len(decoded) == 1
    second = open_source(root, 48, "sim")
    assert len(decoded) == 1
    assert np.array_equal(first.images, second.images)


def test_another_size_is_decoded_on_its_own(root, decoded):
    assert open_source(root, 48, "sim").images.shape == (12, 48, 48, 3)
    assert open_source(root, 64, "sim").images.shape == (12, 64, 64, 3)
    assert len(decoded) == 2


def test_changed_data_is_decoded_again(journal, root, make_episode, sim_contract, tmp_path):
    before = open_source(root, 32, "sim")
    journal.add(2, make_episode(seed=3))
    assemble(journal, tmp_path / "data", sim_contract)
    after = open_source(root, 32, "sim")
    assert (len(before.images), len(after.images)) == (12, 18)
    assert before.digest != after.digest


def test_openers_at_the_same_time_decode_once(root, decoded):
    found = []
    threads = [threading.Thread(target=lambda: found.append(open_source(root, 64, "sim").images)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(decoded) == 1
    assert all(np.array_equal(images, found[0]) for images in found)


def test_a_cut_off_decoding_is_done_again(root, decoded, tmp_path):
    open_source(root, 48, "sim", cache_dir=tmp_path / "cache")
    (whole,) = (tmp_path / "cache").glob("*.npy")
    whole.rename(whole.with_suffix(".decoding"))
    assert open_source(root, 48, "sim", cache_dir=tmp_path / "cache").images.shape == (12, 48, 48, 3)
    assert len(decoded) == 2


def test_the_images_cannot_be_changed_by_accident(root):
    with pytest.raises(ValueError, match="read-only"):
        open_source(root, 32, "sim").images[0] = 0


def test_a_dataset_of_another_meaning_is_refused(root, sim_contract):
    sim_contract.model_copy(update={"meaning": Meaning(fps=15)}).save(root)
    with pytest.raises(UserError, match="fps: expected 10, it has 15"):
        open_source(root, 32, "sim")


def test_a_folder_without_contract_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no contract\.json"):
        open_source(tmp_path, 32, "sim")


@pytest.mark.parametrize("victim", ["data/chunk-000/file-000.parquet", "meta/tasks.parquet"])
def test_a_cut_off_table_is_one_line(victim, root):
    path = root / victim
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(UserError, match="is not a whole LeRobotDataset v3"):
        open_source(root, 32, "sim")


def test_a_cut_off_video_is_one_line(root):
    (path,) = root.glob("videos/*/*/*.mp4")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=r"cannot be decoded|the videos hold"):
        open_source(root, 32, "sim")


def test_missing_videos_are_one_line(root):
    (path,) = root.glob("videos/*/*/*.mp4")
    path.unlink()
    with pytest.raises(UserError, match="the videos hold 0 images for 12 frames"):
        open_source(root, 32, "sim")


def test_a_cache_that_cannot_be_written_is_one_line(root, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the decoded frames"):
        open_source(root, 32, "sim", cache_dir=tmp_path / "file" / "cache")


def test_an_impossible_size_is_refused(root):
    with pytest.raises(UserError, match="choose 1 to 224"):
        open_source(root, 225, "sim")


def test_progress_ends_at_the_number_of_frames(root):
    seen = []
    open_source(root, 32, "sim", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (12, 12)
