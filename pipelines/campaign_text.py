"""A campaign told in plain text: `pipeline campaign status|tree|show N`, from the dictionary of `summary.content`.

Only words, no colour codes: a terminal, a log file and a mail show the same. What a model wrote is stripped of control
characters before it is printed.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robocoach.agent_loop.budget import duration_words
from robocoach.agent_loop.statistics import Rate
from robocoach.pipelines.console import clock

COLUMNS = 80
"""Width of what is written where no terminal is."""
EVENTS_TOLD = 8
FAILURES_TOLD = 6
SIGNIFICANT = 0.05
"""McNemar p below which attempt and attempt 0 are said to differ."""
Attempt = Mapping[str, Any]
Content = Mapping[str, Any]


def status(content: Content) -> str:
    """One line for the morning, then the budget, what is running, what went wrong, and the last events."""
    width = columns()
    lines = [headline(content), ""]
    for name, text in _facts(content):
        lines += _entry(name, text, width)
    failures = [attempt for attempt in content["attempts"] if outcome(attempt) in ("failed", "rejected", "abandoned")]
    if failures:
        lines += ["", "what failed"]
        for attempt in failures[-FAILURES_TOLD:]:
            lines += _entry(f"  {attempt['number']}", f"{attempt['state']}: {plain(attempt['reason'])}", width, most=3)
        if len(failures) > FAILURES_TOLD:
            lines.append(f"  and {len(failures) - FAILURES_TOLD} before them, see the tree")
    for warning in content["warnings"]:
        lines += _entry("warning", plain(warning), width)
    # How the data came to be is in the log; in the morning it would hide what the attempts did.
    events = [event for event in content["events"] if not event["kind"].startswith("stage ")]
    if events:
        lines += ["", "last events"]
        for event in events[-EVENTS_TOLD:]:
            lines += _entry(f"  {moment(event['at'])}", event_words(event), width, margin=15, most=2)
    return "\n".join(lines)


def tree(content: Content) -> str:
    """The attempts as a tree, one line each; the child with most descendants stands right below its parent.

    So a long chain runs straight down, and only branches take room to the right.
    """
    attempts = content["attempts"]
    if not attempts:
        return "no attempt yet"
    rows = _rows(attempts)
    left = max(len(f"{drawn} {number}") for drawn, number, _ in rows) + 2
    state_width = max(len(_state(attempt)) for attempt in attempts)
    head = f"{'attempt':<{left}} {'state':<{state_width}} {'move':<9} {'train':>5}  {'validation':<14} change"
    lines, early = [head], False
    for drawn, number, below in rows:
        attempt = attempts[number]
        validation = attempt["validation"]
        early = early or bool(validation and validation["stopped"])
        fixed = (
            f"{drawn} {number}{mark(attempt, content['best']):>2}".ljust(left)
            + f" {_state(attempt):<{state_width}} {attempt['move']:<9} {_count(attempt['train']):>5}  "
            + f"{_validation(validation):<14} "
        )
        margin = below.ljust(len(fixed))
        changed = change_words(attempt, short=True) or ("as given" if number == 0 else "")
        told = textwrap.wrap(changed, max(16, columns() - len(fixed)), break_on_hyphens=False) or [""]
        lines += [(fixed + told[0]).rstrip(), *(margin + line for line in told[1:])]
    lines += [
        "",
        "★ best by validation   ↺ reverted   ✗ failed, rejected or abandoned",
        "An attempt stands below its parent in one column, or branches off it with ├─.",
    ]
    if early:
        lines.append("* validation ended early: the attempt could hardly become the best any more")
    return "\n".join(lines)


def show(content: Content, number: int, folder: Path) -> str:
    """Everything about one attempt, and where its files lie. `folder` is the campaign's."""
    attempt = content["attempts"][number]
    width = columns()
    lines = [f"attempt {number}: {outcome_words(attempt, content)}", ""]
    for name, text in _attempt_facts(content, attempt):
        lines += _entry(name, text, width)
    lines += ["", "change against its parent, computed from the two configurations"]
    none = "the configuration as given" if attempt["parent"] is None else "nothing was changed"
    if attempt["state"] == "rejected":
        none = "its proposal was refused, what it wanted is in the refusals"
    lines += [f"  {line}" for line in exact_change(attempt)] or [f"  none: {none}"]
    whole = whole_change(content, number) if attempt["state"] != "rejected" else {}
    if number and attempt["parent"] and whole:
        lines += ["", "change against attempt 0"]
        lines += [f"  {key}: {json.dumps(old)} → {json.dumps(new)}" for key, (old, new) in whole.items()]
    if attempt["rationale"] and number:
        lines += ["", f"why, in the coach's own account, unverified ({attempt['coach'] or 'no coach'})"]
        lines += _wrapped(account_words(attempt), "  ", width)
    place = folder / attempt["folder"]
    lines += ["", f"files in {place}"]
    named: dict[str, list[str]] = {}
    for name, path in files(attempt, folder):
        named.setdefault(name, []).append(path.relative_to(place).as_posix())
    for name, paths in named.items():
        lines += _entry(f"  {name}", " ".join(paths), width, margin=13)
    lines += [] if named else ["  none yet"]
    events = [event for event in content["events"] if event["attempt"] == number]
    if events:
        lines += ["", "events"]
        for event in events:
            lines += _entry(f"  {moment(event['at'])}", event_words(event, of=False), width, margin=15)
    return "\n".join(lines)


# --- words that the page uses too ------------------------------------------------------------------------------------


def headline(content: Content) -> str:
    """The line for the morning: the best, its change, its rate, why that is believed, and what failed."""
    return "; ".join(headline_parts(content)) + "."


def headline_parts(content: Content) -> list[str]:
    """The same in its parts, of which the first names the best and its rate."""
    attempts, best = content["attempts"], content["best"]
    if best is None:
        return ["No attempt is measured yet", *_failed_words(attempts)]
    attempt = attempts[best]
    name = "the configuration as given" if best == 0 else change_words(attempt) or "no change"
    begin = "Best is" if attempt["validation"]["successes"] else "No validation scene is solved yet, the best is"
    parts = [f"{begin} attempt {best} ({name}): validation {rate_words(attempt['validation'])}"]
    if best:
        parts.append(_against_first(content))
    return [*parts, *_confirm_words(content), *_failed_words(attempts)]


def rate_words(counted: Mapping[str, Any]) -> str:
    """`14/20 = 70 % (95 % CI 46–88 %)`."""
    return str(Rate(counted["successes"], counted["n"]))


def change_words(attempt: Attempt, *, short: bool = False) -> str:
    """What an attempt changed of its parent; `short` leaves out the sections of the keys."""
    named = ((key.rpartition(".")[2] if short else key, pair) for key, pair in attempt["change"].items())
    told = ", ".join(f"{key} {_value(old)} → {_value(new)}" for key, (old, new) in named)
    if attempt["move"] == "restart":
        told = f"{told}, weights from the start" if told else "weights from the start"
    return plain(told)


def exact_change(attempt: Attempt) -> list[str]:
    """The change as JSON values, a line a key, and whose weights it began with."""
    told = [plain(f"{key}: {json.dumps(old)} → {json.dumps(new)}") for key, (old, new) in attempt["change"].items()]
    if attempt["move"] == "restart":
        told.append("weights: those that attempt 0 began with, not its parent's")
    return told


def whole_change(content: Content, number: int) -> dict[str, tuple[Any, Any]]:
    """How the configuration of an attempt differs from attempt 0's, over its whole lineage."""
    found: dict[str, tuple[Any, Any]] = {}
    for ancestor in lineage(content["attempts"], number):
        for key, (old, new) in content["attempts"][ancestor]["change"].items():
            found[key] = (found.get(key, (old, None))[0], new)
    return {key: pair for key, pair in found.items() if pair[0] != pair[1]}


def lineage(attempts: Sequence[Attempt], number: int) -> list[int]:
    """From attempt 0 to the attempt itself."""
    found = [number]
    while (parent := attempts[found[0]]["parent"]) is not None:
        found.insert(0, parent)
    return found


def children(attempts: Sequence[Attempt]) -> dict[int, list[int]]:
    """Each attempt's children; the one with most descendants first, the others by their number.

    A parent has a smaller number than its child, so one pass backwards counts the descendants.
    """
    below: dict[int, list[int]] = {attempt["number"]: [] for attempt in attempts}
    size = dict.fromkeys(below, 1)
    for attempt in reversed(attempts):
        if attempt["parent"] is not None:
            below[attempt["parent"]].insert(0, attempt["number"])
            size[attempt["parent"]] += size[attempt["number"]]
    for own in below.values():
        if own:
            heaviest = max(own, key=lambda child: size[child])
            own.remove(heaviest)
            own.insert(0, heaviest)
    return below


def outcome(attempt: Attempt) -> str:
    """`reverted` where the revert rule said so of a measured attempt, its state otherwise."""
    return "reverted" if attempt["reverted"] and attempt["state"] != "failed" else attempt["state"]


def outcome_words(attempt: Attempt, content: Content) -> str:
    """State, and whether it is the best, the current branch or reverted."""
    told = [attempt["state"]]
    if attempt["number"] == content["best"]:
        told.append("the best by validation")
    if attempt["number"] == content["incumbent"]:
        told.append("the current branch")
    if outcome(attempt) == "reverted":
        told.append("reverted")
    return ", ".join(told)


def mark(attempt: Attempt, best: int | None) -> str:
    """★ best, ✗ failed, rejected or abandoned, ↺ reverted, or nothing."""
    if attempt["number"] == best:
        return "★"
    ended = outcome(attempt)
    return {"reverted": "↺", "failed": "✗", "rejected": "✗", "abandoned": "✗"}.get(ended, "")


def event_words(event: Mapping[str, Any], *, of: bool = True) -> str:
    """`attempt 3 reverted: against attempt 2 …`."""
    who = f"attempt {event['attempt']} " if of and event["attempt"] is not None else ""
    return plain(f"{who}{event['kind']}" + (f": {event['text']}" if event["text"] else ""))


def moment(at: float) -> str:
    """Local weekday and time of a moment in seconds since 1970."""
    return time.strftime("%a %H:%M", time.localtime(at))


def now_words(content: Content) -> str:
    """What is going on."""
    state, now = content["state"], content.get("now") or {}
    if state == "interrupted":
        return "interrupted; `pipeline campaign resume` goes on"
    if state != "running":
        return plain(f"{state}: {content['stop_reason']}" if content["stop_reason"] else state)
    told = f"attempt {now['attempt']}" if now.get("attempt") is not None else ""
    parts = [part for part in (told, now.get("phase"), now.get("text")) if part]
    return plain(", ".join(parts)) or "running"


def budget_words(content: Content) -> list[tuple[str, str]]:
    """What is spent of what was given, limits that are off left out."""
    budget = content["budget"]
    made = len(content["attempts"])
    left = max(0.0, budget["hours"] - budget["spent_h"])
    given = duration_words(3600 * budget["hours"])
    told = [
        ("attempts", f"{made} of {budget['attempts']}"),
        ("wall time", f"{clock(3600 * budget['spent_h'])} of {given}, {clock(3600 * left)} left"),
    ]
    gpu_h = budget.get("gpu_spent_h") or 0.0
    if budget.get("gpu_hours"):
        told.append(("GPU time", f"{gpu_h:.2f} of {budget['gpu_hours']:g} h"))
    elif gpu_h:
        told.append(("GPU time", f"{gpu_h:.2f} h, no limit"))
    if budget["spent_usd"] or str(content["coach"]).startswith("llm"):
        told.append(("money", f"{budget['spent_usd']:.2f} of {budget['spend_usd']:.2f} USD"))
    return told


def files(attempt: Attempt, folder: Path) -> list[tuple[str, Path]]:
    """The files of an attempt that are there: what each is, and its path."""
    place = folder / attempt["folder"]
    named = (
        ("report", "feedback.md"),
        ("settings", "config.yaml"),
        ("proposal", "proposal.json"),
        ("refusals", "refusals.json"),
        ("preflight", "preflight.json"),
        ("log", "log.txt"),
        ("curve", "metrics.jsonl"),
        ("checkpoint", f"checkpoints/{Path((attempt['training'] or {}).get('checkpoint') or 'last').name}"),
    )
    found = [(name, place / path) for name, path in named if (place / path).exists()]
    rollouts = place / "rollouts" / "train"
    for name, pattern in (("video", "*-wrist.mp4"), ("side video", "*-side.mp4"), ("frames", "*-sheet.png")):
        found += [(name, path) for path in sorted(rollouts.glob(pattern))]
    return found


def plain(text: str) -> str:
    """One line without control characters: nothing that a model wrote may drive the terminal."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else "�" for c in str(text)).split())


def columns() -> int:
    """Width to write at: that of the terminal within reason, `COLUMNS` where there is none."""
    if not sys.stdout.isatty():
        return COLUMNS
    return max(60, min(120, shutil.get_terminal_size((COLUMNS, 24)).columns))


# --- parts -----------------------------------------------------------------------------------------------------------


def _against_first(content: Content) -> str:
    first = content["attempts"][0]["validation"]
    if first is None:
        return "attempt 0 has no validation to compare with"
    return f"attempt 0 solved {first['successes']}/{first['n']} of the same scenes"


def _confirm_words(content: Content) -> list[str]:
    confirm, best = content["confirm"], content["best"]
    if confirm is None or confirm["winner"] != best:
        return []
    told = f"held-out {rate_words(confirm['heldout'])}"
    if best == 0:
        return [told]
    base = confirm["heldout_base"]
    proven = "better than" if confirm["only_winner"] > confirm["only_base"] else "worse than"
    verdict = proven if confirm["mcnemar_p"] < SIGNIFICANT else "not shown to differ from"
    return [
        f"{told}, {verdict} attempt 0 with {base['successes']}/{base['n']} (McNemar p = {confirm['mcnemar_p']:.2g})"
    ]


def _failed_words(attempts: Sequence[Attempt]) -> list[str]:
    counts = [
        (sum(outcome(attempt) == name for attempt in attempts), name)
        for name in ("failed", "rejected", "abandoned", "reverted")
    ]
    told = ", ".join(f"{count} {name}" for count, name in counts if count)
    return [f"of {len(attempts)} attempts {told or 'none failed'}"] if attempts else []


def _facts(content: Content) -> list[tuple[str, str]]:
    told = [("task", f"{content['task']}, seed {content['seed']}, coach {content['coach']}")]
    told += budget_words(content)
    told.append(("state", now_words(content)))
    attempts, best = content["attempts"], content["best"]
    if best:
        way = " → ".join(str(number) for number in lineage(attempts, best))
        whole = whole_change(content, best)
        differs = "; ".join(f"{key} {_value(old)} → {_value(new)}" for key, (old, new) in whole.items())
        told.append(("best", plain(f"{way}; against attempt 0: {differs or 'no change'}")))
        told.append(("why", f"{account_words(attempts[best])} (the coach's own account, unverified)"))
        if content["confirm"] is None:
            told.append(("believed", f"{picked_words(content)} No held-out run yet."))
    confirm = content["confirm"]
    if confirm is not None and confirm["winner"]:
        told.append(
            (
                "held-out",
                f"on the same {confirm['heldout']['n']} scenes only attempt {confirm['winner']} solved "
                f"{confirm['only_winner']}, only attempt 0 {confirm['only_base']}",
            )
        )
    return told


def picked_words(content: Content) -> str:
    """How far the best one's validation rate is to be believed before the held-out run; empty without a choice."""
    if not content["best"]:
        return ""
    whole = sum(bool(one["validation"]) and not one["validation"]["stopped"] for one in content["attempts"])
    return f"Picked as the best of {whole} on the same validation scenes, so its rate there flatters."


def account_words(attempt: Attempt) -> str:
    """The coach's diagnosis and rationale, which nobody has checked."""
    told = f"{attempt['rule']}: {attempt['rationale']}" if attempt["rule"] else attempt["rationale"]
    return plain(told)


def _attempt_facts(content: Content, attempt: Attempt) -> list[tuple[str, str]]:
    told = []
    if attempt["parent"] is not None:
        way = " → ".join(str(one) for one in lineage(content["attempts"], attempt["number"]))
        told.append(("parent", f"{attempt['parent']} ({attempt['move']}), lineage {way}"))
    told += results(attempt)
    if attempt["reason"]:
        told.append(("reason", plain(attempt["reason"])))
    if words := training_words(attempt):
        told.append(("training", words))
    if attempt["seconds"]:
        told.append(("time", seconds_words(attempt["seconds"])))
    if attempt["cost_usd"]:
        told.append(("cost", f"{attempt['cost_usd']:.3f} USD for the proposal"))
    return told


def results(attempt: Attempt) -> list[tuple[str, str]]:
    """Its rates with their intervals, named; a failed attempt has none of its own and counts as zero."""
    told = []
    for key, name in (("train", "train"), ("validation", "validation"), ("heldout", "held-out"), ("hardware", "arm")):
        counted = attempt[key]
        if counted is None:
            continue
        if attempt["state"] == "failed" and key in ("train", "validation"):
            told.append((name, f"not run, counted as 0/{counted['n']}"))
            continue
        early = ", ended early: it could not become the best" if counted.get("stopped") else ""
        told.append((name, f"{rate_words(counted)}{early}"))
        if key == "train":
            told.append(("", batch_words(counted)))
    return told


def batch_words(batch: Mapping[str, Any]) -> str:
    """What the revert rule looks at beside successes."""
    closest = batch.get("closest_m")
    known = closest is not None and math.isfinite(closest)
    near = "closest approach unknown" if not known else f"closest approach {1000 * closest:.0f} mm (median)"
    told = f"failures that reached the goal at some time: {batch['reached_goal']}; carried: {batch['carries']}; {near}"
    return told + (f"; {batch['aborted']} aborted" if batch["aborted"] else "")


def training_words(attempt: Attempt) -> str:
    """Steps, loss, speed and the trend of the curve; empty before training has ended."""
    training = attempt["training"] or {}
    told = []
    if training.get("steps") is not None:
        told.append(f"{training['steps']} steps")
    if isinstance(training.get("loss"), int | float):
        told.append(f"loss {training['loss']:.4f}")
    if isinstance(training.get("samples_per_s"), int | float):
        told.append(f"{training['samples_per_s']:.0f} samples/s")
    if training.get("stopped"):
        told.append(f"ended by {training['stopped']}")
    if attempt["trend"]:
        told.append(str(attempt["trend"]))
    return plain(", ".join(told))


def seconds_words(seconds: Mapping[str, float]) -> str:
    """`preflight 0:20, training 12:03, …`."""
    return ", ".join(f"{name} {clock(value)}" for name, value in seconds.items())


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value) if isinstance(value, bool) or value in ("", None) else str(value)


def _state(attempt: Attempt) -> str:
    """The state in one word."""
    return str(attempt["state"]).partition(" ")[0]


def _count(counted: Mapping[str, Any] | None) -> str:
    return "" if counted is None else f"{counted['successes']}/{counted['n']}"


def _validation(counted: Mapping[str, Any] | None) -> str:
    if counted is None:
        return ""
    low, high = counted["ci95"]
    early = "*" if counted["stopped"] else ""
    return f"{_count(counted)}{early} {100 * low:.0f}–{100 * high:.0f}%"


def _rows(attempts: Sequence[Attempt]) -> list[tuple[str, int, str]]:
    """For every attempt in drawing order: the graph at its line, its number, the graph at the lines below it."""
    below = children(attempts)
    rows: list[tuple[str, int, str]] = []
    waiting = [("", "", 0)]  # prefix, connector, number; a stack, so that a long chain is no deep recursion
    while waiting:
        prefix, connector, number = waiting.pop()
        own = prefix + ("" if not connector else "│ ")
        rows.append((f"{prefix}{connector}●", number, own + ("│" if below[number] else "")))
        straight = below[number][:1]
        for child in straight:
            waiting.append((own, "", child))
        for child in reversed(below[number][1:]):
            waiting.append((own, "├─", child))
    return rows


def _wrapped(text: str, margin: str, width: int, most: int | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=margin,
        subsequent_indent=margin,
        max_lines=most,
        placeholder=" …",
        break_on_hyphens=False,
    )


def _entry(name: str, text: str, width: int, *, margin: int = 11, most: int | None = None) -> list[str]:
    """A named fact, wrapped beside its name."""
    lines = _wrapped(text, " " * margin, width, most) or [""]
    return [f"{name:<{margin}}{lines[0].strip()}".rstrip(), *lines[1:]]
