"""What the single verbs share: their options, their folder, and one result file with the configuration beside it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robocoach.pipelines.options import Extra, parse, parser

if TYPE_CHECKING:
    from robocoach.configs.models import Sim2RealConfig
    from robocoach.pipelines.main_job import Run

COMMON = (
    Extra("--out", "folder to write; the same command goes on where it was interrupted", "DIR", required=True),
    Extra("--profile", "settings for a machine: cpu or gpu (default: gpu where there is one)", "NAME"),
    Extra("--config", "YAML file of settings", "FILE"),
)


@dataclass(frozen=True)
class Given:
    """What a single verb was given."""

    verb: str
    arguments: Sequence[str]
    config: Sim2RealConfig
    folder: Path
    extras: dict[str, Any]


def read(verb: str, about: str, sections: Sequence[str], extras: Sequence[Extra], arguments: Sequence[str]) -> Given:
    """Options to a checked configuration. Raises UserError on the first fault."""
    parsed = parse(*parser(verb, about, sections, [*COMMON, *extras], bare=True), arguments)
    from robocoach.pipelines import runfolder

    folder = Path(parsed.extras["out"])
    file = Path(parsed.extras["config"]) if parsed.extras["config"] else None
    config = runfolder.settle(
        folder, parsed.values, parsed.names, resume=None, profile=parsed.extras["profile"], file=file
    )
    return Given(verb, arguments, config, folder, parsed.extras)


@contextmanager
def opened(given: Given) -> Generator[Run]:
    """The verb's folder, locked, as `main_job.opened` does it; the same command resumes."""
    from robocoach.pipelines import cli, main_job, stages
    from robocoach.pipelines.console import Console

    resume = f"{cli.command()} {given.verb} {shlex.join(given.arguments)}"
    with main_job.opened(given.config, given.folder, stages, Console(), resume) as job:
        job.planned = 1
        yield job


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Writes `result.json`, atomically, with the versions that made it."""
    from robocoach.configs.files import write_atomically
    from robocoach.pipelines.checks import versions

    write_atomically(folder / "result.json", json.dumps({**result, "versions": versions()}, indent=1) + "\n")
