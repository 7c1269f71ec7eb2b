"""A whole session on the twin: by the engine alone, on the terminal screen, and on after an abrupt end."""

import asyncio
import gc
import json
import time
from dataclasses import asdict, replace

import numpy as np
import pytest

from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.pipelines import session_report
from robocoach.pipelines.session_screen import Choice, SessionScreen, Words
from robocoach.robots.franka import ArmFault
from robocoach.robots.rig import Rig
from robocoach.robots.rollout import Rollout, run_rollout
from robocoach.robots.scripted import ScriptedPolicy
from robocoach.robots.session import plan as plans
from robocoach.robots.session import run
from robocoach.robots.session.events import Verdict
from robocoach.robots.session.plan import Contestant
from robocoach.robots.session.run import Answer, AutoOperator, choices, run_session
from robocoach.sim import provenance
from robocoach.sim.tasks import get_task

TASK = get_task("stack-cube")
SEEDS = range(60_000_000, 60_000_010)


class Still:
    """A policy that does nothing; it fails every trial at the first stage."""

    contract = provenance.contract("twin", None)

    def reset(self) -> None:
        """Nothing to forget."""

    def act(self, image, state, instruction):
        """Stays."""
        return np.tile(state, (8, 1))


@pytest.fixture
def rig(arm, twin) -> Rig:
    return Rig("twin", arm, twin.camera, twin, provenance.contract("twin", None))


def begin(folder, trials=2, names=("demonstrator",), blind=False, verdict="auto", extra_trials=2, **settings):
    """A frozen plan in a folder; a busy machine's lateness is not what is tested here."""
    loose = {
        "safety.max_frame_age_s": 1.0,
        "safety.max_state_age_s": 1.0,
        "safety.max_policy_wait_s": 2.0,
        "deploy.min_clock_ratio": 0.3,
        "session.countdown_s": 0.0,
        **settings,
    }
    config = load.build(loose)
    secret = plans.seal(names) if blind else None
    made = plans.make_plan(
        TASK,
        [Contestant(name, f"{index}" * 64, f"runs/{name}") for index, name in enumerate(names)],
        SEEDS[:trials],
        distractors=0,
        extra_trials=extra_trials,
        labels=sorted(secret.names) if secret else names,
        commitment=secret.commitment if secret else "",
        time_limit_s=config.deploy.max_ticks / 10,
        robot="twin",
        serial="",
        operator="Ada",
        verdict=verdict,
        reference=0.0,
        simulated={},
        settings=load.flatten(config.model_dump(), "settings"),
        accept=(),
        code_version="test",
        made_at="2026-01-01T00:00:00+00:00",
    )
    run.begin(folder, made, secret)
    return made


def test_a_session_runs_to_its_end_and_is_signed(rig, tmp_path):
    begin(tmp_path, trials=2)
    record = run_session(rig, {"demonstrator": ScriptedPolicy("stack-cube")}, tmp_path, AutoOperator())
    assert record.complete and record.state.closed
    assert [result.verdict.kind for result in record.counted.values() if result.verdict] == ["success", "success"]
    for result in record.state.results.values():
        video = record.video(result)
        assert video is not None and video.stat().st_size > 1000
    with run.Session(tmp_path) as session:
        session.sign("Ada Lovelace")
        session.sign("Charles Babbage")
    content = session_report.write(run.read_record(tmp_path))
    assert content["status"] == "signed" and content["checkpoints"][0]["successes"] == 2
    assert [(each["name"], each["kind"]) for each in content["signatures"]] == [
        ("Ada Lovelace", "signed"),
        ("Charles Babbage", "countersigned"),
    ]
    assert 9.5 < content["control"]["rate_hz"] < 10.5
    page = (tmp_path / session_report.PAGE).read_text()
    assert 'href="rollouts/trial-001-wrist.mp4"' in page and "2 of 2 valid trials" in page
    with pytest.raises(UserError, match="is there already"):
        run.begin(tmp_path, record.plan)


def test_an_abrupt_end_in_a_rollout_and_between_two_lines_of_the_log_loses_nothing(rig, tmp_path):
    made = begin(tmp_path, trials=3, extra_trials=1, **{"deploy.max_ticks": 10})
    deploy, safety, _ = run.settings_of(made)
    with run.Session(tmp_path) as session:  # killed after the first rollout's record, before its line in the log
        session.log.append("trial_started", **asdict(made.trials[0]))
        scene = TASK.sample_scene(made.scenes[0].seed)
        run_rollout(rig, TASK, Still(), scene, deploy, safety, tmp_path / "rollouts", "trial-001")
    record = run_session(rig, {"demonstrator": Still()}, tmp_path, LeavesAfter(1))
    first = record.state.results[1]
    assert first.rollout is not None and first.verdict is not None
    assert (first.verdict.kind, first.verdict.reason) == ("failure", "time limit")
    with run.Session(tmp_path) as session:  # killed in the middle of the second
        session.log.append("trial_started", **asdict(made.trials[1]))
    with (tmp_path / "events.jsonl").open("ab") as log:
        log.write(b'{"number": 99, "at": "20')
    record = run_session(rig, {"demonstrator": Still()}, tmp_path, AutoOperator())
    second = record.state.results[2]
    assert second.verdict == Verdict("invalid", 0, run.NOT_SEEN, "program")
    assert [result.trial.replaces for result in record.state.results.values()] == [0, 0, 0, 2]
    assert record.complete and record.state.closed
    assert any("torn" in str(event.data) for event in record.events)


def test_no_garbage_is_collected_in_a_rollout(rig, tmp_path):
    seen = []

    class Looks(Still):
        def act(self, image, state, instruction):
            seen.append(gc.isenabled())
            return super().act(image, state, instruction)

    begin(tmp_path, trials=1, **{"deploy.max_ticks": 10})
    run_session(rig, {"demonstrator": Looks()}, tmp_path, AutoOperator())
    assert seen and not any(seen) and gc.isenabled()


class LeavesAfter(AutoOperator):
    """Leaves after so many verdicts."""

    def __init__(self, verdicts: int) -> None:
        super().__init__()
        self.left = verdicts

    def ready(self, trial, checks, q):
        return super().ready(trial, checks, q) if self.left else Answer.QUIT

    def verdict(self, trial, rollout, choices):
        self.left -= 1
        return super().verdict(trial, rollout, choices)


def test_an_arm_that_does_not_come_home_is_invalid_and_an_automatic_session_gives_up(rig, tmp_path, monkeypatch):
    begin(tmp_path, trials=5)

    def stuck(self, scene):
        raise ArmFault("the brakes are locked")

    monkeypatch.setattr(Rig, "prepare", stuck)
    record = run_session(rig, {"demonstrator": ScriptedPolicy("stack-cube")}, tmp_path, AutoOperator())
    verdicts = [result.verdict for result in record.state.results.values()]
    assert [verdict.kind for verdict in verdicts if verdict] == ["invalid"] * 3
    assert verdicts[0] is not None and "brakes are locked" in verdicts[0].reason
    assert not record.state.closed and not (tmp_path / "rollouts").exists()


ROLLOUT = Rollout(
    seed=1,
    verdict="success",
    reason="success",
    success=True,
    fault="",
    fault_of="",
    stage=5,
    ticks=50,
    stage_ticks=(),
    measures={},
    clock_ratio=1.0,
    rate_hz=10.0,
    late_ticks=0,
    lateness_p50_ms=0.5,
    lateness_p99_ms=1.0,
    inference_ms=1.0,
    frame_age_p99_ms=50.0,
    clamps={},
    wall_s=6.0,
    log="",
    video="",
)


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({}, ("success", "failure", "invalid")),
        ({"fault": "stale frame", "fault_of": "equipment"}, ("invalid",)),
        ({"fault": "not finite", "fault_of": "policy"}, ("invalid", "failure")),
        ({"clock_ratio": 0.9}, ("invalid",)),
        ({"clock_ratio": None, "success": None, "verdict": "invalid"}, ("success", "failure", "invalid")),
    ],
)
def test_a_fault_narrows_what_the_verdict_may_be(change, allowed):
    assert choices(replace(ROLLOUT, **change), load.build({}).deploy) == allowed


def test_a_policy_that_crashes_makes_a_trial_invalid_and_the_page_says_what_that_hides(rig, tmp_path):
    class CrashesOnce(Still):
        """Raises in the first trial, does nothing in the others."""

        trials = 0

        def reset(self) -> None:
            self.trials += 1

        def act(self, image, state, instruction):
            if self.trials == 1:
                raise MemoryError("no memory left")
            return super().act(image, state, instruction)

    begin(tmp_path, trials=1, extra_trials=1, **{"deploy.max_ticks": 10})
    record = run_session(rig, {"demonstrator": CrashesOnce()}, tmp_path, AutoOperator())
    kinds = [result.verdict.kind for result in record.state.results.values() if result.verdict]
    assert kinds == ["invalid", "failure"]
    content = session_report.write(run.read_record(tmp_path))
    assert (content["checkpoints"][0]["successes"], content["checkpoints"][0]["n"]) == (0, 1)
    assert content["checkpoints"][0]["if_policy_faults_failed"]["n"] == 2
    assert "0 of 2" in (tmp_path / session_report.PAGE).read_text()


async def until(pilot, condition, what, timeout_s=40.0):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        await pilot.pause(0.05)


def test_a_blind_session_on_the_screen_key_by_key(rig, tmp_path):
    """Success, failure with stage and reason, an undo, an invalid trial with its extra one, a note, the signature."""
    made = begin(tmp_path, 1, ("expert", "sleeper"), True, "ask", 1, **{"deploy.max_ticks": 10})
    names = plans.read_seal(tmp_path, made).names
    policies = {"expert": ScriptedPolicy("stack-cube"), "sleeper": Still()}
    app = SessionScreen(rig, policies, tmp_path)

    async def play():
        async with app.run_test(size=(120, 44)) as pilot:

            def shown():
                return "\n".join(
                    str(widget.content) for widget in app.query("Static").results() if hasattr(widget, "content")
                )

            def begins(number):
                return app.desk.asked == "ready" and app.trial is not None and app.trial.number == number

            async def trial(number):
                await until(pilot, lambda: begins(number), f"trial {number}")
                await pilot.press("g")
                await until(pilot, lambda: app.desk.asked == "verdict", f"the end of trial {number}")

            live = tmp_path / "placement" / "live.png"
            await until(pilot, live.is_file, "the live picture with its outlines")
            await trial(1)
            await pilot.press("s")
            await until(pilot, lambda: app.desk.asked == "ready", "trial 2")
            assert "expert" not in shown() and "sleeper" not in shown()
            await pilot.press("u")
            await until(pilot, lambda: app.desk.asked == "verdict", "trial 1 again")
            await pilot.press("f")
            await until(pilot, lambda: isinstance(app.screen, Choice), "the stages")
            await pilot.press("2")
            await pilot.pause(0.2)
            await pilot.press("3")
            await trial(2)
            await pilot.press("n")
            await until(pilot, lambda: isinstance(app.screen, Words), "the note")
            await pilot.press(*"lamp", "space", *"off", "enter")
            await until(pilot, lambda: not isinstance(app.screen, Words), "the note's end")
            await pilot.press("i")
            await until(pilot, lambda: isinstance(app.screen, Choice), "the reasons")
            await pilot.press("2")
            await trial(3)
            await pilot.press("s")
            await until(pilot, lambda: app.desk.asked == "finish", "the end")
            assert "expert" not in shown() and "expert" not in (tmp_path / "events.jsonl").read_text()
            await pilot.press("g")
            await until(pilot, lambda: isinstance(app.screen, Words), "the signature")
            await pilot.press(*"Ada", "enter")
            await until(pilot, lambda: not app.is_running, "the screen's end", 5.0)

    asyncio.run(play())
    assert app.error is None
    record = run.read_record(tmp_path)
    results = record.state.results
    assert results[1].verdict == Verdict("failure", 2, plans.FAILURE_REASONS[2], "operator")
    assert results[2].verdict == Verdict("invalid", 0, plans.INVALID_REASONS[1], "operator")
    assert (results[3].trial.replaces, results[3].trial.label) == (2, results[2].trial.label)
    assert record.state.undone == 1 and record.state.names == names
    assert [name for _, name, _ in record.state.signatures] == ["Ada"]
    assert [text for _, text in record.state.notes] == ["lamp off"]
    assert session_report.summary(record)["pairs"]["n"] == 1


def test_a_blind_session_that_is_open_is_reported_under_its_codes(tmp_path):
    begin(tmp_path, 2, ("expert", "sleeper"), True, "ask")
    session_report.write(run.read_record(tmp_path))
    texts = [(tmp_path / name).read_text() for name in (session_report.RECORD, session_report.PAGE)]
    content = json.loads(texts[0])
    assert all(each["name"] is None and each["sha256"] is None for each in content["checkpoints"])
    assert not any("expert" in text or "sleeper" in text for text in texts)


def test_the_space_bar_stops_the_arm_in_a_rollout(rig, tmp_path):
    begin(tmp_path, 1, verdict="ask")
    app = SessionScreen(rig, {"demonstrator": ScriptedPolicy("stack-cube")}, tmp_path)

    async def play():
        async with app.run_test(size=(120, 44)) as pilot:
            await until(pilot, lambda: app.desk.asked == "ready", "the start")
            await pilot.press("g")
            await until(pilot, lambda: app.desk.phase == "rollout", "the rollout")
            await pilot.pause(2.0)
            await pilot.press("space")
            pressed = time.monotonic()
            await until(pilot, lambda: app.desk.asked == "verdict", "the end")
            assert time.monotonic() - pressed < 3.0
            first = rig.arm.state().values
            await pilot.pause(0.3)
            assert np.abs(rig.arm.state().values[:7] - first[:7]).max() < 2e-3
            assert app.desk.rollout is not None and "stopped by the operator" in app.desk.rollout.reason
            await pilot.press("q")
            await until(pilot, lambda: not app.is_running, "the screen's end", 10.0)

    asyncio.run(play())
    record = run.read_record(tmp_path)
    assert record.state.results[1].awaits_verdict and not record.state.closed


def test_the_space_bar_stops_the_way_home(rig, tmp_path):
    made = begin(tmp_path, 1, verdict="ask")
    away = np.array(made.scenes[0].start_q_rad)
    away[0] += 0.8
    rig.arm.go_to(away)
    app = SessionScreen(rig, {"demonstrator": ScriptedPolicy("stack-cube")}, tmp_path)

    def left():
        return np.abs(rig.twin.state().q - made.scenes[0].start_q_rad).max()

    async def play():
        async with app.run_test(size=(120, 44)) as pilot:
            await until(pilot, lambda: app.desk.phase == "home" and left() < 0.7, "the move home")
            await pilot.press("space")
            await until(pilot, lambda: app.desk.asked == "ready", "the stop")
            assert left() > 0.1
            assert [check.name for check in app.desk.checks if not check.fine] == ["start pose"]
            await pilot.press("g")
            await until(pilot, lambda: app.desk.asked == "ready" and left() < 0.01, "the second move home")
            assert all(check.fine for check in app.desk.checks)
            await pilot.press("q")
            await until(pilot, lambda: not app.is_running, "the screen's end", 10.0)

    asyncio.run(play())
    assert not run.read_record(tmp_path).state.results
