"""The client of the HTTP API, for programs in Python; httpx is all it needs.

    with Client("http://127.0.0.1:8300", key) as duehook:
        held = duehook.reservations.hold("truck 7", hold_seconds=900)
        duehook.events.post("order.placed", {"total": 12.5}, key="order-1001")

`AsyncClient` has the same nouns and methods, to be awaited. Every method raises `DuehookError` alone for what the
service or the network does, and ValueError for arguments that can't be sent. What is lost or refused for the moment is
tried again, by `Retries`; a POST carries an Idempotency-Key, so that trying again never has two effects.
"""

from app.client.clients import AsyncClient, Client
from app.client.errors import (
    BrokenError,
    ConflictError,
    DuehookError,
    Flaw,
    ForbiddenError,
    InvalidError,
    NotEndedError,
    NotFoundError,
    RefusedError,
    TooLargeError,
    TooManyError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
    UnknownOutcomeError,
)
from app.client.retries import Retries
from app.client.shapes import (
    Accepted,
    Attempt,
    Cancelled,
    DeadLetter,
    Delivery,
    Endpoint,
    Event,
    Job,
    JobResult,
    Matching,
    NewEvent,
    Ready,
    Reservation,
    Rotated,
)

__all__ = [
    "Accepted",
    "AsyncClient",
    "Attempt",
    "BrokenError",
    "Cancelled",
    "Client",
    "ConflictError",
    "DeadLetter",
    "Delivery",
    "DuehookError",
    "Endpoint",
    "Event",
    "Flaw",
    "ForbiddenError",
    "InvalidError",
    "Job",
    "JobResult",
    "Matching",
    "NewEvent",
    "NotEndedError",
    "NotFoundError",
    "Ready",
    "RefusedError",
    "Reservation",
    "Retries",
    "Rotated",
    "TooLargeError",
    "TooManyError",
    "UnauthorizedError",
    "UnavailableError",
    "UnexpectedAnswerError",
    "UnknownOutcomeError",
]
