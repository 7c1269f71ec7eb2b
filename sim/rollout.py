"""Rollouts of a policy in Genesis, judged on ground truth; the policy sees wrist image, state and instruction only.

Frames are rendered when the policy asks; filmed rollouts also get wrist and side video at full rate. Every rollout
leaves `<seed>.json`, its record with an account of each stage, and `<seed>.npz`, its trace.
"""

from __future__ import annotations

import functools
import json
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from pydantic import TypeAdapter, ValidationError

from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically
from robocoach.sim.account import Account, account
from robocoach.sim.execution import Execution
from robocoach.sim.pool import SimulatorPool
from robocoach.sim.tasks import get_task
from robocoach.sim.trace import Recorder, Trace

if TYPE_CHECKING:
    from robocoach.sim.task import Environment

HOLD_TICKS = 10
"""A rollout ends early only when success has gone on for this long after its own 0.5 s, the policy still acting."""

GRACE_S = 30.0
"""Beyond its own time limit, a rollout has this long to write its videos before its worker counts as hung."""

Ending = Literal["success", "time limit", "aborted", "stopped early", ""]


class Policy(Protocol):
    """What a rollout needs of a policy. One that also has `plan` can be blended (`policies/checkpoint.py`)."""

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
    goal: dict[str, bool] = field(default_factory=dict)
    """The clauses of the goal, and whether each held at the end."""
    ending: Ending = ""
    """How it ended; empty in records of an older version."""
    accounts: tuple[Account, ...] = ()
    """One for each stage that was begun."""
    signals: dict[str, float] = field(default_factory=dict)
    """Motion signals of the whole rollout (`sim/motion.py`)."""


@dataclass(frozen=True)
class Manner:
    """How rollouts are run: the same for all seeds of a call."""

    max_ticks: int = 120
    blend_steps: int = 0
    smoothing: float = 0.0
    timeout_s: float = 120.0
    """Wall time [s] of one rollout, without building the scene and loading the policy."""


def run_rollouts(
    pool: SimulatorPool,
    seeds: Sequence[int],
    make_policy: MakePolicy,
    out: Path,
    *,
    max_ticks: int = 120,
    videos: int = 0,
    blend_steps: int = 0,
    smoothing: float = 0.0,
    timeout_s: float = 120.0,
    stop: Callable[[list[RolloutResult]], bool] | None = None,
    progress: Callable[[RolloutResult], None] = lambda result: None,
) -> list[RolloutResult]:
    """Runs one rollout a seed, in the order of the seeds; each is durable in `out` as `<seed>.json` when it ends.

    Rollouts whose record is there already are not run again. The first `videos` of them are filmed (−1: all).
    `blend_steps` and `smoothing` are those of `DeployConfig`. A rollout that crashes its policy, lasts longer than
    `timeout_s` or takes its simulator along (twice) is a failed one with the reason in `aborted`.

    `stop` is asked after each result, in the order of the seeds, with the results so far; once it says True, no
    rollout is begun any more, and the results that it has seen are returned, however many workers there are.
    """
    out.mkdir(parents=True, exist_ok=True)
    found: dict[int, RolloutResult] = {}
    for seed in seeds:
        if (record := read_rollout(out / f"{seed}.json")) is not None:
            found[seed] = record
    filmed = set(seeds if videos < 0 else seeds[:videos])
    payload = pickle.dumps(make_policy)
    manner = Manner(max_ticks, blend_steps, smoothing, timeout_s)
    told: list[RolloutResult] = []
    stopped = False

    def tell() -> None:
        """Asks `stop` about every result whose turn has come."""
        nonlocal stopped
        while not stopped and len(told) < len(seeds) and seeds[len(told)] in found:
            told.append(found[seeds[len(told)]])
            stopped = stop is not None and stop(list(told))

    def todo() -> Iterator[tuple[int, bytes, str, Manner, bool]]:
        for seed in seeds:
            if stopped:
                return
            if seed not in found:
                yield seed, payload, str(out), manner, seed in filmed

    tell()
    results = pool.run(
        rollout,
        todo(),
        prepare=(load, (payload,)),
        timeout_s=timeout_s + GRACE_S,
        failed=functools.partial(_lost, pool.task_name),
    )
    for result in results:
        found[result.seed] = result
        progress(result)
        tell()
    return told


def load(environment: Environment, payload: bytes) -> None:
    """Loads the policy in a worker; one that cannot be loaded is no rollout at all, so what it raises is raised."""
    cached_policy(pickle.loads(payload), payload)


def rollout(environment: Environment, seed: int, payload: bytes, out: str, manner: Manner, film: bool) -> RolloutResult:
    """Runs one rollout in a worker and writes its record."""
    task = get_task(environment.task_name)
    judge = task.judge()
    aborted = ""
    wrist_frames: list[np.ndarray] = []
    side_frames: list[np.ndarray] = []
    stage_ticks: list[int] = []
    recorder = Recorder()
    held = ticks = 0
    policy = cached_policy(pickle.loads(payload), payload)
    policy.reset()
    state = environment.reset(task.sample_scene(seed))
    execution = Execution(state.contract_state(), manner.blend_steps, manner.smoothing)
    begun = time.monotonic()
    for ticks in range(1, manner.max_ticks + 1):
        image = environment.wrist() if film or execution.looks else None
        if film and image is not None:
            wrist_frames.append(image)
            side_frames.append(environment.side())
        if execution.looks:
            assert image is not None
            rows, executed, aborted = ask(
                policy, image, state.contract_state(), task.instruction, whole=manner.blend_steps > 0
            )
            if not aborted and time.monotonic() - begun > manner.timeout_s:
                aborted = f"no end within {manner.timeout_s:g} s: the policy or the simulator is too slow"
            if aborted:
                break
            execution.take(rows, executed)
        command = execution.command()
        state = environment.step(command)
        if not np.isfinite(state.contract_state()).all():
            aborted = "the simulation broke: its joints are not finite"
            break
        judge.update(state)
        recorder.add(command, state, judge.stage)
        stage_ticks.extend([ticks] * (judge.stage - len(stage_ticks)))
        held = held + 1 if judge.success else 0
        if held > HOLD_TICKS:
            break
    folder = Path(out)
    trace = recorder.trace()
    accounts, signals = account(task, trace, stage_ticks) if trace is not None else ((), {})
    success = judge.success and not aborted
    result = RolloutResult(
        seed=seed,
        success=success,
        stage=judge.stage,
        stages=task.stages,
        ticks=ticks,
        stage_ticks=tuple(stage_ticks),
        measures={name: round(value, 4) for name, value in judge.measures.items()},
        aborted=aborted,
        video=_film(wrist_frames, folder / f"{seed}-wrist.mp4"),
        side_video=_film(side_frames, folder / f"{seed}-side.mp4"),
        goal=dict(judge.goal),
        ending="aborted" if aborted else "success" if success else "time limit",
        accounts=accounts,
        signals=signals,
    )
    _write(folder, result, trace)
    return result


def _lost(task_name: str, arguments: tuple[Any, ...], reason: str) -> RolloutResult:
    """The record of a rollout whose worker died or hung, twice."""
    seed, _, out, _, _ = arguments
    stages = get_task(task_name).stages
    result = RolloutResult(seed, False, 0, stages, 0, (), {}, aborted=reason, ending="aborted")
    _write(Path(out), result, None)
    return result


def _write(folder: Path, result: RolloutResult, trace: Trace | None) -> None:
    """The trace first: a record that is there has one."""
    if trace is not None:
        trace.save(folder / f"{result.seed}.npz")
    write_atomically(folder / f"{result.seed}.json", json.dumps(asdict(result), indent=1) + "\n")


def ask(
    policy: Policy, image: np.ndarray, state: np.ndarray, instruction: str, *, whole: bool = False
) -> tuple[np.ndarray, int, str]:
    """The policy's chunk (n, 8) and how many rows to execute, or why it has none: that fails its rollout.

    `whole` asks a policy that can for the rows beyond those to be executed as well. A UserError is raised.
    """
    none = np.zeros((0, len(state)))
    plan = getattr(policy, "plan", None) if whole else None
    try:
        if plan is None:
            answer, executed = policy.act(image, state, instruction), None
        else:
            answer, executed = plan(image, state, instruction)
        rows = np.asarray(answer, dtype=float)
    except UserError:
        raise
    except Exception as error:
        return none, 0, " ".join(f"{type(error).__name__}: {error}".split())
    if rows.shape[1:] != state.shape or not len(rows) or not np.isfinite(rows).all():
        return none, 0, f"expected finite actions (n, {len(state)}), got shape {rows.shape}: {rows[:1].tolist()}"
    return rows, len(rows) if executed is None else min(executed, len(rows)), ""


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


def read_rollout(path: Path) -> RolloutResult | None:
    """A rollout's record; None when it is not there, broken, or of another version."""
    if not path.is_file():
        return None
    try:
        return TypeAdapter(RolloutResult).validate_json(path.read_text())
    except ValidationError:
        return None
