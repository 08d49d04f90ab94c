"""The shadow: it tells exactly what would be missed and what would be woken for nothing, and writes nothing."""

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, event, text

from app.cli.main import main
from app.core import deliveries as core
from app.core import reservations
from app.core.reconciliation import audit
from app.core.reservations import Hold
from app.core.shadow import Compared, Difference, compare, estimate
from app.domain.identity import public_id
from app.domain.wakeups import Kind
from app.ledger import outbox
from app.ledger.outbox import Room
from tests.clock import Clock
from tests.integration.test_cli import seen
from tests.ledgers import TENANT, TERMS, a_delivery, an_endpoint, claimed, deliveries_of, ending, rows, some_events

HOUR = timedelta(hours=1)
NOTHING = {kind: Compared() for kind in Kind}


def change(engine: Engine, statement: str, **parameters: Any) -> None:
    """Behind the triggers' back."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        assert connection.execute(text(statement), parameters).rowcount > 0


def held(engine: Engine, name: str, seconds: float = 60) -> int:
    with engine.begin() as connection:
        reservations.hold(connection, TENANT, Hold(name, id=f"rsv_{name}", hold_seconds=seconds))
    return int(rows(engine, "SELECT seq FROM duehook.reservations WHERE id = :id", id=f"rsv_{name}")[0])


def delivery(engine: Engine, **fields: Any) -> int:
    """Of an event of its own."""
    (seq,) = some_events(engine, **fields)
    (made,) = deliveries_of(engine, seq)
    return made


def look_at(engine: Engine, ref: int, at: str) -> None:
    change(engine, f"UPDATE duehook.outbox SET {at} WHERE ref = :ref", ref=ref)


def shown(engine: Engine, **options: Any) -> dict[Kind, Compared]:
    """What differs from nothing at all."""
    compared = compare(engine, **{"moment": 0, "stretch": 3, **options})
    return {kind: each for kind, each in compared.items() if each != Compared()}


def test_an_empty_ledger_and_one_where_nothing_is_due_differ_in_nothing(engine: Engine, clock: Clock) -> None:
    assert compare(engine, moment=0) == NOTHING
    an_endpoint(engine)
    held(engine, "a")
    some_events(engine, delay_seconds=3600)
    claimed(engine, delivery(engine))
    assert compare(engine, moment=0) == NOTHING


def test_due_things_are_counted_as_what_a_take_returns_and_what_is_on_its_way(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    for number in range(5):
        held(engine, f"a{number}", 60)
        some_events(engine, delay_seconds=60)
        claimed(engine, delivery(engine))
    clock.advance(hours=1)
    some_events(engine, 4)
    for kind, before in ((Kind.RESERVATION, 5), (Kind.EVENT, 5), (Kind.DELIVERY, 9)):
        due = rows(engine, "SELECT ref FROM duehook.outbox WHERE kind = :kind ORDER BY ref", kind=kind)
        assert len(due) == before
        look_at(engine, due[0], "look_at = duehook.now() + '15 min', publications = 4")
        look_at(engine, due[1], "taken = gen_random_uuid(), taken_until = duehook.now() + '2 s'")
        look_at(engine, due[2], "look_at = duehook.now() + '1 s'")  # locked by somebody, or no room
        look_at(engine, due[3], "taken = gen_random_uuid(), taken_until = duehook.now()")  # by a relay that died
        look_at(engine, due[4], "taken = gen_random_uuid(), taken_until = 'infinity'")  # by nobody that there is
    found = shown(engine)
    assert found == {
        Kind.RESERVATION: Compared(would_wake=2, on_the_way=3),
        Kind.EVENT: Compared(would_wake=2, on_the_way=3),
        Kind.DELIVERY: Compared(would_wake=6, on_the_way=3),
    }
    assert {kind: each.due for kind, each in found.items()} == {Kind.RESERVATION: 5, Kind.EVENT: 5, Kind.DELIVERY: 9}
    with engine.connect() as connection:  # and never commits
        taken = outbox.take(connection, uuid4(), {kind: Room(100) for kind in found})
        assert {kind: sum(row.kind is kind for row in taken) for kind in found} == {
            kind: each.would_wake for kind, each in found.items()
        }


def test_every_kind_of_damage_is_told_and_nothing_else(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    lost, late, early, of_another_kind = (held(engine, name) for name in ("lost", "late", "early", "kind"))
    waiting = [seq for _ in range(4) for seq in some_events(engine, delay_seconds=60)]
    gone, leased, unpublished, endless, parked, done = (delivery(engine) for _ in range(6))
    claimed(engine, leased)
    clock.advance(hours=1)
    held(engine, "healthy", 0.001)
    delivery(engine)
    clock.advance(seconds=1)
    change(engine, "DELETE FROM duehook.outbox WHERE ref = ANY (:refs)", refs=[lost, waiting[0], gone, leased])
    look_at(engine, late, "look_at = '2099-01-01Z'")
    look_at(engine, endless, "look_at = 'infinity', publications = 20")
    look_at(engine, waiting[1], "look_at = duehook.now() + '15 min 1 s', publications = 1")
    look_at(engine, unpublished, "look_at = duehook.now() + '1 min'")
    look_at(engine, early, "look_at = '-infinity'")
    look_at(engine, of_another_kind, "kind = 'event'")
    look_at(engine, parked, "look_at = look_at + interval '5 days'")
    change(engine, "UPDATE duehook.deliveries SET parked = true WHERE id = :id", id=parked)
    change(engine, "UPDATE duehook.deliveries SET status = 'cancelled' WHERE id = :id", id=done)
    change(
        engine,
        """INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
           VALUES (26, 'delivery', 'acme', now(), now()), (27, 'endpoint', 'acme', now(), 'infinity'),
                  (28, 'reservation', 'acme', now(), now() - interval '1 h'), (-1, 'event', 'acme', now(), now())""",
    )
    names = tuple(public_id("dlv", each) for each in sorted((gone, leased, unpublished, endless)))
    assert shown(engine) == {
        Kind.RESERVATION: Compared(
            would_wake=2,
            missed=Difference(3, ("rsv_lost", "rsv_late", "rsv_kind")),
            needless=Difference(1, ("row 28",)),
        ),
        Kind.EVENT: Compared(
            would_wake=2,
            missed=Difference(2, tuple(public_id("evt", each) for each in waiting[:2])),
            needless=Difference(2, ("row -1", public_id("evt", of_another_kind))),
        ),
        Kind.DELIVERY: Compared(
            would_wake=1,
            missed=Difference(4, names),
            needless=Difference(2, ("dlv_1a", public_id("dlv", done))),
        ),
        Kind.ENDPOINT: Compared(needless=Difference(1, ("end_1b",))),
    }
    change(engine, "UPDATE duehook.deliveries SET parked = false WHERE parked")
    look_at(engine, unpublished, "look_at = due_at")
    assert audit(engine) == Counter(
        reservation_without_row=1,
        event_without_row=1,
        delivery_without_row=2,
        look_too_late=4,
        row_says_wrong=1,
        row_of_nothing=5,
    ), "the audit repairs all of it"
    assert not any(each.missed.number or each.needless.number for each in compare(engine, moment=0).values())


def test_only_the_first_few_are_named(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    some_events(engine, 25)
    change(engine, "DELETE FROM duehook.outbox")
    (found,) = shown(engine).values()
    assert (found.missed.number, len(found.missed.ids)) == (25, 20)
    audit(engine)


def test_a_difference_that_is_gone_a_moment_later_is_none(engine: Engine, clock: Clock) -> None:
    a_delivery(engine)
    change(engine, "DELETE FROM duehook.outbox")
    change(
        engine,
        "INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at) VALUES (1, 'event', 'acme', now(), now())",
    )

    healed = []

    def told(walked: int) -> None:
        healed.append(walked)
        if len(healed) == 5:  # after the last stretch
            audit(engine)

    assert compare(engine, moment=0, told=told) == NOTHING
    assert healed == [0, 0, 1, 0, 1]


@contextmanager
def read_only_and_nothing_else(engine: Engine) -> Iterator[list[str]]:
    """Fails for a statement outside a read-only transaction; gives the names of those that were sent."""
    names: list[str] = []

    def listen(connection: Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        driver: Any = connection.connection.driver_connection
        names.append(statement.split()[1])
        assert driver.execute("SHOW transaction_read_only").fetchone() == ("on",), statement

    event.listen(engine, "after_cursor_execute", listen)
    try:
        yield names
    finally:
        event.remove(engine, "after_cursor_execute", listen)


def test_it_reads_and_never_writes(engine: Engine, clock: Clock) -> None:
    a_delivery(engine)
    held(engine, "lost")
    clock.advance(hours=1)
    change(engine, "DELETE FROM duehook.outbox")
    with read_only_and_nothing_else(engine) as names:
        assert len(shown(engine)) == 2
        estimate(engine)
    assert {"shadow.due_delivery", "shadow.needless", "shadow.still_missed_delivery", "shadow.estimate"} <= set(names)
    audit(engine)


def test_while_work_flows_it_tells_the_planted_damage_alone(engine: Engine) -> None:
    an_endpoint(engine)
    lost = delivery(engine)
    change(engine, "DELETE FROM duehook.outbox WHERE ref = :ref", ref=lost)
    stop = threading.Event()

    def flow() -> None:
        while not stop.is_set():
            (made,) = deliveries_of(engine, *some_events(engine))
            core.record(engine, [ending(claim) for claim in claimed(engine, made)], max_age=TERMS.max_age)
            held(engine, f"a{made}", 0.01)
            with engine.begin() as connection:
                token = uuid4()
                taken = outbox.take(connection, token, {Kind.RESERVATION: Room(10)})
                outbox.move(connection, token, [row.ref for row in taken], HOUR)
            reservations.expire(engine, [row.ref for row in taken])

    flowing = [threading.Thread(target=flow) for _ in range(2)]
    for thread in flowing:
        thread.start()
    try:
        for _ in range(4):
            found = shown(engine, moment=0.1, publish_lease=HOUR)
            assert {kind: each.missed for kind, each in found.items() if each.missed.number} == {
                Kind.DELIVERY: Difference(1, (public_id("dlv", lost),))
            }
            assert not any(each.needless.number for each in found.values())
    finally:
        stop.set()
        for thread in flowing:
            thread.join()
    audit(engine)


def test_the_command_tells_it_to_people_and_programs_and_by_its_exit_code(
    engine: Engine,
    database_url: str,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DUEHOOK_DATABASE_URL", database_url)

    def run(*options: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["duehook", "wakeups", "shadow", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    lost = a_delivery(engine)
    code, out, told = run("--json")
    assert told == "duehook: no scan has been seen: this compares what it would wake if it ran.\n"
    fine = json.loads(out)
    assert (code, fine["candidate"]) == (0, "scan")
    assert fine["kinds"].keys() == {"reservation", "event", "delivery", "endpoint", "job"}
    nothing = {"missed": 0, "missed_ids": [], "needless": 0, "needless_ids": []}
    assert fine["kinds"]["delivery"] == {"due": 1, "would_wake": 1, "on_the_way": 0, **nothing}
    change(engine, "UPDATE duehook.service SET scan_share = 51")
    change(engine, "DELETE FROM duehook.outbox")
    seen(engine, "scan")
    code, out, told = run("--json")
    assert told == "duehook: no relay has been seen: this compares what it would wake if it ran.\n"
    wrong = json.loads(out)
    assert (code, wrong["candidate"]) == (1, "queue")
    assert wrong["kinds"]["delivery"]["missed_ids"] == [public_id("dlv", lost)]
    code, out, told = run("--candidate", "scan")
    assert (code, told) == (1, "")
    assert out.startswith("scan of\tdue\twould wake")
    assert f"missed delivery: {public_id('dlv', lost)}\n" in out
    assert run("--candidate", "nobody") == (2, "", "duehook: 'nobody' is not an adapter: use queue or scan.\n")
    audit(engine)
