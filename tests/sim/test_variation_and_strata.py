"""The spread of looks in extra demonstrations, and seeds spread over everything that is random."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robocoach.datasets import splits
from robocoach.sim.strata import quantities, stratified
from robocoach.sim.tasks import get_task
from robocoach.sim.tasks.stack_cube import BASE, BASE_REGION_M, MAX_YAW_RAD, TOP, TOP_REGION_M
from robocoach.sim.variation import varied

TASK = get_task("stack-cube")
LOOKS = [field.name for field in dataclasses.fields(TASK.nominal)]
SEEDS = st.integers(0, 10**7)


def look(holder):
    return {name: getattr(holder, name) for name in LOOKS}


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_one_leaves_a_scene_as_it_is_and_nought_makes_it_nominal(seed):
    scene = TASK.sample_scene(seed)
    assert str(varied(scene, TASK.nominal, 1.0)) == str(scene)
    plain = varied(scene, TASK.nominal, 0.0)
    for name, value in look(TASK.nominal).items():
        if name == "colours":
            assert plain.colours == value
        else:
            np.testing.assert_array_equal(getattr(plain, name), value)


@given(SEEDS, st.floats(0, 2))
@settings(max_examples=40, deadline=None)
def test_where_things_are_is_never_touched_and_looks_stay_possible(seed, scale):
    scene = TASK.sample_scene(seed)
    other = varied(scene, TASK.nominal, scale)
    assert other.seed == scene.seed and other.objects is scene.objects and other.start_q is scene.start_q
    colours = [*other.colours.values(), other.table_colour]
    assert all(0 <= value <= 1 for colour in colours for value in colour)
    assert 0 <= other.ambient <= 1 and other.light_strength > 0 and other.friction > 0
    assert other.light_direction[2] == -1.0


def test_twice_the_spread_puts_the_camera_twice_as_far_off():
    scene = TASK.sample_scene(5)
    np.testing.assert_allclose(varied(scene, TASK.nominal, 2.0).camera_shift_m, 2 * scene.camera_shift_m)


REGIONS = {
    **{
        f"object {name} {axis}": region[i]
        for name, region in ((TOP, TOP_REGION_M), (BASE, BASE_REGION_M))
        for i, axis in enumerate("xy")
    },
    **{f"object {name} yaw": (-MAX_YAW_RAD, MAX_YAW_RAD) for name in (TOP, BASE)},
}


@pytest.mark.parametrize("split", ["train", "validation", "heldout"])
@pytest.mark.parametrize("count", [10, 23])
def test_no_third_of_a_placement_is_left_out_of_any_split(split, count):
    for run_seed in (0, 7):
        chosen = stratified(TASK, splits.seeds(split, run_seed, 100), count)
        rows = [quantities(TASK.sample_scene(seed)) for seed in chosen]
        for name, region in REGIONS.items():
            thirds, _ = np.histogram([row[name] for row in rows], 3, region)
            assert thirds.min() > 0, (run_seed, name, thirds)


@given(st.integers(0, 40), st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_chosen_seeds_are_distinct_candidates_and_the_first_of_more(count, run_seed):
    candidates = splits.seeds("train", run_seed, 40)
    chosen = stratified(TASK, candidates, count)
    assert len(set(chosen)) == count and set(chosen) <= set(candidates)
    assert stratified(TASK, candidates, max(0, count - 3)) == chosen[: max(0, count - 3)]


def test_chosen_seeds_are_spread_more_evenly_than_the_first_ones():
    candidates = splits.seeds("validation", 3, 200)

    def unevenness(seeds):
        rows = [list(quantities(TASK.sample_scene(seed)).values()) for seed in seeds]
        columns = [column for column in np.array(rows).T if np.ptp(column) > 1e-6]
        return np.mean([np.std(np.histogram(column, 3)[0]) for column in columns])

    assert unevenness(stratified(TASK, candidates, 20)) < 0.8 * unevenness(candidates[:20])


def test_more_seeds_than_candidates_are_refused():
    with pytest.raises(ValueError, match="5 of 4"):
        stratified(TASK, range(4), 5)
