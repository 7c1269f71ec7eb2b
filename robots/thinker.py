"""Asks a policy for chunks of actions, in a thread of its own, so that thinking never makes a tick late.

A chunk is indexed by time: its first action belongs to the tick at which it was asked for. The loop asks one tick
before its chunk ends, so when the answer comes a tick later, the loop goes on with the second action: the time that
thinking took is compensated and no action is repeated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from robocoach.robots.camera import Frame
from robocoach.robots.priority import go_first


class ChunkPolicy(Protocol):
    """What the loop needs of a policy."""

    def reset(self) -> None:
        """Forgets the last rollout."""
        ...

    def act(self, image: np.ndarray, state: np.ndarray, instruction: str) -> np.ndarray:
        """uint8 (224, 224, 3), float32 (8,) → absolute actions (n, 8), one a tick."""
        ...


@dataclass(frozen=True)
class Chunk:
    """A policy's answer."""

    actions: np.ndarray
    """(n, 8); row i belongs to tick `asked_at + i`."""
    asked_at: int
    """Tick of the observation."""
    frame: Frame
    took_s: float
    """Inference alone, without waiting for the frame."""

    def action(self, tick: int) -> np.ndarray | None:
        """The action (8,) of a tick, None when the chunk does not reach that far."""
        index = tick - self.asked_at
        return self.actions[index] if 0 <= index < len(self.actions) else None

    @property
    def ends_at(self) -> int:
        """First tick without an action."""
        return self.asked_at + len(self.actions)


class PolicyFailed(RuntimeError):
    """The policy raised or answered with something that is no chunk; the rollout counts as its failure."""


TakeFrame = Callable[[float], Frame | None]
"""Waits for a frame of the world at a monotonic time or later; None when none comes."""


def think(
    policy: ChunkPolicy, take_frame: TakeFrame, state: np.ndarray, instruction: str, tick: int, seen_at_s: float
) -> Chunk | None:
    """One question and its answer; None when the camera gives no frame. Raises PolicyFailed."""
    frame = take_frame(seen_at_s)
    if frame is None:
        return None
    start = time.monotonic()
    try:
        actions = np.asarray(policy.act(frame.image, state.astype(np.float32), instruction), dtype=float)
    except Exception as error:
        raise PolicyFailed(" ".join(f"{type(error).__name__}: {error}".split())) from error
    if actions.ndim != 2 or not len(actions):
        raise PolicyFailed(f"a chunk has shape (n, 8), this one {actions.shape}")
    return Chunk(actions, tick, frame, time.monotonic() - start)


class Thinker:
    """One policy in one thread; one question at a time."""

    def __init__(self, policy: ChunkPolicy, take_frame: TakeFrame, instruction: str) -> None:
        self._policy, self._take_frame, self._instruction = policy, take_frame, instruction
        self._wake = threading.Condition()
        self._question: tuple[np.ndarray, int, float] | None = None
        self._answer: Chunk | PolicyFailed | None = None
        self._busy = self._done = False
        self._thread = threading.Thread(target=self._run, name="policy", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """No question is open."""
        return not self._busy

    def ask(self, state: np.ndarray, tick: int, seen_at_s: float) -> None:
        """Puts a question; returns at once."""
        with self._wake:
            self._busy, self._question = True, (state, tick, seen_at_s)
            self._wake.notify_all()

    def answer(self) -> Chunk | None:
        """The answer since the last call, None while there is none. Raises PolicyFailed."""
        with self._wake:
            answer, self._answer = self._answer, None
        if isinstance(answer, PolicyFailed):
            raise answer
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
                state, tick, seen_at_s = self._question
                self._question = None
            answer: Chunk | PolicyFailed | None
            try:
                answer = think(self._policy, self._take_frame, state, self._instruction, tick, seen_at_s)
            except PolicyFailed as failure:
                answer = failure
            with self._wake:
                self._answer, self._busy = answer, False
