"""The figure of the comparison of coaches: train-seed success and best validation success by attempt."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from _coach_table import WHOLE, Budget, Run

COLOURS = {"rules": "#0072b2", "tpe": "#d55e00", "random": "#009e73", "one-shot": "#cc79a7", "none": "#56565a"}
"""Told apart by readers who see fewer colours, too."""
MARKERS = {"rules": "o", "tpe": "s", "random": "^", "one-shot": "D", "none": "X"}
ASIDE = {"one-shot": 0.12, "none": 0.24}
"""Points that would cover each other at the end of the budget stand a little to the right [attempts]."""


def by_attempt(own: Sequence[Run], budget: Budget, *, validation: bool) -> tuple[list[float], list[list[float]]]:
    """Attempts of the budget where a value is known, and the seeds' values there.

    The best validation so far stands until the budget ends; train-seed success is known at the end of an attempt only.
    """
    where: list[float] = []
    values: list[list[float]] = []
    for at in range(1, budget.attempts + 1):
        known = []
        for run in own:
            shares = run.best_validation() if validation else run.train()
            for end, share in reversed(list(zip(run.ends(budget), shares, strict=True))):
                if end == at or (validation and end < at):
                    known.append(share)
                    break
        if len(known) == len(own) or (known and not validation):
            where.append(at)
            values.append(known)
    return where, values


def by_training(own: Sequence[Run], budget: Budget, *, validation: bool) -> tuple[list[float], list[list[float]]]:
    """For coaches of one long training: the share of the budget used (mean of the seeds), and the seeds' values there.

    One point a training, nothing in between.
    """
    where: list[float] = []
    values: list[list[float]] = []
    for index in range(max(len(run.rows) for run in own)):
        there = [run for run in own if index < len(run.rows)]
        where.append(statistics.fmean(run.ends(budget)[index] for run in there))
        values.append([(run.best_validation() if validation else run.train())[index] for run in there])
    return where, values


def figure(found: Mapping[str, Sequence[Run]], budget: Budget, note: str, path: Path) -> None:
    """Draws it. The line is the mean over seeds, the band reaches from the lowest to the highest."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    drawn = Figure(figsize=(11, 4.8), layout="constrained")
    axes = drawn.subplots(1, 2, sharey=True)
    for axis, validation in zip(axes, (False, True), strict=True):
        for index, (name, own) in enumerate(found.items()):
            long = name in WHOLE
            where, values = (by_training if long else by_attempt)(own, budget, validation=validation)
            colour, marker = COLOURS.get(name, f"C{index}"), MARKERS.get(name, "o")
            mean = [statistics.fmean(known) for known in values]
            low, high = [min(known) for known in values], [max(known) for known in values]
            label = f"{name} ({len(own)} seed{'s' if len(own) > 1 else ''})"
            steps = "steps-post" if validation else "default"
            style = {
                "drawstyle": steps,
                "color": colour,
                "marker": marker,
                "markersize": 5,
                "linewidth": 1.8,
                "label": label,
            }
            if long:
                where = [at + ASIDE[name] for at in where]
                error = [[max(0.0, m - end) for m, end in zip(mean, low, strict=True)]]
                error.append([max(0.0, end - m) for m, end in zip(mean, high, strict=True)])
                axis.errorbar(where, mean, yerr=error, capsize=4, linestyle=":", **style)
                continue
            axis.plot(where, mean, **style)
            axis.fill_between(where, low, high, step="post" if validation else None, color=colour, alpha=0.1, lw=0)
        axis.set_title("Best validation success so far" if validation else "Train-seed success of each attempt")
        axis.set_xlabel("attempts of the common budget")
        axis.set_xlim(0.5, budget.attempts + 0.6)
        axis.set_ylim(-0.03, 1.03)
        axis.set_xticks(range(1, budget.attempts + 1, -(-budget.attempts // 16)))
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("success (mean; band: lowest to highest seed)")
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        drawn.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    drawn.suptitle(note, fontsize=9, color="#56565a")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=110, metadata={"Software": None})
