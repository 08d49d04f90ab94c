"""What one try at a receiver came to, as the sender saw it and before anybody judges it.

The four cases are told apart by what the receiver can know: `Unreached` and `Blocked` mean that it can't
have the request, `Unknown` that it may have it, `Answered` that it said something we could read.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeAlias


class Phase(StrEnum):
    """Where a try ended without an answer; what is recorded of it begins with this word."""

    # before the send
    RESOLVE = "resolve"
    ADDRESS = "address"
    PROXY = "proxy"  # trouble of ours or of our egress proxy: it says nothing about the receiver
    CONNECT = "connect"
    TLS = "tls"
    # during it, and after all bytes of the request had left
    REQUEST = "request"
    ANSWER = "answer"


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

    phase: Phase
    why: str
    address: str | None = None

    @property
    def error(self) -> str:
        """What is recorded."""
        return f"{self.phase}: {self.why}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Request bytes left, and no readable final head came back: the receiver may have acted on it."""

    phase: Phase
    why: str
    address: str

    @property
    def error(self) -> str:
        """What is recorded."""
        return f"{self.phase}: {self.why}"


@dataclass(frozen=True, slots=True)
class Blocked:
    """The address is not one we may connect to; `literal` when the URL names it, so that it can't change."""

    phase: ClassVar[Phase] = Phase.ADDRESS
    why: str
    literal: bool
    address: str | None = None

    @property
    def error(self) -> str:
        """What is recorded."""
        return f"{self.phase}: {self.why}"


Exchange: TypeAlias = Answered | Unreached | Unknown | Blocked
