"""What each channel of evidence is worth to the coach `rules`: all of them, without each, without all.

Same start, budget and demonstrations as `bench coach`, whose `rules` campaigns stand for all channels where they are
finished. Rows in benchmarks/results/ablation/<arm>-<seed>.jsonl; a campaign that came to its end is not run again.
Writes docs/coach-ablation.md after each, and prints JSON last.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _coach_table as table
from _campaigns import START, attempt_all, budget, complete, dataset, numbers, read

from robocoach.pipelines.checks import processor

HERE = Path(__file__).resolve().parent
ALL = "all"
ARMS = {
    ALL: "",
    "without-video": "video",
    "without-text": "text",
    "without-numbers": "numbers",
    "without-branching": "branching",
    "without-all": "video,text,numbers,branching",
}
COMMAND = "./scripts/bench ablation"


def rows_of_arm(arm: str, seed: int, results: Path) -> list[dict[str, Any]]:
    """The arm's rows; for all channels also those of `bench coach`, which ran the very same campaign."""
    rows = read(results / "ablation" / f"{arm}-{seed}.jsonl")
    if arm == ALL and not complete(rows):
        rows = read(results / "coach" / f"rules-{seed}.jsonl")
    return [{**row, "coach": arm} for row in rows]


def report(results: Path, docs: Path, seeds: Sequence[int]) -> dict[str, object]:
    """Writes the page from the rows that are there; returns what is printed."""
    arms, given, here = list(ARMS), budget(), processor().seen
    found = table.runs([row for arm in arms for seed in seeds for row in rows_of_arm(arm, seed, results)], arms)
    parts = [f"**{table.progress(found, arms, seeds)}.**"]
    if found:
        parts += [
            "The coach is `rules`. Branching off: the parent of an attempt is always the latest one.",
            table.by_coach(found, ALL),
            table.notes(found),
            "## By seed",
            table.by_seed(found, given, target=False),
        ]
    parts += ["## How", table.made_by(COMMAND, table.machines(found, here), START.read_text())]
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "coach-ablation.md").write_text(table.page("Without a channel: what the evidence is worth", parts))
    absent = table.missing(found, arms, seeds)
    total = len(arms) * len(seeds)
    campaigns = {"done": total - len(absent), "of": total, "missing": [f"{arm}-{seed}" for arm, seed in absent]}
    made = table.aggregate(found, given)
    for one in made.values():
        del one["attempts_to_reach_final_tpe"]  # tpe is no arm of this
    return {**made, "campaigns": campaigns, "machine": here, "command": COMMAND}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, reports, prints; 1 when a campaign failed."""
    parser = argparse.ArgumentParser(prog="bench ablation", description=__doc__)
    parser.add_argument("--seeds", type=numbers, default=(0,), metavar="LIST", help="default: 0")
    parser.add_argument("--work", type=Path, default=Path("runs/bench-coach"), help="folder of the campaigns")
    parser.add_argument("--report-only", action="store_true", help="run nothing, report what was kept")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the kept rows")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs", help="folder of the page")
    options = parser.parse_args(arguments)
    failed: list[str] = []
    if not options.report_only:
        data = dataset(options.work)
        todo = [
            (
                arm,
                seed,
                ["--coach", "rules", *(["--without", off] if off else [])],
                options.results / "ablation" / f"{arm}-{seed}.jsonl",
            )
            for seed in options.seeds
            for arm, off in ARMS.items()
            if not complete(rows_of_arm(arm, seed, options.results))
        ]
        failed = attempt_all(todo, options.work, data, lambda: report(options.results, options.docs, options.seeds))
    content = report(options.results, options.docs, options.seeds)
    print((options.docs / "coach-ablation.md").read_text())
    print(json.dumps({**content, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("bench ablation: stopped; the same command goes on")
