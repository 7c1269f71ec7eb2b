"""Two baselines that search without reading evidence: Optuna's TPE, and random search.

Their objective is the share of train-seed rollouts that succeeded, a failed attempt counting as 0. The study is made
anew from the tree for each proposal, so that a resumed campaign goes on as if it had never stopped.

The space: the settings under `train.` that a proposal may change and that act on what is learned, each within its
prior range widened by a factor of two at each end (`priors.WIDER`), further where the tree holds a value beyond. Left
out are what changes the model's shape (chunk_size, capacity: the child starts from its parent's weights), what only
costs time or memory (steps, precision, gradient_checkpointing, checkpoint_every_s), and, since the guard lets twelve
settings change at once, frozen (untrained weights must not be kept) and weight_decay (hardly acts in minutes).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from robocoach.agent_loop.coaches.priors import Scale, priors
from robocoach.agent_loop.proposal import Proposal
from robocoach.agent_loop.tree import View
from robocoach.configs.fields import fields

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

STARTUP_TRIALS = 3
"""Trials before TPE models anything, attempt 0 counted."""
LEFT_OUT = frozenset({"train.chunk_size", "train.weight_decay"})
CHOICES = ("train.schedule",)


@dataclass(frozen=True)
class Dimension:
    """One setting of the space; Optuna sees `coded` values."""

    key: str
    low: float = 0.0
    high: float = 0.0
    scale: Scale = "linear"
    whole: bool = False
    choices: tuple[str, ...] = ()

    def coded(self, value: Any) -> Any:
        """The setting's value as Optuna sees it: 1 - value for the decay of an average."""
        return 1 - value if self.scale == "decay" else value

    def decoded(self, value: Any) -> Any:
        """The inverse, rounded to three significant digits, within the range."""
        if self.choices or self.whole:
            return value
        plain = 1 - float(f"{value:.3g}") if self.scale == "decay" else float(f"{value:.3g}")
        return min(self.high, max(self.low, round(plain, 10)))

    def distribution(self) -> BaseDistribution:
        """What Optuna samples from."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.choices:
            return CategoricalDistribution(self.choices)
        low, high = sorted((self.coded(self.low), self.coded(self.high)))
        log = self.scale != "linear" and low > 0
        return IntDistribution(int(low), int(high), log=log) if self.whole else FloatDistribution(low, high, log=log)


def space(view: View) -> tuple[Dimension, ...]:
    """The dimensions for this tree, in the order of the settings."""
    specs, table = fields(), priors(view.base.train.policy)
    chunk = view.node(view.best).settings["train.chunk_size"]
    found = []
    for key, spec in specs.items():
        if key in CHOICES:
            found.append(Dimension(key, choices=spec.choices))
        if key not in table or key in LEFT_OUT or not key.startswith("train.") or not spec.tunable:
            continue
        prior = table[key]
        low, high = prior.wider()
        seen = [node.settings[key] for node in view.measured]
        low, high = min([low, *seen]), max([high, *seen])
        if key == "train.executed_steps":
            high = min(high, chunk)
        whole = spec.kind is int
        found.append(
            Dimension(key, max(1, int(low)) if whole and prior.scale == "log" else low, high, prior.scale, whole)
        )
    return tuple(found)


class SearchCoach:
    """TPE or random search over the whole space at once, from the best attempt by train-seed rollouts."""

    whole_budget = False

    def __init__(self, name: Literal["tpe", "random"]) -> None:
        self.name: str = name

    def propose(self, view: View) -> Proposal | None:
        """The next sample; the same tree and seed give the same one."""
        return self._sample(view, view.seed)

    def mend(self, view: View, refused: Proposal, reason: str) -> Proposal | None:
        """Another sample, whose seed follows from the refused one."""
        text = json.dumps(dict(refused.change), sort_keys=True)
        return self._sample(view, view.seed ^ zlib.crc32(text.encode()))

    def lesson(self, view: View, number: int) -> Mapping[str, Any] | None:
        """None: it does not know why."""
        return None

    def _sample(self, view: View, seed: int) -> Proposal | None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        dimensions = space(view)
        distributions = {one.key: one.distribution() for one in dimensions}
        study = optuna.create_study(direction="maximize", sampler=self._sampler(seed))
        for node in view.nodes:
            if node.batch is None:
                continue
            params = {one.key: one.coded(_clipped(one, node.settings[one.key])) for one in dimensions}
            value = node.batch.successes / node.batch.n if node.batch.n else 0.0
            study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
        trial = study.ask(distributions)
        parent = view.node(view.best)
        wanted = {one.key: one.decoded(trial.params[one.key]) for one in dimensions}
        change = {key: value for key, value in wanted.items() if value != parent.settings[key]}
        if not change:
            return None
        trials = len(view.measured)
        best = parent.batch
        rate = f"{best.successes}/{best.n}" if best else "nothing"
        return Proposal(
            parent=parent.number,
            coach=self.name,
            rule="random sample" if self.name == "random" or trials < STARTUP_TRIALS else "likely better sample",
            rationale=f"Sample of {self.name} after {trials} measured attempts, from the best ({rate} on train seeds).",
            change=change,
            evidence={"trials": trials, "seed": seed},
            start="base" if parent.state == "failed" else "parent",
        )

    def _sampler(self, seed: int) -> BaseSampler:
        from optuna.samplers import RandomSampler, TPESampler

        if self.name == "random":
            return RandomSampler(seed=seed % 2**32)
        return TPESampler(n_startup_trials=STARTUP_TRIALS, seed=seed % 2**32)


def _clipped(dimension: Dimension, value: Any) -> Any:
    """A value of another branch within the range of this one (steps executed of a longer chunk)."""
    return value if dimension.choices else min(dimension.high, max(dimension.low, value))
