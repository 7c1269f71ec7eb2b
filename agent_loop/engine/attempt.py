"""One attempt, carried on from the state it is in: preflight, training, rollouts, revert rule, report, validation.

Every step is committed when it is done; done again after a kill, a step gives the same. A failure is evidence: a
crash, a NaN, a timeout or memory that ran out counts as zero success in every rate and comparison.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robocoach.agent_loop import evidence as evidences
from robocoach.agent_loop import lessons, retention, revert, summary
from robocoach.agent_loop.engine.proposing import Proposer
from robocoach.agent_loop.engine.running import Running, counted
from robocoach.agent_loop.sequential import Boundary
from robocoach.agent_loop.statistics import Rate
from robocoach.agent_loop.tree import ENDED, Batch, CoachFailed, RateLimited
from robocoach.agent_loop.trends import read_trend
from robocoach.agent_loop.views import batch_from, batch_values, best_by_train, crashed_batch
from robocoach.agent_loop.workshop import Job, Trained
from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically

REPAIRS = 2
"""Repairs that a coach gets for a program error in the preflight."""


class Attempts:
    """Works on the attempts of one campaign; several threads may work on different ones."""

    def __init__(self, run: Running, proposer: Proposer) -> None:
        self._run, self._proposer = run, proposer
        self._ended_at: float | None = None
        """When the last attempt had ended, for the overhead between two."""

    def work(self, number: int, lane: int) -> None:
        """Carries one attempt on from the state it is in until it has ended or waits for the operator."""
        while (attempt := self._run.store.attempts()[number]).state not in ENDED:
            job = self._run.job(attempt, lane)
            if attempt.state in ("proposed", "preflight"):
                self._preflight(job)
            elif attempt.state == "training":
                self._train(job)
            elif attempt.state == "evaluating":
                self._evaluate(job)
            elif not self._hardware(job):
                return
        self._ended_at = time.monotonic()
        self.keep_small()

    def _timed(self, number: int, name: str, began: float) -> dict[str, Any]:
        """The seconds of a phase added to the attempt's, over all tries."""
        seconds = dict(self._run.store.attempts()[number].results.get("seconds", {}))
        seconds[name] = round(seconds.get(name, 0.0) + time.monotonic() - began, 3)
        return seconds

    def _preflight(self, job: Job) -> None:
        """A program error goes back to the coach, twice; a rollout that merely fails does not."""
        began = time.monotonic()
        count = self._run.rules.preflight_rollouts
        self._run.store.advance(job.number, "preflight")
        repairs = int(self._run.store.attempts()[job.number].results.get("repairs", 0))
        self._run.account({"attempt": job.number, "phase": "preflight"}, force=True)
        if self._ended_at is not None and job.lane == 0:
            overhead = {"overhead": round(began - self._ended_at, 3)}
            self._run.store.advance(job.number, "preflight", seconds=overhead)
            self._ended_at = None
        reason = self._run.workshop.preflight(job, self._run.seeds("train", count)) if count else ""
        log = {"ok": not reason, "reason": reason}
        write_atomically(job.folder / "preflight.json", json.dumps(log, indent=1) + "\n")
        seconds = self._timed(job.number, "preflight", began)
        if not reason:
            self._run.store.advance(job.number, "training", seconds=seconds)
            return
        self._run.store.record("preflight failed", job.number, reason=reason)
        self._run.say(f"  preflight of attempt {job.number}: {reason}")
        if job.number == 0:
            raise UserError(f"the first configuration cannot run ({reason}); mend it and run again with --resume")
        if repairs >= REPAIRS or not self._proposer.repair(job, reason):
            self._failed(job, f"preflight: {reason}", seconds)
        else:
            self._run.store.advance(job.number, "proposed", repairs=repairs + 1, seconds=seconds)

    def _train(self, job: Job) -> None:
        began = time.monotonic()

        def show(text: str) -> None:
            self._run.account({"attempt": job.number, "phase": "training", "text": text})

        self._run.account({"attempt": job.number, "phase": "training"}, force=True)
        made = self._run.workshop.train(job, show)
        spent = time.monotonic() - began
        seconds = self._timed(job.number, "training", began)
        seconds["waited"] = round(made.waited_s, 3)
        if made.facts.get("gpu"):
            self._run.store.put(gpu_s=float(self._run.store.get("gpu_s", 0.0)) + spent)
        training = {**made.facts, "checkpoint": made.checkpoint, "status": made.status}
        if made.status != "finished":
            self._failed(job, f"training {made.status}: {made.reason}", seconds, training)
            return
        self._run.store.advance(job.number, "evaluating", seconds=seconds, training=training)
        self._told_training(job, made)

    def _told_training(self, job: Job, made: Trained) -> None:
        loss = made.facts.get("loss")
        told = f"{made.facts.get('steps')} steps" + (f", loss {loss:.4f}" if isinstance(loss, float) else "")
        self._run.say(f"  attempt {job.number} trained: {told}")

    def _failed(self, job: Job, reason: str, seconds: dict[str, float], training: dict[str, Any] | None = None) -> None:
        """A failure is evidence: it counts as zero success in every rate and comparison."""
        settings = self._run.base.evaluate
        with self._run.turn:
            zero = {"successes": 0, "n": settings.validation_rollouts, "stopped": False}
            known = {
                "seconds": seconds,
                "batch": batch_values(crashed_batch(settings.train_rollouts)),
                "validation": zero,
            }
            if training is not None:
                known["training"] = training
            self._run.store.advance(job.number, "failed", reason=reason, reverted=True, **known)
            self._run.report(job)
            self._run.store.record("failed", job.number, reason=reason)
        self._run.say(f"attempt {job.number} failed: {reason}")

    def _evaluate(self, job: Job) -> None:
        """Train-seed rollouts, revert rule, report, then validation rollouts with an early stop."""
        began = time.monotonic()
        settings = self._run.base.evaluate
        checkpoint = self._run.checkpoint(job.number)
        if checkpoint is None:
            self._failed(job, "its checkpoint is gone", self._timed(job.number, "evaluating", began))
            return

        def show(text: str) -> None:
            self._run.account({"attempt": job.number, "phase": "evaluating", "text": text})

        seeds = self._run.seeds("train", settings.train_rollouts)
        folder = job.folder / "rollouts" / "train"
        films = 0 if "video" in self._run.without and settings.videos >= 0 else settings.videos
        train = self._run.workshop.rollouts(job, checkpoint, seeds, folder, films=films, progress=show)
        batch = evidences.batch(train, len(seeds))
        with self._run.turn:
            reached = {name: sum(one.stage > i for one in train) for i, name in enumerate(self._run.facts.stages)}
            self._judge_and_report(job, batch, reached)
        validation = self._validate(job, checkpoint, show)
        with self._run.turn:
            rate = Rate(validation["successes"], validation["n"])
            write_atomically(job.folder / "score.json", json.dumps({"validation": validation}, indent=1) + "\n")
            seconds = self._timed(job.number, "evaluating", began)
            count = len(seeds) + validation["n"]
            self._run.store.put(rollout_s=round((time.monotonic() - began) / max(1, count), 3))
            passed = batch.n > 0 and batch.successes / batch.n >= self._run.rules.hardware_from
            waits = self._run.rules.evidence != "sim" and passed
            self._run.store.advance(
                job.number, "awaiting operator" if waits else "done", seconds=seconds, validation=validation
            )
            early = ", ended early: it cannot become the best" if validation["stopped"] else ""
            self._run.say(f"  attempt {job.number}: train {batch.successes}/{batch.n}, validation {rate}{early}")
            if not waits:
                self._after(job)

    def _judge_and_report(self, job: Job, batch: Batch, stages: dict[str, int]) -> None:
        """The revert rule, on train rollouts only, and `feedback.md`; both again give the same."""
        incumbent = int(self._run.store.get("incumbent", 0))
        attempts = self._run.store.attempts()
        reverted, reason = False, ""
        standing = batch_from(attempts[incumbent].results.get("batch")) if incumbent != job.number else None
        if standing is not None:
            verdict = revert.compare(batch, standing)
            reverted = verdict.worse
            reason = f"against attempt {incumbent}: {verdict.reason}" if reverted else ""
        self._run.store.advance(
            job.number,
            "evaluating",
            reverted=reverted,
            reason=reason,
            batch=batch_values(batch),
            stages=stages,
            trend=read_trend(job.folder).word,
            judged_by=incumbent,
        )
        if not reverted:
            self._run.store.put(incumbent=job.number)
        else:
            self._run.store.record("reverted", job.number, reason=reason)
            self._run.say(f"  attempt {job.number} is reverted, {reason}")
        if "video" not in self._run.without:
            self._describe(job)
        self._run.report(job)

    def _describe(self, job: Job) -> None:
        """Pictures and summaries; without them the report says less, and the campaign goes on."""
        try:
            self._run.pay(self._run.workshop.describe(job, self._run.spend_left_usd()))
        except (CoachFailed, RateLimited) as error:
            self._run.store.record("not described", job.number, reason=str(error))

    def _validate(self, job: Job, checkpoint: Path, show: Callable[[str], None]) -> dict[str, Any]:
        """Validation rollouts; they end early when the attempt cannot become the best."""
        seeds = self._run.seeds("validation", self._run.base.evaluate.validation_rollouts)
        standing = summary.best(self._run.store.attempts())
        boundary = None
        if standing is not None:
            best = self._run.store.attempts()[standing].results["validation"]["successes"]
            boundary = Boundary(len(seeds), best, self._run.rules.stop_error)

        def stop(outcomes: Sequence[bool]) -> bool:
            return boundary is not None and boundary.stops(len(outcomes), sum(outcomes))

        folder = self._run.folder / "validation" / f"{job.number:04d}"
        done = self._run.workshop.rollouts(job, checkpoint, seeds, folder, stop=stop, progress=show)
        found = counted(done)
        return {**found, "stopped": found["n"] < len(seeds), "seeds": list(seeds[: found["n"]])}

    def _hardware(self, job: Job) -> bool:
        """Takes in the trials of a session; False while there is none."""
        checkpoint = self._run.checkpoint(job.number)
        trials = self._run.workshop.hardware(job, checkpoint) if checkpoint else ()
        if trials is None:
            self._run.say(f"attempt {job.number} awaits the operator: run its session, then resume the campaign")
            return False
        with self._run.turn:
            evidences.write_rollouts(job.folder / evidences.TRIALS, trials)
            self._run.store.advance(job.number, "done", hardware=counted(trials))
            self._run.store.record("hardware", job.number, **counted(trials))
            self._run.report(job)
            self._after(job)
        return True

    def _after(self, job: Job) -> None:
        """What follows on a measured attempt: the best so far, its lesson, the page."""
        before, best = self._run.store.get("best"), summary.best(self._run.store.attempts())
        if best is not None and best != before:
            self._run.store.put(best=best)
            self._run.store.record("best", best)
        if self._run.rules.lessons and job.number > 0:
            self._lesson(job.number)
        self._run.workshop.page(summary.content(self._run.store, self._run.folder, self._run.base, self._run.facts))

    def _lesson(self, number: int) -> None:
        workspace = self._run.folder / "coach" / f"{number:04d}"
        workspace.mkdir(parents=True, exist_ok=True)
        try:
            told = self._run.coach.lesson(self._proposer.view(workspace, number), number)
            if told is not None:
                lessons.keep(told, self._run.facts.name, self._run.folder.name)
                self._run.store.record("lesson", number, claim=str(told.get("claim", ""))[:300])
        except (UserError, CoachFailed, RateLimited) as error:
            self._run.store.record("lesson refused", number, reason=str(error))

    def keep_small(self) -> None:
        with self._run.turn:
            nodes = self._run.nodes.read()
            needed = frozenset(
                {
                    int(self._run.store.get("incumbent", 0)),
                    int(self._run.store.get("best") or 0),
                    best_by_train(nodes),
                }
            )
            cap = self._run.rules.disk_gb * 1e9
            try:
                removed, full = (
                    retention.keep_below(self._run.folder, cap, nodes, needed, self._run.facts.stages),
                    "",
                )
            except retention.DiskFull as error:  # what was found is confirmed before the user makes room
                removed, full = error.removed, str(error)
            self._run.store.put(disk_full=full)
            for what in removed:
                self._run.store.record("removed", None, what=what)
