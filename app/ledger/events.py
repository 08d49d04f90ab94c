"""Events: immutable bytes, fanned out to endpoints once, when they are made or when their time comes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Row, text


@dataclass(frozen=True, slots=True)
class NewEvent:
    """What a producer asks for. `due_at` or `delay_seconds` or neither (now); `request` is that as it was sent."""

    type: str
    data: str = field(repr=False)
    key: str | None = None
    due_at: datetime | None = None
    delay_seconds: float | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A row of `duehook.events`; `deliveries` counts those it has by now."""

    seq: int
    id: str
    type: str
    key: str | None
    head: str = field(repr=False)
    data: str | None = field(repr=False)  # None: it was erased
    request: str | None = field(repr=False)
    due_at: datetime
    created_at: datetime
    fanned_out_at: datetime | None
    cancelled_at: datetime | None
    erased_at: datetime | None
    digest: bytes | None
    deliveries: int

    def has(self, data: str) -> bool:
        """Whether its data are these bytes; of an erased event its digest knows."""
        if self.digest is None:
            return self.data == data
        return sha256(f"{self.head}{data}}}".encode()).digest() == self.digest


_COLUMNS = """seq, id, type, key, head, data::text AS data, request, due_at, created_at, fanned_out_at, cancelled_at,
    erased_at, digest, (SELECT count(*) FROM duehook.deliveries d WHERE d.event = e.seq) AS deliveries"""

_INSERT = text("""/* events.insert */
    SELECT place, seq, id, created_at, due_at, deliveries FROM duehook.accept_events(
        :tenant, CAST(:types AS text[]), CAST(:keys AS text[]), CAST(:datas AS text[]), CAST(:dues AS timestamptz[]),
        CAST(:delays AS double precision[]), CAST(:requests AS text[]))""")


@dataclass(frozen=True, slots=True)
class Made:
    """A new event, and how many deliveries it has."""

    seq: int
    id: str
    created_at: datetime
    due_at: datetime
    deliveries: int


def insert(connection: Connection, tenant: str, events: Sequence[NewEvent]) -> dict[int, Made]:
    """Insert a tenant's events with their deliveries; returns those that are new by their place among `events`.

    The others have a key that exists. Waits for a transaction that is inserting one of the keys just now.
    """
    parameters = {
        "tenant": tenant,
        "types": [event.type for event in events],
        "keys": [event.key for event in events],
        "datas": [event.data for event in events],
        "dues": [event.due_at for event in events],
        "delays": [event.delay_seconds for event in events],
        "requests": [event.request for event in events],
    }
    return {place: Made(*rest) for place, *rest in connection.execute(_INSERT, parameters)}


_LOAD = text(f"/* events.load */ SELECT {_COLUMNS} FROM duehook.events e WHERE seq = ANY (CAST(:seqs AS bigint[]))")
_BY_KEY = text(f"""/* events.by_key */
    SELECT {_COLUMNS} FROM duehook.events e
     WHERE tenant = :tenant AND origin = 'producer' AND key = ANY (CAST(:keys AS text[]))""")
_FIND = text(f"/* events.find */ SELECT {_COLUMNS} FROM duehook.events e WHERE tenant = :tenant AND seq = :seq")


def load(connection: Connection, seqs: Sequence[int]) -> dict[int, Event]:
    """Events by seq."""
    return {row.seq: _event(row) for row in connection.execute(_LOAD, {"seqs": list(seqs)})}


def by_key(connection: Connection, tenant: str, keys: Sequence[str]) -> dict[str, Event]:
    """A tenant's own events by business key; the service's are a space apart."""
    return {row.key: _event(row) for row in connection.execute(_BY_KEY, {"tenant": tenant, "keys": list(keys)})}


def find(connection: Connection, tenant: str, seq: int) -> Event | None:
    """One event; None when the tenant has none of that id."""
    row = connection.execute(_FIND, {"tenant": tenant, "seq": seq}).one_or_none()
    return None if row is None else _event(row)


_EXISTS = text("/* events.exists */ SELECT EXISTS (SELECT FROM duehook.events WHERE tenant = :tenant AND seq = :seq)")


def exists(connection: Connection, tenant: str, seq: int) -> bool:
    """Whether the tenant has this event."""
    return bool(connection.execute(_EXISTS, {"tenant": tenant, "seq": seq}).scalar_one())


_BODIES = text("""/* events.bodies */
    SELECT seq, id, head || data::text || '}' AS body FROM duehook.events WHERE seq = ANY (CAST(:seqs AS bigint[]))""")


def bodies(connection: Connection, seqs: Sequence[int]) -> dict[int, tuple[str, bytes | None]]:
    """seq -> (public id, the exact bytes that every receiver gets on every attempt); None of them once it is erased."""
    return {
        row.seq: (row.id, None if row.body is None else row.body.encode())
        for row in connection.execute(_BODIES, {"seqs": list(seqs)})
    }


_FAN_OUT = text("""/* events.fan_out */
    WITH open AS MATERIALIZED (
        SELECT seq FROM duehook.events
         WHERE seq = ANY (CAST(:seqs AS bigint[])) AND fanned_out_at IS NULL AND cancelled_at IS NULL
         ORDER BY seq FOR UPDATE SKIP LOCKED)
    UPDATE duehook.events SET fanned_out_at = duehook.now()
     WHERE seq = ANY (ARRAY(SELECT seq FROM open))
       AND due_at <= (SELECT duehook.now()) + duehook.horizon()
    RETURNING seq""")


def fan_out(connection: Connection, seqs: Sequence[int]) -> list[int]:
    """Fan out those of `seqs` that waited and are due within the horizon; returns them. Cancelled ones never."""
    return list(connection.execute(_FAN_OUT, {"seqs": list(seqs)}).scalars())


_WAITING = text("""/* events.still_waiting */
    SELECT seq, due_at <= (SELECT duehook.now()) + duehook.horizon() AS due FROM duehook.events
     WHERE seq = ANY (CAST(:seqs AS bigint[])) AND fanned_out_at IS NULL AND cancelled_at IS NULL""")


def still_waiting(connection: Connection, seqs: Sequence[int]) -> dict[int, bool]:
    """Those of `seqs` that wait for their time still, and whether it has come."""
    return {row.seq: row.due for row in connection.execute(_WAITING, {"seqs": list(seqs)})}


_LOCK = text("""/* events.lock */
    SELECT seq FROM duehook.events WHERE tenant = :tenant AND seq = :seq FOR UPDATE""")
_LOCK_ALL = text("""/* events.lock_all */
    SELECT seq, CASE WHEN erased_at IS NOT NULL THEN 'event_erased'
                     WHEN cancelled_at IS NOT NULL THEN 'event_cancelled' END AS closed FROM duehook.events
     WHERE tenant = :tenant AND seq = ANY (CAST(:seqs AS bigint[])) ORDER BY seq FOR UPDATE""")
_CANCEL = text("""/* events.cancel */
    UPDATE duehook.events SET cancelled_at = coalesce(cancelled_at, duehook.now()) WHERE seq = :seq""")


def lock(connection: Connection, tenant: str, seq: int) -> bool:
    """Lock one event against fan-out and cancel; whether the tenant has it.

    A statement of its own: what depends on it must read a snapshot that is newer than the lock.
    """
    return connection.execute(_LOCK, {"tenant": tenant, "seq": seq}).one_or_none() is not None


def lock_all(connection: Connection, tenant: str, seqs: Sequence[int]) -> dict[int, str | None]:
    """Lock many in order, as `lock` does one; why nothing of each can be sent (None: it can), or nothing if it is gone.

    The reasons are `event_cancelled` and `event_erased`.
    """
    rows = connection.execute(_LOCK_ALL, {"tenant": tenant, "seqs": list(seqs)})
    return {row.seq: row.closed for row in rows}


def cancel(connection: Connection, seq: int) -> None:
    """Mark a locked event cancelled: one that was not fanned out never will be. A repeat changes nothing."""
    connection.execute(_CANCEL, {"seq": seq})


def _event(row: Row[Any]) -> Event:
    return Event(**row._mapping)
