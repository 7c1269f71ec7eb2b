"""Finetuning: one loop on `accelerate` for one process on a CPU, for a GPU, and for several of either.

Ends by the clock or by steps, whichever comes first. Keeps two checkpoints, `last` and `best` (lowest loss on
episodes that are kept apart), of the averaged weights; stops at the first value that is not finite and keeps the
last good checkpoint; goes on exactly where it was after a kill. Knows nothing of simulators or robots.

    out/checkpoints/last, best   see checkpoint.py
    out/training_state.pt        what resuming needs
    out/metrics.jsonl, log.txt   evidence
    out/train.json               the result, with the settings it was made with
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast

from robocoach.configs.errors import UserError
from robocoach.configs.models import TrainConfig
from robocoach.datasets.contract import Contract
from robocoach.datasets.mixture import Mixture
from robocoach.policies.batches import Batches
from robocoach.policies.checkpoint import verify, write_checkpoint
from robocoach.policies.cpu import has_fast_bf16, keep_freed_memory, set_threads
from robocoach.policies.interrupts import interrupts
from robocoach.policies.learners import Learner, make_learner
from robocoach.policies.optimisation import Average, decayed_groups, fraction_done, learning_rate
from robocoach.policies.training_log import Means, TrainingLog
from robocoach.policies.training_state import load_state, save_state

RESULT_FILE = "train.json"
METRICS_EVERY = 20
"""Steps between rows of metrics."""
VALIDATIONS = 20
"""How often the kept-apart loss is measured in a run."""
VALIDATION_GAP = 50
"""Steps between two measurements at least."""
VALIDATION_FRAMES = 256
ERROR_FRAMES = 64
"""Kept-apart frames on which actions are sampled, which costs more than a loss."""
FREE_TO_CHANGE = frozenset({"minutes", "steps", "threads", "checkpoint_every_s", "wandb"})
"""Settings that may differ when a training is resumed; any other one makes it another training."""


@dataclass(frozen=True)
class TrainProgress:
    """Where a training is."""

    step: int
    elapsed_s: float
    fraction: float
    """Share of the run that is over, in [0, 1]."""
    loss: float
    samples_per_s: float


@dataclass(frozen=True)
class TrainResult:
    """What a training left."""

    status: str
    """`finished`, or `nan` when a loss or gradient was not finite."""
    message: str
    steps: int
    elapsed_s: float
    samples_per_s: float
    parameters: int
    loss: float | None
    """Mean training loss of the last rows."""
    best_loss: float | None
    """Lowest loss on the episodes kept apart."""
    last: Path | None
    best: Path | None


def train(
    cfg: TrainConfig,
    sources: Mixture,
    contract: Contract,
    out: Path,
    *,
    seed: int,
    init_from: Path | None = None,
    progress: Callable[[TrainProgress], None] | None = None,
) -> TrainResult:
    """Trains a policy on a mixture; resumes by itself when `out` holds an unfinished training of the same settings.

    `init_from` starts from another checkpoint's weights, with a fresh optimizer and that checkpoint's normalisation.
    Ctrl-C and SIGTERM finish the step, save and raise KeyboardInterrupt. Raises UserError on bad input.
    """
    run = _Run(cfg, sources, contract, Path(out), seed, init_from, progress)
    try:
        return run.go()
    finally:
        run.close()


class _Run:
    """One training in progress. `self.state` is what a checkpoint of it needs besides tensors."""

    def __init__(
        self,
        cfg: TrainConfig,
        mixture: Mixture,
        contract: Contract,
        out: Path,
        seed: int,
        init_from: Path | None,
        progress: Callable[[TrainProgress], None] | None,
    ) -> None:
        self.cfg, self.contract, self.out, self.seed, self.progress = cfg, contract, out, seed, progress
        out.mkdir(parents=True, exist_ok=True)
        keep_freed_memory()
        threads = set_threads(cfg.threads)
        if AcceleratorState._shared_state:
            AcceleratorState._reset_state()  # else a second training in this process keeps the first one's precision
        cpu = not torch.cuda.is_available()
        bf16 = cfg.precision == "bf16" or (cfg.precision == "auto" and has_fast_bf16("cpu" if cpu else "cuda"))
        self.accelerator = Accelerator(cpu=cpu, mixed_precision="bf16" if bf16 else "no")
        self.main = self.accelerator.is_main_process
        if init_from is not None:
            verify(init_from)
        torch.manual_seed(seed)
        self.batches = Batches(mixture, cfg.chunk_size, seed)
        self.learner: Learner = make_learner(cfg, self.batches, self.accelerator.device, init_from)
        policy = self.learner.policy
        self.parameters = sum(p.numel() for p in policy.parameters())
        trained = sum(p.numel() for p in policy.parameters() if p.requires_grad)
        self.average = Average(policy, cfg.ema)
        optimizer = torch.optim.AdamW(
            decayed_groups(policy, cfg.weight_decay), lr=cfg.learning_rate, betas=(0.9, 0.95), fused=True
        )
        self.policy, self.optimizer = self.accelerator.prepare(policy, optimizer)
        self.share = max(1, cfg.batch_size // self.accelerator.num_processes)
        digest = _digest(cfg, mixture, contract, seed, init_from)
        self.state: dict[str, Any] = {
            "digest": digest,
            "step": 0,
            "elapsed_s": 0.0,
            "validated": 0,
            "validated_step": 0,
        }
        self.state |= {
            "best_loss": math.inf,
            "loss": math.nan,
            "samples_per_s": 0.0,
            "status": "finished",
            "message": "",
        }
        settings = cfg.model_dump() | {"seed": seed}
        self.log = TrainingLog(out, wandb_mode=cfg.wandb, name=out.name, settings=settings, enabled=self.main)
        resumed = self._resume()
        frames = {source.name: len(source.states) for source in mixture.sources}
        self.log.say(
            f"{'resumed at step ' + str(self.state['step']) if resumed else 'begun'}: {cfg.policy}, "
            f"{self.parameters / 1e6:.2f} M parameters ({trained / 1e6:.2f} M trained), frames {frames}, "
            f"{self.batches.validation_episodes} episodes "
            f"kept apart, {'bf16' if bf16 else 'fp32'}, {threads} threads, {self.accelerator.num_processes} processes"
        )
        for note in self.learner.notes:
            self.log.say(note)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._validation = self.batches.validation(VALIDATION_FRAMES)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self.log.close()

    @property
    def checkpoints(self) -> Path:
        return self.out / "checkpoints"

    def go(self) -> TrainResult:
        """The loop. Everything that is saved is consistent whenever a step is over."""
        state, began = self.state, time.perf_counter() - self.state["elapsed_s"]
        saved_at, window = state["elapsed_s"], Means()
        prefetched = self._prefetch(state["step"])
        self.policy.train()
        with interrupts() as interrupted:
            while True:
                state["elapsed_s"] = self._agreed(time.perf_counter() - began)
                fraction = fraction_done(state["step"], self.cfg.steps, state["elapsed_s"], self.cfg.minutes * 60)
                self._validate(fraction)
                if fraction >= 1:
                    break
                if self._any(bool(interrupted)):
                    self._save()
                    self.log.say(f"interrupted at step {state['step']}, saved; the same command resumes")
                    raise KeyboardInterrupt
                batch, prefetched = prefetched.result(), self._prefetch(state["step"] + 1)
                rate = learning_rate(
                    self.cfg.learning_rate, state["step"], self.cfg.warmup_steps, fraction, self.cfg.schedule
                )
                parts = self._step(batch, rate)
                if parts is None:
                    return self._not_finite()
                state["step"] += 1
                window.add(parts, rate, self.share * self.accelerator.num_processes)
                if state["step"] % METRICS_EVERY == 0:
                    self._report(window.row(), fraction)
                    window = Means()
                if state["elapsed_s"] - saved_at >= self.cfg.checkpoint_every_s:
                    self._save()
                    saved_at = state["elapsed_s"]
        return self._finish(window)

    def _step(self, batch: dict[str, torch.Tensor], rate: float) -> dict[str, float] | None:
        """One update. None, and no update, when the loss or the gradient is not finite."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        # All randomness of a step follows from its number, so that a resumed run repeats an uninterrupted one.
        torch.manual_seed(_step_seed(self.seed, self.state["step"], self.accelerator.process_index))
        loss, parts = self.policy(batch)
        self.accelerator.backward(loss)
        norm = self.accelerator.clip_grad_norm_(self.policy.parameters(), self.cfg.clip_norm)
        found = {"loss": float(loss.detach()), "grad_norm": float(norm)}
        found |= {name: float(value) for name, value in parts.items() if name.endswith("_loss")}
        if self._any(not all(math.isfinite(value) for value in found.values())):
            return None
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.update(self.accelerator.unwrap_model(self.policy), self.state["step"] + 1)
        return found

    def _prefetch(self, step: int) -> Future:
        def draw() -> dict[str, torch.Tensor]:
            batch, rng = self.batches.training(step, self.share, self.accelerator.process_index)
            return self.learner.tensors(batch, rng)

        return self._pool.submit(draw)

    def _validate(self, fraction: float) -> None:
        """When it is due: the averaged weights' loss on the frames kept apart; the lowest so far is kept as `best`."""
        state, mark = self.state, int(fraction * VALIDATIONS)
        early = state["step"] < state["validated_step"] + VALIDATION_GAP and fraction < 1
        if mark <= state["validated"] or early:
            return
        state["validated"], state["validated_step"] = mark, state["step"]
        if self._validation is None or not self.main:
            return
        model = self.average.model.eval()
        losses = self._validation_losses(model)
        # The flow loss alone decides: the auxiliary one only serves it.
        chosen = losses.get("flow_loss", losses["loss"])
        row = {"step": state["step"], "elapsed_s": state["elapsed_s"], "validation_loss": chosen}
        row |= {f"validation_{name}": value for name, value in losses.items() if name != "loss"}
        row |= self.learner.errors(model, self._validation.slice(0, ERROR_FRAMES))
        self.policy.train()
        self.log.metrics(row)
        better = chosen < state["best_loss"]
        self.log.say(f"step {state['step']}: kept-apart loss {chosen:.4f}{', the best so far' if better else ''}")
        if better:
            state["best_loss"] = chosen
            self._write("best")

    def _validation_losses(self, model: torch.nn.Module) -> dict[str, float]:
        """Mean loss and its parts on the frames kept apart, with the same noise every time."""
        assert self._validation is not None
        count, sums = len(self._validation.states), {}
        torch.manual_seed(self.seed)
        for begin in range(0, count, self.share):
            batch = self._validation.slice(begin, begin + self.share)
            with torch.no_grad(), self.accelerator.autocast():
                loss, parts = model(self.learner.tensors(batch, None))
            found = {"loss": loss} | {name: value for name, value in parts.items() if name.endswith("_loss")}
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + float(value) * len(batch.states) / count
        return sums

    def _report(self, row: dict[str, float], fraction: float) -> None:
        state = self.state
        state["loss"], state["samples_per_s"] = row["loss"], row["samples_per_s"]
        self.log.metrics({"step": state["step"], "elapsed_s": state["elapsed_s"], **row})
        if self.progress is not None and self.main:
            self.progress(TrainProgress(state["step"], state["elapsed_s"], fraction, row["loss"], row["samples_per_s"]))

    def _save(self) -> None:
        """Writes `last` and the state to resume from, the state last: it is never ahead of its checkpoint."""
        if not self.main:
            return
        self._write("last")
        policy = self.accelerator.unwrap_model(self.policy)
        average = self.average.model.state_dict() if self.average.decay else None
        tensors = {"model": policy.state_dict(), "average": average, "optimizer": self.optimizer.state_dict()}
        save_state(self.out, {**self.state, **tensors})

    def _write(self, name: str) -> None:
        about = {key: self.state[key] for key in ("step", "elapsed_s", "loss")}
        about |= {"policy": self.cfg.policy, "best_loss": _finite(self.state["best_loss"]), "seed": self.seed}
        about["loss"] = _finite(about["loss"])
        write_checkpoint(
            self.checkpoints / name, lambda folder: self.learner.save(self.average.model, folder), self.contract, about
        )

    def _resume(self) -> bool:
        """Takes up the state in `out`, if there is one. Raises UserError when it belongs to another training."""
        saved = load_state(self.out)
        if saved is None:
            return False
        if saved["digest"] != self.state["digest"]:
            raise UserError(
                f"{self.out} holds a training with other settings, data or seed; choose another folder or delete it"
            )
        self.accelerator.unwrap_model(self.policy).load_state_dict(saved.pop("model"))
        average = saved.pop("average")
        if average is not None:
            self.average.model.load_state_dict(average)
        self.optimizer.load_state_dict(saved.pop("optimizer"))
        self.state |= saved
        self.log.keep_until(self.state["step"])
        return True

    def _not_finite(self) -> TrainResult:
        kept = self.checkpoints / "last"
        which = f"the checkpoint written before is kept ({kept})" if kept.is_dir() else "no checkpoint was written yet"
        self.state["status"] = "nan"
        self.state["message"] = f"loss or gradient was not finite at step {self.state['step']}: stopped, {which}"
        self.log.say(self.state["message"])
        return self._result()

    def _finish(self, window: Means) -> TrainResult:
        if window.count:
            self._report(window.row(), 1.0)
        finished = self.state["step"] > 0 and (window.count or not (self.out / RESULT_FILE).is_file())
        if finished:
            self._save()
            self.log.say(f"finished at step {self.state['step']} after {self.state['elapsed_s']:.0f} s")
        return self._result()

    def _result(self) -> TrainResult:
        self.accelerator.wait_for_everyone()  # the first process writes the checkpoints
        state = self.state
        present = {name: self.checkpoints / name for name in ("last", "best") if (self.checkpoints / name).is_dir()}
        result = TrainResult(
            status=state["status"],
            message=state["message"],
            steps=state["step"],
            elapsed_s=round(state["elapsed_s"], 2),
            samples_per_s=round(state["samples_per_s"], 2),
            parameters=self.parameters,
            loss=_finite(state["loss"]),
            best_loss=_finite(state["best_loss"]),
            last=present.get("last"),
            best=present.get("best", present.get("last")),
        )
        if self.main:
            record = asdict(result) | {"last": str(result.last), "best": str(result.best)}
            record |= {"settings": self.cfg.model_dump(), "seed": self.seed}
            (self.out / RESULT_FILE).write_text(json.dumps(record, indent=2) + "\n")
        return result

    def _agreed(self, seconds: float) -> float:
        """The first process's clock, so that all processes end and slow down together."""
        if self.accelerator.num_processes == 1:
            return seconds
        return float(broadcast(torch.tensor(seconds, dtype=torch.float64, device=self.accelerator.device)))

    def _any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.accelerator.num_processes == 1:
            return flag
        return bool(self.accelerator.gather(torch.tensor([float(flag)], device=self.accelerator.device)).any())


def _step_seed(seed: int, step: int, process: int) -> int:
    digest = hashlib.sha256(f"{seed}/{step}/{process}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _digest(cfg: TrainConfig, mixture: Mixture, contract: Contract, seed: int, init_from: Path | None) -> str:
    """Says whether a saved state belongs to this training: its settings, data, contract, seed and parent."""
    parent = None
    if init_from is not None:
        parent = hashlib.sha256((Path(init_from) / "manifest.json").read_bytes()).hexdigest()
    what = {
        "settings": cfg.model_dump(exclude=set(FREE_TO_CHANGE)),
        "data": [(source.name, source.digest) for source in mixture.sources],
        "shares": [round(float(share), 9) for share in mixture.shares],
        **({"oversample": sorted(mixture.oversample.items())} if mixture.oversample else {}),
        "contract": contract.meaning.digest(),
        "seed": seed,
        "parent": parent,
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
