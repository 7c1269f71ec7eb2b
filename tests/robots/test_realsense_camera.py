"""The wrist RealSense on librealsense's own software device: real frames, queues and timestamps, no hardware."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyrealsense2 as rs
import pytest

from robocoach.configs.errors import UserError
from robocoach.configs.models import CameraConfig
from robocoach.datasets import contract as contracts
from robocoach.robots.camera_clock import SOURCES, SYSTEM
from robocoach.robots.realsense import RealSense, model_name
from robocoach.sim import provenance

QUICK = CameraConfig(warmup_s=0.1, warmup_frames=2)
MODES = ((640, 480, 30), (424, 240, 30), (320, 180, 30), (1280, 720, 30), (424, 240, 6))
WAIT_S = 10.0


class SoftwareCamera:
    """A D435 made of librealsense's software device, sending frames from a thread of its own while plugged in."""

    def __init__(self, context: Any, serial: str = "101", usb: str = "3.2", modes: tuple = MODES, options: bool = True):
        self.context, self.serial, self.usb, self.modes = context, serial, usb, modes
        self.options = options
        self.domain = rs.timestamp_domain.system_time
        self.delay_s = 0.0
        self.level = 100
        self.skip = 0
        """Frame numbers to leave out, once."""
        self.exposures: Iterator[int] = iter(())
        self.number = 0
        self._kept: list = []
        self._sending = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.make()

    def make(self) -> None:
        """A new device with the same serial number, as after plugging in."""
        self.device = rs.software_device()
        self.device.register_info(rs.camera_info.name, "Intel RealSense D435I")
        self.device.register_info(rs.camera_info.serial_number, self.serial)
        self.device.register_info(rs.camera_info.usb_type_descriptor, self.usb)
        self.sensor = self.device.add_sensor("RGB Camera")
        self.profiles = {}
        for uid, (width, height, fps) in enumerate(self.modes):
            stream = rs.video_stream()
            stream.type, stream.index, stream.uid, stream.fmt = rs.stream.color, 0, uid + 1, rs.format.rgb8
            stream.width, stream.height, stream.fps, stream.bpp = width, height, fps, 3
            k = rs.intrinsics()
            k.width, k.height, k.model, k.coeffs = width, height, rs.distortion.inverse_brown_conrady, [0.0] * 5
            k.fx = k.fy = 1.28 * height
            k.ppx, k.ppy = width / 2 + 3, height / 2 - 2
            stream.intrinsics = k
            self.profiles[(width, height, fps)] = self.sensor.add_video_stream(stream, uid == 0)
        if self.options:
            for option, low, high, value in (
                (rs.option.enable_auto_exposure, 0, 1, 1),
                (rs.option.exposure, 1, 10_000, 156),
                (rs.option.gain, 0, 128, 64),
                (rs.option.enable_auto_white_balance, 0, 1, 1),
                (rs.option.white_balance, 2800, 6500, 4600),
            ):
                allowed = rs.option_range()
                allowed.min, allowed.max, allowed.step, allowed.default = low, high, 1, value
                self.sensor.add_option(option, allowed, True)

    def plug(self) -> None:
        """Lists it in the context; the context itself does not keep a software device, the event's list does."""
        self.context.set_devices_changed_callback(lambda event: self._kept.append(event.get_new_devices()))
        self.device.add_to(self.context)
        deadline = time.monotonic() + WAIT_S
        while not self._kept and time.monotonic() < deadline:
            time.sleep(0.005)
        self._sending.set()
        if not self._thread.is_alive():
            self._thread.start()

    def unplug(self) -> None:
        """Stops sending and takes it off the list."""
        self._sending.clear()
        self._kept.clear()

    def end(self) -> None:
        self._done.set()
        self._sending.set()
        self._thread.join(WAIT_S)
        self.unplug()

    def value(self, option: Any) -> float:
        return self.sensor.get_option(option)

    def _send(self) -> None:
        while not self._done.is_set():
            self._sending.wait()
            for stream in self.sensor.get_active_streams():
                shape = stream.as_video_stream_profile()
                key = (shape.width(), shape.height(), shape.fps())
                self._frame(*key[:2], self.profiles[key].as_video_stream_profile())
            time.sleep(1 / 60)

    def _frame(self, width: int, height: int, profile: Any) -> None:
        frame = rs.software_video_frame()
        frame.pixels = np.full((height, width, 3), self.level, np.uint8)
        frame.stride, frame.bpp, frame.profile = 3 * width, 3, profile
        clock = time.monotonic() if self.domain == rs.timestamp_domain.hardware_clock else time.time()
        frame.timestamp, frame.domain = 1000 * (clock - self.delay_s), self.domain
        self.number += 1 + self.skip
        self.skip = 0
        frame.frame_number = self.number
        exposure = next(self.exposures, None)
        if exposure is not None:
            self.sensor.set_metadata(rs.frame_metadata_value.actual_exposure, exposure)
        self.sensor.on_video_frame(frame)


@pytest.fixture
def plugged() -> Iterator[SoftwareCamera]:
    device = SoftwareCamera(rs.context())
    device.plug()
    yield device
    device.end()


@pytest.fixture
def camera(plugged) -> Iterator[RealSense]:
    opened = RealSense(QUICK, plugged.context)
    yield opened
    opened.close()


def until(true, timeout_s: float = WAIT_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.01)
    return False


def test_frames_come_as_the_contract_has_them(camera):
    frame = camera.newer_than(time.monotonic(), WAIT_S)
    assert frame.image.shape == (224, 224, 3) and frame.image.dtype == np.uint8 and (frame.image == 100).all()


def test_the_smallest_mode_that_holds_the_contract_is_taken(camera):
    assert camera.info().mode == "424x240 at 30 Hz"


def test_a_mode_that_was_asked_for_is_taken(plugged):
    config = QUICK.model_copy(update={"camera_width_px": 640, "camera_height_px": 480})
    opened = RealSense(config, plugged.context)
    try:
        assert opened.info().mode == "640x480 at 30 Hz"
    finally:
        opened.close()


def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(plugged):
    config = QUICK.model_copy(update={"camera_width_px": 641})
    with pytest.raises(UserError, match=r"no colour mode of 641xany.*it has 320x180 at 30 Hz, 424x240 at 6 Hz, .*"):
        RealSense(config, plugged.context)


def test_the_provenance_is_measured(camera):
    k = camera.info().intrinsics
    assert (k.width, k.height) == (224, 224) and k.fx == pytest.approx(1.28 * 224)
    measured = camera.provenance
    assert measured["camera"] == "realsense-d435i-colour" and measured["fov_deg"] == pytest.approx(42.67, abs=0.02)
    ours = provenance.contract("real", None)
    ours = ours.model_copy(update={"provenance": ours.provenance.model_copy(update=measured)})
    contracts.check(ours, provenance.contract("sim:genesis", "1.4.5"), "the checkpoint")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Intel RealSense D435", "realsense-d435-colour"),
        ("RealSense D435IF", "realsense-d435if-colour"),
        ("Acme Eye 3", "realsense-acme-eye-3-colour"),
    ],
)
def test_a_camera_has_the_contracts_name(name, model):
    assert model_name(name) == model


def test_an_unknown_serial_number_lists_what_is_plugged_in(plugged):
    with pytest.raises(UserError, match=r"--camera-serial 999: .*found 101 \(Intel RealSense D435I\)"):
        RealSense(QUICK.model_copy(update={"camera_serial": "999"}), plugged.context)


def test_two_cameras_need_a_choice(plugged):
    other = SoftwareCamera(plugged.context, serial="202")
    other.plug()
    try:
        with pytest.raises(UserError, match=r"2 RealSense cameras .*101 .*202 .*--camera-serial"):
            RealSense(QUICK, plugged.context)
        opened = RealSense(QUICK.model_copy(update={"camera_serial": "202"}), plugged.context)
        assert opened.info().serial == "202"
        opened.close()
    finally:
        other.end()


def test_usb_2_is_a_note():
    slow = SoftwareCamera(rs.context(), usb="2.1")
    slow.plug()
    opened = RealSense(QUICK, slow.context)
    try:
        assert any("USB 2.1" in note for note in opened.info().notes)
    finally:
        opened.close()
        slow.end()


def test_the_age_of_a_frame_is_its_time_in_the_driver(plugged):
    plugged.delay_s = 0.12
    opened = RealSense(QUICK, plugged.context)
    try:
        frame = opened.newer_than(time.monotonic(), WAIT_S)
        assert frame is not None and 0.12 <= time.monotonic() - frame.captured_s < 0.3
        assert opened.age_from == SOURCES[SYSTEM]
    finally:
        opened.close()


def test_lost_frames_are_counted(plugged, camera):
    before = camera.counters.drops
    plugged.skip = 7
    assert until(lambda: camera.counters.drops >= before + 7)


def test_the_exposure_the_camera_found_is_kept(plugged):
    plugged.exposures = iter([100 + 20 * min(k, 10) for k in range(10_000)])
    opened = RealSense(QUICK, plugged.context)
    try:
        assert plugged.value(rs.option.exposure) == 300
        assert plugged.value(rs.option.enable_auto_exposure) == 0
        assert plugged.value(rs.option.enable_auto_white_balance) == 0
        assert opened.info().exposure == "30.0 ms, gain 64, fixed; 4600 K, fixed"
    finally:
        opened.close()


def test_values_that_were_given_are_set(plugged):
    config = QUICK.model_copy(update={"exposure_us": 8_000, "gain": 20, "white_balance_k": 3_500})
    opened = RealSense(config, plugged.context)
    opened.close()
    found = [plugged.value(option) for option in (rs.option.exposure, rs.option.gain, rs.option.white_balance)]
    assert found == [80, 20, 3_500]


def test_an_exposure_can_stay_automatic(plugged):
    opened = RealSense(QUICK.model_copy(update={"lock_exposure": False}), plugged.context)
    try:
        assert plugged.value(rs.option.enable_auto_exposure) == 1
        assert "automatic" in opened.info().exposure
    finally:
        opened.close()


def test_a_sensor_without_exposure_is_a_note():
    plain = SoftwareCamera(rs.context(), options=False)
    plain.plug()
    opened = RealSense(QUICK, plain.context)
    try:
        assert sum("no exposure option" in note for note in opened.info().notes) == 1
    finally:
        opened.close()
        plain.end()


def test_an_unplugged_camera_grows_old_and_comes_back_as_it_was(plugged, camera):
    plugged.sensor.set_option(rs.option.exposure, 156)
    plugged.unplug()
    time.sleep(0.4)
    assert time.monotonic() - camera.latest().captured_s > 0.3
    plugged.make()
    plugged.plug()
    gone = time.monotonic()
    assert camera.newer_than(gone, WAIT_S) is not None
    assert camera.counters.reconnects == 1
    assert plugged.value(rs.option.enable_auto_exposure) == 0


def test_a_loop_beside_an_unplugged_camera_is_not_late(plugged, camera):
    plugged.unplug()
    late = []
    due = time.monotonic()
    for _ in range(300):
        due += 0.01
        time.sleep(max(0.0, due - time.monotonic()))
        camera.latest()
        late.append(time.monotonic() - due)
    assert np.percentile(late, 95) < 0.01


def test_an_unplugged_camera_closes(plugged, camera):
    plugged.unplug()
    time.sleep(0.8)
    begun = time.monotonic()
    camera.close()
    camera.close()
    assert time.monotonic() - begun < 1.0 and not camera._reader.is_alive()


def test_a_silent_camera_is_one_line(plugged, monkeypatch):
    monkeypatch.setattr("robocoach.robots.realsense.FIRST_FRAME_TIMEOUT_S", 0.2)
    plugged._sending.clear()
    with pytest.raises(UserError, match="101 has sent no frame"):
        RealSense(QUICK, plugged.context)


def test_a_camera_in_use_is_one_line(plugged, camera):
    with pytest.raises(UserError, match="cannot stream 424x240"):
        RealSense(QUICK, plugged.context)
