"""A server on loopback that speaks OpenAI's chat completions and Anthropic's messages, for the real clients.

A test queues replies; each request takes the next one and is kept. With nothing queued it answers 500, so that a
request too many shows.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class ProviderServer:
    """What is answered next, and what was asked."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    replies: list[Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]] = field(default_factory=list)

    def queue(self, *replies: Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]) -> None:
        """Adds replies, in their order."""
        self.replies.extend(replies)


def _send(handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(body)))
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def _completion(message: dict[str, Any], finish: str, usage: dict[str, Any] | None) -> bytes:
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "test-model",
            "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
            **({"usage": usage} if usage else {}),
        }
    ).encode()


USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "total_tokens": 1100,
    "prompt_tokens_details": {"cached_tokens": 400},
}


def answers(value: Any, usage: dict[str, Any] | None = USAGE, tool: str | None = None):
    """The answer as a call of the output tool (or of the one named); a string goes as the raw arguments."""

    def reply(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        arguments = value if isinstance(value, str) else json.dumps(value)
        name = tool or body["tools"][-1]["function"]["name"]
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
        _send(handler, 200, _completion({"content": None, "tool_calls": [call]}, "tool_calls", usage))

    return reply


def says(text: str, finish: str = "stop"):
    """Words instead of a call."""

    def reply(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        _send(handler, 200, _completion({"content": text}, finish, USAGE))

    return reply


def refuses(status: int, message: str, headers: dict[str, str] | None = None, code: str | None = None):
    """An error with an HTTP status."""

    def reply(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        error = {"error": {"message": message, "type": "error", "code": code}}
        _send(handler, status, json.dumps(error).encode(), headers)

    return reply


def sends(raw: bytes, announced: int | None = None):
    """Any bytes; announcing more than are sent is a server that dies in mid-answer."""

    def reply(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(announced or len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)
        handler.wfile.flush()
        handler.close_connection = True

    return reply


def waits(seconds: float):
    """Silence, then a late answer that nobody waits for."""

    def reply(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        time.sleep(seconds)

    return reply


def anthropic_answers(value: dict[str, Any]):
    """The answer as Anthropic's tool use."""

    def reply(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        content = [{"type": "tool_use", "id": "toolu_1", "name": body["tools"][-1]["name"], "input": value}]
        usage = {"input_tokens": 600, "cache_read_input_tokens": 400, "output_tokens": 100}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "test-model", "content": content}
        full = {**message, "stop_reason": "tool_use", "stop_sequence": None, "usage": usage}
        _send(handler, 200, json.dumps(full).encode())

    return reply


def google_answers(value: dict[str, Any]):
    """The answer as a function call of the Gemini API."""

    def reply(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        name = body["tools"][-1]["functionDeclarations"][-1]["name"]
        content = {"role": "model", "parts": [{"functionCall": {"name": name, "args": value}}]}
        usage = {"promptTokenCount": 1000, "cachedContentTokenCount": 400, "candidatesTokenCount": 100}
        full = {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}
        _send(handler, 200, json.dumps(full).encode())

    return reply


@contextmanager
def provider_server() -> Generator[ProviderServer]:
    """Serves until the block ends."""
    state = ProviderServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            state.asked.append(Asked(self.path, dict(self.headers.items()), body))
            reply = state.replies.pop(0) if state.replies else refuses(500, "nothing is queued")
            try:
                reply(self, body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client has gone, as a test of slow answers wants it

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
