"""What stays flat while the tables grow: the ledger's statements and its triggers go by an index."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Connection as Engaged
from sqlalchemy import Engine, event

from app.domain.states import DeliveryStatus, Outcome
from app.domain.wakeups import Kind
from app.ledger import (
    dead_letters,
    deliveries,
    endpoints,
    erasures,
    events,
    idempotency,
    jobs,
    listings,
    outbox,
    reconciliation,
    replays,
    reservations,
    shadow,
)
from app.ledger.database import connect_engine
from app.ledger.dead_letters import FIRST, LAST, Filter
from app.ledger.idempotency import Kept, Request
from app.ledger.outbox import Buckets, Room
from app.ledger.reconciliation import Terms, Walk
from app.ledger.walking import TOP
from app.local.postgres import Postgres
from tests.plain import Connection, column, rows, value

BIG = 10_000
TOKEN = UUID(int=7)
TABLES = ("reservations", "events", "deliveries", "outbox", "endpoints", "jobs", "kept_answers")
ANALYZE: LiteralString = "ANALYZE duehook.dead_letters, duehook.audit_log, " + ", ".join(
    f"duehook.{name}" for name in TABLES
)
NOTHING = timedelta()
TYPES = {timedelta: "interval", UUID: "uuid"}  # as psycopg declares them; the rest PostgreSQL infers
pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Grown:
    """A ledger with tens of thousands of rows; `scanned` are the tables read whole by a session with older plans."""

    url: str
    scanned: set[str]


@pytest.fixture(scope="module")
def grown(postgres: Postgres, template: str) -> Iterator[Grown]:
    name = sql.Identifier("duehook_grown")
    with psycopg.connect(postgres.url, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, sql.Identifier(template)))
        url = postgres.url_of("duehook_grown")
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as old:
            old.execute("INSERT INTO duehook.endpoints (tenant, url, event_types) VALUES ('acme', 'http://x/', '{*}')")
            live(old, 0)
            old.execute(ANALYZE)  # of so few rows that reading all of them looks cheap
            for number in range(1, 8):
                live(old, number)
            with psycopg.connect(url, autocommit=True) as another:
                grow(another)
                before = sequential_scans(old)
                live(old, 8)
                scanned = {name for name, count in sequential_scans(old).items() if count != before[name]}
                another.execute(ANALYZE)
            yield Grown(url, scanned)
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def grow(connection: Connection) -> None:
    numbers = f"FROM generate_series(1, {BIG}) n"
    for statement in (
        f"""INSERT INTO duehook.kept_answers (request, tenant, body, status, answer, created_at)
            SELECT sha256(n::text::bytea), 'acme', sha256(''), 200, '', now() - n * interval '1 min' {numbers}""",
        f"INSERT INTO duehook.endpoints (tenant, url, event_types)"
        f" SELECT 'tenant' || n, 'http://x/', '{{*}}' {numbers}",
        f"""INSERT INTO duehook.reservations (tenant, resource, expires_at)
            SELECT 'acme', 'seat ' || n, now() + n * interval '1 s' {numbers}""",
        f"INSERT INTO duehook.events (tenant, type, key, data) SELECT 'acme', 'a', 'key ' || n, '1' {numbers}",
        f"""INSERT INTO duehook.events (tenant, type, data, due_at)
            SELECT 'acme', 'a', '1', now() + n * interval '1 h' {numbers}""",
        f"INSERT INTO duehook.jobs (tenant, kind, parameters) SELECT 'tenant' || n, 'redrive', '{{}}' {numbers}",
        f"""INSERT INTO duehook.audit_log (tenant, actor, action, subject)
            SELECT 'tenant' || n, 'key_1', 'endpoint.changed', 'end_' || n {numbers}""",
        """INSERT INTO duehook.dead_letters (delivery, tenant, endpoint, reason)
           SELECT id, tenant, endpoint, 'gone' FROM duehook.deliveries""",
    ):
        connection.execute(statement.encode())


def live(connection: Connection, number: int) -> None:
    """One of everything that a client's SQL makes the triggers do."""
    key = f"live {number}"
    hold = """INSERT INTO duehook.reservations (tenant, resource, expires_at, exclusive)
              VALUES ('acme', %s, now() + %s, true) RETURNING seq"""
    value(connection, hold, [key, NOTHING])
    held = value(connection, hold, [key, timedelta(hours=1)])  # and expires the first
    for status in ("confirmed", "confirmed", "released"):
        connection.execute("UPDATE duehook.reservations SET status = %s WHERE seq = %s", [status, held])
    connection.execute("DELETE FROM duehook.reservations WHERE seq = %s", [held])
    post = """INSERT INTO duehook.events (tenant, type, key, data, due_at) VALUES ('acme', 'order.placed', %s, '1', %s)
              ON CONFLICT DO NOTHING RETURNING seq"""
    at_once = value(connection, post, [key, "2026-01-01Z"])
    assert column(connection, post, [key, "2026-01-01Z"]) == []
    later = [value(connection, post, [None, datetime.now(UTC) + timedelta(days=1)]) for _ in range(2)]
    connection.execute("UPDATE duehook.events SET fanned_out_at = now() WHERE seq = %s", [later[0]])
    connection.execute("UPDATE duehook.events SET cancelled_at = now() WHERE seq = %s", [later[1]])
    ours = "SELECT min(seq) FROM duehook.endpoints WHERE tenant = 'acme' AND deleted_at IS NULL"
    of = f" WHERE event = %s AND endpoint = ({ours})"
    for change in (
        "status = 'leased', attempt = attempt + 1, token = %s, claimed_at = now(), lease_until = now()",
        "status = 'dead', token = NULLIF(%s, token), claimed_at = NULL, lease_until = NULL, reason = 'gone'",
        "status = 'scheduled', token = NULLIF(%s, %s), round = round + 1, step = 0, reason = NULL",
    ):
        parameters = [TOKEN] * change.count("%s")
        changed = connection.execute(f"UPDATE duehook.deliveries SET {change}{of}".encode(), [*parameters, at_once])
        assert changed.rowcount == 1
    connection.execute(f"DELETE FROM duehook.deliveries{of}".encode(), [at_once])
    value(connection, "SELECT first FROM duehook.begin_once(sha256(%s), '1 day')", [key.encode()])
    job = value(
        connection, "INSERT INTO duehook.jobs (tenant, kind, parameters) VALUES ('acme', 'x', '{}') RETURNING seq"
    )
    for status in ("running", "failed"):
        connection.execute("UPDATE duehook.jobs SET status = %s WHERE seq = %s", [status, job])
    for table, its in (("deliveries", "event"), ("events", "seq")):
        connection.execute(f"DELETE FROM duehook.{table} WHERE {its} = ANY (%s)".encode(), [[at_once, *later]])


def sequential_scans(connection: Connection) -> dict[str, int]:
    value(connection, "SELECT pg_stat_force_next_flush()")
    counted = rows(
        connection, "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE relname = ANY (%s)", [list(TABLES)]
    )
    return {each["relname"]: each["seq_scan"] for each in counted}


def test_triggers_that_were_planned_for_a_handful_of_rows_read_no_big_table(grown: Grown) -> None:
    assert grown.scanned == set()


def ids(engine: Engaged, query: str) -> list[int]:
    return list(engine.exec_driver_sql(query).scalars())


def some_seqs(connection: Engaged, table: str, condition: str = "true") -> list[int]:
    key = "id" if table == "deliveries" else "seq"
    return ids(connection, f"SELECT {key} FROM duehook.{table} WHERE {condition} ORDER BY {key} DESC LIMIT 100")


def claim(connection: Engaged) -> list[int]:
    found = some_seqs(connection, "deliveries", "status = 'scheduled' AND next_attempt_at <= now()")
    day = timedelta(days=1)
    claims, _, _ = deliveries.claim(
        connection, found, token=TOKEN, lease=day, max_age=day, room=100, room_each=100, room_of={}, allowed={}
    )
    assert len(claims) == 100
    return found


def record(connection: Engaged, token: UUID = TOKEN, recorded: int = 100) -> None:
    now = datetime.now(UTC)
    endings = [
        deliveries.Ending(each, token, DeliveryStatus.DELIVERED, Outcome.DELIVERED, now, now)
        for each in claim(connection)
    ]
    assert len(deliveries.record(connection, endings, max_age=timedelta(days=5))) == recorded


def audit(connection: Engaged, which: Walk) -> None:
    assert reconciliation.look(connection, which, TOP, 5000, Terms()).suspects == []


def shadowed(connection: Engaged, kind: Kind) -> None:
    shadow.due(connection, kind, TOP, 5000, timedelta(minutes=15))


def window(connection: Engaged) -> replays.Window:
    now = datetime.now(UTC)
    return replays.window(connection, "acme", now - timedelta(days=1), now)


STATEMENTS: dict[str, tuple[Callable[[Engaged], object], set[str]]] = {
    "reservations.expire": (
        lambda c: reservations.expire(c, some_seqs(c, "reservations", "status = 'held'")),
        {"reservations_seq_key"},
    ),
    "deliveries.claim": (claim, {"deliveries_pkey", "endpoints_pkey"}),
    "deliveries.record": (record, {"deliveries_pkey"}),
    "deliveries.still_leased": (lambda c: record(c, UUID(int=8), 0), {"deliveries_pkey"}),
    "deliveries.renew": (
        lambda c: deliveries.renew(c, found := claim(c), [TOKEN] * len(found), NOTHING),
        {"deliveries_pkey"},
    ),
    "deliveries.give_back": (
        lambda c: deliveries.give_back(c, claim(c), token=TOKEN, after=NOTHING),
        {"deliveries_pkey"},
    ),
    "deliveries.cancel_of_event": (
        lambda c: deliveries.cancel_of_event(c, some_seqs(c, "events", "key IS NOT NULL")[0]),
        {"deliveries_event_endpoint_key", "deliveries_pkey"},
    ),
    "outbox.take": (
        lambda c: outbox.take(c, TOKEN, {Kind.DELIVERY: Room(100), Kind.RESERVATION: Room(100), Kind.EVENT: Room(100)}),
        {"outbox_look", "outbox_pkey"},
    ),
    "outbox.take_fairly": (
        lambda c: outbox.take_fairly(
            c, TOKEN, Kind.DELIVERY, dict.fromkeys(outbox.crowds(c, Kind.DELIVERY, ("", 0), 10), 50), fresh=NOTHING
        ),
        {"outbox_fair", "outbox_pkey"},
    ),
    "outbox.look_at_published": (
        lambda c: outbox.look_at_published(c, list(Kind), Buckets(first=10), timedelta(minutes=1)),
        {"outbox_look", "outbox_pkey"},
    ),
    "outbox.move": (
        lambda c: outbox.move(c, TOKEN, some_seqs(c, "deliveries"), timedelta(minutes=1)),
        {"outbox_pkey"},
    ),
    "events.fan_out": (
        lambda c: events.fan_out(c, some_seqs(c, "events", "fanned_out_at IS NULL")),
        {"events_pkey"},
    ),
    "audit.walk_reservation": (lambda c: audit(c, Walk.RESERVATION), {"reservations_held", "outbox_pkey"}),
    "audit.walk_event": (lambda c: audit(c, Walk.EVENT), {"events_waiting", "outbox_pkey"}),
    "audit.walk_delivery": (lambda c: audit(c, Walk.DELIVERY), {"deliveries_pkey", "outbox_pkey"}),
    "audit.walk_outbox": (lambda c: audit(c, Walk.OUTBOX), {"outbox_pkey"}),
    "audit.walk_fan_out": (lambda c: audit(c, Walk.FAN_OUT), {"events_pkey", "deliveries_event_endpoint_key"}),
    "shadow.due_reservation": (lambda c: shadowed(c, Kind.RESERVATION), {"reservations_held", "outbox_pkey"}),
    "shadow.due_event": (lambda c: shadowed(c, Kind.EVENT), {"events_waiting", "outbox_pkey"}),
    "shadow.due_delivery": (lambda c: shadowed(c, Kind.DELIVERY), {"deliveries_pkey", "outbox_pkey"}),
    "shadow.needless": (lambda c: shadow.needless(c, TOP, 5000), {"outbox_pkey"}),
    "audit.walk_job": (lambda c: audit(c, Walk.JOB), {"jobs_open", "outbox_pkey"}),
    "shadow.due_job": (lambda c: shadowed(c, Kind.JOB), {"jobs_open", "outbox_pkey"}),
    "jobs.lock": (lambda c: jobs.lock(c, some_seqs(c, "jobs")[0]), {"jobs_open"}),
    "jobs.newest": (lambda c: listings.jobs(c, "acme", limit=50), {"jobs_newest"}),
    "dead_letters.choose": (
        lambda c: dead_letters.choose(c, "acme", Filter("gone"), after=FIRST, until=LAST.died_at, most=200),
        {"dead_letters_newest", "deliveries_pkey"},
    ),
    "dead_letters.count": (
        lambda c: dead_letters.count(c, "acme", Filter("gone"), after=FIRST, until=LAST.died_at, most=5000),
        {"dead_letters_newest"},
    ),
    "dead_letters.newest": (
        lambda c: dead_letters.newest(c, "acme", Filter("gone"), limit=50),
        {"dead_letters_newest"},
    ),
    "dead_letters.still_dead": (
        lambda c: dead_letters.still_dead(c, some_seqs(c, "deliveries"), LAST.died_at),
        {"dead_letters_pkey"},
    ),
    "replays.choose": (
        lambda c: replays.choose(c, window(c), some_seqs(c, "endpoints")[0], [DeliveryStatus.DEAD], most=200),
        {"deliveries_event_endpoint_key"},  # and of subscriptions either index: an endpoint has few patterns
    ),
    "replays.count": (lambda c: replays.count(c, window(c), most=5000), set()),
    "replays.deliveries": (
        lambda c: replays.deliveries(c, some_seqs(c, "endpoints")[0], some_seqs(c, "events")),
        {"deliveries_event_endpoint_key"},
    ),
    "idempotency.keep": (
        lambda c: idempotency.keep(c, Request(b"1" * 32, "acme", b"b" * 32), Kept(200, b"{}")),
        set(),
    ),
    "idempotency.prune": (
        lambda c: idempotency.prune(c, most=100),
        {"kept_answers_oldest", "kept_answers_pkey"},
    ),
    "endpoints.count": (lambda c: endpoints.count(c, "acme", most=100), {"endpoints_live"}),
    "events.lock_all": (lambda c: events.lock_all(c, "acme", some_seqs(c, "events")), {"events_pkey"}),
    "events.bodies": (lambda c: events.bodies(c, some_seqs(c, "events")), {"events_pkey"}),
    "erasures.next_events": (lambda c: erasures.next_events(c, "acme", first=0, most=200), set()),
    "erasures.next_deliveries": (
        lambda c: erasures.next_deliveries(c, some_seqs(c, "events"), after=(0, 0), most=200),
        {"deliveries_event_endpoint_key", "deliveries_pkey"},
    ),
    "erasures.events": (
        lambda c: erasures.events(c, some_seqs(c, "events")),
        {"events_pkey", "deliveries_event_endpoint_key"},
    ),
    "erasures.reservations": (
        lambda c: erasures.rows(c, "reservations", "acme", most=200),
        {"reservations_seq_key"},
    ),
    "erasures.jobs": (lambda c: erasures.rows(c, "jobs", "acme", most=200), {"jobs_newest", "jobs_pkey"}),
    "erasures.answers": (lambda c: erasures.rows(c, "answers", "acme", most=200), {"kept_answers_of_tenant"}),
    "erasures.live_endpoints": (lambda c: erasures.close_endpoints(c, "acme", most=200), {"endpoints_live"}),
    "erasures.deleted_endpoints": (lambda c: erasures.endpoints(c, "nobody", most=200), {"endpoints_deleted"}),
    "erasures.rest": (lambda c: erasures.anything_left(c, "acme", fence=erasures.fence(c)), set()),
    "erasures.running": (lambda c: erasures.start(c, "acme", {}) and erasures.start(c, "acme", {}), {"jobs_erasing"}),
    "audit_log.newest": (
        lambda c: listings.audit(c, "tenant1", action=None, subject="end_1", limit=50),
        {"audit_newest"},
    ),
    "audit_log_of_all.newest": (
        lambda c: listings.audit(c, None, action=None, subject="end_1", limit=50),
        {"audit_log_pkey"},
    ),
    "events_of_key.newest": (lambda c: listings.events(c, "acme", key="key 1", limit=50), {"events_key"}),
    "events.by_key": (lambda c: events.by_key(c, "acme", ["key 1", "key 2"]), {"events_key"}),
}


@pytest.fixture(scope="module")
def engine(grown: Grown) -> Iterator[Engine]:
    engine = connect_engine(grown.url, application_name="plans", pool_size=1)
    yield engine
    engine.dispose()


def sent_by(engine: Engine, name: str, work: Callable[[Engaged], object]) -> tuple[str, dict[str, Any]]:
    """The statement of this name as `work` sends it, with its parameters; what it did is undone."""
    sent: list[tuple[str, dict[str, Any]]] = []

    def listen(_c: Any, _cursor: Any, statement: str, parameters: dict[str, Any], *_rest: Any) -> None:
        if statement.startswith(f"/* {name} */"):
            sent.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", listen)
    try:
        with engine.connect() as connection:
            work(connection)
            connection.rollback()
    finally:
        event.remove(engine, "before_cursor_execute", listen)
    assert len(sent) == 1, f"{name} was sent {len(sent)} times"
    return sent[0]


def plan_of(
    engine: Engine, statement: str, parameters: dict[str, Any], settings: dict[str, str]
) -> list[dict[str, Any]]:
    """All nodes of the plan of a prepared statement."""
    names = list(parameters)
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", statement).replace("%%", "%")
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        for setting, to in settings.items():
            driver.execute("SELECT set_config(%s, %s, true)", [setting, to])
        types = ", ".join(TYPES.get(type(each), "unknown") for each in parameters.values())
        driver.execute(f"PREPARE planned ({types}) AS {numbered}".encode())
        places = ", ".join(["%s"] * len(names))
        cursor = psycopg.ClientCursor(driver)
        cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE planned ({places})".encode(), list(parameters.values()))
        ((found,),) = cursor.fetchall()
        connection.rollback()
        driver.execute("DEALLOCATE planned")
        connection.rollback()
    return list(nodes(found[0]["Plan"]))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@pytest.mark.parametrize(
    "settings",
    [
        {"plan_cache_mode": "force_custom_plan"},
        {"plan_cache_mode": "force_generic_plan"},
        {"plan_cache_mode": "force_custom_plan", "enable_seqscan": "on"},
    ],
)
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_goes_by_its_index_and_reads_no_big_table(
    engine: Engine, name: str, settings: dict[str, str]
) -> None:
    work, indexes = STATEMENTS[name]
    plan = plan_of(engine, *sent_by(engine, name, work), settings)
    assert [each["Relation Name"] for each in plan if each["Node Type"] == "Seq Scan"] == []
    assert indexes <= {each["Index Name"] for each in plan if "Index Name" in each}
