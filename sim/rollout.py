"""Rollouts of a policy in Genesis, judged on ground truth; the policy sees wrist image, state and instruction only.

Frames are rendered when the policy asks; filmed rollouts also get wrist and side video at full rate.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from pydantic import TypeAdapter, ValidationError

from robocoach.configs.errors import UserError
from robocoach.sim.pool import SimulatorPool
from robocoach.sim.tasks import get_task

if TYPE_CHECKING:
    from robocoach.sim.genesis_env import GenesisEnvironment

HOLD_TICKS = 10
"""A rollout ends early only when success has gone on for this long after its own 0.5 s, the policy still acting."""


class Policy(Protocol):
    """What a rollout needs of a policy."""

    def reset(self) -> None:
        """Forgets the last rollout."""
        ...

    def act(self, image: np.ndarray, state: np.ndarray, instruction: str) -> np.ndarray:
        """uint8 (224, 224, 3), float32 (8,) → absolute actions float32 (n, 8), executed one a tick."""
        ...


MakePolicy = Callable[[], Policy]
"""Picklable; called once in each worker."""


@dataclass(frozen=True)
class RolloutResult:
    """One rollout and how it ended."""

    seed: int
    success: bool
    """The end-state predicate held at the end."""
    stage: int
    """Stages reached, in order."""
    stages: tuple[str, ...]
    """Their names."""
    ticks: int
    stage_ticks: tuple[int, ...]
    """Tick at which each stage was reached."""
    measures: dict[str, float]
    """What the task's judge measured, by name with unit."""
    aborted: str = ""
    """Why the policy could not go on; such a rollout is a failure, never missing."""
    video: str = ""
    """File names of the wrist video, beside this record, when it was filmed."""
    side_video: str = ""


def run_rollouts(
    pool: SimulatorPool,
    seeds: Sequence[int],
    make_policy: MakePolicy,
    out: Path,
    *,
    max_ticks: int = 120,
    videos: int = 0,
    progress: Callable[[RolloutResult], None] = lambda result: None,
) -> list[RolloutResult]:
    """Runs one rollout a seed, in the order of the seeds; each is durable in `out` as `<seed>.json` when it ends.

    Rollouts whose record is there already are not run again. The first `videos` of them are filmed (−1: all).
    """
    out.mkdir(parents=True, exist_ok=True)
    results: dict[int, RolloutResult] = {}
    for seed in seeds:
        if (record := _read(out / f"{seed}.json")) is not None:
            results[seed] = record
    filmed = set(seeds if videos < 0 else seeds[:videos])
    todo = [seed for seed in seeds if seed not in results]
    payload = pickle.dumps(make_policy)
    for result in pool.run(rollout, ((seed, payload, str(out), max_ticks, seed in filmed) for seed in todo)):
        results[result.seed] = result
        progress(result)
    return [results[seed] for seed in seeds]


def rollout(
    environment: GenesisEnvironment, seed: int, payload: bytes, out: str, max_ticks: int, film: bool
) -> RolloutResult:
    """Runs one rollout in a worker and writes its record."""
    task = get_task(environment.task_name)
    judge = task.judge()
    aborted = ""
    wrist_frames: list[np.ndarray] = []
    side_frames: list[np.ndarray] = []
    stage_ticks: list[int] = []
    chunk: list[np.ndarray] = []
    held = ticks = 0
    policy = cached_policy(pickle.loads(payload), payload)  # one that cannot be loaded is no rollout at all
    policy.reset()
    state = environment.reset(task.sample_scene(seed))
    for ticks in range(1, max_ticks + 1):
        image = environment.wrist() if film or not chunk else None
        if film and image is not None:
            wrist_frames.append(image)
            side_frames.append(environment.side())
        if not chunk:
            assert image is not None
            chunk, aborted = ask(policy, image, state.contract_state(), task.instruction)
            if aborted:
                break
        state = environment.step(chunk.pop(0))
        judge.update(state)
        stage_ticks.extend([ticks] * (judge.stage - len(stage_ticks)))
        held = held + 1 if judge.success else 0
        if held > HOLD_TICKS:
            break
    folder = Path(out)
    result = RolloutResult(
        seed=seed,
        success=judge.success and not aborted,
        stage=judge.stage,
        stages=task.stages,
        ticks=ticks,
        stage_ticks=tuple(stage_ticks),
        measures={name: round(value, 4) for name, value in judge.measures.items()},
        aborted=aborted,
        video=_film(wrist_frames, folder / f"{seed}-wrist.mp4"),
        side_video=_film(side_frames, folder / f"{seed}-side.mp4"),
    )
    part = folder / f"{seed}.part"
    with part.open("w") as file:
        file.write(json.dumps(asdict(result), indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / f"{seed}.json")
    return result


def ask(policy: Policy, image: np.ndarray, state: np.ndarray, instruction: str) -> tuple[list[np.ndarray], str]:
    """The policy's chunk, or why it has none: that fails its rollout, as a broken simulator must not."""
    try:
        chunk = [np.asarray(action) for action in policy.act(image, state, instruction)]
    except UserError:
        raise
    except Exception as error:
        return [], f"{type(error).__name__}: {error}"
    if not chunk or not all(action.shape == state.shape and np.isfinite(action).all() for action in chunk):
        return [], f"expected finite actions of shape {state.shape}, got {chunk[:1]}"
    return chunk, ""


_policies: dict[bytes, Policy] = {}


def cached_policy(make_policy: MakePolicy, key: bytes | None = None) -> Policy:
    """The policy of this maker, loaded once in a worker; the last one is kept."""
    key = key or pickle.dumps(make_policy)
    if key not in _policies:
        _policies.clear()
        _policies[key] = make_policy()
    return _policies[key]


def _film(frames: list[np.ndarray], path: Path) -> str:
    if not frames:
        return ""
    from robocoach.datasets import video

    video.encode(np.stack(frames), path)
    return path.name


def _read(path: Path) -> RolloutResult | None:
    if not path.is_file():
        return None
    try:
        return TypeAdapter(RolloutResult).validate_json(path.read_text())
    except ValidationError:
        return None  # broken or of another version: run it again
