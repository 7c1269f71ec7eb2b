"""Two baselines without feedback: `one-shot` proposes once from the priors alone, `none` trains what was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robocoach.agent_loop.coaches.priors import priors
from robocoach.agent_loop.guard import MOST_KEYS
from robocoach.agent_loop.proposal import Proposal
from robocoach.agent_loop.tree import View


class OneShotCoach:
    """One proposal that looks at no result: every setting outside its prior range goes to its typical value.

    It is trained from attempt 0's starting weights, for all the time that is left.
    """

    name = "one-shot"
    whole_budget = True

    def propose(self, view: View) -> Proposal | None:
        """The one proposal; None after it, and when every setting lies in its range."""
        if len(view.nodes) > 1:
            return None
        settings = view.nodes[0].settings
        table = priors(str(settings["train.policy"]))
        off = sorted(table.values(), key=lambda prior: -prior.excess(settings[prior.key]))[: MOST_KEYS - 2]
        change: dict[str, Any] = {prior.key: prior.typical for prior in off if not prior.holds(settings[prior.key])}
        after = {**settings, **change}
        if after["train.executed_steps"] > after["train.chunk_size"]:
            change["train.executed_steps"] = after["train.chunk_size"]
        if not change:
            return None
        words = "; ".join(f"{key} is {settings[key]:g}, usual is {table[key]}, so {change[key]:g}" for key in change)
        if settings["train.frozen"] != "none":
            change["train.frozen"] = "none"  # it begins with the base's weights, which are not worth keeping
        return Proposal(
            parent=0,
            coach=self.name,
            rule="outside the usual range",
            rationale=f"{words}.",
            change=change,
            evidence={key: settings[key] for key in change},
            start="base",
        )

    def mend(self, view: View, refused: Proposal, reason: str) -> Proposal | None:
        """None: there is one proposal only."""
        return None

    def lesson(self, view: View, number: int) -> Mapping[str, Any] | None:
        """None: it looks at no result."""
        return None


class NoCoach:
    """Proposes nothing: attempt 0 is trained for the campaign's whole budget."""

    name = "none"
    whole_budget = True

    def propose(self, view: View) -> Proposal | None:
        """None."""
        return None

    def mend(self, view: View, refused: Proposal, reason: str) -> Proposal | None:
        """None."""
        return None

    def lesson(self, view: View, number: int) -> Mapping[str, Any] | None:
        """None."""
        return None
