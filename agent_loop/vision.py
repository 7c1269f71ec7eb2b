"""The describer that asks a vision-language model what a rollout's video shows, as the same structure as offline.

It is shown contact sheets and the stage timeline, never the verdict of a validation scene. Errors, retries, spend and
transcript are those of every model that is asked here (`coaches/client.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robocoach.agent_loop.coaches.client import Ledger, Limits, ModelClient, Transcript, usable_pictures
from robocoach.agent_loop.coaches.spend import Tokens
from robocoach.agent_loop.describe import Described, VideoSummary
from robocoach.configs.errors import UserError

PROMPT = Path(__file__).with_name("coaches") / "llm_prompts" / "describe.md"
NO_STAGE = "none"
TRANSCRIPT = "describe.jsonl"
"""Not the coach's transcript: the money of the two is counted apart."""


class VisionDescriber:
    """A vision-language model, `PROVIDER:MODEL`. Raises UserError when it is made without its key or price.

    `spent_usd` and `tokens` sum up all calls, those that failed too.
    """

    def __init__(self, provider: str, model: str, limits: Limits | None = None) -> None:
        self.name = f"{provider}:{model}"
        self.client = ModelClient(provider, model, limits or Limits(output_tokens=2_000))
        self.spent_usd = 0.0
        self.tokens = Tokens()
        self.client.check()

    def describe(
        self,
        instruction: str,
        timeline: Sequence[tuple[str, int | None]],
        sheets: Sequence[Path],
        *,
        workspace: Path,
        spend_left_usd: float,
    ) -> Described:
        """What one rollout's video shows.

        `timeline` has every stage in order with the tick (0.1 s) at which it was reached, None for never; `sheets` are
        its frames as pictures. The exchange is added to `describe.jsonl` in `workspace`. Raises UserError when there is
        no picture to show, RateLimited, or CoachFailed.
        """
        pictures = usable_pictures(sheets)
        if not pictures:
            raise UserError("there is no picture of this rollout to describe; film it, or use the describer of signals")
        stages = [name for name, _ in timeline]
        lines = [
            f"- {name}: {'never reached' if tick is None else f'reached at tick {tick}'}" for name, tick in timeline
        ]

        def accept(summary: VideoSummary) -> None:
            if summary.stage not in (*stages, NO_STAGE):
                raise ValueError(f"stage is {summary.stage!r}, expected one of {', '.join([*stages, NO_STAGE])}")

        ledger = Ledger(spend_left_usd)
        content = [f"Task: {instruction}\n\nTimeline of stages:\n" + "\n".join(lines), *pictures]
        prompt = PROMPT.read_text(encoding="utf-8")
        try:
            summary = self.client.ask(
                "describe", prompt, content, VideoSummary, ledger, Transcript(workspace, TRANSCRIPT), accept=accept
            )
        finally:
            self.spent_usd += ledger.spent_usd
            self.tokens += ledger.tokens
        return Described(described_by=self.name[:120], summary=summary)
