"""`pipeline evaluate`: counted rollouts of a checkpoint in Genesis, on seeds that no reported number rests on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robocoach.configs.errors import UserError
from robocoach.pipelines import single
from robocoach.pipelines.options import Extra

ABOUT = "Rollouts of a checkpoint in Genesis: success, n, 95 % interval and the stages reached."
SECTIONS = ("", "evaluate.max_ticks", "evaluate.videos", "evaluate.workers")
SPLITS = ("development", "train", "validation")
EXTRAS = [
    Extra("--checkpoint", "checkpoint folder, such as RUN/attempts/0000/checkpoints/last", "DIR", required=True),
    Extra("--split", f"seeds to use: {', '.join(SPLITS)} (default development)", "NAME"),
    Extra("--rollouts", "how many, 1 to 10000 (default 20)", "N"),
]


def main(arguments: Sequence[str]) -> int:
    """Runs the rollouts, resuming by itself, and writes result.json."""
    given = single.read("evaluate", ABOUT, SECTIONS, EXTRAS, arguments)
    split = given.extras["split"] or "development"
    if split == "heldout":
        raise UserError("--split heldout: held-out seeds run once, in sim2real's confirmation; take development")
    if split not in SPLITS:
        raise UserError(f"--split {split}: unknown split, choose from {', '.join(SPLITS)}")
    text = given.extras["rollouts"] or "20"
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise UserError(f"--rollouts: {text!r} is not valid, expected a whole number at least 1 and at most 10000")
    from robocoach.agent_loop.statistics import Rate
    from robocoach.pipelines import stages
    from robocoach.policies.checkpoint import verify

    checkpoint, count = Path(given.extras["checkpoint"]), int(text)
    stages.check_settings(given.config)
    manifest = verify(checkpoint)
    with single.opened(given) as job:
        done = job.stage(
            "evaluate",
            {"checkpoint": manifest, "split": split, "count": count, "config": given.config.model_dump()},
            [given.folder / "rollouts"],
            lambda bar: stages.rollouts(
                job.pool(),
                given.config,
                checkpoint,
                split,
                count,
                given.folder / "rollouts",
                bar,
                videos=given.config.evaluate.videos,
            ),
            lambda result: (
                f"{split} seeds {Rate(result['successes'], result['n'])}; through each stage {result['stages']}"
            ),
        )
        single.write_result(given.folder, {**done.result, "split": split, "checkpoint": str(checkpoint)})
    return 0
