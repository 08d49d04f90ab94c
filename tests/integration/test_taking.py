"""What an adapter takes: all that is due while there is room, fair shares when there is not, and only its part."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import OperationalError

from app.core import deliveries as core
from app.core.taking import FOLLOW, FRESH, LATELY, MOST_SLOW, Batch, Taking
from app.domain.wakeups import Adapter, Kind
from app.ledger import outbox, processes, service
from app.ledger.outbox import Room
from app.ledger.processes import Who
from tests.clock import Clock
from tests.ledgers import an_endpoint, rows, some_events

LEASE = timedelta(seconds=60)
HORIZON = timedelta(seconds=10)
ROOM = {Kind.DELIVERY: Room(100)}


def taking(engine: Engine, adapter: Adapter = Adapter.QUEUE) -> Taking:
    return Taking(engine, adapter, LEASE, HORIZON)


def backlog(engine: Engine, tenant: str, endpoint: int, count: int) -> None:
    """Deliveries that are due, of events that went to this endpoint alone."""
    with engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO duehook.events (tenant, type, data, only_to)
                    SELECT :tenant, 'order.placed', '{}', :endpoint FROM generate_series(1, :count)"""),
            {"tenant": tenant, "endpoint": endpoint, "count": count},
        )


def endpoint_of(engine: Engine, tenant: str) -> int:
    seq = an_endpoint(engine, event_types=["nothing.else"])
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE duehook.endpoints SET tenant = :tenant WHERE seq = :seq"), {"tenant": tenant, "seq": seq}
        )
    return seq


def by_endpoint(batch: Batch) -> Counter[int]:
    return Counter(row.endpoint for row in batch.rows)


def test_with_room_for_all_everything_due_is_taken_in_one_go(engine: Engine, clock: Clock) -> None:
    a, b = an_endpoint(engine), an_endpoint(engine)
    some_events(engine, 40)
    assert by_endpoint(taking(engine).take(ROOM)) == {a: 40, b: 40}


def test_a_backlog_of_one_tenant_leaves_another_its_share(engine: Engine, clock: Clock) -> None:
    flood, quiet = endpoint_of(engine, "flood"), endpoint_of(engine, "quiet")
    backlog(engine, "flood", flood, 1000)
    clock.advance(seconds=60)
    backlog(engine, "quiet", quiet, 30)
    side = taking(engine)
    assert by_endpoint(side.take(ROOM)) == {flood: 100}, "who waits for room is only known once there was too little"
    assert by_endpoint(side.take(ROOM)) == {flood: 70, quiet: 30}


def test_room_is_shared_over_tenants_before_it_is_shared_over_their_endpoints(engine: Engine, clock: Clock) -> None:
    many = [endpoint_of(engine, "many") for _ in range(9)]
    one = endpoint_of(engine, "one")
    for endpoint in many:
        backlog(engine, "many", endpoint, 200)
    clock.advance(seconds=60)
    backlog(engine, "one", one, 100)
    clock.advance(seconds=(FRESH + HORIZON).total_seconds())
    side = taking(engine)
    side.take(ROOM)
    taken = by_endpoint(side.take(ROOM))
    assert taken[one] == 50
    assert all(5 <= taken[endpoint] <= 6 for endpoint in many)


def test_half_of_a_share_is_for_what_fell_due_just_now(engine: Engine, clock: Clock) -> None:
    endpoint = endpoint_of(engine, "acme")
    backlog(engine, "acme", endpoint, 1000)
    clock.advance(seconds=60)
    backlog(engine, "acme", endpoint, 200)
    fresh = set(rows(engine, "SELECT id FROM duehook.deliveries ORDER BY id DESC LIMIT 200"))
    side = taking(engine)
    side.take(ROOM)
    taken = {row.ref for row in side.take(ROOM).rows}
    assert (len(taken), len(taken & fresh)) == (100, 25 + 38), (
        "a quarter of the room, and half of the share of the rest"
    )
    clock.advance(seconds=(FRESH + HORIZON).total_seconds())
    assert not {row.ref for row in side.take(ROOM).rows} & fresh, "nothing stays fresh for ever"


def test_what_fell_due_last_goes_first_though_its_endpoint_had_nothing_due_when_they_were_counted(
    engine: Engine, clock: Clock
) -> None:
    flood, quiet = endpoint_of(engine, "flood"), endpoint_of(engine, "quiet")
    backlog(engine, "flood", flood, 1000)
    side = taking(engine)
    for _ in range(2):
        side.take(ROOM)
    side._crowds[Kind.DELIVERY].pause = 3600
    clock.advance(seconds=1)
    backlog(engine, "quiet", quiet, 5)
    batch = side.take({Kind.DELIVERY: Room(100, backlog=50)})
    assert [row.endpoint for row in batch.rows[:5]] == [quiet] * 5
    assert len(batch.rows) == 25 + 50, "a quarter is for what is new, and of the backlog no more than it may"


def test_a_backlog_that_would_only_be_parked_is_let_in_by_few_while_others_wait(engine: Engine, clock: Clock) -> None:
    slow, other = endpoint_of(engine, "acme"), endpoint_of(engine, "acme")
    backlog(engine, "acme", slow, 1000)
    first, *_ = rows(engine, "SELECT id FROM duehook.deliveries ORDER BY id")
    core.park(engine, [first])
    clock.advance(seconds=60)
    backlog(engine, "acme", other, 80)
    side = taking(engine)
    side.take(ROOM)
    taken = []
    for pause in (3600, 0.0, 0.0):
        batch = side.take(ROOM)
        side.move(batch)
        taken.append(by_endpoint(batch))
        side._crowds[Kind.DELIVERY].pause = pause
        side._crowds[Kind.DELIVERY].others_at -= LATELY
    first, second, third = taken
    assert first[slow] == MOST_SLOW
    assert 62 <= first[other] <= 63, "a quarter, and half of the rest"
    assert second == {other: 80 - first[other], slow: MOST_SLOW}
    assert third == {slow: 100}, "nobody else waits"


def test_others_that_never_wait_are_seen_when_something_falls_due_for_them(engine: Engine, clock: Clock) -> None:
    slow, quick = endpoint_of(engine, "acme"), endpoint_of(engine, "acme")
    backlog(engine, "acme", slow, 1000)
    first, *_ = rows(engine, "SELECT id FROM duehook.deliveries ORDER BY id")
    core.park(engine, [first])
    clock.advance(seconds=60)
    side = taking(engine)
    side.take(ROOM)
    assert by_endpoint(side.take(ROOM)) == {slow: 100}
    side._crowds[Kind.DELIVERY].pause = 3600
    backlog(engine, "acme", quick, 1)
    assert by_endpoint(side.take(ROOM)) == {quick: 1, slow: MOST_SLOW}
    assert by_endpoint(side.take(ROOM)) == {slow: MOST_SLOW}, "they may come again"
    side._crowds[Kind.DELIVERY].others_at -= LATELY
    assert by_endpoint(side.take(ROOM)) == {slow: 100}


def test_a_share_that_nobody_needs_goes_to_the_longest_due(engine: Engine, clock: Clock) -> None:
    flood, quiet = endpoint_of(engine, "flood"), endpoint_of(engine, "quiet")
    backlog(engine, "flood", flood, 1000)
    backlog(engine, "quiet", quiet, 1)
    side = taking(engine)
    taken = Counter[int]()
    for _ in range(5):
        taken += by_endpoint(side.take(ROOM))
    assert taken == {flood: 499, quiet: 1}


def test_who_has_had_no_turn_gets_it_after_the_others(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.core.taking.MOST_CROWDS", 2)
    monkeypatch.setattr("app.core.taking.CENSUS", 0.0)
    monkeypatch.setattr("app.core.taking.CENSUS_PART", 0)
    flood = endpoint_of(engine, "a-flood")
    backlog(engine, "a-flood", flood, 2000)
    clock.advance(seconds=60)
    others = [endpoint_of(engine, f"b{n}") for n in range(5)]
    for n, endpoint in enumerate(others):
        backlog(engine, f"b{n}", endpoint, 100)
    side = taking(engine)
    side._crowds[Kind.DELIVERY].pause = 0.0
    taken = Counter[int]()
    for _ in range(8):
        taken += by_endpoint(side.take(ROOM))
    assert all(taken[endpoint] > 0 for endpoint in others)


def test_what_is_held_off_is_taken_when_its_time_is_near(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    some_events(engine, 1)
    some_events(engine, 1, delay_seconds=9)
    held_off = {Kind.DELIVERY: Room(100, HORIZON - timedelta(seconds=1))}
    side = taking(engine)
    assert len(side.take(held_off).rows) == 1
    clock.advance(seconds=8)
    assert len(side.take(held_off).rows) == 2, "the second, and the first, whose take has lapsed"


def test_two_adapters_take_the_two_parts_of_the_work(engine: Engine) -> None:
    an_endpoint(engine)
    some_events(engine, 300)
    with engine.begin() as connection:
        service.set_scan_share(connection, 30)
    room = {Kind.DELIVERY: Room(1000)}
    queue = {row.ref for row in taking(engine).take(room).rows}
    scan = {row.ref for row in taking(engine, Adapter.SCAN).take(room).rows}
    assert len(queue) + len(scan) == 300
    assert not queue & scan
    assert 55 < len(scan) < 125


def test_an_adapter_without_a_share_takes_nothing(engine: Engine) -> None:
    an_endpoint(engine)
    some_events(engine)
    scan = taking(engine, Adapter.SCAN)
    assert scan.take(ROOM).rows == []
    assert scan.idle


def test_a_new_division_is_followed_within_a_second_or_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    an_endpoint(engine)
    some_events(engine)
    queue = taking(engine)
    assert queue.buckets().first == 0
    with engine.begin() as connection:
        service.set_scan_share(connection, 100)
    assert queue.buckets().first == 0
    monkeypatch.setattr(queue, "_followed", queue._followed - FOLLOW)
    assert queue.take(ROOM).rows == []


def test_the_broker_s_end_ends_the_publish_leases_of_the_queue_s_part_alone(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    some_events(engine, 100)
    side = taking(engine)
    batch = side.take(ROOM)
    side.move(batch)
    published = {row.ref for row in batch.rows}
    with engine.begin() as connection:
        service.set_scan_share(connection, 50)
    side = taking(engine)
    ours = {ref for ref in published if ref not in {row.ref for row in taking(engine, Adapter.SCAN).take(ROOM).rows}}
    assert side.look_at_published() == len(
        rows(engine, "SELECT ref FROM duehook.outbox WHERE duehook.bucket(ref) >= 50")
    )
    assert {row.ref for row in side.take(ROOM).rows} <= ours
    assert side.look_at_published() == 0, "a second relay that sees it too finds nothing left"


@pytest.mark.parametrize("adapter", Adapter)
def test_what_somebody_may_have_held_who_is_silent_comes_up_again_once(
    engine: Engine, clock: Clock, adapter: Adapter
) -> None:
    an_endpoint(engine)
    some_events(engine, 10, delay_seconds=9)
    side, other = taking(engine), taking(engine, adapter)
    batch = side.take(ROOM)
    side.move(batch)
    assert (len(batch.rows), len(side.take(ROOM).rows)) == (10, 0)
    with engine.begin() as connection:
        for role in ("worker delivery", "scan", "relay"):
            processes.tell(connection, Who(uuid4(), role, "gone", 1, "0"), timedelta(), None)
    looks = []
    for seconds in (10, 1.5, 1):
        clock.advance(seconds=seconds)
        with engine.begin() as connection:  # one of them lives on
            connection.execute(text("UPDATE duehook.processes SET seen_at = duehook.now() WHERE role = 'scan'"))
        other._followed -= FOLLOW
        other.buckets()
        again = side.take(ROOM)
        looks.append(len(again.rows))
        side.move(again)
    assert looks == [0, 10, 0]


def test_who_fell_silent_is_noticed_again_when_the_database_was_lost_meanwhile(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    some_events(engine, 10, delay_seconds=9)
    side = taking(engine)
    side.move(side.take(ROOM))
    with engine.begin() as connection:
        processes.tell(connection, Who(uuid4(), "worker delivery", "gone", 1, "0"), timedelta(), None)
    clock.advance(seconds=12)
    side._followed -= FOLLOW
    with lost_after(engine, "outbox.look_at_published"), pytest.raises(OperationalError):
        side.take(ROOM)
    assert len(side.take(ROOM).rows) == 10


@contextmanager
def lost_after(engine: Engine, name: str) -> Iterator[None]:
    """The connection that ends the statement of this name is cut."""

    def cut(_: object, cursor: psycopg.Cursor[Any], statement: str, *__: object) -> None:
        if f"/* {name} */" in statement:
            cursor.connection.close()

    event.listen(engine, "after_cursor_execute", cut)
    try:
        yield
    finally:
        event.remove(engine, "after_cursor_execute", cut)


def test_a_relay_that_is_silent_has_held_nothing(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    some_events(engine, 10, delay_seconds=9)
    side = taking(engine)
    side.move(side.take(ROOM))
    with engine.begin() as connection:
        processes.tell(connection, Who(uuid4(), "relay", "gone", 1, "0"), timedelta(), None)
    clock.advance(seconds=12)
    assert taking(engine).take(ROOM).rows == []


def test_a_row_that_is_not_published_keeps_its_look_when_the_broker_ends(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    some_events(engine, 2, delay_seconds=15)
    before = rows(engine, "SELECT look_at FROM duehook.outbox ORDER BY ref")
    assert taking(engine).look_at_published() == 0
    assert rows(engine, "SELECT look_at FROM duehook.outbox ORDER BY ref") == before


def test_who_waits_is_counted_by_looks_that_are_due(engine: Engine, clock: Clock) -> None:
    now, later = endpoint_of(engine, "now"), endpoint_of(engine, "later")
    backlog(engine, "now", now, 3)
    backlog(engine, "later", later, 1)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE duehook.outbox SET look_at = duehook.now() + interval '1 s' WHERE tenant = 'later'")
        )
        assert outbox.crowds(connection, Kind.DELIVERY, ("", 0), 10) == [("now", now)]
        assert outbox.crowds(connection, Kind.DELIVERY, ("now", now), 10) == []
        connection.rollback()
