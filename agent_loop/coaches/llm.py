"""The coach that asks a language model, in RoboCoach's two roles: a feedback agent chooses from where to go on and
advises, a proposing agent turns the advice into a change of settings.

Both read the task document first, then the tree, the report, the lessons and contact sheets of rollouts; the feedback
agent can query the training's curves. Answers are checked against the schema and go back with the reason when they
break it. Prompts are the files beside this one. What the model says is a proposal like any other: the guard decides.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from robocoach.agent_loop import metrics
from robocoach.agent_loop.coaches.briefing import plain_schema, report_text, tree_text, tunable_settings
from robocoach.agent_loop.coaches.client import Ledger, Limits, ModelClient, SpendCap, Transcript, usable_pictures
from robocoach.agent_loop.coaches.spend import Tokens
from robocoach.agent_loop.lessons import lesson_from
from robocoach.agent_loop.proposal import Proposal
from robocoach.agent_loop.tree import CoachFailed, View
from robocoach.configs.errors import UserError
from robocoach.configs.fields import fields, nearest

PROMPTS = Path(__file__).with_name("llm_prompts")
Text = Annotated[str, Field(max_length=2_000)]


class Move(BaseModel):
    """The feedback agent's answer."""

    model_config = ConfigDict(extra="forbid")

    move: Literal["extend", "roll back", "restart"] = Field(description="from where the next attempt goes on")
    parent: int | None = Field(None, description="only with extend: a measured attempt other than the incumbent")
    reason: Text = Field(description="why, quoting numbers")
    advice: Text = Field(description="to the proposing agent")


class Change(BaseModel):
    """The proposing agent's answer; `change` gets the campaign's schema."""

    model_config = ConfigDict(extra="forbid")

    diagnosis: str = Field(max_length=80, description="short name of what is wrong")
    rationale: Text = Field(description="one to three sentences that quote the number which caused the change")
    start: Literal["parent", "base"] = Field("parent", description="whose weights the attempt begins with")
    change: dict[str, Any] = Field(description="dotted key to new value; empty when nothing could help")


class Taught(BaseModel):
    """What an attempt taught; an empty claim is no lesson."""

    model_config = ConfigDict(extra="forbid")

    claim: str = Field(max_length=400)
    applies: str = Field("", max_length=400)
    check: str = Field("", max_length=400)
    instead: str = Field("", max_length=400)
    side: Literal["supports", "contradicts"] = "supports"


class Accounts:
    """What was spent on questions and not yet told in a proposal, over restarts of the campaign too.

    A question that failed, or was deferred, has its money told with the next proposal that is made.
    """

    def __init__(self) -> None:
        self._untold: dict[Path, tuple[Tokens, float]] = {}

    def open(self, transcript: Transcript) -> None:
        """Takes over what an earlier process spent in this workspace and did not tell."""
        if transcript.path in self._untold:
            return
        tokens, spent = Tokens(), 0.0
        for record in transcript.records():
            if "told_usd" in record:
                tokens, spent = Tokens(), 0.0
            elif "cost_usd" in record:
                tokens, spent = tokens + Tokens(**record["tokens"]), spent + float(record["cost_usd"])
        self._untold[transcript.path] = (tokens, spent)

    def add(self, transcript: Transcript, tokens: Tokens, spent_usd: float) -> None:
        """Adds what a question cost."""
        before = self._untold[transcript.path]
        self._untold[transcript.path] = (before[0] + tokens, before[1] + spent_usd)

    @property
    def untold_usd(self) -> float:
        """Money that no proposal has told yet."""
        return sum(spent for _, spent in self._untold.values())

    def tell(self) -> tuple[Tokens, float]:
        """Tokens and money for the proposal that is about to be returned; from here on they are its."""
        tokens, total = Tokens(), 0.0
        for path, (used, spent) in self._untold.items():
            if used != Tokens() or spent:
                Transcript(path.parent).append({"told_usd": spent})
            tokens, total = tokens + used, total + spent
            self._untold[path] = (Tokens(), 0.0)
        return tokens, total


class LLMCoach:
    """`llm:PROVIDER:MODEL`. Raises UserError when it is made without the model's key or price."""

    whole_budget = False

    def __init__(self, provider: str, model: str, limits: Limits | None = None) -> None:
        self.name = f"llm:{provider}:{model}"
        self.client = ModelClient(provider, model, limits or Limits())
        self.accounts = Accounts()
        self._turn = threading.RLock()  # lanes of one campaign ask one after the other
        self._seen: tuple[Path, float] | None = None
        self._told_usd = 0.0
        self.client.check()

    def propose(self, view: View) -> Proposal | None:
        """Asks both agents. None when the proposing agent would change nothing."""
        with self._turn:
            if not view.measured:
                raise CoachFailed("no attempt is measured yet, so there is nothing to learn from")
            evidence = self._evidence(view)
            move = self._ask(view, "feedback", [*evidence, _choices(view)], Move, accept=lambda m: _check(view, m))
            parent = _parent(view, move)
            question = (
                f"# Advice of the feedback agent\n\nMove: {move.move}. Parent: attempt {parent}."
                f"\nReason: {move.reason}\nAdvice: {move.advice}\n\n{_settings(view, parent)}"
            )
            answer = self._ask(view, "proposing", [*evidence, question], _change_model(view))
            start = "base" if move.move == "restart" else answer.start
            return self._proposal(view, parent, start, answer, {"move": move.move, "advice": move.advice})

    def mend(self, view: View, refused: Proposal, reason: str) -> Proposal | None:
        """Sends the reason back to the proposing agent, which may also name another measured attempt as parent."""
        with self._turn:
            known = {"parent": refused.parent, "start": refused.start, "change": dict(refused.change)}
            question = (
                f"{_prompt('mend')}\n\nReason: {reason}\n\nYour proposal: {json.dumps(known)}"
                f"\nIts rationale: {refused.rationale}\n\n{_settings(view, _existing(view, refused.parent))}"
            )
            answer = self._ask(view, "proposing", [*self._evidence(view), question], _mended_model(view))
            return self._proposal(view, answer.parent, answer.start, answer, {"mended": reason[:400]})

    def lesson(self, view: View, number: int) -> Mapping[str, Any] | None:
        """Asks for one lesson on an attempt; None when it taught nothing, or too little money is left to ask."""
        with self._turn:
            node = view.node(number)
            if node.parent is None or node.batch is None:
                return None
            before = view.node(node.parent).batch
            result = f"{_counted(before)} to {_counted(node.batch)}"
            sighting = {"campaign": node.folder.parent.parent.name or "campaign", "attempt": number, "result": result}

            def values(taught: Taught) -> dict[str, Any]:
                words = taught.model_dump(include={"claim", "applies", "check", "instead"})
                return {**words, taught.side: [sighting]}

            def accept(taught: Taught) -> None:
                if taught.claim.strip():
                    try:
                        lesson_from(values(taught))
                    except UserError as error:
                        raise ValueError(str(error)) from None

            question = f"Attempt {number}, a child of attempt {node.parent}: train rollouts {result}."
            evidence = self._evidence(view, pictures=False)
            try:
                taught = self._ask(view, "lesson", [*evidence, question], Taught, accept=accept)
            except SpendCap:
                return None
            return values(taught) if taught.claim.strip() else None

    # --- asking ------------------------------------------------------------------------------------------------------

    def _ask[Answer: BaseModel](
        self,
        view: View,
        role: str,
        content: Sequence[str | Path],
        answer: type[Answer],
        accept: Callable[[Answer], None] = lambda found: None,
    ) -> Answer:
        transcript = Transcript(view.workspace)
        self.accounts.open(transcript)
        if self._seen != (view.workspace, view.spend_left_usd):
            self._seen, self._told_usd = (view.workspace, view.spend_left_usd), 0.0
        # The view was made before what was told since; what is untold is in no view.
        ledger = Ledger(view.spend_left_usd - self._told_usd - self.accounts.untold_usd)
        tools = _number_tools(view) if role == "feedback" else ()
        instructions = f"{_prompt('common')}\n{_prompt(role)}"
        try:
            return self.client.ask(role, instructions, content, answer, ledger, transcript, tools=tools, accept=accept)
        finally:
            self.accounts.add(transcript, ledger.tokens, ledger.spent_usd)

    def _evidence(self, view: View, *, pictures: bool = True) -> list[str | Path]:
        """What both agents read, in this order, as texts and pictures."""
        content: list[str | Path] = [
            f"# Task document\n\n{view.task_document}",
            f"# Tree of attempts\n\n{tree_text(view)}",
            f"# Report on the latest attempt\n\n{report_text(view)}",
        ]
        if view.lessons:
            lines = "\n".join(json.dumps(dict(one), ensure_ascii=False) for one in view.lessons)
            content.append(f"# Lessons of past campaigns, other tasks included\n\n{lines}")
        if pictures and "video" not in view.without:
            latest = view.measured[-1].number
            for sheet in usable_pictures(view.pictures(latest)):
                content += [f"Contact sheet of attempt {latest}, rollout {sheet.stem}:", sheet]
        return content

    def _proposal(
        self, view: View, parent: int, start: Literal["parent", "base"], answer: Change, said: Mapping[str, Any]
    ) -> Proposal | None:
        if not answer.change:
            return None
        tokens, cost_usd = self.accounts.tell()
        self._told_usd += cost_usd
        return Proposal(
            parent=parent,
            coach=self.name,
            rule=_printable(answer.diagnosis),
            rationale=answer.rationale,
            change=answer.change,
            evidence={**said, "tokens": asdict(tokens)},
            cost_usd=cost_usd,
            start=start,
        )


def _prompt(name: str) -> str:
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8")


def _printable(text: str) -> str:
    return "".join(sign for sign in " ".join(text.split()) if sign.isprintable())


def _counted(batch: Any) -> str:
    return "not measured" if batch is None else f"{batch.successes}/{batch.n}"


def _measured_numbers(view: View) -> tuple[int, ...]:
    return tuple(node.number for node in view.measured)


def _existing(view: View, number: int) -> int:
    return number if number in _measured_numbers(view) else view.incumbent


def _choices(view: View) -> str:
    """What the feedback agent may choose from."""
    if "branching" in view.without:
        return (
            f"# Your choice\n\nBranching is switched off in this campaign: the move is extend, from the latest attempt "
            f"{view.measured[-1].number}. Leave parent empty."
        )
    return (
        f"# Your choice\n\nextend: the incumbent is attempt {view.incumbent}. roll back: the best is attempt "
        f"{view.best}. restart: attempt 0's settings and the weights that it began with. Measured attempts: "
        f"{', '.join(map(str, _measured_numbers(view)))}."
    )


def _check(view: View, move: Move) -> None:
    """Raises ValueError with the reason when a move names what is not there."""
    if "branching" in view.without and (move.move != "extend" or move.parent not in (None, view.measured[-1].number)):
        raise ValueError("branching is switched off: the move is extend, with parent left empty")
    if move.move == "extend" and move.parent is not None and move.parent not in _measured_numbers(view):
        numbers = ", ".join(map(str, _measured_numbers(view)))
        raise ValueError(f"attempt {move.parent} was not measured; parent is one of {numbers}, or empty")


def _parent(view: View, move: Move) -> int:
    if "branching" in view.without:
        return view.measured[-1].number
    if move.move == "extend":
        return _existing(view, view.incumbent if move.parent is None else move.parent)
    return view.best if move.move == "roll back" else 0


def _settings(view: View, parent: int) -> str:
    return f"# Settings of attempt {parent} that may be changed\n\n{json.dumps(tunable_settings(view, parent))}"


def _change_model(view: View) -> type[Change]:
    """`Change` with the campaign's own schema, its keys and bounds checked."""

    def checked(change: dict[str, Any]) -> dict[str, Any]:
        return checked_change(change, view.schema)

    kind = Annotated[dict[str, Any], AfterValidator(checked), WithJsonSchema(plain_schema(view.schema))]
    return create_model("ChangeOfSettings", __base__=Change, change=(kind, ...))


def _mended_model(view: View) -> Any:
    """The same with a parent."""

    def measured(number: int) -> int:
        if number not in _measured_numbers(view):
            raise ValueError(f"attempt {number} was not measured; choose one that was")
        return number

    kind = Annotated[int, AfterValidator(measured)]
    return create_model("MendedChange", __base__=_change_model(view), parent=(kind, Field(description="the attempt")))


def checked_change(change: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The change when each key is in the schema and each value within its bounds; 8.0 counts as the whole number 8.

    Raises ValueError, one line, for the first that is not.
    """
    allowed, specs, found = tuple(schema.get("properties", {})), fields(), {}
    for key, value in change.items():
        if key not in allowed or key not in specs:
            raise ValueError(f"{key} is not in the schema; the nearest is {nearest(key, allowed)}")
        if specs[key].kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not specs[key].holds(value):
            raise ValueError(f"{key} is {value!r}, expected {specs[key].bounds}")
        found[key] = value
    most = schema.get("maxProperties", len(allowed))
    if len(found) > most:
        raise ValueError(f"{len(found)} settings are changed, expected at most {most}")
    return found


def _number_tools(view: View) -> Sequence[Callable[..., Any]]:
    """The query of training curves, unless the numbers are switched off."""
    if "numbers" in view.without:
        return ()
    folders = {node.number: node.folder for node in view.measured}

    def training_curve(
        metric: str, attempts: list[int], first_step: int | None = None, last_step: int | None = None
    ) -> str:
        """One metric of the training of several attempts, by step, thinned to a few rows an attempt.

        Args:
            metric: such as loss, grad_norm, lr, samples_per_s, validation_loss; a wrong name is answered with others.
            attempts: numbers of measured attempts to compare.
            first_step: leave out earlier steps.
            last_step: leave out later steps.
        """
        wanted = {number: folders[number] for number in attempts if number in folders}
        if not wanted:
            return f"none of these attempts is measured; measured are {', '.join(map(str, folders))}"
        try:
            return metrics.table(metrics.query(wanted, metric, (first_step, last_step)), rows=24)
        except UserError as error:
            return str(error)

    return (training_curve,)
