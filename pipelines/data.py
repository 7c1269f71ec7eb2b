"""`pipeline data check PATH`: what is wrong with a dataset, before anybody trains on it.

Exit code 0: no finding of severity error; 3: at least one; 2: the path holds nothing that can be checked.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robocoach.configs.errors import UserError
from robocoach.pipelines.options import Extra, parse, parser

if TYPE_CHECKING:
    from robocoach.datasets.check_findings import Group
    from robocoach.datasets.check_run import Checked

ABOUT = """Check a dataset before anybody trains on it: clock and rate, images, joints, commands, gripper, labels,
duplicates, statistics, contract. PATH is a LeRobotDataset (v2.0 to v3.0), a journal of episodes, a DROID-style
folder, or 1 kHz logs (.npz). Nothing at PATH is changed. Exit code 0: no errors found (warnings may be); 3: errors
found; 2: PATH cannot be checked."""
EXTRAS = [
    Extra("--out", "folder for the page with pictures (index.html) and findings.json (default: neither)", "DIR"),
    Extra("--json", "print the findings as JSON instead of the summary"),
]
ERRORS_FOUND = 3
USAGE = "usage: pipeline data check PATH [--out DIR] [--json]     `pipeline data check --help` says more\n"
MOST_LINES = 21
"""Lines of the summary, so that it fits one screen with the prompt around it."""


def main(arguments: Sequence[str]) -> int:
    """Runs the subcommand and returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if arguments[0] != "check":
        raise UserError(f"pipeline data: no subcommand {arguments[0]!r}; there is one, `pipeline data check PATH`")
    made, destinations = parser("data check", ABOUT, [], EXTRAS, bare=True)
    made.usage = "pipeline data check PATH [options]"
    made.add_argument("path", metavar="PATH", help="the dataset")
    return _check(parse(made, destinations, arguments[1:]).extras)


def _check(extras: dict[str, Any]) -> int:
    out = None if extras["out"] is None else _writable(Path(extras["out"]))
    from robocoach.datasets.check_read import open_dataset
    from robocoach.datasets.check_run import check_dataset

    began = time.monotonic()
    view = open_dataset(Path(extras["path"]))
    checked = check_dataset(view, _progress if sys.stderr.isatty() else None)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    described = {**checked.as_json(), "wall_s": round(time.monotonic() - began, 2)}
    page = None
    if out is not None:
        from robocoach.pipelines import data_report

        page = out / "index.html"
        page.write_text(data_report.page(view, checked))
        (out / "findings.json").write_text(json.dumps(described, indent=1) + "\n")
    if extras["json"]:
        print(json.dumps(described, indent=1))
    else:
        print("\n".join(summary(checked, shutil.get_terminal_size((110, 24)).columns, page)))
    return ERRORS_FOUND if checked.count("error") else 0


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder} ({error.strerror}); choose another with --out") from error
    return folder


def _progress(done: int, total: int) -> None:
    print(f"\rchecking episode {done} of {total} ", end="", file=sys.stderr, flush=True)


def summary(checked: Checked, columns: int, page: Path | None) -> list[str]:
    """The result on one screen: what it is, each kind of fault with one example and, for errors, the mend."""
    lasts = "" if checked.seconds is None else f", {checked.seconds / 60:.1f} min"
    solved = "" if checked.successes is None else f", {checked.successes} marked successful"
    lag = "" if checked.lag_s is None else f", commands lead by {checked.lag_s:.2f} s"
    lines = [
        f"{checked.path}",
        f"{checked.kind}: {checked.episodes} episodes, {checked.frames} frames{lasts}{solved}{lag}",
        "",
    ]
    groups = checked.groups()
    room = MOST_LINES - len(lines) - len(checked.skipped[:1]) - 3
    errors = sum(group.severity == "error" for group in groups)
    with_mend = len(groups) + errors <= room
    shown = groups[:room] if len(groups) <= room else groups[: room - 1]
    for group in shown:
        lines.append(_line(group, columns))
        if group.severity == "error" and with_mend:
            lines.append(_cut(f"{'':10}→ {group.fault.mend}", columns))
    if len(shown) < len(groups):
        lines.append(f"… and {len(groups) - len(shown)} more kinds of finding")
    if not groups:
        lines.append("nothing found")
    if checked.skipped:
        lines += ["", _cut(f"not checked: {'; '.join(checked.skipped)}", columns)]
    verdict = "errors found: mend them before training" if errors else "no errors"
    counts = ", ".join(f"{checked.count(severity)} {severity}s" for severity in ("error", "warning", "note"))
    where = f"; pictures and places in {page}" if page else "; add --out DIR for a page with pictures and places"
    return [*lines, "", f"{verdict} ({counts}){where}"]


def _line(group: Group, columns: int) -> str:
    """One kind of fault: severity, name, how many episodes, and the first example."""
    episodes = group.episodes
    where = f"{len(episodes)} episodes" if len(episodes) > 1 else f"episode {episodes[0]}" if episodes else "all"
    first = group.example
    place = "" if first.frame is None else f", frame {first.frame}"
    return _cut(
        f"{group.severity:<8}  {group.fault.name} [{where}{place if len(episodes) == 1 else ''}]: {first.what}", columns
    )


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else f"{text[: columns - 2].rstrip()} …"
