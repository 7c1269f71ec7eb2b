"""A workshop for the engine's tests: attempts of milliseconds whose success follows from their settings.

Nothing of the engine is replaced: store, files, rules and coaches are the real ones. A policy's chance of success
grows with the steps its line of weights was trained for, fastest near a learning rate of 2e-3; whether it solves a
scene follows from that chance and the scene's seed, so a campaign can be repeated exactly.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robocoach.agent_loop.evidence import RolloutEvidence, read_rollouts
from robocoach.agent_loop.task_document import TaskFacts
from robocoach.agent_loop.workshop import Job, Trained
from robocoach.configs.files import write_atomically
from robocoach.datasets import splits

FACTS = TaskFacts(
    name="stack-cube",
    instruction="stack the cubes",
    goal="the red cube stands on the green one",
    stages=("reach", "place"),
)


def chance(learning_rate: float, steps: float) -> float:
    """Share of scenes that a policy solves."""
    speed = math.exp(-(math.log10(learning_rate / 2e-3) ** 2) * 2)
    return 1 - math.exp(-steps * speed)


def solves(skill: float, seed: int) -> bool:
    """Whether a policy of this skill solves a scene."""
    word = hashlib.sha256(str(seed).encode()).digest()
    return int.from_bytes(word[:4], "big") / 2**32 < skill


@dataclass
class TableWorkshop:
    """See the module. `faults` names what goes wrong by attempt: `nan`, `crash`, `preflight`."""

    folder: Path
    faults: Mapping[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    lanes: int = 1
    calls: list[str] = field(default_factory=list)
    trials: Callable[[Job], tuple[RolloutEvidence, ...] | None] = lambda job: ()
    steps: float = 0.25

    def prepare(self) -> None:
        self.calls.append("prepare")

    def seeds(self, split: Any, count: int, block: int = 0) -> tuple[int, ...]:
        return tuple(splits.seeds(split, 0, count, 1_000 * block))

    def preflight(self, job: Job, seeds: Sequence[int]) -> str:
        self.calls.append(f"preflight {job.number}")
        return "ImportError: no module" if self.faults.get(job.number) == "preflight" else ""

    def train(self, job: Job, progress: Callable[[str], None]) -> Trained:
        self.calls.append(f"train {job.number}")
        time.sleep(self.seconds)
        fault = self.faults.get(job.number, "")
        if fault == "nan":
            return Trained("nan", "loss was not finite at step 3", facts={"steps": 3})
        if fault == "crash":
            return Trained("crashed", "RuntimeError: boom")
        before = json.loads((job.init_from / "skill.json").read_text())["steps"] if job.init_from else 0.0
        steps = before + self.steps * job.seconds / 60
        rate = job.config.train.learning_rate
        target = job.folder / "checkpoints" / "last" / "skill.json"
        write_atomically(target, json.dumps({"steps": steps, "skill": chance(rate, steps)}))
        rows = [{"step": 20 * i, "loss": 1 / (i + 1), "elapsed_s": i} for i in range(20)]
        (job.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        facts = {"steps": 400, "loss": 0.05, "elapsed_s": 20.0, "samples_per_s": 100.0, "stopped": "deadline"}
        return Trained("finished", "", "checkpoints/last", facts)

    def rollouts(
        self,
        job: Job,
        checkpoint: Path,
        seeds: Sequence[int],
        folder: Path,
        *,
        films: int = 0,
        stop: Callable[[Sequence[bool]], bool] | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> tuple[RolloutEvidence, ...]:
        self.calls.append(f"rollouts {job.number} {folder.parent.name} {len(seeds)}")
        time.sleep(self.seconds)
        skill = json.loads((checkpoint / "skill.json").read_text())["skill"]
        outcomes: list[bool] = []
        for seed in seeds:
            success = solves(skill, seed)
            record = {
                "seed": seed,
                "success": success,
                "stage": 2 if success else 1,
                "stages": ["reach", "place"],
                "ticks": 30,
                "measures": {"closest_m": 0.01, "goal_reached": float(success), "carried": float(success)},
            }
            write_atomically(folder / f"{seed}.json", json.dumps(record))
            outcomes.append(success)
            if stop is not None and stop(outcomes):
                break
        return tuple(one for one in read_rollouts(folder) if one.seed in seeds[: len(outcomes)])

    def hardware(self, job: Job, checkpoint: Path) -> tuple[RolloutEvidence, ...] | None:
        return self.trials(job)

    def describe(self, job: Job, spend_left_usd: float) -> float:
        self.calls.append(f"describe {job.number}")
        return 0.0

    def page(self, content: Mapping[str, Any]) -> None:
        write_atomically(self.folder / "result.json", json.dumps(content))

    def interrupt(self) -> None:
        self.calls.append("interrupt")

    def close(self) -> None:
        self.calls.append("close")
