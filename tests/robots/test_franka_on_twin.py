"""The real franky client against the twin: streaming, its watchdogs, the hand, and the clock."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from robocoach.robots.franka import FrankaArm
from robocoach.robots.twin import Twin, clock_ratio

TICK_S = 0.1
FAR = np.array([0.4, 0, 0, 0, 0, 0, 0])


def stream(arm, start: np.ndarray, step: np.ndarray, ticks: int, width: float = 0.08) -> float:
    """Commands a straight line of joint targets; returns when the last tick is over."""
    begin = time.monotonic()
    for tick in range(ticks):
        time.sleep(max(0.0, begin + tick * TICK_S - time.monotonic()))
        arm.command(np.append(start + (tick + 1) * step, width), begin + tick * TICK_S)
    time.sleep(max(0.0, begin + ticks * TICK_S - time.monotonic()))
    return begin


def test_the_arm_reaches_the_target_about_when_its_tick_ends(arm, twin):
    start = arm.state().values[:7]
    step = np.array([0.04, 0.03, 0.0, -0.02, 0.0, 0.03, -0.05])
    stream(arm, start, step, 8)
    assert np.abs(twin.state().q - (start + 8 * step)).max() < 0.04
    time.sleep(0.4)
    np.testing.assert_allclose(twin.state().q, start + 8 * step, atol=0.006)


def test_the_arm_rests_when_the_stream_ends(arm, twin):
    start = arm.state().values[:7]
    step = np.array([0.05, 0, 0, 0, 0, 0, 0])
    stream(arm, start, step, 4)
    time.sleep(0.5)
    first = twin.state().q
    time.sleep(0.3)
    assert np.abs(twin.state().q - first).max() < 3e-3  # a tick of the stream was 50e-3
    assert abs(first[0] - start[0] - 0.2) < 0.01


def test_the_arm_comes_to_rest_when_nobody_serves_it_any_more(arm, twin):
    """The servo thread ends in mid-motion without a stop: the last motion's own duration is the watchdog."""
    start = arm.state().values[:7]
    stream(arm, start, np.array([0.06, 0, 0, 0, 0, 0, 0]), 3)
    arm.command(np.append(start + FAR, 0.08), time.monotonic())
    time.sleep(0.05)
    arm._done.set()
    arm._servo.join()
    ended = time.monotonic()
    while np.abs(np.subtract(twin.state().q, _later(twin, 0.02))).max() > 2e-4:
        assert time.monotonic() - ended < 0.5
    assert time.monotonic() - ended < 0.45


def _later(twin, seconds: float) -> np.ndarray:
    time.sleep(seconds)
    return twin.state().q


def test_a_stop_in_mid_motion_is_quick_and_without_a_fault(arm, twin):
    start = arm.state().values[:7]
    stream(arm, start, np.array([0.08, 0, 0, 0, 0, 0, 0]), 4)
    arm.command(np.append(start + FAR, 0.08), time.monotonic())
    time.sleep(0.03)
    begin = time.monotonic()
    arm.stop()
    assert time.monotonic() - begin < 0.4
    assert np.abs(np.subtract(twin.state().q, _later(twin, 0.1))).max() < 2e-3
    arm.state()  # raises if the stop was a fault


def test_the_hand_has_one_command_in_flight_and_a_dead_band(arm, twin):
    start = arm.state().values[:7]
    before = arm.gripper.commands
    for width in (0.079, 0.045, 0.035, 0.031):  # never below the closing threshold
        arm.gripper.command(width)
    assert arm.gripper.settle(1.0) and arm.gripper.commands == before
    begin = time.monotonic()
    for _ in range(20):
        arm.gripper.command(0.0)
    assert time.monotonic() - begin < 0.02  # a closing hand takes half a second; the loop must not wait for it
    assert arm.gripper.settle(3.0) and arm.gripper.commands == before + 1
    assert twin.state().gripper_width < 0.005
    arm.command(np.append(start, 0.08), time.monotonic())
    assert arm.gripper.settle(3.0) and twin.state().gripper_width > 0.078


def test_a_hand_that_stands_half_open_when_the_client_connects_is_opened(twin):
    """As one does that holds something: the rule alone would call it open already."""
    with FrankaArm(twin.host, realtime=False) as first:
        first.open_hand()
        assert first.gripper._gripper.move(0.045, 0.1)
    with FrankaArm(twin.host, realtime=False) as second:
        assert second.state().values[7] < 0.05
        second.open_hand()
        assert twin.state().gripper_width > 0.078


def test_connecting_leaves_the_callers_scheduling_as_it_was(arm):
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_a_state_carries_the_time_it_was_new(arm):
    assert time.monotonic() - arm.state().read_at_s < 0.15


def test_a_frame_shows_the_moment_it_was_asked_for(twin):
    moment = time.monotonic()
    frame = twin.camera.newer_than(moment, 2.0)
    assert frame is not None and frame.image.shape == (224, 224, 3) and frame.image.std() > 5
    assert -0.01 < frame.captured_s - moment < 1.0


def test_a_slow_clock_shows_in_its_ratio():
    with Twin("stack-cube", pace=0.5) as slow:
        before = slow.clock()
        time.sleep(1.0)
        assert clock_ratio(before, slow.clock()) == pytest.approx(0.5, abs=0.1)


def test_both_processes_end_when_their_parent_is_killed():
    code = "from robocoach.robots.twin import Twin\nimport time\nif __name__ == '__main__':\n"
    code += "    twin = Twin('stack-cube')\n    print(twin.process.pid, twin.camera.process.pid, flush=True)\n"
    code += "    time.sleep(60)\n"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_both_processes_end_with_the_twin():
    with Twin("stack-cube") as short:
        processes = short.process, short.camera.process
    assert not any(process.is_alive() for process in processes)


def test_a_stream_as_fast_as_the_envelope_allows_is_never_refused(arm, twin):
    """Joint 7 may do 5.26 rad/s, franky's wheel knows 2.61; the gain on the error must not ask for more."""
    start = arm.state().values[:7]
    step = np.array([0, 0, 0, 0, 0, 0, -0.2])  # from rest at 2 rad/s, so that the arm has to catch up
    stream(arm, start, step, 6)
    time.sleep(1.2)
    assert np.abs(arm.state().values[:7] - (start + 6 * step)).max() < 0.01  # raises what franky refused


def test_a_process_that_stood_still_does_not_blame_the_connection(arm):
    switch = sys.getswitchinterval()
    sys.setswitchinterval(0.4)  # no thread gives way while this one works: what a heavy import does to a process
    try:
        end = time.monotonic() + 0.35
        while time.monotonic() < end:
            pass
        arm.state()
    finally:
        sys.setswitchinterval(switch)
