"""The training of one attempt, from plain values to plain values, so that it runs in this process or in a child alike.

Opens the datasets, mixes them as the configuration says, and trains. Draws no bar and decides nothing about what a
training without a checkpoint means: `stages.finetune` does for the main job, the campaign's workshop for a search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from robocoach.configs import load

if TYPE_CHECKING:
    from robocoach.configs.models import Sim2RealConfig
    from robocoach.datasets.mixture import Mixture

CORRECTIVE_SHARE = 1 / 3
"""Share of the simulated samples that come from corrective demonstrations, where there are some."""


@dataclass(frozen=True)
class JobProgress:
    """Where a job is, in the words of a progress bar."""

    done: float
    total: float
    unit: str
    note: str
    rate: str | None = None
    left_s: float | None = None
    step: int = 0
    """Optimizer steps so far; 0 while data is being opened."""


def train_attempt(
    config_yaml: str,
    sources: Sequence[Mapping[str, str]],
    attempt: str,
    init_from: str | None,
    seed: int,
    progress: Callable[[JobProgress], None] | None = None,
) -> dict[str, Any]:
    """Trains in the folder `attempt` until the deadline in the configuration; resumes by itself.

    `config_yaml` is the text of a config.yaml; `sources` are datasets as `{"name", "root"}`, the first one's contract
    is what the policy is trained for; `init_from` is a checkpoint's folder. Returns JSON values: `status` (`finished`
    or `nan`), `message`, `checkpoint` (relative to the attempt; empty when none was written), `digest`, `stopped`
    (`nan`, `steps` or `deadline`), `steps`, `elapsed_s`, `samples_per_s`, `parameters`, `loss`, `device`. Raises
    UserError on bad data or settings, and KeyboardInterrupt, its state saved, when asked to stop.
    """
    import torch

    from robocoach.datasets.contract import Contract
    from robocoach.policies.train import TrainProgress, train

    config = load.build(load.flatten(yaml.safe_load(config_yaml), "config.yaml"))
    tell = progress or (lambda now: None)
    deadline_s = config.train.minutes * 60

    def show(now: TrainProgress) -> None:
        left_s = now.elapsed_s * (1 - now.fraction) / now.fraction if now.fraction else deadline_s
        note, rate = f"step {now.step}, loss {now.loss:.4f}", f"{now.samples_per_s:.0f} samples/s"
        tell(JobProgress(100 * now.fraction, 100, "%", note, rate, left_s, now.step))

    folder = Path(attempt)
    made = train(
        config.train,
        mixture(config, sources, tell),
        Contract.load(Path(sources[0]["root"])),  # real data's difference from it was accepted by name
        folder,
        seed=seed,
        init_from=None if init_from is None else Path(init_from),
        progress=show,
    )
    return {
        "status": made.status,
        "message": made.message,
        "checkpoint": "" if made.last is None else str(made.last.relative_to(folder)),
        "digest": "" if made.last is None else checkpoint_digest(made.last),
        "stopped": "nan" if made.status == "nan" else "steps" if made.steps >= config.train.steps else "deadline",
        "steps": made.steps,
        "elapsed_s": made.elapsed_s,
        "samples_per_s": made.samples_per_s,
        "parameters": made.parameters,
        "loss": made.loss,
        "device": "cuda" if torch.cuda.is_available() else "cpu",
    }


def checkpoint_digest(checkpoint: Path) -> str:
    """Short hash of a checkpoint's manifest, which holds the hashes of its files."""
    return hashlib.sha256((checkpoint / "manifest.json").read_bytes()).hexdigest()[:16]


def mixture(
    config: Sim2RealConfig, sources: Sequence[Mapping[str, str]], tell: Callable[[JobProgress], None]
) -> Mixture:
    """The datasets with their sampling weights and oversampled stages.

    `real` has its weight in `data.mix`; every other source is simulated and takes part of `sim`'s weight: those whose
    name begins with `corrective` CORRECTIVE_SHARE of it together, the rest what is left, each by its frames.
    """
    from robocoach.datasets.frames import open_source
    from robocoach.datasets.mixture import Mixture, parse_mix, parse_oversample
    from robocoach.sim.tasks import get_task

    mix = parse_mix(config.data.mix)
    opened = [
        open_source(
            Path(source["root"]),
            config.train.image_px,
            source["name"],
            progress=lambda done, total: tell(JobProgress(done, total, "frames", "decoding once")),
        )
        for source in sources
        if mix.get("real" if source["name"] == "real" else "sim")
    ]
    frames = {source.name: len(source.states) for source in opened if source.name != "real"}
    corrective = sum(count for name, count in frames.items() if name.startswith("corrective"))
    plain = sum(frames.values()) - corrective
    weights = dict(mix)
    for name, count in frames.items():
        mine = name.startswith("corrective")
        share = 1.0 if not (corrective and plain) else CORRECTIVE_SHARE if mine else 1 - CORRECTIVE_SHARE
        weights[name] = mix["sim"] * share * count / (corrective if mine else plain)
    text = config.data.oversample
    oversample = parse_oversample(text, get_task(config.task).stages) if text.strip() else {}
    return Mixture(tuple(opened), weights, oversample)
