"""`pipeline session` as a user meets it: a plan first, one line for each mistake, nothing begun by it."""

import json

import pytest

from robocoach.pipelines import cli, session
from robocoach.robots.session.run import read_record

DEMO = ["session", "--policy", "demonstrator", "--verdict", "auto"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["session"], ["--checkpoint once or twice"]),
        (["session", "--policy", "expert", "--operator", "Ada"], ["only demonstrator is known"]),
        ([*DEMO, "--checkpoint", "x"], ["takes no --checkpoint"]),
        (["session", "--policy", "demonstrator"], ["add --operator NAME"]),
        ([*DEMO, "--blind"], ["--checkpoint twice"]),
        ([*DEMO, "--distractors", "2"], ["twin has the task's objects only"]),
        ([*DEMO, "--trials", "0"], ["--trials", "at least 1"]),
        ([*DEMO, "--sim-rate", "5/4"], ["--sim-rate 5/4"]),
        ([*DEMO, "--sim-rate", "1/4", "--sim-rate", "2/4"], ["given 2 times for 1"]),
        ([*DEMO, "--robot", "fr3"], ["--host"]),
        (["session", "--checkpoint", "nowhere", "--operator", "Ada"], ["no checkpoint at nowhere"]),
        (["session", "--resume"], ["holds no session"]),
        (["session", "--sign", "Ada"], ["holds no session"]),
        ([*DEMO, "--tirals", "3"], ["nearest valid one is --trials"]),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*arguments, "--out", "there"]) == 2
    printed = capsys.readouterr().err
    assert len(printed.splitlines()) == 1 and all(word in printed for word in words)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def planned(tmp_path, capsys):
    folder = tmp_path / "there"
    assert cli.main([*DEMO, "--trials", "2", "--plan-only", "--reference", "0.5", "--out", str(folder)]) == 0
    return folder, capsys.readouterr().out


def test_a_plan_alone_is_written_with_its_sheets_and_says_what_it_could_see(planned):
    folder, printed = planned
    assert "2 scenes, 2 trials" in printed and "no true rate from the reference of 50 %" in printed
    assert "session --resume --out" in printed
    assert {path.name for path in (folder / "placement").iterdir()} == {
        "scene-01.png",
        "scene-02.png",
        "true-scale.pdf",
    }
    record = read_record(folder)
    assert [event.kind for event in record.events] == ["opened"] and record.plan.settings["session.reference"] == 0.5


def test_a_session_is_begun_once_and_resumed_with_its_own_settings_only(planned, capsys):
    folder, _ = planned
    for arguments, words in (
        ([*DEMO, "--trials", "2"], "holds a session already"),
        (["session", "--resume", "--trials", "20"], "the plan is frozen (session.trials 2 there, 20 now)"),
        (["session", "--resume", "--checkpoint", "other"], "frozen with other checkpoints"),
        (["session", "--resume", "--operator", "Eve"], "the plan names operator"),
    ):
        assert cli.main([*arguments, "--out", str(folder)]) == 2
        assert words in capsys.readouterr().err


def test_an_edited_plan_is_not_run(planned, capsys):
    folder, _ = planned
    content = json.loads((folder / "plan.json").read_text())
    content["plan"]["extra_trials"] = 50
    (folder / "plan.json").write_text(json.dumps(content))
    assert cli.main(["session", "--resume", "--out", str(folder)]) == 2
    assert "changed after it was frozen" in capsys.readouterr().err


def test_a_session_is_signed_and_countersigned_from_the_command_line(planned, capsys):
    folder, _ = planned
    assert cli.main(["session", "--sign", " ", "--out", str(folder)]) == 2
    assert cli.main(["session", "--sign", "Ada Lovelace", "--out", str(folder)]) == 0
    assert cli.main(["session", "--sign", "Charles Babbage", "--out", str(folder)]) == 0
    signatures = json.loads((folder / "record.json").read_text())["signatures"]
    assert [(each["name"], each["kind"]) for each in signatures] == [
        ("Ada Lovelace", "signed"),
        ("Charles Babbage", "countersigned"),
    ]
    capsys.readouterr()
    assert cli.main(["session", "--resume", "--out", str(folder)]) == 0  # nothing to run: the files are made anew
    assert "session.html" in capsys.readouterr().out


def test_names_are_as_short_as_tells_checkpoints_apart(tmp_path):
    paths = [tmp_path / "night" / "attempts" / number / "checkpoints" / "last" for number in ("0000", "0001")]
    assert session._short_names(paths) == ["attempts/0000", "attempts/0001"]
    assert session._short_names([tmp_path / "best"]) == ["best"]
    steps = [tmp_path / "run" / "checkpoints" / name for name in ("last", "best")]
    assert session._short_names(steps) == ["last", "best"]
