"""How fast the trainer is on this machine: samples a second of π0.5-nano, and the time to one chunk of actions.

    scripts/bench training [--steps 40] [--threads 2] [--batch-size 64]

Runs the trainer itself (batches, checkpoint, metrics) on frames made up in memory. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from robocoach.configs.models import TrainConfig
from robocoach.datasets.mixture import Mixture
from robocoach.policies import synthetic
from robocoach.policies.checkpoint import load_policy
from robocoach.policies.cpu import cpu_name, has_fast_bf16, set_threads
from robocoach.policies.train import train
from robocoach.policies.training_log import METRICS_FILE

CHUNKS = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints. The first twenty steps, in which memory and kernels are set up, do not count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps, at least 40")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 takes all cores")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-px", type=int, default=96)
    options = parser.parse_args(arguments)
    settings = TrainConfig(
        steps=max(40, options.steps),
        threads=options.threads,
        batch_size=options.batch_size,
        image_px=options.image_px,
        checkpoint_every_s=100_000,
    )
    mixture = Mixture((synthetic.make_source(30, options.image_px),), {"sim": 1.0})
    with tempfile.TemporaryDirectory() as folder:
        result = train(settings, mixture, synthetic.CONTRACT, Path(folder), seed=0)
        rows = [json.loads(line) for line in (Path(folder) / METRICS_FILE).read_text().splitlines()]
        assert result.last is not None
        chunk_ms = _chunk_ms(result.last)
    rates = [row["samples_per_s"] for row in rows if "samples_per_s" in row][1:]
    on_gpu = torch.cuda.is_available()
    report = {
        "samples_per_s": round(statistics.median(rates), 1),
        "step_s": round(options.batch_size / statistics.median(rates), 4),
        "parameters": result.parameters,
        "chunk_ms": round(chunk_ms, 1),
        "n": len(rates),
        "batch_size": options.batch_size,
        "machine": {
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "threads": set_threads(options.threads),
            "gpu": torch.cuda.get_device_name() if on_gpu else None,
            "bf16": has_fast_bf16("cuda" if on_gpu else "cpu"),
        },
    }
    print(json.dumps(report))
    return 0


def _chunk_ms(checkpoint: Path) -> float:
    """Median time of one chunk on one thread, image in, actions out [ms]."""
    policy, table = load_policy(checkpoint, threads=1), synthetic.Table.random(0)
    image, state = table.image(224), table.state()
    times = []
    for _ in range(CHUNKS):
        began = time.perf_counter()
        policy.act(image, state, synthetic.INSTRUCTION)
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
