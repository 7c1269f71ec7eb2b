"""Learning rate and averaging over a run that ends by steps or by the clock, whichever comes first."""

from __future__ import annotations

import pytest
import torch

from robocoach.policies.optimisation import FLOOR, Average, decayed_groups, fraction_done, learning_rate


def test_the_further_of_steps_and_clock_counts():
    assert fraction_done(step=10, steps=100, elapsed_s=50, deadline_s=100) == 0.5
    assert fraction_done(step=90, steps=100, elapsed_s=50, deadline_s=100) == 0.9
    assert fraction_done(step=10, steps=100, elapsed_s=101, deadline_s=100) == 1.0


def test_a_few_seconds_of_a_long_deadline_do_not_change_a_run_that_ends_by_steps():
    assert fraction_done(step=3, steps=100, elapsed_s=40, deadline_s=100_000) == 0.03


def test_the_rate_rises_over_the_warm_up_and_ends_at_its_floor():
    assert learning_rate(1.0, step=0, warmup_steps=10, fraction=0.0) == pytest.approx(0.1)
    assert learning_rate(1.0, step=10, warmup_steps=10, fraction=0.0) == pytest.approx(1.0)
    assert learning_rate(1.0, step=10, warmup_steps=10, fraction=1.0) == pytest.approx(FLOOR)


def test_the_average_forgets_the_start_and_then_follows_slowly():
    model = torch.nn.Linear(1, 1, bias=False)
    average = Average(model, decay=0.9)
    with torch.no_grad():
        model.weight.fill_(1.0)
    for step in range(1, 200):
        average.update(model, step)
    assert next(average.model.parameters()).item() == pytest.approx(1.0, abs=1e-4)
    with torch.no_grad():
        model.weight.fill_(2.0)
    average.update(model, 200)
    assert next(average.model.parameters()).item() == pytest.approx(1.1, abs=1e-3)


def test_without_averaging_the_trained_weights_are_kept():
    model = torch.nn.Linear(1, 1)
    assert Average(model, decay=0.0).model is model


def test_vectors_are_not_decayed():
    matrices, vectors = decayed_groups(torch.nn.Linear(3, 2), weight_decay=0.1)
    assert [p.ndim for p in matrices["params"]] == [2] and matrices["weight_decay"] == 0.1
    assert [p.ndim for p in vectors["params"]] == [1] and vectors["weight_decay"] == 0.0
