"""One twin for the folder's tests: starting one takes seconds."""

from collections.abc import Iterator

import pytest

from robocoach.robots.franka import FrankaArm
from robocoach.robots.twin import Twin
from robocoach.sim.tasks import get_task

TASK = "stack-cube"


@pytest.fixture(scope="package")
def twin() -> Iterator[Twin]:
    with Twin(TASK) as running:
        yield running


@pytest.fixture
def arm(twin: Twin) -> Iterator[FrankaArm]:
    """The real franky client on the twin, at the start of a scene."""
    scene = get_task(TASK).sample_scene(1)
    with FrankaArm(twin.host, realtime=False) as connected:
        connected.open_hand()
        connected.go_to(scene.start_q)
        twin.place(scene)
        yield connected
