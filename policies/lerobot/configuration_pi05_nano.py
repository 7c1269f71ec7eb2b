"""Configuration of π0.5-nano: LeRobot's PI05 configuration with the sizes of small towers and what they are trained on.

Discovered by LeRobot with `--plug.discover_packages_path=robocoach.policies.lerobot`, as policy type `pi05_nano`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lerobot.configs import FeatureType, NormalizationMode, PreTrainedConfig
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.utils.constants import ACTION, OBS_STATE


@PreTrainedConfig.register_subclass("pi05_nano")
@dataclass
class PI05NanoConfig(PI05Config):
    """Sizes of the towers, and the training targets that are part of the checkpoint.

    Normalisation is the model's own (buffers in `model.safetensors`), so LeRobot's normalisers are left at identity:
    actions are relative to the state in which the chunk was asked for and are scaled per chunk step, while LeRobot's
    `select_action` hands the processors one step at a time, together with a newer state.
    """

    chunk_size: int = 16
    n_action_steps: int = 8
    max_state_dim: int = 8
    max_action_dim: int = 8
    num_inference_steps: int = 5
    use_relative_actions: bool = True
    relative_exclude_joints: list[str] = field(default_factory=lambda: ["gripper"])
    tokenizer_max_length: int = 12
    vocabulary_size: int = 512
    normalization_mapping: dict[str, NormalizationMode] = field(
        default_factory=lambda: {
            "VISUAL": NormalizationMode.IDENTITY,
            "STATE": NormalizationMode.IDENTITY,
            "ACTION": NormalizationMode.IDENTITY,
        }
    )

    image_px: int = 96
    """Side of the image inside the model; frames of any size are area-resized to it [px]."""
    stem: str = "one_convolution"
    """How the image becomes a feature map, see `vision.STEMS`."""
    stem_channels: tuple[int, int] = (32, 64)
    """Channels at a quarter and at an eighth of the image's side."""
    stem_blocks: tuple[int, int] = (1, 2)
    """Residual blocks at those two resolutions."""
    image_tokens: int = 16
    attention_sharpness: float = 1.0
    """Spread of the attention maps' logits at the start."""
    layout_channels: int = 8
    """Channels of the feature map that reach the pose head cell by cell; 0 leaves it to the attention."""
    prefix_width: int = 160
    prefix_mlp: int = 320
    expert_width: int = 128
    expert_mlp: int = 256
    depth: int = 3
    heads: int = 8
    """Eight, as LeRobot's joint forward assumes (`1 * 8 * head_dim`)."""
    head_dim: int = 16
    hidden_activation: str = "silu"
    """Of the gated MLPs. π0.5 has gelu, which costs the CPU twice as much."""

    privileged_dim: int = 0
    """Numbers of the auxiliary target (object poses in the hand frame); 0 turns the head off."""
    auxiliary_weight: float = 1.0
    auxiliary_hidden: int = 256
    auxiliary_uses_state: bool = True
    flow_samples: int = 4
    """Noise draws for which one image is used in a training step."""
    state_noise: float = 0.02
    """Standard deviation of the noise on the state in training, in units of its normalised range."""
    state_dropout: float = 0.1
    """Share of training samples whose state token is replaced by a learned one, so that the image is not ignored."""
    sampling_noise: float = 0.0
    """Scale of the noise from which a chunk is sampled. From 0 the flow leads to the middle of what was demonstrated:
    the same checkpoint stacked 16 of 20 from 0 and 8 of 20 from 1 (development seeds, 1,150 training steps)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads * self.head_dim <= 0 or self.head_dim % 2:
            raise ValueError(f"head_dim ({self.head_dim}) must be even, for the rotary embedding")
        if self.image_px % 8:
            raise ValueError(f"image_px ({self.image_px}) must be a multiple of 8, the stem's stride")

    def validate_features(self) -> None:
        """Requires exactly one image, a state and an action, of the sizes the model was built for."""
        images = [k for k, f in (self.input_features or {}).items() if f.type is FeatureType.VISUAL]
        state = (self.input_features or {}).get(OBS_STATE)
        action = (self.output_features or {}).get(ACTION)
        if len(images) != 1 or state is None or action is None:
            raise ValueError(
                f"pi05_nano takes one image, {OBS_STATE} and {ACTION}; got inputs {sorted(self.input_features or {})}, "
                f"outputs {sorted(self.output_features or {})}"
            )
        if state.shape != (self.max_state_dim,) or action.shape != (self.max_action_dim,):
            raise ValueError(
                f"pi05_nano was built for state ({self.max_state_dim},) and action ({self.max_action_dim},); "
                f"got {state.shape} and {action.shape}"
            )
