"""Where the joints of each arm can be: one table for the checks on datasets and for the arms themselves.

Source: Franka Control Interface documentation, "Robot limits". All tuples are in joint order 1…7.
"""

from __future__ import annotations

JOINT_RANGE_RAD = {
    "panda": (
        (-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973),
        (2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973),
    ),
    "fr3": (
        (-2.7437, -1.7837, -2.9007, -3.0421, -2.8065, 0.5445, -3.0159),
        (2.7437, 1.7837, 2.9007, -0.1518, 2.8065, 4.5169, 3.0159),
    ),
}
"""Lowest and highest joint angles (7,) [rad] by arm."""
