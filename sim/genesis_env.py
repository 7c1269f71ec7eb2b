"""The Genesis environment: one built scene a process, reset for every episode, rendered only when a frame is asked for.

Importing this module does not import Genesis; building the environment does (15–40 s), and its first build on a
machine compiles kernels for about two minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robocoach.datasets.contract import IMAGE_SIZE, Contract, GripperRule
from robocoach.sim import camera, provenance
from robocoach.sim.robot_model import ARM_JOINTS, FINGER_JOINTS, KP, KV, fr3_mjcf
from robocoach.sim.state import TICK_S, SimState

if TYPE_CHECKING:
    from robocoach.sim.task import Scene, Task

STEP_S = 0.01
SUBSTEPS = 2
STEPS_PER_TICK = round(TICK_S / STEP_S)
SIDE_SIZE = (320, 240)
_FINGER_KV = 400.0
"""Closing: 0.05 m/s a finger times this is the grasp force, 20 N, as the gripper rule says."""
_FINGER_KP, _FINGER_OPENING_KV = 1000.0, 50.0


class GenesisEnvironment:
    """One arm, one table, the task's objects, a wrist and a side camera.

    The arm follows each commanded joint position by linear interpolation over the tick with velocity feed-forward,
    as a Franka follows its trajectory; the hand obeys the contract's gripper rule.
    """

    def __init__(self, task: Task) -> None:
        import genesis as gs

        if not getattr(gs, "_initialized", False):
            gs.init(backend=gs.cpu, precision="32", logging_level="error", seed=0)
        self.task_name = task.name
        self._rule = GripperRule()
        self._scene = gs.Scene(
            sim_options=gs.options.SimOptions(dt=STEP_S, substeps=SUBSTEPS),
            rigid_options=gs.options.RigidOptions(enable_self_collision=False),
            vis_options=gs.options.VisOptions(
                shadow=True,
                ambient_light=(0.35, 0.35, 0.35),
                background_color=(0.55, 0.6, 0.65),
                lights=[gs.options.vis.DirectionalLight(dir=(-0.3, 0.2, -1.0), color=(1.0, 1.0, 1.0), intensity=4.5)],
            ),
            renderer=gs.renderers.Rasterizer(),
            show_viewer=False,
        )
        self._table = self._scene.add_entity(gs.morphs.Plane(), surface=gs.surfaces.Rough(color=(1.0, 1.0, 1.0)))
        self._arm: Any = self._scene.add_entity(
            gs.morphs.MJCF(file=str(fr3_mjcf()), pos=(0, 0, 0)), material=gs.materials.Rigid(gravity_compensation=1.0)
        )
        self._objects: dict[str, Any] = {
            box.name: self._scene.add_entity(
                gs.morphs.Box(size=box.size_m, pos=(0.5, 0.3 * i - 0.15, box.size_m[2] / 2)),
                material=gs.materials.Rigid(rho=box.mass_kg / float(np.prod(box.size_m)), friction=1.0),
                surface=gs.surfaces.Rough(color=(1.0, 1.0, 1.0)),
            )
            for i, box in enumerate(task.boxes)
        }
        self._wrist = self._scene.add_camera(
            res=(IMAGE_SIZE, IMAGE_SIZE), fov=camera.FOV_DEG, near=0.01, far=10.0, GUI=False
        )
        self._side = self._scene.add_camera(
            res=SIDE_SIZE, pos=(1.05, 0.55, 0.5), lookat=(0.42, 0.0, 0.08), fov=40, near=0.05, far=10.0, GUI=False
        )
        self._scene.build()
        self._arm_dofs = [self._arm.get_joint(name).dofs_idx_local[0] for name in ARM_JOINTS]
        self._finger_dofs = [self._arm.get_joint(name).dofs_idx_local[0] for name in FINGER_JOINTS]
        self._arm.set_dofs_kp(np.array(KP), self._arm_dofs)
        self._arm.set_dofs_kv(np.array(KV), self._arm_dofs)
        self._arm.set_dofs_kp(np.array([_FINGER_KP, _FINGER_KP]), self._finger_dofs)
        self._hand = self._arm.get_link("hand")
        self._command = np.zeros(7)
        self._closed = False
        self._finger_target = 0.0

    def reset(self, scene: Scene) -> SimState:
        """Puts the arm and the objects where the scene says, with its colours, light, camera error and friction."""
        self._scene.reset()
        q = np.asarray(scene.start_q, dtype=float)
        half = self._rule.open_width_m / 2
        self._arm.set_dofs_position(np.concatenate([q, [half, half]]), self._arm_dofs + self._finger_dofs)
        self._arm.zero_all_dofs_velocity()
        for name, entity in self._objects.items():
            pose = scene.objects[name]
            entity.set_pos(pose[:3])
            entity.set_quat(pose[3:])
            entity.zero_all_dofs_velocity()
            entity.set_friction(scene.friction)
        self._wrist.attach(self._hand, camera.pose_in_hand(scene.camera_shift_m, scene.camera_turn_rad))
        self._paint(scene)
        self._command = q.copy()
        self._closed = False
        self._finger_target = half
        self._arm.set_dofs_kv(np.array([_FINGER_OPENING_KV, _FINGER_OPENING_KV]), self._finger_dofs)
        self._arm.control_dofs_position(np.full(2, half), self._finger_dofs)
        return self.step(np.append(q, self._rule.open_width_m))

    def step(self, action: np.ndarray) -> SimState:
        """Runs one 0.1 s tick towards an action (8,): absolute joints [rad], opening width [m]."""
        target = np.asarray(action[:7], dtype=float)
        velocity = (target - self._command) / TICK_S
        self._decide_gripper(float(action[7]))
        for index in range(1, STEPS_PER_TICK + 1):
            wanted = self._command + velocity * (index * STEP_S)
            self._arm.control_dofs_position_velocity(wanted, velocity, self._arm_dofs)
            if not self._closed:
                self._open_fingers()
            self._scene.step()
        self._command = target
        return self.state()

    def _decide_gripper(self, width_m: float) -> None:
        """Turns the commanded width into close or open, and sets the fingers' gains when that changes."""
        closed = self._rule.wants_closed(width_m, self._closed)
        if closed == self._closed:
            return
        self._closed = closed
        kv = _FINGER_KV if closed else _FINGER_OPENING_KV
        self._arm.set_dofs_kv(np.array([kv, kv]), self._finger_dofs)
        self._finger_target = self.gripper_width() / 2
        if closed:  # speed-limited until something stops the fingers, then a force of kv × speed
            speed = self._rule.speed_m_s / 2
            self._arm.control_dofs_velocity(np.array([-speed, -speed]), self._finger_dofs)

    def _open_fingers(self) -> None:
        """One step of opening at the rule's speed, or of holding the hand open."""
        half, step = self._rule.open_width_m / 2, self._rule.speed_m_s / 2 * STEP_S
        if self._finger_target < half:
            self._finger_target = min(half, self._finger_target + step)
            self._arm.control_dofs_position(np.full(2, self._finger_target), self._finger_dofs)

    def gripper_width(self) -> float:
        """Opening between the fingers [m]."""
        return float(_array(self._arm.get_dofs_position(self._finger_dofs)).sum())

    def state(self) -> SimState:
        """Ground truth now."""
        return SimState(
            q=_array(self._arm.get_dofs_position(self._arm_dofs)),
            gripper_width=self.gripper_width(),
            objects={
                name: np.concatenate([_array(entity.get_pos()), _array(entity.get_quat())])
                for name, entity in self._objects.items()
            },
            speeds={name: float(np.linalg.norm(_array(entity.get_vel()))) for name, entity in self._objects.items()},
        )

    def wrist(self) -> np.ndarray:
        """The wrist camera's frame now, uint8 RGB (224, 224, 3)."""
        self._wrist.move_to_attach()
        return np.ascontiguousarray(self._wrist.render(rgb=True)[0][..., :3])

    def side(self) -> np.ndarray:
        """A fixed view for people, uint8 RGB (240, 320, 3); no policy sees it."""
        return np.ascontiguousarray(self._side.render(rgb=True)[0][..., :3])

    def _paint(self, scene: Scene) -> None:
        """Colours and lights of the built scene. Genesis has no public call for it, so its rasterizer is edited."""
        context = self._scene.visualizer._context
        for entity, colour in (
            *((self._objects[name], colour) for name, colour in scene.colours.items()),
            (self._table, scene.table_colour),
        ):
            for geom in entity.vgeoms:
                for primitive in context.rigid_nodes[geom.uid].mesh.primitives:
                    primitive.material.baseColorFactor = np.array([*colour, 1.0])
        context._scene._meshes_updated = True  # the renderer keeps a copy of the materials: have it read them again
        context._scene.ambient_light = np.full(3, scene.ambient)
        for node in context._scene.directional_light_nodes:
            node.light.intensity = 4.5 * scene.light_strength
            pose = np.eye(4)
            backward = -np.asarray(scene.light_direction) / np.linalg.norm(scene.light_direction)
            right = np.cross([0.0, 1.0, 0.0], backward)
            right /= np.linalg.norm(right)
            pose[:3, :3] = np.stack([right, np.cross(backward, right), backward], axis=1)
            context._scene.set_pose(node, pose)


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.cpu() if hasattr(tensor, "cpu") else tensor, dtype=float).reshape(-1)


def contract() -> Contract:
    """The data contract of what this environment records."""
    from importlib.metadata import version

    return provenance.contract("sim:genesis", f"genesis-world {version('genesis-world')}")
