"""What LeRobot's command line takes for `--robot.type=franka`."""

from __future__ import annotations

from dataclasses import dataclass, field

from lerobot.cameras import CameraConfig
from lerobot.robots.config import RobotConfig


@RobotConfig.register_subclass("franka")
@dataclass(kw_only=True)
class FrankaConfig(RobotConfig):
    """A Franka arm with its hand and wrist camera, or the twin of one."""

    model: str = "twin"
    """`twin`, `fr3` or `panda`."""
    host: str = ""
    """FCI address of the arm; for the twin a loopback address, or empty for a free one."""
    serial: str = ""
    """Serial number on the arm's base, by which its checks are remembered."""
    control_mode: str = "velocity"
    """`velocity`, whose motions are their own watchdog, or `impedance`, which yields to contact."""
    home_speed: float = 0.25
    """Share of the arm's dynamic limits that moves to the start pose use, 0.02 to 0.5."""
    task: str = "stack-cube"
    """Which of the project's tasks lies on the twin's table."""
    scene_seed: int = 1
    """Arrangement of the twin's table, and the start pose."""
    start: str = "stay"
    """On an arm: `stay` where it is when connecting, or `home` to move slowly to the start pose. The twin is always
    brought to the start."""
    fps: int = 10
    """Actions a second, the `--fps` or `--dataset.fps` of LeRobot's tool, 10 to 30. Faster callers are held back."""
    safety: dict[str, float] = field(default_factory=dict)
    """Settings of the safety envelope that differ from its defaults, such as `{max_step_rad: 0.1}`."""
    wrist: dict[str, str] = field(default_factory=dict)
    """Settings of the wrist RealSense that differ from their defaults, such as `{camera_serial: 12345}`."""
    cameras: dict[str, CameraConfig] = field(default_factory=dict)
    """LeRobot cameras beside the wrist camera, which is always there as `wrist`."""
