"""The end of a campaign: winner and attempt 0 on held-out scenes that nothing has run before, paired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robocoach.agent_loop import summary
from robocoach.agent_loop.engine.running import Running, counted
from robocoach.agent_loop.statistics import Rate, pair
from robocoach.agent_loop.store import Attempt


def confirm(run: Running) -> None:
    """Winner and attempt 0 on held-out seeds that nothing has run before, paired."""
    attempts = run.store.attempts()
    winner = summary.best(attempts)
    if winner is None:
        run.say("no attempt was measured: nothing to confirm")
        return
    known = run.store.get("confirm")
    if known is not None and known["winner"] == winner and known["attempts"] == len(attempts):
        return
    block = int(run.store.get("heldout_block", -1)) + (0 if run.store.get("confirming", False) else 1)
    run.store.put(heldout_block=block, confirming=True)
    seeds = run.seeds("heldout", run.base.evaluate.heldout_rollouts, block)
    found = {}
    for number in dict.fromkeys((winner, 0)):
        run.account({"attempt": number, "phase": "confirming"}, force=True)
        found[number] = _heldout(run, attempts[number], seeds, block)
        run.store.advance(number, attempts[number].state, heldout=found[number])
        run.say(f"held-out, attempt {number}: {Rate(found[number]['successes'], found[number]['n'])}")
    paired = pair(found[0]["outcomes"], found[winner]["outcomes"])
    run.store.put(
        confirming=False,
        confirm={
            "winner": winner,
            "attempts": len(attempts),
            "block": block,
            "only_winner": paired.only_b,
            "only_base": paired.only_a,
            "mcnemar_p": paired.p_value,
            "heldout": found[winner],
            "heldout_base": found[0],
        },
    )


def _heldout(run: Running, attempt: Attempt, seeds: Sequence[int], block: int) -> dict[str, Any]:
    checkpoint = run.checkpoint(attempt.number)
    if checkpoint is None:
        return {**counted(()), "n": len(seeds), "outcomes": [False] * len(seeds)}
    folder = run.folder / "heldout" / f"{attempt.number:04d}" / f"{block}"
    return counted(run.workshop.rollouts(run.job(attempt, 0), checkpoint, seeds, folder))
