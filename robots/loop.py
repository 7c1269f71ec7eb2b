"""The control loop: ten times a second or faster, state and frame in, one checked command out, all written down.

The schedule is absolute and monotonic. Every action passes the guard; a stop of the envelope, a fault of the arm, the
operator's halt or Ctrl-C ends the rollout with the arm brought to rest under control. Chunks overlap: the next one is
asked for as early as the measured latency demands, and is blended in. Knows nothing of what drives the arm (twin or
hardware) nor of what thinks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from robocoach.configs.models import SafetyConfig
from robocoach.robots.camera import Camera, Frame
from robocoach.robots.franka import ArmFault, ArmState
from robocoach.robots.guard import ArmLike, Guard, Step
from robocoach.robots.limits import FR3, ArmLimits
from robocoach.robots.priority import going_first, without_collection
from robocoach.robots.safety import Command, Fault, Stop
from robocoach.robots.thinker import STEP_S, Chunk, ChunkPolicy, PolicyFailed, Question, Thinker, think

LATE_S = 0.010
"""A tick whose command leaves later than this after its schedule is late."""
FRAME_WAIT_S = 0.25
HOLD_S = 1.0
"""A rollout ends early once success has gone on for this long, the policy still acting; as in `sim/rollout.py`."""


class Watcher(Protocol):
    """Judges the rollout tick by tick, where somebody knows the truth."""

    def update(self) -> bool:
        """Looks at the world now; True while success holds."""
        ...


@dataclass
class Log:
    """What happened in each tick; rows of equal length."""

    time_s: list[float] = field(default_factory=list)
    lateness_s: list[float] = field(default_factory=list)
    state: list[np.ndarray] = field(default_factory=list)
    action: list[np.ndarray] = field(default_factory=list)
    """As the policy wished it; NaN while its answer was awaited."""
    command: list[np.ndarray] = field(default_factory=list)
    """As it was sent; NaN when nothing was."""
    frame_age_s: list[float] = field(default_factory=list)
    state_age_s: list[float] = field(default_factory=list)
    seen_s: list[float] = field(default_factory=list)
    """Age of the picture that this tick's action was thought of from, when the command left."""
    inference_s: list[float] = field(default_factory=list)
    """Inference of the chunk that began in this tick, else NaN."""
    clamps: list[str] = field(default_factory=list)

    def columns(self) -> dict[str, np.ndarray]:
        """The log as arrays, (T,) or (T, 8)."""
        return {
            name: np.array(rows, dtype=str) if name == "clamps" else np.array(rows, dtype=float)
            for name, rows in vars(self).items()
        }


@dataclass
class Run:
    """One pass of the loop."""

    log: Log
    images: list[np.ndarray]
    """The newest wrist frame of each tick."""
    ended: str = "time limit"
    """`success`, `time limit`, or what went wrong."""
    fault: Fault | None = None
    """What the envelope stopped for."""
    policy_failed: bool = False
    arm_failed: bool = False
    halted: bool = False
    """The operator stopped it."""


@dataclass
class ControlLoop:
    """Everything one rollout needs; `run` runs it once, from where the arm stands."""

    arm: ArmLike
    camera: Camera
    policy: ChunkPolicy
    instruction: str
    safety: SafetyConfig
    max_ticks: int
    """Time limit in steps of 0.1 s, whatever the rate."""
    watcher: Watcher | None = None
    think_ahead: bool = True
    """Ask the policy in a thread, before its chunk ends; without it the policy is asked within the tick, for experts
    that answer in a millisecond and do not look at the picture (they get the newest there is). A policy whose chunk
    is one action is always asked within the tick."""
    dry_run: bool = False
    """Everything but sending the command."""
    rate_hz: int = 10
    """Ticks a second; between the rows of a chunk, 0.1 s apart, lies the line that the arm follows anyway."""
    blend_steps: int = 0
    """Rows over which a new chunk takes over from the overlap of the last one."""
    smoothing: float = 0.0
    """Share of the last action's joints that stays in one 0.1 s later; not for experts that are asked every tick."""
    limits: ArmLimits = FR3
    halt: Callable[[], str | None] | None = None
    """Asked every tick; what it answers ends the rollout."""

    def run(self) -> Run:
        """Runs the rollout; the arm is at rest when this returns or raises (Ctrl-C)."""
        result = Run(Log(), [])
        thinker = Thinker(self.policy, self._take_frame, self.instruction)
        guard = Guard(self.arm, self.camera, self.safety, self.limits, tick_s=1 / self.rate_hz, dry_run=self.dry_run)
        try:
            with going_first(), without_collection():
                blend_steps, smoothing = (self.blend_steps, self.smoothing) if self.think_ahead else (0, 0.0)
                self._tick_through(result, guard, _Chunks(thinker, 1 / self.rate_hz, blend_steps, smoothing))
        except ArmFault as fault:
            result.ended, result.arm_failed = f"arm: {fault}", True
        except PolicyFailed as failure:
            result.ended, result.policy_failed = f"policy: {failure}", True
        finally:
            guard.halt()
            thinker.close()
        return result

    def _take_frame(self, moment_s: float) -> Frame | None:
        return self.camera.newer_than(moment_s, FRAME_WAIT_S) if self.think_ahead else self.camera.latest()

    def _tick_through(self, result: Run, guard: Guard, chunks: _Chunks) -> None:
        # The first chunk is thought of while the arm still rests, so the schedule starts with an action in hand.
        # It may take long (a network's first chunk does), so a new frame is waited for after it.
        first = self._think_now(0.0, self.arm.state())
        chunks.take(first, 0.0)
        in_tick = not self.think_ahead or (first is not None and len(first.actions) == 1)
        self.camera.newer_than(time.monotonic(), FRAME_WAIT_S)
        tick_s, length_s = 1 / self.rate_hz, self.max_ticks * STEP_S
        start = begin = time.monotonic() + tick_s / 2
        held = 0
        for tick in range(round(length_s / tick_s)):
            at_s = tick * tick_s
            due = begin + at_s
            time.sleep(max(0.0, due - time.monotonic()))
            state = guard.observe()
            halted = self.halt() if self.halt is not None else None
            if halted:
                result.ended, result.halted = halted, True
                return
            if tick and self.watcher is not None:
                held = held + 1 if self.watcher.update() else 0
                if held * tick_s > HOLD_S:
                    result.ended = "success"
                    return
            if tick and in_tick:
                chunks.take(self._think_now(at_s, state), at_s)
            elif not in_tick:
                chunks.refresh(at_s, state)
            step = guard.step(chunks.action(at_s), due, policy_wait_s=chunks.overdue_s(at_s))
            lateness = time.monotonic() - due
            self._write_down(result, due - start, lateness, step, chunks, fresh=chunks.taken_s == at_s)
            if isinstance(step.answer, Stop):
                result.ended, result.fault = f"{step.answer.fault}: {step.answer.detail}", step.answer.fault
                return
            if lateness > tick_s:  # a whole tick was lost: go on from here, do not hurry after the schedule
                begin += lateness
        time.sleep(max(0.0, begin + length_s - time.monotonic()))
        if self.watcher is not None:
            self.watcher.update()

    def _think_now(self, at_s: float, state: ArmState) -> Chunk | None:
        return think(self.policy, self._take_frame, Question(state.values, at_s, time.monotonic()), self.instruction)

    def _write_down(
        self, result: Run, time_s: float, lateness_s: float, step: Step, chunks: _Chunks, *, fresh: bool
    ) -> None:
        log, nothing, chunk = result.log, np.full(8, np.nan), chunks.current
        wished = np.asarray(step.moment.action, dtype=float) if step.moment.action is not None else nothing
        sent = isinstance(step.answer, Command) and not self.dry_run
        log.time_s.append(time_s)
        log.lateness_s.append(lateness_s)
        log.state.append(step.state.values)
        log.action.append(wished if wished.shape == (8,) else nothing)
        log.command.append(step.answer.values if isinstance(step.answer, Command) and sent else nothing)
        log.frame_age_s.append(step.moment.frame_age_s)
        log.state_age_s.append(step.moment.state_age_s)
        log.seen_s.append(time.monotonic() - chunk.frame.captured_s if chunk is not None else np.nan)
        log.inference_s.append(chunk.took_s if fresh and chunk is not None else np.nan)
        log.clamps.append(",".join(step.answer.clamps) if isinstance(step.answer, Command) else "")
        if step.frame is not None:
            result.images.append(step.frame.image)


class _Chunks:
    """The chunk in use and the one before it: when to ask for the next, and what they say together."""

    def __init__(self, thinker: Thinker, tick_s: float, blend_steps: int, smoothing: float = 0.0) -> None:
        self._thinker, self._tick_s, self._blend_s = thinker, tick_s, blend_steps * STEP_S
        self._stays = smoothing ** (tick_s / STEP_S)
        self._last: np.ndarray | None = None
        self.current: Chunk | None = None
        self._before: Chunk | None = None
        self.taken_s = -math.inf
        """When the current chunk took over."""

    def take(self, chunk: Chunk | None, at_s: float) -> None:
        """A new chunk takes over; None leaves the old one."""
        if chunk is not None:
            self._before, self.current, self.taken_s = self.current, chunk, at_s

    def refresh(self, at_s: float, state: ArmState) -> None:
        """Takes the answer that has come, and asks for the next chunk early enough. Raises PolicyFailed."""
        self.take(self._thinker.answer(), at_s)
        if not self._thinker.idle:
            return
        ticks = max(1, math.ceil(self._thinker.latency_s / self._tick_s))
        if self.current is None or at_s + ticks * self._tick_s >= self.current.look_again_s - 1e-6:
            previous = self.current.rest(at_s) if self.current is not None else None
            delay = math.ceil(ticks * self._tick_s / STEP_S)
            self._thinker.ask(Question(state.values, at_s, time.monotonic(), previous, delay))

    def action(self, at_s: float) -> np.ndarray | None:
        """The action (8,) of a tick, to be asked for once; None when no chunk reaches that far."""
        action = self._blended(at_s)
        if action is not None and self.current is not None and self._stays > 0:
            last = self.current.origin if self._last is None else self._last
            action[:7] = self._stays * last[:7] + (1 - self._stays) * action[:7]
            self._last = action.copy()
        return action

    def _blended(self, at_s: float) -> np.ndarray | None:
        action = self.current.action(at_s, self._tick_s) if self.current is not None else None
        weight = (at_s - self.taken_s + self._tick_s) / (self._blend_s + self._tick_s)
        if action is None or self._before is None or weight >= 1:
            return action
        old = self._before.action(at_s, self._tick_s)
        if old is not None:
            action[:7] = (1 - weight) * old[:7] + weight * action[:7]
        return action

    def overdue_s(self, at_s: float) -> float:
        """For how long the next chunk has been missing, this tick included."""
        wanted_s = self.current.look_again_s if self.current is not None else 0.0
        return max(0.0, round(at_s + self._tick_s - wanted_s, 6))
