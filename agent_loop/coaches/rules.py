"""The rule-based coach: chooses the parent, then reads the table of `diagnoses.py` on the parent's evidence.

Deterministic: the same tree and evidence give the same proposal. The first change that was not tried from that parent
is proposed, so that a campaign does not repeat itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from robocoach.agent_loop import revert
from robocoach.agent_loop.coaches.diagnoses import MENDS, NOT_FINITE, Finding, Look, changes, outliers
from robocoach.agent_loop.coaches.priors import priors
from robocoach.agent_loop.evidence import Evidence
from robocoach.agent_loop.guard import SHAPE_KEYS
from robocoach.agent_loop.proposal import Proposal, tunable_keys
from robocoach.agent_loop.tree import Node, View
from robocoach.configs.errors import UserError

COACH = "rules"
STALLED = 2
"""Measured attempts that did not beat the best: the branch is left for the best."""


def propose(evidence: Evidence, parent: int) -> Proposal:
    """The first change on one attempt's evidence alone that keeps its weights, as `sim2real` makes it.

    Raises ValueError when there is no rollout: a coach without evidence has nothing to say.
    """
    if not evidence.rollouts:
        raise ValueError("no rollouts in the evidence")
    for name, finding in changes(Look(evidence, evidence.settings, prior=priors(evidence.settings["train.policy"]))):
        if not finding.change.keys() & set(SHAPE_KEYS):
            return Proposal(parent, COACH, name, finding.rationale, finding.change, finding.numbers)
    raise AssertionError("the last rule always holds")


@dataclass(frozen=True)
class Branch:
    """Where the next attempt grows."""

    parent: int
    start: Literal["parent", "base"]
    why: str
    blown: int = 0


class RuleCoach:
    """The default coach: offline, no key, no memory beyond the tree."""

    name = COACH
    whole_budget = False

    def propose(self, view: View) -> Proposal | None:
        """The first change that was not tried yet; None when the table has nothing left for any parent."""
        tried = _tried(view)
        return next((one for one in _all(view) if _mark(one) not in tried), None)

    def mend(self, view: View, refused: Proposal, reason: str) -> Proposal | None:
        """The next change after the refused one; None when there is none."""
        tried, offers = {*_tried(view), _mark(refused)}, list(_all(view))
        at = [_mark(one) for one in offers]
        rest = offers[at.index(_mark(refused)) :] if _mark(refused) in at else offers
        return next((one for one in rest if _mark(one) not in tried), None)

    def lesson(self, view: View, number: int) -> Mapping[str, Any] | None:
        """What the change of an attempt did on the train seeds that it shares with its parent; None when unclear."""
        return lesson_of(view, number)


Mark = tuple[int | None, str, tuple[tuple[str, Any], ...]]


def _mark(proposal: Proposal) -> Mark:
    """What makes two proposals the same."""
    return (proposal.parent, proposal.start, tuple(sorted(proposal.change.items())))


def _tried(view: View) -> set[Mark]:
    found = set()
    for node in view.nodes:
        change = _proposed(node)
        found.add((node.parent, node.start, tuple(sorted((key, new) for key, (_, new) in change.items()))))
    return found


def _proposed(node: Node) -> dict[str, tuple[Any, Any]]:
    """An attempt's change less what the engine set by itself, such as its share of the time."""
    allowed = set(tunable_keys())
    return {key: pair for key, pair in node.change.items() if key in allowed}


def _all(view: View) -> Iterator[Proposal]:
    """Every proposal on this tree, best first: the chosen parent's, then those of the others, best first."""
    first = choose_branch(view)
    if "branching" in view.without:
        branches = [first]
    else:
        ran = [(revert.order(node.batch), -node.number) for node in view.nodes if node.batch and node.state != "failed"]
        others = [-number for _, number in sorted(ran, reverse=True) if -number != first.parent]
        why = f"Nothing new is left for attempt {first.parent}"
        branches = [first, *(Branch(number, "parent", f"{why}: attempt {number}.") for number in others)]
    for branch in branches:
        node = view.node(branch.parent)
        for name, finding in _varied(changes(_look(view, node, branch.blown)), node):
            reshaped = any(key in finding.change for key in SHAPE_KEYS)
            why = "From the base's weights, since the model's shape changes." if reshaped else branch.why
            start, change = "base" if reshaped else branch.start, finding.change
            if start == "base" and node.settings["train.frozen"] != "none":
                change = {**change, "train.frozen": "none"}  # untrained weights are not worth keeping
            yield Proposal(
                parent=branch.parent,
                coach=COACH,
                rule=name,
                rationale=f"{finding.rationale} {why}".strip(),
                change=change,
                evidence=finding.numbers,
                start=start,
            )


def _varied(found: Iterator[tuple[str, Finding]], node: Node) -> Iterator[tuple[str, Finding]]:
    """The same changes, but what a branch did last comes last: a second dose of the same teaches little."""
    again = []
    for name, finding in found:
        if name not in MENDS and _kind(finding.change) == _kind(_proposed(node)):
            again.append((name, finding))
        else:
            yield name, finding
    yield from again


def _kind(change: Mapping[str, Any]) -> frozenset[str]:
    """The settings that a change is about; the learning rate goes along with most."""
    keys = frozenset(change)
    return keys - {"train.learning_rate"} or keys


def _look(view: View, node: Node, blown: int = 0) -> Look:
    """What may be seen of one attempt."""
    failed = node.state == "failed" and "text" not in view.without
    return Look(
        evidence=_evidence(view, node).without(view.without),
        given=view.nodes[0].settings,
        reason=node.reason if failed else "",
        blown=blown,
        prior=priors(str(node.settings["train.policy"])),
    )


def choose_branch(view: View) -> Branch:
    """Extend the incumbent, roll back to the best, or restart from the base's weights, with the numbers that say so."""
    measured = view.measured
    if "branching" in view.without:
        latest = measured[-1] if measured else view.nodes[0]
        return Branch(latest.number, "base" if latest.state == "failed" else "parent", "", _blown(view))
    incumbent, best = view.node(view.incumbent), view.node(view.best)
    blown = _blown(view)
    if blown >= 2:
        why = f"The loss was not finite {blown} times in a row: start again from the weights attempt 0 began with."
        return Branch(best.number, "base", why, blown)
    after = [node for node in measured if node.number > best.number]
    patience = STALLED + len(outliers(_look(view, incumbent)))  # what is off is mended before a branch is judged
    if len(after) >= patience and incumbent.number != best.number:
        why = f"Back to attempt {best.number}, the best: {len(after)} attempts since did not beat it."
        return Branch(best.number, "base" if best.state == "failed" else "parent", why)
    return Branch(incumbent.number, "base" if incumbent.state == "failed" else "parent", "")


def _blown(view: View) -> int:
    """Latest measured attempts in a row whose loss was not finite."""
    count = 0
    for node in reversed(view.measured):
        if not _blew_up(view, node):
            break
        count += 1
    return count


def _blew_up(view: View, node: Node) -> bool:
    look = _look(view, node)
    broken = any(not math.isfinite(point.loss) for point in look.evidence.curve)
    return broken or look.evidence.stopped == "nan" or bool(NOT_FINITE.search(look.reason))


def _evidence(view: View, node: Node) -> Evidence:
    """An attempt's evidence; an empty one when it left none (it failed before its rollouts)."""
    try:
        return view.evidence(node.number)
    except UserError:
        return Evidence(stages=(), rollouts=(), curve=(), settings=node.settings, stopped="crashed")


def lesson_of(view: View, number: int) -> Mapping[str, Any] | None:
    """A lesson's JSON values from an attempt and its parent on the same train seeds.

    None unless at least two and a quarter of the shared seeds changed sides, net: less is noise.
    """
    node = view.node(number)
    if node.parent is None or not _proposed(node) or node.state != "done":
        return None
    before = {one.seed: one.success for one in _evidence(view, view.node(node.parent)).rollouts}
    after = {one.seed: one.success for one in _evidence(view, node).rollouts}
    shared = sorted(before.keys() & after.keys())
    old, new = sum(before[seed] for seed in shared), sum(after[seed] for seed in shared)
    if abs(new - old) < max(2, math.ceil(len(shared) / 4)):
        return None
    moved = " and ".join(_moved(key, was, now) for key, (was, now) in sorted(_proposed(node).items()))
    result = f"{old}/{len(shared)} to {new}/{len(shared)}"
    sighting = {"campaign": node.folder.parent.parent.name or "campaign", "attempt": number, "result": result}
    words = re.findall(r"[a-z]+", node.rule.lower())
    stages = {"lifted": ("grasp", "lift"), "placed": ("place", "release"), "reached": ("reach",)}
    about = next((stages[word] for word in reversed(words) if word in stages), ("training",))
    return {
        "claim": f"When the diagnosis is '{node.rule}', {moved} raises train-seed success.",
        "applies": f"The rules' diagnosis of an attempt is '{node.rule}'.",
        "check": "Train one child with this change and one without it from the same parent, and compare them on the "
        "same train seeds: going on training alone may explain the difference.",
        "instead": "Where it does not help, take the next row of the rules' table.",
        "task": view.base.task,
        "operation": list(about),
        "supports": [sighting] if new > old else [],
        "contradicts": [sighting] if new < old else [],
    }


def _moved(key: str, old: Any, new: Any) -> str:
    if isinstance(old, bool) or isinstance(new, str):
        return f"{key} set to {new}"
    return f"{'a lower' if new < old else 'a higher'} {key}"
