"""What the engine is handed: the work that other rooms do, behind a few callables that know no search.

The engine decides what is tried; a workshop trains it, rolls it out and makes its pictures. `pipelines/` has the one
that uses Genesis and LeRobot; tests hand in small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from robocoach.agent_loop.evidence import RolloutEvidence
from robocoach.configs.models import Sim2RealConfig
from robocoach.datasets.splits import Split


@dataclass(frozen=True)
class Job:
    """One attempt as the workshop sees it."""

    number: int
    folder: Path
    config: Sim2RealConfig
    lineage: tuple[int, ...]
    """The attempts from the root to this one: it trains on the demonstrations that each of them added."""
    init_from: Path | None
    """Checkpoint whose weights it begins with; None for those that attempt 0 began with."""
    parent_rollouts: Path | None
    """Its parent's train-seed rollouts, from whose failures corrective demonstrations begin."""
    parent_checkpoint: Path | None
    seconds: float
    """Deadline of its training."""
    lane: int
    """Which of the attempts that run at once; a GPU's number where there are GPUs."""


@dataclass(frozen=True)
class Trained:
    """How a training ended. Anything but `finished` is a failed attempt."""

    status: Literal["finished", "nan", "crashed", "timeout", "out of memory"]
    reason: str
    """One line; empty when it finished."""
    checkpoint: str = ""
    """Folder of the checkpoint, relative to the attempt's; empty when there is none."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """steps, loss, samples_per_s, elapsed_s, parameters, digest, stopped, gpu (it ran on one)."""
    waited_s: float = 0.0
    """What its process took beside training: start-up, opening data, building the model, ending."""


class Workshop(Protocol):
    """Does the work of one campaign. Raises UserError for what only its user can mend."""

    lanes: int
    """Attempts that may run at once."""

    def prepare(self) -> None:
        """What attempts share: first demonstrations, simulator, pre-imported processes. Resumes by itself."""
        ...

    def seeds(self, split: Split, count: int, block: int = 0) -> tuple[int, ...]:
        """Scene seeds of a split, stratified over what is random; another block shares no seed with this one."""
        ...

    def preflight(self, job: Job, seeds: Sequence[int]) -> str:
        """A very short training and short rollouts: empty when it can run, else the program error in one line."""
        ...

    def train(self, job: Job, progress: Callable[[str], None]) -> Trained:
        """Trains to the deadline, resuming by itself; makes the demonstrations that the job adds first."""
        ...

    def rollouts(
        self,
        job: Job,
        checkpoint: Path,
        seeds: Sequence[int],
        folder: Path,
        *,
        films: int = 0,
        stop: Callable[[Sequence[bool]], bool] | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> tuple[RolloutEvidence, ...]:
        """Rollouts in the order of the seeds, resuming by itself; `stop` sees the outcomes so far."""
        ...

    def hardware(self, job: Job, checkpoint: Path) -> tuple[RolloutEvidence, ...] | None:
        """The trials of a session of this checkpoint; None while nobody has run one."""
        ...

    def describe(self, job: Job, spend_left_usd: float) -> float:
        """Contact sheets and video summaries of the attempt's filmed rollouts, in its folder; returns the cost [USD].

        Raises RateLimited or CoachFailed when a model that is asked for them cannot answer.
        """
        ...

    def page(self, content: Mapping[str, Any]) -> None:
        """Writes the campaign's page."""
        ...

    def interrupt(self) -> None:
        """Asks trainings that run in other threads to save and end; their `train` raises KeyboardInterrupt."""
        ...

    def close(self) -> None:
        """Ends every process."""
        ...
