"""Command-line options made from the settings: each field is an option with its help, unit, bounds and default.

`pipeline sim2real` takes them with their section (`--train.learning-rate`), the single verbs without
(`pipeline train --learning-rate`). Values stay text here; `configs.load` checks them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from robocoach.configs.errors import UserError

if TYPE_CHECKING:
    from robocoach.configs.fields import FieldSpec

SHORTCUTS = {
    "train.minutes": "--minutes",
    "data.real": "--real",
    "data.mix": "--mix",
    "data.accept": "--accept",
    "evaluate.videos": "--video",
    "deploy.robot": "--robot",
    "deploy.host": "--host",
    "deploy.dry_run": "--dry-run",
}
"""Second names of settings; the first name is the dotted key."""


@dataclass(frozen=True)
class Extra:
    """An option of one verb that is no setting, such as `--out`."""

    flag: str
    help: str
    metavar: str = ""
    """Empty for a switch."""
    required: bool = False
    many: bool = False
    """May be given several times; its value is a list."""


@dataclass
class Parsed:
    """What was given: settings by dotted key (as text), how each was spelled, and the verb's own options."""

    values: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    extras: dict[str, Any] = field(default_factory=dict)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog}: {message}; `{self.prog} --help` lists what it takes")


def option_names(spec: FieldSpec, bare: bool) -> list[str]:
    """The flags of a setting, most used first; `bare` leaves the section out."""
    key = spec.key.rsplit(".", 1)[-1] if bare else spec.key
    names = [f"--{key.replace('_', '-')}"]
    short = SHORTCUTS.get(spec.key)
    if short and short not in names:
        names.append(short)
    return names


def _help(spec: FieldSpec) -> str:
    parts = [spec.help]
    if spec.kind is not str or spec.choices:
        parts.append(spec.bounds)
    if spec.unit:
        parts[-1] += f" [{spec.unit}]" if len(parts) > 1 else ""
    default = spec.default if spec.default != "" else "none"
    return f"{'; '.join(parts)} (default {default})".replace("%", "%%")


def parser(
    verb: str, about: str, sections: Sequence[str], extras: Sequence[Extra], *, bare: bool
) -> tuple[argparse.ArgumentParser, dict[str, tuple[str, str]]]:
    """The parser of a verb and a map from its argparse names to (dotted key, flag).

    `sections` names what becomes an option: a section with all its fields (`""` for the top level), or a dotted key.
    """
    made = _Parser(
        prog=f"pipeline {verb}",
        usage=f"pipeline {verb} [options]",
        description=about,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34, width=118),
    )
    for extra in extras:
        if extra.many:
            made.add_argument(
                extra.flag,
                metavar=extra.metavar,
                action="append",
                required=extra.required,
                help=extra.help.replace("%", "%%"),
            )
        elif extra.metavar:
            made.add_argument(
                extra.flag, metavar=extra.metavar, required=extra.required, help=extra.help.replace("%", "%%")
            )
        else:
            made.add_argument(extra.flag, action="store_true", help=extra.help.replace("%", "%%"))
    destinations: dict[str, tuple[str, str]] = {}
    if sections:  # pydantic costs a quarter of a second, which verbs without settings need not pay
        from robocoach.configs.fields import fields
    for section in sections:
        group = made.add_argument_group(section.split(".")[0] or "run") if section not in fields() else made
        for key, spec in fields().items():
            if section not in (key, key.rsplit(".", 1)[0] if "." in key else ""):
                continue
            flags = option_names(spec, bare or not section)
            destination = f"set:{key}"
            destinations[destination] = (key, flags[0])
            shape: dict[str, Any] = {"metavar": spec.kind.__name__.upper()}
            if spec.choices:
                shape = {"metavar": "|".join(spec.choices)}
            if spec.kind is bool:
                shape = {"nargs": "?", "const": "true", "metavar": "true|false"}
            group.add_argument(*flags, dest=destination, help=_help(spec), **shape)
    return made, destinations


def parse(made: argparse.ArgumentParser, destinations: dict[str, tuple[str, str]], arguments: Sequence[str]) -> Parsed:
    """Reads the arguments. Raises UserError on an option that does not exist, naming the nearest one."""
    spelled = [_with_hyphens(argument) for argument in arguments]
    namespace, unknown = made.parse_known_args(spelled)
    if unknown:
        valid = [flag for action in made._actions for flag in action.option_strings if flag.startswith("--")]
        word = unknown[0].split("=")[0]
        if not word.startswith("-"):
            raise UserError(f"{made.prog}: {word!r} is not an option; write options as --name value")
        from robocoach.configs.fields import nearest

        raise UserError(f"{made.prog}: unknown option {word}; the nearest valid one is {nearest(word, valid)}")
    parsed = Parsed()
    for name, value in vars(namespace).items():
        if name in destinations:
            key, flag = destinations[name]
            if value is not None:
                parsed.values[key] = "-1" if key == "evaluate.videos" and value == "all" else value
                parsed.names[key] = flag
        else:
            parsed.extras[name] = value
    return parsed


def _with_hyphens(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value
