"""How far predicted actions are from demonstrated ones, by the name of each action."""

from __future__ import annotations

from torch import Tensor

from robocoach.datasets.contract import ACTION_NAMES


def action_errors(predicted: Tensor, demonstrated: Tensor, executed_steps: int) -> dict[str, float]:
    """Mean absolute error over the samples and the executed steps of chunks (B, chunk, 8), absolute both.

    `validation_error_<action name>` for each action [rad], the gripper's width [m]; and the mean over the joints.
    """
    error = (predicted - demonstrated)[:, :executed_steps].abs().mean(dim=(0, 1)).tolist()
    named = dict(zip(ACTION_NAMES, error, strict=True))
    joints = [value for name, value in named.items() if "gripper" not in name]
    return {
        "validation_joint_error_rad": sum(joints) / len(joints),
        "validation_gripper_error_m": named["gripper.pos"],
        **{f"validation_error_{name}": value for name, value in named.items()},
    }
