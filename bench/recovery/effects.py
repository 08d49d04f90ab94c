"""What came of everything, overdue and fresh: by the ledger's records and by what the sink received."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bench.expiry import End, ends_of
from bench.receiver import Arrival
from bench.recovery.cohort import Cohort
from bench.recovery.fresh import Fresh
from bench.stage import Stage

DELIVERIES = """SELECT 'evt_' || to_hex(event), extract(epoch FROM delivered_at)::float8
                  FROM duehook.deliveries WHERE created_at >= to_timestamp(%s) AND status = 'delivered'"""


@dataclass(frozen=True, slots=True)
class Effects:
    """Times in seconds since 1970, by event: recorded as delivered, and first byte at the sink."""

    expired: Mapping[int, End]
    recorded: Mapping[str, float]
    received: Mapping[str, float]
    faults: "Faults"


@dataclass(frozen=True, slots=True)
class Faults:
    """What must be 0. Each event has one subscriber, so it must come once, in one delivery.

    `lost` counts what came too seldom: reservations that did not expire, events that did not arrive or are not
    recorded. `repeated` what came too often: second expiries, deliveries and requests, by event and by delivery.
    """

    lost: int
    repeated: int


def effects(stage: Stage, since: float, cohort: Cohort, fresh: Fresh) -> Effects:
    """Of what was inserted since then; everything must be over."""
    reservations = {*cohort.reservations, *fresh.flooded_reservations, *fresh.other_reservations}
    ends = ends_of(stage, list(reservations))
    expected = {*cohort.events, *fresh.flooded, *fresh.others, *(end.event for end in ends)}
    recorded = stage.connection.execute(DELIVERIES, [since]).fetchall()
    arrivals = list(stage.receiver.arrivals())
    received: dict[str, float] = {}
    for each in arrivals:
        received.setdefault(each.event, each.at)
    return Effects(
        {end.reservation: end for end in ends},
        dict(recorded),
        received,
        faults(reservations, ends, expected, [event for event, _ in recorded], arrivals),
    )


def faults(
    reservations: Collection[int],
    ends: Collection[End],
    expected: Collection[str],
    recorded: Collection[str],
    arrivals: Collection[Arrival],
) -> Faults:
    """Compare what should have come with what came."""
    expired = {end.reservation for end in ends}
    events, deliveries = {each.event for each in arrivals}, {each.delivery for each in arrivals}
    wanted = set(expected)
    return Faults(
        lost=len(set(reservations) - expired) + len(wanted - events) + len(wanted - set(recorded)),
        repeated=(len(ends) - len(expired))
        + (len(recorded) - len(set(recorded)))
        + max(len(arrivals) - len(events), len(arrivals) - len(deliveries))
        + len(events - wanted),
    )
