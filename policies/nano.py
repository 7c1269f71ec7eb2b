"""What the trainer needs to know of π0.5-nano: building it from settings and data, its batches, its saved files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.utils.constants import ACTION, OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS, OBS_STATE
from torch import Tensor

from robocoach.configs.errors import UserError
from robocoach.configs.models import TrainConfig
from robocoach.datasets.contract import ACTION_DIM, ACTION_NAMES, IMAGE_KEY, IMAGE_SIZE, STATE_DIM
from robocoach.policies.batches import Batch, Batches, images_as_floats
from robocoach.policies.lerobot.configuration_pi05_nano import PI05NanoConfig
from robocoach.policies.lerobot.modeling_pi05_nano import PRIVILEGED, PRIVILEGED_KNOWN, STATISTICS, PI05NanoPolicy
from robocoach.policies.lerobot.processor_pi05_nano import (
    build_tokenizer,
    make_pi05_nano_pre_post_processors,
    make_vocabulary,
    read_vocabulary,
)
from robocoach.policies.measures import action_errors
from robocoach.policies.normalisation import policy_statistics

FEATURES = {
    IMAGE_KEY: PolicyFeature(FeatureType.VISUAL, (3, IMAGE_SIZE, IMAGE_SIZE)),
    OBS_STATE: PolicyFeature(FeatureType.STATE, (STATE_DIM,)),
}
CAPACITIES: Mapping[str, Mapping[str, Any]] = {
    "small": {
        "stem_channels": (24, 48),
        "stem_blocks": (1, 1),
        "layout_channels": 4,
        "prefix_width": 96,
        "prefix_mlp": 192,
        "expert_width": 96,
        "expert_mlp": 192,
        "depth": 2,
        "auxiliary_hidden": 128,
    },
    "base": {},
    "large": {
        "stem_channels": (48, 96),
        "stem_blocks": (2, 3),
        "prefix_width": 256,
        "prefix_mlp": 768,
        "expert_width": 192,
        "expert_mlp": 576,
        "depth": 5,
        "auxiliary_hidden": 384,
    },
}
"""Sizes of the towers that differ from `PI05NanoConfig`'s own, which are `base`.

Parameters in millions, with 14 numbers of object poses and 96 px:

    size    all    stem   prefix tower   expert   pose head
    small   0.67   0.07   0.09           0.31     0.14
    base    1.94   0.21   0.41           0.75     0.45
    large   7.43   0.66   2.66           3.16     0.73
"""
SIZES = tuple(sorted({name for sizes in CAPACITIES.values() for name in sizes}))


class NanoLearner:
    """A π0.5-nano policy in training: batches in, loss out, files on disk."""

    def __init__(self, cfg: TrainConfig, batches: Batches, device: torch.device, init_from: Path | None) -> None:
        """Random weights and the mixture's statistics, or the weights and statistics of `init_from`."""
        self.cfg = cfg
        sizes = {source.name: source.images.shape[1] for source in batches.mixture.sources}
        if set(sizes.values()) != {cfg.image_px}:
            raise ValueError(
                f"sources were opened with {sizes} px, train.image_px is {cfg.image_px}: open them with it"
            )
        instructions = batches.mixture.instructions
        if init_from is None:
            if cfg.frozen != "none":
                raise UserError(
                    f"train.frozen {cfg.frozen} keeps the weights that a training starts from, and this one starts "
                    "without any; start from a checkpoint or set train.frozen to none"
                )
            self.policy = PI05NanoPolicy(_config(cfg, batches, device))
            found = policy_statistics(batches)
            self.policy.set_statistics(**{name: torch.from_numpy(getattr(found, name)) for name in STATISTICS})
            self.notes = [f"hardly moving, so floored: {', '.join(found.floored)}"] if found.floored else []
            parent_words = None
        else:
            self.policy = _child(cfg, batches, device, init_from)
            self.notes = [f"weights and normalisation of {init_from}, fresh optimizer"]
            parent_words = read_vocabulary(init_from)
        if cfg.frozen == "vision":
            self.policy.model.paligemma_with_expert.stem.requires_grad_(False)
            self.notes.append("the image stem keeps its weights")
        size = self.policy.config.vocabulary_size
        self.vocabulary = make_vocabulary(instructions, size, parent_words)
        tokenizer = build_tokenizer(self.vocabulary)
        longest = self.policy.config.tokenizer_max_length
        self._tokens, self._masks = [], []
        for source in batches.mixture.sources:
            found = tokenizer(
                list(source.instructions),
                max_length=longest,
                truncation=True,
                padding="max_length",
                return_tensors="pt",
            )
            self._tokens.append(found["input_ids"])
            self._masks.append(found["attention_mask"].bool())
        self.policy.to(device)
        # Columns that are padding for every instruction would only cost time.
        self._length = max(int(mask.sum(1).max()) for mask in self._masks)
        self.device = device

    def tensors(self, batch: Batch, rng: np.random.Generator | None) -> dict[str, Tensor]:
        """The batch as the policy's forward takes it; `rng` (training only) changes the images at random."""
        tokens = torch.empty(len(batch.states), self._length, dtype=torch.int64)
        masks = torch.empty(len(batch.states), self._length, dtype=torch.bool)
        for index, (table, mask) in enumerate(zip(self._tokens, self._masks, strict=True)):
            rows = np.flatnonzero(batch.source == index)
            tokens[rows] = table[batch.instruction[rows], : self._length]
            masks[rows] = mask[batch.instruction[rows], : self._length]
        prepared = {
            IMAGE_KEY: images_as_floats(batch.images, self.cfg, rng, self.device),
            OBS_STATE: torch.from_numpy(batch.states).to(self.device),
            ACTION: torch.from_numpy(batch.actions).to(self.device),
            OBS_LANGUAGE_TOKENS: tokens.to(self.device),
            OBS_LANGUAGE_ATTENTION_MASK: masks.to(self.device),
        }
        if batch.privileged is not None:
            prepared[PRIVILEGED] = torch.from_numpy(batch.privileged).to(self.device)
            prepared[PRIVILEGED_KNOWN] = torch.from_numpy(batch.known).to(self.device)
        return prepared

    @torch.no_grad()
    def errors(self, policy: PI05NanoPolicy, batch: Batch) -> dict[str, float]:
        """Mean error of sampled actions over the executed steps, see `action_errors`, and of the object poses."""
        shape = (len(batch.states), self.cfg.chunk_size, ACTION_DIM)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(self.device)
        prepared = self.tensors(batch, None)
        chunk = policy.predict_action_chunk(prepared, noise=noise)
        found = action_errors(chunk, prepared[ACTION], self.cfg.executed_steps)
        if PRIVILEGED in prepared and bool(prepared[PRIVILEGED_KNOWN].any()):
            wrong = policy.predict_poses(prepared) - prepared[PRIVILEGED]
            found["validation_pose_error"] = float(wrong[prepared[PRIVILEGED_KNOWN]].abs().mean())
        return found

    def save(self, policy: PI05NanoPolicy, folder: Path) -> None:
        """Writes LeRobot's files of a checkpoint (configuration, weights, processors) into a folder."""
        policy.save_pretrained(folder)
        before, after = make_pi05_nano_pre_post_processors(policy.config, vocabulary=self.vocabulary)
        before.save_pretrained(folder)
        after.save_pretrained(folder)


def _config(cfg: TrainConfig, batches: Batches, device: torch.device) -> PI05NanoConfig:
    return PI05NanoConfig(
        device=device.type,
        push_to_hub=False,
        input_features=dict(FEATURES),
        output_features={ACTION: PolicyFeature(FeatureType.ACTION, (ACTION_DIM,))},
        action_feature_names=list(ACTION_NAMES),
        chunk_size=cfg.chunk_size,
        n_action_steps=cfg.executed_steps,
        image_px=cfg.image_px,
        privileged_dim=batches.privileged_size,
        auxiliary_weight=cfg.auxiliary_weight,
        flow_samples=cfg.flow_samples,
        state_noise=cfg.state_noise,
        gradient_checkpointing=cfg.gradient_checkpointing,
        **CAPACITIES[cfg.capacity],
    )


def capacity_of(config: PI05NanoConfig) -> str:
    """The name of a policy's sizes in CAPACITIES; `other` when it has sizes of its own."""
    plain = PI05NanoConfig(device="cpu")

    def sizes(of: PI05NanoConfig) -> dict[str, Any]:
        found = {name: getattr(of, name) for name in SIZES}
        return {name: tuple(value) if isinstance(value, list | tuple) else value for name, value in found.items()}

    for name, changed in CAPACITIES.items():
        if sizes(config) == {**sizes(plain), **changed}:
            return name
    return "other"


def _child(cfg: TrainConfig, batches: Batches, device: torch.device, parent: Path) -> PI05NanoPolicy:
    """The parent's policy with the settings that do not change its shape. Raises UserError on those that would."""
    policy = PI05NanoPolicy.from_pretrained(parent)
    mine = policy.config
    fixed: dict[str, tuple[Any, Any]] = {
        "chunk_size": (mine.chunk_size, cfg.chunk_size),
        "image_px": (mine.image_px, cfg.image_px),
        "capacity": (capacity_of(mine), cfg.capacity),
    }
    if batches.privileged_size:
        fixed["privileged numbers of the data"] = (mine.privileged_dim, batches.privileged_size)
    for name, (theirs, wanted) in fixed.items():
        if theirs != wanted:
            raise UserError(f"{parent} has {name} {theirs}, asked for {wanted}; keep {theirs} or train from scratch")
    mine.n_action_steps = cfg.executed_steps
    mine.auxiliary_weight = cfg.auxiliary_weight
    mine.flow_samples = cfg.flow_samples
    mine.state_noise = cfg.state_noise
    mine.gradient_checkpointing = cfg.gradient_checkpointing
    policy.keep_activations(not cfg.gradient_checkpointing)
    return policy
