"""The tasks' scene in MuJoCo: the objects, table, light and wrist camera that the twin adds to franky-sim's FR3.

The world frame is the robot's base frame with the table top at z = 0, as in Genesis. The picture follows Genesis'
rasterizer: MuJoCo shades in linear light with the colours converted as Genesis' shader does, and the finished image
gets the same gamma. Choose the OpenGL backend (`choose_gl`) before anything imports MuJoCo, which reads it once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from robocoach.configs.errors import UserError
from robocoach.datasets.contract import IMAGE_SIZE, GripperRule
from robocoach.sim import camera
from robocoach.sim.robot_model import ARM_JOINTS, FINGER_JOINTS
from robocoach.sim.state import SimState

if TYPE_CHECKING:
    import mujoco

    from robocoach.sim.task import Scene, Task

PREFIX = "robot0_"
"""franky-sim's prefix of the first arm's names."""
WRIST = "wrist"
TABLE, LIGHT = "table", "main_light"
BACKGROUND = (0.55, 0.6, 0.65)
GAMMA = 2.2
DIFFUSE = 1.0
TABLE_SHEEN, BOX_SHEEN, ROBOT_SHEEN = 0.043, 0.015, 0.005
"""Main light on a matte surface, and the faint mirror part of Genesis' rough surfaces as an addition to their colour.
Fitted to Genesis frames with random colours and lights; in 20 of them the mean difference is 2 of 255 on the table,
7 on the cubes, 4 on the hand, most of it at edges."""
GL_BACKENDS = ("egl", "osmesa")


def build(task: Task, start_q: np.ndarray | None = None) -> Any:
    """franky-sim's `MujocoSimulator` with one FR3 and the task's scene; not yet started.

    Its own checkered floor and three lights are replaced, so that the picture has the colours of the `Scene`.
    """
    from franky_sim.mujoco_simulator import MujocoSimulator

    from robocoach.sim.robot_model import HOME_Q

    simulator = MujocoSimulator()
    simulator.add_robot(
        initial_q=tuple(float(q) for q in (HOME_Q if start_q is None else start_q)),
        initial_hand_width=GripperRule().open_width_m,
    )
    _dress(simulator.scene, simulator.worldbody, task)
    return simulator


def _dress(scene: ET.Element, world: ET.Element, task: Task) -> None:
    for element in [*world.findall("light"), *world.findall("geom")]:
        world.remove(element)
    ET.SubElement(world, "geom", name=TABLE, type="plane", size="3 3 0.1", rgba="0.6 0.6 0.6 1")
    ET.SubElement(world, "light", name=LIGHT, directional="true", pos="0.45 0 2", dir="0 0 -1", castshadow="false")
    for box in task.boxes:
        body = ET.SubElement(world, "body", name=box.name, pos="0.5 0 0.1")
        ET.SubElement(body, "freejoint", name=f"{box.name}_free")
        half = " ".join(str(edge / 2) for edge in box.size_m)
        ET.SubElement(body, "geom", name=box.name, type="box", size=half, mass=str(box.mass_kg), condim="4")
    hand = next(body for body in world.iter("body") if body.get("name") == f"{PREFIX}hand")
    ET.SubElement(hand, "camera", name=WRIST, fovy=str(camera.FOV_DEG))
    ET.SubElement(scene, "statistic", extent="1.0", center="0.45 0 0.1")
    visual = scene.find("visual")
    assert visual is not None
    for child in list(visual):
        visual.remove(child)
    ET.SubElement(visual, "headlight", ambient="0.3 0.3 0.3", diffuse="0 0 0", specular="0 0 0")
    # No shadows: Genesis' rasterizer shows none here, and they take four fifths of a software-rendered frame.
    ET.SubElement(visual, "quality", offsamples="4")
    ET.SubElement(visual, "map", znear="0.01", zfar="10")
    asset = scene.find("asset")
    assert asset is not None
    sky = " ".join(str(c**GAMMA) for c in BACKGROUND)
    for material in asset.findall("material"):
        rgba = np.array([float(part) for part in (material.get("rgba") or "1 1 1 1").split()])
        material.set("rgba", " ".join(str(part) for part in (*(_to_linear(rgba[:3]) + ROBOT_SHEEN), rgba[3])))
    ET.SubElement(asset, "texture", type="skybox", builtin="flat", rgb1=sky, rgb2=sky, width="8", height="48")


@dataclass(frozen=True)
class Layout:
    """Where things are in MuJoCo's `qpos` and `qvel`; picklable, so a process without the model can read a state."""

    arm: tuple[int, ...]
    fingers: tuple[int, ...]
    objects: dict[str, tuple[int, int]]
    """Name → addresses of its free joint in qpos and in qvel."""

    @classmethod
    def of(cls, model: mujoco.MjModel, task: Task) -> Layout:
        """Reads the addresses from a compiled model."""
        free = {box.name: model.joint(f"{box.name}_free") for box in task.boxes}
        return cls(
            arm=tuple(int(model.joint(PREFIX + name).qposadr[0]) for name in ARM_JOINTS),
            fingers=tuple(int(model.joint(PREFIX + name).qposadr[0]) for name in FINGER_JOINTS),
            objects={name: (int(joint.qposadr[0]), int(joint.dofadr[0])) for name, joint in free.items()},
        )

    def state(self, qpos: np.ndarray, qvel: np.ndarray) -> SimState:
        """Ground truth from `qpos` and `qvel`."""
        return SimState(
            q=np.array(qpos[list(self.arm)]),
            gripper_width=float(qpos[list(self.fingers)].sum()),
            objects={name: np.array(qpos[at : at + 7]) for name, (at, _) in self.objects.items()},
            speeds={name: float(np.linalg.norm(qvel[at : at + 3])) for name, (_, at) in self.objects.items()},
        )


def place_objects(model: mujoco.MjModel, data: mujoco.MjData, scene: Scene) -> None:
    """Puts the objects where the scene says, at rest, with its friction. The arm stays as it is."""
    for name, pose in scene.objects.items():
        joint = model.joint(f"{name}_free")
        at, dof = int(joint.qposadr[0]), int(joint.dofadr[0])
        data.qpos[at : at + 7] = pose
        data.qvel[dof : dof + 6] = 0.0
        data.qacc_warmstart[dof : dof + 6] = 0.0
        model.geom(name).friction[0] = scene.friction


def paint(model: mujoco.MjModel, scene: Scene) -> None:
    """Colours, light and the wrist camera's mounting error of a scene, to be shown by `WristRenderer`."""
    import mujoco

    for name, colour in scene.colours.items():
        model.geom(name).rgba[:3] = _to_linear(np.array(colour)) + BOX_SHEEN
    model.geom(TABLE).rgba[:3] = _to_linear(np.array(scene.table_colour)) + TABLE_SHEEN
    light = model.light(LIGHT).id
    direction = np.asarray(scene.light_direction) / np.linalg.norm(scene.light_direction)
    model.light_dir[light] = direction
    model.light_diffuse[light] = DIFFUSE * scene.light_strength
    model.light_ambient[light] = 0.0
    model.light_specular[light] = 0.0
    model.vis.headlight.ambient[:] = scene.ambient
    pose = camera.pose_in_hand(scene.camera_shift_m, scene.camera_turn_rad)
    wrist = model.camera(WRIST).id
    model.cam_pos[wrist] = pose[:3, 3]
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(pose[:3, :3]).reshape(9))
    model.cam_quat[wrist] = quaternion


def _to_linear(colour: np.ndarray) -> np.ndarray:
    """sRGB → linear light, as Genesis' shader reads every colour."""
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def set_arm(model: mujoco.MjModel, data: mujoco.MjData, q: np.ndarray, width_m: float) -> None:
    """Puts the arm (7,) [rad] and the fingers where they are told, at rest."""
    joints = [*(model.joint(PREFIX + name) for name in (*ARM_JOINTS, *FINGER_JOINTS))]
    for joint, value in zip(joints, [*q, width_m / 2, width_m / 2], strict=True):
        data.qpos[joint.qposadr[0]] = value
        data.qvel[joint.dofadr[0]] = 0.0


def apply(model: mujoco.MjModel, data: mujoco.MjData, scene: Scene) -> None:
    """The whole scene: objects, friction, colours, light, camera and the arm at its start, the hand open."""
    import mujoco

    place_objects(model, data, scene)
    paint(model, scene)
    set_arm(model, data, scene.start_q, GripperRule().open_width_m)
    mujoco.mj_forward(model, data)


_GAMMA_TABLE = np.round(255 * (np.arange(256) / 255) ** (1 / GAMMA)).astype(np.uint8)


_HIDDEN = 5


class WristRenderer:
    """Renders the wrist camera of a model; one OpenGL context, to be used from one thread."""

    def __init__(self, model: mujoco.MjModel) -> None:
        import mujoco

        self._renderer = mujoco.Renderer(model, IMAGE_SIZE, IMAGE_SIZE)
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = 0
        self._option.geomgroup[[0, 2]] = 1
        # The camera never sees the links above the hand, and they are half of a frame's work.
        above_hand = [model.body(f"{PREFIX}fr3_link{i}").id for i in range(1, 8)]
        model.geom_group[np.isin(model.geom_bodyid, above_hand)] = _HIDDEN
        self._option.sitegroup[:] = 0

    def render(self, data: mujoco.MjData) -> np.ndarray:
        """uint8 RGB (224, 224, 3) of the state in `data`, whose kinematics are up to date."""
        self._renderer.update_scene(data, WRIST, self._option)
        return _GAMMA_TABLE[self._renderer.render()]

    def close(self) -> None:
        """Frees the OpenGL context."""
        self._renderer.close()


def render_starts(task_name: str, scenes: Sequence[Scene]) -> np.ndarray:
    """What the wrist camera sees at the start of scenes, uint8 RGB (N, 224, 224, 3).

    For a process of its own, that has not imported MuJoCo: OpenGL belongs to one process.
    """
    choose_gl()
    from robocoach.sim.tasks import get_task

    with build(get_task(task_name)) as simulator:
        simulator.start()
        renderer = WristRenderer(simulator.model)
        shown = []
        for scene in scenes:
            apply(simulator.model, simulator.data, scene)
            shown.append(renderer.render(simulator.data).copy())
        renderer.close()
    return np.stack(shown)


@cache
def choose_gl() -> str:
    """The OpenGL backend that renders here, `egl` or `osmesa`; sets MUJOCO_GL, which MuJoCo reads at its import.

    Each is tried in a process of its own, since a bad driver can take the whole process down. Raises UserError.
    """
    if os.environ.get("MUJOCO_GL"):
        return os.environ["MUJOCO_GL"]
    if "mujoco" in sys.modules:
        raise RuntimeError("choose_gl() comes before anything imports MuJoCo, which reads MUJOCO_GL at its import")
    code = "import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco/>'); r = mujoco.Renderer(m, 8, 8)\n"
    code += "d = mujoco.MjData(m); mujoco.mj_forward(m, d); r.update_scene(d); r.render()"
    for backend in GL_BACKENDS:
        environment = {**os.environ, "MUJOCO_GL": backend}
        tried = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
        if tried.returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            return backend
    raise UserError("MuJoCo cannot render here: neither EGL nor OSMesa works; install libegl1 libgl1 libosmesa6")
