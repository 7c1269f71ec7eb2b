"""`kill -9` at random moments of a campaign, again and again: what it leaves at last is what it leaves undisturbed."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from robocoach.agent_loop.store import Campaign

SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from table_workshop import FACTS, TableWorkshop
from robocoach.agent_loop.coaches.choose import make_coach
from robocoach.agent_loop.engine import Engine, Running
from robocoach.agent_loop.store import Campaign
from robocoach.configs import load
folder = Path(sys.argv[1])
config = load.build({{"train.minutes": 1.0, "train.learning_rate": 2e-4, "evaluate.train_rollouts": 8,
                     "campaign.attempts": 8, "campaign.lessons": False, "campaign.target": 1.0}})
workshop = TableWorkshop(folder, seconds=0.03)
Engine(Running(folder, config, FACTS, make_coach("random"), workshop, Campaign(folder), print)).run()
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    code = SCRIPT.format(tests=str(Path(__file__).parent))
    return subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.DEVNULL)


def record(folder: Path) -> list[tuple[object, ...]]:
    """What a campaign found, without its times."""
    store = Campaign(folder, read_only=True)
    kept = ("batch", "validation", "heldout", "training")
    rows: list[tuple[object, ...]] = [
        (a.number, a.parent, a.state, a.change, a.reverted, json.dumps({k: a.results.get(k) for k in kept}))
        for a in store.attempts()
    ]
    confirm = dict(store.get("confirm"))
    rows.append((store.get("state"), store.get("incumbent"), store.get("best"), json.dumps(confirm)))
    store.close()
    return rows


def test_a_campaign_killed_five_times_ends_as_one_that_was_left_alone(tmp_path):
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    alone.mkdir()
    killed.mkdir()
    began = time.monotonic()
    assert start(alone).wait(timeout=60) == 0
    whole_s = time.monotonic() - began
    rng = random.Random(4)
    kills = 0
    while kills < 5:
        process = start(killed)
        try:
            process.wait(timeout=rng.uniform(0.3, 0.9) * whole_s / 2)
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        process.wait()
        if process.returncode == 0:
            break
    assert kills >= 3, "the campaign ended before it was killed often enough"
    assert start(killed).wait(timeout=60) == 0
    assert record(killed) == record(alone)
