import pytest
from hypothesis import given
from hypothesis import strategies as st

from robocoach.agent_loop.budget import LONGEST_S, attempt_estimate_s, duration_words, fits, parse_duration
from robocoach.configs.errors import UserError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8h", 28_800), ("90m", 5_400), ("1h30m", 5_400), ("45s", 45), ("0.5h", 1_800), (" 2D ", 172_800)],
)
def test_times_are_read_as_people_write_them(text, seconds):
    assert parse_duration(text) == seconds


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_a_time_that_was_written_is_read_back(days, hours, minutes, seconds):
    parts = [f"{value}{unit}" for value, unit in zip((days, hours, minutes, seconds), "dhms", strict=True) if value]
    total = 86_400 * days + 3_600 * hours + 60 * minutes + seconds
    if total:
        assert parse_duration("".join(parts)) == total


@pytest.mark.parametrize(
    "text", ["", " ", "8", "h", "8 h 3", "-1h", "1h1h", "30m1h", "1e3s", "½h", "٣h", "8h\n9m", "nan"]
)
def test_what_is_no_time_is_refused_with_examples(text):
    with pytest.raises(UserError, match="8h, 90m, 45s or 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0h", "0h0m", "10001h", "9" * 400 + "d"])
def test_no_time_and_more_than_a_year_are_refused(text):
    with pytest.raises(UserError, match="more than no time and at most 10000h") as found:
        parse_duration(text)
    assert len(str(found.value)) < 120


@given(st.text(max_size=12))
def test_any_text_is_a_time_within_limits_or_refused(text):
    try:
        assert 0 < parse_duration(text) <= LONGEST_S
    except UserError as error:
        assert "8h" in str(error) or "at most" in str(error)


def test_an_attempt_is_expected_to_take_its_training_and_the_longest_of_the_last_three_others():
    assert attempt_estimate_s(60, [99, 5, 9, 7]) == 69
    assert attempt_estimate_s(60, []) == 60


def test_an_attempt_fits_up_to_the_second():
    assert fits(100, 50, 30, 20) and not fits(100, 50, 30, 20.5)


@pytest.mark.parametrize(("seconds", "words"), [(28_800, "8 h"), (480, "8 min"), (5_400, "1 h 30 min"), (45, "45 s")])
def test_a_time_is_said_as_people_say_it(seconds, words):
    assert duration_words(seconds) == words


@given(st.integers(2, 6_000))
def test_what_is_said_of_whole_minutes_is_read_back(minutes):
    said = duration_words(60 * minutes).replace(" min", "m").replace(" h", "h").replace(" ", "")
    assert parse_duration(said) == 60 * minutes
