"""What an interrupted training needs to go on exactly where it was: one file, replaced atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from robocoach.configs.errors import UserError
from robocoach.configs.files import sync
from robocoach.policies.files import no_space_is_a_user_error

STATE_FILE = "training_state.pt"


def save_state(folder: Path, state: dict[str, Any]) -> None:
    """Writes the state (tensors, numbers, strings and dicts of them) so that a kill leaves the old or the new one."""
    path, fresh = folder / STATE_FILE, folder / f".{STATE_FILE}.new"
    with no_space_is_a_user_error(path):
        torch.save(state, fresh)
        sync(fresh)
        fresh.replace(path)
        sync(folder)


def load_state(folder: Path) -> dict[str, Any] | None:
    """The saved state, None when there is none. Raises UserError when the file is broken."""
    path = folder / STATE_FILE
    if not path.is_file():
        return None
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(
            f"{path} is corrupt or cut off ({str(error).splitlines()[0]}); delete {folder} and train anew"
        ) from error
