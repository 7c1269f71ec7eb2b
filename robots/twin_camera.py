"""The twin's wrist camera: renders on request in a process of its own, so that it never disturbs the arm's 1 kHz.

`render` is the process; `robots/twin.py` starts it. It has its own copy of the scene, takes the state from shared
memory, and sends each picture with the time at which it shows the world.
"""

from __future__ import annotations

import os
import signal
import struct
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from robocoach.datasets.contract import IMAGE_SIZE
from robocoach.robots.camera import Frame
from robocoach.robots.priority import go_first

CAMERA_PRIORITY = -5
"""After the arm, before everything else."""
HEADER = struct.Struct("<d")
NOISE_OFFSETS = 4096


def pack(frame: Frame) -> bytes:
    """A frame as bytes for the pipe."""
    return HEADER.pack(frame.captured_s) + frame.image.tobytes()


def unpack(message: bytes) -> Frame:
    """The inverse of `pack`."""
    (captured_s,) = HEADER.unpack_from(message)
    pixels = np.frombuffer(message, np.uint8, offset=HEADER.size)
    return Frame(pixels.reshape(IMAGE_SIZE, IMAGE_SIZE, 3), captured_s)


class SensorNoise:
    """Flips the last bit of half of the values, differently in every frame.

    No sensor delivers the same picture twice, which is how a frozen camera is told from a world at rest.
    """

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._bits = rng.integers(0, 2, IMAGE_SIZE * IMAGE_SIZE * 3 + NOISE_OFFSETS, np.uint8)
        self._frames = 0

    def add(self, image: np.ndarray) -> np.ndarray:
        """uint8 (224, 224, 3) → the same with noise."""
        self._frames += 1
        at = self._frames * 977 % NOISE_OFFSETS
        return image ^ self._bits[at : at + image.size].reshape(image.shape)


def render(requests: Connection, memory: Any, task_name: str, backend: str) -> None:
    """The process: answers `ready`, then renders for each `frame` request until asked to stop or its parent is gone.

    `backend` is MuJoCo's OpenGL backend. `("scene", scene)` repaints; `("frame",)` is answered by a packed frame.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["MUJOCO_GL"] = backend
    os.environ["LP_NUM_THREADS"] = "1"  # Mesa's software renderer takes every core otherwise
    go_first(CAMERA_PRIORITY)  # before OpenGL starts its threads, which inherit it
    import mujoco

    from robocoach.robots.twin_server import StateBoard
    from robocoach.sim import mujoco_scene
    from robocoach.sim.tasks import get_task

    with mujoco_scene.build(get_task(task_name)) as simulator:
        simulator.start()
        model, data = simulator.model, simulator.data
        camera = mujoco_scene.WristRenderer(model)
        board = StateBoard(memory, model.nq)
        noise = SensorNoise()
        camera.render(data)
        requests.send_bytes(b"ready")
        while True:
            try:
                request = requests.recv()
            except (EOFError, OSError):
                break  # the parent is gone
            if request[0] == "stop":
                break
            if request[0] == "scene":
                mujoco_scene.paint(model, request[1])
                continue
            snapshot = board.read()
            data.qpos[:] = snapshot.qpos
            mujoco.mj_kinematics(model, data)
            mujoco.mj_camlight(model, data)
            requests.send_bytes(pack(Frame(noise.add(camera.render(data)), snapshot.at_s)))
        camera.close()
