"""Attempts made by hand for the tests of evidence and report: folders with the files that a campaign leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from robocoach.agent_loop.evidence import batch, read_rollouts
from robocoach.agent_loop.task_document import TaskFacts
from robocoach.agent_loop.tree import Node
from robocoach.configs import load

STAGES = ("reach", "grasp", "lift", "place", "release")
FACTS = TaskFacts(
    name="stack-cube",
    instruction="stack the red cube on the green cube",
    goal="the red cube lies on the green cube, is let go of and at rest.",
    stages=STAGES,
    parts={"red_cube": ("face +x", "face -x", "edge +x+z")},
)
SETTINGS = load.flatten(load.load(profile="cpu").model_dump(), "test")


def account(stage: str, *, reached: bool = False, **changed: Any) -> dict[str, Any]:
    """One account as the simulator writes it: jaws that closed 11 mm off the cube's centre."""
    return {
        "stage": stage,
        "reached": reached,
        "begin_tick": 14,
        "end_tick": 90,
        "object": "red_cube",
        "relative_to": "red_cube",
        "moment_tick": 22,
        "moment": "jaws closed",
        "offset_m": {"x": -0.011, "y": 0.0004, "z": 0.001},
        "world_offset_m": {"x": 0.0, "y": 0.017, "z": 0.001},
        "turn_deg": 4.1,
        "nearest_part": "face -x",
        "nearest_part_m": 0.012,
        "aperture_m": 0.021,
        "commanded": {"path_m": 0.31, "width_m": 0.0, "closings": 1},
        "contact": "none",
        "moved_with_hand": False,
        "lost_after_ticks": None,
    } | changed


def record(seed: int, stage: int, **changed: Any) -> dict[str, Any]:
    """A rollout's record as the simulator writes it; the first stage that is not reached has an account."""
    success = stage == len(STAGES)
    return {
        "seed": seed,
        "success": success,
        "stage": stage,
        "stages": STAGES,
        "ticks": 70 if success else 120,
        "stage_ticks": [],
        "measures": {"closest_m": 0.004, "goal_reached": float(success), "carried": float(stage > 2)},
        "aborted": "",
        "ending": "success" if success else "time limit",
        "goal": {"on the green cube": success, "let go": success, "at rest": True},
        "accounts": [] if success else [account(STAGES[stage])],
        "signals": {"jerk_rad_s3": 20.0, "idle_ticks": 3, "reversals": 0, "closings": 1, "dropped": 0, "path_m": 0.9},
        "video": "",
        "side_video": "",
    } | changed


def metric_rows(count: int = 40, fall: float = 0.95) -> list[dict[str, float]]:
    """Training rows whose loss falls by a factor each, with kept-apart rows in between."""
    rows: list[dict[str, float]] = []
    for index in range(count):
        loss, step = fall**index, 20 * (index + 1)
        rows.append(
            {
                "step": step,
                "elapsed_s": 2.0 * index,
                "loss": 1.5 * loss,
                "flow_loss": loss,
                "grad_norm": 0.5,
                "lr": 1e-3,
            }
        )
        if index % 8 == 7:
            errors = {"validation_error_joint_4.pos": 0.03, "validation_error_gripper.pos": 0.004}
            rows.append({"step": step, "elapsed_s": 2.0 * index, "validation_loss": 1.2 * loss, **errors})
    return rows


def write_attempt(
    folder: Path, records: list[dict[str, Any]], rows: list[dict[str, float]] | None = None, log: str = ""
) -> Path:
    """An attempt's folder with rollouts, metrics, log and the training's result."""
    rollouts = folder / "rollouts" / "train"
    rollouts.mkdir(parents=True)
    for one in records:
        (rollouts / f"{one['seed']}.json").write_text(json.dumps(one))
    lines = [json.dumps(row) for row in (metric_rows() if rows is None else rows)]
    if lines:
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "log.txt").write_text(log or "10:00:00 begun\n10:00:09 UserWarning: two frames are black\n")
    (folder / "train.json").write_text(json.dumps({"status": "finished", "message": "", "steps": 800, "elapsed_s": 80}))
    return folder


def node(folder: Path, number: int = 0, parent: int | None = None, asked: int | None = None, **changed: Any) -> Node:
    """The attempt in the tree, with the batch of its rollouts."""
    found = read_rollouts(folder / "rollouts" / "train")
    values: dict[str, Any] = {
        "number": number,
        "parent": parent,
        "start": "parent",
        "state": "done",
        "coach": "rules" if parent is not None else "",
        "rule": "not lifted" if parent is not None else "",
        "rationale": "It closed beside the cube." if parent is not None else "",
        "change": {"train.executed_steps": (8, 4)} if parent is not None else {},
        "settings": SETTINGS,
        "batch": batch(found, asked or len(found)),
        "reverted": False,
        "reason": "",
        "folder": folder,
    }
    return Node(**(values | changed))
