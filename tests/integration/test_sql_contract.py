"""docs/sql-contract.md: every block of it does what it says, and what it says of locks and errors is so."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import IsolationLevel, sql
from sqlalchemy import make_url

from app.local.postgres import Postgres
from tests.invariants import assert_invariants
from tests.pages import Block, blocks_of, commands_of, run_sql
from tests.plain import Connection, blocked, column, is_sentence, refused, rows
from tests.service import duehook

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sql-contract.md"
BLOCKS = blocks_of(PAGE, "sql", "sh")
TWO_SESSIONS = {"40001", "40P01", "55P03", "57014"}  # what no block can show; each has a test below
ERASING = {"DH007"}  # nor this, of a tenant that is being erased: its tests are those of erasures
OWNERS = {"DH006"}  # about the audit log, which no producer may even read
HOLD: LiteralString = """INSERT INTO duehook.reservations (tenant, id, resource, expires_at, exclusive)
                         VALUES ('default', %s, %s, duehook.now() + interval '1 hour', %s)"""
POST: LiteralString = "INSERT INTO duehook.events (tenant, type, key, data) VALUES ('default', 'a.b', %s, '1')"
MOVE: LiteralString = "UPDATE duehook.reservations SET status = %s WHERE tenant = 'default' AND id = %s"


@dataclass
class Followed:
    """A ledger after somebody has followed the page: what was answered, and what it was not supposed to be."""

    owner_url: str
    url: str
    answers: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    wrong: dict[int, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def followed(postgres: Postgres, template: str) -> Iterator[Followed]:
    name = "duehook_page"
    owner_url = postgres.url_of(name)
    url = make_url(owner_url).set(username="bookings", password="change-me").render_as_string(hide_password=False)
    with psycopg.connect(postgres.url, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
        with psycopg.connect(owner_url, autocommit=True) as owner:
            owner.execute(
                "INSERT INTO duehook.endpoints (tenant, url, event_types) VALUES ('default', 'http://h/', '{*}')"
            )
            page = Followed(owner_url, url)
            follow(page, owner)
        yield page
        assert_invariants(owner_url)
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        server.execute("DROP ROLE bookings")


def follow(page: Followed, owner: Connection) -> None:
    producer: Connection | None = None
    for block in BLOCKS:
        if block.language == "sh":
            for command in commands_of(block):
                done = duehook(*command[1:], database_url=page.owner_url)
                assert (command[0], done.returncode) == ("duehook", 0), done.stderr
        elif block.by_administrator:
            try_out(page, block, owner)
        else:
            producer = producer or psycopg.connect(page.url, autocommit=True)
            try_out(page, block, producer)
    assert producer is not None
    producer.close()


def try_out(page: Followed, block: Block, connection: Connection) -> None:
    sqlstate, message = None, ""
    try:
        page.answers[block.line] = run_sql(connection, block.text)
    except psycopg.Error as error:
        sqlstate, message = error.sqlstate, error.diag.message_primary or ""
    if (sqlstate, message) != (block.sqlstate, block.message):
        page.wrong[block.line] = f"{sqlstate}: {message}"
    if not connection.closed:
        connection.rollback()


@pytest.fixture
def db(followed: Followed) -> Iterator[Connection]:
    """The ledger's owner."""
    with psycopg.connect(followed.owner_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def producers(followed: Followed) -> Iterator[tuple[Connection, Connection]]:
    """Two programs; what they leave open is undone."""
    first, second = (psycopg.connect(followed.url) for _ in range(2))
    yield first, second
    first.close()
    second.close()


def test_every_block_of_the_page_does_what_it_says(followed: Followed) -> None:
    assert len(BLOCKS) > 30
    assert {f"{PAGE.name}:{line}": answer for line, answer in followed.wrong.items()} == {}
    told = [each for each in BLOCKS if each.text.startswith(("INSERT", "UPDATE")) and "RETURNING" in each.text]
    silent = [each for each in told if not followed.answers[each.line]]
    assert ["'sql-1001'" in each.text for each in silent] == [True], "the key that was there already"


def test_what_followed_from_the_page_is_in_the_ledger(followed: Followed, db: Connection) -> None:
    transitions = column(db, "SELECT key FROM duehook.events WHERE origin = 'service' ORDER BY seq LIMIT 3")
    assert transitions == [
        "reservation.confirmed:rsv_order1001:v2",
        "reservation.released:rsv_order1001:v3",
        "reservation.confirmed:rsv_booking1:v2",
    ]
    keys = column(db, "SELECT key FROM duehook.events WHERE origin = 'producer' ORDER BY seq LIMIT 5")
    assert keys == ["sql-1001", "sql-reminder", "paid-1", "sql-1002", "sql-1003"]
    copied = column(
        db, "SELECT data::text FROM duehook.reservations WHERE resource ~ '^truck 2[01]$' ORDER BY resource"
    )
    assert copied == ['{"customer": "Grace"}', '{"customer": "Edsger"}']
    (body,) = [rows[0][0] for line, rows in followed.answers.items() if rows and "AS body" in block_at(line).text]
    assert re.fullmatch(
        r'\{"id":"evt_\w+","type":"order\.placed","key":"sql-1001","timestamp":"[^"]+","data":\{"total": 12\.50\}\}',
        body,
    )


def block_at(line: int) -> Block:
    (found,) = [each for each in BLOCKS if each.line == line]
    return found


def test_the_page_lists_exactly_the_sqlstates_that_the_ledger_raises_and_shows_each(followed: Followed) -> None:
    migrations = (ROOT / "app" / "ledger" / "migrations" / "sql").rglob("*.sql")
    raised = {code for each in migrations for code in re.findall(r"ERRCODE = '(DH\w+)'", each.read_text())}
    listed = {
        code
        for line in PAGE.read_text().splitlines()
        for code in re.findall(r"`([0-9A-Z]{5})`", line.split("|")[1] if line.startswith("| `") else "")
    }
    assert {code for code in listed if code.startswith("DH")} == raised - OWNERS != set()
    assert {each.sqlstate for each in BLOCKS if each.sqlstate} == listed - TWO_SESSIONS - ERASING
    assert all(is_sentence(each.message) for each in BLOCKS if each.sqlstate)


def test_what_the_page_says_goes_by_an_index_does(followed: Followed, db: Connection) -> None:
    db.execute(
        """INSERT INTO duehook.events (tenant, type, key, data, due_at)
           SELECT 'default', 'a.b', 'many ' || n, '1', duehook.now() + interval '1 day'
             FROM generate_series(1, 5000) n"""
    )
    db.execute(
        """INSERT INTO duehook.reservations (tenant, resource, expires_at)
           SELECT 'default', 'many', duehook.now() + interval '1 day' FROM generate_series(1, 5000) n"""
    )
    db.execute("ANALYZE duehook.events, duehook.reservations")
    with psycopg.connect(followed.url, autocommit=True) as producer:
        for block in BLOCKS:
            if block.text.startswith("SELECT") and block.sqlstate is None:
                plan = "\n".join(line for (line,) in run_sql(producer, f"EXPLAIN {block.text}"))
                assert re.search(r"Index Scan.* on (events|reservations)", plan), plan
                assert "Seq Scan on events" not in plan and "Seq Scan on reservations" not in plan, plan


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_who_meets_another_transition_under_a_stricter_level_runs_again(
    producers: tuple[Connection, Connection], level: IsolationLevel
) -> None:
    first, second = producers
    reservation = f"rsv_{level.name.replace('_', '')}"
    first.execute(HOLD, [reservation, "seat", False])
    first.commit()
    second.set_isolation_level(level)
    rows(second, "SELECT id FROM duehook.reservations LIMIT 1")
    first.execute(MOVE, ["released", reservation])
    first.commit()
    with pytest.raises(psycopg.errors.SerializationFailure):
        second.execute(MOVE, ["confirmed", reservation])
    second.rollback()
    with refused(second, "DH001", f"reservation {reservation} is released, it can't become confirmed"):
        second.execute(MOVE, ["confirmed", reservation])


@pytest.mark.parametrize("what", ["key", "id", "resource"])
def test_an_open_transaction_holds_up_its_keys_ids_and_resources_and_nothing_else(
    producers: tuple[Connection, Connection], db: Connection, what: str
) -> None:
    first, second = producers

    def write(connection: Connection, name: str) -> object:
        if what == "key":
            return connection.execute(POST, [f"open {name}"])
        if what == "id":
            return connection.execute(HOLD, [f"rsv_open{name}", "seat", False])
        return connection.execute(HOLD, [f"rsv_{connection.info.backend_pid}x{name}", f"open {name}", True])

    write(first, "one")
    second.execute("SET lock_timeout = '10s'")
    write(second, "another")
    with blocked(second, lambda: write(second, "one"), db) as answer:
        first.commit()
        with pytest.raises(psycopg.errors.UniqueViolation):
            answer.result(10)


def test_who_waits_no_longer_than_he_said_is_told_so(producers: tuple[Connection, Connection]) -> None:
    first, second = producers
    first.execute(HOLD, ["rsv_waited", "seat", False])
    first.commit()
    first.execute(MOVE, ["confirmed", "rsv_waited"])
    for name, sqlstate in (("lock_timeout", "55P03"), ("statement_timeout", "57014")):
        with refused(second, sqlstate):
            second.execute(sql.SQL("SET LOCAL {} = '20ms'").format(sql.Identifier(name)))
            second.execute(MOVE, ["released", "rsv_waited"])


def test_two_who_lock_in_different_orders_are_a_deadlock_and_one_of_them_goes_on(
    producers: tuple[Connection, Connection], db: Connection
) -> None:
    first, second = producers
    for name in ("rsv_left", "rsv_right"):
        first.execute(HOLD, [name, "seat", False])
    first.commit()
    first.execute(MOVE, ["confirmed", "rsv_left"])
    second.execute(MOVE, ["confirmed", "rsv_right"])
    with blocked(second, lambda: second.execute(MOVE, ["confirmed", "rsv_left"]), db) as answer:
        ended = []
        try:
            first.execute(MOVE, ["confirmed", "rsv_right"])
        except psycopg.errors.DeadlockDetected:
            ended.append("first")
            first.rollback()
        try:
            answer.result(10)
        except psycopg.errors.DeadlockDetected:
            ended.append("second")
        assert len(ended) == 1


def test_the_python_on_the_page_runs(
    followed: Followed, db: Connection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = blocks_of(PAGE, "python")
    monkeypatch.setenv("DATABASE_URL", followed.url)
    exec(compile(program.text, PAGE.name, "exec"), {})  # noqa: S102 - the page is ours
    assert capsys.readouterr().out == "paid\n"
    booked = rows(db, "SELECT reservation, confirmed FROM fleet.bookings WHERE reservation <> 'rsv_booking1'")
    assert [each["confirmed"] for each in booked] == [True]
    assert column(db, "SELECT key FROM duehook.events WHERE key = %s", [f"paid-{booked[0]['reservation']}"])


def test_postgresql_takes_the_sql_of_the_other_languages(producers: tuple[Connection, Connection]) -> None:
    (go,), (java,) = blocks_of(PAGE, "go"), blocks_of(PAGE, "java")
    joined = re.sub(r'"\s*\+ "', "", java.text)
    found = [*re.findall(r"`([^`]+)`", go.text), *re.findall(r'"((?:INSERT|UPDATE)[^"]+)"', joined)]
    assert len(found) == 4
    for number, statement in enumerate(found):
        pieces = statement.split("?")
        numbered = "".join(f"{piece}${place}" for place, piece in enumerate(pieces[:-1], 1)) + pieces[-1]
        producers[0].execute(f"PREPARE other_{number} AS {numbered}".encode())
