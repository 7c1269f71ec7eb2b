"""Ending an attempt's validation early when it cannot become the best, with a stated error rate.

Two rules, both fixed before the first rollout:

- *curtailment*: the successes that are still possible do not exceed the best so far (a tie keeps the earlier
  attempt). It is never wrong.
- *lower tail*: so few successes after k rollouts that the attempt would hardly have become the best. The chance to end
  an attempt that would have become it is summed exactly over all looks (dynamic programming over the paths that were
  not ended before). It stays within the error for every true rate from the best's measured one upwards, not for that
  one alone: a slightly better attempt is ended less often, but more often in error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

RATES = 128
"""True rates between the best's and 1 for which the error is held, spaced evenly in the arcsine of their root."""
SLACK = 1e-3
"""Share of the error that is kept back for the rates between those."""


@dataclass(frozen=True)
class Boundary:
    """Stops after k rollouts when there are at most `bounds[k]` successes (−1: never).

    With 20 rollouts against a best of 15 and an error of 2 %, an attempt of true rate 20 % runs 4.0 of the 20 in the
    mean, 6.2 by curtailment alone; against a best of 5 it runs 15.7, and 18.3. An error of 0 leaves curtailment.
    """

    n: int
    best: int
    """Successes of the best attempt so far on the same n scenes."""
    error: float
    bounds: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError on counts or an error that cannot be."""
        if not 0 <= self.best <= self.n or not 0 <= self.error < 1:
            raise ValueError(f"no boundary for {self.n} rollouts, best {self.best}, error {self.error}")
        object.__setattr__(self, "bounds", _bounds(self.n, self.best, self.error))

    def stops(self, done: int, successes: int) -> bool:
        """Whether the validation ends after `done` rollouts; the full n never end early."""
        return 0 < done < self.n and successes <= self.bounds[done]

    def stopped_share(self, rate: float) -> float:
        """Exact chance that an attempt of this true rate is ended early though it would have become the best."""
        rates, wrong = np.array([rate]), 0.0
        alive = _begin(rates, self.n)
        for done in range(1, self.n):
            alive = _step(alive, rates)
            for successes in range(self.bounds[done] + 1):
                chance = alive[0, successes]
                wrong += float(chance * _exceeds(self.best - successes, self.n - done, rates)[0]) if chance else 0.0
            alive[:, : self.bounds[done] + 1] = 0
        return wrong

    def expected_rollouts(self, rate: float) -> float:
        """Mean number of rollouts of an attempt of this true rate."""
        rates, mean = np.array([rate]), 0.0
        alive = _begin(rates, self.n)
        for done in range(1, self.n + 1):
            alive = _step(alive, rates)
            ended = self.n + 1 if done == self.n else self.bounds[done] + 1
            mean += done * float(alive[0, :ended].sum())
            alive[:, :ended] = 0
        return mean


def _bounds(n: int, best: int, error: float) -> tuple[int, ...]:
    measured = best / n if n else 0.0
    lowest = np.arcsin(np.sqrt(measured))
    rates = np.sin(np.linspace(lowest, np.pi / 2, RATES)) ** 2
    alive, spent = _begin(rates, n), np.zeros(RATES)
    bounds = [-1]
    for done in range(1, n + 1):
        alive = _step(alive, rates)
        # Not more than the best can be reached: certain. Nor does a bound ever fall: no path is left below it.
        bound = max(bounds[-1], best - (n - done))
        if error > 0 and done < n:
            # What may be spent up to this look grows evenly, and what was not used before stays.
            allowed = error * (1 - SLACK) * done / n
            while (successes := bound + 1) < measured * done:
                lost = alive[:, successes] * _exceeds(best - successes, n - done, rates)
                if np.any(spent + lost > allowed):
                    break
                spent += lost
                bound = successes
        bounds.append(bound)
        alive[:, : bound + 1] = 0
    return tuple(bounds)


def _begin(rates: np.ndarray, n: int) -> np.ndarray:
    """Chances (rates, successes) before the first rollout."""
    alive = np.zeros((len(rates), n + 2))
    alive[:, 0] = 1
    return alive


def _step(alive: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """One more rollout."""
    after = alive * (1 - rates)[:, None]
    after[:, 1:] += alive[:, :-1] * rates[:, None]
    return after


def _exceeds(more_than: int, n: int, rates: np.ndarray) -> np.ndarray:
    """Chance of more than `more_than` successes in n rollouts, for each rate."""
    from scipy.special import bdtrc

    return np.asarray(bdtrc(min(more_than, n), n, rates))
