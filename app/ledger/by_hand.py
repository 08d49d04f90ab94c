"""One delivery as its owner sees it, and what an owner may do to it: retry, cancel."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, text

from app.domain.states import DeliveryStatus, Outcome

MOST_ROUNDS = 32_767  # of smallint


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row of `duehook.deliveries` without what only claims need."""

    id: int
    event: int
    endpoint: int
    status: DeliveryStatus
    attempt: int
    next_attempt_at: datetime
    parked: bool
    lease_until: datetime | None
    reason: str | None
    created_at: datetime
    updated_at: datetime
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A row of `duehook.attempts`: one claim and what came of it."""

    number: int
    outcome: Outcome
    status_code: int | None
    started_at: datetime
    ended_at: datetime | None
    address: str | None
    key_ids: Sequence[str]
    error: str | None
    excerpt: bytes | None
    location: str | None
    retry_after: timedelta | None


_COLUMNS = """id, event, endpoint, status, attempt, next_attempt_at, parked, lease_until, reason, created_at,
    updated_at, delivered_at"""
_FIND = text(f"""/* deliveries.find */
    SELECT {_COLUMNS} FROM duehook.deliveries WHERE tenant = :tenant AND id = :id""")
_LOAD = text(f"/* deliveries.load */ SELECT {_COLUMNS} FROM duehook.deliveries WHERE id = ANY (CAST(:ids AS bigint[]))")
_ATTEMPTS = text("""/* attempts.of_delivery */
    SELECT number, outcome, status_code, started_at, ended_at, address, key_ids, error, excerpt, location, retry_after
      FROM duehook.attempts WHERE delivery = :delivery ORDER BY number DESC LIMIT :most""")


def find(connection: Connection, tenant: str, delivery: int) -> Delivery | None:
    """One delivery; None when the tenant has none of that id."""
    row = connection.execute(_FIND, {"tenant": tenant, "id": delivery}).one_or_none()
    return None if row is None else _delivery(row)


def load(connection: Connection, ids: Sequence[int]) -> dict[int, Delivery]:
    """Deliveries by id."""
    return {row.id: _delivery(row) for row in connection.execute(_LOAD, {"ids": list(ids)})}


def attempts(connection: Connection, delivery: int, *, most: int) -> list[Attempt]:
    """The last `most` attempts of a delivery, in the order they were made."""
    rows = connection.execute(_ATTEMPTS, {"delivery": delivery, "most": most}).all()
    return [_attempt(row) for row in reversed(rows)]


class Reopening(StrEnum):
    """What a re-opening came to."""

    OPEN = "open"
    IN_FLIGHT = "in_flight"  # a lease runs: its outcome decides
    ENDPOINT_DELETED = "endpoint_deleted"
    EVENT_ERASED = "event_erased"
    WORN_OUT = "worn_out"  # it has had every round there is


# The same shape as a claim: seen and locked first, judged from that, changed by key. What was leased when the statement
# began, and has ended while it waited for the lock, is checked as it was before it is changed as it is: so the lease is
# cleared too.
_REOPEN = text("""/* deliveries.reopen */
    WITH seen AS MATERIALIZED (
        SELECT d.id, d.status, d.round, e.deleted_at IS NOT NULL AS endpoint_deleted, EXISTS (
                   SELECT FROM duehook.events v
                    WHERE v.seq = d.event AND v.erased_at IS NOT NULL OFFSET 0) AS event_erased
          FROM duehook.deliveries d JOIN duehook.endpoints e ON e.seq = d.endpoint
         WHERE d.id = ANY (CAST(:ids AS bigint[])) AND d.tenant = :tenant
         ORDER BY d.id FOR UPDATE OF d),
    judged AS MATERIALIZED (
        SELECT id, CASE
                WHEN status = 'leased' THEN 'in_flight'
                WHEN event_erased THEN 'event_erased'
                WHEN endpoint_deleted THEN 'endpoint_deleted'
                WHEN status <> 'scheduled' AND round >= :most_rounds THEN 'worn_out'
                ELSE 'open' END AS judgement
          FROM seen),
    changed AS (
        UPDATE duehook.deliveries d
           SET status = 'scheduled', next_attempt_at = now.at, parked = false, cancel_requested = false,
               round = CASE status WHEN 'scheduled' THEN round ELSE round + 1 END,
               step = CASE status WHEN 'scheduled' THEN step ELSE 0 END,
               abandoned = CASE status WHEN 'scheduled' THEN abandoned ELSE 0 END,
               age_from = CASE status WHEN 'scheduled' THEN age_from ELSE now.at END,
               reason = NULL, delivered_at = NULL, token = NULL, claimed_at = NULL, lease_until = NULL,
               updated_at = now.at
          FROM (SELECT duehook.now() AS at OFFSET 0) now
         WHERE d.id = ANY (ARRAY(SELECT id FROM judged WHERE judgement = 'open')))
    SELECT id, judgement FROM judged""")


def reopen(connection: Connection, tenant: str, ids: Sequence[int]) -> dict[int, Reopening]:
    """Have these tried now: a terminal one begins a new round, its schedule and age anew; a waiting one only sooner.

    Answers for every id that the tenant has. A repeat finds them waiting and due, and changes nothing but the time.
    The events must be locked by an earlier statement: this one's snapshot has to see whether they were erased.
    """
    parameters = {"tenant": tenant, "ids": list(ids), "most_rounds": MOST_ROUNDS}
    return {row.id: Reopening(row.judgement) for row in connection.execute(_REOPEN, parameters)}


_CANCEL = text("""/* deliveries.cancel */
    WITH seen AS MATERIALIZED (
        SELECT id, status FROM duehook.deliveries
         WHERE id = ANY (CAST(:ids AS bigint[])) AND tenant = :tenant ORDER BY id FOR UPDATE),
    changed AS (
        UPDATE duehook.deliveries
           SET status = CASE status WHEN 'scheduled' THEN 'cancelled' ELSE status END,
               cancel_requested = true, parked = false, updated_at = duehook.now()
         WHERE id = ANY (ARRAY(SELECT id FROM seen WHERE status IN ('scheduled', 'leased'))))
    SELECT id, status FROM seen""")


def cancel(connection: Connection, tenant: str, ids: Sequence[int]) -> dict[int, DeliveryStatus]:
    """End what waits, and ask what is in the air to end as cancelled unless it is delivered; what is terminal stays.

    Answers for every id that the tenant has with the state it was in.
    """
    rows = connection.execute(_CANCEL, {"tenant": tenant, "ids": list(ids)})
    return {row.id: DeliveryStatus(row.status) for row in rows}


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(**{**row._mapping, "status": DeliveryStatus(row.status)})


def _attempt(row: Row[Any]) -> Attempt:
    return Attempt(**{**row._mapping, "outcome": Outcome(row.outcome), "key_ids": tuple(row.key_ids or ())})
