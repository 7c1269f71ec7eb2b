"""The task document: what a coach reads first, made from the configuration and the task's facts.

Objective, goal clause in plain words, fixed protocol and budget, what may be changed, priors, safety, acceptance, and
the operator's own note. The text is in `task_document.md`. What the task is comes as an argument: this room does not
know the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from robocoach.agent_loop.budget import duration_words
from robocoach.agent_loop.coaches.priors import priors
from robocoach.agent_loop.guard import NANO_KEYS
from robocoach.agent_loop.proposal import tunable_keys
from robocoach.configs import load
from robocoach.configs.fields import fields
from robocoach.configs.models import Sim2RealConfig

TEMPLATE = Path(__file__).with_name("task_document.md")


@dataclass(frozen=True)
class TaskFacts:
    """What the simulator's room says of a task."""

    name: str
    instruction: str
    """What the policy is told."""
    goal: str
    """The success predicate in plain words, clause by clause."""
    stages: tuple[str, ...]
    """In order."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the declared parts (face, edge, rim, handle) by object: the words of a report."""


def task_document(config: Sim2RealConfig, facts: TaskFacts) -> str:
    """The document as Markdown; the same configuration and facts give the same text."""
    campaign = config.campaign
    hardware = "" if campaign.evidence == "sim" else ", and on the arm the operator's verdict"
    return Template(TEMPLATE.read_text()).substitute(
        name=facts.name,
        instruction=_plain(facts.instruction),
        hardware=hardware,
        stages=", ".join(facts.stages),
        goal=facts.goal.strip(),
        limit=f"{config.evaluate.max_ticks} ticks ({config.evaluate.max_ticks / 10:g} s)",
        protocol=_protocol(config),
        settings=_settings(config),
        priors=_rows(
            (f"`{one.key}`", str(one), f"{one.typical:g}", one.source) for one in priors(config.train.policy).values()
        ),
        safety=_safety(config),
        acceptance=_acceptance(config),
        note=campaign.note.strip() or "(none)",
    )


def _plain(text: Any) -> str:
    """One line that breaks no table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def _rows(rows: Iterable[Iterable[Any]]) -> str:
    return "\n".join(f"| {' | '.join(_plain(cell) for cell in row)} |" for row in rows)


def _protocol(config: Sim2RealConfig) -> str:
    campaign, evaluate = config.campaign, config.evaluate
    sources = {"sim": "simulation", "hardware": "the arm", "both": "simulation and the arm"}
    rows = [
        ("policy", config.train.policy),
        ("wall time of the campaign", duration_words(3600 * campaign.hours)),
        ("attempts at most", campaign.attempts),
        ("GPU time at most", f"{campaign.gpu_hours:g} h" if campaign.gpu_hours else "no limit"),
        ("money for model calls", f"{campaign.spend_usd:g} USD"),
        ("demonstrations at first", config.generate.demonstrations),
        ("preflight", f"{campaign.preflight_rollouts} short rollouts, not counted"),
        ("train rollouts an attempt (you read these)", evaluate.train_rollouts),
        ("validation rollouts an attempt (hidden)", f"{evaluate.validation_rollouts}, ended early when hopeless"),
        ("held-out rollouts, once, winner and attempt 0", evaluate.heldout_rollouts),
        (
            "evidence from",
            sources[campaign.evidence],
        ),
        ("channels switched off", campaign.without or "none"),
    ]
    return _rows(rows)


def _settings(config: Sim2RealConfig) -> str:
    now, specs, table = load.flatten(config.model_dump(), "settings"), fields(), priors(config.train.policy)
    keys = [key for key in tunable_keys() if config.train.policy == "pi05_nano" or key not in NANO_KEYS]
    return _rows(
        (
            f"`{key}`",
            now[key] if now[key] != "" else "(empty)",
            specs[key].unit or "–",
            specs[key].bounds,
            str(table[key]) if key in table else "–",
            specs[key].help,
        )
        for key in keys
    )


def _safety(config: Sim2RealConfig) -> str:
    safety = config.safety
    return "\n".join(
        (
            "On the arm and on its twin every command passes an envelope that no proposal can change:",
            f"- a joint command moves by at most {safety.max_step_rad:g} rad in 0.1 s; a jump of more than "
            f"{safety.max_jump_rad:g} rad stops the arm;",
            f"- the hand stays in its box and {1000 * safety.table_clearance_m:g} mm off the table;",
            "- a stale picture, a late or a not finite action stops the arm and ends the rollout as a failure.",
            "",
            "Changes that make motion jerky or fast (a large `train.executed_steps`, `deploy.blend_steps` 0) cost",
            "rollouts there. Write no place of a scene, no seed and no secret into a rationale or a lesson.",
        )
    )


def _acceptance(config: Sim2RealConfig) -> str:
    campaign = config.campaign
    return "\n".join(
        (
            "The campaign ends at the first of:",
            f"- an attempt holds {100 * campaign.target:g} % success on the hidden validation scenes;",
            f"- {campaign.attempts} attempts, {duration_words(3600 * campaign.hours)}, or the money is spent;",
            f"- {campaign.unchanged} proposals in a row change nothing;",
            f"- {campaign.stalled} attempts in a row bring no better validation result.",
            "",
            "The first attempt with the best validation success is kept. It and attempt 0 are then run on held-out "
            "scenes, pair by pair, and both numbers are reported with their intervals, whatever they say.",
        )
    )
