"""Where each object goes: a sheet of the table from above, pages in true scale, and outlines over the live picture.

All positions are in the robot's base frame: x ahead of the robot, y to its left, z up from the table; sheets are drawn
as seen from behind the robot, x upwards. The overlay projects each box into the wrist camera at the arm's joints, so
that an object stands right when it fills its outline. Matplotlib and Pillow are imported when something is drawn.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robocoach.configs.files import write_atomically
from robocoach.datasets.contract import IMAGE_SIZE
from robocoach.robots.camera_geometry import Intrinsics
from robocoach.robots.session.plan import Placed, Plan, Start
from robocoach.sim import camera

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from robocoach.sim.kinematics import Arm

FOLDER = "placement"
A4_M = (0.210, 0.297)
TILE_M = (0.20, 0.27)
"""Across (y) and along (x) of the table on one A4 page in true scale; the rest is the printer's margin."""
BASE_RADIUS_M = 0.095
"""Of the FR3's base plate, about."""
INK, SOFT, LINE = "#1d2529", "#5d6b72", "#dfe5e8"
OVERLAY_SCALE = 3
"""The live picture is shown this much larger than the policy sees it."""


def nominal_intrinsics() -> Intrinsics:
    """The wrist camera that the contract describes: a square picture with its field of view both ways."""
    focal_px = IMAGE_SIZE / 2 / math.tan(math.radians(camera.FOV_DEG) / 2)
    middle = (IMAGE_SIZE - 1) / 2
    return Intrinsics(IMAGE_SIZE, IMAGE_SIZE, focal_px, focal_px, middle, middle)


def camera_to_base(arm: Arm, q: np.ndarray, hand_to_camera: np.ndarray | None = None) -> np.ndarray:
    """The wrist camera's pose (4, 4) in the base frame at joints (7,) [rad], OpenGL axes.

    `hand_to_camera` (4, 4) is the mount's pose in the hand frame; None takes the nominal one of `sim/camera.py`.
    """
    hand = np.eye(4)
    hand[:3, 3], hand[:3, :3] = arm.hand_pose(q)
    return hand @ (camera.pose_in_hand() if hand_to_camera is None else hand_to_camera)


def project(points_m: np.ndarray, pose: np.ndarray, intrinsics: Intrinsics) -> np.ndarray:
    """Points (N, 3) in the base frame → pixels (N, 2); NaN for what lies behind the camera."""
    local = (points_m - pose[:3, 3]) @ pose[:3, :3]
    depth = np.where(local[:, 2] < -1e-6, -local[:, 2], np.nan)
    u = intrinsics.ppx + intrinsics.fx * local[:, 0] / depth
    v = intrinsics.ppy - intrinsics.fy * local[:, 1] / depth
    return np.stack([u, v], axis=1)


def corners(placed: Placed) -> np.ndarray:
    """The eight corners (8, 3) [m] of a box that stands on the table; the first four are its top, in turn."""
    half_x, half_y = placed.size_m[0] / 2, placed.size_m[1] / 2
    square = np.array([[half_x, half_y], [-half_x, half_y], [-half_x, -half_y], [half_x, -half_y]])
    angle = math.radians(placed.yaw_deg)
    turned = square @ np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    flat = turned + np.array([placed.x_m, placed.y_m])
    top, bottom = np.full((4, 1), placed.size_m[2]), np.zeros((4, 1))
    return np.vstack([np.hstack([flat, top]), np.hstack([flat, bottom])])


def outline(placed: Placed, pose: np.ndarray, intrinsics: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
    """The box in the picture: its silhouette (M, 2) and its top face (4, 2) in pixels; both empty behind the camera."""
    pixels = project(corners(placed), pose, intrinsics)
    if not np.isfinite(pixels).all():
        return np.empty((0, 2)), np.empty((0, 2))
    return _hull(pixels), pixels[:4]


def _hull(points: np.ndarray) -> np.ndarray:
    """Convex hull (M, 2) of pixels, in turn (Andrew's monotone chain)."""
    ordered = sorted(map(tuple, points))

    def half(sequence: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        chain: list[tuple[float, float]] = []
        for x, y in sequence:
            while len(chain) >= 2:
                (ax, ay), (bx, by) = chain[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                chain.pop()
            chain.append((x, y))
        return chain[:-1]

    return np.array(half(ordered) + half(ordered[::-1]))


def seen_share(silhouette: np.ndarray, intrinsics: Intrinsics) -> float:
    """Share of a silhouette's area that lies inside the picture, from its pixels."""
    from PIL import Image, ImageDraw

    if not len(silhouette):
        return 0.0
    margin = 2 * max(intrinsics.width, intrinsics.height)
    mask = Image.new("1", (intrinsics.width + 2 * margin, intrinsics.height + 2 * margin))
    ImageDraw.Draw(mask).polygon([(x + margin, y + margin) for x, y in silhouette], fill=1)
    whole = np.asarray(mask)
    inside = whole[margin : margin + intrinsics.height, margin : margin + intrinsics.width]
    return float(inside.sum() / max(1, whole.sum()))


def overlay(
    image: np.ndarray, start: Start, pose: np.ndarray, intrinsics: Intrinsics | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The live picture uint8 (H, W, 3), enlarged, with every object's outline where it must stand.

    Also returns a line for each object that the camera sees less than half of from here.
    """
    from PIL import Image, ImageDraw

    intrinsics = intrinsics or nominal_intrinsics()
    size = (image.shape[1] * OVERLAY_SCALE, image.shape[0] * OVERLAY_SCALE)
    picture = Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(picture)
    hidden = []
    for placed in (*start.objects, *start.distractors):
        silhouette, top = outline(placed, pose, intrinsics)
        if seen_share(silhouette, intrinsics) < 0.5:
            hidden.append(f"{spoken(placed.name)} lies outside the picture: place it by the sheet")
        for polygon, width in ((silhouette, 3), (top, 2)):
            ring = [tuple(OVERLAY_SCALE * (point + 0.5)) for point in (*polygon, *polygon[:1])]
            if ring:
                draw.line(ring, fill="white", width=width + 2, joint="curve")
                draw.line(ring, fill=placed.colour, width=width, joint="curve")
    return np.asarray(picture), tuple(hidden)


def write_png(image: np.ndarray, path: Path) -> None:
    """Writes a picture uint8 (H, W, 3) whole, so that a viewer which looks again never sees half of it."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "png")
    write_atomically(path, file.getvalue())


def spoken(name: str) -> str:
    """An object's name in words."""
    return name.replace("_", " ")


def lines(start: Start) -> list[str]:
    """Where each object goes, in words: `red cube: 44.1 cm ahead, 15.4 cm left, turned -11.2°`."""
    told = []
    for placed in (*start.objects, *start.distractors):
        side = "left" if placed.y_m >= 0 else "right"
        told.append(
            f"{spoken(placed.name)}: {100 * placed.x_m:.1f} cm ahead, {100 * abs(placed.y_m):.1f} cm {side}, "
            f"turned {placed.yaw_deg:+.1f}°"
        )
    return told


MAP_X_M, MAP_Y_M = (0.30, 0.58), 0.24
CELL_X_M, CELL_Y_M = 0.02, 0.01


def text_map(start: Start) -> list[str]:
    """The table as text, a column a centimetre and a row two: each object's first letter where it covers the table."""
    rows = round((MAP_X_M[1] - MAP_X_M[0]) / CELL_X_M)
    columns = round(2 * MAP_Y_M / CELL_Y_M)
    cells = [["·" if column % 5 == 2 and row % 5 == 2 else " " for column in range(columns)] for row in range(rows)]
    for placed in (*start.objects, *start.distractors):
        letter = placed.name[-1] if placed.name.startswith("distractor") else placed.name[0].upper()
        angle = math.radians(placed.yaw_deg)
        for row in range(rows):
            for column in range(columns):
                x = MAP_X_M[1] - (row + 0.5) * CELL_X_M - placed.x_m
                y = MAP_Y_M - (column + 0.5) * CELL_Y_M - placed.y_m
                along = math.cos(angle) * x + math.sin(angle) * y
                across = -math.sin(angle) * x + math.cos(angle) * y
                if abs(along) <= placed.size_m[0] / 2 and abs(across) <= placed.size_m[1] / 2:
                    cells[row][column] = letter
    return ["".join(row) for row in cells]


def _draw_objects(axes: Axes, start: Start, label: bool) -> None:
    from matplotlib.patches import Polygon

    for placed in (*start.objects, *start.distractors):
        flat = corners(placed)[4:, :2]
        # Plot coordinates: y of the base frame to the left, x upwards.
        axes.add_patch(Polygon(flat[:, ::-1], facecolor=placed.colour, edgecolor=INK, linewidth=1.2, alpha=0.85))
        front = flat[[0, 3]].mean(axis=0)
        axes.plot([placed.y_m, front[1]], [placed.x_m, front[0]], color="white", linewidth=1.6)
        axes.plot(placed.y_m, placed.x_m, "+", color="white", markersize=7)
        if label:
            axes.annotate(
                spoken(placed.name),
                (placed.y_m, placed.x_m),
                xytext=(0, 25),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=INK,
            )


def sheet(plan: Plan, scene: int) -> Figure:
    """The placement sheet of one scene (from 1): the table from above with a grid, A4 landscape, not to scale."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    start = plan.scenes[scene - 1]
    figure = Figure(figsize=(A4_M[1] / 0.0254, A4_M[0] / 0.0254), facecolor="white")
    axes = figure.add_axes((0.055, 0.09, 0.60, 0.83))
    axes.set(xlim=(0.33, -0.33), ylim=(-0.12, 0.62), aspect="equal")
    axes.add_patch(Circle((0, 0), BASE_RADIUS_M, facecolor=LINE, edgecolor=SOFT))
    axes.text(0, 0, "robot base\n(seen from behind it)", ha="center", va="center", fontsize=8, color=SOFT)
    axes.arrow(0, 0.11, 0, 0.07, width=0.002, color=SOFT, length_includes_head=True)
    axes.text(0.012, 0.15, "x", fontsize=9, color=SOFT, ha="right")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MultipleLocator(0.05))
        axis.set_minor_locator(MultipleLocator(0.01))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}"))
    axes.grid(which="major", color="#c9d2d6", linewidth=0.7)
    axes.grid(which="minor", color="#edf1f3", linewidth=0.4)
    axes.set_axisbelow(True)
    axes.set_xlabel("y [cm], to the robot's left", color=SOFT)
    axes.set_ylabel("x [cm], ahead of the robot's base axis", color=SOFT)
    _draw_objects(axes, start, label=True)
    _explain(figure, plan, scene)
    return figure


def _explain(figure: Figure, plan: Plan, scene: int) -> None:
    start = plan.scenes[scene - 1]
    x, y = 0.69, 0.90

    def say(text: str, size: float = 9.5, colour: str = INK, weight: str = "normal", width: int = 46) -> None:
        nonlocal y
        for part in _wrapped(text, width):
            figure.text(x, y, part, fontsize=size, color=colour, weight=weight, va="top")
            y -= 0.0030 * size
        y -= 0.014

    say(f"{plan.task}, scene {scene} of {len(plan.scenes)}", 15, weight="bold", width=30)
    trials = ", ".join(f"{trial.number} ({trial.label})" for trial in plan.trials if trial.scene == scene)
    say(f"trials: {trials}", colour=SOFT)
    for told in lines(start):
        say(told)
    say("The white stroke points to the side that faces away from the robot when the turn is 0°.", 8, SOFT, width=58)
    say("Success", 9.5, weight="bold")
    say(plan.success, 9)
    say(f"Time limit {plan.time_limit_s:.0f} s.", 9)
    if start.distractors:
        say("Distractors: the same ones in every trial, none that looks like the task's objects.", 9)
    figure.text(x, 0.035, f"seed {start.seed} · plan {plan.digest[:16]}", fontsize=8, color=SOFT)


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width)


def tiles(start: Start) -> Iterator[tuple[float, float]]:
    """Lower corner (x, y) [m] of every A4 page that shows a part of an object; pages meet at y = 0."""
    flat = np.vstack([corners(placed)[4:, :2] for placed in (*start.objects, *start.distractors)])
    first_x = math.floor(100 * (flat[:, 0].min() - 0.01)) / 100
    for row in range(math.ceil((flat[:, 0].max() - first_x) / TILE_M[1])):
        x = first_x + row * TILE_M[1]
        low, high = math.floor(flat[:, 1].min() / TILE_M[0]), math.ceil(flat[:, 1].max() / TILE_M[0])
        for column in reversed(range(low, high)):
            y = column * TILE_M[0]
            inside = (
                (flat[:, 0] >= x) & (flat[:, 0] <= x + TILE_M[1]) & (flat[:, 1] >= y) & (flat[:, 1] <= y + TILE_M[0])
            )
            if inside.any():
                yield round(x, 3), round(y, 3)


def true_scale_page(plan: Plan, scene: int, x: float, y: float) -> Figure:
    """An A4 page that lies on the table: 1 cm on paper is 1 cm. (x, y) is its lower right corner in the base frame."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MultipleLocator

    start = plan.scenes[scene - 1]
    figure = Figure(figsize=(A4_M[0] / 0.0254, A4_M[1] / 0.0254), facecolor="white")
    left, bottom = (A4_M[0] - TILE_M[0]) / 2, 0.008
    axes = figure.add_axes((left / A4_M[0], bottom / A4_M[1], TILE_M[0] / A4_M[0], TILE_M[1] / A4_M[1]))
    axes.set(xlim=(y + TILE_M[0], y), ylim=(x, x + TILE_M[1]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MultipleLocator(0.05))
        axis.set_minor_locator(MultipleLocator(0.01))
    axes.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    axes.grid(which="major", color="#b9c4c9", linewidth=0.7)
    axes.grid(which="minor", color="#e6ebed", linewidth=0.4)
    axes.set_axisbelow(True)
    _draw_objects(axes, start, label=True)
    note: dict[str, Any] = {"fontsize": 8, "color": SOFT}
    axes.text(
        y + TILE_M[0] / 2, x + 0.002, f"this edge lies {100 * x:.0f} cm ahead of the base axis", ha="center", **note
    )
    for edge, side in ((y, 0.002), (y + TILE_M[0], TILE_M[0] - 0.002)):
        where = "on the robot's middle line" if abs(edge) < 1e-9 else f"{100 * abs(edge):.0f} cm {_side(edge)}"
        axes.text(y + side, x + TILE_M[1] / 2, f"this edge: {where}", rotation=90, va="center", ha="center", **note)
    title = f"{plan.task}, scene {scene}: print at 100 %, the ruler below is 10 cm · plan {plan.digest[:16]}"
    figure.text(0.5, 1 - 0.006 / A4_M[1], title, ha="center", va="center", fontsize=9, color=INK)
    ruler = figure.add_axes(((A4_M[0] - 0.10) / 2 / A4_M[0], 1 - 0.015 / A4_M[1], 0.10 / A4_M[0], 0.003 / A4_M[1]))
    ruler.set(xlim=(0, 10), ylim=(0, 1), yticks=[], xticks=[])
    for mark in range(10):
        ruler.axvspan(mark, mark + 1, color=INK if mark % 2 == 0 else "white")
    return figure


def _side(y: float) -> str:
    return "to the robot's left" if y > 0 else "to its right"


def write_sheets(plan: Plan, folder: Path, *, true_scale: bool = True) -> list[Path]:
    """Writes `scene-01.png`, … and `true-scale.pdf` into `folder`; returns the files."""
    written = []
    for scene in range(1, len(plan.scenes) + 1):
        path = folder / f"scene-{scene:02d}.png"
        write_atomically(path, _rendered(sheet(plan, scene)))
        written.append(path)
    if true_scale:
        from matplotlib.backends.backend_pdf import PdfPages

        path, file = folder / "true-scale.pdf", io.BytesIO()
        with PdfPages(file) as pages:
            for scene, start in enumerate(plan.scenes, start=1):
                for x, y in tiles(start):
                    pages.savefig(true_scale_page(plan, scene, x, y))
        write_atomically(path, file.getvalue())
        written.append(path)
    return written


def _rendered(figure: Any, dpi: int = 110) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()
