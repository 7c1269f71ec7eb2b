"""The part of the report on the tree: each attempt's exact change, result and behaviour, and its coach's own account.

The change is computed from the two configurations, not told; the account is the coach's and marked unverified.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from robocoach.agent_loop.evidence import ROLLOUTS, RolloutEvidence, read_rollouts
from robocoach.agent_loop.metrics import METRICS_FILE
from robocoach.agent_loop.report.plain_text import one_line, plural, sentence, value
from robocoach.agent_loop.report.signatures import failing_stage, lost
from robocoach.agent_loop.statistics import Rate
from robocoach.agent_loop.tree import Node
from robocoach.agent_loop.trends import Trend, read_trend
from robocoach.configs.errors import UserError

ACCOUNT_MOST = 800
ACCOUNTS_SHOWN = 12
"""Accounts of the latest attempts; older attempts stand in one line."""


def change(node: Node) -> str:
    """The exact change in words; where nothing differs from the parent, that is said."""
    if node.parent is None:
        return "the configuration as given"
    told = [f"`{key}` {value(old)} → {value(new)}" for key, (old, new) in sorted(node.change.items())]
    return ", ".join(told) or "no setting changed"


def origin(node: Node) -> str:
    """Parent and weights."""
    if node.parent is None:
        return "the first attempt"
    weights = "its weights" if node.start == "parent" else "the weights that attempt 0 began with"
    return f"a child of attempt {node.parent}, begun with {weights}"


def history(nodes: Sequence[Node], stages: Sequence[str], without: frozenset[str]) -> list[str]:
    """One entry an attempt, oldest first. `stages` are empty when the video channel is off."""
    best = _best(nodes)
    recent = {node.number for node in list(nodes)[-ACCOUNTS_SHOWN:]}
    lines = []
    for node in nodes:
        marks: list[str] = [node.state] if node.state != "done" else []
        marks += ["reverted"] if node.reverted and node.state != "failed" else []
        marks += ["best on train seeds so far"] if node.number == best else []
        mark = f" ({', '.join(marks)})" if marks else ""
        lines.append(f"- **Attempt {node.number}**{mark}, {origin(node)}: {change(node)}.")
        lines.append(f"  {_result(node)}{_behaviour(node, stages)}{_trend(node, without)}")
        if node.state in ("failed", "rejected") and node.reason and "text" not in without:
            lines.append(f"  Reason: {sentence(node.reason, 300)}")
        if node.rationale and node.number in recent and node.parent is not None:
            name = f"{node.coach}: {node.rule}" if node.rule else node.coach
            lines.append(f"  *Unverified* account ({one_line(name, 120)}): {one_line(node.rationale, ACCOUNT_MOST)}")
    return lines


def _best(nodes: Sequence[Node]) -> int | None:
    """The attempt with the highest train-seed success, the earliest among equals; None while nothing succeeded."""
    best, found = 0.0, None
    for node in nodes:
        if node.batch is not None and node.batch.n and node.batch.successes / node.batch.n > best:
            best, found = node.batch.successes / node.batch.n, node.number
    return found


def _result(node: Node) -> str:
    if node.batch is None:
        return "Not measured."
    aborted = f", {plural(node.batch.aborted, 'rollout')} aborted" if node.batch.aborted else ""
    return f"Train seeds: {Rate(node.batch.successes, node.batch.n)}{aborted}."


def _behaviour(node: Node, stages: Sequence[str]) -> str:
    """Where it failed most, how close it came, what it carried, lost, and had at the goal."""
    if not stages or node.batch is None or node.state == "failed":
        return ""
    rollouts = behaviour_of(node)
    failed = Counter(failing_stage(one, stages) for one in rollouts if not one.success)
    told = [f"failed at {name} {count}" for name, count in failed.most_common(3)]
    if math.isfinite(node.batch.closest_m):
        told.append(f"median closest approach {1000 * node.batch.closest_m:.0f} mm")
    told.append(f"carried {node.batch.carries}")
    if dropped := sum(lost(one) for one in rollouts):
        told.append(f"grip lost {dropped}")
    told.append(f"goal geometry held in {plural(node.batch.reached_goal, 'failure')}")
    return f" Behaviour: {', '.join(told)}."


def behaviour_of(node: Node) -> tuple[RolloutEvidence, ...]:
    """The train-seed rollouts of an attempt; none when its files are damaged or gone."""
    folder = node.folder / ROLLOUTS
    try:
        return _rollouts(folder, folder.stat().st_mtime_ns) if folder.is_dir() else ()
    except UserError:
        return ()


@lru_cache(maxsize=1024)
def _rollouts(folder: Path, changed_ns: int) -> tuple[RolloutEvidence, ...]:
    """Read once as long as nothing in the folder changes: a report looks at every attempt of the campaign."""
    return read_rollouts(folder)


@lru_cache(maxsize=1024)
def _trend_of(folder: Path, changed_ns: int) -> Trend:
    return read_trend(folder)


def _trend(node: Node, without: frozenset[str]) -> str:
    if "numbers" in without or not node.measured:
        return ""
    metrics = node.folder / METRICS_FILE
    found = _trend_of(node.folder, metrics.stat().st_mtime_ns if metrics.is_file() else 0)
    return f" Training: {found.word}." if node.state != "failed" or found.word != "too short" else ""
