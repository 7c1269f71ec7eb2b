"""Checks on labels: instructions, success against gripper and stages, and episodes shorter than a stage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robocoach.datasets.check_findings import Fault, Finding

CLOSES = 0.15
"""A gripper has closed when its opening fell by this share."""
REOPENS = 0.5
"""It has opened again when it took back this share of what it had closed by."""
SHORTEST_S = 1.0
SHORT_SHARE = 0.25

NO_INSTRUCTION = Fault(
    "no instruction",
    "a language-conditioned policy has nothing to tell this episode's task by.",
    "write the instruction, or keep such episodes apart under one fixed text (`--real` does)",
)
NEVER_CLOSED = Fault(
    "success, but the gripper never closed",
    "nothing was grasped in an episode that counts as solved: a wrong label, or a task without a grasp.",
    "watch the episode and correct the label",
)
NEVER_OPENED = Fault(
    "success, but the gripper never opened again",
    "the object is still held at the end: the label is wrong, the end was cut off, or the task is to hold.",
    "watch the end of the episode and correct the label",
)
STAGE_MISSED = Fault(
    "success, but the last stage is not reached",
    "label and stages contradict each other; one of them is wrong.",
    "judge the episode again",
)
STAGE_REACHED = Fault(
    "failure, but the last stage is reached",
    "label and stages contradict each other, or the success did not last.",
    "watch the end of the episode and correct the label",
)
LOOKS_SOLVED = Fault(
    "failure that looks like a success",
    "the gripper closed and opened again as in a solved episode; the label may be wrong.",
    "watch the episode; a wrong label throws a good demonstration away",
)
FAILURES = Fault(
    "episodes marked as failures",
    "whoever trains on all episodes imitates these too.",
    "leave them out, unless they are meant as recovery data",
)
SHORT = Fault(
    "episode shorter than a stage",
    "it cannot hold the task: an aborted recording, or one that was cut.",
    "leave it out",
)
STAGE_ORDER = Fault(
    "stage index out of range",
    "there are more stages in the frames than the dataset names.",
    "write the stage names and the columns with the same version",
)


def instruction(task: str | None, unlabelled: str, episode: str) -> list[Finding]:
    """There is an instruction; None means that this kind of data has none."""
    if task is None or (task.strip() and task != unlabelled):
        return []
    return [Finding(NO_INSTRUCTION, "warning", "the text is empty", episode)]


def success(
    label: bool | None, opening: np.ndarray | None, stages: np.ndarray | None, last_stage: int | None, episode: str
) -> list[Finding]:
    """A label against stages (T,) and the gripper's opening (T,), 0 closed to 1 open.

    Stages, where they are known, say more than the gripper: a hammer stays in the hand.
    """
    if label is None:
        return []
    known = stages is not None and len(stages) and int(np.max(stages)) >= 0
    if known and last_stage is not None and stages is not None:
        reached = int(np.max(stages))
        if label and reached < last_stage:
            what = f"stage {reached} is the highest, the last is {last_stage}"
            return [Finding(STAGE_MISSED, "error", what, episode, len(stages) - 1)]
        if not label and int(stages[-1]) >= last_stage:
            return [Finding(STAGE_REACHED, "note", f"it ends in stage {int(stages[-1])}", episode, len(stages) - 1)]
        return []
    if opening is None or not len(opening):
        return []
    at, opened = grasp(opening)
    if label and at is None:
        what = f"its opening stays within {float(np.ptp(opening)):.0%}"
        return [Finding(NEVER_CLOSED, "warning", what, episode)]
    if label and not opened:
        what = f"closed at frame {at}, {opening[-1]:.0%} open at the end"
        return [Finding(NEVER_OPENED, "warning", what, episode, at, len(opening) - (at or 0))]
    if not label and opened:
        return [Finding(LOOKS_SOLVED, "note", f"closed at frame {at}, opened again after it", episode, at)]
    return []


def grasp(opening: np.ndarray) -> tuple[int | None, bool]:
    """Frame at which a gripper with this opening (T,) first closes, None when never, and whether it opens after it."""
    fallen = np.maximum.accumulate(opening) - opening
    if fallen.max() < CLOSES:
        return None, False
    at = int(np.argmax(fallen >= CLOSES))
    peak, after = float(np.max(opening[: at + 1])), opening[at:]
    lowest = np.minimum.accumulate(after)
    return at, bool((after - lowest >= REOPENS * (peak - lowest)).any())


def stage_range(stages: np.ndarray | None, names: int, episode: str) -> list[Finding]:
    """Stages (T,) lie below the number of names; an index equal to it says that all are done."""
    if stages is None or not len(stages) or not names or int(np.max(stages)) <= names:
        return []
    at = int(np.argmax(stages > names))
    what = f"stage {int(np.max(stages))} where {names} are named"
    return [Finding(STAGE_ORDER, "error", what, episode, at)]


def stage_length(stages: np.ndarray | None) -> float | None:
    """Frames that a stage of this episode lasts on average; None when the stages are not known."""
    if stages is None or not len(stages) or int(np.min(stages)) < 0:
        return None
    return len(stages) / len(np.unique(stages))


def lengths(
    episodes: Sequence[str], frames: Sequence[int], stage_frames: Sequence[float], rate_hz: float | None
) -> list[Finding]:
    """Episodes long enough to hold a stage.

    The usual stage is the median of `stage_frames`; where no stages are known, a second or a quarter of the usual
    episode.
    """
    if not frames:
        return []
    usual = float(np.median(frames))
    if stage_frames:
        least, reason = float(np.median(stage_frames)), "a stage lasts {:.0f}"
    else:
        second = SHORTEST_S * rate_hz if rate_hz else 0.0
        least, reason = max(second, SHORT_SHARE * usual), "expected at least {:.0f}"
    found = []
    for episode, count in zip(episodes, frames, strict=True):
        if count < least:
            what = f"{count} frames, {reason.format(least)}, the usual episode {usual:.0f}"
            found.append(Finding(SHORT, "warning", what, episode))
    return found


def failures(marked: int, labelled: int) -> list[Finding]:
    """How many episodes are marked as failures."""
    return [Finding(FAILURES, "note", f"{marked} of {labelled}")] if marked else []
