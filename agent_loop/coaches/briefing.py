"""The evidence as a model or a program reads it: tree, report, lessons and schema, bounded in size.

Only what a `View` holds, so no path, validation or held-out result can be in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from robocoach.agent_loop.tree import Node, View

MOST_NODES = 60
"""Of a larger tree the base, the incumbent, the best and the latest attempts are shown."""
MOST_RATIONALE = 800
MOST_REPORT = 60_000
"""Characters of the report; its beginning is the part that is kept."""


def tree_record(node: Node) -> dict[str, Any]:
    """One attempt as JSON values, without its folder."""
    batch = None
    if node.batch is not None:
        closest = node.batch.closest_m
        batch = {**asdict(node.batch), "closest_m": round(closest, 4) if math.isfinite(closest) else None}
    return {
        "attempt": node.number,
        "parent": node.parent,
        "start": node.start,
        "state": node.state,
        "change": {key: {"from": old, "to": new} for key, (old, new) in node.change.items()},
        "train_rollouts": batch,
        "reverted": node.reverted,
        "reason": node.reason,
        "coach": node.coach,
        "diagnosis_unverified": node.rule,
        "rationale_unverified": node.rationale[:MOST_RATIONALE],
    }


def tree_records(view: View) -> dict[str, Any]:
    """The tree with its marked nodes, oldest first."""
    kept = {0, view.incumbent, view.best} | {node.number for node in view.nodes[-MOST_NODES:]}
    return {
        "incumbent": view.incumbent,
        "best": view.best,
        "left_out": len(view.nodes) - sum(node.number in kept for node in view.nodes),
        "attempts": [tree_record(node) for node in view.nodes if node.number in kept],
    }


def tree_text(view: View) -> str:
    """The tree with one attempt a line."""
    tree = tree_records(view)
    lines = [f"incumbent: attempt {tree['incumbent']}, best by train rollouts: attempt {tree['best']}"]
    if tree["left_out"]:
        lines.append(f"{tree['left_out']} older attempts are left out")
    return "\n".join([*lines, *(json.dumps(one, ensure_ascii=False) for one in tree["attempts"])])


def report_text(view: View) -> str:
    """The report on the latest attempt; says so when there is none, or when its end was cut off."""
    if not view.feedback:
        return "No attempt has a report yet."
    if len(view.feedback) <= MOST_REPORT:
        return view.feedback
    return view.feedback[:MOST_REPORT] + "\n\n(the rest of the report was cut off)\n"


def tunable_settings(view: View, number: int) -> dict[str, Any]:
    """What a proposal could change in an attempt's settings, with the values that it has."""
    settings = view.node(number).settings
    return {key: settings[key] for key in view.schema.get("properties", {}) if key in settings}


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a change with the keywords that every provider takes; units stay in the descriptions."""
    return {
        "type": "object",
        "description": str(schema.get("description", "")),
        "additionalProperties": False,
        "properties": {
            key: {name: value for name, value in one.items() if name not in ("unit", "default")}
            for key, one in schema.get("properties", {}).items()
        },
    }
