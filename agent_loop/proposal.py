"""A proposal: a typed change to a parent attempt's configuration.

`guard.py` keeps it off what judges it. Only fields marked `tunable` in `configs/models.py` can be changed, and only
within their bounds; success predicates, seeds, splits, rollout counts, safety limits and budgets are not in that set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from robocoach.configs.errors import UserError
from robocoach.configs.fields import fields


@dataclass(frozen=True)
class Proposal:
    """One change and why."""

    parent: int
    """The attempt whose configuration and weights it starts from."""
    coach: str
    rule: str
    """Short name of the diagnosis."""
    rationale: str
    """One or two sentences that quote the number which caused the change."""
    change: Mapping[str, Any]
    """Dotted key → new value."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """The numbers that the rationale quotes."""
    cost_usd: float = 0.0
    """What asking the coach cost."""
    start: Literal["parent", "base"] = "parent"
    """Whose weights the attempt begins with: its parent's, or those that attempt 0 began with."""

    def to_json(self) -> str:
        """The text of `proposal.json`."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Proposal:
        """The inverse of `to_json`; raises UserError on anything else. Only `guard` looks at the values."""
        try:
            raw = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
            return cls(**raw)
        except (ValueError, TypeError, RecursionError) as error:
            reason = ascii(str(error))[1:-1][:200]
            raise UserError(f"not a proposal ({reason}); expected the text of a proposal.json") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose second mention of a key is an error; Python would silently take the last one."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key[:60]!a} twice")
        found[key] = value
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def tunable_keys() -> tuple[str, ...]:
    """What a proposal may change."""
    return tuple(key for key, spec in fields().items() if spec.tunable)
