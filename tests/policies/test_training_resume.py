"""A training that was interrupted or killed goes on exactly where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from robocoach.configs.errors import UserError
from robocoach.policies.checkpoint import verify
from robocoach.policies.training_state import STATE_FILE, load_state

# A training in a process of its own, to be killed. It stops nowhere by itself for a long time.
CHILD = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from conftest import small_settings, PX
from robocoach.datasets.mixture import Mixture
from robocoach.policies import synthetic
from robocoach.policies.train import train
settings = small_settings(steps={steps}, checkpoint_every_s=1)
mixture = Mixture((synthetic.make_source(8, PX),), {{"sim": 1.0}})
train(settings, mixture, synthetic.CONTRACT, Path({out!r}), seed=0)
"""


def _weights(result) -> dict[str, torch.Tensor]:
    return load_file(result.last / "model.safetensors")


def _stop_at(step: int, number: signal.Signals = signal.SIGINT):
    def progress(now):
        if now.step >= step:
            os.kill(os.getpid(), number)

    return progress


def _child(out: Path, steps: int) -> subprocess.Popen:
    code = CHILD.format(tests=str(Path(__file__).parent), steps=steps, out=str(out))
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"OMP_NUM_THREADS": "1"})


def _wait_for(condition, child: subprocess.Popen, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert child.poll() is None, "the training ended before it was killed"
        assert time.monotonic() < until, "the training wrote no state in time"
        time.sleep(0.05)


def test_ctrl_c_saves_and_the_resumed_run_ends_bit_for_bit_where_an_uninterrupted_one_does(run, tmp_path):
    straight = run(tmp_path / "straight", steps=40)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", steps=40, progress=_stop_at(20))
    assert (load_state(tmp_path / "parts") or {})["step"] == 20
    resumed = run(tmp_path / "parts", steps=40)
    assert resumed.steps == 40
    ours, theirs = _weights(resumed), _weights(straight)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    a, b = (load_state(tmp_path / name) or {} for name in ("parts", "straight"))
    assert all(torch.equal(a["model"][name], b["model"][name]) for name in b["model"])


def test_metrics_of_a_resumed_run_have_each_step_once(run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, steps=60, progress=_stop_at(20))
    run(tmp_path, steps=60)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "lr" in row] == [20, 40, 60]


def test_a_killed_training_resumes_from_its_last_saved_state(run, tmp_path):
    child = _child(tmp_path, steps=100_000)
    try:
        _wait_for((tmp_path / STATE_FILE).is_file, child)
        time.sleep(0.7)  # into the next stretch, maybe into the next save
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    saved = (load_state(tmp_path) or {})["step"]
    assert saved > 0
    verify(tmp_path / "checkpoints" / "last")  # whole, whenever the kill came
    result = run(tmp_path, steps=saved + 5, checkpoint_every_s=1)
    assert result.steps == saved + 5
    assert result.status == "finished"


def test_sigterm_saves_too(run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, steps=60, progress=_stop_at(20, signal.SIGTERM))
    assert "interrupted at step 20" in (tmp_path / "log.txt").read_text()
    assert (load_state(tmp_path) or {})["step"] == 20


def test_a_finished_training_is_not_done_again(run, tmp_path):
    first = run(tmp_path)
    before = (tmp_path / STATE_FILE).stat().st_mtime_ns
    again = run(tmp_path)
    assert again.steps == first.steps
    assert again.loss == first.loss
    assert (tmp_path / STATE_FILE).stat().st_mtime_ns == before


@pytest.mark.parametrize("change", [{"learning_rate": 5e-4}, {"seed": 1}])
def test_another_training_in_the_same_folder_is_refused(run, tmp_path, change):
    run(tmp_path)
    with pytest.raises(UserError, match="other settings, data or seed"):
        run(tmp_path, **change)


def test_a_state_that_was_cut_off_is_refused(run, tmp_path):
    run(tmp_path)
    path = tmp_path / STATE_FILE
    path.write_bytes(path.read_bytes()[:10_000])
    with pytest.raises(UserError, match="corrupt or cut off"):
        run(tmp_path)


def test_a_longer_deadline_goes_on_with_the_same_training(run, tmp_path):
    run(tmp_path, steps=4)
    assert run(tmp_path, steps=8).steps == 8
