"""`pipeline generate`: demonstrations in Genesis, assembled into a LeRobotDataset at DIR/dataset."""

from __future__ import annotations

from collections.abc import Sequence

from robocoach.pipelines import single

ABOUT = "Demonstrations in Genesis, as a LeRobotDataset v3 with the data contract inside, at DIR/dataset."
SECTIONS = ("", "generate.demonstrations", "generate.recovery_share", "generate.workers")


def main(arguments: Sequence[str]) -> int:
    """Collects, assembles, and writes result.json."""
    given = single.read("generate", ABOUT, SECTIONS, [], arguments)
    from robocoach.pipelines import main_job, stages

    stages.check_settings(given.config)
    with single.opened(given) as job:
        job.planned = 3
        job.stage("check", {}, [], lambda bar: stages.check(given.config, given.folder, bar), lambda r: r["line"])
        source = main_job.demonstrations(job, root=given.folder / "dataset")
        single.write_result(given.folder, {"dataset": str(source.root), "digest": source.digest, "stages": job.seconds})
    return 0
