"""LeRobot's own evaluation tool finds the policy type as a plugin and runs a moved checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PLUGIN = '''
"""A LeRobot environment plugin around the table in two dimensions."""
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs import EnvConfig
from robocoach.policies import synthetic


class TableEnv(gym.Env):
    metadata = {"render_fps": 10, "render_modes": ["rgb_array"]}
    _max_episode_steps = 6
    task_description = task = synthetic.INSTRUCTION

    def __init__(self, render_mode="rgb_array", **kwargs):
        self.render_mode = render_mode
        pixels = gym.spaces.Dict({"wrist": gym.spaces.Box(0, 255, (224, 224, 3), np.uint8)})
        self.observation_space = gym.spaces.Dict(
            {"pixels": pixels, "agent_pos": gym.spaces.Box(-10, 10, (8,), np.float32)}
        )
        self.action_space = gym.spaces.Box(-10, 10, (8,), np.float32)

    def _look(self):
        return {"pixels": {"wrist": self.table.image(224)}, "agent_pos": self.table.state()}

    def reset(self, *, seed=None, options=None):
        self.table, self.ticks = synthetic.Table.random(seed or 0), 0
        return self._look(), {"is_success": False}

    def step(self, action):
        # Absolute actions stay near the arm's pose; relative ones would be near zero.
        near = bool(np.abs(np.asarray(action) - self.table.state())[3:7].max() < 0.5)
        self.table.step(np.asarray(action))
        self.ticks += 1
        return self._look(), float(near), False, self.ticks >= 6, {"is_success": near}

    def render(self):
        return self.table.image(64)


gym.register("gym_robocoach_table/table", entry_point=TableEnv, max_episode_steps=6)


@EnvConfig.register_subclass("robocoach_table")
@dataclass
class TableEnvConfig(EnvConfig):
    task: str = "table"
    fps: int = 10
    features: dict = field(
        default_factory=lambda: {
            "action": PolicyFeature(FeatureType.ACTION, (8,)),
            "pixels/wrist": PolicyFeature(FeatureType.VISUAL, (224, 224, 3)),
            "agent_pos": PolicyFeature(FeatureType.STATE, (8,)),
        }
    )
    features_map: dict = field(
        default_factory=lambda: {
            "action": "action",
            "pixels/wrist": "observation.images.wrist",
            "agent_pos": "observation.state",
        }
    )

    @property
    def gym_kwargs(self):
        return {"render_mode": "rgb_array"}
'''


def test_lerobot_eval_runs_a_moved_checkpoint(checkpoint, tmp_path):
    plugin = tmp_path / "plugins" / "table_plugin"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").write_text(PLUGIN)
    command = [
        sys.executable,
        "-m",
        "lerobot.scripts.lerobot_eval",
        f"--policy.path={checkpoint}",
        "--plug.discover_packages_path=robocoach.policies.lerobot",
        "--world.discover_packages_path=table_plugin",
        "--env.type=robocoach_table",
        "--eval.n_episodes=2",
        "--eval.batch_size=1",
        "--policy.device=cpu",
        f"--output_dir={tmp_path / 'eval'}",
    ]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "plugins"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    overall = json.loads((tmp_path / "eval" / "eval_info.json").read_text())["overall"]
    assert overall["n_episodes"] == 2
    assert overall["pc_success"] == 100.0  # every action was absolute
