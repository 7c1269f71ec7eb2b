"""Demonstrations in Genesis: scripted, with recoveries, from seeds, by as many workers as there are cores.

Also corrective demonstrations: a policy drives for a while on a scene of its own, then the demonstrator takes over
and shows the way out of the state the policy got into.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robocoach.datasets import splits
from robocoach.datasets.episode import Episode
from robocoach.datasets.journal import Journal
from robocoach.sim.disturbance import Disturbance
from robocoach.sim.pool import SimulatorPool
from robocoach.sim.rollout import MakePolicy, ask, cached_policy
from robocoach.sim.tasks import get_task

if TYPE_CHECKING:
    from robocoach.sim.genesis_env import GenesisEnvironment

MAX_TICKS = 120
CORRECTIVE_START = 5_000
"""First seed index of corrective demonstrations within a run's share of the demonstration range."""
TAKEOVER_TICKS = (6, 75)
"""The demonstrator takes over from the policy at a random tick of this range."""


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


def generate(
    pool: SimulatorPool,
    run_seed: int,
    count: int,
    folder: Path,
    *,
    recovery_share: float = 0.7,
    make_policy: MakePolicy | None = None,
    progress: Callable[[int, int], None] = lambda done, failed: None,
) -> Generated:
    """Collects `count` successful demonstrations into the journal at `folder`, going on from what is there.

    The scene of index i is seed i of the run's demonstration range, whatever worker takes it; failures are written
    down and left out, and the first `count` successes by index are the result: the same with one worker or many.
    With `make_policy` the demonstrations are corrective. `progress(succeeded, failed)` is called after each.
    """
    journal = Journal(folder)
    failed_file = folder / "failed.jsonl"
    lines = _lines(failed_file)
    failed_file.write_text("".join(f"{line}\n" for line in lines))  # without what a kill cut off
    failed = {json.loads(line)["index"] for line in lines}
    done = set(journal.done())
    start = CORRECTIVE_START if make_policy else 0
    most = start + 3 * count + 20
    progress(len(done), len(failed))
    ticks = 0
    stop = len(done) >= count

    def arguments() -> Iterator[tuple[object, ...]]:
        for index in range(start, most):
            if stop:
                return
            if index not in done and index not in failed:
                seed = splits.seeds("demonstration", run_seed, 1, index)[0]
                yield index, seed, recovery_share, str(folder), make_policy

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


def demonstrate(
    environment: GenesisEnvironment,
    index: int,
    seed: int,
    recovery_share: float,
    folder: str,
    make_policy: MakePolicy | None,
) -> _Outcome:
    """Runs one demonstration in a worker and commits it when it succeeded."""
    task = get_task(environment.task_name)
    if index in _journal(folder).done():  # committed by a worker that died before it could say so
        return _Outcome(index, True, len(_journal(folder).read(index).states))
    rng = np.random.default_rng((seed, 2))
    disturbance = Disturbance(seed) if rng.random() < recovery_share else None
    demonstrator, judge = task.demonstrator(), task.judge()
    state = environment.reset(task.sample_scene(seed))
    if make_policy is not None:
        policy = cached_policy(make_policy)
        policy.reset()
        takeover = int(rng.integers(*TAKEOVER_TICKS))
        chunk: list[np.ndarray] = []
        for _ in range(takeover):
            if not chunk:
                chunk, broken = ask(policy, environment.wrist(), state.contract_state(), task.instruction)
                if broken:
                    return _Outcome(index, False, 0)
            state = environment.step(chunk.pop(0))
            judge.update(state)
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
    _journal(folder).add(index, episode)
    return _Outcome(index, True, len(states))


@functools.lru_cache(maxsize=4)
def _journal(folder: str) -> Journal:
    """One journal a worker; opening it looks for abandoned episodes."""
    return Journal(Path(folder))
