"""The describer that asks a vision-language model, through the real client against a server on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import provider_server as replies
import pytest
from PIL import Image
from provider_server import ProviderServer, provider_server

from robocoach.agent_loop.coaches.client import Limits
from robocoach.agent_loop.describe import Described
from robocoach.agent_loop.tree import CoachFailed, RateLimited
from robocoach.agent_loop.vision import TRANSCRIPT, VisionDescriber
from robocoach.configs.errors import UserError

SEEN = {"happened": "The hand closes in front of the cube.", "stage": "grasp", "confidence": 0.7, "frames": [22, 30]}
TIMELINE = (("reach", 14), ("grasp", None))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProviderServer]:
    with provider_server() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{running.url}/v1")
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        monkeypatch.setenv("ROBOCOACH_PRICE_INPUT", "1")
        monkeypatch.setenv("ROBOCOACH_PRICE_OUTPUT", "10")
        yield running


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    path = tmp_path / "7-sheet.png"
    Image.new("RGB", (64, 48), "green").save(path)
    return path


def described(sheets: list[Path], tmp_path: Path, describer: VisionDescriber, left_usd: float = 1.0) -> Described:
    return describer.describe("stack", TIMELINE, sheets, workspace=tmp_path / "describe", spend_left_usd=left_usd)


def describer() -> VisionDescriber:
    return VisionDescriber("openai", "test-model", Limits(timeout_s=4.0, output_tokens=500, tries=1))


def test_frames_and_timeline_become_a_summary(server: ProviderServer, sheet: Path, tmp_path: Path) -> None:
    server.queue(replies.answers(SEEN))
    found = described([sheet], tmp_path, describer())
    assert found.described_by == "openai:test-model"
    assert (found.summary.stage, found.summary.frames) == ("grasp", (22, 30))
    shown = json.dumps(server.asked[0].body)
    assert "image_url" in shown and "reached at tick 14" in shown and "never reached" in shown


def test_a_stage_that_the_task_has_not_goes_back(server: ProviderServer, sheet: Path, tmp_path: Path) -> None:
    server.queue(replies.answers({**SEEN, "stage": "juggle"}), replies.answers(SEEN))
    assert described([sheet], tmp_path, describer()).summary.stage == "grasp"
    assert "expected one of reach, grasp, none" in json.dumps(server.asked[1].body["messages"][-1])


def test_errors_and_spend_are_those_of_every_model(server: ProviderServer, sheet: Path, tmp_path: Path) -> None:
    asked = describer()
    server.queue(replies.answers(SEEN), replies.refuses(429, "slow", {"retry-after": "9"}), replies.refuses(403, "no"))
    described([sheet], tmp_path, asked)
    with pytest.raises(RateLimited) as limited:
        described([sheet], tmp_path, asked)
    with pytest.raises(CoachFailed):
        described([sheet], tmp_path, asked)
    assert limited.value.wait_s == 9
    assert asked.spent_usd == pytest.approx((1000 * 1 + 100 * 10) / 1e6) and asked.tokens.output == 100
    lines = (tmp_path / "describe" / TRANSCRIPT).read_text().splitlines()
    assert [json.loads(line)["role"] for line in lines] == ["describe"] * 3


def test_pictures_are_not_copied_into_the_transcript(server: ProviderServer, sheet: Path, tmp_path: Path) -> None:
    server.queue(replies.answers(SEEN))
    described([sheet], tmp_path, describer())
    url = next(
        part["image_url"]["url"]
        for part in server.asked[0].body["messages"][-1]["content"]
        if part["type"] == "image_url"
    )
    written = (tmp_path / "describe" / TRANSCRIPT).read_text()
    assert url.partition("base64,")[2] not in written and "sha256_of_base64" in written


def test_the_cap_counts_the_picture_before_it_is_sent(server: ProviderServer, sheet: Path, tmp_path: Path) -> None:
    text_and_answer_usd, picture_usd = 0.0065, 0.003
    with pytest.raises(CoachFailed, match="spend_usd"):
        described([sheet], tmp_path, describer(), left_usd=text_and_answer_usd + picture_usd / 3)
    assert not server.asked
    server.queue(replies.answers(SEEN))
    described([sheet], tmp_path, describer(), left_usd=text_and_answer_usd + picture_usd)


def test_a_rollout_without_pictures_is_refused(server: ProviderServer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="picture"):
        described([tmp_path / "missing.png"], tmp_path, describer())
    assert not server.asked


def test_a_missing_key_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        describer()
