"""Lessons: status from attempts alone, no layout, whole files, most relevant first, and the verb."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robocoach.agent_loop import lessons
from robocoach.agent_loop.lessons import MOST_OFFERED, Lessons, layout_words, lesson_from
from robocoach.configs.errors import UserError
from robocoach.pipelines import cli


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBOCOACH_LESSONS", str(tmp_path / "lessons"))
    return Lessons()


def raw(claim="looking again more often helps the grasp", **more):
    words = {"applies": "the hand closes beside the object", "check": "train both ways", "instead": "look less often"}
    return {"claim": claim, **words, "operation": ["grasp"], **more}


def seen(*attempts, campaign="night"):
    return [{"campaign": campaign, "attempt": number} for number in attempts]


@pytest.mark.parametrize(
    ("supports", "contradicts", "status"),
    [
        ([], [], "hypothesis"),
        ([1], [], "hypothesis"),
        ([1, 2], [], "supported"),
        ([1, 1], [], "hypothesis"),
        ([1, 2, 3], [4], "hypothesis"),
        ([1], [4], "hypothesis"),
        ([], [4], "contradicted"),
    ],
)
def test_status_follows_from_the_attempts(supports, contradicts, status):
    lesson = lesson_from(raw(supports=seen(*supports), contradicts=seen(*contradicts)))
    assert lesson.status == status


def test_a_told_status_is_not_believed():
    assert lesson_from(raw(status="supported")).status == "hypothesis"


def test_two_campaigns_with_the_same_claim_add_to_one_lesson():
    for campaign in ("monday", "tuesday", "tuesday"):
        kept = lessons.keep(raw(supports=[4]), "stack-cube", campaign)
    assert kept.status == "supported" and len(kept.supports) == 2
    assert len(Lessons().all()) == 1


def test_a_coach_cannot_call_up_attempts_of_another_campaign():
    kept = lessons.keep(raw(supports=seen(1, campaign="elsewhere"), task="other"), "stack-cube", "night")
    assert (kept.supports[0].campaign, kept.task) == ("night", "stack-cube")


@pytest.mark.parametrize("supports", ["many", [-1], [{"attempt": "x"}], 3.5, [None]])
def test_a_broken_account_is_one_line(supports):
    with pytest.raises(UserError, match="the lesson's supports"):
        lessons.keep(raw(supports=supports), "stack-cube", "night")


@pytest.mark.parametrize("wrong", [{"claim": ""}, {"claim": "a" * 401}, {"claim": None}, {"colour": "red"}])
def test_a_lesson_that_is_none_is_refused(wrong):
    with pytest.raises(UserError, match="the lesson's"):
        lesson_from(raw() | wrong)


LAYOUT = [
    "the cube is at x = 0.42",
    "aim at (0.4, 0.1)",
    "go to [0.40, -0.1, 0.02] first",
    "the cube lies 42 cm from the base",
    "on seed 10000003 it slips",
    "seeds 3 and 4 are hard",
    "y:-0.12 is out of reach",
    "put it 12 cm to the left",
    "the plate is located at 0.55",
    "x of 0,42 m",
    "z −0.02 is the table",
    "pixel 120 in the image",
    "grasp at 0.41, 0.12",
    "move the hand to ｘ＝０.４２",
    "x_m=0.4",
    "the robot's base is 0.6 m away",
]


@pytest.mark.parametrize("text", LAYOUT)
@pytest.mark.parametrize("field", ["claim", "applies", "check", "instead"])
def test_places_of_one_layout_are_refused_in_every_field(text, field):
    with pytest.raises(UserError, match="fits one layout only"):
        lesson_from(raw() | {field: text})


GENERAL = [
    "a lower train.executed_steps raises train-seed success",
    "data.oversample set to grasp=2,place=3 helps",
    "the jaws close 11 mm short of the object's centre along its long axis",
    "learning rate 2e-3 instead of 1e-3 after 2,400 steps",
    "6 of 10 rollouts on train seeds succeeded, 60 %",
    "open the hand to 80 mm before it goes down",
    "one extra look 4 steps before the jaws close",
]


@pytest.mark.parametrize("text", GENERAL)
def test_what_is_said_relative_to_objects_and_settings_is_kept(text):
    assert layout_words(text) is None


METRES = st.floats(-2, 2).map(lambda value: f"{value:.3f}")
WORDS = st.text(st.characters(categories=["Ll", "Zs"]), max_size=20)


@settings(max_examples=200, deadline=None)
@given(
    before=WORDS,
    after=WORDS,
    axis=st.sampled_from("xyzXYZ"),
    sign=st.sampled_from([" = ", "=", ": ", " is ", " at ", " of about "]),
    unit=st.sampled_from(["", " m", "m", " cm"]),
    a=METRES,
    b=METRES,
    form=st.sampled_from(["axis", "point", "row", "seed", "from"]),
)
def test_no_coordinate_gets_through_in_any_form(before, after, axis, sign, unit, a, b, form):
    text = {
        "axis": f"{axis}{sign}{a}{unit}",
        "point": f"({a}{unit}, {b}{unit})",
        "row": f"{a}, {b}, {a}",
        "seed": f"seed {abs(int(float(a) * 1000))}",
        "from": f"{a.lstrip('-')} m from the robot's base",
    }[form]
    with pytest.raises(UserError, match="fits one layout only"):
        lesson_from(raw(claim=f"{before} {text} {after}"))


def test_the_most_relevant_lessons_come_first_and_other_tasks_are_included():
    lessons.keep(raw("about pouring", operation=["pour"]), "pour-water", "a")
    lessons.keep(raw("about the grasp of a banana"), "banana-to-plate", "a")
    lessons.keep(raw("about stacking", operation=["place"]), "stack-cube", "a")
    for campaign in "ab":
        lessons.keep(raw("about the grasp, seen twice", supports=[1]), "banana-to-plate", campaign)
    told = [one["claim"] for one in lessons.offered("stack-cube", ("reach", "grasp", "place"))]
    assert told == [
        "about stacking",
        "about the grasp, seen twice",
        "about the grasp of a banana",
        "about pouring",
    ]


def test_no_more_lessons_are_offered_than_a_coach_should_read():
    for number in range(MOST_OFFERED + 3):
        lessons.keep(raw(f"claim of the kind {'abcdefghijklmnop'[number]}"), "stack-cube", "a")
    assert len(lessons.offered("stack-cube")) == MOST_OFFERED


def test_what_is_offered_is_json_with_its_status():
    lessons.keep(raw(), "stack-cube", "a")
    (one,) = lessons.offered("other-task")
    assert json.loads(json.dumps(one))["status"] == "hypothesis"


def test_campaigns_that_end_at_once_lose_no_attempt():
    def keep(number):
        lessons.keep(raw(supports=[number]), "stack-cube", "night")

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Lessons().all()[0].supports) == 12


def test_the_folder_follows_xdg_when_it_is_not_named(tmp_path, monkeypatch):
    monkeypatch.delenv("ROBOCOACH_LESSONS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    lessons.keep(raw(), "stack-cube", "a")
    assert len(list((tmp_path / "data" / "robocoach" / "lessons").glob("*.json"))) == 1


def test_a_damaged_file_is_named(store):
    lessons.keep(raw(), "stack-cube", "a")
    (path,) = store.folder.glob("*.json")
    path.write_text(path.read_text()[:40])
    with pytest.raises(UserError, match=path.name):
        store.all()


def test_the_verb_lists_shows_and_drops(capsys):
    kept = lessons.keep(raw(supports=[3]), "stack-cube", "night")
    assert cli.main(["lessons", "list"]) == 0
    listed = capsys.readouterr().out
    assert kept.id in listed and "hypothesis" in listed and "+1 -0" in listed
    assert cli.main(["lessons", "show", kept.id[:4]]) == 0
    shown = capsys.readouterr().out
    assert kept.instead in shown and "night attempt 3" in shown
    assert cli.main(["lessons", "drop", kept.id]) == 0
    assert Lessons().all() == ()


def test_the_verb_lists_as_json(capsys):
    kept = lessons.keep(raw(), "stack-cube", "night")
    assert cli.main(["lessons", "list", "--json"]) == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)] == [kept.id]


@pytest.mark.parametrize("words", [["show", "nothing"], ["drop", "x"], ["forget"], ["show"], ["list", "--jsn"]])
def test_a_mistake_is_one_line_and_code_2(words, capsys):
    assert cli.main(["lessons", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "lessons" in said
