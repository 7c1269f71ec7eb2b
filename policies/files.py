"""Files that are whole or not there: atomic replacement of a file or a folder, and the hashes of a folder's files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import shutil
from collections.abc import Generator
from pathlib import Path

from robocoach.configs.errors import UserError
from robocoach.configs.files import sync

MANIFEST_FILE = "manifest.json"


@contextlib.contextmanager
def no_space_is_a_user_error(path: Path) -> Generator[None]:
    """Turns a full disk or a folder that cannot be written into one line with the mend."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise UserError(f"cannot write {path} ({error.strerror}); make room or permit it, then resume") from error
        raise


@contextlib.contextmanager
def replacing_folder(target: Path) -> Generator[Path]:
    """Yields an empty folder beside `target` that takes its place, with a manifest of hashes, when the block ends well.

    A kill at any moment leaves the old folder or the new one; in the instant between two renames the old one waits
    under `.<name>.old`, from where `recover_folder` brings it back.
    """
    fresh, old = target.with_name(f".{target.name}.new"), target.with_name(f".{target.name}.old")
    with no_space_is_a_user_error(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        recover_folder(target)
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        try:
            yield fresh
            for path in sorted(fresh.rglob("*")):
                sync(path)
            sync(fresh)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        if target.exists():
            target.rename(old)
        fresh.rename(target)
        sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)


def recover_folder(target: Path) -> None:
    """Brings back what a kill between the two renames of `replacing_folder` left, or clears what is done with."""
    old = target.with_name(f".{target.name}.old")
    if old.exists() and not target.exists():
        old.rename(target)
    elif old.exists():
        shutil.rmtree(old, ignore_errors=True)


def write_manifest(folder: Path, about: dict[str, object]) -> None:
    """Writes the SHA-256 of every file of the folder, and `about`, into its manifest."""
    files = {path.relative_to(folder).as_posix(): sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    (folder / MANIFEST_FILE).write_text(json.dumps({**about, "files": files}, indent=2) + "\n")


def sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
