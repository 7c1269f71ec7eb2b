"""The engine of a campaign: rounds of propose, check, train, measure, report, until the budget ends; then confirm.

The order within a round: proposal and guard, preflight, training, train-seed rollouts, revert rule, report,
validation rollouts, stop check. Every step is committed to the store when it is done, so that the same call goes on
after a kill with at most the step in flight done again. What an attempt needs done is the workshop's; who proposes
is the coach's; the engine only knows the order and the rules.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from robocoach.agent_loop import budget, lessons, retention, revert, stopping, summary
from robocoach.agent_loop import evidence as evidences
from robocoach.agent_loop.evidence import Evidence, RolloutEvidence
from robocoach.agent_loop.guard import change_schema, guard
from robocoach.agent_loop.proposal import Proposal
from robocoach.agent_loop.report import feedback
from robocoach.agent_loop.sequential import Boundary
from robocoach.agent_loop.statistics import Rate, pair
from robocoach.agent_loop.store import Attempt, Campaign
from robocoach.agent_loop.task_document import TaskFacts, task_document
from robocoach.agent_loop.tree import ENDED, Coach, CoachFailed, RateLimited, View
from robocoach.agent_loop.views import (
    CONFIG_FILE,
    Nodes,
    attempt_folder,
    batch_from,
    batch_values,
    best_by_train,
    crashed_batch,
    move_of,
    read_config,
)
from robocoach.agent_loop.workshop import Job, Trained, Workshop
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically
from robocoach.configs.models import Sim2RealConfig

GUARD_TRIES = 2
"""Tries that a coach gets to mend a proposal that the guard refused."""
REPAIRS = 2
"""Repairs that a coach gets for a program error in the preflight."""
HEARTBEAT_S = 5.0
"""The time spent is written down this often, so that a kill loses no more of it."""
LONGEST_WAIT_S = 900.0
STOP_FILE = "stop"
"""A file of this name in the campaign's folder ends it after the attempts that are running."""


@dataclass(frozen=True)
class Finished:
    """How a call of `run` ended."""

    state: str
    """`finished`, or `awaiting operator`."""
    reason: str
    content: dict[str, Any]
    """`summary.content` of the campaign."""


class Engine:
    """Runs one campaign in its folder."""

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
        self._nodes = Nodes(store, folder)
        self._turn = threading.RLock()
        """Held while an attempt is proposed or judged; training and rollouts run outside of it."""
        self._halt = threading.Event()
        self._began = time.monotonic()
        self._spent_before = float(store.get("spent_s", 0.0))
        self._beat = 0.0
        self._ended_at: float | None = None

    # --- the whole ---------------------------------------------------------------------------------------------------

    def run(self) -> Finished:
        """Goes on until a stop rule holds, then confirms the winner. KeyboardInterrupt leaves it resumable."""
        (self.folder / STOP_FILE).unlink(missing_ok=True)
        self.store.put(state="running", coach=self.coach.name)
        self.store.record("begun")
        write_atomically(self.folder / "task.md", task_document(self.base, self.facts))
        try:
            self.workshop.prepare()
            self._keep_small()
            reason = self._search()
        except BaseException:
            self._halt.set()
            self.workshop.interrupt()
            self.store.put(state="interrupted")
            raise
        finally:
            self._account(force=True)
        if reason == stopping.AWAITING:
            self.store.put(state="awaiting operator", stop_reason=reason)
            return self._finished("awaiting operator", reason)
        self.say(f"the search ends: {reason}")
        self.store.put(stop_reason=reason)
        self._confirm()
        self._account(force=True)
        self.store.put(state="finished")
        self.store.record("finished", reason=reason)
        return self._finished("finished", reason)

    def _finished(self, state: str, reason: str) -> Finished:
        content = summary.content(self.store, self.folder, self.base, self.facts)
        self.workshop.page(content)
        return Finished(state, reason, content)

    def _search(self) -> str:
        """Runs attempts until a stop rule holds; returns its reason."""
        for attempt in self.store.attempts():
            if attempt.state not in ENDED:
                self._work(attempt.number, 0)
        if not self.store.attempts():
            self._begin()
            self._work(0, 0)
        if self.workshop.lanes == 1:
            return self._lane(0)
        with ThreadPoolExecutor(self.workshop.lanes) as pool:
            lanes = [pool.submit(self._lane, lane) for lane in range(self.workshop.lanes)]
            try:
                wait(lanes, return_when=FIRST_EXCEPTION)
            except BaseException:
                self.workshop.interrupt()
                raise
            finally:
                self._halt.set()
            return next(reason for reason in [lane.result() for lane in lanes] if reason)

    def _lane(self, lane: int) -> str:
        while True:
            with self._turn:
                reason = self._stop_reason()
                if reason or self._halt.is_set():
                    return reason
                number = self._propose()
            if number is not None:
                self._work(number, lane)

    def _stop_reason(self) -> str:
        attempts = self.store.attempts()
        if any(attempt.state == "awaiting operator" for attempt in attempts):
            return stopping.AWAITING
        if (self.folder / STOP_FILE).is_file():
            return "stopped by the user"
        if full := self.store.get("disk_full", ""):
            return full
        if self.coach.whole_budget and len(attempts) > self._given_whole():
            return f"{self.coach.name} has had its whole budget"
        return stopping.should_stop(self._facts(attempts))

    def _facts(self, attempts: Sequence[Attempt]) -> stopping.Facts:
        validations = [
            (attempt.results["validation"]["successes"], attempt.results["validation"]["n"])
            if "validation" in attempt.results and not attempt.results["validation"]["stopped"]
            else None
            for attempt in attempts
            if attempt.state in ENDED
        ]
        return stopping.Facts(
            rules=self.rules,
            attempts=len(attempts),
            validations=tuple(validations),
            validation_n=self.base.evaluate.validation_rollouts,
            unchanged=int(self.store.get("unchanged", 0)),
            spent_usd=float(self.store.get("spent_usd", 0.0)),
            spent_s=self._spent_s(),
            gpu_s=float(self.store.get("gpu_s", 0.0)),
            attempt_s=self._attempt_estimate_s(attempts),
            confirm_s=float(self.store.get("rollout_s", 1.0)) * 2 * self.base.evaluate.heldout_rollouts,
        )

    # --- time --------------------------------------------------------------------------------------------------------

    def _spent_s(self) -> float:
        return self._spent_before + time.monotonic() - self._began

    def _account(self, now: dict[str, Any] | None = None, *, force: bool = False) -> None:
        """Writes down the time spent and what is going on."""
        moment = time.monotonic()
        if force or moment - self._beat > HEARTBEAT_S:
            self._beat = moment
            self.store.put(spent_s=self._spent_s(), **({"now": now} if now is not None else {}))

    def _attempt_estimate_s(self, attempts: Sequence[Attempt]) -> float:
        """Training deadline and the longest of the last three attempts' other phases."""
        rest = [
            sum(value for name, value in attempt.results["seconds"].items() if name != "training")
            for attempt in attempts
            if attempt.results.get("seconds") and attempt.state == "done"
        ]
        return budget.attempt_estimate_s(60 * self.base.train.minutes, rest)

    def _given_whole(self) -> int:
        """The attempt that a coach of one proposal spends everything on: with no proposal at all it is the first."""
        return 0 if self.coach.name == "none" else 1

    def _training_seconds(self, number: int) -> float:
        """An attempt's share of the budget; everything that is left for the one proposal of such a coach."""
        each = 60 * self.base.train.minutes
        if not self.coach.whole_budget or number != self._given_whole():
            return each
        left = (
            self.rules.hours * 3600 - self._spent_s() - 2 * self._attempt_estimate_s(self.store.attempts()) + 2 * each
        )
        return max(each, min(left, each * (self.rules.attempts - number)))

    # --- proposing ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._write_attempt(0, self.base, None)
        self.store.add(0)

    def _write_attempt(self, number: int, config: Sim2RealConfig, proposal: Proposal | None) -> None:
        """The attempt's configuration and proposal, written before the store knows of it."""
        folder = attempt_folder(self.folder, number)
        config = config.model_copy(
            update={"train": config.train.model_copy(update={"minutes": self._training_seconds(number) / 60})}
        )
        write_atomically(folder / CONFIG_FILE, load.dump(config))
        first = {"parent": None, "coach": None, "change": {}, "rationale": "the configuration as given"}
        content = asdict(proposal) if proposal else first
        write_atomically(folder / "proposal.json", json.dumps(content, indent=2, sort_keys=True) + "\n")

    def view(self, workspace: Path, number: int) -> View:
        """What the coach may look at for proposing attempt `number`."""
        nodes = self._nodes.read()
        latest = max((node.number for node in nodes if node.measured), default=0)
        report = attempt_folder(self.folder, latest) / "feedback.md"
        return View(
            nodes=nodes,
            incumbent=int(self.store.get("incumbent", 0)),
            best=best_by_train(nodes),
            base=self.base,
            task_document=(self.folder / "task.md").read_text(),
            feedback=report.read_text() if report.is_file() else "",
            evidence=self._evidence,
            pictures=self._pictures,
            schema=change_schema(self.base, self.facts.stages),
            lessons=lessons.offered(self.facts.name, self.facts.stages) if self.rules.lessons else (),
            seed=1_000 * self.base.seed + number,
            workspace=workspace,
            spend_left_usd=self._spend_left_usd(),
            without=self.without,
        )

    def _evidence(self, number: int) -> Evidence:
        node = self._nodes.read()[number]
        results = self.store.attempts()[number].results
        return evidences.read_evidence(
            node.folder,
            self.facts.stages,
            node.settings,
            str(results.get("training", {}).get("stopped", "unknown")),
            hardware=self.rules.evidence,
        )

    def _pictures(self, number: int) -> tuple[Path, ...]:
        if "video" in self.without:
            return ()
        return tuple(sorted((attempt_folder(self.folder, number) / "rollouts").glob("*/*-sheet.png")))

    def _propose(self) -> int | None:
        """A new attempt from the coach, in the store; None when nothing came of it."""
        number = len(self.store.attempts())
        workspace = self.folder / "coach" / f"{number:04d}"
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
                    self.store.record("refused", number, reason=str(error))
                    self.say(f"  the guard refuses the proposal: {error}")
                    if len(refusals) > GUARD_TRIES:
                        return self._rejected(number, view, proposal, refusals)
                    proposal = self._paid(self.coach.mend(view, proposal, str(error)))
        except RateLimited as error:
            self._wait(error.wait_s, str(error))
            return None
        except CoachFailed as error:
            self.store.record("coach failed", None, reason=str(error))
            self.say(f"  the coach could not propose: {error}; the parent stands unchanged")
            proposal = None
        if proposal is None:
            self.store.put(unchanged=int(self.store.get("unchanged", 0)) + 1)
            self.store.record("unchanged")
            return None
        self._add(number, view, proposal, config, refusals)
        self.store.put(unchanged=0)
        return number

    def _asked(self, view: View) -> Proposal | None:
        self._account({"text": f"{self.coach.name} reads the evidence"}, force=True)
        return self._paid(self.coach.propose(view))

    def _paid(self, proposal: Proposal | None) -> Proposal | None:
        if proposal is not None:
            self._pay(proposal.cost_usd)
        return proposal

    def _pay(self, usd: float) -> None:
        if usd > 0:
            self.store.put(spent_usd=float(self.store.get("spent_usd", 0.0)) + usd)

    def _spend_left_usd(self) -> float:
        return max(0.0, self.rules.spend_usd - float(self.store.get("spent_usd", 0.0)))

    def _checked(self, view: View, proposal: Proposal) -> Sim2RealConfig:
        config = guard(
            proposal,
            view.nodes,
            self.base,
            stages=self.facts.stages,
            base_has_weights=self.base.train.policy != "pi05_nano",
        )
        if proposal.start == "parent" and self._checkpoint(proposal.parent) is None:
            raise UserError(f"attempt {proposal.parent} left no checkpoint; propose start base, or another parent")
        if "branching" in self.without:
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
        folder = attempt_folder(self.folder, number)
        self._write_attempt(number, config, proposal)
        if refusals:
            write_atomically(folder / "refusals.json", json.dumps(list(refusals), indent=1) + "\n")
        move = move_of(view.nodes, view.incumbent, proposal.parent, proposal.start)
        self.store.add(
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
        self.say(f"attempt {number} ({move} from {proposal.parent}): {told}")
        self.say(f"  {proposal.rule}: {proposal.rationale}")

    def _rejected(self, number: int, view: View, proposal: Proposal, refusals: Sequence[str]) -> None:
        """The refused proposal stays in the tree as a node; its parent goes forward unchanged."""
        parent = proposal.parent if 0 <= proposal.parent < len(view.nodes) else view.incumbent
        self._write_attempt(number, read_config(view.nodes[parent].folder), None)
        folder = attempt_folder(self.folder, number)
        write_atomically(folder / "refusals.json", json.dumps(list(refusals), indent=1) + "\n")
        self.store.add(number, parent=parent, move="extend", coach=self.coach.name, rule=str(proposal.rule)[:80])
        self.store.advance(number, "rejected", reason=refusals[-1])
        self.store.put(unchanged=int(self.store.get("unchanged", 0)) + 1)

    def _wait(self, seconds: float, reason: str) -> None:
        """Defers a round; the campaign's own limits still hold."""
        seconds = min(seconds, LONGEST_WAIT_S, max(0.0, self.rules.hours * 3600 - self._spent_s()))
        self.store.record("deferred", None, reason=reason)
        self.say(f"  the provider asks to wait {seconds:.0f} s")
        self._halt.wait(seconds)

    # --- one attempt -------------------------------------------------------------------------------------------------

    def _work(self, number: int, lane: int) -> None:
        """Carries one attempt on from the state it is in until it has ended or waits for the operator."""
        while (attempt := self.store.attempts()[number]).state not in ENDED:
            job = self._job(attempt, lane)
            if attempt.state in ("proposed", "preflight"):
                self._preflight(job)
            elif attempt.state == "training":
                self._train(job)
            elif attempt.state == "evaluating":
                self._evaluate(job)
            elif not self._hardware(job):
                return
        self._ended_at = time.monotonic()
        self._keep_small()

    def _job(self, attempt: Attempt, lane: int) -> Job:
        lineage, node = [attempt.number], attempt
        attempts = self.store.attempts()
        while node.parent is not None:
            node = attempts[node.parent]
            lineage.insert(0, node.number)
        folder = attempt_folder(self.folder, attempt.number)
        config = read_config(folder)
        parent = attempt.parent
        checkpoint = None if parent is None else self._checkpoint(parent)
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

    def _checkpoint(self, number: int) -> Path | None:
        """The checkpoint of an attempt; None when it left none."""
        named = self.store.attempts()[number].results.get("training", {}).get("checkpoint", "")
        path = attempt_folder(self.folder, number) / named
        return path if named and path.is_dir() else None

    def _timed(self, number: int, name: str, began: float) -> dict[str, Any]:
        """The seconds of a phase added to the attempt's, over all tries."""
        seconds = dict(self.store.attempts()[number].results.get("seconds", {}))
        seconds[name] = round(seconds.get(name, 0.0) + time.monotonic() - began, 3)
        return seconds

    def _preflight(self, job: Job) -> None:
        """A program error goes back to the coach, twice; a rollout that merely fails does not."""
        began = time.monotonic()
        count = self.rules.preflight_rollouts
        self.store.advance(job.number, "preflight")
        repairs = int(self.store.attempts()[job.number].results.get("repairs", 0))
        self._account({"attempt": job.number, "phase": "preflight"}, force=True)
        if self._ended_at is not None and job.lane == 0:
            overhead = {"overhead": round(began - self._ended_at, 3)}
            self.store.advance(job.number, "preflight", seconds=overhead)
            self._ended_at = None
        reason = self.workshop.preflight(job, self._seeds("train", count)) if count else ""
        log = {"ok": not reason, "reason": reason}
        write_atomically(job.folder / "preflight.json", json.dumps(log, indent=1) + "\n")
        seconds = self._timed(job.number, "preflight", began)
        if not reason:
            self.store.advance(job.number, "training", seconds=seconds)
            return
        self.store.record("preflight failed", job.number, reason=reason)
        self.say(f"  preflight of attempt {job.number}: {reason}")
        if job.number == 0:
            raise UserError(f"the first configuration cannot run ({reason}); mend it and run again with --resume")
        if repairs >= REPAIRS or not self._repair(job, reason):
            self._failed(job, f"preflight: {reason}", seconds)
        else:
            self.store.advance(job.number, "proposed", repairs=repairs + 1, seconds=seconds)

    def _repair(self, job: Job, reason: str) -> bool:
        """Asks the coach to mend what cannot run; False when it has no other proposal that the guard lets pass."""
        with self._turn:
            workspace = self.folder / "coach" / f"{job.number:04d}"
            view = self.view(workspace, job.number)
            view = replace(view, nodes=view.nodes[: job.number])
            refused = Proposal(**json.loads((job.folder / "proposal.json").read_text()))
            try:
                proposal = self._paid(self.coach.mend(view, refused, f"preflight: {reason}"))
                if proposal is None:
                    return False
                self._add(job.number, view, proposal, self._checked(view, proposal), ())
                return True
            except (UserError, CoachFailed, RateLimited) as error:
                self.store.record("repair failed", job.number, reason=str(error))
                return False

    def _train(self, job: Job) -> None:
        began = time.monotonic()

        def show(text: str) -> None:
            self._account({"attempt": job.number, "phase": "training", "text": text})

        self._account({"attempt": job.number, "phase": "training"}, force=True)
        made = self.workshop.train(job, show)
        spent = time.monotonic() - began
        seconds = self._timed(job.number, "training", began)
        seconds["waited"] = round(made.waited_s, 3)
        if made.facts.get("gpu"):
            self.store.put(gpu_s=float(self.store.get("gpu_s", 0.0)) + spent)
        training = {**made.facts, "checkpoint": made.checkpoint, "status": made.status}
        if made.status != "finished":
            self._failed(job, f"training {made.status}: {made.reason}", seconds, training)
            return
        self.store.advance(job.number, "evaluating", seconds=seconds, training=training)
        self._told_training(job, made)

    def _told_training(self, job: Job, made: Trained) -> None:
        loss = made.facts.get("loss")
        told = f"{made.facts.get('steps')} steps" + (f", loss {loss:.4f}" if isinstance(loss, float) else "")
        self.say(f"  attempt {job.number} trained: {told}")

    def _failed(self, job: Job, reason: str, seconds: dict[str, float], training: dict[str, Any] | None = None) -> None:
        """A failure is evidence: it counts as zero success in every rate and comparison."""
        settings = self.base.evaluate
        with self._turn:
            zero = {"successes": 0, "n": settings.validation_rollouts, "stopped": False}
            known = {
                "seconds": seconds,
                "batch": batch_values(crashed_batch(settings.train_rollouts)),
                "validation": zero,
            }
            if training is not None:
                known["training"] = training
            self.store.advance(job.number, "failed", reason=reason, reverted=True, **known)
            self._report(job)
            self.store.record("failed", job.number, reason=reason)
        self.say(f"attempt {job.number} failed: {reason}")

    def _seeds(self, split: Any, count: int, block: int = 0) -> tuple[int, ...]:
        """The seeds of a split, chosen once a campaign."""
        name = f"seeds {split} {block}"
        known = self.store.get(name)
        if known is None or len(known) < count:
            known = list(self.workshop.seeds(split, count, block))
            self.store.put(**{name: known})
        return tuple(known[:count])

    def _evaluate(self, job: Job) -> None:
        """Train-seed rollouts, revert rule, report, then validation rollouts with an early stop."""
        began = time.monotonic()
        settings = self.base.evaluate
        checkpoint = self._checkpoint(job.number)
        if checkpoint is None:
            self._failed(job, "its checkpoint is gone", self._timed(job.number, "evaluating", began))
            return

        def show(text: str) -> None:
            self._account({"attempt": job.number, "phase": "evaluating", "text": text})

        seeds = self._seeds("train", settings.train_rollouts)
        folder = job.folder / "rollouts" / "train"
        films = 0 if "video" in self.without and settings.videos >= 0 else settings.videos
        train = self.workshop.rollouts(job, checkpoint, seeds, folder, films=films, progress=show)
        batch = evidences.batch(train, len(seeds))
        with self._turn:
            self._judge_and_report(job, batch)
        validation = self._validate(job, checkpoint, show)
        with self._turn:
            rate = Rate(validation["successes"], validation["n"])
            write_atomically(job.folder / "score.json", json.dumps({"validation": validation}, indent=1) + "\n")
            seconds = self._timed(job.number, "evaluating", began)
            count = len(seeds) + validation["n"]
            self.store.put(rollout_s=round((time.monotonic() - began) / max(1, count), 3))
            passed = batch.n > 0 and batch.successes / batch.n >= self.rules.hardware_from
            waits = self.rules.evidence != "sim" and passed
            self.store.advance(
                job.number, "awaiting operator" if waits else "done", seconds=seconds, validation=validation
            )
            early = ", ended early: it cannot become the best" if validation["stopped"] else ""
            self.say(f"  attempt {job.number}: train {batch.successes}/{batch.n}, validation {rate}{early}")
            if not waits:
                self._after(job)

    def _judge_and_report(self, job: Job, batch: Any) -> None:
        """The revert rule, on train rollouts only, and `feedback.md`; both again give the same."""
        incumbent = int(self.store.get("incumbent", 0))
        attempts = self.store.attempts()
        reverted, reason = False, ""
        standing = batch_from(attempts[incumbent].results.get("batch")) if incumbent != job.number else None
        if standing is not None:
            verdict = revert.compare(batch, standing)
            reverted = verdict.worse
            reason = f"against attempt {incumbent}: {verdict.reason}" if reverted else ""
        self.store.advance(
            job.number, "evaluating", reverted=reverted, reason=reason, batch=batch_values(batch), judged_by=incumbent
        )
        if not reverted:
            self.store.put(incumbent=job.number)
        else:
            self.store.record("reverted", job.number, reason=reason)
            self.say(f"  attempt {job.number} is reverted, {reason}")
        if "video" not in self.without:
            self._describe(job)
        self._report(job)

    def _describe(self, job: Job) -> None:
        """Pictures and summaries; without them the report says less, and the campaign goes on."""
        try:
            self._pay(self.workshop.describe(job, self._spend_left_usd()))
        except (CoachFailed, RateLimited) as error:
            self.store.record("not described", job.number, reason=str(error))

    def _report(self, job: Job) -> None:
        nodes = self._nodes.read()
        text = feedback(
            self._evidence(job.number) if any((job.folder / evidences.ROLLOUTS).glob("*.json")) else None,
            nodes[job.number],
            nodes,
            self.facts,
            self.rules,
        )
        write_atomically(job.folder / "feedback.md", text)

    def _validate(self, job: Job, checkpoint: Path, show: Callable[[str], None]) -> dict[str, Any]:
        """Validation rollouts; they end early when the attempt cannot become the best."""
        seeds = self._seeds("validation", self.base.evaluate.validation_rollouts)
        standing = summary.best(self.store.attempts())
        boundary = None
        if standing is not None:
            best = self.store.attempts()[standing].results["validation"]["successes"]
            boundary = Boundary(len(seeds), best, self.rules.stop_error)

        def stop(outcomes: Sequence[bool]) -> bool:
            return boundary is not None and boundary.stops(len(outcomes), sum(outcomes))

        folder = self.folder / "validation" / f"{job.number:04d}"
        done = self.workshop.rollouts(job, checkpoint, seeds, folder, stop=stop, progress=show)
        counted = _counted(done)
        return {**counted, "stopped": counted["n"] < len(seeds), "seeds": list(seeds[: counted["n"]])}

    def _hardware(self, job: Job) -> bool:
        """Takes in the trials of a session; False while there is none."""
        checkpoint = self._checkpoint(job.number)
        trials = self.workshop.hardware(job, checkpoint) if checkpoint else ()
        if trials is None:
            self.say(f"attempt {job.number} awaits the operator: run its session, then resume the campaign")
            return False
        with self._turn:
            evidences.write_rollouts(job.folder / evidences.TRIALS, trials)
            self.store.advance(job.number, "done", hardware=_counted(trials))
            self.store.record("hardware", job.number, **_counted(trials))
            self._report(job)
            self._after(job)
        return True

    def _after(self, job: Job) -> None:
        """What follows on a measured attempt: the best so far, its lesson, the page."""
        before, best = self.store.get("best"), summary.best(self.store.attempts())
        if best is not None and best != before:
            self.store.put(best=best)
            self.store.record("best", best)
        if self.rules.lessons and job.number > 0:
            self._lesson(job.number)
        self.workshop.page(summary.content(self.store, self.folder, self.base, self.facts))

    def _lesson(self, number: int) -> None:
        workspace = self.folder / "coach" / f"{number:04d}"
        workspace.mkdir(parents=True, exist_ok=True)
        try:
            told = self.coach.lesson(self.view(workspace, number), number)
            if told is not None:
                lessons.keep(told, self.facts.name, self.folder.name)
                self.store.record("lesson", number, claim=str(told.get("claim", ""))[:300])
        except (UserError, CoachFailed, RateLimited) as error:
            self.store.record("lesson refused", number, reason=str(error))

    def _keep_small(self) -> None:
        with self._turn:
            nodes = self._nodes.read()
            needed = frozenset(
                {int(self.store.get("incumbent", 0)), int(self.store.get("best") or 0), best_by_train(nodes)}
            )
            cap = self.rules.disk_gb * 1e9
            try:
                removed, full = retention.keep_below(self.folder, cap, nodes, needed, self.facts.stages), ""
            except retention.DiskFull as error:  # what was found is confirmed before the user makes room
                removed, full = error.removed, str(error)
            self.store.put(disk_full=full)
            for what in removed:
                self.store.record("removed", None, what=what)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        """Winner and attempt 0 on held-out seeds that nothing has run before, paired."""
        attempts = self.store.attempts()
        winner = summary.best(attempts)
        if winner is None:
            self.say("no attempt was measured: nothing to confirm")
            return
        known = self.store.get("confirm")
        if known is not None and known["winner"] == winner and known["attempts"] == len(attempts):
            return
        block = int(self.store.get("heldout_block", -1)) + (0 if self.store.get("confirming", False) else 1)
        self.store.put(heldout_block=block, confirming=True)
        seeds = self._seeds("heldout", self.base.evaluate.heldout_rollouts, block)
        found = {}
        for number in dict.fromkeys((winner, 0)):
            self._account({"attempt": number, "phase": "confirming"}, force=True)
            found[number] = self._heldout(attempts[number], seeds, block)
            self.store.advance(number, attempts[number].state, heldout=found[number])
            self.say(f"held-out, attempt {number}: {Rate(found[number]['successes'], found[number]['n'])}")
        paired = pair(found[0]["outcomes"], found[winner]["outcomes"])
        self.store.put(
            confirming=False,
            confirm={
                "winner": winner,
                "attempts": len(attempts),
                "block": block,
                "only_winner": paired.only_b,
                "only_base": paired.only_a,
                "mcnemar_p": paired.p_value,
                "heldout": found[winner],
                "heldout_base": found[0],
            },
        )

    def _heldout(self, attempt: Attempt, seeds: Sequence[int], block: int) -> dict[str, Any]:
        checkpoint = self._checkpoint(attempt.number)
        if checkpoint is None:
            return {**_counted(()), "n": len(seeds), "outcomes": [False] * len(seeds)}
        folder = self.folder / "heldout" / f"{attempt.number:04d}" / f"{block}"
        return _counted(self.workshop.rollouts(self._job(attempt, 0), checkpoint, seeds, folder))


def _counted(rollouts: Sequence[RolloutEvidence]) -> dict[str, Any]:
    """Successes, n, interval and outcomes by JSON values."""
    rate = Rate(sum(one.success for one in rollouts), len(rollouts))
    return {
        "successes": rate.successes,
        "n": rate.n,
        "ci95": list(rate.ci95),
        "outcomes": [one.success for one in rollouts],
    }
