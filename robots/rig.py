"""What a rollout runs on: the arm, its wrist camera, and for the twin the truth behind them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from robocoach.configs.errors import UserError
from robocoach.configs.models import DeployConfig
from robocoach.datasets.contract import Contract
from robocoach.robots import fci
from robocoach.robots.camera import Camera
from robocoach.robots.franka import FrankaArm
from robocoach.robots.twin import Twin
from robocoach.sim import provenance

if TYPE_CHECKING:
    from robocoach.sim.task import Scene

SETTLE_S = 0.3


@dataclass(frozen=True)
class Rig:
    """One arm with its camera, ready for rollouts."""

    robot: str
    arm: FrankaArm
    camera: Camera
    twin: Twin | None
    """None on hardware: there nobody knows the truth."""
    contract: Contract

    def prepare(self, scene: Scene) -> None:
        """Brings arm, hand and objects to the start of a scene (twin only). Raises ArmFault."""
        if self.twin is None:
            return
        self.arm.recover()
        self.arm.open_hand()
        self.arm.go_to(scene.start_q)
        self.twin.place(scene)
        time.sleep(SETTLE_S)
        self.camera.newer_than(time.monotonic(), 2.0)


@contextlib.contextmanager
def open_rig(config: DeployConfig, task_name: str) -> Generator[Rig]:
    """Connects what the configuration names, and ends it all at the end. Raises UserError.

    An arm moves only once hardware is released: `fr3` is opened for a dry run.
    """
    fci.check_model(config.robot)
    if config.robot == "twin":
        with Twin(task_name, config.host) as twin, FrankaArm(twin.host, realtime=False) as arm:
            yield Rig(
                "twin", arm, twin.camera, twin, provenance.contract("twin", f"franky-sim {version('franky-sim')}")
            )
        return
    if not (config.host and config.dry_run):
        raise UserError("--robot fr3 needs --host IP and, until motion on hardware is released, --dry-run")
    from robocoach.robots.realsense import RealSense

    with FrankaArm(config.host, realtime=True) as arm, contextlib.closing(RealSense()) as camera:
        yield Rig("fr3", arm, camera, None, provenance.contract("real", None))
