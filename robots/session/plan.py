"""The plan of a session: every trial with its placement, order, rules and thresholds, frozen before the first one.

A plan is hashed (SHA-256 of its canonical JSON) and never changes afterwards: a session goes on only with the plan it
began with. With two checkpoints every scene is run by both, in a random, balanced order. A blind plan names codes; who
is behind them lies in a sealed file whose hash is in the plan, so that it cannot be exchanged later either. Knows
nothing of arms or screens.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically
from robocoach.sim.state import yaw_of

if TYPE_CHECKING:
    from robocoach.sim.task import Task

PLAN_FILE = "plan.json"
SEAL_FILE = "sealed-names.txt"
VERSION = 1
CODES = ("Alder", "Birch", "Cedar", "Hazel", "Linden", "Maple", "Rowan", "Willow")
"""Names of trees stand for checkpoints in a blind session."""

FAILURE_REASONS = (
    "missed the object",
    "lost the object on the way",
    "pushed or toppled something",
    "put it down beside the goal",
    "did not let go, or it did not stay",
    "stood still or ran out of time",
    "had to be stopped: about to do damage",
)
INVALID_REASONS = (
    "objects were not placed as planned",
    "somebody or something disturbed the scene",
    "camera or light failed",
    "arm, hand or network failed",
    "stopped by mistake",
)
"""What a key stands for; the operator's own words are taken as well."""

MIN_DISTRACTOR_DISTANCE_M = 0.09
"""From a distractor's centre to every other object's: open fingers fit between."""
DISTRACTOR_SIZE_M = 0.05
SAME = 0.001
"""[m] and [rad]: a scene drawn again may differ by a solver's last digits, not by more."""
DISTRACTOR_REGION_M = ((0.36, 0.53), (-0.16, 0.16))


@dataclass(frozen=True)
class Contestant:
    """One checkpoint of the session."""

    name: str
    digest: str
    """SHA-256 of its manifest, which holds the hash of each of its files."""
    source: str
    """Where it was found."""


@dataclass(frozen=True)
class Placed:
    """One object on the table, seen from above in the robot's base frame."""

    name: str
    x_m: float
    y_m: float
    yaw_deg: float
    size_m: tuple[float, float, float]
    colour: str
    """`#rrggbb`."""


@dataclass(frozen=True)
class Start:
    """The initial conditions of one scene."""

    seed: int
    objects: tuple[Placed, ...]
    distractors: tuple[Placed, ...]
    start_q_rad: tuple[float, ...]


@dataclass(frozen=True)
class Trial:
    """One counted rollout."""

    number: int
    """From 1, in the order of the session."""
    scene: int
    """Which of the plan's scenes, from 1."""
    label: str
    """The checkpoint's name, or its code in a blind session."""
    replaces: int = 0
    """Number of the invalid trial that this one makes up for; 0 for a planned trial."""


@dataclass(frozen=True)
class Plan:
    """What was decided before the first trial."""

    task: str
    instruction: str
    success: str
    """The success criterion in plain words."""
    stages: tuple[str, ...]
    time_limit_s: float
    robot: str
    serial: str
    operator: str
    verdict: Literal["ask", "auto"]
    contestants: tuple[Contestant, ...]
    labels: tuple[str, ...]
    """What stands for them in the trials: their names, or codes in no telling order."""
    commitment: str
    """SHA-256 of the sealed file; empty when nothing is blind."""
    scenes: tuple[Start, ...]
    trials: tuple[Trial, ...]
    extra_trials: int
    rules: tuple[str, ...]
    """How invalid trials, undone verdicts and counts are treated, in words."""
    reference: float
    """Success rate to compare with; 0 for none."""
    simulated: dict[str, str]
    """Name of a checkpoint → its success in simulation, `45/50`, where it is known."""
    settings: dict[str, Any]
    """Every setting of the loop and of the safety envelope."""
    accept: tuple[str, ...]
    """Fields of the checkpoints' provenance that may differ from this robot's."""
    code_version: str
    made_at: str
    version: int = VERSION

    @property
    def blind(self) -> bool:
        """Whether codes stand for the checkpoints."""
        return bool(self.commitment)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, 64 hex digits."""
        return digest(asdict(self))

    def start(self, trial: Trial) -> Start:
        """The initial conditions of a trial."""
        return self.scenes[trial.scene - 1]


def canonical(content: Any) -> bytes:
    """The one JSON text of a value: sorted keys, no blanks, numbers as Python writes them."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(content: Any) -> str:
    """SHA-256 of `canonical`, 64 hex digits."""
    return hashlib.sha256(canonical(content)).hexdigest()


def order(scenes: int, labels: Sequence[str], seed: int) -> tuple[Trial, ...]:
    """Every scene for each label; within a pair the first one is random, and each label is first equally often.

    With an odd number of scenes chance decides who is first once more.
    """
    rng = random.Random(f"order {seed}")
    swapped = [index % 2 == 1 for index in range(scenes)]
    if scenes % 2 and rng.random() < 0.5:
        swapped[0] = True
    rng.shuffle(swapped)
    trials: list[Trial] = []
    for scene, swap in enumerate(swapped, start=1):
        for label in reversed(labels) if swap else labels:
            trials.append(Trial(len(trials) + 1, scene, label))
    return tuple(trials)


@dataclass(frozen=True)
class Seal:
    """Which checkpoint is behind which code."""

    salt: str
    names: dict[str, str]
    """Code → name."""

    @property
    def commitment(self) -> str:
        """SHA-256 of salt and names: without the salt two codes could be tried out."""
        return digest(asdict(self))


def seal(names: Sequence[str]) -> Seal:
    """Random codes for names; no seed can bring them back."""
    codes = secrets.SystemRandom().sample(CODES, len(names))
    return Seal(secrets.token_hex(16), dict(zip(codes, names, strict=True)))


def write_seal(folder: Path, secret: Seal) -> None:
    """Writes the sealed file, not readable at a glance."""
    hidden = base64.b64encode(canonical(asdict(secret))).decode()
    write_atomically(
        folder / SEAL_FILE, f"Reading the next line breaks the blind; the session opens it at its end.\n{hidden}\n"
    )


def read_seal(folder: Path, plan: Plan) -> Seal:
    """The names behind the codes. Raises UserError when the file is missing or not the one of the plan."""
    path = folder / SEAL_FILE
    try:
        secret = TypeAdapter(Seal).validate_json(base64.b64decode(path.read_text().splitlines()[1]))
    except (OSError, IndexError, ValueError) as error:
        raise UserError(f"{path} is missing or damaged, so nobody knows which checkpoint is which: {error}") from None
    if secret.commitment != plan.commitment:
        raise UserError(f"{path} is not the file that this session was planned with; restore it")
    return secret


def start_of(task: Task, seed: int, distractors: int) -> Start:
    """The initial conditions of a seed, as the simulators draw them, with distractors beside."""
    scene = task.sample_scene(seed)
    objects = tuple(
        _placed(box.name, scene.objects[box.name], box.size_m, _hex(scene.colours[box.name])) for box in task.boxes
    )
    return Start(
        seed=seed,
        objects=objects,
        distractors=_distractors(objects, seed, distractors),
        start_q_rad=tuple(round(float(q), 6) for q in scene.start_q),
    )


def _placed(name: str, pose: np.ndarray, size_m: tuple[float, float, float], colour: str) -> Placed:
    yaw_deg = round(float(np.rad2deg(yaw_of(pose[3:]))), 1)
    return Placed(name, round(float(pose[0]), 4), round(float(pose[1]), 4), yaw_deg, size_m, colour)


def _hex(colour: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)


def _distractors(objects: Sequence[Placed], seed: int, count: int) -> tuple[Placed, ...]:
    rng = np.random.default_rng([seed, 1])
    found: list[Placed] = []
    size = (DISTRACTOR_SIZE_M, DISTRACTOR_SIZE_M, DISTRACTOR_SIZE_M)
    for _ in range(10_000):
        if len(found) == count:
            break
        x, y = (float(rng.uniform(*side)) for side in DISTRACTOR_REGION_M)
        if all(np.hypot(x - other.x_m, y - other.y_m) >= MIN_DISTRACTOR_DISTANCE_M for other in [*objects, *found]):
            name = f"distractor {len(found) + 1}"
            found.append(Placed(name, round(x, 3), round(y, 3), round(float(rng.uniform(-45, 45)), 0), size, "#8d99a0"))
    else:
        raise UserError(f"--distractors {count}: there is no room for so many beside the task's objects; ask for fewer")
    return tuple(found)


def rules(extra_trials: int, labels: int, distractors: int) -> tuple[str, ...]:
    """The rules of a session in words."""
    told = [
        "A trial is a success, a failure, or invalid. A policy that does nothing useful, drives the arm into something "
        "or has to be stopped before it does damage has failed.",
        "A trial that a fault ended is invalid: a fault of the equipment always; one of the policy itself (a crash, an "
        "action that is no number, a jump) unless the operator calls it a failure. Beside the rate "
        "stands what it would be if every trial that such a fault of the policy ended were a failure.",
        "Invalid trials stay in the record. Each is run again at the end, same scene and same checkpoint, until it is "
        f"valid or {extra_trials} extra trials are used up.",
        "For each scene and checkpoint the first valid verdict counts.",
        "A verdict can be taken back until the session is closed; both the verdict and its undoing stay on record.",
        "A rollout that the program did not see end (a crash, a power cut) is an invalid trial.",
    ]
    if labels > 1:
        told.append("A scene counts as a pair once both checkpoints have a valid trial on it.")
    if distractors:
        told.append(
            f"{distractors} distractors: small objects of at most 8 cm that look like none of the task's, the same "
            "ones in every trial, placed as the sheet says."
        )
    return tuple(told)


def make_plan(
    task: Task,
    contestants: Sequence[Contestant],
    seeds: Sequence[int],
    *,
    distractors: int,
    extra_trials: int,
    labels: Sequence[str],
    commitment: str,
    **more: Any,
) -> Plan:
    """The plan of a session with one scene a seed; `labels` are the names or the codes, `more` the plan's other fields.

    Raises UserError when there are not one or two checkpoints with names of their own.
    """
    if not 1 <= len(contestants) <= 2 or len({contestant.name for contestant in contestants}) != len(contestants):
        raise UserError(f"a session compares one or two different checkpoints, {len(contestants)} were given")
    return Plan(
        task=task.name,
        instruction=task.instruction,
        success=task.goal,
        stages=task.stages,
        contestants=tuple(contestants),
        labels=tuple(labels),
        commitment=commitment,
        scenes=tuple(start_of(task, seed, distractors) for seed in seeds),
        trials=order(len(seeds), labels, seeds[0]),
        extra_trials=extra_trials,
        rules=rules(extra_trials, len(labels), distractors),
        **more,
    )


def freeze(folder: Path, plan: Plan) -> None:
    """Writes the plan with its hash. Raises UserError when the folder holds one already."""
    path = folder / PLAN_FILE
    if path.exists():
        raise UserError(f"{path} is there already; go on with it by --resume, or name another folder with --out")
    content = {"sha256": plan.digest, "plan": asdict(plan)}
    write_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


_PLAN = TypeAdapter(Plan)


def read_plan(folder: Path) -> Plan:
    """The frozen plan of a session. Raises UserError when there is none, or when it is not what was frozen."""
    path = folder / PLAN_FILE
    try:
        content = json.loads(path.read_text())
        plan, written = _PLAN.validate_python(content["plan"]), content["sha256"]
    except FileNotFoundError:
        raise UserError(f"{folder} holds no session ({PLAN_FILE} is missing); begin one without --resume") from None
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        what = " ".join(str(error).split())[:120]
        raise UserError(f"{path} cannot be read as a plan of this version ({what}); restore the file") from None
    if digest(content["plan"]) != written or plan.digest != written:
        raise UserError(f"{path} was changed after it was frozen; restore it, or begin a new session in another folder")
    return plan


def check_scenes(plan: Plan, task: Task) -> None:
    """Refuses a plan whose placements this version of the task would draw differently. Raises UserError."""
    for start in plan.scenes:
        drawn = start_of(task, start.seed, 0)
        away = [abs(a - b) for a, b in zip(drawn.start_q_rad, start.start_q_rad, strict=True)]
        away += [
            max(abs(a.x_m - b.x_m), abs(a.y_m - b.y_m)) if a.name == b.name else np.inf
            for a, b in zip(drawn.objects, start.objects, strict=True)
        ]
        if max(away) > SAME:
            raise UserError(
                f"scene {start.seed} of the plan is not what this version of {task.name} draws for that seed; go on "
                f"with version {plan.code_version}, or begin a new session"
            )


def same_as(plan: Plan, wanted: Mapping[str, Any]) -> None:
    """Refuses settings that differ from the plan's. Raises UserError with the first differences."""
    other = {key: value for key, value in wanted.items() if key in plan.settings and plan.settings[key] != value}
    if other:
        listed = ", ".join(f"{key} {plan.settings[key]} there, {value} now" for key, value in list(other.items())[:4])
        raise UserError(f"the plan is frozen ({listed}); leave these options out, or begin a session in another folder")
