"""Seed ranges: which random scenes a demonstration, the coach, the selection and the final number may see.

A seed fixes a scene completely. The ranges are constants, outside every proposal, and disjoint (a test proves it):
demonstrations never show a scene on which a policy is judged, the coach reads only rollouts on *train* seeds,
selection uses *validation* seeds, and the reported number comes from *held-out* seeds, which run once.
*session* seeds are the placements of counted trials on an arm.
"""

from __future__ import annotations

from typing import Literal, get_args

Split = Literal["demonstration", "train", "validation", "heldout", "twin", "development", "session"]

SPAN = 10_000_000
"""Seeds in each range."""

RANGES: dict[Split, range] = {
    split: range(index * SPAN, (index + 1) * SPAN) for index, split in enumerate(get_args(Split))
}

PER_RUN = 10_000
"""Seeds that one run may take from a range: runs with another `--seed` see other scenes."""


def seeds(split: Split, run_seed: int, count: int, start: int = 0) -> range:
    """The `count` scene seeds of a run in one split, beginning with the `start`-th.

    Raises ValueError when the run would leave its share of the range.
    """
    if start < 0 or count < 0 or start + count > PER_RUN:
        raise ValueError(f"a run has {PER_RUN} seeds a split, asked for {start} to {start + count}")
    chosen = RANGES[split]
    first = chosen.start + (run_seed % (SPAN // PER_RUN)) * PER_RUN + start
    return range(first, first + count)
