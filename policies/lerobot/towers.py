"""The two transformers of π0.5-nano: LeRobot's PI05 towers with small sizes and CPU-friendly kernels.

`NanoTowers` is LeRobot's `PaliGemmaWithExpertModel`, whose `forward` runs unchanged: PiGemma decoder layers, adaRMS
conditioning, key-value cache. Only its constructor differs (sizes), the image tower (a convolutional stem), and three
kernels that compute the same function with fewer passes over memory: the norm, the attention and the rotary embedding.
"""

from __future__ import annotations

from typing import Any

import torch
from lerobot.policies.pi05.modeling_pi05 import PaliGemmaWithExpertModel
from lerobot.policies.pi_gemma import PiGemmaModel, PiGemmaRMSNorm
from torch import Tensor, nn
from transformers.models.gemma.configuration_gemma import GemmaConfig
from transformers.models.gemma.modeling_gemma import GemmaAttention

from robocoach.policies.lerobot.configuration_pi05_nano import PI05NanoConfig
from robocoach.policies.lerobot.vision import ImageStem, Seen


class _ScaledRms(torch.autograd.Function):
    """x / rms(x) * gain + shift, with x (B, T, D) and gain, shift (B or 1, 1, D), in six passes over memory in all.

    PyTorch's own derivative of it goes over the activations a dozen times, which on a CPU costs as much as a product.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        inverse = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_().to(x.dtype)
        normed = x * inverse
        ctx.save_for_backward(normed, inverse, gain)
        return torch.addcmul(shift, normed, gain)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # ty: ignore[incompatible-method-override]
        normed, inverse, gain = ctx.saved_tensors
        batch, length, dim = normed.shape
        product = grad * normed
        ones = grad.new_ones(1, 1, length).expand(batch, -1, -1)  # sums over T as products, which are fast
        pull = torch.bmm(product, gain.transpose(1, 2).expand(batch, -1, -1)).div_(-dim)
        grad_x = torch.addcmul(grad * gain, normed, pull).mul_(inverse)
        grad_gain, grad_shift = torch.bmm(ones, product), torch.bmm(ones, grad)
        if len(gain) == 1:
            grad_gain, grad_shift = grad_gain.sum(0, keepdim=True), grad_shift.sum(0, keepdim=True)
        return grad_x, grad_gain, grad_shift, None


class FusedNorm(PiGemmaRMSNorm):
    """LeRobot's (adaptive) RMS norm in fewer passes. Same parameters, same result up to rounding."""

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x (B, T, dim), cond (B, dim) → normed x, gate (B, 1, dim) or None."""
        if cond is None or self.dense is None:
            gain = (1.0 + self.weight).to(x.dtype)[None, None]
            return _ScaledRms.apply(x, gain, torch.zeros_like(gain), self.eps), None
        scale, shift, gate = self.dense(cond).unsqueeze(1).to(x.dtype).chunk(3, dim=-1)
        return _ScaledRms.apply(x, 1 + scale, shift, self.eps), gate


def _rotate(x: Tensor, position_embeddings: Any) -> Tensor:
    """Rotary embedding of x (B, T, H, d); LeRobot's cosines and sines (B or 1, T, d) repeat themselves after d/2."""
    half = x.shape[-1] // 2
    cos, sin = (part[:, :, None, :half] for part in position_embeddings)
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


class FoldedAttention(GemmaAttention):
    """Multi-query attention with the heads folded into the query axis: one batched product instead of a repeat.

    Valid because there is one key-value head and the mask is the same for all queries of a sample (prefix tokens see
    the prefix, action tokens see everything), so that it is read from its first query row.
    """

    def forward(  # ty: ignore[incompatible-method-override]
        self,
        hidden_states: Tensor,
        position_embeddings: Any = None,
        attention_mask: Any = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """hidden_states (B, T, width), attention_mask additive (B, 1, T, S) → (B, T, width)."""
        batch, length, _ = hidden_states.shape
        query = _rotate(self.q_proj(hidden_states).view(batch, length, -1, self.head_dim), position_embeddings)
        key, value = _keys_and_values(self, hidden_states, position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        folded = query.view(batch, -1, self.head_dim)  # (B, T * H, d)
        mask = attention_mask[:, 0, :1, : key.shape[2]].to(folded.dtype)  # (B, 1, S)
        scores = torch.baddbmm(mask, folded, key[:, 0].transpose(1, 2), alpha=self.scaling)
        weights = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
        return self.o_proj(torch.bmm(weights, value[:, 0]).view(batch, length, -1)), None


def _keys_and_values(attention: Any, hidden_states: Tensor, position_embeddings: Any) -> tuple[Tensor, Tensor]:
    """Keys and values (B, 1, T, d) of the one key-value head."""
    key = _rotate(attention.k_proj(hidden_states).unsqueeze(2), position_embeddings)
    return key.transpose(1, 2), attention.v_proj(hidden_states).unsqueeze(1)


class KeyValueLayer(nn.Module):
    """Last layer of the prefix tower: only its keys and values are ever read, so it computes nothing else."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.input_layernorm = layer.input_layernorm
        self.self_attn = _Holder(k_proj=layer.self_attn.k_proj, v_proj=layer.self_attn.v_proj)
        self.layer_idx = layer.self_attn.layer_idx

    def forward(
        self, hidden_states: Tensor, position_embeddings: Any = None, past_key_values: Any = None, **kwargs: Any
    ) -> Tensor:
        """Adds this layer's keys and values to the cache and returns its input."""
        normed, _ = self.input_layernorm(hidden_states)
        past_key_values.update(*_keys_and_values(self.self_attn, normed, position_embeddings), self.layer_idx)
        return hidden_states


class _Unread(nn.Module):
    """Stands where LeRobot's code normalises the prefix's final hidden states, which nothing reads."""

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, None]:
        return x, None


def _gemma(config: PI05NanoConfig, width: int, mlp: int, *, adarms: bool) -> PiGemmaModel:
    """A PiGemma decoder with the fast kernels put in."""
    cond_dim = width if adarms else None
    sizes: dict[str, Any] = {
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "num_key_value_heads": 1,
        "head_dim": config.head_dim,
        "vocab_size": 8,
        "pad_token_id": 0,
        "hidden_act": config.hidden_activation,
        "max_position_embeddings": 512,
        "use_adarms": adarms,
        "adarms_cond_dim": cond_dim,
        "attn_implementation": "eager",
    }
    gemma = GemmaConfig(**sizes)
    model = PiGemmaModel(gemma)
    for index, layer in enumerate(model.layers):
        layer.self_attn = FoldedAttention(gemma, index)
        layer.input_layernorm = FusedNorm(width, gemma.rms_norm_eps, cond_dim)
        layer.post_attention_layernorm = FusedNorm(width, gemma.rms_norm_eps, cond_dim)
    model.norm = FusedNorm(width, gemma.rms_norm_eps, cond_dim)
    model.embed_tokens = None  # ty: ignore[invalid-assignment]
    return model


class _Holder(nn.Module):
    """Gives a tower the attribute path that LeRobot's code expects."""

    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


class NanoTowers(PaliGemmaWithExpertModel):
    """Prefix tower (image, pose, state, instruction) and action expert, sharing keys and values layer by layer."""

    def __init__(self, config: PI05NanoConfig) -> None:
        nn.Module.__init__(self)  # LeRobot's constructor would build SigLIP and Gemma 2B
        self.freeze_vision_encoder = False
        self.train_expert_only = False
        self.stem = ImageStem(
            config.stem,
            tuple(config.stem_channels),
            tuple(config.stem_blocks),
            config.image_tokens,
            config.prefix_width,
            config.image_px,
            config.layout_channels,
            config.attention_sharpness,
        )
        language_model = _gemma(config, config.prefix_width, config.prefix_mlp, adarms=False)
        language_model.layers[-1] = KeyValueLayer(language_model.layers[-1])
        language_model.norm = _Unread()  # ty: ignore[invalid-assignment]
        self.paligemma = _Holder(model=_Holder(language_model=language_model))
        self.gemma_expert = _Holder(model=_gemma(config, config.expert_width, config.expert_mlp, adarms=True))
        self.words = nn.Embedding(config.vocabulary_size, config.prefix_width)
        nn.init.normal_(self.words.weight, std=0.1)

    def embed_image(self, image: Tensor) -> Seen:
        """image (B, 3, px, px) in [-1, 1] → what the stem sees in it."""
        return self.stem(image)

    def embed_language_tokens(self, tokens: Tensor) -> Tensor:
        """tokens int64 (B, L) → (B, L, width)."""
        return self.words(tokens)
