"""A real training in a forked child: quick to begin, on a clean server, and the same as in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.models import Sim2RealConfig
from robocoach.datasets.contract import Contract, Provenance
from robocoach.datasets.episode import Episode
from robocoach.datasets.journal import Journal
from robocoach.datasets.record import assemble
from robocoach.pipelines import training_job
from robocoach.pipelines.training_job import JobProgress, train_attempt

CONTRACT = Contract(
    provenance=Provenance(
        robot="fr3", camera="c", fov_deg=42.5, mount="m", crop="none", controller="j", source="sim:genesis"
    )
)
SMALL = {
    "train.steps": 3,
    "train.batch_size": 4,
    "train.image_px": 32,
    "train.chunk_size": 4,
    "train.executed_steps": 2,
    "train.flow_samples": 1,
    "train.threads": 1,
    "train.precision": "fp32",
    "train.minutes": 1.0,
}
SCRIPT = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from robocoach.pipelines.training_worker import TrainingWorker

if __name__ == "__main__":
    folder, config, root = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    worker = TrainingWorker()
    worker.warm()
    looks = [worker.run("worker_functions:look", {}, deadline_s=100, log=folder / "look.txt") for _ in range(2)]
    seen = []
    kwargs = {
        "config_yaml": config,
        "sources": [{"name": "sim", "root": root}],
        "attempt": str(folder / "attempt"),
        "init_from": None,
        "seed": 0,
    }
    trained = worker.run(
        "robocoach.pipelines.training_job:train_attempt",
        kwargs,
        deadline_s=100,
        progress=lambda now: seen.append(asdict(now)),
        log=folder / "log.txt",
    )
    heavy = sorted({"torch", "lerobot"} & set(sys.modules))
    print(json.dumps({"looks": list(map(asdict, looks)), "trained": asdict(trained), "seen": seen, "heavy": heavy}))
"""


def parsed(**changes) -> Sim2RealConfig:
    """A small training's configuration (`data__oversample="grasp=2"`)."""
    return load.load(SMALL | {key.replace("__", "."): value for key, value in changes.items()}, profile="cpu")


def config(**changes) -> str:
    """The text of its config.yaml."""
    return load.dump(parsed(**changes))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A dataset of five short episodes."""
    folder = tmp_path_factory.mktemp("data")
    journal = Journal(folder / "journal")
    for index in range(5):
        rng = np.random.default_rng(index)
        states = rng.normal(size=(6, 8)).astype(np.float32)
        images = np.full((6, 224, 224, 3), 40 * index, np.uint8)
        poses = rng.normal(size=(6, 3)).astype(np.float32)
        journal.add(index, Episode(images, states, states + 0.1, np.arange(6), poses, "stack the cubes", index, True))
    return assemble(journal, folder / "demonstrations", CONTRACT).root


@pytest.fixture(scope="module")
def child(root, tmp_path_factory):
    """What the script above finds, in a process of its own whose server imports everything."""
    folder = tmp_path_factory.mktemp("child")
    script = folder / "main_process.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, str(script), str(folder), config(), str(root)]
    made = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout.splitlines()[-1]) | {"folder": folder}


def test_a_training_runs_to_its_end_in_a_child(child):
    trained = child["trained"]
    assert trained["status"] == "finished", f"{trained['reason']}\n{(child['folder'] / 'log.txt').read_text()}"
    assert trained["result"]["steps"] == 3 and trained["result"]["stopped"] == "steps"
    assert (child["folder"] / "attempt" / trained["result"]["checkpoint"] / "model.safetensors").is_file()
    assert child["seen"][-1]["step"] == 3


def test_a_child_begins_soon_after_the_first(child):
    began = [look["startup_s"] for look in child["looks"]]
    imports = [round(look["result"]["imports_s"], 3) for look in child["looks"]]
    told = f"start-up {began} s, imports {imports} s, training {child['trained']['startup_s']} s"
    print(told)
    assert began[1] + imports[1] < 5 and child["trained"]["startup_s"] < 5, told


def test_the_server_is_a_clean_parent(child):
    look = child["looks"][1]["result"]
    assert look["server_threads"] == 1
    assert look["simulators"] == [] and look["cuda"] is False
    assert look["blas"] == os.environ.get("OPENBLAS_NUM_THREADS")


def test_the_main_process_imports_nothing_heavy(child):
    assert child["heavy"] == []


def test_a_child_learns_what_this_process_learns(child, root, tmp_path):
    here = train_attempt(config(), [{"name": "sim", "root": str(root)}], str(tmp_path), None, 0)
    assert here["loss"] == pytest.approx(child["trained"]["result"]["loss"], abs=1e-6)


def shares(root: Path, names: list[str], **changes) -> dict[str, float]:
    """Sampling share of each source of a mixture."""
    sources = [{"name": name, "root": str(root)} for name in names]
    made = training_job.mixture(parsed(**changes), sources, lambda now: None)
    return dict(zip((source.name for source in made.sources), made.shares.tolist(), strict=True))


def test_corrective_demonstrations_take_a_third_of_the_simulated_share(root):
    found = shares(root, ["sim", "corrective", "real"], data__mix="sim=9,real=1")
    assert found == pytest.approx({"sim": 0.6, "corrective": 0.3, "real": 0.1})


def test_extra_demonstrations_count_by_their_frames(root):
    found = shares(root, ["sim", "extra-3", "corrective-1", "corrective-2"])
    assert found == pytest.approx({"sim": 1 / 3, "extra-3": 1 / 3, "corrective-1": 1 / 6, "corrective-2": 1 / 6})


def test_a_source_without_weight_is_not_opened(root):
    assert shares(root, ["sim", "real"], data__mix="sim=1,real=0") == {"sim": 1.0}


def test_oversampled_stages_are_those_of_the_task(root):
    sources = [{"name": "sim", "root": str(root)}]
    made = training_job.mixture(parsed(data__oversample="grasp=3"), sources, lambda now: None)
    assert made.oversample == {1: 3.0}
    with pytest.raises(UserError, match="unknown stage 'grip'"):
        train_attempt(config(data__oversample="grip=3"), sources, "nowhere", None, 0)


def test_progress_says_what_a_bar_shows(root, tmp_path):
    seen: list[JobProgress] = []
    train_attempt(config(), [{"name": "sim", "root": str(root)}], str(tmp_path), None, 0, seen.append)
    assert (seen[-1].done, seen[-1].unit, seen[-1].step) == (100, "%", 3)
    assert seen[-1].note.startswith("step 3, loss")
