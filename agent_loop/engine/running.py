"""What the parts of a running campaign share: folder, store, coach and workshop, its clock, its money, its files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robocoach.agent_loop import budget
from robocoach.agent_loop import evidence as evidences
from robocoach.agent_loop.evidence import Evidence, RolloutEvidence
from robocoach.agent_loop.report import feedback
from robocoach.agent_loop.statistics import Rate
from robocoach.agent_loop.store import Attempt, Campaign
from robocoach.agent_loop.task_document import TaskFacts
from robocoach.agent_loop.tree import Coach
from robocoach.agent_loop.views import Nodes, attempt_folder, read_config
from robocoach.agent_loop.workshop import Job, Workshop
from robocoach.configs.files import write_atomically
from robocoach.configs.models import Sim2RealConfig

HEARTBEAT_S = 5.0
"""The time spent is written down this often, so that a kill loses no more of it."""


class Running:
    """One campaign in its folder."""

    def __init__(
        self,
        folder: Path,
        base: Sim2RealConfig,
        facts: TaskFacts,
        coach: Coach,
        workshop: Workshop,
        store: Campaign,
        say: Callable[[str], None],
    ) -> None:
        self.folder, self.base, self.facts, self.coach = folder, base, facts, coach
        self.workshop, self.store, self.say = workshop, store, say
        self.rules = base.campaign
        self.without = frozenset(part.strip() for part in self.rules.without.split(",") if part.strip())
        self.nodes = Nodes(store, folder)
        self.turn = threading.RLock()
        """Held while an attempt is proposed or judged; training and rollouts run outside of it."""
        self.halt = threading.Event()
        self._began = time.monotonic()
        self._spent_before = float(store.get("spent_s", 0.0))
        self._beat = 0.0

    def spent_s(self) -> float:
        return self._spent_before + time.monotonic() - self._began

    def account(self, now: dict[str, Any] | None = None, *, force: bool = False) -> None:
        """Writes down the time spent and what is going on."""
        moment = time.monotonic()
        if force or moment - self._beat > HEARTBEAT_S:
            self._beat = moment
            self.store.put(spent_s=self.spent_s(), **({"now": now} if now is not None else {}))

    def attempt_estimate_s(self, attempts: Sequence[Attempt]) -> float:
        """Training deadline and the longest of the last three attempts' other phases."""
        rest = [
            sum(value for name, value in attempt.results["seconds"].items() if name != "training")
            for attempt in attempts
            if attempt.results.get("seconds") and attempt.state == "done"
        ]
        return budget.attempt_estimate_s(60 * self.base.train.minutes, rest)

    def evidence(self, number: int) -> Evidence:
        node = self.nodes.read()[number]
        results = self.store.attempts()[number].results
        return evidences.read_evidence(
            node.folder,
            self.facts.stages,
            node.settings,
            str(results.get("training", {}).get("stopped", "unknown")),
            hardware=self.rules.evidence,
        )

    def pictures(self, number: int) -> tuple[Path, ...]:
        if "video" in self.without:
            return ()
        return tuple(sorted((attempt_folder(self.folder, number) / "rollouts").glob("*/*-sheet.png")))

    def pay(self, usd: float) -> None:
        if usd > 0:
            self.store.put(spent_usd=float(self.store.get("spent_usd", 0.0)) + usd)

    def spend_left_usd(self) -> float:
        return max(0.0, self.rules.spend_usd - float(self.store.get("spent_usd", 0.0)))

    def checkpoint(self, number: int) -> Path | None:
        """The checkpoint of an attempt; None when it left none."""
        named = self.store.attempts()[number].results.get("training", {}).get("checkpoint", "")
        path = attempt_folder(self.folder, number) / named
        return path if named and path.is_dir() else None

    def seeds(self, split: Any, count: int, block: int = 0) -> tuple[int, ...]:
        """The seeds of a split, chosen once a campaign."""
        name = f"seeds {split} {block}"
        known = self.store.get(name)
        if known is None or len(known) < count:
            known = list(self.workshop.seeds(split, count, block))
            self.store.put(**{name: known})
        return tuple(known[:count])

    def job(self, attempt: Attempt, lane: int) -> Job:
        lineage, node = [attempt.number], attempt
        attempts = self.store.attempts()
        while node.parent is not None:
            node = attempts[node.parent]
            lineage.insert(0, node.number)
        folder = attempt_folder(self.folder, attempt.number)
        config = read_config(folder)
        parent = attempt.parent
        checkpoint = None if parent is None else self.checkpoint(parent)
        return Job(
            number=attempt.number,
            folder=folder,
            config=config,
            lineage=tuple(lineage),
            init_from=checkpoint if attempt.start == "parent" else None,
            parent_rollouts=None if parent is None else attempt_folder(self.folder, parent) / "rollouts" / "train",
            parent_checkpoint=checkpoint,
            seconds=60 * config.train.minutes,
            lane=lane,
        )

    def report(self, job: Job) -> None:
        nodes = self.nodes.read()
        text = feedback(
            self.evidence(job.number) if any((job.folder / evidences.ROLLOUTS).glob("*.json")) else None,
            nodes[job.number],
            nodes,
            self.facts,
            self.rules,
        )
        write_atomically(job.folder / "feedback.md", text)


def counted(rollouts: Sequence[RolloutEvidence]) -> dict[str, Any]:
    """Successes, n, interval and outcomes as JSON values."""
    rate = Rate(sum(one.success for one in rollouts), len(rollouts))
    return {
        "successes": rate.successes,
        "n": rate.n,
        "ci95": list(rate.ci95),
        "outcomes": [one.success for one in rollouts],
    }
