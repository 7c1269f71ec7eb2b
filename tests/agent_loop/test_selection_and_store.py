"""Which attempt is kept, and the campaign store that remembers it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from robocoach.agent_loop.selection import Score, select
from robocoach.agent_loop.store import Campaign
from robocoach.configs.errors import UserError

SEEDS = tuple(range(4))


def score(attempt, *outcomes):
    return Score(attempt, SEEDS, tuple(bool(outcome) for outcome in outcomes))


def test_a_better_second_attempt_is_kept():
    choice = select([score(0, 1, 0, 0, 0), score(1, 1, 1, 0, 0)])
    assert choice.winner == 1 and "2/4" in choice.reason and "1/4" in choice.reason


def test_a_worse_second_attempt_is_reported_and_not_kept():
    choice = select([score(0, 1, 1, 0, 0), score(1, 0, 0, 1, 0)])
    assert choice.winner == 0
    assert "attempt 1 is worse" in choice.reason and "1/4" in choice.reason and "2/4" in choice.reason
    assert choice.paired is not None and (choice.paired.only_a, choice.paired.only_b) == (2, 1)


def test_a_tie_keeps_the_first():
    choice = select([score(1, 0, 0, 1, 1), score(0, 1, 1, 0, 0)])
    assert choice.winner == 0 and "no better" in choice.reason


def test_attempts_on_different_seeds_are_not_compared():
    with pytest.raises(ValueError, match="different validation seeds"):
        select([score(0, 1, 1, 1, 1), Score(1, (7, 8, 9, 10), (True,) * 4)])


def test_the_store_keeps_tree_results_and_events(tmp_path):
    store = Campaign(tmp_path)
    store.add(0)
    store.add(1, parent=0, start="parent", move="extend", coach="rules", change={"train.ema": [0.99, 0.9]})
    store.advance(1, "training")
    store.advance(1, "evaluating", training={"steps": 7})
    store.advance(1, "done", validation={"successes": 3, "n": 20}, reverted=True, reason="worse")
    store.record("selected", 0, reason="tie")
    store.put(best=0, spent_s=12.5)
    store.close()
    again = Campaign(tmp_path)
    first, second = again.attempts()
    assert (first.parent, second.parent, second.change, second.state) == (None, 0, {"train.ema": [0.99, 0.9]}, "done")
    assert second.results == {"training": {"steps": 7}, "validation": {"successes": 3, "n": 20}}
    assert (second.reverted, second.reason) == (True, "worse")
    assert again.events("selected")[0].detail == {"reason": "tie"}
    assert (again.get("best"), again.get("spent_s"), again.get("nothing", 4)) == (0, 12.5, 4)


def test_adding_an_attempt_again_keeps_its_results(tmp_path):
    store = Campaign(tmp_path)
    store.add(0)
    store.advance(0, "training", training={"steps": 5})
    store.add(0)
    assert store.attempts()[0].results == {"training": {"steps": 5}}
    assert store.attempts()[0].state == "proposed"


def test_a_state_that_does_not_follow_is_not_stored(tmp_path):
    store = Campaign(tmp_path)
    store.add(0)
    with pytest.raises(ValueError, match="done does not follow"):
        store.advance(0, "done", validation={"successes": 20, "n": 20})
    assert (store.attempts()[0].state, store.attempts()[0].results) == ("proposed", {})


def test_a_reader_beside_the_writer_changes_nothing(tmp_path):
    store = Campaign(tmp_path)
    store.add(0)
    reader = Campaign(tmp_path, read_only=True)
    store.advance(0, "training")
    assert reader.attempts()[0].state == "training"
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.put(best=1)


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "campaign.db").write_bytes(b"this is not a database, but it is long enough to look like one" * 20)
    with pytest.raises(UserError, match=r"campaign\.db is damaged"):
        Campaign(tmp_path)


def test_what_was_committed_before_a_kill_is_there(tmp_path):
    code = (
        "import os, sys, pathlib; from robocoach.agent_loop.store import Campaign\n"
        "store = Campaign(pathlib.Path(sys.argv[1])); store.add(0); store.record('trained', 0, steps=7)\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    store = Campaign(tmp_path)
    assert len(store.attempts()) == 1 and store.events()[0].detail == {"steps": 7}
