"""The trace of one rollout: what was commanded and where everything was, tick by tick; a `.npz` beside the record."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.sim.state import TICK_S, SimState

_SHAPES = {"q": (7,), "command": (8,), "width": (), "stage": ()}


@dataclass(frozen=True)
class Trace:
    """T ticks; row i is tick i + 1: its command, and the state that it led to."""

    q: np.ndarray
    """float32 (T, 7) joints [rad]."""
    command: np.ndarray
    """float32 (T, 8) as executed, joints [rad] and opening width [m]."""
    width: np.ndarray
    """float32 (T,) opening between the fingers [m]."""
    objects: np.ndarray
    """float32 (T, K, 7) position [m] and quaternion wxyz, world frame."""
    names: tuple[str, ...]
    """The K objects."""
    stage: np.ndarray
    """int64 (T,) number of stages reached."""

    def __len__(self) -> int:
        """Number of ticks."""
        return len(self.q)

    def pose(self, name: str) -> np.ndarray:
        """(T, 7) poses of one object."""
        return self.objects[:, self.names.index(name)]

    def state(self, index: int) -> SimState:
        """The state of a row; speeds [m/s] are those since the row before."""
        before = self.objects[max(0, index - 1), :, :3]
        speeds = np.linalg.norm(self.objects[index, :, :3] - before, axis=1) / TICK_S
        return SimState(
            q=self.q[index].astype(float),
            gripper_width=float(self.width[index]),
            objects={name: self.objects[index, i].astype(float) for i, name in enumerate(self.names)},
            speeds={name: float(speeds[i]) for i, name in enumerate(self.names)},
        )

    def save(self, path: Path) -> None:
        """Writes the trace atomically."""
        part = path.with_name(f".{path.name}.part")
        with part.open("wb") as file:
            np.savez_compressed(
                file,
                q=self.q,
                command=self.command,
                width=self.width,
                objects=self.objects,
                names=np.array(self.names, dtype=str),
                stage=self.stage,
            )
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)


@dataclass
class Recorder:
    """Collects a trace while a rollout runs."""

    _rows: list[tuple[np.ndarray, np.ndarray, float, np.ndarray, int]] = field(default_factory=list)
    _names: tuple[str, ...] = ()

    def add(self, command: np.ndarray, state: SimState, stage: int) -> None:
        """One tick."""
        self._names = tuple(state.objects)
        self._rows.append(
            (np.array(state.q), np.array(command), state.gripper_width, np.stack([*state.objects.values()]), stage)
        )

    def trace(self) -> Trace | None:
        """What was collected; None when no tick was."""
        if not self._rows:
            return None
        q, command, width, objects, stage = (list(column) for column in zip(*self._rows, strict=True))
        return Trace(
            q=np.array(q, dtype=np.float32),
            command=np.array(command, dtype=np.float32),
            width=np.array(width, dtype=np.float32),
            objects=np.array(objects, dtype=np.float32),
            names=self._names,
            stage=np.array(stage, dtype=np.int64),
        )


def read_trace(path: Path) -> Trace:
    """Reads a trace. Raises UserError when it is missing or broken."""
    try:
        with np.load(path, allow_pickle=False) as raw:
            trace = Trace(
                raw["q"], raw["command"], raw["width"], raw["objects"], tuple(raw["names"].tolist()), raw["stage"]
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is no trace of a rollout ({error}); delete its record and run it again") from None
    wrong = [name for name, shape in _SHAPES.items() if getattr(trace, name).shape != (len(trace), *shape)]
    if wrong or trace.objects.shape != (len(trace), len(trace.names), 7):
        raise UserError(f"{path} is no trace of a rollout (wrong shape of {wrong or ['objects']}); run it again")
    return trace
