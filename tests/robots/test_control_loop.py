"""The loop's answer to what goes wrong, on the twin and through the real client."""

import json
import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.configs.models import DeployConfig, SafetyConfig
from robocoach.robots.deploy import deploy
from robocoach.robots.franka import FrankaArm
from robocoach.robots.loop import ControlLoop, Log, Run
from robocoach.robots.rig import Rig
from robocoach.robots.rollout import judge
from robocoach.robots.safety import Fault
from robocoach.robots.scripted import ScriptedPolicy
from robocoach.robots.twin import Twin
from robocoach.sim import provenance

SAFETY = SafetyConfig(max_frame_age_s=1.0)
"""A busy machine may render late; where the frame's age is the subject, the product's own setting is used."""


class Stay:
    """A policy that stays where it is, eight ticks at a time; `change` alters one chunk."""

    def __init__(self, change=None, at_call: int = 1) -> None:
        self.change, self.at_call, self.calls = change, at_call, 0

    contract = provenance.contract("twin", None)

    def reset(self) -> None:
        self.calls = 0

    def act(self, image, state, instruction):
        chunk = np.tile(state, (8, 1))
        chunk[:, 7] = 0.08
        if self.change is not None and self.calls == self.at_call:
            chunk = self.change(chunk)
        self.calls += 1
        return chunk


def run(arm, twin, policy, max_ticks: int = 25, safety: SafetyConfig = SAFETY, **settings) -> Run:
    return ControlLoop(arm, twin.camera, policy, "stay", safety, max_ticks=max_ticks, **settings).run()


def test_ten_times_a_second_without_a_late_tick(arm, twin):
    done = run(arm, twin, Stay())
    assert done.ended == "time limit" and len(done.log.time_s) == 25 and len(done.images) == 25
    assert np.median(np.diff(done.log.time_s)) == pytest.approx(0.1, abs=0.001)
    assert np.median(done.log.lateness_s) < 0.01
    assert not any(done.log.clamps)


def test_thinking_ahead_leaves_no_tick_without_an_action(arm, twin):
    done = run(arm, twin, Stay(), max_ticks=20)
    assert np.isfinite(np.array(done.log.command)).all()


def test_a_policy_of_single_actions_is_asked_in_every_tick(arm, twin):
    class Single(Stay):
        def act(self, image, state, instruction):
            return super().act(image, state, instruction)[:1]

    done = run(arm, twin, Single(), max_ticks=6)
    assert done.ended == "time limit" and np.isfinite(done.log.inference_s).all()


def test_an_answer_that_is_no_chunk_is_the_policys_failure(arm, twin):
    done = run(arm, twin, Stay(lambda chunk: "left", at_call=0))
    assert done.policy_failed and not done.log.time_s


def test_a_nan_action_stops_the_arm_and_is_never_sent(arm, twin):
    done = run(arm, twin, Stay(lambda chunk: chunk * np.nan))
    assert done.fault is Fault.NOT_FINITE
    assert np.isnan(done.log.command[-1]).all() and np.isfinite(np.array(done.log.command[:-1])).all()
    arm.state()


def test_a_jump_stops_the_arm(arm, twin):
    done = run(arm, twin, Stay(lambda chunk: chunk + np.array([0.8, 0, 0, 0, 0, 0, 0, 0])))
    assert done.fault is Fault.JUMP


def test_a_camera_that_stalls_stops_the_arm(arm, twin):
    pid = twin.camera.process.pid
    stall = threading.Timer(0.8, os.kill, (pid, signal.SIGSTOP))
    stall.start()
    try:
        done = run(arm, twin, Stay(), safety=SafetyConfig(max_frame_age_s=0.5, max_policy_wait_s=1.0))
    finally:
        stall.join()
        os.kill(pid, signal.SIGCONT)
    assert done.fault is Fault.STALE_FRAME and len(done.log.time_s) < 18
    twin.camera.newer_than(time.monotonic(), 2.0)


def test_a_policy_that_hangs_stops_the_arm(arm, twin):
    def hang(chunk):
        time.sleep(0.9)
        return chunk

    done = run(arm, twin, Stay(hang))
    assert done.fault is Fault.LATE_POLICY


def test_a_policy_that_raises_ends_the_rollout_as_its_failure(arm, twin):
    def crash(chunk):
        raise ValueError("no weights")

    done = run(arm, twin, Stay(crash))
    assert done.policy_failed and "no weights" in done.ended


def test_a_dry_run_moves_nothing(arm, twin):
    before = twin.state().q
    done = run(arm, twin, Stay(lambda chunk: chunk + 0.1, at_call=0), max_ticks=8, dry_run=True)
    assert np.abs(twin.state().q - before).max() < 0.01 and np.isnan(np.array(done.log.command)).all()


def test_ctrl_c_leaves_the_arm_at_rest(arm, twin):
    threading.Timer(0.8, os.kill, (os.getpid(), signal.SIGINT)).start()

    def move(chunk):
        chunk[:, 0] += 0.05 * np.arange(1, 9)
        return chunk

    with pytest.raises(KeyboardInterrupt):
        run(arm, twin, Stay(move, at_call=0))
    first = twin.state().q
    time.sleep(0.2)
    assert np.abs(twin.state().q - first).max() < 2e-3


CONFIG = DeployConfig()


@pytest.mark.parametrize(
    ("run", "success", "ratio", "verdict"),
    [
        (Run(Log(), [], "success"), True, 1.0, "success"),
        (Run(Log(), []), False, 1.0, "failure"),
        (Run(Log(), [], "success"), True, 0.97, "invalid"),
        (Run(Log(), [], "late", fault=Fault.LATE_POLICY), False, 1.0, "invalid"),
        (Run(Log(), [], "frame", fault=Fault.STALE_FRAME), True, 1.0, "invalid"),
        (Run(Log(), [], "nan", fault=Fault.NOT_FINITE), False, 1.0, "failure"),
        (Run(Log(), [], "raised", policy_failed=True), True, 1.0, "failure"),
        (Run(Log(), [], "pressed into the table", fault=Fault.NOT_FOLLOWING), False, 1.0, "failure"),
        (Run(Log(), [], "reflex", arm_failed=True), True, 1.0, "invalid"),
        (Run(Log(), []), None, None, "invalid"),
    ],
)
def test_a_verdict_blames_the_policy_for_its_own_faults_only(run, success, ratio, verdict):
    assert judge(run, success, ratio, CONFIG)[0] == verdict


def test_a_dry_run_is_never_counted():
    assert judge(Run(Log(), []), True, 1.0, DeployConfig(dry_run=True))[0] == "invalid"


@pytest.fixture
def rig(arm, twin) -> Rig:
    return Rig("twin", arm, twin.camera, twin, provenance.contract("twin", None))


def test_the_demonstrator_stacks_through_franky_and_a_resume_repeats_nothing(rig, tmp_path):
    settings = DeployConfig(min_clock_ratio=0.5)  # this machine's load is not what is tested here
    first = deploy(settings, SAFETY, "stack-cube", lambda: ScriptedPolicy("stack-cube"), [7], tmp_path, rig=rig)
    summary = json.loads(json.dumps(first.summary()))
    assert summary["successes"] == 1 and summary["clamps"] == {} and summary["invalid"] == 0
    assert {"7.json", "7.parquet", "7-wrist.mp4"} == {path.name for path in tmp_path.iterdir()}

    def never():
        raise AssertionError("a finished rollout was run again")

    again = deploy(settings, SAFETY, "stack-cube", never, [7], tmp_path)
    assert again.rollouts == first.rollouts


def test_a_slow_twin_makes_the_rollout_invalid(tmp_path):
    with Twin("stack-cube", pace=0.9) as slow, FrankaArm(slow.host, realtime=False) as arm:
        rig = Rig("twin", arm, slow.camera, slow, provenance.contract("twin", None))
        result = deploy(DeployConfig(max_ticks=10), SAFETY, "stack-cube", Stay, [8], tmp_path, rig=rig)
    assert result.invalid == 1 and "of real time, 0.98 is the least" in result.rollouts[0].reason


def test_a_checkpoint_of_another_mount_needs_to_be_accepted(rig, tmp_path):
    policy = Stay()
    other = rig.contract.provenance.model_copy(update={"mount": "somewhere else"})
    policy.contract = rig.contract.model_copy(update={"provenance": other})
    with pytest.raises(UserError, match="--accept mount"):
        deploy(DeployConfig(max_ticks=10), SAFETY, "stack-cube", lambda: policy, [9], tmp_path, rig=rig)


def test_an_arm_away_from_the_start_pose_is_not_started(rig, tmp_path, monkeypatch):
    monkeypatch.setattr(Rig, "prepare", lambda self, scene: None)
    strict = replace(rig)
    result = deploy(DeployConfig(), SAFETY, "stack-cube", Stay, [123], tmp_path, rig=strict)
    assert result.rollouts[0].verdict == "invalid" and "start pose" in result.rollouts[0].reason
