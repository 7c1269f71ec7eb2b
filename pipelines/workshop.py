"""The workshop of a campaign: demonstrations and rollouts in Genesis, training in a forked child, sessions on the arm.

Implements `agent_loop.workshop.Workshop`. The simulator processes and the pre-imported training server live as long
as the campaign, so that an attempt begins to train about a second after the one before it has ended.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robocoach.agent_loop.evidence import RolloutEvidence, read_rollouts
from robocoach.agent_loop.workshop import Job, Trained
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.files import write_atomically
from robocoach.configs.models import Sim2RealConfig
from robocoach.datasets import splits
from robocoach.datasets.splits import Split
from robocoach.pipelines import main_job, stages
from robocoach.pipelines.main_job import Run
from robocoach.pipelines.stages import Source
from robocoach.pipelines.training_job import JobProgress, train_attempt

PREFLIGHT_STEPS = 3
PREFLIGHT_TICKS = 12
PREFLIGHT_S = 120.0
GRACE_S, GRACE_SHARE = 180.0, 0.25
"""A training may take this much longer than its deadline (decoding frames once, the last checkpoint)."""
CANDIDATES = 10
"""Seeds that stratification chooses one of."""
FRESH_INTERVAL_S = 2.0


class GenesisWorkshop:
    """The real one. `job` is the run folder that the campaign has opened (`main_job.opened`)."""

    def __init__(self, job: Run) -> None:
        from robocoach.pipelines.training_worker import TrainingWorker

        self.run, self.config, self.folder = job, job.config, job.folder
        self.lanes = job.config.campaign.parallel or max(1, _gpus())
        self._worker = TrainingWorker()
        self._base: list[Source] = []
        self._simulator = threading.Lock()
        """One user of the simulator processes at a time."""

    # --- what attempts share -----------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Real data, first demonstrations, and the processes that stay."""
        self._worker.warm()
        config = self.config
        self.run.stage("check", {"again": time.time()}, [], self._check, lambda result: f"{result['line']}")
        real = main_job.real_data(self.run)
        sim = self._given() if config.campaign.data else main_job.demonstrations(self.run)
        self._base = [sim, *([real] if real else [])]
        self.run.pool()

    def _check(self, bar: Any) -> dict[str, Any]:
        return stages.check(self.config, self.folder, bar)

    def _given(self) -> Source:
        """The dataset that `--data` names, linked and never written to."""
        from robocoach.datasets.contract import Contract
        from robocoach.datasets.record import dataset_digest

        root = Path(self.config.campaign.data).resolve()
        Contract.load(root)
        link = self.folder / "datasets" / "sim"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(root)
        return Source("sim", link, dataset_digest(root))

    def seeds(self, split: Split, count: int, block: int = 0) -> tuple[int, ...]:
        """Stratified over what the task's scenes randomise; blocks are apart."""
        from robocoach.sim.strata import stratified
        from robocoach.sim.tasks import get_task

        if count == 0:
            return ()
        width = splits.PER_RUN // 10
        if CANDIDATES * count > width:
            return tuple(splits.seeds(split, self.config.seed, count, block * width))
        candidates = splits.seeds(split, self.config.seed, CANDIDATES * count, block * width)
        return stratified(get_task(self.config.task), candidates, count)

    # --- one attempt -------------------------------------------------------------------------------------------------

    def preflight(self, job: Job, seeds: Sequence[int]) -> str:
        """A few steps of training and a second of each rollout; the program error, if there is one."""
        folder = job.folder / "preflight"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        train = job.config.train.model_copy(update={"steps": PREFLIGHT_STEPS, "minutes": PREFLIGHT_S / 60})
        config = job.config.model_copy(update={"train": train})
        made = self._trained(job, config, folder, self._sources(job, new=False), PREFLIGHT_S, lambda text: None)
        if made.status != "finished":
            return f"training {made.status}: {made.reason}"
        done = self._rollouts(config, folder / made.checkpoint, seeds, folder / "rollouts", ticks=PREFLIGHT_TICKS)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return next((one.aborted for one in done if one.aborted), "")

    def train(self, job: Job, progress: Callable[[str], None]) -> Trained:
        """Demonstrations that the attempt adds, then the training, in a child process of its own."""
        sources = self._sources(job, new=True)
        with self.run.console.bar(f"attempt {job.number}") as bar:

            def show(now: JobProgress) -> None:
                bar.update(now.done, now.total, now.unit, now.note, rate=now.rate, left_s=now.left_s)
                left = "" if now.left_s is None else f", {now.left_s:.0f} s left"
                progress(f"{now.note}{left}")

            return self._trained(job, job.config, job.folder, sources, job.seconds, show)

    def _trained(
        self,
        job: Job,
        config: Sim2RealConfig,
        folder: Path,
        sources: Sequence[Source],
        seconds: float,
        progress: Callable[[JobProgress], None],
    ) -> Trained:
        began = time.monotonic()
        environment = {"CUDA_VISIBLE_DEVICES": str(job.lane)} if self.lanes > 1 and _gpus() else {}
        made = self._worker.run(
            train_attempt,
            {
                "config_yaml": load.dump(config),
                "sources": [{"name": source.name, "root": str(source.root)} for source in sources],
                "attempt": str(folder),
                "init_from": str(job.init_from) if job.init_from else None,
                "seed": config.seed,
            },
            deadline_s=seconds + max(GRACE_S, GRACE_SHARE * seconds),
            progress=progress,
            environment=environment,
            log=folder / "log.txt",
        )
        if made.status == "interrupted":
            raise KeyboardInterrupt
        result = dict(made.result or {})
        facts = {key: value for key, value in result.items() if key not in ("status", "message", "checkpoint")}
        return Trained(
            status=made.status,
            reason=made.reason,
            checkpoint=str(result.get("checkpoint", "")),
            facts={**facts, "gpu": result.get("device") == "cuda"},
            waited_s=max(0.0, time.monotonic() - began - float(facts.get("elapsed_s") or 0.0)),
        )

    def _sources(self, job: Job, *, new: bool) -> list[Source]:
        """The datasets of an attempt: the campaign's own, and what each of its ancestors added.

        With `new` those that this attempt adds are made; a preflight does without them.
        """
        found = list(self._base)
        before: Sim2RealConfig | None = None
        for number in job.lineage:
            own = number == job.number
            config = job.config if own else self._config(number)
            if before is not None and (new or not own):
                found += self._added(job, number, config, before, own)
            before = config
        return found

    def _config(self, number: int) -> Sim2RealConfig:
        path = self.run.attempt(number) / "config.yaml"
        return load.build(load.flatten(load.read_yaml(path), str(path)))

    def _added(self, job: Job, number: int, config: Sim2RealConfig, before: Sim2RealConfig, own: bool) -> list[Source]:
        """Demonstrations that one attempt added to its parent's: new scenes, and corrective ones."""
        made = []
        for kind in ("extra", "corrective"):
            count = getattr(config.generate, kind) - getattr(before.generate, kind)
            if count <= 0:
                continue
            name = f"{kind}-{number:04d}"
            record = self.folder / "datasets" / f"{name}.json"
            if record.is_file():
                made.append(Source(name, self.folder / "datasets" / name, json.loads(record.read_text())["digest"]))
            elif own:
                made.append(self._make(job, kind, getattr(before.generate, kind), count, name, record))
        return made

    def _make(self, job: Job, kind: str, before: int, count: int, name: str, record: Path) -> Source:
        """Collects and records them, beyond the indices of its ancestors; both steps resume by themselves."""
        from robocoach.sim import generate

        journal, root = self.folder / "demonstrations" / name, self.folder / "datasets" / name
        settings: dict[str, Any] = {"recovery_share": job.config.generate.recovery_share}
        if kind == "extra":
            settings |= {
                "variation": job.config.generate.variation,
                "start": generate.EXTRA_START + before + before // 4,
            }
        else:
            assert job.parent_checkpoint is not None
            failed = _failures(job.parent_rollouts)
            settings |= {
                "make_policy": stages.policy_maker(job.parent_checkpoint),
                "start": generate.CORRECTIVE_START + before + before // 4,
                "failures": failed,
            }
        with self._simulator, self.run.console.bar("Demonstrate") as bar:

            def show(done: int, failed: int) -> None:
                bar.update(done, count, f"{kind} demonstrations", f"{failed} failed and left out" if failed else "")

            pool = self.run.pool()
            made = generate.generate(pool, self.config.seed, count, journal, progress=show, **settings)
            kept = stages.record(journal, list(made.indices), root, self.config, bar)
        write_atomically(record, json.dumps(kept) + "\n")
        return Source(name, root, kept["digest"])

    # --- measuring ---------------------------------------------------------------------------------------------------

    def rollouts(
        self,
        job: Job,
        checkpoint: Path,
        seeds: Sequence[int],
        folder: Path,
        *,
        films: int = 0,
        stop: Callable[[Sequence[bool]], bool] | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> tuple[RolloutEvidence, ...]:
        """Counted rollouts in Genesis, executed as the attempt's configuration says."""
        with self.run.console.bar(f"attempt {job.number}") as bar:
            done = wins = 0

            def show(success: bool) -> None:
                nonlocal done, wins
                done, wins = done + 1, wins + success
                bar.update(done, len(seeds), "rollouts", f"{wins} succeeded")
                progress(f"{done} of {len(seeds)} rollouts")

            return self._rollouts(job.config, checkpoint, seeds, folder, films=films, stop=stop, show=show)

    def _rollouts(
        self,
        config: Sim2RealConfig,
        checkpoint: Path,
        seeds: Sequence[int],
        folder: Path,
        *,
        ticks: int | None = None,
        films: int = 0,
        stop: Callable[[Sequence[bool]], bool] | None = None,
        show: Callable[[bool], None] = lambda success: None,
    ) -> tuple[RolloutEvidence, ...]:
        from robocoach.sim.rollout import run_rollouts

        with self._simulator:
            done = run_rollouts(
                self.run.pool(),
                list(seeds),
                stages.policy_maker(checkpoint),
                folder,
                max_ticks=ticks or config.evaluate.max_ticks,
                videos=films,
                blend_steps=config.deploy.blend_steps,
                smoothing=config.deploy.smoothing,
                stop=None if stop is None else lambda results: stop([one.success for one in results]),
                progress=lambda result: show(result.success),
            )
        wanted = {one.seed: index for index, one in enumerate(done)}
        found = [one for one in read_rollouts(folder) if one.seed in wanted]
        return tuple(sorted(found, key=lambda one: wanted[one.seed]))

    def describe(self, job: Job, spend_left_usd: float) -> float:
        """Contact sheets of the filmed rollouts, and a summary of every one."""
        from robocoach.pipelines.campaign_video import describe

        return describe(self.config, job, self.folder / "coach" / f"{job.number:04d}", spend_left_usd)

    def hardware(self, job: Job, checkpoint: Path) -> tuple[RolloutEvidence, ...] | None:
        """The session of this attempt's checkpoint; on the twin with automatic verdicts it is run here."""
        from robocoach.pipelines import campaign_hardware

        auto = self.config.deploy.robot == "twin" and self.config.session.verdict == "auto"
        if auto and not campaign_hardware.closed(job.folder):
            self.run.close_pool()  # the twin keeps real time and gets the cores to itself
            campaign_hardware.run_on_twin(self.config, job.folder, checkpoint)
        return campaign_hardware.trials(job.folder)

    def page(self, content: Mapping[str, Any]) -> None:
        """`result.json` and `report.html` in the campaign's folder."""
        from robocoach.pipelines.campaign_page import page

        write_atomically(self.folder / "result.json", json.dumps(content, indent=1) + "\n")
        write_atomically(self.folder / "report.html", page(dict(content), self.folder))

    def interrupt(self) -> None:
        """Asks every training to save and end."""
        self._worker.interrupt()

    def close(self) -> None:
        """The training server and the simulator end with the process and the run."""


def _failures(rollouts: Path | None) -> list[Path]:
    """Records of the failed train-seed rollouts, from whose states corrective demonstrations begin."""
    if rollouts is None:
        return []
    found = [path for path in sorted(rollouts.glob("*.json")) if path.stem.isdigit()]
    return [path for path in found if not json.loads(path.read_text()).get("success", True)]


def _gpus() -> int:
    """GPUs of this machine, without importing torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    here = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    return min(here, len([part for part in visible.split(",") if part.strip()])) if visible is not None else here


def require_data(config: Sim2RealConfig) -> None:
    """Refuses a `--data` that is no dataset with the contract, before anything is written."""
    if config.campaign.data and not (Path(config.campaign.data) / "meta").is_dir():
        raise UserError(
            f"--data {config.campaign.data} is no LeRobotDataset; name its folder, such as RUN/datasets/sim"
        )
