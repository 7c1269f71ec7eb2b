"""Batches for training: which frames, their action chunks, and the random changes of the image.

A batch is a pure function of (seed, process, step), so that a resumed run sees exactly the batches that an
uninterrupted one would. Episodes that are kept apart for validation are never drawn.

    images      uint8 (B, px, px, 3)    as stored
    states      float32 (B, 8)          joints [rad], gripper width [m]
    actions     float32 (B, chunk, 8)   absolute; past the end of an episode its last action is repeated
    privileged  float32 (B, P) or None  with `known` bool (B,): False where the source has none
    source, instruction  int64 (B,)     which source, and which of its instructions
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robocoach.configs.errors import UserError
from robocoach.configs.models import TrainConfig
from robocoach.datasets.frames import FrameSource
from robocoach.datasets.mixture import Mixture

VALIDATION_SHARE = 0.08
"""Share of each source's episodes that is kept apart; a source with fewer than four episodes keeps none apart."""


@dataclass(frozen=True)
class Batch:
    """One batch, see the module's first lines for shapes and units."""

    images: np.ndarray
    states: np.ndarray
    actions: np.ndarray
    privileged: np.ndarray | None
    known: np.ndarray
    source: np.ndarray
    instruction: np.ndarray

    def slice(self, begin: int, end: int) -> Batch:
        """The samples from `begin` to before `end`."""
        return Batch(
            images=self.images[begin:end],
            states=self.states[begin:end],
            actions=self.actions[begin:end],
            privileged=None if self.privileged is None else self.privileged[begin:end],
            known=self.known[begin:end],
            source=self.source[begin:end],
            instruction=self.instruction[begin:end],
        )


def privileged_size(sources: tuple[FrameSource, ...]) -> int:
    """Numbers in `privileged` (0: no source has any). Raises UserError when sources disagree."""
    sizes = {source.name: source.privileged.shape[1] for source in sources if source.privileged is not None}
    if len(set(sizes.values())) > 1:
        raise UserError(f"sources describe different objects ({sizes} numbers a frame); train on one task at a time")
    return next(iter(sizes.values()), 0)


def last_frames(source: FrameSource) -> np.ndarray:
    """int64 (N,): for each frame, the index of the last frame of its episode."""
    ends = np.flatnonzero(np.append(np.diff(source.episode) != 0, True))
    return ends[np.searchsorted(ends, np.arange(len(source.episode)))]


class Batches:
    """Draws training batches from a mixture and holds a fixed set of validation frames."""

    def __init__(self, mixture: Mixture, chunk_size: int, seed: int) -> None:
        self.mixture = mixture
        self.chunk_size = chunk_size
        self.seed = seed
        self.privileged_size = privileged_size(mixture.sources)
        self._last = [last_frames(source) for source in mixture.sources]
        rng = np.random.default_rng([seed, 1])
        self._held = [_held_frames(source, rng) for source in mixture.sources]
        self.validation_episodes = sum(
            len(np.unique(source.episode[held])) for source, held in zip(mixture.sources, self._held, strict=True)
        )

    def training(self, step: int, count: int, process: int = 0) -> tuple[Batch, np.random.Generator]:
        """The batch of one step and the generator to go on with for the image's random changes."""
        rng = np.random.default_rng([self.seed, 2, process, step])
        return self._gather(*self._draw(rng, count, held=False)), rng

    def validation(self, count: int) -> Batch | None:
        """The same `count` kept-apart frames every time, mixed as in training; None when nothing is kept apart."""
        if not self.validation_episodes:
            return None
        return self._gather(*self._draw(np.random.default_rng([self.seed, 3]), count, held=True))

    def chunks(self, source: int, frames: np.ndarray) -> np.ndarray:
        """Absolute action chunks float32 (n, chunk, 8) that begin at the given frames of a source."""
        steps = np.minimum(frames[:, None] + np.arange(self.chunk_size), self._last[source][frames][:, None])
        return self.mixture.sources[source].actions[steps]

    def training_frames(self, source: int, most: int) -> np.ndarray:
        """At most `most` evenly spaced frames of a source's training episodes, int64."""
        frames = np.flatnonzero(~self._held[source])
        return frames[np.linspace(0, len(frames) - 1, min(most, len(frames))).astype(np.int64)]

    def _draw(self, rng: np.random.Generator, count: int, *, held: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draws from the mixture until `count` frames of the wanted kind are found (most are, when training)."""
        sources, frames = np.empty(0, np.int64), np.empty(0, np.int64)
        while len(frames) < count:
            source, frame = self.mixture.sample(rng, count if not held else 16 * count)
            kind = np.empty(len(source), bool)
            for index, mask in enumerate(self._held):
                mine = source == index
                kind[mine] = mask[frame[mine]]
            keep = kind == held
            sources, frames = np.append(sources, source[keep]), np.append(frames, frame[keep])
        return sources[:count], frames[:count]

    def _gather(self, source: np.ndarray, frame: np.ndarray) -> Batch:
        px = self.mixture.sources[0].images.shape[1]
        count, size = len(source), self.privileged_size
        images = np.empty((count, px, px, 3), np.uint8)
        states = np.empty((count, 8), np.float32)
        actions = np.empty((count, self.chunk_size, 8), np.float32)
        instruction = np.empty(count, np.int64)
        privileged = np.zeros((count, size), np.float32) if size else None
        known = np.zeros(count, bool)
        for index, data in enumerate(self.mixture.sources):
            rows = np.flatnonzero(source == index)
            frames = frame[rows]
            images[rows] = data.images[frames]
            states[rows] = data.states[frames]
            actions[rows] = self.chunks(index, frames)
            instruction[rows] = data.instruction[frames]
            if privileged is not None and data.privileged is not None:
                values = data.privileged[frames]
                known[rows] = np.isfinite(values).all(axis=1)
                privileged[rows] = np.nan_to_num(values)
        return Batch(images, states, actions, privileged, known, source, instruction)


def _held_frames(source: FrameSource, rng: np.random.Generator) -> np.ndarray:
    """bool (N,): frames of the episodes that are kept apart for validation."""
    episodes = np.unique(source.episode)
    count = 0 if len(episodes) < 4 else max(1, round(VALIDATION_SHARE * len(episodes)))
    return np.isin(source.episode, rng.choice(episodes, size=count, replace=False))


def shift_images(images: np.ndarray, most_px: int, rng: np.random.Generator) -> np.ndarray:
    """Each uint8 image (B, px, px, 3) moved by up to `most_px` in x and y, its edge pixels repeated."""
    if most_px == 0:
        return images
    px = images.shape[1]
    moves = rng.integers(-most_px, most_px + 1, size=(len(images), 2))
    indices = np.clip(np.arange(px) + moves[..., None], 0, px - 1)  # (B, 2, px)
    shifted = np.empty_like(images)
    for index, (rows, columns) in enumerate(indices):
        shifted[index] = images[index][rows].take(columns, axis=1)
    return shifted


def colour_changes(count: int, strength: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random brightness, contrast and tint as gain and bias, float32 (B, 3) each: changed = image * gain + bias.

    Images are in [0, 1]. Contrast acts around middle grey; `strength` is the half range of each change, 0 for none.
    """
    contrast = 1 + strength * rng.uniform(-1, 1, size=(count, 1))
    tint = 1 + 0.5 * strength * rng.uniform(-1, 1, size=(count, 3))
    brightness = 0.5 * strength * rng.uniform(-1, 1, size=(count, 1))
    bias = np.broadcast_to(0.5 - 0.5 * contrast + brightness, tint.shape)
    return (contrast * tint).astype(np.float32), bias.astype(np.float32)


def images_as_floats(
    images: np.ndarray, cfg: TrainConfig, rng: np.random.Generator | None, device: torch.device
) -> Tensor:
    """uint8 (B, px, px, 3) → float (B, 3, px, px) in [0, 1], channels-last in memory; changed at random given `rng`."""
    if rng is not None:
        images = shift_images(images, cfg.image_shift_px, rng)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).to(device).float()
    if rng is None or not cfg.colour_jitter:
        return pixels.div_(255)
    gain, bias = (torch.from_numpy(part).to(device) for part in colour_changes(len(images), cfg.colour_jitter, rng))
    return torch.addcmul(bias[:, :, None, None], pixels, gain[:, :, None, None] / 255)
