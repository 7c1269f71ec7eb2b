"""Attempts whose validation ended early: they are compared with, and never kept."""

import pytest

from robocoach.agent_loop.selection import Score, select

SEEDS = (3, 5, 7, 9)


def score(attempt, outcomes, *, stopped=False, seeds=SEEDS):
    return Score(attempt, seeds[: len(outcomes)], tuple(map(bool, outcomes)), stopped)


def test_an_attempt_that_was_ended_early_is_never_kept():
    choice = select([score(0, [0, 0, 0, 1]), score(1, [1, 1], stopped=True)])
    assert choice.winner == 0 and "attempt 1 was ended early at 2/2" in choice.reason and "1/4" in choice.reason


def test_it_is_paired_on_the_seeds_that_both_ran():
    paired = select([score(0, [1, 0, 1, 1]), score(1, [0, 0], stopped=True)]).paired
    assert paired is not None and (paired.only_a, paired.neither) == (1, 1)


def test_a_later_attempt_is_kept_whatever_was_ended_early_before():
    assert select([score(0, [0, 0, 0, 1]), score(1, [0], stopped=True), score(2, [1, 1, 0, 0])]).winner == 2


def test_of_equals_the_earliest_whole_one_is_kept():
    scores = [score(0, [0, 0, 0, 0], stopped=True), score(2, [1, 0, 0, 0]), score(1, [0, 1, 0, 0])]
    assert select(scores).winner == 1


def test_other_seeds_are_an_error_for_one_that_was_ended_early_too():
    with pytest.raises(ValueError, match="different validation seeds"):
        select([score(0, [0, 0, 0, 1]), score(1, [0, 0], stopped=True, seeds=(5, 3))])


def test_fewer_rollouts_without_an_early_end_are_an_error():
    with pytest.raises(ValueError, match="different validation seeds"):
        select([score(0, [0, 0, 0, 1]), score(1, [1, 1])])


def test_there_is_nothing_to_keep_when_every_attempt_was_ended_early():
    with pytest.raises(ValueError, match="no attempt to choose from"):
        select([score(0, [0, 0], stopped=True)])
