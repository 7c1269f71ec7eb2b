"""The camera's contact sheet: what it sees beside the data, histograms and the mount, on one picture for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robocoach.datasets.contract import IMAGE_SIZE
from robocoach.robots import camera_compare
from robocoach.robots.camera_compare import CHANNELS, Reference
from robocoach.robots.camera_view import Field, Look, views

if TYPE_CHECKING:
    from PIL import ImageDraw, ImageFont

SIDE = 2 * IMAGE_SIZE
EDGE, GAP, HEAD = 32, 20, 84
INK, SOFT, LINE, PAPER, WASH = "#1d2529", "#5d6b72", "#dfe5e8", "#ffffff", "#f4f7f8"
GOOD, BAD = "#0b7a75", "#b4502e"
CHANNEL_COLOURS = {"red": "#c8453b", "green": "#3f9144", "blue": "#3b6fc8"}
TITLES = {"live": "now, as the policy sees it", "data": "a start frame of the data, like it in light"}
TITLES |= {"blend": "both, half and half", "edges": "now, with the data's hand in green"}
CHART_HEIGHT, DIAL_WIDTH = 150, 300
BINS = 64


def sheet(look: Look, reference: Reference | None, fields: list[Field] | None = None, about: str = "") -> np.ndarray:
    """uint8 RGB picture of everything there is to see; `look` has an image, `about` is the line below the title."""
    from PIL import Image, ImageDraw

    assert look.image is not None
    shown = views(look.image, reference, look.beside)
    columns = len(shown) if reference is not None else 1
    width = max(2 * EDGE + columns * SIDE + (columns - 1) * GAP, 760)
    found = look.comparison
    lines = [] if found is None else [("light", found.light.words, found.light.as_in_the_data)]
    lines += [] if found is None else [("mount", found.mount_words, not found.moved)]
    lines += [("contract", field.words, False) for field in fields or [] if not field.alike]
    charts = CHART_HEIGHT + 84 if found is not None else 0
    picture = Image.new("RGB", (width, HEAD + SIDE + 48 + charts + 34 * len(lines) + EDGE), WASH)
    draw = ImageDraw.Draw(picture)
    draw.text((EDGE, 20), "Wrist camera", INK, _font(26))
    draw.text((EDGE, 54), about or look.words().split(";")[0].strip(), SOFT, _font(15))
    for k, (name, image) in enumerate(shown.items()):
        left = EDGE + k * (SIDE + GAP)
        picture.paste(Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.NEAREST), (left, HEAD))
        draw.text((left, HEAD + SIDE + 8), TITLES[name], SOFT, _font(15))
    top = HEAD + SIDE + 48
    if found is not None and reference is not None:
        draw.rounded_rectangle((EDGE, top, width - EDGE, top + charts - 20), 10, PAPER, LINE)
        _histograms(draw, look, reference, (EDGE + 20, top + 14, width - EDGE - DIAL_WIDTH - 60))
        _dial(draw, look, reference, width - EDGE - DIAL_WIDTH - 20, top + 14)
        top += charts
    for name, words, good in lines:
        draw.rounded_rectangle((EDGE, top + 3, EDGE + 6, top + 25), 3, GOOD if good else BAD)
        draw.text((EDGE + 18, top + 4), name, INK, _font(16))
        draw.text((EDGE + 110, top + 4), words, INK if good else BAD, _font(16))
        top += 34
    return np.asarray(picture)


def _histograms(draw: ImageDraw.ImageDraw, look: Look, reference: Reference, place: tuple[int, int, int]) -> None:
    """Three channels: the data as an area, the live picture as a line, and how far they are apart."""
    assert look.image is not None and look.comparison is not None
    left, top, right = place
    light = look.comparison.light
    mine, data = (
        h.reshape(3, BINS, -1).sum(axis=2) for h in (camera_compare.histogram(look.image), reference.histogram)
    )
    wide = (right - left - 2 * GAP) / 3
    for channel, name in enumerate(CHANNELS):
        begin, base = left + channel * (wide + GAP), top + 26 + CHART_HEIGHT
        far, allowed = light.distance[channel], light.allowed_distance[channel]
        words = f"{name}: {far:.0f} levels from the data, which stays below {allowed:.0f}"
        draw.text((begin, top), words, INK if far <= allowed else BAD, _font(15))
        # A table of one colour fills few bins: the square root keeps the rest of the picture visible.
        high = np.sqrt(max(mine[channel].max(), data[channel].max()))
        points = [
            [(begin + wide * k / (BINS - 1), base - CHART_HEIGHT * np.sqrt(share) / high) for k, share in enumerate(of)]
            for of in (data[channel], mine[channel])
        ]
        draw.polygon([(begin, base), *points[0], (begin + wide, base)], "#e3e9ec")
        draw.line(points[1], CHANNEL_COLOURS[name], 3, joint="curve")
        draw.line((begin, base, begin + wide, base), LINE, 1)
        draw.text((begin, base + 4), "dark", SOFT, _font(13))
        draw.text((begin + wide, base + 4), "bright", SOFT, _font(13), anchor="ra")


def _dial(draw: ImageDraw.ImageDraw, look: Look, reference: Reference, left: int, top: int) -> None:
    """Where the hand stands in the picture: episodes of the data as dots in their range, the camera now as a cross."""
    assert look.comparison is not None
    side = CHART_HEIGHT
    draw.text((left, top), "the hand in the picture [px]", INK, _font(15))
    mount, motion = reference.mount, look.comparison.motion
    if mount is None:
        draw.text((left, top + 30), "nothing stands still in the data", SOFT, _font(15))
        return
    low, high = mount.limits
    far = max(10.0, *np.abs([*low[:2], *high[:2]]), *([] if motion is None else np.abs(motion.numbers[:2]))) * 1.1
    x0, y0 = left + side / 2, top + 26 + side / 2
    scale = side / 2 / far
    draw.rectangle((left, top + 26, left + side, top + 26 + side), WASH, LINE)
    draw.rectangle(
        (x0 + low[0] * scale, y0 + low[1] * scale, x0 + high[0] * scale, y0 + high[1] * scale), "#dcebea", GOOD
    )
    for right_px, down_px, _ in mount.motions:
        x, y = x0 + right_px * scale, y0 + down_px * scale
        draw.ellipse((x - 2, y - 2, x + 2, y + 2), "#8fa3a2")
    colour = BAD if look.comparison.moved else GOOD
    if motion is None:
        draw.text((x0, y0), "not found", BAD, _font(15), anchor="mm")
        return
    x, y = x0 + motion.right_px * scale, y0 + motion.down_px * scale
    draw.line((x - 7, y, x + 7, y), colour, 3)
    draw.line((x, y - 7, x, y + 7), colour, 3)
    for k, words in enumerate(
        (
            f"right {motion.right_px:+.1f} px",
            f"down {motion.down_px:+.1f} px",
            f"turned {motion.turn_deg:+.1f} deg",
            f"(data {low[2]:+.1f} to {high[2]:+.1f})",
        )
    ):
        draw.text((left + side + 14, top + 40 + 26 * k), words, INK if k < 3 else SOFT, _font(15))


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)
