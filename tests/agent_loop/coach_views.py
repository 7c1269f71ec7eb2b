"""Hand-made trees for the coaches' tests: nodes, evidence, and a view of them."""

from __future__ import annotations

from pathlib import Path

from robocoach.agent_loop.evidence import CurvePoint, Evidence, RolloutEvidence
from robocoach.agent_loop.tree import Batch, Node, View
from robocoach.configs import load
from robocoach.configs.errors import UserError

STAGES = ("reach", "grasp", "lift", "place", "release")
FLAT = [1.0, 0.5, 0.2, 0.1] + [0.05] * 12
FALLING = [0.8**index for index in range(16)]
STEP = 100


def config_of(**given):
    """A configuration; keys as `train__ema`."""
    return load.load({key.replace("__", "."): value for key, value in given.items()}, profile="cpu")


def asked(coach, view, refused=None):
    """The coach's proposal, or the one after a refused one; it must have one."""
    proposal = coach.propose(view) if refused is None else coach.mend(view, refused, "refused")
    assert proposal is not None, "the coach has nothing to propose"
    return proposal


class Tree:
    """A campaign as it grows; `view()` is what the coach sees now."""

    def __init__(self, base=None, seed=7, without=()):
        self.base = base or config_of()
        self.seed, self.without = seed, frozenset(without)
        self.nodes, self.found = [], {}
        self.incumbent = 0

    def add(self, stages, change=None, *, parent=None, start="parent", losses=FLAT, every=STEP, **told):
        """An attempt whose rollouts got through so many stages each; `stages=None` for one that failed."""
        number = len(self.nodes)
        parent = None if number == 0 else self.incumbent if parent is None else parent
        before = load.flatten(self.base.model_dump(), "base") if parent is None else dict(self.nodes[parent].settings)
        settings = before | (change or {})
        wins = sum(stage == len(STAGES) for stage in stages or ())
        n = len(stages) if stages else 10
        closest = 0.1 - 0.01 * sum(stages or [0]) / n
        node = Node(
            number=number,
            parent=parent,
            start=start if number else "base",
            state=told.pop("state", "done" if stages else "failed"),
            coach="test",
            rule=told.pop("rule", ""),
            rationale="",
            change={key: (before[key], new) for key, new in (change or {}).items()},
            settings=settings,
            batch=Batch(n, wins, 0, closest, 0, 0 if stages else n),
            reverted=told.pop("reverted", False),
            reason=told.pop("reason", ""),
            folder=Path("runs/night/attempts") / f"{number:04d}",
        )
        self.nodes.append(node)
        if stages:
            rollouts = tuple(
                RolloutEvidence(seed, stage == len(STAGES), stage, 100, told.get("measures", {}))
                for seed, stage in enumerate(stages)
            )
            curve = tuple(CurvePoint(every * (i + 1), loss, i) for i, loss in enumerate(losses))
            self.found[number] = Evidence(STAGES, rollouts, curve, settings, told.get("stopped", "deadline"))
        return node

    def evidence(self, number):
        if number not in self.found:
            raise UserError(f"attempt {number} left nothing")
        return self.found[number]

    def view(self, best=None):
        score = {node.number: (node.batch.successes, -node.batch.closest_m, -node.number) for node in self.nodes}
        return View(
            nodes=tuple(self.nodes),
            incumbent=self.incumbent,
            best=max(score, key=score.__getitem__) if best is None else best,
            base=self.base,
            task_document="",
            feedback="",
            evidence=self.evidence,
            pictures=lambda number: (),
            schema={},
            lessons=(),
            seed=1_000 * self.seed + len(self.nodes),
            workspace=Path("workspace"),
            spend_left_usd=0.0,
            without=self.without,
        )
