"""Work that comes while the overdue is caught up with: nobody who posts now should feel it."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from bench.lateness import INSERT as EVENT
from bench.paced import Paced
from bench.recovery import plan
from bench.recovery.plan import Plan
from bench.stage import Stage

HOLDS = (1.0, 1.5, 2.0, 2.5, 3.0)
RESERVATION = """INSERT INTO duehook.reservations (tenant, resource, expires_at)
                 VALUES (%s, 'seat', duehook.now() + make_interval(secs => %s))
                 RETURNING seq, extract(epoch FROM expires_at)::float8"""


@dataclass(slots=True)
class Fresh:
    """When each event's commit was confirmed, and when each reservation ends; seconds since 1970.

    `flooded` are of the tenant that most of what is overdue belongs to, `others` of the other tenants.
    """

    flooded: dict[str, float] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)
    flooded_reservations: dict[int, float] = field(default_factory=dict)
    other_reservations: dict[int, float] = field(default_factory=dict)
    _paced: list[Paced] = field(default_factory=list)

    def check(self) -> None:
        """Raise what has ended the coming of it, if anything did."""
        for each in self._paced:
            each.check()

    def come(self, rate: float, act: Callable[[int], None]) -> Paced:
        """`rate` times a second; see `Paced`."""
        self._paced.append(Paced(rate, act))
        return self._paced[-1]


@contextmanager
def fresh_work(stage: Stage, wanted: Plan) -> Iterator[Fresh]:
    """It comes until the block ends, over two connections of its own."""
    fresh = Fresh()
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(psycopg.connect(stage.database_url, autocommit=True, application_name="duehook bench"))
            for _ in range(2)
        )
        stack.enter_context(fresh.come(wanted.events, lambda number: _post(one, fresh, number)))
        stack.enter_context(fresh.come(wanted.reservations, lambda number: _hold(other, fresh, number)))
        yield fresh


def _post(connection: psycopg.Connection[Any], fresh: Fresh, number: int) -> None:
    """The flooded tenant's and another's in turn."""
    which, whose = [(fresh.flooded, plan.flooded()), (fresh.others, plan.others())][number % 2]
    target = whose[number // 2 % len(whose)]
    event = connection.execute(EVENT, [target.tenant, target.type, 0.0]).fetchall()[0][0]
    which[event] = time.time()


def _hold(connection: psycopg.Connection[Any], fresh: Fresh, number: int) -> None:
    flooded, *others = plan.tenants()
    which, tenant = [
        (fresh.flooded_reservations, flooded),
        (fresh.other_reservations, others[number // 2 % len(others)]),
    ][number % 2]
    seq, ends = connection.execute(RESERVATION, [tenant, HOLDS[number % len(HOLDS)]]).fetchall()[0]
    which[seq] = ends
