"""Asks a policy for chunks of actions, in a thread of its own, so that thinking never makes a tick late.

A chunk is indexed by time: its first action belongs to the moment at which it was asked for, so the time that
thinking took is compensated and no action is repeated. The rows beyond those that a policy wants executed overlap
with the next chunk: they are there to blend with it, and to go on with for a moment when it comes late.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from robocoach.datasets.contract import FPS
from robocoach.robots.camera import Frame
from robocoach.robots.priority import go_first

STEP_S = 1 / FPS
"""Time between two rows of a chunk, whatever the loop's rate."""
LATENCIES = 5
"""Answers whose latency is looked back on to decide how early to ask."""


class ChunkPolicy(Protocol):
    """What the loop needs of a policy. One that also has `plan` is asked for its whole chunk (`think`)."""

    def reset(self) -> None:
        """Forgets the last rollout."""
        ...

    def act(self, image: np.ndarray, state: np.ndarray, instruction: str) -> np.ndarray:
        """uint8 (224, 224, 3), float32 (8,) → absolute actions (n, 8), 0.1 s apart, all to be executed."""
        ...


@dataclass(frozen=True)
class Question:
    """What a policy is asked, and when."""

    state: np.ndarray
    """(8,) as measured."""
    asked_s: float
    """On the loop's own clock, 0 at its first tick."""
    seen_at_s: float
    """Monotonic time from which on a frame is new enough."""
    previous: np.ndarray | None = None
    """(m, 8) what the chunk in use says for this moment and after."""
    delay_steps: int = 1
    """Steps of `previous` that will be executed before the answer is there."""


@dataclass(frozen=True)
class Chunk:
    """A policy's answer."""

    actions: np.ndarray
    """(n, 8); row i is to be reached 0.1·(i + 1) s after it was asked for."""
    executed: int
    """Rows after which the policy wants to look again; the rest is overlap."""
    asked_s: float
    origin: np.ndarray
    """(8,) the state it was asked in."""
    frame: Frame
    took_s: float
    """Inference alone, without waiting for the frame."""
    latency_s: float
    """From the question to the answer."""

    def action(self, at_s: float, tick_s: float = STEP_S) -> np.ndarray | None:
        """The action (8,) to be reached a tick after `at_s`, on the line through the rows; None beyond the last."""
        row = (at_s + tick_s - self.asked_s) / STEP_S - 1
        row = round(row) if abs(row - round(row)) < 1e-6 else row
        if row > len(self.actions) - 1:
            return None
        above = int(np.ceil(row))
        below = self.actions[above - 1] if above >= 1 else self.origin
        action = below + (row - (above - 1)) * (self.actions[above] - below)
        # The width is a decision and not a line: it holds from the moment its row begins.
        action[7] = self.actions[max(0, int((at_s - self.asked_s) / STEP_S + 1e-6)), 7]
        return action

    @property
    def look_again_s(self) -> float:
        """When the rows to be executed are over."""
        return self.asked_s + self.executed * STEP_S

    def rest(self, at_s: float) -> np.ndarray:
        """(m, 8) what it says for `at_s` and after, 0.1 s apart."""
        rows = []
        while (row := self.action(at_s + len(rows) * STEP_S)) is not None:
            rows.append(row)
        return np.array(rows).reshape(-1, 8)


class PolicyFailed(RuntimeError):
    """The policy raised or answered with something that is no chunk."""


TakeFrame = Callable[[float], Frame | None]
"""Waits for a frame of the world at a monotonic time or later; None when none comes."""


def think(policy: ChunkPolicy, take_frame: TakeFrame, question: Question, instruction: str) -> Chunk | None:
    """One question and its answer; None when the camera gives no frame. Raises PolicyFailed."""
    asked = time.monotonic()
    frame = take_frame(question.seen_at_s)
    if frame is None:
        return None
    start = time.monotonic()
    state = question.state.astype(np.float32)
    plan = getattr(policy, "plan", None)
    try:
        if plan is None:
            answer, executed = policy.act(frame.image, state, instruction), None
        else:
            answer, executed = plan(frame.image, state, instruction, question.previous, question.delay_steps)
        actions = np.asarray(answer, dtype=float)
    except Exception as error:
        raise PolicyFailed(" ".join(f"{type(error).__name__}: {error}".split())) from error
    if actions.ndim != 2 or actions.shape[1] != 8 or not len(actions):
        raise PolicyFailed(f"a chunk has shape (n, 8), this one {actions.shape}")
    now = time.monotonic()
    return Chunk(
        actions,
        min(executed or len(actions), len(actions)),
        question.asked_s,
        np.asarray(question.state, dtype=float),
        frame,
        now - start,
        now - asked,
    )


class Thinker:
    """One policy in one thread; one question at a time."""

    def __init__(self, policy: ChunkPolicy, take_frame: TakeFrame, instruction: str) -> None:
        self._policy, self._take_frame, self._instruction = policy, take_frame, instruction
        self._wake = threading.Condition()
        self._question: Question | None = None
        self._answer: Chunk | PolicyFailed | None = None
        self._busy = self._done = False
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._thread = threading.Thread(target=self._run, name="policy", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """No question is open."""
        return not self._busy

    @property
    def latency_s(self) -> float:
        """The longest of the last answers, question to answer; 0 before the first."""
        return max(self._latencies, default=0.0)

    def ask(self, question: Question) -> None:
        """Puts a question; returns at once."""
        with self._wake:
            self._busy, self._question = True, question
            self._wake.notify_all()

    def answer(self) -> Chunk | None:
        """The answer since the last call, None while there is none. Raises PolicyFailed."""
        with self._wake:
            answer, self._answer = self._answer, None
        if isinstance(answer, PolicyFailed):
            raise answer
        if answer is not None:
            self._latencies.append(answer.latency_s)
        return answer

    def close(self) -> None:
        """Ends the thread once its question is answered; a policy that hangs is left behind."""
        with self._wake:
            self._done = True
            self._wake.notify_all()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        go_first(0)  # thinking yields to the loop and the arm, whoever started this thread
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._question is not None or self._done)
                if self._question is None:
                    return
                question, self._question = self._question, None
            answer: Chunk | PolicyFailed | None
            try:
                answer = think(self._policy, self._take_frame, question, self._instruction)
            except PolicyFailed as failure:
                answer = failure
            with self._wake:
                self._answer, self._busy = answer, False
