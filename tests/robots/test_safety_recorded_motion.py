"""Real FR3 motion, replayed through the envelope, passes without a stop and without a clamp."""

from pathlib import Path

import numpy as np
import pytest

from robocoach.configs.models import SafetyConfig
from robocoach.robots import safety
from robocoach.robots.safety import Command, Moment

LOGS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "fr3-1khz-logs"
WIDTH_M = 0.04


@pytest.mark.skipif(not LOGS.is_dir(), reason="recorded motion is not here")
@pytest.mark.parametrize("rate_hz", [10, 20, 30])
def test_real_motion_is_neither_stopped_nor_clamped(rate_hz):
    """The state is what was measured, the action the state of the next tick, the velocity the arm's own."""
    ticks = 0
    for file in sorted(LOGS.glob("*.npz")):
        data = np.load(file)["data"]
        time_s = data[:, 0] / 1e9
        at_s = np.arange(time_s[0], time_s[-1], 1 / rate_hz)
        q, dq = (
            np.stack([np.interp(at_s, time_s, data[:, column]) for column in columns], axis=1)
            for columns in (range(1, 8), range(8, 15))
        )
        states = np.hstack([q, np.full((len(q), 1), WIDTH_M)])
        sent = speed = None
        for tick in range(len(states) - 1):
            answer = safety.check(
                Moment(
                    action=states[tick + 1],
                    last_command=sent,
                    state=states[tick],
                    frame_age_s=0.03,
                    state_age_s=0.001,
                    tick_s=1 / rate_hz,
                    last_velocity_rad_s=speed,
                    velocity_rad_s=dq[tick],
                    previous_state=states[tick - 1] if tick else None,
                    previous_state_s=1 / rate_hz,
                    last_action=states[tick] if tick else None,
                ),
                SafetyConfig(),
            )
            assert isinstance(answer, Command) and answer.clamps == (), (file.name, tick, answer)
            speed = (answer.values[:7] - (sent if sent is not None else states[tick])[:7]) * rate_hz
            sent = answer.values
            ticks += 1
    assert ticks > 20 * rate_hz
