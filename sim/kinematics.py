"""Forward and inverse kinematics of the FR3 with its hand, on MuJoCo's kinematics (no dynamics, no rendering)."""

from __future__ import annotations

import mujoco
import numpy as np

from robocoach.sim.robot_model import ARM_JOINTS, HAND_TO_TCP_M, HOME_Q, fr3_mjcf

DOWN = np.diag([1.0, -1.0, -1.0])
"""Orientation of a hand that points straight down, in the world frame; its x axis is the world's."""


class Arm:
    """Kinematics of one arm; positions of the TCP (between the fingertips) in the world frame."""

    def __init__(self) -> None:
        self._model = mujoco.MjModel.from_xml_path(str(fr3_mjcf()))
        self._data = mujoco.MjData(self._model)
        joints = [self._model.joint(name) for name in ARM_JOINTS]
        self._qpos = np.array([joint.qposadr[0] for joint in joints])
        self._dofs = np.array([joint.dofadr[0] for joint in joints])
        self._hand = self._model.body("hand").id
        self.q_min = np.array([joint.range[0] for joint in joints])
        self.q_max = np.array([joint.range[1] for joint in joints])

    def hand_pose(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Position (3,) [m] and rotation (3, 3) of the hand frame (the flange side of the fingers)."""
        self._data.qpos[self._qpos] = q
        mujoco.mj_kinematics(self._model, self._data)
        return self._data.xpos[self._hand].copy(), self._data.xmat[self._hand].reshape(3, 3).copy()

    def tcp_pose(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Position (3,) [m] and rotation (3, 3) of the TCP."""
        position, rotation = self.hand_pose(q)
        return position + HAND_TO_TCP_M * rotation[:, 2], rotation

    def solve(self, position: np.ndarray, rotation: np.ndarray, iterations: int = 60) -> np.ndarray:
        """Joints (7,) [rad] that bring the TCP to a pose, by damped least squares, inside the joint limits.

        It starts from the home posture: the answer is a smooth function of the pose alone, and a demonstrator
        that uses it shows one arm posture for one hand pose. Residual below 0.1 mm inside the workspace.
        """
        q, rest = np.array(HOME_Q, dtype=float), np.array(HOME_Q)
        for _ in range(iterations):
            now, turned = self.tcp_pose(q)
            error = np.concatenate([position - now, rotation_error(rotation, turned)])
            if np.linalg.norm(error) < 1e-4:
                break
            step = self._step(error, now, 0.1 * (rest - q))
            q = np.clip(q + np.clip(step, -0.3, 0.3), self.q_min + 0.06, self.q_max - 0.06)
        return q

    def nudge(self, q: np.ndarray, twist: np.ndarray, posture_step: np.ndarray) -> np.ndarray:
        """Change of joints (7,) [rad] that moves the TCP of an arm at `q` by a small twist (6,), world frame.

        `twist` is a translation [m] and a rotation vector [rad]; of `posture_step` (7,) [rad] that part is added
        which leaves the hand where it is.
        """
        now, _ = self.tcp_pose(q)
        return self._step(twist, now, posture_step)

    def _step(self, error: np.ndarray, tcp: np.ndarray, posture_step: np.ndarray) -> np.ndarray:
        """Damped least squares at the joints whose kinematics were computed last."""
        jacobian_p, jacobian_r = np.zeros((3, self._model.nv)), np.zeros((3, self._model.nv))
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_jac(self._model, self._data, jacobian_p, jacobian_r, tcp, self._hand)
        jacobian = np.vstack([jacobian_p, jacobian_r])[:, self._dofs]
        inverse = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + 1e-4 * np.eye(6))
        return inverse @ error + (np.eye(7) - inverse @ jacobian) @ posture_step


def rotation_error(wanted: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Rotation vector (3,) in the world frame that turns `now` towards `wanted` (exact for small angles)."""
    return 0.5 * np.sum(np.cross(now.T, wanted.T), axis=0)


def down_rotation(yaw_rad: float) -> np.ndarray:
    """A hand that points straight down, turned by `yaw_rad` about the world's z axis."""
    c, s = np.cos(yaw_rad), np.sin(yaw_rad)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]) @ DOWN


def hand_yaw(rotation: np.ndarray) -> float:
    """Rotation of a hand about the world's z axis [rad]; 0 when its x axis points along the world's x."""
    return float(np.arctan2(rotation[1, 0], rotation[0, 0]))
