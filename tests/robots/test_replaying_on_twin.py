"""An episode's actions on the twin once more: followed, judged, and stopped where the envelope says so."""

import json
import time

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.configs.models import DeployConfig, SafetyConfig, Sim2RealConfig
from robocoach.datasets.episode import REAL_SEED, Episode
from robocoach.datasets.journal import Journal
from robocoach.datasets.record import assemble
from robocoach.robots.replaying import read, replay
from robocoach.robots.rig import Rig
from robocoach.sim import provenance
from robocoach.sim.tasks import get_task

TASK = get_task("stack-cube")
TICKS = 12


def moving(seed: int = REAL_SEED) -> Episode:
    """A slow wave of three joints, commanded a tick ahead."""
    time_s = 0.1 * np.arange(TICKS + 1)[:, None]
    wave = 0.15 * (1 - np.cos(np.pi * time_s / 1.2))
    joints = TASK.sample_scene(1).start_q + wave * np.array([1, 0, 0, 0.5, 0, 0, 1])
    rows = np.hstack([joints, np.full((TICKS + 1, 1), 0.08)]).astype(np.float32)
    return Episode(
        images=np.zeros((TICKS, 224, 224, 3), np.uint8),
        states=rows[:-1],
        actions=rows[1:],
        stages=np.full(TICKS, -1),
        privileged=None,
        task=TASK.instruction,
        seed=seed,
        success=True,
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay")
    journal = Journal(folder / "episodes")
    wild, outside = moving(), moving()
    wild.actions[6:, 0] += 1.0
    outside.states[:, 3] = -0.01
    for index, episode in enumerate((moving(), wild, outside, moving(seed=1))):
        journal.add(index, episode)
    return assemble(journal, folder / "dataset", provenance.contract("real", None)).root


@pytest.fixture
def rig(arm, twin) -> Rig:
    return Rig("twin", arm, twin.camera, twin, provenance.contract("twin", "test"))


def test_the_arm_follows_and_ends_where_the_episode_did(dataset, rig, twin):
    done = replay(read(dataset.parent, 0), rig, Sim2RealConfig())
    told = done.summary()
    assert told["stopped"] == "" and told["ticks"] == TICKS and told["success"] is None
    assert told["end_error_rad"] < 0.01 and told["tracking_max_rad"] < 0.06
    np.testing.assert_allclose(twin.state().q, read(dataset, 0).actions[-1, :7], atol=0.02)
    json.dumps(told)


def test_an_episode_with_a_known_scene_is_judged_in_it(dataset, rig, twin):
    done = replay(read(dataset, 3), rig, Sim2RealConfig())
    assert done.success is False  # a wave stacks nothing
    scene = TASK.sample_scene(1)
    np.testing.assert_allclose(twin.state().objects["red_cube"][:2], scene.objects["red_cube"][:2], atol=5e-3)


def test_the_envelope_stops_a_jump_and_says_where(dataset, rig):
    done = replay(read(dataset, 1), rig, Sim2RealConfig())
    assert done.stopped.startswith("jump: joint 1") and len(done.states) == 6


def test_a_dry_run_moves_nothing_and_counts_what_would_be_clamped(dataset, rig, twin):
    time.sleep(0.5)  # the arm settles
    before = twin.state().q
    config = Sim2RealConfig(deploy=DeployConfig(dry_run=True), safety=SafetyConfig(max_step_rad=0.01))
    done = replay(read(dataset, 0), rig, config)
    assert np.abs(twin.state().q - before).max() < 5e-3
    assert done.dry_run and done.clamped_ticks > 0


def test_an_episode_that_starts_where_the_arm_may_not_be_is_refused_before_motion(dataset, rig, twin):
    time.sleep(0.5)
    before = twin.state().q
    with pytest.raises(UserError, match="joint 4"):
        replay(read(dataset, 2), rig, Sim2RealConfig())
    assert np.abs(twin.state().q - before).max() < 5e-3


def test_an_episode_that_is_not_there_is_one_line(dataset, tmp_path):
    with pytest.raises(UserError, match="episodes 0 to 3"):
        read(dataset, 9)
    with pytest.raises(UserError, match="no LeRobotDataset"):
        read(tmp_path, 0)


def test_data_of_another_arm_needs_to_be_accepted(dataset, rig):
    other = rig.contract.model_copy(
        update={"provenance": rig.contract.provenance.model_copy(update={"robot": "panda"})}
    )
    strange = Rig(rig.robot, rig.arm, rig.camera, rig.twin, other)
    with pytest.raises(UserError, match="--accept robot"):
        replay(read(dataset, 0), strange, Sim2RealConfig())
