"""Demonstrations and rollouts on the real simulator: determinism, judging, crashes, a killed generation."""

import functools
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from toy_world import Crashes, Reaches

from robocoach.datasets import splits
from robocoach.datasets.journal import Journal
from robocoach.sim.generate import generate
from robocoach.sim.pool import SimulatorPool
from robocoach.sim.rollout import cached_policy, run_rollouts
from robocoach.sim.tasks import get_task
from robocoach.sim.trace import read_trace

TASK = get_task("stack-cube")
RUN = 7


@pytest.fixture(scope="module")
def pool():
    with SimulatorPool("stack-cube", 1) as opened:
        yield opened


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Three demonstrations by two workers."""
    folder = tmp_path_factory.mktemp("two")
    with SimulatorPool("stack-cube", 2) as opened:
        made = generate(opened, RUN, 3, folder)
    return made, Journal(folder)


def test_the_same_seed_gives_the_same_demonstrations_with_one_worker_or_two(pool, two, tmp_path):
    made_by_two, journal_of_two = two
    # The worker has run something else before: nothing of it may leak into what follows.
    run_rollouts(pool, splits.seeds("development", RUN, 1), StandStill, tmp_path / "before", max_ticks=20)
    made = generate(pool, RUN, 3, tmp_path / "one")
    assert made.indices == made_by_two.indices
    journal = Journal(tmp_path / "one")
    for index in made.indices:
        ours, theirs = journal.read(index), journal_of_two.read(index)
        np.testing.assert_array_equal(ours.states, theirs.states)
        np.testing.assert_array_equal(ours.actions, theirs.actions)
        np.testing.assert_array_equal(ours.episode().images, theirs.episode().images)


def test_demonstrations_are_successes_in_order_of_stages_with_finite_numbers(two):
    made, journal = two
    for index in made.indices:
        record = journal.read(index)
        assert record.success and record.task == TASK.instruction
        assert np.all(np.diff(record.stages) >= 0) and record.stages[0] == 0 and record.stages[-1] == 4
        assert np.abs(record.actions[:, :7] - record.states[:, :7]).max() < 0.4
        assert record.seed in splits.RANGES["demonstration"]


def test_wrist_images_show_different_scenes_and_change_as_the_arm_moves(two):
    made, journal = two
    first, second = (journal.read(index).episode().images.astype(int) for index in made.indices[:2])
    assert np.abs(first[0] - second[0]).mean() > 3
    assert np.abs(first[0] - first[15]).mean() > 3


class StandStill:
    """Repeats where the arm is."""

    def reset(self) -> None:
        pass

    def act(self, image, state, instruction):
        assert image.shape == (224, 224, 3) and image.dtype == np.uint8
        assert instruction == TASK.instruction
        return np.repeat(state[None], 8, axis=0)


class Nan(StandStill):
    def act(self, image, state, instruction):
        return np.full((8, 8), np.nan, dtype=np.float32)


def test_a_policy_that_stands_still_fails_and_is_filmed_when_asked(pool, tmp_path):
    seeds = splits.seeds("development", RUN, 2)
    results = run_rollouts(pool, seeds, StandStill, tmp_path, max_ticks=20, videos=1)
    assert [result.seed for result in results] == list(seeds)
    assert not any(result.success for result in results)
    assert all(result.ticks == 20 and result.stage == 0 for result in results)
    assert (tmp_path / results[0].video).stat().st_size > 1000 and results[1].video == ""
    assert results[0].measures["closest_m"] > 0.1


@pytest.mark.parametrize(("policy", "reason"), [(Crashes, "out of ideas"), (Nan, "finite actions")])
def test_a_policy_that_cannot_act_counts_as_a_failure(pool, tmp_path, policy, reason):
    (result,) = run_rollouts(pool, splits.seeds("development", RUN, 1), policy, tmp_path, max_ticks=20)
    assert not result.success and reason in result.aborted


def test_finished_rollouts_are_not_run_again(pool, tmp_path):
    seeds = splits.seeds("development", RUN, 2)
    run_rollouts(pool, seeds[:1], StandStill, tmp_path, max_ticks=20)
    record = tmp_path / f"{seeds[0]}.json"
    raw = json.loads(record.read_text())
    record.write_text(json.dumps({**raw, "ticks": 19}))
    results = run_rollouts(pool, seeds, StandStill, tmp_path, max_ticks=20)
    assert [result.ticks for result in results] == [19, 20]


def test_corrective_demonstrations_begin_where_a_policy_led(pool, tmp_path):
    made = generate(pool, RUN, 1, tmp_path, make_policy=StandStill)
    record = Journal(tmp_path).read(made.indices[0])
    assert record.success and made.indices[0] >= 5_000


def test_corrective_demonstrations_begin_exactly_where_a_failed_rollout_was(pool, tmp_path):
    seeds = splits.seeds("train", RUN, 1)
    (failed,) = run_rollouts(pool, seeds, Reaches, tmp_path / "failed", max_ticks=25)
    assert failed.ending == "time limit" and len(failed.accounts) == failed.stage + 1
    made = generate(pool, RUN, 1, tmp_path / "made", failures=[tmp_path / "failed" / f"{failed.seed}.json"])
    record = Journal(tmp_path / "made").read(made.indices[0])
    trace = read_trace(tmp_path / "failed" / f"{failed.seed}.npz")
    assert record.success and record.seed == failed.seed
    way = np.column_stack([trace.q, trace.width])
    assert np.abs(way - record.states[0]).max(axis=1).min() < 1e-6


GENERATE = """
import sys
from pathlib import Path
from robocoach.sim.generate import generate
from robocoach.sim.pool import SimulatorPool
if __name__ == "__main__":
    with SimulatorPool("stack-cube", 1) as pool:
        generate(pool, {run}, 3, Path(sys.argv[1]))
"""


def test_a_killed_generation_goes_on_and_loses_at_most_the_demonstration_in_flight(pool, two, tmp_path):
    script = tmp_path / "generate.py"
    script.write_text(GENERATE.format(run=RUN))
    folder = tmp_path / "journal"
    process = subprocess.Popen([sys.executable, str(script), str(folder)], start_new_session=True)
    deadline = time.monotonic() + 400
    while not list(folder.glob("000000/episode.json")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1.0)  # the worker ends with its parent
    kept = Journal(folder).done()
    assert 0 in kept
    before = {index: (folder / f"{index:06d}" / "numbers.npz").stat().st_mtime_ns for index in kept}
    made = generate(pool, RUN, 3, folder)
    assert made.indices == two[0].indices
    for index, written in before.items():
        assert (folder / f"{index:06d}" / "numbers.npz").stat().st_mtime_ns == written
    for index in made.indices:
        np.testing.assert_array_equal(Journal(folder).read(index).states, two[1].read(index).states)


class Named(StandStill):
    def __init__(self, name: str) -> None:
        self.name = name


def test_makers_of_policies_are_told_apart():
    first = cached_policy(functools.partial(Named, "a"))
    assert cached_policy(functools.partial(Named, "a")) is first
    assert cached_policy(functools.partial(Named, "b")) is not first
