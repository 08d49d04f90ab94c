r"""Names: public ids, tenants, event types and the patterns that match them.

Every check is `re.fullmatch` over ASCII classes: `$` also matches before a final newline, and `\d` or `\w`
take digits and letters of any script.
"""

import re
from typing import Final, Literal, TypeAlias

Prefix: TypeAlias = Literal["evt", "dlv", "end", "job", "key", "aud"]

_TYPE: Final = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*"
_MOST_TYPE_CHARACTERS: Final = 128
_MOST_NUMBER: Final = 2**63 - 1
_hex_number: Final = re.compile(r"[1-9a-f][0-9a-f]{0,15}")
_reservation_id: Final = re.compile(r"rsv_[0-9A-Za-z]{1,64}")
_tenant: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_event_type: Final = re.compile(_TYPE)
_pattern: Final = re.compile(rf"{_TYPE}(?:\.\*)?|\*")


def public_id(prefix: Prefix, number: int) -> str:
    """The id the outside sees of a row: `evt_19f3c2a9b4d00a31`. No dot, so that signatures stay unambiguous."""
    if not 0 < number <= _MOST_NUMBER:
        raise ValueError(f"an id is a positive 63-bit integer, not {number}")
    return f"{prefix}_{number:x}"


def number(prefix: Prefix, text: str) -> int | None:
    """The row behind a public id; None when the text is not one of this kind, spelled as `public_id` spells it."""
    kind, _, digits = text.partition("_")
    if kind != prefix or not _hex_number.fullmatch(digits):
        return None
    value = int(digits, 16)
    return value if value <= _MOST_NUMBER else None


def is_reservation_id(text: str) -> bool:
    """Whether a client may call a reservation this: `rsv_` and 1 to 64 ASCII letters or digits."""
    return _reservation_id.fullmatch(text) is not None


def is_tenant(text: str) -> bool:
    """Whether a tenant may be called this."""
    return _tenant.fullmatch(text) is not None


def is_event_type(text: str) -> bool:
    """Whether this names a type of event: dotted words, at most 128 characters."""
    return len(text) <= _MOST_TYPE_CHARACTERS and _event_type.fullmatch(text) is not None


def is_pattern(text: str) -> bool:
    """Whether an endpoint may subscribe to this: a type, `prefix.*` or `*`.

    At most 128 characters too: a longer `prefix.*` could match no type.
    """
    return len(text) <= _MOST_TYPE_CHARACTERS and _pattern.fullmatch(text) is not None


def patterns_of(event_type: str) -> tuple[str, ...]:
    """Every pattern that matches the type, narrowest first: `a.b` is matched by `a.b`, `a.*` and `*`.

    So the endpoints of an event are found by equality, which an index can do.
    """
    words = event_type.split(".")
    wider = (".".join(words[:depth]) + ".*" for depth in range(len(words) - 1, 0, -1))
    return (event_type, *wider, "*")


def matches(pattern: str, event_type: str) -> bool:
    """Whether the pattern takes events of this type; `a.*` takes what is deeper than `a`, not `a` itself."""
    return pattern in patterns_of(event_type)


def is_service_type(event_type: str) -> bool:
    """Whether only the service itself may make events of this type."""
    return event_type == "ping" or event_type.startswith(("reservation.", "endpoint.", "job."))
