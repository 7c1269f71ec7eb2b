"""Demonstrations in a toy world: blocks of scenes, more or less variation, corrective ones that begin at failures."""

import json

import numpy as np
import pytest
from toy_world import Crashes, Reaches, StandStill, ToyWorld

from robocoach.configs.errors import UserError
from robocoach.datasets import splits
from robocoach.datasets.journal import Journal
from robocoach.sim.generate import BLOCKS, CORRECTIVE_START, EARLIER_TICKS, EXTRA_START, generate, takeover
from robocoach.sim.pool import SimulatorPool
from robocoach.sim.rollout import run_rollouts
from robocoach.sim.tasks import get_task
from robocoach.sim.tasks.stack_cube import TOP
from robocoach.sim.trace import read_trace

RUN = 7


@pytest.fixture(scope="module")
def pool():
    with SimulatorPool("stack-cube", 1, ToyWorld) as opened:
        yield opened


def demonstrations(folder, made):
    return [Journal(folder).read(index) for index in made.indices]


def test_extra_demonstrations_are_of_scenes_of_their_own(pool, tmp_path):
    first = generate(pool, RUN, 2, tmp_path / "first")
    extra = generate(pool, RUN, 2, tmp_path / "extra", start=EXTRA_START)
    assert first.indices == (0, 1) and extra.indices == (EXTRA_START, EXTRA_START + 1)
    assert [one.seed for one in demonstrations(tmp_path / "extra", extra)] == list(
        splits.seeds("demonstration", RUN, 2, EXTRA_START)
    )


def test_blocks_of_scenes_are_apart_and_within_a_runs_share():
    assert BLOCKS == (0, CORRECTIVE_START, EXTRA_START, splits.PER_RUN) and list(BLOCKS) == sorted(BLOCKS)


def test_a_block_is_never_left(pool, tmp_path):
    made = generate(pool, RUN, 3, tmp_path, start=EXTRA_START - 1)
    assert made.indices == (EXTRA_START - 1,)


def test_variation_changes_how_things_look_and_not_where_they_are(pool, tmp_path):
    looks = {}
    for scale in (0.0, 1.0):
        made = generate(pool, RUN, 2, tmp_path / str(scale), start=EXTRA_START, variation=scale, recovery_share=0.0)
        looks[scale] = demonstrations(tmp_path / str(scale), made)
    for plain, usual in zip(looks[0.0], looks[1.0], strict=True):
        np.testing.assert_array_equal(plain.states, usual.states)
    shade = {scale: [one.episode().images[0, 0, 0, 0] for one in ones] for scale, ones in looks.items()}
    nominal = 255 * get_task("stack-cube").nominal.colours[TOP][0]
    assert shade[0.0] == pytest.approx([nominal] * 2, abs=3)
    assert shade[1.0] != pytest.approx([nominal] * 2, abs=3)


@pytest.fixture(scope="module")
def failures(pool, tmp_path_factory):
    """Two failed rollouts on train seeds, and a folder of two that crashed at once."""
    folder = tmp_path_factory.mktemp("failures")
    seeds = splits.seeds("train", RUN, 2)
    run_rollouts(pool, seeds, Reaches, folder / "reached", max_ticks=40)
    run_rollouts(pool, seeds, Crashes, folder / "crashed")
    return folder


def test_corrective_demonstrations_begin_on_the_way_of_failed_rollouts(pool, failures, tmp_path):
    records = sorted((failures / "reached").glob("*.json"))
    made = generate(pool, RUN, 4, tmp_path, failures=records)
    assert made.indices == tuple(range(CORRECTIVE_START, CORRECTIVE_START + 4))
    ones = demonstrations(tmp_path, made)
    train = list(splits.seeds("train", RUN, 2))
    assert [one.seed for one in ones] == train * 2  # they take turns
    for one in ones:
        replayed = read_trace(failures / "reached" / f"{one.seed}.npz")
        start = np.column_stack([replayed.q, replayed.width])
        begin = np.abs(start - one.states[0]).max(axis=1)
        (failing,) = json.loads((failures / "reached" / f"{one.seed}.json").read_text())["accounts"]
        at_start = np.allclose(one.states[0, :7], get_task("stack-cube").sample_scene(one.seed).start_q, atol=1e-6)
        assert at_start or begin[: failing["moment_tick"]].min() < 1e-6
    assert any(not np.array_equal(ones[0].states[0], other.states[0]) for other in ones[2:3])


def test_failures_without_a_trace_leave_it_to_the_policy_or_are_refused(pool, failures, tmp_path):
    records = sorted((failures / "crashed").glob("*.json"))
    with pytest.raises(UserError, match="none of the 2 failed rollouts"):
        generate(pool, RUN, 1, tmp_path / "refused", failures=records)
    made = generate(pool, RUN, 1, tmp_path / "policy", failures=records, make_policy=StandStill)
    (one,) = demonstrations(tmp_path / "policy", made)
    assert one.seed in splits.RANGES["demonstration"]


def test_the_demonstrator_takes_over_between_shortly_before_the_stage_and_the_failure():
    rng = np.random.default_rng(0)
    assert {takeover(20, 25, rng) for _ in range(500)} == set(range(19 - EARLIER_TICKS, 26))
    assert {takeover(1, 2, rng) for _ in range(100)} == {0, 1, 2}
