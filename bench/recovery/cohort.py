"""What fell due while the service was not there."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.recovery import plan
from bench.recovery.plan import Plan
from bench.subscribers import TENANT
from bench.throughput import DATA

AT_ONCE = 10_000  # rows in one statement
YOUNGEST = 60.0  # seconds that the last of it is overdue, when the first of it is written
HELD = 900.0  # seconds from hold to expiry

# Ordinary inserts: the guards let a row be as old as it says it is, and make its deliveries and outbox rows.
EVENTS = """INSERT INTO duehook.events (tenant, type, key, data, created_at, due_at)
            SELECT (%(tenants)s::text[])[1 + g %% %(turns)s], (%(types)s::text[])[1 + g %% %(turns)s],
                   'overdue:' || g, %(data)s::json, at, at
              FROM generate_series(%(first)s::integer, %(last)s) g
             CROSS JOIN LATERAL (SELECT to_timestamp(%(began)s + g * %(step)s::float8) AS at) t
            RETURNING id, tenant"""
RESERVATIONS = """INSERT INTO duehook.reservations (tenant, resource, expires_at, created_at, updated_at)
                  SELECT (%(tenants)s::text[])[1 + g %% %(turns)s], 'seat ' || g, at + %(held)s * interval '1 second',
                         at, at
                    FROM generate_series(%(first)s::integer, %(last)s) g
                   CROSS JOIN LATERAL (SELECT to_timestamp(%(began)s - %(held)s + g * %(step)s::float8) AS at) t
                  RETURNING seq, tenant"""


@dataclass(frozen=True, slots=True)
class Cohort:
    """Ids of the events, those of tenants without a flood once more, and numbers of the reservations.

    `seconds` is how long it took to write them.
    """

    events: list[str]
    others: list[str]
    reservations: list[int]
    seconds: float


def fill(connection: psycopg.Connection[Any], wanted: Plan) -> Cohort:
    """Write it, due evenly over the time of the stop, and leave the database as it would be after so long a time.

    `connection` is in autocommit.
    """
    began = time.monotonic()
    turns = plan.mixed()
    common = {"tenants": [each.tenant for each in turns], "turns": len(turns), "held": HELD, "data": DATA}
    types = {"types": [each.type for each in turns]}
    events = _insert(connection, EVENTS, wanted.deliveries, wanted.stop, common | types)
    reservations = _insert(connection, RESERVATIONS, wanted.expiries, wanted.stop, common)
    connection.execute("VACUUM (ANALYZE) duehook.events, duehook.deliveries, duehook.reservations, duehook.outbox")
    connection.execute("CHECKPOINT")
    others = [event for event, tenant in events if tenant != TENANT]
    took = round(time.monotonic() - began, 1)
    return Cohort([event for event, _ in events], others, [seq for seq, _ in reservations], took)


def _insert(
    connection: psycopg.Connection[Any], statement: str, number: int, stop: float, values: dict[str, Any]
) -> list[tuple[Any, str]]:
    now = float(connection.execute("SELECT extract(epoch FROM duehook.now())::float8").fetchall()[0][0])
    over = {"began": now - stop, "step": (stop - YOUNGEST) / max(1, number - 1)}
    return [
        row
        for first, last in _stretches(number)
        for row in connection.execute(statement, {**values, **over, "first": first, "last": last})
    ]


def _stretches(number: int) -> Iterator[tuple[int, int]]:
    for first in range(0, number, AT_ONCE):
        yield first, min(first + AT_ONCE, number) - 1
