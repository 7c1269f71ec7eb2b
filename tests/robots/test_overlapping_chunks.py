"""Chunks on the loop's clock: whatever its rate, how they overlap, blend, and what bridges a late one."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robocoach.configs.models import SafetyConfig
from robocoach.robots.camera import Frame
from robocoach.robots.franka import ArmState
from robocoach.robots.loop import ControlLoop, _Chunks
from robocoach.robots.safety import Fault
from robocoach.robots.thinker import Chunk, PolicyFailed, Question, Thinker, think

FRAME = Frame(np.zeros((224, 224, 3), np.uint8), 0.0)
ORIGIN = np.array([1.0, 0, 0, 0, 0, 0, 0, 0.08])


def chunk(values, executed: int | None = None, asked_s: float = 0.0, origin: np.ndarray = ORIGIN) -> Chunk:
    """Joint 1 takes the values, row by row."""
    actions = np.zeros((len(values), 8))
    actions[:, 0] = values
    return Chunk(actions, executed or len(values), asked_s, origin, FRAME, 0.02, 0.03)


def test_at_the_contracts_rate_a_tick_takes_its_row():
    made = chunk([2.0, 3.0, 4.0])
    assert [joint_1(made.action(0.1 * tick)) for tick in range(3)] == pytest.approx([2.0, 3.0, 4.0])
    assert made.action(0.3) is None


def test_a_faster_loop_follows_the_line_through_the_rows_from_where_the_arm_was():
    made = chunk([2.0, 3.0])
    third = 1 / 30
    followed = [joint_1(made.action(tick * third, third)) for tick in range(6)]
    assert followed == pytest.approx([1 + 1 / 3, 1 + 2 / 3, 2.0, 2 + 1 / 3, 2 + 2 / 3, 3.0])
    assert made.action(6 * third, third) is None


def test_the_width_is_a_decision_and_no_line():
    made = chunk([0.0, 0.0])
    made.actions[:, 7] = [0.08, 0.0]
    third = 1 / 30
    widths = [action[7] for tick in range(6) if (action := made.action(tick * third, third)) is not None]
    assert widths == [0.08] * 3 + [0.0] * 3


@given(rate=st.integers(10, 30), asked=st.integers(0, 50), rows=st.integers(1, 20))
def test_no_rate_invents_an_action_outside_its_rows(rate, asked, rows):
    made = chunk(np.arange(1.0, rows + 1), asked_s=asked / rate, origin=np.zeros(8))
    for tick in range(asked, asked + 2 * rows * rate // 10 + 3):
        action = made.action(tick / rate, 1 / rate)
        if action is None:
            assert (tick + 1 - asked) / rate > rows / 10 - 1e-6
        else:
            assert action[0] == pytest.approx(10 * (tick + 1 - asked) / rate, abs=1e-5)


def test_the_rest_of_a_chunk_begins_with_the_tick_asked_for():
    np.testing.assert_allclose(chunk([1.0, 2.0, 3.0, 4.0]).rest(0.2)[:, 0], [3.0, 4.0])
    assert chunk([1.0]).rest(0.5).shape == (0, 8)


def joint_1(found: np.ndarray | None) -> float:
    assert found is not None
    return found[0]


class Silent:
    """Stands for a thinker whose answer does not come."""

    idle, latency_s = False, 0.0

    def answer(self):
        return None


def test_a_new_chunk_takes_over_little_by_little():
    chunks = _Chunks(Silent(), 0.1, 2)  # ty: ignore[invalid-argument-type]
    chunks.take(chunk([0.0] * 8, executed=4), 0.0)
    chunks.take(chunk([1.0] * 8, asked_s=0.3), 0.4)
    taken = [joint_1(chunks.action(tick * 0.1)) for tick in range(4, 9)]
    assert taken == pytest.approx([1 / 3, 2 / 3, 1.0, 1.0, 1.0])


def test_without_blending_a_new_chunk_takes_over_at_once():
    chunks = _Chunks(Silent(), 0.1, 0)  # ty: ignore[invalid-argument-type]
    chunks.take(chunk([0.0] * 8, executed=4), 0.0)
    chunks.take(chunk([1.0] * 8, asked_s=0.3), 0.4)
    assert joint_1(chunks.action(0.4)) == 1.0


def test_smoothing_keeps_a_share_of_the_last_action_and_nothing_of_its_width():
    chunks = _Chunks(Silent(), 0.1, 0, 0.5)  # ty: ignore[invalid-argument-type]
    made = chunk([2.0] * 8)
    made.actions[:, 7] = 0.03
    chunks.take(made, 0.0)  # asked where joint 1 is at 1
    actions = [chunks.action(tick * 0.1) for tick in range(3)]
    assert [joint_1(action) for action in actions] == pytest.approx([1.5, 1.75, 1.875])
    assert [action[7] for action in actions if action is not None] == [0.03] * 3


def test_smoothing_is_as_strong_at_another_rate():
    chunks = _Chunks(Silent(), 0.05, 0, 0.5)  # ty: ignore[invalid-argument-type]
    chunks.take(chunk([2.0] * 8, asked_s=-0.1), 0.0)
    followed = [joint_1(chunks.action(tick * 0.05)) for tick in range(4)]
    assert followed[1::2] == pytest.approx([1.5, 1.75])


def test_a_late_answer_is_bridged_by_the_overlap_and_counted_as_overdue():
    chunks = _Chunks(Silent(), 0.1, 0)  # ty: ignore[invalid-argument-type]
    chunks.take(chunk(np.arange(8.0), executed=4), 0.0)
    assert chunks.overdue_s(0.3) == 0.0 and chunks.overdue_s(0.4) == pytest.approx(0.1)
    assert joint_1(chunks.action(0.5)) == 5.0 and chunks.action(0.8) is None


class Slow:
    """Answers with its whole chunk after a while; counts."""

    def __init__(self, takes_s: float, hang_at: int = -1) -> None:
        self.takes_s, self.hang_at, self.calls = takes_s, hang_at, 0
        self.free = threading.Event()

    def reset(self) -> None:
        self.calls = 0

    def act(self, image, state, instruction):
        return self.plan(image, state, instruction, None, 0)[0][:8]

    def plan(self, image, state, instruction, previous, delay_steps):
        self.calls += 1
        if self.calls == self.hang_at:
            self.free.wait(5.0)
        time.sleep(self.takes_s)
        rows = np.tile(state, (16, 1))
        rows[:, 7] = 0.08
        return rows, 8


def test_a_slow_policy_is_asked_early_enough_once_its_latency_is_known():
    thinker = Thinker(Slow(0.25), lambda moment: FRAME, "")
    chunks = _Chunks(thinker, 0.1, 0)
    state = ArmState(ORIGIN, 0.0)
    chunks.take(chunk([0.0] * 16, executed=8), 0.0)
    begin, overdue = time.monotonic(), []
    for tick in range(32):
        time.sleep(max(0.0, begin + 0.1 * tick - time.monotonic()))
        chunks.refresh(0.1 * tick, state)
        overdue.append(chunks.overdue_s(0.1 * tick))
    thinker.close()
    assert max(overdue[:12]) > 0  # the first time nobody knows
    assert max(overdue[16:]) == 0


def test_a_slow_policy_never_stops_the_arm_and_a_hanging_one_does(arm, twin):
    slow = ControlLoop(arm, twin.camera, Slow(0.15), "", SafetyConfig(max_frame_age_s=1.0), max_ticks=25).run()
    assert slow.ended == "time limit" and np.isfinite(np.array(slow.log.command)).all()
    policy = Slow(0.0, hang_at=2)
    hanging = ControlLoop(arm, twin.camera, policy, "", SafetyConfig(max_frame_age_s=1.0), max_ticks=40).run()
    policy.free.set()
    assert hanging.fault is Fault.LATE_POLICY


@pytest.mark.parametrize("rate", [20, 30])
def test_a_faster_loop_keeps_its_time(arm, twin, rate):
    done = ControlLoop(
        arm, twin.camera, Slow(0.0), "", SafetyConfig(max_frame_age_s=1.0), max_ticks=20, rate_hz=rate
    ).run()
    assert done.ended == "time limit" and len(done.log.time_s) == 2 * rate
    assert np.median(np.diff(done.log.time_s)) == pytest.approx(1 / rate, abs=1e-3)
    assert np.isfinite(np.array(done.log.command)).all()


def test_the_operators_halt_ends_the_rollout_with_the_arm_at_rest(arm, twin):
    asked = iter([None] * 5 + ["stopped by the operator"])
    done = ControlLoop(
        arm, twin.camera, Slow(0.0), "", SafetyConfig(max_frame_age_s=1.0), max_ticks=40, halt=lambda: next(asked)
    ).run()
    assert done.halted and done.ended == "stopped by the operator" and len(done.log.time_s) == 5


def test_an_answer_of_another_width_is_no_chunk():
    class Narrow(Slow):
        def plan(self, image, state, instruction, previous, delay_steps):
            return np.zeros((4, 7)), 4

    policy = Narrow(0.0)
    with pytest.raises(PolicyFailed, match="shape"):
        think(policy, lambda moment: FRAME, Question(ORIGIN, 0.0, 0.0), "")
