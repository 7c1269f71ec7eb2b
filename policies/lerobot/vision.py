"""The image stem of π0.5-nano: a small convolutional network and a pooling that keeps where things are.

Input float (B, 3, px, px) in [-1, 1], channels-last in memory. Output `Seen`: image tokens (B, K, width) for the
transformer, and the plain numbers (positions, spreads, features) from which the object poses are predicted.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MOMENTS = 5
"""Of each attention map: mean x, mean y, and the second central moments xx, yy, xy (in units of the half side)."""


LOOK = 16
"""Numbers that a token's attended features are reduced to for the object poses."""


class Seen(NamedTuple):
    """What the stem found in an image."""

    tokens: Tensor
    """(B, K, width), for the transformer."""
    geometry: Tensor
    """float32 (B, K * MOMENTS): where each token looked, and how wide."""
    features: Tensor
    """(B, K * LOOK): what it saw there, in short."""
    layout: Tensor
    """(B, HW * layout channels): the whole map, thinned out; a coarse picture of what is where."""


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of a channels-last feature map: one fused pass on a CPU, unlike GroupNorm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Residual(nn.Module):
    """x + conv(relu(conv(norm(x)))), the second convolution starting small."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = ChannelNorm(channels)
        self.conv_1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv_2 = nn.Conv2d(channels, channels, 3, padding=1)
        with torch.no_grad():
            self.conv_2.weight.mul_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv_2(F.relu(self.conv_1(self.norm(x))))


def _one_convolution(channels: int) -> nn.Module:
    return nn.Conv2d(3, channels, 6, stride=4, padding=1)


def _two_convolutions(channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, channels // 2, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(channels // 2, channels, 3, stride=2, padding=1),
    )


STEMS = {"one_convolution": _one_convolution, "two_convolutions": _two_convolutions}
"""Ways from the image to a quarter of its side."""


class ImageStem(nn.Module):
    """Image to tokens. The feature map has an eighth of the image's side (12x12 for 96 px)."""

    def __init__(
        self,
        stem: str,
        channels: tuple[int, int],
        blocks: tuple[int, int],
        tokens: int,
        width: int,
        image_px: int,
        layout_channels: int,
        sharpness: float,
    ) -> None:
        super().__init__()
        if stem not in STEMS:
            raise ValueError(f"stem {stem!r} is unknown; choose from {', '.join(STEMS)}")
        quarter, eighth = channels
        self.convolutions = nn.Sequential(
            STEMS[stem](quarter),
            ChannelNorm(quarter),
            nn.ReLU(),
            *(Residual(quarter) for _ in range(blocks[0])),
            nn.Conv2d(quarter, eighth, 3, stride=2, padding=1),
            *(Residual(eighth) for _ in range(blocks[1])),
            ChannelNorm(eighth),
            nn.ReLU(),
        )
        self.attention = nn.Conv2d(eighth, tokens, 1)
        # Maps that begin nearly flat learn slowly where to look.
        nn.init.normal_(self.attention.weight, std=sharpness / eighth**0.5)
        self.look = nn.Linear(eighth, LOOK)
        self.layout = nn.Conv2d(eighth, layout_channels, 1) if layout_channels else None
        self.from_features = nn.Linear(eighth, width)
        self.from_geometry = nn.Linear(MOMENTS, width)
        self.slot = nn.Parameter(torch.randn(tokens, width) * 0.02)
        side = image_px // 8
        axis = torch.linspace(-1, 1, side)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        grid = torch.stack([x, y, x * x, y * y, x * y], dim=-1).reshape(side * side, MOMENTS)
        self.grid: Tensor
        self.register_buffer("grid", grid, persistent=False)

    def forward(self, pixels: Tensor) -> Seen:
        """pixels (B, 3, px, px) in [-1, 1] → Seen."""
        features = self.convolutions(pixels.contiguous(memory_format=torch.channels_last))
        logits = self.attention(features)
        values = features.permute(0, 2, 3, 1).flatten(1, 2)  # (B, HW, C)
        # Positions carry the millimetres: bfloat16 would round them to a fifth of a pixel.
        with torch.autocast(pixels.device.type, enabled=False):
            weights = logits.flatten(2).float().softmax(-1)  # (B, K, HW)
            mean_x, mean_y, xx, yy, xy = (weights @ self.grid).unbind(-1)
            geometry = torch.stack(
                [mean_x, mean_y, xx - mean_x * mean_x, yy - mean_y * mean_y, xy - mean_x * mean_y], dim=-1
            )
            positions = self.from_geometry(geometry)
        attended = torch.bmm(weights.to(values.dtype), values)  # (B, K, C)
        tokens = self.from_features(attended) + positions + self.slot
        layout = features.new_zeros(len(pixels), 0) if self.layout is None else self.layout(features).flatten(1)
        return Seen(tokens, geometry.flatten(1), self.look(attended).flatten(1), layout)


def area_matrix(source: int, target: int) -> Tensor:
    """(target, source) matrix of area averaging along one axis, with fractional coverage as OpenCV's INTER_AREA has it.

    The rows sum to one. `F.interpolate(mode="area")` rounds the windows to whole pixels instead, which moves edges
    by up to half a pixel when the ratio is not a whole number (224 → 96).
    """
    edges = torch.arange(target + 1, dtype=torch.float64) * source / target
    low, high = edges[:-1, None], edges[1:, None]
    pixel = torch.arange(source, dtype=torch.float64)[None]
    covered = (torch.minimum(high, pixel + 1) - torch.maximum(low, pixel)).clamp(min=0)
    return (covered * target / source).float()


def resize_area(images: Tensor, px: int) -> Tensor:
    """float (B, 3, H, W) → float (B, 3, px, px) by area averaging; returned unchanged when it has that size."""
    height, width = images.shape[-2:]
    if (height, width) == (px, px):
        return images
    rows = area_matrix(height, px).to(images)
    columns = area_matrix(width, px).to(images)
    return rows @ images @ columns.T
