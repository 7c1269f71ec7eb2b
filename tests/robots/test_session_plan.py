"""The plan of a session: frozen, hashed, paired in random balanced order, and blind where asked."""

import json
from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robocoach.configs.errors import UserError
from robocoach.robots.session import plan as plans
from robocoach.robots.session.plan import Contestant, order
from robocoach.sim.tasks import get_task

TASK = get_task("stack-cube")
A, B = Contestant("night/0000", "a" * 64, "runs/a"), Contestant("night/0001", "b" * 64, "runs/b")
MORE = {
    "time_limit_s": 12.0,
    "robot": "twin",
    "serial": "",
    "operator": "Ada",
    "verdict": "ask",
    "reference": 0.0,
    "simulated": {},
    "settings": {"deploy.max_ticks": 120},
    "accept": (),
    "code_version": "v1",
    "made_at": "2026-01-01T00:00:00",
}


def make(contestants=(A,), scenes=4, distractors=0, labels=None, commitment="", extra_trials=3):
    return plans.make_plan(
        TASK,
        contestants,
        range(60_000_000, 60_000_000 + scenes),
        distractors=distractors,
        extra_trials=extra_trials,
        labels=labels or [contestant.name for contestant in contestants],
        commitment=commitment,
        **MORE,
    )


def test_a_frozen_plan_comes_back_as_it_was(tmp_path):
    made = make(distractors=2)
    plans.freeze(tmp_path, made)
    assert plans.read_plan(tmp_path) == made and plans.read_plan(tmp_path).digest == made.digest


def test_a_plan_is_frozen_once(tmp_path):
    plans.freeze(tmp_path, make())
    with pytest.raises(UserError, match="--resume"):
        plans.freeze(tmp_path, make(scenes=5))


@pytest.mark.parametrize("change", [("extra_trials", 30), ("success", "anything"), ("operator", "Eve")])
def test_an_edited_plan_is_refused(tmp_path, change):
    plans.freeze(tmp_path, make())
    path = tmp_path / plans.PLAN_FILE
    content = json.loads(path.read_text())
    content["plan"][change[0]] = change[1]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="changed after it was frozen"):
        plans.read_plan(tmp_path)


def test_a_plan_that_is_no_plan_is_one_line(tmp_path):
    with pytest.raises(UserError, match="holds no session"):
        plans.read_plan(tmp_path)
    (tmp_path / plans.PLAN_FILE).write_text('{"sha256": "0", "plan": {"task": 3}}')
    with pytest.raises(UserError, match="cannot be read as a plan"):
        plans.read_plan(tmp_path)


def test_other_settings_than_the_plans_are_refused_by_name():
    with pytest.raises(UserError, match=r"deploy\.max_ticks 120 there, 200 now"):
        plans.same_as(make(), {"deploy.max_ticks": 200})
    plans.same_as(make(), {"deploy.max_ticks": 120})


@given(st.integers(1, 60), st.integers(0, 10**6))
def test_every_scene_is_run_by_both_and_each_is_first_equally_often(scenes, seed):
    trials = order(scenes, ["a", "b"], seed)
    assert [trial.number for trial in trials] == list(range(1, 2 * scenes + 1))
    pairs = [trials[2 * i : 2 * i + 2] for i in range(scenes)]
    assert all({first.label, second.label} == {"a", "b"} and first.scene == second.scene for first, second in pairs)
    firsts = Counter(first.label for first, _ in pairs)
    assert abs(firsts["a"] - firsts["b"]) <= scenes % 2


def test_the_order_within_pairs_is_random():
    orders = {tuple(trial.label for trial in order(6, ["a", "b"], seed)) for seed in range(40)}
    assert len(orders) > 10


def test_one_checkpoint_runs_every_scene_once():
    assert [(trial.scene, trial.label) for trial in order(3, ["a"], 7)] == [(1, "a"), (2, "a"), (3, "a")]


def test_a_scene_is_the_one_that_the_simulators_draw():
    start = make().scenes[2]
    scene = TASK.sample_scene(start.seed)
    for placed in start.objects:
        assert np.allclose([placed.x_m, placed.y_m], scene.objects[placed.name][:2], atol=1e-4)
    assert np.allclose(start.start_q_rad, scene.start_q, atol=1e-5)


@given(st.integers(60_000_000, 60_009_999))
def test_distractors_leave_room_for_the_hand(seed):
    start = plans.start_of(TASK, seed, 3)
    places = [(placed.x_m, placed.y_m) for placed in (*start.objects, *start.distractors)]
    assert len(start.distractors) == 3
    for i, one in enumerate(places):
        for other in places[max(i + 1, len(start.objects)) :]:
            assert np.hypot(one[0] - other[0], one[1] - other[1]) >= 0.089


def test_more_distractors_than_fit_are_refused():
    with pytest.raises(UserError, match="no room"):
        plans.start_of(TASK, 60_000_000, 60)


def test_a_seal_hides_the_names_and_cannot_be_exchanged(tmp_path):
    secret = plans.seal([A.name, B.name])
    made = make((A, B), labels=sorted(secret.names), commitment=secret.commitment)
    plans.write_seal(tmp_path, secret)
    text = (tmp_path / plans.SEAL_FILE).read_text() + json.dumps([asdict(trial) for trial in made.trials])
    assert A.name not in text and B.name not in text
    assert plans.read_seal(tmp_path, made) == secret
    codes = list(secret.names)
    swapped = replace(secret, names={codes[0]: secret.names[codes[1]], codes[1]: secret.names[codes[0]]})
    plans.write_seal(tmp_path, swapped)
    with pytest.raises(UserError, match="not the file that this session was planned with"):
        plans.read_seal(tmp_path, made)


def test_codes_do_not_follow_from_the_names():
    assert len({tuple(sorted(plans.seal([A.name, B.name]).names.items())) for _ in range(30)}) > 10


@pytest.mark.parametrize("contestants", [(), (A, A), (A, B, Contestant("c", "", ""))])
def test_one_or_two_different_checkpoints(contestants):
    with pytest.raises(UserError, match="one or two different checkpoints"):
        make(contestants, labels=["x"])


def test_a_task_that_draws_other_scenes_is_refused():
    made = make()
    plans.check_scenes(made, TASK)
    moved = replace(TASK, sample_scene=lambda seed: TASK.sample_scene(seed + 1))
    with pytest.raises(UserError, match="is not what this version"):
        plans.check_scenes(made, moved)
