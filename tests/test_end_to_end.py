"""The whole main job on real parts, small: five demonstrations, fifty steps, Ctrl-C, resumed, deployed, reported."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

PIPELINE = str(Path(sys.executable).with_name("pipeline"))
SMALL = [
    *["--task", "stack-cube", "--profile", "cpu", "--seed", "7"],
    *["--generate.workers", "1", "--evaluate.workers", "1"],  # so few jobs: a second simulator would only start up
    *["--generate.demonstrations", "5", "--train.steps", "50", "--train.warmup-steps", "10"],
    *["--train.executed-steps", "4"],  # finer already, so that the coach asks for corrective demonstrations
    *["--evaluate.train-rollouts", "2", "--evaluate.validation-rollouts", "2", "--evaluate.heldout-rollouts", "2"],
    *["--evaluate.max-ticks", "40", "--video", "1"],
    *["--deploy.rollouts", "2", "--deploy.demonstrator-rollouts", "1", "--deploy.max-ticks", "120"],
]
LIMIT_S = 540


class Job:
    """The command as a subprocess in a session of its own, its lines kept as they come."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [PIPELINE, "sim2real", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "ROBOCOACH_COMMAND": PIPELINE},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, pattern):
        """Waits until a line matches."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if any(re.search(pattern, line) for line in self.lines):
                return
            time.sleep(0.1)
        raise AssertionError(f"no line like {pattern!r} in\n" + "\n".join(self.lines))

    def end(self):
        """Exit code, once it has ended by itself."""
        code = self.process.wait(timeout=LIMIT_S)
        self._reader.join(timeout=10)
        return code

    def kill(self):
        """Ends what is left of it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that was interrupted in its finetuning by Ctrl-C to all its processes, resumed, and ended."""
    folder = tmp_path_factory.mktemp("job") / "run"
    first = Job("--out", str(folder), *SMALL)
    second = None
    try:
        first.wait_for(r"^\[4/\d+\] Finetune …")
        time.sleep(3)
        os.killpg(first.process.pid, signal.SIGINT)
        code = first.end()
        assert code == 130, "\n".join(first.lines)
        resume = first.lines[-1].partition("go on with: ")[2].split()
        assert resume[:3] == [PIPELINE, "sim2real", "--resume"], first.lines[-1]
        second = Job(*resume[2:])
        code = second.end()
        log = folder / "log.txt"
        assert code == 0, "\n".join([*second.lines, *log.read_text().splitlines()[-30:]])
        yield folder, first.lines, second.lines
    finally:
        first.kill()
        if second is not None:
            second.kill()


@pytest.fixture(scope="module")
def result(finished):
    return json.loads((finished[0] / "result.json").read_text())


def test_what_was_done_before_ctrl_c_is_not_done_again(finished):
    _, first, second = finished
    assert any("Demonstrate: 5 demonstrations" in line for line in first)
    for stage in ("Demonstrate", "Record"):
        assert any(re.search(rf"\] {stage}: done before", line) for line in second)
    assert not any("Finetune: done before" in line for line in second[:10])


def test_the_result_has_every_figure(result):
    assert {"wall_s", "stages", "seed", "attempts", "versions", "twin_demonstrator"} <= result.keys()
    for name, n in (("validation", 2), ("heldout", 2), ("heldout_base", 2)):
        assert {"success_rate", "successes", "n", "ci95", "stages"} <= result[name].keys() and result[name]["n"] == n
    deploy = result["deploy"]
    assert {"robot", "client", "rollouts", "successes", "invalid", "ci95"} <= deploy.keys()
    assert deploy["robot"] == "twin" and deploy["rollouts"] == 2 and "franky" in deploy["client"]
    assert result["twin_demonstrator"]["n"] + result["twin_demonstrator"]["invalid"] == 1
    assert result["seed"] == 7 and result["wall_s"] > 10 and all(spent >= 0 for spent in result["stages"].values())


def test_a_second_attempt_was_proposed_from_evidence_and_compared(finished, result):
    folder = finished[0]
    assert [attempt["number"] for attempt in result["attempts"]] == [0, 1]
    proposal = json.loads((folder / "attempts" / "0001" / "proposal.json").read_text())
    assert proposal["parent"] == 0 and proposal["change"] and re.search(r"\d", proposal["rationale"])
    assert sum(attempt["kept"] for attempt in result["attempts"]) == 1


def test_the_attempts_lie_on_disk_as_designed(finished):
    folder = finished[0]
    for number in ("0000", "0001"):
        attempt = folder / "attempts" / number
        for name in ("config.yaml", "proposal.json", "log.txt", "metrics.jsonl", "checkpoints/last", "score.json"):
            assert (attempt / name).exists(), name
        assert len(list((attempt / "rollouts" / "train").glob("*.json"))) == 2
        assert len(list((attempt / "rollouts" / "train").glob("*-wrist.mp4"))) == 1
    assert (folder / "attempts" / "0000" / "feedback.md").read_text().startswith("# Attempt 0\n")


def test_the_dataset_opens_in_lerobot(finished):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset("local/dataset", root=finished[0] / "datasets" / "sim")
    assert dataset.num_episodes == 5 and dataset.fps == 10
    frame: Any = dataset[0]
    assert tuple(frame["observation.images.wrist"].shape) == (3, 224, 224)


def test_the_kept_checkpoint_loads_strictly(finished, result):
    from robocoach.policies.checkpoint import verify

    assert verify(finished[0] / result["checkpoint"])["policy"] == "pi05_nano"


def test_the_report_stands_alone_and_shows_both_simulators(finished):
    text = (finished[0] / "report.html").read_text()
    assert "held-out scenes" in text and text.count("data:image/png") == 2 and "<video" in text
    assert len(text) < 25_000_000


def test_a_finished_run_is_not_done_again(finished):
    folder = finished[0]
    before = (folder / "result.json").stat().st_mtime_ns
    job = Job("--out", str(folder), *SMALL)
    assert job.end() == 0
    assert (folder / "result.json").stat().st_mtime_ns == before
    assert sum("done before" in line for line in job.lines) >= 10
