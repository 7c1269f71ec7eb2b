"""Offsets in words: length, axis and sign are those of the record."""

from __future__ import annotations

import math
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from made_attempts import account, record

from robocoach.agent_loop.account_words import COMPONENT_M, commanded, grip, part_name, told
from robocoach.agent_loop.evidence import StageAccount, rollout_from

component = st.floats(-0.3, 0.3)
offsets = st.fixed_dictionaries({"x": component, "y": component, "z": component})


def made(**changed) -> StageAccount:
    return rollout_from(record(1, 1, accounts=[account("grasp", **changed)]), Path("x")).accounts[0]


@given(offsets)
def test_length_and_signs_are_the_record_s(offset):
    words = told(made(offset_m=offset), "relations", "object")
    length = math.hypot(*offset.values())
    if length < 0.001:
        assert "on the red cube's centre" in words
        return
    assert f"{1000 * length:.0f} mm off" in words
    found = re.findall(r"(\d+) mm along (?:its )?([+−])([xyz])", words)
    assert found, words
    for millimetres, sign, axis in found:
        assert abs(abs(1000 * offset[axis]) - int(millimetres)) <= 0.5 + 1e-9
        assert (offset[axis] >= 0) == (sign == "+")
    assert max(offset, key=lambda axis: abs(offset[axis])) == found[0][2]


@given(offsets)
def test_a_large_component_is_never_left_out(offset):
    words = told(made(world_offset_m=offset), "relations", "world")
    longest = max(abs(value) for value in offset.values())
    shown = words.count(" mm ") - 1
    assert shown >= sum(abs(value) >= max(COMPONENT_M, 0.5 * longest) for value in offset.values()) or longest < 0.001


def test_above_and_below_are_the_world_s():
    assert "(30 mm above)" in told(made(world_offset_m={"x": 0.0, "y": 0.0, "z": 0.03}), "relations", "world")
    assert "(30 mm below)" in told(made(world_offset_m={"x": 0.0, "y": 0.0, "z": -0.03}), "relations", "world")


def test_nothing_recorded_is_nothing_told():
    bare = StageAccount(stage="grasp", reached=False)
    assert [told(bare, form, "parts") for form in ("outcome", "state", "relations")] == ["", "", ""]
    assert commanded(bare) == grip(bare) == ""


def test_what_was_commanded_keeps_its_caps():
    many = made(commanded={f"a_very_long_name_of_an_output_that_a_task_has_{i}": 1.23456 for i in range(30)})
    words = commanded(many).split(", ")
    assert len(words) == 12 and all(len(one) <= 60 for one in words)


def test_a_part_s_minus_is_the_text_s():
    assert part_name("face -x") == "face −x" and part_name("jug-handle") == "jug-handle"
