"""`pipeline record` and `pipeline replay` as a user meets them: in a terminal, killed, interrupted, and mistaken."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from robocoach.datasets.columns import read_columns
from robocoach.datasets.contract import Contract
from robocoach.pipelines import cli

PIPELINE = str(Path(sys.executable).with_name("pipeline"))


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._line, screen = pty.openpty()
        self._process = subprocess.Popen(
            [PIPELINE, *arguments],
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )
        os.close(screen)
        self.said = ""

    def wait_for(self, text: str, timeout_s: float = 60.0) -> None:
        """Reads until something was said since the last wait."""
        deadline, heard = time.monotonic() + timeout_s, ""
        while text not in heard:
            assert time.monotonic() < deadline, f"never said {text!r}: {self.said[-2000:]}"
            if select.select([self._line], [], [], 0.2)[0]:
                try:
                    more = os.read(self._line, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"ended without {text!r}: {self.said[-2000:]}") from None
                heard += more
                self.said += more

    def type(self, keys: str) -> None:
        os.write(self._line, keys.encode())

    def end(self, send: int | None = None) -> int:
        """Waits for the end, reading what is still said; returns the exit code, minus the signal of a kill."""
        if send is not None:
            self._process.send_signal(send)
        while True:
            try:
                if not (more := os.read(self._line, 65536)):
                    break
                self.said += more.decode(errors="replace")
            except OSError:
                break
        os.close(self._line)
        return self._process.wait(30)


def test_an_accepted_episode_outlives_a_kill_and_ctrl_c_says_how_to_go_on(tmp_path):
    out = tmp_path / "recording"
    settings = ("--teleop", "keyboard", "--min-clock-ratio", "0.5", "--out", str(out))
    first = Terminal("record", *settings, "--episodes", "3")
    first.wait_for("enter start")
    first.type("\r")
    first.wait_for("recording")
    for _ in range(4):
        time.sleep(0.2)
        first.type("w")
    first.type("\r")
    first.wait_for("episode 0 accepted")
    assert first.end(signal.SIGKILL) == -signal.SIGKILL

    second = Terminal("record", *settings, "--episodes", "2")
    second.wait_for("1/2 accepted")
    second.wait_for("enter start")
    second.type("\x03")
    assert second.end() == 130 and "go on with" in second.said

    third = subprocess.run(
        [PIPELINE, "record", *settings, "--episodes", "1"], capture_output=True, text=True, timeout=120
    )
    assert third.returncode == 0, third.stderr
    assert "1 episodes" in third.stdout
    frames = read_columns(out / "dataset").frames["observation.state"]
    assert len(frames) >= 8 and abs(frames[-1, :7] - frames[0, :7]).max() > 0.005
    assert Contract.load(out / "dataset").provenance.source == "twin"
    assert json.loads((out / "result.json").read_text())["accepted"] == 1


def refused(capfd, *arguments: str) -> str:
    assert cli.main(list(arguments)) == 2
    said = capfd.readouterr()
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--teleop", "gello"], "--leader FILE"),
        (["--teleop", "gello", "--leader", "nowhere.json"], "no leader calibration"),
        (["--teleop", "script", "--robot", "fr3", "--host", "127.0.0.9"], "ground truth"),
        (["--unattended"], "--teleop script"),
        (["--keys", "stop=enter"], "same time"),
        (["--teleop", "joystick"], "gello"),
        (["--teleop", "keyboard"], "needs a terminal"),
    ],
)
def test_what_cannot_be_recorded_is_one_line_before_anything_starts(capfd, tmp_path, options, said):
    assert said in refused(capfd, "record", "--out", str(tmp_path / "out"), *options)


def test_an_arm_that_was_never_commissioned_is_not_moved(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    line, other = pty.openpty()
    monkeypatch.setattr(sys, "stdin", os.fdopen(other))
    out = str(tmp_path / "out")
    assert "commission" in refused(capfd, "record", "--out", out, "--robot", "fr3", "--host", "127.0.0.9")
    os.close(line)


@pytest.mark.parametrize(("options", "said"), [(["--episode", "one"], "number"), ([], "no LeRobotDataset")])
def test_what_cannot_be_replayed_is_one_line(capfd, tmp_path, options, said):
    assert said in refused(capfd, "replay", "--data", str(tmp_path), "--out", str(tmp_path / "out"), *options)
