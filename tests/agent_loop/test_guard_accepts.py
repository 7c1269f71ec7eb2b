"""What passes the guard: tunable settings change, nothing else does; and the schema says the same as the guard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robocoach.agent_loop.guard import MOST_KEYS, NANO_KEYS, change_schema, guard
from robocoach.agent_loop.proposal import Proposal, tunable_keys
from robocoach.agent_loop.tree import Batch, Node
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.fields import FieldSpec, fields

STAGES = ("reach", "grasp", "lift", "place", "release")
BASE = load.load(profile="cpu")
BATCH = Batch(n=10, successes=0, reached_goal=0, closest_m=0.1, carries=0, aborted=10)


def root(base=BASE) -> Node:
    """Attempt 0, measured."""
    flat = load.flatten(base.model_dump(), "test")
    return Node(0, None, "base", "done", "none", "", "", {}, flat, BATCH, False, "", Path("nowhere"))


def asked(change: dict[str, Any], start: Any = "parent") -> Proposal:
    return Proposal(0, "llm:x:y", "rule", "why\nso", change, start=start)


def values(spec: FieldSpec) -> st.SearchStrategy[Any]:
    """Values of a setting inside its bounds, outside of them, and of other types."""
    if spec.choices:
        return st.sampled_from([*spec.choices, "other"])
    if spec.kind is bool:
        return st.booleans()
    if spec.kind is str:
        return st.sampled_from(["", "sim=3", "grasp=2", "grasp=2,place=1.5", "real=1", "sim=1\n", "none"])
    low, high = spec.low or 0.0, spec.high or 1.0
    inside = st.integers(int(low), int(high)) if spec.kind is int else st.floats(low, high)
    return st.one_of(inside, st.integers(-2, 3), st.floats(), st.booleans())


SPECS = fields()
CHANGES = st.lists(st.sampled_from(list(SPECS)), max_size=MOST_KEYS + 1, unique=True).flatmap(
    lambda keys: st.fixed_dictionaries({key: values(SPECS[key]) for key in keys})
)
TUNED = st.lists(st.sampled_from(tunable_keys()), min_size=1, max_size=4, unique=True).flatmap(
    lambda keys: st.fixed_dictionaries({key: values(SPECS[key]) for key in keys})
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(CHANGES, TUNED), st.sampled_from(["parent", "base"]))
def test_whatever_passes_leaves_every_other_setting_as_it_was(change, start):
    try:
        made = guard(asked(change, start), [root()], BASE, stages=STAGES)
    except UserError as error:
        assert str(error).isprintable()
        return
    before, after = root().settings, load.flatten(made.model_dump(), "test")
    different = {key for key in before if before[key] != after[key]}
    assert different
    assert different <= set(change) & set(tunable_keys())


@pytest.mark.parametrize("key", [key for key in tunable_keys() if key not in ("data.mix", "data.oversample")])
def test_every_tunable_setting_can_be_changed(key):
    spec = SPECS[key]
    if spec.choices:
        value: Any = next(choice for choice in spec.choices if choice != spec.default)
    elif spec.kind is bool:
        value = not spec.default
    else:
        value = spec.high if spec.high != spec.default and not spec.high_open else spec.low
    change = {key: value}
    if key == "train.executed_steps":
        change["train.chunk_size"] = 100
    made = guard(asked(change, "parent" if key == "train.frozen" else "base"), [root()], BASE)
    assert load.flatten(made.model_dump(), "test")[key] == value


def test_weights_from_the_base_may_have_another_shape():
    assert guard(asked({"train.capacity": "small", "train.chunk_size": 8}, "base"), [root()], BASE)


def test_a_base_that_began_with_a_checkpoint_keeps_its_shape():
    with pytest.raises(UserError, match="the weights of the base were built for base"):
        guard(asked({"train.capacity": "small"}, "base"), [root()], BASE, base_has_weights=True)


def test_nothing_can_be_frozen_where_there_are_no_weights():
    with pytest.raises(UserError, match="no weights to keep"):
        guard(asked({"train.frozen": "vision"}, "base"), [root()], BASE)
    assert guard(asked({"train.frozen": "vision"}, "base"), [root()], BASE, base_has_weights=True)


def test_real_data_can_be_mixed_where_it_is():
    base = load.load({"data.real": "somewhere"}, profile="cpu")
    assert guard(asked({"data.mix": "sim=1,real=2"}), [root(base)], base).data.mix == "sim=1,real=2"


def test_the_parents_own_settings_stay():
    child = {**root().settings, "train.learning_rate": 1e-3}
    nodes = [root(), Node(1, 0, "parent", "done", "x", "", "", {}, child, BATCH, False, "", Path("nowhere"))]
    made = guard(Proposal(1, "x", "y", "z", {"train.ema": 0.9}), nodes)
    assert (made.train.learning_rate, made.train.ema) == (1e-3, 0.9)


def test_an_oversampled_stage_passes():
    made = guard(asked({"data.oversample": "grasp=2,place=3"}), [root()], BASE, stages=STAGES)
    assert made.data.oversample == "grasp=2,place=3"


def test_settings_that_the_policy_does_not_read_cannot_be_changed():
    base = load.load({"train.policy": "pi05"}, profile="cpu")
    with pytest.raises(UserError, match=r"train\.capacity, which only pi05_nano reads"):
        guard(asked({"train.capacity": "small"}, "base"), [root(base)], base)
    assert not NANO_KEYS & set(change_schema(base)["properties"])


def holds(schema: dict[str, Any], value: Any) -> bool:
    """Whether a value satisfies a property of the schema: type, enum and bounds, as draft 2020-12 has them."""
    kinds = {"integer": int, "number": (int, float), "boolean": bool, "string": str}
    if not isinstance(value, kinds[schema["type"]]) or (isinstance(value, bool) and schema["type"] != "boolean"):
        return False
    return (
        ("enum" not in schema or value in schema["enum"])
        and ("minimum" not in schema or value >= schema["minimum"])
        and ("maximum" not in schema or value <= schema["maximum"])
        and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
        and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
        and ("maxLength" not in schema or len(value) <= schema["maxLength"])
    )


SCHEMA = change_schema(BASE, STAGES)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(tunable_keys()).flatmap(lambda key: st.tuples(st.just(key), values(SPECS[key]))))
def test_the_schema_says_what_the_bounds_say(pair):
    key, value = pair
    assert holds(SCHEMA["properties"][key], value) == SPECS[key].holds(value)


def test_the_schema_names_every_tunable_setting_and_no_other():
    assert set(SCHEMA["properties"]) == set(tunable_keys())
    assert SCHEMA["additionalProperties"] is False


def test_the_schema_gives_units_and_the_bases_values():
    steps = SCHEMA["properties"]["train.warmup_steps"]
    assert steps["unit"] == "steps" and steps["description"].endswith("[steps]")
    assert steps["default"] == BASE.train.warmup_steps
    assert "grasp" in SCHEMA["properties"]["data.oversample"]["description"]
