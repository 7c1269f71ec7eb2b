"""The rule-based coach's table: from diagnosis to changes, one row a diagnosis, each quoting the number that caused it.

Rows are read from the top; a row gives its changes best first. A child starts from its parent's weights, so most
changes go with a lower peak learning rate: the full one would first undo what was learned. Knows nothing of the tree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from robocoach.agent_loop.coaches.priors import Prior, priors
from robocoach.agent_loop.evidence import Evidence

SOLVED_SHARE = 0.8
"""Train-seed success from which on the policy is only consolidated."""
FALLING_SHARE = 0.3
"""A loss that fell by this share from the third to the last quarter had not finished."""
FLAT_SHARE = 0.02
SPIKE_RATIO = 10.0
WHOLE_STEPS = 1_000
"""A training of fewer steps ended before much was learned: its child goes on at nearly the same learning rate."""
FEW_STEPS = 150
"""A training of fewer steps has hardly begun: smaller batches make more of them in the same time."""
FINEST_EXECUTED_STEPS = 4
CORRECTIVE_PER_FAILURE = 8
CORRECTIVE_MOST = 60
EXTRA = 100
AT_ONCE = 2
"""Settings outside their range, of different groups, that one proposal may mend."""


@dataclass(frozen=True)
class Finding:
    """A diagnosis that holds: what to change, why, and the numbers behind it."""

    change: dict[str, Any]
    rationale: str
    numbers: dict[str, Any]


@dataclass(frozen=True)
class Look:
    """What the table is read on: the parent's evidence, and what else is known of it."""

    evidence: Evidence
    given: Mapping[str, Any]
    """Settings of attempt 0: a value that still stands as given was chosen by nobody's evidence."""
    reason: str = ""
    """Why the parent failed; empty when it did not."""
    blown: int = 0
    """Latest attempts in a row whose loss was not finite."""
    prior: Mapping[str, Prior] = field(default_factory=priors)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The parent's configuration by dotted key."""
        return self.evidence.settings

    @property
    def n(self) -> int:
        """Train-seed rollouts."""
        return len(self.evidence.rollouts)

    @property
    def steps(self) -> int | None:
        """Optimizer steps that the parent's training made; None when unknown."""
        return self.evidence.curve[-1].step if self.evidence.curve else None

    def lowered(self, factor: float) -> dict[str, Any]:
        """A lower peak learning rate; one above its range goes to the typical value, none below a tenth of the range.

        Empty when it is as low as it goes.
        """
        old, prior = self.settings["train.learning_rate"], self.prior["train.learning_rate"]
        new = min(old * factor, prior.typical) if old > prior.high else max(old * factor, prior.low / 10)
        return {"train.learning_rate": _plain(new)} if _plain(new) < old else {}

    def going_on(self) -> tuple[dict[str, Any], str]:
        """The learning rate for going on from the parent's weights, and words for it: half after a whole training."""
        whole = self.steps is None or self.steps >= WHOLE_STEPS
        change = self.lowered(0.5 if whole else 0.8)
        if not change:
            return {}, ""
        old, new = self.settings["train.learning_rate"], change["train.learning_rate"]
        return change, f", and go on at learning rate {new:g} instead of {old:g}"

    def clipped(self, factor: float) -> dict[str, Any]:
        """Tighter clipping, with the same rules as the learning rate."""
        old, prior = self.settings["train.clip_norm"], self.prior["train.clip_norm"]
        new = min(old * factor, prior.typical) if old > prior.high else max(old * factor, prior.low / 4)
        return {"train.clip_norm": _plain(new)} if _plain(new) < old else {}


Rows = Iterator[Finding]


@dataclass(frozen=True)
class Rule:
    """One row of the table: its changes, best first."""

    name: str
    find: Callable[[Look], Rows]


def _plain(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _count(look: Look) -> str:
    if not look.n:
        return "no train-seed rollout was made"
    return f"{look.evidence.successes} of {look.n} train-seed rollouts succeeded"


def _not_finite(look: Look) -> Rows:
    broken = [point.step for point in look.evidence.curve if not math.isfinite(point.loss)]
    failed = look.evidence.stopped == "nan" or bool(NOT_FINITE.search(look.reason))
    if not broken and not failed and look.blown < 2:
        return
    where = f"at step {broken[0]}" if broken else "and stopped the training"
    if not broken and not failed:
        where = f"in the last {look.blown} attempts"
    old = look.settings["train.learning_rate"]
    for factor in (0.3, 0.1):
        change = look.lowered(factor) | look.clipped(factor)
        to = ", ".join(f"{key.removeprefix('train.')} {value:g}" for key, value in change.items())
        yield Finding(
            change,
            f"The loss was not finite {where} at learning rate {old:g}: {to}.",
            {"step": broken[0] if broken else None, "learning_rate": old, "attempts_not_finite": look.blown},
        )


def _out_of_memory(look: Look) -> Rows:
    if not OUT_OF_MEMORY.search(look.reason):
        return
    batch = look.settings["train.batch_size"]
    for smaller in (batch // 2, batch // 4):
        if smaller:
            yield Finding(
                {"train.batch_size": smaller},
                f"The memory did not hold a batch of {batch}: {smaller} instead.",
                {"batch_size": batch},
            )
    if not look.settings["train.gradient_checkpointing"]:
        yield Finding(
            {"train.gradient_checkpointing": True},
            f"The memory did not hold a batch of {batch}: compute activations twice.",
            {"batch_size": batch},
        )


def _spikes(look: Look) -> Rows:
    ratio = look.evidence.spike()
    if ratio is None or ratio < SPIKE_RATIO:
        return
    clip, change = look.settings["train.clip_norm"], look.clipped(0.3)
    tighter = change.get("train.clip_norm", clip)
    yield Finding(
        change | look.lowered(0.5),
        f"The loss jumped to {ratio:.1f} times its median after the first quarter: clip gradients at "
        f"{tighter:g} instead of {clip:g}, and a lower learning rate.",
        {"spike_over_median": round(ratio, 2)},
    )


def _solved(look: Look) -> Rows:
    if not look.n or look.evidence.successes / look.n < SOLVED_SHARE:
        return
    numbers = {"successes": look.evidence.successes, "rollouts": look.n}
    slower = max(look.settings["train.ema"], 0.999 if (look.steps or 0) >= 500 else 0.0)
    yield Finding(
        look.lowered(0.3) | {"train.ema": slower},
        f"{_count(look)}: consolidate with a third of the learning rate and a slower average of the weights.",
        numbers,
    )
    yield Finding(look.lowered(0.3), f"{_count(look)}: consolidate with a third of the learning rate.", numbers)


@dataclass(frozen=True)
class Outlier:
    """A setting that is off, and its mend."""

    change: dict[str, Any]
    words: str
    group: str


def outliers(look: Look) -> list[Outlier]:
    """Settings, still as given, outside their range or that do not fit the steps made, in the order of the priors."""
    found = []
    for key, prior in look.prior.items():
        value = look.settings[key]
        if prior.holds(value) or value != look.given.get(key, value):
            continue
        if key == "generate.variation" and not look.settings["generate.extra"]:
            continue  # it acts on extra demonstrations only
        change = _together(key, prior.typical, look.settings)
        if change:
            words = f"{key} is {value:g}, outside {prior}, so {change[key]:g}"
            found.append(Outlier(change, words, prior.group))
    known = {key for one in found for key in one.change}
    found += [one for one in _against_steps(look) if not known & one.change.keys()]
    order = list(look.prior)
    return sorted(found, key=lambda one: min(order.index(key) for key in one.change))


def _together(key: str, value: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One change and what must go with it: no more steps are executed than predicted."""
    executed, chunk = settings["train.executed_steps"], settings["train.chunk_size"]
    if key == "train.chunk_size" and value < executed:
        return {key: value, "train.executed_steps": value}
    if key == "train.executed_steps" and value > chunk:
        value = chunk
    return {key: value} if value != settings[key] else {}


def _against_steps(look: Look) -> Iterator[Outlier]:
    """Averages, warm-ups and batches that do not fit the number of steps that the time allowed."""
    if not look.steps:
        return
    ema, warmup, batch = (look.settings[f"train.{name}"] for name in ("ema", "warmup_steps", "batch_size"))
    over = 1 / (1 - ema)
    if over > 2 * look.steps:
        new = max(look.prior["train.ema"].low, _plain(1 - 10 / look.steps))
        if new < ema:
            words = (
                f"the weights are averaged over {over:.0f} steps, of which only {look.steps} were made, so ema {new}"
            )
            yield Outlier({"train.ema": new}, words, "average")
    if warmup > 0.3 * look.steps:
        new = look.steps // 10
        words = f"warm-up took {warmup} of the {look.steps} steps made, so {new}"
        yield Outlier({"train.warmup_steps": new}, words, "optimiser")
    smallest = int(look.prior["train.batch_size"].low)
    if look.steps < FEW_STEPS and batch >= 2 * smallest:
        new = max(smallest, batch // 4 if batch > 4 * look.prior["train.batch_size"].typical else batch // 2)
        words = f"only {look.steps} steps were made with batches of {batch}, so {new}"
        yield Outlier({"train.batch_size": new}, words, "optimiser")


def _outside(look: Look) -> Rows:
    """Two at a time while several independent ones are off, then one by one."""
    found = outliers(look)
    pairs = [(a, b) for a, b in combinations(found, AT_ONCE) if a.group != b.group]
    for chosen in [*pairs, *((one,) for one in found)]:
        yield Finding(
            {key: value for one in chosen for key, value in one.change.items()},
            f"{'; '.join(one.words for one in chosen)}; {_count(look)}.",
            {"successes": look.evidence.successes, "rollouts": look.n, "steps": look.steps}
            | {key: look.settings[key] for one in chosen for key in one.change},
        )


def _ended_by_steps(look: Look) -> Rows:
    drop, steps = look.evidence.late_drop(), look.settings["train.steps"]
    if look.evidence.stopped != "steps" or drop is None or drop < FLAT_SHARE:
        return
    yield Finding(
        {"train.steps": min(100_000_000, 10 * steps)},
        f"The loss still fell by {_share(drop)} when the limit of {steps} steps ended the training: let the clock end "
        "it.",
        {"late_drop": round(drop, 3), "steps": steps},
    )


def _still_falling(look: Look) -> Rows:
    drop = look.evidence.late_drop()
    if drop is None or drop < FALLING_SHARE or look.evidence.stopped == "steps":
        return
    rate, words = look.going_on()
    yield Finding(
        rate,
        f"The loss still fell by {_share(drop)} from the third to the last quarter when the time was up after "
        f"{look.steps} steps: keep these weights{words}.",
        {"late_drop": round(drop, 3), "steps": look.steps},
    )


def _stuck_at(look: Look, names: tuple[str, ...]) -> int:
    """Failures in these stages when they are the most frequent kind, else 0."""
    stuck = look.evidence.stuck()
    here = sum(count for name, count in stuck.items() if name in names)
    elsewhere = sum(count for name, count in stuck.items() if name not in names)
    return here if here > elsewhere else 0


def _not_lifted(look: Look) -> Rows:
    count = _stuck_at(look, ("grasp", "lift"))
    if not count:
        return
    numbers: dict[str, Any] = {"reached_not_lifted": count, "rollouts": look.n}
    cause = f"{count} of {look.n} train-seed rollouts reached the object and did not lift it"
    cause += _miss(look, "grasp_side_m", "the hand closed {} mm beside it in the median", numbers)
    if look.settings["train.executed_steps"] > FINEST_EXECUTED_STEPS:
        yield _finer(look, cause, numbers)
    yield _corrective(look, cause, count, numbers)
    yield from _oversampled(look, ("grasp", "lift"), cause, numbers)


def _not_placed(look: Look) -> Rows:
    count = _stuck_at(look, ("place", "release"))
    if not count:
        return
    numbers: dict[str, Any] = {"lifted_not_placed": count, "rollouts": look.n}
    cause = f"{count} of {look.n} train-seed rollouts lifted the object and did not leave it in place"
    cause += _miss(look, "end_side_m", "it ended {} mm beside its goal in the median", numbers)
    held = sum(not one.success and one.measures.get("goal_reached", 0) > 0 for one in look.evidence.rollouts)
    if 2 * held > count:
        cause += f" ({held} had it there for a moment)"
        numbers["goal_reached"] = held
        yield from _oversampled(look, ("release",), cause, numbers)
    yield _corrective(look, cause, count, numbers)
    yield from _oversampled(look, ("place", "release"), cause, numbers)
    if look.settings["train.executed_steps"] > FINEST_EXECUTED_STEPS:
        yield _finer(look, cause, numbers)


def _miss(look: Look, measure: str, words: str, numbers: dict[str, Any]) -> str:
    """How far failures missed, in words, where the task's judge measured it; also put into the numbers."""
    median_m = look.evidence.median_of_failures(measure)
    if median_m is None:
        return ""
    numbers[f"median_{measure}"] = round(median_m, 4)
    return f" ({words.format(round(1000 * median_m))})"


def _finer(look: Look, cause: str, numbers: dict[str, Any]) -> Finding:
    executed = look.settings["train.executed_steps"]
    finer = max(FINEST_EXECUTED_STEPS, executed // 2)
    rate, words = look.going_on()
    return Finding(
        {"train.executed_steps": finer} | rate,
        f"{cause}: look again after {finer} steps instead of {executed}{words}.",
        numbers,
    )


def _corrective(look: Look, cause: str, failures: int, numbers: dict[str, Any]) -> Finding:
    more = min(CORRECTIVE_MOST, CORRECTIVE_PER_FAILURE * failures)
    total = min(1_000, look.settings["generate.corrective"] + more)
    rate, words = look.going_on()
    return Finding(
        {"generate.corrective": total} | rate,
        f"{cause}: {more} demonstrations that take over where this policy's driving leads{words}.",
        numbers,
    )


def _oversampled(look: Look, wanted: Sequence[str], cause: str, numbers: dict[str, Any]) -> Rows:
    stages = [name for name in wanted if name in look.evidence.stages]
    if stages and not look.settings["data.oversample"]:
        rate, words = look.going_on()
        yield Finding(
            {"data.oversample": ",".join(f"{name}=2" for name in stages)} | rate,
            f"{cause}: draw {' and '.join(stages)} twice as often{words}.",
            numbers,
        )


def _extra(look: Look, cause: str, numbers: dict[str, Any]) -> Rows:
    extra = look.settings["generate.extra"]
    if extra + EXTRA <= 2_000:
        yield Finding(
            {"generate.extra": extra + EXTRA},
            f"{cause}: {EXTRA} more demonstrations on scenes of their own.",
            numbers,
        )


def _not_reached(look: Look) -> Rows:
    count = _stuck_at(look, look.evidence.stages[:1])
    if not count:
        return
    numbers = {"not_reached": count, "rollouts": look.n}
    cause = f"{count} of {look.n} train-seed rollouts never reached the object, so it was not seen well"
    if "train.auxiliary_weight" in look.prior:
        weight = look.settings["train.auxiliary_weight"]
        more = min(max(weight, look.prior["train.auxiliary_weight"].high), 2 * weight) or 1.0
        if more > weight:
            rate, words = look.going_on()
            yield Finding(
                {"train.auxiliary_weight": more} | rate,
                f"{cause}: weight {more:g} instead of {weight:g} on the object-pose targets{words}.",
                numbers,
            )
    yield from _extra(look, cause, numbers)
    shift = look.settings["train.image_shift_px"]
    if shift:
        yield Finding(
            {"train.image_shift_px": shift // 2},
            f"{cause}: shift the image by {shift // 2} instead of {shift} px, which moves what the label refers to.",
            numbers,
        )


def _flat(look: Look) -> Rows:
    drop = look.evidence.late_drop()
    if drop is None or drop > FLAT_SHARE:
        return
    numbers = {"late_drop": round(drop, 3)}
    cause = f"The loss changed by {_share(drop)} from the third to the last quarter, a plateau"
    yield Finding(
        look.lowered(0.3) | look.clipped(0.5), f"{cause}: a third of the learning rate and tighter clipping.", numbers
    )
    for change, words in _less_augmentation(look):
        yield Finding(change, f"{cause}: {words}.", numbers)


def _less_augmentation(look: Look) -> Iterator[tuple[dict[str, Any], str]]:
    for key, name in (("train.image_shift_px", "image shift"), ("train.colour_jitter", "colour jitter")):
        value = look.settings[key]
        if value:
            less = value // 2 if isinstance(value, int) else _plain(value / 2)
            yield {key: less}, f"{name} {less:g} instead of {value:g}"


def _otherwise(look: Look) -> Rows:
    """What is worth a try when nothing stands out, in the order of what it costs."""
    numbers = {"successes": look.evidence.successes, "rollouts": look.n}
    cause = f"{_count(look)} and no one fault stands out"
    rate, words = look.going_on()
    yield Finding(rate, f"{cause}: keep these weights{words}.", numbers)
    failures = look.n - look.evidence.successes
    if failures:
        yield _corrective(look, cause, failures, numbers)
    yield from _extra(look, cause, numbers)
    for change, words in _less_augmentation(look):
        yield Finding(change, f"{cause}: {words}.", numbers)
    old = look.settings["train.learning_rate"]
    if 2 * old <= look.prior["train.learning_rate"].high:
        higher = _plain(2 * old)
        yield Finding(
            {"train.learning_rate": higher}, f"{cause}: learning rate {higher:g} instead of {old:g}.", numbers
        )
    samples = look.settings["train.flow_samples"]
    if "train.flow_samples" in look.prior and samples > 1:
        yield Finding(
            {"train.flow_samples": samples // 2},
            f"{cause}: {samples // 2} instead of {samples} noise draws an image, for more images in the same time.",
            numbers,
        )
    batch = look.settings["train.batch_size"]
    if 2 * batch <= look.prior["train.batch_size"].high:
        yield Finding({"train.batch_size": 2 * batch}, f"{cause}: batches of {2 * batch} instead of {batch}.", numbers)
    yield Finding(look.lowered(0.2), f"{cause}: a fifth of the learning rate.", numbers)


RULES = (
    Rule("loss not finite", _not_finite),
    Rule("out of memory", _out_of_memory),
    Rule("loss spikes", _spikes),
    Rule("nearly solved", _solved),
    Rule("outside the usual range", _outside),
    Rule("ended by its step limit", _ended_by_steps),
    Rule("loss still falling", _still_falling),
    Rule("reached, not lifted", _not_lifted),
    Rule("lifted, not placed", _not_placed),
    Rule("not reached", _not_reached),
    Rule("loss on a plateau", _flat),
    Rule("no one fault", _otherwise),
)
MENDS = frozenset({"loss not finite", "out of memory", "loss spikes", "nearly solved", "outside the usual range"})
"""Rows whose change may be made twice in a row on a branch."""
NOT_FINITE = re.compile(r"not finite|\bnan\b|diverge", re.IGNORECASE)
OUT_OF_MEMORY = re.compile(r"out of memory|\boom\b|cannot allocate memory", re.IGNORECASE)


def changes(look: Look) -> Iterator[tuple[str, Finding]]:
    """Every change that the table offers on this evidence, best first, with the rule's name; none that does nothing."""
    for rule in RULES:
        for finding in rule.find(look):
            change = {key: value for key, value in finding.change.items() if look.settings[key] != value}
            if change:
                yield rule.name, replace(finding, change=change)
