"""What a session leaves to sign: record.json, trials.csv and session.html, made from its plan and its event log.

Everything here can be made again from the folder at any time; the plan and the log are what counts. A session that is
blind and not closed is reported under its codes. Every rate stands with its n and interval, and beside it what so few
trials could have seen at all.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from robocoach.agent_loop import power
from robocoach.agent_loop.statistics import Rate, pair
from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically
from robocoach.pipelines.charts import BASE, LINE, WIN, Row, bars, interval
from robocoach.pipelines.report import TEMPLATE

if TYPE_CHECKING:
    from robocoach.robots.session.events import Result
    from robocoach.robots.session.run import SessionRecord

RECORD, TABLE, PAGE = "record.json", "trials.csv", "session.html"
FAIL, INVALID = "#b4502e", "#8a7a3a"
COLOURS = {"success": WIN, "failure": FAIL, "invalid": INVALID, "": LINE}
SERIES = (WIN, "#3f6ea8")
STRIP_PICTURES, STRIP_PX = 6, 104


def parse_rate(text: str) -> Rate:
    """`45/50` as a rate. Raises UserError."""
    successes, _, n = text.partition("/")
    try:
        rate = Rate(int(successes), int(n))
        rate.ci95  # noqa: B018  refuses impossible counts
        if not rate.n:
            raise ValueError
    except ValueError:
        raise UserError(f"--sim-rate {text}: expected successes and rollouts such as 45/50") from None
    return rate


def simulated_rate(checkpoint: Path) -> str:
    """`45/50` from the score of the attempt that a checkpoint belongs to: held-out if it was run, else validation.

    Empty when the checkpoint lies in no attempt's folder.
    """
    for folder in list(checkpoint.resolve().parents)[:3]:
        path = folder / "score.json"
        if path.is_file():
            try:
                score = json.loads(path.read_text())
                counted = score.get("heldout") or score["validation"]
                return f"{int(counted['successes'])}/{int(counted['n'])}"
            except (ValueError, KeyError, TypeError, AttributeError):
                return ""
    return ""


def could_see(trials: int, checkpoints: int, reference: float) -> str:
    """What a session of this size can show at all, in a sentence; said before it begins and again after it."""
    if checkpoints > 1:
        best = power.detectable_difference(trials)
        if best is None:
            return f"{trials} pairs cannot show any difference at 5 % (exact McNemar): at least 6 are needed."
        apart = power.detectable_difference_independent(trials, 0.5)
        more = f", or {100 * apart:.0f} points around 50 % if outcomes on a scene are independent" if apart else ""
        return (
            f"{trials} pairs find a true difference of {100 * best:.0f} points with 80 % power at 5 % (exact McNemar) "
            f"if every disagreement goes one way{more}; anything smaller would probably be missed."
        )
    wide = max(high - low for low, high in (Rate(k, trials).ci95 for k in range(trials + 1)))
    text = f"{trials} trials leave an interval up to {100 * wide:.0f} points wide (95 %, Clopper–Pearson)"
    if not reference:
        return f"{text}."
    below, above = power.distinguishable_rates(trials, reference)
    ends = [
        f"{word} {100 * rate:.0f} %"
        for word, rate in (("at or below", below), ("at or above", above))
        if rate is not None
    ]
    told = f"true rates {' or '.join(ends)}" if ends else "no true rate"
    return f"{text}; with 80 % power they tell {told} from the reference of {100 * reference:.0f} %."


def summary(record: SessionRecord) -> dict[str, Any]:
    """The content of record.json."""
    plan, state = record.plan, record.state
    trials = [_row(record, result) for _, result in sorted(state.results.items())]
    status = "signed" if state.signatures else "closed" if state.closed else "open"
    times = [event.at for event in record.events]
    return {
        "format": 1,
        "status": status,
        "complete": record.complete,
        "task": plan.task,
        "instruction": plan.instruction,
        "success_criterion": plan.success,
        "stages": list(plan.stages),
        "time_limit_s": plan.time_limit_s,
        "robot": plan.robot,
        "serial": plan.serial,
        "operator": plan.operator,
        "verdicts_by": "operator" if plan.verdict == "ask" else "the task's predicate on the twin's state",
        "rules": list(plan.rules),
        "planned_scenes": len(plan.scenes),
        "distractors": len(plan.scenes[0].distractors),
        "blind": plan.blind,
        "checkpoints": [_checkpoint(record, label, trials) for label in plan.labels],
        "pairs": _pairs(record),
        "could_see": could_see(_judged_scenes(record), len(plan.labels), plan.reference),
        "control": _control(state.results.values()),
        "trials": trials,
        "invalid": [row["number"] for row in trials if row["verdict"] == "invalid"],
        "extra_trials": {"used": sum(row["replaces"] > 0 for row in trials), "allowed": plan.extra_trials},
        "verdicts_taken_back": state.undone,
        "notes": [{"at": at, "text": text} for at, text in state.notes],
        "signatures": [{"at": at, "name": name, "kind": kind} for at, name, kind in state.signatures],
        "code_version": plan.code_version,
        "plan_sha256": plan.digest,
        "events_sha256": record.head,
        "events": len(record.events),
        "planned_at": plan.made_at,
        "last_event_at": times[-1] if times else "",
        "settings": plan.settings,
    }


def _row(record: SessionRecord, result: Result) -> dict[str, Any]:
    plan, trial, verdict = record.plan, result.trial, result.verdict
    rollout = result.rollout or {}
    stage = verdict.stage if verdict else 0
    counts = record.counted.get((trial.scene, trial.label))
    video = record.video(result)
    return {
        "number": trial.number,
        "scene": trial.scene,
        "seed": plan.start(trial).seed,
        "label": trial.label,
        "checkpoint": record.state.names.get(trial.label),
        "replaces": trial.replaces,
        "started_at": result.started_at,
        "verdict": verdict.kind if verdict else "",
        "counts": counts is not None and counts.trial.number == trial.number,
        "stage": stage,
        "stage_name": plan.stages[stage - 1] if stage else "",
        "reason": verdict.reason if verdict else "awaits its verdict",
        "judged_by": verdict.by if verdict else "",
        "ended": rollout.get("reason", ""),
        "fault_of": rollout.get("fault_of", ""),
        "ticks": rollout.get("ticks", 0),
        "duration_s": round(rollout["ticks"] / rollout["rate_hz"], 1) if rollout.get("ticks") else 0.0,
        "rate_hz": rollout.get("rate_hz") if rollout.get("ticks") else None,
        "late_ticks": rollout.get("late_ticks", 0),
        "lateness_p99_ms": rollout.get("lateness_p99_ms"),
        "frame_age_p99_ms": rollout.get("frame_age_p99_ms"),
        "inference_ms": rollout.get("inference_ms"),
        "clamps": rollout.get("clamps", {}),
        "video": video.relative_to(record.folder).as_posix() if video else "",
    }


def _checkpoint(record: SessionRecord, label: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    plan = record.plan
    counted = [result for (_, who), result in record.counted.items() if who == label]
    verdicts = [result.verdict for result in counted if result.verdict is not None]
    rate = Rate(sum(verdict.kind == "success" for verdict in verdicts), len(verdicts))
    name = record.state.names.get(label) if plan.blind else label
    known = next((each for each in plan.contestants if each.name == name), None)
    simulated = plan.simulated.get(name or "", "")
    mine = [row for row in trials if row["label"] == label and row["verdict"] == "invalid"]
    faults = sum(row["fault_of"] == "policy" for row in mine)
    return {
        "label": label,
        "name": name,
        "sha256": known.digest if known else None,
        "source": known.source if known else None,
        **_counts(rate),
        "stages": {
            stage: sum(verdict.stage > index for verdict in verdicts) for index, stage in enumerate(plan.stages)
        },
        "invalid": len(mine),
        "policy_faults": faults,
        "if_policy_faults_failed": _counts(Rate(rate.successes, rate.n + faults)) if faults else None,
        "simulated": _against_simulation(rate, parse_rate(simulated)) if simulated else None,
    }


def _counts(rate: Rate) -> dict[str, Any]:
    return {"successes": rate.successes, "n": rate.n, "rate": rate.value, "ci95": list(rate.ci95)}


def _against_simulation(real: Rate, simulated: Rate) -> dict[str, Any]:
    """Two independent rates: Fisher's exact test, two-sided."""
    from scipy.stats import fisher_exact

    table = [
        [real.successes, real.n - real.successes],
        [simulated.successes, simulated.n - simulated.successes],
    ]
    p_value = float(fisher_exact(table).pvalue) if real.n else 1.0
    return {**_counts(simulated), "difference": real.value - simulated.value, "fisher_p": p_value}


def _both(record: SessionRecord) -> list[tuple[bool, bool]]:
    """Outcomes of the first and second label on every scene where both count."""
    if len(record.plan.labels) < 2:
        return []
    a, b = record.plan.labels
    counted = record.counted
    found = []
    for scene in range(1, len(record.plan.scenes) + 1):
        results = [counted.get((scene, label)) for label in (a, b)]
        verdicts = [result.verdict.kind for result in results if result is not None and result.verdict is not None]
        if len(verdicts) == 2:
            found.append((verdicts[0] == "success", verdicts[1] == "success"))
    return found


def _judged_scenes(record: SessionRecord) -> int:
    return len(_both(record)) if len(record.plan.labels) > 1 else len(record.counted)


def _pairs(record: SessionRecord) -> dict[str, Any] | None:
    if len(record.plan.labels) < 2:
        return None
    outcomes = _both(record)
    paired = pair([a for a, _ in outcomes], [b for _, b in outcomes])
    a, b = (sum(outcome[index] for outcome in outcomes) for index in (0, 1))
    return {
        "labels": list(record.plan.labels),
        "n": len(outcomes),
        "both": paired.both,
        "only_first": paired.only_a,
        "only_second": paired.only_b,
        "neither": paired.neither,
        "difference": (a - b) / len(outcomes) if outcomes else 0.0,
        "mcnemar_p": paired.p_value,
        "smallest_difference": power.detectable_difference(len(outcomes)),
    }


def _control(results: Any) -> dict[str, Any]:
    rollouts = [result.rollout for result in results if result.rollout and result.rollout["ticks"]]
    ticks = sum(rollout["ticks"] for rollout in rollouts)
    seconds = sum(rollout["ticks"] / rollout["rate_hz"] for rollout in rollouts)
    return {
        "rollouts": len(rollouts),
        "ticks": ticks,
        "rate_hz": round(ticks / seconds, 3) if ticks else None,
        "late_ticks": sum(rollout["late_ticks"] for rollout in rollouts),
        "lateness_p99_ms": max((rollout["lateness_p99_ms"] for rollout in rollouts), default=None),
        "clamped_ticks": sum(sum(rollout["clamps"].values()) for rollout in rollouts),
    }


def table(content: dict[str, Any]) -> str:
    """trials.csv: a line a trial, invalid ones included."""
    file = io.StringIO()
    names = [name for name in (content["trials"] or [{"number": 0}])[0] if name != "clamps"]
    writer = csv.DictWriter(file, [*names, "clamped_ticks"], lineterminator="\n")
    writer.writeheader()
    for row in content["trials"]:
        kept = {name: value for name, value in row.items() if name != "clamps"}
        writer.writerow({**kept, "clamped_ticks": sum(row["clamps"].values())})
    return file.getvalue()


def write(record: SessionRecord) -> dict[str, Any]:
    """Writes the three files into the session's folder and returns the summary."""
    content = summary(record)
    write_atomically(record.folder / TABLE, table(content))
    write_atomically(record.folder / PAGE, page(record, content))
    write_atomically(record.folder / RECORD, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return content


def line(content: dict[str, Any]) -> str:
    """The session in a sentence."""
    told = []
    for each in content["checkpoints"]:
        told.append(f"{each['name'] or each['label']} {Rate(each['successes'], each['n'])}")
    text = "; ".join(told)
    if content["pairs"] and content["pairs"]["n"]:
        text += f"; McNemar p = {content['pairs']['mcnemar_p']:.2g} on {content['pairs']['n']} pairs"
    if content["invalid"]:
        text += f"; {_many(len(content['invalid']), 'trial')} invalid"
    return text


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def page(record: SessionRecord, content: dict[str, Any]) -> str:
    """session.html: self-contained but for the videos, which it links beside it."""
    sections = (
        _rates(content),
        _comparison(content),
        _funnel(content),
        _map(record, content),
        _trials(record, content),
        _invalid(content),
        _conditions(record, content),
        _signature(content),
        _log(record),
    )
    robot = "the twin" if content["robot"] == "twin" else f"{content['robot'].upper()} {content['serial']}"
    when = content["planned_at"][:10]
    return Template(TEMPLATE.read_text()).substitute(
        title=escape(f"{content['task']} on {robot}, {when}"),
        kicker=escape(f"hardware evaluation session · {content['task']} · {robot} · {when} · {content['status']}"),
        sentence=escape(sentence(content, robot)),
        sections="\n".join(section for section in sections if section),
    )


def sentence(content: dict[str, Any], robot: str) -> str:
    """What the session found, for the head of the page."""
    told = []
    for each in content["checkpoints"]:
        rate = Rate(each["successes"], each["n"])
        name = each["name"] or each["label"]
        if not rate.n:
            told.append(f"{name} has no valid trial yet")
            continue
        low, high = rate.ci95
        told.append(
            f"{name} succeeded in {rate.successes} of {_many(rate.n, 'valid trial')} "
            f"({100 * rate.value:.0f} %, 95 % CI {100 * low:.0f}–{100 * high:.0f} %)"
        )
    text = f"On {robot}, {', and '.join(told)}"
    count = len(content["invalid"])
    if count:
        text += f"; {_many(count, 'trial')} {'was' if count == 1 else 'were'} invalid"
    if not content["complete"]:
        text += f"; the session {'ended' if content['status'] != 'open' else 'is'} short of its plan"
    return f"{text}."


def _section(title: str, note: str, body: str) -> str:
    lead = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{lead}{body}</section>"


def _percent(ci95: Sequence[float]) -> str:
    return f"{100 * ci95[0]:.0f}–{100 * ci95[1]:.0f} %"


def _rates(content: dict[str, Any]) -> str:
    rows = ""
    for each, colour in zip(content["checkpoints"], SERIES, strict=False):
        rows += _rate_row(_title(each), each, colour, strong=True)
        if simulated := each["simulated"]:
            rows += _rate_row("the same checkpoint in simulation", simulated, BASE, strong=False)
    head = '<tr><th></th><th class="number">successes</th><th class="number">rate</th>'
    head += '<th class="number">95 % interval</th><th>0 – 100 %</th></tr>'
    notes = [
        escape(content["success_criterion"]),
        f"Valid trials only; {_many(len(content['invalid']), 'invalid trial')} listed below. Exact intervals "
        "(Clopper–Pearson).",
        escape(content["could_see"]) if len(content["checkpoints"]) == 1 else "",
    ]
    for each in content["checkpoints"]:
        if harsh := each["if_policy_faults_failed"]:
            notes.append(
                f"{_many(each['policy_faults'], 'invalid trial')} of {escape(_title(each))} ended by a fault of the "
                f"policy itself; as failures they would make it {harsh['successes']} of {harsh['n']} "
                f"({_percent(harsh['ci95'])})."
            )
        if simulated := each["simulated"]:
            points = 100 * simulated["difference"]
            notes.append(
                f"Against simulation {escape(_title(each))} does {abs(points):.0f} points "
                f"{'worse' if points < 0 else 'better'} (Fisher's exact test, p = {simulated['fisher_p']:.2g})."
            )
    return _section("How often it works", " ".join(note for note in notes if note), f"<table>{head}{rows}</table>")


def _title(each: dict[str, Any]) -> str:
    name, label = each["name"], each["label"]
    return f"{name} (as {label})" if name and name != label else name or label


def _rate_row(title: str, counted: dict[str, Any], colour: str, *, strong: bool) -> str:
    rate = Rate(counted["successes"], counted["n"])
    return (
        f'<tr class="{"strong" if strong else ""}"><td>{escape(title)}</td>'
        f'<td class="number">{rate.successes} of {rate.n}</td>'
        f'<td class="number">{f"{100 * rate.value:.0f} %" if rate.n else "–"}</td>'
        f'<td class="number">{_percent(rate.ci95)}</td><td>{interval(rate.value, *rate.ci95, colour)}</td></tr>'
    )


def _comparison(content: dict[str, Any]) -> str:
    pairs = content["pairs"]
    if not pairs:
        return ""
    names = {each["label"]: _title(each) for each in content["checkpoints"]}
    first, second = (escape(names[label]) for label in pairs["labels"])
    body = (
        f"<table><tr><th></th><th>{second} succeeds</th><th>{second} fails</th></tr>"
        f"<tr><th>{first} succeeds</th><td>{pairs['both']}</td><td>{pairs['only_first']}</td></tr>"
        f"<tr><th>{first} fails</th><td>{pairs['only_second']}</td><td>{pairs['neither']}</td></tr></table>"
    )
    note = (
        f"{_many(pairs['n'], 'scene')} where both have a valid trial, each scene run by both in random order"
        f"{', under codes' if content['blind'] else ''}. Difference {100 * pairs['difference']:+.0f} points, exact "
        f"McNemar p = {pairs['mcnemar_p']:.2g}. {escape(content['could_see'])}"
    )
    return _section("Side by side", note, body)


def _funnel(content: dict[str, Any]) -> str:
    shown = [(each, colour) for each, colour in zip(content["checkpoints"], SERIES, strict=False) if each["n"]]
    if not shown:
        return ""
    rows = [
        Row(
            stage,
            tuple(each["stages"][stage] / each["n"] for each, _ in shown),
            tuple(f"{each['stages'][stage]} of {each['n']}" for each, _ in shown),
        )
        for stage in content["stages"]
    ]
    key = ""
    if len(shown) > 1:
        spans = "".join(f"<span><i style='background:{c}'></i>{escape(_title(each))}</span>" for each, c in shown)
        key = f'<p class="key">{spans}</p>'
    return _section("Where trials end", "Valid trials that got through each stage.", key + bars(rows, SERIES))


def _map(record: SessionRecord, content: dict[str, Any]) -> str:
    figures = ""
    for each in content["checkpoints"]:
        rows = [row for row in content["trials"] if row["label"] == each["label"] and row["counts"]]
        if rows:
            figures += f"<figure>{_table_svg(record, rows)}<figcaption>{escape(_title(each))}</figcaption></figure>"
    if not figures:
        return ""
    key = "".join(f"<span><i style='background:{COLOURS[kind]}'></i>{kind}</span>" for kind in ("success", "failure"))
    first, *others = (placed.name.replace("_", " ") for placed in record.plan.scenes[0].objects)
    told = f"{first} (filled)" + "".join(f", {other} (open)" for other in others)
    note = (
        f"The table from above, the robot below, 5 cm a square: {escape(told)} at the start, with the trial's number."
    )
    return _section("Where it works", note, f'<p class="key">{key}</p><div class="maps">{figures}</div>')


def _table_svg(record: SessionRecord, rows: Sequence[dict[str, Any]]) -> str:
    low_x, high_x, half_y, scale = 0.30, 0.58, 0.24, 900
    width, height = 2 * half_y * scale, (high_x - low_x) * scale

    def place(x_m: float, y_m: float) -> tuple[float, float]:
        return (half_y - y_m) * scale, (high_x - x_m) * scale

    parts = []
    for step in range(round((high_x - low_x) / 0.05) + 1):
        _, y = place(low_x + 0.05 * step, 0)
        parts.append(f'<line x1="0" x2="{width:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>')
    for step in range(-4, 5):
        x, _ = place(0, 0.05 * step)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height:.0f}" stroke="{LINE}"/>')
    for row in rows:
        objects = record.plan.scenes[row["scene"] - 1].objects
        colour = COLOURS[row["verdict"]]
        x, y = place(objects[0].x_m, objects[0].y_m)
        for other in objects[1:]:
            to_x, to_y = place(other.x_m, other.y_m)
            parts.append(
                f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}" opacity=".35"/>'
                f'<circle cx="{to_x:.1f}" cy="{to_y:.1f}" r="6" fill="white" stroke="{colour}" stroke-width="2"/>'
            )
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="10" fill="{colour}"/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" style="fill:white;font-size:11px">'
            f"{row['number']}</text>"
        )
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">{"".join(parts)}</svg>'


def _trials(record: SessionRecord, content: dict[str, Any]) -> str:
    names = {each["label"]: _title(each) for each in content["checkpoints"]}
    rows = ""
    for row in content["trials"]:
        result = record.state.results[row["number"]]
        pictures = strip(record.video(result))
        film = f'<img class="strip" alt="trial {row["number"]}" src="{pictures}">' if pictures else ""
        if row["video"]:
            film = f'<a href="{escape(row["video"])}">{film or "video"}</a>'
        how = row["reason"] or (row["ended"] if row["ended"] != row["verdict"] else "")
        if row["verdict"] == "failure":
            how = f"{'through ' + row['stage_name'] if row['stage'] else 'reached nothing'}; {how}"
        again = f"<br><small>again for {row['replaces']}</small>" if row["replaces"] else ""
        unused = "" if row["counts"] or row["verdict"] in ("", "invalid") else "; not counted, an earlier one counts"
        rate = f"{row['rate_hz']:.2f} Hz<br>" if row["rate_hz"] else ""
        rows += (
            f'<tr><td class="number">{row["number"]}{again}</td><td>{row["scene"]}</td>'
            f"<td>{escape(names[row['label']])}</td>"
            f'<td><b style="color:{COLOURS[row["verdict"]]}">{row["verdict"] or "open"}</b><br>'
            f"<small>{escape(how + unused)}</small></td>"
            f'<td class="number">{row["duration_s"]:.1f} s<br><small>{rate}</small></td><td>{film}</td></tr>'
        )
    if not rows:
        return ""
    head = "<tr><th>trial</th><th>scene</th><th>checkpoint</th><th>verdict</th><th></th><th>wrist camera</th></tr>"
    note = "In the order in which they ran. The pictures lead to the videos, which lie beside this page."
    return _section("Every trial", note, f'<table class="trials">{head}{rows}</table>')


def strip(path: Path | None) -> str:
    """A row of small pictures of a video, from its start to its end, as a data address; empty without a video."""
    if path is None:
        return ""
    import numpy as np
    from PIL import Image

    from robocoach.datasets import video

    frames = list(video.decode(path, STRIP_PX))
    if not frames:
        return ""
    chosen = np.linspace(0, len(frames) - 1, STRIP_PICTURES).round().astype(int)
    file = io.BytesIO()
    Image.fromarray(np.hstack([frames[index] for index in chosen])).save(file, "jpeg", quality=72)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def _invalid(content: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><td class="number">{row["number"]}</td><td>{row["scene"]}</td><td>{escape(row["label"])}</td>'
        f"<td>{escape(row['reason'])}</td><td>{escape(row['judged_by'])}</td></tr>"
        for row in content["trials"]
        if row["verdict"] == "invalid"
    )
    if not rows:
        return _section("Invalid trials", "None.", "")
    used, allowed = content["extra_trials"]["used"], content["extra_trials"]["allowed"]
    note = f"They are not counted, and stay here. {used} of {allowed} extra trials used."
    head = "<tr><th>trial</th><th>scene</th><th>checkpoint</th><th>reason</th><th>by</th></tr>"
    return _section("Invalid trials", note, f"<table>{head}{rows}</table>")


def _conditions(record: SessionRecord, content: dict[str, Any]) -> str:
    control = content["control"]
    rate = "–"
    if control["rate_hz"]:
        rate = (
            f"{control['rate_hz']:.2f} Hz over {control['ticks']} ticks, {control['late_ticks']} later than 10 ms "
            f"(worst p99 {control['lateness_p99_ms']:.1f} ms); {_many(control['clamped_ticks'], 'clamp')} by the "
            "safety envelope"
        )
    hashes = "<br>".join(f"{escape(_title(each))}: {_hash(each)}" for each in content["checkpoints"])
    rows = [
        ("Robot", escape(f"{content['robot']}, serial {content['serial'] or 'not given'}")),
        ("Operator", escape(content["operator"] or "none: automatic")),
        ("Verdicts", escape(content["verdicts_by"])),
        ("Instruction", escape(content["instruction"])),
        ("Time limit", f"{content['time_limit_s']:.0f} s"),
        ("Scenes", f"{content['planned_scenes']} seeded placements, {content['distractors']} distractors each"),
        ("Control loop", rate),
        ("Checkpoints (SHA-256)", hashes),
        ("Program", escape(content["code_version"])),
        ("Plan (SHA-256)", f"<code>{content['plan_sha256']}</code><br>frozen {escape(content['planned_at'])}"),
        ("Event log (SHA-256)", f"<code>{content['events_sha256']}</code><br>{content['events']} events"),
    ]
    body = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows)
    rules = "".join(f"<li>{escape(rule)}</li>" for rule in content["rules"])
    settings = escape(json.dumps(content["settings"], indent=1))
    return _section(
        "Conditions, fixed beforehand",
        "",
        f'<table class="facts">{body}</table><h3>Rules</h3><ul>{rules}</ul>'
        f"<details><summary>Settings of loop and safety envelope</summary><pre>{settings}</pre></details>",
    )


def _hash(each: dict[str, Any]) -> str:
    if each["sha256"]:
        return f"<code>{each['sha256']}</code>"
    return "told when the session is closed" if each["sha256"] is None else escape(each["source"])


def _signature(content: dict[str, Any]) -> str:
    if not content["signatures"]:
        return _section(
            "Signature", f"Not signed. Session {escape(content['status'])}.", '<div class="sign"><span></span></div>'
        )
    signed = "".join(
        f'<div class="sign"><b>{escape(each["name"])}</b><span>{each["kind"]} {escape(each["at"])}</span></div>'
        for each in content["signatures"]
    )
    note = "A typed name under the plan, the events and the counts of this page; nothing but notes came after it."
    return _section("Signature", note, signed)


def _log(record: SessionRecord) -> str:
    rows = ""
    for event in record.events:
        told = {key: value for key, value in event.data.items() if key != "rollout"}
        text = ", ".join(f"{key} {value}" for key, value in told.items() if value not in ("", 0, []))
        rows += f"<tr><td>{escape(event.at)}</td><td>{event.kind}</td><td>{escape(text)}</td></tr>"
    return _section(
        "Event log", "", f"<details><summary>{len(record.events)} events</summary><table>{rows}</table></details>"
    )
