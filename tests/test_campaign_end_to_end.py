"""A whole campaign on real parts, small: Genesis, the trainer, sessions on the twin; killed five times at random."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from robocoach.agent_loop.store import Campaign
from robocoach.agent_loop.tree import ENDED

PIPELINE = str(Path(sys.executable).with_name("pipeline"))
SMALL = [
    *["--task", "stack-cube", "--profile", "cpu", "--seed", "7", "--coach", "rules", "--budget", "1h"],
    *["--generate.workers", "1", "--evaluate.workers", "1"],
    *["--generate.demonstrations", "4", "--train.steps", "12", "--train.minutes", "1", "--train.image-px", "32"],
    *["--train.batch-size", "8", "--train.learning-rate", "0.0001", "--train.checkpoint-every-s", "1"],
    *["--evaluate.train-rollouts", "2", "--evaluate.validation-rollouts", "2", "--evaluate.heldout-rollouts", "2"],
    *["--evaluate.max-ticks", "12", "--evaluate.videos", "1", "--campaign.preflight-rollouts", "1"],
    *["--campaign.attempts", "2", "--campaign.lessons", "false", "--campaign.hardware-from", "0"],
    *["--evidence", "both", "--session.verdict", "auto", "--session.trials", "1", "--session.countdown-s", "0"],
    *["--deploy.max-ticks", "12", "--deploy.min-clock-ratio", "0.5"],
]
KILLS = 5
LIMIT_S = 400


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    new = not (folder / "config.yaml").is_file()
    command = [PIPELINE, "campaign", *(SMALL if new else ["resume"]), "--out", str(folder), *words]
    with (folder.parent / "output.txt").open("ab") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "ROBOCOACH_COMMAND": PIPELINE}
        )


def ended(folder: Path) -> dict[int, Any]:
    """What the store says of ended attempts, times left out."""
    if not (folder / "campaign.db").is_file():
        return {}
    store = Campaign(folder, read_only=True)
    kept = ("batch", "validation", "hardware")
    try:
        return {
            a.number: (a.state, a.parent, a.change, a.reverted, [a.results.get(name) for name in kept])
            for a in store.attempts()
            if a.state in ENDED
        }
    finally:
        store.close()


def events(folder: Path) -> int:
    """How much the store has to tell: states of attempts and events."""
    if not (folder / "campaign.db").is_file():
        return 0
    store = Campaign(folder, read_only=True)
    try:
        states = ("proposed", "preflight", "training", "evaluating", "awaiting operator", "done")
        return len(store.events()) + sum(states.index(a.state) for a in store.attempts() if a.state in states)
    finally:
        store.close()


def wait_for_news(folder: Path, process: subprocess.Popen[bytes], rng: random.Random) -> None:
    """Waits for a few more events and then for up to two seconds: a random moment, wherever the campaign is."""
    wanted = events(folder) + rng.randint(2, 6)
    deadline = time.monotonic() + LIMIT_S
    while events(folder) < wanted and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(rng.uniform(0, 2))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A campaign that was killed five times at random moments and then left to end; what each kill found before it."""
    folder = tmp_path_factory.mktemp("campaign") / "run"
    rng = random.Random(11)
    before: list[dict[int, Any]] = []
    orphans = 0
    for _ in range(KILLS):
        process = start(folder)
        wait_for_news(folder, process, rng)
        if process.poll() is not None:
            break
        before.append(ended(folder))
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        orphans += len(psutil.wait_procs(children, timeout=8)[1])
    last = start(folder)
    try:
        code = last.wait(timeout=LIMIT_S)
    finally:
        last.kill()
    assert code == 0, (folder.parent / "output.txt").read_text()[-3000:]
    return folder, before, orphans


def test_no_attempt_that_had_ended_is_lost_or_changed_by_a_kill(killed):
    folder, before, _ = killed
    last = ended(folder)
    assert len(before) >= 3, "it was hardly ever killed"
    for found in before:
        assert {number: last[number] for number in found} == found


def test_a_killed_campaign_leaves_no_process_behind(killed):
    assert killed[2] == 0


def test_the_campaign_ends_with_its_attempts_its_best_and_its_page(killed):
    folder, _, _ = killed
    content = json.loads((folder / "result.json").read_text())
    assert [attempt["state"] for attempt in content["attempts"]] == ["done"] * 2
    assert content["confirm"]["heldout"]["n"] == 2 and content["state"] == "finished"
    assert "attempts/0001" in (folder / "report.html").read_text()


def test_every_attempt_had_its_session_on_the_twin_and_the_report_tells_of_it(killed):
    folder, _, _ = killed
    content = json.loads((folder / "result.json").read_text())
    assert all(attempt["hardware"]["n"] <= 1 for attempt in content["attempts"])
    assert (folder / "attempts/0000/hardware/plan.json").is_file()
    assert "On the arm" in (folder / "attempts/0000/feedback.md").read_text()


def test_the_second_attempt_changes_what_the_evidence_calls_poor(killed):
    folder, _, _ = killed
    content = json.loads((folder / "result.json").read_text())
    assert "train.learning_rate" in content["attempts"][1]["change"]


@pytest.mark.parametrize("word", ["status", "tree", "show"])
def test_a_campaign_is_told_of_without_touching_it(killed, word):
    folder, _, _ = killed
    words = [word, *(["1"] if word == "show" else [])]
    told = subprocess.run(
        [PIPELINE, "campaign", *words, "--out", str(folder)], capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout.strip() and not told.stderr


def test_stopping_what_does_not_run_is_refused_in_one_line(killed):
    folder, _, _ = killed
    told = subprocess.run(
        [PIPELINE, "campaign", "stop", "--out", str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.returncode == 2 and "not running" in told.stderr and len(told.stderr.splitlines()) == 1
