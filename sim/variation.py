"""How far the look and the feel of a scene are from nominal: colours, lights, camera pose and friction.

Where objects and arm are is never touched: a judge of success must not depend on this.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from robocoach.sim.task import Nominal, Scene

Triple = tuple[float, float, float]
LEAST_FRICTION = 0.2
LEAST_LIGHT = 0.1


def varied(scene: Scene, nominal: Nominal, scale: float) -> Scene:
    """A scene whose distance from nominal is `scale` times as large: 1 leaves it, 0 gives the nominal look.

    Colours and lights stay in their ranges, whatever the scale.
    """
    return dataclasses.replace(
        scene,
        colours={name: _colour(colour, nominal.colours[name], scale) for name, colour in scene.colours.items()},
        table_colour=_colour(scene.table_colour, nominal.table_colour, scale),
        light_direction=_triple(_between(scene.light_direction, nominal.light_direction, scale)),
        light_strength=max(LEAST_LIGHT, float(_between(scene.light_strength, nominal.light_strength, scale))),
        ambient=float(np.clip(_between(scene.ambient, nominal.ambient, scale), 0.0, 1.0)),
        camera_shift_m=_between(scene.camera_shift_m, nominal.camera_shift_m, scale),
        camera_turn_rad=_between(scene.camera_turn_rad, nominal.camera_turn_rad, scale),
        friction=max(LEAST_FRICTION, float(_between(scene.friction, nominal.friction, scale))),
    )


def _between(value: np.ndarray | Triple | float, middle: Triple | float, scale: float) -> np.ndarray:
    """On the line from `middle` (0) through `value` (1); exact at both."""
    return scale * np.asarray(value, dtype=float) + (1 - scale) * np.asarray(middle, dtype=float)


def _colour(value: Triple, middle: Triple, scale: float) -> Triple:
    return _triple(np.clip(_between(value, middle, scale), 0.0, 1.0))


def _triple(values: np.ndarray) -> Triple:
    x, y, z = values.tolist()
    return x, y, z
