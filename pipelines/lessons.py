"""`pipeline lessons list|show ID|drop ID`: what past campaigns taught, as it is offered to the next one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from robocoach.configs.errors import UserError
from robocoach.pipelines.options import Extra, parse, parser

if TYPE_CHECKING:
    from robocoach.agent_loop.lessons import Lessons

USAGE = "usage: pipeline lessons list | show ID | drop ID     `pipeline lessons list --help` says more\n"
ABOUT = {
    "list": "List the lessons of past campaigns: id, status, attempts for and against, task, claim.",
    "show": "Print one lesson whole. ID may be the beginning of an id.",
    "drop": "Delete one lesson, so that no campaign is offered it again. ID may be the beginning of an id.",
}
WHERE = "Lessons lie in the folder ROBOCOACH_LESSONS, else in $XDG_DATA_HOME/robocoach/lessons."


def main(arguments: Sequence[str]) -> int:
    """Runs the subcommand and returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    verb = arguments[0]
    if verb not in ABOUT:
        raise UserError(f"pipeline lessons: no subcommand {verb!r}; choose from {', '.join(ABOUT)}")
    extras = [Extra("--json", "print JSON")] if verb != "drop" else []
    made, destinations = parser(f"lessons {verb}", f"{ABOUT[verb]} {WHERE}", [], extras, bare=True)
    made.usage = f"pipeline lessons {verb}{'' if verb == 'list' else ' ID'}"
    if verb != "list":
        made.add_argument("id", metavar="ID", help="id of a lesson, or its beginning")
    given = parse(made, destinations, arguments[1:]).extras
    from robocoach.agent_loop.lessons import Lessons

    store = Lessons()
    if verb == "list":
        return _list(store, as_json=given["json"])
    if verb == "drop":
        print(f"dropped: {store.drop(given['id']).claim}")
        return 0
    lesson = store.get(given["id"])
    if given["json"]:
        print(json.dumps(lesson.model_dump(mode="json"), indent=1, ensure_ascii=False))
        return 0
    print(f"{lesson.id}  {lesson.status}  {lesson.task}  {' '.join(lesson.operation)}".rstrip())
    for name in ("claim", "applies", "check", "instead"):
        print(f"{name + ':':<9} {getattr(lesson, name)}")
    for name in ("supports", "contradicts"):
        for seen in getattr(lesson, name):
            print(f"{name}: {seen.campaign} attempt {seen.attempt}  {seen.result}".rstrip())
    return 0


def _list(store: Lessons, *, as_json: bool) -> int:
    lessons = store.all()
    if as_json:
        print(json.dumps([lesson.model_dump(mode="json") for lesson in lessons], indent=1, ensure_ascii=False))
        return 0
    if not lessons:
        print(f"no lessons yet in {store.folder}; a campaign keeps what its attempts taught")
    for one in lessons:
        print(f"{one.id}  {one.status:<12} +{len(one.supports)} -{len(one.contradicts)}  {one.task:<18} {one.claim}")
    return 0
