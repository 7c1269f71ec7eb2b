"""`report.html`: one self-contained page on a run, for a lab operator; made from result.json and the run's folder.

First what happened in a sentence, then every rate with its n and interval, the stage funnel, the attempts and why,
curves, films, the two simulators' view of one pose, and what is needed to repeat it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from robocoach.agent_loop.evidence import read_curve
from robocoach.agent_loop.statistics import Rate
from robocoach.pipelines.charts import BASE, WIN, Row, Series, bars, curves, interval
from robocoach.pipelines.console import clock

TEMPLATE = Path(__file__).parent / "report_template.html"
FILM_BUDGET_BYTES = 17_000_000
"""Films are embedded until this much is used; base64 adds a third."""
COLOURS = (BASE, WIN)


def page(result: dict[str, Any], folder: Path) -> str:
    """The whole page. `result` is the content of result.json, `folder` the run it belongs to."""
    sections = (
        _rates(result),
        _funnel(result),
        _attempts(result),
        _training(result, folder),
        _films(result, folder),
        _poses(folder),
        _times(result),
        _repeat(result, folder),
    )
    return Template(TEMPLATE.read_text()).substitute(
        title=escape(f"{result['task']}: {_rate(result['heldout'])}"),
        kicker=escape(f"pipeline sim2real · task {result['task']} · seed {result['seed']} · {folder.name}"),
        sentence=escape(sentence(result)),
        sections="\n".join(section for section in sections if section),
    )


def sentence(result: dict[str, Any]) -> str:
    """What happened, in one sentence."""
    held, twin = result["heldout"], result["deploy"]
    kept = "the first attempt" if result["winner"] == 0 else "the coach's second attempt"
    if len(result["attempts"]) == 1:
        kept = "the one attempt"
    text = (
        f"From nothing to a deployed policy in {_duration(result['wall_s'])}: {kept} was kept and solves "
        f"{held['successes']} of {held['n']} held-out scenes in Genesis "
        f"({_percent(held['success_rate'])}, 95 % CI {_span(held['ci95'])})"
    )
    counted = twin["rollouts"] - twin["invalid"]
    if counted:
        text += f", and {twin['successes']} of {counted} through the real franky client on {_robot(twin['robot'])}"
    elif twin["rollouts"]:
        text += f"; no rollout on {_robot(twin['robot'])} could be judged"
    return text + "."


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"


def _robot(name: str) -> str:
    return "the twin" if name == "twin" else name.upper()


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _span(ci95: Sequence[float]) -> str:
    return f"{100 * ci95[0]:.0f}–{100 * ci95[1]:.0f} %"


def _rate(counted: dict[str, Any]) -> str:
    return str(Rate(counted["successes"], counted["n"]))


def _section(title: str, note: str, body: str) -> str:
    lead = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{lead}{body}</section>"


def _rates(result: dict[str, Any]) -> str:
    winner = result["winner"]
    rows = [(f"Held-out scenes, attempt {winner} (kept)", result["heldout"], WIN, True)]
    if winner:
        rows.append(("Held-out scenes, attempt 0, same seeds", result["heldout_base"], BASE, False))
    rows.append((f"Validation scenes, attempt {winner}", result["validation"], BASE, False))
    twin = result["deploy"]
    counted = twin["rollouts"] - twin["invalid"]
    place = f"{_robot(twin['robot'])[0].upper()}{_robot(twin['robot'])[1:]}"
    deployed = {"successes": twin["successes"], "n": counted}
    if counted:
        rows.append((f"{place} through franky, the kept policy", deployed, WIN, True))
    proof = result["twin_demonstrator"]
    if proof["n"]:
        rows.append((f"{place} through franky, scripted demonstrator", proof, BASE, False))
    body = "".join(
        f'<tr class="{"strong" if strong else ""}"><td>{escape(name)}</td>'
        f'<td class="number">{counted["successes"]} of {counted["n"]}</td>'
        f'<td class="number">{_percent(rate.value)}</td><td class="number">{_span(rate.ci95)}</td>'
        f"<td>{interval(rate.value, *rate.ci95, colour)}</td></tr>"
        for name, counted, colour, strong in rows
        for rate in [Rate(counted["successes"], counted["n"])]
    )
    head = '<tr><th></th><th class="number">successes</th><th class="number">rate</th>'
    head += '<th class="number">95 % interval</th><th>0 – 100 %</th></tr>'
    note = (
        "Success is the simulator's own predicate and must hold at the end. Held-out seeds ran once, after the choice "
        "was made; intervals are exact (Clopper–Pearson)."
    )
    if winner:
        paired = result["heldout_paired"]
        note += (
            f" On the same {result['heldout']['n']} held-out scenes only the kept attempt solved "
            f"{paired['only_winner']}, only attempt 0 solved {paired['only_base']} "
            f"(exact McNemar p = {paired['mcnemar_p']:.2g})."
        )
    return _section("How often it works", note, f"<table>{head}{body}</table>{_loop(twin, proof)}")


def _loop(twin: dict[str, Any], proof: dict[str, Any]) -> str:
    facts = []
    if twin.get("rate_hz") is not None:
        facts.append(f"control loop {twin['rate_hz']:.2f} Hz")
    if twin.get("late_ticks_share") is not None:
        facts.append(f"{100 * twin['late_ticks_share']:.2f} % of ticks later than 10 ms")
    if twin["invalid"]:
        facts.append(f"{twin['invalid']} of {twin['rollouts']} rollouts invalid and not counted")
    facts.append(f"client {twin['client']}")
    text = f"Deployment: {', '.join(facts)}."
    if proof["n"] and not proof.get("proven", True):
        text += " The scripted demonstrator did not prove the twin, so the policy's rate there says little."
    return f'<p class="note" style="margin:14px 0 0">{escape(text)}</p>'


def _funnel(result: dict[str, Any]) -> str:
    kept, base = result["heldout"], result["heldout_base"]
    series = [kept] if result["winner"] == 0 else [base, kept]
    colours = [WIN] if result["winner"] == 0 else [BASE, WIN]
    rows = [
        Row(
            name,
            tuple(one["stages"][name] / one["n"] for one in series),
            tuple(f"{one['stages'][name]} of {one['n']}" for one in series),
        )
        for name in kept["stages"]
    ]
    key = ""
    if len(series) > 1:
        key = _key([("attempt 0", BASE), (f"attempt {result['winner']} (kept)", WIN)])
    return _section("Where rollouts end", "Held-out rollouts that got through each stage.", key + bars(rows, colours))


def _key(entries: Sequence[tuple[str, str]]) -> str:
    return (
        f'<p class="key">{"".join(f"<span><i style='background:{c}'></i>{escape(n)}</span>" for n, c in entries)}</p>'
    )


def _attempts(result: dict[str, Any]) -> str:
    head = "<tr><th>attempt</th><th>change and reason</th>" + "".join(
        f'<th class="number">{name}</th>' for name in ("train seeds", "validation", "steps", "loss")
    )
    rows = ""
    for made in result["attempts"]:
        change = ", ".join(f"{key} → {_value(value)}" for key, value in made["change"].items())
        why = f"<code>{escape(change)}</code><br>" if change else ""
        kept = "<br>kept" if made["kept"] else "<br>not kept"
        training = made["training"]
        loss = training.get("loss")
        rows += (
            f'<tr class="{"strong" if made["kept"] else ""}"><td>{made["number"]}{kept}</td>'
            f'<td class="prose">{why}{escape(made["rationale"])}</td>'
            f'<td class="number">{made["train"]["successes"]} of {made["train"]["n"]}</td>'
            f'<td class="number">{made["validation"]["successes"]} of {made["validation"]["n"]}</td>'
            f'<td class="number">{training.get("steps", "")}</td>'
            f'<td class="number">{"" if loss is None else f"{loss:.4f}"}</td></tr>'
        )
    note = (
        "The coach reads rollouts on train seeds, curves and log only; the choice is made on validation seeds. "
        f"{escape(result['selection'][0].upper() + result['selection'][1:])}."
    )
    return _section("What was tried", note, f"<table>{head}</tr>{rows}</table>")


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _training(result: dict[str, Any], folder: Path) -> str:
    series, key = [], []
    for made, colour in zip(result["attempts"], (BASE, WIN) if len(result["attempts"]) > 1 else (WIN,), strict=False):
        path = folder / "attempts" / f"{made['number']:04d}" / "metrics.jsonl"
        points = [(point.seconds / 60, point.loss) for point in read_curve(path)]
        series.append(Series(f"attempt {made['number']}", tuple(thin(points)), colour))
        kept_apart = kept_apart_curve(path)
        series.append(Series(f"attempt {made['number']}, kept apart", tuple(kept_apart), colour, dashed=True))
        key.append((f"attempt {made['number']}", colour))
    note = "Flow loss in training (solid) and on episodes kept apart (dashed). Rollouts decide, not the loss."
    return _section("Training", note, _key(key) + curves(series, "training time [min]", "loss"))


def kept_apart_curve(path: Path) -> list[tuple[float, float]]:
    """(minutes of training, loss on episodes kept apart) from a `metrics.jsonl`; empty when there is none."""
    points = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "validation_loss" in row:
            points.append((row["elapsed_s"] / 60, row["validation_loss"]))
    return points


def thin(points: list[tuple[float, float]], most: int = 160) -> list[tuple[float, float]]:
    """Means of neighbouring points, so that a long curve stays readable."""
    size = max(1, math.ceil(len(points) / most))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _films(result: dict[str, Any], folder: Path) -> str:
    left, rows, dropped = FILM_BUDGET_BYTES, "", 0
    winner = folder / "attempts" / f"{result['winner']:04d}" / "rollouts" / "train"
    for title, place in (("Genesis, train seed", winner), ("Twin, seed", folder / "deploy" / "policy")):
        figures = ""
        for record in _filmed(place):
            files = [place / record[key] for key in ("video", "side_video") if record.get(key)]
            size = sum(file.stat().st_size for file in files)
            if size > left:
                dropped += 1
                continue
            left -= size
            figures += _film(title, record, files, list(result["heldout"]["stages"]))
        rows += f'<div class="films{"" if place == winner else " narrow"}">{figures}</div>' if figures else ""
    if not rows:
        return ""
    note = "Wrist camera as the policy sees it, and a side view. Filmed rollouts are the first ones, not the best ones."
    if dropped:
        note += f" {dropped} more lie in the run's folder; they would make this page too large."
    return _section("Rollouts", note, rows)


def _filmed(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        if isinstance(record, dict) and record.get("video") and (folder / record["video"]).is_file():
            found.append(record)
    return found


def _film(title: str, record: dict[str, Any], files: Sequence[Path], stages: Sequence[str]) -> str:
    videos = "".join(
        f'<video controls muted loop playsinline preload="metadata" src="{_data(file, "video/mp4")}"></video>'
        for file in files
    )
    verdict = record.get("verdict") or ("success" if record["success"] else "failure")
    stage = record["stage"]
    reached = f"got through {stages[stage - 1]}" if stage else "reached nothing"
    how = "" if verdict == "success" else f", {reached}"
    if verdict != "success" and record.get("reason"):
        how += f" ({escape(record['reason'])})"
    layout = "film" if len(files) > 1 else ""
    return (
        f'<figure><div class="{layout}">{videos}</div><figcaption>{title} {record["seed"]}: '
        f'<b class="{verdict}">{verdict}</b>{how}, {record["ticks"] / 10:.1f} s</figcaption></figure>'
    )


def _data(path: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _poses(folder: Path) -> str:
    shown = [(name, folder / "poses" / f"{name}.png") for name in ("genesis", "twin")]
    if not all(path.is_file() for _, path in shown):
        return ""
    names = {"genesis": "Genesis, where it learned", "twin": "Twin (MuJoCo), where it was deployed"}
    figures = "".join(
        f'<figure><img alt="{name}" src="{_data(path, "image/png")}"><figcaption>{names[name]}</figcaption></figure>'
        for name, path in shown
    )
    note = "The wrist camera's image of the same scene and joints in both simulators: the gap the policy has to cross."
    return _section("One pose, two simulators", note, f'<div class="poses">{figures}</div>')


def _times(result: dict[str, Any]) -> str:
    longest = max(result["stages"].values(), default=1.0) or 1.0
    rows = [Row(name, (seconds / longest,), (clock(seconds),)) for name, seconds in result["stages"].items()]
    note = f"{clock(result['wall_s'])} in all."
    return _section("Where the time went", note, bars(rows, [WIN]))


def _repeat(result: dict[str, Any], folder: Path) -> str:
    config = (folder / "config.yaml").read_text() if (folder / "config.yaml").is_file() else ""
    versions = "".join(f"<tr><td>{escape(n)}</td><td>{escape(v)}</td></tr>" for n, v in result["versions"].items())
    body = (
        f"<pre>{escape(result['command'])}</pre>"
        f"<details><summary>Settings</summary><pre>{escape(config)}</pre></details>"
        f"<details><summary>Versions</summary><table>{versions}</table></details>"
    )
    note = (
        f"Seed {result['seed']} fixes every scene; training ends by the clock, so another machine gets other weights."
    )
    return _section("Repeat it", note, body)
