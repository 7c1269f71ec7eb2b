"""The rule-based coach: different evidence, different change, each quoting its number; the guard."""

from __future__ import annotations

import json

import pytest

from robocoach.agent_loop.coaches.diagnoses import RULES, Look
from robocoach.agent_loop.coaches.rules import propose
from robocoach.agent_loop.evidence import read_evidence
from robocoach.agent_loop.guard import guard
from robocoach.agent_loop.proposal import Proposal, tunable_keys
from robocoach.agent_loop.tree import lone_node
from robocoach.agent_loop.views import crashed_batch
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.fields import fields

STAGES = ("reach", "grasp", "lift", "place", "release")
CONFIG = load.load(profile="cpu")
FLAT = [1.0, 0.5, 0.2, 0.1] + [0.05] * 12
FALLING = [0.8**index for index in range(16)]


def evidence_of(folder, stages_reached, losses=FLAT, stopped="deadline", settings=None, **measures):
    """Writes an attempt's files, stage reached per rollout, and reads them back as a coach does."""
    rollouts = folder / "rollouts" / "train"
    rollouts.mkdir(parents=True)
    for seed, stage in enumerate(stages_reached):
        raw = {"seed": seed, "success": stage == len(STAGES), "stage": stage, "ticks": 100}
        raw["measures"] = {name: values[seed] for name, values in measures.items()}
        (rollouts / f"{seed}.json").write_text(json.dumps(raw))
    lines = [json.dumps({"step": 100 * i, "loss": loss, "elapsed_s": 10 * i}) for i, loss in enumerate(losses)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 99')
    return read_evidence(folder, STAGES, settings or load.flatten(CONFIG.model_dump(), "test"), stopped)


@pytest.mark.parametrize(
    ("rule", "stages", "losses", "number", "key"),
    [
        ("lifted, not placed", [3, 3, 3, 3, 3, 3, 3, 5, 5, 1], FLAT, "7 of 10", "generate.corrective"),
        ("reached, not lifted", [1, 1, 2, 2, 1, 5, 5, 5, 3, 0], FLAT, "5 of 10", "train.executed_steps"),
        ("loss still falling", [3, 3, 3, 5, 0, 0, 1, 1, 5, 5], FALLING, "59 %", "train.learning_rate"),
        ("nearly solved", [5] * 9 + [3], FALLING, "9 of 10", "train.ema"),
        ("not reached", [0] * 6 + [5] * 4, FLAT, "6 of 10", "train.auxiliary_weight"),
        ("loss spikes", [3] * 10, [1, 1, 0.1, 0.1, 0.1, 9.0, *[0.1] * 10], "90.0 times", "train.clip_norm"),
        ("loss not finite", [0] * 10, [1.0, 0.5, float("nan")], "step 200", "train.learning_rate"),
    ],
)
def test_each_kind_of_evidence_gets_its_own_change_and_quotes_its_number(tmp_path, rule, stages, losses, number, key):
    proposal = propose(evidence_of(tmp_path, stages, losses), parent=0)
    assert proposal.rule == rule
    assert number in proposal.rationale
    assert key in proposal.change
    node = lone_node(0, tmp_path, load.flatten(CONFIG.model_dump(), "CONFIG"), crashed_batch(1))
    assert guard(proposal, (node,), CONFIG) != CONFIG


def test_three_evidence_files_give_three_proposals(tmp_path):
    kinds = ([3] * 10, [1] * 10, [5] * 10)
    made = [propose(evidence_of(tmp_path / str(i), stages), 0) for i, stages in enumerate(kinds)]
    assert len({tuple(sorted(proposal.change.items())) for proposal in made}) == 3


def test_the_same_evidence_gives_the_same_proposal(tmp_path):
    evidence = evidence_of(tmp_path, [3, 1, 0, 5])
    assert propose(evidence, 0) == propose(evidence, 0)


def test_fine_execution_already_leads_to_corrective_demonstrations(tmp_path):
    fine = load.flatten(CONFIG.model_dump(), "test") | {"train.executed_steps": 4}
    proposal = propose(evidence_of(tmp_path, [1] * 10, settings=fine), 0)
    assert proposal.change["generate.corrective"] == 60


def test_the_miss_that_the_judge_measured_is_quoted(tmp_path):
    evidence = evidence_of(tmp_path, [1, 1, 2, 5], grasp_side_m=[0.010, 0.014, 0.030, 0.001])
    proposal = propose(evidence, 0)
    assert "14 mm" in proposal.rationale and proposal.evidence["median_grasp_side_m"] == 0.014


def test_every_rule_changes_only_what_a_proposal_may_change(tmp_path):
    kinds = [([0] * 4, FLAT), ([2] * 4, FLAT), ([3] * 4, FLAT), ([5] * 4, FLAT), ([1, 3], FALLING)]
    for index, (stages, losses) in enumerate(kinds):
        evidence = evidence_of(tmp_path / str(index), stages, losses)
        for rule in RULES:
            for finding in rule.find(Look(evidence, evidence.settings)):
                for key, value in finding.change.items():
                    assert key in tunable_keys() and fields()[key].holds(value), (rule.name, key, value)


def test_the_coach_does_not_see_validation_results(tmp_path):
    evidence = evidence_of(tmp_path, [3] * 10)
    before = propose(evidence, 0)
    (tmp_path / "score.json").write_text('{"validation": {"successes": 20}}')
    other = tmp_path / "rollouts" / "validation"
    other.mkdir()
    (other / "1.json").write_text('{"seed": 1, "success": true, "stage": 5, "ticks": 9}')
    again = read_evidence(tmp_path, STAGES, evidence.settings, "deadline")
    assert again == evidence and propose(again, 0) == before


def test_evidence_without_rollouts_is_refused(tmp_path):
    with pytest.raises(UserError, match="no train-seed rollouts"):
        read_evidence(tmp_path, STAGES, {}, "deadline")


def test_a_broken_rollout_file_is_refused_by_name(tmp_path):
    evidence_of(tmp_path, [3])
    (tmp_path / "rollouts" / "train" / "9.json").write_text('{"seed": 9')
    with pytest.raises(UserError, match=r"9\.json"):
        read_evidence(tmp_path, STAGES, {}, "deadline")


def proposal(**change):
    return Proposal(0, "test", "rule", "why", {key.replace("__", "."): value for key, value in change.items()})


def test_a_proposal_survives_its_file():
    made = proposal(train__ema=0.9)
    assert Proposal.from_json(made.to_json()) == made
