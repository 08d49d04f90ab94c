"""A process as the ledger knows it, and the clock it measures on the way."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from app import settings as settings_of
from app.core import presence as module
from app.core import reservations
from app.core.clock import LedgerClock
from app.core.presence import Presence
from app.core.reservations import Hold
from app.domain.wakeups import Kind
from app.ledger import processes
from app.ledger.processes import Present, Who
from app.local.postgres import Postgres
from app.runtime import open_runtime
from tests.ledgers import TENANT, an_endpoint, rows, some_events
from tests.processes import KEY
from tests.waiting import wait_until
from workers.host import Host


class HostClock:
    """This host's clock as `time.time()` tells it, in the test's hand."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._real = time.time

    def time(self) -> float:
        return self._real() + self.ahead


@pytest.fixture
def host_clock(monkeypatch: pytest.MonkeyPatch) -> HostClock:
    clock = HostClock()
    monkeypatch.setattr(time, "time", clock.time)
    return clock


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.05)
    monkeypatch.setattr(module, "SECONDS_OFF", 0.05)
    monkeypatch.setattr(module, "LOOK", 0.01)


def present(engine: Engine) -> list[Present]:
    with engine.connect() as connection:
        return processes.listing(connection)


def test_a_process_is_known_from_its_start_to_its_end(engine: Engine) -> None:
    with Presence(engine, "relay") as one, Presence(engine, "scan") as other:
        relay, scan = present(engine)
        assert (relay.who.role, scan.who.role) == ("relay", "scan")
        assert relay.who.pid == os.getpid()
        assert relay.unready is None
        assert relay.silent < timedelta(seconds=5)
        assert abs(relay.clock_offset) < timedelta(seconds=0.1)
        one.stop()
        assert [each.who.role for each in present(engine)] == ["scan"]
        assert abs(other.clock.offset) < 0.1
    assert present(engine) == []


@pytest.mark.usefixtures("quick")
def test_a_process_says_again_and_again_that_it_is_there_and_why_it_waits(
    engine: Engine, host_clock: HostClock
) -> None:
    with Presence(engine, "relay") as presence:
        host_clock.ahead = 5
        presence.wait_for("the broker is away")
        wait_until(lambda: present(engine)[0].unready == "the broker is away")
        wait_until(lambda: abs(present(engine)[0].clock_offset + timedelta(seconds=5)) < timedelta(seconds=0.1))
        assert presence.unready is None  # it goes by the ledger's clock
        presence.wait_for(None)
        wait_until(lambda: present(engine)[0].unready is None)
        assert present(engine)[0].silent < timedelta(seconds=1)


def test_who_was_silent_for_a_day_is_forgotten_a_hundred_at_a_time_and_one_that_lives_comes_back(
    engine: Engine,
) -> None:
    with engine.begin() as connection:
        for hours in [*[25] * 120, 23]:
            who = Who(uuid4(), "worker", "gone", 1, "0")
            processes.tell(connection, who, timedelta(), None)
            connection.execute(
                text("UPDATE duehook.processes SET seen_at = now() - make_interval(hours => :hours) WHERE id = :id"),
                {"hours": hours, "id": who.id},
            )
        assert processes.forget(connection) == 100
        assert processes.forget(connection) == 20
        assert processes.forget(connection) == 0
        (left,) = processes.listing(connection)
        processes.leave(connection, left.who.id)
        processes.tell(connection, left.who, timedelta(), None)
        assert [each.who for each in processes.listing(connection)] == [left.who]


@pytest.fixture
def away(engine: Engine, database_url: str, postgres: Postgres) -> Callable[[], AbstractContextManager[None]]:
    """Takes this test's database away for a while."""
    name = database_url.rpartition("/")[2]

    @contextmanager
    def take_away() -> Iterator[None]:
        with psycopg.connect(postgres.url, autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            engine.dispose()
            yield
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')

    return take_away


@pytest.mark.usefixtures("quick")
def test_a_database_that_is_away_changes_nothing(
    engine: Engine, away: Callable[[], AbstractContextManager[None]]
) -> None:
    with Presence(engine, "relay") as presence:
        offset = presence.clock.offset
        with away():
            error = presence.clock.error
            wait_until(lambda: presence.clock.error > error + 0.0001, what="it could not measure for a while")
            assert presence.clock.offset == pytest.approx(offset, abs=0.001)
        wait_until(lambda: present(engine)[0].silent < timedelta(seconds=0.05))


@pytest.fixture
def clock(engine: Engine) -> LedgerClock:
    return LedgerClock(engine)


def test_a_host_clock_that_is_set_moves_the_offset_and_not_the_time(clock: LedgerClock, host_clock: HostClock) -> None:
    before = clock.time()
    host_clock.ahead = -300
    assert clock.time() - before == pytest.approx(0, abs=0.1)
    assert clock.offset == pytest.approx(300, abs=0.1)


def test_a_slow_answer_does_not_spoil_what_is_known_better_and_one_that_contradicts_it_does(
    clock: LedgerClock,
) -> None:
    def slowly(ahead: float) -> None:
        def ask() -> datetime:
            at = datetime.fromtimestamp(time.time() + ahead, UTC)
            time.sleep(0.1)
            return at

        clock.hear(ask)

    error = clock.error
    slowly(0)  # right to 50 ms, and 50 ms late
    assert clock.error < error + 0.001
    assert clock.offset == pytest.approx(0, abs=0.01)
    slowly(60)
    assert clock.offset == pytest.approx(60 - 0.05, abs=0.03)
    assert clock.error == pytest.approx(0.05, abs=0.03)


@pytest.mark.usefixtures("quick")
def test_a_clock_near_the_limit_is_not_now_off_and_now_right(engine: Engine, host_clock: HostClock) -> None:
    heard: list[str | None] = []

    def turns_to(off: bool, ahead: float) -> None:
        said = len(heard)
        host_clock.ahead = ahead
        wait_until(lambda: len(heard) > said + 3)
        assert bool(heard[-1]) is off, (heard[-1], ahead)

    with Presence(engine, "worker", heard.append):
        turns_to(False, 0.9)
        turns_to(True, 1.2)
        assert "ahead of the database's" in str(heard[-1])
        turns_to(True, 0.7)
        turns_to(False, 0.3)
        turns_to(False, -0.9)
        turns_to(True, -1.2)
        assert "behind the database's" in str(heard[-1])


@pytest.mark.usefixtures("quick")
def test_what_may_be_a_slow_network_is_not_taken_for_a_wrong_clock(engine: Engine, host_clock: HostClock) -> None:
    heard: list[str | None] = []
    with Presence(engine, "worker", heard.append) as presence:
        presence.clock._error, host_clock.ahead = 2.0, 1.5
        assert not presence._turned()


@pytest.fixture
def host(engine: Engine, database_url: str, host_clock: HostClock) -> Iterator[Host]:
    settings = settings_of.load(database_url=database_url, secrets_key=KEY, allowed_networks="127.0.0.0/8")
    made = Host(open_runtime(settings, application_name="test", pool_size=6), "worker", lambda _: None)
    made.start()
    yield made
    host_clock.ahead = 0
    made.stop()


def test_a_host_whose_clock_is_off_hands_on_what_it_holds_and_what_comes(
    engine: Engine, host: Host, host_clock: HostClock
) -> None:
    an_endpoint(engine)
    some_events(engine, 6, delay_seconds=8)
    ids = rows(engine, "SELECT id FROM duehook.deliveries ORDER BY id")
    dues = rows(engine, "SELECT (extract(epoch FROM due_at) * 1000000)::bigint FROM duehook.events")
    with engine.begin() as connection:  # as published
        connection.execute(text("UPDATE duehook.outbox SET look_at = now() + interval '1 hour'"))
    host.wake(Kind.DELIVERY, ids[:3], dues[:3])
    assert host.held(Kind.DELIVERY) == 3
    host_clock.ahead = 60
    wait_until(lambda: host.held(Kind.DELIVERY) == 0)
    at_once = "SELECT ref FROM duehook.outbox WHERE look_at < now() + interval '1 second' ORDER BY ref"
    wait_until(lambda: rows(engine, at_once) == ids[:3])
    host.wake(Kind.DELIVERY, ids[3:], dues[3:])
    assert host.held(Kind.DELIVERY) == 0
    assert rows(engine, at_once) == ids


def test_an_error_that_is_the_statement_s_own_is_not_taken_for_a_database_that_is_away(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ProgrammingError("SELECT", {}, psycopg.errors.UndefinedTable())

    monkeypatch.setattr("workers.host.reservations.expire", refuse)
    with pytest.raises(ProgrammingError):
        host.wake(Kind.RESERVATION, [1], [0])
    assert host.held(Kind.RESERVATION) == 0


def test_what_is_due_while_the_database_is_away_waits_for_it_up_to_a_bound(
    engine: Engine, host: Host, away: Callable[[], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.host.MOST_HELD", 4)
    for _ in range(6):
        with engine.begin() as connection:
            reservations.hold(connection, TENANT, Hold("seat", hold_seconds=0.01))
    ids = rows(engine, "SELECT seq FROM duehook.reservations ORDER BY seq")
    with away():
        host.wake(Kind.RESERVATION, ids, [0] * 6)
        assert host.held(Kind.RESERVATION) == 4
    expired = "SELECT seq FROM duehook.reservations WHERE status = 'expired' ORDER BY seq"
    wait_until(lambda: rows(engine, expired) == ids[:4])
