"""A campaign as one plain dictionary: what `status`, `tree`, `show`, the page and `result.json` are made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robocoach.agent_loop.statistics import Rate
from robocoach.agent_loop.store import Attempt, Campaign, Event
from robocoach.agent_loop.task_document import TaskFacts
from robocoach.configs.models import Sim2RealConfig

EVENTS_SHOWN = 200


def best(attempts: Sequence[Attempt]) -> int | None:
    """The first attempt with the most validation successes; None when none was measured to the end.

    An attempt whose validation ended early could not become the best, and one that failed has no checkpoint.
    """
    found: int | None = None
    most = -1
    for attempt in attempts:
        validation = attempt.results.get("validation")
        if attempt.state in ("failed", "rejected") or validation is None or validation["stopped"]:
            continue
        if validation["successes"] > most:
            found, most = attempt.number, validation["successes"]
    return found


def content(store: Campaign, folder: Path, base: Sim2RealConfig, facts: TaskFacts) -> dict[str, Any]:
    """The whole campaign as JSON values."""
    attempts, rules = store.attempts(), base.campaign
    return {
        "task": base.task,
        "seed": base.seed,
        "coach": store.get("coach", rules.coach),
        "instruction": facts.instruction,
        "stages": list(facts.stages),
        "started_at": min((event.at for event in store.events("begun")), default=None),
        "wall_s": store.get("spent_s", 0.0),
        "state": store.get("state", "running"),
        "stop_reason": store.get("stop_reason", ""),
        "now": store.get("now", {}),
        "budget": {
            "hours": rules.hours,
            "spent_h": store.get("spent_s", 0.0) / 3600,
            "attempts": rules.attempts,
            "spend_usd": rules.spend_usd,
            "spent_usd": store.get("spent_usd", 0.0),
            "gpu_hours": rules.gpu_hours,
            "gpu_spent_h": store.get("gpu_s", 0.0) / 3600,
        },
        "best": best(attempts),
        "incumbent": store.get("incumbent", 0),
        "attempts": [_attempt(attempt, folder) for attempt in attempts],
        "confirm": _confirm(store.get("confirm")),
        "events": [_event(event) for event in store.events()[-EVENTS_SHOWN:]],
        "warnings": list(store.get("warnings", [])),
    }


def _confirm(confirm: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if confirm is None:
        return None
    named = ("winner", "only_winner", "only_base", "mcnemar_p")
    return {
        **{name: confirm[name] for name in named},
        "heldout": _rate(confirm["heldout"]),
        "heldout_base": _rate(confirm["heldout_base"]),
    }


def _rate(counted: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if counted is None:
        return None
    rate = Rate(counted["successes"], counted["n"])
    return {"successes": rate.successes, "n": rate.n, "ci95": list(rate.ci95)}


def _attempt(attempt: Attempt, folder: Path) -> dict[str, Any]:
    results = attempt.results
    batch, validation = results.get("batch"), _rate(results.get("validation"))
    if validation is not None:
        validation["stopped"] = results["validation"]["stopped"]
    training = results.get("training")
    return {
        "number": attempt.number,
        "parent": attempt.parent,
        "start": attempt.start,
        "move": attempt.move,
        "state": attempt.state,
        "coach": attempt.coach,
        "rule": attempt.rule,
        "rationale": attempt.rationale,
        "change": attempt.change,
        "train": None if batch is None else {**batch, **(_rate(batch) or {})},
        "validation": validation,
        "heldout": _rate(results.get("heldout")),
        "hardware": _rate(results.get("hardware")),
        "reverted": attempt.reverted,
        "reason": attempt.reason,
        "trend": results.get("trend", ""),
        "training": training,
        "seconds": results.get("seconds", {}),
        "cost_usd": attempt.cost_usd,
        "folder": f"attempts/{attempt.number:04d}",
        "stages": results.get("stages"),
    }


def _event(event: Event) -> dict[str, Any]:
    detail = event.detail
    text = str(
        detail.get("reason") or detail.get("claim") or detail.get("what") or (json.dumps(detail) if detail else "")
    )
    return {"at": event.at, "kind": event.kind, "attempt": event.attempt, "text": text}
