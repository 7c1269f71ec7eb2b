"""`pipeline tasks`: lists the tasks, one a line, with the instruction and the stages."""

from __future__ import annotations

from collections.abc import Sequence

from robocoach.pipelines.options import parse, parser


def main(arguments: Sequence[str]) -> int:
    """Prints the table and returns 0."""
    parse(*parser("tasks", "List the tasks.", [], [], bare=True), arguments)
    from robocoach.sim.tasks import get_task, task_names

    for name in task_names():
        task = get_task(name)
        print(f"{name:<24} {task.instruction}   stages: {', '.join(task.stages)}")
    return 0
