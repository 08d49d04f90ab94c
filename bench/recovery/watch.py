"""What can be seen meanwhile: how late both clocks are, and what the service takes of database, broker and machine."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import redis
from sqlalchemy import Engine, text

from app.broker import PREFIX
from app.core import status
from app.core.status import Status
from app.domain.wakeups import Lane
from app.ledger.database import connect_engine
from bench.paced import Paced
from bench.service import Service
from bench.stage import Stage
from bench.usage import resident, sockets

OFTEN = 2.0  # looks a second
PART = 20  # reading how late the clocks are takes at most this part of the time: it reads what is due, row by row
LEASE = timedelta(seconds=45)
CONNECTIONS = text(
    """SELECT application_name, count(*) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND application_name LIKE 'duehook %' GROUP BY 1"""
)


@dataclass(frozen=True, slots=True)
class Sample:
    """At one moment, `at` seconds since 1970. Ages in seconds, 0 when nothing is due.

    Ages and `backlog` are as `duehook status` last read them, which is less often while much is due. `connections` by
    program over all its processes; `sockets` and `resident` (bytes) of the role's process that has most of it.
    """

    at: float
    oldest_reservation: float
    oldest_delivery: float
    backlog: Mapping[str, int]
    waiting: Mapping[str, int]
    connections: Mapping[str, int]
    sockets: Mapping[str, int]
    resident: Mapping[str, int]
    broker_bytes: int


class Watch:
    """`samples` so far, the latest last."""

    def __init__(self, engine: Engine, client: "redis.Redis", service: Service) -> None:
        self.samples: list[Sample] = []
        self._engine = engine
        self._client = client
        self._service = service
        self._rest_until = 0.0
        self.paced = Paced(OFTEN, self.look)

    @property
    def oldest(self) -> float:
        """The age of the oldest thing that is due by either clock; for ever before the first look."""
        if not self.samples:
            return float("inf")
        return max(self.samples[-1].oldest_reservation, self.samples[-1].oldest_delivery)

    def look(self, _: int = 0) -> None:
        """Take a sample."""
        began = time.monotonic()
        if began >= self._rest_until:
            self._status = status.read(self._engine, lease=LEASE)
            self._rest_until = began + PART * (time.monotonic() - began)
        self.samples.append(self._sample(time.time(), self._status))

    def _sample(self, at: float, stands: Status) -> Sample:
        with self._engine.connect() as connection:
            connections: dict[str, int] = dict(connection.execute(CONNECTIONS).tuples().all())
        memory: Any = self._client.info("memory")
        roles = self._service.pids
        return Sample(
            at,
            oldest_reservation=_seconds(stands.oldest_reservation),
            oldest_delivery=_seconds(stands.oldest_delivery),
            backlog={lane.value: count.number for lane, count in stands.backlog.items()},
            waiting={lane.value: self._waiting(lane) for lane in Lane},
            connections=connections,
            sockets={role: max(map(sockets, pids)) for role, pids in roles.items()},
            resident={role: max(map(resident, pids)) for role, pids in roles.items()},
            broker_bytes=memory["used_memory"],
        )

    def _waiting(self, lane: Lane) -> int:
        length: Any = self._client.llen(PREFIX + lane.value)
        return int(length)


@contextmanager
def watching(stage: Stage) -> Iterator[Watch]:
    """Look twice a second until the block ends."""
    engine = connect_engine(stage.database_url, application_name="duehook bench", pool_size=1)
    try:
        with redis.Redis.from_url(stage.broker_url) as client:
            watch = Watch(engine, client, stage.service)
            with watch.paced:
                yield watch
    finally:
        engine.dispose()


def _seconds(age: timedelta | None) -> float:
    return 0.0 if age is None else round(age.total_seconds(), 3)
