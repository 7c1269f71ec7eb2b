"""How many demonstrations with wrist frames a minute this machine puts on disk, and where the time goes.

./scripts/bench generation [--demonstrations 40] [--workers 0] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demonstrations", type=int, default=40, help="successful demonstrations to time")
    parser.add_argument("--workers", type=int, default=0, help="simulator processes; 0 takes one a core")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run")
    options = parser.parse_args()

    from robocoach.datasets.journal import Journal
    from robocoach.datasets.record import assemble
    from robocoach.pipelines.checks import processor
    from robocoach.sim.generate import generate
    from robocoach.sim.genesis_env import contract
    from robocoach.sim.pool import SimulatorPool

    with tempfile.TemporaryDirectory() as folder, SimulatorPool("stack-cube", options.workers) as pool:
        started = time.perf_counter()
        generate(pool, options.seed + 1, pool.workers, Path(folder) / "warm")  # import, build, first frames
        ready = time.perf_counter()
        made = generate(pool, options.seed, options.demonstrations, Path(folder) / "journal")
        collected = time.perf_counter()
        assemble(Journal(Path(folder) / "journal"), Path(folder) / "dataset", contract(), indices=made.indices)
        recorded = time.perf_counter()
    seconds = collected - ready
    print(
        json.dumps(
            {
                "ours_per_min": round(60 * made.succeeded / seconds, 1),
                "frames_per_s": round(made.ticks / seconds, 1),
                "n": made.succeeded,
                "failed": made.failed,
                "ticks": made.ticks,
                "workers": pool.workers,
                "start_s": round(ready - started, 1),
                "collect_s": round(seconds, 1),
                "assemble_s": round(recorded - collected, 1),
                "seed": options.seed,
                "machine": processor().seen,
            }
        )
    )


if __name__ == "__main__":
    main()
