"""Tasks, the Genesis environment, the MuJoCo scene of the same tasks, and rollout recording."""
