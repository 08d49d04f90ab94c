"""Who works on this ledger: a row for each process, which says so every few seconds."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, text

SILENT = timedelta(days=1)
NOTHING: Mapping[str, float] = {}
MOST_FORGOTTEN = 100


@dataclass(frozen=True, slots=True)
class Who:
    """A process, from its start to its end."""

    id: UUID
    role: str
    host: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class Present:
    """What it has said last; `silent` is how long ago that was, `clock_offset` how far its host's clock is behind."""

    who: Who
    started_at: datetime
    silent: timedelta
    clock_offset: timedelta
    unready: str | None


_TELL = text("""/* processes.tell */
    INSERT INTO duehook.processes (id, role, host, pid, version, clock_offset, unready, counted, gauges)
    VALUES (:id, :role, :host, :pid, :version, :clock_offset, :unready,
            CAST(:counted AS jsonb), CAST(:gauges AS jsonb))
    ON CONFLICT (id) DO UPDATE
       SET seen_at = duehook.now(), clock_offset = EXCLUDED.clock_offset, unready = EXCLUDED.unready,
           counted = EXCLUDED.counted, gauges = EXCLUDED.gauges
    RETURNING duehook.now()""")


def tell(
    connection: Connection,
    who: Who,
    clock_offset: timedelta,
    unready: str | None,
    counted: Mapping[str, float] = NOTHING,
    gauges: Mapping[str, float] = NOTHING,
) -> datetime:
    """This process works, and how; the first time makes its row. Returns the ledger's time.

    `counted` is what it has counted since its start, `gauges` how its gauges stand, by sample.
    """
    said = {"clock_offset": clock_offset, "unready": unready}
    numbers = {"counted": json.dumps(counted), "gauges": json.dumps(gauges)}
    at = connection.execute(_TELL, {**asdict(who), **said, **numbers}).scalar_one()
    assert isinstance(at, datetime)
    return at


_LEAVE = text("/* processes.leave */ DELETE FROM duehook.processes WHERE id = :id")


def leave(connection: Connection, process: UUID) -> None:
    """This process has ended as it should: what it has counted stays in the sum of its host. A repeat does nothing."""
    connection.execute(_LEAVE, {"id": process})


_FORGET = text("""/* processes.forget */
    DELETE FROM duehook.processes WHERE id = ANY (ARRAY(
        SELECT id FROM duehook.processes WHERE seen_at < (SELECT duehook.now()) - :silent
         LIMIT :most FOR UPDATE SKIP LOCKED))""")


def forget(connection: Connection) -> int:
    """Take away some of those that have been silent for a day; returns how many. One that lives makes its row anew."""
    return connection.execute(_FORGET, {"silent": SILENT, "most": MOST_FORGOTTEN}).rowcount


_LISTING = text("""/* processes.listing */
    SELECT id, role, host, pid, version, started_at, duehook.now() - seen_at AS silent, clock_offset, unready
      FROM duehook.processes WHERE seen_at >= (SELECT duehook.now()) - :silent
     ORDER BY role, host, started_at, id LIMIT :most""")


def listing(connection: Connection, silent: timedelta = SILENT, most: int = 1000) -> list[Present]:
    """Those that have said within `silent` that they work, by role and host."""
    return [Present(Who(*row[:5]), *row[5:]) for row in connection.execute(_LISTING, {"silent": silent, "most": most})]


_COUNTED = text("""/* processes.counted */
    SELECT counted FROM duehook.counted WHERE host = :host
    UNION ALL SELECT counted FROM duehook.processes WHERE host = :host
    UNION ALL SELECT gauges FROM duehook.processes
     WHERE host = :host AND seen_at >= (SELECT duehook.now()) - CAST(:silent AS interval)""")


def counted(connection: Connection, host: str, silent: timedelta) -> list[dict[str, float]]:
    """What the processes of a host have counted since the first of them began, and the gauges of those that live."""
    return list(connection.execute(_COUNTED, {"host": host, "silent": silent}).scalars())
