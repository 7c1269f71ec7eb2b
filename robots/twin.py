"""The twin: a simulated FR3 with its wrist camera that the real franky client cannot tell from an arm on the network.

Two processes: the FCI server with the task's scene (`twin_server`), and the camera (`twin_camera`). Beside FCI the twin
has a side channel for what no arm offers: placing the objects of a scene, ground truth for the verdict (never given to
a policy), and the clock. Closing the twin, or the death of its parent, ends both.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from robocoach.configs.errors import UserError
from robocoach.robots import twin_camera, twin_server
from robocoach.robots.camera import Frame, FrameBox
from robocoach.robots.fci import FCI_PORT
from robocoach.robots.twin_server import STEP_S, StateBoard
from robocoach.robots.twin_tape import Stretch, Tape

if TYPE_CHECKING:
    from robocoach.sim.mujoco_scene import Layout
    from robocoach.sim.state import SimState
    from robocoach.sim.task import Scene

START_TIMEOUT_S = 90.0
SAME_MOMENT_S = 0.005
GL_BACKENDS = ("egl", "osmesa")
ARM_FAULTS = ("cut", "silent", "reflex", "user stop", "locked", "hand fails", "hand cut", "version", "heal")
"""What `Twin.inject` knows; see `twin_arm.TwinArm.suffer`."""


class TwinCamera:
    """The wrist camera of the twin; frames come when triggered. `GL_BACKENDS` are tried in turn.

    `stall`, `freeze` and `unplug` are what a camera can suffer; `plug_in` mends them all.
    """

    def __init__(self, context: Any, memory: Any, task_name: str) -> None:
        self._context, self._arguments = context, (memory, task_name)
        self._scene: Scene | None = None
        self._frozen: Frame | None = None
        self.process: Any = None
        self.backend = ""
        self._start(GL_BACKENDS)

    def _start(self, backends: Sequence[str]) -> None:
        for backend in backends:
            self._requests, theirs = self._context.Pipe()
            self.process = self._context.Process(
                target=twin_camera.render, args=(theirs, *self._arguments, backend), name="twin-camera", daemon=True
            )
            self.process.start()
            theirs.close()
            if _came_up(self._requests, self.process):
                break
        else:
            raise UserError("the twin's camera cannot render: install libegl1 libgl1 libosmesa6 (Debian packages)")
        self.backend = backend
        self._box = FrameBox()
        self._asked = threading.Lock()
        threading.Thread(
            target=self._read, args=(self._requests, self._box, self._asked), name="twin-camera", daemon=True
        ).start()

    def trigger(self) -> None:
        """Asks for a frame unless one is being rendered; returns at once."""
        if self._asked.acquire(blocking=False):
            self._send(("frame",))

    def latest(self) -> Frame | None:
        """The newest frame, None before the first."""
        return self._box.latest()

    def newer_than(self, moment_s: float, timeout_s: float) -> Frame | None:
        """Waits for a frame captured after a monotonic time (or up to 5 ms before); None when none comes in time."""
        deadline = time.monotonic() + timeout_s
        # The first picture asked for may show a state a step or two old; a second one would cost 20 ms.
        moment_s -= SAME_MOMENT_S
        while (left := deadline - time.monotonic()) > 0:
            self.trigger()
            frame = self._box.newer_than(moment_s, min(left, 0.05))
            if frame is not None:
                return frame
        return None

    def repaint(self, scene: Scene) -> None:
        """Colours, light and camera error of a scene; shown in every frame asked for from now on."""
        self._scene = scene
        self._send(("scene", scene))

    def stall(self) -> float:
        """No frame comes any more, as when the bus hangs; returns when."""
        os.kill(self.process.pid, signal.SIGSTOP)
        return time.monotonic()

    def freeze(self) -> float:
        """The same picture comes again and again, as if it were new; returns when."""
        self._frozen = self._box.latest()
        return time.monotonic()

    def unplug(self) -> float:
        """The device is gone; returns when."""
        self.process.kill()
        return time.monotonic()

    def plug_in(self) -> None:
        """Mends what `stall`, `freeze` or `unplug` did; a new device takes seconds to come up."""
        self._frozen = None
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGCONT)
            return
        self._start((self.backend,))
        if self._scene is not None:
            self.repaint(self._scene)

    def close(self) -> None:
        """Ends the process."""
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGCONT)
        self._send(("stop",))
        _end(self.process)

    def _send(self, request: tuple) -> None:
        try:
            self._requests.send(request)
        except OSError:
            return  # the process is gone: frames stop, and the envelope stops the arm for it

    def _read(self, requests: Connection, box: FrameBox, asked: threading.Lock) -> None:
        while True:
            try:
                frame = twin_camera.unpack(requests.recv_bytes())
            except (EOFError, OSError):
                return
            box.put(replace(self._frozen, captured_s=frame.captured_s) if self._frozen is not None else frame)
            asked.release()


class Twin:
    """A running twin of one task. Use as a context manager."""

    def __init__(self, task_name: str, host: str = "", pace: float = 1.0) -> None:
        """Starts both processes (a few seconds). Raises UserError when the FCI port is busy or nothing renders.

        `host` fixes the loopback address, else a free one is chosen; `pace` below 1 slows its clock down, for tests
        of what a slow machine does.
        """
        from robocoach.sim.tasks import get_task

        context = multiprocessing.get_context("spawn")
        nq, nv = twin_server.degrees_of_freedom(get_task(task_name))
        memory = context.RawArray("d", StateBoard.size(nq, nv))
        tape_memory = context.RawArray("d", Tape.size())
        self._board, self._tape = StateBoard(memory, nq), Tape(tape_memory)
        self._recording_from = 0
        self._requests, theirs = context.Pipe()
        self._asking = threading.Lock()
        self.process = context.Process(
            target=twin_server.serve,
            args=(theirs, memory, tape_memory, task_name, host, pace),
            name="twin-fci",
            daemon=True,
        )
        self.process.start()
        theirs.close()
        try:
            self.camera = TwinCamera(context, memory, task_name)
            answer = self._ask(None, START_TIMEOUT_S)
            if answer[0] == "busy":
                where = f"{host}:{FCI_PORT}" if host else f"port {FCI_PORT} on every loopback address tried"
                raise UserError(f"the twin's FCI address is busy ({where}): end the program that holds it")
        except BaseException:
            self.close()
            raise
        self.host: str = answer[1]
        """Loopback address of the FCI."""
        self._layout: Layout = answer[2]

    def __enter__(self) -> Twin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def place(self, scene: Scene) -> None:
        """Puts the objects where the scene says and repaints the camera's world; the arm stays where it is."""
        self.camera.repaint(scene)
        self._ask(("place", scene), 10.0)

    def state(self) -> SimState:
        """Ground truth now: for verdicts, and for the scripted demonstrator that proves the twin."""
        snapshot = self._board.read()
        return self._layout.state(snapshot.qpos, snapshot.qvel)

    def record(self) -> None:
        """Begins a recording of the 1 kHz command stream; a recording under way is forgotten."""
        self._recording_from = self._tape.count

    def recorded(self) -> Stretch:
        """What the arm was commanded and did since `record`, two minutes at most. Raises ValueError."""
        return self._tape.read(self._recording_from)

    def inject(self, fault: str, **detail: Any) -> float:
        """Lets the arm suffer a fault; returns the monotonic time at which it took effect.

        `cut` (`seconds`): every connection is closed, and new ones are not served for a while, as when another client
        holds the FCI. `silent`: no state is sent. `reflex` (`error`): the motion is aborted with one of
        `twin_arm.ERRORS`. `user stop`, `locked`: the motion is aborted and none can start. `hand fails`: hand commands
        are answered as failed. `hand cut`: the hand's connection is closed. `version` (`version`): another FCI server
        version is spoken. `heal` ends all of them. Raises ValueError for anything else.
        """
        if fault not in ARM_FAULTS:
            raise ValueError(f"no fault {fault!r}; there are {', '.join(ARM_FAULTS)}")
        return self._ask(("inject", fault, detail), 5.0)[1]

    def clock(self) -> tuple[float, float]:
        """Simulated time and the monotonic time it belongs to [s]; waits for the first step of a twin just started."""
        deadline = time.monotonic() + 2.0
        while (snapshot := self._board.read()).steps == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        return snapshot.steps * STEP_S, snapshot.at_s

    def close(self) -> None:
        """Ends both processes."""
        camera = getattr(self, "camera", None)
        if camera is not None:
            camera.close()
        with contextlib.suppress(OSError):  # it may be gone already
            self._requests.send(("stop",))
        _end(self.process)

    def _ask(self, request: tuple | None, timeout_s: float) -> tuple:
        try:
            with self._asking:
                if request is not None:
                    self._requests.send(request)
                if self._requests.poll(timeout_s):
                    return self._requests.recv()
        except (EOFError, OSError) as error:
            raise TwinLost("the twin's process has ended") from error
        raise TwinLost(f"the twin has not answered for {timeout_s:.0f} s")


class TwinLost(RuntimeError):
    """The twin ended or hangs; every rollout on it is invalid."""


def clock_ratio(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Simulated seconds per second between two readings of `Twin.clock`."""
    return (after[0] - before[0]) / max(1e-9, after[1] - before[1])


def _came_up(requests: Connection, process: Any) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.is_alive():
        try:
            if requests.poll(0.2):
                return requests.recv_bytes() == b"ready"
        except (EOFError, OSError):
            break
    _end(process)
    return False


def _end(process: Any) -> None:
    process.join(timeout=3.0)
    if process.is_alive():
        process.kill()
        process.join(timeout=3.0)
