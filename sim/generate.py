"""Demonstrations in Genesis: scripted, with recoveries, from seeds, by as many workers as there are cores.

Also corrective demonstrations, in which the demonstrator shows the way out of a state that a policy got into: it takes
over from a policy that drives for a while on a scene of its own, or from the replay of a failed rollout. The scenes of
the latter are those of train seeds, which a coach may read; validation and held-out scenes are never shown.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets import splits
from robocoach.datasets.episode import Episode
from robocoach.datasets.journal import Journal
from robocoach.sim.disturbance import Disturbance
from robocoach.sim.pool import SimulatorPool
from robocoach.sim.rollout import MakePolicy, ask, cached_policy, read_rollout
from robocoach.sim.tasks import get_task
from robocoach.sim.trace import read_trace
from robocoach.sim.variation import varied

if TYPE_CHECKING:
    from robocoach.sim.task import Environment

MAX_TICKS = 120
CORRECTIVE_START = 5_000
"""First seed index of corrective demonstrations within a run's share of the demonstration range."""
EXTRA_START = 7_000
"""And of extra demonstrations, which a coach asks for. A block ends where the next one begins."""
BLOCKS = (0, CORRECTIVE_START, EXTRA_START, splits.PER_RUN)
TAKEOVER_TICKS = (6, 75)
"""The demonstrator takes over from the policy at a random tick of this range."""
EARLIER_TICKS = 6
"""From the replay of a failure it takes over at most this long before the failing stage began."""


@dataclass(frozen=True)
class Generated:
    """What was collected."""

    succeeded: int
    failed: int
    ticks: int
    """Recorded frames of the successful ones in this call."""
    indices: tuple[int, ...]
    """Journal indices of the demonstrations to use, ascending."""


@dataclass(frozen=True)
class _Outcome:
    index: int
    success: bool
    ticks: int


@dataclass(frozen=True)
class _Failure:
    """A failed rollout to begin from."""

    seed: int
    commands: np.ndarray
    """(T, 8) as executed."""
    first_tick: int
    """Its failing stage began then."""
    last_tick: int
    """And this is when it showed."""


@dataclass(frozen=True)
class _Order:
    """One demonstration to make."""

    index: int
    seed: int
    recovery_share: float
    variation: float
    folder: str
    make_policy: MakePolicy | None
    failure: _Failure | None


def generate(
    pool: SimulatorPool,
    run_seed: int,
    count: int,
    folder: Path,
    *,
    recovery_share: float = 0.7,
    make_policy: MakePolicy | None = None,
    failures: Sequence[Path] = (),
    start: int | None = None,
    variation: float = 1.0,
    progress: Callable[[int, int], None] = lambda done, failed: None,
) -> Generated:
    """Collects `count` successful demonstrations into the journal at `folder`, going on from what is there.

    The scene of index i is seed i of the run's demonstration range, whatever worker takes it; failures are written
    down and left out, and the first `count` successes by index are the result: the same with one worker or many.
    With `make_policy` the demonstrations are corrective. With `failures`, the records of failed rollouts with their
    traces beside them, they are corrective too, on those rollouts' own scenes, taking turns; the policy is asked only
    when none of them has a trace (a policy that crashes at once leaves none).

    `start` is the first index: by default 0, or `CORRECTIVE_START` for corrective ones; extra demonstrations begin
    at `EXTRA_START`. No index of another block is taken, so there may be fewer than `count`. `variation` scales the
    spread of looks and friction (`sim/variation.py`). `progress(succeeded, failed)` is called after each. Raises
    UserError when a record or a trace is broken, or when there is neither a trace nor a policy.
    """
    journal = Journal(folder)
    failed_file = folder / "failed.jsonl"
    lines = _lines(failed_file)
    failed_file.write_text("".join(f"{line}\n" for line in lines))  # without what a kill cut off
    failed = {json.loads(line)["index"] for line in lines}
    done = set(journal.done())
    begun = [_failure(path) for path in failures if path.with_suffix(".npz").is_file()]
    if failures and not begun and make_policy is None:
        raise UserError(
            f"none of the {len(failures)} failed rollouts of {failures[0].parent} has a trace (.npz) to begin from;"
            " run them again, or turn corrective demonstrations off"
        )
    if start is None:
        start = CORRECTIVE_START if make_policy or begun else 0
    most = min(start + 3 * count + 20, next((end for end in BLOCKS if end > start), start))
    progress(len(done), len(failed))
    ticks = 0
    stop = len(done) >= count

    def arguments() -> Iterator[tuple[_Order]]:
        for index in range(start, most):
            if stop:
                return
            if index in done or index in failed:
                continue
            failure = begun[(index - start) % len(begun)] if begun else None
            seed = splits.seeds("demonstration", run_seed, 1, index)[0] if failure is None else failure.seed
            yield (_Order(index, seed, recovery_share, variation, str(folder), make_policy, failure),)

    for outcome in pool.run(demonstrate, arguments()):
        if outcome.success:
            done.add(outcome.index)
            ticks += outcome.ticks
        else:
            failed.add(outcome.index)
            with failed_file.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
        stop = len(done) >= count
        progress(len(done), len(failed))
    indices = tuple(sorted(done)[:count])
    used = [index for index in failed if not indices or index < indices[-1]]
    return Generated(len(indices), len(used), ticks, indices)


def _lines(path: Path) -> list[str]:
    """Whole lines of a file that a kill may have cut off."""
    if not path.is_file():
        return []
    return [line for line in path.read_text().split("\n")[:-1] if line]


def _failure(path: Path) -> _Failure:
    """What a failed rollout's trace and record say. Raises UserError when they cannot be read."""
    trace = read_trace(path.with_suffix(".npz"))
    record = read_rollout(path.with_suffix(".json"))
    if record is None:
        raise UserError(f"{path.with_suffix('.json')} is missing or no record of this version; run that rollout again")
    failing = next((account for account in record.accounts if not account.reached), None)
    first, last = (failing.begin_tick, failing.moment_tick) if failing else (1, len(trace))
    return _Failure(record.seed, trace.command, first, last)


def demonstrate(environment: Environment, order: _Order) -> _Outcome:
    """Runs one demonstration in a worker and commits it when it succeeded."""
    task = get_task(environment.task_name)
    index, seed, journal = order.index, order.seed, _journal(order.folder)
    if index in journal.done():  # committed by a worker that died before it could say so
        return _Outcome(index, True, len(journal.read(index).states))
    rng = np.random.default_rng((seed, 2) if order.failure is None else (seed, 2, index))
    disturbance = Disturbance(seed) if rng.random() < order.recovery_share else None
    demonstrator, judge = task.demonstrator(), task.judge()
    scene = task.sample_scene(seed)
    if order.failure is None:  # a replay needs the very scene
        scene = varied(scene, task.nominal, order.variation)
    state = environment.reset(scene)
    if order.failure is not None:
        for command in order.failure.commands[: takeover(order.failure.first_tick, order.failure.last_tick, rng)]:
            state = environment.step(command)
            judge.update(state)
    elif order.make_policy is not None:
        policy = cached_policy(order.make_policy)
        policy.reset()
        rows: list[np.ndarray] = []
        for _ in range(int(rng.integers(*TAKEOVER_TICKS))):
            if not rows:
                chunk, executed, broken = ask(policy, environment.wrist(), state.contract_state(), task.instruction)
                if broken:
                    return _Outcome(index, False, 0)
                rows = list(chunk[:executed])
            state = environment.step(rows.pop(0))
            judge.update(state)
    if order.failure is not None or order.make_policy is not None:
        if judge.success:
            return _Outcome(index, False, 0)
        disturbance = None
    images, states, actions, stages, privileged = [], [], [], [], []
    for _ in range(MAX_TICKS):
        action = demonstrator.act(state)
        images.append(environment.wrist())
        states.append(state.contract_state())
        actions.append(action)
        stages.append(judge.stage)
        privileged.append(task.privileged(state))
        state = environment.step(disturbance.apply(action) if disturbance else action)
        judge.update(state)
        if demonstrator.finished:
            break
    if not (judge.success and demonstrator.finished):
        return _Outcome(index, False, len(states))
    episode = Episode(
        images=np.stack(images),
        states=np.stack(states),
        actions=np.stack(actions),
        stages=np.minimum(np.array(stages, dtype=np.int64), len(task.stages) - 1),
        privileged=np.stack(privileged),
        task=task.instruction,
        seed=seed,
        success=True,
    )
    journal.add(index, episode)
    return _Outcome(index, True, len(states))


def takeover(first_tick: int, last_tick: int, rng: np.random.Generator) -> int:
    """Ticks of a failed rollout to replay: from shortly before its failing stage began to when the failure showed."""
    return int(rng.integers(max(0, first_tick - 1 - EARLIER_TICKS), last_tick + 1))


@functools.lru_cache(maxsize=4)
def _journal(folder: str) -> Journal:
    """One journal a worker; opening it looks for abandoned episodes."""
    return Journal(Path(folder))
