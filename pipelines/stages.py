"""The stages' bodies: each hands its settings to the room that does the work and returns what is worth keeping.

Every function takes a `Run`, a progress bar and what earlier stages left, and returns plain JSON values. Heavy
imports happen inside. `sim2real.py` decides the order; the single verbs call the same functions.
"""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robocoach.agent_loop.coaches.rules import propose
from robocoach.agent_loop.evidence import read_evidence
from robocoach.agent_loop.guard import guard
from robocoach.agent_loop.proposal import Proposal
from robocoach.agent_loop.report import feedback_alone
from robocoach.agent_loop.statistics import Rate
from robocoach.agent_loop.tree import lone_node
from robocoach.agent_loop.views import crashed_batch
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically
from robocoach.configs.models import Sim2RealConfig
from robocoach.datasets import splits
from robocoach.datasets.splits import Split
from robocoach.pipelines.console import Bar

if TYPE_CHECKING:
    from robocoach.agent_loop.task_document import TaskFacts
    from robocoach.policies.checkpoint import ChunkPolicy
    from robocoach.sim.pool import SimulatorPool


@dataclass(frozen=True)
class Source:
    """One dataset that goes into the mixture."""

    name: str
    """`sim`, `real` or `corrective`."""
    root: Path
    digest: str


PROOF_SHARE = 0.9
"""Of the demonstrator's rollouts through the twin that have to succeed, without a clamp, before it counts as proven."""


def check_settings(config: Sim2RealConfig) -> None:
    """What can be refused before anything is written: task, mixture, robot."""
    from robocoach.datasets.mixture import parse_mix, parse_oversample
    from robocoach.robots import approval
    from robocoach.robots.fci import check_model
    from robocoach.sim.tasks import get_task

    task = get_task(config.task)
    weights = parse_mix(config.data.mix)
    parse_oversample(config.data.oversample, task.stages)
    if not weights.get("sim") and not config.data.real:
        raise UserError(
            f"--mix {config.data.mix} samples no simulated data and no --real PATH is given; give sim a weight"
        )
    if config.data.real and not weights.get("real"):
        raise UserError(f"--real {config.data.real} has no weight in --mix {config.data.mix}; add real=1 to it")
    check_model(config.deploy.robot)
    if config.deploy.robot != "twin":
        if not config.deploy.host:
            raise UserError(
                f"--robot {config.deploy.robot} needs --host IP, the arm's address; --dry-run moves nothing"
            )
        if not config.deploy.dry_run:
            approval.require(config.deploy)
    if config.deploy.robot == "twin" and config.deploy.host and not config.deploy.host.startswith("127."):
        raise UserError(f"--host {config.deploy.host} names an arm but --robot is twin; add --robot fr3")


def task_facts(config: Sim2RealConfig) -> TaskFacts:
    """What a coach is told of the task, in plain words."""
    from robocoach.agent_loop.task_document import TaskFacts
    from robocoach.sim.tasks import get_task

    task = get_task(config.task)
    objects = dict.fromkeys(part.object for part in task.parts)
    parts = {name: tuple(part.name for part in task.parts if part.object == name) for name in objects}
    return TaskFacts(name=task.name, instruction=task.instruction, goal=task.goal, stages=task.stages, parts=parts)


def open_pool(config: Sim2RealConfig) -> SimulatorPool:
    """The simulator processes of a run."""
    from robocoach.sim.pool import SimulatorPool

    return SimulatorPool(config.task, config.evaluate.workers or config.generate.workers)


def check(config: Sim2RealConfig, folder: Path, bar: Bar) -> dict[str, Any]:
    """Disk, rendering, memory, packages; raises UserError with the mend."""
    from robocoach.pipelines import checks
    from robocoach.robots.fci import probe

    if config.deploy.robot != "twin":
        probe(config.deploy.host)
    frames = 75 * (config.generate.demonstrations + config.generate.corrective)
    need_gb = 1.0 + frames * (3 * config.train.image_px**2 + 20_000) / 1e9
    wanted = (
        checks.python,
        checks.packages,
        lambda: checks.disk(folder, need_gb),
        checks.gl,
        checks.ffmpeg,
        checks.memory,
    )
    found = []
    for index, look in enumerate(wanted):
        bar.update(index, len(wanted), "checks")
        found.append(checks.require(look()))
    seen = {finding.name: finding.seen for finding in found}
    cores = checks.processor().seen
    return {"line": f"{seen['OpenGL']}; {cores}; {seen['disk']}", "versions": checks.versions()}


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of all files below a folder: changes when its content does."""
    if not folder.is_dir():
        return []
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]


def demonstrate(
    pool: SimulatorPool,
    config: Sim2RealConfig,
    folder: Path,
    bar: Bar,
    make_policy: Callable[[], ChunkPolicy] | None = None,
) -> dict[str, Any]:
    """Collects demonstrations into the journal at `folder`; corrective ones when a policy is given."""
    from robocoach.sim.generate import generate

    count = config.generate.corrective if make_policy else config.generate.demonstrations

    def show(done: int, failed: int) -> None:
        bar.update(done, count, "demonstrations", f"{failed} failed and left out" if failed else "")

    made = generate(
        pool,
        config.seed,
        count,
        folder,
        recovery_share=config.generate.recovery_share,
        make_policy=make_policy,
        progress=show,
    )
    return {"succeeded": made.succeeded, "failed": made.failed, "indices": list(made.indices)}


def record(folder: Path, indices: Sequence[int], root: Path, config: Sim2RealConfig, bar: Bar) -> dict[str, Any]:
    """Assembles a journal into a LeRobotDataset v3 with the data contract inside."""
    from robocoach.datasets.journal import Journal
    from robocoach.datasets.record import assemble
    from robocoach.pipelines.checks import versions
    from robocoach.sim.genesis_env import contract
    from robocoach.sim.tasks import get_task

    task = get_task(config.task)
    meta = {"task": task.name, "stages": list(task.stages), "seed": config.seed, "versions": versions()}
    info = assemble(
        Journal(folder),
        root,
        contract(),
        meta,
        indices=indices,
        progress=lambda done, total: bar.update(done, total, "episodes"),
    )
    return {"episodes": info.episodes, "frames": info.frames, "digest": info.digest}


def policy_maker(checkpoint: Path) -> Callable[[], ChunkPolicy]:
    """A picklable maker of the policy in a checkpoint folder, one CPU thread, strictly loaded."""
    from robocoach.policies.checkpoint import load_policy

    return functools.partial(load_policy, checkpoint, threads=1)


def rollouts(
    pool: SimulatorPool,
    config: Sim2RealConfig,
    checkpoint: Path,
    split: Split,
    count: int,
    folder: Path,
    bar: Bar,
    *,
    videos: int = 0,
    before: int = 0,
    total: int | None = None,
) -> dict[str, Any]:
    """Counted rollouts on the seeds of one split; `before` and `total` place them in a longer bar."""
    from robocoach.sim.rollout import RolloutResult, run_rollouts

    seeds = splits.seeds(split, config.seed, count)
    done = wins = 0

    def show(result: RolloutResult) -> None:
        nonlocal done, wins
        done += 1
        wins += result.success
        bar.update(before + done, total or count, "rollouts", f"{split}: {wins} of {done} succeeded")

    bar.update(before, total or count, "rollouts", f"{split} seeds")
    results = run_rollouts(
        pool,
        seeds,
        policy_maker(checkpoint),
        folder,
        max_ticks=config.evaluate.max_ticks,
        videos=videos,
        blend_steps=config.deploy.blend_steps,
        smoothing=config.deploy.smoothing,
        progress=show,
    )
    return summary(results)


def summary(results: Sequence[Any]) -> dict[str, Any]:
    """Success, n, interval, stage funnel and the outcome on each seed."""
    rate = Rate(sum(result.success for result in results), len(results))
    names = results[0].stages if results else ()
    return {
        "success_rate": rate.value,
        "successes": rate.successes,
        "n": rate.n,
        "ci95": list(rate.ci95),
        "stages": {name: sum(result.stage > index for result in results) for index, name in enumerate(names)},
        "aborted": sum(bool(result.aborted) for result in results),
        "seeds": [result.seed for result in results],
        "outcomes": [result.success for result in results],
    }


def evaluate(
    pool: SimulatorPool,
    config: Sim2RealConfig,
    checkpoint: Path,
    attempt: Path,
    validation_folder: Path,
    bar: Bar,
) -> dict[str, Any]:
    """Train-seed rollouts (evidence) and validation rollouts (selection) of one attempt; writes `score.json`."""
    settings = config.evaluate
    total = settings.train_rollouts + settings.validation_rollouts
    train = rollouts(
        pool,
        config,
        checkpoint,
        "train",
        settings.train_rollouts,
        attempt / "rollouts" / "train",
        bar,
        videos=settings.videos,
        total=total,
    )
    validation = rollouts(
        pool,
        config,
        checkpoint,
        "validation",
        settings.validation_rollouts,
        validation_folder,
        bar,
        before=settings.train_rollouts,
        total=total,
    )
    write_atomically(attempt / "score.json", json.dumps({"validation": validation}, indent=1) + "\n")
    return {"train": train, "validation": validation}


def confirm(
    pool: SimulatorPool, config: Sim2RealConfig, who: Sequence[tuple[int, Path]], folder: Path, bar: Bar
) -> dict[str, Any]:
    """Held-out rollouts of each attempt in `who` on the same seeds, which nothing else ever runs."""
    from robocoach.pipelines import poses

    picture = str(folder / "poses" / "genesis.png")
    list(pool.run(poses.genesis, [(_pose_seed(config), picture)]))
    count = config.evaluate.heldout_rollouts
    found = {}
    for index, (number, checkpoint) in enumerate(who):
        found[str(number)] = counted = rollouts(
            pool,
            config,
            checkpoint,
            "heldout",
            count,
            folder / "heldout" / f"{number:04d}",
            bar,
            before=index * count,
            total=len(who) * count,
        )
        score = folder / "attempts" / f"{number:04d}" / "score.json"
        write_atomically(score, json.dumps({**json.loads(score.read_text()), "heldout": counted}, indent=1) + "\n")
    return found


def improve(config: Sim2RealConfig, attempt: Path, number: int, stopped: str) -> dict[str, Any]:
    """The coach reads train-seed evidence of an attempt and proposes one change, which the guard checks."""
    facts = task_facts(config)
    evidence = read_evidence(attempt, facts.stages, load.flatten(config.model_dump(), "settings"), stopped)
    write_atomically(attempt / "feedback.md", feedback_alone(evidence, number, attempt, facts, config.campaign))
    proposal = propose(evidence, number)
    _guarded(proposal, config)
    return asdict(proposal)


def _guarded(proposal: Proposal, parent: Sim2RealConfig) -> Sim2RealConfig:
    """The configuration that the proposal asks for, its parent being the only attempt so far. Raises UserError."""
    node = lone_node(proposal.parent, Path(), load.flatten(parent.model_dump(), "parent"), crashed_batch(0))
    return guard(proposal, (node,), parent, stages=task_facts(parent).stages)


def child_config(proposal: dict[str, Any], parent: Sim2RealConfig) -> Sim2RealConfig:
    """The configuration of the second attempt: the parent's with the change, for the time that `improve` gives."""
    changed = _guarded(Proposal(**proposal), parent)
    values = load.flatten(changed.model_dump(), "settings")
    return load.build({**values, "train.minutes": parent.improve.minutes})


def real_data(config: Sim2RealConfig, folder: Path, bar: Bar) -> dict[str, Any]:
    """Makes real episodes usable beside the simulated ones; `lines` say what was taken, left out and differs."""
    from robocoach.datasets.real import import_real
    from robocoach.sim.genesis_env import contract

    accept = frozenset(name.strip() for name in config.data.accept.split(",") if name.strip())
    made = import_real(
        Path(config.data.real),
        folder,
        contract(),
        accept,
        progress=lambda done, total: bar.update(done, total, "episodes"),
    )
    found = made.summary
    return {
        "root": str(made.root),
        "digest": found.input_digest,
        "episodes": found.episodes,
        "frames": found.frames,
        "lines": found.lines(),
    }


def finetune(
    config: Sim2RealConfig,
    datasets: Sequence[Source],
    attempt: Path,
    init_from: Path | None,
    proposal: dict[str, Any] | None,
    bar: Bar,
) -> dict[str, Any]:
    """Trains one attempt on the mixture of its datasets until the deadline; writes its configuration first."""
    from robocoach.pipelines.training_job import JobProgress, checkpoint_digest, train_attempt

    write_atomically(attempt / "config.yaml", load.dump(config))
    first = {"parent": None, "coach": None, "change": {}, "rationale": "the configuration as given"}
    write_atomically(attempt / "proposal.json", json.dumps(proposal or first, indent=2, sort_keys=True) + "\n")

    def show(now: JobProgress) -> None:
        bar.update(now.done, now.total, now.unit, now.note, rate=now.rate, left_s=now.left_s)

    made = train_attempt(
        load.dump(config),
        [{"name": source.name, "root": str(source.root)} for source in datasets],
        str(attempt),
        None if init_from is None else str(init_from),
        config.seed,
        show,
    )
    message = made["message"]
    if not made["checkpoint"] and init_from is None:
        raise UserError(f"training of {attempt.name}: {message}; lower --train.learning-rate")
    if not made["checkpoint"]:  # nothing was learned: the child is its parent, and the campaign goes on
        last, message = attempt / "checkpoints" / "last", f"{message}; its parent's weights stand for it"
        shutil.copytree(str(init_from), last, dirs_exist_ok=True)
        made |= {"checkpoint": str(last.relative_to(attempt)), "digest": checkpoint_digest(last)}
    loss = "none" if made["loss"] is None else f"{made['loss']:.4f}"
    line = (
        f"{made['steps']} steps, loss {loss}, {made['samples_per_s']:.0f} samples/s, "
        f"{made['parameters'] / 1e6:.1f} M parameters"
    )
    kept = ("checkpoint", "digest", "stopped", "steps", "elapsed_s", "samples_per_s", "parameters", "loss")
    return {**{name: made[name] for name in kept}, "line": f"{line}; {message}" if message else line}


def deploy(config: Sim2RealConfig, checkpoint: Path, folder: Path, bar: Bar) -> dict[str, Any]:
    """First the scripted demonstrator (on the twin), then the policy, through franky, envelope and FCI, counted."""
    from robocoach.policies.checkpoint import load_policy
    from robocoach.robots.deploy import deploy as run
    from robocoach.robots.keys import Keys
    from robocoach.robots.rig import open_rig
    from robocoach.robots.scripted import ScriptedPolicy

    settings = config.deploy
    proofs = settings.demonstrator_rollouts if settings.robot == "twin" else 0
    total = proofs + settings.rollouts
    accept = frozenset(name.strip() for name in config.data.accept.split(",") if name.strip())
    policy = load_policy(checkpoint, threads=1)  # before the twin runs: its clock has to keep time

    def show(before: int, who: str) -> Callable[[int, int, str], None]:
        return lambda done, _, note: bar.update(before + done, total, "rollouts", f"{who}, {note}")

    with open_rig(settings, config.task, config.camera) as rig, Keys() as keys:
        proof = None
        if proofs:
            proof = run(
                settings,
                config.safety,
                config.task,
                lambda: ScriptedPolicy(config.task),
                splits.seeds("twin", config.seed, proofs),
                folder / "demonstrator",
                show(0, "demonstrator"),
                rig=rig,
            ).summary()
        made = run(
            settings,
            config.safety,
            config.task,
            lambda: policy,
            splits.seeds("twin", config.seed, settings.rollouts),
            folder / "policy",
            show(proofs, "policy"),
            rig=rig,
            accept=accept,
            halt=lambda: "stopped by the operator (space bar)" if keys.poll() == "space" else None,
        ).summary()
    return _deployed(settings.robot, made, proof)


def _deployed(robot: str, made: dict[str, Any], proof: dict[str, Any] | None) -> dict[str, Any]:
    """The deployment in the words of result.json, and as one line."""
    rate = Rate(made["successes"], made["n"])
    deployed = {
        "robot": robot,
        "client": made["client"],
        "dry_run": made["dry_run"],
        "rollouts": len(made["rollouts"]),
        "successes": rate.successes,
        "invalid": made["invalid"],
        "n": rate.n,
        "ci95": list(rate.ci95),
        "rate_hz": made["rate_hz"],
        "late_ticks_share": made["late_ticks_share"],
        "clamps": made["clamps"],
        "stages": made["stage_counts"],
        "differences": list(made["differences"]),
    }
    line = f"policy {rate}" if rate.n else "no rollout of the policy could be judged"
    if made["invalid"]:
        reasons = dict.fromkeys(each["reason"] for each in made["rollouts"] if each["verdict"] == "invalid")
        line += f", {made['invalid']} invalid ({'; '.join(reasons)})"
    line += f"; {made['rate_hz']:.2f} Hz, {100 * made['late_ticks_share']:.2f} % of ticks late"
    twin: dict[str, Any] = {"successes": 0, "n": 0}
    if proof is not None:
        asked = len(proof["rollouts"])
        proven = proof["successes"] >= PROOF_SHARE * asked and not proof["clamps"]
        twin = {key: proof[key] for key in ("successes", "n", "invalid", "clamps", "rate_hz", "late_ticks_share")}
        twin["proven"] = proven
        verdict = "the twin is proven" if proven else "THE TWIN IS NOT PROVEN, read the policy's rate with care"
        line = f"demonstrator {proof['successes']} of {asked} ({verdict}); {line}"
    return {"line": line, "twin_demonstrator": twin, "deploy": deployed}


def report(
    config: Sim2RealConfig, folder: Path, result: dict[str, Any], seconds: dict[str, float], started: float, bar: Bar
) -> dict[str, Any]:
    """`result.json` with the times, and `report.html`. `started` is this process's monotonic start of the run."""
    from robocoach.pipelines import poses
    from robocoach.pipelines.report import page

    if config.deploy.robot == "twin" and (folder / "poses" / "genesis.png").is_file():
        poses.twin(config.task, _pose_seed(config), folder / "poses" / "twin.png")
    wall_s = max(time.monotonic() - started, sum(seconds.values()))
    times = {"wall_s": round(wall_s, 1), "stages": {name: round(spent, 1) for name, spent in seconds.items()}}
    full = {**times, **result}
    write_atomically(folder / "report.html", page(full, folder))
    write_atomically(folder / "result.json", json.dumps(full, indent=1) + "\n")
    return {"wall_s": times["wall_s"]}


def _pose_seed(config: Sim2RealConfig) -> int:
    return splits.seeds("twin", config.seed, 1)[0]
