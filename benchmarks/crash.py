"""Kills a real campaign (Genesis, the trainer, the `rules` coach) at random moments and looks for what was lost.

After each `kill -9` of the main process: its children have to be gone within seconds, every attempt that had ended
has to be there unchanged, and `campaign resume` has to go on. Attempts are small: a few steps, a few short rollouts.
`./scripts/bench crash --kills 100` (the default) takes two hours on two cores; JSON last.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from robocoach.agent_loop.store import Campaign
from robocoach.agent_loop.tree import ENDED

PIPELINE = [sys.executable, "-m", "robocoach.pipelines.cli"]
SMALL = {
    "--generate.demonstrations": "6",
    "--train.minutes": "1",
    "--train.steps": "12",
    "--train.image-px": "32",
    "--train.batch-size": "8",
    "--train.checkpoint-every-s": "1",
    "--evaluate.train-rollouts": "3",
    "--evaluate.validation-rollouts": "3",
    "--evaluate.heldout-rollouts": "3",
    "--evaluate.max-ticks": "12",
    "--evaluate.videos": "1",
    "--campaign.preflight-rollouts": "2",
    "--campaign.stalled": "9999",
    "--campaign.unchanged": "1000",
    "--campaign.lessons": "false",
}
ORPHANS_GONE_S = 5.0


def ended(folder: Path) -> dict[int, tuple[Any, ...]]:
    """What the store says of the attempts that have ended, times left out."""
    if not (folder / "campaign.db").is_file():
        return {}
    store = Campaign(folder, read_only=True)
    try:
        kept = ("batch", "validation", "training")
        return {
            a.number: (a.state, a.parent, a.change, a.reverted, json.dumps({k: a.results.get(k) for k in kept}))
            for a in store.attempts()
            if a.state in ENDED
        }
    finally:
        store.close()


def start(folder: Path, attempts: int) -> subprocess.Popen[bytes]:
    """Begins the campaign, or resumes it, until it has this many attempts."""
    new = not (folder / "config.yaml").is_file()
    given = {**SMALL, "--coach": "random"} if new else {}
    words = [word for pair in {**given, "--campaign.attempts": str(attempts)}.items() for word in pair]
    verb = ["campaign"] if new else ["campaign", "resume"]
    return subprocess.Popen([*PIPELINE, *verb, "--out", str(folder), *words], stdout=subprocess.DEVNULL)


def kill(process: subprocess.Popen[bytes]) -> int:
    """Kills the main process only; returns how many of its children outlive it for longer than allowed."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=ORPHANS_GONE_S)
    for child in alive:
        child.kill()
    return len(alive)


def measure(kills: int, longest_s: float, seed: int, folder: Path) -> dict[str, Any]:
    """Runs, kills and compares until there were enough kills, then lets the campaign end."""
    rng = random.Random(seed)
    found = {"kills": 0, "lost_attempts": 0, "changed_attempts": 0, "orphans": 0, "failed_resumes": 0}
    began = time.monotonic()
    while found["kills"] < kills:
        process = start(folder, len(ended(folder)) + rng.randint(1, 3))  # so that the confirmation is hit, too
        try:
            process.wait(timeout=rng.uniform(1.0, longest_s))
        except subprocess.TimeoutExpired:
            before = ended(folder)
            found["orphans"] += kill(process)
            after = ended(folder)
            found["kills"] += 1
            found["lost_attempts"] += len(before.keys() - after.keys())
            found["changed_attempts"] += sum(before[number] != after[number] for number in before.keys() & after.keys())
            print(f"kill {found['kills']}: {len(after)} attempts ended", flush=True)
            continue
        if process.returncode != 0:
            found["failed_resumes"] += 1
            print(f"ended with code {process.returncode}", flush=True)
            if found["failed_resumes"] > 3:
                break
    found["failed_resumes"] += start(folder, len(ended(folder)) + 1).wait() != 0
    last = ended(folder)
    numbers = sorted(last)
    return {
        **found,
        "attempts": len(last),
        "gaps_in_the_tree": sum(b - a != 1 for a, b in itertools.pairwise(numbers)),
        "seconds": round(time.monotonic() - began),
    }


def main() -> None:
    """Reads the options, measures, prints JSON last."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=100)
    options.add_argument("--longest", type=float, default=120.0, help="longest time between two kills [s]")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--keep", action="store_true", help="leave the campaign's folder")
    given = options.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-crash-"))
    try:
        result = measure(given.kills, given.longest, given.seed, root / "campaign")
    finally:
        if not given.keep:
            shutil.rmtree(root, ignore_errors=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
