"""The coach that asks a model, through pydantic-ai's real client against a server on loopback."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import provider_server as replies
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_views import HIDDEN, small_view
from provider_server import ProviderServer, provider_server
from table_workshop import FACTS, TableWorkshop

from robocoach.agent_loop.coaches import client as model_client
from robocoach.agent_loop.coaches.client import Limits, without_secrets
from robocoach.agent_loop.coaches.llm import LLMCoach, checked_change
from robocoach.agent_loop.engine import Engine, Running
from robocoach.agent_loop.guard import change_schema, guard
from robocoach.agent_loop.store import Campaign
from robocoach.agent_loop.tree import CoachFailed, RateLimited, View
from robocoach.configs import load
from robocoach.configs.errors import UserError
from robocoach.configs.models import Sim2RealConfig

KEY = "sk-loopback-5d1f-never-to-be-written"
QUICK = Limits(timeout_s=4.0, output_tokens=1_000, tries=3, pause_s=0.01)
MOVE = {"move": "roll back", "parent": None, "reason": "5 of 10 against 2 of 10", "advice": "close later"}
CHANGE = {
    "diagnosis": "closes too early",
    "rationale": "11 mm short",
    "start": "parent",
    "change": {"train.learning_rate": 1e-4},
}
LESSON = {"claim": "Execute fewer steps", "applies": "grasps miss", "check": "halve them", "instead": "look more often"}
EXCHANGE_USD = (600 * 1 + 400 * 0.1 + 100 * 10) / 1e6
"""What one answer of the server costs: 1000 tokens in, 400 of them cached, 100 out."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ProviderServer]:
    with provider_server() as running:
        monkeypatch.setenv("ROBOCOACH_LESSONS", str(tmp_path / "lessons"))
        monkeypatch.setenv("OPENAI_BASE_URL", f"{running.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", running.url)
        monkeypatch.setenv("GOOGLE_API_KEY", KEY)
        monkeypatch.setenv("ROBOCOACH_PRICE_INPUT", "1")
        monkeypatch.setenv("ROBOCOACH_PRICE_CACHED", "0.1")
        monkeypatch.setenv("ROBOCOACH_PRICE_OUTPUT", "10")
        yield running


@pytest.fixture
def view(tmp_path: Path) -> View:
    return small_view(tmp_path / "run")


def coach(limits: Limits = QUICK, provider: str = "openai") -> LLMCoach:
    return LLMCoach(provider, "test-model", limits)


def texts(body: dict[str, Any]) -> list[str]:
    """Every text that a request shows the model, in order."""
    found = []
    for message in body["messages"]:
        content = message.get("content") or []
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [part["text"] for part in parts if part["type"] == "text"]
    return found


def pictures(body: dict[str, Any]) -> int:
    parts = [part for message in body["messages"] for part in message.get("content") or [] if isinstance(part, dict)]
    return sum(part["type"] == "image_url" for part in parts)


# --- the two roles ---------------------------------------------------------------------------------------------------


def test_advice_of_the_feedback_agent_reaches_the_proposing_agent(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(MOVE), replies.answers(CHANGE))
    proposal = coach().propose(view)
    assert proposal is not None
    assert (proposal.parent, proposal.start, dict(proposal.change)) == (2, "parent", {"train.learning_rate": 1e-4})
    assert any("close later" in text for text in texts(server.asked[1].body))
    guard(proposal, view.nodes)


def test_task_document_comes_before_everything_else_that_is_shown(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(MOVE), replies.answers(CHANGE))
    coach().propose(view)
    for asked in server.asked:
        system, first, *_ = texts(asked.body)
        assert "one layout" in system and "never see" in system
        assert view.task_document in first


def test_proposing_agent_is_given_the_schema_with_its_bounds(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(MOVE), replies.answers(CHANGE))
    coach().propose(view)
    shown = server.asked[1].body["tools"][-1]["function"]["parameters"]["properties"]["change"]["properties"]
    assert set(shown) == set(view.schema["properties"])
    assert shown["train.executed_steps"]["minimum"] == 1 and shown["train.executed_steps"]["maximum"] == 100


def test_no_path_and_no_validation_result_is_shown(server: ProviderServer, view: View, tmp_path: Path) -> None:
    server.queue(replies.answers(MOVE), replies.answers(CHANGE))
    coach().propose(view)
    shown = json.dumps([asked.body for asked in server.asked])
    assert str(tmp_path) not in shown and HIDDEN not in shown


@pytest.mark.parametrize(
    ("move", "parent", "expected"),
    [("extend", None, (1, "parent")), ("extend", 0, (0, "parent")), ("restart", None, (0, "base"))],
)
def test_move_chooses_parent_and_weights(
    server: ProviderServer, view: View, move: str, parent: int | None, expected: tuple[int, str]
) -> None:
    server.queue(replies.answers({**MOVE, "move": move, "parent": parent}), replies.answers(CHANGE))
    proposal = coach().propose(view)
    assert proposal is not None and (proposal.parent, proposal.start) == expected


def test_parent_that_was_not_measured_goes_back_with_the_reason(server: ProviderServer, view: View) -> None:
    server.queue(
        replies.answers({**MOVE, "move": "extend", "parent": 9}), replies.answers(MOVE), replies.answers(CHANGE)
    )
    assert coach().propose(view) is not None
    assert "attempt 9 was not measured" in json.dumps(server.asked[1].body)


def test_without_branching_the_parent_is_the_latest_attempt(server: ProviderServer, view: View) -> None:
    server.queue(
        replies.answers(MOVE), replies.answers({**MOVE, "move": "extend", "parent": None}), replies.answers(CHANGE)
    )
    proposal = coach().propose(replace(view, without=frozenset({"branching"})))
    assert proposal is not None and proposal.parent == 2
    assert "branching is switched off" in json.dumps(server.asked[1].body)


def test_an_empty_change_is_no_proposal(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(MOVE), replies.answers({**CHANGE, "change": {}}))
    assert coach().propose(view) is None


# --- channels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("without", "count"), [(frozenset(), 1), (frozenset({"video"}), 0)])
def test_pictures_go_as_images_unless_the_video_is_off(
    server: ProviderServer, view: View, without: frozenset[str], count: int
) -> None:
    server.queue(replies.answers(MOVE), replies.answers(CHANGE))
    coach().propose(replace(view, without=without))
    assert [pictures(asked.body) for asked in server.asked] == [count, count]


def test_curves_can_be_queried(server: ProviderServer, view: View) -> None:
    asks = {"metric": "loss", "attempts": [0, 2], "first_step": 10, "last_step": 20}
    server.queue(replies.answers(asks, tool="training_curve"), replies.answers(MOVE), replies.answers(CHANGE))
    assert coach().propose(view) is not None
    answer = next(one["content"] for one in server.asked[1].body["messages"] if one["role"] == "tool")
    assert "attempt 2" in answer and "11 rows" in answer


def test_curves_cannot_be_queried_when_the_numbers_are_off(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(MOVE), replies.answers(CHANGE))
    coach().propose(replace(view, without=frozenset({"numbers"})))
    assert "training_curve" not in [tool["function"]["name"] for tool in server.asked[0].body["tools"]]


# --- answers that are wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (replies.answers('{"move": "extend", "rea'), "JSON"),
        (replies.answers({"move": "sideways"}), "roll back"),
        (replies.answers({**MOVE, "surprise": 1}), "surprise"),
        (replies.says("I would extend."), ""),
    ],
)
def test_a_wrong_answer_goes_back_and_the_next_one_counts(
    server: ProviderServer, view: View, wrong: Any, reason: str
) -> None:
    server.queue(wrong, replies.answers(MOVE), replies.answers(CHANGE))
    assert coach().propose(view) is not None
    assert reason in json.dumps(server.asked[1].body["messages"][-1])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"train.learning_rate": 1e9}, "expected a number"),
        ({"evaluate.train_rollouts": 1}, "not in the schema"),
        ({"train.executed_steps": 2.5}, "whole number"),
    ],
)
def test_a_change_that_breaks_the_schema_goes_back_with_the_bounds(
    server: ProviderServer, view: View, change: dict[str, Any], reason: str
) -> None:
    server.queue(replies.answers(MOVE), replies.answers({**CHANGE, "change": change}), replies.answers(CHANGE))
    assert coach().propose(view) is not None
    assert reason in json.dumps(server.asked[2].body["messages"][-1])


def test_corrections_are_bounded(server: ProviderServer, view: View) -> None:
    server.queue(*[replies.answers({"move": "sideways"})] * 9)
    with pytest.raises(CoachFailed, match="retries"):
        coach().propose(view)
    assert len(server.asked) == 1 + model_client.CORRECTIONS


@pytest.mark.parametrize(
    "reply",
    [
        replies.refuses(401, f"Incorrect API key provided: {KEY}"),
        replies.refuses(403, "not allowed"),
        replies.refuses(400, "content policy", code="content_policy_violation"),
        replies.refuses(429, "no money left", code="insufficient_quota"),
        replies.says("", finish="content_filter"),
        replies.says('{"move": "ext', finish="length"),
        replies.sends(b"<html>it works</html>"),
        replies.sends(b'{"choices": []}'),
        replies.sends(b'{"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [null]}'),
        replies.sends(b"x" * (model_client.LARGEST_ANSWER_BYTES + 1)),
    ],
    ids=["key", "forbidden", "policy", "quota", "filter", "cut off", "html", "other json", "odd", "huge"],
)
def test_a_refusal_or_an_unreadable_answer_fails_the_round_at_once(
    server: ProviderServer, view: View, reply: Any
) -> None:
    server.queue(reply)
    with pytest.raises(CoachFailed) as failed:
        coach().propose(view)
    assert len(server.asked) == 1
    assert KEY not in str(failed.value) and "\n" not in str(failed.value)


def test_an_answer_may_use_no_more_tokens_than_allowed(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(MOVE), replies.answers(CHANGE))
    coach().propose(view)
    sent = server.asked[0].body
    assert (sent.get("max_tokens") or sent.get("max_completion_tokens")) == QUICK.output_tokens


@pytest.mark.parametrize(("headers", "wait_s"), [({"retry-after": "17"}, 17.0), ({}, model_client.DEFAULT_WAIT_S)])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_rate_limit_defers_the_round(
    server: ProviderServer, view: View, headers: dict[str, str], wait_s: float, provider: str
) -> None:
    server.queue(replies.refuses(429, "too fast", headers))
    with pytest.raises(RateLimited) as limited:
        coach(provider=provider).propose(view)
    assert limited.value.wait_s == wait_s
    assert len(server.asked) == 1


def test_a_server_error_is_tried_again(server: ProviderServer, view: View) -> None:
    server.queue(replies.refuses(503, "busy"), replies.sends(b'{"id": ', 400), replies.answers(MOVE))
    server.queue(replies.answers(CHANGE))
    assert coach().propose(view) is not None


@pytest.mark.parametrize("reply", [replies.refuses(500, "broken"), replies.sends(b'{"id": "chat', 400)])
def test_tries_are_bounded(server: ProviderServer, view: View, reply: Any) -> None:
    server.queue(*[reply] * 9)
    with pytest.raises(CoachFailed):
        coach().propose(view)
    assert len(server.asked) == QUICK.tries


def test_a_server_that_is_silent_is_left(server: ProviderServer, view: View) -> None:
    server.queue(replies.waits(1.5))
    began = time.monotonic()
    with pytest.raises(CoachFailed, match="timed out"):
        coach(replace(QUICK, timeout_s=0.3)).propose(view)
    assert time.monotonic() - began < 1.4


def test_anthropic_is_asked_in_its_own_protocol(server: ProviderServer, view: View) -> None:
    server.queue(replies.anthropic_answers(MOVE), replies.anthropic_answers(CHANGE))
    proposal = coach(provider="anthropic").propose(view)
    assert proposal is not None and proposal.parent == 2
    assert {asked.path.partition("?")[0] for asked in server.asked} == {"/v1/messages"}
    assert proposal.evidence["tokens"] == {"input": 2000, "cached": 800, "output": 200}


def test_google_is_asked_in_its_own_protocol(server: ProviderServer, view: View) -> None:
    server.queue(replies.google_answers(MOVE), replies.google_answers(CHANGE))
    proposal = coach(provider="google").propose(view)
    assert proposal is not None and dict(proposal.change) == CHANGE["change"]
    assert all(asked.path.endswith("test-model:generateContent") for asked in server.asked)
    assert proposal.evidence["tokens"] == {"input": 2000, "cached": 800, "output": 200}


# --- keys, prices, spend ---------------------------------------------------------------------------------------------


def test_a_missing_key_is_named_before_any_work(server: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(UserError, match="ANTHROPIC_API_KEY"):
        coach(provider="anthropic")


def test_an_unknown_provider_is_refused_before_any_work(server: ProviderServer) -> None:
    with pytest.raises(UserError, match="no-such-provider"):
        coach(provider="no-such-provider")


@pytest.mark.parametrize(
    ("prices", "named"),
    [
        ({}, "ROBOCOACH_PRICE_INPUT"),
        ({"ROBOCOACH_PRICE_INPUT": "1"}, "ROBOCOACH_PRICE_OUTPUT"),
        ({"ROBOCOACH_PRICE_INPUT": "cheap", "ROBOCOACH_PRICE_OUTPUT": "1"}, "cheap"),
        ({"ROBOCOACH_PRICE_INPUT": "-1", "ROBOCOACH_PRICE_OUTPUT": "1"}, "-1"),
        ({"ROBOCOACH_PRICE_INPUT": "nan", "ROBOCOACH_PRICE_OUTPUT": "1"}, "nan"),
    ],
)
def test_a_model_without_a_price_is_refused(
    server: ProviderServer, monkeypatch: pytest.MonkeyPatch, prices: dict[str, str], named: str
) -> None:
    for name in ("ROBOCOACH_PRICE_INPUT", "ROBOCOACH_PRICE_CACHED", "ROBOCOACH_PRICE_OUTPUT"):
        monkeypatch.delenv(name)
    for name, value in prices.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=named):
        coach()


def test_a_known_model_needs_no_price_of_the_operator(server: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROBOCOACH_PRICE_INPUT", "ROBOCOACH_PRICE_CACHED", "ROBOCOACH_PRICE_OUTPUT"):
        monkeypatch.delenv(name)
    assert LLMCoach("openai", "gpt-4o").client.check().source == "genai-prices"


def test_tokens_and_money_are_in_the_proposal(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(MOVE), replies.answers(CHANGE))
    proposal = coach().propose(view)
    assert proposal is not None
    assert proposal.cost_usd == pytest.approx(2 * EXCHANGE_USD)
    assert proposal.evidence["tokens"] == {"input": 2000, "cached": 800, "output": 200}


def test_an_answer_without_usage_costs_what_it_could_have(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(MOVE, usage=None), replies.answers(CHANGE))
    proposal = coach().propose(view)
    assert proposal is not None and proposal.cost_usd > EXCHANGE_USD + QUICK.output_tokens * 10 / 1e6


@pytest.mark.filterwarnings("ignore:Failed to extract usage")
@pytest.mark.parametrize("count", [-500_000, 0])
def test_an_impossible_usage_makes_nothing_cheaper(server: ProviderServer, view: View, count: int) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": count, "total_tokens": 2 * count}
    server.queue(replies.answers(MOVE, usage=usage), replies.answers(CHANGE))
    proposal = coach().propose(view)
    assert proposal is not None and proposal.cost_usd > EXCHANGE_USD + QUICK.output_tokens * 10 / 1e6


def test_nothing_is_asked_that_could_break_the_cap(server: ProviderServer, view: View) -> None:
    with pytest.raises(CoachFailed, match="spend_usd"):
        coach().propose(replace(view, spend_left_usd=0.005))
    assert not server.asked


def test_the_cap_holds_between_the_two_questions(server: ProviderServer, view: View) -> None:
    dear = {"prompt_tokens": 100, "completion_tokens": 90_000, "total_tokens": 90_100}
    server.queue(replies.answers(MOVE, usage=dear), replies.answers(CHANGE))
    with pytest.raises(CoachFailed, match="spend_usd"):
        coach().propose(replace(view, spend_left_usd=0.9))
    assert len(server.asked) == 1


def test_money_of_a_deferred_round_is_told_with_the_next_proposal(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(MOVE), replies.refuses(429, "too fast"))
    with pytest.raises(RateLimited):
        coach().propose(view)
    server.queue(replies.answers(MOVE), replies.answers(CHANGE))
    proposal = coach().propose(view)  # another process, after a kill
    assert proposal is not None and proposal.cost_usd == pytest.approx(3 * EXCHANGE_USD)


def test_mending_costs_only_what_it_adds(server: ProviderServer, view: View) -> None:
    server.queue(*[replies.answers(MOVE), replies.answers(CHANGE), replies.answers({**CHANGE, "parent": 0})])
    asked = coach()
    refused = asked.propose(view)
    assert refused is not None
    mended = asked.mend(view, refused, "the proposal changes nothing")
    assert mended is not None and mended.cost_usd == pytest.approx(EXCHANGE_USD)


# --- mending, lessons, what is kept ----------------------------------------------------------------------------------


def test_mending_sends_the_reason_back(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(MOVE), replies.answers(CHANGE))
    server.queue(replies.answers({**CHANGE, "parent": 0, "start": "base", "change": {"train.ema": 0.99}}))
    asked = coach()
    refused = asked.propose(view)
    assert refused is not None
    mended = asked.mend(view, refused, "attempt 2 left no checkpoint; propose start base")
    assert mended is not None and (mended.parent, mended.start) == (0, "base")
    assert "attempt 2 left no checkpoint" in texts(server.asked[2].body)[-1]


def test_a_lesson_names_the_attempt_that_speaks_for_it(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers(LESSON))
    lesson = coach().lesson(view, 2)
    assert lesson is not None
    assert lesson["supports"] == [{"campaign": "run", "attempt": 2, "result": "3/10 to 5/10"}]


def test_a_lesson_with_coordinates_goes_back(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers({**LESSON, "claim": "grasp at x = 0.42"}), replies.answers(LESSON))
    lesson = coach().lesson(view, 2)
    assert lesson is not None and lesson["claim"] == LESSON["claim"]
    assert "one layout" in json.dumps(server.asked[1].body["messages"][-1])


def test_an_empty_claim_is_no_lesson(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers({"claim": ""}))
    assert coach().lesson(view, 2) is None


def test_a_lesson_is_not_asked_for_without_money(server: ProviderServer, view: View) -> None:
    assert coach().lesson(replace(view, spend_left_usd=0.001), 2) is None
    assert not server.asked


def test_money_of_a_lesson_is_told_with_the_next_proposal(server: ProviderServer, view: View, tmp_path: Path) -> None:
    server.queue(replies.answers(LESSON), replies.answers(MOVE), replies.answers(CHANGE))
    asked = coach()
    asked.lesson(view, 2)
    proposal = asked.propose(replace(view, workspace=tmp_path / "next"))
    assert proposal is not None and proposal.cost_usd == pytest.approx(3 * EXCHANGE_USD)


def test_every_exchange_is_in_the_transcript(server: ProviderServer, view: View) -> None:
    server.queue(replies.answers({"move": "sideways"}), replies.answers(MOVE), replies.answers(CHANGE))
    coach().propose(view)
    lines = (view.workspace / model_client.TRANSCRIPT).read_text().splitlines()
    kept = [json.loads(line) for line in lines]
    exchanges = [one for one in kept if "role" in one]
    assert [one["role"] for one in exchanges] == ["feedback", "feedback", "proposing"]
    assert view.task_document in json.dumps(exchanges[0]["sent"])
    assert "sideways" in json.dumps(exchanges[0]["answer"]) and "closes too early" in json.dumps(exchanges[2]["answer"])
    assert all(exchange["tokens"]["input"] == 1000 for exchange in exchanges)


def test_a_failed_exchange_is_in_the_transcript_too(server: ProviderServer, view: View) -> None:
    server.queue(replies.refuses(403, "not for you"))
    with pytest.raises(CoachFailed):
        coach().propose(view)
    record = json.loads((view.workspace / model_client.TRANSCRIPT).read_text())
    assert record["answer"] is None and "not for you" in record["error"] and record["cost_usd"] == 0


def test_the_key_is_in_no_file(server: ProviderServer, view: View, tmp_path: Path) -> None:
    leaking = replace(view, task_document=f"{view.task_document} My key is {KEY}.")
    server.queue(replies.refuses(500, f"bad key {KEY}"), replies.answers({**MOVE, "advice": f"use {KEY}"}))
    server.queue(replies.answers(CHANGE))
    assert coach().propose(leaking) is not None
    assert f"Bearer {KEY}" in server.asked[0].headers.values() or KEY in json.dumps(server.asked[0].headers)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == model_client.TRANSCRIPT for path in written)
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


def test_a_campaign_pays_for_every_call_and_never_shows_validation(server: ProviderServer, tmp_path: Path) -> None:
    settings = {"train.minutes": 1.0, "evaluate.train_rollouts": 4, "evaluate.validation_rollouts": 4}
    config = load.build({**settings, "evaluate.heldout_rollouts": 4, "campaign.attempts": 3, "campaign.target": 1.0})
    store = Campaign(tmp_path)
    extend = {**MOVE, "move": "extend"}
    taught = replies.answers({"claim": ""})
    for factor in (0.5, 0.25):
        change = {**CHANGE, "change": {"train.learning_rate": config.train.learning_rate * factor}}
        server.queue(replies.answers(extend), replies.answers(change), taught)
    Engine(Running(tmp_path, config, FACTS, coach(), TableWorkshop(tmp_path), store, lambda text: None)).run()
    assert [attempt.state for attempt in store.attempts()] == ["done"] * 3
    assert not server.replies
    told = 2 + 3  # of the last attempt's lesson nobody is told any more
    assert store.get("spent_usd") == pytest.approx(told * EXCHANGE_USD)
    shown = json.dumps([asked.body for asked in server.asked])
    seeds = TableWorkshop(tmp_path).seeds("validation", 4)
    assert not [seed for seed in seeds if f"{seed}" in re.findall(r"\d+", shown)]


# --- limits ----------------------------------------------------------------------------------------------------------


@given(value=st.integers(-(10**6), 10**6))
def test_a_whole_number_passes_within_its_bounds_only(value: int) -> None:
    schema = change_schema(Sim2RealConfig())
    if 1 <= value <= 100:
        assert checked_change({"train.executed_steps": float(value)}, schema) == {"train.executed_steps": value}
    else:
        with pytest.raises(ValueError, match="at least 1"):
            checked_change({"train.executed_steps": value}, schema)


@given(before=st.text(), after=st.text(), secret=st.text(min_size=8, max_size=40).filter(lambda one: "\0" not in one))
def test_a_secret_is_cut_out_wherever_it_stands(before: str, after: str, secret: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        try:
            patch.setenv("SOME_API_KEY", secret)
        except UnicodeEncodeError:
            return
        line = without_secrets(f"{before}|{secret}|{after}")
    assert "[secret]" in line and f"|{secret}|" not in line
