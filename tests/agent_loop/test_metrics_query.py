"""Training numbers as a query: metric, range of steps, attempts to compare."""

from __future__ import annotations

import json
import math

import pytest
from made_attempts import metric_rows, write_attempt

from robocoach.agent_loop.metrics import Series, names, query, read_metrics, table
from robocoach.configs.errors import UserError


@pytest.fixture
def attempts(tmp_path):
    return {
        number: write_attempt(tmp_path / str(number), [], metric_rows(fall=fall))
        for number, fall in ((0, 0.9), (3, 0.8))
    }


def test_one_metric_of_several_attempts(attempts):
    found = query(attempts, "flow_loss")
    assert set(found) == {0, 3}
    assert found[3].points[1] == (40, pytest.approx(0.8))
    assert found[3].values[-1] < found[0].values[-1]


def test_both_ends_of_a_range_are_included(attempts):
    assert [step for step, _ in query(attempts, "loss", (40, 80))[0].points] == [40, 60, 80]
    assert query(attempts, "loss", (None, 20))[0].points == ((20, 1.5),)


def test_an_error_of_an_action_dimension_is_a_metric_by_its_name(attempts):
    assert set(query(attempts, "validation_error_joint_4.pos")[0].values) == {0.03}
    assert "validation_error_gripper.pos" in names(attempts)


def test_an_unknown_metric_is_refused_with_the_nearest_names(attempts):
    with pytest.raises(UserError, match=r"no attempt has the metric 'gradnorm'.*grad_norm"):
        query(attempts, "gradnorm")


def test_an_empty_range_is_refused(attempts):
    with pytest.raises(UserError, match="no step lies between 80 and 40"):
        query(attempts, "loss", (80, 40))


def test_attempts_without_numbers_are_refused(tmp_path):
    with pytest.raises(UserError, match="no training numbers"):
        query({4: tmp_path}, "loss")


def test_an_attempt_without_the_metric_has_an_empty_series(attempts, tmp_path):
    attempts[5] = write_attempt(tmp_path / "5", [], [])
    found = query(attempts, "loss")
    assert found[5] == Series("loss", ()) and found[5].last is None and "attempt 5: no loss" in table(found)


def test_rows_cut_off_or_without_a_step_are_left_out_and_null_is_not_finite(tmp_path):
    rows = [
        '{"step": 1, "loss": 2.0}',
        '{"loss": 9.0}',
        "[1]",
        '{"step": 2, "loss": null, "note": "x"}',
        '{"step": 3, "lo',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows))
    found = read_metrics(tmp_path)
    assert set(found) == {"loss"} and found["loss"].points[0] == (1, 2.0)
    assert math.isnan(found["loss"].points[1][1]) and not found["loss"].finite and found["loss"].lowest == (1, 2.0)


def test_a_step_written_again_by_a_resumed_training_keeps_its_latest_value(tmp_path):
    rows = [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 4.0}, {"step": 1, "loss": 3.0}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read_metrics(tmp_path)["loss"].points == ((1, 3.0), (2, 4.0))


def test_a_table_thins_but_keeps_both_ends(attempts):
    text = table(query(attempts, "loss"), rows=3)
    assert "20: 1.5" in text and "800:" in text and "(40 rows)" in text
    assert "420:" in text and "400:" not in text
