"""The event log: nothing finished is lost to a kill, nothing written can be edited, undo is an event."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robocoach.configs.errors import UserError
from robocoach.robots.session import events
from robocoach.robots.session.events import EVENTS_FILE, EventLog, NotNow, counted, next_trial, read_events
from robocoach.robots.session.plan import Plan, Trial, order

PLAN = Plan(
    task="stack-cube",
    instruction="stack",
    success="it stands",
    stages=("reach", "grasp"),
    time_limit_s=12.0,
    robot="twin",
    serial="",
    operator="Ada",
    verdict="ask",
    contestants=(),
    labels=("a", "b"),
    commitment="",
    scenes=(),
    trials=order(2, ["a", "b"], 0),
    extra_trials=2,
    rules=(),
    reference=0.0,
    simulated={},
    settings={},
    accept=(),
    code_version="v1",
    made_at="",
)


def started(log, trial):
    log.append("trial_started", number=trial.number, scene=trial.scene, label=trial.label, replaces=trial.replaces)


def judged(log, number, kind, stage=0, reason=""):
    log.append("verdict", trial=number, kind=kind, stage=stage, reason=reason, by="operator")


def upcoming(log):
    trial = next_trial(PLAN, log.state)
    assert trial is not None
    return trial


def play(log, *kinds):
    """One trial a verdict, in the order of the session."""
    for kind in kinds:
        trial = upcoming(log)
        started(log, trial)
        log.append("trial_ended", trial=trial.number, rollout={"reason": "time limit"})
        judged(log, trial.number, kind)


@pytest.fixture
def log(tmp_path):
    opened = EventLog(tmp_path, PLAN)
    opened.append("opened", plan=PLAN.digest)
    yield opened
    opened.close()


def test_a_session_read_back_is_the_session_that_was_written(log, tmp_path):
    play(log, "success", "invalid")
    log.append("note", text="the lamp was moved")
    read, _ = read_events(tmp_path / EVENTS_FILE, PLAN)
    assert tuple(read) == log.events and events.fold(read) == log.state


def test_invalid_trials_are_run_again_at_the_end_and_stay(log):
    play(log, "invalid", "success", "failure", "success")
    extra = upcoming(log)
    first = PLAN.trials[0]
    assert (extra.number, extra.scene, extra.label, extra.replaces) == (5, first.scene, first.label, 1)
    play(log, "success")
    assert next_trial(PLAN, log.state) is None
    assert [result.verdict.kind for result in log.state.results.values()].count("invalid") == 1
    assert counted(PLAN, log.state)[first.scene, first.label].trial.number == 5


def test_extra_trials_end_at_their_number(log):
    play(log, "invalid", "success", "failure", "success", "invalid", "invalid")
    assert next_trial(PLAN, log.state) is None and len(counted(PLAN, log.state)) == 3


def test_undo_is_an_event_and_the_trial_is_asked_for_again(log):
    play(log, "success", "failure")
    log.append("undo", trial=2)
    assert upcoming(log).number == 2 and log.state.results[2].awaits_verdict
    judged(log, 2, "success")
    kinds = [event.kind for event in log.events]
    assert kinds.count("verdict") == 3 and kinds.count("undo") == 1 and log.state.undone == 1
    assert log.state.results[2].verdict.kind == "success"


def test_only_the_last_verdict_can_be_taken_back(log):
    play(log, "success", "failure")
    with pytest.raises(NotNow, match="last verdict"):
        log.append("undo", trial=1)


def test_a_verdict_once_valid_counts_before_the_trial_that_made_up_for_it(log):
    play(log, "success", "success", "success", "invalid", "failure")
    log.append("undo", trial=5)
    log.append("undo", trial=4)
    judged(log, 4, "success")
    judged(log, 5, "failure")
    slot = PLAN.trials[3]
    assert counted(PLAN, log.state)[slot.scene, slot.label].trial.number == 4


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("verdict", {"trial": 2, "kind": "success", "stage": 1, "reason": "", "by": "operator"}),
        ("trial_ended", {"trial": 2, "rollout": None}),
        ("trial_started", {"number": 1, "scene": 1, "label": "a", "replaces": 0}),
        ("undo", {"trial": 3}),
        ("signed", {"name": "Ada"}),
        ("countersigned", {"name": "Ada"}),
    ],
)
def test_events_out_of_order_are_refused_and_leave_no_line(log, tmp_path, kind, data):
    play(log, "success")
    before = (tmp_path / EVENTS_FILE).read_bytes()
    with pytest.raises(NotNow):
        log.append(kind, **data)
    assert (tmp_path / EVENTS_FILE).read_bytes() == before


def test_a_trial_that_never_ran_can_only_be_invalid(log):
    started(log, PLAN.trials[0])
    log.append("trial_ended", trial=1, rollout=None)
    with pytest.raises(NotNow, match="never ran"):
        judged(log, 1, "success")
    judged(log, 1, "invalid")


def test_after_closing_only_notes_and_signatures(log):
    play(log, "success")
    log.append("closed", names={"a": "a", "b": "b"})
    for kind, data in (("undo", {"trial": 1}), ("trial_started", {"number": 2}), ("closed", {"names": {}})):
        with pytest.raises(NotNow, match="closed"):
            log.append(kind, **data)
    log.append("signed", name="Ada")
    with pytest.raises(NotNow, match="signed"):
        log.append("signed", name="Eve")
    log.append("note", text="seen")
    log.append("countersigned", name="Bob")
    assert [(name, how) for _, name, how in log.state.signatures] == [("Ada", "signed"), ("Bob", "countersigned")]


def test_two_processes_cannot_write_one_session(log, tmp_path):
    with pytest.raises(UserError, match="another process"):
        EventLog(tmp_path, PLAN)


def test_a_log_of_another_plan_is_refused(log, tmp_path):
    with pytest.raises(UserError, match="another plan"):
        read_events(tmp_path / EVENTS_FILE, replace(PLAN, operator="Eve"))


def whole_log(folder):
    log = EventLog(folder, PLAN)
    log.append("opened", plan=PLAN.digest)
    play(log, "success", "invalid", "failure")
    log.append("undo", trial=3)
    judged(log, 3, "success", 2, "reason with ünïcode\nand a line break")
    log.close()
    return (folder / EVENTS_FILE).read_bytes()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return whole_log(folder)


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_kill_at_any_byte_keeps_every_whole_event(written, tmp_path_factory, data):
    cut = data.draw(st.integers(0, len(written)))
    folder = tmp_path_factory.mktemp("cut")
    (folder / EVENTS_FILE).write_bytes(written[:cut])
    log = EventLog(folder, PLAN)
    try:
        lines = written[:cut].count(b"\n")
        assert len(log.events) == lines and log.torn_bytes == cut - (written[:cut].rfind(b"\n") + 1)
        assert [event.line() for event in log.events] == written.splitlines(keepends=True)[:lines]
        log.append("note", text="goes on")
    finally:
        log.close()
    assert len(read_events(folder / EVENTS_FILE, PLAN)[0]) == lines + 1


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_changed_byte_in_a_whole_line_is_seen(written, tmp_path_factory, data):
    at = data.draw(st.integers(0, len(written) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != written[at]))
    folder = tmp_path_factory.mktemp("edit")
    (folder / EVENTS_FILE).write_bytes(written[:at] + bytes([byte]) + written[at + 1 :])
    with pytest.raises(UserError, match="is not what was written"):
        read_events(folder / EVENTS_FILE, PLAN)


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_lines_cannot_be_left_out_or_exchanged(written, tmp_path_factory, data):
    lines = written.splitlines(keepends=True)
    chosen = data.draw(st.lists(st.sampled_from(range(len(lines))), max_size=len(lines) + 2))
    folder = tmp_path_factory.mktemp("lines")
    (folder / EVENTS_FILE).write_bytes(b"".join(lines[index] for index in chosen))
    if chosen == list(range(len(chosen))):
        assert len(read_events(folder / EVENTS_FILE, PLAN)[0]) == len(chosen)
    else:
        with pytest.raises(UserError, match="is not what was written"):
            read_events(folder / EVENTS_FILE, PLAN)


def test_a_forged_but_well_chained_story_must_still_make_sense(tmp_path):
    forged = events.seal_event(0, "verdict", {"trial": 1, "kind": "success"}, PLAN.digest)
    (tmp_path / EVENTS_FILE).write_bytes(forged.line())
    with pytest.raises(UserError, match="impossible story"):
        EventLog(tmp_path, PLAN)


@given(st.lists(st.sampled_from(["success", "failure", "invalid", "undo"]), max_size=25))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_the_verdicts_every_slot_is_tried_and_extras_are_bounded(tmp_path_factory, verdicts):
    log = EventLog(tmp_path_factory.mktemp("any"), PLAN)
    try:
        for verdict in verdicts:
            if verdict == "undo":
                if log.state.judged:
                    log.append("undo", trial=log.state.judged[-1])
                continue
            trial = next_trial(PLAN, log.state)
            if trial is None:
                break
            if trial.number not in log.state.results:
                started(log, trial)
                log.append("trial_ended", trial=trial.number, rollout={})
            judged(log, trial.number, verdict)
        results = log.state.results
        assert sum(result.trial.replaces > 0 for result in results.values()) <= PLAN.extra_trials
        assert sorted(results) == list(range(1, len(results) + 1))
        if next_trial(PLAN, log.state) is None:
            assert {trial.number for trial in PLAN.trials} <= set(results)
    finally:
        log.close()


def test_an_event_is_one_line_of_json(written):
    for line in written.splitlines():
        assert {"number", "at", "kind", "data", "previous", "digest"} == set(json.loads(line))


def test_trials_of_the_plan_come_first_in_their_order(log):
    seen = []
    for _ in PLAN.trials:
        trial = upcoming(log)
        seen.append(trial)
        play(log, "failure")
    assert tuple(seen) == PLAN.trials and isinstance(seen[0], Trial)
