"""`pipeline camera`: the live wrist picture beside what a dataset looked like, and whether the mount has moved."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robocoach.configs.errors import UserError
from robocoach.pipelines.options import Extra, parse, parser

if TYPE_CHECKING:
    from robocoach.configs.models import Sim2RealConfig
    from robocoach.robots.camera import Camera, CameraInfo

ABOUT = """The live wrist picture as the policy sees it, on a page of this machine and as a line a second; with --data
beside what the data looked like: light, colours, field of view, and whether the mount has moved."""
SECTIONS = ("task", "seed", "deploy.robot", "camera")
EXTRAS = [
    Extra("--data", "dataset or recording to compare with (its start frames, hand open)", "DIR"),
    Extra("--checkpoint", "checkpoint whose contract the camera is held against (default: that of --data)", "DIR"),
    Extra("--replay", "look at recorded pictures instead: an mp4, a dataset or a recording", "PATH"),
    Extra("--episode", "which episode of --replay (default 0)", "N"),
    Extra("--port", "port of the page on 127.0.0.1; 0 takes a free one (default 8765)", "PORT"),
    Extra("--seconds", "end after so long (default: until Ctrl-C)", "S"),
    Extra("--out", "folder for camera.png and camera.json at the end", "DIR"),
]
FIRST_FRAME_S = 5.0


def main(arguments: Sequence[str]) -> int:
    """Shows the camera until it is told to end; writes what it saw."""
    parsed = parse(*parser("camera", ABOUT, SECTIONS, EXTRAS, bare=True), arguments)
    port = _number(parsed.extras, "port", 8765, whole=True)
    seconds = _number(parsed.extras, "seconds", float("inf"))
    episode = int(_number(parsed.extras, "episode", 0, whole=True))
    out = Path(parsed.extras["out"]) if parsed.extras["out"] else None
    if out is not None and out.is_file():
        raise UserError(f"--out {out} is a file; name a folder")
    from robocoach.configs import load
    from robocoach.datasets.contract import Contract
    from robocoach.pipelines.camera_server import serving
    from robocoach.robots import camera_compare, camera_sheet, camera_view
    from robocoach.robots.camera_recorded import contract_of

    config = load.load(parsed.values, names=parsed.names)
    reference = contract = None
    if parsed.extras["data"]:
        print("learning what the data looks like (once a dataset) …", flush=True)
        reference = camera_compare.load(Path(parsed.extras["data"]))
        contract = contract_of(Path(parsed.extras["data"]))
    if parsed.extras["checkpoint"]:
        contract = Contract.load(Path(parsed.extras["checkpoint"]))
    replay = Path(parsed.extras["replay"]) if parsed.extras["replay"] else None
    with _camera(config, replay, episode) as camera:
        if camera.newer_than(0.0, FIRST_FRAME_S) is None:
            raise UserError(f"the camera has sent no frame in {FIRST_FRAME_S:.0f} s; see `pipeline doctor`")
        fields = camera_view.fields(_info(camera), contract)
        watch = camera_view.Watch(camera, reference)

        def pictures() -> dict[str, Any]:
            look = watch.now()
            return camera_view.views(look.image, reference, look.beside) if look.image is not None else {}

        def state() -> dict[str, Any]:
            return {
                **camera_view.as_json(watch.now(), _info(camera), reference),
                "views": camera_view.VIEWS if reference is not None else camera_view.VIEWS[:1],
                "contract": [asdict(field) for field in fields],
                "data": parsed.extras["data"],
            }

        try:
            with serving(int(port), pictures, state) as address:
                print(
                    f"{address}   (Ctrl-C ends; over ssh add -L {_port(address)}:127.0.0.1:{_port(address)})",
                    flush=True,
                )
                notes = _info(camera).notes
                for line in [*(field.words for field in fields if not field.alike), *notes]:
                    print(f"  {line}", flush=True)
                _follow(watch, seconds)
        finally:
            look = watch.now()
            watch.close()
        if out is not None and look.image is not None:
            of = _info(camera)
            about = ", ".join(
                part for part in (of.camera, of.serial, of.mode, of.exposure, look.words().split(";")[0]) if part
            )
            _write(out, camera_sheet.sheet(look, reference, fields, about), state())
            print(f"{out / 'camera.png'} and {out / 'camera.json'}")
    return 0


def _port(address: str) -> str:
    return address.rstrip("/").rsplit(":", 1)[1]


def _follow(watch: Any, seconds: float) -> None:
    """A line a second until the time is over or Ctrl-C."""
    end = time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt):
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(1.0, left))
            print(watch.now().words(), flush=True)


@contextlib.contextmanager
def _camera(config: Sim2RealConfig, replay: Path | None, episode: int) -> Generator[Camera]:
    if replay is not None:
        from robocoach.robots.camera_replay import open_replay

        with contextlib.closing(open_replay(replay, episode)) as camera:
            yield camera
    elif config.deploy.robot == "twin":
        from robocoach.datasets import splits
        from robocoach.robots.twin import Twin
        from robocoach.sim.tasks import get_task

        with Twin(config.task) as twin:
            twin.place(get_task(config.task).sample_scene(splits.seeds("development", config.seed, 1)[0]))
            twin.camera.newer_than(time.monotonic(), FIRST_FRAME_S)
            yield twin.camera
    else:
        from robocoach.robots.realsense import open_realsense

        with contextlib.closing(open_realsense(config.camera)) as camera:
            yield camera


def _info(camera: Any) -> CameraInfo:
    """What the camera says of itself; the twin's says what the simulated one is."""
    if hasattr(camera, "info"):
        return camera.info()
    from robocoach.robots.camera import CameraInfo
    from robocoach.sim import provenance

    of = provenance.contract("twin", None).provenance
    return CameraInfo(camera=of.camera, crop=of.crop, fov_deg=of.fov_deg, mode="rendered")


def _number(extras: dict[str, Any], name: str, default: float, *, whole: bool = False) -> float:
    text = extras[name]
    if text is None:
        return default
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or (name == "port" and value > 65_535):
        raise UserError(f"--{name} {text}: expected {'a whole number' if whole else 'a number'}, 0 or more")
    return value


def _write(out: Path, sheet: Any, found: dict[str, Any]) -> None:
    from PIL import Image

    from robocoach.configs.files import write_atomically

    out.mkdir(parents=True, exist_ok=True)
    Image.fromarray(sheet).save(out / "camera.png")
    write_atomically(out / "camera.json", json.dumps(found, indent=1) + "\n")
