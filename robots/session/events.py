"""The event log of a session: one line an event, on the disk before anything goes on, chained so that edits show.

Each line of `events.jsonl` carries the hash of the line before and its own, from the hash of the plan onwards. The
state of a session is a fold over its events and is stored nowhere else. A kill leaves at most a torn last line, which
is dropped. Who cuts whole lines off the end leaves a valid shorter chain: the signed record names the last hash.
Knows nothing of arms or screens.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from robocoach.configs.errors import UserError
from robocoach.configs.files import sync
from robocoach.robots.session.plan import Plan, Trial, digest

EVENTS_FILE = "events.jsonl"
Kind = Literal[
    "opened",
    "started",
    "resumed",
    "trial_started",
    "trial_ended",
    "verdict",
    "undo",
    "note",
    "closed",
    "signed",
    "countersigned",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
AFTER_CLOSING: tuple[Kind, ...] = ("note", "signed")
AFTER_SIGNING: tuple[Kind, ...] = ("note", "countersigned")
VerdictKind = Literal["success", "failure", "invalid"]


@dataclass(frozen=True)
class Event:
    """One line of the log."""

    number: int
    at: str
    """UTC, ISO 8601 with milliseconds."""
    kind: Kind
    data: dict[str, Any]
    previous: str
    """Digest of the event before; the first one carries the plan's."""
    digest: str

    def line(self) -> bytes:
        """The event as it is written."""
        return json.dumps(asdict(self), allow_nan=False, ensure_ascii=True).encode() + b"\n"


@dataclass(frozen=True)
class Verdict:
    """What was decided about a trial."""

    kind: VerdictKind
    stage: int
    """Stages that were reached, in order."""
    reason: str
    by: str
    """`operator`, `predicate` or `program`."""


@dataclass(frozen=True)
class Result:
    """What is known of one trial."""

    trial: Trial
    started_at: str
    ended_at: str = ""
    rollout: dict[str, Any] | None = None
    """The rollout's record; None while it runs, and for a trial that never ran."""
    verdict: Verdict | None = None

    @property
    def awaits_verdict(self) -> bool:
        """Its rollout has ended and nobody has judged it."""
        return bool(self.ended_at) and self.verdict is None


class NotNow(ValueError):
    """An event that may not follow those before it."""


@dataclass(frozen=True)
class State:
    """A session at one moment: the fold of its events."""

    results: dict[int, Result] = field(default_factory=dict)
    """By trial number."""
    judged: tuple[int, ...] = ()
    """Trials with a standing verdict, in the order of their verdicts."""
    running: int = 0
    """The trial whose rollout is under way, 0 for none."""
    undone: int = 0
    notes: tuple[tuple[str, str], ...] = ()
    """(time, text)."""
    closed: bool = False
    names: dict[str, str] = field(default_factory=dict)
    """Label → checkpoint, once the session is closed."""
    signatures: tuple[tuple[str, str, str], ...] = ()
    """(time, name, `signed` or `countersigned`)."""

    def after(self, kind: Kind, data: Mapping[str, Any], at: str) -> State:
        """The state after one more event. Raises NotNow when it may not follow."""
        if self.signatures and kind not in AFTER_SIGNING:
            raise NotNow(f"the session is signed: {kind} is refused")
        if self.closed and kind not in (*AFTER_CLOSING, *AFTER_SIGNING):
            raise NotNow(f"the session is closed: {kind} is refused")
        return getattr(self, f"_{kind}")(data, at)

    def _opened(self, data: Mapping[str, Any], at: str) -> State:
        return self

    def _started(self, data: Mapping[str, Any], at: str) -> State:
        return self

    def _resumed(self, data: Mapping[str, Any], at: str) -> State:
        return self

    def _note(self, data: Mapping[str, Any], at: str) -> State:
        return replace(self, notes=(*self.notes, (at, str(data["text"]))))

    def _trial_started(self, data: Mapping[str, Any], at: str) -> State:
        trial = Trial(**data)
        if self.running:
            raise NotNow(f"trial {self.running} is under way")
        if trial.number in self.results:
            raise NotNow(f"trial {trial.number} has been started before")
        return replace(self, results={**self.results, trial.number: Result(trial, at)}, running=trial.number)

    def _trial_ended(self, data: Mapping[str, Any], at: str) -> State:
        number = int(data["trial"])
        if self.running != number:
            raise NotNow(f"trial {number} is not under way")
        ended = replace(self.results[number], ended_at=at, rollout=data["rollout"])
        return replace(self, results={**self.results, number: ended}, running=0)

    def _verdict(self, data: Mapping[str, Any], at: str) -> State:
        number = int(data["trial"])
        result = self.results.get(number)
        if result is None or not result.awaits_verdict:
            raise NotNow(f"trial {number} awaits no verdict")
        verdict = Verdict(data["kind"], int(data["stage"]), str(data["reason"]), str(data["by"]))
        if verdict.kind not in get_args(VerdictKind):
            raise NotNow(f"{verdict.kind!r} is no verdict; choose from {', '.join(get_args(VerdictKind))}")
        if result.rollout is None and verdict.kind != "invalid":
            raise NotNow(f"trial {number} never ran, so it can only be invalid")
        judged = replace(result, verdict=verdict)
        return replace(self, results={**self.results, number: judged}, judged=(*self.judged, number))

    def _undo(self, data: Mapping[str, Any], at: str) -> State:
        number = int(data["trial"])
        if not self.judged or self.judged[-1] != number:
            raise NotNow(f"the last verdict is not on trial {number}")
        if self.running:
            raise NotNow(f"trial {self.running} is under way")
        if self.results[number].rollout is None:
            raise NotNow(f"trial {number} never ran: that it is invalid cannot be taken back")
        reopened = replace(self.results[number], verdict=None)
        results = {**self.results, number: reopened}
        return replace(self, results=results, judged=self.judged[:-1], undone=self.undone + 1)

    def _closed(self, data: Mapping[str, Any], at: str) -> State:
        open_ones = [number for number, result in self.results.items() if result.verdict is None]
        if open_ones:
            raise NotNow(f"trial {open_ones[0]} has no verdict yet")
        return replace(self, closed=True, names=dict(data["names"]))

    def _signed(self, data: Mapping[str, Any], at: str) -> State:
        if not self.closed:
            raise NotNow("a session is signed once it is closed")
        return replace(self, signatures=((at, str(data["name"]), "signed"),))

    def _countersigned(self, data: Mapping[str, Any], at: str) -> State:
        if not self.signatures:
            raise NotNow("nobody has signed yet")
        return replace(self, signatures=(*self.signatures, (at, str(data["name"]), "countersigned")))


def fold(events: Iterable[Event]) -> State:
    """The state after all events. Raises NotNow."""
    state = State()
    for event in events:
        state = state.after(event.kind, event.data, event.at)
    return state


def next_trial(plan: Plan, state: State) -> Trial | None:
    """What comes next: a rollout that awaits its verdict, a planned trial, one that makes up for an invalid one, or
    None when all are valid or the extra trials are used up."""
    for result in state.results.values():
        if result.verdict is None:
            return result.trial
    for trial in plan.trials:
        if trial.number not in state.results:
            return trial
    extra = sum(result.trial.replaces > 0 for result in state.results.values())
    slots = {(trial.scene, trial.label): [] for trial in plan.trials}
    for result in state.results.values():
        slots[result.trial.scene, result.trial.label].append(result)
    open_slots = [tries for tries in slots.values() if all(_invalid(result) for result in tries)]
    if not open_slots or extra >= plan.extra_trials:
        return None
    tries = min(open_slots, key=lambda tries: (len(tries), tries[0].trial.number))
    first = tries[0].trial
    return Trial(max(state.results) + 1, first.scene, first.label, replaces=tries[-1].trial.number)


def counted(plan: Plan, state: State) -> dict[tuple[int, str], Result]:
    """(scene, label) → the first trial with a valid verdict, where there is one."""
    found: dict[tuple[int, str], Result] = {}
    for number in sorted(state.results):
        result = state.results[number]
        if result.verdict is not None and not _invalid(result):
            found.setdefault((result.trial.scene, result.trial.label), result)
    return found


def _invalid(result: Result) -> bool:
    return result.verdict is not None and result.verdict.kind == "invalid"


def seal_event(number: int, kind: Kind, data: Mapping[str, Any], previous: str, at: str | None = None) -> Event:
    """An event with its digest."""
    at = at or datetime.now(UTC).isoformat(timespec="milliseconds")
    content = {"number": number, "at": at, "kind": kind, "data": dict(data), "previous": previous}
    return Event(number, at, kind, dict(data), previous, digest(content))


def read_events(path: Path, plan: Plan) -> tuple[list[Event], int]:
    """The events of a log and the bytes of whole lines; a torn last line is left out.

    Raises UserError when a line was changed, lost or exchanged, or when the log belongs to another plan.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    whole = raw.rfind(b"\n") + 1
    events: list[Event] = []
    previous = plan.digest
    for index, line in enumerate(raw[:whole].splitlines()):
        try:
            content = json.loads(line)
            event = Event(**content)
            told = seal_event(index, event.kind, event.data, previous, event.at)
            if told != event or event.line() != line + b"\n" or event.kind not in KINDS:
                raise ValueError("its hash is another one")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{path} line {index + 1} is not what was written, or belongs to another plan "
                f"({' '.join(str(error).split())[:80]}); restore the file"
            ) from None
        events.append(event)
        previous = event.digest
    return events, whole


class EventLog:
    """The log of one session, open for writing by one process; safe to use from several threads."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        """Opens or begins the log. Raises UserError when another process holds it, or when it was tampered with."""
        path = folder / EVENTS_FILE
        is_new = not path.exists()
        self._lock = threading.RLock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"another process runs the session in {folder}; end it first") from None
            self._events, whole = read_events(path, plan)
            self.torn_bytes = os.fstat(self._file).st_size - whole
            """Bytes of a torn last line that were dropped."""
            if self.torn_bytes:
                os.ftruncate(self._file, whole)
            self._plan = plan
            try:
                self._state = fold(self._events)
            except (NotNow, KeyError, TypeError, ValueError) as error:
                raise UserError(f"{path} tells an impossible story ({error}); restore the file") from None
            if is_new:
                sync(folder)
        except BaseException:
            self.close()
            raise

    @property
    def state(self) -> State:
        """The fold of all events."""
        return self._state

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far."""
        with self._lock:
            return tuple(self._events)

    @property
    def head(self) -> str:
        """Digest of the last event, of the plan before the first."""
        with self._lock:
            return self._events[-1].digest if self._events else self._plan.digest

    def append(self, kind: Kind, /, **data: Any) -> State:
        """Writes one event and returns the state after it; it is on the disk when this returns. Raises NotNow."""
        with self._lock:
            event = seal_event(len(self._events), kind, data, self.head)
            state = self._state.after(event.kind, event.data, event.at)
            line = event.line()
            written = os.write(self._file, line)
            if written != len(line):  # a full disk: leave no half line behind that a later one would be glued to
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
                raise UserError("no space left for the session's log; make room and go on with --resume")
            os.fsync(self._file)
            self._events.append(event)
            self._state = state
            return state

    def close(self) -> None:
        """Lets another process write."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
