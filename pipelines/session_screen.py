"""The terminal screen of a session: plan, trial, checks, counts and wrist camera, and one key for each verdict.

The trials run in a thread of their own (`robots/session/run.py`), which asks `Desk` when to go and what the verdict
is; the screen answers through a queue, so nothing that is drawn ever holds up the arm. The space bar stops the arm
whatever else is on the screen.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.events import Resize
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, OptionList, RichLog, Static
from textual.widgets.option_list import Option

from robocoach.agent_loop.statistics import Rate
from robocoach.robots.session import placement
from robocoach.robots.session.events import Event, NotNow, Verdict, VerdictKind
from robocoach.robots.session.plan import FAILURE_REASONS, INVALID_REASONS, Plan, Start, Trial
from robocoach.robots.session.run import Answer, Check, Session, SessionRecord, run_session, settings_of

if TYPE_CHECKING:
    from robocoach.robots.camera_compare import Reference
    from robocoach.robots.rig import Rig
    from robocoach.robots.rollout import Rollout
    from robocoach.robots.thinker import ChunkPolicy
    from robocoach.sim.kinematics import Arm

MOVING = ("home", "countdown", "rollout")
PICTURE_S, LIVE_S = 0.4, 1.0
PICTURE_COLUMNS = 48
PICTURE_FROM_COLUMNS = 100
SWITCH_S = 0.001
"""Python's threads change this often while a session runs (5 ms by default): the loop waits less for the drawing."""
OWN_WORDS = "other: in your own words"
PHASES = {
    "home": "the arm drives to its start: hands off",
    "countdown": "the rollout begins: hands off",
    "rollout": "the policy drives; space stops the arm",
    "ready": "place the objects, then g",
    "verdict": "your verdict: s success, f failure, i invalid",
    "finish": "no trial is left: g closes the session, u takes the last verdict back",
    "undone": "taken back",
    "refused": "",
    "over": "",
}
LIVE_PAGE = """<!doctype html><meta charset="utf-8"><title>placement</title>
<body style="margin:0;background:#222"><img id="i" src="live.png" style="height:100vh;display:block;margin:auto">
<script>setInterval(() => { document.getElementById("i").src = "live.png?" + Date.now() }, 700)</script>
"""


class Told(Message):
    """Something happened on the engine's side."""

    def __init__(self, phase: str, trial: Trial | None, detail: str = "") -> None:
        super().__init__()
        self.phase, self.trial, self.detail = phase, trial, detail


class Over(Message):
    """The engine has ended."""


class Desk:
    """The operator as the engine sees one; its questions are answered from the screen."""

    def __init__(self, app: SessionScreen, countdown_s: float) -> None:
        self.countdown_s = countdown_s
        self._app = app
        self._answers: queue.SimpleQueue[Answer | Verdict] = queue.SimpleQueue()
        self._halt: str | None = None
        self._leaving = False
        self.session: Session | None = None
        self.rig: Rig | None = None
        self.phase = ""
        self.checks: tuple[Check, ...] = ()
        self.q: np.ndarray | None = None
        self.choices: tuple[VerdictKind, ...] = ()
        self.rollout: Rollout | None = None

    # Called by the engine, in its thread.

    def begin(self, session: Session, rig: Rig) -> None:
        """Keeps both for the screen."""
        self.session, self.rig = session, rig
        self.show("home", None)

    def show(self, phase: str, trial: Trial | None, detail: str = "") -> None:
        """Tells the screen."""
        if phase in PHASES and phase not in ("undone", "refused"):
            self.phase = phase
        self._app.post_message(Told(phase, trial, detail))

    def ready(self, trial: Trial, checks: tuple[Check, ...], q: np.ndarray | None) -> Answer | Verdict:
        """Waits for a key."""
        self.checks, self.q = checks, q
        return self._ask("ready", trial)

    def verdict(self, trial: Trial, rollout: Rollout, choices: tuple[VerdictKind, ...]) -> Verdict | Answer:
        """Waits for a key."""
        self.rollout, self.choices = rollout, choices
        return self._ask("verdict", trial)

    def finish(self, record: SessionRecord) -> Answer:
        """Waits for a key."""
        answer = self._ask("finish", None)
        return answer if isinstance(answer, Answer) else Answer.UNDO

    def halt(self) -> str | None:
        """What the space bar said."""
        return self._halt

    def _ask(self, phase: str, trial: Trial | None) -> Answer | Verdict:
        self._halt = None
        while not self._answers.empty():
            self._answers.get()
        if self._leaving:
            return Answer.QUIT
        self.show(phase, trial)
        return self._answers.get()

    # Called by the screen, in its thread.

    @property
    def asked(self) -> str:
        """`ready`, `verdict` or `finish` while an answer is awaited, else empty."""
        return self.phase if self.phase in ("ready", "verdict", "finish") else ""

    def answer(self, answer: Answer | Verdict) -> None:
        """Answers the question that is open."""
        if self.asked:
            self.phase = "answered"
            self._answers.put(answer)

    def stop_arm(self, reason: str) -> None:
        """Brings the arm to rest: the loop looks every tick, a move home is stopped from here."""
        at_home, self._halt = self.phase == "home", reason
        if at_home and self.rig is not None:
            threading.Thread(target=self.rig.arm.stop, name="stop", daemon=True).start()

    def leave(self, *, now: bool) -> None:
        """The session ends after the trial in progress, or `now` with the arm brought to rest."""
        self._leaving = True
        if now and self.phase in MOVING:
            self.stop_arm("the operator left")
        self._answers.put(Answer.QUIT)


class Choice(ModalScreen[str | None]):
    """A list whose lines are chosen by their digit; the last line may ask for one's own words."""

    BINDINGS: ClassVar = [Binding("escape", "dismiss(None)", "back")]

    def __init__(self, title: str, lines: tuple[str, ...], first: int = 1, own_words: bool = False) -> None:
        super().__init__()
        self._title, self._first = title, first
        self._lines = (*lines, OWN_WORDS) if own_words else lines

    def compose(self) -> ComposeResult:
        """Title, lines and a place for words."""
        with Vertical(classes="box"):
            yield Label(self._title)
            yield OptionList(*[Option(f"{self._first + i}  {line}") for i, line in enumerate(self._lines)])
            yield Input(placeholder="in your own words, then enter", classes="hidden")

    def on_mount(self) -> None:
        """The list takes the keys."""
        self.query_one(OptionList).focus()

    def on_key(self, event: Any) -> None:
        """A digit chooses its line."""
        if self.query_one(Input).has_focus or not (event.character or "").isdigit():
            return
        index = int(event.character) - self._first
        if 0 <= index < len(self._lines):
            event.stop()
            self._chosen(index)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter chooses the marked line."""
        self._chosen(event.option_index)

    def _chosen(self, index: int) -> None:
        if self._lines[index] == OWN_WORDS:
            field = self.query_one(Input)
            field.remove_class("hidden")
            field.focus()
        else:
            self.dismiss(str(index) if self._first == 0 else self._lines[index])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """One's own words."""
        if event.value.strip():
            self.dismiss(event.value.strip())


class Words(ModalScreen[str | None]):
    """One line of text."""

    BINDINGS: ClassVar = [Binding("escape", "dismiss(None)", "back")]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        """Title and field."""
        with Vertical(classes="box"):
            yield Label(self._title)
            yield Input()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Done; empty is nothing."""
        self.dismiss(event.value.strip() or None)


class SessionScreen(App[None]):
    """One session from its first trial to its signature."""

    CSS = """
    #top { height: 1fr; }
    #left { width: 1fr; padding: 0 1; overflow-y: auto; }
    #camera { width: 50; padding: 0 1; }
    #phase { text-style: bold; padding: 0 1; background: $primary-darken-2; color: $text; }
    #plan, #counts, #checks, #trial, #map { height: auto; margin-bottom: 1; }
    RichLog { height: 7; border-top: solid $primary; }
    Choice, Words { align: center middle; }
    .box { width: 70; height: auto; max-height: 80%; border: solid $accent; padding: 1 2; background: $surface; }
    .box OptionList { height: auto; }
    .hidden { display: none; }
    """
    BINDINGS: ClassVar = [
        Binding("space", "halt", "STOP the arm", priority=True),
        Binding("g", "go", "go"),
        Binding("s", "success", "success"),
        Binding("f", "failure", "failure"),
        Binding("i", "invalid", "invalid"),
        Binding("u", "undo", "undo"),
        Binding("n", "note", "note"),
        Binding("q", "leave", "leave"),
        Binding("ctrl+c", "leave_now", "stop and leave", priority=True, show=False),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self, rig: Rig, policies: Mapping[str, ChunkPolicy], folder: Path, reference: Reference | None = None
    ) -> None:
        super().__init__()
        from robocoach.robots.session.plan import read_plan

        self._rig, self._policies, self._folder, self._reference = rig, policies, folder, reference
        self.plan: Plan = read_plan(folder)
        _, _, settings = settings_of(self.plan)
        self.desk = Desk(self, settings.countdown_s)
        self.record: SessionRecord | None = None
        self.error: BaseException | None = None
        self.trial: Trial | None = None
        self._arm: Arm | None = None
        self._live_at = 0.0
        self._events_shown = 0
        self.thread = threading.Thread(target=self._engine, name="session", daemon=True)

    def compose(self) -> ComposeResult:
        """The layout."""
        yield Static(id="phase")
        with Horizontal(id="top"):
            with Vertical(id="left"):
                yield Static(id="plan")
                yield Static(id="trial")
                yield Static(id="checks")
                yield Static(id="counts")
                yield Static(id="map")
            yield Static(id="camera")
        yield RichLog(wrap=True, max_lines=200)
        yield Footer()

    def on_mount(self) -> None:
        """Starts the engine and the picture."""
        plan = self.plan
        who = " against ".join(plan.labels)
        self.query_one("#plan", Static).update(
            Text.assemble(
                (plan.task, "bold"),
                f"  {who}{' (codes)' if plan.blind else ''} on {plan.robot} {plan.serial}\n{plan.success}\n"
                f"{plan.time_limit_s:.0f} s a trial · operator {plan.operator} · plan {plan.digest[:16]}",
            )
        )
        self.set_interval(PICTURE_S, self._picture)
        self.thread.start()

    def on_resize(self, event: Resize) -> None:
        """A narrow terminal has no room for the picture."""
        self.query_one("#camera").display = event.size.width >= PICTURE_FROM_COLUMNS

    def _engine(self) -> None:
        try:
            self.record = run_session(self._rig, self._policies, self._folder, self.desk, reference=self._reference)
        except BaseException as error:
            self.error = error
        self.desk.phase = "over"
        self.post_message(Over())

    def on_told(self, told: Told) -> None:
        """Shows what the engine is doing."""
        if told.trial is not None:
            self.trial = told.trial
        phase = f"{PHASES.get(told.phase, told.phase)}  {told.detail}".strip()
        if told.phase in ("refused", "undone"):
            self.tell(f"{told.phase}: {told.detail}")
        else:
            self.query_one("#phase", Static).update(phase)
        self._show_trial()
        self._show_counts()
        self._show_events()

    def on_over(self, _: Over) -> None:
        """Asks for a signature when the session was closed, then ends."""
        self._show_counts()
        self._show_events()
        if self.record is None or not self.record.state.closed or self.record.state.signatures:
            self.exit()
            return
        names = self.record.state.names
        shown = ", ".join(f"{label} was {name}" for label, name in names.items() if label != name)
        title = "The session is closed. " + (f"{shown}. " if shown else "") + "Type your name to sign it (empty: later)"
        self.push_screen(Words(title), self._signed)

    def _signed(self, name: str | None) -> None:
        if name:
            with Session(self._folder) as session:
                session.sign(name)
                self.record = session.record()
        self.exit()

    # Keys.

    def action_halt(self) -> None:
        """The arm comes to rest now; typed words get their blank only while nothing moves."""
        if self.desk.phase in MOVING:
            self.desk.stop_arm("stopped by the operator")
            self.tell("STOP")
        elif isinstance(self.focused, Input):
            self.focused.insert_text_at_cursor(" ")

    def action_go(self) -> None:
        """Begins the rollout, looks again after a failed check, or closes the session."""
        if self.desk.asked in ("ready", "finish"):
            self.desk.answer(Answer.GO)

    def action_success(self) -> None:
        """The success criterion holds."""
        if self._may("success"):
            self.desk.answer(Verdict("success", len(self.plan.stages), "", "operator"))

    def action_failure(self) -> None:
        """Asks how far it got and why."""
        if not self._may("failure"):
            return
        stages = ("nothing", *self.plan.stages)

        def reason(stage: str | None) -> None:
            if stage is not None:
                self.push_screen(
                    Choice("Why did it fail?", FAILURE_REASONS, own_words=True),
                    lambda why: self.desk.answer(Verdict("failure", int(stage), why, "operator")) if why else None,
                )

        self.push_screen(Choice("How far did it get?", stages, first=0), reason)

    def action_invalid(self) -> None:
        """Asks why; before a rollout this gives the trial up."""
        if self.desk.asked == "ready" or self._may("invalid"):
            self.push_screen(
                Choice("Why does this trial not count?", INVALID_REASONS, own_words=True),
                lambda why: self.desk.answer(Verdict("invalid", 0, why, "operator")) if why else None,
            )

    def action_undo(self) -> None:
        """Takes the last verdict back."""
        if self.desk.asked:
            self.desk.answer(Answer.UNDO)

    def action_note(self) -> None:
        """A line into the log, while nothing moves."""
        if self.desk.phase in MOVING or self.desk.session is None:
            self.tell("notes can be written once the arm rests")
            return
        self.push_screen(Words("Note"), self._note)

    def _note(self, text: str | None) -> None:
        session = self.desk.session
        if text and session is not None:
            try:
                session.log.append("note", text=text)
            except NotNow as error:
                self.tell(str(error))
            self._show_events()

    def action_leave(self) -> None:
        """Ends after the trial in progress; everything is on the disk."""
        self.tell("leaving: the session goes on later with --resume")
        self.desk.leave(now=False)

    def action_leave_now(self) -> None:
        """Ends now, with the arm brought to rest."""
        self.desk.leave(now=True)

    def _may(self, kind: VerdictKind) -> bool:
        if self.desk.asked != "verdict":
            return False
        if kind not in self.desk.choices:
            ended = self.desk.rollout.reason if self.desk.rollout is not None else ""
            self.tell(f"refused: this rollout can only be {' or '.join(self.desk.choices)} ({ended})")
            return False
        return True

    # What is shown.

    def tell(self, text: str) -> None:
        """Writes a line into the log on the screen."""
        self.query_one(RichLog).write(text)

    def _show_trial(self) -> None:
        trial = self.trial
        if trial is None:
            return
        start = self.plan.start(trial)
        again = f", again for trial {trial.replaces}" if trial.replaces else ""
        text = Text.assemble(
            (f"trial {trial.number} of {len(self.plan.trials)}{again}", "bold"),
            f", scene {trial.scene}, ",
            (trial.label, "bold"),
        )
        if self.desk.phase == "verdict" and self.desk.rollout is not None:
            rollout = self.desk.rollout
            ended = f"\nended: {rollout.reason}, {rollout.ticks / rollout.rate_hz:.1f} s at {rollout.rate_hz:.2f} Hz"
            text.append(f"{ended}; {rollout.video and self._folder / 'rollouts' / rollout.video}")
        elif self.desk.phase == "ready":
            folder = self._folder / placement.FOLDER
            text.append(f"\nsheet {folder / f'scene-{trial.scene:02d}.png'}; live with outlines {folder / 'live.html'}")
        self.query_one("#trial", Static).update(text)
        self.query_one("#map", Static).update(_map(start))
        checks = Text()
        for check in self.desk.checks if self.desk.phase == "ready" else ():
            checks.append("✓ " if check.fine else "✗ ", "green" if check.fine else "bold red")
            checks.append(f"{check.name}: {check.detail}\n")
        if any(not check.fine for check in self.desk.checks) and self.desk.phase == "ready":
            checks.append("g drives home and looks again, i gives the trial up", "bold")
        self.query_one("#checks", Static).update(checks)

    def _show_counts(self) -> None:
        session = self.desk.session
        if session is None:
            return
        record = session.record()
        lines = []
        for label in self.plan.labels:
            kinds = [
                result.verdict.kind
                for (_, who), result in record.counted.items()
                if who == label and result.verdict is not None
            ]
            rate = Rate(kinds.count("success"), len(kinds))
            lines.append(f"{record.name(label)}  {rate if rate.n else 'no valid trial yet'}")
        verdicts = [result.verdict for result in record.state.results.values() if result.verdict is not None]
        invalid = sum(verdict.kind == "invalid" for verdict in verdicts)
        lines.append(f"{invalid} invalid, {record.state.undone} taken back")
        self.query_one("#counts", Static).update("\n".join(lines))

    def _show_events(self) -> None:
        session = self.desk.session
        if session is None:
            return
        known = session.log.events
        for event in known[self._events_shown :]:
            self.tell(_told(event))
        self._events_shown = len(known)

    def _picture(self) -> None:
        camera = self._rig.camera
        if self.desk.phase not in MOVING:  # a rollout asks for its own frames
            camera.trigger()
        frame = camera.latest()
        if frame is None:
            return
        image = frame.image
        if self.desk.phase == "ready" and self.trial is not None and self.desk.q is not None:
            image, hidden = self._with_outlines(image, self.plan.start(self.trial), self.desk.q)
            for told in hidden if time.monotonic() - self._live_at > 30 else ():
                self.tell(told)
            if time.monotonic() - self._live_at > LIVE_S:
                self._live_at = time.monotonic()
                threading.Thread(target=self._write_live, args=(image,), daemon=True).start()
        self.query_one("#camera", Static).update(half_blocks(image, PICTURE_COLUMNS))

    def _with_outlines(self, image: np.ndarray, start: Start, q: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
        from robocoach.sim import camera as mount
        from robocoach.sim.kinematics import Arm
        from robocoach.sim.tasks import get_task

        self._arm = self._arm or Arm()
        in_hand = None
        if self._rig.twin is not None:  # the twin's camera has the scene's mounting error, and nobody has to guess it
            scene = get_task(self.plan.task).sample_scene(start.seed)
            in_hand = mount.pose_in_hand(scene.camera_shift_m, scene.camera_turn_rad)
        info = getattr(self._rig.camera, "info", None)
        pose = placement.camera_to_base(self._arm, q, in_hand)
        return placement.overlay(image, start, pose, getattr(info, "intrinsics", None))

    def _write_live(self, image: np.ndarray) -> None:
        folder = self._folder / placement.FOLDER
        placement.write_png(image, folder / "live.png")
        if not (folder / "live.html").is_file():
            (folder / "live.html").write_text(LIVE_PAGE)


def _map(start: Start) -> Text:
    """The text map in the objects' colours, with the words beside."""
    colours = {placed.name[0].upper(): placed.colour for placed in start.objects}
    text = Text()
    for line in placement.text_map(start):
        for letter in line:
            text.append(letter, f"bold {colours[letter]}" if letter in colours else "grey50")
        text.append("\n")
    text.append("\n".join(placement.lines(start)))
    return text


def _told(event: Event) -> str:
    parts = []
    for key, value in event.data.items():
        if value and key not in ("rollout", "plan"):
            parts.append("; ".join(value) if isinstance(value, list) else f"{key} {value}")
    return f"{event.at[11:19]} {event.kind} {', '.join(parts)}"


def half_blocks(image: np.ndarray, columns: int) -> Text:
    """A uint8 (H, W, 3) picture as terminal text, two pixels a character."""
    from robocoach.datasets.video import resize

    small = resize(np.ascontiguousarray(image), columns)[: columns // 2 * 2]
    text = Text()
    for upper, lower in zip(small[0::2], small[1::2], strict=True):
        for (r, g, b), (low_r, low_g, low_b) in zip(upper.tolist(), lower.tolist(), strict=True):
            text.append("▀", f"#{r:02x}{g:02x}{b:02x} on #{low_r:02x}{low_g:02x}{low_b:02x}")
        text.append("\n")
    return text


def operate(
    rig: Rig, policies: Mapping[str, ChunkPolicy], folder: Path, *, reference: Reference | None = None
) -> SessionRecord:
    """Runs a session on the screen until it is closed or left; the arm is at rest when this returns.

    Raises what the session raised.
    """
    app = SessionScreen(rig, policies, folder, reference)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        app.run()
    finally:
        app.desk.leave(now=True)
        if app.thread.ident is not None:
            app.thread.join(timeout=30.0)
        sys.setswitchinterval(before)
    if app.error is not None:
        raise app.error
    if app.record is None:
        raise KeyboardInterrupt
    return app.record
