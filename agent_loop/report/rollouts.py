"""The part of the report on rollouts: table, abort banners, and representative failures told in words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from robocoach.agent_loop.account_words import commanded, grip, plain, told
from robocoach.agent_loop.describe import SIGNALS, Described
from robocoach.agent_loop.evidence import NOT_TOLD, Evidence, RolloutEvidence, StageAccount
from robocoach.agent_loop.report.plain_text import one_line, plural, quoted
from robocoach.agent_loop.report.signatures import GROUPS_MOST, Group, failing_account, failing_stage, groups
from robocoach.configs.models import CampaignConfig

UNITS_MOST = 40
"""Stages, or motions, that are told in one report."""
ERROR_MOST = 300
SEEDS_MOST = 12
TABLE_MOST = 60
MEASURES = {
    "closest_m": ("closest [mm]", 1000.0),
    "carried": ("carried", 0.0),
    "goal_reached": ("goal geometry held", 0.0),
}
"""Measures of every task as columns: title and factor; 0 for yes or no."""
SIGNAL_WORDS = {
    "jerk_rad_s3": "RMS jerk {:.1f} rad/s³",
    "idle_ticks": "{:.0f} idle ticks",
    "reversals": "{:.0f} turns back",
    "closings": "{:.0f} closings of the jaws",
    "dropped": "{:.0f} drops",
    "path_m": "path {:.2f} m",
}


def table(evidence: Evidence, rules: CampaignConfig) -> list[str]:
    """One row a rollout."""
    measured = bool(evidence.stages) and rules.form != "outcome"
    known = [name for name in MEASURES if measured and any(name in one.measures for one in evidence.rollouts)]
    others = []
    if measured:
        names = dict.fromkeys(name for one in evidence.rollouts for name in one.measures)
        others = [name for name in names if name not in MEASURES]
    columns = ["seed", "result", *(["failed at"] if measured else []), "ticks", "ending"]
    columns += [MEASURES[name][0] for name in known] + [f"`{name}`" for name in others]
    rows = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for one in evidence.rollouts[:TABLE_MOST]:
        cells = [str(one.seed), "success" if one.success else "failure"]
        if measured:
            cells.append("" if one.success else failing_stage(one, evidence.stages))
        cells += [str(one.ticks), one.ending]
        cells += [_measure(one, name) for name in known]
        cells += [f"{one.measures[name]:.3f}" if name in one.measures else "" for name in others]
        rows.append(f"| {' | '.join(one_line(cell) for cell in cells)} |")
    left = len(evidence.rollouts) - TABLE_MOST
    return rows + (["", f"And {plural(left, 'more rollout')}."] if left > 0 else [])


def _measure(one: RolloutEvidence, name: str) -> str:
    if name not in one.measures:
        return ""
    value, factor = one.measures[name], MEASURES[name][1]
    return f"{factor * value:.0f}" if factor else ("yes" if value > 0 else "no")


def aborts(rollouts: Sequence[RolloutEvidence]) -> list[str]:
    """A banner for each error that ended rollouts, quoted, with its count."""
    found: dict[str, list[int]] = {}
    for one in rollouts:
        if one.aborted:
            found.setdefault(one_line(one.aborted, ERROR_MOST), []).append(one.seed)
    lines = []
    for error, seeds in sorted(found.items(), key=lambda item: -len(item[1])):
        words = f": {quoted(error)}" if error != NOT_TOLD else "."
        lines += [f"> **{plural(len(seeds), 'rollout')} aborted** ({_seeds(seeds)}){words}", ""]
    return lines


def told_failures(evidence: Evidence, rules: CampaignConfig) -> list[str]:
    """One representative a signature, at most six, then how many are left."""
    found = groups(evidence.rollouts, evidence.stages)
    lines: list[str] = []
    units = UNITS_MOST
    for group in found[:GROUPS_MOST]:
        told_, used = _group(group, evidence, rules, units)
        lines += told_
        units -= used
    rest = found[GROUPS_MOST:]
    if rest:
        count = sum(len(group.rollouts) for group in rest)
        lines += [f"And {plural(count, 'failure')} of {plural(len(rest), 'other signature')}.", ""]
    return lines


def _group(group: Group, evidence: Evidence, rules: CampaignConfig, units: int) -> tuple[list[str], int]:
    sign, one, count = group.signature, group.representative, len(group.rollouts)
    lines = [f"### {count} of {len(evidence.rollouts)}: failed at {sign.stage}, {sign.ending}"]
    if sign.goal:
        lines += ["", "Goal clauses at the end: " + _clauses(sign.goal) + "."]
    like = (
        f", and {count - 1} like it ({_seeds([o.seed for o in group.rollouts if o is not one])})" if count > 1 else ""
    )
    lines += ["", f"Seed {one.seed}{like}, {one.ticks} ticks:", ""]
    entries = _entries(one, evidence.stages, rules)
    shown = entries[: max(0, units)]
    lines += shown or ["- nothing was recorded of its stages"]
    if len(shown) < len(entries):
        lines.append(f"- {len(entries) - len(shown)} more are left out: a report tells {UNITS_MOST}")
    if rules.unit != "stage" and one.signals:
        lines.append(f"- whole motion: {_signals(one.signals)}")
    if common := _in_common(group, evidence.stages, rules):
        lines.append(common)
    described = evidence.summaries.get(one.seed)
    if described is not None and (seen := _seen(described)):
        lines += ["", seen]
    return [*lines, ""], len(shown)


def _entries(one: RolloutEvidence, stages: Sequence[str], rules: CampaignConfig) -> list[str]:
    if rules.unit == "episode":
        last = failing_account(one, stages) or (one.accounts[-1] if one.accounts else None)
        return [_motion(last, rules)] if last else []
    if rules.unit == "motion":
        return [_motion(account, rules) for account in one.accounts]
    return [_stage(account, rules) for account in one.accounts]


def _motion(account: StageAccount, rules: CampaignConfig) -> str:
    """What was commanded and where that led, without the stage."""
    begin = f"tick {account.moment_tick if account.moment_tick is not None else account.end_tick}"
    parts = [told(account, rules.form, rules.space) or account.moment or "nothing recorded"]
    if rules.form != "state" and (words := grip(account)):
        parts.append(words)
    if asked := commanded(account):
        parts.append(f"commanded: {asked}")
    return f"- {begin}: {'; '.join(parts)}."


def _stage(account: StageAccount, rules: CampaignConfig) -> str:
    """Status, duration, what was commanded, what happened."""
    status = "reached" if account.reached else "**not reached**"
    words = f"- *{plain(account.stage)}* {status}, ticks {account.begin_tick}–{account.end_tick}."
    if asked := commanded(account):
        words += f" Commanded: {asked}."
    if happened := told(account, rules.form, rules.space):
        when = f"At tick {account.moment_tick}: " if account.moment_tick is not None else ""
        words += f" {when}{happened}."
    idle = account.reached and account.contact == "none"  # nothing was to be held yet
    if rules.form != "state" and not idle and (held := grip(account)):
        words += f" {held[0].upper()}{held[1:]}."
    return words


def _in_common(group: Group, stages: Sequence[str], rules: CampaignConfig) -> str:
    """Spread of the miss over all failures of a group: tells a bias, which has a sign, from scatter, which has none."""
    if rules.form != "relations" or len(group.rollouts) < 2:
        return ""
    accounts = [failing_account(one, stages) for one in group.rollouts]
    offsets = [
        found
        for account in accounts
        if account and (found := account.world_offset_m if rules.space == "world" else account.offset_m)
    ]
    if len(offsets) < 2:
        return ""
    axes = [axis for axis in offsets[0] if all(axis in offset for offset in offsets)]
    told_ = []
    for axis in axes:
        values = [1000 * offset[axis] for offset in offsets]
        told_.append(f"{axis} {_spread(values)} mm")
    turns = [account.turn_deg for account in accounts if account and account.turn_deg is not None]
    if rules.space != "world" and len(turns) > 1:
        told_.append(f"turn {_spread(turns)}°")
    return f"- over all {len(offsets)} alike, lowest to highest (median): {'; '.join(told_)}."


def _spread(values: Sequence[float]) -> str:
    low, high, middle = (_signed(value) for value in (min(values), max(values), statistics.median(values)))
    return low if low == high else f"{low} to {high} ({middle})"


def _signed(value: float) -> str:
    return f"{round(value):+d}".replace("-", "−") if round(value) else "0"


def _signals(signals: Mapping[str, float]) -> str:
    return ", ".join(
        SIGNAL_WORDS[name].format(value) if name in SIGNAL_WORDS else f"{plain(name)} {value:.4g}"
        for name, value in signals.items()
    )


def _seen(described: Described) -> str:
    """The summary of a video; of one from signals, whose account is told above, the flags alone."""
    summary = described.summary
    ticks = f", ticks {', '.join(map(str, summary.frames))}" if summary.frames else ""
    flags = [
        name
        for name, on in (
            ("jerky motion", summary.jerk),
            ("bad contact", summary.contact),
            ("bad grasp posture", summary.grasp_posture),
            ("inefficient motion", summary.inefficiency),
            ("deviation near the goal", summary.near_goal),
        )
        if on
    ]
    if described.described_by == SIGNALS:
        return f"Signs of: {', '.join(flags)}{ticks.replace(', ticks', '; see ticks', 1)}." if flags else ""
    flagged = f" Signs of: {', '.join(flags)}." if flags else ""
    who, where = one_line(described.described_by, 60), one_line(summary.stage, 60)
    return (
        f"Seen in the video by {who} (at {where}, confidence {summary.confidence:.1f}{ticks}): "
        f"{one_line(summary.happened, 800)}{flagged}"
    )


def _clauses(goal: Sequence[tuple[str, bool]]) -> str:
    return ", ".join(f"{clause}: {'met' if met else '**not met**'}" for clause, met in goal)


def _seeds(seeds: Sequence[int]) -> str:
    more = f" and {len(seeds) - SEEDS_MOST} more" if len(seeds) > SEEDS_MOST else ""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds[:SEEDS_MOST]))}{more}"
