"""`pipeline data check`: exit codes, the summary on one screen, JSON for scripts, and a page that stands alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from robocoach.pipelines.cli import main

COLUMNS = 42


def write_log(path: Path, jump: bool = False) -> Path:
    """A 1 kHz log of an arm that swings joint 1; with a jump it is faulty."""
    rows = np.zeros((2000, COLUMNS))
    rows[:, 0] = 1.7e18 + np.arange(2000) * 1e6
    rows[:, 1:8] = (0.0, -0.3, 0.0, -2.2, 0.0, 2.0, 0.8)
    rows[:, 1] += 0.3 * np.sin(np.arange(2000) / 300)
    if jump:
        rows[1200:, 4] += 0.5
    path.mkdir(exist_ok=True)
    np.savez_compressed(path / "log_<b>.npz", data=rows)
    return path


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return write_log(tmp_path / "clean")


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    return write_log(tmp_path / "faulty", jump=True)


def test_clean_data_exits_with_0_and_faulty_data_with_3(clean, faulty, capsys):
    assert main(["data", "check", str(clean)]) == 0
    assert "no errors" in capsys.readouterr().out
    assert main(["data", "check", str(faulty)]) == 3
    out = capsys.readouterr().out
    assert "joint jumps" in out and "frame 1199" in out
    assert len(out.splitlines()) <= 24


@pytest.mark.parametrize("given", [["data", "check"], ["data", "check", "nowhere"], ["data", "chekc", "x"]])
def test_bad_input_exits_with_2_and_one_line(given, capsys):
    assert main(given) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_json_holds_every_finding_with_its_place_and_mend(faulty, capsys):
    assert main(["data", "check", str(faulty), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    jump = next(one for one in told["findings"] if one["fault"] == "joint jumps")
    assert (jump["severity"], jump["frame"], jump["episode"]) == ("error", 1199, "log_<b>")
    assert jump["mend"] and jump["means"]
    assert told["errors"] == 1 and told["frames"] == 2000


def test_the_page_stands_alone_and_marks_the_place(faulty, tmp_path, capsys):
    assert main(["data", "check", str(faulty), "--out", str(tmp_path / "page")]) == 3
    page = (tmp_path / "page/index.html").read_text()
    assert json.loads((tmp_path / "page/findings.json").read_text())["errors"] == 1
    assert "joint jumps" in page and "<rect" in page and "<polyline" in page
    assert 'src="http' not in page and "href=" not in page and "<script" not in page
    assert "log_&lt;b&gt;" in page and "log_<b>" not in page
