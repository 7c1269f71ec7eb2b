"""Runs campaigns for benchmarks and keeps what each attempt measured as committed JSON lines.

A campaign whose file ends with its held-out result is done and is not run again, so a comparison of hours can be
stopped and gone on with.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _coach_table import Budget

from robocoach.configs import load
from robocoach.pipelines.checks import processor

PIPELINE = [sys.executable, "-m", "robocoach.pipelines.cli"]
HERE = Path(__file__).parent
START = HERE / "coach_start.yaml"
DEMONSTRATIONS = 120
DEMONSTRATION_SEED = 900
"""Seed of the run that made the demonstrations, so that no compared campaign shares its scenes with them."""


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of one campaign; empty when it was never run."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def complete(rows: Sequence[dict[str, Any]]) -> bool:
    """The campaign came to its end: its last row has the held-out result."""
    return bool(rows) and rows[-1].get("heldout") is not None


def dataset(work: Path) -> Path:
    """The demonstrations that every campaign begins with, made once."""
    root = work / "demonstrations"
    if not (root / "result.json").is_file():
        given = ["--demonstrations", str(DEMONSTRATIONS), "--seed", str(DEMONSTRATION_SEED)]
        subprocess.run([*PIPELINE, "generate", "--task", "stack-cube", "--out", str(root), *given], check=True)
    return root / "dataset"


def campaign(name: str, seed: int, work: Path, data: Path, options: Sequence[str], rows_file: Path) -> None:
    """Runs or resumes one campaign and writes its rows. Raises CalledProcessError when it fails."""
    if complete(read(rows_file)):
        print(f"{rows_file.name}: done before", flush=True)
        return
    folder = work / rows_file.stem
    if (folder / "config.yaml").is_file():
        command = [*PIPELINE, "campaign", "resume", "--out", str(folder)]
    else:
        given = ["--config", str(START), "--data", str(data), "--seed", str(seed), "--out", str(folder)]
        command = [*PIPELINE, "campaign", *given, *options]
    subprocess.run(command, check=True)
    rows = rows_of(name, seed, json.loads((folder / "result.json").read_text()))
    rows[-1]["machine"] = processor().seen
    rows_file.parent.mkdir(parents=True, exist_ok=True)
    rows_file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def attempt_all(
    todo: Sequence[tuple[str, int, Sequence[str], Path]], work: Path, data: Path, told: Callable[[], object]
) -> list[str]:
    """Runs (name, seed, options, file of rows) one after the other and calls `told` after each.

    A campaign that fails does not end the others; returns the names of those that did.
    """
    failed = []
    for name, seed, options, rows_file in todo:
        try:
            campaign(name, seed, work, data, options, rows_file)
        except subprocess.CalledProcessError as error:
            print(
                f"{rows_file.stem}: failed with exit code {error.returncode}, see {work}", file=sys.stderr, flush=True
            )
            failed.append(rows_file.stem)
        told()
    return failed


def budget() -> Budget:
    """What `coach_start.yaml` gives each campaign."""
    given = load.read_yaml(START)
    return Budget(given["campaign"]["attempts"], 60 * given["train"]["minutes"])


def numbers(text: str) -> tuple[int, ...]:
    """`0,1,2` → seeds, each once. Raises argparse's error on anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: expected whole numbers with commas, such as 0,1,2")
    return tuple(dict.fromkeys(int(part) for part in parts))


def words(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Reads names with commas, each once, in the order of `known`; what is not known is refused."""

    def read_words(text: str) -> tuple[str, ...]:
        parts = {part.strip() for part in text.split(",")}
        if unknown := sorted(parts - set(known)):
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)!r}: choose from {', '.join(known)}")
        return tuple(name for name in known if name in parts)

    return read_words


def rows_of(name: str, seed: int, content: dict[str, Any]) -> list[dict[str, Any]]:
    """One row an attempt, and the held-out result of the winner in the last row."""
    rows = []
    for attempt in content["attempts"]:
        train, validation = attempt["train"], attempt["validation"]
        rows.append(
            {
                "coach": name,
                "seed": seed,
                "attempt": attempt["number"],
                "parent": attempt["parent"],
                "move": attempt["move"],
                "state": attempt["state"],
                "reverted": attempt["reverted"],
                "rule": attempt["rule"],
                "change": attempt["change"],
                "train": train and {"successes": train["successes"], "n": train["n"]},
                "validation": validation and {key: validation[key] for key in ("successes", "n", "stopped")},
                "training_s": (attempt["seconds"] or {}).get("training"),
                "overhead_s": (attempt["seconds"] or {}).get("overhead"),
                "seconds": attempt["seconds"],
            }
        )
    confirm = content["confirm"]
    rows[-1]["wall_s"] = content["wall_s"]
    rows[-1]["heldout"] = confirm and {key: confirm["heldout"][key] for key in ("successes", "n", "ci95")}
    rows[-1]["heldout_base"] = confirm and {key: confirm["heldout_base"][key] for key in ("successes", "n", "ci95")}
    rows[-1]["winner"] = confirm and confirm["winner"]
    return rows
