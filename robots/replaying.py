"""Plays the actions of a recorded episode back through the guard, and measures how well the arm followed.

The arm first moves slowly to the episode's first state; a recording that starts somewhere the envelope does not allow
is refused before that. On the twin the objects are put where the episode's scene has them, and the task's predicate
says whether the episode works there too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.configs.models import SafetyConfig, Sim2RealConfig
from robocoach.datasets import contract as contracts
from robocoach.datasets.columns import read_columns
from robocoach.datasets.contract import ACTION_KEY, STATE_KEY, Contract, Provenance
from robocoach.datasets.real_lerobot import find
from robocoach.robots import safety as envelope
from robocoach.robots.franka import ArmFault
from robocoach.robots.guard import TICK_S, Guard
from robocoach.robots.priority import going_first
from robocoach.robots.rig import Rig
from robocoach.robots.safety import Command, Stop
from robocoach.sim.tasks import get_task

SETTLE_S = 0.5
OF_THE_ARM = frozenset({"robot"})
"""Provenance that matters to a replay; what the camera was does not."""


@dataclass(frozen=True)
class Recorded:
    """One episode's numbers."""

    root: Path
    number: int
    states: np.ndarray
    """float64 (T, 8) [rad, m]"""
    actions: np.ndarray
    """float64 (T, 8) [rad, m]"""
    seed: int
    """Seed of its scene, negative when no scene is known."""
    contract: Contract


@dataclass
class Replayed:
    """What came of it."""

    recorded: Recorded
    robot: str
    dry_run: bool
    states: list[np.ndarray] = field(default_factory=list)
    commands: list[np.ndarray] = field(default_factory=list)
    clamps: Counter[str] = field(default_factory=Counter)
    clamped_ticks: int = 0
    largest_clamp_rad: float = 0.0
    lateness_s: list[float] = field(default_factory=list)
    end_error_rad: float | None = None
    """Largest joint error half a second after the last action, against that action."""
    success: bool | None = None
    """The task's predicate at the end; None where nobody knows."""
    stopped: str = ""
    """Why the envelope or the arm ended it early."""
    differences: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """JSON-able figures; errors of joints in [rad], a list in joint order."""
        ticks = len(self.states)
        then = self.recorded.states[:ticks, :7]
        # The state of tick t + 1 is where the command of tick t was to be reached.
        reached = np.array([state[:7] for state in self.states]).reshape(-1, 7)
        asked = np.array([command[:7] for command in self.commands]).reshape(-1, 7)
        to_command = np.abs(reached[1:] - asked[: max(0, ticks - 1)])
        to_recording = np.abs(reached - then)
        return {
            "data": str(self.recorded.root),
            "episode": self.recorded.number,
            "robot": self.robot,
            "dry_run": self.dry_run,
            "ticks": ticks,
            "of": len(self.recorded.actions),
            "stopped": self.stopped,
            "tracking_mean_rad": _worst(to_command.mean(axis=0) if len(to_command) else np.zeros(7)),
            "tracking_max_rad": _worst(to_command.max(axis=0) if len(to_command) else np.zeros(7)),
            "tracking_max_by_joint_rad": _rounded(to_command.max(axis=0) if len(to_command) else np.zeros(7)),
            "from_recording_max_rad": _worst(to_recording.max(axis=0) if ticks else np.zeros(7)),
            "end_error_rad": self.end_error_rad,
            "clamps": dict(self.clamps),
            "clamped_ticks": self.clamped_ticks,
            "largest_clamp_rad": round(self.largest_clamp_rad, 4),
            "lateness_p99_ms": round(1000 * float(np.percentile(self.lateness_s or [0.0], 99)), 2),
            "success": self.success,
            "differences": list(self.differences),
        }

    def line(self) -> str:
        """The result in one line."""
        told = self.summary()
        if self.stopped:
            return f"stopped after {told['ticks']} of {told['of']} ticks: {self.stopped}"
        moved = "nothing moved (dry run)" if self.dry_run else f"tracking within {told['tracking_max_rad']} rad"
        judged = {True: ", success", False: ", no success", None: ""}[self.success]
        return f"{told['ticks']} ticks, {moved}, {told['clamped_ticks']} clamped{judged}"


def _worst(joints: np.ndarray) -> float:
    return round(float(joints.max()), 4)


def _rounded(joints: np.ndarray) -> list[float]:
    return [round(float(joint), 4) for joint in joints]


def read(path: Path, number: int) -> Recorded:
    """An episode of a dataset, or of the dataset in a recording's folder. Raises UserError."""
    root = find(path) if path.is_dir() else None
    if root is None:
        raise UserError(f"--data {path} holds no LeRobotDataset (meta/info.json); name the folder that does")
    contract = Contract.load(root)
    columns = read_columns(root)
    rows = columns.frames["episode_index"] == number
    if not rows.any():
        last = int(columns.frames["episode_index"].max())
        raise UserError(f"--episode {number}: {root} holds episodes 0 to {last}")
    seeds = columns.episodes.get("seed")
    return Recorded(
        root=root,
        number=number,
        states=columns.frames[STATE_KEY][rows].astype(float),
        actions=columns.frames[ACTION_KEY][rows].astype(float),
        seed=int(seeds[number]) if seeds is not None else -1,
        contract=contract,
    )


def replay(
    recorded: Recorded,
    rig: Rig,
    config: Sim2RealConfig,
    accept: frozenset[str] = frozenset(),
    tell: Callable[[str], None] = lambda line: None,
) -> Replayed:
    """Replays on an open rig with the configuration's task, envelope and `deploy.dry_run`.

    `accept` names provenance of the dataset that may differ. Raises UserError for what the user can mend, before
    anything moves. A stop of the envelope or a fault of the arm is part of the result.
    """
    dry_run, safety = config.deploy.dry_run, config.safety
    free = frozenset(Provenance.model_fields) - OF_THE_ARM
    done = Replayed(recorded, rig.robot, dry_run)
    done.differences = tuple(contracts.check(rig.contract, recorded.contract, "the dataset", accept | free))
    try:
        judge = _prepare(recorded, rig, safety, config.task, dry_run=dry_run)
        tell("replaying …")
        _play(done, rig, safety, judge, dry_run=dry_run)
        if not (dry_run or done.stopped):
            time.sleep(SETTLE_S)
            away = np.abs(rig.arm.state().values[:7] - done.commands[-1][:7])
            done.end_error_rad = round(float(away.max()), 4)
    except ArmFault as fault:
        done.stopped = f"arm: {fault}"
    return done


def _prepare(recorded: Recorded, rig: Rig, safety: SafetyConfig, task_name: str, *, dry_run: bool) -> Any:
    """Brings everything to the episode's start; returns the judge where there is one."""
    start = recorded.states[0]
    low = np.array(rig.limits.q_min_rad) + safety.limit_inset_rad
    high = np.array(rig.limits.q_max_rad) - safety.limit_inset_rad
    outside = np.flatnonzero((start[:7] < low) | (start[:7] > high))
    if outside.size:
        joint = int(outside[0])
        raise UserError(
            f"the episode begins with joint {joint + 1} at {start[joint]:.3f} rad, this arm may be "
            f"at {low[joint]:.3f} to {high[joint]:.3f}; choose another episode"
        )
    task = get_task(task_name)
    if rig.twin is not None and recorded.seed >= 0:
        rig.prepare(task.sample_scene(recorded.seed))
    if not dry_run:
        rig.arm.recover()
        rig.arm.go_to(start[:7])
        wrong = envelope.check_start(rig.arm.state().values, start[:7], safety)
        if wrong is not None:
            raise ArmFault(wrong.detail)
    return task.judge() if rig.twin is not None and recorded.seed >= 0 and not dry_run else None


def _play(done: Replayed, rig: Rig, safety: SafetyConfig, judge: Any, *, dry_run: bool) -> None:
    guard = Guard(rig.arm, rig.camera, safety, rig.limits, dry_run=dry_run)
    rig.camera.newer_than(time.monotonic(), 1.0)
    actions = done.recorded.actions
    try:
        with going_first():
            begin = time.monotonic() + TICK_S / 2
            for tick, action in enumerate(actions):
                due = begin + tick * TICK_S
                time.sleep(max(0.0, due - time.monotonic()))
                guard.observe()
                if judge is not None and rig.twin is not None and tick:
                    judge.update(rig.twin.state())
                step = guard.step(action, due)
                if isinstance(step.answer, Stop):
                    done.stopped = f"{step.answer.fault}: {step.answer.detail}"
                    return
                if isinstance(step.answer, Command):
                    done.commands.append(step.answer.values)
                    done.clamps.update(step.answer.clamps)
                    done.clamped_ticks += bool(step.answer.clamps)
                    away = float(np.abs(step.answer.values[:7] - action[:7]).max())
                    done.largest_clamp_rad = max(done.largest_clamp_rad, away)
                done.states.append(np.asarray(step.state.values, dtype=float))
                done.lateness_s.append(time.monotonic() - due)
            time.sleep(max(0.0, begin + len(actions) * TICK_S - time.monotonic()))
        if judge is not None and rig.twin is not None:
            judge.update(rig.twin.state())
            done.success = judge.success
    finally:
        guard.halt()
