"""Words for training curves, each from its rule."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_attempts import metric_rows, write_attempt

from robocoach.agent_loop.trends import MIN_ROWS, read_trend, trend

counts = st.integers(MIN_ROWS, 200)
level = st.floats(1e-3, 1e3)


@given(counts, level, st.floats(0.5, 0.98))
def test_a_loss_that_falls_steadily_is_learning(count, first, factor):
    assert trend([first * factor**index for index in range(count)]).word == "learning"


@given(counts, level)
def test_a_constant_loss_is_a_plateau(count, value):
    assert trend([value] * count).word == "plateau"


@given(counts, level, st.floats(1.15, 2.0))
def test_a_loss_that_rises_steadily_diverges(count, first, factor):
    assert trend([first * factor**index for index in range(count)]).word == "diverging"


@given(st.lists(st.floats(0, 10), max_size=MIN_ROWS - 1))
def test_few_rows_are_too_short(losses):
    assert trend(losses).word == "too short"


@given(st.lists(st.floats(0, 10), min_size=1, max_size=50), st.data(), st.sampled_from([math.nan, math.inf]))
def test_one_value_that_is_not_finite_decides(losses, data, bad):
    losses[data.draw(st.integers(0, len(losses) - 1))] = bad
    assert trend(losses).word == "not finite"


@given(counts, st.floats(1.12, 3))
def test_a_kept_apart_loss_that_turns_up_while_the_loss_falls_is_overfitting(count, rise):
    losses = [0.97**index for index in range(count)]
    assert trend(losses, [1.0, 0.5, 0.5 * rise, 0.6 * rise]).word == "overfitting"


def test_one_high_measurement_at_the_end_is_no_overfitting():
    losses = [0.97**index for index in range(40)]
    assert trend(losses, [1.0, 0.5, 0.5, 0.9]).word == "learning"


def test_few_kept_apart_measurements_say_nothing():
    assert trend([0.97**index for index in range(40)], [0.1, 0.5, 0.6]).word == "learning"


@given(st.lists(st.floats(0.01, 10), min_size=MIN_ROWS, max_size=60), st.sampled_from([2**-6, 0.5, 2, 64]))
def test_the_word_does_not_depend_on_the_loss_s_unit(losses, factor):
    assert trend(losses).word == trend([factor * loss for loss in losses]).word


def test_the_reason_quotes_the_numbers():
    assert trend([1.0] * 30 + [2.0] * 10).why == "mean loss 2 in the last quarter, 1 in the best one before"


def test_an_attempts_trend_goes_by_the_flow_loss(tmp_path):
    rows = [{**row, "loss": 1.0} if "loss" in row else row for row in metric_rows()]
    assert read_trend(write_attempt(tmp_path / "a", [], rows)).word == "learning"


@pytest.mark.parametrize("rows", [[], metric_rows(3)])
def test_an_attempt_without_a_curve_is_too_short(tmp_path, rows):
    assert read_trend(write_attempt(tmp_path / "a", [], rows)).word == "too short"
