"""How the service stands, for people: both clocks, the lanes, the dead, who notices and works, the database."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Engine

from app.core import wakeups
from app.core.wakeups import Fleet
from app.domain.wakeups import LANE, Adapter, Kind, Lane
from app.ledger import reconciliation, status
from app.ledger.status import Count, Due, Headroom


@dataclass(frozen=True, slots=True)
class Status:
    """`oldest_*` is None when nothing of that clock is due; `more` when there is more than was looked at."""

    oldest_reservation: timedelta | None
    oldest_delivery: timedelta | None
    oldest_look: timedelta | None
    backlog: Mapping[Lane, Count]
    in_flight: Count
    parked: Count
    dead: Count
    shares: Mapping[Adapter, int]
    fleet: Fleet
    connections: Headroom
    repairs: Mapping[str, int]


def read(engine: Engine, *, lease: timedelta) -> Status:
    """Read it all, each number at its own moment; `lease` is the longest that a claim runs without being renewed."""
    with engine.begin() as connection:
        status.read_in_order(connection)
        due = status.due(connection, (Kind.RESERVATION, Kind.EVENT, Kind.DELIVERY, Kind.JOB))
        return Status(
            oldest_reservation=_oldest(each for each in due if each.kind is Kind.RESERVATION),
            oldest_delivery=_oldest(each for each in due if each.kind in (Kind.EVENT, Kind.DELIVERY)),
            oldest_look=status.oldest_look(connection),
            backlog={lane: _sum(each for each in due if LANE[each.kind] is lane) for lane in Lane},
            in_flight=status.in_flight(connection, lease),
            parked=status.parked(connection),
            dead=status.dead(connection),
            shares=wakeups.shares(connection),
            fleet=wakeups.fleet(connection),
            connections=status.headroom(connection),
            repairs=reconciliation.repairs(connection),
        )


def _oldest(dues: Iterable[Due]) -> timedelta | None:
    return max((due.oldest_age for due in dues if due.oldest_age is not None), default=None)


def _sum(dues: Iterable[Due]) -> Count:
    some = list(dues)
    return Count(sum(due.number for due in some), any(due.more for due in some))
