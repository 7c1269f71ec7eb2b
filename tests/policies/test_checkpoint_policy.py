"""A policy loaded from a moved checkpoint acts: absolute actions, the same ones for the same rollout."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, cast

import numpy as np
import pytest
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors

from robocoach.datasets.contract import IMAGE_KEY, STATE_KEY
from robocoach.policies import synthetic
from robocoach.policies.checkpoint import load_policy


@pytest.fixture
def seen():
    table = synthetic.Table.random(3)
    return table.image(224), table.state(), synthetic.INSTRUCTION


def test_a_chunk_holds_the_executed_steps_as_float32(checkpoint, seen):
    actions = load_policy(checkpoint).act(*seen)
    assert actions.shape == (4, 8)
    assert actions.dtype == np.float32
    assert np.isfinite(actions).all()


def test_a_policy_without_sampling_noise_repeats_itself(checkpoint, seen):
    policy = load_policy(checkpoint)
    np.testing.assert_array_equal(policy.act(*seen), policy.act(*seen))


def test_with_sampling_noise_a_reset_brings_back_the_same_actions(checkpoint, seen):
    policy = cast(Any, load_policy(checkpoint))
    policy.policy.config.sampling_noise = 1.0
    first, second = policy.act(*seen), policy.act(*seen)
    policy.reset()
    np.testing.assert_array_equal(policy.act(*seen), first)
    assert not np.array_equal(first, second)  # the noise goes on within a rollout


def test_joints_are_absolute_and_follow_the_state_they_start_from(checkpoint, seen):
    image, state, instruction = seen
    policy = load_policy(checkpoint)
    moved = state.copy()
    moved[3] += 20.0  # far outside the training range, where the normalised state is cut off
    further = moved.copy()
    further[3] += 1.0
    first = policy.act(image, moved, instruction)
    policy.reset()
    second = policy.act(image, further, instruction)
    np.testing.assert_allclose((second - first)[:, 3], 1.0, atol=1e-4)
    np.testing.assert_allclose((second - first)[:, 7], 0.0, atol=1e-5)


def test_the_checkpoint_carries_its_contract(checkpoint):
    assert load_policy(checkpoint).contract == synthetic.CONTRACT


def test_lerobots_route_gives_the_same_absolute_actions_step_by_step(checkpoint, seen):
    image, state, instruction = seen
    config = PreTrainedConfig.from_pretrained(checkpoint)
    policy = get_policy_class(config.type).from_pretrained(checkpoint)
    before, after = make_pre_post_processors(config, str(checkpoint))

    def step(state):
        pixels = torch.from_numpy(image).permute(2, 0, 1).float() / 255
        batch = before({IMAGE_KEY: pixels, STATE_KEY: torch.from_numpy(state), "task": instruction})
        return after(policy.select_action(batch)).numpy()[0]

    torch.manual_seed(0)
    first = step(state)
    # The second action comes out of the queue: it must not be moved by the state of a later tick.
    second = step(state + 0.5)
    ours = cast(Any, load_policy(checkpoint))
    ours.generator.manual_seed(0)
    expected = ours.act(image, state, instruction)
    np.testing.assert_allclose(np.stack([first, second]), expected[:2], atol=2e-3)


def test_an_image_of_the_wrong_size_is_refused(checkpoint, seen):
    with pytest.raises(ValueError, match="expected image uint8"):
        load_policy(checkpoint).act(seen[0][:100], *seen[1:])


def test_the_words_of_the_instruction_reach_the_policy(checkpoint, seen):
    policy = load_policy(checkpoint)
    first = policy.act(*seen)
    policy.reset()
    assert not np.array_equal(policy.act(*seen[:2], "open the drawer"), first)


def test_a_process_that_knows_nothing_but_the_folder_can_act(checkpoint):
    code = f"""
import numpy as np
from pathlib import Path
from robocoach.policies.checkpoint import load_policy
policy = load_policy(Path({str(checkpoint)!r}), threads=1)
print(policy.act(np.zeros((224, 224, 3), np.uint8), np.zeros(8, np.float32), "stack the cubes").shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "(4, 8)", done.stderr[-2000:]


def test_a_plan_begins_with_the_actions_to_execute_and_goes_on(checkpoint, seen):
    policy = cast(Any, load_policy(checkpoint))
    rows, executed = policy.plan(*seen)
    assert len(rows) == policy.policy.config.chunk_size > executed == 4
    np.testing.assert_array_equal(policy.act(*seen), rows[:executed])


def test_a_continuing_policy_goes_on_from_the_chunk_in_use(checkpoint, seen):
    policy = cast(Any, load_policy(checkpoint, continuing=True))
    free, _ = policy.plan(*seen)
    spread = policy.policy.action_std[: len(free)].numpy()
    previous = free + 0.5 * spread  # another way to go, as far away as the policy's own spread allows for
    guided, _ = policy.plan(*seen, previous, 2)
    away = np.abs(guided - previous)[:2] / spread[:2]
    assert np.median(away) < 0.25  # half of the spread without guidance
    np.testing.assert_array_equal(policy.plan(*seen, None, 2)[0], free)


def test_without_continuing_the_last_chunk_changes_nothing(checkpoint, seen):
    policy = cast(Any, load_policy(checkpoint))
    free, _ = policy.plan(*seen)
    np.testing.assert_array_equal(policy.plan(*seen, free + 0.1, 2)[0], free)
