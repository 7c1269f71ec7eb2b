"""`pipeline train`: finetunes a policy on a dataset, with or without real episodes, until the deadline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robocoach.pipelines import single
from robocoach.pipelines.options import Extra

ABOUT = "Finetune a policy on a dataset of demonstrations; checkpoints go to DIR/checkpoints."
EXTRAS = [
    Extra("--data", "LeRobotDataset of demonstrations, such as RUN/dataset", "DIR", required=True),
    Extra("--init-from", "checkpoint whose weights to start from", "DIR"),
]


def main(arguments: Sequence[str]) -> int:
    """Trains, resuming by itself, and writes result.json."""
    given = single.read("train", ABOUT, ("seed", "data", "train"), EXTRAS, arguments)
    from robocoach.datasets.contract import Contract
    from robocoach.datasets.record import dataset_digest
    from robocoach.pipelines import main_job, stages
    from robocoach.pipelines.stages import Source

    root = Path(given.extras["data"])
    init_from = Path(given.extras["init_from"]) if given.extras["init_from"] else None
    stages.check_settings(given.config)
    digest = dataset_digest(root)
    Contract.load(root)  # refuses another project's dataset here, not after the libraries are loaded
    with single.opened(given) as job:
        job.planned = 1 + bool(given.config.data.real)
        real = main_job.real_data(job)
        datasets = [Source("sim", root, digest), *([real] if real else [])]
        done = job.stage(
            "finetune",
            {"datasets": datasets, "train": given.config.train.model_dump(), "from": str(init_from)},
            [given.folder / "train.json"],
            lambda bar: stages.finetune(given.config, datasets, given.folder, init_from, None, bar),
            lambda result: f"{result['line']}; {given.folder / result['checkpoint']}",
        )
        single.write_result(given.folder, {**done.result, "stages": job.seconds})
    return 0
