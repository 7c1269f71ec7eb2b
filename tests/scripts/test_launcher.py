"""The launcher's set-up: idle in no time, finds a Python behind a dead pyenv shim, says one line about a wrong one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "cat", "cut", "dirname", "flock", "id", "mv", "readlink", "rm", "sha256sum", "timeout", "tail", "tr")
TOOLS += ("df", "ffmpeg")


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path):
    """A copy of the project's set-up in a machine whose PATH holds no Python yet: (run, PATH folder, home)."""
    root, tools, home = tmp_path / "project", tmp_path / "bin", tmp_path / "home"
    (root / "scripts").mkdir(parents=True)
    tools.mkdir()
    home.mkdir()
    shutil.copy(ROOT / "scripts" / "setup", root / "scripts" / "setup")
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    for tool in TOOLS:
        (tools / tool).symlink_to(shutil.which(tool) or "/bin/false")

    def run():
        text = (root / "scripts" / "setup").read_text().replace("/usr/bin/python3", "/nowhere/python3")
        (root / "scripts" / "setup").write_text(text)
        return subprocess.run(
            [root / "scripts" / "setup"],
            env={"PATH": str(tools), "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run, tools, home


@pytest.mark.skipif(not (ROOT / ".venv" / ".stamp-run").exists(), reason="not set up by scripts/setup")
def test_a_set_up_folder_costs_less_than_two_seconds():
    started = time.monotonic()
    done = subprocess.run([ROOT / "scripts" / "setup"], capture_output=True, text=True, timeout=60, check=True)
    assert time.monotonic() - started < 2 and done.stderr == ""


def test_another_python_gets_one_line(bare):
    run, tools, _ = bare
    script(tools / "python3", "echo 3.11; exit 1")
    done = run()
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "needs Python 3.12 or 3.13, found 3.11" in done.stderr


def test_no_python_gets_one_line(bare):
    done = bare[0]()
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "found none" in done.stderr


def test_a_dead_shim_is_passed_over_for_the_python_behind_it(bare):
    run, tools, home = bare
    script(tools / "python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    real = home / ".pyenv" / "versions" / "3.12.9" / "bin" / "python"
    script(real, f'[ "$1" = -m ] && {{ echo "asked for $*" >&2; exit 1; }}; exec {sys.executable} "$@"')
    done = run()
    assert f"({real})" in done.stderr and "asked for -m venv --clear" in done.stderr
    assert done.returncode == 2 and "could not make" in done.stderr


def test_bench_lists_the_benchmarks_when_the_name_is_unknown():
    done = subprocess.run(
        [ROOT / "scripts" / "bench", "speed"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "no benchmark 'speed'" in done.stderr
    for path in (ROOT / "benchmarks").glob("[a-z]*.py"):
        assert path.stem in done.stderr


@pytest.mark.parametrize(
    "name", ["pipeline", "scripts/setup", "scripts/test", "scripts/bench", "scripts/lock", ".ci/run"]
)
def test_every_script_is_executable_and_parses(name):
    assert os.access(ROOT / name, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / name], check=True)
