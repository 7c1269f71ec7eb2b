"""`pipeline deploy`: counted rollouts of a checkpoint through franky, on the twin or (dry run) on an arm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robocoach.pipelines import single
from robocoach.pipelines.options import Extra

ABOUT = """Rollouts of a checkpoint at 10 Hz through franky and the safety envelope, on the twin or on an arm that was
commissioned. The space bar stops the arm under control. Trials that count on an arm: pipeline session."""
EXTRAS = [
    Extra("--checkpoint", "checkpoint folder, such as RUN/attempts/0000/checkpoints/last", "DIR", required=True),
    Extra("--accept", "provenance fields of the checkpoint that may differ, comma separated", "FIELDS"),
]


def main(arguments: Sequence[str]) -> int:
    """Proves the twin with the demonstrator, runs the policy, and writes result.json."""
    given = single.read("deploy", ABOUT, ("", "deploy", "safety", "camera"), EXTRAS, arguments)
    from robocoach.pipelines import stages
    from robocoach.policies.checkpoint import verify

    checkpoint = Path(given.extras["checkpoint"])
    data = given.config.data.model_copy(update={"accept": given.extras["accept"] or ""})
    config = given.config.model_copy(update={"data": data})
    stages.check_settings(given.config)
    manifest = verify(checkpoint)
    with single.opened(given) as job:
        done = job.stage(
            "deploy",
            {"checkpoint": manifest, "config": config.model_dump()},
            [given.folder / "rollouts"],
            lambda bar: stages.deploy(config, checkpoint, given.folder / "rollouts", bar),
            lambda result: result["line"],
        )
        single.write_result(given.folder, {**done.result, "checkpoint": str(checkpoint)})
    return 0
