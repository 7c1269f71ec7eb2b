"""π0.5-nano computes what LeRobot's PI05 code computes; its faster kernels change nothing but the time."""

from __future__ import annotations

import copy
from typing import Any, cast

import cv2
import numpy as np
import pytest
import torch
from lerobot.policies.pi05.modeling_pi05 import PI05Pytorch
from lerobot.policies.pi_gemma import PiGemmaRMSNorm

from robocoach.policies.checkpoint import load_policy
from robocoach.policies.lerobot.processor_pi05_nano import build_tokenizer, make_vocabulary
from robocoach.policies.lerobot.towers import FusedNorm, _gemma
from robocoach.policies.lerobot.vision import ImageStem, area_matrix, resize_area


@pytest.fixture
def model(checkpoint):
    torch.manual_seed(0)
    model = cast(Any, load_policy(checkpoint)).policy.model
    for (
        layer
    ) in model.paligemma_with_expert.gemma_expert.model.layers:  # adaRMS begins at zero: give it something to do
        torch.nn.init.normal_(layer.input_layernorm.dense.weight, std=0.1)
        torch.nn.init.normal_(layer.post_attention_layernorm.dense.weight, std=0.1)
    return model


def _inputs(model, batch: int, draws: int):
    config = model.config
    observations = [torch.rand(batch, 3, 32, 32) * 2 - 1, torch.randn(batch, 8)]
    tokens = torch.randint(0, 50, (batch, 5))
    masks = torch.ones(batch, 5, dtype=torch.bool)
    masks[0, 3:] = False
    actions = torch.randn(batch, config.chunk_size, 8)
    noise, time = torch.randn(batch * draws, config.chunk_size, 8), torch.rand(batch * draws)
    return observations, [torch.ones(batch, dtype=torch.bool)], tokens, masks, actions, noise, time


def test_training_on_the_cached_prefix_equals_lerobots_joint_forward(model):
    inputs = _inputs(model, batch=3, draws=1)
    with torch.no_grad():
        ours, _ = model(*inputs)
        # LeRobot's own forward needs a whole last prefix layer; nothing of it but its keys and values is ever used.
        joint = copy.deepcopy(model)
        tower = joint.paligemma_with_expert.paligemma.model.language_model
        whole = _gemma(model.config, model.config.prefix_width, model.config.prefix_mlp, adarms=False)
        whole.layers[-1].load_state_dict(tower.layers[-1].state_dict(), strict=False)
        tower.layers[-1], tower.norm = whole.layers[-1], whole.norm
        theirs = PI05Pytorch.forward(joint, *inputs)
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def test_several_noise_draws_equal_as_many_passes_with_one(model):
    observations, image_mask, tokens, masks, actions, noise, time = _inputs(model, batch=2, draws=3)
    with torch.no_grad():
        together, _ = model(observations, image_mask, tokens, masks, actions, noise, time)
        for draw in range(3):
            rows = torch.arange(2) * 3 + draw
            alone, _ = model(observations, image_mask, tokens, masks, actions, noise[rows], time[rows])
            torch.testing.assert_close(together[rows], alone, atol=1e-5, rtol=1e-4)


def test_padding_of_the_instruction_changes_nothing(model):
    observations, image_mask, tokens, masks, actions, noise, time = _inputs(model, batch=2, draws=1)
    masks[:, 3:] = False
    other = tokens.clone()
    other[:, 3:] = 7
    with torch.no_grad():
        first, _ = model(observations, image_mask, tokens, masks, actions, noise, time)
        second, _ = model(observations, image_mask, other, masks, actions, noise, time)
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("conditioned", [True, False])
def test_the_fused_norm_and_its_gradients_equal_lerobots(conditioned):
    theirs = PiGemmaRMSNorm(16, cond_dim=8 if conditioned else None)
    ours = FusedNorm(16, cond_dim=8 if conditioned else None)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    results = []
    for norm in (ours, theirs):
        torch.manual_seed(1)
        x, condition = torch.randn(2, 5, 16, requires_grad=True), torch.randn(2, 8) if conditioned else None
        normed, gate = norm(x, condition)
        (normed * torch.randn_like(normed)).sum().backward()
        results.append([normed, gate, x.grad, *(parameter.grad for parameter in norm.parameters())])
    for mine, reference in zip(*results, strict=True):
        assert (mine is None) == (reference is None)
        if mine is not None:
            torch.testing.assert_close(mine, reference)


@pytest.mark.parametrize("px", [96, 112, 64])
def test_area_resizing_equals_the_one_that_made_the_training_frames(px):
    image = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    reference = cv2.resize(image, (px, px), interpolation=cv2.INTER_AREA)
    ours = resize_area(torch.from_numpy(image).permute(2, 0, 1)[None].float(), px)[0].permute(1, 2, 0)
    np.testing.assert_allclose(ours.numpy(), reference, atol=0.51)


def test_every_target_pixel_is_an_average():
    torch.testing.assert_close(area_matrix(224, 96).sum(1), torch.ones(96))


def test_a_token_says_where_it_looks():
    torch.manual_seed(0)
    stem = ImageStem(
        "one_convolution", (8, 8), (0, 1), tokens=1, width=16, image_px=96, layout_channels=0, sharpness=1.0
    )
    image = torch.zeros(1, 3, 96, 96)

    def looks(row: int, column: int) -> torch.Tensor:
        attention = torch.full((1, 1, 12, 12), -50.0)
        attention[0, 0, row, column] = 0
        cast(Any, stem.attention).forward = lambda features: attention
        return stem(image).geometry[0]

    x, y, xx, yy, _ = looks(row=2, column=9)
    assert (x, y) == (pytest.approx(9 / 11 * 2 - 1, abs=1e-5), pytest.approx(2 / 11 * 2 - 1, abs=1e-5))
    assert (xx, yy) == (pytest.approx(0, abs=1e-5), pytest.approx(0, abs=1e-5))


def test_words_outside_the_list_read_as_unknown_and_new_ones_are_appended():
    first = make_vocabulary(["stack the red cube"], 512)
    second = make_vocabulary(["turn the zorgle knob"], 512, parent=first)
    assert second[: len(first)] == first
    assert "zorgle" in second
    assert build_tokenizer(first)("zorgle")["input_ids"] == [1]


def test_a_full_word_list_takes_no_more():
    first = make_vocabulary(["stack"], 512)
    assert make_vocabulary(["zorgle"], len(first), parent=first) == first
