"""How chunks become commands, as on the arm: a new chunk is blended in, and the joints pass a low-pass.

The rule is that of `robots/loop.py` at 10 Hz with a policy that answers at once. The gripper's width is a decision
and not a line: it is never blended.
"""

from __future__ import annotations

import numpy as np

JOINTS = slice(0, 7)


def blended(rows: np.ndarray, rest: np.ndarray, blend_steps: int) -> np.ndarray:
    """A chunk (n, 8) whose first rows come over from what the last chunk says for the same ticks, `rest` (m, 8).

    The weight of the new chunk rises by 1 / (blend_steps + 1) a row; 0 takes it as it is.
    """
    mixed = np.array(rows, dtype=float)
    count = min(blend_steps, len(rows), len(rest))
    weight = (np.arange(count)[:, None] + 1) / (blend_steps + 1)
    mixed[:count, JOINTS] = (1 - weight) * rest[:count, JOINTS] + weight * mixed[:count, JOINTS]
    return mixed


def smoothed(action: np.ndarray, last: np.ndarray, share: float) -> np.ndarray:
    """An action (8,) of whose joints `share` stays at the last command's."""
    mixed = np.array(action, dtype=float)
    mixed[JOINTS] = share * last[JOINTS] + (1 - share) * mixed[JOINTS]
    return mixed


class Execution:
    """The commands of one rollout, from the chunks that its policy answers with."""

    def __init__(self, start: np.ndarray, blend_steps: int = 0, smoothing: float = 0.0) -> None:
        """`start` (8,) is where the arm rests; `blend_steps` and `smoothing` as in `DeployConfig`."""
        self._last = np.asarray(start, dtype=float)
        self._blend_steps, self._smoothing = blend_steps, smoothing
        self._rows: np.ndarray = np.zeros((0, 8))
        self._mixed = self._rows
        self._executed = self._row = 0

    @property
    def looks(self) -> bool:
        """The rows to be executed are over: the policy is to be asked."""
        return self._row >= self._executed

    def take(self, rows: np.ndarray, executed: int) -> None:
        """A new chunk (n, 8), of which `executed` rows are used before the next look."""
        rest = self._rows[self._row :]  # the old chunk as its policy meant it, not as it was blended
        self._rows = np.asarray(rows, dtype=float)
        self._mixed = blended(self._rows, rest, self._blend_steps)
        self._executed, self._row = min(executed, len(rows)), 0

    def command(self) -> np.ndarray:
        """The next command, float32 (8,)."""
        self._last = smoothed(self._mixed[self._row], self._last, self._smoothing)
        self._row += 1
        return self._last.astype(np.float32)
