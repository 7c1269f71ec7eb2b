"""A new attempt: the coach is asked, the guard looks, and what passes is written down.

A refused proposal gets two tries to be mended, then its parent goes forward unchanged. What was changed is computed
from the two configurations, whatever the coach says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from robocoach.agent_loop import lessons
from robocoach.agent_loop.engine.running import Running
from robocoach.agent_loop.guard import change_schema, guard
from robocoach.agent_loop.proposal import Proposal
from robocoach.agent_loop.tree import CoachFailed, RateLimited, View
from robocoach.agent_loop.views import CONFIG_FILE, attempt_folder, best_by_train, move_of, read_config
from robocoach.agent_loop.workshop import Job
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically
from robocoach.configs.models import Sim2RealConfig

GUARD_TRIES = 2
"""Tries that a coach gets to mend a proposal that the guard refused."""
LONGEST_WAIT_S = 900.0
"""A provider that asks to wait longer is asked again after this."""


class Proposer:
    """Makes the attempts of one campaign; the caller holds the turn."""

    def __init__(self, run: Running) -> None:
        self._run = run

    def given_whole(self) -> int:
        """The attempt that a coach of one proposal spends everything on: with no proposal at all it is the first."""
        return 0 if self._run.coach.name == "none" else 1

    def _training_seconds(self, number: int) -> float:
        """An attempt's share of the budget; everything that is left for the one proposal of such a coach."""
        each = 60 * self._run.base.train.minutes
        if not self._run.coach.whole_budget or number != self.given_whole():
            return each
        left = (
            self._run.rules.hours * 3600
            - self._run.spent_s()
            - 2 * self._run.attempt_estimate_s(self._run.store.attempts())
            + 2 * each
        )
        return max(each, min(left, each * (self._run.rules.attempts - number)))

    def begin(self) -> None:
        self._write_attempt(0, self._run.base, None)
        self._run.store.add(0)

    def _write_attempt(self, number: int, config: Sim2RealConfig, proposal: Proposal | None) -> None:
        """The attempt's configuration and proposal, written before the store knows of it."""
        folder = attempt_folder(self._run.folder, number)
        config = config.model_copy(
            update={"train": config.train.model_copy(update={"minutes": self._training_seconds(number) / 60})}
        )
        write_atomically(folder / CONFIG_FILE, load.dump(config))
        first = {"parent": None, "coach": None, "change": {}, "rationale": "the configuration as given"}
        content = asdict(proposal) if proposal else first
        write_atomically(folder / "proposal.json", json.dumps(content, indent=2, sort_keys=True) + "\n")

    def view(self, workspace: Path, number: int) -> View:
        """What the coach may look at for proposing attempt `number`."""
        nodes = self._run.nodes.read()
        latest = max((node.number for node in nodes if node.measured), default=0)
        report = attempt_folder(self._run.folder, latest) / "feedback.md"
        return View(
            nodes=nodes,
            incumbent=int(self._run.store.get("incumbent", 0)),
            best=best_by_train(nodes),
            base=self._run.base,
            task_document=(self._run.folder / "task.md").read_text(),
            feedback=report.read_text() if report.is_file() else "",
            evidence=self._run.evidence,
            pictures=self._run.pictures,
            schema=change_schema(self._run.base, self._run.facts.stages),
            lessons=lessons.offered(self._run.facts.name, self._run.facts.stages) if self._run.rules.lessons else (),
            seed=1_000 * self._run.base.seed + number,
            workspace=workspace,
            spend_left_usd=self._run.spend_left_usd(),
            without=self._run.without,
        )

    def propose(self) -> int | None:
        """A new attempt from the coach, in the store; None when nothing came of it."""
        number = len(self._run.store.attempts())
        workspace = self._run.folder / "coach" / f"{number:04d}"
        workspace.mkdir(parents=True, exist_ok=True)
        view = self.view(workspace, number)
        proposal, refusals = None, []
        try:
            proposal = self._asked(view)
            while proposal is not None:
                try:
                    config = self._checked(view, proposal)
                    break
                except UserError as error:
                    refusals.append(str(error))
                    self._run.store.record("refused", number, reason=str(error))
                    self._run.say(f"  the guard refuses the proposal: {error}")
                    if len(refusals) > GUARD_TRIES:
                        return self._rejected(number, view, proposal, refusals)
                    proposal = self._paid(self._run.coach.mend(view, proposal, str(error)))
        except RateLimited as error:
            self._wait(error.wait_s, str(error))
            return None
        except CoachFailed as error:
            self._run.store.record("coach failed", None, reason=str(error))
            self._run.say(f"  the coach could not propose: {error}; the parent stands unchanged")
            proposal = None
        if proposal is None:
            self._run.store.put(unchanged=int(self._run.store.get("unchanged", 0)) + 1)
            self._run.store.record("unchanged")
            return None
        self._add(number, view, proposal, config, refusals)
        self._run.store.put(unchanged=0)
        return number

    def _asked(self, view: View) -> Proposal | None:
        self._run.account({"text": f"{self._run.coach.name} reads the evidence"}, force=True)
        return self._paid(self._run.coach.propose(view))

    def _paid(self, proposal: Proposal | None) -> Proposal | None:
        if proposal is not None:
            self._run.pay(proposal.cost_usd)
        return proposal

    def _checked(self, view: View, proposal: Proposal) -> Sim2RealConfig:
        config = guard(
            proposal,
            view.nodes,
            self._run.base,
            stages=self._run.facts.stages,
            base_has_weights=self._run.base.train.policy != "pi05_nano",
        )
        if proposal.start == "parent" and self._run.checkpoint(proposal.parent) is None:
            raise UserError(f"attempt {proposal.parent} left no checkpoint; propose start base, or another parent")
        if "branching" in self._run.without:
            latest = view.measured[-1].number
            if proposal.parent != latest:
                raise UserError(f"branching is switched off: the parent is the latest attempt, {latest}")
        return config

    def _add(
        self, number: int, view: View, proposal: Proposal, config: Sim2RealConfig, refusals: Sequence[str]
    ) -> None:
        before = view.nodes[proposal.parent].settings
        after = load.flatten(config.model_dump(), "proposal")
        change = {
            key: [before[key], after[key]] for key in after if before[key] != after[key] and key != "train.minutes"
        }
        folder = attempt_folder(self._run.folder, number)
        self._write_attempt(number, config, proposal)
        if refusals:
            write_atomically(folder / "refusals.json", json.dumps(list(refusals), indent=1) + "\n")
        move = move_of(view.nodes, view.incumbent, proposal.parent, proposal.start)
        self._run.store.add(
            number,
            parent=proposal.parent,
            start=proposal.start,
            move=move,
            coach=proposal.coach,
            rule=proposal.rule,
            rationale=proposal.rationale,
            change=change,
            cost_usd=proposal.cost_usd,
        )
        told = ", ".join(f"{key} {old} → {new}" for key, (old, new) in change.items())
        self._run.say(f"attempt {number} ({move} from {proposal.parent}): {told}")
        self._run.say(f"  {proposal.rule}: {proposal.rationale}")

    def _rejected(self, number: int, view: View, proposal: Proposal, refusals: Sequence[str]) -> None:
        """The refused proposal stays in the tree as a node; its parent goes forward unchanged."""
        parent = proposal.parent if 0 <= proposal.parent < len(view.nodes) else view.incumbent
        self._write_attempt(number, read_config(view.nodes[parent].folder), None)
        folder = attempt_folder(self._run.folder, number)
        write_atomically(folder / "refusals.json", json.dumps(list(refusals), indent=1) + "\n")
        self._run.store.add(
            number, parent=parent, move="extend", coach=self._run.coach.name, rule=str(proposal.rule)[:80]
        )
        self._run.store.advance(number, "rejected", reason=refusals[-1])
        self._run.store.put(unchanged=int(self._run.store.get("unchanged", 0)) + 1)

    def _wait(self, seconds: float, reason: str) -> None:
        """Defers a round; the campaign's own limits still hold."""
        seconds = min(seconds, LONGEST_WAIT_S, max(0.0, self._run.rules.hours * 3600 - self._run.spent_s()))
        self._run.store.record("deferred", None, reason=reason)
        self._run.say(f"  the provider asks to wait {seconds:.0f} s")
        self._run.halt.wait(seconds)

    def repair(self, job: Job, reason: str) -> bool:
        """Asks the coach to mend what cannot run; False when it has no other proposal that the guard lets pass."""
        with self._run.turn:
            workspace = self._run.folder / "coach" / f"{job.number:04d}"
            view = self.view(workspace, job.number)
            view = replace(view, nodes=view.nodes[: job.number])
            refused = Proposal(**json.loads((job.folder / "proposal.json").read_text()))
            try:
                proposal = self._paid(self._run.coach.mend(view, refused, f"preflight: {reason}"))
                if proposal is None:
                    return False
                self._add(job.number, view, proposal, self._checked(view, proposal), ())
                return True
            except (UserError, CoachFailed, RateLimited) as error:
                self._run.store.record("repair failed", job.number, reason=str(error))
                return False
