"""`pipeline commission`: an arm's first day, check by check; an arm on the network moves only after it has passed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robocoach.configs.errors import UserError
from robocoach.pipelines.options import Extra, parse, parser

if TYPE_CHECKING:
    from robocoach.robots.approval import Check
    from robocoach.robots.rig import Rig

ABOUT = "Checks kernel, network, FCI, hand, camera, loop and the first slow motions of an arm (or of the twin)."
SECTIONS = ("task", "deploy.robot", "deploy.host", "deploy.serial", "safety", "camera")
EXTRAS = [
    Extra("--operator", "who stands at the arm", "NAME"),
    Extra("--yes", "agree to the motions beforehand (the twin only)"),
    Extra("--print-board", "write the ChArUco board for --hand-eye as a PNG, to be printed at 100 %, and end", "FILE"),
    Extra("--hand-eye", "measure the camera mount: guide the arm by hand, a dozen poses that see the board"),
]
MOUNT_M, MOUNT_DEG = 0.01, 2.0
"""A mount further off than this gets a warning: simulated data jitters its camera by 0.004 m and 0.025 rad (1.4°)."""


def main(arguments: Sequence[str]) -> int:
    """Prints one line a check with the mend below where one fails; 0 when all have passed, 2 when not."""
    parsed = parse(*parser("commission", ABOUT, SECTIONS, EXTRAS, bare=True), arguments)
    extras = parsed.extras
    if extras["print_board"]:
        return _print_board(Path(extras["print_board"]))
    from robocoach.configs import load
    from robocoach.robots import approval, commission, fci
    from robocoach.robots.franka import client_version
    from robocoach.robots.rig import open_rig

    config = load.load(parsed.values, names=parsed.names)
    deploy, arm = config.deploy, config.deploy.robot != "twin"
    if arm and not (deploy.host and deploy.serial):
        raise UserError(f"--robot {deploy.robot} needs --host IP and --serial, the number on the arm's base")
    if arm and extras["yes"]:
        raise UserError("--yes is for the twin: at an arm, somebody watches and agrees to each motion")
    if arm:
        approval.path(deploy.serial)
    agree = (lambda what: True) if extras["yes"] else _ask
    passed = _show(commission.before_connecting(deploy))
    version = fci.probe(deploy.host) if arm else fci.SERVER_VERSION["fr3"]
    with open_rig(deploy, config.task, config.camera, commissioning=True) as rig:
        passed += _show(commission.at_rest(rig, config.safety))
        if extras["hand_eye"]:
            passed += _show([_hand_eye(rig)])
        if all(check.passed for check in passed):
            passed += _show(commission.in_motion(rig, config.safety, agree))
    failed = [check.name for check in passed if not check.passed]
    if failed:
        raise UserError(f"not commissioned: {', '.join(failed)}; mend it and run the same command again")
    if not arm:
        print("all checks have passed; the twin needs no approval")
        return 0
    file = approval.save(
        approval.Approval(
            serial=deploy.serial,
            robot=deploy.robot,
            host=deploy.host,
            server_version=version,
            client=client_version(),
            operator=extras["operator"] or "",
            passed_at=datetime.now().astimezone().isoformat(timespec="seconds"),
            checks=tuple(passed),
        )
    )
    print(f"arm {deploy.serial} may move: {file}")
    return 0


def _show(checks: Iterable[Check]) -> list[Check]:
    shown = []
    for check in checks:
        print(f"{'ok  ' if check.passed else 'FAIL'} {check.name:<17} {check.seen}", flush=True)
        if not check.passed and check.mend:
            print(f"     {'':<17} {check.mend}", flush=True)
        shown.append(check)
    return shown


def _ask(what: str) -> bool:
    if not sys.stdin.isatty():
        raise UserError(f"{what}: this needs somebody at a terminal to agree")
    return input(f"     {what}. Type move and press Enter: ").strip().lower() == "move"


def _print_board(path: Path) -> int:
    from robocoach.robots import handeye

    handeye.print_board(path)
    width, height = handeye.COLUMNS * handeye.SQUARE_M * 1000, handeye.ROWS * handeye.SQUARE_M * 1000
    print(f"{path}: print it at 100 %; the squares together measure {width:.0f} x {height:.0f} mm, check with a ruler")
    return 0


def _hand_eye(rig: Rig) -> Check:
    """The guided measurement: space takes a view, Enter solves."""
    import time

    from robocoach.robots import handeye
    from robocoach.robots.approval import Check
    from robocoach.robots.keys import Keys

    matrix = _camera_matrix(rig)
    views: list[handeye.View] = []
    print(
        "     board flat on the table; guide the arm so that the camera sees it, from all sides and tilted by 20 to 40"
    )
    print("     degrees; space takes a view, Enter ends (a dozen views are good)")
    with Keys() as keys:
        if not keys.available:
            raise UserError("--hand-eye needs a terminal: space takes a view, Enter ends")
        while True:
            key = keys.poll()
            if key == "enter":
                break
            if key == "space":
                frame = rig.camera.newer_than(time.monotonic(), 1.0)
                seen = handeye.find_board(frame.image, matrix) if frame is not None else None
                if seen is None:
                    print("     the board is not seen here")
                else:
                    views.append(handeye.View(_hand(rig.arm.state().values[:7]), seen))
                    print(f"     view {len(views)}")
            time.sleep(0.02)
    solved = handeye.solve(views)
    mount = handeye.compare(solved)
    return Check(
        name="camera mount",
        passed=mount.away_m <= MOUNT_M and mount.turned_deg <= MOUNT_DEG and solved.board_spread_m < 0.005,
        seen=f"{1000 * mount.away_m:.1f} mm and {mount.turned_deg:.1f} deg from the mount the data was made with, from "
        f"{solved.views} views that agree within {1000 * solved.board_spread_m:.1f} mm",
        mend="move the mount, or record data with this one; views that disagree by more than 5 mm: take them again",
    )


def _hand(q: Any) -> Any:
    import numpy as np

    from robocoach.sim.kinematics import Arm

    pose = np.eye(4)
    pose[:3, 3], pose[:3, :3] = Arm().hand_pose(q)
    return pose


def _camera_matrix(rig: Rig) -> Any:
    """(3, 3) of the 224×224 image: measured where the camera knows it, else from the contract's field of view."""
    import numpy as np

    from robocoach.datasets.contract import IMAGE_SIZE

    info = getattr(rig.camera, "info", None)
    if info is not None:
        k = info().intrinsics
        return np.array([[k.fx, 0, k.ppx], [0, k.fy, k.ppy], [0, 0, 1.0]])
    half = IMAGE_SIZE / 2
    focal = half / np.tan(np.deg2rad(rig.contract.provenance.fov_deg or 42.5) / 2)
    return np.array([[focal, 0, half - 0.5], [0, focal, half - 0.5], [0, 0, 1.0]])
