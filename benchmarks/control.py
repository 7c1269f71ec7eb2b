"""How well the 10 Hz loop keeps time on this machine: policy latency, lateness and the twin's clock.

    scripts/bench control [--minutes 10] [--rate 10] [--checkpoint DIR]

The real franky client drives the twin through the product's own loop, with a π0.5-nano thinking ahead and frames
rendered. The arm follows a slow wave around its start instead of the network's wishes, which a checkpoint made for
this measurement would have none of; everything else is as in a deployment. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robocoach.configs.models import DeployConfig, SafetyConfig, TrainConfig
from robocoach.robots.loop import LATE_S, ControlLoop
from robocoach.robots.rig import open_rig
from robocoach.robots.thinker import STEP_S
from robocoach.robots.twin import clock_ratio
from robocoach.sim.tasks import get_task

TASK = "stack-cube"
WAVE_RAD = np.array([0.15, 0.10, 0.10, 0.10, 0.10, 0.10, 0.20])
WAVE_TICKS = 40


class Wave:
    """Thinks with a network, moves in a slow wave that depends on the time alone."""

    def __init__(self, network: Any, start_q: np.ndarray) -> None:
        self._network, self._start_q = network, start_q
        self._begin_s = time.monotonic()

    def reset(self) -> None:
        """Starts the wave anew."""
        self._begin_s = time.monotonic()

    def plan(
        self, image: np.ndarray, state: np.ndarray, instruction: str, previous: np.ndarray | None, delay_steps: int
    ) -> tuple[np.ndarray, int]:
        """float32 (n, 8), as many as the network answers, and how many of them to execute."""
        now_s = time.monotonic() - self._begin_s
        actions, executed = self._network.plan(image, state, instruction, previous, delay_steps)
        ticks = now_s / STEP_S + np.arange(1, len(actions) + 1)
        joints = self._start_q + WAVE_RAD * np.sin(2 * np.pi * ticks / WAVE_TICKS)[:, None]
        return np.column_stack([joints, np.full(len(actions), 0.08)]).astype(np.float32), executed

    def act(self, image: np.ndarray, state: np.ndarray, instruction: str) -> np.ndarray:
        """The rows to execute."""
        actions, executed = self.plan(image, state, instruction, None, 0)
        return actions[:executed]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the loop runs")
    parser.add_argument("--rate", type=int, default=10, help="ticks a second")
    parser.add_argument("--checkpoint", type=Path, help="checkpoint to think with; else one is made, untrained")
    options = parser.parse_args(arguments)
    scene = get_task(TASK).sample_scene(0)
    policy = Wave(_network(options.checkpoint), scene.start_q)
    with open_rig(DeployConfig(), TASK) as rig:
        assert rig.twin is not None
        rig.prepare(scene)
        before = rig.twin.clock()
        ticks = max(20, round(600 * options.minutes))
        settings = DeployConfig(rate=options.rate)
        run = ControlLoop(
            rig.arm,
            rig.camera,
            policy,
            "wave",
            SafetyConfig(),
            max_ticks=ticks,
            rate_hz=settings.rate,
            blend_steps=settings.blend_steps,
        ).run()
        ratio = clock_ratio(before, rig.twin.clock())
    log = run.log.columns()
    sent = log["time_s"] + log["lateness_s"]
    thinking = log["inference_s"][np.isfinite(log["inference_s"])]
    first_of_chunk = np.isfinite(log["inference_s"])
    report = {
        "minutes": round(float(sent[-1] - sent[0]) / 60, 3),
        "n": len(sent),
        "rate_hz": round(float((len(sent) - 1) / (sent[-1] - sent[0])), 4),
        "missed_ticks": int((log["lateness_s"] > 1 / options.rate).sum() + np.isnan(log["command"]).any(axis=1).sum()),
        "late_ticks_share": round(float((log["lateness_s"] > LATE_S).mean()), 5),
        "lateness_p50_ms": _ms(log["lateness_s"], 50),
        "lateness_p99_ms": _ms(log["lateness_s"], 99),
        "policy_latency_ms": _ms(thinking, 50),
        "policy_latency_p99_ms": _ms(thinking, 99),
        "sensor_to_command_ms": _ms(log["seen_s"][first_of_chunk], 50),
        "frame_age_p99_ms": _ms(log["frame_age_s"], 99),
        "clamps": sum(bool(row) for row in run.log.clamps),
        "clock_ratio": round(ratio, 4),
        "ended": run.ended,
        "cores": os.cpu_count(),
    }
    print(json.dumps(report))
    return 0


def _network(checkpoint: Path | None) -> Any:
    from robocoach.policies.checkpoint import load_policy

    if checkpoint is not None:
        return load_policy(checkpoint, threads=1)
    from robocoach.datasets.mixture import Mixture
    from robocoach.policies import synthetic
    from robocoach.policies.train import train

    settings = TrainConfig(steps=2, batch_size=4, threads=1)
    mixture = Mixture((synthetic.make_source(2, settings.image_px),), {"sim": 1.0})
    with tempfile.TemporaryDirectory() as folder:
        made = train(settings, mixture, synthetic.CONTRACT, Path(folder), seed=0)
        assert made.last is not None
        return load_policy(made.last, threads=1)


def _ms(seconds: np.ndarray, percentile: float) -> float:
    return round(1000 * float(np.percentile(seconds[np.isfinite(seconds)], percentile)), 2)


if __name__ == "__main__":
    sys.exit(main())
