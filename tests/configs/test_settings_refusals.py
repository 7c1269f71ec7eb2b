"""Bad settings are refused in one line that names the key, what is valid, and the nearest valid key."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.fields import fields
from robocoach.configs.models import Sim2RealConfig

NUMBERS = [spec for spec in fields().values() if spec.kind in (int, float)]


def refusal(**arguments) -> str:
    with pytest.raises(UserError) as caught:
        load.load(profile="cpu", **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return path


@given(st.sampled_from(NUMBERS), st.floats(1e-6, 1e6))
def test_a_number_below_its_bound_is_refused_with_key_and_bound(spec, distance):
    value = spec.low - distance if spec.kind is float else spec.low - 1 - int(distance)
    text = refusal(overrides={spec.key: str(value)})
    assert spec.key in text and spec.bounds in text and str(value) in text


@given(st.sampled_from([spec for spec in NUMBERS if spec.high is not None]), st.integers(1, 10**6))
def test_a_number_above_its_bound_is_refused_with_key_and_bound(spec, distance):
    text = refusal(overrides={spec.key: str(spec.high + distance)})
    assert spec.key in text and spec.bounds in text


@given(st.sampled_from(NUMBERS), st.sampled_from(["nan", "inf", "-inf", "twelve", "", "1e999", "0x10", "[1]"]))
def test_text_that_is_no_finite_number_is_refused(spec, value):
    assert spec.key in refusal(overrides={spec.key: value})


@given(st.sampled_from(sorted(fields())), st.data())
def test_a_misspelt_key_is_refused_and_the_right_one_is_named(key, data):
    *section, name = key.split(".")
    if len(name) < 4:
        return
    drop = data.draw(st.integers(0, len(name) - 1))
    wrong = ".".join([*section, name[:drop] + name[drop + 1 :]])
    if wrong in fields():
        return
    with pytest.raises(UserError) as caught:
        load.flatten(load.nest({wrong: 1}), "run.yaml")
    named = re.search(r"the nearest valid key is (\S+)$", str(caught.value))
    assert named and (named[1] in fields()) and wrong in str(caught.value)


def test_a_key_of_another_section_is_found(tmp_path):
    text = refusal(file=written(tmp_path, "learning_rate: 0.1"))
    assert text.endswith("unknown key learning_rate; the nearest valid key is train.learning_rate")


def test_the_nearest_key_of_a_swapped_letter_is_the_key(tmp_path):
    text = refusal(file=written(tmp_path, "train: {lerning_rate: 0.1}"))
    assert "train.lerning_rate" in text and text.endswith("train.learning_rate")


def test_a_truth_value_is_no_number(tmp_path):
    assert "generate.demonstrations" in refusal(file=written(tmp_path, "generate: {demonstrations: true}"))


def test_a_choice_lists_what_is_valid():
    assert "twin, fr3, panda" in refusal(overrides={"deploy.robot": "ur5"})


def test_an_unknown_profile_lists_the_profiles():
    with pytest.raises(UserError, match=r"tpu.*choose from cpu, gpu"):
        load.load(profile="tpu")


def test_more_executed_than_predicted_steps_are_refused():
    text = refusal(overrides={"train.chunk_size": "8", "train.executed_steps": "9"})
    assert "executed_steps 9" in text and "chunk_size 8" in text


@pytest.mark.parametrize("text", ["- 1", "train: 3", "a: b: c", "train: {minutes: 1, minutes: 2}", "\tx: 1"])
def test_a_file_that_is_no_mapping_of_settings_is_refused_by_name(tmp_path, text):
    assert "run.yaml" in refusal(file=written(tmp_path, text))


def test_a_missing_file_is_refused_by_name(tmp_path):
    assert "gone.yaml" in refusal(file=tmp_path / "gone.yaml")


def test_the_command_line_wins_over_the_file_and_the_file_over_the_profile(tmp_path):
    file = written(tmp_path, "train: {batch_size: 7, minutes: 3}")
    config = load.load({"train.minutes": "2"}, profile="gpu", file=file)
    assert (config.train.minutes, config.train.batch_size, config.generate.demonstrations) == (2.0, 7, 400)


def test_dumped_settings_read_back_equal(tmp_path):
    config = load.load({"train.learning_rate": "3e-4", "data.mix": "sim=1"}, profile="gpu")
    assert load.load(profile="cpu", file=written(tmp_path, load.dump(config))) == config


def test_every_profile_is_valid():
    assert all(isinstance(load.load(profile=name), Sim2RealConfig) for name in load.profile_names())


def test_every_setting_says_what_it_is_and_what_is_valid():
    for spec in fields().values():
        assert spec.help and spec.holds(spec.default) and (spec.kind is str or spec.bounds != "text")


def test_what_judges_protects_or_budgets_is_not_tunable():
    closed = ("evaluate.", "safety.", "deploy.", "improve.", "campaign.", "data.", "task", "seed", "train.minutes")
    open_ = {"data.mix", "data.oversample", "deploy.blend_steps", "deploy.smoothing"}
    tunable = {key for key, spec in fields().items() if spec.tunable and key.startswith(closed)}
    assert tunable == open_


def test_what_a_child_cannot_follow_is_not_tunable():
    fixed = ("train.image_px", "generate.demonstrations", "generate.recovery_share", "data.real", "train.pi05_base")
    assert not [key for key in fixed if fields()[key].tunable]


def test_a_size_that_is_no_multiple_is_refused_with_the_rule():
    assert "a multiple of 8" in refusal(overrides={"train.image_px": "100"})
