"""The scan's sweeps in one process: what it takes, what it holds, what it does when something breaks."""

import threading
from collections.abc import Iterator, Sequence

import pytest
from sqlalchemy import Engine, event

from app import settings as settings_of
from app.core import reservations
from app.core.reservations import Hold
from app.domain.wakeups import Kind, Lane
from app.ledger import service
from app.runtime import Runtime, open_runtime
from tests.ledgers import TENANT, an_endpoint, rows, some_events
from tests.processes import KEY
from tests.receivers import Answer, Receiver
from tests.waiting import wait_until
from workers import scan
from workers.host import Host
from workers.scan import SWEEP, Scan, Sweeper


class Still(Host):
    """Notes what it is woken for and holds all of it for ever, or raises."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.woken: dict[Kind, list[int]] = {kind: [] for kind in Kind}
        self.order: list[Kind] = []
        self.error: Exception | None = None
        self.stuck: dict[Kind, threading.Event] = {}
        self.places = 1000
        self.looks = 0

    def wake(self, kind: Kind, ids: Sequence[int], dues: Sequence[int]) -> None:
        self.order.append(kind)
        self.woken[kind] += ids
        if kind in self.stuck:
            self.stuck[kind].wait(20)
        if self.error is not None:
            raise self.error

    def held(self, kind: Kind) -> int:
        return len(self.woken[kind])

    def room(self, kind: Kind) -> int:
        self.looks += 1
        return self.places


@pytest.fixture
def runtime(engine: Engine, database_url: str) -> Iterator[Runtime]:
    """Its horizon is ten seconds, and all the work is the scan's."""
    settings = settings_of.load(database_url=database_url, secrets_key=KEY, allowed_networks="127.0.0.0/8")
    opened = open_runtime(settings, application_name="test", pool_size=6)
    share(opened, 100)
    yield opened
    opened.close()


@pytest.fixture
def host(runtime: Runtime) -> Still:
    return Still(runtime)


def share(runtime: Runtime, per_cent: int) -> None:
    with runtime.engine.begin() as connection:
        service.set_scan_share(connection, per_cent)


def sweep(sweeper: Sweeper) -> None:
    """Until it finds nothing any more."""
    while not sweeper.look():
        pass


def test_a_sweep_is_bounded_and_the_next_one_follows_at_once(engine: Engine, runtime: Runtime, host: Still) -> None:
    an_endpoint(engine)
    some_events(engine, SWEEP + 1)
    sweeper = Sweeper(runtime, host, Lane.DELIVERY)
    assert sweeper.look() == 0
    assert host.held(Kind.DELIVERY) == SWEEP
    assert sweeper.look() == 0
    assert host.held(Kind.DELIVERY) == SWEEP + 1
    assert sweeper.look() > 0


def test_looks_that_find_nothing_are_made_less_and_less_often(runtime: Runtime, host: Still) -> None:
    sweeper = Sweeper(runtime, host, Lane.EXPIRY)
    pauses = [sweeper.look() for _ in range(6)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] == scan.IDLE[1]


def test_no_more_deliveries_are_taken_than_can_start(engine: Engine, runtime: Runtime, host: Still) -> None:
    an_endpoint(engine)
    some_events(engine, 5)
    host.places = 3
    Sweeper(runtime, host, Lane.DELIVERY).look()
    assert host.held(Kind.DELIVERY) == 3


def test_the_host_knows_what_it_holds_and_how_much_can_start(engine: Engine, runtime: Runtime) -> None:
    receiver, release = Receiver(), threading.Event()
    receiver.answer = lambda _: Answer(hold=release)
    receiver.register(engine)
    most = runtime.settings.max_in_flight
    host = Host(runtime)
    host.start()
    try:
        assert (host.room(Kind.DELIVERY), host.held(Kind.DELIVERY)) == (most, 0)
        some_events(engine, 3)
        some_events(engine, 2, delay_seconds=9)
        sweep(Sweeper(runtime, host, Lane.DELIVERY))
        assert (host.room(Kind.DELIVERY), host.held(Kind.DELIVERY)) == (most - 3, 2)
    finally:
        release.set()
        host.stop()
        receiver.close()


def test_what_is_held_in_memory_is_bounded_and_does_not_hide_what_is_due_now(
    engine: Engine, runtime: Runtime, host: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.core.taking.MOST_HELD", 5)
    monkeypatch.setattr(scan, "SWEEP", 2)
    with engine.begin() as connection:
        for _ in range(20):
            reservations.hold(connection, TENANT, Hold("seat", hold_seconds=8))
    sweeper = Sweeper(runtime, host, Lane.EXPIRY)
    sweep(sweeper)
    assert host.held(Kind.RESERVATION) == 6
    with engine.begin() as connection:
        reservations.hold(connection, TENANT, Hold("bench", hold_seconds=0.9))
    (soon,) = rows(engine, "SELECT seq FROM duehook.reservations WHERE resource = 'bench'")
    sweep(sweeper)
    assert host.woken[Kind.RESERVATION][6:] == [soon]


def test_what_breaks_a_wake_up_waits_for_its_publish_lease_and_does_not_end_the_lane(
    engine: Engine, runtime: Runtime, host: Still
) -> None:
    an_endpoint(engine)
    some_events(engine)
    host.error = ValueError("a bug")
    sweeper = Sweeper(runtime, host, Lane.DELIVERY)
    assert sweeper.look() == 0
    assert rows(engine, "SELECT publications FROM duehook.outbox") == [1]
    assert rows(engine, "SELECT look_at > now() + interval '59 s' FROM duehook.outbox") == [True]
    sweep(sweeper)
    assert host.held(Kind.DELIVERY) == 1


def test_events_are_fanned_out_before_deliveries_wait_for_room(engine: Engine, runtime: Runtime, host: Still) -> None:
    an_endpoint(engine)
    some_events(engine)
    some_events(engine, delay_seconds=10.1)
    wait_until(lambda: rows(engine, "SELECT max(look_at) <= now() FROM duehook.outbox") == [True])
    sweep(Sweeper(runtime, host, Lane.DELIVERY))
    assert host.order == [Kind.EVENT, Kind.DELIVERY]


def test_a_lane_that_is_stuck_does_not_hold_up_another(engine: Engine, runtime: Runtime, host: Still) -> None:
    an_endpoint(engine)
    some_events(engine)
    release = host.stuck[Kind.DELIVERY] = threading.Event()
    running = Scan(runtime, host)
    try:
        wait_until(lambda: host.held(Kind.DELIVERY) == 1)
        with engine.begin() as connection:
            reservations.hold(connection, TENANT, Hold("seat", hold_seconds=8))
        wait_until(lambda: host.held(Kind.RESERVATION) == 1, deadline=5)
        assert not release.is_set()
    finally:
        release.set()
        running.stop()


def test_to_stop_upkeep_is_not_waited_for(runtime: Runtime) -> None:
    began, release = threading.Event(), threading.Event()

    class Busy(Still):
        def audit(self) -> dict[str, int]:
            began.set()
            release.wait(20)
            return {}

    running = Scan(runtime, Busy(runtime))
    assert began.wait(10)
    stop = threading.Thread(target=running.stop)
    stop.start()
    stop.join(5)
    release.set()
    assert not stop.is_alive()


def test_while_its_share_is_0_it_asks_for_its_share_and_nothing_else(
    engine: Engine, runtime: Runtime, host: Still, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "FOLLOW", 0.05)
    asked = statements_of(runtime.engine)
    only_its_share = ["service.scan_share"] * 10
    share(runtime, 0)
    an_endpoint(engine)
    some_events(engine)
    asked.clear()

    def rests() -> bool:
        """Whether nobody looks any more while its share is asked for ten times."""
        looks, asks = host.looks, len(asked)
        wait_until(lambda: len(asked) >= asks + 10)
        return host.looks == looks and asked[-10:] == only_its_share

    running = Scan(runtime, host)
    try:
        wait_until(lambda: len(asked) >= 10)
        assert asked[:10] == only_its_share
        share(runtime, 100)
        wait_until(lambda: host.held(Kind.DELIVERY) == 1, what="it has noticed what is due")
        share(runtime, 0)
        wait_until(rests, what="it rests again")
    finally:
        running.stop()


def statements_of(engine: Engine) -> list[str]:
    """The names of all that this engine asks from now on."""
    asked: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement.removeprefix("/* ").partition(" ")[0])

    return asked
