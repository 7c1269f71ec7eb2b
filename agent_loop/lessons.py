"""Lessons: what attempts taught, kept beyond their campaign and offered to later ones, other tasks included.

A lesson is a claim with the attempts that support and contradict it. Its status follows from those attempts and is
never told: unproven causes stay a hypothesis. A lesson that names places of one layout (coordinates, positions, seeds)
is refused: it would fit one scene and mislead on the next. Knows nothing of simulators and models.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, computed_field

from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically

Status = Literal["hypothesis", "supported", "contradicted"]
ENOUGH = 2
"""Attempts that must support a claim before it is more than a hypothesis."""
MOST_OFFERED = 12
MOST_CHARACTERS = 400

_NUMBER = r"[-+]?(?:\d+(?:[.,]\d+)?|[.,]\d+)(?:e[-+]?\d+)?"
_LENGTH = rf"{_NUMBER}\s*(?:mm|cm|dm|m|px|pixels?|met(?:er|re)s?|(?:centi|milli)met(?:er|re)s?)\b"
_FIXED = r"(?:base|robot|arm|table|world|origin|workspace|scene|corner|camera)"
_SIDE = r"(?:left|right|in\s+front|forwards?|behind|ahead|north|south|east|west|back)"
_LAYOUT = {
    "a coordinate": rf"\b[xyz](?:[ _-]?(?:position|coordinate|pos|m|mm|cm))?"
    rf"(?:\s*(?:[=≈~:<>@]|is|at|of|near|around|about|equals))*\s*{_NUMBER}",
    "a point": rf"[(\[{{]\s*{_NUMBER}\s*(?:mm|cm|m|px)?\s*[,;]\s*{_NUMBER}",
    "a row of coordinates": rf"{_NUMBER}\s*(?:mm|cm|m|px)?\s*[,;/|]\s*{_NUMBER}\s*(?:mm|cm|m|px)?\s*[,;/|]\s*{_NUMBER}"
    rf"|\d*\.\d+\s*(?:mm|cm|m|px)?\s*[,;|]\s*[-+]?\d*\.\d+",
    "a length from a fixed place": rf"{_LENGTH}[^.;]{{0,40}}\b(?:{_FIXED}|{_SIDE})\b"
    rf"|\b{_FIXED}\b[^.;]{{0,20}}{_LENGTH}",
    "a position": rf"\b(?:position(?:ed)?|coordinates?|located|location|lies|sits|stands|pixels?)\b"
    rf"(?:\s*(?:[=:~≈]|is|are|at|of|near|around|about))*\s*{_NUMBER}",
    "a seed": rf"\bseeds?\b(?:\s*(?:[=:#]|no\.?|numbers?|is|are|was))*\s*{_NUMBER}",
}
_PATTERNS = {what: re.compile(pattern, re.IGNORECASE) for what, pattern in _LAYOUT.items()}


def layout_words(text: str) -> str | None:
    """What in a text belongs to one layout (`a coordinate: "x = 0.42"`); None when nothing does."""
    plain = unicodedata.normalize("NFKC", text).replace("−", "-").replace("–", "-")
    for what, pattern in _PATTERNS.items():
        found = pattern.search(plain)
        if found:
            return f'{what}: "{found.group(0).strip()}"'
    return None


def _general(text: str) -> str:
    plain = " ".join(text.split())
    if not plain:
        raise ValueError("empty; expected a sentence")
    if len(plain) > MOST_CHARACTERS:
        raise ValueError(f"{len(plain)} characters, expected at most {MOST_CHARACTERS}")
    found = layout_words(plain)
    if found:
        raise ValueError(f"names {found}, which fits one layout only; say it relative to the objects")
    return plain


def _words(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({_general(word).lower() for word in words}))


Sentence = Annotated[str, AfterValidator(_general)]


class Sighting(BaseModel):
    """One attempt that speaks for or against a claim."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    campaign: str = Field(description="name of the campaign's folder", min_length=1, max_length=200)
    attempt: int = Field(description="number of the attempt", ge=0)
    result: str = Field("", description="train-seed successes before and after, such as 3/10 to 7/10", max_length=100)


def _once(sightings: tuple[Sighting, ...]) -> tuple[Sighting, ...]:
    """An attempt counts once, with what was said of it last."""
    return tuple({(one.campaign, one.attempt): one for one in sightings}.values())


Sightings = Annotated[tuple[Sighting, ...], AfterValidator(_once)]


class Lesson(BaseModel):
    """One claim, as it lies in its file and is offered to a coach."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: Sentence = Field(description="what was learned, in one sentence")
    applies: Sentence = Field(description="when it applies: what evidence to look for")
    check: Sentence = Field(description="how to check it")
    instead: Sentence = Field(description="what to do instead of what failed")
    task: str = Field("", description="the task it was learned on", max_length=100)
    operation: Annotated[tuple[str, ...], AfterValidator(_words)] = Field(
        (), description="operation words: stages it is about, or training", max_length=12
    )
    supports: Sightings = Field((), description="attempts that support it")
    contradicts: Sightings = Field((), description="attempts that contradict it")

    @computed_field
    @property
    def id(self) -> str:
        """Follows from the claim, so that campaigns which find the same add to the same lesson."""
        return hashlib.sha256(self.claim.lower().encode()).hexdigest()[:10]

    @computed_field
    @property
    def status(self) -> Status:
        """`supported` by at least two attempts and contradicted by none; `contradicted` by more than support it."""
        if len(self.contradicts) > len(self.supports):
            return "contradicted"
        return "supported" if len(self.supports) >= ENOUGH and not self.contradicts else "hypothesis"

    def joined(self, other: Lesson) -> Lesson:
        """This lesson with the attempts of another one with the same claim; an attempt counts once a side."""
        return self.model_copy(
            update={
                "supports": _once((*self.supports, *other.supports)),
                "contradicts": _once((*self.contradicts, *other.contradicts)),
                "operation": _words((*self.operation, *other.operation)),
            }
        )


def lesson_from(raw: Mapping[str, Any]) -> Lesson:
    """A lesson from its JSON values; id and status are computed, whatever was told.

    Raises UserError, one line, on a missing or wrong value and on words that belong to one layout.
    """
    try:
        return Lesson.model_validate({key: value for key, value in raw.items() if key not in ("id", "status")})
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise UserError(f"the lesson's {where}: {fault['msg'].removeprefix('Value error, ')}") from None


def home() -> Path:
    """Where lessons lie: ROBOCOACH_LESSONS, else `robocoach/lessons` under XDG_DATA_HOME (~/.local/share)."""
    named = os.environ.get("ROBOCOACH_LESSONS")
    if named:
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "robocoach" / "lessons"


class Lessons:
    """The lessons of this machine: one JSON file each, replaced whole, so that a kill leaves no half of one."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or home()

    def all(self) -> tuple[Lesson, ...]:
        """Every lesson, by id. Raises UserError that names a file which is none."""
        if not self.folder.is_dir():
            return ()
        return tuple(_read(path) for path in sorted(self.folder.glob("*.json")))

    def get(self, name: str) -> Lesson:
        """The lesson whose id begins so. Raises UserError when there is none, or more than one."""
        return _read(self._path(name))

    def keep(self, lesson: Lesson) -> Lesson:
        """Adds a lesson, or its attempts to the one with the same claim; returns what the file holds then."""
        with self._locked():
            path = self.folder / f"{lesson.id}.json"
            kept = _read(path).joined(lesson) if path.exists() else lesson
            write_atomically(path, json.dumps(kept.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n")
        return kept

    def drop(self, name: str) -> Lesson:
        """Deletes the lesson whose id begins so and returns it. Raises UserError as `get` does."""
        with self._locked():
            path = self._path(name)
            lesson = _read(path)
            path.unlink()
        return lesson

    def offered(self, task: str, operation: Iterable[str] = ()) -> tuple[Mapping[str, Any], ...]:
        """At most MOST_OFFERED lessons as JSON values, most relevant first, other tasks included.

        `operation` holds the task's own operation words (its stages): lessons about the same operations come first,
        then those of the same task; among equals supported ones, and those that more attempts speak for.
        """
        wanted = {word.lower() for word in operation} | set(task.lower().split("-"))

        def relevance(lesson: Lesson) -> tuple[Any, ...]:
            about = set(lesson.operation) | set(lesson.task.lower().split("-"))
            rank = ("supported", "hypothesis", "contradicted").index(lesson.status)
            return (-len(wanted & about), lesson.task != task, rank, -len(lesson.supports), lesson.id)

        return tuple(one.model_dump(mode="json") for one in sorted(self.all(), key=relevance)[:MOST_OFFERED])

    def _path(self, name: str) -> Path:
        known = sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []
        found = [path for path in known if name and path.stem.startswith(name)]
        if len(found) != 1:
            what = "no lesson" if not found else f"{len(found)} lessons"
            raise UserError(f"{what} {name!r} in {self.folder}; `pipeline lessons list` shows the ids")
        return found[0]

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Two campaigns that end at once add to the same lesson one after the other."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("w")
        except OSError as error:
            raise UserError(f"lessons cannot be kept in {self.folder} ({error}); set ROBOCOACH_LESSONS") from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _read(path: Path) -> Lesson:
    try:
        raw = json.loads(path.read_text())
        if not isinstance(raw, dict):
            raise ValueError(f"it holds a {type(raw).__name__}")
        return lesson_from(raw)
    except (OSError, ValueError, UserError) as error:
        raise UserError(f"{path} is no lesson ({error}); delete it") from None


def keep(raw: Mapping[str, Any], task: str, campaign: str) -> Lesson:
    """Keeps what a coach told after an attempt, as a lesson of this task and campaign; returns what is kept now.

    `supports` and `contradicts` may be attempt numbers alone. The campaign's name is ours, so that a coach cannot call
    up attempts of another one. Raises UserError as `lesson_from` does.
    """
    sides = {}
    for side in ("supports", "contradicts"):
        told = raw.get(side) or []
        sides[side] = [_sighting(one, campaign) for one in (told if isinstance(told, list | tuple) else [told])]
    return Lessons().keep(lesson_from({**raw, **sides, "task": task}))


def _sighting(raw: Any, campaign: str) -> Mapping[str, Any]:
    return {**(raw if isinstance(raw, Mapping) else {"attempt": raw}), "campaign": campaign}


def offered(task: str, operation: Iterable[str] = ()) -> tuple[Mapping[str, Any], ...]:
    """`Lessons.offered` of this machine's lessons."""
    return Lessons().offered(task, operation)
