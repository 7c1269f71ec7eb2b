"""Strict reading of `model.safetensors`: what is missing, broken or of another shape is an error, never a warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from robocoach.configs.errors import UserError

WEIGHTS_FILE = "model.safetensors"


def load_weights(
    model: nn.Module, folder: Path, rename: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None
) -> None:
    """Loads every parameter and saved buffer of `model` from `folder`/model.safetensors.

    `rename` maps the names of the file to the model's. A name may be absent only when its tensor is one with another
    that is present (tied weights are saved once). Raises UserError when the file is missing or cut off, when names
    or shapes do not match, and when a value is not finite.
    """
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise UserError(f"{folder} has no {WEIGHTS_FILE}; the checkpoint is incomplete: copy the whole folder again")
    try:
        state = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is corrupt or cut off ({error}); copy it again or use another checkpoint") from error
    if rename is not None:
        state = rename(state)
    wanted = model.state_dict()
    present = {tensor.data_ptr() for name, tensor in wanted.items() if name in state and tensor.numel()}
    missing = sorted(name for name in wanted.keys() - state.keys() if wanted[name].data_ptr() not in present)
    foreign = sorted(state.keys() - wanted.keys())
    if missing or foreign:
        raise UserError(
            f"{path} does not fit its config.json: {len(missing)} weights missing ({', '.join(missing[:3])}), "
            f"{len(foreign)} unknown ({', '.join(foreign[:3])}); it belongs to another model"
        )
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape:
            raise UserError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, config.json asks for {tuple(wanted[name].shape)}; "
                "it belongs to another model"
            )
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise UserError(f"{path}: {name} holds values that are not finite; the training failed, use another one")
    model.load_state_dict(state, strict=False)
