"""Every setting of the product, as pydantic models: default, unit, bounds, help, and who may change it.

`tunable` marks what a coach's proposal may change; everything else judges or protects and is out of its reach.
The command line, the YAML profiles and the proposals are all checked against these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


def setting(default: Any, help_: str, *, unit: str = "", tunable: bool = False, **bounds: Any) -> Any:
    """A field with its help text, unit, bounds (`ge`, `gt`, `le`, `lt`) and whether a proposal may change it."""
    return Field(default, description=help_, json_schema_extra={"unit": unit, "tunable": tunable}, **bounds)


class Section(BaseModel):
    """A group of settings; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class GenerateConfig(Section):
    """Demonstrations in Genesis."""

    demonstrations: int = setting(200, "successful demonstrations to collect", ge=1, le=4_000)
    corrective: int = setting(
        0, "demonstrations that take over where the policy's own driving led", tunable=True, ge=0, le=1_000
    )
    extra: int = setting(
        0, "demonstrations beyond the first ones, on scenes of their own", tunable=True, ge=0, le=2_000
    )
    variation: float = setting(
        1.0,
        "spread of colours, lights, camera and friction in extra demonstrations; 1 is the task's own",
        tunable=True,
        ge=0,
        le=2,
    )
    workers: int = setting(0, "simulator processes; 0 takes one a core", ge=0, le=256)
    recovery_share: float = setting(0.7, "share of demonstrations with disturbances to recover from", ge=0, le=1)


class DataConfig(Section):
    """Real episodes and how they mix with simulated ones."""

    real: str = setting("", "folder of real teleop episodes (LeRobotDataset with the contract, or DROID-style)")
    mix: str = setting("sim=10,real=1", "sampling weight of each source", tunable=True)
    oversample: str = setting("", "stages drawn more often in training, such as grasp=2,place=3", tunable=True)
    accept: str = setting("", "provenance fields that may differ, comma separated")


class TrainConfig(Section):
    """Finetuning."""

    policy: Literal["pi05_nano", "pi05"] = setting("pi05_nano", "policy type")
    pi05_base: str = setting("lerobot/pi05_base", "weights that pi05 starts from: a folder, or a cached hub name")
    minutes: float = setting(12.0, "wall-clock deadline", unit="min", ge=0.05, le=100_000)
    steps: int = setting(1_000_000, "optimizer steps at most", tunable=True, ge=1, le=100_000_000)
    batch_size: int = setting(64, "samples a step", tunable=True, ge=1, le=65_536)
    learning_rate: float = setting(2e-3, "peak learning rate", tunable=True, gt=0, le=1)
    schedule: Literal["cosine", "linear", "constant"] = setting(
        "cosine", "how the learning rate falls from its peak to the end of the run", tunable=True
    )
    warmup_steps: int = setting(100, "linear warm-up", unit="steps", tunable=True, ge=0, le=1_000_000)
    weight_decay: float = setting(0.01, "AdamW weight decay", tunable=True, ge=0, le=1)
    clip_norm: float = setting(1.0, "gradient norm at which gradients are clipped", tunable=True, gt=0, le=1_000)
    ema: float = setting(0.995, "decay of the averaged weights; 0 turns averaging off", tunable=True, ge=0, lt=1)
    precision: Literal["auto", "bf16", "fp32"] = setting(
        "auto", "arithmetic; auto takes bf16 where it is fast", tunable=True
    )
    gradient_checkpointing: bool = setting(
        False, "compute activations twice instead of keeping them: less memory, slower", tunable=True
    )
    capacity: Literal["small", "base", "large"] = setting("base", "size of pi05_nano's towers", tunable=True)
    frozen: Literal["none", "vision"] = setting("none", "what keeps the weights it starts from", tunable=True)
    chunk_size: int = setting(16, "actions predicted at once", unit="steps", tunable=True, ge=1, le=100)
    executed_steps: int = setting(8, "actions executed before the next look", unit="steps", tunable=True, ge=1, le=100)
    image_px: int = setting(96, "side of the image inside pi05_nano", unit="px", ge=32, le=224, multiple_of=8)
    flow_samples: int = setting(4, "noise draws an image is used for in one step", tunable=True, ge=1, le=64)
    auxiliary_weight: float = setting(
        1.0, "weight of the object-pose targets known in simulation", tunable=True, ge=0, le=100
    )
    image_shift_px: int = setting(4, "random shift of the image", unit="px", tunable=True, ge=0, le=32)
    colour_jitter: float = setting(0.2, "random brightness, contrast and tint", tunable=True, ge=0, le=1)
    state_noise: float = setting(0.02, "noise on the normalised state", tunable=True, ge=0, le=1)
    threads: int = setting(0, "CPU threads; 0 takes all cores", ge=0, le=1024)
    checkpoint_every_s: float = setting(60.0, "time between checkpoints", unit="s", tunable=True, ge=1, le=100_000)
    wandb: Literal["disabled", "offline"] = setting("disabled", "a copy of the metrics as an offline W&B run")

    @model_validator(mode="after")
    def _executes_what_it_predicts(self) -> TrainConfig:
        if self.executed_steps > self.chunk_size:
            raise ValueError(f"executed_steps {self.executed_steps} is more than chunk_size {self.chunk_size}")
        return self


class EvaluateConfig(Section):
    """Rollouts in Genesis."""

    train_rollouts: int = setting(10, "rollouts on train seeds, the evidence a coach may read", ge=1, le=10_000)
    validation_rollouts: int = setting(20, "rollouts on validation seeds, used for selection only", ge=1, le=10_000)
    heldout_rollouts: int = setting(50, "rollouts on held-out seeds, once, at the end", ge=1, le=10_000)
    max_ticks: int = setting(120, "time limit of a rollout", unit="ticks of 0.1 s", ge=10, le=10_000)
    videos: int = setting(6, "train-seed rollouts filmed at full rate; -1 films every rollout", ge=-1, le=10_000)
    workers: int = setting(0, "simulator processes; 0 takes one a core", ge=0, le=256)


class ImproveConfig(Section):
    """The second attempt."""

    coach: Literal["rules", "none"] = setting("rules", "who proposes the next configuration")
    minutes: float = setting(6.0, "wall-clock deadline of the second attempt's training", unit="min", ge=0.05, le=1e5)


class CampaignConfig(Section):
    """A search over attempts. Budget, rules and evidence: never part of a proposal."""

    coach: str = setting("rules", "who proposes: rules, tpe, random, one-shot, none, llm:PROVIDER:MODEL, cmd:PROGRAM")
    hours: float = setting(8.0, "wall time of the whole campaign", unit="h", gt=0, le=10_000)
    attempts: int = setting(50, "attempts at most, the first configuration counted", ge=1, le=9_999)
    gpu_hours: float = setting(0.0, "GPU time of all attempts; 0 for no limit", unit="h", ge=0, le=1e6)
    spend_usd: float = setting(
        5.0, "money for model calls; with 0 only free models are asked", unit="USD", ge=0, le=100_000
    )
    target: float = setting(0.95, "validation success that ends the campaign when one attempt holds it", gt=0, le=1)
    unchanged: int = setting(3, "proposals in a row that change nothing end the campaign", ge=1, le=1_000)
    stalled: int = setting(10, "attempts in a row without a better validation result end it", ge=1, le=9_999)
    evidence: Literal["sim", "hardware", "both"] = setting("sim", "whose rollouts the coach reads")
    hardware_from: float = setting(0.5, "train-seed success from which an attempt goes to the arm", ge=0, le=1)
    without: str = setting("", "channels switched off: video, text, numbers, branching, comma separated")
    form: Literal["outcome", "state", "relations"] = setting("relations", "how much a report says of a rollout")
    space: Literal["world", "object", "parts"] = setting("parts", "what offsets in a report are relative to")
    unit: Literal["episode", "motion", "stage"] = setting("stage", "what a report describes one by one")
    stop_error: float = setting(
        0.02, "chance of ending the validation of an attempt early that is as good as the best", ge=0, le=0.2
    )
    preflight_rollouts: int = setting(
        10, "short rollouts before each training that see whether it can run", ge=0, le=50
    )
    disk_gb: float = setting(
        20.0, "size of the campaign's folder; old checkpoints and videos go first", unit="GB", gt=0
    )
    data: str = setting("", "dataset of demonstrations to begin with, instead of making new ones")
    describer: str = setting(
        "", "vision-language model PROVIDER:MODEL that describes filmed rollouts; empty describes from signals"
    )
    parallel: int = setting(0, "attempts at once; 0 takes one a GPU, one on a CPU", ge=0, le=64)
    lessons: bool = setting(True, "offer the lessons of past campaigns to the coach, and keep new ones")
    note: str = setting("", "the operator's own words to the coach")


class SafetyConfig(Section):
    """The envelope every action passes. Never part of a proposal. Positions are in the arm's base frame."""

    limit_inset_rad: float = setting(0.05, "distance kept from each joint limit", unit="rad", ge=0, le=0.5)
    max_step_rad: float = setting(
        0.2, "largest change of a joint command in 0.1 s; a faster loop gets its share", unit="rad", gt=0, le=0.25
    )
    max_frame_age_s: float = setting(
        0.25, "a camera frame older than this, or frozen for as long, stops the arm", unit="s", gt=0, le=1
    )
    max_state_age_s: float = setting(0.25, "a robot state older than this stops the arm", unit="s", gt=0, le=1)
    max_policy_wait_s: float = setting(0.2, "waiting longer for an action stops the arm", unit="s", gt=0, le=2)
    max_jump_rad: float = setting(
        0.6,
        "an action further from the last command (in 0.1 s) stops the arm instead of being clamped",
        unit="rad",
        gt=0,
        le=2,
    )
    max_tracking_rad: float = setting(
        0.3, "an arm further from its last command stops: it is blocked or not following", unit="rad", gt=0, le=2
    )
    start_tolerance_rad: float = setting(
        0.05, "largest difference between the arm and the start pose before a rollout", unit="rad", gt=0, le=0.5
    )
    table_z_m: float = setting(0.0, "height of the table top", unit="m", ge=-0.5, le=0.5)
    table_clearance_m: float = setting(0.001, "distance the hand keeps from the table", unit="m", ge=0, le=0.1)
    workspace_x_min_m: float = setting(0.2, "box the hand stays in: towards the base", unit="m", ge=-1, le=0.5)
    workspace_x_max_m: float = setting(0.85, "box the hand stays in: away from the base", unit="m", gt=0.5, le=1.2)
    workspace_y_min_m: float = setting(-0.5, "box the hand stays in: to the right", unit="m", ge=-1.2, le=0)
    workspace_y_max_m: float = setting(0.5, "box the hand stays in: to the left", unit="m", gt=0, le=1.2)
    workspace_z_max_m: float = setting(0.8, "box the hand stays in: its top", unit="m", gt=0.6, le=1.5)


class DeployConfig(Section):
    """Rollouts through franky, on the twin or on an arm."""

    robot: Literal["twin", "fr3", "panda"] = setting("twin", "what to drive")
    host: str = setting("", "FCI address of the arm; empty starts the twin on loopback")
    serial: str = setting("", "serial number on the arm's base, by which its checks are remembered")
    rollouts: int = setting(10, "counted rollouts of the policy", ge=1, le=1_000)
    demonstrator_rollouts: int = setting(10, "demonstrator rollouts that prove the twin", ge=0, le=1_000)
    dry_run: bool = setting(False, "everything but motion")
    max_ticks: int = setting(120, "time limit of a rollout", unit="ticks of 0.1 s", ge=10, le=10_000)
    control_mode: Literal["velocity", "impedance"] = setting(
        "velocity", "how the arm follows: velocities have a watchdog, impedance yields to contact, see docs"
    )
    home_speed: float = setting(
        0.25, "share of the arm's dynamic limits that moves to the start pose use", ge=0.02, le=0.5
    )
    rate: int = setting(10, "control ticks a second; the rows of a chunk stay 0.1 s apart", unit="Hz", ge=10, le=30)
    blend_steps: int = setting(
        2,
        "rows over which a new chunk takes over from the overlap of the last one; 0 switches at once",
        unit="steps",
        tunable=True,
        ge=0,
        le=20,
    )
    smoothing: float = setting(
        0.0, "share of the last command that stays in the next one, joints only; 0 for none", tunable=True, ge=0, le=0.9
    )
    min_clock_ratio: float = setting(0.98, "a twin slower than this makes the rollout invalid", gt=0, le=1)


class CameraConfig(Section):
    """The wrist RealSense on hardware; the twin renders its own."""

    camera_serial: str = setting("", "serial number of the RealSense; empty takes the only one that is plugged in")
    camera_width_px: int = setting(
        0, "width of the colour stream; 0 takes the smallest mode that fits the contract", unit="px", ge=0, le=4096
    )
    camera_height_px: int = setting(0, "height of the colour stream; 0 as for the width", unit="px", ge=0, le=4096)
    camera_fps: int = setting(30, "frames a second to ask for", unit="Hz", ge=6, le=90)
    exposure_us: int = setting(
        0, "exposure time; 0 lets the camera find it during warm-up", unit="us", ge=0, le=200_000
    )
    gain: int = setting(0, "gain of the colour sensor; 0 lets the camera find it during warm-up", ge=0, le=1_000)
    white_balance_k: int = setting(
        0, "white balance; 0 lets the camera find it during warm-up", unit="K", ge=0, le=10_000
    )
    lock_exposure: bool = setting(True, "keep exposure and white balance as they are when the warm-up ends")
    warmup_s: float = setting(1.5, "frames are thrown away for at least this long", unit="s", ge=0, le=60)
    warmup_frames: int = setting(20, "frames that are thrown away at least", ge=0, le=1_000)


class SessionConfig(Section):
    """Counted trials on the twin or on an arm, each with a verdict."""

    trials: int = setting(10, "valid trials of each checkpoint to reach", ge=1, le=1_000)
    extra_trials: int = setting(5, "trials at most that make up for invalid ones, at the end", ge=0, le=1_000)
    distractors: int = setting(0, "objects beside the task's own that the operator puts on the table", ge=0, le=4)
    blind: bool = setting(False, "two checkpoints under codes, revealed when the session is closed")
    verdict: Literal["ask", "auto"] = setting("ask", "who judges: the operator, or (twin only) the task's predicate")
    countdown_s: float = setting(3.0, "warning before the arm moves", unit="s", ge=0, le=60)
    reference: float = setting(0.0, "success rate that one checkpoint is compared with; 0 for none", ge=0, lt=1)


class RecordConfig(Section):
    """Teleoperated episodes on the twin or on an arm."""

    episodes: int = setting(30, "accepted episodes to reach", ge=1, le=10_000)
    teleop: Literal["gello", "spacemouse", "keyboard", "guide", "script"] = setting(
        "keyboard", "what the operator steers with; script is the demonstrator, on the twin only"
    )
    max_seconds: float = setting(60.0, "time limit of an episode", unit="s", ge=1, le=600)
    unattended: bool = setting(False, "nobody at the keys: the script steers, the task's predicate judges (twin only)")
    homing: Literal["ask", "auto"] = setting("ask", "move to the start pose at a key, or by itself after each episode")
    keys: str = setting(
        "start=enter,success=enter,stop=space,failure=tab,redo=backspace,discard=x,home=h,quit=escape",
        "keys of the recording, also those that a foot pedal types; what is not named keeps its key",
    )
    leader: str = setting("", "calibration file of the GELLO leader (JSON)")
    leader_tolerance_rad: float = setting(
        0.25, "leader and arm may differ by this much in a joint when an episode begins", unit="rad", gt=0, le=0.6
    )
    jog_speed_m_s: float = setting(
        0.12, "fastest the keyboard or the space mouse moves the hand", unit="m/s", gt=0, le=0.5
    )
    jog_turn_rad_s: float = setting(0.6, "fastest they turn it", unit="rad/s", gt=0, le=2)


class Sim2RealConfig(Section):
    """The main job: every stage of `pipeline sim2real`.

    Sections are made when a configuration is: making one here would build its validators for `--help` too.
    """

    task: str = setting("stack-cube", "task name, see `pipeline tasks`")
    seed: int = setting(0, "seed of the run: scenes, noise and initial weights", ge=0, le=999)
    generate: GenerateConfig = Field(default_factory=GenerateConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = Field(default_factory=EvaluateConfig)
    improve: ImproveConfig = Field(default_factory=ImproveConfig)
    campaign: CampaignConfig = Field(default_factory=CampaignConfig)
    safety: SafetyConfig = Field(default_factory=SafetyConfig)
    deploy: DeployConfig = Field(default_factory=DeployConfig)
    camera: CameraConfig = Field(default_factory=CameraConfig)
    session: SessionConfig = Field(default_factory=SessionConfig)
    record: RecordConfig = Field(default_factory=RecordConfig)
