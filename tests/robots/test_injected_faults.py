"""Twelve faults in mid-motion: no unsafe command at 1 kHz, noticed and at rest in time, and the next rollout runs.

The scenarios are those of `benchmarks/faults.py`, which repeats them and reports the figures.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "faults.py"
SPEC = importlib.util.spec_from_file_location("benchmark_faults", PATH)
assert SPEC is not None and SPEC.loader is not None
faults = importlib.util.module_from_spec(SPEC)
sys.modules["benchmark_faults"] = faults
SPEC.loader.exec_module(faults)

OF_THE_EQUIPMENT = ("camera stall", "camera unplug", "frozen frames", "FCI connection cut", "reflex", "gripper failure")


@pytest.mark.parametrize("fault", faults.FAULTS)
def test_a_fault_in_mid_motion_ends_in_a_standstill_and_the_next_rollout_runs(twin, fault):
    outcome = faults.strike(twin, fault)
    assert outcome.unsafe_commands == 0, outcome
    assert 0 <= outcome.detected_ms <= faults.DETECTION_BOUND_MS, outcome
    if fault != "out-of-range action":
        assert outcome.standstill_ms is not None
        assert outcome.standstill_ms <= faults.STANDSTILL_BOUND_MS, outcome
    assert outcome.recovered, outcome
    if fault in OF_THE_EQUIPMENT:
        assert outcome.verdict == "invalid", outcome
