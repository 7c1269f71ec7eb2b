"""Runs a session: one trial after the other on a rig, with an operator who judges, until every planned one is valid.

`run_session` is the whole of it and knows no screen: the operator is an object that is asked when to go and what the
verdict is (`Operator`), a terminal screen or, on the twin, `AutoOperator`. Every step is an event on disk before the
next begins, so the same call goes on after a kill. Between trials the arm drives home by itself and is checked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
from pydantic import TypeAdapter, ValidationError

from robocoach.configs.errors import UserError
from robocoach.configs.models import DeployConfig, SafetyConfig, Section, SessionConfig
from robocoach.datasets.contract import GripperRule
from robocoach.robots import camera_compare
from robocoach.robots import safety as envelope
from robocoach.robots.camera_compare import Reference
from robocoach.robots.deploy import agree
from robocoach.robots.franka import ArmFault, client_version
from robocoach.robots.rig import Rig
from robocoach.robots.rollout import Rollout, read_rollout, run_rollout
from robocoach.robots.session import events, plan
from robocoach.robots.session.events import EventLog, State, Verdict, VerdictKind
from robocoach.robots.session.plan import Plan, Trial
from robocoach.robots.thinker import ChunkPolicy
from robocoach.robots.twin import TwinLost
from robocoach.sim.tasks import get_task

ROLLOUTS = "rollouts"
FRESH_FRAME_S = 1.0
NOT_SEEN = "the program did not see the rollout end"
OPEN_SHARE = 0.9
"""Of the full opening width that counts as open."""
POLL_S = 0.05


@dataclass(frozen=True)
class Check:
    """One thing that was looked at before a trial."""

    name: str
    fine: bool
    detail: str


class Answer(Enum):
    """What an operator says when no verdict is given."""

    GO = "go"
    UNDO = "undo"
    """Take the last verdict back."""
    QUIT = "quit"
    """Leave; the session goes on later where it is."""


class Operator(Protocol):
    """Who stands at the arm."""

    countdown_s: float
    """Warning before the arm moves."""

    def begin(self, session: Session, rig: Rig) -> None:
        """The session is open and the arm connected."""
        ...

    def show(self, phase: str, trial: Trial | None, detail: str = "") -> None:
        """What is going on: `home`, `countdown`, `rollout`, `refused`, …"""
        ...

    def ready(self, trial: Trial, checks: tuple[Check, ...], q: np.ndarray | None) -> Answer | Verdict:
        """The arm (7,) [rad] rests at the start: GO begins the rollout, or looks again where a check is not fine.

        An invalid verdict gives the trial up without a rollout.
        """
        ...

    def verdict(self, trial: Trial, rollout: Rollout, choices: tuple[VerdictKind, ...]) -> Verdict | Answer:
        """Judges a rollout; UNDO takes the verdict before back first, QUIT leaves this one open."""
        ...

    def finish(self, record: SessionRecord) -> Answer:
        """No trial is left: GO closes the session and reveals blind names."""
        ...

    def halt(self) -> str | None:
        """Asked all the time while the arm moves: the reason to bring it to rest now, or None."""
        ...


class AutoOperator:
    """Nobody: trials begin by themselves and the task's own predicate judges them. For the twin."""

    countdown_s = 0.0
    TRIES = 2
    GIVES_UP_AFTER = 3
    """Invalid trials in a row: the equipment is broken, and going on would only use up the extra trials."""

    def __init__(self) -> None:
        self._tries: dict[int, int] = {}
        self._invalid_in_a_row = 0

    def begin(self, session: Session, rig: Rig) -> None:
        """Needs the truth. Raises UserError without."""
        if rig.twin is None:
            raise UserError("--verdict auto needs ground truth, which only --robot twin has; leave it out")

    def show(self, phase: str, trial: Trial | None, detail: str = "") -> None:
        """Nobody looks."""

    def ready(self, trial: Trial, checks: tuple[Check, ...], q: np.ndarray | None) -> Answer | Verdict:
        """Goes, after a second try when a check is not fine."""
        if self._invalid_in_a_row >= self.GIVES_UP_AFTER:
            return Answer.QUIT
        bad = [f"{check.name}: {check.detail}" for check in checks if not check.fine]
        self._tries[trial.number] = self._tries.get(trial.number, 0) + 1
        if not bad or self._tries[trial.number] < self.TRIES:
            return Answer.GO
        self._invalid_in_a_row += 1
        return Verdict("invalid", 0, "; ".join(bad), "program")

    def verdict(self, trial: Trial, rollout: Rollout, choices: tuple[VerdictKind, ...]) -> Verdict:
        """The predicate's."""
        kind = "invalid" if rollout.fault_of or rollout.verdict not in choices else rollout.verdict
        self._invalid_in_a_row = self._invalid_in_a_row + 1 if kind == "invalid" else 0
        return Verdict(kind, rollout.stage, "" if kind == "success" else rollout.reason, "predicate")

    def finish(self, record: SessionRecord) -> Answer:
        """Closes."""
        return Answer.GO

    def halt(self) -> str | None:
        """Never."""
        return None


@dataclass(frozen=True)
class SessionRecord:
    """A session as it stands: plan, trials with verdicts and rollouts, events."""

    folder: Path
    plan: Plan
    state: State
    events: tuple[events.Event, ...]
    head: str
    """Digest of the last event; names the whole log."""

    @property
    def counted(self) -> dict[tuple[int, str], events.Result]:
        """(scene, label) → the trial that counts."""
        return events.counted(self.plan, self.state)

    @property
    def complete(self) -> bool:
        """Every scene has a valid trial of every checkpoint."""
        return len(self.counted) == len({(trial.scene, trial.label) for trial in self.plan.trials})

    def name(self, label: str) -> str:
        """The checkpoint behind a label; the label itself while it is blind."""
        return self.state.names.get(label, label)

    def video(self, result: events.Result) -> Path | None:
        """A trial's wrist video, where there is one."""
        name = (result.rollout or {}).get("video")
        path = self.folder / ROLLOUTS / name if name else None
        return path if path is not None and path.is_file() else None


def begin(folder: Path, made: Plan, secret: plan.Seal | None = None) -> None:
    """Freezes a plan in a new folder and opens its log. Raises UserError when there is a session already."""
    folder.mkdir(parents=True, exist_ok=True)
    if secret is not None:
        if (folder / plan.PLAN_FILE).exists():
            raise UserError(f"{folder} holds a session already; go on with it by --resume")
        plan.write_seal(folder, secret)
    plan.freeze(folder, made)
    log = EventLog(folder, made)
    try:
        if not log.events:
            log.append("opened", plan=made.digest, operator=made.operator, code_version=made.code_version)
    finally:
        log.close()


def read_record(folder: Path) -> SessionRecord:
    """A session from its folder, without touching it. Raises UserError when it was tampered with."""
    found = plan.read_plan(folder)
    log, _ = events.read_events(folder / events.EVENTS_FILE, found)
    return SessionRecord(folder, found, events.fold(log), tuple(log), log[-1].digest if log else found.digest)


def settings_of(made: Plan) -> tuple[DeployConfig, SafetyConfig, SessionConfig]:
    """The settings that a plan froze. Raises UserError when this version has others."""

    def section[S: Section](model: type[S], name: str) -> S:
        prefix = f"{name}."
        values = {key.removeprefix(prefix): value for key, value in made.settings.items() if key.startswith(prefix)}
        return model.model_validate(values)

    try:
        return section(DeployConfig, "deploy"), section(SafetyConfig, "safety"), section(SessionConfig, "session")
    except ValidationError as error:
        raise UserError(
            f"the plan's settings are not this version's ({error.error_count()} differ); go on with version "
            f"{made.code_version}"
        ) from None


class Session:
    """A session open for writing. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        """Raises UserError when there is none, when another process runs it, or when it was tampered with."""
        self.folder = folder
        self.plan = plan.read_plan(folder)
        self.log = EventLog(folder, self.plan)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()

    @property
    def state(self) -> State:
        """The fold of all events."""
        return self.log.state

    def record(self) -> SessionRecord:
        """The session as it stands."""
        return SessionRecord(self.folder, self.plan, self.state, self.log.events, self.log.head)

    def judge(self, trial: Trial, verdict: Verdict) -> None:
        """A verdict on a rollout that has ended."""
        self.log.append("verdict", trial=trial.number, **asdict(verdict))

    def undo(self) -> int:
        """Takes the last verdict back, as an event of its own; 0 when there is none to take back."""
        judged = self.state.judged
        if not judged:
            return 0
        try:
            self.log.append("undo", trial=judged[-1])
        except events.NotNow:
            return 0
        return judged[-1]

    def give_up(self, trial: Trial, verdict: Verdict) -> None:
        """An invalid trial without a rollout."""
        if trial.number not in self.state.results:
            self.log.append("trial_started", **asdict(trial))
        if self.state.running == trial.number:
            self.log.append("trial_ended", trial=trial.number, rollout=None)
        self.judge(trial, verdict)

    def close_trials(self) -> None:
        """Closes the session; blind names are revealed. Raises NotNow while a trial awaits its verdict."""
        names = {label: label for label in self.plan.labels}
        if self.plan.blind:
            names = plan.read_seal(self.folder, self.plan).names
        self.log.append("closed", names=names)

    def sign(self, name: str) -> None:
        """A typed name: the first one signs, later ones countersign. Closes the session first where it is open."""
        if not name.strip():
            raise UserError("--sign needs a name, such as --sign 'Ada Lovelace'")
        if not self.state.closed:
            self.mend()
            waiting = [number for number, result in self.state.results.items() if result.verdict is None]
            if waiting:
                raise UserError(f"trial {waiting[0]} has no verdict yet: go on with --resume, judge it, and sign then")
            self.close_trials()
        self.log.append("countersigned" if self.state.signatures else "signed", name=name.strip())

    def mend(self) -> None:
        """What a kill left open: a rollout whose record is on the disk has ended, any other is an invalid trial."""
        if not (running := self.state.running):
            return
        rollout = read_rollout(self.folder / ROLLOUTS / f"{rollout_name(running)}.json")
        if rollout is not None:
            self.log.append("trial_ended", trial=running, rollout=asdict(rollout))
        else:
            self.give_up(self.state.results[running].trial, Verdict("invalid", 0, NOT_SEEN, "program"))


def rollout_name(number: int) -> str:
    """What the files of a trial's rollout are called."""
    return f"trial-{number:03d}"


def read_back(record: Mapping[str, Any]) -> Rollout:
    """A rollout from its place in the log. Raises UserError when it is of another version."""
    try:
        return TypeAdapter(Rollout).validate_python(dict(record))
    except ValidationError:
        raise UserError(
            "the session's log holds a rollout of another version of this program; go on with that"
        ) from None


def choices(rollout: Rollout, config: DeployConfig) -> tuple[VerdictKind, ...]:
    """The verdicts that a rollout allows, the one to take when nobody decides first.

    A fault of the equipment is invalid. So is a fault of the policy (a crash, a NaN, a jump) unless a person says that
    it was a failure: the page also tells what the rate would be if they all were.
    """
    slow = rollout.clock_ratio is not None and rollout.clock_ratio < config.min_clock_ratio
    if rollout.equipment or slow or config.dry_run:
        return ("invalid",)
    if rollout.fault_of == "policy":
        return ("invalid", "failure")
    return get_args(VerdictKind)


def run_session(
    rig: Rig,
    policies: Mapping[str, ChunkPolicy],
    folder: Path,
    operator: Operator,
    *,
    reference: Reference | None = None,
) -> SessionRecord:
    """Runs the session that was begun in `folder` (see `begin`) until it is closed, or the operator leaves.

    `policies` has a policy for each checkpoint's name in the plan; their settings are the plan's. The same call goes
    on where a session was left or killed. `reference` is what the data looked like: mount and light of the camera are
    compared with it before each trial. Raises UserError for what the user can mend, KeyboardInterrupt after the arm
    has come to rest.
    """
    with Session(folder) as session:
        return _Engine(session, rig, policies, operator, reference).run()


class _Engine:
    def __init__(
        self,
        session: Session,
        rig: Rig,
        policies: Mapping[str, ChunkPolicy],
        operator: Operator,
        reference: Reference | None,
    ) -> None:
        self.session, self.rig, self.operator, self.reference = session, rig, operator, reference
        made = session.plan
        self.task = get_task(made.task)
        self.deploy, self.safety, _ = settings_of(made)
        plan.check_scenes(made, self.task)
        names = {label: label for label in made.labels}
        if made.blind:
            names = plan.read_seal(session.folder, made).names
        lacking = [contestant.name for contestant in made.contestants if contestant.name not in policies]
        if lacking:
            raise UserError(f"the plan names checkpoint {lacking[0]}, and no policy was given for it")
        self._policies = {label: policies[name] for label, name in names.items()}
        self.differences = {line for policy in policies.values() for line in agree(policy, rig, frozenset(made.accept))}

    def run(self) -> SessionRecord:
        session = self.session
        if not session.state.closed:
            told = [f"{self.rig.robot} through {client_version()}", *sorted(self.differences)]
            if session.log.torn_bytes:
                told.append(f"a torn last line of {session.log.torn_bytes} bytes was dropped")
            session.log.append("started" if len(session.log.events) == 1 else "resumed", told=told)
            session.mend()
        self.operator.begin(session, self.rig)
        while not session.state.closed:
            trial = events.next_trial(session.plan, session.state)
            if trial is None:
                answer = self.operator.finish(session.record())
                if answer is Answer.GO:
                    session.close_trials()
            else:
                known = session.state.results.get(trial.number)
                answer = self._judge(trial) if known is not None else self._attempt(trial)
            if answer is Answer.UNDO:
                self._undo()
            elif answer is Answer.QUIT:
                break
        return session.record()

    def _undo(self) -> None:
        number = self.session.undo()
        self.operator.show("undone" if number else "refused", None, f"trial {number}" if number else "nothing to undo")

    def _attempt(self, trial: Trial) -> Answer:
        """Home, checks, the operator's word, and the rollout. GO when the trial is over, else what was answered."""
        scene = self.task.sample_scene(self.session.plan.start(trial).seed)
        if not self._countdown("home", trial):
            checks, q = (Check("start", False, "the move home was called off"),), None
        else:
            self.operator.show("home", trial)
            checks, q = self._bring_home(scene)
        while True:
            self.operator.show("ready", trial)
            answer = self.operator.ready(trial, checks, q)
            if isinstance(answer, Verdict):
                if answer.kind != "invalid":
                    self.operator.show("refused", trial, "a trial that never ran can only be invalid")
                    continue
                self.session.give_up(trial, answer)
                return Answer.GO
            if answer is not Answer.GO:
                return answer
            if all(check.fine for check in checks):
                if not self._countdown("countdown", trial):
                    continue
                checks, q = self._look(scene)  # somebody may have leaned on the arm meanwhile
                if all(check.fine for check in checks):
                    break
            else:
                self.operator.show("home", trial)
                checks, q = self._bring_home(scene)
        return self._roll_out(trial, scene)

    def _roll_out(self, trial: Trial, scene: Any) -> Answer:
        session = self.session
        self.operator.show("rollout", trial)
        session.log.append("trial_started", **asdict(trial))
        try:
            rollout = run_rollout(
                self.rig,
                self.task,
                self._policies[trial.label],
                scene,
                self.deploy,
                self.safety,
                session.folder / ROLLOUTS,
                rollout_name(trial.number),
                halt=self.operator.halt,
            )
        except BaseException:
            session.mend()  # what can still be written is; a kill leaves that to the next start
            raise
        session.log.append("trial_ended", trial=trial.number, rollout=asdict(rollout))
        return self._judge(trial)

    def _judge(self, trial: Trial) -> Answer:
        raw = self.session.state.results[trial.number].rollout
        if raw is None:  # the program ended between two lines of the log
            self.session.judge(trial, Verdict("invalid", 0, NOT_SEEN, "program"))
            return Answer.GO
        rollout = read_back(raw)
        allowed = choices(rollout, self.deploy)
        while True:
            self.operator.show("verdict", trial)
            answer = self.operator.verdict(trial, rollout, allowed)
            if isinstance(answer, Answer):
                if answer is not Answer.GO:
                    return answer
            elif answer.kind in allowed:
                self.session.judge(trial, answer)
                return Answer.GO
            self.operator.show("refused", trial, f"this rollout can only be {' or '.join(allowed)}: {rollout.reason}")

    def _countdown(self, phase: str, trial: Trial) -> bool:
        """Counts down before the arm moves; False when it was called off."""
        end = time.monotonic() + self.operator.countdown_s
        shown = -1
        while (left := end - time.monotonic()) > 0:
            if self.operator.halt():
                return False
            if math.ceil(left) != shown:
                shown = math.ceil(left)
                self.operator.show(phase, trial, f"in {shown} s")
            time.sleep(min(POLL_S, left))
        return not self.operator.halt()

    def _bring_home(self, scene: Any) -> tuple[tuple[Check, ...], np.ndarray | None]:
        try:
            self.rig.prepare(scene)
        except (ArmFault, TwinLost) as fault:
            return (Check("arm", False, str(fault)),), None
        return self._look(scene)

    def _look(self, scene: Any) -> tuple[tuple[Check, ...], np.ndarray | None]:
        """Looks at arm, hand, start pose and camera; nothing moves."""
        try:
            state = self.rig.arm.state()
        except ArmFault as fault:
            return (Check("arm", False, str(fault)),), None
        away = float(np.abs(state.values[:7] - scene.start_q).max())
        wrong = envelope.check_start(state.values, scene.start_q, self.safety)
        now = time.monotonic()
        frame = self.rig.camera.newer_than(now, FRESH_FRAME_S)
        width = float(state.values[7])
        fresh = f"frame after {1000 * (time.monotonic() - now):.0f} ms" if frame else f"no frame in {FRESH_FRAME_S} s"
        checks = [
            Check("arm", True, "answers, no error"),
            Check("start pose", wrong is None, wrong.detail if wrong else f"{1000 * away:.1f} mrad away at most"),
            Check("hand open", width >= OPEN_SHARE * GripperRule().open_width_m, f"{1000 * width:.0f} mm"),
            Check("camera", frame is not None, fresh),
        ]
        if self.reference is not None and frame is not None:
            seen = camera_compare.compare(self.reference, frame.image)
            checks.append(Check("camera mount", not seen.moved, seen.mount_words))
            checks.append(Check("light", True, seen.light.words))  # told, and the operator's to decide on
        return tuple(checks), state.values[:7].copy()
