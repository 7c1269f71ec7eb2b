"""One twin for the folder's tests: starting one takes seconds, and one that lives on would slow down all others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from robocoach.robots.franka import FrankaArm
from robocoach.robots.twin import Twin
from robocoach.sim.tasks import get_task

TASK = "stack-cube"


_running: list[Twin] = []


@pytest.fixture(scope="session")
def twin() -> Twin:
    _running.append(Twin(TASK))
    return _running[-1]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Ends the twin after the folder's last test: without packages, pytest has no scope for a folder."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        while _running:
            _running.pop().close()


@pytest.fixture
def arm(twin: Twin) -> Iterator[FrankaArm]:
    """The real franky client on the twin, at the start of a scene."""
    scene = get_task(TASK).sample_scene(1)
    with FrankaArm(twin.host, realtime=False) as connected:
        connected.open_hand()
        connected.go_to(scene.start_q)
        twin.place(scene)
        yield connected
