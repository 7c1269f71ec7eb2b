"""Files that are whole or not there, whenever the power goes: records of rollouts, sessions and arms."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, content: str | bytes) -> None:
    """Writes a file beside its place, forces it to the disk and renames it; then forces the folder's list of names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Forces the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
