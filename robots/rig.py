"""What a rollout runs on: the arm, its wrist camera, and for the twin the truth behind them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from robocoach.configs.errors import UserError
from robocoach.configs.models import CameraConfig, DeployConfig
from robocoach.datasets.contract import Contract
from robocoach.robots import approval, fci
from robocoach.robots.camera import Camera
from robocoach.robots.franka import FrankaArm
from robocoach.robots.limits import FR3, LIMITS, ArmLimits
from robocoach.robots.twin import Twin
from robocoach.sim import provenance

if TYPE_CHECKING:
    from robocoach.sim.task import Scene

SETTLE_S = 0.3
FIRST_FRAME_S = 2.0


@dataclass(frozen=True)
class Rig:
    """One arm with its camera, ready for rollouts."""

    robot: str
    arm: FrankaArm
    camera: Camera
    twin: Twin | None
    """None on hardware: there nobody knows the truth."""
    contract: Contract
    limits: ArmLimits = FR3
    moves: bool = True
    """False on an arm opened for a dry run: nothing may move it."""

    def prepare(self, scene: Scene) -> None:
        """Brings arm and hand to the start of a scene, slowly; on the twin the objects too. Raises ArmFault.

        On hardware the objects are placed by hand.
        """
        if self.moves:
            self.arm.recover()
            self.arm.open_hand()
            self.arm.go_to(scene.start_q)
        if self.twin is not None:
            self.twin.place(scene)
            time.sleep(SETTLE_S)
        self.camera.newer_than(time.monotonic(), FIRST_FRAME_S)


@contextlib.contextmanager
def open_rig(
    config: DeployConfig, task_name: str, camera: CameraConfig | None = None, *, commissioning: bool = False
) -> Generator[Rig]:
    """Connects what the configuration names, and ends it all at the end. Raises UserError.

    An arm on the network is opened for motion only when it was commissioned, or is being commissioned right now.
    """
    fci.check_model(config.robot)
    limits = LIMITS[config.robot]
    how: dict[str, Any] = {"mode": config.control_mode, "home_speed": config.home_speed}
    if config.robot == "twin":
        with Twin(task_name, config.host) as twin, FrankaArm(twin.host, realtime=False, **how) as arm:
            contract = provenance.contract("twin", f"franky-sim {version('franky-sim')}")
            yield Rig("twin", arm, twin.camera, twin, contract, limits)
        return
    if not config.host:
        raise UserError(
            f"--robot {config.robot} needs --host IP, the arm's address; --dry-run does everything but motion"
        )
    if not (config.dry_run or commissioning):
        approval.require(config)
    from robocoach.robots.realsense import open_realsense

    with (
        FrankaArm(config.host, realtime=True, model=config.robot, **how) as arm,
        contextlib.closing(open_realsense(camera or CameraConfig())) as wrist,
    ):
        contract = provenance.contract("real", None, robot=config.robot, measured=wrist.provenance)
        yield Rig(config.robot, arm, wrist, None, contract, limits, moves=not config.dry_run)
