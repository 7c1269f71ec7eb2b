"""`report.html` of a campaign: the tree, success by attempt, and each attempt with its change, curve, film and report.

Opens from the file system. Films and contact sheets stay in the campaign's folder and are linked relative to it, so
that the page stays small with 50 attempts. A missing file leaves its place empty; every text is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from robocoach.agent_loop.evidence import read_curve
from robocoach.agent_loop.statistics import Rate
from robocoach.pipelines import campaign_drawing as drawing
from robocoach.pipelines import campaign_text as words
from robocoach.pipelines.charts import BASE, WIN, Row, Series, bars, curves, interval
from robocoach.pipelines.report import TEMPLATE as HOUSE
from robocoach.pipelines.report import kept_apart_curve, thin

TEMPLATE = Path(__file__).parent / "campaign_template.html"
SHEETS_SHOWN = 6
REPORT_MOST = 40_000
"""Characters of a feedback.md on the page; the file is linked."""
Attempt = Mapping[str, Any]
Content = Mapping[str, Any]


def page(content: Content, folder: Path) -> str:
    """The whole page, to be written into `folder`, the campaign's own. `content` is that of `summary.content`."""
    parts = words.headline_parts(content)
    sections = (
        _warnings(content),
        _tree(content),
        _success(content),
        _heldout(content),
        _budget(content),
        _table(content),
        _attempts(content, folder),
        _events(content),
    )
    return Template(TEMPLATE.read_text()).substitute(
        title=escape(f"{content['task']}: campaign of {len(content['attempts'])} attempts"),
        style=_house_style(),
        kicker=escape(
            f"pipeline campaign · task {content['task']} · seed {content['seed']} · coach {content['coach']} · "
            f"{folder.name} · {_state(content)}"
        ),
        sentence=_kept_together(parts[0]) + ".",
        lede=_kept_together(_sentence(parts[1:])),
        sections="\n".join(section for section in sections if section),
    )


def _state(content: Content) -> str:
    """What a page can say that is written once an attempt: what is going on now is for `pipeline campaign status`."""
    return "running when this page was written" if content["state"] == "running" else words.now_words(content)


def _sentence(parts: Sequence[str]) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _kept_together(text: str) -> str:
    """Escaped, with the percent sign held to its number."""
    return escape(text).replace(" %", "&nbsp;%")


def _house_style() -> str:
    """The style sheet that the other reports have."""
    return HOUSE.read_text().partition("<style>")[2].partition("</style>")[0].strip()


def _section(title: str, note: str, body: str) -> str:
    lead = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{lead}{body}</section>"


def _warnings(content: Content) -> str:
    told = "".join(f"<li>{escape(warning)}</li>" for warning in content["warnings"])
    return _section("Warnings", "", f"<ul>{told}</ul>") if told else ""


def _tree(content: Content) -> str:
    if not content["attempts"]:
        return _section("The tree of attempts", "No attempt yet.", "")
    note = (
        "Each box is an attempt; above it what it changed of its parent, computed from the two configurations. The bar "
        "is its validation success with the 95 % interval. A dashed edge began with attempt 0's first weights instead "
        "of its parent's."
    )
    drawn = drawing.tree(content["attempts"], content["best"], content["incumbent"])
    return _section("The tree of attempts", note, f'<div class="scroll tall">{drawn}</div>')


def _success(content: Content) -> str:
    if not content["attempts"]:
        return ""
    key = (
        '<p class="key"><span style="color:var(--train)"><i class="dot" style="background:currentColor"></i>'
        'train seeds</span><span style="color:var(--win)"><i class="dot" style="background:currentColor"></i>'
        'validation</span><span style="color:var(--win)"><i class="dot"></i>validation ended early</span>'
        '<span style="color:var(--win)"><i style="border-top:3px dotted;height:0"></i>best validation so far</span>'
        '<span class="bad-word">✗ failed or rejected</span></p>'
    )
    note = (
        "The coach sees train seeds only; the choice is made on validation seeds. Intervals are exact 95 % ones "
        "(Clopper–Pearson). Validation ends early once an attempt can hardly become the best: "
        "a hollow point has fewer rollouts."
    )
    return _section(
        "Success by attempt", note, f'{key}<div class="scroll">{drawing.success(content["attempts"])}</div>'
    )


def _heldout(content: Content) -> str:
    confirm = content["confirm"]
    if confirm is None:
        told = words.picked_words(content)
        return _section("Held-out scenes", escape(f"Not run yet. {told}"), "") if told else ""
    winner = confirm["winner"]
    kept = "the best" if winner == content["best"] else "the best when it was confirmed"
    rows = [(f"attempt {winner}, {kept}", confirm["heldout"], WIN)]
    note = "Scenes that nothing had run before the choice was made."
    if winner:
        rows.append(("attempt 0, same scenes", confirm["heldout_base"], BASE))
        verdict = (
            "The two differ by more than chance."
            if confirm["mcnemar_p"] < words.SIGNIFICANT
            else "The difference may be chance."
        )
        note += (
            f" Only attempt {winner} solved {confirm['only_winner']}, only attempt 0 solved {confirm['only_base']}: "
            f"exact McNemar p = {confirm['mcnemar_p']:.2g}. {verdict}"
        )
    body = "".join(_rate_row(name, counted, colour) for name, counted, colour in rows)
    head = (
        '<tr><th></th><th class="number">successes</th><th class="number">rate</th>'
        '<th class="number">95 % interval</th><th>0 – 100 %</th></tr>'
    )
    return _section("Held-out scenes", note, f'<div class="scroll"><table>{head}{body}</table></div>')


def _rate_row(name: str, counted: Mapping[str, Any], colour: str) -> str:
    rate = Rate(counted["successes"], counted["n"])
    low, high = rate.ci95
    return (
        f'<tr><td>{escape(name)}</td><td class="number">{rate.successes} of {rate.n}</td>'
        f'<td class="number">{100 * rate.value:.0f} %</td><td class="number">{100 * low:.0f}–{100 * high:.0f} %</td>'
        f"<td>{interval(rate.value, low, high, colour)}</td></tr>"
    )


def _budget(content: Content) -> str:
    told = [
        ("instruction", content.get("instruction") or ""),
        *words.budget_words(content),
        ("state", _state(content)),
    ]
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in told if text)
    best = content["best"]
    if best:
        way = " → ".join(str(number) for number in words.lineage(content["attempts"], best))
        rows += f"<tr><th>the best came by</th><td>{way}</td></tr>"
        whole = "".join(
            f"<div><code>{escape(key)}: {escape(json.dumps(old))} → {escape(json.dumps(new))}</code></div>"
            for key, (old, new) in words.whole_change(content, best).items()
        )
        rows += f"<tr><th>it differs from attempt 0</th><td>{whole or 'in nothing'}</td></tr>"
    return _section("Budget and state", "", f'<table class="facts">{rows}</table>')


def _table(content: Content) -> str:
    head = "".join(
        f"<th{' class="number"' if number else ''}>{name}</th>"
        for name, number in (
            ("attempt", False),
            ("parent", True),
            ("move", False),
            ("change", False),
            ("train", True),
            ("validation", True),
            ("95 %", True),
            ("loss", True),
            ("time", True),
        )
    )
    rows = "".join(_table_row(attempt, content["best"]) for attempt in content["attempts"])
    if not rows:
        return ""
    early = any(attempt["validation"] and attempt["validation"]["stopped"] for attempt in content["attempts"])
    note = "* validation ended early: the attempt could hardly become the best any more." if early else ""
    return _section(
        "All attempts", note, f'<div class="scroll"><table class="attempts"><tr>{head}</tr>{rows}</table></div>'
    )


def _table_row(attempt: Attempt, best: int | None) -> str:
    number, kind = attempt["number"], drawing.kind_of(attempt, best)
    train, validation = attempt["train"], attempt["validation"]
    loss = (attempt["training"] or {}).get("loss")
    spent = sum(value for name, value in attempt["seconds"].items() if name in ("preflight", "training", "evaluating"))
    span = ""
    if validation is not None and attempt["state"] != "failed":
        low, high = validation["ci95"]
        span = f"{100 * low:.0f}–{100 * high:.0f} %" + (" *" if validation["stopped"] else "")
    told = [f"<code>{escape(line)}</code>" for line in words.exact_change(attempt)]
    if attempt["reason"]:
        told.append(f'<span class="{_word_class(kind)}">{escape(attempt["reason"])}</span>')
    return (
        f'<tr class="{kind}"><td><a href="#attempt-{number}">{number}</a> {words.mark(attempt, best)} '
        f'{escape(words.outcome(attempt))}</td><td class="number">{"" if number == 0 else attempt["parent"]}</td>'
        f'<td>{escape(attempt["move"])}</td><td class="prose">{"<br>".join(told)}</td>'
        f'<td class="number">{_counted(train)}</td><td class="number">{_counted(validation)}</td>'
        f'<td class="number">{span}</td>'
        f'<td class="number">{f"{loss:.4f}" if isinstance(loss, int | float) else ""}</td>'
        f'<td class="number">{words.clock(spent) if spent else ""}</td></tr>'
    )


def _word_class(kind: str) -> str:
    return {"bad": "bad-word", "reverted": "reverted-word"}.get(kind, "")


def _counted(counted: Mapping[str, Any] | None) -> str:
    return "" if counted is None else f"{counted['successes']} of {counted['n']}"


# --- one attempt -----------------------------------------------------------------------------------------------------


def _attempts(content: Content, folder: Path) -> str:
    note = "Films and pictures are loaded from the campaign's folder when an attempt is opened."
    body = "".join(_attempt(content, attempt, folder) for attempt in content["attempts"])
    return _section("Attempt by attempt", note, body) if body else ""


def _attempt(content: Content, attempt: Attempt, folder: Path) -> str:
    number, best = attempt["number"], content["best"]
    kind = drawing.kind_of(attempt, best)
    short = words.change_words(attempt) or "the configuration as given"
    if attempt["state"] == "rejected":
        short = "its proposal was refused"
    state = f"{words.mark(attempt, best)} {words.outcome_words(attempt, content)}".strip()
    word = "best-word" if kind == "best" else _word_class(kind)
    return (
        f'<details class="attempt" id="attempt-{number}"><summary><b>Attempt {number}</b> '
        f'<span class="{word}">{escape(state)}</span><small>{escape(short)}</small></summary>'
        f"{_facts(content, attempt)}{_account(attempt)}{_funnel(content, attempt)}"
        f"{_curve(attempt, folder)}{_media(attempt, folder)}"
        f"{_report(attempt, folder)}{_files(attempt, folder)}</details>"
    )


def _facts(content: Content, attempt: Attempt) -> str:
    rows = ""
    if attempt["parent"] is not None:
        parent = attempt["parent"]
        rows += f'<tr><th>parent</th><td><a href="#attempt-{parent}">{parent}</a>, {escape(attempt["move"])}</td></tr>'
    changed = "".join(f"<div><code>{escape(line)}</code></div>" for line in words.exact_change(attempt))
    rows += f"<tr><th>change, computed</th><td>{changed or 'none'}</td></tr>" if attempt["number"] else ""
    for name, text in (
        *words.results(attempt),
        ("reason", attempt["reason"]),
        ("training", words.training_words(attempt)),
        ("time", words.seconds_words(attempt["seconds"])),
        ("proposal cost", f"{attempt['cost_usd']:.3f} USD" if attempt["cost_usd"] else ""),
    ):
        rows += f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" if text else ""
    return f'<table class="facts">{rows}</table>'


def _account(attempt: Attempt) -> str:
    if not attempt["rationale"] or attempt["parent"] is None:
        return ""
    return (
        f'<p class="own"><b>The coach\'s own account, unverified ({escape(attempt["coach"] or "unnamed")})</b>'
        f"{escape(words.account_words(attempt))}</p>"
    )


def _funnel(content: Content, attempt: Attempt) -> str:
    """How many train-seed rollouts got through each stage."""
    reached, batch = attempt["stages"], attempt["train"]
    if not reached or batch is None or not batch["n"]:
        return ""
    n = batch["n"]
    names = [name for name in content["stages"] if name in reached]
    rows = [Row(escape(name), (reached[name] / n,), (f"{reached[name]} of {n}",)) for name in names]
    drawn = bars(rows, [WIN], width=480, name_width=110)
    note = "Rollouts on train seeds that got through each stage."
    return f'<h3>Where rollouts end</h3><p class="note">{note}</p><div class="fit">{drawn}</div>'


def _curve(attempt: Attempt, folder: Path) -> str:
    path = folder / attempt["folder"] / "metrics.jsonl"
    points = _quiet(lambda: [(point.seconds / 60, point.loss) for point in read_curve(path)], [])
    if not points:
        return ""
    apart = _quiet(lambda: kept_apart_curve(path), [])
    series = [Series("loss", tuple(thin(points)), WIN), Series("kept apart", tuple(apart), WIN, dashed=True)]
    drawn = curves(series, "training time [min]", "loss", width=520, height=230)
    note = "Loss in training (solid) and on episodes kept apart (dashed)."
    return f'<h3>Training</h3><p class="note">{note}</p><div class="fit">{drawn}</div>'


def _media(attempt: Attempt, folder: Path) -> str:
    place = folder / attempt["folder"] / "rollouts" / "train"
    films = "".join(_film(path, record, folder) for path, record in _representatives(place))
    sheets = sorted(place.glob("*-sheet.png"))[:SHEETS_SHOWN]
    pictures = "".join(_sheet(path, folder) for path in sheets)
    if not films and not pictures:
        return ""
    return f'<h3>Rollouts on train seeds</h3><div class="media">{films}</div><div class="sheets">{pictures}</div>'


def _representatives(place: Path) -> list[tuple[Path, Mapping[str, Any]]]:
    """The first filmed failure and the first filmed success, as many as there are."""
    found: dict[bool, tuple[Path, Mapping[str, Any]]] = {}
    for path in sorted(place.glob("*-wrist.mp4")):
        record = _record(place / f"{path.name.removesuffix('-wrist.mp4')}.json")
        found.setdefault(bool(record.get("success")), (path, record))
    return [found[solved] for solved in (False, True) if solved in found]


def _film(path: Path, record: Mapping[str, Any], folder: Path) -> str:
    return (
        f'<figure><video controls muted loop playsinline preload="none" src="{_address(path, folder)}"></video>'
        f"<figcaption>{escape(_told(record, path))}</figcaption></figure>"
    )


def _sheet(path: Path, folder: Path) -> str:
    told = _told(_record(path.with_name(f"{path.name.removesuffix('-sheet.png')}.json")), path)
    return (
        f'<figure><img loading="lazy" alt="contact sheet" src="{_address(path, folder)}">'
        f"<figcaption>{escape(told)}</figcaption></figure>"
    )


def _told(record: Mapping[str, Any], path: Path) -> str:
    """`seed 7: failure, time limit, 12.0 s`, as far as the rollout's record says it."""
    told = f"seed {path.name.partition('-')[0]}"
    if "success" in record:
        told += ": success" if record["success"] else ": failure"
    ending = record.get("ending")
    if ending and ending != "success":
        told += f", {ending}"
    ticks = record.get("ticks")
    return told + (f", {ticks / 10:.1f} s" if isinstance(ticks, int | float) else "")


def _report(attempt: Attempt, folder: Path) -> str:
    text = _quiet(lambda: (folder / attempt["folder"] / "feedback.md").read_text(errors="replace"), "")
    if not text:
        return ""
    cut = "\n… (the rest is in the file)" if len(text) > REPORT_MOST else ""
    return f'<h3>The report that the coach read</h3><pre class="report">{escape(text[:REPORT_MOST])}{cut}</pre>'


def _files(attempt: Attempt, folder: Path) -> str:
    kinds = ("video", "side video", "frames")
    found = [(name, path) for name, path in words.files(attempt, folder) if name not in kinds]
    place = folder / attempt["folder"]
    if place.is_dir():
        found.append(("folder", place))
    links = " · ".join(f'<a href="{_address(path, folder)}">{escape(name)}</a>' for name, path in found)
    return f"<p>Files: {links}</p>" if links else ""


def _events(content: Content) -> str:
    rows = "".join(
        f"<tr><td>{escape(words.moment(event['at']))}</td><td>{escape(words.event_words(event))}</td></tr>"
        for event in reversed(content["events"])
    )
    if not rows:
        return ""
    note = f"The latest {len(content['events'])}, newest first; all of them are in campaign.db."
    return _section("Events", note, f'<details><summary>Show</summary><table class="events">{rows}</table></details>')


# --- files -----------------------------------------------------------------------------------------------------------


def _address(path: Path, folder: Path) -> str:
    """A file's address relative to the page."""
    return escape(quote(path.relative_to(folder).as_posix()))


def _record(path: Path) -> Mapping[str, Any]:
    """A rollout's record; empty when it is missing or damaged."""
    raw = _quiet(lambda: json.loads(path.read_text()), {})
    return raw if isinstance(raw, dict) else {}


def _quiet(read: Any, otherwise: Any) -> Any:
    """What `read` returns; `otherwise` when the file is missing, damaged or being written."""
    try:
        return read()
    except (OSError, ValueError, KeyError, TypeError):
        return otherwise
