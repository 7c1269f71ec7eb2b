"""The data contract: what every dataset, checkpoint and robot says about its observations and actions.

Two parts. *Meaning* (keys, shapes, dtypes, units, rate, what an action is, the gripper rule) is hashed; a mismatch
is always refused. *Provenance* (robot, camera, field of view, mount, crop, controller, source, simulator) is
recorded; a difference is shown and has to be accepted by name. Knows nothing of simulators, robots or models.

    observation.images.wrist  uint8   (224, 224, 3)  RGB
    observation.state         float32 (8,)           joint_1.pos … joint_7.pos [rad], gripper.pos [m, opening width]
    action                    float32 (8,)           commanded joints [rad] at the next step, commanded width [m]
    task                      str                    the instruction
"""

from __future__ import annotations

import hashlib
import json
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from robocoach.configs.errors import UserError

FPS = 10
IMAGE_SIZE = 224
IMAGE_KEY = "observation.images.wrist"
STATE_KEY = "observation.state"
ACTION_KEY = "action"
JOINT_NAMES = tuple(f"joint_{i}.pos" for i in range(1, 8))
STATE_NAMES = (*JOINT_NAMES, "gripper.pos")
ACTION_NAMES = STATE_NAMES
STATE_DIM = ACTION_DIM = 8
CONTRACT_FILE = "contract.json"
FOV_TOLERANCE_DEG = 1.0
"""Fields of view this near need no asking: two cameras of one model differ by as much, and it moves the edge of the
picture by less than 3 pixels."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GripperRule(_Frozen):
    """How a commanded width becomes one hand command, the same in Genesis, in MuJoCo and on the real hand.

    A Franka Hand has no 10 Hz width servo, so the width is read as a decision: below `close_below_m` the hand
    grasps with `force_n`, above `open_above_m` it moves to `open_width_m`; in between the last decision stands.
    """

    close_below_m: float = 0.030
    open_above_m: float = 0.050
    open_width_m: float = 0.080
    closed_width_m: float = 0.0
    speed_m_s: float = 0.10
    force_n: float = 20.0

    def wants_closed(self, width_m: float, closed_now: bool) -> bool:
        """The decision for one commanded width [m], given the decision that stands."""
        if width_m < self.close_below_m:
            return True
        if width_m > self.open_above_m:
            return False
        return closed_now


class Meaning(_Frozen):
    """What the numbers are. Hashed; two sides that differ here cannot exchange data."""

    image_key: str = IMAGE_KEY
    image_shape: tuple[int, int, int] = (IMAGE_SIZE, IMAGE_SIZE, 3)
    image_dtype: str = "uint8 RGB"
    state_key: str = STATE_KEY
    state_names: tuple[str, ...] = STATE_NAMES
    state_units: tuple[str, ...] = ("rad",) * 7 + ("m",)
    action_key: str = ACTION_KEY
    action_names: tuple[str, ...] = ACTION_NAMES
    action_units: tuple[str, ...] = ("rad",) * 7 + ("m",)
    action_meaning: str = "absolute joint position commanded for the next control step, opening width commanded"
    fps: int = FPS
    gripper: GripperRule = GripperRule()

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, first 16 hex digits."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Provenance(_Frozen):
    """Where the numbers come from. Differences are shown and accepted by name."""

    robot: str
    """`fr3` or `panda`, with its hand when it is not the Franka Hand (`panda+robotiq-2f85`)."""
    camera: str
    fov_deg: float | None
    """Vertical field of view of the image after cropping [degrees]; None when unknown."""
    mount: str
    """Camera pose in the hand frame, in words and numbers."""
    crop: str
    """What was cut and how it was resized."""
    controller: str
    source: str
    """`sim:genesis`, `sim:mujoco`, `twin` or `real`."""
    simulator_version: str | None = None


class Contract(_Frozen):
    """The description that travels with a dataset, a checkpoint or a robot."""

    meaning: Meaning = Meaning()
    provenance: Provenance

    def save(self, folder: Path) -> None:
        """Writes `contract.json` into a folder."""
        text = json.dumps({**self.model_dump(mode="json"), "digest": self.meaning.digest()}, indent=2)
        (folder / CONTRACT_FILE).write_text(text + "\n")

    @classmethod
    def load(cls, folder: Path) -> Contract:
        """Reads `contract.json`; raises UserError when it is missing, broken or edited by hand."""
        path = folder / CONTRACT_FILE
        if not path.is_file():
            raise UserError(f"{folder} has no {CONTRACT_FILE}: it was not written by this project; state its contract")
        try:
            raw = json.loads(path.read_text())
            if not isinstance(raw, dict):
                raise ValueError("it is no JSON object")
            digest = raw.pop("digest", None)
            contract = cls.model_validate(raw)
        except (ValueError, ValidationError) as error:
            raise UserError(f"{path} is not a contract ({str(error).splitlines()[0]}); take a fresh copy") from error
        if digest != contract.meaning.digest():
            raise UserError(f"{path} does not match its own hash {digest}; it was edited: take a fresh copy")
        return contract


def _flat(model: BaseModel) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in model.model_dump().items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": inner_value for inner, inner_value in value.items()})
        else:
            flat[key] = value
    return flat


def differences(ours: BaseModel, theirs: BaseModel) -> dict[str, tuple[object, object]]:
    """Fields that differ between two meanings or two provenances: name → (ours, theirs)."""
    a, b = _flat(ours), _flat(theirs)
    return {key: (a.get(key), b.get(key)) for key in a | b if a.get(key) != b.get(key)}


class CompatiblePair(_Frozen):
    """Two values of a provenance field that may meet without asking, and why; `*` stands for anything."""

    field: str
    between: tuple[str, str]
    why: str

    def covers(self, field: str, ours: object, theirs: object) -> bool:
        """Whether this pair is the given difference, either way round; an unknown value reads `none`."""
        a, b = ("none" if value is None else str(value) for value in (ours, theirs))
        one, other = self.between
        forward = fnmatchcase(a, one) and fnmatchcase(b, other)
        return field == self.field and (forward or (fnmatchcase(a, other) and fnmatchcase(b, one)))


@lru_cache
def compatible_pairs() -> tuple[CompatiblePair, ...]:
    """The pairs that `configs/compatible.yaml` declares."""
    import yaml

    text = files("robocoach.configs").joinpath("compatible.yaml").read_text()
    return tuple(CompatiblePair.model_validate(pair) for pair in yaml.safe_load(text))


def check(ours: Contract, theirs: Contract, what: str, accept: frozenset[str] = frozenset()) -> list[str]:
    """Compares two contracts and returns the provenance differences, one readable line each.

    `accept` names the provenance fields that may differ; the pairs in `configs/compatible.yaml` may always differ.
    Raises UserError on any difference of meaning, and on another provenance difference that was not accepted.
    """
    meaning = differences(ours.meaning, theirs.meaning)
    if meaning:
        listed = "; ".join(f"{key}: expected {a!r}, {what} has {b!r}" for key, (a, b) in meaning.items())
        raise UserError(f"{what} has another data contract and cannot be used: {listed}")
    provenance = differences(ours.provenance, theirs.provenance)
    unknown = accept - set(type(ours.provenance).model_fields)
    if unknown:
        raise UserError(f"--accept {','.join(sorted(unknown))}: choose from {', '.join(Provenance.model_fields)}")
    declared = {
        key: pair.why for pair in compatible_pairs() for key in provenance if pair.covers(key, *provenance[key])
    }
    a, b = provenance.get("fov_deg", (None, None))
    if isinstance(a, float) and isinstance(b, float) and abs(a - b) <= FOV_TOLERANCE_DEG:
        declared["fov_deg"] = f"within {FOV_TOLERANCE_DEG:g} degree"
    open_ = [key for key in provenance if key not in accept and key not in declared]
    if open_:
        listed = "; ".join(f"{key}: {provenance[key][0]!r} here, {provenance[key][1]!r} there" for key in open_)
        raise UserError(f"{what} differs in provenance ({listed}); if that is meant, add --accept {','.join(open_)}")
    told = {key: f" ({declared[key]})" if key in declared else " (accepted)" for key in provenance}
    return [f"{key}: {a!r} here, {b!r} there{told[key]}" for key, (a, b) in provenance.items()]
