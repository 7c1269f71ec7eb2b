"""The written evidence of a training: metrics.jsonl (numbers), log.txt (words), and a W&B copy when it is wanted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Literal

METRICS_FILE, LOG_FILE = "metrics.jsonl", "log.txt"


class TrainingLog:
    """Appends to the files of one training. With `enabled` False (processes other than the first) it does nothing."""

    def __init__(
        self,
        folder: Path,
        *,
        wandb_mode: Literal["disabled", "offline"],
        name: str,
        settings: dict[str, Any],
        enabled: bool,
    ) -> None:
        self._folder, self._enabled, self._wandb = folder, enabled, None
        if enabled and wandb_mode != "disabled":
            import wandb

            self._wandb = wandb.init(
                project="robocoach",
                name=name,
                dir=str(folder),
                mode=wandb_mode,
                config=settings,
                settings=wandb.Settings(silent=True, quiet=True, console="off", x_disable_stats=True),
            )

    def keep_until(self, step: int) -> None:
        """Drops the rows after `step`: they belong to work that a kill lost and that is now done again."""
        path = self._folder / METRICS_FILE
        if not self._enabled or not path.is_file():
            return
        rows = [line for line in path.read_text().splitlines() if _step(line) <= step]
        path.write_text("".join(f"{row}\n" for row in rows))

    def metrics(self, row: dict[str, float]) -> None:
        """One row of numbers; must hold `step`."""
        if not self._enabled:
            return
        with (self._folder / METRICS_FILE).open("a") as stream:
            stream.write(json.dumps({k: round(v, 7) if isinstance(v, float) else v for k, v in row.items()}) + "\n")
        if self._wandb is not None:
            self._wandb.log({k: v for k, v in row.items() if k != "step"}, step=int(row["step"]))

    def say(self, text: str) -> None:
        """One line of the text log, with the time of day."""
        if self._enabled:
            with (self._folder / LOG_FILE).open("a") as stream:
                stream.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    def close(self) -> None:
        """Ends the W&B copy."""
        if self._wandb is not None:
            self._wandb.finish()


def _step(line: str) -> float:
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError):
        return float("inf")


class Means:
    """Means over the steps since the last row of metrics."""

    def __init__(self) -> None:
        self.count, self._sums, self._rate, self._samples = 0, {}, 0.0, 0
        self._began = time.perf_counter()

    def add(self, parts: dict[str, float], rate: float, samples: int) -> None:
        self.count += 1
        self._rate = rate
        self._samples += samples
        for name, value in parts.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def row(self) -> dict[str, float]:
        means = {name: total / self.count for name, total in self._sums.items()}
        return {**means, "lr": self._rate, "samples_per_s": self._samples / (time.perf_counter() - self._began)}
