"""Asks a language model for one checked answer, through pydantic-ai: keys, retries, errors, spend and transcript.

Providers are those of pydantic-ai (`openai`, `anthropic`, `google`, `openrouter`, …); an OpenAI-compatible server is
`openai` with OPENAI_BASE_URL. Keys come from the environment only and are cut out of everything that is written or
raised. A rate limit is `RateLimited`; every other failure of the provider, or of the answer, is `CoachFailed`.
Knows nothing of attempts and proposals.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from robocoach.agent_loop.coaches.spend import Price, Tokens, estimate, price_of, require_price
from robocoach.agent_loop.tree import CoachFailed, RateLimited
from robocoach.configs.errors import UserError

KEYS: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
}
"""The variables that hold a provider's key; one of them is enough. Other providers name theirs themselves."""
DEFAULT_WAIT_S = 60.0
"""Wait after a rate limit that does not say how long."""
LONGEST_WAIT_S = 86_400.0
LARGEST_ANSWER_BYTES = 2_000_000
MOST_REQUESTS = 12
"""Requests of one question: the first, corrections, and those that bring the results of tools."""
MOST_TOOL_CALLS = 8
CORRECTIONS = 2
"""Times that a malformed answer goes back with the reason."""
MOST_PICTURES = 6
LARGEST_PICTURE_BYTES = 5_000_000
TRANSCRIPT = "transcript.jsonl"
_MEDIA = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}
_SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?($|_)", re.IGNORECASE)
_SHORTEST_SECRET = 8
"""A shorter value would cut words out of every text."""


class SpendCap(CoachFailed):
    """What is left of the spend cap does not pay for another call."""


@dataclass(frozen=True)
class Limits:
    """What one request may take."""

    timeout_s: float = 300.0
    """From sending a request to the end of its answer, all tries together."""
    output_tokens: int = 8_000
    tries: int = 3
    """Of a request that a server error or a broken connection ended."""
    pause_s: float = 2.0
    """Before the second try; doubled before each further one."""


@dataclass
class Ledger:
    """What may still be spent on a question, and what was."""

    left_usd: float
    spent_usd: float = 0.0
    tokens: Tokens = field(default_factory=Tokens)

    def admit(self, cost_usd: float) -> None:
        """Raises SpendCap when a call that may cost this much could break the cap."""
        left = self.left_usd - self.spent_usd
        if cost_usd > left:
            raise SpendCap(
                f"the next call may cost {cost_usd:.4f} USD and {max(left, 0.0):.4f} USD are left of campaign.spend_usd"
            )

    def book(self, tokens: Tokens, cost_usd: float) -> None:
        """Adds what a call used."""
        self.tokens += tokens
        self.spent_usd += cost_usd


class Transcript:
    """Every exchange with a model as one JSON line each, on disk before anything is done with the answer."""

    def __init__(self, folder: Path, name: str = TRANSCRIPT) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds one line without any secret, and waits until the disk has it."""
        line = json.dumps(_without_secrets(dict(record)), ensure_ascii=False, default=str) + "\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[dict[str, Any]]:
        """What was written so far; a line cut off by a kill is left out."""
        if not self.path.is_file():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                found.append(record)
        return found


def secrets() -> tuple[str, ...]:
    """Values of the environment's variables that are named like keys, longest first."""
    found = {value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET}
    return tuple(sorted(found, key=len, reverse=True))


def without_secrets(text: str) -> str:
    """The text with every key cut out, also as JSON writes it."""
    for secret in secrets():
        for form in {secret, json.dumps(secret, ensure_ascii=False)[1:-1], json.dumps(secret)[1:-1]}:
            text = text.replace(form, "[secret]")
    return text


def _without_secrets(value: Any) -> Any:
    """JSON values whose texts hold no key."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {key: _without_secrets(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_secrets(one) for one in value]
    return value


def one_line(error: BaseException | str, most: int = 300) -> str:
    """An error as one short line without secrets."""
    text = " ".join(without_secrets(str(error)).split())
    if isinstance(error, BaseException) and (not text or isinstance(error, TypeError | AttributeError | LookupError)):
        text = f"{type(error).__name__}: {text}"  # such a text says little without it
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(frozen=True)
class ModelClient:
    """One model of one provider."""

    provider: str
    model: str
    limits: Limits = Limits()

    def check(self) -> Price:
        """The model's price. Raises UserError, before any work, when the key or the price is missing."""
        if not self.provider or not self.model:
            raise UserError("a model is named PROVIDER:MODEL, for example llm:openai:gpt-5.2")
        names = KEYS.get(self.provider)
        served_here = self.provider == "openai" and os.environ.get("OPENAI_BASE_URL")
        if names and not served_here and not any(os.environ.get(name) for name in names):
            raise UserError(f"{' or '.join(names)} is not set; {self.provider}:{self.model} needs its key there")
        price = require_price(price_of(self.provider, self.model, os.environ), self.provider, self.model)
        if names is None:
            asyncio.run(self._probe())
        return price

    async def _probe(self) -> None:
        """Makes the model without asking it: pydantic-ai tells what a provider lacks."""
        client = _http_client(self.limits)
        try:
            self._made(client)
        finally:
            await client.aclose()

    def _made(self, http_client: Any) -> Any:
        from pydantic_ai.exceptions import UserError as LibraryError
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import infer_provider_class

        # Chat completions is the one protocol that OpenAI and all compatible servers speak.
        name = f"openai-chat:{self.model}" if self.provider == "openai" else f"{self.provider}:{self.model}"
        try:
            return infer_model(name, lambda kind: infer_provider_class(kind)(http_client=http_client))  # ty: ignore[unknown-argument]
        except (LibraryError, ImportError, ValueError, TypeError) as error:
            raise UserError(f"{self.provider}:{self.model} cannot be asked: {one_line(error)}") from None

    def ask[Answer: BaseModel](
        self,
        role: str,
        instructions: str,
        content: Sequence[str | Path],
        answer: type[Answer],
        ledger: Ledger,
        transcript: Transcript,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        accept: Callable[[Answer], None] = lambda found: None,
    ) -> Answer:
        """One question with texts and pictures (paths), answered by a checked `answer`.

        `accept` raises ValueError with the reason for an answer that is well-formed but wrong: it goes back to the
        model, as does one that breaks the schema, CORRECTIONS times. Raises RateLimited, or CoachFailed.
        """
        from pydantic_ai import exceptions

        price = self.check()
        try:
            return asyncio.run(
                self._asked(role, instructions, content, answer, ledger, transcript, price, tools, accept)
            )
        except exceptions.ModelQuotaExceededError as error:
            raise CoachFailed(f"{self.provider} says the quota is used up: {one_line(error)}") from None
        except exceptions.ModelRateLimitError as error:
            wait_s = DEFAULT_WAIT_S if error.retry_after is None else error.retry_after
            raise RateLimited(min(max(wait_s, 1.0), LONGEST_WAIT_S)) from None
        except (UserError, CoachFailed, RateLimited):
            raise
        except Exception as error:
            # Also what the library raises over an answer that no provider should send: a night must survive it.
            raise CoachFailed(f"{self.provider}:{self.model}: {_oversized(error) or _said(error)}") from None

    async def _asked(
        self,
        role: str,
        instructions: str,
        content: Sequence[str | Path],
        answer: type[Any],
        ledger: Ledger,
        transcript: Transcript,
        price: Price,
        tools: Sequence[Callable[..., Any]],
        accept: Callable[[Any], None],
    ) -> Any:
        from pydantic_ai import Agent, ModelRetry, UsageLimits
        from pydantic_ai.settings import ModelSettings

        http_client = _http_client(self.limits)
        try:
            model = _metered()(self._made(http_client), self, role, ledger, transcript, price)
            agent: Any = Agent(
                model,
                output_type=answer,
                instructions=instructions,
                tools=list(tools),
                retries={"output": CORRECTIONS, "tools": CORRECTIONS},
                model_settings=ModelSettings(
                    max_tokens=self.limits.output_tokens,
                    timeout=self.limits.timeout_s,
                    request_timeout=self.limits.timeout_s,
                    max_retries=0,  # or a rate limit would be waited out inside the client
                ),
            )

            @agent.output_validator
            def accepted(found: Any) -> Any:
                try:
                    accept(found)
                except ValueError as error:
                    raise ModelRetry(str(error)) from None
                return found

            limits = UsageLimits(request_limit=MOST_REQUESTS, tool_calls_limit=MOST_TOOL_CALLS)
            result = await agent.run([_part(one) for one in content], usage_limits=limits)
            return result.output
        finally:
            await http_client.aclose()


class OversizedAnswer(OSError):
    """A provider sent more bytes than an answer may have."""

    def __init__(self) -> None:
        super().__init__(f"the answer is larger than {LARGEST_ANSWER_BYTES / 1e6:.0f} MB and was not read to its end")


def _oversized(error: BaseException | None) -> str | None:
    """What an oversized answer says, when one is among the causes."""
    while error is not None:
        if isinstance(error, OversizedAnswer):
            return str(error)
        error = error.__cause__ or error.__context__
    return None


def _said(error: BaseException) -> str:
    """An error with the reason of the last correction that did not help."""
    cause = error.__cause__
    return one_line(error) if cause is None else f"{one_line(error, 200)} ({one_line(cause)})"


def _part(one: str | Path) -> Any:
    from pydantic_ai import BinaryContent

    if isinstance(one, str):
        return one
    return BinaryContent(one.read_bytes(), media_type=_MEDIA[one.suffix.lower()], identifier=one.name)


def usable_pictures(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The pictures that can be sent: known kinds, not too large, at most MOST_PICTURES."""
    usable = [
        path
        for path in paths
        if path.suffix.lower() in _MEDIA and path.is_file() and path.stat().st_size <= LARGEST_PICTURE_BYTES
    ]
    return tuple(usable[:MOST_PICTURES])


def _http_client(limits: Limits) -> Any:
    """A client that reads no more of an answer than an answer may have."""
    import httpx2

    async def bound(response: Any) -> None:
        response.stream = _bounded(response.stream)

    async def plainly(request: Any) -> None:
        request.headers["accept-encoding"] = "identity"  # a small packed answer could unpack to a huge one

    timeout = httpx2.Timeout(limits.timeout_s, connect=min(10.0, limits.timeout_s))
    return httpx2.AsyncClient(timeout=timeout, event_hooks={"request": [plainly], "response": [bound]})


def _bounded(stream: Any) -> Any:
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            size = 0
            async for piece in stream:
                size += len(piece)
                if size > LARGEST_ANSWER_BYTES:
                    raise OversizedAnswer
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


@cache
def _metered() -> type[Any]:
    """The model class that meters every request; made on first use, since pydantic-ai takes seconds to import."""
    from pydantic_ai import exceptions
    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai.models.wrapper import WrapperModel

    class Metered(WrapperModel):
        """Checks the cap before a request, tries again what may work, and writes each exchange down."""

        def __init__(
            self, wrapped: Any, client: ModelClient, role: str, ledger: Ledger, transcript: Transcript, price: Price
        ) -> None:
            super().__init__(wrapped)
            self._client, self._role, self._ledger = client, role, ledger
            self._transcript, self._price = transcript, price
            self._written = 0

        async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
            pause_s = self._client.limits.pause_s
            for left in reversed(range(self._client.limits.tries)):
                try:
                    return await self._once(messages, model_settings, model_request_parameters)
                except exceptions.ModelAPIError as error:
                    if not left or not isinstance(error, _WORTH_A_TRY) or _oversized(error):
                        raise
                await asyncio.sleep(pause_s)
                pause_s *= 2
            raise AssertionError("the last try returns or raises")

        async def _once(self, messages: Any, model_settings: Any, parameters: Any) -> Any:
            sent = _plain(ModelMessagesTypeAdapter.dump_python(messages, mode="json"))
            tools = [
                {"name": tool.name, "schema": tool.parameters_json_schema}
                for tool in (*parameters.function_tools, *parameters.output_tools)
            ]
            pictures = json.dumps(sent).count('"kind": "binary"')
            characters = len(json.dumps(sent)) + len(json.dumps(tools))
            expected = estimate(characters, pictures, self._client.limits.output_tokens)
            self._ledger.admit(self._price.cost(expected))
            record: dict[str, Any] = {
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "role": self._role,
                "provider": self._client.provider,
                "model": self._client.model,
                "sent": sent[self._written :],
            }
            if not self._written:
                record["tools"] = tools
            try:
                response = await self._readable(messages, model_settings, parameters)
            except BaseException as error:
                # An answer that was begun may be billed though it never came; one refused with a status is not.
                used = Tokens() if isinstance(error, exceptions.ModelHTTPError) else expected
                self._book(record, used, assumed=used != Tokens(), answer=None, error=one_line(error, 2_000))
                raise
            self._written = len(sent)
            usage = response.usage
            counted = Tokens(usage.input_tokens, usage.cache_read_tokens, usage.output_tokens)
            # An amount that cannot be, or none at all, must not make a call cheaper than it may have been.
            measured = 0 <= counted.cached <= counted.input and counted.output >= 0 and counted != Tokens()
            told = _plain(ModelMessagesTypeAdapter.dump_python([response], mode="json"))[0]
            self._book(record, counted if measured else expected, assumed=not measured, answer=told, error=None)
            return response

        async def _readable(self, messages: Any, model_settings: Any, parameters: Any) -> Any:
            """The provider's answer; what the library stumbles over in it is an unreadable answer, not a fault here."""
            try:
                return await self.wrapped.request(messages, model_settings, parameters)
            except (exceptions.AgentRunError, exceptions.UserError, OversizedAnswer):
                raise
            except Exception as error:
                what = f"the answer could not be read ({type(error).__name__}: {one_line(error)})"
                raise exceptions.UnexpectedModelBehavior(what) from error

        def _book(self, record: dict[str, Any], used: Tokens, *, assumed: bool, answer: Any, error: str | None) -> None:
            cost = self._price.cost(used)
            self._ledger.book(used, cost)
            self._transcript.append(
                {
                    **record,
                    "answer": answer,
                    "error": error,
                    "tokens": asdict(used),
                    "assumed": assumed,
                    "cost_usd": cost,
                    "price": self._price.source,
                }
            )

    _WORTH_A_TRY = (exceptions.ModelUnavailableError, exceptions.ModelServerError, exceptions.ModelConnectionError)
    return Metered


def _plain(value: Any) -> Any:
    """JSON values in which a picture is its digest instead of its bytes."""
    if isinstance(value, dict):
        if value.get("kind") == "binary" and "data" in value:
            digest = hashlib.sha256(str(value["data"]).encode()).hexdigest()
            return {**{key: _plain(one) for key, one in value.items() if key != "data"}, "sha256_of_base64": digest}
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value
