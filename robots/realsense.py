"""The wrist RealSense (D435, D435i, D435if) as the contract's camera: colour, centre square, 224×224, with its age.

LeRobot's `RealSenseCamera` is not used: it makes its own librealsense context (so no `software_device`, no look for a
camera that came back), stamps frames by arrival alone and ends its reader after ten failures. pyrealsense2 is imported
when a camera is opened.

A thread reads the frames. When they stop (an unplugged camera), it closes the device and tries to open it again, with a
growing pause, fixed to the exposure it had; the newest frame grows old meanwhile, and the envelope stops the arm.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.configs.models import CameraConfig
from robocoach.robots import camera_exposure, camera_modes
from robocoach.robots.camera import CameraInfo, Counters, Frame, FrameBox
from robocoach.robots.camera_clock import FrameClock
from robocoach.robots.camera_exposure import Exposure
from robocoach.robots.camera_geometry import Intrinsics, as_contract
from robocoach.robots.camera_modes import Mode
from robocoach.sim.camera import CROP, FOV_DEG

FIRST_FRAME_TIMEOUT_S = 5.0
SETTLE_TIMEOUT_S = 3.0
"""How much longer than asked a warm-up waits for the exposure to converge."""
SILENCE_S = 0.6
"""No frame for so long means that the camera is gone: by then the envelope (0.25 s) has stopped the arm, so looking for
devices, during which librealsense holds Python's interpreter, delays nobody."""
PAUSE_S, LONGEST_PAUSE_S = 0.25, 2.0
"""Between two attempts to open the camera again; doubled after each."""
RESET_AFTER = 3
"""Attempts in vain on a camera that is listed, after which it is reset once."""
SKIPPED_AFTER_RECONNECT = 5
JOIN_TIMEOUT_S = 3.0


class RealSense:
    """A RealSense at the wrist, streaming."""

    def __init__(self, config: CameraConfig | None = None, context: Any = None, *, fov_deg: float = FOV_DEG) -> None:
        """Opens the camera, warms it up and fixes its exposure; takes about `warmup_s`.

        `context` is the librealsense context to look for devices in (a new one if None), `fov_deg` the contract's
        vertical field of view. Raises UserError when no camera, more than one, or none that serves is found.
        """
        import pyrealsense2 as rs

        self._config = config or CameraConfig()
        self._context = rs.context() if context is None else context
        device = _choose_device(_devices(self._context), self._config.camera_serial)
        self._serial = _detail(device, "serial_number")
        self._name = _detail(device, "name")
        self._box = FrameBox()
        self.counters = Counters()
        self._last_number = -1
        self._clock = FrameClock()
        self._done = threading.Event()
        self._stream: _Stream | None = None
        modes = _modes(device)
        self._mode, notes = camera_modes.choose(list(modes), self._config, fov_deg)
        self._intrinsics = modes[self._mode].as_contract()
        self._notes = (*_usb_notes(device), *notes)
        sensor = _colour_sensor(device)
        try:
            camera_exposure.begin(sensor, self._config)
            self._stream = _Stream(device, self._mode)
            self._exposure = self._warm_up(self._stream)
        except RuntimeError as error:
            self._end_stream()
            raise UserError(
                f"the RealSense {self._serial} cannot stream {self._mode.text} ({error}): end the program that uses "
                "it, or unplug it and plug it in"
            ) from error
        except BaseException:
            self._end_stream()
            raise
        self._reader = threading.Thread(target=self._read, name="realsense", daemon=True)
        self._reader.start()

    def trigger(self) -> None:
        """Does nothing: the camera runs freely."""

    def latest(self) -> Frame | None:
        """The newest frame."""
        return self._box.latest()

    def newer_than(self, moment_s: float, timeout_s: float) -> Frame | None:
        """Waits for a frame captured after a monotonic time; None when none comes in time."""
        return self._box.newer_than(moment_s, timeout_s)

    def close(self) -> None:
        """Ends the stream; also after the camera was unplugged, and twice."""
        self._done.set()
        self._reader.join(timeout=JOIN_TIMEOUT_S)

    def info(self) -> CameraInfo:
        """What the camera is and how it is set, measured."""
        return CameraInfo(
            camera=model_name(self._name),
            crop=CROP,
            fov_deg=round(self._intrinsics.fov_deg, 2),
            mode=self._mode.text,
            intrinsics=self._intrinsics,
            exposure=self._exposure.text,
            serial=self._serial,
            notes=(*self._notes, *self._exposure.notes),
        )

    @property
    def provenance(self) -> dict[str, object]:
        """`camera`, `fov_deg` and `crop` of a contract's provenance, as this camera measures them."""
        return self.info().provenance

    @property
    def age_from(self) -> str:
        """Where the age of the last frame comes from, in words."""
        return self._clock.source

    def _warm_up(self, stream: _Stream) -> Exposure:
        """Throws frames away until the camera has found its exposure, and fixes it; the last frame is kept."""
        config, begun = self._config, time.monotonic()
        seen_us: list[float] = []
        frame = None
        count, exposing, patience = 0, not config.exposure_us, config.warmup_s + SETTLE_TIMEOUT_S
        while True:
            arrived = stream.next(FIRST_FRAME_TIMEOUT_S)
            if arrived is None:
                raise UserError(
                    f"the RealSense {self._serial} has sent no frame in {FIRST_FRAME_TIMEOUT_S:.0f} s: unplug it, "
                    "plug it into a USB 3 port"
                )
            frame, count, taken_s = arrived, count + 1, time.monotonic() - begun
            value = camera_exposure.exposure_us(stream.sensor, frame)
            seen_us += [] if value is None else [value]
            if count > config.warmup_frames and taken_s >= config.warmup_s:
                moving = exposing and seen_us and not camera_exposure.has_settled(seen_us)
                if not moving or taken_s >= patience:
                    break
        if moving:
            self._notes += ("its exposure was still changing when the warm-up ended; give it longer with --warmup-s",)
        exposure = camera_exposure.fix(stream.sensor, frame, config)
        self._take(frame)
        return exposure

    def _read(self) -> None:
        """The reader's thread: hands on frames, and brings the camera back when they stop."""
        last, failed, skip = time.monotonic(), 0, 0
        while not self._done.is_set():
            try:
                frame = self._stream.next(0.1) if self._stream is not None else None
            except RuntimeError:
                frame = None
            if frame is not None:
                last, failed = time.monotonic(), 0
                if skip:
                    skip -= 1  # the first frames of a stream are darker
                else:
                    self._take(frame)
            elif self._stream is None or time.monotonic() - last > SILENCE_S:
                self._end_stream()
                if failed and self._done.wait(min(LONGEST_PAUSE_S, PAUSE_S * 2 ** min(failed - 1, 8))):
                    break
                failed += 1
                if self._open_again(failed):
                    last, skip = time.monotonic(), SKIPPED_AFTER_RECONNECT
        self._end_stream()

    def _open_again(self, attempt: int) -> bool:
        try:
            device = next((d for d in _devices(self._context) if _detail(d, "serial_number") == self._serial), None)
            if device is None:
                return False
            if attempt == RESET_AFTER:
                device.hardware_reset()
                return False
            camera_exposure.apply(_colour_sensor(device), self._exposure)
            self._stream = _Stream(device, self._mode)
        except (RuntimeError, UserError):
            return False  # it went away again, or is not ready yet
        self._clock, self._last_number = FrameClock(), -1
        self.counters.reconnects += 1
        return True

    def _take(self, frame: Any) -> None:
        arrived = time.monotonic()
        number = frame.get_frame_number()
        if self._last_number >= 0:
            self.counters.drops += max(0, number - self._last_number - 1)
        self._last_number = number
        domain = frame.get_frame_timestamp_domain().name
        captured = self._clock.captured_s(frame.get_timestamp() / 1000, domain, arrived)
        self.counters.frames += 1
        self._box.put(Frame(as_contract(np.asanyarray(frame.get_data())), captured))

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class _Stream:
    """A colour sensor that streams into a queue of one frame, so that the newest is always the next."""

    def __init__(self, device: Any, mode: Mode) -> None:
        """Raises RuntimeError when the device does not start."""
        import pyrealsense2 as rs

        self.sensor = _colour_sensor(device)
        self._queue = rs.frame_queue(1)
        profile = next(
            p
            for p in _colour_profiles(self.sensor)
            if (p.width(), p.height(), p.fps()) == (mode.width, mode.height, mode.fps)
        )
        self.sensor.open(profile)
        try:
            self.sensor.start(self._queue)
        except RuntimeError:
            self.close()
            raise

    def next(self, timeout_s: float) -> Any | None:
        """The newest frame, None when none comes in time."""
        arrived, frame = self._queue.try_wait_for_frame(round(1000 * timeout_s))
        return frame.as_video_frame() if arrived else None

    def close(self) -> None:
        """Stops and closes the sensor; an unplugged one says it cannot, which is as good."""
        for end in (self.sensor.stop, self.sensor.close):
            with contextlib.suppress(RuntimeError):
                end()


def open_realsense(config: CameraConfig) -> RealSense:
    """The wrist camera as configured. Raises UserError."""
    return RealSense(config)


def model_name(name: str) -> str:
    """The contract's name of a camera: `Intel RealSense D435I` → `realsense-d435i-colour`."""
    found = re.search(r"\bD4\w+", name)
    model = found.group().lower() if found else re.sub(r"\W+", "-", name.lower()).strip("-")
    return f"realsense-{model}-colour"


def _devices(context: Any) -> list[Any]:
    """Cameras with a colour sensor, by serial number. One that is just being plugged in or out is left out."""
    found = []
    for device in context.query_devices():
        with contextlib.suppress(RuntimeError, UserError):
            _colour_sensor(device)
            found.append(device)
    return sorted(found, key=lambda device: _detail(device, "serial_number"))


def _choose_device(devices: Sequence[Any], serial: str) -> Any:
    listed = ", ".join(f"{_detail(device, 'serial_number')} ({_detail(device, 'name')})" for device in devices)
    if not devices:
        raise UserError("no RealSense camera found: plug the wrist camera into a USB 3 port, see `pipeline doctor`")
    if not serial:
        if len(devices) > 1:
            raise UserError(f"{len(devices)} RealSense cameras are plugged in: {listed}; name one with --camera-serial")
        return devices[0]
    for device in devices:
        if _detail(device, "serial_number") == serial:
            return device
    raise UserError(f"--camera-serial {serial}: no such RealSense is plugged in; found {listed}")


def _detail(device: Any, name: str) -> str:
    import pyrealsense2 as rs

    detail = getattr(rs.camera_info, name)
    return device.get_info(detail) if device.supports(detail) else ""


def _usb_notes(device: Any) -> tuple[str, ...]:
    usb = _detail(device, "usb_type_descriptor")
    if usb.startswith("2"):
        return (f"it is on USB {usb}, where frames get lost and fewer modes exist: use a USB 3 port and cable",)
    return ()


def _colour_profiles(sensor: Any) -> list[Any]:
    import pyrealsense2 as rs

    return [
        profile.as_video_stream_profile()
        for profile in sensor.get_stream_profiles()
        if profile.stream_type() == rs.stream.color and profile.format() == rs.format.rgb8
    ]


def _colour_sensor(device: Any) -> Any:
    for sensor in device.query_sensors():
        if _colour_profiles(sensor):
            return sensor
    raise UserError(
        f"the RealSense {_detail(device, 'serial_number')} has no colour sensor; use a D435, D435i or D435if"
    )


def _modes(device: Any) -> dict[Mode, Intrinsics]:
    found = {}
    for profile in _colour_profiles(_colour_sensor(device)):
        k = profile.get_intrinsics()
        intrinsics = Intrinsics(k.width, k.height, k.fx, k.fy, k.ppx, k.ppy, tuple(k.coeffs))
        mode = Mode(profile.width(), profile.height(), profile.fps(), round(intrinsics.as_contract().fov_deg, 2))
        found[mode] = intrinsics
    return found
