"""`pipeline campaign status|tree|show`: the line for the morning, the tree, and one attempt in full."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from campaign_content import attempt, confirmed, five_attempts, rate
from hypothesis import given
from hypothesis import strategies as st

from robocoach.agent_loop.statistics import clopper_pearson
from robocoach.pipelines import campaign_text as text


@pytest.fixture
def campaign() -> dict[str, Any]:
    return five_attempts()


def test_first_line_names_the_best_its_change_and_its_rate_with_the_interval(campaign: dict[str, Any]) -> None:
    first = text.status(campaign).splitlines()[0]
    assert "attempt 4" in first
    assert "policy.action_steps 8 → 4" in first
    low, high = clopper_pearson(34, 40)
    assert f"34/40 = 85 % (95 % CI {100 * low:.0f}–{100 * high:.0f} %)" in first


def test_first_line_compares_with_attempt_0_on_the_same_scenes_and_counts_what_failed(campaign: dict[str, Any]) -> None:
    first = text.status(campaign).splitlines()[0]
    assert "attempt 0 solved 12/40" in first
    assert "of 5 attempts 1 failed, 1 reverted" in first


@pytest.mark.parametrize(
    ("p", "only_winner", "only_base", "verdict"),
    [
        (0.001, 55, 5, "better than attempt 0"),
        (0.001, 5, 55, "worse than attempt 0"),
        (0.4, 30, 25, "not shown to differ from attempt 0"),
    ],
)
def test_held_out_result_is_believed_only_as_far_as_the_paired_test_goes(
    campaign: dict[str, Any], p: float, only_winner: int, only_base: int, verdict: str
) -> None:
    first = text.status(confirmed(campaign, p, only_winner, only_base)).splitlines()[0]
    assert "held-out 80/100 = 80 %" in first
    assert f"{verdict} with 30/100" in first


def test_held_out_result_of_another_attempt_is_not_told_of_the_best(campaign: dict[str, Any]) -> None:
    confirmed(campaign, 0.001, 55, 5)["confirm"]["winner"] = 1
    assert "held-out" not in text.status(campaign).splitlines()[0]


def test_a_rate_without_held_out_run_is_marked_as_picked(campaign: dict[str, Any]) -> None:
    assert "its rate there flatters" in " ".join(text.status(campaign).split())
    assert "flatters" not in text.status(confirmed(campaign, 0.001, 55, 5))


def test_status_tells_the_budget_that_is_left_and_what_runs(campaign: dict[str, Any]) -> None:
    told = text.status(campaign)
    assert "5 of 20" in told
    assert "6:00:00 left" in told
    assert "attempt 4, evaluating, about 3:20 left" in told


def test_status_names_the_reason_of_every_failure_and_the_last_events(campaign: dict[str, Any]) -> None:
    told = text.status(campaign)
    assert "failed: out of memory" in told
    assert "attempt 3 reverted: 2/20 against 6/20" in told


def test_a_campaign_without_attempt_or_measurement_has_a_status(campaign: dict[str, Any]) -> None:
    campaign |= {"attempts": [], "best": None, "events": [], "now": {}}
    assert text.status(campaign).splitlines()[0]
    assert text.tree(campaign) == "no attempt yet"
    campaign["attempts"] = [attempt(0, None, state="training", train=None, validation=None, training=None, seconds={})]
    assert "no attempt is measured yet" in text.status(campaign).splitlines()[0].lower()


def tree_row(told: str, number: int) -> str:
    return next(line for line in told.splitlines() if f"● {number}" in line)


def test_tree_marks_best_reverted_and_failed(campaign: dict[str, Any]) -> None:
    told = text.tree(campaign)
    marks = [next((mark for mark in "★↺✗" if mark in tree_row(told, number)), "") for number in range(5)]
    assert marks == ["", "", "✗", "↺", "★"]


def test_tree_tells_state_move_change_and_both_counts(campaign: dict[str, Any]) -> None:
    row = tree_row(text.tree(campaign), 4)
    for part in ("done", "roll back", "action_steps 8 → 4", "6/20", "34/40", "70–94%"):
        assert part in row


def test_tree_says_where_validation_ended_early(campaign: dict[str, Any]) -> None:
    told = text.tree(campaign)
    assert "3/20*" in tree_row(told, 3)
    assert "ended early" in told
    campaign["attempts"][3]["validation"]["stopped"] = False
    assert "ended early" not in text.tree(campaign)


def test_a_long_chain_does_not_drift_to_the_right(campaign: dict[str, Any]) -> None:
    campaign["attempts"] = [attempt(number, number - 1 if number else None) for number in range(300)]
    rows = [line for line in text.tree(campaign).splitlines() if "●" in line]
    assert len(rows) == 300
    assert {row.index("●") for row in rows} == {0}


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=40))
def test_tree_draws_every_attempt_once_and_a_parent_above_its_child(picks: list[int]) -> None:
    parents = [None, *(pick % (index + 1) for index, pick in enumerate(picks))]
    content = {"attempts": [attempt(number, parent) for number, parent in enumerate(parents)], "best": 0}
    rows = [line for line in text.tree(content).splitlines() if "●" in line]
    drawn = [int(row.partition("● ")[2].split()[0]) for row in rows]
    assert sorted(drawn) == list(range(len(parents)))
    assert all(drawn.index(parent) < drawn.index(number) for number, parent in enumerate(parents) if parent is not None)


def test_text_fits_80_columns_except_the_first_line_and_paths(campaign: dict[str, Any], tmp_path: Path) -> None:
    campaign["attempts"][4] |= {"rationale": "because " * 60, "reason": "a long reason " * 20}
    told = [*text.status(campaign).splitlines()[1:], *text.tree(campaign).splitlines()]
    told += text.show(campaign, 4, tmp_path).splitlines()
    assert not [line for line in told if len(line) > 80 and str(tmp_path) not in line]


def test_show_quotes_the_exact_change_and_marks_the_account_as_unverified(
    campaign: dict[str, Any], tmp_path: Path
) -> None:
    campaign["attempts"][4] |= {"rule": "stale chunk", "rationale": "Offsets grow with the chunk's age."}
    told = text.show(campaign, 4, tmp_path)
    assert "policy.action_steps: 8 → 4" in told
    account = told.index("unverified")
    assert account < told.index("stale chunk: Offsets grow with the chunk's age.")


def test_show_tells_the_difference_from_attempt_0_over_the_whole_lineage(
    campaign: dict[str, Any], tmp_path: Path
) -> None:
    told = text.show(campaign, 4, tmp_path).partition("change against attempt 0")[2]
    assert "policy.learning_rate: 0.0001 → 0.00025" in told
    assert "policy.action_steps: 8 → 4" in told


def test_a_setting_that_was_set_back_does_not_differ_from_attempt_0(campaign: dict[str, Any]) -> None:
    campaign["attempts"][4]["change"] = {"policy.learning_rate": [0.00025, 0.0001]}
    assert text.whole_change(campaign, 4) == {}


def test_show_lists_files_that_are_there_and_no_others(campaign: dict[str, Any], tmp_path: Path) -> None:
    rollouts = tmp_path / "attempts/0004/rollouts/train"
    rollouts.mkdir(parents=True)
    (rollouts / "5-wrist.mp4").touch()
    (tmp_path / "attempts/0004/feedback.md").write_text("report")
    told = text.show(campaign, 4, tmp_path)
    assert str(tmp_path / "attempts/0004") in told
    assert "feedback.md" in told
    assert "rollouts/train/5-wrist.mp4" in told
    assert "log.txt" not in told


def test_nothing_that_a_model_wrote_reaches_the_terminal_as_a_control_sequence(
    campaign: dict[str, Any], tmp_path: Path
) -> None:
    evil = "quiet\x1b[2J\x1b]0;title\x07\x9b31m"
    campaign["attempts"][4] |= {"rationale": evil, "rule": evil, "reason": evil, "change": {"note": ["a", evil]}}
    campaign["attempts"][2]["reason"] = evil
    campaign["events"] = [{"at": 1.8e9, "kind": "proposed", "attempt": 4, "text": evil}]
    campaign |= {"warnings": [evil], "state": "stopped", "stop_reason": evil}
    told = text.status(campaign) + text.tree(campaign) + text.show(campaign, 4, tmp_path)
    assert "quiet" in told
    assert not [char for char in told if not char.isprintable() and char != "\n"]


def test_telling_a_campaign_leaves_its_content_as_it_was(campaign: dict[str, Any], tmp_path: Path) -> None:
    before = copy.deepcopy(campaign)
    text.status(campaign), text.tree(campaign), text.show(campaign, 4, tmp_path)
    assert campaign == before


def test_a_failed_attempt_has_no_rate_of_its_own(campaign: dict[str, Any], tmp_path: Path) -> None:
    campaign["attempts"][2] |= {"train": rate(0, 20), "validation": rate(0, 40, stopped=False)}
    told = text.show(campaign, 2, tmp_path)
    assert "not run, counted as 0/40" in told
    assert "CI" not in told


def test_a_restart_says_that_it_left_its_parents_weights(campaign: dict[str, Any], tmp_path: Path) -> None:
    assert "weights" not in text.change_words(campaign["attempts"][4])
    campaign["attempts"][4] |= {"move": "restart", "start": "base"}
    assert "weights from the start" in text.change_words(campaign["attempts"][4])
    assert "not its parent's" in text.show(campaign, 4, tmp_path)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=50))
def test_no_shape_of_the_tree_needs_more_than_80_columns(picks: list[int]) -> None:
    parents = [None, *(pick % (index + 1) for index, pick in enumerate(picks))]
    change = {"train.learning_rate": [0.002, 0.0005], "train.batch_size": [64, 256]}
    attempts = [attempt(n, parent, change=change, state="awaiting operator") for n, parent in enumerate(parents)]
    assert max(len(line) for line in text.tree({"attempts": attempts, "best": 0}).splitlines()) <= text.COLUMNS


def test_last_events_are_those_of_attempts_not_of_the_data_stages(campaign: dict[str, Any]) -> None:
    stages = [{"at": 1.8e9 + n, "kind": "stage done", "attempt": None, "text": "check"} for n in range(30)]
    campaign["events"] += stages
    told = text.status(campaign)
    assert "stage done" not in told
    assert "attempt 3 reverted" in told


@pytest.mark.parametrize("closest", [None, float("inf")])
def test_an_unknown_closest_approach_is_said_to_be_unknown(
    campaign: dict[str, Any], closest: float | None, tmp_path: Path
) -> None:
    campaign["attempts"][4]["train"]["closest_m"] = closest
    told = " ".join(text.show(campaign, 4, tmp_path).split())
    assert "closest approach unknown" in told
    assert "inf" not in told


def test_first_line_says_so_when_nothing_works_yet(campaign: dict[str, Any]) -> None:
    campaign |= {"attempts": [attempt(0, None, validation=rate(0, 40, stopped=False))], "best": 0}
    assert text.status(campaign).startswith("No validation scene is solved yet")
