"""A campaign's report.html: it opens from disk, draws every attempt without overlap, and runs nothing it was told."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from campaign_content import attempt, confirmed, five_attempts, rate
from hypothesis import given
from hypothesis import strategies as st

from robocoach.pipelines import campaign_drawing as drawing
from robocoach.pipelines.campaign_page import page

VOID = {"meta", "img", "br", "link", "input", "hr"}


class Read(HTMLParser):
    """Tags with their attributes, the text of each kind of tag, and whether every tag was closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.open = "", []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def campaign() -> dict[str, Any]:
    return five_attempts()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Attempt 4 with everything that an attempt leaves behind; the other attempts left nothing."""
    place = tmp_path / "attempts/0004"
    rollouts = place / "rollouts/train"
    rollouts.mkdir(parents=True)
    for seed, solved in ((3, True), (5, False), (6, False)):
        record = {"seed": seed, "success": solved, "ending": "success" if solved else "time limit", "ticks": 90}
        (rollouts / f"{seed}.json").write_text(json.dumps(record))
        (rollouts / f"{seed}-wrist.mp4").touch()
    (rollouts / "5-sheet.png").touch()
    lines = [
        {"step": s, "elapsed_s": s / 5, "loss": 1 / (s + 1), "samples_per_s": 9, "learning_rate": 1e-4, "grad_norm": 1}
        for s in range(40)
    ]
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (place / "feedback.md").write_text("# Attempt 4\n<b>bold</b> & done\n")
    (place / "log.txt").write_text("log\n")
    return tmp_path


def details(html: str, number: int) -> str:
    return html.partition(f'id="attempt-{number}"')[2].partition("</details>")[0]


def test_headline_tells_the_best_and_what_failed(campaign: dict[str, Any], tmp_path: Path) -> None:
    html = Read(page(campaign, tmp_path)).text.replace("\xa0", " ")
    assert "Best is attempt 4 (policy.action_steps 8 → 4): validation 34/40 = 85 % (95 % CI 70–94 %)" in html
    assert "of 5 attempts 1 failed, 1 reverted" in html


def test_page_loads_nothing_from_elsewhere(campaign: dict[str, Any], folder: Path) -> None:
    read = Read(page(campaign, folder))
    addresses = [value for _, attributes in read.tags for key, value in attributes.items() if key in ("src", "href")]
    assert addresses
    assert not [one for one in addresses if one is None or "//" in one or one.startswith(("/", "data:"))]


def test_every_file_that_is_linked_is_there(campaign: dict[str, Any], folder: Path) -> None:
    read = Read(page(campaign, folder))
    found = [value for _, attributes in read.tags for key, value in attributes.items() if key in ("src", "href")]
    files = [unquote(one) for one in found if one and not one.startswith("#")]
    assert any(one.endswith("-wrist.mp4") for one in files)
    assert not [one for one in files if not (folder / one).exists()]


def test_links_of_the_tree_and_the_table_lead_to_an_attempt(campaign: dict[str, Any], tmp_path: Path) -> None:
    read = Read(page(campaign, tmp_path))
    targets = {attributes.get("id") for _, attributes in read.tags}
    addresses = [one.get("href") or "" for one in read.all("a")]
    inner = {address[1:] for address in addresses if address.startswith("#")}
    assert inner == {f"attempt-{number}" for number in range(5)}
    assert inner <= targets


def test_an_attempt_shows_one_failure_one_success_its_frames_curve_and_report(
    campaign: dict[str, Any], folder: Path
) -> None:
    own = details(page(campaign, folder), 4)
    assert re.findall(r"(\d+)-wrist\.mp4", own) == ["5", "3"]
    assert "5-sheet.png" in own
    assert "<polyline" in own
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; done" in own
    assert "log.txt" in own


def test_funnel_tells_how_many_train_rollouts_got_through_each_stage(campaign: dict[str, Any], tmp_path: Path) -> None:
    campaign["attempts"][4]["stages"] = {"reach": 19, "grasp": 7}
    own = details(page(campaign, tmp_path), 4)
    assert "19 of 20" in own
    assert "7 of 20" in own


def test_damaged_files_do_not_break_the_page(campaign: dict[str, Any], folder: Path) -> None:
    place = folder / "attempts/0004"
    (place / "metrics.jsonl").write_bytes(b'{"step": 1, "loss": "x"}\nnull\n{"validation_loss": 1}\n\xff\xfe')
    (place / "rollouts/train/5.json").write_text("[1, 2")
    (place / "rollouts/train/3.json").write_text("[1, 2]")
    (place / "feedback.md").write_bytes(b"\xff\xfe report")
    read = Read(page(campaign, folder))
    assert "report" in read.text


def test_a_rate_on_the_page_has_its_n_and_interval(campaign: dict[str, Any], tmp_path: Path) -> None:
    html = page(confirmed(campaign, 0.0012, 55, 5), tmp_path)
    heldout = html.partition("<h2>Held-out scenes</h2>")[2].partition("</section>")[0]
    assert "80 of 100" in heldout
    assert "30 of 100" in heldout
    low, high = rate(80, 100)["ci95"]
    assert f"{100 * low:.0f}–{100 * high:.0f} %" in heldout
    assert "McNemar p = 0.0012" in heldout
    assert "Only attempt 4 solved 55, only attempt 0 solved 5" in heldout


def test_a_difference_that_may_be_chance_is_called_so(campaign: dict[str, Any], tmp_path: Path) -> None:
    assert "may be chance" in page(confirmed(campaign, 0.3, 9, 5), tmp_path)
    assert "may be chance" not in page(confirmed(campaign, 0.03, 9, 1), tmp_path)


def test_page_of_a_campaign_that_has_not_begun(campaign: dict[str, Any], tmp_path: Path) -> None:
    campaign |= {"attempts": [], "best": None, "events": [], "now": {}}
    assert "No attempt" in Read(page(campaign, tmp_path)).text


EVIL = "<script>document.title='taken'</script><img src=x onerror=alert(1)>\"'&</title></details>$title"


def test_nothing_that_a_coach_wrote_becomes_markup(campaign: dict[str, Any], tmp_path: Path) -> None:
    plain = Read(page(campaign, tmp_path))
    evil = {"rationale": EVIL, "rule": EVIL, "coach": EVIL, "reason": EVIL, "trend": EVIL}
    for one in campaign["attempts"]:
        one |= evil | {"change": {EVIL: [EVIL, EVIL]}}
    campaign["events"] = [{"at": 1.8e9, "kind": EVIL, "attempt": 1, "text": EVIL}]
    campaign |= {"warnings": [EVIL], "coach": EVIL, "task": EVIL, "instruction": EVIL, "now": {"phase": EVIL}}
    campaign["stages"] = [EVIL]
    campaign["attempts"][4]["stages"] = {EVIL: 3}
    read = Read(page(campaign, tmp_path))
    assert len(read.all("script")) == len(plain.all("script"))
    assert read.all("img") == []
    assert not [attributes for _, attributes in read.tags if any(key.startswith("on") for key in attributes)]
    assert "<script>document.title='taken'</script>" in read.text


def test_rationale_is_marked_as_the_coachs_own_unverified_account(campaign: dict[str, Any], tmp_path: Path) -> None:
    campaign["attempts"][4]["rationale"] = "Offsets grow with the chunk's age."
    own = Read("<div>" + details(page(campaign, tmp_path), 4).partition(">")[2] + "</div>").text
    assert own.index("unverified") < own.index("Offsets grow")


def test_hollow_points_are_those_of_attempts_whose_validation_ended_early(campaign: dict[str, Any]) -> None:
    drawn = drawing.success(campaign["attempts"])
    assert len(re.findall(r'class="validation hollow"', drawn)) == 1
    campaign["attempts"][3]["validation"]["stopped"] = False
    assert "hollow" not in drawing.success(campaign["attempts"])


def test_best_so_far_ignores_attempts_that_ended_early(campaign: dict[str, Any]) -> None:
    first = campaign["attempts"][:1]
    early = attempt(1, 0, validation=rate(19, 20, stopped=True))
    heights = re.findall(r",([\d.]+)", drawing.success([*first, early]).partition('points="')[2].partition('"')[0])
    assert len(set(heights)) == 1


trees = st.lists(st.integers(0, 10_000), max_size=60).map(
    lambda picks: [
        attempt(number, None if number == 0 else picks[number - 1] % number) for number in range(len(picks) + 1)
    ]
)


@given(trees)
def test_no_two_attempts_of_the_tree_share_a_place_and_a_child_is_one_column_on(attempts: list[dict[str, Any]]) -> None:
    places = drawing.layout(attempts)
    assert len(set(places.values())) == len(attempts)
    for one in attempts:
        column, row = places[one["number"]]
        assert (column, row) >= (0, 0)
        if one["parent"] is not None:
            assert column == places[one["parent"]][0] + 1
            assert row >= places[one["parent"]][1]


@given(trees)
def test_no_edge_of_the_tree_crosses_or_hides_another(attempts: list[dict[str, Any]]) -> None:
    """An edge runs down in the gap behind its parent's column, then right: nobody else's may be in its rows there."""
    places = drawing.layout(attempts)
    used: dict[tuple[int, int], int] = {}
    for one in attempts:
        if one["parent"] is not None:
            column, top = places[one["parent"]]
            for row in range(top, places[one["number"]][1] + 1):
                assert used.setdefault((column, row), one["parent"]) == one["parent"]


def test_a_chain_of_50_is_one_row_and_far_branches_share_rows() -> None:
    chain = [attempt(number, number - 1 if number else None) for number in range(50)]
    assert {row for _, row in drawing.layout(chain).values()} == {0}
    branches = [attempt(50 + index, 5 * index + 1) for index in range(8)]
    assert max(row for _, row in drawing.layout([*chain, *branches]).values()) == 1


def test_before_the_held_out_run_the_page_says_that_a_picked_rate_flatters(
    campaign: dict[str, Any], tmp_path: Path
) -> None:
    assert "best of 3 on the same validation scenes" in page(campaign, tmp_path)
    assert "flatters" not in page(confirmed(campaign, 0.001, 55, 5), tmp_path)


def test_films_wait_for_a_press_and_sheets_until_they_are_seen(campaign: dict[str, Any], folder: Path) -> None:
    read = Read(page(campaign, folder))
    assert {film["preload"] for film in read.all("video")} == {"none"}
    assert {sheet["loading"] for sheet in read.all("img")} == {"lazy"}


def test_boxes_of_the_tree_tell_best_reverted_failed_and_unfinished_apart(campaign: dict[str, Any]) -> None:
    campaign["attempts"].append(attempt(5, 4, state="training", train=None, validation=None))
    campaign["attempts"].append(attempt(6, 4, state="rejected", train=None, validation=None))
    boxes = re.findall(r'class="node (\w+)"', drawing.tree(campaign["attempts"], 4, 4))
    assert boxes == ["done", "done", "bad", "reverted", "best", "open", "bad"]


def test_a_label_of_the_tree_stays_within_its_column_and_says_that_it_was_cut(campaign: dict[str, Any]) -> None:
    campaign["attempts"][1]["change"] = {"data.oversample": ["", "grasp=2," * 20], "train.learning_rate": [0.1, 0.2]}
    labels = re.findall(r'class="label"[^>]*>([^<]*)<', drawing.tree(campaign["attempts"], 4, 4))
    assert max(len(label) for label in labels) <= drawing.LABEL_MOST
    assert any(label.endswith("…") for label in labels)


def test_success_plot_states_the_rollouts_of_every_validation(campaign: dict[str, Any]) -> None:
    drawn = drawing.success(campaign["attempts"])
    (row,) = re.findall(r'y="(\d+)"[^>]*>validation n<', drawn)
    assert re.findall(rf'y="{row}"[^>]*>(\d+)<', drawn) == ["40", "40", "20", "40"]


def test_page_does_not_keep_what_was_going_on_when_it_was_written(campaign: dict[str, Any], tmp_path: Path) -> None:
    assert "about 3:20 left" not in page(campaign, tmp_path)
    ended = {**campaign, "state": "finished", "stop_reason": "all 20 attempts are made"}
    assert "finished: all 20 attempts are made" in page(ended, tmp_path)


def test_a_curve_that_hardly_changes_has_two_values_on_its_axis(campaign: dict[str, Any], folder: Path) -> None:
    place = folder / "attempts/0004/metrics.jsonl"
    rows = [
        {"step": s, "elapsed_s": s / 5, "loss": 2.8 + s / 1000, "samples_per_s": 9, "learning_rate": 1, "grad_norm": 1}
        for s in range(40)
    ]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    drawn = details(page(campaign, folder), 4)
    values = [float(value) for value in re.findall(r'text-anchor="end">([\d.]+)</text>', drawn)]
    assert len(values) == 2
    assert all(2.79 < value < 2.85 for value in values)
