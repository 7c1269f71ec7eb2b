"""Recording on the twin: what is accepted is on the disk and fit to train on, what went wrong is left out with why."""

import json
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from robocoach.configs.errors import UserError
from robocoach.configs.models import RecordConfig, SafetyConfig
from robocoach.datasets.contract import ACTION_NAMES
from robocoach.datasets.journal import Journal
from robocoach.datasets.real import import_real
from robocoach.datasets.record import assemble
from robocoach.robots.recording import Recording, Status, Wish, key_map, standing
from robocoach.robots.rig import Rig
from robocoach.robots.teleop.guide import Guide
from robocoach.robots.teleop.keyboard import Keyboard
from robocoach.robots.teleop.script import Script
from robocoach.sim import provenance
from robocoach.sim.tasks import get_task

TASK = get_task("stack-cube")
BUSY_MACHINE = 0.5
"""Clock ratio accepted here: what a slow machine does to the twin is another test's subject."""


class Hand:
    """An operator: keys that are typed when a phase of the recording is seen, after some ticks of it."""

    def __init__(self, *plan: tuple[str, int, str]) -> None:
        self._plan = list(plan)
        self._typed: list[str] = []
        self._waited = 0
        self.lines: list[str] = []
        self.seen: list[Status] = []

    def show(self, status: Status) -> None:
        self.seen.append(status)
        if not self._plan:
            return
        phase, after, key = self._plan[0]
        if status.phase != phase or (self._waited < after):
            self._waited += status.phase == phase
            return
        self._plan.pop(0)
        self._waited = 0
        self._typed.append(key)

    def tell(self, line: str) -> None:
        self.lines.append(line)

    def poll(self) -> list[str]:
        typed, self._typed = self._typed, []
        return typed


@pytest.fixture
def rig(arm, twin) -> Rig:
    return Rig("twin", arm, twin.camera, twin, provenance.contract("twin", "test"))


@pytest.fixture
def record(rig, tmp_path) -> Callable[..., Recording]:
    def make(device, hand: Hand, folder="episodes", **settings) -> Recording:
        config = RecordConfig.model_validate({"episodes": 1, "max_seconds": 12.0, **settings})
        device.connect()
        return Recording(
            rig,
            device,
            TASK,
            tmp_path / folder,
            config,
            SafetyConfig(),
            hand,
            hand.poll,
            min_clock_ratio=BUSY_MACHINE,
        )

    return make


def test_the_script_records_success_by_the_judge_and_the_data_is_fit_as_real(record, rig, tmp_path):
    script, hand = Script("stack-cube"), Hand()
    script.watch(rig.twin.state)
    tally = record(script, hand, teleop="script", unattended=True).run()
    assert (tally.accepted, tally.successes) == (1, 1), hand.lines
    contract = rig.contract.model_copy(
        update={"provenance": rig.contract.provenance.model_copy(update={"source": "real"})}
    )
    made = assemble(Journal(tmp_path / "episodes"), tmp_path / "out" / "dataset", contract)
    genesis = provenance.contract("sim:genesis", "1")
    summary = import_real(tmp_path / "out", tmp_path / "unused", genesis).summary
    assert summary.episodes == 1 and summary.frames == made.frames and summary.grasping == 1
    assert 0.0 <= summary.command_lead_s <= 0.2  # commanded is where the joints are a tick later
    episode = Journal(tmp_path / "episodes").read(0)
    assert np.abs(np.diff(episode.states[:, :7], axis=0)).max() > 0.01
    assert episode.stages[0] == 0 and episode.stages[-1] == len(TASK.stages) - 1
    assert episode.privileged is not None and len(ACTION_NAMES) == episode.actions.shape[1]


def test_an_operator_accepts_discards_and_redoes(record, tmp_path):
    hand = Hand(
        ("ready", 3, "enter"),
        ("recording", 8, "x"),  # discarded
        ("ready", 3, "enter"),
        ("recording", 8, "backspace"),  # redone
        ("ready", 3, "enter"),
        ("recording", 2, "w"),
        ("recording", 2, "w"),
        ("recording", 8, "space"),  # stopped, then judged by hand
        ("review", 2, "tab"),
        ("ready", 3, "enter"),
        ("recording", 8, "enter"),
    )
    tally = record(Keyboard(), hand, episodes=2).run()
    assert (tally.accepted, tally.successes) == (2, 1), hand.lines
    assert dict(tally.discarded) == {"operator: discard": 1, "operator: redo": 1}
    takes = [json.loads(line) for line in (tmp_path / "episodes/takes.jsonl").read_text().splitlines()]
    scenes = [take["scene"] for take in takes]
    assert scenes[1] == scenes[2] != scenes[0]  # a redo keeps its scene
    episode = Journal(tmp_path / "episodes").read(0)
    assert not episode.success and np.abs(episode.states[-1, :7] - episode.states[0, :7]).max() > 0.005
    assert {status.phase for status in hand.seen} >= {"homing", "ready", "recording", "review", "saving"}


def test_an_envelope_stop_discards_with_its_reason_and_recording_goes_on(record):
    class Wild(Keyboard):
        jumps = True

        def read(self, state: np.ndarray) -> np.ndarray:
            action = super().read(state)
            if self.jumps:
                action[0] += 1.5
                Wild.jumps = False
            return action

    hand = Hand(("ready", 3, "enter"), ("ready", 3, "enter"), ("recording", 8, "enter"))
    tally = record(Wild(), hand).run()
    assert tally.accepted == 1
    assert [reason for reason in tally.discarded if reason.startswith("jump: joint 1")]


def test_a_fault_of_the_arm_discards_recovers_and_goes_on(record, twin):
    class Bumped(Hand):
        bumps = True

        def show(self, status: Status) -> None:
            super().show(status)
            if self.bumps and status.phase == "recording" and status.ticks == 6:
                self.bumps = False
                twin.inject("reflex")

    hand = Bumped(("ready", 3, "enter"), ("ready", 3, "enter"), ("recording", 8, "enter"))
    tally = record(Keyboard(), hand).run()
    assert tally.accepted == 1 and [reason for reason in tally.discarded if reason.startswith("arm: ")]


def test_a_pose_mismatch_is_refused_until_the_operator_moves_home(record, rig):
    away = rig.arm.state().values[:7] + np.array([0.3, 0, 0, 0, 0, 0, 0])
    hand = Hand(("ready", 3, "enter"), ("ready", 5, "h"), ("ready", 3, "enter"), ("recording", 8, "enter"))
    recording = record(Keyboard(), hand)
    recording._auto_home = False  # as on an arm
    rig.arm.go_to(away)
    assert recording.run().accepted == 1
    assert any("joint 1" in line and "press h" in line for line in hand.lines)


def test_guiding_by_hand_records_where_the_arm_was_led(record, rig, tmp_path):
    """A second motion stands for the hand that leads the arm."""
    hand = Hand(("ready", 3, "enter"), ("recording", 3, "g"), ("recording", 25, "enter"))

    def lead() -> None:
        while not any(status.phase == "recording" for status in hand.seen):
            time.sleep(0.02)
        rig.arm.go_to(rig.arm.state().values[:7] + np.array([0.25, 0.1, 0, 0, 0, 0, 0]))

    leading = threading.Thread(target=lead)
    leading.start()
    tally = record(Guide(), hand, teleop="guide").run()
    leading.join()
    assert tally.accepted == 1
    episode = Journal(tmp_path / "episodes").read(0)
    np.testing.assert_allclose(episode.actions[:-1, :7], episode.states[1:, :7])
    assert episode.states[-1, 0] - episode.states[0, 0] > 0.1
    assert episode.actions[0, 7] > 0.07 and episode.actions[-1, 7] == 0.0 and episode.states[-1, 7] < 0.02


def test_a_recording_goes_on_in_the_same_folder(record, tmp_path):
    keys = (("ready", 3, "enter"), ("recording", 8, "enter"))
    record(Keyboard(), Hand(*keys)).run()
    with (tmp_path / "episodes/takes.jsonl").open("a") as file:
        file.write('{"cut off by a ki')
    first = Journal(tmp_path / "episodes").read(0).states
    tally = record(Keyboard(), Hand(*keys), episodes=2).run()
    assert tally.accepted == 2 and Journal(tmp_path / "episodes").done() == [0, 1]
    np.testing.assert_array_equal(Journal(tmp_path / "episodes").read(0).states, first)
    assert standing(tmp_path / "episodes")[1] == 2


def test_quitting_keeps_what_was_accepted(record):
    hand = Hand(("ready", 3, "enter"), ("recording", 8, "enter"), ("ready", 3, "escape"))
    tally = record(Keyboard(), hand, episodes=5).run()
    assert tally.quit and tally.accepted == 1


def test_a_pedal_can_type_any_keys():
    keys = key_map("start=b,success=b,redo=c")
    assert (keys[Wish.START], keys[Wish.SUCCESS], keys[Wish.REDO], keys[Wish.STOP]) == ("b", "b", "c", "space")


@pytest.mark.parametrize(
    ("text", "said"),
    [("stop=enter", "same time"), ("jump=a", "start, success"), ("stop=ctrl-x", "no key"), ("stop", "no key")],
)
def test_keys_that_cannot_work_are_refused(text, said):
    with pytest.raises(UserError, match=said):
        key_map(text)
