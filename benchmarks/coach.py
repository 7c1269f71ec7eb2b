"""Compares the coaches: campaigns of twelve attempts from a deliberately poor start, same budget, same seeds.

Runs what is missing, seed by seed, so that a part of it compares all coaches; each campaign leaves one JSON line an
attempt in benchmarks/results/coach/<coach>-<seed>.jsonl, is not run again once it came to its end, and goes on where
it was stopped. Writes docs/coach-comparison.png and docs/coach-comparison.md after each, and prints JSON last.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import _coach_table as table
from _campaigns import START, attempt_all, budget, dataset, numbers, read, words
from _coach_figure import figure

from robocoach.pipelines.checks import processor

HERE = Path(__file__).resolve().parent
COACHES = ("rules", "tpe", "random", "one-shot", "none")
REFERENCE = "rules"
COMMAND = "./scripts/bench coach"


def report(results: Path, docs: Path, coaches: Sequence[str], seeds: Sequence[int]) -> dict[str, object]:
    """Writes figure and page from the rows that are there; returns what is printed."""
    rows = [row for coach in coaches for seed in seeds for row in read(results / f"{coach}-{seed}.jsonl")]
    found, given, here = table.runs(rows, coaches), budget(), processor().seen
    told = table.progress(found, coaches, seeds)
    docs.mkdir(parents=True, exist_ok=True)
    figure(found, given, told.partition(";")[0], docs / "coach-comparison.png")
    parts = [f"**{told}.**"]
    if found:
        parts += [
            "![Train-seed success and best validation success by attempt](coach-comparison.png)",
            "The line is the mean over seeds, the band reaches from the lowest to the highest. `none` and `one-shot` "
            "stand at the share of the budget that their one long training used.",
            table.by_coach(found, REFERENCE),
            table.notes(found),
            table.overhead_words(found),
            "## By seed",
            table.by_seed(found, given),
        ]
    parts += ["## How", table.made_by(COMMAND, table.machines(found, here), START.read_text())]
    (docs / "coach-comparison.md").write_text(table.page("Coaches at the same budget", parts))
    absent = table.missing(found, coaches, seeds)
    total = len(coaches) * len(seeds)
    campaigns = {"done": total - len(absent), "of": total, "missing": [f"{coach}-{seed}" for coach, seed in absent]}
    beside = {"campaigns": campaigns, "overhead_s": table.overheads(found), "machine": here, "command": COMMAND}
    return {**table.aggregate(found, given), **beside}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, reports, prints; 1 when a campaign failed."""
    parser = argparse.ArgumentParser(prog="bench coach", description=__doc__)
    parser.add_argument("--seeds", type=numbers, default=(0, 1, 2), metavar="LIST", help="default: 0,1,2")
    parser.add_argument("--coaches", type=words(COACHES), default=COACHES, metavar="LIST", help=",".join(COACHES))
    parser.add_argument("--work", type=Path, default=Path("runs/bench-coach"), help="folder of the campaigns")
    parser.add_argument("--report-only", action="store_true", help="run nothing, report what was kept")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "coach", help="folder of the kept rows")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs", help="folder of figure and page")
    options = parser.parse_args(arguments)
    failed: list[str] = []
    if not options.report_only:
        data = dataset(options.work)
        todo = [
            (coach, seed, ["--coach", coach], options.results / f"{coach}-{seed}.jsonl")
            for seed in options.seeds
            for coach in options.coaches
        ]

        def told() -> None:
            report(options.results, options.docs, options.coaches, options.seeds)

        failed = attempt_all(todo, options.work, data, told)
    content = report(options.results, options.docs, options.coaches, options.seeds)
    print((options.docs / "coach-comparison.md").read_text())
    print(json.dumps({**content, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bench coach: stopped; the same command goes on")
