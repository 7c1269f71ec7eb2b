"""What rollouts leave behind and how they go on, in a toy world: records, traces, early stops, workers that die."""

import dataclasses
import functools
import json
import os
import pickle

import numpy as np
import pytest
from toy_world import Crashes, Dies, Hangs, Reaches, StandStill, ToyWorld, no_policy

from robocoach.configs.errors import UserError
from robocoach.sim import pool as pools
from robocoach.sim import rollout as rollouts
from robocoach.sim.pool import SimulatorPool
from robocoach.sim.rollout import load, read_rollout, run_rollouts
from robocoach.sim.tasks import get_task
from robocoach.sim.trace import read_trace

SEEDS = (3, 11, 5, 8)


@pytest.fixture(scope="module")
def pool():
    with SimulatorPool("stack-cube", 1, ToyWorld) as opened:
        yield opened


def test_a_rollout_leaves_its_record_accounts_and_trace(pool, tmp_path):
    (result,) = run_rollouts(pool, [3], Reaches, tmp_path, max_ticks=30)
    raw = json.loads((tmp_path / "3.json").read_text())
    assert raw["ending"] == "time limit" and raw["goal"] == {
        "on the green cube": False,
        "let go": True,
        "at rest": True,
    }
    assert raw["measures"]["goal_reached"] == 0.0 and raw["measures"]["carried"] == 0.0
    (account,) = raw["accounts"]
    assert account["stage"] == "reach" and account["begin_tick"] == 1 and account["end_tick"] == 30
    assert raw["signals"]["path_m"] > 0.05 and raw["signals"]["dropped"] == 0
    trace = read_trace(tmp_path / "3.npz")
    assert trace.q.shape == (30, 7) and trace.command.shape == (30, 8) and trace.objects.shape == (30, 2, 7)
    assert trace.names == ("red_cube", "green_cube")
    np.testing.assert_allclose(trace.q, trace.command[:, :7], atol=1e-6)
    assert read_rollout(tmp_path / "3.json") == result


def test_a_record_of_an_older_version_is_read_with_defaults(pool, tmp_path):
    run_rollouts(pool, [3], StandStill, tmp_path, max_ticks=10)
    path = tmp_path / "3.json"
    raw = json.loads(path.read_text())
    old = {name: value for name, value in raw.items() if name not in ("goal", "ending", "accounts", "signals")}
    path.write_text(json.dumps(old))
    record = read_rollout(path)
    assert record is not None and record.accounts == () and record.ending == ""


def test_a_policy_that_crashes_at_once_leaves_a_record_without_a_trace(pool, tmp_path):
    (result,) = run_rollouts(pool, [3], Crashes, tmp_path)
    assert result.ending == "aborted" and "out of ideas" in result.aborted and result.accounts == ()
    assert not (tmp_path / "3.npz").exists()


def test_seeds_run_in_their_own_order_until_stop_says_so(pool, tmp_path):
    asked = []

    def stop(results):
        asked.append([result.seed for result in results])
        return len(results) == 2

    results = run_rollouts(pool, SEEDS, StandStill, tmp_path, max_ticks=5, stop=stop)
    assert asked == [[3], [3, 11]] and [result.seed for result in results] == [3, 11]
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["11.json", "3.json"]
    again = run_rollouts(pool, SEEDS, StandStill, tmp_path, max_ticks=5, stop=stop)
    assert again == results


def test_a_policy_that_cannot_be_loaded_is_an_error_and_no_failed_rollout(pool, tmp_path):
    with pytest.raises(UserError, match="no checkpoint"):
        run_rollouts(pool, SEEDS, no_policy, tmp_path)
    assert not list(tmp_path.glob("*.json"))
    assert run_rollouts(pool, [3], StandStill, tmp_path, max_ticks=5)[0].ticks == 5  # and the pool goes on


def test_a_worker_that_dies_once_is_replaced_and_its_rollout_run_again(pool, tmp_path):
    (tmp_path / "deaths").mkdir()
    maker = functools.partial(Dies, tmp_path / "deaths", 1)
    results = run_rollouts(pool, [3, 11], maker, tmp_path, max_ticks=5)
    assert [result.aborted for result in results] == ["", ""]


def test_a_worker_that_dies_twice_on_a_seed_makes_that_a_failed_rollout(pool, tmp_path):
    (tmp_path / "deaths").mkdir()
    maker = functools.partial(Dies, tmp_path / "deaths", 2)
    results = run_rollouts(pool, [3], maker, tmp_path, max_ticks=5)
    assert results[0].aborted == "the simulator's worker died" and not results[0].success
    assert results[0].ending == "aborted" and read_rollout(tmp_path / "3.json") == results[0]
    assert run_rollouts(pool, [3, 11], maker, tmp_path, max_ticks=5)[1].aborted == ""


def test_a_hung_worker_is_replaced(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(rollouts, "GRACE_S", 0.0)
    monkeypatch.setattr(pools, "LOOK_S", 0.05)
    (result,) = run_rollouts(pool, [3], Hangs, tmp_path, timeout_s=0.3)
    assert result.aborted == "the simulator's worker hung"
    assert run_rollouts(pool, [11], StandStill, tmp_path, max_ticks=5)[0].ticks == 5


def explode(environment, number):
    os._exit(1)


def test_without_a_judge_of_failures_two_deaths_in_a_row_are_an_error(pool):
    with pytest.raises(UserError, match="died twice in a row"):
        list(pool.run(explode, [(1,)]))


def test_results_that_nobody_waits_for_do_not_reach_the_next_run(pool):
    first = pool.run(identity, [(1,), (2,)])
    assert next(first) == 1
    first.close()
    assert list(pool.run(identity, [(7,)])) == [7]


def identity(environment, number):
    return number


def test_a_rollout_is_executed_smoothly_when_asked(tmp_path):
    world, folder = ToyWorld("stack-cube"), str(tmp_path)
    payload = pickle.dumps(Reaches)
    load(world, payload)
    plain = rollouts.rollout(world, 3, payload, folder, rollouts.Manner(max_ticks=10), False)
    before = read_trace(tmp_path / "3.npz").command
    calm = rollouts.rollout(world, 3, payload, folder, rollouts.Manner(max_ticks=10, smoothing=0.8), False)
    after = read_trace(tmp_path / "3.npz").command
    assert calm.signals["path_m"] < plain.signals["path_m"]
    np.testing.assert_array_equal(before[:, 7], after[:, 7])


def test_every_stage_has_something_it_is_about_with_declared_parts():
    task = get_task("stack-cube")
    assert len(task.about) == len(task.stages)
    named = {part.object for part in task.parts}
    assert all({about.object, about.goal or about.object} <= named for about in task.about)
    assert all(abs(np.linalg.norm(part.normal) - 1) < 1e-9 for part in task.parts)
    assert {part.kind for part in task.parts} <= {"face", "edge", "rim", "handle"}
    assert dataclasses.is_dataclass(task.nominal)
