"""Each check finds its fault when it is put into clean numbers, says where, and keeps quiet about the clean ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robocoach.datasets import check_action, check_images, check_labels, check_motion, check_time, check_whole
from robocoach.datasets.check_findings import Finding, grouped, runs
from robocoach.datasets.check_view import layout, opening
from robocoach.datasets.contract import Contract, Provenance

REST = np.array([0.0, -0.3, 0.0, -2.2, 0.0, 2.0, 0.8])
TICK_S = 0.1


def motion(ticks: int = 60, seed: int = 0) -> np.ndarray:
    """Smooth joints (T, 7) [rad] of an arm that reaches out and back, each seed another way."""
    rng = np.random.default_rng(seed)
    phase = np.linspace(0, 2 * np.pi, ticks)[:, None]
    return REST + rng.uniform(0.1, 0.3, 7) * np.sin(phase + rng.uniform(0, 6, 7))


def steps(joints: np.ndarray) -> np.ndarray:
    return np.full(len(joints) - 1, TICK_S)


def faults(findings: list[Finding]) -> list[str]:
    return [found.fault.name for found in findings]


def moving_images(count: int) -> np.ndarray:
    """uint8 (N, 48, 48): a ramp that shifts by a pixel an image."""
    return np.stack([np.roll(np.tile(np.arange(48, dtype=np.uint8) * 5, (48, 1)), k, axis=1) for k in range(count)])


# clock


def test_a_clock_on_the_grid_is_fine():
    assert check_time.timestamps(np.arange(50).astype(np.float32) / 10, 10, "0") == []


@given(st.lists(st.floats(0.05, 0.09), min_size=10, max_size=60))
def test_wall_clock_times_are_an_error_that_tells_the_steps(taken):
    times = np.concatenate([[0.0], np.cumsum(taken)])
    found = check_time.timestamps(times, 10, "0")
    assert check_time.WALL_CLOCK in [one.fault for one in found]
    assert f"{min(np.diff(times)) * 1e3:.0f} to {max(np.diff(times)) * 1e3:.0f} ms" in found[0].what
    assert found[0].severity == "error"


@given(st.integers(3, 40), st.integers(3, 20))
def test_lost_frames_are_a_gap_at_their_place(at, lost):
    times = np.arange(50) / 10 + (np.arange(50) > at) * lost / 10
    found = check_time.timestamps(times, 10, "0")
    gaps = [one for one in found if one.fault is check_time.GAP_FAULT]
    assert [one.frame for one in gaps] == [at]
    assert check_time.OFF_GRID.name in faults(found)


def test_a_clock_that_goes_backwards_is_an_error():
    times = np.arange(50) / 10
    times[20:] -= 1.0
    found = [one for one in check_time.timestamps(times, 10, "0") if one.fault is check_time.BACKWARDS]
    assert [one.frame for one in found] == [20]


def test_another_rate_than_declared_is_an_error():
    assert check_time.WRONG_RATE.name in faults(check_time.timestamps(np.arange(50) / 15, 10, "0"))


def test_small_steps_that_add_up_are_off_the_grid():
    assert faults(check_time.timestamps(np.arange(200) * 0.1008, 10, "0")) == [check_time.OFF_GRID.name]


def test_times_that_are_no_numbers_are_an_error():
    times = np.arange(50) / 10
    times[7] = np.nan
    assert [one.frame for one in check_time.timestamps(times, 10, "0")] == [7]


def test_a_free_running_log_may_jitter_but_not_pause():
    times = np.cumsum(np.random.default_rng(0).uniform(0.0008, 0.0012, 500))
    assert check_time.timestamps(times, None, "0") == []
    times[250:] += 0.02
    assert faults(check_time.timestamps(times, None, "0")) == [check_time.GAP_FAULT.name]


def test_rates_of_states_and_images_are_compared():
    assert check_time.rates(10, 10, 1, "0") == []
    assert faults(check_time.rates(None, 4, 1, "0")) == [check_time.RATE_UNKNOWN.name]
    assert faults(check_time.rates(15, 5, 3, "0")) == [check_time.VIDEO_RATE.name]
    assert faults(check_time.rates(10, 30, 1, "0")) == [check_time.WRONG_RATE.name]


@given(st.integers(0, 100), st.integers(1, 100))
def test_missing_images_are_an_error_and_extra_ones_a_warning(images, expected):
    found = check_time.image_count(images, expected, "0")
    assert [one.severity for one in found] == (
        [] if images == expected else ["error" if images < expected else "warning"]
    )


# motion


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_smooth_motion_raises_nothing(seed):
    joints = motion(seed=seed)
    assert check_motion.finite(joints, joints, layout(tuple("abcdefg")).names, "0") == []
    assert check_motion.joint_limits(joints, "fr3", "0") == []
    assert check_motion.jumps(joints, steps(joints), "fr3", "0") == []
    assert check_motion.standing(joints, None, steps(joints), "0") == []


@given(st.integers(0, 59), st.integers(0, 6), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_a_number_that_is_not_finite_is_found_at_its_frame(frame, joint, value):
    joints = motion()
    joints[frame, joint] = value
    found = check_motion.finite(joints, None, tuple("abcdefg"), "0")
    assert [(one.frame, one.severity) for one in found] == [(frame, "error")]


@given(st.integers(0, 59), st.integers(0, 6), st.sampled_from(["fr3", "panda"]), st.booleans())
def test_a_joint_beyond_its_limit_is_found(frame, joint, arm, above):
    joints = motion()
    low, high = check_motion.JOINT_RANGE_RAD[arm]
    joints[frame, joint] = high[joint] + 0.02 if above else low[joint] - 0.02
    found = check_motion.joint_limits(joints, arm, "0")
    assert [(one.frame, one.severity) for one in found] == [(frame, "error")]
    assert f"joint {joint + 1}" in found[0].what


def test_degrees_are_recognised_for_any_arm():
    assert faults(check_motion.joint_limits(np.degrees(motion()), None, "0")) == [check_motion.NOT_RADIANS.name]


@given(st.integers(1, 59), st.integers(0, 6))
def test_a_jump_is_found_where_it_is(frame, joint):
    joints = motion()
    joints[frame:, joint] += 1.2
    found = check_motion.jumps(joints, steps(joints), "fr3", "0")
    assert [one.frame for one in found] == [frame - 1]
    assert f"joint {joint + 1}" in found[0].what


def test_a_jittering_clock_is_no_jump():
    joints, jitter = motion(), steps(motion())
    jitter[10] = 0.001
    assert check_motion.jumps(joints, jitter, "fr3", "0") == []


def test_an_arm_that_never_moves_is_an_error():
    joints = np.tile(REST, (50, 1))
    assert faults(check_motion.standing(joints, None, steps(joints), "0")) == [check_motion.STANDS.name]


def test_a_long_pause_is_noted_and_a_working_gripper_is_no_pause():
    joints = np.concatenate([np.tile(motion()[:1], (50, 1)), motion()])
    found = check_motion.standing(joints, None, steps(joints), "0")
    assert faults(found) == [check_motion.IDLE.name]
    assert "at the start" in found[0].what
    working = np.concatenate([np.linspace(1, 0, 50), np.zeros(60)])
    assert check_motion.standing(joints, working, steps(joints), "0") == []


def test_a_gripper_that_never_moves_or_does_not_obey_is_found():
    still, works = np.ones(50), np.concatenate([np.ones(25), np.zeros(25)])
    assert faults(check_motion.gripper_moves(still, still, "0")) == [check_motion.GRIPPER_STILL.name]
    assert faults(check_motion.gripper_moves(still, works, "0")) == [check_motion.GRIPPER_DEAF.name]
    assert check_motion.gripper_moves(works, works, "0") == []
    assert check_motion.gripper_moves(None, None, "0") == []


# actions


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_the_lag_is_measured_in_seconds(seed, ticks):
    joints = motion(80, seed)
    found = check_action.lag(joints[: len(joints) - ticks], joints[ticks:], TICK_S, "0")
    assert found is not None
    assert abs(found.seconds - ticks * TICK_S) < 0.03
    assert found.correlation > 0.95


def test_actions_that_come_late_are_an_error_and_a_long_lead_a_warning():
    joints = motion(80)
    late = check_action.lag(joints[2:], joints[:-2], TICK_S, "0")
    early = check_action.lag(joints[:-4], joints[4:], TICK_S, "0")
    usual = check_action.lag(joints[:-1], joints[1:], TICK_S, "0")
    assert late and early and usual
    assert [(one.fault, one.severity) for one in check_action.lags([late])] == [(check_action.LATE, "error")]
    assert [(one.fault, one.severity) for one in check_action.lags([early])] == [(check_action.LEAD, "warning")]
    assert check_action.lags([usual]) == []
    odd = check_action.lags([usual, usual, usual, early])
    assert faults(odd) == [check_action.ODD_LAG.name]


def test_actions_that_have_nothing_to_do_with_the_motion_are_found():
    noise = np.random.default_rng(0).normal(size=(80, 7))
    found = check_action.lag(motion(80), noise, TICK_S, "0")
    assert found
    assert faults(check_action.lags([found])) == [check_action.UNCORRELATED.name]


def test_velocities_are_recognised_by_name_and_by_number():
    joints = motion(80)
    speed = np.gradient(joints, axis=0) / TICK_S
    names = tuple(f"joint_{at}.pos" for at in range(1, 8))
    assert faults(check_action.meaning(joints, speed, names, "0")) == [check_action.VELOCITY.name]
    named = check_action.meaning(joints, joints + 0.01, tuple(f"j{at}_vel" for at in range(7)), "0")
    assert faults(named) == [check_action.VELOCITY.name]
    assert check_action.meaning(joints, joints + 0.01, names, "0") == []


def test_copies_of_this_and_of_the_next_state_are_told_apart():
    joints = motion(80)
    names = tuple("abcdefg")
    assert [one.severity for one in check_action.meaning(joints, joints, names, "0")] == ["error"]
    following = np.concatenate([joints[1:], joints[-1:]])
    assert faults(check_action.meaning(joints, following, names, "0")) == [check_action.NEXT_STATE.name]


# images


def test_black_and_uniform_frames_are_found_at_their_state():
    greys = moving_images(30)
    greys[10:14] = 2
    greys[20] = 128
    found = check_images.dark(greys, 3, "0")
    assert [(one.fault, one.frame, one.frames) for one in found] == [
        (check_images.BLACK, 30, 12),
        (check_images.UNIFORM, 60, 3),
    ]
    assert check_images.dark(moving_images(30), 1, "0") == []


@given(st.integers(0, 25), st.integers(3, 20))
def test_frozen_frames_are_an_error_while_the_arm_moves(first, length):
    greys, joints = moving_images(60), np.linspace(0, 3, 60)[:, None] * np.ones(7)
    greys[first : first + length + 1] = greys[first]
    found = check_images.frozen(greys, joints, 1, "0")
    assert [(one.frame, one.frames, one.severity) for one in found] == [(first, length + 1, "error")]


def test_a_still_image_of_a_still_arm_is_fine():
    greys = np.repeat(moving_images(1), 30, axis=0)
    assert check_images.frozen(greys, np.tile(REST, (30, 1)), 1, "0") == []
    assert check_images.frozen(moving_images(60), motion(60), 1, "0") == []


# labels


def test_success_is_held_against_the_gripper():
    never = np.ones(50)
    holds = np.concatenate([np.ones(20), np.zeros(30)])
    done = np.concatenate([np.ones(20), np.full(20, 0.4), np.ones(10)])
    again = np.concatenate([done, np.full(10, 0.2)])  # closes once more after the work
    judged = [check_labels.success(True, one, None, None, "0") for one in (never, holds, done, again)]
    assert [faults(one) for one in judged] == [
        [check_labels.NEVER_CLOSED.name],
        [check_labels.NEVER_OPENED.name],
        [],
        [],
    ]
    assert faults(check_labels.success(False, done, None, None, "0")) == [check_labels.LOOKS_SOLVED.name]
    assert check_labels.success(False, holds, None, None, "0") == []
    assert check_labels.success(None, never, None, None, "0") == []


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.booleans())
def test_success_is_held_against_the_stages(stages, label):
    found = check_labels.success(label, None, np.array(stages), 4, "0")
    if label:
        assert [one.severity for one in found] == ([] if max(stages) == 4 else ["error"])
    else:
        assert faults(found) == ([check_labels.STAGE_REACHED.name] if stages[-1] == 4 else [])


def test_stages_say_more_than_the_gripper():
    held = np.concatenate([np.ones(20), np.zeros(30)])
    assert check_labels.success(True, held, np.arange(50) // 10, 4, "0") == []


def test_more_stages_than_names_is_an_error():
    assert check_labels.stage_range(np.array([0, 1, 2]), 2, "0") == []
    assert [one.frame for one in check_labels.stage_range(np.array([0, 1, 3]), 2, "0")] == [2]


@pytest.mark.parametrize("text", ["", "  ", "unlabelled"])
def test_an_empty_instruction_is_found(text):
    assert faults(check_labels.instruction(text, "unlabelled", "0")) == [check_labels.NO_INSTRUCTION.name]
    assert check_labels.instruction("stack the cubes", "unlabelled", "0") == []


def test_an_episode_shorter_than_a_stage_is_found():
    found = check_labels.lengths(["a", "b", "c"], [50, 50, 8], [10.0, 10.0], None)
    assert [one.episode for one in found] == ["c"]
    assert [one.episode for one in check_labels.lengths(["a", "b", "c"], [50, 50, 11], [], 10)] == ["c"]
    assert check_labels.lengths(["a", "b"], [50, 40], [10.0], 10) == []


def test_failures_are_counted():
    assert check_labels.failures(0, 10) == []
    assert check_labels.failures(2, 10)[0].what == "2 of 10"


# the whole


def pairs(trajectories: list[np.ndarray], images: list[np.ndarray]) -> list[Finding]:
    return check_whole.near_duplicates(
        [str(at) for at in range(len(trajectories))],
        np.stack([check_whole.descriptor(one) for one in trajectories]),
        [len(one) for one in trajectories],
        [check_images.image_hash(one) for one in images],
    )


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_a_noisy_copy_is_a_duplicate_and_another_motion_is_none(seed):
    noise = np.random.default_rng(seed).normal(scale=0.002, size=(60, 7))
    image = moving_images(1)[0]
    found = pairs([motion(seed=seed), motion(seed=seed + 1), motion(seed=seed) + noise], [image] * 3)
    assert [(one.fault, one.episode) for one in found] == [(check_whole.DUPLICATE, "2")]


def test_the_same_motion_before_another_scene_is_told_apart():
    found = pairs([motion(), motion()], [moving_images(1)[0], moving_images(1)[0][:, ::-1]])
    assert faults(found) == [check_whole.SAME_MOTION.name]


def test_duplicates_are_found_across_blocks_of_episodes():
    many = [motion(seed=at) for at in range(700)]
    many[650] = many[3]
    assert [one.episode for one in pairs(many, [moving_images(1)[0]] * 700)] == ["650"]


def test_a_seed_that_is_used_twice_is_found():
    assert [one.episode for one in check_whole.seeds(["a", "b", "c"], [4, 5, 4])] == ["c"]
    assert check_whole.seeds(["a", "b", "c", "d"], [-1, -1, None, None]) == []


@given(st.floats(0, 0.015))
def test_a_dimension_that_hardly_moves_is_found(width):
    rows = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    rows[:, 1] *= width / 2
    found = check_whole.narrow(rows, ("joint_1.pos", "joint_2.pos"), "state", ours=False)
    assert len(found) == 1
    assert "joint_2.pos" in found[0].what


def test_statistics_of_other_data_are_found():
    rows = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    stored = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0)}
    assert check_whole.stored_statistics(stored, rows, ("a", "b"), "state") == []
    other = {name: value + np.array([0, 0.5]) for name, value in stored.items()}
    assert [one.what[:8] for one in check_whole.stored_statistics(other, rows, ("a", "b"), "state")] == ["state b:"]


def test_statistics_of_other_numbers_of_frames_are_found():
    true = {"episode_index": (0, 0), "index": (0, 180)}
    assert check_whole.index_statistics({"episode_index": (0, 0), "index": (0, 180)}, true, "0") == []
    found = check_whole.index_statistics({"episode_index": (73, 73), "index": (16225, 16405)}, true, "0")
    assert faults(found) == [check_whole.STATISTICS_COPIED.name]


def contract_of(robot: str) -> Contract:
    words = dict.fromkeys(("camera", "mount", "crop", "controller"), "x")
    return Contract(provenance=Provenance(robot=robot, fov_deg=None, source="real", **words))


def test_the_contract_is_held_against_the_files():
    contract = contract_of("fr3")
    names = {"observation.state": contract.meaning.state_names, "action": contract.meaning.action_names}
    assert check_whole.contract(contract, 10.0, names, "fr3") == []
    assert faults(check_whole.contract(None, 10.0, names, "fr3")) == [check_whole.NO_CONTRACT.name]
    contradictions = [
        check_whole.contract(contract, 15.0, names, "fr3"),
        check_whole.contract(contract, 10.0, names, "panda"),
        check_whole.contract(contract, 10.0, {**names, "action": ("a",)}, "fr3"),
    ]
    assert [faults(one) for one in contradictions] == [[check_whole.CONTRADICTS.name]] * 3
    slower = contract.model_copy(update={"meaning": contract.meaning.model_copy(update={"fps": 15})})
    assert check_whole.OTHER_MEANING.name in faults(check_whole.contract(slower, 15.0, names, "fr3"))
    assert faults(check_whole.contract(contract_of("ur5"), 10.0, names, "")) == [check_whole.UNKNOWN_ARM.name]


def test_other_columns_than_the_contracts_are_found():
    six = tuple(f"joint_{at}" for at in range(6))
    found = check_whole.columns({"observation.state": six})
    assert "6 joints" in found[0].what
    meaning = contract_of("fr3").meaning
    assert check_whole.columns({"observation.state": meaning.state_names, "action": meaning.action_names}) == []


# small helpers


@given(st.lists(st.booleans(), max_size=40))
def test_runs_cover_exactly_the_true_flags(flags):
    covered = [at for first, length in runs(flags) for at in range(first, first + length)]
    assert covered == [at for at, flag in enumerate(flags) if flag]


def test_findings_are_grouped_by_fault_most_serious_first():
    found = [
        Finding(check_labels.FAILURES, "note", "x"),
        Finding(check_motion.JUMP, "error", "small", "1", size=1.0),
        Finding(check_motion.JUMP, "error", "large", "2", size=2.0),
    ]
    groups = grouped(found)
    assert [group.severity for group in groups] == ["error", "note"]
    assert groups[0].episodes == ("1", "2")
    assert groups[0].example.what == "large"


def test_an_undocumented_gripper_is_taken_to_begin_open():
    assert opening(np.array([0.0, 0.0, 1.0, 0.0]), None).tolist() == [1, 1, 0, 1]
    assert opening(np.array([0.08, 0.0]), (0.0, 0.08)).tolist() == [1, 0]
