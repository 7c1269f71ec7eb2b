"""The decisive lines of a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robocoach.agent_loop.log_lines import LINE_MOST, LINES_MOST, TRACEBACK_MOST, decisive_lines

TRACE = [
    "Traceback (most recent call last):",
    '  File "x.py", line 3, in f',
    "    step()",
    "torch.OutOfMemoryError: CUDA out of memory",
]


@pytest.mark.parametrize(
    "line",
    [
        "loss or gradient was not finite at step 3",
        "CUDA out of memory. Tried to allocate 2 GiB",
        "process 12 was killed by signal 9",
        "the training timed out",
        "RuntimeError: shapes do not match",
        "UserWarning: two frames are black",
    ],
)
def test_a_line_that_decides_is_kept_without_its_time_of_day(line):
    found, _ = decisive_lines(["10:00:00 begun", f"10:00:01 {line}", "10:00:02 step 20"])
    assert found == (line,)


@pytest.mark.parametrize("line", ["step 100: kept-apart loss 0.2", "info: nothing", "finance", "terrors"])
def test_an_ordinary_line_is_left_out(line):
    assert decisive_lines([line]) == ((), ())


def test_of_a_traceback_its_last_line_decides_and_the_whole_is_kept():
    found, traceback = decisive_lines(["begun", *TRACE, "10:00:09 saved"])
    assert found == ("torch.OutOfMemoryError: CUDA out of memory",)
    assert traceback == tuple(TRACE)


def test_the_last_of_two_tracebacks_is_the_one_kept():
    second = [TRACE[0], '  File "y.py", line 1, in g', "ValueError: two"]
    assert decisive_lines([*TRACE, *second])[1] == tuple(second)


def test_a_line_that_comes_again_is_counted_once():
    found, _ = decisive_lines([f"10:00:{second:02} UserWarning: black" for second in range(5)])
    assert found == ("UserWarning: black (5 times)",)


def test_when_there_are_too_many_the_weaker_kinds_go_first():
    warnings = [f"warning {index}" for index in range(50)]
    found, _ = decisive_lines([*warnings[:25], "loss was not finite", *warnings[25:]])
    assert len(found) == LINES_MOST and "loss was not finite" in found and "warning 49" in found


def test_the_end_of_a_long_traceback_is_kept():
    long = [TRACE[0], *['  File "x.py", line 3, in f'] * 500, "ValueError: deep"]
    _, traceback = decisive_lines(long)
    assert traceback[-1] == "ValueError: deep" and sum(len(line) + 1 for line in traceback) <= TRACEBACK_MOST


@given(st.lists(st.text(max_size=500) | st.sampled_from([*TRACE, "Error: x", "nan"]), max_size=60))
def test_any_log_stays_within_its_caps(lines):
    found, traceback = decisive_lines(lines)
    assert len(found) <= LINES_MOST and all(len(line) <= LINE_MOST + len(" (60 times)") for line in found)
    assert sum(len(line) + 1 for line in traceback) <= TRACEBACK_MOST
