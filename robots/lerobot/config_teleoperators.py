"""What LeRobot's command line takes for the Franka's teleoperators (`--teleop.type=franka_gello`, …)."""

from __future__ import annotations

from dataclasses import dataclass

from lerobot.teleoperators.config import TeleoperatorConfig


@TeleoperatorConfig.register_subclass("franka_gello")
@dataclass(kw_only=True)
class FrankaGelloConfig(TeleoperatorConfig):
    """A GELLO leader."""

    leader: str = ""
    """Calibration file of the leader (JSON), see `pipeline record --calibrate-leader`."""
    tolerance_rad: float = 0.25
    """Leader and arm may differ by this much in a joint at the start."""


@TeleoperatorConfig.register_subclass("franka_spacemouse")
@dataclass(kw_only=True)
class FrankaSpaceMouseConfig(TeleoperatorConfig):
    """A 3Dconnexion space mouse."""

    speed_m_s: float = 0.12
    turn_rad_s: float = 0.6


@TeleoperatorConfig.register_subclass("franka_keyboard")
@dataclass(kw_only=True)
class FrankaKeyboardConfig(TeleoperatorConfig):
    """The terminal's keys; for lerobot-teleoperate, since lerobot-record reads the same keys itself."""

    speed_m_s: float = 0.12
    turn_rad_s: float = 0.6


@TeleoperatorConfig.register_subclass("franka_script")
@dataclass(kw_only=True)
class FrankaScriptConfig(TeleoperatorConfig):
    """The task's demonstrator, on the twin only."""
