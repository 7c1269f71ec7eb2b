"""The coach that is a program: what it is given, what it may leave, and what it cannot reach."""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_views import HIDDEN, small_view
from table_workshop import FACTS, TableWorkshop

from robocoach.agent_loop.coaches import command, sandbox
from robocoach.agent_loop.coaches.command import CommandCoach
from robocoach.agent_loop.engine import Engine, Running
from robocoach.agent_loop.guard import guard
from robocoach.agent_loop.proposal import Proposal
from robocoach.agent_loop.store import Campaign
from robocoach.agent_loop.tree import CoachFailed, View
from robocoach.configs import load
from robocoach.configs.errors import UserError

GOOD = {"parent": 2, "change": {"train.learning_rate": 1e-4}, "rationale": "11 mm short", "start": "parent"}
LEAVE = f"printf '%s' '{json.dumps(GOOD)}' > proposal.json"
walled = pytest.mark.skipif(sandbox.wall() == "none", reason="neither bwrap nor unshare works on this machine")


@pytest.fixture
def view(tmp_path: Path) -> View:
    return small_view(tmp_path / "run")


def coach(tmp_path: Path, script: str, timeout_s: float = 20.0) -> CommandCoach:
    program = tmp_path / "bin" / "agent"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return CommandCoach(str(program), timeout_s)


def folder(view: View, number: int = 1) -> Path:
    return view.workspace / f"program-{number:02d}"


def runs(mark: str) -> bool:
    """Whether a process with this argument is alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().split(b"\0"))
        except OSError:
            continue
    return any(mark.encode() in words for words in found)


def ends(mark: str) -> bool:
    """Whether no process with this argument is left, at once or very soon."""
    until = time.monotonic() + 2.0
    while runs(mark):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


# --- what it is given ------------------------------------------------------------------------------------------------


def test_what_a_program_leaves_is_the_proposal(tmp_path: Path, view: View) -> None:
    proposal = coach(tmp_path, LEAVE).propose(view)
    assert proposal is not None
    assert (proposal.parent, dict(proposal.change), proposal.start) == (2, GOOD["change"], "parent")
    guard(proposal, view.nodes)


def test_a_program_finds_the_evidence_in_its_folder(tmp_path: Path, view: View) -> None:
    coach(tmp_path, LEAVE).propose(view)
    here = folder(view)
    assert (here / "task.md").read_text() == view.task_document
    assert (here / "feedback.md").read_text() == view.feedback
    assert json.loads((here / "schema.json").read_text()) == view.schema
    assert json.loads((here / "lessons.json").read_text()) == [dict(one) for one in view.lessons]
    tree = json.loads((here / "tree.json").read_text())
    assert (tree["best"], [one["attempt"] for one in tree["attempts"]]) == (2, [0, 1, 2])
    assert [path.name for path in (here / "pictures").iterdir()] == ["attempt-0002-7-sheet.png"]
    assert sorted(path.name for path in (here / "metrics").iterdir()) == ["0001.jsonl", "0002.jsonl"]


def test_channels_that_are_off_are_not_given(tmp_path: Path, view: View) -> None:
    coach(tmp_path, LEAVE).propose(replace(view, without=frozenset({"video", "numbers"})))
    assert not (folder(view) / "pictures").exists() and not (folder(view) / "metrics").exists()


def test_no_path_of_the_campaign_is_given(tmp_path: Path, view: View) -> None:
    coach(tmp_path, LEAVE).propose(view)
    texts = [path.read_text() for path in folder(view).rglob("*") if path.suffix in (".md", ".json", ".jsonl")]
    assert len(texts) > 6 and not [text for text in texts if str(tmp_path) in text or HIDDEN in text]


def test_the_environment_is_clean(tmp_path: Path, view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-programs")
    coach(tmp_path, f"env > env.txt; {LEAVE}").propose(view)
    found = dict(line.split("=", 1) for line in (folder(view) / "env.txt").read_text().splitlines())
    assert set(found) - {"PWD", "OLDPWD", "_", "SHLVL"} == {"PATH", "HOME", "TMPDIR", "LANG"}
    assert found["HOME"] == str(folder(view))


def test_named_variables_are_passed_on_and_kept_out_of_the_log(
    tmp_path: Path, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_API_KEY", "sk-agent-0123456789")
    monkeypatch.setenv(sandbox.COACH_ENV, "AGENT_API_KEY")
    coach(tmp_path, f'echo "key is $AGENT_API_KEY"; {LEAVE}').propose(view)
    log = (view.workspace / "program-01.log").read_text()
    assert "key is [secret]" in log


def test_a_named_variable_that_is_missing_is_told_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.COACH_ENV, "NOT_SET_ANYWHERE")
    with pytest.raises(UserError, match="NOT_SET_ANYWHERE"):
        coach(tmp_path, LEAVE)


def test_mending_runs_it_again_with_the_reason(tmp_path: Path, view: View) -> None:
    refused = Proposal(parent=2, coach="c", rule="r", rationale="", change={"train.ema": 9})
    coach(tmp_path, f"cp refused.json kept.json; {LEAVE}").mend(view, refused, "train.ema is above 1")
    kept = json.loads((folder(view) / "kept.json").read_text())
    assert kept["reason"] == "train.ema is above 1" and kept["proposal"]["change"] == {"train.ema": 9}


def test_what_an_earlier_run_left_is_not_taken(tmp_path: Path, view: View) -> None:
    coach(tmp_path, LEAVE).propose(view)
    with pytest.raises(CoachFailed, match=r"left no proposal\.json"):
        coach(tmp_path, "true").propose(view)


# --- what it may leave -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "left",
    [
        {**GOOD, "cost_usd": 0},
        {key: value for key, value in GOOD.items() if key != "parent"},
        {**GOOD, "parent": True},
        {**GOOD, "parent": "2"},
        {**GOOD, "start": "heldout"},
        {**GOOD, "rationale": "x" * 5_000},
        {**GOOD, "change": {"train.ema": [0.9]}},
        {**GOOD, "change": {"train.ema": float("nan")}},
    ],
)
def test_a_proposal_of_other_fields_is_refused(tmp_path: Path, view: View, left: dict) -> None:
    (tmp_path / "left.json").write_text(json.dumps(left))
    with pytest.raises(CoachFailed, match=r"wrong proposal\.json"):
        coach(tmp_path, f"cp {tmp_path}/left.json proposal.json").propose(view)


@pytest.mark.parametrize(
    "script",
    [
        "ln -s /etc/hostname proposal.json",
        f"{LEAVE}; mv proposal.json other; ln -s other proposal.json",
        f"{LEAVE}; ln proposal.json other",
        "mkfifo proposal.json",
        "mkdir proposal.json",
        "ln -s /dev/zero proposal.json",
        "head -c 70000 /dev/zero > proposal.json",
    ],
)
def test_only_a_small_regular_file_is_read(tmp_path: Path, view: View, script: str) -> None:
    with pytest.raises(CoachFailed, match=r"proposal\.json"):
        coach(tmp_path, script).propose(view)


@given(left=st.binary(max_size=300) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_whatever_is_left_fails_in_one_line(left: bytes | str) -> None:
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "proposal.json").write_bytes(left if isinstance(left, bytes) else left.encode())
        door = os.open(made, os.O_RDONLY)
        try:
            with pytest.raises(CoachFailed) as failed:
                command._read_left(door, "agent")
        finally:
            os.close(door)
    assert len(str(failed.value).splitlines()) == 1


def test_an_empty_change_is_no_proposal(tmp_path: Path, view: View) -> None:
    empty = json.dumps({**GOOD, "change": {}})
    assert coach(tmp_path, f"printf '%s' '{empty}' > proposal.json").propose(view) is None


# --- how it ends -----------------------------------------------------------------------------------------------------


def test_a_failing_program_is_told_with_its_decisive_line(tmp_path: Path, view: View) -> None:
    script = "echo starting >&2; echo 'Error: the model is gone' >&2; echo bye >&2; exit 3"
    with pytest.raises(CoachFailed, match="code 3: Error: the model is gone"):
        coach(tmp_path, script).propose(view)


def test_a_program_that_takes_too_long_is_ended_with_its_children(tmp_path: Path, view: View) -> None:
    with pytest.raises(CoachFailed, match="was ended after"):
        coach(tmp_path, "sleep 6123.25 & sleep 6123.25", timeout_s=0.5).propose(view)
    assert ends("6123.25")


def test_nothing_is_left_running_after_a_good_end(tmp_path: Path, view: View) -> None:
    assert coach(tmp_path, f"sleep 6124.25 & {LEAVE}").propose(view) is not None
    assert ends("6124.25")


@walled
def test_not_even_a_process_of_another_session_is_left_running(tmp_path: Path, view: View) -> None:
    assert coach(tmp_path, f"setsid sleep 6125.25 >/dev/null 2>&1 & {LEAVE}; sleep 0.1").propose(view) is not None
    assert ends("6125.25")


def test_a_chatty_program_neither_blocks_nor_fills_the_log(tmp_path: Path, view: View) -> None:
    assert coach(tmp_path, f"head -c 5000000 /dev/zero | tr '\\0' x; {LEAVE}").propose(view) is not None
    assert (view.workspace / "program-01.log").stat().st_size < 2 * sandbox.KEPT_BYTES + 1_000


# --- what it cannot reach --------------------------------------------------------------------------------------------


@walled
def test_validation_results_cannot_be_read(tmp_path: Path, view: View) -> None:
    score = tmp_path / "run" / "validation" / "0002" / "score.json"
    assert score.read_text() == HIDDEN
    assert coach(tmp_path, f"cat {score} > seen.txt 2>/dev/null; {LEAVE}").propose(view) is not None
    assert (folder(view) / "seen.txt").read_text() == ""


@walled
def test_a_campaign_with_an_odd_name_is_hidden_too(tmp_path: Path) -> None:
    view = small_view(tmp_path / "a night's  run")
    assert coach(tmp_path, f"ls ../../.. > seen.txt; {LEAVE}").propose(view) is not None
    assert (folder(view) / "seen.txt").read_text().split() == ["coach"]


@walled
def test_nothing_can_be_written_outside_of_the_folder(tmp_path: Path, view: View) -> None:
    script = f"touch {tmp_path}/out {view.workspace}/out /dev/shm/robocoach-out 2>/dev/null; touch in; {LEAVE}"
    assert coach(tmp_path, script).propose(view) is not None
    assert (folder(view) / "in").exists()
    assert not (tmp_path / "out").exists() and not (view.workspace / "out").exists()
    assert not Path("/dev/shm/robocoach-out").exists()


@walled
def test_the_wall_cannot_be_taken_down_from_inside(tmp_path: Path, view: View) -> None:
    score = tmp_path / "run" / "validation" / "0002" / "score.json"
    tries = [
        "mount -o remount,bind,rw /",
        f"umount -l {tmp_path}/run",
        f"unshare -rm sh -c 'mount -o remount,bind,rw / ; umount -l {tmp_path}/run; cat {score}; touch {tmp_path}/out'",
        f"cat /proc/{os.getpid()}/root{score}",
        f"touch /proc/{os.getpid()}/root{tmp_path}/out",
        f"touch {tmp_path}/out",
    ]
    script = "\n".join(f"{one} >> seen.txt 2>/dev/null" for one in tries)
    assert coach(tmp_path, f"{script}\n{LEAVE}").propose(view) is not None
    assert HIDDEN not in (folder(view) / "seen.txt").read_text()
    assert not (tmp_path / "out").exists()


def test_without_a_wall_the_program_runs_and_the_proposal_says_so(
    tmp_path: Path, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "wall", lambda: "none")
    asked = coach(tmp_path, f"sleep 6126.25 & {LEAVE}")
    proposal = asked.propose(view)
    assert proposal is not None and proposal.evidence["isolation"] == "none" == asked.isolation
    assert ends("6126.25")


def test_a_program_leads_a_campaign(tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = load.build(
        {
            "train.minutes": 1.0,
            "evaluate.train_rollouts": 4,
            "evaluate.validation_rollouts": 4,
            "evaluate.heldout_rollouts": 4,
            "campaign.attempts": 2,
            "campaign.target": 1.0,
            "campaign.lessons": False,
        }
    )
    left = json.dumps({**GOOD, "parent": 0})
    run.mkdir()
    store = Campaign(run)
    asked = coach(tmp_path, f"printf '%s' '{left}' > proposal.json")
    Engine(Running(run, config, FACTS, asked, TableWorkshop(run), store, lambda text: None)).run()
    first, second = store.attempts()
    assert (second.state, second.parent, second.coach) == ("done", first.number, "cmd:agent")
    assert second.change == {"train.learning_rate": [config.train.learning_rate, 1e-4]}


# --- before anything runs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "told"),
    [("no-such-agent --print", "no-such-agent"), ("'unclosed", "quote"), ("  ", "names no program")],
)
def test_a_program_that_cannot_run_is_told_early(program: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        CommandCoach(program)


def test_a_file_that_is_not_executable_is_told_early(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("#!/bin/sh\n")
    with pytest.raises(UserError, match="executed"):
        CommandCoach(str(tmp_path / "agent"))


def test_arguments_are_passed_on(tmp_path: Path, view: View) -> None:
    coach(tmp_path, f'printf "%s|" "$@" > args.txt; {LEAVE}')
    CommandCoach(f"{tmp_path}/bin/agent -p 'read task.md'", 20.0).propose(view)
    assert (folder(view) / "args.txt").read_text() == "-p|read task.md|"
