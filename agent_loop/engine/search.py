"""The order of a campaign: rounds of propose, check, train, measure, report, until the budget ends; then confirm.

Within a round: proposal and guard (`proposing.py`), then preflight, training, train-seed rollouts, revert rule,
report and validation rollouts (`attempt.py`), then the stop check. Every step is committed to the store when it is
done, so that the same call goes on after a kill with at most the step in flight done again. What an attempt needs
done is the workshop's, who proposes is the coach's; the engine only knows the order and the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from robocoach.agent_loop import stopping, summary
from robocoach.agent_loop.engine.attempt import Attempts
from robocoach.agent_loop.engine.confirm import confirm
from robocoach.agent_loop.engine.proposing import Proposer
from robocoach.agent_loop.engine.running import Running
from robocoach.agent_loop.store import Attempt
from robocoach.agent_loop.task_document import task_document
from robocoach.agent_loop.tree import ENDED
from robocoach.configs.files import write_atomically

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

    def __init__(self, run: Running) -> None:
        self._run = run
        self._proposer = Proposer(self._run)
        self._attempts = Attempts(self._run, self._proposer)

    def run(self) -> Finished:
        """Goes on until a stop rule holds, then confirms the winner. KeyboardInterrupt leaves it resumable."""
        (self._run.folder / STOP_FILE).unlink(missing_ok=True)
        self._run.store.put(state="running", coach=self._run.coach.name)
        self._run.store.record("begun")
        write_atomically(self._run.folder / "task.md", task_document(self._run.base, self._run.facts))
        try:
            self._run.workshop.prepare()
            self._attempts.keep_small()
            reason = self._search()
        except BaseException:
            self._run.halt.set()
            self._run.workshop.interrupt()
            self._run.store.put(state="interrupted")
            raise
        finally:
            self._run.account(force=True)
        if reason == stopping.AWAITING:
            self._run.store.put(state="awaiting operator", stop_reason=reason)
            return self._finished("awaiting operator", reason)
        self._run.say(f"the search ends: {reason}")
        self._run.store.put(stop_reason=reason)
        confirm(self._run)
        self._run.account(force=True)
        self._run.store.put(state="finished")
        self._run.store.record("finished", reason=reason)
        return self._finished("finished", reason)

    def _finished(self, state: str, reason: str) -> Finished:
        content = summary.content(self._run.store, self._run.folder, self._run.base, self._run.facts)
        self._run.workshop.page(content)
        return Finished(state, reason, content)

    def _search(self) -> str:
        """Runs attempts until a stop rule holds; returns its reason."""
        for attempt in self._run.store.attempts():
            if attempt.state not in ENDED:
                self._attempts.work(attempt.number, 0)
        if not self._run.store.attempts():
            self._proposer.begin()
            self._attempts.work(0, 0)
        if self._run.workshop.lanes == 1:
            return self._lane(0)
        with ThreadPoolExecutor(self._run.workshop.lanes) as pool:
            lanes = [pool.submit(self._lane, lane) for lane in range(self._run.workshop.lanes)]
            try:
                wait(lanes, return_when=FIRST_EXCEPTION)
            except BaseException:
                self._run.workshop.interrupt()
                raise
            finally:
                self._run.halt.set()
            return next(reason for reason in [lane.result() for lane in lanes] if reason)

    def _lane(self, lane: int) -> str:
        while True:
            with self._run.turn:
                reason = self._stop_reason()
                if reason or self._run.halt.is_set():
                    return reason
                number = self._proposer.propose()
            if number is not None:
                self._attempts.work(number, lane)

    def _stop_reason(self) -> str:
        attempts = self._run.store.attempts()
        if any(attempt.state == "awaiting operator" for attempt in attempts):
            return stopping.AWAITING
        if (self._run.folder / STOP_FILE).is_file():
            return "stopped by the user"
        if full := self._run.store.get("disk_full", ""):
            return full
        if self._run.coach.whole_budget and len(attempts) > self._proposer.given_whole():
            return f"{self._run.coach.name} has had its whole budget"
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
            rules=self._run.rules,
            attempts=len(attempts),
            validations=tuple(validations),
            validation_n=self._run.base.evaluate.validation_rollouts,
            unchanged=int(self._run.store.get("unchanged", 0)),
            spent_usd=float(self._run.store.get("spent_usd", 0.0)),
            spent_s=self._run.spent_s(),
            gpu_s=float(self._run.store.get("gpu_s", 0.0)),
            attempt_s=self._run.attempt_estimate_s(attempts),
            confirm_s=float(self._run.store.get("rollout_s", 1.0)) * 2 * self._run.base.evaluate.heldout_rollouts,
        )
