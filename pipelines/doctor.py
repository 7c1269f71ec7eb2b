"""`pipeline doctor`: what this machine has, and the mend for each lack. Exit code 2 when something needed lacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robocoach.pipelines import checks
from robocoach.pipelines.options import Extra, parse, parser

EXTRAS = [
    Extra("--host", "FCI address of an arm to look for", "IP"),
    Extra("--out", "folder whose disk is looked at (default: this one)", "DIR"),
]
NEED_GB = 4.0


def main(arguments: Sequence[str]) -> int:
    """Prints one line a check, with the mend below where something lacks."""
    extras = parse(
        *parser("doctor", "What this machine has, and the mend for each lack.", [], EXTRAS, bare=True), arguments
    ).extras
    looks = (
        checks.python,
        checks.processor,
        checks.memory,
        checks.gpu,
        checks.gl,
        checks.ffmpeg,
        checks.camera,
        lambda: checks.fci(extras["host"] or ""),
        lambda: checks.disk(Path(extras["out"] or "."), NEED_GB),
        checks.packages,
    )
    lacks = 0
    for look in looks:
        finding = look()
        mark = "ok  " if finding.fine else ("LACK" if finding.needed else "-   ")
        print(f"{mark} {finding.name:<9} {finding.seen}", flush=True)
        if not finding.fine and finding.mend:
            print(f"     {'':<9} {finding.mend}", flush=True)
        lacks += finding.needed and not finding.fine
    return 2 if lacks else 0
