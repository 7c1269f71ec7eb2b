"""The main job's order: from a task name to a deployed checkpoint and a report, resumable at every stage.

A campaign of two attempts. Every stage is skipped when its output is there and its inputs' hash agrees, so the same
command goes on after a kill. This module decides order, inputs and outputs; `stages.py` does the work.
"""

from __future__ import annotations

import shlex
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from robocoach.agent_loop.selection import Score, select
from robocoach.agent_loop.statistics import Rate, pair
from robocoach.agent_loop.store import Campaign
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.models import Sim2RealConfig
from robocoach.pipelines import cli, runfolder
from robocoach.pipelines.console import Bar, Console, clock
from robocoach.pipelines.ledger import Done, Ledger
from robocoach.pipelines.stages import Source


@dataclass
class Run:
    """What every stage of one run shares."""

    config: Sim2RealConfig
    folder: Path
    console: Console
    ledger: Ledger
    stages: Any
    """The stages' bodies: the module `stages`, or stand-ins in a test."""
    store: Campaign | None = None
    """The campaign's store; a single verb has none."""
    seconds: dict[str, float] = field(default_factory=dict)
    done: int = 0
    planned: int = 0
    _pool: Any = None

    def attempt(self, number: int) -> Path:
        """Folder of an attempt."""
        return self.folder / "attempts" / f"{number:04d}"

    def note(self, kind: str, attempt: int | None = None, **detail: Any) -> None:
        """Records an event, where there is a store."""
        if self.store is not None:
            self.store.record(kind, attempt, **detail)

    def pool(self) -> Any:
        """The simulator processes, started when first asked for and shared by all stages."""
        if self._pool is None:
            self.console.line("  starting the simulator: half a minute, two the first time on a machine")
            self._pool = self.stages.open_pool(self.config)
        return self._pool

    def close_pool(self) -> None:
        """Ends the simulator processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def stage(
        self,
        name: str,
        inputs: dict[str, Any],
        outputs: Sequence[Path],
        body: Callable[[Bar], dict[str, Any]],
        told: Callable[[dict[str, Any]], str],
        title: str = "",
        scratch: Sequence[Path] = (),
    ) -> Done:
        """Runs or skips one stage, with a bar while it runs and one line when it is done.

        `scratch` may be there or not, and goes with the outputs when the stage is done anew.
        """
        title = title or name.capitalize()
        self.done += 1
        place = f"[{self.done}/{self.planned}] {title}" if self.planned > 1 else title
        with self.console.bar(title) as bar:
            done = self.ledger.run(name, inputs, outputs, lambda: self._begin(place, name, bar, body), scratch)
        self.seconds[name] = done.seconds
        if done.skipped:
            self.console.line(f"{place}: done before, {told(done.result)}")
        else:
            self.console.line(f"{place}: {told(done.result)}  ({clock(done.seconds)})")
            self.note("stage done", None, name=name, seconds=round(done.seconds, 1))
        return done

    def _begin(self, place: str, name: str, bar: Bar, body: Callable[[Bar], dict[str, Any]]) -> dict[str, Any]:
        self.console.line(f"{place} …")
        self.note("stage begun", None, name=name)
        return body(bar)


def run(config: Sim2RealConfig, folder: Path, stages: ModuleType | Any, console: Console) -> int:
    """Runs every stage in the folder."""
    stages.check_settings(config)
    with opened(config, folder, stages, console, runfolder.resume_command(folder)) as job:
        job.store = Campaign(folder)
        _stages(job, time.monotonic())
    return 0


@contextmanager
def opened(
    config: Sim2RealConfig, folder: Path, stages: ModuleType | Any, console: Console, resume: str
) -> Generator[Run]:
    """A run folder that this process alone writes while the block runs, libraries' output in its log.

    Ctrl-C becomes `Interrupted` and a fault `Crashed`, both with the command that resumes; the simulator processes
    end with the block.
    """
    with runfolder.locked(folder):
        runfolder.save(folder, config)
        job = Run(config, folder, console, Ledger(folder), stages)
        log = folder / "log.txt"
        try:
            with console.libraries_in(log):
                yield job
        except UserError:
            raise
        except KeyboardInterrupt:
            job.note("interrupted")
            raise cli.Interrupted(resume) from None
        except Exception as error:
            with suppress(OSError), log.open("a") as file:  # on a full disk the cause matters more than its trace
                file.write(traceback.format_exc())
            raise cli.Crashed(error, log, resume) from error
        finally:
            job.close_pool()
            if job.store is not None:
                job.store.close()


def _stages(job: Run, started: float) -> None:
    config, folder = job.config, job.folder
    coached = config.improve.coach != "none"
    job.planned = 8 + 3 * coached + bool(config.data.real)
    job.console.line(f"pipeline sim2real: {config.task}, seed {config.seed}, in {folder}")
    check = job.stage(
        "check",
        {"again": time.time()},
        [],
        lambda bar: job.stages.check(config, folder, bar),
        lambda result: f"{result['line']}",
    )
    job.console.line(_plan(config))

    real = real_data(job)
    sim = demonstrations(job)
    datasets = [sim, *([real] if real else [])]

    first = _attempt(job, 0, config, datasets, init_from=None)
    scores, attempts = [first.score], [first]
    if coached:
        second = _second_attempt(job, first, datasets)
        scores, attempts = [*scores, second.score], [*attempts, second]
    choice = select(scores)
    assert job.store is not None
    job.store.put(best=choice.winner)
    job.note("selected", choice.winner, reason=choice.reason)
    job.console.line(f"  {choice.reason}")
    winner = attempts[choice.winner]

    confirm = _confirm(job, winner, first)
    job.close_pool()  # the twin gets the cores to itself
    deploy = job.stage(
        "deploy",
        {
            "checkpoint": winner.digest,
            "task": config.task,
            "seed": config.seed,
            "deploy": config.deploy.model_dump(),
            "safety": config.safety.model_dump(),
        },
        [folder / "deploy"],
        lambda bar: job.stages.deploy(config, winner.checkpoint, folder / "deploy", bar),
        lambda result: result["line"],
    )
    result = _result(job, check.result, attempts, choice.winner, choice.reason, confirm, deploy.result)
    job.stage(
        "report",
        {"result": result},
        [folder / "report.html", folder / "result.json"],
        lambda bar: job.stages.report(config, folder, result, {**job.seconds}, started, bar),
        lambda _: f"{folder / 'report.html'} and result.json",
    )
    job.console.line(_closing(result, folder))


def _plan(config: Sim2RealConfig) -> str:
    """The time each stage gets on two cores, in words; the finetuning's is a limit, the others' are estimates."""
    demonstrations = config.generate.demonstrations / 60
    rollouts = config.evaluate.train_rollouts + config.evaluate.validation_rollouts
    films = config.evaluate.train_rollouts if config.evaluate.videos < 0 else config.evaluate.videos
    evaluate = (rollouts * 1.5 + films * 8) / 60
    rows = [
        ("demonstrate", demonstrations + 0.7, f"{config.generate.demonstrations} demonstrations"),
        ("record", 0.3, "LeRobotDataset v3"),
        ("finetune", config.train.minutes, f"{config.train.policy}, to the deadline"),
        ("evaluate", evaluate, f"{rollouts} rollouts, {films} of them filmed"),
    ]
    if config.improve.coach != "none":
        rows.append(("improve", config.improve.minutes + evaluate, f"coach: {config.improve.coach}"))
    held = config.evaluate.heldout_rollouts
    rows.append(("confirm", 2 * held * 1.5 / 60, f"{held} held-out rollouts each"))
    trials = config.deploy.rollouts + config.deploy.demonstrator_rollouts
    rows.append(("deploy", trials * 14 / 60 + 0.5, f"{trials} rollouts in real time on {config.deploy.robot}"))
    lines = [f"  {name:<12}{minutes:5.1f} min  {what}" for name, minutes, what in rows]
    total = sum(minutes for _, minutes, _ in rows)
    return "\n".join(["  plan:", *lines, f"  {'together':<12}{total:5.1f} min"])


def real_data(job: Run) -> Source | None:
    """Before the demonstrations, so that data that cannot be used is refused in the first minute."""
    config = job.config
    if not config.data.real:
        return None
    earlier = job.ledger.entry("real-data")
    done = job.stage(
        "real-data",
        {"real": config.data.real, "content": job.stages.listing(Path(config.data.real)), "accept": config.data.accept},
        [Path(earlier["result"]["root"])] if earlier else [],
        lambda bar: job.stages.real_data(config, job.folder / "datasets" / "real", bar),
        lambda result: f"{result['episodes']} real episodes, {result['frames']} frames",
        "Real data",
    )
    for line in done.result["lines"]:
        job.console.line(f"  {line}")
    return Source("real", Path(done.result["root"]), done.result["digest"])


def demonstrations(job: Run, number: int = 0, maker: Any = None, made_by: str = "", root: Path | None = None) -> Source:
    """Demonstrations and their dataset; corrective ones for attempt `number` when a policy's maker is given."""
    config, folder = job.config, job.folder
    suffix = f"-{number:04d}" if maker else ""
    name = "corrective" if maker else "sim"
    journal, root = folder / f"demonstrations{suffix}", root or folder / "datasets" / name
    inputs = {"task": config.task, "seed": config.seed, "generate": config.generate.model_dump(exclude={"workers"})}
    made = job.stage(
        f"demonstrate{suffix}",
        {**inputs, "policy": made_by},
        [journal],
        lambda bar: job.stages.demonstrate(job.pool(), config, journal, bar, maker),
        lambda result: (
            f"{result['succeeded']} demonstrations, {result['failed']} failed and left out"
            + (", taking over from the policy" if maker else "")
        ),
        "Demonstrate",
    )
    done = job.stage(
        f"record{suffix}",
        {"indices": made.result["indices"], **inputs, "policy": made_by},
        [root],
        lambda bar: job.stages.record(journal, made.result["indices"], root, config, bar),
        lambda result: f"{result['episodes']} episodes, {result['frames']} frames in {root}",
        "Record",
    )
    return Source(name, root, done.result["digest"])


@dataclass(frozen=True)
class Attempted:
    """One attempt, trained and scored."""

    number: int
    checkpoint: Path
    digest: str
    trained: dict[str, Any]
    evaluated: dict[str, Any]
    proposal: dict[str, Any] | None

    @property
    def score(self) -> Score:
        """Its outcomes on the validation seeds."""
        validation = self.evaluated["validation"]
        return Score(self.number, tuple(validation["seeds"]), tuple(validation["outcomes"]))


def _attempt(
    job: Run,
    number: int,
    config: Sim2RealConfig,
    datasets: Sequence[Source],
    init_from: Attempted | None,
    proposal: dict[str, Any] | None = None,
) -> Attempted:
    attempt = job.attempt(number)
    attempt.mkdir(parents=True, exist_ok=True)
    assert job.store is not None
    if proposal and init_from:
        before = load.flatten(job.config.model_dump(), "parent")
        job.store.add(
            number,
            parent=init_from.number,
            start="parent",
            move="extend",
            coach=proposal["coach"],
            rule=proposal["rule"],
            rationale=proposal["rationale"],
            change={key: [before[key], value] for key, value in proposal["change"].items()},
        )
    else:
        job.store.add(number)
    job.store.advance(number, "training")
    suffix = f"-{number:04d}" if number else ""
    training = job.stage(
        f"finetune{suffix}",
        {
            "datasets": [(source.name, source.digest) for source in datasets],
            "mix": config.data.mix,
            "train": config.train.model_dump(exclude={"threads", "checkpoint_every_s", "wandb"}),
            "seed": config.seed,
            "from": init_from.digest if init_from else None,
        },
        [attempt / "checkpoints", attempt / "train.json"],
        lambda bar: job.stages.finetune(
            config, datasets, attempt, init_from.checkpoint if init_from else None, proposal, bar
        ),
        lambda result: result["line"],
        "Finetune",
        [attempt / name for name in ("training_state.pt", "metrics.jsonl", "log.txt")],
    )
    trained = training.result
    job.store.advance(number, "evaluating", training={key: trained.get(key) for key in ("steps", "elapsed_s", "loss")})
    validation = job.folder / "validation" / f"{number:04d}"
    checkpoint = attempt / trained["checkpoint"]
    evaluated = job.stage(
        f"evaluate{suffix}",
        {
            "checkpoint": trained["digest"],
            "task": config.task,
            "seed": config.seed,
            "evaluate": config.evaluate.model_dump(exclude={"workers", "heldout_rollouts"}),
            "execution": [config.deploy.blend_steps, config.deploy.smoothing],
        },
        [attempt / "rollouts", validation, attempt / "score.json"],
        lambda bar: job.stages.evaluate(job.pool(), config, checkpoint, attempt, validation, bar),
        lambda result: f"train seeds {_rate(result['train'])}, validation seeds {_rate(result['validation'])}",
        "Evaluate",
    ).result
    job.store.advance(number, "done", validation=_counted(evaluated["validation"]), train=_counted(evaluated["train"]))
    return Attempted(number, checkpoint, trained["digest"], trained, evaluated, proposal)


def _rate(counted: dict[str, Any]) -> str:
    return str(Rate(counted["successes"], counted["n"]))


def _second_attempt(job: Run, first: Attempted, datasets: Sequence[Source]) -> Attempted:
    """The coach's change, from the first attempt's weights."""
    feedback = job.attempt(0) / "feedback.md"
    proposal = job.stage(
        "improve",
        {"evaluated": first.evaluated["train"], "checkpoint": first.digest, "config": job.config.model_dump()},
        [feedback],
        lambda bar: job.stages.improve(job.config, job.attempt(0), 0, first.trained["stopped"]),
        lambda result: f"{result['rule']}: {_changes(result['change'])}",
        "Improve",
    ).result
    job.console.line(f"  {proposal['rationale']} (evidence: {feedback})")
    config = job.stages.child_config(proposal, job.config)
    job.planned += 2 * (config.generate.corrective > 0)
    if config.generate.corrective:
        maker = job.stages.policy_maker(first.checkpoint)
        outer, job.config = job.config, config
        datasets = [*datasets, demonstrations(job, 1, maker, first.digest)]
        job.config = outer
    return _attempt(job, 1, config, datasets, first, proposal)


def _changes(change: dict[str, Any]) -> str:
    return ", ".join(f"{key} → {value:g}" for key, value in change.items())


def _confirm(job: Run, winner: Attempted, first: Attempted) -> dict[str, Any]:
    """Winner and attempt 0 once on held-out seeds; once only when they are the same."""
    config = job.config
    who = list(dict.fromkeys((winner.number, first.number)))
    checkpoints = {winner.number: winner.checkpoint, first.number: first.checkpoint}
    return job.stage(
        "confirm",
        {
            "checkpoints": {made.number: made.digest for made in (winner, first)},
            "task": config.task,
            "seed": config.seed,
            "n": config.evaluate.heldout_rollouts,
            "max_ticks": config.evaluate.max_ticks,
            "execution": [config.deploy.blend_steps, config.deploy.smoothing],
        },
        [job.folder / "heldout"],
        lambda bar: job.stages.confirm(job.pool(), config, [(n, checkpoints[n]) for n in who], job.folder, bar),
        lambda result: _confirmed(result, winner.number),
    ).result


def _confirmed(result: dict[str, Any], winner: int) -> str:
    text = f"attempt {winner} on held-out seeds {_rate(result[str(winner)])}"
    if winner == 0:
        return text + "; it is attempt 0, so it ran once"
    paired = pair(result["0"]["outcomes"], result[str(winner)]["outcomes"])
    return (
        f"{text}, attempt 0 {_rate(result['0'])}; only the winner solved {paired.only_b}, only attempt 0 "
        f"{paired.only_a} (exact McNemar p = {paired.p_value:.2g})"
    )


def _counted(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: raw[key] for key in ("success_rate", "successes", "n", "ci95", "stages")}


def _result(
    job: Run,
    check: dict[str, Any],
    attempts: Sequence[Attempted],
    winner: int,
    reason: str,
    confirm: dict[str, Any],
    deploy: dict[str, Any],
) -> dict[str, Any]:
    """What `result.json` says, but for the times, which are known last."""
    kept = attempts[winner]
    base, best = confirm["0"], confirm[str(winner)]
    paired = pair(base["outcomes"], best["outcomes"])
    return {
        "task": job.config.task,
        "seed": job.config.seed,
        "command": f"{cli.command()} sim2real --config {shlex.quote(str(job.folder / runfolder.CONFIG_FILE))}",
        "attempts": [
            {
                "number": made.number,
                "parent": made.proposal["parent"] if made.proposal else None,
                "coach": made.proposal["coach"] if made.proposal else None,
                "change": made.proposal["change"] if made.proposal else {},
                "rationale": made.proposal["rationale"] if made.proposal else "the configuration as given",
                "train": _counted(made.evaluated["train"]),
                "validation": _counted(made.evaluated["validation"]),
                "training": {key: value for key, value in made.trained.items() if key not in ("line", "checkpoint")},
                "kept": made.number == winner,
            }
            for made in attempts
        ],
        "winner": winner,
        "selection": reason,
        "checkpoint": str(kept.checkpoint.relative_to(job.folder)),
        "validation": _counted(kept.evaluated["validation"]),
        "heldout": _counted(best),
        "heldout_base": _counted(base),
        "heldout_paired": {"only_winner": paired.only_b, "only_base": paired.only_a, "mcnemar_p": paired.p_value},
        "twin_demonstrator": deploy["twin_demonstrator"],
        "deploy": deploy["deploy"],
        "versions": check["versions"],
    }


def _closing(result: dict[str, Any], folder: Path) -> str:
    kept = f"attempt {result['winner']}"
    return f"{kept} is kept: held-out {_rate(result['heldout'])}; open {folder / 'report.html'}"
