"""Campaigns compared from their rows: one JSON object and Markdown tables. Pure: runs, reads and draws nothing.

A row is an attempt as `_campaigns.rows_of` writes it; the last row of a campaign has its held-out result. All have the
same budget and the same seeds, so that every difference is taken seed by seed. An attempt that failed counts as zero;
a validation that ended early has its own n and never counts as best.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robocoach.agent_loop.statistics import Rate

TARGET = "tpe"
"""Whose final validation success the others are to reach."""
WHOLE = {"none": 0, "one-shot": 1}
"""Coaches of one proposal, and the attempt that they spend the rest of the budget on."""
ROUNDING = 1e-9
FEW_SEEDS = 3
"""With so few seeds, or fewer, no winner is told."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Budget:
    """What each campaign is given."""

    attempts: int
    attempt_s: float
    """Training of one attempt [s]."""


@dataclass(frozen=True)
class Run:
    """One campaign that came to its end: a coach (or an ablation) on one seed."""

    name: str
    seed: int
    rows: tuple[Row, ...]
    """Its attempts, in their order; at least one."""

    def train(self) -> list[float]:
        """Train-seed success of each attempt; 0 for one that failed or was refused."""
        return [_share(row["train"]) for row in self.rows]

    def best_validation(self) -> list[float]:
        """Best validation success so far, by attempt; it never falls."""
        shares = [_share(row["validation"]) if _whole(row) else 0.0 for row in self.rows]
        return list(itertools.accumulate(shares, max))

    def best(self) -> Row | None:
        """The first attempt with the best whole validation; None when none was validated."""
        whole = [row for row in self.rows if _whole(row)]
        return max(whole, key=lambda row: _share(row["validation"]), default=None)

    def ends(self, budget: Budget) -> list[int]:
        """Attempts of the common budget that are used up at the end of each attempt.

        An attempt counts as one, also when it failed early; the one that had the rest of the budget (`one-shot`,
        `none`) counts as its training time says.
        """
        long = WHOLE.get(self.name)
        used = [1] * len(self.rows)
        if long is not None and long < len(self.rows):
            used[long] = max(1, round((self.rows[long].get("training_s") or 0.0) / budget.attempt_s))
        return [min(end, budget.attempts) for end in itertools.accumulate(used)]

    @property
    def heldout(self) -> Rate:
        """The winner on held-out seeds."""
        return _rate(self.rows[-1]["heldout"])


OVERHEADS = {
    "overhead": "coach, guard and store",
    "waited": "child process, data, model and last checkpoint",
    "preflight": "preflight: a short training and ten short rollouts",
}
"""What lies between the end of an attempt and the training of the next, by its name in the rows."""


def overheads(found: Mapping[str, Sequence[Run]]) -> dict[str, dict[str, float]]:
    """Median and longest of each part over all attempts that followed on another in one process [s]."""
    between = [row["seconds"] for own in found.values() for run in own for row in run.rows if _follows(row)]
    parts = {name: [seconds[name] for seconds in between if name in seconds] for name in OVERHEADS}
    return {
        name: {"median": round(statistics.median(values), 2), "longest": round(max(values), 2), "n": len(values)}
        for name, values in parts.items()
        if values
    }


def overhead_words(found: Mapping[str, Sequence[Run]]) -> str:
    """The same as a sentence; empty without a campaign."""
    told = overheads(found)
    if not told:
        return ""
    parts = [
        f"{OVERHEADS[name]} {one['median']:.2f} s (longest {one['longest']:.2f} s, n = {one['n']:.0f})"
        for name, one in told.items()
    ]
    return f"Between the end of one attempt and the training of the next, medians: {'; '.join(parts)}."


def _follows(row: Row) -> bool:
    return "overhead" in (row.get("seconds") or {})


def runs(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Run]]:
    """The finished campaigns by name, in the order given, then by seed; a name without one has no entry.

    Raises ValueError when an attempt is missing or there twice.
    """
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["coach"], row["seed"]), []).append(row)
    made: dict[str, list[Run]] = {}
    for name, seed in sorted((key for key in found if key[0] in names), key=lambda key: (names.index(key[0]), key[1])):
        own = sorted(found[name, seed], key=lambda row: row["attempt"])
        if [row["attempt"] for row in own] != list(range(len(own))):
            raise ValueError(f"{name}, seed {seed}: attempts {[row['attempt'] for row in own]}")
        if own[-1].get("heldout") is not None:
            made.setdefault(name, []).append(Run(name, seed, tuple(own)))
    return made


def missing(found: Mapping[str, Sequence[Run]], names: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, int]]:
    """Campaigns that are not finished."""
    there = {(run.name, run.seed) for own in found.values() for run in own}
    return [(name, seed) for seed in seeds for name in names if (name, seed) not in there]


def attempts_to_reach(best: Sequence[float], ends: Sequence[int], goal: float | None) -> int | None:
    """Attempts used up when the best so far was first at least the goal; None when never, or without a goal."""
    if goal is None:
        return None
    return next((end for end, share in zip(ends, best, strict=True) if share >= goal - ROUNDING), None)


def reached(found: Mapping[str, Sequence[Run]], budget: Budget) -> dict[str, list[int | None]]:
    """By coach and seed: attempts until tpe's final validation success on the same seed was reached."""
    final = {run.seed: run.best_validation()[-1] for run in found.get(TARGET, [])}
    return {
        name: [attempts_to_reach(run.best_validation(), run.ends(budget), final.get(run.seed)) for run in own]
        for name, own in found.items()
    }


def pooled(own: Sequence[Run]) -> Rate:
    """Held-out rollouts of all seeds together."""
    return Rate(sum(run.heldout.successes for run in own), sum(run.heldout.n for run in own))


def aggregate(found: Mapping[str, Sequence[Run]], budget: Budget) -> dict[str, dict[str, Any]]:
    """By coach: `best_validation` by attempt for each seed, `heldout` of all seeds, `attempts_to_reach_final_tpe`."""
    until = reached(found, budget)
    return {
        name: {
            "seeds": [run.seed for run in own],
            "best_validation": [_rounded(run.best_validation()) for run in own],
            "train": [_rounded(run.train()) for run in own],
            "attempts_used": [run.ends(budget) for run in own],
            "heldout": _counted(pooled(own)),
            "heldout_by_seed": [_counted(run.heldout) for run in own],
            "attempts_to_reach_final_tpe": until[name],
        }
        for name, own in found.items()
    }


@dataclass(frozen=True)
class Difference:
    """Two coaches on the same seeds: shares, the first minus the second."""

    mean: float
    interval: tuple[float, float] | None
    """95 % Student interval of the mean over seeds, cut at ±1; None for one seed."""
    seeds: int


def difference(
    one: Sequence[Run], other: Sequence[Run], value: Callable[[Run], float], confidence: float = 0.95
) -> Difference | None:
    """Paired over the seeds that both have; None when they share none."""
    known = {run.seed: value(run) for run in other}
    values = [value(run) - known[run.seed] for run in one if run.seed in known]
    n = len(values)
    if n == 0:
        return None
    mean = math.fsum(values) / n
    if n == 1:
        return Difference(mean, None, 1)
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * statistics.stdev(values) / math.sqrt(n)
    return Difference(mean, (max(-1.0, mean - half), min(1.0, mean + half)), n)


def final_validation(run: Run) -> float:
    """Best validation success at the end."""
    return run.best_validation()[-1]


def heldout_share(run: Run) -> float:
    """Held-out success of the winner."""
    return run.heldout.value


# --- Markdown --------------------------------------------------------------------------------------------------------


def by_coach(found: Mapping[str, Sequence[Run]], reference: str) -> str:
    """One line a coach: means over seeds, all held-out rollouts together, paired differences from the reference."""
    head = (
        "",
        "seeds",
        "best validation at the end, mean (range)",
        "held-out success, all seeds together",
        f"best validation − `{reference}`",
        f"held-out − `{reference}`",
    )
    lines = [_line(head), _line(["---"] * len(head))]
    for name, own in found.items():
        values = [final_validation(run) for run in own]
        spread = f"{_percent(statistics.fmean(values))} % ({_percent(min(values))}–{_percent(max(values))})"
        apart = [
            "–" if name == reference else _told(difference(own, found.get(reference, []), value))
            for value in (final_validation, heldout_share)
        ]
        lines.append(_line((f"`{name}`", str(len(own)), spread, _rate_told(pooled(own)), *apart)))
    return "\n".join(lines)


def by_seed(found: Mapping[str, Sequence[Run]], budget: Budget, *, target: bool = True) -> str:
    """One line a campaign. `target` adds the attempts until tpe's final validation success was reached."""
    head = ["", "seed", "attempts", "of them failed", "ended early", "first validation", "best validation (attempt)"]
    head += ["held-out success", "first attempt held-out", "minutes"]
    until = reached(found, budget)
    if target:
        head.append(f"attempts until `{TARGET}`'s final validation")
    lines = [_line(head), _line(["---"] * len(head))]
    for name, own in found.items():
        for run, end in zip(own, until[name], strict=True):
            last, best = run.rows[-1], run.best()
            base, wall = last.get("heldout_base"), last.get("wall_s")
            cells = [
                f"`{name}`",
                str(run.seed),
                str(len(run.rows)),
                str(sum(row.get("state") in ("failed", "rejected", "abandoned") for row in run.rows)),
                str(sum(bool(row["validation"] and row["validation"].get("stopped")) for row in run.rows)),
                _count(run.rows[0]["validation"]),
                "none" if best is None else f"{_count(best['validation'])} ({best['attempt']})",
                _rate_told(run.heldout),
                _count(base),
                "–" if wall is None else f"{wall / 60:.0f}",
            ]
            if target:
                cells.append("never" if end is None and TARGET in found else "–" if end is None else str(end))
            lines.append(_line(cells))
    return "\n".join(lines)


def notes(found: Mapping[str, Sequence[Run]]) -> str:
    """How the tables are to be read, and what so few seeds cannot say."""
    text = (
        "Best validation: of attempts whose validation ran to its end; a validation that ended early has its own n and "
        "never counts, an attempt that failed counts as zero. The best attempt was picked by these very rollouts, so "
        "its validation success is flattered; held-out success is not. Held-out intervals: 95 % Clopper–Pearson, over "
        "rollouts: they take the trained policies as given. Differences: in percentage points, mean over seeds of what "
        "both did on the same seed, with a 95 % Student interval over seeds."
    )
    seeds = max((len(own) for own in found.values()), default=0)
    if seeds == 1:
        return f"{text}\n\n**One seed: there is no interval over seeds, and this names no winner.**"
    if seeds <= FEW_SEEDS:
        return f"{text}\n\n**With {seeds} seeds these are differences and intervals: they name no winner.**"
    return text


def progress(found: Mapping[str, Sequence[Run]], names: Sequence[str], seeds: Sequence[int]) -> str:
    """`n of 15 campaigns`, and which are missing."""
    absent = missing(found, names, seeds)
    total = len(names) * len(seeds)
    told = f"{total - len(absent)} of {total} campaigns"
    if not absent:
        return told
    return f"{told}; missing: {', '.join(f'{name} on seed {seed}' for name, seed in absent)}"


def page(title: str, parts: Sequence[str]) -> str:
    """A Markdown page of these parts, empty ones left out."""
    return "\n\n".join([f"# {title}", *(part for part in parts if part)]) + "\n"


def made_by(command: str, machines: Sequence[str], settings: str) -> str:
    """How the numbers were made."""
    return (
        f"Made by `{command}` on {'; '.join(machines)}. Each campaign begins with this (`benchmarks/coach_start.yaml`):"
        f"\n\n```yaml\n{settings.strip()}\n```"
    )


def machines(found: Mapping[str, Sequence[Run]], here: str) -> list[str]:
    """The machines that the campaigns ran on; this one where that was not written down."""
    return sorted({run.rows[-1].get("machine") or here for own in found.values() for run in own}) or [here]


def _whole(row: Row) -> bool:
    return bool(row["validation"]) and not row["validation"].get("stopped", False)


def _share(counted: Mapping[str, Any] | None) -> float:
    return _rate(counted).value if counted else 0.0


def _rate(counted: Mapping[str, Any]) -> Rate:
    return Rate(counted["successes"], counted["n"])


def _counted(rate: Rate) -> dict[str, Any]:
    return {"successes": rate.successes, "n": rate.n, "ci95": _rounded(rate.ci95)}


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def _count(counted: Mapping[str, Any] | None) -> str:
    return f"{counted['successes']}/{counted['n']}" if counted else "–"


def _rate_told(rate: Rate) -> str:
    low, high = rate.ci95
    return f"{rate.successes}/{rate.n} = {_percent(rate.value)} % ({_percent(low)}–{_percent(high)})"


def _told(found: Difference | None) -> str:
    if found is None:
        return "no common seed"
    if found.interval is None:
        return f"{_points(found.mean)} (one seed, no interval)"
    low, high = (_points(end) for end in found.interval)
    return f"{_points(found.mean)} ({low} to {high}; {found.seeds} seeds)"


def _points(share: float) -> str:
    """Percentage points with their sign; a rounded zero has the plus."""
    return f"{round(100 * share, 1) + 0.0:+.1f}".replace("-", "−")
