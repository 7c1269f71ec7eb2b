"""The wrist RealSense (D435 family) as the contract's camera: colour frames, centre square, 224×224, with their age.

Thin for now: one colour stream at 640×480, newest frame kept. pyrealsense2 is imported when a camera is opened.
"""

from __future__ import annotations

import threading
import time

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import IMAGE_SIZE
from robocoach.datasets.video import resize
from robocoach.robots.camera import Frame, FrameBox

WIDTH, HEIGHT, RATE_HZ = 640, 480, 30
FIRST_FRAME_TIMEOUT_S = 5.0


def as_contract(colour: np.ndarray) -> np.ndarray:
    """uint8 RGB (H, W, 3) → (224, 224, 3): the centre square, area-resized."""
    height, width = colour.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return resize(colour[top : top + side, left : left + side], IMAGE_SIZE)


class RealSense:
    """The first RealSense that is plugged in."""

    def __init__(self) -> None:
        """Opens it and waits for its first frame. Raises UserError when there is none."""
        import pyrealsense2 as rs

        if not len(rs.context().query_devices()):
            raise UserError("no RealSense camera found: plug the wrist camera into a USB 3 port, see `pipeline doctor`")
        self._box = FrameBox()
        self._pipeline = rs.pipeline()
        settings = rs.config()
        settings.enable_stream(rs.stream.color, WIDTH, HEIGHT, rs.format.rgb8, RATE_HZ)
        try:
            self._pipeline.start(settings)
        except RuntimeError as error:
            raise UserError(f"the RealSense gives no {WIDTH}x{HEIGHT} colour at {RATE_HZ} Hz ({error})") from error
        self._done = threading.Event()
        self._reader = threading.Thread(target=self._read, name="realsense", daemon=True)
        self._reader.start()
        if self._box.newer_than(0.0, FIRST_FRAME_TIMEOUT_S) is None:
            self.close()
            raise UserError(f"the RealSense has sent no frame in {FIRST_FRAME_TIMEOUT_S:.0f} s: unplug it, plug it in")

    def trigger(self) -> None:
        """Does nothing: the camera runs freely."""

    def latest(self) -> Frame | None:
        """The newest frame."""
        return self._box.latest()

    def newer_than(self, moment_s: float, timeout_s: float) -> Frame | None:
        """Waits for a frame captured after a monotonic time; None when none comes in time."""
        return self._box.newer_than(moment_s, timeout_s)

    def close(self) -> None:
        """Ends the stream."""
        self._done.set()
        self._reader.join(timeout=2.0)
        self._pipeline.stop()

    def _read(self) -> None:
        while not self._done.is_set():
            try:
                frames = self._pipeline.wait_for_frames(500)
            except RuntimeError:
                continue  # a dropped frame or an unplugged camera: the frame's age tells, and stops the arm
            # Time of arrival; exposure and transfer make the picture about 50 ms older.
            arrived = time.monotonic()
            self._box.put(Frame(as_contract(np.asanyarray(frames.get_color_frame().get_data())), arrived))
