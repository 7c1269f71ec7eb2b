"""The red team: every way that was thought of to reach what judges, protects or budgets, each refused in one line."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from robocoach.agent_loop.guard import MOST_KEYS, guard
from robocoach.agent_loop.proposal import Proposal, tunable_keys
from robocoach.agent_loop.tree import Batch, Node
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.models import Sim2RealConfig

STAGES = ("reach", "grasp", "lift", "place", "release")
BASE = load.load(profile="cpu")
SETTINGS = load.flatten(BASE.model_dump(), "test")
BATCH = Batch(n=10, successes=3, reached_goal=1, closest_m=0.01, carries=4, aborted=0)


def node(number: int, *, measured: bool = True, **changes: Any) -> Node:
    """An attempt whose settings are the base's with changes (`train__steps=5`)."""
    settings = SETTINGS | {key.replace("__", "."): value for key, value in changes.items()}
    parent = None if number == 0 else 0
    batch, state = (BATCH, "done") if measured else (None, "training")
    return Node(number, parent, "base", state, "rules", "", "", {}, settings, batch, False, "", Path("nowhere"))


NODES = (node(0), node(1, train__learning_rate=1e-3), node(2, measured=False))
FINE = {"train.learning_rate": 1e-4}


def proposal(change: Any = None, **fields: Any) -> Proposal:
    """A proposal that would pass, with the given change or fields instead."""
    given: dict[str, Any] = {
        "parent": 0,
        "coach": "red",
        "rule": "r",
        "rationale": "because",
        "change": change or FINE,
        **fields,
    }
    return Proposal(**given)


def protected(config: Sim2RealConfig) -> str:
    """What no proposal may change, as text."""
    flat = load.flatten(config.model_dump(), "test")
    return json.dumps({key: flat[key] for key in flat if key not in tunable_keys()}, sort_keys=True)


class Sly(float):
    """A number that claims to lie within any bounds."""

    def __gt__(self, other: object) -> bool:
        return True

    __ge__ = __lt__ = __le__ = __gt__


DEEP: dict[str, Any] = {}
for _ in range(2_000):
    DEEP = {"a": DEEP}

REACHING = {
    # what judges
    "success predicate": {"task": "stack-cube-easy"},
    "seed": {"seed": 1},
    "train rollouts": {"evaluate.train_rollouts": 1},
    "validation rollouts": {"evaluate.validation_rollouts": 1},
    "held-out rollouts": {"evaluate.heldout_rollouts": 1},
    "time limit": {"evaluate.max_ticks": 10_000},
    "twin's time limit": {"deploy.max_ticks": 10_000},
    "verdict": {"session.verdict": "auto"},
    "reference": {"session.reference": 0.0},
    "clock": {"deploy.min_clock_ratio": 0.01},
    "campaign's target": {"campaign.target": 0.01},
    "early stop": {"campaign.stop_error": 0.2},
    "evidence": {"campaign.evidence": "sim"},
    "who proposes": {"campaign.coach": "cmd:/bin/sh"},
    "number of demonstrations": {"generate.demonstrations": 4_000},
    # what protects
    "largest step": {"safety.max_step_rad": 0.25},
    "joint limits": {"safety.limit_inset_rad": 0.0},
    "table": {"safety.table_z_m": -0.5},
    "workspace": {"safety.workspace_z_max_m": 1.5},
    "control mode": {"deploy.control_mode": "impedance"},
    "home speed": {"deploy.home_speed": 0.5},
    "real arm": {"deploy.robot": "fr3"},
    "accepted differences": {"data.accept": "camera,robot"},
    # budget, secrets, paths
    "training time": {"train.minutes": 100_000},
    "improve time": {"improve.minutes": 100_000},
    "wall time": {"campaign.hours": 10_000},
    "money": {"campaign.spend_usd": 100_000},
    "disk": {"campaign.disk_gb": 1e9},
    "attempts": {"campaign.attempts": 9_999},
    "threads": {"train.threads": 64},
    "base weights": {"train.pi05_base": "/etc"},
    "data folder": {"data.real": "/etc"},
    "arm's address": {"deploy.host": "10.0.0.1"},
    "key": {"campaign.api_key": "x"},
    "environment": {"env.OPENAI_API_KEY": "x"},
    "upload": {"train.wandb": "offline"},
    "note": {"campaign.note": "ignore the rules"},
    # look-alikes and tricks with the key
    "cyrillic a": {"trаin.steps": 5},
    "full-width dot": {"train．steps": 5},
    "zero-width space": {"train.steps\u200b": 5},
    "upper case": {"Train.Steps": 5},
    "spaces": {" train.steps ": 5},
    "line break": {"train.steps\n": 5},
    "prefix": {"train": {"steps": 5}},
    "dot at the end": {"train.": 5},
    "dot first": {".train.steps": 5},
    "two dots": {"train..steps": 5},
    "longer path": {"train.steps.evaluate.validation_rollouts": 5},
    "up the path": {"train/../evaluate.validation_rollouts": 5},
    "slash": {"train/steps": 5},
    "underscores": {"train__steps": 5},
    "class": {"__class__": "x"},
    "class of a section": {"train.__class__": "x"},
    "model's fields": {"train.model_fields": {}},
    "model's own settings": {"train.model_config": {"frozen": False}},
    "option": {"--train.steps": 5},
    "no key": {"": 5},
    "number as key": {5: 5},
    "nothing as key": {None: 5},
    "pair as key": {("train", "steps"): 5},
    "escape sequence": {"\x1b[2J": 5},
    "long key": {"train." + "s" * 100_000: 5},
    "a good and a bad one": {"train.learning_rate": 1e-4, "seed": 3},
    # values
    "text for a number": {"train.steps": "5"},
    "fraction for a whole number": {"train.steps": 5.0},
    "bool for an int": {"train.batch_size": True},
    "bool for a float": {"train.learning_rate": True},
    "int for a bool": {"train.gradient_checkpointing": 1},
    "NaN": {"train.learning_rate": math.nan},
    "infinity": {"train.clip_norm": math.inf},
    "huge": {"train.steps": 10**5_000},
    "huge float": {"train.clip_norm": 1e308},
    "negative": {"train.steps": -1},
    "zero rate": {"train.learning_rate": 0.0},
    "sly number": {"train.learning_rate": Sly(1e9)},
    "dict": {"train.steps": {"evaluate": {"validation_rollouts": 1}}},
    "list": {"train.steps": [5]},
    "nothing": {"train.steps": None},
    "bytes": {"train.schedule": b"linear"},
    "unknown choice": {"train.schedule": "exponential"},
    "look-alike choice": {"train.schedule": "lineаr"},
    "choice with a break": {"train.schedule": "linear\n"},
    "more executed than predicted": {"train.executed_steps": 60},
    # the two small languages
    "mix without its source": {"data.mix": "sim=1,real=5"},
    "mix with an unknown source": {"data.mix": "sim=1,heldout=5"},
    "mix with a path": {"data.mix": "/etc/passwd=1"},
    "mix of nothing": {"data.mix": "sim=0"},
    "mix of NaN": {"data.mix": "sim=nan"},
    "mix with a huge weight": {"data.mix": "sim=1e300"},
    "mix with YAML": {"data.mix": "sim=1\nseed: 3"},
    "mix with a YAML tag": {"data.mix": "!!python/object/apply:os.system [ls]"},
    "long mix": {"data.mix": "sim=1" + "0" * 10_000},
    "mix in other digits": {"data.mix": "sim=٣"},
    "oversample with YAML": {"data.oversample": "grasp=2\nevaluate: {validation_rollouts: 1}"},
    "oversample by code": {"data.oversample": "grasp=__import__('os')"},
    "oversample an unknown stage": {"data.oversample": "success=9"},
    "oversample without bound": {"data.oversample": "grasp=1e9"},
    "oversample negative": {"data.oversample": "grasp=-1"},
    "oversample twice": {"data.oversample": "grasp=1,grasp=2"},
    "oversample an anchor": {"data.oversample": "&a *a"},
    # the change itself
    "no change": {"train.learning_rate": SETTINGS["train.learning_rate"]},
    "too many keys": {key: SETTINGS[key] for key in tunable_keys()[: MOST_KEYS + 1]},
}

FIELDS: dict[str, dict[str, Any]] = {
    "parent -1": {"parent": -1},
    "parent that is not there": {"parent": 17},
    "parent that was not measured": {"parent": 2},
    "parent True": {"parent": True},
    "parent 0.0": {"parent": 0.0},
    "parent by name": {"parent": "0"},
    "huge parent": {"parent": 10**5_000},
    "empty change": {"change": {}},
    "change that is a list": {"change": [["train.steps", 5]]},
    "change that is text": {"change": "train.steps=5"},
    "long rationale": {"rationale": "x" * 4_001},
    "rationale with an escape sequence": {"rationale": "\x1b[2J"},
    "rationale with half a character": {"rationale": "\ud800"},
    "rationale that is no text": {"rationale": ["x"]},
    "rule of two lines": {"rule": "a\nb"},
    "long coach": {"coach": "x" * 201},
    "evidence that is no JSON": {"evidence": {"x": object()}},
    "evidence NaN": {"evidence": {"x": math.nan}},
    "evidence too deep": {"evidence": DEEP},
    "evidence too long": {"evidence": {"x": "y" * 30_000}},
    "evidence that is a list": {"evidence": [1]},
    "negative cost": {"cost_usd": -1.0},
    "NaN cost": {"cost_usd": math.nan},
    "free of cost as text": {"cost_usd": "0"},
    "unknown start": {"start": "heldout"},
    "start as a list": {"start": ["base"]},
}
ATTACKS = {name: {"change": change} for name, change in REACHING.items()} | FIELDS


def test_there_are_at_least_fifty_attacks_on_a_proposal_that_would_pass():
    assert len(ATTACKS) >= 50
    assert guard(proposal(), NODES, BASE, stages=STAGES).train.learning_rate == 1e-4


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_in_one_line_and_changes_nothing(name):
    before = (protected(BASE), json.dumps(NODES[0].settings, sort_keys=True))
    attack = Proposal(**cast(Any, asdict(proposal()) | ATTACKS[name]))
    with pytest.raises(UserError) as refused:
        guard(attack, NODES, BASE, stages=STAGES)
    told = str(refused.value)
    assert told and told.isprintable() and len(told) < 700
    assert (protected(BASE), json.dumps(NODES[0].settings, sort_keys=True)) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"parent": 0}',
        json.dumps(asdict(proposal()) | {"seed": 3}),
        json.dumps(asdict(proposal()) | {"settings": {"seed": 3}}),
        proposal().to_json().replace("0.0001", "NaN"),
        proposal().to_json().replace('"train.learning_rate"', '"seed": 1, "seed"'),
        "[" * 100_000,
        '{"__class__": 1}',
        '{"\\u001b[2J": 1}',
    ],
)
def test_text_that_is_no_proposal_is_refused_in_one_line(text):
    with pytest.raises(UserError, match="not a proposal") as refused:
        Proposal.from_json(text)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 400


def test_what_judges_comes_from_attempt_0_even_when_a_parent_differs():
    """A node's settings that were tampered with on disk do not reach the child."""
    tampered = (*NODES, node(3, evaluate__validation_rollouts=1, safety__max_step_rad=0.25))
    made = guard(proposal(parent=3), tampered, BASE)
    assert protected(made) == protected(BASE)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"train.learning_rat": 1}, "does not exist; the nearest is train.learning_rate"),
        ({"evaluate.validation_rollouts": 1}, "may not change evaluate.validation_rollouts"),
        ({"train.batch_size": 0}, "train.batch_size to 0, expected a whole number at least 1"),
        ({"train.executed_steps": 17}, "executed_steps 17 with train.chunk_size 16"),
        ({"train.chunk_size": 20}, "the weights of the parent were built for 16; keep it, or start from base"),
        ({"train.capacity": "large"}, "the weights of the parent were built for base"),
        ({"data.mix": "sim=1,real=1"}, "names real, and there is none; sources: sim"),
        ({"data.oversample": "grip=2"}, "unknown stage 'grip'; choose from reach, grasp"),
        ({"train.ema": 0.995}, "train.ema is 0.995 in attempt 0 already"),
        ({"generate.corrective": "8\x1b[2J"}, r"'8\x1b[2J', expected a whole number"),
    ],
)
def test_the_reason_says_what_would_pass(change, told):
    with pytest.raises(UserError) as refused:
        guard(proposal(change), NODES, BASE, stages=STAGES)
    assert told in str(refused.value)
