"""Single events that are posted at the same time are accepted in one transaction, and none is another's trouble."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from psycopg import errors
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from app.core.events import Accepted, KeyTaken
from app.core.together import Together
from app.ledger.database import SESSION, connect_engine
from app.ledger.events import NewEvent
from tests.conftest import Connect
from tests.ledgers import TENANT, an_endpoint, rows
from tests.plain import Connection
from tests.races.harness import race
from tests.waiting import wait_until

TAKE = "INSERT INTO duehook.events (tenant, type, key, data) VALUES ('acme', 'a.b', %s, '1')"
HELD_UP = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
Outcome = Accepted | KeyTaken


class Gathering:
    """A first event whose transaction waits for a lock until it is let go, and those that come meanwhile."""

    def __init__(self, engine: Engine, holder: Connection) -> None:
        self.together = Together(engine)
        self._pool = ThreadPoolExecutor(10)
        self._engine, self._holder = engine, holder
        holder.execute(TAKE, ["held"])
        self.first = self.post(NewEvent("a.b", "1", key="held"))
        wait_until(lambda: rows(engine, HELD_UP) == [1], what="the first waits for the lock")

    def post(self, event: NewEvent, tenant: str = TENANT) -> "Future[Outcome]":
        return self._pool.submit(self.together.accept, tenant, event)

    def meanwhile(self, *events: NewEvent) -> "list[Future[Outcome]]":
        """In this order."""
        posted = []
        for event in events:
            posted.append(self.post(event))
            wait_until(lambda: len(self.together._gathered[TENANT]) == len(posted), what="it has gathered")
        return posted

    def go_on(self) -> None:
        self._holder.rollback()

    def close(self) -> None:
        self._holder.rollback()
        self._pool.shutdown()


@pytest.fixture
def gathering(database_url: str, engine: Engine, connect: Connect) -> Iterator[Gathering]:
    patient = connect_engine(
        database_url, application_name="test", pool_size=10, session=SESSION | {"lock_timeout": "20s"}
    )
    running = Gathering(patient, connect())
    yield running
    running.close()
    patient.dispose()


def accepted(outcome: "Future[Outcome]") -> Accepted:
    found = outcome.result(20)
    assert isinstance(found, Accepted)
    return found


def test_those_who_come_meanwhile_go_in_one_transaction(engine: Engine, gathering: Gathering) -> None:
    an_endpoint(engine)
    several = gathering.meanwhile(*(NewEvent("a.b", str(number)) for number in range(5)))
    gathering.go_on()
    assert accepted(gathering.first).made
    assert all(accepted(each).made and accepted(each).deliveries == 1 for each in several)
    assert len({accepted(each).id for each in several}) == 5
    found = rows(engine, "SELECT count(*) FROM duehook.events GROUP BY xmin ORDER BY 1")
    assert found == [1, 5]
    assert gathering.together._gathered == {}, "nobody is left to wait for"
    query = "SELECT data::text FROM duehook.events WHERE id = :id"
    told = [rows(engine, query, id=accepted(each).id) for each in several]
    assert told == [[str(number)] for number in range(5)], "each is told of its own"


def test_what_the_database_refuses_of_one_is_not_the_others_trouble(engine: Engine, gathering: Gathering) -> None:
    good, bad, fine = gathering.meanwhile(NewEvent("a.b", "1"), NewEvent("ping", "2"), NewEvent("a.b", "3"))
    gathering.go_on()
    assert accepted(good).made and accepted(fine).made
    with pytest.raises(DBAPIError, match="belongs to the service"):
        bad.result(20)
    assert rows(engine, "SELECT data::text FROM duehook.events WHERE data::text <> '1' OR key IS NULL ORDER BY 1") == [
        "1",
        "3",
    ]


def test_who_fails_alone_lets_the_others_go_on(gathering: Gathering, connect: Connect, engine: Engine) -> None:
    several = gathering.meanwhile(NewEvent("a.b", "1"), NewEvent("a.b", "2"))
    connect(autocommit=True).execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with pytest.raises(DBAPIError) as lost:
        gathering.first.result(20)
    assert isinstance(lost.value.orig, errors.AdminShutdown)
    assert all(accepted(each).made for each in several)


def test_of_two_with_one_key_the_first_is_made_and_the_other_is_its_repeat(gathering: Gathering) -> None:
    first, again, other = gathering.meanwhile(
        NewEvent("a.b", "1", key="k"), NewEvent("a.b", "1", key="k"), NewEvent("a.b", "2", key="k")
    )
    gathering.go_on()
    assert (accepted(first).made, accepted(again).made) == (True, False)
    assert accepted(first).id == accepted(again).id
    taken = other.result(20)
    assert isinstance(taken, KeyTaken) and taken.event.id == accepted(first).id


def test_a_key_that_is_freed_while_it_is_looked_at_is_used(database_url: str, engine: Engine, connect: Connect) -> None:
    owner = connect(autocommit=True)
    owner.execute(TAKE, ["freed"])
    with race(database_url) as running:
        poster = running.actor(
            "poster", lambda other: Together(other).accept(TENANT, NewEvent("a.b", "2", key="freed"))
        )
        poster.until("after events.insert")
        owner.execute("DELETE FROM duehook.events WHERE key = 'freed'")  # as the end of a tenant's erasure does
        assert poster.finish().made
    assert rows(engine, "SELECT data::text FROM duehook.events WHERE key = 'freed'") == ["2"]


def test_another_tenant_waits_for_nothing(gathering: Gathering) -> None:
    assert accepted(gathering.post(NewEvent("a.b", "1"), tenant="rival")).made
    assert not gathering.first.done()


def test_none_is_lost_and_none_is_doubled_however_many_come(engine: Engine) -> None:
    together, ids = Together(engine), []
    lock = threading.Lock()

    def post(number: int) -> None:
        outcome = together.accept(TENANT, NewEvent("a.b", str(number), key=f"k{number % 150}"))
        with lock:
            ids.append((number, outcome.id if isinstance(outcome, Accepted) else "taken"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(post, range(300)))
    assert len(ids) == 300
    assert rows(engine, "SELECT count(*) FROM duehook.events") == [150]
    assert sum(each == "taken" for _, each in ids) == 150, "another event has their key"
    assert together._gathered == {}
