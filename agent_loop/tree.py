"""The tree of attempts as a coach sees it, and what a coach is: evidence and tree in, one proposal out.

A coach sees train-seed results only: no validation or held-out number is in any type of this module, so that
neither its parent choice nor a baseline's objective can lean on what selects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from robocoach.agent_loop.evidence import Evidence
from robocoach.agent_loop.proposal import Proposal
from robocoach.configs.models import Sim2RealConfig

State = Literal[
    "proposed",
    "rejected",
    "preflight",
    "training",
    "evaluating",
    "awaiting operator",
    "done",
    "failed",
    "abandoned",
]
ENDED: frozenset[State] = frozenset({"rejected", "done", "failed", "abandoned"})
"""States that nothing follows on."""


@dataclass(frozen=True)
class Batch:
    """An attempt's rollouts on train seeds, as the revert rule compares them. A crash counts as a failure."""

    n: int
    successes: int
    reached_goal: int
    """Failures in which the goal geometry held at some time (measure `goal_reached`)."""
    closest_m: float
    """Median over all rollouts of the hand's closest approach to the object (measure `closest_m`); inf when unknown."""
    carries: int
    """Rollouts in which the object was carried (measure `carried`)."""
    aborted: int
    """Rollouts that a crash, a timeout or an action that was not finite ended."""


@dataclass(frozen=True)
class Node:
    """One attempt, measured or not."""

    number: int
    parent: int | None
    start: Literal["parent", "base"]
    """Whose weights it began with."""
    state: State
    coach: str
    rule: str
    """The coach's name for its diagnosis; unverified."""
    rationale: str
    """The coach's own account; unverified."""
    change: Mapping[str, tuple[Any, Any]]
    """Computed from the two configurations: dotted key → (parent's value, its value)."""
    settings: Mapping[str, Any]
    """Its configuration by dotted key."""
    batch: Batch | None
    """None until its train-seed rollouts are in; a failed attempt has a batch of zero successes."""
    reverted: bool
    """The revert rule found it worse than the incumbent of its time."""
    reason: str
    """Why it failed, was rejected or reverted; empty otherwise."""
    folder: Path
    cost_usd: float = 0.0

    @property
    def measured(self) -> bool:
        """Its train-seed rollouts are in."""
        return self.batch is not None


def lone_node(number: int, folder: Path, settings: Mapping[str, Any], batch: Batch | None = None) -> Node:
    """An attempt that has no tree around it, as in the main job's two attempts."""
    return Node(
        number=number,
        parent=None,
        start="base",
        state="done",
        coach="",
        rule="",
        rationale="",
        change={},
        settings=settings,
        batch=batch,
        reverted=False,
        reason="",
        folder=folder,
    )


@dataclass(frozen=True)
class View:
    """Everything that a coach may look at when it proposes."""

    nodes: tuple[Node, ...]
    """In the order of their numbers; node 0 is the configuration as given."""
    incumbent: int
    """The attempt that the revert rule has accepted last: the current branch."""
    best: int
    """The best by train-seed batches (the order of the revert rule without margins), the earliest among equals."""
    base: Sim2RealConfig
    """Attempt 0's configuration."""
    task_document: str
    feedback: str
    """The report on the latest attempt (`feedback.md`); empty before the first one is measured."""
    evidence: Callable[[int], Evidence]
    """The evidence of a measured attempt. Raises UserError when there is none."""
    pictures: Callable[[int], tuple[Path, ...]]
    """Contact sheets (PNG) of an attempt's representative rollouts; empty when the video channel is off."""
    schema: Mapping[str, Any]
    """JSON schema of `Proposal`'s change, with bounds and units."""
    lessons: tuple[Mapping[str, Any], ...]
    """Lessons of past campaigns, as JSON values."""
    seed: int
    """Follows from campaign seed and attempt number, so that a resumed coach proposes the same."""
    workspace: Path
    """A folder of this proposal where a coach may write (transcripts, files for a program)."""
    spend_left_usd: float
    without: frozenset[str]
    """Channels that are off: video, text, numbers, branching."""

    def node(self, number: int) -> Node:
        """The attempt of that number."""
        return self.nodes[number]

    @property
    def measured(self) -> tuple[Node, ...]:
        """Attempts with a batch, oldest first."""
        return tuple(node for node in self.nodes if node.measured)


class RateLimited(Exception):
    """The model's provider asks to wait: the round is deferred, not lost. `wait_s` is how long it asked for."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"rate limited, asked to wait {wait_s:.0f} s")
        self.wait_s = wait_s


class CoachFailed(Exception):
    """The coach could not propose (provider error, unreadable answer): the parent goes forward unchanged."""


class Coach(Protocol):
    """Makes proposals."""

    name: str
    whole_budget: bool
    """Its one proposal is trained for all the time that is left (`one-shot`, `none`)."""

    def propose(self, view: View) -> Proposal | None:
        """The next attempt; None when it has nothing to change. Raises RateLimited or CoachFailed."""
        ...

    def mend(self, view: View, refused: Proposal, reason: str) -> Proposal | None:
        """Another try after the guard, or the preflight, refused one with this reason."""
        ...

    def lesson(self, view: View, number: int) -> Mapping[str, Any] | None:
        """What attempt `number` taught, as a lesson's JSON values; None when nothing."""
        ...
