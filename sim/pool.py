"""Simulator processes that stay alive: each builds the Genesis scene once and then runs jobs on it.

Genesis takes half a minute to import and build (two minutes the first time on a machine), so demonstrations and
rollouts of every attempt share one pool. A worker that dies or hangs is replaced; the others go on.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from robocoach.configs.errors import UserError

if TYPE_CHECKING:
    from robocoach.sim.genesis_env import GenesisEnvironment
    from robocoach.sim.task import Environment

_environment: Environment | None = None

LOOK_S = 1.0
"""How often the clock of a job with a time limit is looked at."""
START_S = 900.0
"""A worker that has not built its scene and prepared itself by then hangs; the first build takes two minutes."""


class SimulatorPool:
    """`workers` processes (0: one a core), each with the Genesis environment of one task.

    Use as a context manager. Jobs are module-level functions `job(environment, *arguments)`; so is `make`, which
    makes the environment of a task in a worker.
    """

    def __init__(self, task_name: str, workers: int = 0, make: Callable[[str], Environment] | None = None) -> None:
        self.task_name = task_name
        self.workers = workers or max(1, len(os.sched_getaffinity(0)))
        self._slots = [_Slot(task_name, self.workers, make or genesis) for _ in range(self.workers)]

    def __enter__(self) -> SimulatorPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers; jobs in flight are given up."""
        for slot in self._slots:
            slot.close()

    def run(
        self,
        job: Callable[..., Any],
        arguments: Iterable[tuple[Any, ...]],
        *,
        prepare: tuple[Callable[..., Any], tuple[Any, ...]] | None = None,
        timeout_s: float | None = None,
        failed: Callable[[tuple[Any, ...], str], Any] | None = None,
    ) -> Iterator[Any]:
        """Runs jobs in the order of their arguments, as many at once as there are workers; yields as they finish.

        Arguments are drawn lazily, only when a worker is free; leave the loop to stop drawing. A worker that dies is
        replaced and its job run again. Raises UserError when workers die twice without finishing a job in between;
        with `failed` a job whose worker died or hung twice yields `failed(arguments, reason)` instead and the rest
        goes on. `prepare` is a job that each worker runs first; what it raises is raised here. A worker hangs when a
        job takes longer than `timeout_s`, counted from when the worker was ready.
        """
        source = iter(arguments)
        again: list[tuple[Any, ...]] = []
        lost: list[int] = []  # identities of the jobs that took a worker along once
        broken = 0
        try:
            while True:
                for slot in self._slots:
                    if slot.arguments is None:
                        argument = again.pop(0) if again else next(source, None)
                        if argument is None:
                            break
                        slot.begin(job, argument, prepare)
                busy = [slot for slot in self._slots if slot.arguments is not None]
                if not busy:
                    return
                wait([slot.future for slot in busy if slot.future], LOOK_S, FIRST_COMPLETED)
                for slot in busy:
                    argument = slot.arguments
                    assert argument is not None
                    try:
                        if not slot.finished(timeout_s):
                            continue
                        result = slot.result()
                    except (BrokenProcessPool, _Hung) as error:
                        what = "hung" if isinstance(error, _Hung) else "died"
                        slot.close()
                        if failed is not None and slot.ready_s is not None:
                            if id(argument) in lost:
                                yield failed(argument, f"the simulator's worker {what}")
                            else:
                                lost.append(id(argument))
                                again.append(argument)
                            continue
                        again.append(argument)
                        broken += 1
                        if broken > 1:
                            raise UserError(
                                f"the simulator's workers {what} twice in a row (out of memory, or a broken graphics"
                                " driver); see `pipeline doctor`, and try one worker"
                            ) from error
                        continue
                    broken = 0
                    yield result
        finally:
            for slot in self._slots:
                slot.give_up()


class _Hung(RuntimeError):
    """A job or a start took too long."""


class _Slot:
    """One worker: a process that is started when it is needed, and its one job in flight."""

    def __init__(self, task_name: str, workers: int, make: Callable[[str], Environment]) -> None:
        self._task_name, self._workers, self._make = task_name, workers, make
        self._executor: ProcessPoolExecutor | None = None
        self._ready: list[Future[Any]] = []
        """Must be done before a job begins: building, what was given up, preparing."""
        self._preparing: Future[Any] | None = None
        self._prepared = False
        self._begun_s = 0.0
        self.future: Future[Any] | None = None
        self.arguments: tuple[Any, ...] | None = None
        self.ready_s: float | None = None
        """When the job began; None while the worker builds or prepares."""

    def begin(
        self,
        job: Callable[..., Any],
        arguments: tuple[Any, ...],
        prepare: tuple[Callable[..., Any], tuple[Any, ...]] | None,
    ) -> None:
        """Gives the worker its next job."""
        if self._executor is None:
            self._start()
        assert self._executor is not None
        self.arguments, self.ready_s, self._begun_s = arguments, None, time.monotonic()
        try:
            if prepare is not None and not self._prepared:
                self._preparing = self._executor.submit(_run, *prepare)
                self._ready.append(self._preparing)
            self._prepared = True
            self.future = self._executor.submit(_run, job, arguments)
        except BrokenProcessPool as error:  # it died between two jobs
            self.future = Future()
            self.future.set_exception(error)

    def finished(self, timeout_s: float | None) -> bool:
        """Whether the job has ended. Raises _Hung when it takes too long, and what preparing raised."""
        assert self.future is not None
        now = time.monotonic()
        if self.ready_s is None:
            if not all(future.done() for future in self._ready):
                if now - self._begun_s > START_S:
                    raise _Hung
                return False
            if self._preparing is not None:
                self._preparing.result()
            self._ready, self._preparing, self.ready_s = [], None, now
        if not self.future.done() and timeout_s is not None and now - self.ready_s > timeout_s:
            raise _Hung
        return self.future.done()

    def result(self) -> Any:
        """What the job returned or raised; the worker is free again."""
        assert self.future is not None
        future, self.future, self.arguments = self.future, None, None
        return future.result()

    def give_up(self) -> None:
        """Nobody waits for the job in flight any more: the next one begins when it has ended."""
        if self.future is not None:
            self._ready.append(self.future)
        self.future = self.arguments = None
        self._preparing, self._prepared = None, False

    def close(self) -> None:
        """Ends the process; its job is given up."""
        executor, self._executor = self._executor, None
        self.future = self.arguments = self._preparing = None
        self._ready, self._prepared = [], False
        if executor is None:
            return
        processes = list((getattr(executor, "_processes", None) or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()

    def _start(self) -> None:
        alone = {"OMP_NUM_THREADS": "1", "LP_NUM_THREADS": "1", "PYOPENGL_PLATFORM": "egl"}
        before = {name: os.environ.get(name) for name in alone}
        if self._workers > 1:  # a worker has one core: its libraries must not start a thread for each
            os.environ.update(alone)
        self._executor = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_build,
            initargs=(self._task_name, self._workers, self._make, os.getpid()),
        )
        # The executor starts its process with its first job, while these variables still stand.
        self._ready = [self._executor.submit(_ready)]
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def genesis(task_name: str) -> GenesisEnvironment:
    """The Genesis environment of a task."""
    from robocoach.sim.genesis_env import GenesisEnvironment
    from robocoach.sim.tasks import get_task

    return GenesisEnvironment(get_task(task_name))


def _build(task_name: str, workers: int, make: Callable[[str], Environment], parent: int) -> None:
    """Runs once in each worker."""
    global _environment
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with_parent(parent)
    logging.disable(logging.WARNING)
    _environment = make(task_name)
    if workers > 1 and (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


def _end_with_parent(parent: int) -> None:
    """A killed parent takes its workers along (Linux: prctl PR_SET_PDEATHSIG), also one killed before this call."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _ready() -> None:
    """The first, empty job of a worker."""


def _run(job: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    assert _environment is not None
    return job(_environment, *arguments)
