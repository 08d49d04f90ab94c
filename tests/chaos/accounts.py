"""The three accounts of a run, as the judge is given them: the database's, the receivers', and the producers'."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from app.domain.identity import public_id
from tests.chaos.load import Told

EVENTS = """
    SELECT tenant, id, key, origin, type, data, extract(epoch FROM due_at)::float8, head || data::text || '}'
      FROM duehook.events WHERE type LIKE 'order.%' OR type LIKE 'reservation.%'"""
RESERVATIONS = "SELECT tenant, id, status, extract(epoch FROM expires_at)::float8 FROM duehook.reservations"
DELIVERIES = """
    SELECT d.id, e.id, n.url, d.status
      FROM duehook.deliveries d
      JOIN duehook.events e ON e.seq = d.event
      JOIN duehook.endpoints n ON n.seq = d.endpoint"""
ATTEMPTS = "SELECT delivery, number, outcome, extract(epoch FROM started_at)::float8 FROM duehook.attempts ORDER BY 4"
EFFECTS = "SELECT event, key, type FROM effects"
REQUESTS = "SELECT event, attempt, delivery, body, answer, came_at FROM requests ORDER BY rowid"


@dataclass(frozen=True, slots=True)
class Committed:
    """An event, as the database has it."""

    tenant: str
    id: str
    key: str
    origin: str
    type: str
    data: Any
    due_at: float
    body: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A reservation, as the database has it."""

    tenant: str
    id: str
    status: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class Delivery:
    """One, as the database has it; ids are the public ones, `url` is the receiver's."""

    id: str
    event: str
    url: str
    status: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One, as it was recorded."""

    delivery: str
    number: int
    outcome: str
    started_at: float


@dataclass(frozen=True, slots=True)
class Request:
    """One, as a receiver remembers it; `delivery` is the public id, `body` a digest."""

    event: str
    attempt: int
    delivery: str
    body: str
    answer: str
    came_at: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where a receiver is, whose events it gets, and the file that it keeps its ledger in."""

    name: str
    tenant: str
    url: str
    path: Path


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a receiver has kept: its effects as (event, key, type), and every request in order."""

    place: Place
    effects: Sequence[tuple[str, str | None, str]]
    requests: Sequence[Request]


@dataclass(frozen=True, slots=True)
class Accounts:
    """All of them."""

    events: Sequence[Committed]
    reservations: Sequence[Kept]
    deliveries: Sequence[Delivery]
    attempts: Sequence[Attempt]
    ledgers: Sequence[Ledger]
    told: Told

    def events_of(self, tenant: str) -> list[Committed]:
        return [each for each in self.events if each.tenant == tenant]


def read(connection: psycopg.Connection[Any], places: Iterable[Place], told: Told) -> Accounts:
    """As they are now."""
    return Accounts(
        [Committed(*row) for row in connection.execute(EVENTS)],
        [Kept(*row) for row in connection.execute(RESERVATIONS)],
        [Delivery(public_id("dlv", id), *rest) for id, *rest in connection.execute(DELIVERIES)],
        [Attempt(public_id("dlv", id), *rest) for id, *rest in connection.execute(ATTEMPTS)],
        [remembered(each) for each in places],
        told,
    )


def remembered(place: Place) -> Ledger:
    """What a receiver has in its file."""
    with closing(sqlite3.connect(place.path)) as connection:
        requests = [Request(*row) for row in connection.execute(REQUESTS)]
        return Ledger(place, connection.execute(EFFECTS).fetchall(), requests)
