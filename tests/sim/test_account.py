"""Accounts of stages from traces with known geometry: object axes, moments, parts, contact."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robocoach.configs.errors import UserError
from robocoach.sim.account import account, folded
from robocoach.sim.kinematics import Arm, down_rotation
from robocoach.sim.motion import closings
from robocoach.sim.state import yaw_quaternion
from robocoach.sim.tasks import get_task
from robocoach.sim.tasks.stack_cube import BASE, EDGE_M, TOP
from robocoach.sim.trace import Trace, read_trace

ARM = Arm()
TASK = get_task("stack-cube")
HALF = EDGE_M / 2
CUBE, OTHER = np.array([0.44, 0.10, HALF]), np.array([0.44, -0.10, HALF])


def at(x, y, z):
    return np.array([x, y, z], dtype=float)


def trace(tcp, width=0.08, top=CUBE, yaw=0.0, hand_yaw=0.0, base=OTHER, commanded=None, stage=0) -> Trace:
    """A trace of the hand's way (T, 3); everything else may be constant or (T, …)."""
    tcp = np.asarray(tcp, dtype=float)
    count = len(tcp)
    width = np.broadcast_to(width, count)
    q = np.array([ARM.solve(point, down_rotation(hand_yaw)) for point in tcp])
    objects = np.zeros((count, 2, 7))
    objects[:, 0, :3], objects[:, 0, 3:] = top, yaw_quaternion(yaw)
    objects[:, 1, :3], objects[:, 1, 3:] = base, yaw_quaternion(0.0)
    commanded = width if commanded is None else np.broadcast_to(commanded, count)
    return Trace(q, np.column_stack([q, commanded]), np.array(width), objects, (TOP, BASE), np.full(count, stage))


def way(*points, ticks=5):
    """A way through points, `ticks` a leg."""
    legs = [np.linspace(a, b, ticks, endpoint=False) for a, b in itertools.pairwise(points)]
    return np.vstack([*legs, points[-1]])


@given(st.floats(-0.5, 0.5), st.floats(-0.012, 0.012), st.floats(-0.012, 0.012))
@settings(max_examples=25, deadline=None)
def test_offsets_are_in_the_objects_own_axes(yaw, x, y):
    c, s = np.cos(yaw), np.sin(yaw)
    there = CUBE + at(c * x - s * y, s * x + c * y, 0.004)
    accounts, _ = account(TASK, trace([there, there], yaw=yaw, hand_yaw=yaw + 0.05), [], ARM)
    (reach,) = accounts
    assert reach.offset_m == pytest.approx({"x": x, "y": y, "z": 0.004}, abs=4e-4)
    assert reach.world_offset_m == pytest.approx(dict(zip("xyz", there - CUBE, strict=True)), abs=4e-4)
    assert reach.turn_deg == pytest.approx(np.rad2deg(0.05), abs=0.2)


def test_jaws_that_close_short_of_the_cube_are_the_moment_of_the_stage():
    short = CUBE - at(0.011, 0, 0)
    path = way(CUBE + at(0, 0, 0.15), short, ticks=6)
    path = np.vstack([path, np.repeat(short[None], 6, axis=0)])
    width = np.array([0.08] * 8 + [0.06, 0.04, 0.02, 0.0, 0.0])
    commanded = np.where(np.arange(13) >= 7, 0.0, 0.08)
    found = trace(path, width, commanded=commanded)
    _, grasp = account(TASK, found, [6], ARM)[0]
    assert (grasp.stage, grasp.reached, grasp.moment, grasp.moment_tick) == ("grasp", False, "jaws closed", 13)
    assert grasp.begin_tick == 7 and grasp.end_tick == 13
    assert grasp.offset_m["x"] == pytest.approx(-0.011, abs=4e-4)
    assert grasp.nearest_part == "face -x" and grasp.nearest_part_m == pytest.approx(HALF - 0.011, abs=4e-4)
    assert grasp.commanded.closings == 1 and grasp.commanded.width_m == 0.0 and grasp.aperture_m == 0.0
    assert grasp.contact == "none" and grasp.lost_after_ticks is None and not grasp.moved_with_hand


def test_without_closing_the_closest_approach_is_the_moment():
    path = way(CUBE + at(0, 0, 0.15), CUBE + at(0.03, 0, 0.03), CUBE + at(0, 0, 0.2))
    (reach,), signals = account(TASK, trace(path), [], ARM)
    assert (reach.moment, reach.moment_tick, reach.commanded.closings) == ("closest", 6, 0)
    assert signals["closings"] == 0 and signals["dropped"] == 0
    assert signals["path_m"] == pytest.approx(np.linalg.norm(np.diff(path, axis=0), axis=1).sum(), abs=2e-3)


def carry(slips_at: int | None):
    """Held from the second tick, lifted by 0.15 m; slips out in that tick."""
    path = way(CUBE, CUBE + at(0, 0, 0.15), ticks=15)
    top = path.copy()
    if slips_at is not None:
        top[slips_at - 1 :] = CUBE
    width = np.full(len(path), EDGE_M)
    width[0] = 0.08
    return trace(path, width, top=top, commanded=0.0)


def test_a_cube_that_slips_out_of_the_lifted_hand_is_lost_and_dropped():
    accounts, signals = account(TASK, carry(slips_at=12), [1, 2, 6], ARM)
    place = accounts[-1]
    assert (place.stage, place.moment, place.moment_tick, place.contact) == ("place", "lost", 12, "lost")
    assert place.lost_after_ticks == 10 and signals["dropped"] == 1


def test_a_held_cube_moves_with_the_hand():
    accounts, signals = account(TASK, carry(None), [1, 2, 6], ARM)
    assert [one.contact for one in accounts] == ["none", "gained", "held", "held"]
    assert accounts[2].moved_with_hand and not accounts[0].moved_with_hand and signals["dropped"] == 0


def test_a_stage_that_places_measures_the_object_from_its_place_on_the_goal():
    over = OTHER + at(0.008, 0, EDGE_M + 0.01)
    accounts, _ = account(TASK, trace([over] * 3, EDGE_M, top=over, commanded=0.0, stage=3), [1, 1, 1], ARM)
    place = accounts[-1]
    assert (place.stage, place.object, place.relative_to) == ("place", TOP, BASE)
    assert place.offset_m == pytest.approx({"x": 0.008, "y": 0.0, "z": 0.01}, abs=2e-4)
    assert place.nearest_part == "face +z"


def test_there_is_one_account_for_each_stage_begun_and_none_after_success():
    found = trace(way(CUBE + at(0, 0, 0.1), CUBE))
    for stage_ticks, stages in (((), 1), ((2,), 2), ((2, 3), 3), ((2, 3, 4, 5, 6), 5)):
        accounts, _ = account(TASK, found, stage_ticks, ARM)
        assert len(accounts) == stages
        assert all(one.begin_tick <= one.moment_tick <= one.end_tick for one in accounts)
        assert [one.reached for one in accounts] == [index < len(stage_ticks) for index in range(stages)]


def test_idle_and_reversing_hands_are_counted():
    there, back = CUBE + at(0, 0, 0.10), CUBE + at(0, 0, 0.12)
    resting = account(TASK, trace([there] * 10), [], ARM)[1]
    assert resting["idle_ticks"] == 9 and resting["reversals"] == 0 and resting["jerk_rad_s3"] == 0.0
    shaking = account(TASK, trace([there, back] * 5), [], ARM)[1]
    assert shaking["idle_ticks"] == 0 and shaking["reversals"] == 8 and shaking["jerk_rad_s3"] > 10


@given(st.lists(st.floats(0, 0.08), max_size=30))
def test_closings_are_as_many_as_the_gripper_rule_decides(widths):
    command = np.zeros((len(widths), 8))
    command[:, 7] = widths
    found = closings(command)
    assert all(widths[row] < 0.030 for row in found)
    for first, second in itertools.pairwise(found):
        assert max(widths[first:second]) > 0.050


@given(st.floats(-20, 20), st.sampled_from([np.pi / 2, np.pi, 2 * np.pi]))
def test_a_folded_turn_is_the_same_turn_of_a_symmetric_body(angle, period):
    turn = folded(angle, period)
    assert -period / 2 - 1e-9 <= turn <= period / 2 + 1e-9
    assert abs((angle - turn) / period - round((angle - turn) / period)) < 1e-9


def test_a_trace_survives_its_file(tmp_path):
    before = carry(None)
    before.save(tmp_path / "3.npz")
    after = read_trace(tmp_path / "3.npz")
    for field in dataclasses.fields(before):
        np.testing.assert_array_equal(getattr(before, field.name), getattr(after, field.name))


def test_a_broken_trace_is_refused(tmp_path):
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 and no more")
    np.savez(tmp_path / "other.npz", q=np.zeros((3, 7)))
    wrong = dataclasses.replace(carry(None), width=np.zeros(2))
    wrong.save(tmp_path / "wrong.npz")
    for name in ("missing", "cut", "other", "wrong"):
        with pytest.raises(UserError, match="no trace"):
            read_trace(tmp_path / f"{name}.npz")
