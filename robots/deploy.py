"""Counted rollouts of a policy through franky, one a seed, durable as soon as it ends.

The same function runs a trained policy and, to prove the twin, the scripted demonstrator. Invalid rollouts are listed
and counted, never dropped or repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robocoach.configs.errors import UserError
from robocoach.configs.models import DeployConfig, SafetyConfig
from robocoach.datasets import contract as contracts
from robocoach.robots.franka import client_version
from robocoach.robots.rig import Rig, open_rig
from robocoach.robots.rollout import Rollout, read_rollout, run_rollout
from robocoach.robots.scripted import ScriptedPolicy
from robocoach.robots.thinker import ChunkPolicy
from robocoach.sim.tasks import get_task


@dataclass(frozen=True)
class DeployResult:
    """All rollouts of one policy on one robot."""

    robot: str
    client: str
    dry_run: bool
    stages: tuple[str, ...]
    rollouts: tuple[Rollout, ...]
    differences: tuple[str, ...]
    """Provenance of the checkpoint that differs from this robot's, one line each."""

    @property
    def successes(self) -> int:
        """Rollouts that ended in success."""
        return sum(rollout.verdict == "success" for rollout in self.rollouts)

    @property
    def invalid(self) -> int:
        """Rollouts that say nothing about the policy."""
        return sum(rollout.verdict == "invalid" for rollout in self.rollouts)

    def summary(self) -> dict[str, Any]:
        """The result as JSON-able data, rollouts included."""
        ticks = sum(rollout.ticks for rollout in self.rollouts)
        clamps = sum((Counter(rollout.clamps) for rollout in self.rollouts), Counter())
        valid = [rollout for rollout in self.rollouts if rollout.verdict != "invalid"]
        return {
            **asdict(self),
            "n": len(self.rollouts) - self.invalid,
            "successes": self.successes,
            "invalid": self.invalid,
            "rate_hz": round(ticks / max(1e-9, sum(r.ticks / r.rate_hz for r in self.rollouts if r.ticks)), 3),
            "late_ticks_share": sum(r.late_ticks for r in self.rollouts) / max(1, ticks),
            "clamps": dict(clamps),
            "stage_counts": {
                name: sum(rollout.stage > index for rollout in valid) for index, name in enumerate(self.stages)
            },
        }


Progress = Callable[[int, int, str], None]
"""Rollouts done, rollouts in all, a note."""
MakePolicy = Callable[[], ChunkPolicy]


def deploy(
    config: DeployConfig,
    safety: SafetyConfig,
    task_name: str,
    make_policy: MakePolicy,
    seeds: Sequence[int],
    out: Path,
    progress: Progress = lambda done, total, note: None,
    *,
    rig: Rig | None = None,
    accept: frozenset[str] = frozenset(),
    halt: Callable[[], str | None] | None = None,
) -> DeployResult:
    """Runs one rollout a seed; those whose record is in `out` already are not run again.

    `rig` is an open robot to use instead of opening one; `accept` names provenance fields of the checkpoint that may
    differ; `halt` is asked every tick, and what it answers ends the rollout in progress. Raises UserError for what
    the user can mend, KeyboardInterrupt after the arm has come to rest.
    """
    task = get_task(task_name)
    records = {seed: read_rollout(out / f"{seed}.json") for seed in seeds}
    todo = [seed for seed in seeds if records[seed] is None]
    differences: tuple[str, ...] = ()
    if todo:
        policy = make_policy()
        with nullcontext(rig) if rig is not None else open_rig(config, task_name) as opened:
            differences = agree(policy, opened, accept)
            for seed in todo:
                done = len(seeds) - len(todo) + todo.index(seed)
                progress(done, len(seeds), f"seed {seed}")
                scene = task.sample_scene(seed)
                records[seed] = run_rollout(opened, task, policy, scene, config, safety, out, str(seed), halt=halt)
    rollouts = tuple(record for seed in seeds if (record := records[seed]) is not None)
    progress(len(seeds), len(seeds), f"{sum(r.verdict == 'success' for r in rollouts)} successes")
    return DeployResult(
        robot=config.robot,
        client=client_version(),
        dry_run=config.dry_run,
        stages=task.stages,
        rollouts=rollouts,
        differences=differences,
    )


def agree(policy: ChunkPolicy, rig: Rig, accept: frozenset[str]) -> tuple[str, ...]:
    """Checks the checkpoint's contract against the live robot and gives the policy its eyes, if it is scripted.

    Returns the differences that were accepted, one line each; raises UserError on any other.
    """
    if isinstance(policy, ScriptedPolicy):
        if rig.twin is None:
            raise UserError("the scripted demonstrator needs ground truth, which only --robot twin has")
        policy.watch(rig.twin.state)
        return ()
    theirs = getattr(policy, "contract", None)
    if theirs is None:
        raise UserError("the policy carries no data contract, so it cannot be checked against the robot; retrain it")
    return tuple(contracts.check(rig.contract, theirs, "the checkpoint", accept))
