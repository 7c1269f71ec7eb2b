"""The first day of an arm: every check before it may move on its own, from the kernel to the first slow motion.

Each check answers with one `Check`: passed or not, what was seen, and the mend. The ones that need motion come last
and only after the operator has agreed. What passed is remembered (`approval.py`). The twin goes through the same
checks, so that each of them is known to work before there is an arm.
"""

from __future__ import annotations

import os
import platform
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from robocoach.configs.models import DeployConfig, SafetyConfig
from robocoach.datasets.contract import GripperRule
from robocoach.robots import fci
from robocoach.robots.approval import Check
from robocoach.robots.franka import ArmFault
from robocoach.robots.guard import TICK_S, Guard
from robocoach.robots.loop import ControlLoop
from robocoach.robots.rig import Rig
from robocoach.robots.safety import Command, Stop
from robocoach.sim.robot_model import HOME_Q

WAVE_RAD = 0.05
WAVE_TICKS = 20
"""Each joint in turn goes ±0.05 rad in two seconds: 0.16 rad/s at most."""
LARGEST_LAG_RAD = 0.02
STANDSTILL_S = 0.3
RESTING_RAD_S = 0.02
"""The twin's arm settles for a while at up to 0.016 rad/s after a motion."""
RESTING_OVER_S = 0.04
SETTLE_S = 0.5
DRY_TICKS = 50
CAMERA_S = 3.0

Agree = Callable[[str], bool]
"""Asks the operator; False ends the commissioning."""


def before_connecting(config: DeployConfig) -> Iterator[Check]:
    """Kernel, rights, network and the FCI's version; nothing is connected for longer than a handshake."""
    arm = config.robot != "twin"
    yield _kernel(needed=arm)
    yield _rights(needed=arm)
    if arm:
        yield _handshake(config.host)


def at_rest(rig: Rig, safety: SafetyConfig) -> Iterator[Check]:
    """What can be seen of arm, hand, camera and loop while nothing moves."""
    yield _stream(rig)
    yield _joints(rig, safety)
    yield _hand_reads(rig)
    yield _frames(rig, safety)
    yield _dry_loop(rig, safety)


def in_motion(rig: Rig, safety: SafetyConfig, agree: Agree) -> Iterator[Check]:
    """The first slow motions, each after the operator's consent: every joint a little, a stop, the hand, home."""
    if not agree(
        "each joint will move 0.05 rad to and fro, one after the other, for 14 s; one hand on the stop button"
    ):
        yield Check(name="consent", passed=False, seen="the operator did not agree", mend="run it again when ready")
        return
    yield _waves(rig, safety)
    yield _stop_in_motion(rig, safety)
    yield _hand_moves(rig)
    if not agree("the arm will go home slowly, through the air above the table; look that its way is free"):
        yield Check(name="home", passed=False, seen="the operator did not agree", mend="clear the way, run it again")
        return
    yield _home(rig)


def _kernel(*, needed: bool) -> Check:
    version = platform.version()
    realtime = "PREEMPT_RT" in version or "PREEMPT RT" in version or _reads_one(Path("/sys/kernel/realtime"))
    return Check(
        name="real-time kernel",
        passed=realtime or not needed,
        seen=f"{platform.release()} {'is' if realtime else 'is not'} PREEMPT_RT"
        + ("" if needed else ", the twin needs none"),
        mend="boot a PREEMPT_RT kernel (Ubuntu Pro: `pro enable realtime-kernel`; Debian: `linux-image-rt-amd64`)",
    )


def _rights(*, needed: bool) -> Check:
    _, hard = resource.getrlimit(resource.RLIMIT_RTPRIO)
    allowed = os.geteuid() == 0 or hard >= 99 or hard == resource.RLIM_INFINITY
    return Check(
        name="real-time rights",
        passed=allowed or not needed,
        seen=f"this user may have real-time priority {'99' if allowed else hard}",
        mend="put `@realtime - rtprio 99` and `@realtime - memlock unlimited` into "
        "/etc/security/limits.d/realtime.conf, join the group realtime, log in again",
    )


def _reads_one(path: Path) -> bool:
    return path.is_file() and path.read_text().strip() == "1"


def _handshake(host: str) -> Check:
    begin = time.monotonic()
    version = fci.probe(host)
    took_ms = 1000 * (time.monotonic() - begin)
    own = _own_address(host)
    return Check(
        name="network and FCI",
        passed=took_ms < 100,
        seen=f"{host} answers from {own} in {took_ms:.1f} ms, server version {version}",
        mend="connect straight to the control box's network port, no switch, no wireless",
    )


def _own_address(host: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, fci.FCI_PORT))
        return probe.getsockname()[0]


def _stream(rig: Rig) -> Check:
    ages = []
    for _ in range(100):
        ages.append(time.monotonic() - rig.arm.state().read_at_s)
        time.sleep(0.01)
    worst_ms = 1000 * max(ages)
    return Check(
        name="state stream",
        passed=worst_ms < 150,
        seen=f"the state was at most {worst_ms:.0f} ms old in 1 s",
        mend="check the cable and that no other program loads this machine",
    )


def _joints(rig: Rig, safety: SafetyConfig) -> Check:
    q = rig.arm.state().values[:7]
    low = np.array(rig.limits.q_min_rad) + safety.limit_inset_rad
    high = np.array(rig.limits.q_max_rad) - safety.limit_inset_rad
    outside = np.flatnonzero((q < low) | (q > high))
    return Check(
        name="joint positions",
        passed=not outside.size,
        seen=f"[{', '.join(f'{x:.3f}' for x in q)}] rad, "
        + (f"joint {outside[0] + 1} is at its limit" if outside.size else "inside the limits"),
        mend="guide the arm away from the limit by hand (both guiding buttons)",
    )


def _hand_reads(rig: Rig) -> Check:
    width = rig.arm.state().values[7]
    return Check(
        name="hand",
        passed=bool(0.0 <= width <= rig.limits.width_max_m + 0.005),
        seen=f"open {1000 * width:.1f} mm",
        mend="home the hand in Franka Desk",
    )


def _frames(rig: Rig, safety: SafetyConfig) -> Check:
    rig.camera.newer_than(time.monotonic(), 2.0)
    ages, seen, last = [], 0, None
    end = time.monotonic() + CAMERA_S
    while time.monotonic() < end:
        rig.camera.trigger()
        frame = rig.camera.latest()
        if frame is not None:
            ages.append(time.monotonic() - frame.captured_s)
            seen += frame is not last
            last = frame
        time.sleep(0.02)
    if last is None:
        return Check(name="camera", passed=False, seen="no frame came", mend="see `pipeline doctor` and the USB cable")
    p99_ms = 1000 * float(np.percentile(ages, 99))
    spread = float(last.image.std())
    provenance = rig.contract.provenance
    return Check(
        name="camera",
        passed=p99_ms < 1000 * safety.max_frame_age_s and seen / CAMERA_S >= 10 and spread > 5,
        seen=f"{provenance.camera}, {seen / CAMERA_S:.0f} frames a second, at most {p99_ms:.0f} ms old (p99), "
        f"field of view {provenance.fov_deg} deg, contrast {spread:.0f} of 255",
        mend="take the lens cap off, use a USB 3 port and cable, look with `pipeline camera`",
    )


class _Stay:
    """A policy that wants to stay where it is."""

    def reset(self) -> None:
        """Has nothing to forget."""

    def act(self, image: np.ndarray, state: np.ndarray, instruction: str) -> np.ndarray:
        """float (8, 8), the state eight times."""
        return np.tile(state, (8, 1))


def _dry_loop(rig: Rig, safety: SafetyConfig) -> Check:
    loop = ControlLoop(
        rig.arm, rig.camera, _Stay(), "stay", safety, max_ticks=DRY_TICKS, dry_run=True, limits=rig.limits
    )
    run = loop.run()
    late_ms = 1000 * np.array([*run.log.lateness_s, np.inf][: max(1, len(run.log.lateness_s))])
    return Check(
        name="dry run",
        passed=bool(run.ended == "time limit" and np.median(late_ms) < 5 and late_ms.max() < 1000 * TICK_S),
        seen=f"{len(run.log.time_s)} ticks without sending, ended by the {run.ended}; commands would leave "
        f"{np.median(late_ms):.1f} ms after their schedule, {late_ms.max():.1f} ms at worst",
        mend="end what else runs on this machine",
    )


def _drive(rig: Rig, safety: SafetyConfig, targets: np.ndarray) -> tuple[np.ndarray, str]:
    """Streams joints (n, 7) one a tick; the largest lag of each joint a tick later [rad], and why it stopped, if so."""
    guard = Guard(rig.arm, rig.camera, safety, rig.limits)
    width = GripperRule().open_width_m if rig.arm.state().values[7] > GripperRule().open_above_m else 0.0
    rig.camera.newer_than(time.monotonic(), 1.0)
    lag = np.zeros(7)
    begin = time.monotonic() + TICK_S
    previous: np.ndarray | None = None
    for tick, target in enumerate(targets):
        due = begin + tick * TICK_S
        time.sleep(max(0.0, due - time.monotonic()))
        step = guard.step(np.append(target, width), due)
        if previous is not None:
            lag = np.maximum(lag, np.abs(step.state.values[:7] - previous))
        if isinstance(step.answer, Stop):
            return lag, f"{step.answer.fault}: {step.answer.detail}"
        if isinstance(step.answer, Command) and step.answer.clamps:
            guard.halt()
            return lag, f"clamped: {', '.join(step.answer.clamps)}"
        previous = target
    return lag, ""


def _waves(rig: Rig, safety: SafetyConfig) -> Check:
    here = rig.arm.state().values[:7]
    shape = WAVE_RAD * np.sin(2 * np.pi * np.arange(1, WAVE_TICKS + 1) / WAVE_TICKS)
    targets = np.concatenate([here + np.outer(shape, np.eye(7)[joint]) for joint in range(7)])
    try:
        lag, stopped = _drive(rig, safety, targets)
        rig.arm.stop()
    except ArmFault as fault:
        lag, stopped = np.zeros(7), str(fault)
    worst = float(lag.max())
    return Check(
        name="first slow motion",
        passed=not stopped and worst < LARGEST_LAG_RAD,
        seen=stopped or f"every joint followed ±{WAVE_RAD} rad within {1000 * worst:.1f} mrad at the end of each tick",
        mend="clear the reported error; check payload and mounting orientation in Franka Desk",
    )


def _stop_in_motion(rig: Rig, safety: SafetyConfig) -> Check:
    here = rig.arm.state().values[:7]
    targets = here + np.outer(np.arange(1, 8) * 0.03, np.eye(7)[6])
    try:
        _, stopped = _drive(rig, safety, targets)
        begin = time.monotonic()
        rig.arm.stop()
        took = _until_rest(rig, begin)
    except ArmFault as fault:
        stopped, took = str(fault), np.inf
    return Check(
        name="stop in motion",
        passed=not stopped and took <= STANDSTILL_S,
        seen=stopped or f"from 0.3 rad/s to rest in {1000 * took:.0f} ms, no error",
        mend=f"the arm has to rest within {1000 * STANDSTILL_S:.0f} ms; check the network and other load",
    )


def _until_rest(rig: Rig, begin_s: float, longest_s: float = 2.0) -> float:
    """Seconds from a monotonic time until the joints rest, by their positions: a reported velocity may lag."""
    last = rig.arm.state().values[:7]
    while (now := time.monotonic()) - begin_s < longest_s:
        time.sleep(RESTING_OVER_S)
        q = rig.arm.state().values[:7]
        if np.abs(q - last).max() < RESTING_RAD_S * RESTING_OVER_S:
            return now - begin_s
        last = q
    return np.inf


def _hand_moves(rig: Rig) -> Check:
    rule = GripperRule()
    try:
        rig.arm.gripper.command(rule.closed_width_m)
        closed = rig.arm.gripper.settle(5.0)
        narrow = rig.arm.state().values[7]
        rig.arm.open_hand()
        wide = rig.arm.state().values[7]
    except ArmFault as fault:
        return Check(name="hand motion", passed=False, seen=str(fault), mend="home the hand in Franka Desk")
    return Check(
        name="hand motion",
        passed=bool(closed and narrow < rule.close_below_m and wide > rule.open_above_m),
        seen=f"closed to {1000 * narrow:.1f} mm, opened to {1000 * wide:.1f} mm",
        mend="take out what the hand holds; home the hand in Franka Desk",
    )


def _home(rig: Rig) -> Check:
    try:
        rig.arm.go_to(np.array(HOME_Q))
        time.sleep(SETTLE_S)
        away = float(np.abs(rig.arm.state().values[:7] - np.array(HOME_Q)).max())
    except ArmFault as fault:
        return Check(name="home", passed=False, seen=str(fault), mend="clear the error in Franka Desk")
    return Check(
        name="home",
        passed=away < 0.01,
        seen=f"arrived within {1000 * away:.1f} mrad",
        mend="look at what stopped it, then run it again",
    )
