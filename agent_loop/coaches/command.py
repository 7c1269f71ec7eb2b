"""The coach that is a program: any coding agent's command line, run in a folder of its own, leaves a `proposal.json`.

It finds the evidence there as files (`llm_prompts/program.md` tells which) and runs with a clean environment, a time
limit and the wall that `sandbox.py` describes; on a machine without `bwrap` and `unshare` that is no isolation, and
the guard remains. Its proposal is read as data only: a regular file of the folder, small, of known fields.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robocoach.agent_loop.coaches import sandbox
from robocoach.agent_loop.coaches.briefing import report_text, tree_records, tunable_settings
from robocoach.agent_loop.coaches.client import one_line, usable_pictures, without_secrets
from robocoach.agent_loop.proposal import Proposal
from robocoach.agent_loop.tree import CoachFailed, View
from robocoach.configs.errors import UserError

TIMEOUT_S = 7_200.0
"""One session of a coding agent, as in the studied loops."""
PROPOSAL_FILE = "proposal.json"
LARGEST_PROPOSAL_BYTES = 65_536
LARGEST_METRICS_BYTES = 20_000_000
INSTRUCTIONS = Path(__file__).with_name("llm_prompts") / "program.md"


class Left(BaseModel):
    """What a program leaves in `proposal.json`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    parent: int = Field(ge=0, le=9_999)
    change: dict[str, bool | int | float | str] = Field(max_length=100)
    rationale: str = Field(min_length=1, max_length=4_000)
    start: Literal["parent", "base"] = "parent"


class CommandCoach:
    """`cmd:PROGRAM`, a program with its arguments. Raises UserError when it is made and there is no such program."""

    whole_budget = False

    def __init__(self, program: str, timeout_s: float = TIMEOUT_S) -> None:
        try:
            argv = shlex.split(program)
        except ValueError as error:
            raise UserError(f"cmd:{program} cannot be read ({error}); quote it as for a shell") from None
        if not argv:
            raise UserError("cmd: names no program; expected cmd:PROGRAM, such as cmd:'my-agent --print'")
        found = shutil.which(argv[0])
        if found is None:
            raise UserError(f"{argv[0]} is not on the PATH, or cannot be executed; install it, or name its full path")
        self.name = f"cmd:{Path(argv[0]).name}"
        self.timeout_s = timeout_s
        self._argv = [str(Path(found).absolute()), *argv[1:]]
        sandbox.environment(Path("/"))  # a missing variable shows now

    @property
    def isolation(self) -> sandbox.Wall:
        """What keeps the program in its folder on this machine; `none` is no isolation."""
        return sandbox.wall()

    def propose(self, view: View) -> Proposal | None:
        """Runs the program on the evidence. None when it leaves an empty change."""
        return self._run(view, None)

    def mend(self, view: View, refused: Proposal, reason: str) -> Proposal | None:
        """Runs it again, with the refused proposal and the reason in `refused.json`."""
        known = {
            "parent": refused.parent,
            "change": dict(refused.change),
            "rationale": refused.rationale,
            "start": refused.start,
        }
        return self._run(view, {"proposal": known, "reason": reason})

    def lesson(self, view: View, number: int) -> Mapping[str, Any] | None:
        """A program is not asked for lessons."""
        return None

    def _run(self, view: View, refused: Mapping[str, Any] | None) -> Proposal | None:
        folder = _fresh_folder(view.workspace)
        _write_evidence(folder, view, refused)
        # The program may move its folder and put another in its place; this descriptor stays with the one made here.
        door = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            ended = sandbox.run(
                self._argv, folder, _campaign(view), sandbox.environment(folder.absolute()), self.timeout_s
            )
            log = f"exit code {ended.code}\n--- stdout\n{ended.stdout}\n--- stderr\n{ended.stderr}\n"
            (view.workspace / f"{folder.name}.log").write_text(without_secrets(log))
            if ended.timed_out:
                raise CoachFailed(f"{self.name} was ended after {self.timeout_s:.0f} s: {one_line(ended.decisive)}")
            if ended.code:
                raise CoachFailed(f"{self.name} ended with code {ended.code}: {one_line(ended.decisive)}")
            left = _read_left(door, self.name)
        finally:
            os.close(door)
        if not left.change:
            return None
        return Proposal(
            parent=left.parent,
            coach=self.name,
            rule="program",
            rationale=left.rationale,
            change=left.change,
            evidence={"isolation": self.isolation},
            start=left.start,
        )


def _campaign(view: View) -> Path | None:
    """The campaign's folder, where results lie that no coach may read; None when the attempts lie elsewhere."""
    attempts = view.node(0).folder.parent
    return attempts.parent if attempts.name == "attempts" and attempts.parent.is_dir() else None


def _fresh_folder(workspace: Path) -> Path:
    """A new folder for each run: nothing that an earlier one left is trusted, or written over."""
    workspace.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = workspace / f"program-{number:02d}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            continue
        return folder


def _write_evidence(folder: Path, view: View, refused: Mapping[str, Any] | None) -> None:
    shown = sorted({view.incumbent, view.best, view.measured[-1].number if view.measured else 0})
    values = {
        "tree": tree_records(view),
        "settings": {str(number): tunable_settings(view, number) for number in shown},
        "schema": dict(view.schema),
        "lessons": [dict(one) for one in view.lessons],
        **({"refused": refused} if refused is not None else {}),
    }
    (folder / "tmp").mkdir()
    shutil.copyfile(INSTRUCTIONS, folder / "instructions.md")
    (folder / "task.md").write_text(view.task_document)
    (folder / "feedback.md").write_text(report_text(view))
    for name, value in values.items():
        (folder / f"{name}.json").write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    if "numbers" not in view.without:
        _copy_curves(folder / "metrics", view, shown)
    if "video" not in view.without and view.measured:
        latest = view.measured[-1].number
        for sheet in usable_pictures(view.pictures(latest)):
            (folder / "pictures").mkdir(exist_ok=True)
            shutil.copyfile(sheet, folder / "pictures" / f"attempt-{latest:04d}-{sheet.name}")


def _copy_curves(target: Path, view: View, numbers: list[int]) -> None:
    for number in numbers:
        curve = view.node(number).folder / "metrics.jsonl"
        if curve.is_file() and curve.stat().st_size <= LARGEST_METRICS_BYTES:
            target.mkdir(exist_ok=True)
            shutil.copyfile(curve, target / f"{number:04d}.jsonl")


def _read_left(door: int, name: str) -> Left:
    """The proposal in the folder behind this descriptor. Raises CoachFailed for anything but a small regular file."""
    try:
        # Neither a link out of the folder nor a pipe that would block is opened.
        file = os.open(PROPOSAL_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=door)
    except FileNotFoundError:
        raise CoachFailed(f"{name} left no {PROPOSAL_FILE}") from None
    except OSError as error:
        raise CoachFailed(
            f"{name} left a {PROPOSAL_FILE} that is not a file of its folder ({error.strerror})"
        ) from None
    try:
        known = os.fstat(file)
        if not stat.S_ISREG(known.st_mode) or known.st_nlink != 1:
            raise CoachFailed(f"{name} left a {PROPOSAL_FILE} that is not a file of its folder")
        with os.fdopen(file, "rb", closefd=False) as opened:
            text = opened.read(LARGEST_PROPOSAL_BYTES + 1)
    finally:
        os.close(file)
    if len(text) > LARGEST_PROPOSAL_BYTES:
        raise CoachFailed(f"{name} left a {PROPOSAL_FILE} of more than {LARGEST_PROPOSAL_BYTES} bytes")
    try:
        return Left.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the file"
        raise CoachFailed(f"{name} left a wrong {PROPOSAL_FILE}: {one_line(where, 80)}: {fault['msg']}") from None
