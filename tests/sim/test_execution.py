"""Chunks become commands: blended over their overlap and smoothed, by the same rule as the arm's loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from robocoach.sim.execution import Execution, blended, smoothed

VALUES = st.floats(-3, 3)
ROWS = st.integers(1, 12).flatmap(lambda n: arrays(float, (n, 8), elements=VALUES))
REST = st.integers(0, 12).flatmap(lambda n: arrays(float, (n, 8), elements=VALUES))


def rows(values, width=0.08):
    return np.column_stack(
        [np.repeat(np.asarray(values, dtype=float)[:, None], 7, axis=1), np.full(len(values), width)]
    )


@given(ROWS, REST, st.integers(0, 20))
def test_a_blended_row_lies_between_the_two_chunks_and_keeps_the_width(new, rest, steps):
    mixed = blended(new, rest, steps)
    np.testing.assert_array_equal(mixed[:, 7], new[:, 7])
    count = min(steps, len(new), len(rest))
    low, high = np.minimum(new[:count], rest[:count]), np.maximum(new[:count], rest[:count])
    assert np.all(mixed[:count, :7] >= low[:, :7] - 1e-9) and np.all(mixed[:count, :7] <= high[:, :7] + 1e-9)
    np.testing.assert_array_equal(mixed[count:], new[count:])


@given(ROWS, st.integers(0, 20))
def test_a_chunk_that_agrees_with_the_last_one_is_not_changed(new, steps):
    np.testing.assert_allclose(blended(new, new, steps), new, atol=1e-12)


def test_a_new_chunk_takes_over_with_the_weights_of_the_arms_loop():
    assert blended(rows([1.0] * 5), rows([0.0] * 4), 2)[:, 0] == pytest.approx([1 / 3, 2 / 3, 1.0, 1.0, 1.0])


@given(arrays(float, 8, elements=VALUES), arrays(float, 8, elements=VALUES), st.floats(0, 0.9))
def test_smoothing_moves_towards_the_action_and_never_past_it(action, last, share):
    mixed = smoothed(action, last, share)
    np.testing.assert_allclose(mixed[:7] - last[:7], (1 - share) * (action[:7] - last[:7]), atol=1e-9)
    assert mixed[7] == action[7]


@given(ROWS, st.integers(1, 12))
def test_without_either_the_commands_are_the_rows(new, executed):
    execution = Execution(np.zeros(8))
    execution.take(new, executed)
    for row in new[:executed]:
        assert not execution.looks
        np.testing.assert_array_equal(execution.command(), row.astype(np.float32))
    assert execution.looks


def test_the_rest_that_is_blended_in_is_that_of_the_ticks_to_come():
    execution = Execution(np.zeros(8), blend_steps=1)
    execution.take(rows([0.0, 1.0, 2.0, 3.0]), 2)
    taken = [execution.command()[0] for _ in range(2)]
    execution.take(rows([10.0, 10.0, 10.0]), 2)
    taken += [execution.command()[0] for _ in range(2)]
    assert taken == pytest.approx([0.0, 1.0, 6.0, 10.0])


def test_the_first_command_is_smoothed_from_where_the_arm_rests():
    execution = Execution(np.full(8, 1.0), smoothing=0.5)
    execution.take(rows([0.0, 0.0]), 2)
    assert [execution.command()[0] for _ in range(2)] == pytest.approx([0.5, 0.25])
