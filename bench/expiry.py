"""How long it takes until reservations that end at one instant are expired, and until their subscriber is told."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.spread import Spread, spread_of
from bench.stage import Stage
from bench.subscribers import TENANT

SLOWEST = 100.0  # reservations per second that are waited for
ROWS_PER_SECOND = 2_000  # that are held, at least, before they end
INSERT = """INSERT INTO duehook.reservations (tenant, resource, expires_at)
            SELECT %s, 'seat ' || g, to_timestamp(%s) FROM generate_series(1, %s) g RETURNING seq"""
ENDS = """SELECT r.seq, 'evt_' || to_hex(e.seq), extract(epoch FROM r.updated_at)::float8
            FROM duehook.reservations r
            JOIN duehook.events e ON e.tenant = r.tenant AND e.origin = 'service'
                                 AND e.key = 'reservation.expired:' || r.id || ':v' || r.version
           WHERE r.seq = ANY (%s) AND r.status = 'expired'"""


@dataclass(frozen=True, slots=True)
class Expiry:
    """`expired` by the ledger's own times, `told` by the first byte at the subscriber; milliseconds after the end.

    `ahead` is how many seconds before it all were committed.
    """

    reservations: int
    ahead: float
    expired: Spread
    told: Spread
    not_expired: int
    lost: int
    repeated: int


@dataclass(frozen=True, slots=True)
class End:
    """A reservation has expired: the event that says so, and when, by the ledger's clock."""

    reservation: int
    event: str
    at: float


def ends_of(stage: Stage, reservations: Sequence[int]) -> list[End]:
    """Of those that have expired; one that had two such events would be here twice."""
    return [End(*row) for row in stage.connection.execute(ENDS, [reservations])]


def measure(stage: Stage, reservations: int) -> Expiry:
    """Hold them until one instant, and wait until that and everything that follows from it is over."""
    instant = stage.now() + 3 + reservations / ROWS_PER_SECOND
    rows = stage.connection.execute(INSERT, [TENANT, instant, reservations]).fetchall()
    ahead = instant - stage.now()
    stage.settle(ahead + 30 + reservations / SLOWEST)
    ends = {end.event: end.at for end in ends_of(stage, [row[0] for row in rows])}
    received = stage.receiver.received(ends)
    return Expiry(
        reservations,
        round(ahead, 2),
        expired=spread_of(at - instant for at in ends.values()),
        told=spread_of(at - instant for at in received.first.values()),
        not_expired=reservations - len(ends),
        lost=received.lost,
        repeated=received.repeated,
    )
