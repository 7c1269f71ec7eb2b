"""From the journal to a LeRobotDataset v3: LeRobot opens it and every frame is the right one."""

import json
import shutil

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.datasets import record
from robocoach.datasets.contract import Contract
from robocoach.datasets.journal import Journal
from robocoach.datasets.record import assemble, dataset_digest

LENGTHS = (7, 12, 5, 9)
TASKS = ("stack the cubes", "stack the cubes", "pour", "stack the cubes")


@pytest.fixture
def journal(make_episode, tmp_path) -> Journal:
    """Four episodes with gaps between the indices, written out of order."""
    journal = Journal(tmp_path / "journal")
    for number in (2, 0, 3, 1):
        episode = make_episode(ticks=LENGTHS[number], seed=40 + number, task=TASKS[number], success=number != 1)
        journal.add(10 * number, episode)
    return journal


def open_with_lerobot(root, **options):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset("local/test", root=root, **options)


def compare_every_frame(dataset, journal: Journal) -> None:
    index = 0
    for number, name in enumerate(journal.done()):
        stored = journal.read(name)
        images, privileged = stored.episode().images, stored.privileged
        assert privileged is not None
        for tick in range(len(images)):
            item = dataset[index]
            assert item["episode_index"] == number
            assert item["frame_index"] == tick
            assert item["timestamp"].item() == pytest.approx(tick / 10)
            assert item["task"] == TASKS[number]
            assert np.array_equal(item["observation.state"], stored.states[tick])
            assert np.array_equal(item["action"], stored.actions[tick])
            assert np.array_equal(item["privileged"], privileged[tick])
            assert item["stage"] == stored.stages[tick]
            image = item["observation.images.wrist"].permute(1, 2, 0).numpy() * 255
            assert np.abs(image - images[tick]).mean() < 1
            index += 1
    assert index == len(dataset)


@pytest.mark.parametrize("backend", ["torchcodec", "pyav"])
def test_lerobot_reads_every_frame_number_and_instruction(backend, journal, sim_contract, tmp_path):
    assemble(journal, tmp_path / "data", sim_contract)
    compare_every_frame(open_with_lerobot(tmp_path / "data", video_backend=backend), journal)


def test_files_of_bounded_size_hold_the_same_frames(journal, sim_contract, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "VIDEO_FILE_MB", 0.01)
    monkeypatch.setattr(record, "DATA_FILE_FRAMES", 20)
    root = assemble(journal, tmp_path / "data", sim_contract).root
    assert len(list(root.glob("videos/*/*/*.mp4"))) > 1
    assert len(list(root.glob("data/*/*.parquet"))) > 1
    compare_every_frame(open_with_lerobot(root), journal)


def test_episodes_carry_their_seed_and_success(journal, sim_contract, tmp_path):
    info = assemble(journal, tmp_path / "data", sim_contract)
    episodes = open_with_lerobot(info.root).meta.episodes
    assert list(episodes["seed"]) == [40, 41, 42, 43]
    assert list(episodes["success"]) == [True, False, True, True]
    assert list(episodes["length"]) == list(LENGTHS)
    assert (info.episodes, info.frames, info.successes) == (4, sum(LENGTHS), 3)
    assert info.instructions == ("stack the cubes", "pour")


def test_a_chunk_of_actions_ends_with_its_episode(journal, sim_contract, tmp_path):
    root = assemble(journal, tmp_path / "data", sim_contract).root
    dataset = open_with_lerobot(root, delta_timestamps={"action": [0.0, 0.1, 0.2]})
    last = dataset[LENGTHS[0] - 1]
    assert last["action_is_pad"].tolist() == [False, True, True]
    assert np.array_equal(last["action"][2], journal.read(0).actions[-1])


def test_the_contract_and_the_callers_notes_lie_inside(journal, sim_contract, tmp_path):
    root = assemble(journal, tmp_path / "data", sim_contract, {"stages": ["reach", "grasp"]}).root
    assert Contract.load(root) == sim_contract
    assert json.loads((root / "meta/robocoach.json").read_text()) == {"stages": ["reach", "grasp"]}


def test_the_stored_quantiles_are_those_of_all_frames(journal, sim_contract, tmp_path):
    root = assemble(journal, tmp_path / "data", sim_contract).root
    actions = np.concatenate([journal.read(index).actions for index in journal.done()])
    stored = open_with_lerobot(root).meta.stats["action"]
    assert stored["q99"] == pytest.approx(np.quantile(actions, 0.99, axis=0))
    assert stored["count"] == [len(actions)]


def test_the_same_journal_gives_the_same_dataset(journal, sim_contract, tmp_path):
    first = assemble(journal, tmp_path / "one", sim_contract, {"run": 1})
    second = assemble(journal, tmp_path / "two", sim_contract, {"run": 1})
    assert first.digest == second.digest == dataset_digest(tmp_path / "two")


def test_assembling_again_replaces_what_was_there(journal, make_episode, sim_contract, tmp_path):
    before = assemble(journal, tmp_path / "data", sim_contract)
    journal.add(99, make_episode())
    after = assemble(journal, tmp_path / "data", sim_contract)
    assert (before.episodes, after.episodes) == (4, 5)
    assert before.digest != after.digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "journal"]


def test_chosen_episodes_can_be_left_out(journal, sim_contract, tmp_path):
    info = assemble(journal, tmp_path / "data", sim_contract, indices=[30, 0])
    assert list(open_with_lerobot(info.root).meta.episodes["seed"]) == [40, 43]


def test_one_changed_byte_changes_the_digest(journal, sim_contract, tmp_path):
    root = assemble(journal, tmp_path / "data", sim_contract).root
    before = dataset_digest(root)
    path = root / "meta/robocoach.json"
    path.write_text(path.read_text() + " ")
    assert dataset_digest(root) != before


def test_a_broken_episode_leaves_the_old_dataset_as_it_was(journal, sim_contract, tmp_path):
    before = assemble(journal, tmp_path / "data", sim_contract)
    (journal.folder / "000020" / "numbers.npz").write_bytes(b"cut off")
    with pytest.raises(UserError, match="000020 cannot be read"):
        assemble(journal, tmp_path / "data", sim_contract)
    assert dataset_digest(tmp_path / "data") == before.digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "journal"]


def test_a_broken_video_is_one_line(journal, sim_contract, tmp_path):
    (journal.folder / "000020" / "wrist.mp4").write_bytes(b"cut off")
    with pytest.raises(UserError, match="cannot write the dataset"):
        assemble(journal, tmp_path / "data", sim_contract)


def test_the_rest_of_a_killed_assembly_is_in_nobodys_way(journal, sim_contract, tmp_path):
    shutil.copytree(journal.folder, tmp_path / ".data.assembling")
    assemble(journal, tmp_path / "data", sim_contract)
    assert not (tmp_path / ".data.assembling").exists()


def test_an_empty_journal_gives_no_dataset(sim_contract, tmp_path):
    with pytest.raises(UserError, match="has no finished episode"):
        assemble(Journal(tmp_path / "journal"), tmp_path / "data", sim_contract)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()])
def test_nothing_has_no_digest(make, tmp_path):
    make(tmp_path / "data")
    with pytest.raises(UserError, match="is no dataset"):
        dataset_digest(tmp_path / "data")
