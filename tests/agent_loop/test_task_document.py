"""The task document: everything a coach must know first, nothing that judges it."""

from __future__ import annotations

import re

import pytest
from coach_views import config_of

from robocoach.agent_loop.coaches.priors import priors
from robocoach.agent_loop.proposal import tunable_keys
from robocoach.agent_loop.task_document import TaskFacts, task_document
from robocoach.datasets import splits

FACTS = TaskFacts(
    name="stack-cube",
    instruction="put the red cube on the green cube",
    goal="The red cube stands on the green one, the hand has let go, and it rested for 0.5 s.",
    stages=("reach", "grasp", "lift"),
)


def test_goal_instruction_stages_budget_and_note_are_told():
    config = config_of(campaign__hours=3, campaign__attempts=12, campaign__note="costs $5, a | b", campaign__target=0.9)
    text = task_document(config, FACTS)
    for words in (FACTS.goal, FACTS.instruction, "reach, grasp, lift", "| 3 h |", "| 12 |", "90 % success", "costs $5"):
        assert words in text, words


def test_every_setting_that_may_change_stands_in_the_table_and_no_other():
    text = task_document(config_of(train__learning_rate=2e-4), FACTS)
    table = text.split("## What may be changed")[1].split("## Priors")[0]
    rows = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")}
    assert tuple(rows) == tunable_keys()
    assert "| 0.0002 | – | a number above 0 and at most 1 | 0.0005 to 0.006 |" in rows["train.learning_rate"]
    assert all(row.count("|") == 7 for row in rows.values())


def test_settings_that_the_large_policy_does_not_read_are_left_out():
    text = task_document(config_of(train__policy="pi05"), FACTS)
    assert "train.flow_samples" not in text and "2.5e-05" in text


def test_every_prior_is_printed_with_its_source():
    text = task_document(config_of(), FACTS)
    for key, prior in priors().items():
        assert f"| `{key}` | {prior} | {prior.typical:g} | {prior.source} |" in text


@pytest.mark.parametrize("split", ["train", "validation", "heldout"])
def test_no_seed_is_told(split):
    text = task_document(config_of(), FACTS)
    told = set(re.findall(r"\d+", text))
    assert not told & {str(seed) for seed in splits.seeds(split, 0, 50)}


def test_the_same_facts_give_the_same_text():
    assert task_document(config_of(), FACTS) == task_document(config_of(), FACTS)
