"""What `agent_loop.summary.content` makes of a small campaign, for the tests of its texts and its page."""

from __future__ import annotations

from typing import Any

from robocoach.agent_loop.statistics import clopper_pearson


def rate(successes: int, n: int, **more: Any) -> dict[str, Any]:
    return {"successes": successes, "n": n, "ci95": list(clopper_pearson(successes, n)), **more}


def attempt(number: int, parent: int | None, **changed: Any) -> dict[str, Any]:
    """One that is done, with 6 of 20 on train seeds and 12 of 40 on validation seeds, but for what is given."""
    batch = rate(6, 20, reached_goal=3, closest_m=0.02, carries=8, aborted=0)
    return {
        "number": number,
        "parent": parent,
        "start": "parent",
        "state": "done",
        "coach": "rules",
        "rule": "",
        "rationale": "",
        "change": {},
        "train": batch,
        "validation": rate(12, 40, stopped=False),
        "heldout": None,
        "hardware": None,
        "reverted": False,
        "reason": "",
        "trend": "",
        "training": {"steps": 3000, "loss": 0.02, "samples_per_s": 150.0, "elapsed_s": 630.0},
        "seconds": {"preflight": 20.0, "training": 630.0, "evaluating": 400.0, "overhead": 5.0},
        "cost_usd": 0.0,
        "move": "begin" if parent is None else "extend",
        "folder": f"attempts/{number:04d}",
        "stages": None,
        **changed,
    }


def five_attempts() -> dict[str, Any]:
    """Five attempts: 2 failed, 3 reverted, 4 the best, a child of 1."""
    lower = {"policy.learning_rate": [0.0001, 0.00025]}
    attempts = [
        attempt(0, None),
        attempt(1, 0, change=lower, validation=rate(20, 40, stopped=False)),
        attempt(2, 1, state="failed", change={"policy.batch_size": [32, 64]}, reason="out of memory", validation=None),
        attempt(3, 1, reverted=True, reason="2/20 against 6/20", validation=rate(3, 20, stopped=True)),
        attempt(4, 1, move="roll back", change={"policy.action_steps": [8, 4]}, validation=rate(34, 40, stopped=False)),
    ]
    return {
        "task": "stack-cube",
        "seed": 7,
        "coach": "rules",
        "instruction": "put the red cube on the green cube",
        "stages": ["reach", "grasp"],
        "started_at": 1.8e9,
        "wall_s": 7200.0,
        "state": "running",
        "stop_reason": "",
        "now": {"attempt": 4, "phase": "evaluating", "text": "about 3:20 left"},
        "budget": {
            "hours": 8.0,
            "spent_h": 2.0,
            "attempts": 20,
            "spend_usd": 5.0,
            "spent_usd": 0.0,
            "gpu_hours": 0.0,
            "gpu_spent_h": 0.0,
        },
        "best": 4,
        "incumbent": 4,
        "attempts": attempts,
        "confirm": None,
        "events": [{"at": 1.8e9, "kind": "reverted", "attempt": 3, "text": "2/20 against 6/20"}],
        "warnings": [],
    }


def confirmed(campaign: dict[str, Any], p: float, only_winner: int, only_base: int) -> dict[str, Any]:
    campaign["confirm"] = {
        "winner": 4,
        "only_winner": only_winner,
        "only_base": only_base,
        "mcnemar_p": p,
        "heldout": rate(80, 100),
        "heldout_base": rate(30, 100),
    }
    return campaign
