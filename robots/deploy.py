"""Counted rollouts of a policy through franky: one record and one verdict each, durable as soon as it ends.

The same function runs a trained policy and, to prove the twin, the scripted demonstrator. A rollout is a *success*, a
*failure*, or *invalid* when the equipment was at fault (slow twin clock, arm or camera fault, late policy); invalid
ones are listed and counted, never dropped or repeated.
"""

from __future__ import annotations

import io
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from robocoach.configs.errors import UserError
from robocoach.configs.models import DeployConfig, SafetyConfig
from robocoach.datasets import contract as contracts
from robocoach.robots import safety as envelope
from robocoach.robots.franka import ArmFault, client_version
from robocoach.robots.loop import LATE_S, ControlLoop, Log, Run
from robocoach.robots.rig import Rig, open_rig
from robocoach.robots.scripted import ScriptedPolicy
from robocoach.robots.thinker import ChunkPolicy
from robocoach.robots.twin import Twin, TwinLost, clock_ratio
from robocoach.sim.tasks import get_task

if TYPE_CHECKING:
    from robocoach.sim.task import Judge, Task

Verdict = Literal["success", "failure", "invalid"]


@dataclass(frozen=True)
class Rollout:
    """One counted rollout."""

    seed: int
    verdict: Verdict
    reason: str
    """How it ended, and for an invalid one what was at fault."""
    stage: int
    """Stages reached, in order."""
    ticks: int
    stage_ticks: tuple[int, ...]
    """Tick at which each stage was reached."""
    measures: dict[str, float]
    """What the task's judge measured, by name with unit."""
    clock_ratio: float | None
    """Simulated seconds a second; None on hardware."""
    rate_hz: float
    late_ticks: int
    """Ticks whose command left more than 10 ms after its schedule."""
    lateness_p50_ms: float
    lateness_p99_ms: float
    inference_ms: float | None
    """Median time of one chunk."""
    frame_age_p99_ms: float
    clamps: dict[str, int]
    """What the envelope clamped, and in how many ticks."""
    wall_s: float
    log: str
    """Per-tick log, a Parquet file beside this record."""
    video: str
    """Wrist video beside this record."""


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
) -> DeployResult:
    """Runs one rollout a seed; those whose record is in `out` already are not run again.

    `rig` is an open robot to use instead of opening one; `accept` names provenance fields of the checkpoint that may
    differ. Raises UserError for what the user can mend, KeyboardInterrupt after the arm has come to rest.
    """
    task = get_task(task_name)
    out.mkdir(parents=True, exist_ok=True)
    records = {seed: _read(out / f"{seed}.json") for seed in seeds}
    todo = [seed for seed in seeds if records[seed] is None]
    differences: tuple[str, ...] = ()
    if todo:
        policy = make_policy()
        with nullcontext(rig) if rig is not None else open_rig(config, task_name) as opened:
            differences = _agree(policy, opened, accept)
            for seed in todo:
                done = len(seeds) - len(todo) + todo.index(seed)
                progress(done, len(seeds), f"seed {seed}")
                records[seed] = _rollout(config, safety, task, policy, seed, out, opened)
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


def _agree(policy: ChunkPolicy, rig: Rig, accept: frozenset[str]) -> tuple[str, ...]:
    """Checks the checkpoint's contract against the live robot and gives the policy its eyes, if it is scripted."""
    if isinstance(policy, ScriptedPolicy):
        if rig.twin is None:
            raise UserError("the scripted demonstrator needs ground truth, which only --robot twin has")
        policy.watch(rig.twin.state)
        return ()
    theirs = getattr(policy, "contract", None)
    if theirs is None:
        raise UserError("the policy carries no data contract, so it cannot be checked against the robot; retrain it")
    return tuple(contracts.check(rig.contract, theirs, "the checkpoint", accept))


class _Truth:
    """Judges a rollout on the twin's state."""

    def __init__(self, judge: Judge, twin: Twin) -> None:
        self.judge, self._twin = judge, twin
        self.stage_ticks: list[int] = []
        self._ticks = 0

    def update(self) -> bool:
        """Looks now; True while success holds."""
        self._ticks += 1
        self.judge.update(self._twin.state())
        self.stage_ticks.extend([self._ticks] * (self.judge.stage - len(self.stage_ticks)))
        return self.judge.success


def _rollout(
    config: DeployConfig, safety: SafetyConfig, task: Task, policy: ChunkPolicy, seed: int, out: Path, rig: Rig
) -> Rollout:
    started = time.monotonic()
    scene = task.sample_scene(seed)
    truth = _Truth(task.judge(), rig.twin) if rig.twin is not None else None
    run = Run(Log(), [])
    ratio: float | None = None
    try:
        rig.prepare(scene)
        wrong = envelope.check_start(rig.arm.state().values, scene.start_q, safety) if rig.twin is not None else None
        if wrong is not None:
            run.ended, run.fault = f"{wrong.fault}: {wrong.detail}", wrong.fault
        else:
            policy.reset()
            before = rig.twin.clock() if rig.twin is not None else None
            run = ControlLoop(
                rig.arm,
                rig.camera,
                policy,
                task.instruction,
                safety,
                max_ticks=config.max_ticks,
                watcher=truth,
                think_ahead=not isinstance(policy, ScriptedPolicy),
                dry_run=config.dry_run,
            ).run()
            if rig.twin is not None and before is not None:
                ratio = clock_ratio(before, rig.twin.clock())
    except (ArmFault, TwinLost) as fault:
        run.ended, run.arm_failed = str(fault), True
    verdict, reason = judge(run, truth.judge.success if truth is not None else None, ratio, config)
    record = _record(seed, verdict, reason, run, truth, ratio, time.monotonic() - started)
    _write(out, record, run)
    if rig.twin is not None and not rig.twin.process.is_alive():
        raise UserError("the twin's process ended in the middle of a rollout; run the same command again to go on")
    return record


def judge(run: Run, success: bool | None, ratio: float | None, config: DeployConfig) -> tuple[Verdict, str]:
    """The verdict of a finished run: `success` is the task's predicate at the end, None where nobody knows."""
    if run.arm_failed or (run.fault is not None and not run.fault.of_policy):
        return "invalid", run.ended
    if ratio is not None and ratio < config.min_clock_ratio:
        return "invalid", f"the twin ran at {ratio:.3f} of real time, {config.min_clock_ratio} is the least"
    if config.dry_run:
        return "invalid", "dry run: nothing moved"
    if success is None:
        return "invalid", "nobody judged it"
    if run.policy_failed or run.fault is not None:
        return "failure", run.ended
    return ("success", "success") if success else ("failure", run.ended)


def _record(
    seed: int, verdict: Verdict, reason: str, run: Run, truth: _Truth | None, ratio: float | None, wall_s: float
) -> Rollout:
    log = run.log.columns()
    ticks = len(run.log.time_s)
    lateness, thinking = log["lateness_s"], log["inference_s"]
    thinking = thinking[np.isfinite(thinking)] if ticks else thinking
    sent = log["time_s"] + lateness
    clamps = Counter(name for row in run.log.clamps for name in row.split(",") if name)
    return Rollout(
        seed=seed,
        verdict=verdict,
        reason=reason,
        stage=truth.judge.stage if truth is not None else 0,
        ticks=ticks,
        stage_ticks=tuple(truth.stage_ticks) if truth is not None else (),
        measures={name: round(value, 4) for name, value in truth.judge.measures.items()} if truth is not None else {},
        clock_ratio=None if ratio is None else round(ratio, 4),
        rate_hz=round(float((ticks - 1) / (sent[-1] - sent[0])), 3) if ticks > 1 else 10.0,
        late_ticks=int((lateness > LATE_S).sum()),
        lateness_p50_ms=_ms(lateness, 50),
        lateness_p99_ms=_ms(lateness, 99),
        inference_ms=_ms(thinking, 50) if len(thinking) else None,
        frame_age_p99_ms=_ms(log["frame_age_s"], 99),
        clamps=dict(clamps),
        wall_s=round(wall_s, 2),
        log=f"{seed}.parquet" if ticks else "",
        video=f"{seed}-wrist.mp4" if run.images else "",
    )


def _ms(seconds: np.ndarray, percentile: float) -> float:
    finite = seconds[np.isfinite(seconds)]
    return round(1000 * float(np.percentile(finite, percentile)), 2) if len(finite) else 0.0


def _write(out: Path, record: Rollout, run: Run) -> None:
    """Log and video first, the record last: a rollout counts once its record is there."""
    if record.log:
        _put(out / record.log, _parquet(run.log))
    if record.video:
        from robocoach.datasets import video

        video.encode(np.stack(run.images), out / record.video)
    _put(out / f"{record.seed}.json", _ROLLOUT.dump_json(record, indent=1))


def _parquet(log: Log) -> bytes:
    import pyarrow
    from pyarrow import parquet

    columns = {name: list(rows) for name, rows in log.columns().items()}
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def _put(path: Path, content: bytes) -> None:
    part = path.with_suffix(path.suffix + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


_ROLLOUT = TypeAdapter(Rollout)


def _read(path: Path) -> Rollout | None:
    if not path.is_file():
        return None
    try:
        return _ROLLOUT.validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(
            f"{path} is not a rollout record of this version; move it away to run that seed again"
        ) from error
