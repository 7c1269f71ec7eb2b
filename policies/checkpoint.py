"""Checkpoints: writing one whole, proving that one is whole, and a policy that acts from one.

A checkpoint is a LeRobot policy folder (config.json, model.safetensors, processors) with contract.json and a
manifest of hashes. It can be moved. Whatever is missing, corrupt, cut off or made for another contract is refused
with one line; nothing ever acts with random weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import ACTION_KEY, IMAGE_KEY, IMAGE_SIZE, STATE_DIM, STATE_KEY, Contract, Meaning
from robocoach.datasets.contract import differences as contract_differences
from robocoach.datasets.video import resize
from robocoach.policies.cpu import keep_freed_memory, set_threads
from robocoach.policies.files import MANIFEST_FILE, recover_folder, replacing_folder, sha256, write_manifest
from robocoach.policies.strict import load_weights

CONFIG_FILE = "config.json"
REQUIRED = (CONFIG_FILE, "model.safetensors", "contract.json", "policy_preprocessor.json", "policy_postprocessor.json")
POLICY_TYPES = ("pi05_nano", "pi05")


class ChunkPolicy(Protocol):
    """Something that looks once and answers with the next actions."""

    contract: Contract

    def reset(self) -> None:
        """Forgets the rollout so far. The same observations then lead to the same actions."""
        ...

    def act(self, image: np.ndarray, state: np.ndarray, instruction: str) -> np.ndarray:
        """Image uint8 (224, 224, 3) RGB, state float32 (8,) → absolute actions float32 (executed_steps, 8)."""
        ...


def write_checkpoint(target: Path, save: Callable[[Path], None], contract: Contract, about: dict[str, object]) -> None:
    """Writes a checkpoint folder in one atomic move; `save(folder)` writes LeRobot's files into it."""
    with replacing_folder(target) as folder:
        save(folder)
        contract.save(folder)
        write_manifest(folder, about)


def verify(folder: Path) -> dict[str, Any]:
    """Proves that a checkpoint folder is whole and made for this contract; returns its manifest.

    Raises UserError when it is missing, not a checkpoint of this project, changed, cut off, or of another contract.
    """
    folder = Path(folder)
    recover_folder(folder)
    if not folder.is_dir():
        raise UserError(f"there is no checkpoint at {folder}; name a folder such as <run>/checkpoints/best")
    manifest_path = folder / MANIFEST_FILE
    if not manifest_path.is_file():
        inside = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
        raise UserError(f"{folder} is no checkpoint of this project: no {MANIFEST_FILE} (it holds {inside})")
    try:
        manifest = json.loads(manifest_path.read_text())
        files = dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{manifest_path} is corrupt; copy the checkpoint again or use another one") from error
    for name in sorted({*REQUIRED, *files}):
        path = folder / name
        if not path.is_file():
            raise UserError(f"{folder} is incomplete: {name} is missing; copy the whole folder again")
        if files.get(name) != sha256(path):
            raise UserError(f"{path} is corrupt or cut off (its hash is another one); copy the checkpoint again")
    differing = contract_differences(Meaning(), Contract.load(folder).meaning)
    if differing:
        listed = "; ".join(f"{key}: expected {ours!r}, it has {its!r}" for key, (ours, its) in differing.items())
        raise UserError(f"{folder} was trained for another data contract and cannot be used: {listed}")
    return manifest


def load_policy(
    folder: Path, device: str = "cpu", threads: int | None = None, *, continuing: bool | None = None
) -> ChunkPolicy:
    """A policy that acts, from a checkpoint folder. Raises UserError, see `verify`.

    `threads` sets PyTorch's threads for this process (0: all cores); None leaves them. `continuing` turns on LeRobot's
    real-time chunking: a chunk is guided to go on from the one in use (arXiv 2506.07339), for a robot that moves on
    while a large model thinks; by default it is on for pi05. It matters only to callers that say what is in use.
    """
    folder = Path(folder)
    manifest = verify(folder)
    from lerobot.configs import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    # Importing them registers the policy type and its processor steps, which a fresh process does not know.
    import robocoach.policies.lerobot.configuration_pi05_nano
    import robocoach.policies.lerobot.processor_pi05_nano  # noqa: F401

    kind = json.loads((folder / CONFIG_FILE).read_text()).get("type")
    if kind not in POLICY_TYPES:
        raise UserError(f"{folder} holds policy type {kind!r}; this project runs {', '.join(POLICY_TYPES)}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device {device} was asked for and this machine has no CUDA GPU; use cpu")
    if threads is not None:
        set_threads(threads)
    keep_freed_memory()
    config = PreTrainedConfig.from_pretrained(folder)
    config.device = device
    if kind == "pi05" if continuing is None else continuing:
        from lerobot.policies.rtc.configuration_rtc import RTCConfig

        vars(config)["rtc_config"] = RTCConfig()  # a field of both policies' configurations
    # LeRobot's own loader of pi05 would print a problem and go on with random weights.
    policy = get_policy_class(kind)(config)
    load_weights(policy, folder)
    moved = {"device_processor": {"device": device}}
    before, after = make_pre_post_processors(config, str(folder), preprocessor_overrides=moved)
    return _LeRobotPolicy(Contract.load(folder), policy, before, after, manifest)


@dataclass
class _LeRobotPolicy:
    """A LeRobot policy with its processors, as a ChunkPolicy. Its noise starts anew at every reset."""

    contract: Contract
    policy: Any
    before: Any
    after: Any
    manifest: dict[str, Any]
    generator: torch.Generator = field(default_factory=torch.Generator)

    def __post_init__(self) -> None:
        self.policy.eval()
        self.reset()

    def reset(self) -> None:
        self.generator.manual_seed(0)
        self.policy.reset()

    def act(self, image: np.ndarray, state: np.ndarray, instruction: str) -> np.ndarray:
        actions, executed = self.plan(image, state, instruction)
        return actions[:executed]

    def plan(
        self,
        image: np.ndarray,
        state: np.ndarray,
        instruction: str,
        previous: np.ndarray | None = None,
        delay_steps: int = 0,
    ) -> tuple[np.ndarray, int]:
        """The whole chunk, float32 (chunk_size, 8), and how many of its rows to execute before the next look.

        A policy with real-time chunking continues `previous` (m, 8), what the chunk in use says for this moment and
        after, of which `delay_steps` rows will be executed before this answer is there; others ignore it.
        """
        config = self.policy.config
        if image.shape != (IMAGE_SIZE, IMAGE_SIZE, 3) or image.dtype != np.uint8 or np.shape(state) != (STATE_DIM,):
            raise ValueError(
                f"expected image uint8 ({IMAGE_SIZE}, {IMAGE_SIZE}, 3) and state ({STATE_DIM},), got {image.dtype} "
                f"{image.shape} and {np.shape(state)}"
            )
        px = getattr(config, "image_px", IMAGE_SIZE)
        pixels = torch.from_numpy(np.ascontiguousarray(resize(image, px))).permute(2, 0, 1).float() / 255
        observation = {
            IMAGE_KEY: pixels,
            STATE_KEY: torch.from_numpy(np.asarray(state, dtype=np.float32)),
            "task": instruction,
        }
        batch = self.before(observation)
        shape = (1, config.chunk_size, config.max_action_dim)
        noise = torch.randn(shape, generator=self.generator).to(config.device)
        continued = self._continued(observation, previous, delay_steps)
        # Guidance takes a gradient through the policy, which inference mode forbids.
        with torch.no_grad() if continued else torch.inference_mode():
            chunk = self.policy.predict_action_chunk(batch, noise=noise, **continued)
            actions = self.after(chunk)
        dims = len(self.contract.meaning.action_names)
        return actions[0, :, :dims].float().cpu().numpy(), config.n_action_steps

    def _continued(self, observation: dict[str, Any], previous: np.ndarray | None, delay_steps: int) -> dict[str, Any]:
        """What LeRobot's real-time chunking wants of the last chunk, in the policy's own units; {} where it is off."""
        rtc = getattr(self.policy.config, "rtc_config", None)
        if rtc is None or not rtc.enabled or previous is None or not len(previous):
            return {}
        rows = torch.from_numpy(np.asarray(previous, dtype=np.float32))[None]
        left_over = self.before({**observation, ACTION_KEY: rows})[ACTION_KEY]
        return {"prev_chunk_left_over": left_over, "inference_delay": min(delay_steps, len(previous))}
