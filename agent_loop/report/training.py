"""The part of the report on training: numbers with a trend word, and the decisive words."""

from __future__ import annotations

from pathlib import Path

from robocoach.agent_loop.evidence import Evidence
from robocoach.agent_loop.metrics import ACTION_ERROR, Series, read_metrics, shown
from robocoach.agent_loop.report.plain_text import fenced, sentence
from robocoach.agent_loop.trends import trend

SHOWN = ("loss", "flow_loss", "validation_loss", "validation_flow_loss", "grad_norm", "lr", "samples_per_s")
NAMES = {"validation_loss": "kept-apart loss", "validation_flow_loss": "kept-apart flow loss"}
REASON_MOST = 800
STOPPED = {
    "deadline": "its time was over",
    "steps": "it made all its steps",
    "nan": "a loss or gradient was not finite",
    "interrupted": "it was interrupted",
}


def numbers(evidence: Evidence, parent: Path | None) -> list[str]:
    """Trend, the main curves beside the parent's, and the error of each action dimension."""
    found = read_metrics(evidence.folder) if evidence.folder is not None else {}
    before = read_metrics(parent) if parent is not None and evidence.folder is not None else {}
    kept = found.get("validation_loss")
    if not evidence.curve and not found:
        return ["No training numbers were written."]
    word = trend(evidence.losses(), kept.values if kept else ())
    lines = [f"Trend: **{word.word}** ({word.why})."]
    steps, seconds = evidence.training.get("steps"), evidence.training.get("elapsed_s")
    if evidence.curve and (steps is None or seconds is None):
        steps, seconds = evidence.curve[-1].step, evidence.curve[-1].seconds
    if isinstance(steps, int | float) and isinstance(seconds, int | float):
        lines.append(f"{steps:.0f} steps in {seconds:.0f} s.")
    if (spike := evidence.spike()) is not None:
        lines.append(f"Largest loss after the first quarter: {spike:.1f} times the median of that time.")
    rows = [_row(NAMES.get(name, name), found[name], before.get(name)) for name in SHOWN if name in found]
    if rows:
        beside = " | parent's last |" if before else " |"
        lines += [
            "",
            f"| metric | first | middle | last | lowest (step){beside}",
            f"|{' --- |' * (6 if before else 5)}",
        ]
        lines += [row if before else row.rsplit("|", 2)[0] + "|" for row in rows]
    return lines + _dimensions(found, before)


def _row(name: str, series: Series, before: Series | None) -> str:
    values = series.values
    lowest = series.lowest
    low = f"{shown(lowest[1])} ({lowest[0]})" if lowest else "none"
    old = shown(before.last) if before is not None and before.last is not None else ""
    cells = [name, shown(values[0]), shown(values[len(values) // 2]), shown(values[-1]), low, old]
    return f"| {' | '.join(cells)} |"


def _dimensions(found: dict[str, Series], before: dict[str, Series]) -> list[str]:
    """Errors of sampled actions on the kept-apart frames by action, the largest first."""
    last: dict[str, float] = {}
    for name, series in found.items():
        if name.startswith(ACTION_ERROR) and series.last is not None:
            last[name.removeprefix(ACTION_ERROR)] = series.last
    if not last:
        return []
    told = []
    for name, value in sorted(last.items(), key=lambda item: -item[1]):
        old = before.get(ACTION_ERROR + name)
        was = f" (parent {shown(old.last, 3)})" if old is not None and old.last is not None else ""
        told.append(f"{name} {shown(value, 3)}{was}")
    return ["", f"Error of each action on kept-apart frames at the end [rad; gripper m]: {', '.join(told)}."]


def words(evidence: Evidence) -> list[str]:
    """Exit reason, the guard's and the preflight's words, decisive lines of the log, the last traceback."""
    status = str(evidence.training.get("status", ""))
    lines = [f"Training ended because {STOPPED.get(evidence.stopped, f'of: {evidence.stopped}')}."]
    if evidence.stopped == "unknown" or not evidence.stopped:
        lines = [f"Training ended with: {status or 'no word left'}."]
    if message := str(evidence.training.get("message", "")):
        lines.append(f"It said: {sentence(message, REASON_MOST)}")
    for reason in evidence.refusals:
        lines.append(f"The guard had refused: {sentence(reason, REASON_MOST)}")
    if evidence.preflight:
        lines.append(f"The preflight had failed: {sentence(evidence.preflight, REASON_MOST)}")
    if evidence.decisive:
        lines += ["", "Decisive lines of the log:", "", *fenced(evidence.decisive)]
    elif evidence.log_tail:
        lines += [
            "",
            "No line of the log tells of an error or a warning; its end:",
            "",
            *fenced(evidence.log_tail[-3:]),
        ]
    if evidence.traceback:
        lines += ["", "The last traceback:", "", *fenced(evidence.traceback)]
    return lines
