"""A small campaign as coaches see it: three measured attempts on disk, attempt 2 the best, attempt 1 the incumbent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from robocoach.agent_loop.evidence import Evidence
from robocoach.agent_loop.guard import change_schema
from robocoach.agent_loop.tree import Batch, Node, View
from robocoach.configs import load
from robocoach.configs.models import Sim2RealConfig

HIDDEN = "selects-17-of-20"
"""What lies where validation results lie."""


def batch(successes: int) -> Batch:
    """Ten rollouts."""
    return Batch(n=10, successes=successes, reached_goal=1, closest_m=0.02, carries=2, aborted=0)


def small_view(campaign: Path, **changed: Any) -> View:
    """The view of attempt 3's coach; its campaign's folder is made."""
    base = Sim2RealConfig()
    settings = load.flatten(base.model_dump(), "base")
    nodes = []
    for number, successes in enumerate((3, 2, 5)):
        folder = campaign / "attempts" / f"{number:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        rows = [{"step": step, "loss": 1.0 / step, "elapsed_s": 0.1 * step} for step in range(1, 41)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        nodes.append(
            Node(
                number=number,
                parent=None if number == 0 else 0,
                start="parent",
                state="done",
                coach="rules",
                rule="still falling",
                rationale="the loss still fell by 40 %",
                change={} if number == 0 else {"train.learning_rate": (1e-3, 1e-3 / (number + 1))},
                settings=settings,
                batch=batch(successes),
                reverted=False,
                reason="",
                folder=folder,
            )
        )
    sheet = campaign / "attempts" / "0002" / "7-sheet.png"
    Image.new("RGB", (32, 32), "red").save(sheet)
    secret = campaign / "validation" / "0002"
    secret.mkdir(parents=True, exist_ok=True)
    (secret / "score.json").write_text(HIDDEN)

    def no_evidence(number: int) -> Evidence:
        raise LookupError(number)

    view = View(
        nodes=tuple(nodes),
        incumbent=1,
        best=2,
        base=base,
        task_document="Stack the red cube on the green cube. Goal clause: on it, let go, at rest.",
        feedback="# Attempt 0002\n\njaws closed 11 mm short of the cube's centre\n",
        evidence=no_evidence,
        pictures=lambda number: (sheet,),
        schema=change_schema(base),
        lessons=({"claim": "slower closing holds better"},),
        seed=3,
        workspace=campaign / "coach" / "0003",
        spend_left_usd=5.0,
        without=frozenset(),
    )
    return replace(view, **changed)
