"""Text from elsewhere (errors, logs, a coach's own words) made fit for one line of a report."""

from __future__ import annotations


def one_line(text: str, most: int = 200) -> str:
    """The text on one line, at most so many characters, without what would break a table or a code span."""
    flat = " ".join(text.split()).replace("|", "/").replace("`", "'")
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def sentence(text: str, most: int = 200) -> str:
    """The text on one line with one full stop after it."""
    return f"{one_line(text, most).rstrip('.')}."


def quoted(text: str) -> str:
    """The text as a code span."""
    return f"`{text.replace('`', chr(39))}`"


def fenced(lines: tuple[str, ...]) -> list[str]:
    """Lines as a code block that nothing in them can close."""
    return ["```", *(line.replace("```", "'''") for line in lines), "```"]


def plural(count: int, noun: str) -> str:
    """`1 rollout`, `2 rollouts`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def value(one: object) -> str:
    """A setting's value; an empty text is said to be empty."""
    if isinstance(one, float):
        return f"{one:g}"
    return one_line(str(one)) if str(one) else "(empty)"
