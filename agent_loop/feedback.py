"""`feedback.md`: the evidence of one attempt as a coach, or a person, reads it. Train seeds only."""

from __future__ import annotations

import math

from robocoach.agent_loop.evidence import CurvePoint, Evidence
from robocoach.agent_loop.statistics import Rate

CURVE_ROWS = 8


def feedback(evidence: Evidence, attempt: int, instruction: str) -> str:
    """The report in Markdown: outcome, stage funnel, one line a rollout, curve, end of the log."""
    rate = Rate(evidence.successes, len(evidence.rollouts))
    lines = [
        f"# Attempt {attempt:04d}",
        "",
        f"Task: {instruction}. Stages in order: {', '.join(evidence.stages)}.",
        f"Train-seed rollouts: {rate}.",
        "",
        "| stage | rollouts that got through it | failures that ended before it |",
        "| --- | --- | --- |",
    ]
    reached, stuck = evidence.reached(), evidence.stuck()
    lines += [f"| {name} | {reached[name]} of {rate.n} | {stuck[name]} |" for name in evidence.stages]
    lines += ["", *_rollouts(evidence)]
    lines += ["", "## Training", "", f"Ended by: {evidence.stopped}."]
    if evidence.curve:
        lines += ["", "| step | loss | time [s] |", "| --- | --- | --- |"]
        lines += [f"| {p.step} | {_loss(p.loss)} | {p.seconds:.0f} |" for p in _thinned(evidence.curve)]
        drop = evidence.late_drop()
        if drop is not None:
            lines += ["", f"Mean loss, third to last quarter: {'−' if drop >= 0 else '+'}{abs(100 * drop):.1f} %."]
    settings = [
        f"`{key}` {value}" for key, value in evidence.settings.items() if key.startswith(("train.", "generate."))
    ]
    lines += ["", "## Configuration", "", ", ".join(settings) + "."]
    if evidence.log_tail:
        lines += ["", "## End of the log", "", "```", *evidence.log_tail[-20:], "```"]
    return "\n".join(lines) + "\n"


def _rollouts(evidence: Evidence) -> list[str]:
    """One row a rollout, with what the task's judge measured."""
    measures = list(dict.fromkeys(name for rollout in evidence.rollouts for name in rollout.measures))
    columns = ["seed", "verdict", "last stage", "ticks of 0.1 s", *measures]
    rows = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for rollout in evidence.rollouts:
        last = evidence.stages[rollout.stage - 1] if rollout.stage else "none"
        verdict = "success" if rollout.success else "failure"
        values = [f"{rollout.measures[name]:.3f}" if name in rollout.measures else "" for name in measures]
        rows.append(f"| {' | '.join([str(rollout.seed), verdict, last, str(rollout.ticks), *values])} |")
    return rows


def _loss(loss: float) -> str:
    return f"{loss:.4f}" if math.isfinite(loss) else "not finite"


def _thinned(curve: tuple[CurvePoint, ...]) -> list[CurvePoint]:
    if len(curve) <= CURVE_ROWS:
        return list(curve)
    return [curve[round(index * (len(curve) - 1) / (CURVE_ROWS - 1))] for index in range(CURVE_ROWS)]
