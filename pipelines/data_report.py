"""The page of `pipeline data check`: findings with their meaning and mend, odd episodes as plots, first images.

One self-contained file. The dataset is read a second time for it, and only the images that are shown are decoded.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from string import Template

import numpy as np

from robocoach.datasets.check_findings import SEVERITIES, Finding, Group
from robocoach.datasets.check_run import Checked, joints_of, openings, steps_s
from robocoach.datasets.check_view import DatasetView, EpisodeView
from robocoach.pipelines.data_plots import JOINT_COLOURS, Mark, Panel, traces

TEMPLATE = Path(__file__).parent / "data_report_template.html"
MOST_PLOTS = 12
TURNS = 3
"""Episodes plotted of one kind of fault, when others do not bring more."""
MOST_THUMBNAILS = 240
MOST_PLACES = 60
"""Places listed of one kind of fault."""
MOST_SHOWN_IMAGES = 6
THUMBNAIL_PX, SHOWN_PX = 104, 150
CLOCK_WORDS = ("clock", "gap", "timestamps", "rate")


def page(view: DatasetView, checked: Checked) -> str:
    """The whole page."""
    groups = checked.groups()
    odd = _odd(groups)
    worst = _worst(checked.findings)
    plots: dict[str, str] = {}
    thumbnails: list[str] = []
    shown = _shown(view.count)
    for number, episode in enumerate(view.episodes()):
        room = len(thumbnails) < MOST_THUMBNAILS
        if number in shown or (room and worst.get(episode.name) in ("error", "warning")):
            thumbnails.append(_thumbnail(episode, worst.get(episode.name)))
        if episode.name in odd:
            own = [one for one in checked.findings if one.episode == episode.name]
            plots[episode.name] = _plot(view, episode, own)
    sections = (
        _table(groups),
        _plots([plots[name] for name in odd if name in plots], sum(one != "note" for one in worst.values())),
        _sheet([one for one in thumbnails if one], view.count, checked.camera),
        _skipped(checked),
    )
    return Template(TEMPLATE.read_text()).substitute(
        title=escape(f"data check: {Path(checked.path).name}"),
        kicker=escape(f"pipeline data check {checked.path}"),
        sentence=escape(_sentence(checked, groups)),
        facts=_facts(checked),
        sections="\n".join(section for section in sections if section),
    )


def _sentence(checked: Checked, groups: Sequence[Group]) -> str:
    kinds = {severity: [one for one in groups if one.severity == severity] for severity in SEVERITIES}
    if kinds["error"]:
        names = [
            f"{group.fault.name} ({len(group.episodes)} of {checked.episodes} episodes)"
            if 0 < len(group.episodes) < checked.episodes
            else group.fault.name
            for group in kinds["error"]
        ]
        listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
        return f"Not fit for training as it is: {listed}."
    if kinds["warning"]:
        count = len(kinds["warning"])
        return f"No errors; {count} thing{'s' if count > 1 else ''} to look at before training."
    return "Nothing stands against training on it."


def _facts(checked: Checked) -> str:
    facts = [("kind", checked.kind), ("episodes", f"{checked.episodes}"), ("frames", f"{checked.frames}")]
    if checked.seconds is not None:
        facts.append(("length", f"{checked.seconds / 60:.1f} min"))
    if checked.successes is not None:
        facts.append(("marked successful", f"{checked.successes}"))
    if checked.lag_s is not None:
        facts.append(("commands lead by", f"{checked.lag_s:.2f} s"))
    facts += [(f"{severity}s", f"{checked.count(severity)}") for severity in SEVERITIES]
    return "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts)


def _table(groups: Sequence[Group]) -> str:
    if not groups:
        return ""
    rows = "".join(
        f'<tr><td><i class="pill {group.severity}">{group.severity}</i></td>'
        f"<td><b>{escape(group.fault.name)}</b><br>{_seen(group)}</td>"
        f'<td class="prose">{escape(_sentence_case(group.fault.means))}</td>'
        f'<td class="prose">{escape(_sentence_case(group.fault.mend))}</td></tr>'
        for group in groups
    )
    head = "<tr><th></th><th>what was found</th><th>what it means</th><th>the mend</th></tr>"
    return f'<section><h2>Findings</h2><table class="findings">{head}{rows}</table></section>'


def _sentence_case(text: str) -> str:
    text = text[0].upper() + text[1:] if text[0].islower() and not text.startswith("python") else text
    return text if text.endswith(".") else f"{text}."


def _seen(group: Group) -> str:
    first = escape(group.example.what)
    if len(group.findings) == 1:
        place = _place(group.findings[0])
        return f"{first}{f' <span class=place>{escape(place)}</span>' if place else ''}"
    episodes = group.episodes
    many = f"{len(episodes)} episodes, {len(group.findings)} places" if episodes else f"{len(group.findings)} places"
    if len(episodes) == len(group.findings):
        many = f"{len(episodes)} episodes"
    items = "".join(
        f"<li><span class=place>{escape(_place(found))}</span> {escape(found.what)}</li>"
        for found in group.findings[:MOST_PLACES]
    )
    if len(group.findings) > MOST_PLACES:
        items += f"<li>… and {len(group.findings) - MOST_PLACES} more in findings.json</li>"
    return f"{first}<details><summary>{many}</summary><ul>{items}</ul></details>"


def _place(found: Finding) -> str:
    if found.episode is None:
        return ""
    if found.frame is None:
        return f"episode {found.episode}"
    to = f"–{found.frame + found.frames - 1}" if found.frames > 1 else ""
    return f"episode {found.episode}, frame {found.frame}{to}"


def _worst(findings: Iterable[Finding]) -> dict[str, str]:
    """By episode, the most serious severity."""
    worst: dict[str, str] = {}
    for found in findings:
        if found.episode is not None:
            have = worst.get(found.episode, SEVERITIES[-1])
            worst[found.episode] = min(have, found.severity, key=SEVERITIES.index)
    return worst


def _odd(groups: Sequence[Group]) -> list[str]:
    """Episodes to plot: one of each fault in turn, most serious fault first, so that every kind is seen."""
    queues = [
        list(dict.fromkeys(one.episode for one in sorted(group.findings, key=lambda one: -one.size) if one.episode))
        for group in groups
        if group.severity != "note"
    ]
    chosen: list[str] = []
    for turn in range(min(TURNS, max(map(len, queues), default=0))):
        for queue in queues:
            if turn < len(queue) and queue[turn] not in chosen and len(chosen) < MOST_PLOTS:
                chosen.append(queue[turn])
    return chosen


def _plots(plots: Sequence[str], odd: int) -> str:
    if not plots:
        return ""
    note = "" if odd <= len(plots) else f" {len(plots)} of {odd} are shown, at least one for each kind of fault."
    return (
        '<section><h2>Odd episodes</h2><p class="note">Joints in radians over the episode; the place of a fault is '
        f"shaded.{note}</p>{''.join(plots)}</section>"
    )


def _plot(view: DatasetView, episode: EpisodeView, findings: Sequence[Finding]) -> str:
    head = f"<h3>episode {escape(episode.name)}</h3>" + "".join(
        f'<p class="said"><i class="pill {one.severity}">{one.severity}</i> {escape(one.fault.name)}: '
        f"{escape(one.what)}{escape(_frame(one))}</p>"
        for one in sorted(findings, key=lambda one: SEVERITIES.index(one.severity))[:8]
    )
    if len(episode) < 2:
        return f'<div class="episode">{head}</div>'
    joints = joints_of(episode.states, view.state)
    steps = steps_s(episode)
    unit = "frame" if steps is None else "s"
    times = np.arange(len(episode), dtype=np.float64) if steps is None else np.concatenate([[0.0], np.cumsum(steps)])
    panels = []
    if joints is not None:
        panels.append(Panel("joints [rad]", joints, JOINT_COLOURS, 210))
    panels += [
        Panel(f"gripper opening, {name}", one[:, None], ("#33424a",), 54, (0.0, 1.0))
        for name, one in zip(("measured", "commanded"), openings(view, episode), strict=True)
        if one is not None
    ]
    if episode.times_s is not None and any(word in one.fault.name for one in findings for word in CLOCK_WORDS):
        gaps = np.diff(episode.times_s, prepend=episode.times_s[0] - np.median(np.diff(episode.times_s)))
        panels.append(Panel("step of the clock [ms]", gaps[:, None] * 1e3, ("#33424a",), 84))
    marks = [
        Mark(float(times[first]), float(times[last]), one.severity, escape(one.fault.name))
        for one in findings
        if one.frame is not None
        for first, last in [_span(one, len(episode))]
    ]
    drawn = traces(times, panels, marks, unit) if panels else ""
    return f'<div class="episode">{head}{drawn}{_key(joints)}{_strip(episode, findings)}</div>'


def _frame(found: Finding) -> str:
    return "" if found.frame is None else f" (frame {found.frame})"


def _span(found: Finding, count: int) -> tuple[int, int]:
    first = min(max(found.frame or 0, 0), count - 1)
    return first, min(first + found.frames - 1, count - 1)


def _key(joints: np.ndarray | None) -> str:
    if joints is None:
        return ""
    items = "".join(
        f'<span><i style="background:{JOINT_COLOURS[at % len(JOINT_COLOURS)]}"></i>joint {at + 1}</span>'
        for at in range(joints.shape[1])
    )
    return f'<p class="key">{items}</p>'


def _strip(episode: EpisodeView, findings: Sequence[Finding]) -> str:
    """First and last image and those at the faults."""
    if episode.images is None:
        return ""
    count = episode.expected_images()
    at = [one.frame // episode.every for one in findings if one.frame is not None and one.severity != "note"]
    around = [image for one in at for image in (one, one + 1)]
    wanted = sorted({0, count - 1, *(min(one, count - 1) for one in around[: MOST_SHOWN_IMAGES - 2])})
    figures = [
        f'<figure><img src="{_jpeg(image, SHOWN_PX)}" alt="">'
        f"<figcaption>frame {number * episode.every}</figcaption></figure>"
        for number, image in _pick(episode, wanted)
    ]
    return f'<div class="strip">{"".join(figures)}</div>' if figures else ""


def _pick(episode: EpisodeView, numbers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    import av

    if episode.images is None:
        return
    wanted = set(numbers)
    try:
        for number, image in enumerate(islice(episode.images(), max(wanted) + 1)):
            if number in wanted:
                yield number, image
    except (OSError, ValueError, IndexError, av.FFmpegError):
        return


def _shown(count: int) -> set[int]:
    return set(np.unique(np.linspace(0, count - 1, min(count, MOST_THUMBNAILS * 3 // 4)).astype(int)).tolist())


def _thumbnail(episode: EpisodeView, severity: str | None) -> str:
    for _, image in _pick(episode, [0]):
        return (
            f'<figure class="{severity or "fine"}"><img src="{_jpeg(image, THUMBNAIL_PX)}" alt="" loading="lazy">'
            f"<figcaption>{escape(episode.name.rpartition('/')[2])}</figcaption></figure>"
        )
    return ""


def _sheet(thumbnails: Sequence[str], count: int, camera: str | None) -> str:
    if not thumbnails:
        return ""
    some = "" if len(thumbnails) >= count else f"{len(thumbnails)} of {count} episodes. "
    note = f"{some}Camera {escape(camera or '')}. The bar says the most serious finding of the episode."
    key = "".join(f'<span><i class="{name}"></i>{name}</span>' for name in (*SEVERITIES, "fine"))
    return (
        f'<section><h2>First image of each episode</h2><p class="note">{note}</p><p class="key">{key}</p>'
        f'<div class="sheet">{"".join(thumbnails)}</div></section>'
    )


def _skipped(checked: Checked) -> str:
    if not checked.skipped:
        return ""
    items = "".join(f"<li>{escape(one)}</li>" for one in checked.skipped)
    return f'<section><h2>Not checked</h2><p class="note">What the data does not hold.</p><ul>{items}</ul></section>'


def _jpeg(image: np.ndarray, width: int) -> str:
    """An image (H, W, 3) as a data address, shrunk to a width."""
    import cv2

    height = max(1, round(image.shape[0] * width / image.shape[1]))
    small = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    done, encoded = cv2.imencode(".jpg", cv2.cvtColor(small, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 78])
    return f"data:image/jpeg;base64,{base64.b64encode(encoded.tobytes()).decode()}" if done else ""
