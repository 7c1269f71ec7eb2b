"""Contact sheets: which ticks they show, their captions, the picture itself."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from robocoach.datasets import video
from robocoach.sim.sheet import CAPTION_PX, caption, contact_sheet, shown_ticks

STAGES = ("reach", "grasp", "lift")


@given(st.integers(1, 300), st.lists(st.integers(1, 300), max_size=5), st.integers(1, 16))
def test_ticks_are_distinct_in_range_and_at_most_as_many_as_asked(length, stage_ticks, frames):
    ticks = shown_ticks(length, sorted(stage_ticks), frames)
    assert len(ticks) == min(frames, length) and list(ticks) == sorted(set(ticks))
    assert ticks[0] == 1 and ticks[-1] <= length and (frames == 1 or ticks[-1] == length)


@given(st.integers(40, 300), st.lists(st.integers(1, 40), max_size=5))
def test_ticks_that_reached_a_stage_are_among_them(length, stage_ticks):
    assert set(stage_ticks) <= set(shown_ticks(length, stage_ticks, 12))


def test_a_caption_names_the_stage_under_way():
    assert [caption(tick, (3, 5, 5), STAGES) for tick in (1, 3, 4, 6)] == [
        "reach",
        "reach",
        "grasp",
        "all stages reached",
    ]


def test_a_sheet_shows_the_frames_of_its_ticks(tmp_path):
    shades = np.linspace(20, 230, 30).astype(np.uint8)
    video.encode(np.repeat(shades, 224 * 224 * 3).reshape(30, 224, 224, 3), tmp_path / "wrist.mp4")
    ticks = contact_sheet(tmp_path / "wrist.mp4", (7, 11), STAGES, tmp_path / "sheet.png")
    assert len(ticks) == 12 and {1, 7, 11, 30} <= set(ticks)
    picture = np.asarray(Image.open(tmp_path / "sheet.png")).astype(int)
    middles = [
        picture[112 + CAPTION_PX + row * (224 + CAPTION_PX + 4), 112 + column * 228, 0]
        for row in range(3)
        for column in range(4)
    ]
    assert np.abs(np.array(middles) - shades[np.array(ticks) - 1]).max() < 12
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sheet.png", "wrist.mp4"]
