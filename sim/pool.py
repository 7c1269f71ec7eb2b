"""Simulator processes that stay alive: each builds the Genesis scene once and then runs jobs on it.

Genesis takes half a minute to import and build (two minutes the first time on a machine), so demonstrations and
rollouts of every attempt share one pool. A worker that dies ends its pool; the next job starts a fresh one.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from robocoach.configs.errors import UserError

if TYPE_CHECKING:
    from robocoach.sim.genesis_env import GenesisEnvironment

_environment: GenesisEnvironment | None = None


class SimulatorPool:
    """`workers` processes (0: one a core), each with the Genesis environment of one task.

    Use as a context manager. Jobs are module-level functions `job(environment, *arguments)`.
    """

    def __init__(self, task_name: str, workers: int = 0) -> None:
        self.task_name = task_name
        self.workers = workers or max(1, len(os.sched_getaffinity(0)))
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> SimulatorPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers; jobs in flight are given up."""
        if self._executor is None:
            return
        processes = list((getattr(self._executor, "_processes", None) or {}).values())
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(timeout=5)
        self._executor = None

    def run(self, job: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Runs jobs in the order of their arguments, as many at once as there are workers; yields as they finish.

        Arguments are drawn lazily, only when a worker is free; leave the loop to stop drawing. Raises UserError when
        workers die twice without finishing a job in between.
        """
        source = iter(arguments)
        pending: dict[Future[Any], tuple[Any, ...]] = {}
        again: list[tuple[Any, ...]] = []
        broken = 0
        while True:
            while len(pending) < self.workers:
                argument = again.pop(0) if again else next(source, None)
                if argument is None:
                    break
                pending[self._running().submit(_run, job, argument)] = argument
            if not pending:
                return
            finished, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                argument = pending.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool as error:
                    again.append(argument)
                    again.extend(pending.values())
                    pending.clear()
                    broken += 1
                    self.close()
                    if broken > 1:
                        raise UserError(
                            "the simulator's workers died twice in a row (out of memory, or a broken graphics driver);"
                            " see `pipeline doctor`, and try one worker"
                        ) from error
                    break
                broken = 0
                yield result

    def _running(self) -> ProcessPoolExecutor:
        if self._executor is None:
            alone = {"OMP_NUM_THREADS": "1", "LP_NUM_THREADS": "1", "PYOPENGL_PLATFORM": "egl"}
            before = {name: os.environ.get(name) for name in alone}
            if self.workers > 1:  # a worker has one core: its libraries must not start a thread for each
                os.environ.update(alone)
            self._executor = ProcessPoolExecutor(
                self.workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_build,
                initargs=(self.task_name, self.workers),
            )
            # The executor starts its processes with its first jobs, while these variables still stand.
            for future in [self._executor.submit(_ready) for _ in range(self.workers)]:
                future.add_done_callback(lambda _: None)
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
        return self._executor


def _build(task_name: str, workers: int) -> None:
    """Runs once in each worker."""
    global _environment
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with_parent()
    logging.disable(logging.WARNING)
    import torch

    from robocoach.sim.genesis_env import GenesisEnvironment
    from robocoach.sim.tasks import get_task

    if workers > 1:
        torch.set_num_threads(1)
    _environment = GenesisEnvironment(get_task(task_name))


def _end_with_parent() -> None:
    """A killed parent takes its workers along (Linux: prctl PR_SET_PDEATHSIG)."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _ready() -> None:
    """The first, empty job of a worker."""


def _run(job: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    assert _environment is not None
    return job(_environment, *arguments)
