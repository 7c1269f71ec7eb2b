"""Single keys from the terminal without waiting for them: the operator's hand on a rollout, a recording, a session.

Foot pedals type keys, so they come through here too. Where standard input is no terminal (a pipe, a job in the
background) there are no keys and `poll` always says None. Knows nothing of what a key means.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty

ESCAPE_WAIT_S = 0.05
"""A lone escape byte counts as the key itself when nothing follows it for so long; ssh may split a sequence."""

_SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1b[1~": "home",
    b"\x1b[2~": "insert",
    b"\x1b[3~": "delete",
    b"\x1b[4~": "end",
    b"\x1b[5~": "pageup",
    b"\x1b[6~": "pagedown",
    b"\x1b[Z": "backtab",
    b"\x1bOP": "f1",
    b"\x1bOQ": "f2",
    b"\x1bOR": "f3",
    b"\x1bOS": "f4",
    b"\x1b[15~": "f5",
    b"\x1b[17~": "f6",
    b"\x1b[18~": "f7",
    b"\x1b[19~": "f8",
    b"\x1b[20~": "f9",
    b"\x1b[21~": "f10",
    b"\x1b[23~": "f11",
    b"\x1b[24~": "f12",
} | {b"\x1bO" + letter: name for letter, name in ((b"A", "up"), (b"B", "down"), (b"C", "right"), (b"D", "left"))}
"""What xterm and its relatives send for keys that are no character."""

_NAMES = {" ": "space", "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace"}

NAMED_KEYS = frozenset({*_SEQUENCES.values(), *_NAMES.values(), "escape"})
"""Names of keys that are no single character."""


def is_key(name: str) -> bool:
    """Whether `poll` can ever answer with this name: one printable character, or a name of `NAMED_KEYS`."""
    return name in NAMED_KEYS or (len(name) == 1 and name.isprintable() and name != " ")


class Keys:
    """The terminal's keys while the block runs: a context manager that puts the terminal back as it was.

    Ctrl-C stays what it is (KeyboardInterrupt). Not for use by several threads at once.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """`descriptor` is the terminal's, standard input by default."""
        self._descriptor = descriptor
        self._before: list | None = None
        self._bytes = b""
        self._escape_at = 0.0

    def __enter__(self) -> Keys:
        if self._descriptor is None:
            self._descriptor = _standard_input()
        if self._descriptor is not None and _is_ours(self._descriptor):
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None and self._descriptor is not None:
            with contextlib.suppress(termios.error):  # the terminal may have gone away
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
        self._before = None

    @property
    def available(self) -> bool:
        """Whether there is a terminal to read keys from."""
        return self._before is not None

    def poll(self) -> str | None:
        """The next key typed, None when there is none; never waits.

        A printable character is itself (`a`, `A`, `7`); the others are `space`, `enter`, `left`, `pageup`, `f5`, …
        """
        self._read()
        while self._bytes:
            key, used = self._first()
            if not used:
                return None
            self._bytes = self._bytes[used:]
            if key:
                return key
        return None

    def drain(self) -> list[str]:
        """All keys typed since the last look, oldest first; also what one calls to forget them."""
        typed = []
        while (key := self.poll()) is not None:
            typed.append(key)
        return typed

    def _read(self) -> None:
        if self._before is None or self._descriptor is None:
            return
        try:
            while select.select([self._descriptor], [], [], 0)[0]:
                some = os.read(self._descriptor, 1024)
                if not some:
                    break
                if not self._bytes:
                    self._escape_at = time.monotonic()
                self._bytes += some
        except OSError:
            self._before = None  # the terminal went away: no more keys, the work goes on

    def _first(self) -> tuple[str, int]:
        """The first key in the buffer and its bytes; ("", n) for n bytes to skip, ("", 0) when more has to come."""
        if self._bytes[:1] != b"\x1b":
            return self._character()
        for sequence, name in _SEQUENCES.items():
            if self._bytes.startswith(sequence):
                return name, len(sequence)
        unfinished = any(sequence.startswith(self._bytes) for sequence in _SEQUENCES)
        if unfinished and time.monotonic() - self._escape_at < ESCAPE_WAIT_S:
            return "", 0
        if self._bytes[1:2] in (b"[", b"O"):
            return "", _length(self._bytes)  # a sequence of a key that has no name here
        return "escape", 1

    def _character(self) -> tuple[str, int]:
        first = self._bytes[0]
        size = 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        if len(self._bytes) < size:
            return "", 0
        text = self._bytes[:size].decode(errors="ignore")
        return _NAMES.get(text, text if text.isprintable() else ""), size


def _length(sequence: bytes) -> int:
    """Bytes of a control sequence: up to its first letter or tilde."""
    for index, byte in enumerate(sequence[2:], start=2):
        if 0x40 <= byte <= 0x7E:
            return index + 1
    return len(sequence)


def _standard_input() -> int | None:
    try:
        return sys.stdin.fileno()
    except (AttributeError, ValueError, OSError):
        return None  # closed, or replaced by something without a descriptor


def _is_ours(descriptor: int) -> bool:
    """Whether this is a terminal that this process may change; a job in the background would be halted for it."""
    if not os.isatty(descriptor):
        return False
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return True  # not our controlling terminal: no job control, nobody to ask
