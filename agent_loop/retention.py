"""Keeps a campaign's folder below its cap by removing what can be spared, in a stated order.

    1. training states and preflight's weights of ended attempts (a child begins with a fresh optimizer)
    2. `best` checkpoints of spare attempts (the one at the deadline, `last`, is what was judged)
    3. side films of spare attempts, then wrist films that stand for no group of failures in their report
    4. `last` checkpoints of spare attempts that nothing was grown from, the worst by train seeds first
    5. `last` checkpoints of the other spare attempts, the worst first
    6. the wrist films that are left of spare attempts, the worst first

Spare is an ended attempt that is not attempt 0, not named as needed (best, incumbent), and not the parent of one that
is open. Database, JSON, text, logs, reports, contact sheets, traces and demonstrations are never removed. Each removal
is a rename followed by a delete, and leftovers of a kill go first, so nothing is ever half there under its own name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from robocoach.agent_loop import revert
from robocoach.agent_loop.evidence import read_rollouts
from robocoach.agent_loop.report.signatures import representatives
from robocoach.agent_loop.tree import ENDED, Node
from robocoach.configs.errors import UserError

DOOMED = ".removed"
SIDE, WRIST = "-side.mp4", "-wrist.mp4"


class DiskFull(UserError):
    """The folder is above its cap and nothing more may go. `removed` is what went before that was clear."""

    def __init__(self, message: str, removed: Sequence[str]) -> None:
        super().__init__(message)
        self.removed = tuple(removed)


@dataclass(frozen=True)
class Plan:
    """What would be removed."""

    size: int
    """Bytes of the folder now."""
    removals: tuple[tuple[Path, int], ...]
    """What goes, in this order, with its bytes."""

    @property
    def left(self) -> int:
        """Bytes of the folder afterwards."""
        return self.size - sum(freed for _, freed in self.removals)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; links are not followed, what vanishes meanwhile is nothing."""
    total = 0
    for at, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not Path(at, name).is_symlink()]
        total += sum(_bytes(Path(at, name)) for name in names)
    return total + (_bytes(path) if path.is_file() else 0)


def spare(nodes: Sequence[Node], needed: frozenset[int]) -> list[Node]:
    """Ended attempts that nothing needs any more, the worst by train seeds first, the latest first among equals."""
    kept = needed | {0} | {node.parent for node in nodes if node.state not in ENDED}
    found = [node for node in nodes if node.state in ENDED and node.number not in kept]
    return sorted(found, key=lambda node: (revert.order(node.batch) if node.batch else (), -node.number))


def candidates(nodes: Sequence[Node], needed: frozenset[int], stages: Sequence[str] = ()) -> Iterator[Path]:
    """What may go, whether it is there or not, first to go first; see the module."""
    worst = spare(nodes, needed)
    parents = {node.parent for node in nodes}
    for node in nodes:
        if node.state in ENDED:
            yield node.folder / "training_state.pt"
            yield node.folder / "preflight" / "training_state.pt"
            yield node.folder / "preflight" / "checkpoints"
    for node in worst:
        yield node.folder / "checkpoints" / "best"
    for node in worst:
        yield from _films(node, SIDE)
    shown = {node.number: _shown(node, stages) for node in worst}
    for node in worst:
        yield from (film for film in _films(node, WRIST) if film.name not in shown[node.number])
    for node in sorted(worst, key=lambda node: node.number in parents):  # stable: the worst stay first
        yield node.folder / "checkpoints" / "last"
    for node in worst:
        yield from _films(node, WRIST)


def plan(
    folder: Path, cap_bytes: float, nodes: Sequence[Node], needed: frozenset[int], stages: Sequence[str] = ()
) -> Plan:
    """What has to go until the folder is at most as large as its cap; nothing is touched."""
    size = size_of(folder)
    excess, removals = size - cap_bytes, {}
    for path in candidates(nodes, needed, stages):
        if excess <= 0:
            break
        if path in removals or not path.exists() or _through_link(path, folder):
            continue
        removals[path] = size_of(path)
        excess -= removals[path]
    return Plan(size, tuple(removals.items()))


def keep_below(
    folder: Path, cap_bytes: float, nodes: Sequence[Node], needed: frozenset[int], stages: Sequence[str] = ()
) -> list[str]:
    """Removes until the folder is at most as large as its cap; returns what was removed, relative to the folder.

    `stages` are the task's, for telling which films stand for a group of failures. Raises DiskFull when nothing more
    may go and the folder is still too large.
    """
    for left in sorted((folder / "attempts").rglob(f"*{DOOMED}")):
        _delete(left)
    planned, removed = plan(folder, cap_bytes, nodes, needed, stages), []
    for path, _ in planned.removals:
        doomed = path.with_name(path.name + DOOMED)
        path.rename(doomed)
        _delete(doomed)
        removed.append(str(path.relative_to(folder)))
    if planned.left > cap_bytes:
        raise DiskFull(
            f"{folder} holds {planned.left / 1e9:.2f} GB, more than its cap of {cap_bytes / 1e9:g} GB, and nothing "
            "more may be removed; raise campaign.disk_gb, or move the folder's films elsewhere",
            removed,
        )
    return removed


def _films(node: Node, kind: str) -> list[Path]:
    return sorted((node.folder / "rollouts" / "train").glob(f"*{kind}"))


def _shown(node: Node, stages: Sequence[str]) -> set[str]:
    """Names of the wrist films that the attempt's report stands on; all of them when its records cannot be read."""
    try:
        rollouts = read_rollouts(node.folder / "rollouts" / "train")
    except UserError:
        return {film.name for film in _films(node, WRIST)}
    return {f"{one.seed}{WRIST}" for one in representatives(rollouts, stages)}


def _through_link(path: Path, folder: Path) -> bool:
    """It is a link, or lies behind one: not the campaign's own, so neither counted nor removed."""
    inside = path.relative_to(folder)
    return any((folder / part).is_symlink() for part in (inside, *inside.parents[:-1]))


def _bytes(path: Path) -> int:
    try:
        return 0 if path.is_symlink() else path.stat().st_size
    except FileNotFoundError:
        return 0


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
