"""report.html: self-contained, every rate with n and interval, films within the budget, what was dropped is said."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from robocoach.agent_loop.statistics import Rate
from robocoach.pipelines import report

STAGES = ("reach", "grasp", "lift", "place", "release")


def counted(successes, n, through=None):
    funnel = dict(zip(STAGES, through or (n, n, n, successes, successes), strict=True))
    rate = Rate(successes, n)
    return {"success_rate": rate.value, "successes": successes, "n": n, "ci95": list(rate.ci95), "stages": funnel}


def attempt(number, train, validation, **more):
    return {
        "number": number,
        "train": counted(train, 10),
        "validation": counted(validation, 20),
        "training": {"steps": 2400 + number, "loss": 0.0213 - 0.005 * number},
        "kept": number == 1,
        "parent": None if number == 0 else 0,
        "coach": None,
        "change": {},
        "rationale": "the configuration as given",
        **more,
    }


@pytest.fixture
def result():
    second = attempt(
        1,
        8,
        15,
        coach="rules",
        change={"generate.corrective": 40, "train.learning_rate": 0.0005},
        rationale="5 of 10 train-seed rollouts lifted the object and did not leave it in place: 40 demonstrations that "
        "take over where this policy's driving leads, at half the learning rate.",
    )
    return {
        "task": "stack-cube",
        "seed": 0,
        "command": "./pipeline sim2real --config runs/x/config.yaml",
        "attempts": [attempt(0, 5, 11), second],
        "winner": 1,
        "selection": "attempt 1 is kept: 15/20 against 11/20 on the same 20 validation seeds",
        "validation": counted(15, 20),
        "heldout": counted(37, 50, (50, 49, 47, 40, 37)),
        "heldout_base": counted(29, 50, (50, 45, 42, 33, 29)),
        "heldout_paired": {"only_winner": 12, "only_base": 4, "mcnemar_p": 0.077},
        "twin_demonstrator": {"successes": 10, "n": 10},
        "deploy": {
            "robot": "twin",
            "client": "franky-control 2.0.0",
            "rollouts": 10,
            "successes": 6,
            "invalid": 1,
            "ci95": [0.3, 0.9],
            "rate_hz": 10.0,
            "late_ticks_share": 0.002,
        },
        "versions": {"python": "3.12.1", "torch": "2.11.0"},
        "wall_s": 1920.0,
        "stages": {"check": 4.0, "demonstrate": 260.0, "finetune": 720.0, "evaluate": 95.0, "deploy": 300.0},
    }


@pytest.fixture
def folder(tmp_path):
    from robocoach.datasets import video

    (tmp_path / "config.yaml").write_text("task: stack-cube\n")
    for number in (0, 1):
        place = tmp_path / "attempts" / f"{number:04d}"
        (place / "rollouts" / "train").mkdir(parents=True)
        rows = [
            {"step": 20 * i, "elapsed_s": 7.0 * i, "loss": 1 / (1 + i) + 0.02, "flow_loss": 0.8 / (1 + i) + 0.015}
            for i in range(100)
        ]
        rows += [
            {"step": 400 * i, "elapsed_s": 140.0 * i, "validation_loss": 0.9 / (1 + 20 * i) + 0.02} for i in range(6)
        ]
        (place / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    rng = np.random.default_rng(0)
    place = tmp_path / "attempts" / "0001" / "rollouts" / "train"
    for seed in range(3):
        frames = rng.integers(0, 255, (10, 224, 224, 3), dtype=np.uint8)
        video.encode(frames, place / f"{seed}-wrist.mp4")
        video.encode(frames[:, :, ::-1], place / f"{seed}-side.mp4")
        record = {
            "seed": seed,
            "success": seed > 0,
            "stage": 5 if seed else 3,
            "ticks": 71,
            "video": f"{seed}-wrist.mp4",
            "side_video": f"{seed}-side.mp4",
        }
        (place / f"{seed}.json").write_text(json.dumps(record))
    return tmp_path


class Page(HTMLParser):
    """Tags, their attributes and the balance of what was opened."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br", "line", "circle", "rect", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("line", "circle", "rect", "polyline"):
            assert self.open.pop() == tag


def test_the_page_refers_to_nothing_outside_itself(result, folder):
    text = report.page(result, folder)
    parsed = Page(text)
    assert parsed.open == []
    sources = [attrs[key] for _, attrs in parsed.tags for key in ("src", "href") if key in attrs]
    assert sources and all(source.startswith("data:") for source in sources)
    assert not re.search(r"https?://|url\(", text)


def test_the_first_sentence_says_what_happened(result):
    assert report.sentence(result) == (
        "From nothing to a deployed policy in 32 minutes: the coach's second attempt was kept and solves 37 of 50 "
        "held-out scenes in Genesis (74 %, 95 % CI 60–85 %), and 6 of 9 through the real franky client on the twin."
    )


def test_every_rate_stands_with_n_and_interval(result, folder):
    text = report.page(result, folder)
    for shown in ("37 of 50", "60–85 %", "29 of 50", "15 of 20", "6 of 9", "10 of 10", "p = 0.077"):
        assert shown in text


def test_invalid_rollouts_are_said_and_not_counted(result, folder):
    assert "1 of 10 rollouts invalid and not counted" in report.page(result, folder)


def test_a_twin_that_was_not_proven_is_said(result, folder):
    assert "did not prove" not in report.page(result, folder)
    result["twin_demonstrator"] |= {"successes": 4, "proven": False}
    assert "did not prove the twin" in report.page(result, folder)


def test_the_coachs_reason_and_change_are_shown(result, folder):
    text = report.page(result, folder)
    assert "5 of 10 train-seed rollouts lifted" in text and "generate.corrective → 40" in text


def test_films_are_embedded_until_the_budget_and_the_rest_is_counted(result, folder, monkeypatch):
    assert report.page(result, folder).count("<video") == 6
    sizes = [path.stat().st_size for path in (folder / "attempts/0001/rollouts/train").glob("0-*.mp4")]
    monkeypatch.setattr(report, "FILM_BUDGET_BYTES", sum(sizes))
    text = report.page(result, folder)
    assert text.count("<video") == 2 and "2 more lie in the run" in text


def test_without_deployed_rollouts_the_page_still_stands(result, folder):
    result["deploy"] |= {"rollouts": 0, "invalid": 0, "successes": 0, "rate_hz": None, "late_ticks_share": None}
    assert "franky client on the twin" not in report.page(result, folder)


def test_rollouts_that_could_not_be_judged_are_in_the_first_sentence(result):
    result["deploy"] |= {"rollouts": 10, "invalid": 10, "successes": 0}
    assert report.sentence(result).endswith("; no rollout on the twin could be judged.")


def test_one_attempt_makes_a_page_without_a_comparison(result, folder):
    result |= {"winner": 0, "attempts": [result["attempts"][0] | {"kept": True}], "heldout": result["heldout_base"]}
    text = report.page(result, folder)
    assert "the one attempt" in text and "McNemar" not in text


def test_markup_in_names_is_escaped(result, folder):
    result["attempts"][1]["rationale"] = "<script>alert(1)</script>"
    assert "<script" not in report.page(result, folder)
