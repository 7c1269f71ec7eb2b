"""Recording teleoperated episodes: start, stop, redo, discard and success at a key, every accepted episode durable.

Ten times a second on an absolute schedule: state, the operator's action, through the guard to the arm, and the first
picture taken from the tick on; what is stored as the action is what the envelope let through. An episode in which the
envelope stopped the arm, the arm reported a fault or the schedule was lost is discarded with its reason; the arm
recovers, and recording goes on. Knows nothing of windows or screens (`View`).
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.configs.models import DeployConfig, RecordConfig, SafetyConfig
from robocoach.datasets import splits
from robocoach.datasets.episode import REAL_SEED, UNKNOWN_STAGE, Episode
from robocoach.datasets.journal import Journal
from robocoach.robots import keys as terminal
from robocoach.robots import safety as envelope
from robocoach.robots.franka import ArmFault
from robocoach.robots.guard import TICK_S, Guard
from robocoach.robots.priority import going_first, without_collection
from robocoach.robots.rig import Rig
from robocoach.robots.safety import Command, Stop
from robocoach.robots.teleop.operator import Teleop
from robocoach.robots.twin import TwinLost, clock_ratio

if TYPE_CHECKING:
    from robocoach.sim.task import Judge, Scene, Task

LATE_S = 0.010
LOST_S = TICK_S / 2
"""A command that leaves later than this makes the rows no longer 0.1 s apart: the episode is discarded."""
FRAME_WAIT_S = 0.08
SHORTEST_TICKS = 5
SCENE_START = 8_100
SCENES = 1_900
"""Share of a run's demonstration seeds that recordings take their scenes from; simulation takes those below."""
FAULTS_IN_A_ROW = 3
"""So many faults one after the other end an unattended recording."""
MIN_CLOCK_RATIO = DeployConfig().min_clock_ratio
"""A twin slower than this makes the rows not 0.1 s apart."""
SPARE_TAKES = 20
"""An unattended recording gives up after twice the wanted episodes and so many takes were discarded."""
TAKES_FILE = "takes.jsonl"
IDLE_S = 0.03


class Wish(StrEnum):
    """What an operator asks of the recording."""

    START = "start"
    SUCCESS = "success"
    STOP = "stop"
    FAILURE = "failure"
    REDO = "redo"
    DISCARD = "discard"
    HOME = "home"
    QUIT = "quit"


READY = (Wish.START, Wish.HOME, Wish.QUIT)
RECORDING = (Wish.SUCCESS, Wish.FAILURE, Wish.STOP, Wish.REDO, Wish.DISCARD, Wish.QUIT)
REVIEW = (Wish.SUCCESS, Wish.FAILURE, Wish.REDO, Wish.DISCARD, Wish.QUIT)
"""What can be asked before an episode, during one, and of one that was stopped."""

KeyMap = dict[Wish, str]


def key_map(text: str) -> KeyMap:
    """The keys as set (`start=enter,stop=space`), defaults for the rest. Raises UserError on a key twice or unknown."""
    keys = dict(_pairs(RecordConfig().keys)) | dict(_pairs(text))
    for phase in (READY, RECORDING, REVIEW):
        used: dict[str, Wish] = {}
        for wish in phase:
            other = used.setdefault(keys[wish], wish)
            if other != wish:
                raise UserError(f"--keys: {keys[wish]} means {other} and {wish} at the same time; give one another key")
    return keys


def _pairs(text: str) -> list[tuple[Wish, str]]:
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, key = part.partition("=")
        if name not in list(Wish):
            raise UserError(f"--keys: {name!r} is nothing a recording knows; choose from {', '.join(Wish)}")
        if not terminal.is_key(key):
            named = ", ".join(sorted(terminal.NAMED_KEYS))
            raise UserError(f"--keys: {key!r} is no key; expected one character or one of {named}")
        pairs.append((Wish(name), key))
    return pairs


@dataclass
class Take:
    """One episode as it was recorded, accepted or not."""

    images: list[np.ndarray] = field(default_factory=list)
    states: list[np.ndarray] = field(default_factory=list)
    actions: list[np.ndarray] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    privileged: list[np.ndarray] = field(default_factory=list)
    """Empty on hardware."""
    wish: Wish | None = None
    """What the operator ended it with; None when it ended by itself."""
    ended: str = "time limit"
    fault: str = ""
    """Why it cannot be used, whatever the operator says."""
    lateness_s: list[float] = field(default_factory=list)
    frame_lag_s: list[float] = field(default_factory=list)
    """How long after its tick the tick's picture was taken."""
    clamps: Counter[str] = field(default_factory=Counter)
    judged: bool | None = None
    """The task's predicate at the end; None on hardware."""

    def episode(self, instruction: str, seed: int, success: bool) -> Episode:
        """The take as an episode."""
        return Episode(
            images=np.stack(self.images),
            states=np.stack(self.states).astype(np.float32),
            actions=np.stack(self.actions).astype(np.float32),
            stages=np.array(self.stages, dtype=np.int64),
            privileged=np.stack(self.privileged).astype(np.float32) if self.privileged else None,
            task=instruction,
            seed=seed,
            success=success,
        )

    def figures(self) -> dict[str, Any]:
        """Length and timing, for the record of takes."""
        lateness, lag = np.array(self.lateness_s or [0.0]), np.array(self.frame_lag_s or [0.0])
        return {
            "ticks": len(self.states),
            "late_ticks": int((lateness > LATE_S).sum()),
            "lateness_p99_ms": round(1000 * float(np.percentile(lateness, 99)), 2),
            "frame_lag_p50_ms": round(1000 * float(np.percentile(lag, 50)), 1),
            "clamps": dict(self.clamps),
        }


@dataclass(frozen=True)
class Status:
    """What the operator sees."""

    phase: str
    """`homing`, `ready`, `recording`, `review` or `saving`."""
    accepted: int
    wanted: int
    discarded: int
    ticks: int = 0
    late: int = 0
    clamped: int = 0
    message: str = ""
    """What has to be done before it goes on."""


class View(Protocol):
    """Where a recording shows itself."""

    def show(self, status: Status) -> None:
        """The state now; called every tick."""
        ...

    def tell(self, line: str) -> None:
        """Something happened, one line."""
        ...


Poll = Callable[[], list[str]]
"""Keys typed since the last look."""


class Recorder:
    """Records one take at a time on one rig with one teleoperator."""

    def __init__(
        self,
        rig: Rig,
        teleop: Teleop,
        task: Task,
        safety: SafetyConfig,
        *,
        max_seconds: float,
        min_clock_ratio: float = MIN_CLOCK_RATIO,
    ) -> None:
        self._rig, self._teleop, self._task = rig, teleop, task
        self._min_clock_ratio = min_clock_ratio
        self._guard = Guard(rig.arm, rig.camera, safety, rig.limits)
        self._max_ticks = round(max_seconds / TICK_S)

    def record(self, ask: Callable[[], Wish | None], seen: Callable[[Take], None]) -> Take:
        """Records until the operator asks for something, the script is done, or the time is over.

        `ask` is polled every tick, `seen` called after each. The arm is at rest when this returns or raises.
        """
        take = Take()
        judge = self._task.judge() if self._rig.twin is not None else None
        before = self._rig.twin.clock() if self._rig.twin is not None else None
        self._guard.begin()
        try:
            with going_first(), without_collection():
                self._tick_through(take, judge, ask, seen)
            if before is not None and self._rig.twin is not None:
                ratio = clock_ratio(before, self._rig.twin.clock())
                if ratio < self._min_clock_ratio and not take.fault:
                    take.fault = f"the twin ran at {ratio:.3f} of real time"
        except (ArmFault, TwinLost) as fault:
            take.fault = f"arm: {fault}"
        finally:
            self._guard.halt()
        if not self._teleop.moves_arm:
            _shift_actions(take)
        if len(take.states) < SHORTEST_TICKS and not take.fault:
            take.fault = f"only {len(take.states)} ticks long"
        take.judged = judge.success if judge is not None else None
        return take

    def _tick_through(
        self, take: Take, judge: Judge | None, ask: Callable[[], Wish | None], seen: Callable[[Take], None]
    ) -> None:
        rig, held = self._rig, np.asarray(self._rig.arm.state().values, dtype=float)
        rig.camera.newer_than(time.monotonic(), 1.0)
        begin, waits = time.monotonic() + TICK_S / 2, 0
        for tick in range(self._max_ticks + 1):
            due = begin + tick * TICK_S
            time.sleep(max(0.0, due - time.monotonic()))
            state = self._guard.observe()
            truth = rig.twin.state() if rig.twin is not None else None
            if judge is not None and truth is not None and tick:
                judge.update(truth)
            take.wish = ask()
            if take.wish is not None or (tick and self._teleop.finished) or tick == self._max_ticks:
                take.ended = take.wish or ("done" if self._teleop.finished else take.ended)
                return
            action = self._teleop.read(state.values)
            waits = waits + 1 if action is None else 0
            if not self._teleop.moves_arm and action is not None:
                rig.arm.gripper.command(float(action[7]))
                held, action = action, None
            step = self._guard.step(action, due, policy_wait_s=waits * TICK_S)
            lateness = time.monotonic() - due
            if isinstance(step.answer, Stop):
                take.fault = f"{step.answer.fault}: {step.answer.detail}"
                return
            if isinstance(step.answer, Command):
                held = step.answer.values
                take.clamps.update(step.answer.clamps)
            if lateness > LOST_S:
                take.fault = f"a command left {1000 * lateness:.0f} ms late, so the rows are not 0.1 s apart"
                return
            frame = rig.camera.newer_than(due, FRAME_WAIT_S) or rig.camera.latest()
            if frame is None:
                take.fault = "the camera gives no picture"
                return
            take.images.append(frame.image)
            take.states.append(np.asarray(step.state.values, dtype=float))
            take.actions.append(held)
            take.stages.append(min(judge.stage, len(self._task.stages) - 1) if judge is not None else UNKNOWN_STAGE)
            if truth is not None:
                take.privileged.append(self._task.privileged(truth))
            take.lateness_s.append(lateness)
            take.frame_lag_s.append(frame.captured_s - due)
            seen(take)


def _shift_actions(take: Take) -> None:
    """The action of an arm led by hand is where it was a tick later; the last row has none."""
    for row, after in zip(take.actions, take.states[1:], strict=False):
        row[:7] = after[:7]
    for rows in (take.images, take.states, take.actions, take.stages, take.privileged):
        del rows[-1:]


@dataclass
class Tally:
    """Where a recording stands."""

    accepted: int = 0
    successes: int = 0
    discarded: Counter[str] = field(default_factory=Counter)
    """Discarded takes by reason."""
    quit: bool = False
    """The operator ended it before all episodes were recorded."""


class Recording:
    """Takes until enough are accepted, in a folder that remembers them; the same call goes on after a kill."""

    def __init__(
        self,
        rig: Rig,
        teleop: Teleop,
        task: Task,
        folder: Path,
        config: RecordConfig,
        safety: SafetyConfig,
        view: View,
        poll: Poll,
        *,
        seed: int = 0,
        min_clock_ratio: float = MIN_CLOCK_RATIO,
    ) -> None:
        """`folder` holds the journal and the record of takes; `seed` is the run's, which fixes the scenes."""
        self._rig, self._teleop, self._task = rig, teleop, task
        self._config, self._safety, self._view, self._poll = config, safety, view, poll
        self._keys = key_map(config.keys)
        self._recorder = Recorder(
            rig, teleop, task, safety, max_seconds=config.max_seconds, min_clock_ratio=min_clock_ratio
        )
        self._journal = Journal(folder)
        self._takes = folder / TAKES_FILE
        self._seed = seed
        self._auto_home = config.homing == "auto" or config.unattended or rig.twin is not None
        self.tally, self._attempt = standing(folder)

    def run(self) -> Tally:
        """Records until enough episodes are accepted or the operator quits; the arm is at rest afterwards.

        Raises UserError when it cannot go on, and KeyboardInterrupt; what was accepted stays.
        """
        faults = 0
        while self.tally.accepted < self._config.episodes:
            scene = self._scene()
            if self._auto_home:
                self._move_home(scene)
            if not self._config.unattended and self._wait_for_start(scene) is Wish.QUIT:
                self.tally.quit = True
                break
            if self._config.unattended:
                self._begin_or_fail(scene)
            take = self._recorder.record(self._asked_while_recording, self._seen)
            wish = self._verdict(take)
            if take.fault:
                self._discard(take, take.fault, scene)
                faults += 1
                self._recover(faults)
            elif wish in (Wish.SUCCESS, Wish.FAILURE):
                faults = 0
                self._accept(take, scene, success=wish is Wish.SUCCESS)
            else:
                faults = 0
                self._discard(take, self._why(take, wish), scene)
            if wish is Wish.QUIT:
                self.tally.quit = True
                break
        return self.tally

    def _why(self, take: Take, wish: Wish) -> str:
        return f"no success after {len(take.states)} ticks" if self._config.unattended else f"operator: {wish}"

    def _scene(self) -> Scene:
        index = SCENE_START + self._attempt % SCENES
        return self._task.sample_scene(splits.seeds("demonstration", self._seed, 1, index)[0])

    def _begin_or_fail(self, scene: Scene) -> None:
        if self.tally.discarded.total() > 2 * self._config.episodes + SPARE_TAKES:
            raise UserError(f"too many takes without success; {self._kept()}; see {self._takes}")
        wrong = self._wrong_start(scene)
        if wrong is not None:
            raise UserError(f"the episode cannot begin: {wrong}")

    def _wrong_start(self, scene: Scene) -> str | None:
        try:
            state = self._rig.arm.state().values
        except ArmFault as fault:
            return f"arm: {fault}"
        wrong = envelope.check_start(state, scene.start_q, self._safety)
        if wrong is not None:
            return wrong.detail
        return self._teleop.begin(state)

    def _wait_for_start(self, scene: Scene) -> Wish:
        """Waits for the operator until everything is where an episode begins."""
        self._poll()  # what was typed meanwhile was not meant for this
        message = ""
        while True:
            self._show("ready", message=message)
            wish = self._asked(READY)
            if wish is Wish.QUIT:
                return wish
            if wish is Wish.HOME:
                self._move_home(scene)
                message = ""
            elif wish is Wish.START:
                wrong = self._wrong_start(scene)
                if wrong is None:
                    return wish
                message = f"cannot start: {wrong} (press {self._keys[Wish.HOME]} to move to the start pose)"
                self._view.tell(message)
            time.sleep(IDLE_S)

    def _move_home(self, scene: Scene) -> None:
        """Recovers where needed, opens the hand, moves slowly to the start; a fault is shown, not raised."""
        self._show("homing")
        try:
            self._rig.prepare(scene)
        except ArmFault as fault:
            if self._config.unattended:
                raise UserError(f"the arm cannot go to its start pose ({fault}); {self._kept()}") from fault
            self._view.tell(f"arm: {fault}")
        except TwinLost as lost:
            raise UserError(f"{lost}; {self._kept()}; run the same command to go on") from lost

    def _recover(self, faults: int) -> None:
        if self._config.unattended and faults >= FAULTS_IN_A_ROW:
            raise UserError(f"{faults} faults one after the other; {self._kept()}; see {self._takes}")
        try:
            self._rig.arm.recover()
        except ArmFault as fault:
            self._view.tell(f"arm: {fault}")  # `_move_home` tries again, and so may the operator

    def _kept(self) -> str:
        return f"{self.tally.accepted} accepted episodes are kept"

    def _verdict(self, take: Take) -> Wish:
        """What becomes of a take: by the judge, by the operator's key, or by asking."""
        if take.fault:
            return take.wish or Wish.DISCARD
        if self._config.unattended:
            return Wish.SUCCESS if take.judged else Wish.DISCARD
        if take.wish is not None and take.wish is not Wish.STOP:
            return take.wish
        keys = ", ".join(f"{self._keys[wish]} {wish}" for wish in REVIEW)
        judged = {True: "; the task's predicate says success", False: "; it says failure", None: ""}[take.judged]
        while True:
            self._show("review", take, f"{len(take.states)} ticks, {take.ended}{judged}: {keys}")
            wish = self._asked(REVIEW)
            if wish is not None:
                return wish
            time.sleep(IDLE_S)

    def _accept(self, take: Take, scene: Scene, *, success: bool) -> None:
        self._show("saving", take)
        index = max(self._journal.done(), default=-1) + 1
        seed = scene.seed if self._rig.twin is not None else REAL_SEED
        self._journal.add(index, take.episode(self._task.instruction, seed, success))
        self.tally.accepted += 1
        self.tally.successes += success
        self._write_down(take, scene, outcome="accepted", index=index, success=success)
        mark = "success" if success else "failure"
        self._view.tell(
            f"episode {index} accepted ({mark}, {len(take.states)} ticks): "
            f"{self.tally.accepted} of {self._config.episodes}"
        )

    def _discard(self, take: Take, reason: str, scene: Scene) -> None:
        self.tally.discarded[reason] += 1
        self._write_down(take, scene, outcome="discarded", reason=reason)
        self._view.tell(f"discarded after {len(take.states)} ticks: {reason}")

    def _write_down(self, take: Take, scene: Scene, **outcome: Any) -> None:
        if outcome.get("reason") != f"operator: {Wish.REDO}":
            self._attempt += 1
        line = {"attempt": self._attempt, "scene": scene.seed, **outcome, **take.figures(), "at": time.time()}
        with self._takes.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _asked(self, phase: tuple[Wish, ...]) -> Wish | None:
        """The first key that means something in this phase; the others are the teleoperator's."""
        for key in self._poll():
            for wish in phase:
                if self._keys[wish] == key:
                    return wish
            self._teleop.key(key)
        return None

    def _asked_while_recording(self) -> Wish | None:
        return self._asked(RECORDING)

    def _seen(self, take: Take) -> None:
        self._show("recording", take)

    def _show(self, phase: str, take: Take | None = None, message: str = "") -> None:
        self._view.show(
            Status(
                phase=phase,
                accepted=self.tally.accepted,
                wanted=self._config.episodes,
                discarded=self.tally.discarded.total(),
                ticks=len(take.states) if take is not None else 0,
                late=sum(late > LATE_S for late in take.lateness_s) if take is not None else 0,
                clamped=take.clamps.total() if take is not None else 0,
                message=message,
            )
        )


def standing(folder: Path) -> tuple[Tally, int]:
    """What a folder holds already, and how many takes were tried there; a line cut off by a kill is left out."""
    journal = Journal(folder)
    tally = Tally(accepted=len(journal.done()))
    tally.successes = sum(journal.read(index).success for index in journal.done())
    attempts = tally.accepted
    path = folder / TAKES_FILE
    if path.is_file():
        lines = path.read_text().split("\n")[:-1]
        path.write_text("".join(f"{line}\n" for line in lines))
        takes = [json.loads(line) for line in lines if line]
        tally.discarded = Counter(take["reason"] for take in takes if take["outcome"] == "discarded")
        attempts = max([attempts, *(take["attempt"] for take in takes)])
    return tally, attempts
