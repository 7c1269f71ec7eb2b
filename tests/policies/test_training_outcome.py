"""What a training leaves: checkpoints, numbers, and a stop at the first value that is not finite."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from typing import Any, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from robocoach.configs.errors import UserError
from robocoach.datasets.mixture import Mixture
from robocoach.policies import synthetic
from robocoach.policies.checkpoint import load_policy, verify
from robocoach.policies.training_state import load_state, save_state

NUMBERS = {"step", "elapsed_s", "loss", "flow_loss", "auxiliary_loss", "lr", "grad_norm", "samples_per_s"}


def _rows(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def _changed(mixture, **changes):
    return Mixture((dataclasses.replace(mixture.sources[0], **changes),), mixture.weights)


def test_last_and_best_are_whole_checkpoints(trained):
    assert trained.status == "finished"
    assert verify(trained.last)["step"] == trained.steps
    assert verify(trained.best)["best_loss"] == pytest.approx(trained.best_loss)


def test_metrics_hold_training_and_kept_apart_losses(run, tmp_path):
    run(tmp_path, steps=20)
    training = [row for row in _rows(tmp_path) if "lr" in row]
    apart = [row for row in _rows(tmp_path) if "validation_loss" in row]
    assert set(training[-1]) >= NUMBERS
    assert apart[-1]["validation_joint_error_rad"] > 0
    assert apart[-1]["validation_pose_error"] > 0


def test_the_result_file_repeats_the_result_with_its_settings(trained):
    record = json.loads((trained.last.parents[1] / "train.json").read_text())
    assert record["steps"] == trained.steps
    assert record["settings"]["batch_size"] == 8


def test_the_loss_falls_within_a_few_dozen_steps(run, tmp_path):
    run(tmp_path, steps=60, batch_size=16, learning_rate=2e-3)
    losses = [row["flow_loss"] for row in _rows(tmp_path) if "lr" in row]
    assert losses[-1] < 0.8 * losses[0]


def test_the_clock_ends_a_training(run, tmp_path):
    result = run(tmp_path, steps=1_000_000, minutes=0.05)
    assert 3.0 <= result.elapsed_s < 6.0
    assert result.last.is_dir()


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, steps=60, progress=lambda now: os.kill(os.getpid(), signal.SIGINT))
    good = load_file(tmp_path / "checkpoints" / "last" / "model.safetensors")
    state = load_state(tmp_path) or {}
    state["model"]["model.action_out_proj.weight"] *= 1e30  # the next loss overflows
    save_state(tmp_path, state)
    result = run(tmp_path, steps=60)
    assert result.status == "nan"
    assert f"step {state['step']}" in result.message
    assert result.message in (tmp_path / "log.txt").read_text()
    kept = load_file(result.last / "model.safetensors")
    assert all(torch.equal(kept[name], good[name]) for name in good)
    load_policy(result.last)


def test_data_that_is_not_finite_is_refused_before_training(run, tmp_path, mixture):
    states = mixture.sources[0].states.copy()
    states[7, 2] = np.nan
    with pytest.raises(UserError, match="joint_3"):
        run(tmp_path, sources=_changed(mixture, states=states))


def test_a_training_without_object_poses_has_no_auxiliary_loss(run, tmp_path, mixture):
    result = run(tmp_path, steps=20, sources=_changed(mixture, privileged=None))
    assert "auxiliary_loss" not in _rows(tmp_path)[-1]
    assert cast(Any, load_policy(result.last)).policy.config.privileged_dim == 0


def test_a_child_starts_from_its_parents_weights_and_normalisation(run, tmp_path, trained, mixture):
    other = Mixture((synthetic.make_source(5, 32, seed=9),), {"sim": 1.0})
    child = run(tmp_path, steps=1, learning_rate=1e-9, sources=other, init_from=trained.last)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (child.last, trained.last))
    assert torch.equal(ours["action_std"], theirs["action_std"])
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in theirs)


def test_a_child_of_another_shape_is_refused(run, tmp_path, trained):
    with pytest.raises(UserError, match="chunk_size 6, asked for 8"):
        run(tmp_path, chunk_size=8, init_from=trained.last)


def test_a_child_of_a_missing_parent_is_refused(run, tmp_path):
    with pytest.raises(UserError, match="there is no checkpoint"):
        run(tmp_path / "out", init_from=tmp_path / "nothing")


def test_the_same_seed_gives_the_same_weights(run, tmp_path, trained):
    again = run(tmp_path)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (again.last, trained.last))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_pi05_without_its_weights_names_what_to_fetch(run, tmp_path):
    with pytest.raises(UserError, match="hf download lerobot/pi05_base"):
        run(tmp_path, policy="pi05", pi05_base=str(tmp_path / "empty"))
