"""What a check on a dataset says: a finding, its severity, and what that kind of fault means and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Most serious first. *error*: training on it teaches something wrong or fails; *warning*: look before you train;
*note*: a fact worth knowing."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    name: str
    """A few words, the same for every finding of this kind."""
    means: str
    """What it does to somebody who trains on the data."""
    mend: str
    """What to do about it."""


@dataclass(frozen=True)
class Finding:
    """One fault in one place."""

    fault: Fault
    severity: Severity
    what: str
    """What was seen, with numbers and units."""
    episode: str | None = None
    """Name of the episode; None when it concerns the whole dataset."""
    frame: int | None = None
    """First frame of the place, from 0 within the episode; None when it concerns all of it."""
    frames: int = 1
    """How many frames the place spans."""
    size: float = 0.0
    """How bad it is beside others of its fault, in that fault's own unit."""

    @property
    def mend(self) -> str:
        """What to do about it."""
        return self.fault.mend


@dataclass(frozen=True)
class Group:
    """All findings of one fault and severity, in the order of the episodes."""

    fault: Fault
    severity: Severity
    findings: tuple[Finding, ...]

    @property
    def example(self) -> Finding:
        """The worst of them, the first among equals."""
        return max(self.findings, key=lambda found: found.size)

    @property
    def episodes(self) -> tuple[str, ...]:
        """Names of the episodes concerned, each once."""
        return tuple(dict.fromkeys(found.episode for found in self.findings if found.episode is not None))


def grouped(findings: Iterable[Finding]) -> list[Group]:
    """Findings by fault, the most serious first and within a severity as they came."""
    groups: dict[tuple[Severity, str], list[Finding]] = {}
    for found in findings:
        groups.setdefault((found.severity, found.fault.name), []).append(found)
    ordered = sorted(groups.values(), key=lambda group: SEVERITIES.index(group[0].severity))
    return [Group(group[0].fault, group[0].severity, tuple(group)) for group in ordered]


def runs(flags: Iterable[bool]) -> list[tuple[int, int]]:
    """Stretches of consecutive true flags as (first, length)."""
    found: list[tuple[int, int]] = []
    length = 0
    position = -1
    for position, flag in enumerate(flags):
        if flag:
            length += 1
        elif length:
            found.append((position - length, length))
            length = 0
    if length:
        found.append((position + 1 - length, length))
    return found
