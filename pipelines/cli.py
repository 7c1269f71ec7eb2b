"""The `pipeline` command: picks the verb and turns every way to end into one line and an exit code.

0 done, 2 the user's mistake (one line with the mend), 130 interrupted (the line that resumes), 1 a fault of the
program (one line with the log that holds the traceback). Imports nothing heavy.
"""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from robocoach.configs.errors import UserError

VERBS = {
    "sim2real": "the main job: demonstrate, record, finetune, evaluate, improve, confirm, deploy, report",
    "campaign": "attempts over night: train, measure, let the coach propose, keep the best",
    "generate": "demonstrations in Genesis, as a LeRobotDataset",
    "train": "finetune a policy on a dataset",
    "evaluate": "rollouts of a checkpoint in Genesis, counted",
    "deploy": "rollouts of a checkpoint through franky, on the twin or on an arm",
    "record": "teleoperated episodes on the twin or on an arm, as a LeRobotDataset",
    "replay": "an episode's actions once more, through the safety envelope",
    "camera": "the wrist picture beside what the data looked like",
    "session": "trials that count: planned, judged one by one, signed",
    "commission": "an arm's first day, check by check, before it may move",
    "data": "check a dataset before anybody trains on it",
    "lessons": "what past campaigns taught: list, show, drop",
    "tasks": "list the tasks",
    "doctor": "what this machine has, and the mend for each lack",
}

HELP = """usage: pipeline VERB [options]     `pipeline VERB --help` lists a verb's options

A policy for a Franka arm, from a task name: demonstrations in simulation, a finetuned vision-language-action
policy, measured rollouts, a coach's second attempt, and the better checkpoint deployed.

verbs:
{verbs}

the first command to try:
  pipeline sim2real --task stack-cube
"""


def help_text() -> str:
    """The text of `pipeline --help`."""
    return HELP.format(verbs="\n".join(f"  {verb:<10} {about}" for verb, about in VERBS.items()))


def command() -> str:
    """How the user called this program: the launcher's path when it came through it."""
    return os.environ.get("ROBOCOACH_COMMAND", "pipeline")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C where the state is saved; carries the command that goes on."""

    def __init__(self, resume: str) -> None:
        super().__init__(resume)
        self.resume = resume


class Crashed(Exception):
    """A fault of the program whose traceback is in a log already."""

    def __init__(self, error: BaseException, log: Path, resume: str) -> None:
        super().__init__(str(error))
        self.error, self.log, self.resume = error, log, resume


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's stop saves the state like Ctrl-C
    try:
        return _run(given)
    except UserError as error:
        return _say(str(error), error.exit_code)
    except Interrupted as error:
        return _say(f"interrupted; the state is saved, go on with: {error.resume}", 130)
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader went away, as in `pipeline tasks | head -1`
        return 0
    except Crashed as error:
        return _fault(error.error, error.log, f"; to go on: {error.resume}")
    except Exception as error:
        with tempfile.NamedTemporaryFile("w", prefix="robocoach-", suffix=".log", delete=False) as log:
            log.write(traceback.format_exc())
        return _fault(error, Path(log.name), "")


def _say(text: str, code: int) -> int:
    print(f"pipeline: {text}", file=sys.stderr)
    return code


def _fault(error: BaseException, log: Path, then: str) -> int:
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    if full or (isinstance(error, sqlite3.OperationalError) and "full" in str(error)):
        return _say(f"no space left on the disk, {getattr(error, 'filename', None) or log.parent}; make room{then}", 2)
    what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return _say(f"a fault of the program, {what}; traceback in {log}{then}", 1)


def _run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    verb = given[0]
    if verb not in VERBS:
        from robocoach.configs.fields import nearest

        raise UserError(f"no verb {verb!r}, the nearest is {nearest(verb, VERBS)}; choose from {', '.join(VERBS)}")
    module = import_module(f"robocoach.pipelines.{verb}")
    try:
        return module.main(given[1:])
    except SystemExit as stop:  # argparse after --help
        return int(stop.code or 0)


if __name__ == "__main__":
    sys.exit(main())
