"""The settings as a flat list: dotted key, type, default, unit, bounds, help, and whether a proposal may change it.

The command line's options, one-line errors and the coach's guard are all made from this list, so that
`configs/models.py` stays the only place where a setting is described.
"""

from __future__ import annotations

import difflib
import functools
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import annotated_types
from pydantic.fields import FieldInfo

from robocoach.configs.models import Section, Sim2RealConfig


@dataclass(frozen=True)
class FieldSpec:
    """One setting, found by its dotted key (`train.learning_rate`)."""

    key: str
    kind: type
    """`int`, `float`, `bool` or `str`."""
    default: Any
    help: str
    unit: str
    tunable: bool
    choices: tuple[str, ...] = ()
    low: float | None = None
    low_open: bool = False
    high: float | None = None
    high_open: bool = False
    multiple_of: int | None = None

    @property
    def bounds(self) -> str:
        """What is valid, in words: `one of twin, fr3, panda`, `a number above 0 and at most 1`."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "text"
        noun = "a whole number" if self.kind is int else "a number"
        parts = []
        if self.low is not None:
            parts.append(f"{'above' if self.low_open else 'at least'} {_plain(self.low)}")
        if self.high is not None:
            parts.append(f"{'below' if self.high_open else 'at most'} {_plain(self.high)}")
        if self.multiple_of is not None:
            noun = f"a multiple of {self.multiple_of}"
        return f"{noun} {' and '.join(parts)}" if parts else noun

    def holds(self, value: Any) -> bool:
        """Whether a value of the right type lies inside the bounds."""
        if self.choices:
            return value in self.choices
        if self.kind in (bool, str):
            return type(value) is self.kind
        if isinstance(value, bool) or not isinstance(value, int if self.kind is int else (int, float)):
            return False
        if self.multiple_of is not None and value % self.multiple_of:
            return False
        above = self.low is None or (value > self.low if self.low_open else value >= self.low)
        below = self.high is None or (value < self.high if self.high_open else value <= self.high)
        return above and below


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def _spec(key: str, field: FieldInfo) -> FieldSpec:
    annotation: Any = field.annotation
    choices: tuple[str, ...] = ()
    if typing.get_origin(annotation) is Literal:
        choices = typing.get_args(annotation)
        annotation = str
    limits: dict[str, Any] = {}
    for bound in field.metadata:
        if isinstance(bound, annotated_types.Ge):
            limits.update(low=bound.ge)
        elif isinstance(bound, annotated_types.Gt):
            limits.update(low=bound.gt, low_open=True)
        elif isinstance(bound, annotated_types.Le):
            limits.update(high=bound.le)
        elif isinstance(bound, annotated_types.Lt):
            limits.update(high=bound.lt, high_open=True)
        elif isinstance(bound, annotated_types.MultipleOf):
            limits.update(multiple_of=bound.multiple_of)
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return FieldSpec(
        key=key,
        kind=annotation,
        default=field.default,
        help=field.description or "",
        unit=str(extra.get("unit", "")),
        tunable=bool(extra.get("tunable", False)),
        choices=choices,
        **limits,
    )


def _walk(model: type[Section], prefix: str) -> Iterator[FieldSpec]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _walk(field.annotation, f"{prefix}{name}.")
        else:
            yield _spec(prefix + name, field)


def fields(model: type[Section] = Sim2RealConfig) -> dict[str, FieldSpec]:
    """Every setting of a model by its dotted key, in the order of the model."""
    return dict(_specs(model))


@functools.cache
def _specs(model: type[Section]) -> dict[str, FieldSpec]:
    return {spec.key: spec for spec in _walk(model, "")}


def nearest(word: str, valid: typing.Iterable[str]) -> str:
    """The valid word most like this one; a word without a section is compared with the last parts of the keys too."""
    valid = list(valid)
    hit = difflib.get_close_matches(word, valid, n=1, cutoff=0.6)
    if hit:
        return hit[0]
    tails = {name.rsplit(".", 1)[-1]: name for name in reversed(valid)}
    tail = difflib.get_close_matches(word.rsplit(".", 1)[-1], tails, n=1, cutoff=0.6)
    return tails[tail[0]] if tail else difflib.get_close_matches(word, valid, n=1, cutoff=0.0)[0]
