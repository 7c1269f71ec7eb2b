"""What the product does when something fails in mid-motion: twelve faults, injected on the twin, one at a time.

    scripts/bench faults [--repeats 3]

Each fault strikes a rollout (the product's own loop, guard and envelope, the real franky client) while the arm moves.
Prints one JSON object last; for each fault, with the worst value over the repeats:

- `injected`: how often;
- `unsafe_commands`: commands on the twin's 1 kHz tape outside the limits of position, velocity (with its
  position-dependent bound) or acceleration, from the start of the rollout to standstill;
- `detected_ms`: from the moment the fault took effect to the moment the guard brings the arm to rest. For an action
  that is out of range: to the first clamped command. For a killed process: to the twin's first millisecond without its
  motion. For a policy's fault it takes effect when the policy answers, raises, or is asked and never answers; for the
  hand, when the first hand command leaves; for frozen frames, when the first repeated picture could have been another;
- `standstill_ms`: from there to the last millisecond in which a joint is faster than 0.02 rad/s, measured in the
  twin's physics over 10 ms; 0 when the arm had stopped by itself before. An out-of-range action stops nothing: null.
  (franky-sim's own hold lets the last joint settle by 2 mrad after every motion, at up to 0.016 rad/s.);
- `recovered`: how often the next rollout on the same twin ran, after what an operator would mend was mended;
- `verdict`: of the rollouts that were struck.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.configs.models import DeployConfig, SafetyConfig
from robocoach.robots.franka import FrankaArm
from robocoach.robots.guard import Guard
from robocoach.robots.limits import FR3
from robocoach.robots.rig import Rig
from robocoach.robots.rollout import Rollout, run_rollout
from robocoach.robots.twin import Twin
from robocoach.robots.twin_tape import Mode, unsafe_commands
from robocoach.sim import provenance
from robocoach.sim.tasks import get_task

TASK = "stack-cube"
DETECTION_BOUND_MS = 350.0
STANDSTILL_BOUND_MS = 300.0
STEP_S = 0.1
CHUNK, EXECUTED = 8, 4
AMPLITUDE_RAD = np.array([0.15, 0.10, 0.10, 0.10, 0.15, 0.15, 0.20])
PERIOD_STEPS = 16
OPEN_M = 0.08
STRIKE_AFTER_S = 0.3
"""From the policy's second look on; repeats vary it, so that a fault strikes at other moments of a tick."""
TICKS, RECOVERY_TICKS = 30, 10
NEAR_LIMIT_RAD = 2.7
"""Where joint 7 starts for the out-of-range action; its limit is 3.0159 rad."""


class Wave:
    """A policy that waves all joints about a pose, and may fail in its own ways from its third look on."""

    def __init__(self, start_q: np.ndarray, fault: str = "", on_second_look: Callable[[], None] | None = None) -> None:
        self._start_q, self._fault, self._on_second_look = start_q, fault, on_second_look
        self.close_hand = threading.Event()
        self.over = threading.Event()
        self.took_effect_s = np.inf
        self.began_s = 0.0
        self.reset()

    def reset(self) -> None:
        """Starts the wave anew."""
        self.began_s = time.monotonic()
        self._row = self._looks = 0
        self._last = np.zeros((0, 8))

    def plan(
        self, image: np.ndarray, state: np.ndarray, instruction: str, previous: np.ndarray | None, delay_steps: int
    ) -> tuple[np.ndarray, int]:
        """float32 (n, 8) and how many of them to execute; goes on exactly where the chunk in use is."""
        self._looks += 1
        if previous is not None and len(previous) and len(self._last):
            self._row += int(np.abs(self._last - previous[0]).sum(axis=1).argmin())
        steps = self._row + np.arange(1, CHUNK + 1)
        joints = self._start_q + AMPLITUDE_RAD * np.sin(2 * np.pi * steps / PERIOD_STEPS)[:, None]
        width = 0.0 if self.close_hand.is_set() else OPEN_M
        self._last = np.column_stack([joints, np.full(CHUNK, width)])
        if self._looks == 2 and self._on_second_look is not None:
            self._on_second_look()
        return (self._spoilt(self._last.copy()) if self._looks >= 3 else self._last), EXECUTED

    def act(self, image: np.ndarray, state: np.ndarray, instruction: str) -> np.ndarray:
        """The rows to execute."""
        return self.plan(image, state, instruction, None, 0)[0][:EXECUTED]

    def _spoilt(self, rows: np.ndarray) -> np.ndarray:
        if self._fault:
            self.took_effect_s = min(self.took_effect_s, time.monotonic())
        if self._fault == "NaN action":
            rows[:, 2] = np.nan
        elif self._fault == "action jump":
            rows[:, 0] += 1.5
        elif self._fault == "out-of-range action":
            rows[:, 6] = 3.1
        elif self._fault == "policy hang":
            self.over.wait(5.0)
        elif self._fault == "policy crash":
            raise RuntimeError("out of memory")
        return rows


POLICY_FAULTS = ("NaN action", "action jump", "out-of-range action", "policy hang", "policy crash")
STRIKES: dict[str, Callable[[Twin], float]] = {
    "camera stall": lambda twin: twin.camera.stall(),
    "camera unplug": lambda twin: twin.camera.unplug(),
    "frozen frames": lambda twin: twin.camera.freeze(),
    "FCI connection cut": lambda twin: twin.inject("cut"),
    "reflex": lambda twin: twin.inject("reflex"),
    "gripper failure": lambda twin: twin.inject("hand fails"),
}
FAULTS = (*STRIKES, *POLICY_FAULTS, "process killed")


@dataclass(frozen=True)
class Outcome:
    """One fault, once."""

    fault: str
    unsafe: dict[str, int]
    """Commands outside the limits, by what they exceed."""
    detected_ms: float
    standstill_ms: float | None
    recovered: bool
    verdict: str
    reason: str

    @property
    def unsafe_commands(self) -> int:
        """Commands outside any limit; one that exceeds two counts twice."""
        return sum(self.unsafe.values())

    @property
    def in_time(self) -> bool:
        """Detected and at rest within the bounds."""
        return self.detected_ms <= DETECTION_BOUND_MS and (self.standstill_ms or 0.0) <= STANDSTILL_BOUND_MS


class Watched:
    """An arm that also writes down when it was commanded what, and when it was first brought to rest."""

    def __init__(self, arm: FrankaArm) -> None:
        self._arm = arm
        self.commands: list[tuple[float, np.ndarray]] = []
        self.stopped_s = np.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arm, name)

    def command(self, values: np.ndarray, tick_at_s: float, tick_s: float = STEP_S) -> None:
        """As the arm's."""
        self.commands.append((time.monotonic(), values))
        self._arm.command(values, tick_at_s, tick_s)

    def stop(self) -> None:
        """As the arm's."""
        self.stopped_s = min(self.stopped_s, time.monotonic())
        self._arm.stop()


def strike(twin: Twin, fault: str, later_s: float = 0.0) -> Outcome:
    """Lets one fault happen in mid-motion, and then tries to go on."""
    return _kill_in_mid_motion(twin) if fault == "process killed" else _strike_rollout(twin, fault, later_s)


def _strike_rollout(twin: Twin, fault: str, later_s: float) -> Outcome:
    scene = get_task(TASK).sample_scene(1)
    if fault == "out-of-range action":
        scene = replace(scene, start_q=np.append(scene.start_q[:6], NEAR_LIMIT_RAD))
    struck: list[float] = []

    def strike_later() -> None:
        if fault in STRIKES:
            threading.Timer(STRIKE_AFTER_S + later_s, lambda: struck.append(STRIKES[fault](twin))).start()
        if fault == "gripper failure":
            threading.Timer(STRIKE_AFTER_S + later_s + 0.1, policy.close_hand.set).start()

    policy = Wave(scene.start_q, fault if fault in POLICY_FAULTS else "", strike_later)
    with FrankaArm(twin.host, realtime=False) as arm:
        watched = Watched(arm)
        twin.record()
        record = _roll(twin, watched, policy, scene, TICKS)
        time.sleep(0.2)
        tape = twin.recorded().between(policy.began_s, np.inf)
        policy.over.set()
        effect = struck[0] if struck else policy.took_effect_s
        detected, standstill = watched.stopped_s, tape.standstill_s()
        if fault == "out-of-range action":
            clamped = [at for at, values in watched.commands if at > effect and abs(values[6] - 3.1) > 1e-6]
            detected = clamped[0] if clamped else np.inf
        elif fault == "gripper failure":
            closing = [at for at, values in watched.commands if values[7] < 0.03]
            effect = closing[0] if closing else np.inf
        twin.inject("heal")
        twin.camera.plug_in()
        recovered = _goes_on(twin, arm)
    return Outcome(
        fault,
        unsafe_commands(tape, FR3),
        1000 * (detected - effect),
        None if fault == "out-of-range action" else 1000 * max(0.0, standstill - detected),
        recovered,
        record.verdict,
        record.reason,
    )


def _goes_on(twin: Twin, arm: FrankaArm) -> bool:
    scene = get_task(TASK).sample_scene(1)
    record = _roll(twin, arm, Wave(scene.start_q), scene, RECOVERY_TICKS)
    return record.ticks == RECOVERY_TICKS and not record.fault


def _roll(twin: Twin, arm: Any, policy: Wave, scene: Any, ticks: int) -> Rollout:
    contract = provenance.contract("twin", f"franky-sim {version('franky-sim')}")
    rig = Rig("twin", arm, twin.camera, twin, contract, FR3)
    config = DeployConfig(robot="twin", max_ticks=ticks)
    with tempfile.TemporaryDirectory() as folder:
        return run_rollout(rig, get_task(TASK), policy, scene, config, SafetyConfig(), Path(folder), "rollout")


def _kill_in_mid_motion(twin: Twin) -> Outcome:
    """`kill -9` for a process that drives the arm through the product's guard."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--drive", twin.host], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()  # it stands at the start
    twin.record()
    moving = process.stdout.readline().strip() == "moving"
    os.kill(process.pid, signal.SIGKILL)
    effect = time.monotonic()
    process.wait()
    time.sleep(0.6)
    tape = twin.recorded()
    idle = tape.time_s[(tape.time_s >= effect) & (tape.mode == Mode.IDLE)]
    detected = float(idle[0]) if moving and len(idle) else np.inf
    with FrankaArm(twin.host, realtime=False) as arm:
        recovered = _goes_on(twin, arm)
    return Outcome(
        "process killed",
        unsafe_commands(tape, FR3),
        1000 * (detected - effect),
        1000 * max(0.0, tape.standstill_s() - detected),
        recovered,
        "none",
        "the process is gone, and with it the rollout in flight" if moving else "the process did not get to move",
    )


def drive(host: str) -> None:
    """The process to be killed: waves the arm through the guard, for ever."""
    with FrankaArm(host, realtime=False) as arm:
        arm.recover()
        start = get_task(TASK).sample_scene(1).start_q
        arm.go_to(start)
        guard = Guard(arm, None, SafetyConfig(), FR3)
        print("ready", flush=True)
        begin = time.monotonic()
        for tick in range(600):
            due = begin + tick * STEP_S
            time.sleep(max(0.0, due - time.monotonic()))
            guard.step(np.append(start + AMPLITUDE_RAD * np.sin(2 * np.pi * (tick + 1) / PERIOD_STEPS), OPEN_M), due)
            if tick == 15:
                print("moving", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; the exit status tells whether every bound was kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="times each fault is injected")
    parser.add_argument("--only", choices=FAULTS, action="append", help="this fault; may be given more than once")
    parser.add_argument("--drive", metavar="HOST", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.drive:
        drive(options.drive)
        return 0
    began = time.monotonic()
    report: dict[str, dict[str, Any]] = {}
    kept = True
    with Twin(TASK) as twin:
        for fault in options.only or FAULTS:
            outcomes = []
            for repeat in range(options.repeats):
                outcomes.append(strike(twin, fault, later_s=0.1 * repeat / options.repeats))
                print(f"{fault}: {outcomes[-1]}", file=sys.stderr)
            report[fault] = summary(outcomes)
            kept &= all(o.in_time and o.recovered and not o.unsafe_commands for o in outcomes)
    print(
        json.dumps(
            {
                "faults": report,
                "kept": kept,
                "detection_bound_ms": DETECTION_BOUND_MS,
                "standstill_bound_ms": STANDSTILL_BOUND_MS,
                "repeats": options.repeats,
                "seconds": round(time.monotonic() - began, 1),
                "cores": os.cpu_count(),
            }
        )
    )
    return 0 if kept else 1


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """One fault's row of the report."""
    stills = [o.standstill_ms for o in outcomes if o.standstill_ms is not None]
    return {
        "injected": len(outcomes),
        "unsafe_commands": sum(o.unsafe_commands for o in outcomes),
        "detected_ms": round(max(o.detected_ms for o in outcomes), 1),
        "detected_median_ms": round(statistics.median(o.detected_ms for o in outcomes), 1),
        "standstill_ms": round(max(stills), 1) if stills else None,
        "recovered": sum(o.recovered for o in outcomes),
        "verdict": sorted({o.verdict for o in outcomes}),
        "reason": outcomes[-1].reason,
    }


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
