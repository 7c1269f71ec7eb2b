"""Exposure, gain and white balance of a RealSense colour sensor: found by the camera while it warms up, then fixed.

A picture that brightens and dims by itself while the hand comes down on an object is none the policy has learned from.
A sensor that lacks an option keeps what it has, and a note says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robocoach.configs.models import CameraConfig

EXPOSURE_UNIT_US = 100.0
"""The colour sensor's option and its frames' metadata count exposure in steps of 100 us (librealsense, RGB sensor)."""
SETTLED_FRAMES, SETTLED_SHARE = 8, 0.02
"""Exposure has converged when it stayed within this share over this many frames."""


@dataclass(frozen=True)
class Exposure:
    """What the sensor is set to; None where it does not say."""

    exposure_us: float | None = None
    gain: float | None = None
    white_balance_k: float | None = None
    exposure_fixed: bool = False
    white_balance_fixed: bool = False
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In words, such as `15.6 ms, gain 64, fixed; 4600 K, fixed`."""
        light = [] if self.exposure_us is None else [f"{self.exposure_us / 1000:.1f} ms"]
        light += [] if self.gain is None else [f"gain {self.gain:.0f}"]
        kelvin = "white balance" if self.white_balance_k is None else f"{self.white_balance_k:.0f} K"
        return (
            f"{', '.join(light) or 'exposure'}, {'fixed' if self.exposure_fixed else 'automatic'}; "
            f"{kelvin}, {'fixed' if self.white_balance_fixed else 'automatic'}"
        )


def begin(sensor: Any, config: CameraConfig) -> None:
    """Before the stream starts: values that were given, automatic where none was, and frames at an even rate."""
    import pyrealsense2 as rs

    _set(sensor, rs.option.global_time_enabled, 1.0)
    _set(sensor, rs.option.auto_exposure_priority, 0.0)  # else the camera lowers its rate in dim light
    automatic = not (config.exposure_us or config.gain)
    _set(sensor, rs.option.enable_auto_exposure, float(automatic))
    if not automatic:
        _fix_exposure(sensor, config.exposure_us or None, config.gain or None)
    _set(sensor, rs.option.enable_auto_white_balance, float(not config.white_balance_k))
    if config.white_balance_k:
        _set(sensor, rs.option.white_balance, float(config.white_balance_k))


def has_settled(seen_us: list[float]) -> bool:
    """Whether the exposures of the frames so far, oldest first, have stopped moving."""
    last = seen_us[-SETTLED_FRAMES:]
    return len(last) == SETTLED_FRAMES and max(last) - min(last) <= SETTLED_SHARE * max(last)


def exposure_us(sensor: Any, frame: Any) -> float | None:
    """Exposure of a frame as its metadata says, else as the option reads."""
    import pyrealsense2 as rs

    value = _now(sensor, rs.option.exposure, frame, ("actual_exposure",))
    return None if value is None else value * EXPOSURE_UNIT_US


def fix(sensor: Any, frame: Any, config: CameraConfig) -> Exposure:
    """At the end of the warm-up: what `frame` was taken with is kept, unless the configuration says otherwise."""
    import pyrealsense2 as rs

    notes = []
    light = exposure_us(sensor, frame)
    gain = _now(sensor, rs.option.gain, frame, ("gain_level",))
    kelvin = _now(sensor, rs.option.white_balance, frame, ("auto_white_balance_temperature", "white_balance"))
    exposure_fixed = sensor.supports(rs.option.enable_auto_exposure) and sensor.supports(rs.option.exposure)
    white_fixed = sensor.supports(rs.option.enable_auto_white_balance) and sensor.supports(rs.option.white_balance)
    if not exposure_fixed:
        notes.append("its sensor has no exposure option, so the exposure is not fixed")
    if not white_fixed:
        notes.append("its sensor has no white balance option, so the white balance is not fixed")
    exposure_fixed = exposure_fixed and (config.lock_exposure or bool(config.exposure_us or config.gain))
    white_fixed = white_fixed and (config.lock_exposure or bool(config.white_balance_k))
    found = Exposure(
        config.exposure_us or light,
        config.gain or gain,
        config.white_balance_k or kelvin,
        exposure_fixed,
        white_fixed,
        tuple(notes),
    )
    apply(sensor, found)
    return found


def apply(sensor: Any, exposure: Exposure) -> None:
    """Sets the sensor to what was fixed before, as after a reconnect."""
    import pyrealsense2 as rs

    _set(sensor, rs.option.global_time_enabled, 1.0)
    _set(sensor, rs.option.auto_exposure_priority, 0.0)
    if exposure.exposure_fixed:
        _set(sensor, rs.option.enable_auto_exposure, 0.0)
        _fix_exposure(sensor, exposure.exposure_us, exposure.gain)
    if exposure.white_balance_fixed:
        _set(sensor, rs.option.enable_auto_white_balance, 0.0)
        _set(sensor, rs.option.white_balance, exposure.white_balance_k)


def _fix_exposure(sensor: Any, exposure_us: float | None, gain: float | None) -> None:
    import pyrealsense2 as rs

    _set(sensor, rs.option.exposure, None if exposure_us is None else exposure_us / EXPOSURE_UNIT_US)
    _set(sensor, rs.option.gain, gain)


def _set(sensor: Any, option: Any, value: float | None) -> None:
    """Sets an option as near to the value as its range allows; nothing where the sensor has none."""
    if value is None or not sensor.supports(option) or sensor.is_option_read_only(option):
        return
    allowed = sensor.get_option_range(option)
    step = allowed.step or 1.0
    stepped = allowed.min + round((value - allowed.min) / step) * step
    sensor.set_option(option, min(allowed.max, max(allowed.min, stepped)))


def _now(sensor: Any, option: Any, frame: Any, metadata: tuple[str, ...]) -> float | None:
    """A value from the frame's metadata where that is one the option takes, else the option's own."""
    import pyrealsense2 as rs

    if not sensor.supports(option):
        return None
    allowed = sensor.get_option_range(option)
    for name in metadata:
        key = getattr(rs.frame_metadata_value, name)
        if frame.supports_frame_metadata(key):
            value = float(frame.get_frame_metadata(key))
            if allowed.min <= value <= allowed.max:
                return value
    return float(sensor.get_option(option))
