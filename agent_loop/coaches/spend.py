"""What asking a model costs: tokens, prices, and the cap that is checked before every call.

Prices are data: genai-prices' table, which comes with pydantic-ai, or the operator's own in ROBOCOACH_PRICE_INPUT,
ROBOCOACH_PRICE_CACHED and ROBOCOACH_PRICE_OUTPUT (USD per million tokens). A model without a price is counted in
tokens only, and cannot be asked under a spend cap. Knows nothing of coaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from robocoach.configs.errors import UserError

PRICE_INPUT, PRICE_CACHED, PRICE_OUTPUT = "ROBOCOACH_PRICE_INPUT", "ROBOCOACH_PRICE_CACHED", "ROBOCOACH_PRICE_OUTPUT"
CHARACTERS_PER_TOKEN = 3.0
"""Of English and JSON; fewer than the usual four, so that an estimate is rather too high."""
TOKENS_PER_PICTURE = 3_000
"""A contact sheet costs at most about this at the providers asked here."""


@dataclass(frozen=True)
class Tokens:
    """What calls used. `input` includes `cached`."""

    input: int = 0
    cached: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.input + other.input, self.cached + other.cached, self.output + other.output)


@dataclass(frozen=True)
class Price:
    """Tells what tokens cost."""

    cost: Callable[[Tokens], float]
    """USD of an amount of tokens; never negative."""
    source: str
    """Where the price is from, in words."""


def price_of(provider: str, model: str, environ: Mapping[str, str]) -> Price | None:
    """The price of a model: the operator's, else the table's; None when neither knows it.

    Raises UserError when the operator's price is no number, or only half given.
    """
    own = _own_price(environ)
    return own or _table_price(provider, model)


def require_price(price: Price | None, provider: str, model: str) -> Price:
    """The price, or a UserError that names what to set: without one no cap can be kept."""
    if price is None:
        raise UserError(
            f"no price is known for {provider}:{model}, so campaign.spend_usd could not be kept; set {PRICE_INPUT} and "
            f"{PRICE_OUTPUT} in USD per million tokens (0 for a model of your own)"
        )
    return price


def estimate(characters: int, pictures: int, most_output: int) -> Tokens:
    """The most that a call is expected to use: `characters` of text, pictures, and `most_output` tokens of answer."""
    return Tokens(
        input=math.ceil(characters / CHARACTERS_PER_TOKEN) + pictures * TOKENS_PER_PICTURE, output=most_output
    )


def _own_price(environ: Mapping[str, str]) -> Price | None:
    given = {name: environ[name] for name in (PRICE_INPUT, PRICE_CACHED, PRICE_OUTPUT) if environ.get(name)}
    if not given:
        return None
    numbers = {name: _usd(name, text) for name, text in given.items()}
    for name in (PRICE_INPUT, PRICE_OUTPUT):
        if name not in numbers:
            raise UserError(f"{name} is missing beside {next(iter(numbers))}; set both, in USD per million tokens")
    fresh, output = numbers[PRICE_INPUT], numbers[PRICE_OUTPUT]
    cached = numbers.get(PRICE_CACHED, fresh)

    def cost(tokens: Tokens) -> float:
        return (
            (tokens.input - tokens.cached) * fresh + tokens.cached * cached + tokens.output * output
        ) / 1_000_000  # the prices are of a million tokens

    return Price(cost, "the environment")


def _usd(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UserError(f"{name} is {text!r}, expected USD per million tokens, a number of at least 0")
    return value


def _table_price(provider: str, model: str) -> Price | None:
    from genai_prices import Usage, calc_price  # half a second, and only a coach that asks a model needs it

    def cost(tokens: Tokens) -> float:
        usage = Usage(input_tokens=tokens.input, cache_read_tokens=tokens.cached or None, output_tokens=tokens.output)
        return float(calc_price(usage, model, provider_id=provider).total_price)

    try:
        cost(Tokens(input=1_000, output=1_000))
    except LookupError:
        return None
    return Price(cost, "genai-prices")
