"""A stage of a rollout in words: what was commanded, and where hand and object were, in the frame that is asked for.

    jaws closed 11 mm off the red cube's centre (11 mm along its −x axis), turned 4° against it, nearest part: face −x

Forms: `state` gives the recorded numbers without relating them, `relations` relates them. Spaces: `world` axes, the
`object`'s own axes with the turn against it, or `parts`: the same with the nearest declared part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from robocoach.agent_loop.evidence import StageAccount

Form = Literal["outcome", "state", "relations"]
Space = Literal["world", "object", "parts"]

OUTPUTS_MOST = 12
OUTPUT_MOST = 60
"""Commanded outputs of a stage, and characters of each."""
ON_CENTRE_M = 0.001
COMPONENT_M, COMPONENT_SHARE = 0.002, 0.2
"""A component of an offset is told when it is at least this long, and this share of the longest."""
TURN_DEG = 1.0
TICK_S = 0.1

_MOMENTS = {
    "jaws closed": ("the jaws closed", "the jaws closed when {} was"),
    "closest": ("at its closest the hand was", "at its closest {} was"),
    "reached": ("at the stage's end the hand was", "at the stage's end {} was"),
    "lost": ("the grip was lost with the hand", "the grip was lost with {}"),
}
_CONTACTS = {"gained": "grip gained", "lost": "grip lost", "held": "grip kept", "none": "no grip"}


def plain(name: str) -> str:
    """A name as a reader would say it: `red_cube` is the red cube."""
    return name.replace("_", " ")


def part_name(name: str) -> str:
    """A part's name with the minus sign of the text around it: `face −x`."""
    return re.sub(r"-(?=[xyz]\b)", "−", name)


def mm(metres: float) -> str:
    """A length in millimetres."""
    return f"{1000 * metres:.0f} mm"


def signed(axis: str, value: float) -> str:
    """`+x` or `−x`."""
    return f"{'+' if value >= 0 else '−'}{axis}"


def places(account: StageAccount) -> bool:
    """The stage is about where the object belongs, not about the hand."""
    return account.relative_to not in ("", account.object)


def told(account: StageAccount, form: Form, space: Space) -> str:
    """Where hand or object were at the moment that says most about the stage; empty when nothing was recorded."""
    if form == "outcome":
        return ""
    if form == "state":
        return _state(account)
    return _relation(account, space)


def _state(account: StageAccount) -> str:
    found = []
    if account.world_offset_m:
        found.append(
            "offset " + " ".join(f"{axis} {value:.3f}" for axis, value in account.world_offset_m.items()) + " m"
        )
    if account.aperture_m is not None:
        found.append(f"aperture {account.aperture_m:.3f} m")
    if account.contact:
        found.append(f"contact {account.contact}")
    return ", ".join(found)


def _relation(account: StageAccount, space: Space) -> str:
    offset = account.world_offset_m if space == "world" else account.offset_m
    if not offset:
        return ""
    hand, object_ = _MOMENTS.get(account.moment, (f"{account.moment}: the hand was", f"{account.moment}: {{}} was"))
    thing, at = f"the {plain(account.object)}", f"the {plain(account.relative_to or account.object)}"
    length = sum(value**2 for value in offset.values()) ** 0.5
    if places(account):
        begin, centre = object_.format(thing), f"its place at {at}"
        owner = f"{at}'s"
    else:
        begin, centre = hand, f"{at}'s centre"
        owner = "its"
    if length < ON_CENTRE_M:
        words = f"{begin} {'in' if places(account) else 'on'} {centre}"
    else:
        words = f"{begin} {mm(length)} off {centre} ({_along(offset, space, owner)})"
    if space != "world" and account.turn_deg is not None and abs(account.turn_deg) >= TURN_DEG:
        words += f", turned {abs(account.turn_deg):.0f}° against {'it' if not places(account) else at}"
    if space == "parts" and account.nearest_part:
        away = f", {mm(account.nearest_part_m)} from its middle" if account.nearest_part_m is not None else ""
        words += f", nearest part: {part_name(account.nearest_part)}{away}"
    return words


def _along(offset: Mapping[str, float], space: Space, owner: str) -> str:
    longest = max(abs(value) for value in offset.values())
    shown = sorted(
        (
            (axis, value)
            for axis, value in offset.items()
            if abs(value) == longest or abs(value) >= max(COMPONENT_M, COMPONENT_SHARE * longest)
        ),
        key=lambda pair: -abs(pair[1]),
    )
    parts = []
    for axis, value in shown:
        if space != "world" and not parts:
            parts.append(f"{mm(abs(value))} along {owner} {signed(axis, value)} axis")
        elif space != "world":
            parts.append(f"{mm(abs(value))} along {signed(axis, value)}")
        elif axis == "z":
            parts.append(f"{mm(abs(value))} {'above' if value > 0 else 'below'}")
        else:
            parts.append(f"{mm(abs(value))} along world {signed(axis, value)}")
    return ", ".join(parts)


def commanded(account: StageAccount) -> str:
    """What the stage's commands asked for; empty when it was not recorded."""
    known = {"path_m": "a path of {:.2f} m", "closings": "closing the jaws {:.0f} times"}
    found = []
    for name, value in list(account.commanded.items())[:OUTPUTS_MOST]:
        if name == "width_m":
            words = f"jaws {mm(value)} apart"
        elif name == "closings" and value == 1:
            words = "closing the jaws"
        elif name == "closings" and value == 0:
            continue
        else:
            words = known[name].format(value) if name in known else f"{plain(name)} {value:.4g}"
        found.append(words[:OUTPUT_MOST])
    return ", ".join(found)


def grip(account: StageAccount) -> str:
    """What became of the grip, and whether the object moved as the hand did."""
    found = []
    if account.aperture_m is not None:
        found.append(f"jaws {mm(account.aperture_m)} apart")
    if account.contact:
        words = _CONTACTS.get(account.contact, account.contact)
        if account.lost_after_ticks is not None:
            words += f" after {account.lost_after_ticks * TICK_S:.1f} s of holding"
        found.append(words)
    if account.moved_with_hand is not None:
        verb = "moved" if account.moved_with_hand else "did not move"
        found.append(f"the {plain(account.object) or 'object'} {verb} with the hand")
    return ", ".join(found)
