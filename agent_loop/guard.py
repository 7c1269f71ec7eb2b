"""The guard: what lets a proposal pass, or says in one line why not; and the JSON schema of what may be proposed.

A coach's words are untrusted: it may be a model, or a program that someone wrote. What passes differs from its parent
in fields marked `tunable` only, within their types and bounds; everything that judges, protects or budgets (and every
path and secret) is copied from attempt 0, whatever the proposal says. Knows no coach, no simulator and no model.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from robocoach.agent_loop.proposal import Proposal, tunable_keys
from robocoach.agent_loop.tree import Node
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.fields import FieldSpec, fields, nearest
from robocoach.configs.models import Sim2RealConfig
from robocoach.datasets.mixture import HIGHEST_OVERSAMPLE, parse_mix, parse_oversample

MOST_KEYS = 12
"""Settings that one proposal may change: with more, nobody could say what helped."""
MOST_RATIONALE = 4_000
MOST_NAME = 200
"""Characters of the coach's and the rule's name, and of a text setting."""
MOST_EVIDENCE = 20_000
"""Characters of the evidence as JSON."""
SHAPE_KEYS = ("train.chunk_size", "train.capacity")
"""What weights are built for: a child that begins with another attempt's weights keeps them."""
NANO_KEYS = frozenset({"train.capacity", "train.flow_samples", "train.auxiliary_weight", "train.state_noise"})
"""Settings that only π0.5-nano reads."""


def guard(
    proposal: Proposal,
    nodes: Sequence[Node],
    base: Sim2RealConfig | None = None,
    *,
    stages: Sequence[str] = (),
    base_has_weights: bool = False,
) -> Sim2RealConfig:
    """The configuration of the attempt that the proposal asks for.

    `base` is attempt 0's configuration (default: the first node's), `stages` are the task's, by which
    `data.oversample` is checked (without them only its form is), and `base_has_weights` says that attempt 0 itself
    began with a checkpoint. Raises UserError, one line with the mend, on anything else than a change of tunable
    settings within their bounds whose parent is measured and whose weights fit.
    """
    change = _plain(proposal)
    parent = _parent(proposal.parent, nodes)
    origin = load.flatten(base.model_dump(), "base") if base is not None else dict(nodes[0].settings)
    allowed = _allowed(str(origin["train.policy"]))
    for key, value in change.items():
        _check_key(key, allowed)
        _check_value(fields()[key], value)
    # What judges and protects comes from attempt 0, so that no chain of attempts can carry a change of it.
    before = origin | {key: parent.settings[key] for key in tunable_keys()}
    after = before | change
    _check_together(after, change, proposal.start, base_has_weights)
    _check_texts(change, origin, stages)
    _check_weights(after, parent.settings if proposal.start == "parent" else origin, proposal.start, base_has_weights)
    changed = load.build(after)
    if changed == load.build(before):
        same = ", ".join(f"{key} is {_shown(value)}" for key, value in change.items())
        raise UserError(f"the proposal changes nothing: {same} in attempt {parent.number} already; propose another")
    return changed


def change_schema(base: Sim2RealConfig, stages: Sequence[str] = ()) -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a proposal's change: every tunable setting, its default the base's value.

    It says what each value may be; what holds between settings, and to the parent, only `guard` knows.
    """
    values = load.flatten(base.model_dump(), "base")
    specs, allowed = fields(), _allowed(base.train.policy)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "change",
        "description": "Settings of the parent attempt to change, by dotted key; what is not named stays as it is.",
        "type": "object",
        "properties": {key: _property(specs[key], values[key], stages, _sources(values)) for key in allowed},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": MOST_KEYS,
    }


def _property(spec: FieldSpec, default: Any, stages: Sequence[str], sources: Sequence[str]) -> dict[str, Any]:
    kinds: dict[type, str] = {int: "integer", float: "number", bool: "boolean", str: "string"}
    found: dict[str, Any] = {"type": kinds[spec.kind], "description": spec.help, "default": default}
    if spec.unit:
        found |= {"unit": spec.unit, "description": f"{spec.help} [{spec.unit}]"}
    if spec.choices:
        found["enum"] = list(spec.choices)
    elif spec.kind is str:
        found["maxLength"] = MOST_NAME
    if spec.low is not None:
        found["exclusiveMinimum" if spec.low_open else "minimum"] = spec.low
    if spec.high is not None:
        found["exclusiveMaximum" if spec.high_open else "maximum"] = spec.high
    if spec.multiple_of is not None:
        found["multipleOf"] = spec.multiple_of
    if spec.key == "data.mix":
        found["description"] += f"; sources: {', '.join(sources)}"
    if spec.key == "data.oversample" and stages:
        found["description"] += f"; stages: {', '.join(stages)}; weights above 0, at most {HIGHEST_OVERSAMPLE:g}"
    return found


def _allowed(policy: str) -> tuple[str, ...]:
    return tuple(key for key in tunable_keys() if policy == "pi05_nano" or key not in NANO_KEYS)


def _sources(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return ("sim", "real") if settings["data.real"] else ("sim",)


def _plain(proposal: Proposal) -> dict[str, Any]:
    """The change as a plain dict, after the proposal's own fields were found to be what they should be."""
    for name, most in (("coach", MOST_NAME), ("rule", MOST_NAME), ("rationale", MOST_RATIONALE)):
        _check_words(name, getattr(proposal, name), most, lines=name == "rationale")
    if proposal.start not in ("parent", "base"):
        raise UserError(f"the proposal's start is {_shown(proposal.start)}; expected parent or base")
    if type(proposal.cost_usd) not in (int, float) or not 0 <= proposal.cost_usd < math.inf:
        raise UserError(f"the proposal's cost_usd is {_shown(proposal.cost_usd)}; expected a number of 0 or more")
    _check_evidence(proposal.evidence)
    if not isinstance(proposal.change, Mapping):
        raise UserError(f"the proposal's change is {_shown(proposal.change)}; expected settings by dotted key")
    change = dict(proposal.change)
    if not change:
        raise UserError("the proposal changes nothing; expected at least one setting by its dotted key")
    if len(change) > MOST_KEYS:
        raise UserError(f"the proposal changes {len(change)} settings; expected at most {MOST_KEYS}")
    return change


def _check_words(name: str, text: Any, most: int, *, lines: bool) -> None:
    if type(text) is not str:
        raise UserError(f"the proposal's {name} is {_shown(text)}; expected text")
    if len(text) > most:
        raise UserError(f"the proposal's {name} has {len(text)} characters; expected at most {most}")
    plain = text.replace("\n", " ").replace("\t", " ") if lines else text
    if not plain.isprintable():
        raise UserError(f"the proposal's {name} holds control or broken characters; expected plain text")


def _check_evidence(evidence: Any) -> None:
    try:
        text = json.dumps(evidence, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise UserError(
            "the proposal's evidence cannot be written as JSON; expected names and finite numbers"
        ) from None
    if type(evidence) is not dict:
        raise UserError(f"the proposal's evidence is {_shown(evidence)}; expected numbers by name")
    if len(text) > MOST_EVIDENCE:
        raise UserError(f"the proposal's evidence has {len(text)} characters; expected at most {MOST_EVIDENCE}")


def _parent(number: Any, nodes: Sequence[Node]) -> Node:
    measured = [node.number for node in nodes if node.measured]
    listed = ", ".join(map(str, measured[-20:])) or "none yet"
    if type(number) is not int:
        raise UserError(f"the proposal's parent is {_shown(number)}; expected the number of a measured attempt")
    found = next((node for node in nodes if node.number == number), None)  # by number: -1 would index the last one
    if found is None:
        raise UserError(f"the proposal's parent {_shown(number)} does not exist; measured attempts: {listed}")
    if not found.measured:
        raise UserError(f"the proposal's parent {number} was not measured ({found.state}); measured attempts: {listed}")
    return found


def _check_key(key: Any, allowed: Sequence[str]) -> None:
    specs = fields()
    if type(key) is not str or key not in specs:
        near = nearest(key[:MOST_NAME], allowed) if type(key) is str else allowed[0]
        raise UserError(f"the proposal names {_shown(key)}, which does not exist; the nearest is {near}")
    if key in NANO_KEYS and key not in allowed:
        raise UserError(f"the proposal changes {key}, which only pi05_nano reads; leave it out")
    if key not in allowed:
        raise UserError(f"the proposal may not change {key}: it judges, protects or budgets; leave it out")


def _check_value(spec: FieldSpec, value: Any) -> None:
    # Exact types: a bool is an int, and a subclass could compare as it likes.
    right = type(value) in ((int, float) if spec.kind is float else (spec.kind,))
    if not right or (type(value) is float and not math.isfinite(value)) or not spec.holds(value):
        unit = f" [{spec.unit}]" if spec.unit else ""
        raise UserError(f"the proposal sets {spec.key} to {_shown(value)}, expected {spec.bounds}{unit}")
    if spec.kind is str and (len(value) > MOST_NAME or not (value.isascii() and value.isprintable())):
        raise UserError(
            f"the proposal sets {spec.key} to {_shown(value)}, expected at most {MOST_NAME} plain characters in a line"
        )


def _check_texts(change: Mapping[str, Any], origin: Mapping[str, Any], stages: Sequence[str]) -> None:
    """Settings that are small languages of their own: mixture weights and oversampled stages."""
    if "data.mix" in change:
        sources = _sources(origin)
        weights = parse_mix(change["data.mix"])
        absent = [name for name in weights if name not in sources]
        if absent:
            raise UserError(
                f"the proposal's data.mix names {absent[0]}, and there is none; sources: {', '.join(sources)}"
            )
        if max(weights.values()) > 1e6:
            raise UserError("the proposal's data.mix has a weight above 1000000; only their ratio matters, use less")
    if text := change.get("data.oversample"):
        parse_oversample(text, stages or re.findall(r"[a-z][a-z0-9_-]*(?=\s*=)", text) or ("stage",))


def _check_together(after: Mapping[str, Any], change: Mapping[str, Any], start: str, base_has_weights: bool) -> None:
    executed, chunk = after["train.executed_steps"], after["train.chunk_size"]
    if executed > chunk:
        raise UserError(
            f"the proposal leads to train.executed_steps {executed} with train.chunk_size {chunk}; at most as many "
            "actions can be executed as are predicted"
        )
    bare = start == "base" and not base_has_weights and after["train.policy"] == "pi05_nano"
    if bare and after["train.frozen"] != "none":
        raise UserError(
            "the proposal keeps train.frozen vision and starts from the base, which has no weights to keep; "
            "start from the parent, or set train.frozen to none"
        )


def _check_weights(after: Mapping[str, Any], owner: Mapping[str, Any], start: str, base_has_weights: bool) -> None:
    """Weights that the attempt begins with were built for a chunk and a capacity."""
    if start == "base" and not base_has_weights:
        return
    for key in SHAPE_KEYS:
        if after[key] != owner[key]:
            raise UserError(
                f"the proposal leads to {key} {after[key]}, and the weights of the {start} were built for "
                f"{owner[key]}; keep it, or start from {'base' if start == 'parent' else 'the parent'}"
            )


def _shown(value: Any) -> str:
    """A value in an error message: plain ASCII, short, whatever it is."""
    try:
        text = ascii(value)
    except Exception:  # a number with too many digits, or an object that cannot be shown
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 80 else text[:77] + "..."
