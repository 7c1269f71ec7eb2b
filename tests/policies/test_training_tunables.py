"""What a proposal may change of training really changes it: schedule, capacity, frozen parts, memory, chunk, stages."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import ACTION_NAMES
from robocoach.datasets.mixture import Mixture
from robocoach.policies.batches import Batches
from robocoach.policies.checkpoint import load_policy
from robocoach.policies.measures import action_errors
from robocoach.policies.nano import CAPACITIES, NanoLearner, capacity_of
from robocoach.policies.normalisation import policy_statistics
from robocoach.policies.pi05 import PI05Learner, _refuse_other_shape

CPU = torch.device("cpu")
STEM = "model.paligemma_with_expert.stem."


@pytest.fixture
def learner(settings_of, mixture):
    """A policy in training: learner(init_from, **settings)."""

    def make(init_from: Path | None = None, **changes: Any) -> NanoLearner:
        torch.manual_seed(0)
        cfg = settings_of(**changes)
        return NanoLearner(cfg, Batches(mixture, cfg.chunk_size, 0), CPU, init_from)

    return make


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize(("schedule", "last"), [("constant", 1.0), ("linear", 0.118), ("cosine", 0.044)])
def test_the_schedule_is_the_one_asked_for(run, tmp_path, schedule, last):
    run(tmp_path, steps=10, learning_rate=1e-3, warmup_steps=0, schedule=schedule)
    assert rows(tmp_path)[-1]["lr"] == pytest.approx(1e-3 * last, rel=0.03)


def test_base_is_the_size_that_it_was(learner):
    assert CAPACITIES["base"] == {}
    assert sum(p.numel() for p in learner().policy.parameters()) == 1_670_044  # 32 px, four numbers of poses


def test_sizes_are_in_order_and_found_again_in_a_configuration(learner):
    policies = {name: learner(capacity=name).policy for name in CAPACITIES}
    counts = [sum(p.numel() for p in policies[name].parameters()) for name in ("small", "base", "large")]
    assert 1.8 * counts[0] < counts[1] < counts[2] / 1.8
    assert all(capacity_of(policy.config) == name for name, policy in policies.items())


@pytest.mark.parametrize("capacity", ["small", "large"])
def test_a_checkpoint_of_another_size_acts(run, tmp_path, capacity):
    made = run(tmp_path, steps=2, capacity=capacity)
    acting = cast(Any, load_policy(made.last))
    assert capacity_of(acting.policy.config) == capacity
    assert acting.act(np.zeros((224, 224, 3), np.uint8), np.zeros(8, np.float32), "stack").shape == (4, 8)


def test_a_child_of_another_capacity_is_refused(run, tmp_path, trained):
    with pytest.raises(UserError, match="capacity base, asked for large"):
        run(tmp_path, capacity="large", init_from=trained.last)


def test_a_frozen_stem_keeps_its_weights_and_the_rest_learns(run, tmp_path, trained):
    made = run(tmp_path, steps=5, frozen="vision", init_from=trained.last, weight_decay=0.5, ema=0.9)
    before, after = weights(trained.last), weights(made.last)
    stem = [name for name in before if name.startswith(STEM)]
    assert stem and all(torch.equal(before[name], after[name]) for name in stem)
    assert not torch.equal(before["model.action_out_proj.weight"], after["model.action_out_proj.weight"])
    assert "the image stem keeps its weights" in (tmp_path / "log.txt").read_text()


def test_a_child_of_a_frozen_attempt_learns_everywhere_again(run, tmp_path, trained):
    frozen = run(tmp_path / "a", steps=2, frozen="vision", init_from=trained.last)
    free = run(tmp_path / "b", steps=5, init_from=frozen.last)
    before, after = weights(frozen.last), weights(free.last)
    assert any(not torch.equal(before[name], after[name]) for name in before if name.startswith(STEM))


def test_nothing_is_frozen_that_was_never_trained(run, tmp_path):
    with pytest.raises(UserError, match=r"starts without any; start from a checkpoint or set train\.frozen to none"):
        run(tmp_path, frozen="vision")


def step(made: NanoLearner, batches: Batches) -> tuple[dict[str, torch.Tensor], int]:
    """Gradients of one training step, and the bytes that were kept for the backward pass."""
    batch, rng = batches.training(0, 8)
    kept = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    made.policy.train()
    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss, _ = made.policy(made.tensors(batch, rng))
    loss.backward()
    return {name: p.grad for name, p in made.policy.named_parameters() if p.grad is not None}, kept


def test_gradient_checkpointing_keeps_less_and_learns_the_same(learner, mixture):
    plain, much = step(learner(), Batches(mixture, 6, 0))
    again, little = step(learner(gradient_checkpointing=True), Batches(mixture, 6, 0))
    assert little < 0.3 * much
    assert plain.keys() == again.keys()
    assert all(torch.allclose(plain[name], again[name], rtol=1e-4, atol=1e-7) for name in plain)


def test_a_child_follows_its_own_settings_and_not_its_parents(learner, trained):
    child = learner(trained.last, executed_steps=2, gradient_checkpointing=True, state_noise=0.5)
    assert child.policy.config.n_action_steps == 2
    assert child.policy.config.state_noise == 0.5
    assert child.policy.model.gradient_checkpointing_enabled
    assert not learner(trained.last).policy.model.gradient_checkpointing_enabled


def test_action_errors_are_named_and_count_executed_steps_only():
    there = torch.zeros(2, 3, 8)
    off = there.clone()
    off[:, :2, 1], off[:, :2, 7], off[:, 2] = 0.2, 0.01, 99.0
    found = action_errors(off, there, executed_steps=2)
    assert found["validation_error_joint_2.pos"] == pytest.approx(0.2)
    assert found["validation_error_joint_1.pos"] == 0
    assert found["validation_gripper_error_m"] == found["validation_error_gripper.pos"] == pytest.approx(0.01)
    assert found["validation_joint_error_rad"] == pytest.approx(0.2 / 7)


def test_the_metrics_hold_an_error_for_each_action(trained):
    row = next(row for row in rows(trained.last.parents[1]) if "validation_loss" in row)
    errors = [row[f"validation_error_{name}"] for name in ACTION_NAMES]
    assert row["validation_joint_error_rad"] == pytest.approx(np.mean(errors[:7]), abs=1e-6)


def test_pi05_measures_actions_in_their_units(mixture):
    """Its towers stand in for: what they predict is normalised, what is measured is in radians and metres."""
    few = Batches(mixture, 6, 0).training(0, 20)[0]
    asked = []

    def predict(prepared: Any, noise: torch.Tensor) -> torch.Tensor:
        asked.append(tuple(noise.shape))
        return (torch.from_numpy(few.actions[:16]) + 0.5) / 2  # the scale that `after` takes away again

    made = object.__new__(PI05Learner)
    made.cfg, made.device = cast(Any, SimpleNamespace(chunk_size=6, executed_steps=4)), CPU
    made.before, made.after = cast(Any, lambda batch: batch), cast(Any, lambda actions: 2 * actions - 0.4)
    made._instructions, made.cfg.image_shift_px = cast(Any, [("stack",)]), 0
    policy = SimpleNamespace(config=SimpleNamespace(max_action_dim=32), predict_action_chunk=predict)
    found = made.errors(policy, few)
    assert asked == [(16, 6, 32)]
    assert found["validation_error_joint_1.pos"] == pytest.approx(0.1, abs=1e-5)


def test_pi05_of_another_chunk_is_refused(settings_of, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"chunk_size": 50}))
    with pytest.raises(UserError, match="has chunk_size 50, asked for 6; keep 50 or start from the base"):
        _refuse_other_shape(settings_of(policy="pi05"), tmp_path)


def test_the_policys_normalisation_follows_the_oversampled_stages(mixture):
    source = mixture.sources[0]
    late = source.states[:, 7] < 0.05  # the hand is closed
    staged = dataclasses.replace(source, stages=np.where(late, 1, 0))
    plain = policy_statistics(Batches(Mixture((staged,), {"sim": 1.0}), 6, 0))
    heavy = policy_statistics(Batches(Mixture((staged,), {"sim": 1.0}, {1: 50.0}), 6, 0))
    assert not np.allclose(plain.action_mean, heavy.action_mean)
    assert not np.allclose(plain.privileged_mean, heavy.privileged_mean)


def test_another_oversampling_is_another_training(run, tmp_path, mixture):
    staged = dataclasses.replace(mixture.sources[0], stages=np.zeros(len(mixture.sources[0].states), np.int64))
    run(tmp_path, sources=Mixture((staged,), {"sim": 1.0}))
    with pytest.raises(UserError, match="other settings, data or seed"):
        run(tmp_path, sources=Mixture((staged,), {"sim": 1.0}, {0: 2.0}))
