"""What the trainer needs to know of LeRobot's own π0.5: its public weights and tokenizer, its batches, its files.

The weights (14 GB) and the tokenizer (gated) come from the Hugging Face hub once and are then read from its cache or
from a folder. Without them training is refused: a π0.5 with random weights is of no use.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.policies.pi05.modeling_pi05 import PI05Policy
from lerobot.policies.pi05.processor_pi05 import make_pi05_pre_post_processors
from lerobot.utils.constants import ACTION, OBS_STATE
from torch import Tensor

from robocoach.configs.errors import UserError
from robocoach.configs.models import TrainConfig
from robocoach.datasets.contract import ACTION_DIM, ACTION_NAMES, IMAGE_KEY, IMAGE_SIZE, STATE_DIM
from robocoach.policies.batches import Batch, Batches, images_as_floats
from robocoach.policies.measures import action_errors
from robocoach.policies.strict import WEIGHTS_FILE, load_weights

BASE_WEIGHTS = "lerobot/pi05_base"
TOKENIZER = "google/paligemma-3b-pt-224"
ERROR_FRAMES = 16
"""Kept-apart frames on which actions are sampled."""


class PI05Learner:
    """LeRobot's PI05Policy in training, from its public weights or from a checkpoint of this project."""

    def __init__(self, cfg: TrainConfig, batches: Batches, device: torch.device, init_from: Path | None) -> None:
        _refuse_other_shape(cfg, init_from)
        weights = init_from or find_base_weights(cfg.pi05_base)
        require_tokenizer()
        self.cfg, self.device = cfg, device
        config = PI05Config(
            device=device.type,
            push_to_hub=False,
            dtype="bfloat16" if device.type == "cuda" else "float32",
            gradient_checkpointing=cfg.gradient_checkpointing,
            freeze_vision_encoder=cfg.frozen == "vision",
            chunk_size=cfg.chunk_size,
            n_action_steps=cfg.executed_steps,
            input_features={
                IMAGE_KEY: PolicyFeature(FeatureType.VISUAL, (3, IMAGE_SIZE, IMAGE_SIZE)),
                OBS_STATE: PolicyFeature(FeatureType.STATE, (STATE_DIM,)),
            },
            output_features={ACTION: PolicyFeature(FeatureType.ACTION, (ACTION_DIM,))},
            action_feature_names=list(ACTION_NAMES),
        )
        self.policy = PI05Policy(config)
        load_weights(self.policy, weights, rename=lambda state: _lerobot_names(self.policy, state))
        stats = {
            key: {name: torch.from_numpy(np.asarray(value)) for name, value in found.lerobot().items()}
            for key, found in batches.mixture.statistics().items()
        }
        self.before, self.after = make_pi05_pre_post_processors(config, stats)
        self._instructions = [source.instructions for source in batches.mixture.sources]
        self.notes = [f"weights of {weights}, normalisation of this mixture, actions absolute"]
        if device.type == "cuda" and not cfg.gradient_checkpointing:
            self.notes.append("activations are kept in memory; --train.gradient-checkpointing takes less of it")
        if cfg.frozen == "vision":
            self.notes.append("the vision tower keeps its weights")

    def tensors(self, batch: Batch, rng: np.random.Generator | None) -> dict[str, Tensor]:
        """The batch through LeRobot's preprocessor (normalised, state in the prompt, tokenised)."""
        tasks = [self._instructions[s][i] for s, i in zip(batch.source, batch.instruction, strict=True)]
        return self.before(
            {
                IMAGE_KEY: images_as_floats(batch.images, self.cfg, rng, torch.device("cpu")),
                OBS_STATE: torch.from_numpy(batch.states),
                ACTION: torch.from_numpy(batch.actions),
                "task": tasks,
            }
        )

    @torch.no_grad()
    def errors(self, policy: Any, batch: Batch) -> dict[str, float]:
        """Mean error of sampled actions over the executed steps, see `action_errors`; on few frames: it is large."""
        few = batch.slice(0, ERROR_FRAMES)
        shape = (len(few.states), self.cfg.chunk_size, policy.config.max_action_dim)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(self.device)
        chunk = self.after(policy.predict_action_chunk(self.tensors(few, None), noise=noise).float())
        return action_errors(chunk.cpu(), torch.from_numpy(few.actions), self.cfg.executed_steps)

    def save(self, policy: Any, folder: Path) -> None:
        """Writes LeRobot's files; the tokenizer stays named, as LeRobot does it."""
        policy.save_pretrained(folder)
        self.before.save_pretrained(folder)
        self.after.save_pretrained(folder)


def _refuse_other_shape(cfg: TrainConfig, parent: Path | None) -> None:
    """A parent that predicts another number of actions is refused, as for π0.5-nano."""
    if parent is None:
        return
    theirs = json.loads((parent / "config.json").read_text()).get("chunk_size")
    if theirs != cfg.chunk_size:
        raise UserError(
            f"{parent} has chunk_size {theirs}, asked for {cfg.chunk_size}; keep {theirs} or start from the base"
        )


def find_base_weights(name: str) -> Path:
    """The folder of π0.5's public weights: `name` itself, or its copy in the Hugging Face cache. Never downloads."""
    if (Path(name) / WEIGHTS_FILE).is_file():
        return Path(name)
    try:
        return Path(snapshot_download(name, local_files_only=True, allow_patterns=["*.json", WEIGHTS_FILE]))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, FileNotFoundError) as error:
        raise UserError(
            f"policy pi05 needs the weights {name}, which are neither a folder with {WEIGHTS_FILE} nor in the Hugging "
            f"Face cache; run `hf download {BASE_WEIGHTS}` (14 GB), or name a folder with --train.pi05_base, or take "
            "--train.policy pi05_nano"
        ) from error


def require_tokenizer() -> None:
    """Raises UserError when PaliGemma's tokenizer is not in the Hugging Face cache."""
    if not isinstance(try_to_load_from_cache(TOKENIZER, "tokenizer.json"), str):
        raise UserError(
            f"policy pi05 needs the tokenizer {TOKENIZER}, which is not in the Hugging Face cache; accept its licence "
            f"on the hub, run `hf auth login` and `hf download {TOKENIZER} --include '*token*'`, or take "
            "--train.policy pi05_nano"
        )


def _lerobot_names(policy: PI05Policy, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """openpi's and older names of the weights as LeRobot's module has them."""
    fixed = policy._fix_pytorch_state_dict_keys(state, policy.config)
    return {name if name.startswith("model.") else f"model.{name}": tensor for name, tensor in fixed.items()}
