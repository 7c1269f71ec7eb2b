"""π0.5-nano: LeRobot's PI05 policy with towers of a few million parameters that train on a CPU.

Inherited and run as they are: flow-matching noise and time (`sample_noise`, `sample_time`), the adaRMS-conditioned
action embedding (`embed_suffix`), the cached denoising step (`denoise_step`) and sampling (`sample_actions`,
`select_action`). Training runs that same denoising step on the prefix's cache, once per image and several noise draws.

New here: the prefix (image tokens, predicted object poses, continuous state, instruction), the auxiliary target, and
normalisation inside the model, so that actions come out absolute whoever loads the checkpoint.

    observation.images.*       float (B, 3, H, W) in [0, 1] or uint8 (B, H, W, 3)
    observation.state          float32 (B, 8)         joints [rad], gripper width [m]
    observation.language.*     int64 (B, L) tokens and bool (B, L) mask, from the preprocessor
    action                     float32 (B, chunk, 8)  absolute joints [rad], gripper width [m]   (training only)
    privileged, privileged_known  float32 (B, P), bool (B,)                                        (training only)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lerobot.configs import PreTrainedConfig
from lerobot.policies.pi05.modeling_pi05 import PI05Policy, PI05Pytorch
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.processor.relative_action_processor import (
    RelativeActionsProcessorStep,
    to_absolute_actions,
    to_relative_actions,
)
from lerobot.utils.constants import ACTION, OBS_LANGUAGE_ATTENTION_MASK, OBS_LANGUAGE_TOKENS, OBS_STATE
from torch import Tensor, nn
from transformers import DynamicCache

from robocoach.configs.errors import UserError
from robocoach.policies.lerobot.configuration_pi05_nano import PI05NanoConfig
from robocoach.policies.lerobot.towers import NanoTowers
from robocoach.policies.lerobot.vision import LOOK, MOMENTS, resize_area
from robocoach.policies.strict import load_weights

PRIVILEGED = "privileged"
PRIVILEGED_KNOWN = "privileged_known"
STATISTICS = ("state_low", "state_high", "action_mean", "action_std", "privileged_mean", "privileged_std")
Remembered = tuple[tuple[Tensor, Tensor, None], ...]
"""Keys and values (B, 1, S, d) of each layer, as `DynamicCache` takes them."""


def _dtype(device_type: str) -> torch.dtype:
    """The dtype activations are kept in: the autocast one while autocast is on."""
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else torch.float32


class PI05NanoPytorch(PI05Pytorch):
    """Flow matching over a chunk of normalised actions; `observations` below are [pixels, normalised state]."""

    def __init__(self, config: PI05NanoConfig, rtc_processor=None) -> None:
        nn.Module.__init__(self)  # LeRobot's constructor would build the 2B towers
        self.config: PI05NanoConfig = config
        self.rtc_processor = rtc_processor
        self.gradient_checkpointing_enabled = False
        width = config.expert_width
        self.paligemma_with_expert = NanoTowers(config)
        self.action_in_proj = nn.Linear(config.max_action_dim, width)
        self.action_out_proj = nn.Linear(width, config.max_action_dim)
        self.time_mlp_in = nn.Linear(width, width)
        self.time_mlp_out = nn.Linear(width, width)
        self.state_proj = nn.Linear(config.max_state_dim, config.prefix_width)
        self.unknown_state = nn.Parameter(torch.zeros(config.max_state_dim))
        if config.privileged_dim:
            cells = (config.image_px // 8) ** 2
            seen = config.image_tokens * (MOMENTS + LOOK) + cells * config.layout_channels
            seen += config.max_state_dim * config.auxiliary_uses_state
            self.pose_head = nn.Sequential(
                nn.Linear(seen, config.auxiliary_hidden),
                nn.SiLU(),
                nn.Linear(config.auxiliary_hidden, config.auxiliary_hidden),
                nn.SiLU(),
                nn.Linear(config.auxiliary_hidden, config.privileged_dim),
            )
            self.pose_proj = nn.Linear(config.privileged_dim, config.prefix_width)

    def gradient_checkpointing_enable(self) -> None:
        """Image, prefix and expert are each computed again in the backward pass instead of kept."""
        self.gradient_checkpointing_enabled = True

    def gradient_checkpointing_disable(self) -> None:
        """Keeps every activation for the backward pass."""
        self.gradient_checkpointing_enabled = False

    def embed_observation(self, pixels: Tensor, state: Tensor) -> tuple[Tensor, Tensor | None]:
        """pixels (B, 3, px, px) in [-1, 1], normalised state (B, 8) → tokens (B, K, width), predicted poses (B, P)."""
        seen = self.paligemma_with_expert.embed_image(pixels)
        tokens, poses = [seen.tokens], None
        if self.config.privileged_dim:
            with torch.autocast(pixels.device.type, enabled=False):  # millimetres do not survive bfloat16
                parts = [seen.geometry, seen.features.float(), seen.layout.float()]
                if self.config.auxiliary_uses_state:
                    parts.append(state)
                poses = self.pose_head(torch.cat(parts, dim=1))
            tokens.append(self.pose_proj(poses).unsqueeze(1))
        tokens.append(self.state_proj(state).unsqueeze(1))
        kind = _dtype(pixels.device.type)
        return torch.cat([t.to(kind) for t in tokens], dim=1), poses

    def _with_instruction(self, seen: Tensor, image_mask: Tensor, tokens: Tensor, masks: Tensor):
        words = self.paligemma_with_expert.embed_language_tokens(tokens).to(seen.dtype)
        embs = torch.cat([seen, words], dim=1)
        pad_masks = torch.cat([image_mask[:, None].expand(seen.shape[:2]), masks], dim=1)
        return embs, pad_masks, torch.zeros_like(pad_masks)  # one block: every prefix token sees every other

    def embed_prefix(self, images, img_masks, tokens, masks) -> tuple[Tensor, Tensor, Tensor]:
        """LeRobot's hook: [pixels, state], [image mask (B,)], tokens (B, L), masks (B, L) → embeddings and masks."""
        seen, _ = self.embed_observation(*images)
        return self._with_instruction(seen, img_masks[0], tokens, masks)

    def embed_suffix(self, noisy_actions, timestep):
        """LeRobot's, with the embedded actions in the dtype of the activations."""
        embs, pad_masks, att_masks, condition = super().embed_suffix(noisy_actions, timestep)
        return embs.to(_dtype(embs.device.type)), pad_masks, att_masks, condition

    def encode(self, images, img_masks, tokens, masks) -> tuple[Remembered, Tensor, Tensor | None]:
        """The prefix, once: its keys and values, its padding mask (B, S), predicted poses (B, P) or None."""
        seen, poses = self._apply_checkpoint(self.embed_observation, *images)
        embs, pad_masks, _ = self._with_instruction(seen, img_masks[0], tokens, masks)
        return self._apply_checkpoint(self._remember, embs, pad_masks), pad_masks, poses

    def _remember(self, embs: Tensor, pad_masks: Tensor) -> Remembered:
        """The prefix tower: keys and values (B, 1, S, d) of every layer. Plain tensors, so that it can be repeated."""
        _, cache = self.paligemma_with_expert.forward(
            attention_mask=_additive(pad_masks),
            position_ids=torch.cumsum(pad_masks, dim=1) - 1,  # ty: ignore[invalid-argument-type]
            inputs_embeds=[embs, None],  # ty: ignore[invalid-argument-type]
            use_cache=True,
        )
        return tuple((keys, values, None) for keys, values, _ in cache)

    def _velocity(self, pad_masks: Tensor, remembered: Remembered, x_t: Tensor, time: Tensor, draws: int) -> Tensor:
        """`denoise_step` on the prefix's cache, repeated for each image's draws."""
        repeated = tuple(
            (keys.repeat_interleave(draws, 0), values.repeat_interleave(draws, 0), None)
            for keys, values, _ in remembered
        )
        return self.denoise_step(pad_masks.repeat_interleave(draws, 0), DynamicCache(repeated), x_t, time)

    def forward(  # ty: ignore[incompatible-method-override]
        self, images, img_masks, tokens, masks, actions, noise, time
    ) -> tuple[Tensor, Tensor | None]:
        """Squared velocity errors (B * S, chunk, 8) and predicted poses (B, P) or None.

        actions (B, chunk, 8) normalised; noise (B * S, chunk, 8) and time (B * S,) with S draws for each image, the
        draws of one image next to each other.
        """
        draws = noise.shape[0] // actions.shape[0]
        actions = actions.repeat_interleave(draws, dim=0)
        weight = time[:, None, None]
        x_t = weight * noise + (1 - weight) * actions
        remembered, pad_masks, poses = self.encode(images, img_masks, tokens, masks)
        v_t = self._apply_checkpoint(self._velocity, pad_masks, remembered, x_t, time, draws)
        return F.mse_loss(v_t.float(), noise - actions, reduction="none"), poses


def _additive(pad_masks: Tensor) -> Tensor:
    """bool (B, S) → additive mask (B, 1, 1, S) for queries that see everything that is not padding."""
    return torch.zeros(pad_masks.shape, device=pad_masks.device).masked_fill_(~pad_masks, -1e9)[:, None, None]


class PI05NanoPolicy(PI05Policy):
    """LeRobot policy `pi05_nano`: strict loading, normalisation in the weights file, absolute actions out."""

    config_class = PI05NanoConfig  # ty: ignore[invalid-assignment]
    name = "pi05_nano"  # ty: ignore[invalid-assignment]
    model: PI05NanoPytorch
    state_low: Tensor
    state_high: Tensor
    action_mean: Tensor
    action_std: Tensor
    privileged_mean: Tensor
    privileged_std: Tensor

    def __init__(self, config: PI05NanoConfig, **kwargs: Any) -> None:
        PreTrainedPolicy.__init__(self, config)
        config.validate_features()
        self.config: PI05NanoConfig = config
        self.init_rtc_processor()
        self.model = PI05NanoPytorch(config, rtc_processor=self.rtc_processor)
        dims, chunk, poses = config.max_action_dim, config.chunk_size, config.privileged_dim
        shapes = [(config.max_state_dim,)] * 2 + [(chunk, dims)] * 2 + [(poses,)] * 2
        for name, shape in zip(STATISTICS, shapes, strict=True):
            # NaN until set, so that a model without statistics cannot act or train unnoticed.
            self.register_buffer(name, torch.full(shape, float("nan")))
        step = RelativeActionsProcessorStep(
            enabled=config.use_relative_actions,
            exclude_joints=config.relative_exclude_joints,
            action_names=config.action_feature_names,
        )
        relative = step._build_mask(dims) if config.use_relative_actions else [False] * dims
        self._relative = relative
        self.model.to(config.device)
        self.keep_activations(not config.gradient_checkpointing)
        self.reset()

    @classmethod
    def from_pretrained(
        cls, pretrained_name_or_path: str | Path, *, config: PreTrainedConfig | None = None, **kwargs: Any
    ) -> PI05NanoPolicy:
        """Loads a checkpoint folder strictly. Raises UserError when anything is missing, broken or of another shape.

        LeRobot's own loader would print the problem and go on with random weights.
        """
        folder = Path(pretrained_name_or_path)
        if not (folder / "config.json").is_file():
            raise UserError(f"{folder} is not a checkpoint folder (no config.json); name the folder of one")
        if config is None:
            try:
                config = PreTrainedConfig.from_pretrained(folder)
            except Exception as error:
                raise UserError(f"{folder}/config.json cannot be read ({error}); take a fresh copy") from error
        if not isinstance(config, PI05NanoConfig):
            raise UserError(f"{folder} holds policy type {config.type}, not pi05_nano; load it as {config.type}")
        policy = cls(config)
        load_weights(policy, folder)
        policy.to(config.device)
        return policy.eval()

    def keep_activations(self, keep: bool) -> None:
        """Keeps activations for the backward pass, or computes them again there (gradient checkpointing)."""
        self.model.gradient_checkpointing_enabled = not keep

    def set_statistics(self, **statistics: Tensor) -> None:
        """Sets the normalisation, see STATISTICS: state quantiles (8,), action mean and std (chunk, 8), poses (P,)."""
        for name in STATISTICS:
            getattr(self, name).copy_(statistics[name])

    def normalise_state(self, state: Tensor) -> Tensor:
        """State [rad, m] (B, 8) → [-1, 1] between its quantiles, cut at ±3."""
        scaled = 2 * (state.float() - self.state_low) / (self.state_high - self.state_low) - 1
        return scaled.clamp(-3, 3)

    def normalise_actions(self, actions: Tensor, state: Tensor) -> Tensor:
        """Absolute actions (B, chunk, 8) → relative to the state, unit spread at each chunk step, cut at ±6."""
        relative = to_relative_actions(actions.float(), state.float(), self._relative)
        return ((relative - self.action_mean) / self.action_std).clamp(-6, 6)

    def absolute_actions(self, normalised: Tensor, state: Tensor) -> Tensor:
        """Inverse of `normalise_actions`."""
        return to_absolute_actions(normalised * self.action_std + self.action_mean, state.float(), self._relative)

    def pixels(self, batch: dict[str, Tensor]) -> Tensor:
        """The batch's image as float (B, 3, image_px, image_px) in [-1, 1]."""
        image = batch[next(iter(self.config.image_features))]
        if image.dtype == torch.uint8:
            image = image.permute(0, 3, 1, 2).float() / 255
        return resize_area(image.to(self.state_low.device), self.config.image_px) * 2 - 1

    def _observations(self, batch: dict[str, Tensor]):
        state = self.normalise_state(batch[OBS_STATE].to(self.state_low.device))
        if self.training:
            keep = torch.rand(len(state), 1, device=state.device) >= self.config.state_dropout
            noisy = state + self.config.state_noise * torch.randn_like(state)
            state = torch.where(keep, noisy, self.model.unknown_state)
        present = torch.ones(len(state), dtype=torch.bool, device=state.device)
        return [self.pixels(batch), state], [present], batch[OBS_LANGUAGE_TOKENS], batch[OBS_LANGUAGE_ATTENTION_MASK]

    def forward(self, batch: dict[str, Tensor], reduction: str = "mean") -> tuple[Tensor, dict[str, Any]]:
        """Training loss: flow matching plus the auxiliary target. Returns the loss and its parts (detached tensors)."""
        observations, image_mask, tokens, masks = self._observations(batch)
        actions = self.normalise_actions(batch[ACTION], batch[OBS_STATE])
        count = len(actions) * self.config.flow_samples
        noise = self.model.sample_noise((count, *actions.shape[1:]), actions.device)
        time = self.model.sample_time(count, actions.device)
        errors, poses = self.model(observations, image_mask, tokens, masks, actions, noise, time)
        flow = errors.mean(dim=(1, 2)).unflatten(0, (len(actions), -1)).mean(1)  # (B,)
        parts = {"flow_loss": flow.mean().detach()}
        loss = flow
        if poses is not None and PRIVILEGED in batch:
            target = (batch[PRIVILEGED] - self.privileged_mean) / self.privileged_std
            known = batch[PRIVILEGED_KNOWN].to(target.dtype)
            error = F.smooth_l1_loss(poses, target, reduction="none", beta=0.1).mean(1) * known
            auxiliary = error * (len(known) / known.sum().clamp(min=1))
            parts["auxiliary_loss"] = auxiliary.mean().detach()
            loss = loss + self.config.auxiliary_weight * auxiliary
        return (loss if reduction == "none" else loss.mean()), parts

    @torch.no_grad()
    def predict_action_chunk(  # ty: ignore[incompatible-method-override]
        self, batch: dict[str, Tensor], noise: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        """Absolute actions (B, chunk, 8): joints [rad], gripper width [m].

        With real-time chunking on (`config.rtc_config`), `prev_chunk_left_over` (B, m, 8) is absolute too.
        """
        self.eval()
        observations, image_mask, tokens, masks = self._observations(batch)
        if noise is None:
            shape = (len(tokens), self.config.chunk_size, self.config.max_action_dim)
            noise = self.model.sample_noise(shape, tokens.device)
        noise = noise * self.config.sampling_noise
        if (previous := kwargs.get("prev_chunk_left_over")) is not None:
            steps = previous.shape[1]
            relative = to_relative_actions(previous.float(), batch[OBS_STATE].float(), self._relative)
            kwargs["prev_chunk_left_over"] = (relative - self.action_mean[:steps]) / self.action_std[:steps]
        normalised = self.model.sample_actions(observations, image_mask, tokens, masks, noise=noise, **kwargs)
        return self.absolute_actions(normalised, batch[OBS_STATE].to(normalised.device))

    @torch.no_grad()
    def predict_poses(self, batch: dict[str, Tensor]) -> Tensor:
        """The object poses the policy sees, in the units of `privileged` (B, P). Needs `privileged_dim`."""
        observations, *_ = self._observations(batch)
        _, poses = self.model.embed_observation(*observations)
        assert poses is not None, "privileged_dim is 0"
        return poses * self.privileged_std + self.privileged_mean
