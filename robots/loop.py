"""The control loop: ten times a second, state and frame in, one checked command out, and everything written down.

The schedule is absolute and monotonic. Every action passes the safety envelope; a stop of the envelope, a fault of the
arm or Ctrl-C ends the rollout with the arm brought to rest under control. Knows nothing of what drives the arm (twin
or hardware) nor of what thinks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from robocoach.configs.models import SafetyConfig
from robocoach.robots.camera import Camera, Frame
from robocoach.robots.franka import ArmFault, ArmState
from robocoach.robots.priority import going_first
from robocoach.robots.safety import Command, Fault, Moment, Stop, check
from robocoach.robots.thinker import Chunk, ChunkPolicy, PolicyFailed, Thinker, think

TICK_S = 0.1
LATE_S = 0.010
"""A tick whose command leaves later than this after its schedule is late."""
FRAME_WAIT_S = 0.25
HOLD_TICKS = 10
"""A rollout ends early once success has gone on for this long, the policy still acting; as in `sim/rollout.py`."""


class ArmLike(Protocol):
    """What the loop needs of an arm."""

    def state(self) -> ArmState:
        """Newest state; raises ArmFault."""
        ...

    def command(self, values: np.ndarray, tick_at_s: float) -> None:
        """Streams one action (8,); raises ArmFault."""
        ...

    def stop(self) -> None:
        """Brings the arm to rest."""
        ...


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


@dataclass
class ControlLoop:
    """Everything one rollout needs; `run` runs it once, from where the arm stands."""

    arm: ArmLike
    camera: Camera
    policy: ChunkPolicy
    instruction: str
    safety: SafetyConfig
    max_ticks: int
    watcher: Watcher | None = None
    think_ahead: bool = True
    """Ask the policy in a thread, a tick before its chunk ends; without it the policy is asked within the tick, for
    experts that answer in a millisecond and do not look at the picture (they get the newest there is). A policy whose
    chunk is one action is always asked within the tick."""
    dry_run: bool = False
    """Everything but sending the command."""

    def run(self) -> Run:
        """Runs the rollout; the arm is at rest when this returns or raises (Ctrl-C)."""
        result = Run(Log(), [])
        thinker = Thinker(self.policy, self._take_frame, self.instruction)
        try:
            with going_first():
                self._tick_through(result, thinker)
        except ArmFault as fault:
            result.ended, result.arm_failed = f"arm: {fault}", True
        except PolicyFailed as failure:
            result.ended, result.policy_failed = f"policy: {failure}", True
        finally:
            self.arm.stop()
            thinker.close()
        return result

    def _take_frame(self, moment_s: float) -> Frame | None:
        return self.camera.newer_than(moment_s, FRAME_WAIT_S) if self.think_ahead else self.camera.latest()

    def _tick_through(self, result: Run, thinker: Thinker) -> None:
        # The first chunk is thought of while the arm still rests, so the schedule starts with an action in hand.
        # It may take long (a network's first chunk does), so a new frame is waited for after it.
        chunk = self._think_now(0)
        self.camera.newer_than(time.monotonic(), FRAME_WAIT_S)
        last_command: np.ndarray | None = None
        begin = time.monotonic() + TICK_S / 2
        held, waits = 0, 0
        for tick in range(self.max_ticks):
            due = begin + tick * TICK_S
            time.sleep(max(0.0, due - time.monotonic()))
            self.camera.trigger()
            state = self.arm.state()
            if tick and self.watcher is not None:
                held = held + 1 if self.watcher.update() else 0
                if held > HOLD_TICKS:
                    result.ended = "success"
                    return
            chunk, fresh = self._next_chunk(chunk, tick, state, thinker)
            action = chunk.action(tick) if chunk is not None else None
            waits = waits + 1 if action is None else 0
            now = time.monotonic()
            frame = self.camera.latest()
            moment = Moment(
                action=action,
                last_command=None if self.dry_run else last_command,
                state=state.values,
                frame_age_s=now - frame.captured_s if frame is not None else np.inf,
                state_age_s=max(0.0, now - state.read_at_s),
                policy_wait_s=waits * TICK_S,
            )
            answer = check(moment, self.safety)
            if isinstance(answer, Command) and not self.dry_run:
                self.arm.command(answer.values, due)
                last_command = answer.values
            lateness = time.monotonic() - due
            self._write_down(result, due - begin, lateness, moment, answer, chunk, fresh)
            if frame is not None:
                result.images.append(frame.image)
            if isinstance(answer, Stop):
                result.ended, result.fault = f"{answer.fault}: {answer.detail}", answer.fault
                return
            if lateness > TICK_S:  # a whole tick was lost: go on from here, do not hurry after the schedule
                begin += lateness
        time.sleep(max(0.0, begin + self.max_ticks * TICK_S - time.monotonic()))
        if self.watcher is not None:
            self.watcher.update()

    def _think_now(self, tick: int) -> Chunk | None:
        state = self.arm.state()
        return think(self.policy, self._take_frame, state.values, self.instruction, tick, time.monotonic())

    def _next_chunk(
        self, chunk: Chunk | None, tick: int, state: ArmState, thinker: Thinker
    ) -> tuple[Chunk | None, Chunk | None]:
        """The chunk to act from in this tick, and the same again if it is new."""
        if not self.think_ahead or (chunk is not None and len(chunk.actions) == 1):
            new = chunk if tick == 0 else self._think_now(tick)
            return new, new
        new = thinker.answer()
        if tick == 0:
            new = chunk
        if new is not None:
            chunk = new
        if thinker.idle and (chunk is None or tick + 1 >= chunk.ends_at):
            thinker.ask(state.values, tick, time.monotonic())
        return chunk, new

    def _write_down(
        self,
        result: Run,
        time_s: float,
        lateness_s: float,
        moment: Moment,
        answer: object,
        chunk: Chunk | None,
        fresh: Chunk | None,
    ) -> None:
        log, nothing = result.log, np.full(8, np.nan)
        wished = np.asarray(moment.action, dtype=float) if moment.action is not None else nothing
        log.time_s.append(time_s)
        log.lateness_s.append(lateness_s)
        log.state.append(moment.state)
        log.action.append(wished if wished.shape == (8,) else nothing)
        log.command.append(answer.values if isinstance(answer, Command) and not self.dry_run else nothing)
        log.frame_age_s.append(moment.frame_age_s)
        log.state_age_s.append(moment.state_age_s)
        log.seen_s.append(time.monotonic() - chunk.frame.captured_s if chunk is not None else np.nan)
        log.inference_s.append(fresh.took_s if fresh is not None else np.nan)
        log.clamps.append(",".join(answer.clamps) if isinstance(answer, Command) else "")
