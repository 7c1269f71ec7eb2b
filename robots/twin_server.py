"""The twin's arm: franky-sim's FCI server with a task's MuJoCo scene, in a process of its own on a 1 ms schedule.

`serve` is the process; `robots/twin.py` starts it. Time is kept absolutely: a step that came late is made up for, and
what cannot be made up for shows in the clock that is published with every state. The physics of each step goes to
shared memory (`StateBoard`), so that reading it costs this process nothing.
"""

from __future__ import annotations

import gc
import logging
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from robocoach.robots.fci import loopback_hosts
from robocoach.robots.priority import keep_time
from robocoach.robots.twin_tape import Tape

if TYPE_CHECKING:
    from robocoach.robots.twin_arm import TwinArm
    from robocoach.sim.mujoco_scene import Layout
    from robocoach.sim.task import Task

STEP_S = 0.001
STEPS_BETWEEN_REQUESTS = 10
LARGEST_BACKLOG_S = 0.2
"""A schedule further behind than this is given up: time is lost, and the clock ratio says so."""


@dataclass(frozen=True)
class Snapshot:
    """The physics at one instant."""

    steps: int
    """Simulated milliseconds since the start."""
    at_s: float
    """Monotonic time of this state."""
    qpos: np.ndarray
    qvel: np.ndarray


class StateBoard:
    """Shared memory with the newest physics state: one writer, any readers, no locks.

    The writer raises the first number before a write and the last one after it; a reader that sees both equal has a
    whole state.
    """

    def __init__(self, memory: Any, nq: int) -> None:
        """`memory` is a shared array of `size(nq, nv)` doubles."""
        self._numbers = np.frombuffer(memory, dtype=np.float64)
        self._nq = nq

    @staticmethod
    def size(nq: int, nv: int) -> int:
        """Doubles that a board takes."""
        return 4 + nq + nv

    def write(self, steps: int, at_s: float, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Publishes a state."""
        numbers, turn = self._numbers, self._numbers[0] + 1
        numbers[0] = turn
        numbers[1], numbers[2] = steps, at_s
        numbers[3 : 3 + self._nq] = qpos
        numbers[3 + self._nq : -1] = qvel
        numbers[-1] = turn

    def read(self) -> Snapshot:
        """The newest whole state."""
        while True:
            last = self._numbers[-1]
            numbers = self._numbers.copy()
            if numbers[0] == last:
                qpos, qvel = numbers[3 : 3 + self._nq], numbers[3 + self._nq : -1]
                return Snapshot(int(numbers[1]), float(numbers[2]), qpos, qvel)


def degrees_of_freedom(task: Task) -> tuple[int, int]:
    """Lengths of qpos and qvel: seven joints, two fingers, and a free joint a box."""
    return 9 + 7 * len(task.boxes), 9 + 6 * len(task.boxes)


def serve(requests: Connection, memory: Any, tape_memory: Any, task_name: str, host: str, pace: float) -> None:
    """The process: answers `("ready", host, layout)`, then serves FCI until asked to stop or its parent is gone.

    `pace` below 1 makes the clock that much slower, to show what a slow machine does. Requests: `("place", scene)`
    puts the objects where a scene says; `("inject", fault, detail)` makes a fault happen; `("stop",)`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it stops the arm first, then this process
    logging.disable(logging.WARNING)
    from robocoach.robots.twin_arm import TwinArm
    from robocoach.sim import mujoco_scene
    from robocoach.sim.tasks import get_task

    task = get_task(task_name)
    with mujoco_scene.build(task) as simulator:
        arm = TwinArm(simulator.robots[0], [host] if host else loopback_hosts(), Tape(tape_memory))
        try:
            arm.init()
        except OSError as error:
            requests.send(("busy", str(error)))
            return
        try:
            simulator.start()
            layout = mujoco_scene.Layout.of(simulator.model, task)
            requests.send(("ready", arm.hostname, layout))
            _run(arm, simulator, requests, StateBoard(memory, simulator.model.nq), layout, STEP_S / pace)
        finally:
            arm.cleanup()


def _run(
    arm: TwinArm, simulator: Any, requests: Connection, board: StateBoard, layout: Layout, period_s: float
) -> None:
    from robocoach.sim import mujoco_scene
    from robocoach.sim.robot_model import ARM_JOINTS

    gc.collect()
    gc.freeze()
    gc.disable()
    keep_time()  # an arm's controller does not wait for other programs
    steps, due = 0, time.monotonic()
    data, joints = simulator.data, list(layout.arm)
    velocities = [int(simulator.model.joint(mujoco_scene.PREFIX + name).dofadr[0]) for name in ARM_JOINTS]
    while True:
        # What franky-sim's `run_once` does, without its sleep at the end, which yields the core even when asked not to
        # wait.
        arm.process_commands()
        arm.write_tape(data.qpos[joints], data.qvel[velocities])
        simulator.step()
        arm.send_state()
        steps += 1
        board.write(steps, time.monotonic(), data.qpos, data.qvel)
        if steps % STEPS_BETWEEN_REQUESTS == 0:
            try:
                if requests.poll():
                    request = requests.recv()
                    if request[0] == "stop":
                        return
                    if request[0] == "inject":
                        requests.send(("injected", arm.suffer(request[1], **request[2])))
                    else:
                        mujoco_scene.place_objects(simulator.model, data, request[1])
                        requests.send(("placed",))
            except (EOFError, OSError):
                return  # the parent is gone
        due += period_s
        wait = due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        elif wait < -LARGEST_BACKLOG_S:
            due = time.monotonic()
