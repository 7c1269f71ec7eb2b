"""What a small test could have seen: the smallest true difference that exact tests find four times out of five.

Everything is summed over the exact distributions; nothing is simulated. `alpha` is two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from robocoach.agent_loop.statistics import clopper_pearson

ALPHA, POWER = 0.05, 0.8
LARGEST_N = 1_000
"""More pairs than this are not summed over: the table of outcomes grows with n²."""


def rate_power(n: int, rate: float, reference: float, alpha: float = ALPHA) -> float:
    """Chance that the Clopper–Pearson interval of n trials at a true `rate` leaves out the `reference`."""
    seen = [k for k in range(n + 1) if not _inside(reference, *clopper_pearson(k, n, 1 - alpha))]
    return float(sum(_binomial(n, rate)[seen])) if seen else 0.0


def distinguishable_rates(
    n: int, reference: float, alpha: float = ALPHA, power: float = POWER
) -> tuple[float | None, float | None]:
    """The nearest true rates below and above a reference that n trials tell from it with the given power.

    None where not even 0 or 1 would be told from it.
    """
    below = _threshold(lambda rate: rate_power(n, rate, reference, alpha), reference, 0.0, power)
    above = _threshold(lambda rate: rate_power(n, rate, reference, alpha), reference, 1.0, power)
    return below, above


def pair_power(n: int, only_a: float, only_b: float, alpha: float = ALPHA) -> float:
    """Chance that exact McNemar finds a difference on n pairs; `only_a`, `only_b` are the chances of a discordant pair.

    The sum over the trinomial distribution of (pairs only a solves, pairs only b solves).
    """
    if not 0 < n <= LARGEST_N:
        return 0.0
    rejected = _rejected(n, alpha)
    discordant = _binomial(n, min(1.0, only_a + only_b))
    share = only_a / (only_a + only_b) if only_a + only_b > 0 else 0.5
    return float(sum(discordant[m] * (_binomial(m, share) @ rejected[m]) for m in range(n + 1) if discordant[m] > 0))


def detectable_difference(n: int, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """The smallest true difference of two success rates that n pairs find, when every disagreement goes one way.

    That is the best case: disagreements both ways need a larger difference. None when n pairs never suffice.
    """
    return _threshold(lambda difference: pair_power(n, difference, 0.0, alpha), 0.0, 1.0, power)


def detectable_difference_independent(
    n: int, middle: float, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """The same when the two outcomes on a scene are independent, for rates evenly around `middle` (kept in [0, 1]).

    Scenes that are hard for both make outcomes alike, which brings this closer to the best case.
    """

    def found(difference: float) -> float:
        half = difference / 2
        centre = min(max(middle, half), 1 - half)
        better, worse = centre + half, centre - half
        return pair_power(n, better * (1 - worse), worse * (1 - better), alpha)

    return _threshold(found, 0.0, 1.0, power)


def _threshold(chance: Callable[[float], float], start: float, end: float, power: float) -> float | None:
    """The value nearest to `start`, on the way to `end`, from which on the chance reaches `power`; to 0.1 %."""
    if chance(end) < power:
        return None
    near, far = start, end
    while abs(far - near) > 1e-3:
        middle = (near + far) / 2
        if chance(middle) >= power:
            far = middle
        else:
            near = middle
    return far


def _inside(value: float, low: float, high: float) -> bool:
    return low <= value <= high


def _binomial(n: int, p: float) -> np.ndarray:
    """(n + 1,) chances of 0 … n successes."""
    k = np.arange(n + 1)
    if p <= 0 or p >= 1:
        return (k == (0 if p <= 0 else n)).astype(float)
    logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(n + 1)]
    return np.exp(np.array(logs) + k * math.log(p) + (n - k) * math.log1p(-p))


@cache
def _rejected(n: int, alpha: float) -> tuple[np.ndarray, ...]:
    """For m = 0 … n discordant pairs: which counts of "only a" exact McNemar rejects, (m + 1,) of 0 and 1."""
    tables = []
    for m in range(n + 1):
        rejected, tail, few = np.zeros(m + 1), 0, 0
        while few <= m // 2 and 2 * (tail := tail + math.comb(m, few)) <= alpha * 2**m:
            rejected[[few, m - few]] = 1.0  # as few on either side
            few += 1
        tables.append(rejected)
    return tuple(tables)
