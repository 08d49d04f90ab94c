"""How fast a backlog of deliveries goes out, and what each costs in CPU time over all processes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.cpu import machine_seconds
from bench.stage import Stage
from bench.subscribers import Subscription

BODY_BYTES = 1024
REST = 173  # what a body holds besides its data
DATA = '{"order":1,"note":"' + "x" * (BODY_BYTES - REST) + '"}'
SLOWEST = 100.0  # deliveries per second that are waited for


@dataclass(frozen=True, slots=True)
class Throughput:
    """`per_second` from the commit of the insert to the last record.

    `cpu` is CPU seconds per 1,000 deliveries by group of processes; `accepting` is what the insert cost in all of
    them, `total` everything. `others` is how many cores were busy with something else meanwhile.
    """

    deliveries: int
    accepted_per_second: float
    per_second: float
    cpu: Mapping[str, float]
    others: float
    lost: int
    repeated: int


def measure(stage: Stage, deliveries: int, wanted: Sequence[Subscription], expiries: int = 0) -> Throughput:
    """Insert events that are wanted in turn in one go, and wait until all are delivered.

    So many of the `deliveries` are news of `expiries`: reservations of the same tenants, inserted with them, that have
    ended just now.
    """
    machine, began, before = machine_seconds(), time.monotonic(), stage.cpu()
    with stage.connection.transaction():
        _hold(stage, expiries, [each.tenant for each in wanted])
        events = insert_events(stage.connection, deliveries - expiries, wanted)
    committed, accepted, inserted = stage.now(), time.monotonic(), stage.cpu()
    stage.settle(30 + deliveries / SLOWEST)
    after, seconds, busy = stage.cpu(), time.monotonic() - began, machine_seconds() - machine
    received = stage.receiver.received(events)
    return Throughput(
        deliveries,
        accepted_per_second=round(deliveries / (accepted - began)),
        per_second=round(deliveries / (_last_record(stage) - committed)),
        cpu=_costs(before, inserted, after, deliveries),
        others=round((busy - sum(after.values()) + sum(before.values())) / seconds, 2),
        lost=received.lost,
        repeated=received.repeated,
    )


def insert_events(connection: psycopg.Connection[Any], number: int, wanted: Sequence[Subscription]) -> list[str]:
    """In one statement, so many that are wanted in turn; their ids."""
    rows = connection.execute(
        """INSERT INTO duehook.events (tenant, type, key, data)
           SELECT (%s::text[])[1 + g %% %s], (%s::text[])[1 + g %% %s], 'order:' || gen_random_uuid(), %s::json
             FROM generate_series(1, %s) g
           RETURNING id""",
        [[each.tenant for each in wanted], len(wanted), [each.type for each in wanted], len(wanted), DATA, number],
    )
    return [row[0] for row in rows]


def _hold(stage: Stage, number: int, tenants: Sequence[str]) -> None:
    stage.connection.execute(
        """INSERT INTO duehook.reservations (tenant, resource, expires_at)
           SELECT (%s::text[])[1 + g %% %s], 'seat ' || g, duehook.now() FROM generate_series(1, %s) g""",
        [tenants, len(tenants), number],
    )


def _last_record(stage: Stage) -> float:
    rows = stage.connection.execute("SELECT extract(epoch FROM max(delivered_at))::float8 FROM duehook.deliveries")
    return float(rows.fetchall()[0][0])


def _costs(
    before: Mapping[str, float], inserted: Mapping[str, float], after: Mapping[str, float], number: int
) -> dict[str, float]:
    accepting = per_thousand({"accepting": sum(inserted.values()) - sum(before.values())}, number)
    sending = per_thousand({group: after[group] - inserted[group] for group in after}, number)
    total = per_thousand({"total": sum(after.values()) - sum(before.values())}, number)
    return accepting | sending | total


def per_thousand(costs: Mapping[str, float], number: int) -> dict[str, float]:
    """What a thousand of `number` cost."""
    return {name: round(cost / number * 1000, 4) for name, cost in costs.items()}
