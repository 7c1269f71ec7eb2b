"""Exact statistics of counted rollouts: Clopper–Pearson intervals and the paired McNemar test.

Small counts are the rule here (10, 20, 50 rollouts), so nothing is approximated by a normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact two-sided interval of a success rate; (0, 1) when nothing was counted.

    Raises ValueError when the counts are impossible.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} rollouts")
    if n == 0:
        return 0.0, 1.0
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, 1 - tail))
    return low, high


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Two-sided p-value of the exact McNemar test: `only_a` scenes only a solved, `only_b` only b; 1 when none."""
    discordant = only_a + only_b
    if discordant == 0:
        return 1.0
    tail = sum(math.comb(discordant, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / 2**discordant)


@dataclass(frozen=True)
class Rate:
    """A success rate that never stands without its n and its interval."""

    successes: int
    n: int

    @property
    def value(self) -> float:
        """Share of successes in [0, 1]; 0 when nothing was counted."""
        return self.successes / self.n if self.n else 0.0

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % Clopper–Pearson interval."""
        return clopper_pearson(self.successes, self.n)

    def __str__(self) -> str:
        low, high = self.ci95
        return f"{self.successes}/{self.n} = {100 * self.value:.0f} % (95 % CI {100 * low:.0f}–{100 * high:.0f} %)"


@dataclass(frozen=True)
class Paired:
    """Two policies on the same seeds."""

    both: int
    only_a: int
    only_b: int
    neither: int

    @property
    def p_value(self) -> float:
        """Exact McNemar, two-sided."""
        return mcnemar_exact(self.only_a, self.only_b)


def pair(a: Sequence[bool], b: Sequence[bool]) -> Paired:
    """Counts agreements of two policies' outcomes on the same seeds in the same order."""
    pairs = list(zip(a, b, strict=True))
    return Paired(
        both=sum(x and y for x, y in pairs),
        only_a=sum(x and not y for x, y in pairs),
        only_b=sum(y and not x for x, y in pairs),
        neither=sum(not x and not y for x, y in pairs),
    )
