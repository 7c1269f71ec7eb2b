"""The query of training numbers through the real W&B client, against a server on loopback that speaks its protocol."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from robocoach.agent_loop.metrics import Series
from robocoach.agent_loop.wandb_metrics import query_wandb
from robocoach.configs.errors import UserError

VIEWER = {"id": "1", "entity": "me", "username": "me", "flags": "{}"}
RUN = dict.fromkeys(("sweepName", "group", "jobType", "commit", "description", "notes"), "") | {
    "id": "r",
    "tags": [],
    "name": "abc",
    "displayName": "abc",
    "state": "finished",
    "config": "{}",
    "readOnly": False,
    "createdAt": "2026-01-01T00:00:00",
    "heartbeatAt": "2026-01-01T00:00:00",
    "systemMetrics": "{}",
    "summaryMetrics": json.dumps({"loss": 0.5, "grad_norm": 1.0, "_step": 40}),
    "historyLineCount": 2,
    "historyKeys": {"lastStep": 40, "keys": {"loss": {}}},
    "user": {"name": "me", "username": "me"},
    "projectId": 1,
    "parquetHistory": {"parquetUrls": [], "liveData": []},
    "sampledHistory": [[{"_step": 20, "loss": 1.0}, {"_step": 40, "loss": 0.5}]],
}


class Handler(BaseHTTPRequestHandler):
    """Knows one run, `me/robocoach/abc`."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        names = asked.get("variables") or {}
        known = "abc" in (names.get("name"), names.get("run"), names.get("runName"))
        run = dict(RUN)
        if "SampledHistoryPage" in asked["query"] and "loss" not in json.dumps(names):
            run["sampledHistory"] = [[]]
        if "parquetHistory" in asked["query"]:
            run["parquetHistory"] = {"parquetUrls": [], "liveData": [{"_step": 20}, {"_step": 40}]}
        data = {"viewer": VIEWER, "project": {"internalId": "1", "run": run if known else None}}
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"data": data}).encode())

    def log_message(self, format, *args):
        """Quiet."""


@pytest.fixture(scope="module")
def server():
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()


@pytest.fixture
def online(monkeypatch, server, tmp_path):
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", server)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))


def test_a_metric_of_a_run_comes_as_the_same_type(online):
    assert query_wandb({2: "me/robocoach/abc"}, "loss") == {2: Series("loss", ((20, 1.0), (40, 0.5)))}


def test_both_ends_of_a_range_are_included(online):
    assert query_wandb({2: "me/robocoach/abc"}, "loss", (40, 40))[2].points == ((40, 0.5),)


def test_a_run_that_is_not_there_is_refused(online):
    with pytest.raises(UserError, match="W&B does not give me/robocoach/none"):
        query_wandb({2: "me/robocoach/none"}, "loss")


def test_an_unknown_metric_is_refused_with_the_nearest_names(online):
    with pytest.raises(UserError, match=r"no run has the metric 'gradnorm'.*grad_norm"):
        query_wandb({2: "me/robocoach/abc"}, "gradnorm")


def test_without_a_key_nothing_is_asked(monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(UserError, match="set WANDB_API_KEY"):
        query_wandb({2: "me/robocoach/abc"}, "loss")
