"""Keys of a real pseudo-terminal: names, sequences, splits, and the terminal as it was afterwards."""

import os
import subprocess
import sys
import termios
import time

import pytest

from robocoach.robots.keys import ESCAPE_WAIT_S, Keys, is_key


@pytest.fixture
def terminal():
    ours, theirs = os.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def typed(keys: Keys, ours: int, what: bytes) -> list[str]:
    os.write(ours, what)
    time.sleep(0.02)
    return keys.drain()


def test_characters_are_themselves_and_the_others_have_names(terminal):
    ours, theirs = terminal
    with Keys(theirs) as keys:
        assert typed(keys, ours, b"aA7 \r\t\x7f") == ["a", "A", "7", "space", "enter", "tab", "backspace"]
        assert typed(keys, ours, b"\x1b[D\x1b[C\x1bOA\x1b[6~\x1b[15~") == ["left", "right", "up", "pagedown", "f5"]
        assert typed(keys, ours, "é".encode()) == ["é"]


def test_polling_never_waits_and_says_none(terminal):
    with Keys(terminal[1]) as keys:
        begin = time.monotonic()
        assert keys.poll() is None
        assert time.monotonic() - begin < 0.05


def test_a_sequence_in_two_parts_is_one_key(terminal):
    ours, theirs = terminal
    with Keys(theirs) as keys:
        assert typed(keys, ours, b"\x1b[") == []
        assert typed(keys, ours, b"B") == ["down"]


def test_escape_alone_is_a_key_after_a_moment(terminal):
    ours, theirs = terminal
    with Keys(theirs) as keys:
        assert typed(keys, ours, b"\x1b") == []
        time.sleep(ESCAPE_WAIT_S)
        assert keys.poll() == "escape"


def test_keys_without_a_name_are_skipped_whole(terminal):
    ours, theirs = terminal
    with Keys(theirs) as keys:
        assert typed(keys, ours, b"\x1b[1;5Cx") == ["x"]


def test_the_terminal_is_as_it_was_afterwards(terminal):
    before = termios.tcgetattr(terminal[1])
    with pytest.raises(RuntimeError), Keys(terminal[1]):
        assert termios.tcgetattr(terminal[1]) != before
        raise RuntimeError
    assert termios.tcgetattr(terminal[1]) == before


def test_without_a_terminal_there_are_no_keys():
    code = "from robocoach.robots.keys import Keys\nwith Keys() as keys: print(keys.available, keys.poll())"
    done = subprocess.run([sys.executable, "-c", code], input="abc", capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "None"]


@pytest.mark.parametrize(
    ("name", "valid"), [("a", True), ("pageup", True), ("space", True), ("", False), ("ab", False)]
)
def test_names_of_keys_can_be_checked(name, valid):
    assert is_key(name) is valid
