"""What this machine has and lacks: disk, OpenGL, ffmpeg, memory, cores, GPU, camera, FCI host, versions.

Each check answers with a `Finding`: fine or not, what was seen, and the mend. `pipeline doctor` prints them all; the
first stage of a run asks for those that it needs.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robocoach.configs.errors import UserError

APT = "sudo apt-get update && sudo apt-get install -y libegl1 libgl1 libgles2 libosmesa6 libglib2.0-0 ffmpeg"
GL_VARIABLES = ("MUJOCO_GL", "PYOPENGL_PLATFORM", "__EGL_VENDOR_LIBRARY_FILENAMES")
FCI_PORT = 1337
PACKAGES = (
    "robocoach",
    "torch",
    "lerobot",
    "genesis-world",
    "mujoco",
    "franky-control",
    "franky-sim",
    "pyrealsense2",
    "accelerate",
    "wandb",
)

# Draws one red pixel off screen, as both simulators do, in a process that a bad driver may kill.
GL_PROBE = """
import os
os.environ.setdefault("MUJOCO_GL", "egl")
import mujoco
xml = '<mujoco><worldbody><light pos="0 0 3"/><geom type="box" size="1 1 1" rgba="1 0 0 1"/></worldbody></mujoco>'
model = mujoco.MjModel.from_xml_string(xml)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    image = renderer.render()
assert image[16, 16, 0] > image[16, 16, 2] + 20, "the picture is wrong"
from OpenGL import GL
"""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor."""

    name: str
    fine: bool
    seen: str
    mend: str = ""
    needed: bool = True
    """False for what only some jobs need, such as a camera."""


def python() -> Finding:
    """The interpreter."""
    fine = (3, 12) <= sys.version_info[:2] <= (3, 13)
    return Finding("Python", fine, platform.python_version(), "install Python 3.12 and run ./pipeline again")


def processor() -> Finding:
    """Cores, and whether bf16 arithmetic is fast."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = next((line.split(":", 1)[1].strip() for line in flags.splitlines() if line.startswith("model name")), "?")
    bf16 = "avx512_bf16" in flags or "amx_bf16" in flags
    seen = f"{len(os.sched_getaffinity(0))} cores, {name}, bf16 {'in hardware' if bf16 else 'not in hardware (fp32)'}"
    return Finding("CPU", True, seen)


def memory() -> Finding:
    """RAM that is free now."""
    import psutil

    free, total = psutil.virtual_memory().available / 2**30, psutil.virtual_memory().total / 2**30
    return Finding(
        "memory",
        free > 6,
        f"{free:.0f} of {total:.0f} GiB free",
        "free 6 GiB: two simulators and the training need that much",
    )


def gpu() -> Finding:
    """An NVIDIA GPU, as its driver shows it."""
    program = shutil.which("nvidia-smi")
    query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    if program:
        done = subprocess.run([program, *query], capture_output=True, text=True, timeout=20, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return Finding("GPU", True, "; ".join(done.stdout.strip().splitlines()), needed=False)
    return Finding("GPU", False, "none", "not needed: --profile cpu does the whole job", needed=False)


def gl(timeout_s: float = 60.0) -> Finding:
    """Off-screen OpenGL, tried in a process of its own because a bad driver kills the process that asks."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", GL_PROBE], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding("OpenGL", False, f"no answer in {timeout_s:.0f} s", APT)
    if done.returncode == 0:
        return Finding("OpenGL", True, "renders off screen (EGL)")
    lines = [line for line in done.stderr.strip().splitlines() if line.strip() and not line.startswith("Exception ign")]
    errors = [line for line in lines if "Error" in line or "error" in line]
    why = (errors or lines or [f"the probe died with {done.returncode}"])[-1].strip()[:160]
    chosen = [f"{name}={os.environ[name]}" for name in GL_VARIABLES if name in os.environ]
    mend = f"unset {' and '.join(chosen)}; or {APT}" if chosen else APT
    return Finding("OpenGL", False, f"does not render off screen ({why})", mend)


def ffmpeg() -> Finding:
    """The ffmpeg libraries that LeRobot's video decoder loads."""
    found = shutil.which("ffmpeg")
    return Finding("ffmpeg", bool(found), found or "missing", APT)


def disk(folder: Path, need_gb: float, usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage) -> Finding:
    """Free space where a run would be written."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free_gb = usage(place)[2] / 1e9
    seen = f"{free_gb:.1f} GB free at {place}, {need_gb:.1f} GB needed"
    return Finding("disk", free_gb >= need_gb, seen, "make room, or name another disk with --out")


def camera() -> Finding:
    """RealSense cameras on USB."""
    mend = "plug a D435 into USB 3; not needed for simulation or the twin"
    try:
        rs: Any = importlib.import_module("pyrealsense2")
        found = [
            f"{device.get_info(rs.camera_info.name)} {device.get_info(rs.camera_info.serial_number)}"
            for device in rs.context().query_devices()
        ]
    except Exception as error:
        return Finding("camera", False, f"pyrealsense2 cannot look ({error})", mend, needed=False)
    return Finding("camera", bool(found), "; ".join(found) or "no RealSense", mend, needed=False)


def fci(host: str, timeout_s: float = 2.0) -> Finding:
    """Whether something answers on the FCI port of an arm."""
    mend = "activate FCI in Desk, unlock the brakes, and connect to the control box's own network port"
    if not host:
        return Finding("FCI host", False, "none given", "name it: pipeline doctor --host IP", needed=False)
    try:
        with socket.create_connection((host, FCI_PORT), timeout_s):
            return Finding("FCI host", True, f"{host}:{FCI_PORT} answers")
    except OSError as error:
        return Finding("FCI host", False, f"{host}:{FCI_PORT}: {error}", mend)


def versions() -> dict[str, str]:
    """Installed versions of what a result depends on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "missing"
    return found


def packages() -> Finding:
    """That everything the lock names is there, with the one OpenCV that both simulator and LeRobot can live with."""
    lacking = [name for name, version in versions().items() if version == "missing"]
    seen = f"missing: {', '.join(lacking)}" if lacking else ", ".join(f"{n} {v}" for n, v in versions().items())
    return Finding("packages", not lacking, seen, "run ./pipeline again, it installs requirements.lock")


def require(finding: Finding) -> Finding:
    """Raises UserError, with the mend, when a check is not fine."""
    if not finding.fine:
        raise UserError(f"{finding.name}: {finding.seen}; {finding.mend}")
    return finding
