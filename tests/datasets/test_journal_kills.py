"""The journal: what is finished stays, what was in flight when a process died is gone without a trace."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.datasets.episode import Episode
from robocoach.datasets.journal import Journal, pixel_statistics

WRITER = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from conftest import small_episode
from robocoach.datasets.journal import Journal

journal = Journal(Path(sys.argv[1]))
for index in range(int(sys.argv[2]), 10_000, int(sys.argv[3])):
    episode = small_episode(ticks=40, seed=index)
    print(index, flush=True)
    journal.add(index, episode)
"""


def start_writer(folder: Path, first: int = 0, step: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(first), str(step)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_until(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)


def finished(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("[0-9]*")]


def in_flight(folder: Path) -> list[Path]:
    return list(folder.glob(".writing-*/wrist.mp4"))


@pytest.mark.parametrize("after", [2, 5])
def test_a_kill_in_the_middle_loses_at_most_the_episode_in_flight(after, make_episode, tmp_path):
    writer = start_writer(tmp_path)
    wait_until(lambda: len(finished(tmp_path)) >= after and in_flight(tmp_path))
    os.kill(writer.pid, signal.SIGKILL)
    started = [int(line) for line in writer.communicate()[0].split()]
    assert writer.returncode == -signal.SIGKILL

    journal = Journal(tmp_path)
    done = journal.done()
    assert done == list(range(len(done)))
    assert len(started) - len(done) <= 1
    assert not list(tmp_path.glob(".writing-*"))
    for index in done:
        expected = make_episode(ticks=40, seed=index)
        assert np.array_equal(journal.read(index).states, expected.states)
        assert len(journal.read(index).episode().images) == 40

    journal.add(len(done), make_episode(seed=len(done)))
    assert journal.done() == list(range(len(done) + 1))


def test_two_processes_write_different_indices_at_once(tmp_path):
    writers = [start_writer(tmp_path, first, 2) for first in (0, 1)]
    try:
        wait_until(lambda: {"000002", "000003"} <= set(finished(tmp_path)))
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    journal = Journal(tmp_path)
    assert [journal.read(index).seed for index in journal.done()] == journal.done()


def test_an_episode_reads_back_as_it_was(make_episode, tmp_path):
    episode = make_episode(ticks=9, seed=4, task="pour", success=False)
    journal = Journal(tmp_path)
    journal.add(12, episode)
    read = journal.read(12).episode()
    for name in ("states", "actions", "stages", "privileged"):
        assert np.array_equal(getattr(read, name), getattr(episode, name))
    assert (read.task, read.seed, read.success) == ("pour", 4, False)
    assert np.abs(read.images.astype(int) - episode.images).mean() < 2


def test_an_episode_without_privileged_values_keeps_none(make_episode, tmp_path):
    journal = Journal(tmp_path)
    journal.add(0, make_episode(privileged=None))
    assert journal.read(0).privileged is None


def test_half_written_leftovers_are_no_episodes_and_are_removed(make_episode, tmp_path):
    leftover = tmp_path / ".writing-000001-999999"
    leftover.mkdir(parents=True)
    (leftover / "wrist.mp4").write_bytes(b"cut off")
    journal = Journal(tmp_path)
    assert journal.done() == []
    assert not leftover.exists()


def test_opening_the_journal_spares_what_another_writer_has_in_flight(tmp_path):
    with Journal(tmp_path)._in_flight(3) as folder:
        Journal(tmp_path)
        assert folder.is_dir()
    assert not folder.exists()


def test_an_index_is_written_once(make_episode, tmp_path):
    journal = Journal(tmp_path)
    journal.add(0, make_episode(seed=1))
    with pytest.raises(FileExistsError, match="episode 0 is already in"):
        journal.add(0, make_episode(seed=2))
    assert journal.read(0).seed == 1


def test_a_failed_write_is_one_line_and_leaves_nothing_behind(tmp_path):
    """A limit on the file size stands for a full disk: writes fail in the same place, without root."""
    program = WRITER.replace(
        "journal = Journal",
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "journal = Journal",
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), "0", "1"], capture_output=True, text=True)
    assert "UserError: cannot write episode 0" in done.stderr.splitlines()[-1]
    assert "make room, then resume" in done.stderr.splitlines()[-1]
    assert finished(tmp_path) == []
    assert not list(tmp_path.glob(".writing-*"))


def test_a_broken_episode_is_named_with_the_mend(make_episode, tmp_path):
    journal = Journal(tmp_path)
    journal.add(0, make_episode())
    numbers = tmp_path / "000000" / "numbers.npz"
    numbers.write_bytes(numbers.read_bytes()[:100])
    with pytest.raises(UserError, match=r"000000 cannot be read .* delete that folder"):
        journal.read(0)


def test_a_journal_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the journal folder"):
        Journal(tmp_path / "file" / "journal")


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("images", np.zeros((6, 96, 96, 3), np.uint8), r"images: expected uint8 \(6, 224, 224, 3\), got uint8"),
        ("states", np.zeros((6, 8)), "states: expected float32"),
        ("actions", np.full((6, 8), np.nan, np.float32), "actions: a number of frame 0 is not finite"),
        ("stages", np.zeros(5, np.int64), r"stages: expected int64 \(6,\)"),
        ("task", " ", "needs an instruction"),
    ],
)
def test_arrays_that_are_no_episode_are_refused(field, value, told, make_episode):
    fields = {**vars(make_episode(ticks=6)), field: value}
    with pytest.raises(ValueError, match=told):
        Episode(**fields)


def test_pixel_statistics_are_those_of_the_pixels():
    images = np.random.default_rng(0).integers(0, 256, (8, 224, 224, 3)).astype(np.uint8)
    statistics = pixel_statistics(images)
    assert statistics["mean"] == pytest.approx(images.mean(axis=(0, 1, 2)) / 255, abs=0.01)
    assert statistics["q90"] == pytest.approx(np.quantile(images, 0.9, axis=(0, 1, 2)) / 255, abs=0.02)
    assert statistics["count"] == [8]
