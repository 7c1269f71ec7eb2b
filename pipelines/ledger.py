"""Which stages of a run are done: one small JSON file a stage, written atomically when its output is whole.

A stage is skipped when its outputs are there and the hash of its inputs agrees. When the inputs have changed, the
old outputs are moved aside (never deleted) and the stage is done again. Knows nothing of what the stages do.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically


def digest(inputs: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON, first 16 hex digits."""
    text = json.dumps(inputs, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Done:
    """A stage that is finished."""

    result: dict[str, Any]
    seconds: float
    """Working time, over all tries that were interrupted by Ctrl-C or a fault."""
    skipped: bool


class Ledger:
    """The stages of the run in `root`, kept in `root/stages/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = root / "stages"

    def _read(self, path: Path) -> dict[str, Any] | None:
        if not path.is_file():
            return None
        try:
            raw = json.loads(path.read_text())
            return raw if {"digest", "seconds"} <= raw.keys() else None
        except (ValueError, AttributeError, OSError) as error:
            raise UserError(f"{path} is damaged ({error}); delete it to do that stage again") from None

    def finished(self) -> list[str]:
        """Names of the stages that are done, the check left out: it is done anew every time."""
        names = (path.name.removesuffix(".json") for path in self._folder.glob("*.json"))
        return sorted(name for name in names if not name.endswith(".begun") and name != "check")

    def entry(self, name: str) -> dict[str, Any] | None:
        """What the ledger says of a finished stage, None when it is not finished."""
        return self._read(self._folder / f"{name}.json")

    def run(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: Sequence[Path],
        body: Callable[[], dict[str, Any]],
        scratch: Sequence[Path] = (),
    ) -> Done:
        """Returns the stage's result, by running `body` unless it is done already.

        `outputs` must exist afterwards. An interrupted body is begun again with its partial outputs in place (it
        resumes by itself), unless the inputs have changed meanwhile. `scratch` is moved aside with the outputs.
        """
        now = digest(inputs)
        finished, part = self._folder / f"{name}.json", self._folder / f"{name}.begun.json"
        known = self._read(finished)
        if known and known["digest"] == now and all(path.exists() for path in outputs):
            return Done(known["result"], known["seconds"], skipped=True)
        begun = self._read(part)
        earlier = begun or known
        if earlier and earlier["digest"] != now:
            self._move_aside(name, [*outputs, *scratch])
            begun = None
        finished.unlink(missing_ok=True)
        spent = float(begun["seconds"]) if begun else 0.0
        self._write(part, {"digest": now, "seconds": spent, "inputs": inputs})
        started = time.monotonic()
        try:
            result = body()
        except BaseException:
            self._write(part, {"digest": now, "seconds": spent + time.monotonic() - started, "inputs": inputs})
            raise
        seconds = spent + time.monotonic() - started
        lacking = [str(path) for path in outputs if not path.exists()]
        if lacking:
            raise RuntimeError(f"stage {name} ended without its output {', '.join(lacking)}")
        self._write(finished, {"digest": now, "seconds": seconds, "inputs": inputs, "result": result})
        part.unlink(missing_ok=True)
        return Done(result, seconds, skipped=False)

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        write_atomically(path, json.dumps(content, indent=1, default=str) + "\n")

    def _move_aside(self, name: str, outputs: Sequence[Path]) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for path in outputs:
            if path.exists() and path.is_relative_to(self.root):
                aside = self.root / "replaced" / f"{name}-{stamp}" / path.relative_to(self.root)
                aside.parent.mkdir(parents=True, exist_ok=True)
                path.rename(aside)
