"""The database keeps its promises about reservations to whoever writes plain SQL."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from tests.clock import Clock
from tests.conftest import Connect
from tests.hostility import SESSIONS, TIME_SETTINGS, life_of_everything, trap
from tests.invariants import assert_invariants
from tests.plain import (
    Connection,
    Row,
    blocked,
    column,
    columns_of,
    insert,
    refused,
    row,
    rows,
    sqlstate_of,
    update,
    value,
)

HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)
STATES = ("held", "confirmed", "released", "expired")
WHEN = ("before", "at", "after")


@pytest.fixture(autouse=True)
def audited(database_url: str) -> Iterator[None]:
    yield
    assert_invariants(database_url)


@pytest.fixture
def db(connect: Connect, clock: Clock) -> Connection:
    return connect(autocommit=True)


def hold(db: Connection, clock: Clock, **columns: Any) -> Row:
    return insert(db, "reservations", **{"resource": "seat", "expires_at": clock.now + HOUR, **columns})


def to(db: Connection, reservation: Row, status: str) -> int:
    return update(db, "reservations", reservation, status=status)


def in_state(db: Connection, clock: Clock, status: str, **columns: Any) -> Row:
    """A reservation that came to `status`, with the clock back where it was."""
    reservation = hold(db, clock, **columns)
    if status == "expired":
        clock.advance(hours=2)
    if status != "held":
        assert to(db, reservation, status) == 1
    if status == "expired":
        clock.advance(hours=-2)
    return row(db, "reservations", reservation["seq"])


def events_of(db: Connection, reservation: Row) -> list[str]:
    return column(
        db, "SELECT key FROM duehook.events WHERE key LIKE '%%:' || %s || ':%%' ORDER BY seq", [reservation["id"]]
    )


def outbox_of(db: Connection, reservation: Row) -> list[Row]:
    return rows(db, "SELECT * FROM duehook.outbox WHERE ref = %s", [reservation["seq"]])


def expected(before: str, after: str, when: str) -> str:
    if after == before:
        return "stays"
    if (before, after, when) == ("held", "expired", "before"):
        return "is passed over"
    if (before, after) == ("held", "confirmed") and when != "before":
        return "DH002"
    legal = {("held", "confirmed"), ("held", "released"), ("held", "expired"), ("confirmed", "released")}
    return "moves" if (before, after) in legal else "DH001"


def what_happens(db: Connection, clock: Clock, before: str, after: str, when: str) -> str:
    reservation = in_state(db, clock, before)
    delta = {"before": HOUR - TICK, "at": HOUR, "after": HOUR + TICK}[when].total_seconds()
    clock.advance(seconds=delta)
    try:
        count = to(db, reservation, after)
    except psycopg.Error as error:
        assert row(db, "reservations", reservation["seq"]) == reservation
        return error.sqlstate or ""
    finally:
        clock.advance(seconds=-delta)
    now = row(db, "reservations", reservation["seq"])
    if now == reservation:
        return "stays" if count == 1 else "is passed over"
    assert count == 1 and now["status"] == after and now["version"] == reservation["version"] + 1
    assert now["updated_at"] == clock.now + timedelta(seconds=delta)
    assert events_of(db, reservation)[-1] == f"reservation.{after}:{now['id']}:v{now['version']}"
    return "moves"


def test_each_pair_of_states_moves_stays_or_is_refused_as_the_database_clock_says(db: Connection, clock: Clock) -> None:
    cases = list(product(STATES, STATES, WHEN))
    assert {case: what_happens(db, clock, *case) for case in cases} == {case: expected(*case) for case in cases}


@pytest.mark.parametrize("status", ["cancelled", "HELD", "held ", ""])
def test_a_state_that_does_not_exist_is_refused(db: Connection, clock: Clock, status: str) -> None:
    reservation = hold(db, clock)
    with refused(db, "DH001", reservation["id"]):
        to(db, reservation, status)


def test_no_state_at_all_is_refused(db: Connection, clock: Clock) -> None:
    reservation = hold(db, clock)
    with refused(db, "23502"):
        db.execute("UPDATE duehook.reservations SET status = NULL WHERE seq = %s", [reservation["seq"]])


def test_a_refusal_is_a_sentence_that_says_which_reservation_and_why(db: Connection, clock: Clock) -> None:
    late, done = hold(db, clock, id="rsv_late"), in_state(db, clock, "released", id="rsv_done")
    with refused(db, "DH003", "reservation rsv_late can't be rewritten"):
        update(db, "reservations", late, resource="table")
    with refused(db, "DH001", "reservation rsv_done is released, it can't become confirmed"):
        to(db, done, "confirmed")
    clock.advance(hours=1)
    with refused(db, "DH002", "reservation rsv_late expired at 2030-01-01T13:00:00.000000Z"):
        to(db, late, "confirmed")


def test_nothing_but_the_status_can_be_written(db: Connection, clock: Clock) -> None:
    reservation = hold(db, clock, data='{"a": 1}', request="{}")
    written = {
        "seq": 1,
        "tenant": "other",
        "id": "rsv_other",
        "resource": "table",
        "expires_at": clock.now + 2 * HOUR,
        "exclusive": True,
        "data": '{"a":1}',
        "request": None,
        "created_at": clock.now - HOUR,
    }
    kept = {"version": 7, "updated_at": clock.now - HOUR}
    assert {*written, *kept, "status"} == set(columns_of(db, "reservations"))
    for name, other in written.items():
        for columns in ({name: other}, {"status": "confirmed", name: other}):
            with refused(db, "DH003"):
                update(db, "reservations", reservation, **columns)
    update(db, "reservations", reservation, **kept)
    assert row(db, "reservations", reservation["seq"]) == reservation
    update(db, "reservations", reservation, status="confirmed", **kept)
    confirmed = row(db, "reservations", reservation["seq"])
    assert confirmed == {**reservation, "status": "confirmed", "version": 2, "updated_at": clock.now}


def test_data_can_neither_come_nor_go_later(db: Connection, clock: Clock) -> None:
    bare, full = hold(db, clock), hold(db, clock, data="{}")
    with refused(db, "DH003"):
        update(db, "reservations", bare, data="null")
    with refused(db, "DH003"):
        update(db, "reservations", full, data=None)


def test_a_repeated_confirm_counts_its_row_and_makes_no_event(db: Connection, clock: Clock) -> None:
    reservation = in_state(db, clock, "confirmed")
    clock.advance(hours=3)  # too late for a first confirm, and no matter for a repeat
    assert to(db, reservation, "confirmed") == 1
    assert row(db, "reservations", reservation["seq"]) == reservation
    assert events_of(db, reservation) == [f"reservation.confirmed:{reservation['id']}:v2"]


def test_early_rows_of_an_expiring_batch_are_passed_over_untouched(db: Connection, clock: Clock) -> None:
    due, early = (
        [hold(db, clock) for _ in range(3)],
        [hold(db, clock, expires_at=clock.now + 2 * HOUR) for _ in range(3)],
    )
    done = in_state(db, clock, "confirmed")
    physical = "SELECT ctid::text, * FROM duehook.reservations WHERE seq = ANY (%s) ORDER BY seq"
    before = rows(db, physical, [[each["seq"] for each in (*early, done)]])
    clock.advance(hours=1)
    expired = column(db, "UPDATE duehook.reservations SET status = 'expired' WHERE status = 'held' RETURNING seq")
    assert sorted(expired) == [each["seq"] for each in due]
    assert rows(db, physical, [[each["seq"] for each in (*early, done)]]) == before
    assert [len(events_of(db, each)) for each in (*due, *early)] == [1, 1, 1, 0, 0, 0]
    assert [len(outbox_of(db, each)) for each in (*due, *early)] == [0, 0, 0, 1, 1, 1]


def test_a_batch_with_one_illegal_row_is_refused_whole(db: Connection, clock: Clock) -> None:
    open_one, done = hold(db, clock), in_state(db, clock, "released")
    with refused(db, "DH001", done["id"]):
        db.execute("UPDATE duehook.reservations SET status = 'confirmed'")
    assert row(db, "reservations", open_one["seq"]) == open_one


OUTSIDE: list[tuple[dict[str, Any], str]] = [
    ({"tenant": ""}, "DH004"),
    ({"tenant": "-acme"}, "DH004"),
    ({"tenant": "ac me"}, "DH004"),
    ({"tenant": "acmé"}, "DH004"),
    ({"tenant": "acme\n"}, "DH004"),
    ({"tenant": "a" * 65}, "DH004"),
    ({"id": "rsv_"}, "DH004"),
    ({"id": "evt_1"}, "DH004"),
    ({"id": "rsv_a.b"}, "DH004"),
    ({"id": "rsv_é"}, "DH004"),
    ({"id": "rsv_a\n"}, "DH004"),
    ({"id": "rsv_" + "a" * 65}, "DH004"),
    ({"resource": ""}, "DH004"),
    ({"resource": "x" * 256}, "DH004"),
    ({"expires_at": "infinity"}, "DH004"),
    ({"expires_at": "-infinity"}, "DH004"),
    ({"expires_at": "1969-12-31T23:59:59Z"}, "DH004"),
    ({"expires_at": "9999-01-01T00:00:01Z"}, "DH004"),
    ({"status": "confirmed"}, "DH001"),
    ({"version": 2}, "DH001"),
    ({"tenant": None}, "23502"),
    ({"id": None}, "23502"),
    ({"resource": None}, "23502"),
    ({"expires_at": None}, "23502"),
    ({"status": None}, "23502"),
    ({"data": "{"}, "22P02"),
]


def test_a_value_outside_the_contract_is_refused(db: Connection, clock: Clock) -> None:
    for columns, sqlstate in OUTSIDE:
        with refused(db, sqlstate):
            hold(db, clock, **columns)


def test_the_widest_values_of_the_contract_are_taken(db: Connection, clock: Clock) -> None:
    for columns in (
        {"tenant": "a" * 64},
        {"tenant": "0_-"},
        {"id": "rsv_" + "Z" * 64},
        {"resource": "座" * 255},
        {"expires_at": datetime(9999, 1, 1, tzinfo=UTC)},
        {"expires_at": datetime(1970, 1, 1, tzinfo=UTC)},
    ):
        assert columns.items() <= hold(db, clock, **columns).items()


def test_data_is_bounded_in_bytes_not_characters(db: Connection, clock: Clock) -> None:
    db.execute("UPDATE duehook.service SET max_event_bytes = 10")
    hold(db, clock, data='"123456é"')
    with refused(db, "DH004", "data has 11 bytes"):
        hold(db, clock, data='"1234567é"')


def test_a_resource_has_one_held_or_confirmed_exclusive_reservation_per_tenant(db: Connection, clock: Clock) -> None:
    first = hold(db, clock, exclusive=True)
    for columns in ({"resource": "table", "exclusive": True}, {"tenant": "other", "exclusive": True}, {}):
        hold(db, clock, **columns)
    clock.advance(hours=1, microseconds=-1)
    for _ in ("held", "confirmed", "confirmed and past its time"):
        with refused(db, "23505", "reservations_exclusive"):
            hold(db, clock, exclusive=True)
        to(db, first, "confirmed")
        clock.advance(hours=1)
    to(db, first, "released")
    hold(db, clock, exclusive=True)


def test_two_exclusive_holds_of_one_resource_in_one_statement_are_refused(db: Connection, clock: Clock) -> None:
    with refused(db, "23505", "reservations_exclusive"):
        db.execute(
            """INSERT INTO duehook.reservations (tenant, resource, expires_at, exclusive)
               SELECT 'acme', 'seat', '2031-01-01Z', true FROM generate_series(1, 2)"""
        )


def test_an_overdue_holder_is_expired_by_the_plain_insert_that_follows_it(db: Connection, clock: Clock) -> None:
    overdue, elsewhere = hold(db, clock, exclusive=True), hold(db, clock, tenant="other", exclusive=True)
    shared = hold(db, clock)
    clock.advance(hours=1)
    taken = hold(db, clock, exclusive=True)
    assert taken["status"] == "held"
    assert row(db, "reservations", overdue["seq"])["status"] == "expired"
    assert events_of(db, overdue) == [f"reservation.expired:{overdue['id']}:v2"]
    assert outbox_of(db, overdue) == []
    for untouched in (elsewhere, shared):
        assert row(db, "reservations", untouched["seq"]) == untouched


def test_overdue_holders_of_many_resources_give_way_to_one_statement(db: Connection, clock: Clock) -> None:
    for _ in range(2):
        held = db.execute(
            """INSERT INTO duehook.reservations (tenant, resource, expires_at, exclusive)
               SELECT 'acme', 'seat ' || n, %s, true FROM generate_series(1, 50) n""",
            [clock.now + HOUR],
        )
        assert held.rowcount == 50
        clock.advance(hours=1)
    assert column(db, "SELECT DISTINCT type FROM duehook.events") == ["reservation.expired"]


@pytest.mark.parametrize("overdue", [False, True])
@pytest.mark.parametrize("first_commits", [False, True])
def test_of_two_concurrent_exclusive_inserts_exactly_one_wins(
    connect: Connect, db: Connection, clock: Clock, overdue: bool, first_commits: bool
) -> None:
    if overdue:
        hold(db, clock, exclusive=True)
        clock.advance(hours=1)
    first, second = connect(), connect(options="-c lock_timeout=10s")
    hold(first, clock, exclusive=True)
    with blocked(second, lambda: hold(second, clock, exclusive=True), db) as answer:
        if first_commits:
            first.commit()
            with pytest.raises(errors.UniqueViolation, match="reservations_exclusive"):
                answer.result(10)
            second.rollback()
        else:
            first.rollback()
            assert answer.result(10)["status"] == "held"
            second.commit()
    assert value(db, "SELECT count(*) FROM duehook.reservations WHERE status = 'held'") == 1
    assert value(db, "SELECT count(*) FROM duehook.events") == overdue


def test_ids_are_unique_per_tenant(db: Connection, clock: Clock) -> None:
    hold(db, clock, id="rsv_1")
    hold(db, clock, id="rsv_1", tenant="other")
    with refused(db, "23505", "reservations_pkey"):
        hold(db, clock, id="rsv_1")
    skipped = db.execute(
        """INSERT INTO duehook.reservations (tenant, id, resource, expires_at)
           VALUES ('acme', 'rsv_1', 'seat', '2031-01-01Z') ON CONFLICT DO NOTHING"""
    )
    assert skipped.rowcount == 0
    assert value(db, "SELECT count(*) FROM duehook.outbox") == 2


def test_rows_come_by_copy_through_a_temporary_table_and_move_in_one_statement(db: Connection, clock: Clock) -> None:
    insert(db, "endpoints", url="http://127.0.0.1:9/", event_types=["*"])
    db.execute("CREATE TEMP TABLE arriving (resource text, expires_at timestamptz, data json)")
    with db.cursor().copy("COPY arriving FROM STDIN") as copy:
        for number in range(500):
            copy.write_row([f"seat {number}", clock.now + HOUR, f'{{"n": {number}}}'])
    db.execute(
        """INSERT INTO duehook.reservations (tenant, resource, expires_at, data)
           SELECT 'acme', resource, expires_at, data FROM arriving"""
    )
    looks = column(db, "SELECT DISTINCT look_at FROM duehook.outbox WHERE kind = 'reservation'")
    assert looks == [clock.now + HOUR - timedelta(seconds=10)]
    assert db.execute("UPDATE duehook.reservations SET status = 'confirmed'").rowcount == 500
    assert value(db, "SELECT count(DISTINCT key) FROM duehook.events WHERE type = 'reservation.confirmed'") == 500
    assert column(db, "SELECT kind FROM duehook.outbox GROUP BY kind HAVING count(*) = 500") == ["delivery"]


def test_merge_and_upsert_pass_the_same_guards(db: Connection, clock: Clock) -> None:
    held = hold(db, clock, id="rsv_1")
    upsert = """INSERT INTO duehook.reservations (tenant, id, resource, expires_at)
                VALUES ('acme', 'rsv_1', 'seat', '2031-01-01Z')
                ON CONFLICT (tenant, id) DO UPDATE SET status = 'released'"""
    db.execute(upsert)
    assert row(db, "reservations", held["seq"])["status"] == "released"
    assert events_of(db, held) == ["reservation.released:rsv_1:v2"]
    with refused(db, "DH001", "rsv_1 is released, it can't become confirmed"):
        db.execute(
            """MERGE INTO duehook.reservations r USING (VALUES ('rsv_1')) AS told(id) ON r.id = told.id
                WHEN MATCHED THEN UPDATE SET status = 'confirmed'"""
        )


@pytest.mark.parametrize("end", ["confirmed", "released", "expired", "deleted"])
def test_the_outbox_row_stands_while_it_is_held_and_goes_with_it(db: Connection, clock: Clock, end: str) -> None:
    db.execute("UPDATE duehook.service SET horizon = '7 seconds'")
    reservation = hold(db, clock)
    (wakeup,) = outbox_of(db, reservation)
    due = {"kind": "reservation", "tenant": "acme", "endpoint": 0, "due_at": clock.now + HOUR, "publications": 0}
    assert due.items() <= wakeup.items()
    assert wakeup["look_at"] == clock.now + HOUR - timedelta(seconds=7)
    clock.advance(hours=1 if end == "expired" else 0)
    if end == "deleted":
        db.execute("DELETE FROM duehook.reservations")
    else:
        to(db, reservation, end)
    assert outbox_of(db, reservation) == []


def test_a_moved_look_is_not_disturbed_by_a_repeat_or_an_early_expiry(db: Connection, clock: Clock) -> None:
    reservation = hold(db, clock)
    db.execute("UPDATE duehook.outbox SET look_at = '2040-01-01Z', publications = 3")
    before = outbox_of(db, reservation)
    to(db, reservation, "held")
    to(db, reservation, "expired")
    assert outbox_of(db, reservation) == before


def told(reservation: Row, status: str, version: int, data: str, at: str) -> str:
    """The bytes that subscribers get as `data`."""
    return (
        f'{{"id":"{reservation["id"]}","resource":"seat \\"7\\"","status":"{status}","version":{version},'
        f'"expires_at":"2030-01-01T13:00:00.000000Z","overdue":false,"exclusive":false,"data":{data},'
        f'"created_at":"2030-01-01T12:00:00.000000Z","updated_at":"{at}"}}'
    )


@pytest.mark.parametrize("data", [None, ' { "a" : 1.0, "a":"\\u0000\\ud800" } ', "null"])
def test_a_transition_tells_its_subscribers_the_reservation_as_it_is_now(
    db: Connection, clock: Clock, data: str | None
) -> None:
    wanted = ["*", "reservation.*", "reservation.confirmed", "reservation.released"]
    endpoints = [insert(db, "endpoints", url="http://127.0.0.1:9/", event_types=[each]) for each in wanted]
    reservation = hold(db, clock, resource='seat "7"', data=data)
    clock.advance(minutes=1)
    to(db, reservation, "confirmed")
    clock.advance(minutes=1)
    to(db, reservation, "released")
    events = rows(db, "SELECT *, data::text AS bytes FROM duehook.events ORDER BY seq")
    for minute, status, version, event in ((1, "confirmed", 2, events[0]), (2, "released", 3, events[1])):
        assert event["origin"] == "service" and event["tenant"] == "acme"
        assert event["type"] == f"reservation.{status}"
        assert event["key"] == f"reservation.{status}:{reservation['id']}:v{version}"
        assert event["bytes"] == told(
            reservation, status, version, data or "null", f"2030-01-01T12:0{minute}:00.000000Z"
        )
        assert event["due_at"] == event["created_at"] == event["fanned_out_at"]
        goes_to = [
            each["seq"] for each in endpoints if each["event_types"] in (["*"], ["reservation.*"], [event["type"]])
        ]
        deliveries = rows(db, "SELECT * FROM duehook.deliveries WHERE event = %s ORDER BY endpoint", [event["seq"]])
        assert [each["endpoint"] for each in deliveries] == goes_to
        for each in deliveries:
            assert row(db, "outbox", each["id"])["due_at"] == each["next_attempt_at"] == event["due_at"]
    assert len(events) == 2


@pytest.mark.parametrize("undo", ["ROLLBACK", "ROLLBACK TO SAVEPOINT before"])
def test_a_transaction_that_is_rolled_back_leaves_nothing(db: Connection, clock: Clock, undo: str) -> None:
    insert(db, "endpoints", url="http://127.0.0.1:9/", event_types=["*"])
    kept = hold(db, clock)
    everything = "SELECT 'r' || count(*) FROM duehook.reservations UNION ALL SELECT 'e' || count(*) FROM duehook.events"
    everything += " UNION ALL SELECT 'd' || count(*) FROM duehook.deliveries"
    everything += " UNION ALL SELECT 'o' || count(*) FROM duehook.outbox"
    before = sorted(column(db, everything))
    db.execute("BEGIN")
    db.execute("SAVEPOINT before")
    to(db, hold(db, clock, exclusive=True), "confirmed")
    to(db, kept, "released")
    assert sorted(column(db, everything)) != before
    db.execute(undo)
    db.execute("COMMIT") if "TO" in undo else None
    assert sorted(column(db, everything)) == before
    assert row(db, "reservations", kept["seq"]) == kept


def test_another_programs_search_path_breaks_nothing(connect: Connect, db: Connection, clock: Clock) -> None:
    trap(db)
    trapped = connect(autocommit=True, options="-c search_path=evil,pg_catalog")
    assert sqlstate_of(trapped, lambda: trapped.execute("SELECT 'a'::text = 'b'::text")) == "P0001", "no trap is set"
    life_of_everything(trapped, clock)


def test_temporary_tables_named_like_ours_break_nothing(db: Connection, clock: Clock) -> None:
    for name in ("reservations", "events", "deliveries", "outbox", "service", "new_rows", "old_rows", "endpoints"):
        db.execute(sql.SQL("CREATE TEMP TABLE {} (seq text, id text)").format(sql.Identifier(name)))
    life_of_everything(db, clock)


@pytest.mark.parametrize("settings", SESSIONS)
def test_no_setting_of_a_session_loosens_a_guard(connect: Connect, clock: Clock, settings: dict[str, str]) -> None:
    options = " ".join(f"-c {name}={setting}" for name, setting in settings.items())
    life_of_everything(connect(autocommit=True, options=options), clock)


def test_every_time_zone_and_date_style_writes_the_same_bytes(connect: Connect, db: Connection, clock: Clock) -> None:
    insert(db, "endpoints", url="http://127.0.0.1:9/", event_types=["*"])
    for number, (zone, style) in enumerate(TIME_SETTINGS):
        session = connect(autocommit=True)
        session.execute("SELECT set_config('TimeZone', %s, false), set_config('DateStyle', %s, false)", [zone, style])
        session.execute(
            """INSERT INTO duehook.reservations (tenant, id, resource, expires_at)
               VALUES ('acme', %s, 'seat "7"', '2030-01-01T13:00:00Z')""",
            [f"rsv_{number}"],
        )
        session.execute("UPDATE duehook.reservations SET status = 'confirmed'")
    events = rows(db, "SELECT head, data::text AS data FROM duehook.events ORDER BY seq")
    for number, event in enumerate(events):
        at = "2030-01-01T12:00:00.000000Z"
        assert event["data"] == told({"id": f"rsv_{number}"}, "confirmed", 2, "null", at)
        assert event["head"].endswith(f'"key":"reservation.confirmed:rsv_{number}:v2","timestamp":"{at[:23]}Z","data":')
    assert len(events) == len(TIME_SETTINGS)
