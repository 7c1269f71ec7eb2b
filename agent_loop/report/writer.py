"""`feedback.md` as a whole: what comes in which order, and what the switches leave out.

Order: notices (failed, reverted), task, condition of training, result, how to read it, rollouts, aborts,
representative failures, trials on the arm, training in numbers, training in words, settings, history. `rules` say
how much is told of a rollout (form), relative to what (space), one by what (unit), and which channels are off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from robocoach.agent_loop.account_words import part_name, plain
from robocoach.agent_loop.evidence import Evidence, read_remains
from robocoach.agent_loop.proposal import tunable_keys
from robocoach.agent_loop.report import history, rollouts, training
from robocoach.agent_loop.report.history import behaviour_of
from robocoach.agent_loop.report.plain_text import one_line, plural, value
from robocoach.agent_loop.report.signatures import categories
from robocoach.agent_loop.statistics import Rate, pair
from robocoach.agent_loop.task_document import TaskFacts
from robocoach.agent_loop.tree import Node, lone_node
from robocoach.configs.models import CampaignConfig

CONVENTIONS = Path(__file__).with_name("conventions.md")


def channels_off(rules: CampaignConfig) -> frozenset[str]:
    """The channels that `campaign.without` names."""
    return frozenset(part.strip() for part in rules.without.split(",") if part.strip())


def feedback(
    evidence: Evidence | None, node: Node, nodes: Sequence[Node], facts: TaskFacts, rules: CampaignConfig
) -> str:
    """The report on one attempt in Markdown. `evidence` None: whatever the attempt's folder holds is read.

    Raises UserError when a file of the attempt is damaged.
    """
    if evidence is None:
        evidence = read_remains(node.folder, facts.stages, node.settings, "unknown", hardware=rules.evidence)
    without = channels_off(rules)
    evidence = evidence.without(without)
    parent = nodes[node.parent] if node.parent is not None and node.parent < len(nodes) else None
    behaviour = _geometry(evidence, rules)
    lines = [f"# Attempt {node.number}", "", *_notices(node, without, behaviour=behaviour)]
    lines += ["## Task", "", *_task(facts), "", "## Condition", "", *_condition(node, parent), ""]
    where = "on the arm" if evidence.source == "hardware" else "on train seeds"
    lines += [f"## Result {where}", "", *_result(evidence, node, parent, rules), ""]
    if evidence.rollouts:
        if behaviour:
            lines += ["## How to read this", "", *_conventions(evidence, facts, rules), ""]
        lines += ["## Rollouts", "", *rollouts.table(evidence, rules), ""]
        lines += rollouts.aborts(evidence.rollouts)
        if behaviour and evidence.successes < len(evidence.rollouts):
            lines += ["## What happened, by kind of failure", "", *rollouts.told_failures(evidence, rules)]
    if evidence.trials:
        lines += ["## On the arm", "", *_trials(evidence, rules), ""]
    if "numbers" not in without:
        lines += ["## Training in numbers", "", *training.numbers(evidence, parent.folder if parent else None), ""]
    if "text" not in without:
        lines += ["## Training in words", "", *training.words(evidence), ""]
    lines += _settings(node)
    lines += ["## History", "", *history.history(nodes, evidence.stages if behaviour else (), without)]
    return "\n".join(lines).rstrip() + "\n"


def feedback_alone(evidence: Evidence, number: int, folder: Path, facts: TaskFacts, rules: CampaignConfig) -> str:
    """The report on an attempt that has no tree around it."""
    node = lone_node(number, folder, evidence.settings)
    return feedback(evidence, node, (node,), facts, rules)


def _geometry(evidence: Evidence, rules: CampaignConfig) -> bool:
    """Stages and geometry are told at all."""
    return bool(evidence.stages) and rules.form != "outcome"


def _notices(node: Node, without: frozenset[str], *, behaviour: bool) -> list[str]:
    if node.state == "failed":
        why = f": {one_line(node.reason, 300).rstrip('.')}" if node.reason and "text" not in without else ""
        return [f"> **Failed**{why}. It counts as zero successes in every comparison.", ""]
    if node.reverted:
        # The reason compares approach and carries, which is behaviour.
        why = f" ({one_line(node.reason, 300)})" if node.reason and behaviour else ""
        return [
            f"> **Reverted**: on train seeds this attempt is worse than the one it was compared with{why}. "
            "The branch before it stands; what it changed did not help.",
            "",
        ]
    return []


def _task(facts: TaskFacts) -> list[str]:
    lines = [f"*{one_line(facts.instruction)}* ({facts.name}). Success means: {facts.goal.strip()}"]
    if facts.stages:
        lines.append(f"Stages in order: {', '.join(plain(name) for name in facts.stages)}.")
    return lines


def _condition(node: Node, parent: Node | None) -> list[str]:
    lines = [f"Attempt {node.number} is {history.origin(node)}.", f"Changed: {history.change(node)}."]
    if parent is not None and parent.reverted:
        lines.append(f"Its parent, attempt {parent.number}, had been reverted.")
    minutes, count = node.settings.get("train.minutes"), node.settings.get("generate.demonstrations")
    ticks = node.settings.get("evaluate.max_ticks")
    if None not in (minutes, count, ticks):
        lines.append(
            f"Trained for at most {minutes:g} min, the first {count} demonstrations among its data; a rollout ends "
            f"after {ticks} ticks."
        )
    return lines


def _settings(node: Node) -> list[str]:
    told = [f"`{key}` {value(node.settings[key])}" for key in tunable_keys() if key in node.settings]
    return ["## Settings that a proposal may change", "", ", ".join(told) + ".", ""] if told else []


def _result(evidence: Evidence, node: Node, parent: Node | None, rules: CampaignConfig) -> list[str]:
    asked = node.batch.n if node.batch is not None and evidence.source == "sim" else len(evidence.rollouts)
    rate = Rate(evidence.successes, max(asked, len(evidence.rollouts)))
    lines = [f"Success: **{rate}**."]
    if missing := rate.n - len(evidence.rollouts):
        lines.append(f"{plural(missing, 'rollout')} could not be run: counted as failures.")
    if _geometry(evidence, rules) and evidence.rollouts:
        share = sum(one.stage for one in evidence.rollouts) / (len(evidence.stages) * len(evidence.rollouts))
        lines.append(f"Stages reached in order, of all: {100 * share:.0f} % (beside success, never instead of it).")
        funnel = evidence.reached()
        lines.append(f"Got through: {', '.join(f'{plain(name)} {count}' for name, count in funnel.items())}.")
        kinds = categories(evidence.rollouts)
        if kinds:
            lines.append("Failures by category: " + ", ".join(f"{name} {count}" for name, count in kinds.items()) + ".")
    if parent is not None and evidence.source == "sim":
        lines += _against(evidence, parent)
    return lines


def _against(evidence: Evidence, parent: Node) -> list[str]:
    """The same scenes with the parent's policy: what was gained and what was lost."""
    mine = {one.seed: one.success for one in evidence.rollouts}
    theirs = {one.seed: one.success for one in behaviour_of(parent)}
    seeds = sorted(mine.keys() & theirs.keys())
    if not seeds:
        return []
    found = pair([theirs[seed] for seed in seeds], [mine[seed] for seed in seeds])
    return [
        f"Against its parent, attempt {parent.number}, on the same {len(seeds)} scenes: {found.only_b} solved that the "
        f"parent failed, {found.only_a} failed that it solved (McNemar p = {found.p_value:.2f})."
    ]


def _conventions(evidence: Evidence, facts: TaskFacts, rules: CampaignConfig) -> list[str]:
    """Units and frames; the part names only where parts are spoken of."""
    text = _sections(CONVENTIONS.read_text())
    lines = [text["all"], text["state" if rules.form == "state" else rules.space]]
    if rules.form == "relations" and rules.space == "parts":
        for name, parts in _parts(evidence, facts).items():
            lines.append(f"Parts of the {plain(name)}: {', '.join(part_name(part) for part in parts)}.")
    return lines


def _sections(text: str) -> dict[str, str]:
    """Paragraphs of a text file by the heading above them."""
    found = {}
    for part in text.split("## ")[1:]:
        title, _, body = part.partition("\n")
        found[title.strip()] = " ".join(body.split())
    return found


def _parts(evidence: Evidence, facts: TaskFacts) -> Mapping[str, Sequence[str]]:
    """The declared parts; those that the accounts name when the task was not asked."""
    if facts.parts:
        return facts.parts
    found: dict[str, set[str]] = {}
    for one in evidence.rollouts:
        for account in one.accounts:
            if account.nearest_part:
                found.setdefault(account.relative_to or account.object, set()).add(account.nearest_part)
    return {name: sorted(parts) for name, parts in sorted(found.items())}


def _trials(evidence: Evidence, rules: CampaignConfig) -> list[str]:
    rate = Rate(sum(one.success for one in evidence.trials), len(evidence.trials))
    rows = [f"Trials with a verdict: **{rate}**.", ""]
    measured = _geometry(evidence, rules)
    rows += [
        f"| scene | verdict |{' stages reached |' if measured else ''} ticks |",
        f"|{' --- |' * (4 if measured else 3)}",
    ]
    for one in evidence.trials:
        stage = f" {one.stage} of {len(evidence.stages)} |" if measured else ""
        rows.append(f"| {one.seed} | {'success' if one.success else 'failure'} |{stage} {one.ticks} |")
    return [*rows, "", *rollouts.aborts(evidence.trials)]
