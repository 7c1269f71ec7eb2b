"""One rollout on an arm or the twin: run, judged where somebody knows the truth, and written down durably.

A rollout is a *success*, a *failure*, or *invalid* when it says nothing about the policy: the equipment was at fault
(slow twin clock, arm or camera fault, late policy), it was a dry run or nobody judged it. Whatever stopped it early is
kept in `fault` with who was to blame, so that a session, where a person judges, can read it its own way.
"""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically
from robocoach.configs.models import DeployConfig, SafetyConfig
from robocoach.robots import safety as envelope
from robocoach.robots.franka import ArmFault
from robocoach.robots.loop import LATE_S, ControlLoop, Log, Run
from robocoach.robots.rig import Rig
from robocoach.robots.scripted import ScriptedPolicy
from robocoach.robots.thinker import ChunkPolicy
from robocoach.robots.twin import Twin, TwinLost, clock_ratio

if TYPE_CHECKING:
    from robocoach.sim.task import Judge, Scene, Task

Verdict = Literal["success", "failure", "invalid"]
Blame = Literal["", "equipment", "policy"]


@dataclass(frozen=True)
class Rollout:
    """One counted rollout."""

    seed: int
    verdict: Verdict
    reason: str
    """How it ended, and for an invalid one what was at fault."""
    success: bool | None
    """The task's predicate at the end; None where nobody knows, as on hardware."""
    fault: str
    """What stopped it early; empty when it ran its time or was halted by hand."""
    fault_of: Blame
    """Whose fault that was. An arm driven into something is no fault in this sense but how the policy behaved."""
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

    @property
    def equipment(self) -> str:
        """What failed of the equipment, empty when nothing did."""
        return self.fault if self.fault_of == "equipment" else ""


def run_rollout(
    rig: Rig,
    task: Task,
    policy: ChunkPolicy,
    scene: Scene,
    config: DeployConfig,
    safety: SafetyConfig,
    out: Path,
    name: str,
    *,
    halt: Callable[[], str | None] | None = None,
) -> Rollout:
    """Prepares the scene, runs the policy and writes `<name>.json`, its log and its video into `out`.

    A fault of arm, camera or policy is part of the record, never raised. `halt` is asked every tick; what it answers
    ends the rollout. Raises UserError when the twin's process has ended, and KeyboardInterrupt with the arm at rest.
    """
    started = time.monotonic()
    truth = _Truth(task.judge(), rig.twin) if rig.twin is not None else None
    run = Run(Log(), [])
    ratio: float | None = None
    try:
        rig.prepare(scene)
        moves = not (config.dry_run and rig.twin is None)  # a dry run on an arm starts wherever it stands
        wrong = envelope.check_start(rig.arm.state().values, scene.start_q, safety) if moves else None
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
                rate_hz=config.rate,
                blend_steps=config.blend_steps,
                smoothing=config.smoothing,
                limits=rig.limits,
                halt=halt,
            ).run()
            if rig.twin is not None and before is not None:
                ratio = clock_ratio(before, rig.twin.clock())
    except (ArmFault, TwinLost) as fault:
        run.ended, run.arm_failed = str(fault), True
    success = truth.judge.success if truth is not None else None
    record = _record(scene.seed, name, run, success, truth, ratio, config, time.monotonic() - started)
    _write(out, name, record, run)
    if rig.twin is not None and not rig.twin.process.is_alive():
        raise UserError("the twin's process ended in the middle of a rollout; run the same command again to go on")
    return record


def read_rollout(path: Path) -> Rollout | None:
    """A rollout's record, None when it is not there. Raises UserError on one of another version."""
    if not path.is_file():
        return None
    try:
        return _ROLLOUT.validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(
            f"{path} is not a rollout record of this version; move it away to run that seed again"
        ) from error


def blame(run: Run) -> Blame:
    """Who is at fault for an early end: nobody when it ran its time, was halted, or the arm was driven into something.

    The policy is to blame for a crash and for what it asked for, the equipment for everything else.
    """
    if run.arm_failed:
        return "equipment"
    if run.fault is envelope.Fault.NOT_FOLLOWING:
        return ""
    if run.policy_failed or (run.fault is not None and run.fault.of_policy):
        return "policy"
    return "equipment" if run.fault is not None else ""


def judge(run: Run, success: bool | None, ratio: float | None, config: DeployConfig) -> tuple[Verdict, str]:
    """The verdict of a finished run: `success` is the task's predicate at the end, None where nobody knows.

    A policy's own fault is its failure: one that crashes must not look better than one that misses.
    """
    if blame(run) == "equipment":
        return "invalid", run.ended
    if ratio is not None and ratio < config.min_clock_ratio:
        return "invalid", f"the twin ran at {ratio:.3f} of real time, {config.min_clock_ratio} is the least"
    if config.dry_run:
        return "invalid", "dry run: nothing moved"
    if run.halted:
        return "invalid", run.ended
    if run.policy_failed or run.fault is not None:
        return "failure", run.ended
    if success is None:
        return "invalid", "nobody judged it"
    return ("success", "success") if success else ("failure", run.ended)


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


def _record(
    seed: int,
    name: str,
    run: Run,
    success: bool | None,
    truth: _Truth | None,
    ratio: float | None,
    config: DeployConfig,
    wall_s: float,
) -> Rollout:
    verdict, reason = judge(run, success, ratio, config)
    log = run.log.columns()
    ticks = len(run.log.time_s)
    lateness, thinking = log["lateness_s"], log["inference_s"]
    thinking = thinking[np.isfinite(thinking)] if ticks else thinking
    sent = log["time_s"] + lateness
    clamps = Counter(clamp for row in run.log.clamps for clamp in row.split(",") if clamp)
    return Rollout(
        seed=seed,
        verdict=verdict,
        reason=reason,
        success=success,
        fault=run.ended if blame(run) else "",
        fault_of=blame(run),
        stage=truth.judge.stage if truth is not None else 0,
        ticks=ticks,
        stage_ticks=tuple(truth.stage_ticks) if truth is not None else (),
        measures={key: round(value, 4) for key, value in truth.judge.measures.items()} if truth is not None else {},
        clock_ratio=None if ratio is None else round(ratio, 4),
        rate_hz=round(float((ticks - 1) / (sent[-1] - sent[0])), 3) if ticks > 1 else float(config.rate),
        late_ticks=int((lateness > LATE_S).sum()),
        lateness_p50_ms=_ms(lateness, 50),
        lateness_p99_ms=_ms(lateness, 99),
        inference_ms=_ms(thinking, 50) if len(thinking) else None,
        frame_age_p99_ms=_ms(log["frame_age_s"], 99),
        clamps=dict(clamps),
        wall_s=round(wall_s, 2),
        log=f"{name}.parquet" if ticks else "",
        video=f"{name}-wrist.mp4" if run.images else "",
    )


def _ms(seconds: np.ndarray, percentile: float) -> float:
    finite = seconds[np.isfinite(seconds)]
    return round(1000 * float(np.percentile(finite, percentile)), 2) if len(finite) else 0.0


def _write(out: Path, name: str, record: Rollout, run: Run) -> None:
    """Log and video first, the record last: a rollout counts once its record is there."""
    out.mkdir(parents=True, exist_ok=True)
    if record.log:
        write_atomically(out / record.log, _parquet(run.log))
    if record.video:
        from robocoach.datasets import video

        # Filmed faster than the contract's rate, a video still plays in real time.
        every = max(1, round(len(run.images) / max(1, _seconds(run) * 10)))
        video.encode(np.stack(run.images[::every]), out / record.video)
    write_atomically(out / f"{name}.json", _ROLLOUT.dump_json(record, indent=1))


def _seconds(run: Run) -> float:
    return run.log.time_s[-1] - run.log.time_s[0] if len(run.log.time_s) > 1 else len(run.images) / 10


def _parquet(log: Log) -> bytes:
    import pyarrow
    from pyarrow import parquet

    columns = {name: list(rows) for name, rows in log.columns().items()}
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


_ROLLOUT = TypeAdapter(Rollout)
