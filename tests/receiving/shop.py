"""A receiver under test: its process, its database, the wire to it, and the service that sends to it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg
from sqlalchemy import Engine

from app.core import endpoints
from app.core.endpoints import Rotated
from app.ledger import events
from app.ledger.events import NewEvent
from app.ledger.sealing import Sealer
from tests.ledgers import rows
from tests.plain import column, value
from tests.receiving.programs import Program
from tests.receiving.wire import Answer, Wire
from tests.waiting import wait_until

NUMBERS = count(1)


@dataclass
class Shop:
    """`tenant` is the name of its database, too; `secrets` are those its endpoint has had, the newest last."""

    engine: Engine
    sealer: Sealer
    tenant: str
    endpoint: int
    secrets: list[str]
    program: Program
    wire: Wire
    admin: psycopg.Connection[Any]

    def __post_init__(self) -> None:
        self._placed: dict[str, str] = {}
        self._database = psycopg.connect(self.program.environment["DATABASE_URL"], autocommit=True)

    def close(self) -> None:
        self._database.close()

    def place(self, data: str = "{}", type: str = "order.placed", *, with_key: bool = True) -> str:
        """Commit an event of an order of its own; returns its id."""
        order = f"order-{next(NUMBERS)}" if with_key else None
        with self.engine.begin() as connection:
            (made,) = events.insert(connection, self.tenant, [NewEvent(type=type, key=order, data=data)]).values()
        if type == "order.placed":
            self._placed[made.id] = order or made.id
        return made.id

    def rotate(self, overlap: timedelta) -> str:
        """The new secret."""
        with self.engine.begin() as connection:
            made = endpoints.rotate(connection, self.sealer, self.tenant, self.endpoint, overlap)
        assert isinstance(made, Rotated)
        self.secrets.append(made.secret)
        return made.secret

    def wait_delivered(self, event_id: str) -> list[Answer | None]:
        """Until the service says so; returns what the receiver answered to each attempt."""
        wait_until(lambda: self._status(event_id) == "delivered", deadline=30, what=f"{event_id} is delivered")
        return self.wire.answers(event_id)

    def outcomes(self, event_id: str) -> list[str]:
        """Of its attempts, as the service has recorded them."""
        statement = """SELECT a.outcome FROM duehook.attempts a JOIN duehook.deliveries d ON d.id = a.delivery
                        WHERE d.event = :event ORDER BY a.number"""
        return rows(self.engine, statement, event=int(event_id.removeprefix("evt_"), 16))

    def effects(self, event_id: str) -> int:
        """How often it has had its effect."""
        query = "SELECT count(*) FROM shipments WHERE order_key = %s"
        return int(value(self._database, query, [self._placed[event_id]]))

    def receipts(self, event_id: str) -> int:
        return int(value(self._database, "SELECT count(*) FROM duehook_receipts WHERE webhook_id = %s", [event_id]))

    def execute(self, *statements: str) -> None:
        """In the receiver's database, each committed."""
        for statement in statements:
            self._database.execute(statement.encode())

    @contextmanager
    def receipts_locked(self) -> Iterator[None]:
        """Nobody can make a receipt meanwhile: who tries waits."""
        with self._database.transaction():
            self._database.execute("LOCK TABLE duehook_receipts IN EXCLUSIVE MODE")
            yield

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Its database has no connection for the receiver, and cuts those that it has."""
        self.admin.execute(f"ALTER DATABASE {self.tenant} ALLOW_CONNECTIONS false".encode())
        try:
            self.cut()
            yield
        finally:
            self.admin.execute(f"ALTER DATABASE {self.tenant} ALLOW_CONNECTIONS true".encode())

    def cut(self) -> None:
        """End every connection of the receiver to its database."""
        self.admin.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", [self.backends()])

    def backends(self) -> list[int]:
        """Of the receiver's connections to its database."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> %s"
        return column(self.admin, query, [self.tenant, self._database.info.backend_pid])

    def waiting(self) -> list[int]:
        """The receiver's backends that wait for a lock."""
        query = """SELECT pid FROM pg_stat_activity WHERE datname = %s AND cardinality(pg_blocking_pids(pid)) > 0"""
        return column(self.admin, query, [self.tenant])

    def assert_nothing_lost_and_nothing_twice(self) -> None:
        for event_id in self._placed:
            self.wait_delivered(event_id)
        shipped = Counter(column(self._database, "SELECT order_key FROM shipments"))
        assert shipped == dict.fromkeys(self._placed.values(), 1)

    def _status(self, event_id: str) -> str | None:
        statement = "SELECT status FROM duehook.deliveries WHERE event = :event"
        return next(iter(rows(self.engine, statement, event=int(event_id.removeprefix("evt_"), 16))), None)
