"""What is due in each adapter's part of the work; reads a bounded number of rows, however many the ledger has."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, text

from app.domain.wakeups import Adapter, Kind
from app.ledger.outbox import LONGEST_PUBLISH_LEASE
from app.ledger.status import MOST


@dataclass(frozen=True, slots=True)
class Due:
    """How much of a part is due and not done, and for how long; both at least that when `more`."""

    number: int = 0
    oldest_age: timedelta | None = None
    more: bool = False


# A row that is due has its next look at most the longest publish lease from now: the scan of the index ends there.
_DUE = text("""/* wakeups.due */
    SELECT duehook.bucket(o.ref) < s.scan_share AS scanned, count(*) AS number, clock.at - min(o.due_at) AS oldest_age,
           bool_or(o.number = :most) AS more
      FROM (SELECT duehook.now() AS at OFFSET 0) clock
     CROSS JOIN duehook.service s
     CROSS JOIN unnest(CAST(:kinds AS text[])) AS k(kind)
     CROSS JOIN LATERAL (
        SELECT ref, due_at, count(*) OVER () AS number FROM (
            SELECT ref, due_at FROM duehook.outbox
             WHERE kind = k.kind AND look_at <= (SELECT duehook.now()) + :ahead ORDER BY look_at LIMIT :most) few) o
     WHERE o.due_at <= clock.at
     GROUP BY 1, clock.at""")


def due(connection: Connection, kinds: Sequence[Kind]) -> dict[Adapter, Due]:
    """What is due in each adapter's part; a claim in progress is due at the end of its lease."""
    parameters = {"kinds": list(kinds), "ahead": LONGEST_PUBLISH_LEASE, "most": MOST}
    found = {
        Adapter.SCAN if row.scanned else Adapter.QUEUE: Due(row.number, row.oldest_age, row.more)
        for row in connection.execute(_DUE, parameters)
    }
    return {adapter: found.get(adapter, Due()) for adapter in Adapter}
