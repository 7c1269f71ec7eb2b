"""Journals and datasets that this project wrote pass without an error, and damage done to them afterwards is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.datasets.check_read import open_dataset
from robocoach.datasets.check_run import Checked, check_dataset
from robocoach.datasets.contract import Contract
from robocoach.datasets.episode import Episode
from robocoach.datasets.journal import Journal
from robocoach.datasets.record import assemble

TICKS = 40
REST = np.array([0.0, -0.3, 0.0, -2.2, 0.0, 2.0, 0.8])


def demonstration(seed: int, **changes) -> Episode:
    """A plausible demonstration: a smooth reach, a grasp and a release, the view moving with the arm."""
    rng = np.random.default_rng(seed)
    phase = np.linspace(0, 2 * np.pi, TICKS + 1)[:, None]
    path = REST + rng.uniform(0.1, 0.3, 7) * np.sin(phase + rng.uniform(0, 6, 7))
    closed = (np.arange(TICKS + 1) > 12) & (np.arange(TICKS + 1) < 30)
    rows = np.concatenate([path, np.where(closed, 0.0, 0.08)[:, None]], axis=1).astype(np.float32)
    texture = rng.integers(30, 220, (28, 28, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    values: dict[str, Any] = {
        "images": np.stack([np.roll(texture, 6 * tick, axis=1) for tick in range(TICKS)]),
        "states": rows[:-1],
        "actions": rows[1:],
        "stages": np.arange(TICKS) * 5 // TICKS,
        "privileged": None,
        "task": "stack the cubes",
        "seed": seed,
        "success": True,
    }
    return Episode(**{**values, **changes})


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "episodes"
    written = Journal(folder)
    for seed in range(5):
        written.add(seed, demonstration(seed))
    return folder


def checked(path: Path) -> Checked:
    return check_dataset(open_dataset(path))


def faults(result: Checked, severity: str = "error") -> dict[str, str | None]:
    return {one.fault.name: one.episode for one in result.findings if one.severity == severity}


def made(journal: Path, root: Path, contract: Contract) -> Path:
    assemble(Journal(journal), root, contract, {"stages": ["reach", "grasp", "lift", "place", "release"]})
    return root


def test_a_journal_passes(journal):
    result = checked(journal)
    assert (result.kind, result.episodes, result.frames, result.successes) == ("journal", 5, 5 * TICKS, 5)
    assert not faults(result) and not faults(result, "warning")


def test_a_dataset_passes_and_its_lag_is_one_tick(journal, tmp_path, sim_contract):
    result = checked(made(journal, tmp_path / "dataset", sim_contract))
    assert result.episodes == 5
    assert not faults(result) and not faults(result, "warning")
    assert result.lag_s == pytest.approx(0.1, abs=0.02)


def test_checking_changes_nothing(journal):
    (journal / ".writing-000009-1").mkdir(exist_ok=True)
    before = sorted(path.relative_to(journal) for path in journal.rglob("*"))
    result = checked(journal)
    assert sorted(path.relative_to(journal) for path in journal.rglob("*")) == before
    assert "unfinished episodes" in faults(result, "note")
    (journal / ".writing-000009-1").rmdir()


def test_images_belong_to_their_own_episode_in_a_joined_video(journal, tmp_path, sim_contract):
    view = open_dataset(made(journal, tmp_path / "dataset", sim_contract))
    for seed, episode in enumerate(view.episodes()):
        assert episode.images is not None
        images = list(episode.images())
        assert len(images) == TICKS
        first = demonstration(seed).images[0].astype(float)
        assert np.abs(images[0] - first).mean() < 12


def spoiled(tmp_path: Path, **changes) -> Checked:
    folder = tmp_path / "episodes"
    written = Journal(folder)
    written.add(0, demonstration(0))
    written.add(1, demonstration(1))
    written.add(2, demonstration(2, **changes))
    return checked(folder)


def test_a_frozen_camera_is_found(tmp_path):
    images = demonstration(2).images.copy()
    images[10:25] = images[10]
    assert faults(spoiled(tmp_path, images=images)) == {"frozen frames": "000002"}


def test_a_dark_camera_is_found(tmp_path):
    images = demonstration(2).images.copy()
    images[20:23] = 0
    result = spoiled(tmp_path, images=images)
    assert "black frames" in faults(result)


def test_a_success_that_never_reached_the_last_stage_is_found(tmp_path):
    stages = np.minimum(demonstration(2).stages, 2)
    assert faults(spoiled(tmp_path, stages=stages)) == {"success, but the last stage is not reached": "000002"}


def test_the_same_episode_twice_is_found(tmp_path):
    written = Journal(tmp_path)
    for index, seed in enumerate((0, 1, 1)):
        written.add(index, demonstration(seed))
    result = checked(tmp_path)
    assert faults(result, "warning") == {"near-duplicate episodes": "000002", "scene used twice": "000002"}


def test_actions_of_the_same_frame_are_found(tmp_path):
    assert faults(spoiled(tmp_path, actions=demonstration(2).states)) == {"actions copy the state": "000002"}


def test_shifted_actions_are_found(tmp_path):
    late = np.concatenate([demonstration(2).states[:1].repeat(3, 0), demonstration(2).states[:-3]])
    assert faults(spoiled(tmp_path, actions=late)) == {"lag differs from the other episodes": "000002"}


def test_a_joint_that_jumps_is_found_with_its_frame(tmp_path):
    states = demonstration(2).states.copy()
    states[15:, 0] += 1.0
    result = spoiled(tmp_path, states=states)
    jumps = [one for one in result.findings if one.fault.name == "joint jumps"]
    assert [(one.episode, one.frame) for one in jumps] == [("000002", 14)]


def rewritten(root: Path, name: str, change) -> None:
    """Changes one column of the only data file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = next((root / "data").glob("*/*.parquet"))
    table = pq.read_table(path)
    at = table.column_names.index(name)
    column = pa.array(change(table.column(name).to_numpy()), type=table.schema.field(name).type)
    pq.write_table(table.set_column(at, table.schema.field(name), column), path)


def test_times_of_a_dataset_that_are_off_the_grid_are_found(journal, tmp_path, sim_contract):
    root = made(journal, tmp_path / "dataset", sim_contract)

    def stretch(times: np.ndarray) -> np.ndarray:
        times = times.copy()
        times[TICKS + 10 : 2 * TICKS] += 0.5
        return times

    rewritten(root, "timestamp", stretch)
    assert faults(checked(root)) == {"timestamps off the grid": "1"}


def test_frames_that_are_numbered_wrongly_are_found(journal, tmp_path, sim_contract):
    root = made(journal, tmp_path / "dataset", sim_contract)
    rewritten(root, "frame_index", lambda index: np.where(np.arange(len(index)) == 50, 7, index))
    assert faults(checked(root)) == {"frames are not numbered in order": "1"}


def test_a_cut_off_video_is_found(journal, tmp_path, sim_contract):
    root = made(journal, tmp_path / "dataset", sim_contract)
    video = next((root / "videos").rglob("*.mp4"))
    video.write_bytes(video.read_bytes()[:2000])
    result = checked(root)
    assert "images cannot be decoded" in faults(result)


def test_a_missing_data_file_is_found(journal, tmp_path, sim_contract):
    root = made(journal, tmp_path / "dataset", sim_contract)
    next((root / "data").glob("*/*.parquet")).unlink()
    assert "episode cannot be read" in faults(checked(root))


def test_statistics_and_counts_of_other_data_are_found(journal, tmp_path, sim_contract):
    root = made(journal, tmp_path / "dataset", sim_contract)
    stored = json.loads((root / "meta/stats.json").read_text())
    stored["action"]["max"][3] += 1.0
    (root / "meta/stats.json").write_text(json.dumps(stored))
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps({**info, "total_frames": 7}))
    assert set(faults(checked(root))) == {
        "stored statistics do not fit the data",
        "counts in the description do not fit the files",
    }


def test_an_edited_contract_is_found(journal, tmp_path, sim_contract):
    root = made(journal, tmp_path / "dataset", sim_contract)
    written = json.loads((root / "contract.json").read_text())
    written["meaning"]["fps"] = 30
    (root / "contract.json").write_text(json.dumps(written))
    assert "data contract broken" in faults(checked(root))


def test_another_arm_in_the_contract_is_found(journal, tmp_path, sim_contract):
    root = made(journal, tmp_path / "dataset", sim_contract)
    other = sim_contract.provenance.model_copy(update={"robot": "panda"})
    Contract(provenance=other).save(root)
    assert "data contradicts its contract" in faults(checked(root))


@pytest.mark.parametrize("kind", ["nowhere", "empty", "text", "several"])
def test_what_is_no_dataset_is_refused_in_one_line(tmp_path, kind):
    path = tmp_path / kind
    if kind != "nowhere":
        path.mkdir()
    if kind == "text":
        path = path / "notes.txt"
        path.write_text("hello")
    if kind == "several":
        for name in ("one", "two"):
            (path / name / "meta").mkdir(parents=True)
            (path / name / "meta/info.json").write_text("{}")
    with pytest.raises(UserError) as refused:
        open_dataset(path)
    assert "\n" not in str(refused.value)
    if kind == "several":
        assert "one, two" in str(refused.value)
