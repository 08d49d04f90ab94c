"""What receivers import, on real databases: one effect for each event, whatever comes twice, at once or forged."""

import json
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import django
import psycopg
import pytest
import standardwebhooks
from django.conf import settings
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Session

from app.domain import signature
from app.domain.signing_keys import Ed25519Key, ed25519_secret, hmac_secret, signing_key
from app.ledger.database import driver_url
from app.receiver import Event, UnverifiedError, create_table, ddl, prune, receive, verify
from tests.races.harness import race
from tests.waiting import wait_until

SECRET = hmac_secret(b"0123456789abcdef01234567")
OTHER = hmac_secret(b"another secret of a test")
Headers = dict[str, str]


def an_event(number: int = 1) -> tuple[Headers, bytes]:
    """A signed request, as the sender would make it now."""
    members = {
        "id": f"evt_{number:x}",
        "type": "order.placed",
        "key": f"order:{number}",
        "data": {"emoji": "\ud83d\ude80"},
    }
    return signed(f"evt_{number:x}", json.dumps(members).encode())


def signed(
    event_id: str, body: bytes, *, secrets: tuple[str, ...] = (SECRET,), age: float = 0
) -> tuple[Headers, bytes]:
    at = int(time.time() - age)
    value = signature.sign([signing_key(each) for each in secrets], event_id, at, body)
    headers = {"Webhook-Id": event_id, "webhook-timestamp": str(at), "webhook-signature": value, "duehook-attempt": "3"}
    return headers, body


@dataclass
class Shop:
    """A receiver's database, reached in one of the ways it may be; `apply` writes an effect."""

    connect: Callable[[], Any]
    opened: list[Any] = field(default_factory=list)

    def connection(self) -> Any:
        self.opened.append(self.connect())
        return self.opened[-1]

    def apply(self, connection: Any, event: Event) -> dict[str, Any]:
        execute(connection, f"INSERT INTO effects VALUES ('{event.key}')")
        return {"applied": event.key, "by": len(self.opened)}

    def effects(self) -> list[str]:
        connection = self.connect()
        rows = execute(connection, "SELECT key FROM effects ORDER BY key").fetchall()
        connection.close()
        return [row["key"] if isinstance(row, dict) else row[0] for row in rows]


def execute(connection: Any, statement: str) -> Any:
    if hasattr(connection, "ensure_connection"):  # Django's
        cursor = connection.cursor()
        cursor.execute(statement)
        return cursor
    return connection.execute(text(statement) if hasattr(connection, "begin_nested") else statement)


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    return tmp_path / "shop.sqlite"


def django_names(database_url: str) -> dict[str, Any]:
    """What Django calls the parts of a URL."""
    parts = conninfo_to_dict(database_url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    return {name: parts.get(part, "") for name, part in names.items()}


def ways(sqlite_file: Path, database_url: str) -> Mapping[str, Callable[[], Any]]:
    def dicts(cursor: sqlite3.Cursor, row: Any) -> dict[str, Any]:
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    def sqlite_of_dicts() -> sqlite3.Connection:
        connection = sqlite3.connect(sqlite_file)
        connection.row_factory = dicts
        return connection

    def sqlite_of_today(autocommit: bool) -> Callable[[], sqlite3.Connection]:
        return lambda: sqlite3.connect(sqlite_file, autocommit=autocommit)  # type: ignore[call-overload]

    def through(url: Any) -> Callable[[], Any]:
        return lambda: create_engine(url).connect()

    def of_django(**database: Any) -> Callable[[], Any]:
        def connection() -> Any:
            if not settings.configured:
                settings.configure()
                django.setup()
            alias = str(sqlite_file)  # this test's alone
            connections.databases.setdefault(alias, {**connections.databases["default"], **database})
            return connections[alias]

        return connection

    since_python_3_12 = {
        "sqlite3 always in a transaction": sqlite_of_today(False),
        "sqlite3 never in a transaction": sqlite_of_today(True),
    }
    return {
        **(since_python_3_12 if sys.version_info >= (3, 12) else {}),
        "sqlite3": lambda: sqlite3.connect(sqlite_file, check_same_thread=False),
        "sqlite3 in autocommit mode": lambda: sqlite3.connect(sqlite_file, isolation_level=None),
        "sqlite3 with rows of its own": sqlite_of_dicts,
        "psycopg": lambda: psycopg.connect(database_url),
        "psycopg in autocommit mode": lambda: psycopg.connect(database_url, autocommit=True),
        "psycopg with rows of its own": lambda: psycopg.connect(database_url, row_factory=dict_row),
        "SQLAlchemy on PostgreSQL": through(driver_url(database_url)),
        "SQLAlchemy on SQLite": through(f"sqlite:///{sqlite_file}"),
        "a session of SQLAlchemy": lambda: Session(create_engine(driver_url(database_url))),
        "Django on PostgreSQL": of_django(ENGINE="django.db.backends.postgresql", **django_names(database_url)),
        "Django on SQLite": of_django(ENGINE="django.db.backends.sqlite3", NAME=sqlite_file),
    }


WAYS = list(ways(Path(), "postgresql:///"))


@pytest.fixture(params=WAYS)
def shop(request: pytest.FixtureRequest, sqlite_file: Path, database_url: str) -> Iterator[Shop]:
    """A receiver's database with the table of receipts and one for effects, reached in each of the ways."""
    shop = Shop(ways(sqlite_file, database_url)[request.param])
    with closing(shop.connection()) as connection:
        create_table(connection)
        create_table(connection)
        execute(connection, "CREATE TABLE effects (key text)")
        connection.commit()
    yield shop
    for connection in shop.opened:
        connection.close()


def test_an_event_is_applied_once_and_every_other_time_answers_with_the_first_outcome(shop: Shop) -> None:
    first = receive(shop.connection(), *an_event(), SECRET, shop.apply)
    second = receive(shop.connection(), *an_event(), SECRET, shop.apply)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.outcome == second.outcome == {"applied": "order:1", "by": 2}
    assert shop.effects() == ["order:1"]


def test_one_connection_serves_many_events(shop: Shop) -> None:
    connection = shop.connection()
    for number in (1, 2, 1, 3):
        receive(connection, *an_event(number), SECRET, shop.apply)
    assert shop.effects() == ["order:1", "order:2", "order:3"]


def test_an_effect_that_fails_leaves_no_receipt_and_is_applied_when_the_event_comes_again(shop: Shop) -> None:
    def half(connection: Any, event: Event) -> None:
        shop.apply(connection, event)
        raise RuntimeError("out of stock")

    connection = shop.connection()
    with pytest.raises(RuntimeError, match="out of stock"):
        receive(connection, *an_event(), SECRET, half)
    assert shop.effects() == []
    assert not receive(connection, *an_event(), SECRET, shop.apply).duplicate
    assert shop.effects() == ["order:1"]


def test_an_outcome_that_can_not_be_kept_undoes_the_effect(shop: Shop) -> None:
    def unkeepable(connection: Any, event: Event) -> object:
        shop.apply(connection, event)
        return object()

    with pytest.raises(TypeError):
        receive(shop.connection(), *an_event(), SECRET, unkeepable)
    assert shop.effects() == []


def test_a_receipt_that_can_not_be_made_means_no_effect(shop: Shop) -> None:
    connection = shop.connection()
    execute(connection, "DROP TABLE duehook_receipts")
    connection.commit()
    with pytest.raises(Exception, match="duehook_receipts"):
        receive(connection, *an_event(), SECRET, shop.apply)
    assert shop.effects() == []
    create_table(connection)
    assert not receive(connection, *an_event(), SECRET, shop.apply).duplicate
    assert shop.effects() == ["order:1"]


@pytest.mark.parametrize("shop", [way for way in WAYS if not way.startswith("Django")], indirect=True)
def test_what_was_open_on_the_connection_shares_the_fate_of_the_effect(shop: Shop) -> None:
    def fails(_connection: Any, _event: Event) -> None:
        raise RuntimeError

    connection = shop.connection()
    explicit = getattr(connection, "autocommit", False) is True or getattr(connection, "isolation_level", "") is None
    for apply, raised in ((fails, True), (shop.apply, False)):
        if explicit:
            execute(connection, "BEGIN")
        execute(connection, "INSERT INTO effects VALUES ('before')")
        if raised:
            with pytest.raises(RuntimeError):
                receive(connection, *an_event(), SECRET, apply)
        else:
            receive(connection, *an_event(), SECRET, apply)
    assert shop.effects() == ["before", "order:1"]


def test_receivers_that_share_a_database_have_a_table_each(shop: Shop) -> None:
    connection = shop.connection()
    create_table(connection, "warehouse_receipts")
    receive(connection, *an_event(), SECRET, shop.apply)
    receive(connection, *an_event(), SECRET, shop.apply, table="warehouse_receipts")
    assert shop.effects() == ["order:1", "order:1"]


def test_receipts_are_pruned_by_age_in_small_transactions(shop: Shop) -> None:
    connection = shop.connection()
    rows = ", ".join(f"('old_{number}', 1000)" for number in range(2_500))
    execute(connection, f"INSERT INTO duehook_receipts (webhook_id, received_at) VALUES {rows}")
    connection.commit()
    receive(connection, *an_event(), SECRET, shop.apply)
    assert prune(connection) == 2_500
    assert prune(connection) == 0
    assert receive(connection, *an_event(), SECRET, shop.apply).duplicate
    assert prune(connection, timedelta(seconds=-1)) == 1


def test_twenty_requests_at_once_have_one_effect_and_one_outcome(shop: Shop) -> None:
    at_once = threading.Barrier(20)

    def one(_: int) -> Any:
        with closing(shop.connect()) as connection:
            at_once.wait(10)
            return receive(connection, *an_event(), SECRET, shop.apply)

    with ThreadPoolExecutor(20) as pool:
        receipts = list(pool.map(one, range(20)))
    assert [receipt.duplicate for receipt in receipts].count(False) == 1
    assert len({json.dumps(receipt.outcome) for receipt in receipts}) == 1
    assert shop.effects() == ["order:1"]


@pytest.fixture
def on_postgres(database_url: str) -> Shop:
    """A receiver's database for races: actors bring connections of their own."""
    with psycopg.connect(database_url) as connection:
        create_table(connection)
        connection.execute("CREATE TABLE effects (key text)")
    return Shop(lambda: psycopg.connect(database_url))


def test_the_second_of_two_at_once_waits_for_the_first_and_answers_as_it_did(
    database_url: str, on_postgres: Shop
) -> None:
    def work(engine: Engine) -> Any:
        with engine.connect() as connection:
            return receive(connection, *an_event(), SECRET, on_postgres.apply)

    with race(database_url, session={}) as racing:  # a receiver's own, not the service's
        first = racing.actor("first", work).until("before commit")
        second = racing.actor("second", work).until_blocked()
        assert first.finish().duplicate is False
        assert second.finish().duplicate is True
        assert first.result.outcome == second.result.outcome
    assert on_postgres.effects() == ["order:1"]


def test_the_second_of_two_at_once_applies_when_the_first_dies(database_url: str, on_postgres: Shop) -> None:
    def work(engine: Engine) -> Any:
        with engine.connect() as connection:
            return receive(connection, *an_event(), SECRET, on_postgres.apply)

    with race(database_url, session={}) as racing:  # a receiver's own, not the service's
        first = racing.actor("first", work).until("before commit")
        second = racing.actor("second", work).until_blocked()
        first.kill()
        assert second.finish().duplicate is False
    assert on_postgres.effects() == ["order:1"]


def test_a_snapshot_older_than_the_first_effect_never_applies_it_again(database_url: str, on_postgres: Shop) -> None:
    with psycopg.connect(database_url) as late:
        late.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        late.execute("SELECT 1")
        receive(on_postgres.connection(), *an_event(), SECRET, on_postgres.apply)
        with pytest.raises(psycopg.errors.SerializationFailure):
            receive(late, *an_event(), SECRET, on_postgres.apply)
        assert receive(late, *an_event(), SECRET, on_postgres.apply).duplicate
    assert on_postgres.effects() == ["order:1"]


def test_sqlite_makes_the_second_wait_while_the_first_applies(sqlite_file: Path) -> None:
    shop = Shop(lambda: sqlite3.connect(sqlite_file, check_same_thread=False))
    with closing(shop.connection()) as connection:
        create_table(connection)
        execute(connection, "CREATE TABLE effects (key text)")
    applying, go_on = threading.Event(), threading.Event()

    def slow(connection: Any, event: Event) -> Any:
        applying.set()
        go_on.wait(10)
        return shop.apply(connection, event)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: receive(shop.connection(), *an_event(), SECRET, slow))
        wait_until(applying.is_set, what="the first applies")
        second = pool.submit(lambda: receive(shop.connection(), *an_event(), SECRET, shop.apply))
        go_on.set()
        assert (first.result(10).duplicate, second.result(10).duplicate) == (False, True)
    assert shop.effects() == ["order:1"]


def test_an_effect_can_not_commit_on_its_own(database_url: str, on_postgres: Shop) -> None:
    def commits(connection: psycopg.Connection[Any], event: Event) -> None:
        on_postgres.apply(connection, event)
        connection.commit()

    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.ProgrammingError):
        receive(connection, *an_event(), SECRET, commits)
    assert on_postgres.effects() == []


def test_a_session_that_commits_in_the_effect_is_an_error_and_its_effect_is_not_applied_again(
    database_url: str, on_postgres: Shop
) -> None:
    """SQLAlchemy lets a session commit out of a savepoint; the receipt goes with it."""

    def commits(session: Session, event: Event) -> None:
        on_postgres.apply(session, event)
        session.commit()

    engine = create_engine(driver_url(database_url))
    with Session(engine) as session, pytest.raises(InvalidRequestError):
        receive(session, *an_event(), SECRET, commits)
    with Session(engine) as session:
        assert receive(session, *an_event(), SECRET, commits).duplicate
    assert on_postgres.effects() == ["order:1"]
    engine.dispose()


def test_a_transaction_that_belongs_to_somebody_else_is_not_committed(database_url: str, on_postgres: Shop) -> None:
    with (
        psycopg.connect(database_url) as connection,
        pytest.raises(psycopg.ProgrammingError),
        connection.transaction(),
    ):
        receive(connection, *an_event(), SECRET, on_postgres.apply)
    assert on_postgres.effects() == []


def test_autocommit_that_would_tear_receipt_and_effect_apart_is_refused(database_url: str, on_postgres: Shop) -> None:
    engine = create_engine(driver_url(database_url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(Exception, match="SAVEPOINT can only be used in transaction"):
        receive(connection, *an_event(), SECRET, on_postgres.apply)
    assert on_postgres.effects() == []
    engine.dispose()


@pytest.mark.parametrize("shop", [way for way in WAYS if way.startswith("Django")], indirect=True)
def test_a_transaction_of_django_is_never_committed_for_somebody_else(shop: Shop) -> None:
    connection = shop.connection()
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic(using=connection.alias):
        receive(connection, *an_event(), SECRET, shop.apply)
    connection.set_autocommit(False)
    with pytest.raises(transaction.TransactionManagementError, match="set_autocommit"):
        receive(connection, *an_event(), SECRET, shop.apply)
    connection.set_autocommit(True)
    assert shop.effects() == []


@pytest.mark.parametrize("shop", [way for way in WAYS if way.startswith("Django")], indirect=True)
def test_an_effect_may_use_atomic_blocks_of_django_that_fail_on_their_own(shop: Shop) -> None:
    """As Django's models do whenever they are saved."""

    def partly(connection: Any, event: Event) -> str:
        with suppress(ZeroDivisionError), transaction.atomic(using=connection.alias):
            shop.apply(connection, event)
            _ = 1 / 0
        with transaction.atomic(using=connection.alias):
            execute(connection, "INSERT INTO effects VALUES ('the rest')")
        return "partly"

    assert receive(shop.connection(), *an_event(), SECRET, partly).outcome == "partly"
    assert receive(shop.connection(), *an_event(), SECRET, partly).duplicate
    assert shop.effects() == ["the rest"]


def test_a_connection_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"not builtins\.dict"):
        receive({}, *an_event(), SECRET, lambda *_: None)  # type: ignore[type-var]


def test_an_async_connection_is_refused_by_name() -> None:
    connection = psycopg.AsyncConnection.__new__(psycopg.AsyncConnection)
    with pytest.raises(TypeError, match=r"in a thread, not psycopg.*AsyncConnection"):
        receive(connection, *an_event(), SECRET, lambda *_: None)  # type: ignore[type-var]


def test_the_published_library_and_ours_agree() -> None:
    headers, body = an_event()
    assert standardwebhooks.Webhook(SECRET).verify(body, headers)
    theirs = standardwebhooks.Webhook(SECRET).sign("evt_7", datetime.now(UTC), body.decode())
    assert verify({**headers, "webhook-id": "evt_7", "Webhook-Id": "evt_7", "webhook-signature": theirs}, body, SECRET)


def test_a_verified_event_can_be_read() -> None:
    event = verify(*an_event(), SECRET)
    assert (event.id, event.attempt, event.type, event.key) == ("evt_1", 3, "order.placed", "order:1")
    assert event.data == {"emoji": "\N{ROCKET}"}


def test_bytes_that_python_can_not_hold_are_verified_all_the_same() -> None:
    body = b'{"type": "a.b", "key": "k", "data": [%s, 1.5]}' % (b"9" * 5_000)
    event = verify(*signed("evt_1", body), SECRET)
    assert (event.type, event.key) == ("a.b", "k"), "whoever needs no data must not fail for it"
    with pytest.raises(ValueError):
        _ = event.data


def test_during_a_rotation_either_secret_verifies() -> None:
    headers, body = signed("evt_1", b"{}", secrets=(SECRET, OTHER))
    assert verify(headers, body, SECRET) == verify(headers, body, [OTHER]) == verify(headers, body, [OTHER, SECRET])
    headers, body = signed("evt_1", b"{}", secrets=(OTHER,))
    assert verify(headers, body, (SECRET, OTHER))


def test_the_public_key_of_an_endpoint_verifies_what_its_private_key_signed() -> None:
    private = ed25519_secret(b"0123456789abcdef0123456789abcdef")
    key = signing_key(private)
    assert isinstance(key, Ed25519Key)
    headers, body = signed("evt_1", b"{}", secrets=(private,))
    assert verify(headers, body, key.public.text).id == "evt_1"
    with pytest.raises(UnverifiedError):
        verify(headers, body + b" ", key.public.text)


FORGERIES: Mapping[str, Callable[[Headers, bytes], tuple[Headers, bytes]]] = {
    "a byte more": lambda headers, body: (headers, body + b" "),
    "a byte less": lambda headers, body: (headers, body[:-1]),
    "another byte": lambda headers, body: (headers, body.replace(b"order:1", b"order:2")),
    "nothing at all": lambda headers, _: (headers, b""),
    "no headers": lambda _, body: ({}, body),
    "another id": lambda headers, body: ({**headers, "Webhook-Id": "evt_2"}, body),
    "an id with a dot": lambda headers, body: ({**headers, "Webhook-Id": "evt.1"}, body),
    "an id of half a character": lambda headers, body: ({**headers, "Webhook-Id": "evt_\udce9"}, body),
    "another time": lambda headers, body: ({**headers, "webhook-timestamp": str(int(time.time()) + 1)}, body),
    "a time that is none": lambda headers, body: ({**headers, "webhook-timestamp": "1e9"}, body),
    "no signature": lambda headers, body: ({**headers, "webhook-signature": ""}, body),
    "half a signature": lambda headers, body: ({**headers, "webhook-signature": "v1,"}, body),
    "another version": lambda headers, body: (
        {**headers, "webhook-signature": "v2" + headers["webhook-signature"][2:]},
        body,
    ),
    "letters from afar": lambda headers, body: ({**headers, "webhook-signature": "v1,\N{ROCKET}"}, body),
    "another secret": lambda headers, body: signed("evt_1", body, secrets=(OTHER,)),
    "an old one": lambda headers, body: signed("evt_1", body, age=301),
    "one from the future": lambda headers, body: signed("evt_1", body, age=-310),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_can_not_be_verified_touches_nothing(forgery: str, sqlite_file: Path) -> None:
    with closing(sqlite3.connect(sqlite_file)) as connection:
        with pytest.raises(UnverifiedError):  # and not the missing table's error
            receive(connection, *FORGERIES[forgery](*an_event()), SECRET, lambda *_: pytest.fail("it was applied"))
        assert not connection.in_transaction


def test_the_age_that_is_accepted_can_be_chosen() -> None:
    old = signed("evt_1", b"{}", age=3_000)
    assert verify(*old, SECRET, tolerance=timedelta(hours=1))
    with pytest.raises(UnverifiedError):
        verify(*signed("evt_1", b"{}", age=12), SECRET, tolerance=timedelta(seconds=10))


@pytest.mark.parametrize("secrets", [[], "secret", ["whsec_short"], [SECRET, "whsec_"]])
def test_a_secret_that_is_none_is_the_receivers_mistake_and_not_the_senders(secrets: str | list[str]) -> None:
    with pytest.raises(ValueError):
        verify(*an_event(), secrets)


@pytest.mark.parametrize("body", ["{}", {"type": "order.placed"}, None, bytearray(b"{}")])
def test_a_body_that_is_not_bytes_is_the_receivers_mistake_and_not_the_senders(body: Any) -> None:
    with pytest.raises(TypeError, match="bytes as they came, not"):
        verify(an_event()[0], body, SECRET)


@pytest.mark.parametrize("name", ["", "a b", "a;drop table effects", "a.b.c", "1a", 'a"b', "naïve"])
def test_a_table_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        ddl(name)
