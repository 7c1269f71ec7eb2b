"""Settings from defaults, profile, file and command line, in that order, checked; each fault is one line.

Raises UserError that names the key as the user wrote it, what is valid, and the nearest valid key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
import yaml.constructor
import yaml.resolver
from pydantic import ValidationError

from robocoach.configs.errors import UserError
from robocoach.configs.fields import fields, nearest
from robocoach.configs.models import Sim2RealConfig

PROFILES = Path(__file__).parent / "profiles"


class _UniqueKeys(yaml.SafeLoader):
    """YAML whose second mention of a key is an error; PyYAML itself silently takes the last one."""


def _unique_mapping(loader: _UniqueKeys, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} twice", key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node)


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def profile_names() -> list[str]:
    """The profiles that `--profile` takes."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def detect_profile() -> str:
    """`gpu` where the NVIDIA driver shows a device, else `cpu`; costs no import and no process."""
    return "gpu" if any(Path("/proc/driver/nvidia/gpus").glob("*")) or Path("/dev/nvidia0").exists() else "cpu"


def read_yaml(path: Path) -> dict[str, Any]:
    """A settings file as nested dictionaries; raises UserError when it cannot be read or is no mapping."""
    try:
        raw = yaml.load(path.read_text(), Loader=_UniqueKeys)
    except FileNotFoundError:
        raise UserError(
            f"--config {path}: no such file; write one, `pipeline sim2real --help` lists the keys"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--config {path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise UserError(f"{path}{where}: {problem}; expected lines such as `train: {{minutes: 12}}`") from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise UserError(f"{path} holds a {type(raw).__name__}; expected settings such as `train: {{minutes: 12}}`")
    return raw


def flatten(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Nested settings as dotted keys; raises UserError on a key that does not exist, naming the nearest one."""
    valid = fields()
    sections = {key.split(".")[0] for key in valid if "." in key}
    flat: dict[str, Any] = {}
    for key, value in raw.items():
        if key in sections:
            if not isinstance(value, Mapping):
                raise UserError(f"{where}: {key} is a section, expected settings below it, got {value!r}")
            flat.update({f"{key}.{inner}": inner_value for inner, inner_value in value.items()})
        else:
            flat[str(key)] = value
    for key in flat:
        if key not in valid:
            raise UserError(f"{where}: unknown key {key}; the nearest valid key is {nearest(key, [*valid, *sections])}")
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys back into nested dictionaries, the inverse of `flatten`."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *sections, name = key.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return nested


def build(values: Mapping[str, Any], names: Mapping[str, str] | None = None) -> Sim2RealConfig:
    """The checked configuration from dotted keys; `names` says how the user wrote a key (`--learning-rate`).

    Values may be text, as they come from the command line. Raises UserError: key, value, what is valid.
    """
    names = names or {}
    specs = fields()
    for key, value in values.items():
        if isinstance(value, bool) and specs[key].kind is not bool:
            raise UserError(f"{names.get(key, key)}: {value} is not valid, expected {specs[key].bounds}")
    try:
        return Sim2RealConfig.model_validate(nest(values))
    except ValidationError as error:
        faults = error.errors()
        key = ".".join(str(part) for part in faults[0]["loc"])
        if key not in specs:  # a rule between two settings
            raise UserError(f"{key}: {faults[0]['msg'].removeprefix('Value error, ')}") from None
        unit = f" [{specs[key].unit}]" if specs[key].unit else ""
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise UserError(
            f"{names.get(key, key)}: {faults[0]['input']!r} is not valid, expected {specs[key].bounds}{unit}{more}"
        ) from None


def load(
    overrides: Mapping[str, Any] | None = None,
    *,
    profile: str | None = None,
    file: Path | None = None,
    names: Mapping[str, str] | None = None,
) -> Sim2RealConfig:
    """Defaults, then profile, then file, then overrides (dotted keys), checked.

    Without a profile it is chosen by `detect_profile`. Raises UserError on the first fault.
    """
    chosen = profile or detect_profile()
    if chosen not in profile_names():
        raise UserError(f"--profile {chosen}: unknown profile, choose from {', '.join(profile_names())}")
    path = PROFILES / f"{chosen}.yaml"
    values = flatten(read_yaml(path), str(path.name))
    spelled: dict[str, str] = {}
    if file is not None:
        from_file = flatten(read_yaml(file), str(file))
        values.update(from_file)
        spelled.update({key: f"{file}: {key}" for key in from_file})
    values.update(overrides or {})
    spelled.update(names or {})
    return build(values, spelled)


def dump(config: Sim2RealConfig) -> str:
    """The configuration as YAML that `--config` reads back."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def changes(old: Sim2RealConfig, new: Sim2RealConfig) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ: key → (old, new)."""
    a, b = flatten(old.model_dump(), "settings"), flatten(new.model_dump(), "settings")
    return {key: (a[key], b[key]) for key in a if a[key] != b[key]}
