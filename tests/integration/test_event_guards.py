"""The database keeps its promises about events to whoever writes plain SQL."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.clock import Clock
from tests.conftest import Connect
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
    update,
    value,
)

HORIZON = timedelta(seconds=10)
TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)

# What receivers sign for, byte for byte: each is legal JSON text that a round trip through a parser would change.
TEXTS = [
    "null",
    "0",
    "-0",
    "1.0",
    "1E+2",
    "123456789012345678901234567890.10",
    '""',
    ' {"b" : 1 ,\t"a":\r\n[ ] } ',
    '{"a":1,"a":2,"":3}',
    '"\\u0000"',
    '"\\ud800"',
    '"\\udc00\\ud83d"',
    '"\\ud83d\\ude00 \N{GRINNING FACE}"',
    '"\\/ / \\u00e9 é e\N{COMBINING ACUTE ACCENT}"',
    '"\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}\N{ZERO WIDTH NO-BREAK SPACE}\x7f"',
    '"\\b\\f\\n\\r\\t\\u001f\\"\\\\"',
    '"</script>%s{}$1:name;--"',
    "[" * 500 + "]" * 500,
]
KEYS = [
    '"',
    "\\",
    "\\u0041",
    "\n\r\t\x01\x1f\x7f",
    "\N{LINE SEPARATOR}",
    "\N{GRINNING FACE}",
    "é" * 255,
    "</a>",
    " ",
    "'",
]


@pytest.fixture(autouse=True)
def audited(database_url: str) -> Iterator[None]:
    yield
    assert_invariants(database_url)


@pytest.fixture
def db(connect: Connect, clock: Clock) -> Connection:
    return connect(autocommit=True)


def post(db: Connection, **columns: Any) -> Row:
    return insert(db, "events", **{"type": "order.placed", "data": "{}", **columns})


def an_endpoint(db: Connection, *patterns: str, **columns: Any) -> int:
    seq = insert(db, "endpoints", **{"url": "http://127.0.0.1:9/", "event_types": list(patterns or ["*"]), **columns})[
        "seq"
    ]
    assert isinstance(seq, int)
    return seq


def goes_to(db: Connection, event: Row) -> list[int]:
    return column(db, "SELECT endpoint FROM duehook.deliveries WHERE event = %s ORDER BY endpoint", [event["seq"]])


def kinds(db: Connection) -> list[str]:
    return column(db, "SELECT kind FROM duehook.outbox ORDER BY ref")


def body(db: Connection, event: Row) -> str:
    return str(value(db, "SELECT head || data::text || '}' FROM duehook.events WHERE seq = %s", [event["seq"]]))


def test_data_is_kept_byte_for_byte_between_a_head_and_a_brace(db: Connection, clock: Clock) -> None:
    for text in TEXTS:
        event = post(db, data=text)
        assert body(db, event) == f"{event['head']}{text}}}"
        assert json.loads(body(db, event))["data"] == json.loads(text)


def test_every_key_makes_a_valid_body_whose_head_says_what_the_columns_say(db: Connection, clock: Clock) -> None:
    clock.advance(seconds=1, microseconds=999_999)
    for key in (None, *KEYS):
        event = post(db, key=key)
        assert list(json.loads(body(db, event)).items()) == [
            ("id", event["id"]),
            ("type", "order.placed"),
            ("key", key),
            ("timestamp", "2030-01-01T12:00:01.999Z"),
            ("data", {}),
        ]


def test_the_id_is_made_of_the_number_and_needs_no_escape(db: Connection, clock: Clock) -> None:
    event = post(db)
    assert event["id"] == f"evt_{event['seq']:x}"
    assert body(db, event).startswith(f'{{"id":"{event["id"]}","type":"order.placed","key":null,"timestamp":"')


def test_no_column_of_an_event_can_be_rewritten(db: Connection, clock: Clock) -> None:
    event = post(db, key="one", data='{"a": 1}', due_at=clock.now + DAY)
    others = {
        "seq": 1,
        "tenant": "other",
        "origin": "service",
        "type": "order.paid",
        "key": None,
        "data": '{"a":1}',
        "request": "",
        "only_to": 1,
        "not_to": 1,
        "due_at": clock.now,
        "created_at": clock.now + TICK,  # which the head would not show
        "erased_at": clock.now,
        "digest": b"\0" * 32,
    }
    generated, once = {"id", "head"}, {"fanned_out_at", "cancelled_at"}
    assert {*others, *generated, *once} == set(columns_of(db, "events"))
    for name, other in others.items():
        with refused(db, "DH003", f"event {event['id']} can't be rewritten"):
            update(db, "events", event, **{name: other})
        with refused(db, "DH003"):
            update(db, "events", event, **{name: other, "cancelled_at": clock.now})
    for name in generated:
        with refused(db, "428C9"):
            update(db, "events", event, **{name: "evt_1"})
    assert row(db, "events", event["seq"]) == event


def test_spelling_the_same_value_otherwise_is_a_rewrite(db: Connection, clock: Clock) -> None:
    for old, new in (("1.0", "1.00"), ('"é"', '"\\u00e9"'), ("{}", "{ }"), ('{"a":1,"a":2}', '{"a":2}')):
        event = post(db, data=old)
        with refused(db, "DH003"):
            update(db, "events", event, data=new)
        assert update(db, "events", event, data=old) == 1


def test_a_key_stands_once_per_tenant_and_a_repeat_makes_nothing(db: Connection, clock: Clock) -> None:
    an_endpoint(db)
    first = post(db, key="one")
    post(db, key="ONE")
    post(db, key="one", tenant="other")
    post(db), post(db)
    with refused(db, "23505", "events_key"):
        post(db, key="one", type="order.paid")
    before = kinds(db)
    for conflict in ("ON CONFLICT DO NOTHING", "ON CONFLICT (tenant, origin, key) WHERE key IS NOT NULL DO NOTHING"):
        repeated = db.execute(
            f"INSERT INTO duehook.events (tenant, type, key, data) VALUES ('acme', 'order.paid', 'one', '1') {conflict}"
        )
        assert repeated.rowcount == 0
    assert kinds(db) == before
    assert row(db, "events", first["seq"]) == first


def test_a_batch_keeps_the_first_of_each_key_and_skips_the_rest(db: Connection, clock: Clock) -> None:
    an_endpoint(db)
    post(db, key="key 3")
    db.execute("CREATE TEMP TABLE arriving (key text, data json)")
    with db.cursor().copy("COPY arriving FROM STDIN") as copy:
        for number in range(1000):
            copy.write_row([f"key {number % 500}", f'{{"n": {number}}}'])
    made = db.execute(
        """INSERT INTO duehook.events (tenant, type, key, data)
           SELECT 'acme', 'order.placed', key, data FROM arriving ON CONFLICT DO NOTHING"""
    )
    assert made.rowcount == 499
    assert kinds(db) == ["delivery"] * 500


def test_a_second_insert_of_a_key_waits_for_the_first_and_decides_by_its_end(
    connect: Connect, db: Connection, clock: Clock
) -> None:
    first, second = connect(), connect(options="-c lock_timeout=10s")
    post(first, key="one")
    with blocked(second, lambda: post(second, key="one"), db) as answer:
        first.commit()
        with pytest.raises(errors.UniqueViolation):
            answer.result(10)
    second.rollback()


SERVICE_TYPES = [
    "reservation.expired",
    "reservation.x",
    "reservation.a.b",
    "endpoint.disabled",
    "job.completed",
    "ping",
]
OWN_TYPES = [
    "reservation",
    "reservations.made",
    "Reservation.expired",
    "endpoint",
    "job",
    "jobs.done",
    "pings",
    "ping.x",
    "PING",
]


def test_a_producer_can_not_speak_for_the_service(db: Connection, clock: Clock) -> None:
    for taken in SERVICE_TYPES:
        with refused(db, "DH005", f"event type '{taken}' belongs to the service"):
            post(db, type=taken)
        post(db, type=taken, origin="service")
    for free in OWN_TYPES:
        post(db, type=free)
    with refused(db, "23514"):
        post(db, origin="somebody")


def test_a_producers_row_with_the_key_of_a_coming_transition_blocks_nothing(db: Connection, clock: Clock) -> None:
    expires_at = clock.now + DAY
    for number in range(3):
        insert(db, "reservations", id=f"rsv_{number}", resource="seat", expires_at=expires_at)
        post(db, key=f"reservation.expired:rsv_{number}:v2", type="order.placed")
    clock.advance(days=1)
    assert db.execute("UPDATE duehook.reservations SET status = 'expired'").rowcount == 3
    for number in range(3):
        origins = (
            "SELECT origin FROM duehook.events WHERE key = 'reservation.expired:rsv_' || %s || ':v2' ORDER BY origin"
        )
        assert column(db, origins, [str(number)]) == ["producer", "service"]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"type": ""}, "DH004"),
    ({"type": "."}, "DH004"),
    ({"type": "a."}, "DH004"),
    ({"type": ".a"}, "DH004"),
    ({"type": "a..b"}, "DH004"),
    ({"type": "a-b"}, "DH004"),
    ({"type": "a b"}, "DH004"),
    ({"type": 'a"b'}, "DH004"),
    ({"type": "order.*"}, "DH004"),
    ({"type": "*"}, "DH004"),
    ({"type": "é"}, "DH004"),
    ({"type": "a\n"}, "DH004"),
    ({"type": "a" * 129}, "DH004"),
    ({"tenant": "a.b"}, "DH004"),
    ({"tenant": "*"}, "DH004"),
    ({"tenant": ""}, "DH004"),
    ({"key": ""}, "DH004"),
    ({"key": "k" * 256}, "DH004"),
    ({"due_at": "infinity"}, "DH004"),
    ({"tenant": None}, "23502"),
    ({"type": None}, "23502"),
    ({"data": None}, "23502"),
    ({"due_at": None}, "23502"),
    ({"data": ""}, "22P02"),
    ({"data": "{'a': 1}"}, "22P02"),
    ({"data": "NaN"}, "22P02"),
    ({"data": "1 2"}, "22P02"),
    ({"data": '"\x01"'}, "22P02"),
]


def test_a_value_outside_the_contract_is_refused(db: Connection, clock: Clock) -> None:
    for columns, sqlstate in BAD:
        with refused(db, sqlstate):
            post(db, **columns)


def test_the_widest_values_of_the_contract_are_taken(db: Connection, clock: Clock) -> None:
    for columns in ({"type": "a" * 128}, {"type": "_.0.Z"}, {"type": "a." * 63 + "ab"}, {"key": "k" * 255}):
        assert columns.items() <= post(db, **columns).items()


def test_data_that_is_too_big_in_bytes_is_refused_to_producers(db: Connection, clock: Clock) -> None:
    db.execute("UPDATE duehook.service SET max_event_bytes = 10")
    post(db, data='"12345é "')
    with refused(db, "DH004", "data has 11 bytes, more than DUEHOOK_MAX_EVENT_BYTES (10)"):
        post(db, data='"123456é "')
    post(db, data='"the service tells what it has to tell"', type="job.completed", origin="service")


MATCHING = ["*", "order.*", "order.item.*", "order.item.added"]
OTHERS = [
    "order",
    "order.item",
    "order.item.added.*",
    "order.item.add",
    "order.item.added.twice",
    "*.added",
    "item.*",
    "order.*.added",
    "Order.*",
    "ORDER.ITEM.ADDED",
    "order_item.*",
    "orde.*",
    "order*",
    "",
]


def test_an_event_goes_to_the_endpoints_whose_pattern_matches_and_no_others(db: Connection, clock: Clock) -> None:
    for pattern in OTHERS:
        an_endpoint(db, pattern)
    matching = [an_endpoint(db, pattern) for pattern in MATCHING]
    several = an_endpoint(db, "user.*", "order.item.added", "order.*", "*")
    an_endpoint(db, "*", tenant="other")
    assert goes_to(db, post(db, type="order.item.added")) == [*matching, several]
    assert goes_to(db, post(db, type="order")) == [
        *column(db, "SELECT seq FROM duehook.endpoints WHERE event_types = '{order}'"),
        matching[0],
        several,
    ]


def test_disabled_endpoints_get_their_events_and_deleted_ones_do_not(db: Connection, clock: Clock) -> None:
    disabled = an_endpoint(db, status="disabled", disabled_at=clock.now)
    an_endpoint(db, deleted_at=clock.now)
    assert goes_to(db, post(db)) == [disabled]


def test_an_event_may_be_for_one_endpoint_whatever_it_wants_or_for_all_but_one(db: Connection, clock: Clock) -> None:
    first, second = an_endpoint(db), an_endpoint(db)
    picky, deleted = an_endpoint(db, "user.*"), an_endpoint(db, deleted_at=clock.now)
    foreign = an_endpoint(db, tenant="other")
    assert goes_to(db, post(db, not_to=first)) == [second]
    assert goes_to(db, post(db, not_to=picky)) == [first, second]
    assert goes_to(db, post(db, only_to=picky)) == [picky]
    for nobody in (deleted, foreign, 1):
        assert goes_to(db, post(db, only_to=nobody)) == []
    assert goes_to(db, post(db, only_to=first, not_to=first)) == []


def test_each_delivery_begins_scheduled_at_the_due_time_with_its_outbox_row(db: Connection, clock: Clock) -> None:
    endpoint = an_endpoint(db)
    event = post(db, due_at=clock.now + HORIZON)
    (delivery,) = rows(db, "SELECT * FROM duehook.deliveries")
    begins = {
        "status": "scheduled",
        "attempt": 0,
        "step": 0,
        "round": 1,
        "abandoned": 0,
        "parked": False,
        "token": None,
    }
    assert begins.items() <= delivery.items()
    assert delivery["next_attempt_at"] == delivery["age_from"] == event["due_at"]
    wakeup = row(db, "outbox", delivery["id"])
    assert (wakeup["kind"], wakeup["tenant"], wakeup["endpoint"]) == ("delivery", "acme", endpoint)
    assert (wakeup["due_at"], wakeup["look_at"]) == (clock.now + HORIZON, clock.now)


@pytest.mark.parametrize("horizon", ["10 seconds", "0", "1 day"])
def test_an_event_within_the_horizon_fans_out_at_once_and_one_beyond_it_waits(
    db: Connection, clock: Clock, horizon: str
) -> None:
    span = value(db, "UPDATE duehook.service SET horizon = %s RETURNING horizon", [horizon])
    endpoint = an_endpoint(db)
    near, far = post(db, due_at=clock.now + span), post(db, due_at=clock.now + span + TICK)
    assert (near["fanned_out_at"], far["fanned_out_at"]) == (clock.now, None)
    assert (goes_to(db, near), goes_to(db, far)) == ([endpoint], [])
    wakeup = row(db, "outbox", far["seq"])
    assert (wakeup["kind"], wakeup["tenant"], wakeup["endpoint"]) == ("event", "acme", 0)
    assert (wakeup["due_at"], wakeup["look_at"]) == (far["due_at"], clock.now + TICK)


def test_a_waiting_event_goes_to_the_endpoints_of_the_moment_it_is_fanned_out(db: Connection, clock: Clock) -> None:
    staying, leaving = an_endpoint(db), an_endpoint(db)
    waiting, longer = post(db, due_at=clock.now + DAY), post(db, due_at=clock.now + DAY)
    db.execute("UPDATE duehook.endpoints SET deleted_at = duehook.now() WHERE seq = %s", [leaving])
    coming = an_endpoint(db)
    clock.advance(days=1, seconds=-10)
    assert update(db, "events", waiting, fanned_out_at=clock.now) == 1
    assert goes_to(db, waiting) == [staying, coming]
    assert goes_to(db, longer) == []
    assert kinds(db) == ["event", "delivery", "delivery"]
    assert column(db, "SELECT DISTINCT next_attempt_at FROM duehook.deliveries") == [waiting["due_at"]]


def test_a_hundred_waiting_events_fan_out_in_one_statement(db: Connection, clock: Clock) -> None:
    an_endpoint(db), an_endpoint(db, "order.*"), an_endpoint(db, "user.*")
    for _ in range(100):
        post(db, due_at=clock.now + DAY)
    post(db)
    db.execute("UPDATE duehook.events SET fanned_out_at = coalesce(fanned_out_at, duehook.now())")
    assert kinds(db) == ["delivery"] * 202
    assert value(db, "SELECT count(DISTINCT event) FROM duehook.deliveries") == 101


@pytest.mark.parametrize("which", ["fanned_out_at", "cancelled_at"])
def test_an_event_is_fanned_out_once_and_cancelled_once(db: Connection, clock: Clock, which: str) -> None:
    an_endpoint(db)
    event = post(db, due_at=clock.now + DAY)
    update(db, "events", event, **{which: clock.now})
    made = goes_to(db, event)
    for other in (clock.now + TICK, clock.now - TICK, None):
        with refused(db, "DH003"):
            update(db, "events", event, **{which: other})
    assert update(db, "events", event, **{which: clock.now}) == 1
    assert goes_to(db, event) == made


def test_a_cancelled_event_never_fans_out(db: Connection, clock: Clock) -> None:
    an_endpoint(db)
    before, at_once = post(db, due_at=clock.now + DAY), post(db, due_at=clock.now + DAY)
    update(db, "events", before, cancelled_at=clock.now)
    assert kinds(db) == ["event"]
    with refused(db, "DH003"):
        update(db, "events", before, fanned_out_at=clock.now)
    with refused(db, "DH003"):
        update(db, "events", at_once, fanned_out_at=clock.now, cancelled_at=clock.now)
    assert goes_to(db, before) == goes_to(db, at_once) == []


def test_an_event_that_was_fanned_out_may_still_be_cancelled(db: Connection, clock: Clock) -> None:
    an_endpoint(db)
    event = post(db)
    db.execute("UPDATE duehook.deliveries SET status = 'cancelled'")
    assert update(db, "events", event, cancelled_at=clock.now) == 1
    assert len(goes_to(db, event)) == 1


def test_what_a_row_says_of_its_own_fan_out_is_not_believed(db: Connection, clock: Clock) -> None:
    an_endpoint(db)
    waiting = post(db, due_at=clock.now + DAY, fanned_out_at=clock.now, cancelled_at=clock.now)
    assert (waiting["fanned_out_at"], waiting["cancelled_at"]) == (None, None)
    assert kinds(db) == ["event"]


def test_an_event_that_was_due_in_the_past_is_due_now(db: Connection, clock: Clock) -> None:
    for past in (clock.now - DAY, clock.now - TICK, "-infinity", "0001-01-01Z"):
        assert post(db, due_at=past)["due_at"] == clock.now
    assert post(db)["due_at"] == clock.now


def test_an_event_may_wait_ten_years_and_no_longer(db: Connection, clock: Clock) -> None:
    ten_years = clock.now.replace(year=clock.now.year + 10)
    assert ten_years - clock.now == timedelta(days=3652)
    assert post(db, due_at=ten_years)["due_at"] == ten_years
    with refused(db, "DH004", "is not within ten years"):
        post(db, due_at=ten_years + 2 * DAY)


def test_a_waiting_event_that_is_deleted_takes_its_outbox_row_along(db: Connection, clock: Clock) -> None:
    post(db, due_at=clock.now + DAY), post(db)
    assert db.execute("DELETE FROM duehook.events").rowcount == 2
    assert kinds(db) == []


def test_a_moved_look_of_a_waiting_event_is_not_disturbed_by_its_neighbours(db: Connection, clock: Clock) -> None:
    waiting, other = post(db, due_at=clock.now + DAY), post(db, due_at=clock.now + DAY)
    db.execute("UPDATE duehook.outbox SET look_at = '2029-01-01Z', publications = 3 WHERE ref = %s", [waiting["seq"]])
    before = row(db, "outbox", waiting["seq"])
    update(db, "events", other, fanned_out_at=clock.now)
    update(db, "events", waiting, due_at=waiting["due_at"])
    assert row(db, "outbox", waiting["seq"]) == before


def test_one_failing_row_undoes_its_whole_statement(db: Connection, clock: Clock) -> None:
    an_endpoint(db)
    with pytest.raises(psycopg.Error):
        db.execute(
            """INSERT INTO duehook.events (tenant, type, data)
               VALUES ('acme', 'order.placed', '1'), ('acme', 'job.done', '2')"""
        )
    assert kinds(db) == column(db, "SELECT id FROM duehook.events") == []


def test_ids_of_events_reservations_and_deliveries_never_meet_and_go_up_in_time(db: Connection, clock: Clock) -> None:
    an_endpoint(db)
    numbers: list[int] = []
    started = time.time() * 1000 - 60_000
    for _ in range(20):
        numbers.append(post(db)["seq"])
        numbers.append(insert(db, "reservations", resource="seat", expires_at=clock.now + DAY)["seq"])
    numbers += column(db, "SELECT id FROM duehook.deliveries")
    assert len(set(numbers)) == 60
    assert all(number >> 20 > started for number in numbers)
    assert numbers[:40:2] == sorted(numbers[:40:2], key=lambda number: number >> 20)


def test_no_session_keeps_numbers_of_ids_for_later(connect: Connect, db: Connection, clock: Clock) -> None:
    """One that was idle while the sequence went round would make the ids that others make in that millisecond."""
    sessions = [connect(autocommit=True) for _ in range(2)]
    drawn = [value(session, "SELECT duehook.next_id() & 1048575") for session in sessions * 3]
    assert drawn == [(drawn[0] + step) % 2**20 for step in range(6)]


def test_an_event_goes_only_after_its_last_delivery_has_ended(db: Connection, clock: Clock) -> None:
    an_endpoint(db, "*")
    event = post(db)["seq"]
    with refused(db, "DH003", "has deliveries that are not finished"):
        db.execute("DELETE FROM duehook.events WHERE seq = %s", [event])
    db.execute("UPDATE duehook.deliveries SET status = 'cancelled'")
    assert db.execute("DELETE FROM duehook.events WHERE seq = %s", [event]).rowcount == 1
    db.execute("DELETE FROM duehook.deliveries")
