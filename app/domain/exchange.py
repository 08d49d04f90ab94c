"""What one try at a receiver came to, as the sender saw it and before anybody judges it.

The four cases are told apart by what the receiver can know: `Unreached` and `Blocked` mean that it can't
have the request, `Unknown` that it may have it, `Answered` that it said something we could read.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Answered:
    """A complete, readable, final response head arrived; what its body did afterwards changes nothing."""

    status: int
    address: str
    excerpt: bytes = b""
    location: str | None = None
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Unreached:
    """DNS, connect or TLS failed, or the deadline passed before the first byte of the request was written."""

    error: str
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Request bytes left, and no readable final head came back: the receiver may have acted on it."""

    error: str
    address: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """The address is not one we may connect to; `literal` when the URL names it, so that it can't change."""

    error: str
    literal: bool
    address: str | None = None


Exchange: TypeAlias = Answered | Unreached | Unknown | Blocked
