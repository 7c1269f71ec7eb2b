"""A contact sheet of a filmed rollout: a dozen wrist frames with tick and stage, on one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

COLUMNS = 4
CAPTION_PX = 18
EDGE_PX = 4


def contact_sheet(
    video: Path, stage_ticks: Sequence[int], stages: Sequence[str], out: Path, *, frames: int = 12
) -> tuple[int, ...]:
    """Writes the sheet as a PNG to `out`; returns the ticks that it shows.

    Frame i of a video was taken before tick i + 1. Frames are evenly spaced, first and last included; when they leave
    out the tick at which a stage was reached, the nearest one is moved there. The caption names the stage under way.
    """
    from PIL import Image, ImageDraw

    from robocoach.datasets.video import decode

    images = list(decode(video))
    ticks = shown_ticks(len(images), stage_ticks, frames)
    height, width = images[0].shape[:2]
    rows = -(-len(ticks) // COLUMNS)
    columns = min(COLUMNS, len(ticks))
    cell = (width + EDGE_PX, height + CAPTION_PX + EDGE_PX)
    sheet = Image.new("RGB", (columns * cell[0] + EDGE_PX, rows * cell[1] + EDGE_PX), "white")
    draw = ImageDraw.Draw(sheet)
    for index, tick in enumerate(ticks):
        x, y = index % columns * cell[0] + EDGE_PX, index // columns * cell[1] + EDGE_PX
        draw.text((x + 2, y + 2), f"tick {tick}  {caption(tick, stage_ticks, stages)}", fill="black")
        sheet.paste(Image.fromarray(images[tick - 1]), (x, y + CAPTION_PX))
    part = out.with_name(f".{out.name}.part")
    sheet.save(part, format="PNG")
    part.replace(out)
    return ticks


def shown_ticks(length: int, stage_ticks: Sequence[int], frames: int) -> tuple[int, ...]:
    """At most `frames` of the ticks 1 to `length`, evenly spaced, those that reached a stage among them."""
    count = min(frames, length)
    even = set(np.linspace(1, length, count).round().astype(int).tolist()) if count > 1 else {1} if count else set()
    wanted = {tick for tick in stage_ticks if 1 <= tick <= length}
    free = even - {1, length} - wanted
    for tick in sorted(wanted - even):
        if not free:
            break
        moved = min(free, key=lambda other, to=tick: (abs(other - to), other))
        free.remove(moved)
        even = (even - {moved}) | {tick}
    return tuple(sorted(even))


def caption(tick: int, stage_ticks: Sequence[int], stages: Sequence[str]) -> str:
    """The stage under way in a tick, or that all are done."""
    reached = sum(at < tick for at in stage_ticks)
    return stages[reached] if reached < len(stages) else "all stages reached"
