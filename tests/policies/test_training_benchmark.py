"""The benchmark of the trainer ends with one JSON object that says what was measured, and where."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "training.py"


def test_it_prints_one_object_with_its_figures(capsys):
    main = runpy.run_path(str(SCRIPT))["main"]
    assert main(["--steps", "40", "--threads", "1", "--batch-size", "2", "--image-px", "32"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["samples_per_s"] > 0
    assert report["chunk_ms"] > 0
    assert set(report["machine"]) >= {"cpu", "cores", "threads", "bf16"}
