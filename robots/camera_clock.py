"""When a frame was captured, on the monotonic clock: from the camera's own timestamp where it has a usable one.

librealsense stamps a frame in one of three domains. *Global time* is the middle of the exposure on the host's wall
clock, fitted from the camera's; *system time* is the arrival on the host's wall clock; the *hardware clock* has an
unknown zero, so the frame that took the shortest of late counts as having taken no time. All times here in seconds.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

GLOBAL, SYSTEM, HARDWARE = "global_time", "system_time", "hardware_clock"
"""Names of librealsense's timestamp domains (`rs.timestamp_domain`)."""
SOURCES = {
    GLOBAL: "the camera's clock, fitted to this machine's (mid-exposure)",
    SYSTEM: "arrival in the driver",
    HARDWARE: "the camera's clock (delays beyond the shortest of the last frames)",
}
ARRIVAL = "arrival in this program"
WINDOW = 300
"""Frames over which the shortest delay is taken: ten seconds at 30 Hz, in which a quartz drifts by less than 1 ms."""
LARGEST_DELAY_S = 10.0
"""A timestamp older than this is of another clock, not of an old frame."""
FIT_ERROR_S = 0.05
"""How far a fitted clock may run ahead of the arrival; further is another clock."""


@dataclass
class FrameClock:
    """Maps timestamps to the monotonic clock, one frame after the other."""

    source: str = ARRIVAL
    """Where the last frame's time came from, in words."""
    _delays: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _domain: str = ""

    def captured_s(self, stamp_s: float, domain: str, arrived_s: float, wall_s: float | None = None) -> float:
        """Monotonic capture time of a frame; never later than its arrival.

        `stamp_s` is the frame's timestamp, `domain` its domain's name, `arrived_s` the monotonic time now, `wall_s` the
        wall clock now (`time.time()` if None). An unusable timestamp gives the arrival.
        """
        if domain != self._domain:
            self._domain = domain
            self._delays.clear()
        delay_s = self._delay_s(stamp_s, domain, arrived_s, time.time() if wall_s is None else wall_s)
        if not -FIT_ERROR_S <= delay_s <= LARGEST_DELAY_S:
            self.source = ARRIVAL
            return arrived_s
        self.source = SOURCES.get(domain, ARRIVAL)
        return arrived_s - max(0.0, delay_s)

    def _delay_s(self, stamp_s: float, domain: str, arrived_s: float, wall_s: float) -> float:
        if domain in (GLOBAL, SYSTEM):
            return wall_s - stamp_s
        if domain == HARDWARE:
            self._delays.append(arrived_s - stamp_s)
            return self._delays[-1] - min(self._delays)
        return 0.0
