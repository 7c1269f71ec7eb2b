"""What the user sees: one line a fact, one progress bar a stage with rate and time left, libraries' chatter in the log.

On a terminal the bar is drawn by rich; elsewhere a plain line comes every `INTERVAL_S` seconds. Knows no stage.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

INTERVAL_S = 10.0


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


class Bar:
    """Progress of one stage. `update` may be called as often as one likes, from one thread."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._initial: float | None = None
        self._base: tuple[float, float] | None = None
        """When the first unit was done, and how many then: the time before it built a scene or imported."""
        self._shown_at = time.monotonic()
        self._rich: Any = None
        self._task: Any = None

    def update(
        self,
        done: float,
        total: float,
        unit: str = "",
        note: str = "",
        *,
        rate: str | None = None,
        left_s: float | None = None,
    ) -> None:
        """Shows `done` of `total` units, the rate, the time left, and a note.

        Rate and time left are taken since the first unit was done, unless the caller knows them better.
        """
        now = time.monotonic()
        if self._initial is None:
            self._initial = done
        if self._base is None and done > self._initial:
            self._base = (now, done)
        started, offset = self._base or (now, done)
        speed = (done - offset) / (now - started) if now > started else 0.0
        if left_s is None and speed > 0:
            left_s = (total - done) / speed
        left = "?" if left_s is None else clock(left_s)
        pace = rate or (_rate(speed, unit) if speed else "")
        parts = (f"{_short(done)}/{_short(total)} {unit}", pace, f"{left} left", note)
        text = "  ".join(part for part in parts if part)
        if self._console.is_terminal:
            self._draw(done, total, text)
        elif now - self._shown_at >= INTERVAL_S:
            self._shown_at = now
            self._console.line(f"  {self._title}: {text}")

    def _draw(self, done: float, total: float, text: str) -> None:
        if self._rich is None:
            from rich.console import Console as RichConsole
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._rich = Progress(
                TextColumn("  {task.fields[title]}"),
                BarColumn(bar_width=30),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
                console=RichConsole(file=self._console.stream, force_terminal=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._rich.start()
            self._task = self._rich.add_task(text, title=self._title, total=total)
        self._rich.update(self._task, completed=done, total=total, description=text)

    def close(self) -> None:
        """Takes the bar off the screen; the stage's result line replaces it."""
        if self._rich is not None:
            self._rich.stop()
            self._rich = None


def _short(number: float) -> str:
    return f"{number:.0f}" if float(number).is_integer() or number >= 100 else f"{number:.1f}"


def _rate(rate: float, unit: str) -> str:
    singular = unit.rstrip("s") or "step"
    if 0 < rate < 0.5:
        return f"{1 / rate:.1f} s a {singular}"
    return f"{rate:.1f} {unit}/s"


class Console:
    """Lines and bars on one stream, everything also in a log file when there is one."""

    def __init__(self) -> None:
        self.stream: TextIO = sys.stdout
        self.is_terminal = self.stream.isatty()
        self.log: Path | None = None

    def line(self, text: str) -> None:
        """Prints one line and keeps it in the log."""
        with suppress(BrokenPipeError):
            print(text, file=self.stream, flush=True)
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    @contextmanager
    def bar(self, title: str) -> Generator[Bar]:
        """A progress bar for the time of the block."""
        bar = Bar(self, title)
        try:
            yield bar
        finally:
            bar.close()

    @contextmanager
    def libraries_in(self, log: Path) -> Generator[None]:
        """Sends what libraries print (also from C and from child processes) to the log while the block runs.

        The console itself goes on writing to where standard output went before, and to the log too.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        kept_out, kept_err, outer_stream = os.dup(1), os.dup(2), self.stream
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.stream, self.log = os.fdopen(os.dup(1), "w", buffering=1), log
        os.dup2(target, 1)
        os.dup2(target, 2)
        os.close(target)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept_out, 1)
            os.dup2(kept_err, 2)
            os.close(kept_out)
            os.close(kept_err)
            with suppress(BrokenPipeError):
                self.stream.close()
            self.stream, self.log = outer_stream, None
