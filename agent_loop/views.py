"""What a coach is shown, made from the store and the attempts' folders: nodes with computed changes, and the view.

Only train-seed results are read here. `score.json`, validation and held-out folders are never opened.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from robocoach.agent_loop import revert
from robocoach.agent_loop.store import Attempt, Campaign
from robocoach.agent_loop.tree import Batch, Node
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.models import Sim2RealConfig

CONFIG_FILE = "config.yaml"


def attempt_folder(campaign: Path, number: int) -> Path:
    """Where an attempt's files lie."""
    return campaign / "attempts" / f"{number:04d}"


def read_config(folder: Path) -> Sim2RealConfig:
    """The configuration in an attempt's folder. Raises UserError when it is damaged."""
    path = folder / CONFIG_FILE
    return load.build(load.flatten(load.read_yaml(path), str(path)))


def batch_values(batch: Batch) -> dict[str, Any]:
    """A batch as JSON values; an unknown distance is null."""
    values = asdict(batch)
    values["closest_m"] = batch.closest_m if math.isfinite(batch.closest_m) else None
    return values


def batch_from(values: Mapping[str, Any] | None) -> Batch | None:
    """The inverse of `batch_values`; None of None."""
    if values is None:
        return None
    rest = {key: int(value) for key, value in values.items() if key != "closest_m"}
    closest = values["closest_m"]
    return Batch(closest_m=math.inf if closest is None else float(closest), **rest)


def crashed_batch(n: int) -> Batch:
    """An attempt that could not be measured: n rollouts, all failures."""
    return Batch(n=n, successes=0, reached_goal=0, closest_m=math.inf, carries=0, aborted=n)


class Nodes:
    """The nodes of a campaign. A configuration is read once: it never changes after its attempt was proposed."""

    def __init__(self, store: Campaign, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._settings: dict[tuple[int, float], dict[str, Any]] = {}

    def read(self) -> tuple[Node, ...]:
        """All nodes as they are now, oldest first."""
        return tuple(self._node(attempt) for attempt in self._store.attempts())

    def _node(self, attempt: Attempt) -> Node:
        folder = attempt_folder(self._folder, attempt.number)
        return Node(
            number=attempt.number,
            parent=attempt.parent,
            start="parent" if attempt.start == "parent" else "base",
            state=attempt.state,
            coach=attempt.coach,
            rule=attempt.rule,
            rationale=attempt.rationale,
            change={key: (old, new) for key, (old, new) in attempt.change.items()},
            settings=self._read(folder, attempt.number),
            batch=batch_from(attempt.results.get("batch")),
            reverted=attempt.reverted,
            reason=attempt.reason,
            folder=folder,
            cost_usd=attempt.cost_usd,
        )

    def _read(self, folder: Path, number: int) -> Mapping[str, Any]:
        path = folder / CONFIG_FILE
        if not path.is_file():
            raise UserError(f"{path} is missing; without it the campaign cannot go on: restore it, or begin anew")
        key = (number, path.stat().st_mtime)
        if key not in self._settings:
            self._settings[key] = load.flatten(read_config(folder).model_dump(), str(path))
        return self._settings[key]


def best_by_train(nodes: Sequence[Node]) -> int:
    """The best attempt by its train-seed batch, the earliest among equals; 0 when none was measured."""
    best, found = 0, None
    for node in nodes:
        if node.batch is not None and (found is None or revert.order(node.batch) > revert.order(found)):
            best, found = node.number, node.batch
    return best


def move_of(nodes: Sequence[Node], incumbent: int, parent: int, start: str) -> str:
    """The kind of step in the tree: `extend` the current branch, `roll back` to another attempt, or `restart`."""
    if start == "base":
        return "restart"
    latest = max((node.number for node in nodes if node.measured), default=0)
    return "extend" if parent in (incumbent, latest) else "roll back"
