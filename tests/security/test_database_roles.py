"""What each program may do in the ledger: exactly this, by PostgreSQL's own account and by trying."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from app.ledger.logins import ROLES
from tests.conftest import Connect
from tests.logins import PASSWORD, as_program
from tests.plain import Connection, column, insert, refused, value
from tests.security import rights

# A right that a later migration adds fails here until somebody has thought about it. The rest is the owner's alone.
READS, USES = ["SELECT"], ["USAGE"]
SERVICE = "SELECT (single horizon max_event_bytes key_fingerprint scan_share broker_epoch max_age {}erasing)"
TOLD = "UPDATE (horizon max_event_bytes key_fingerprint {}max_age)"
PRESENCE = [
    "DELETE",
    "INSERT (id role host pid version clock_offset unready counted gauges)",
    "SELECT",
    "UPDATE (seen_at clock_offset unready counted gauges)",
]
OUTCOME = (
    "step round abandoned parked cancel_requested next_attempt_at age_from token claimed_at lease_until reason"
    " updated_at delivered_at"
)
RIGHTS = {
    "duehook_relay": {
        "schema": USES,
        "schema_version": READS,
        "service": [SERVICE.format(""), TOLD.format("broker_epoch ")],
        "outbox": ["SELECT", "UPDATE (look_at publications taken taken_until)"],
        "processes": PRESENCE,
    },
    "duehook_api": {
        "schema": USES,
        "schema_version": READS,
        "ids": USES,
        "service": [SERVICE.format("lock_salt "), TOLD.format("")],
        "api_keys": ["SELECT", "UPDATE (revoked_at)"],
        "sql_grants": ["DELETE", "SELECT"],
        "reservations": [
            "INSERT (tenant id resource expires_at exclusive data request)",
            "SELECT",
            "UPDATE (status)",
        ],
        "events": [
            "INSERT (seq tenant origin type key data request only_to not_to due_at)",
            "SELECT",
            "UPDATE (cancelled_at)",
        ],
        "deliveries": ["SELECT", f"UPDATE (status {OUTCOME})"],
        "attempts": READS,
        "dead_letters": READS,
        "endpoints": [
            "INSERT (tenant url description event_types headers signing rate_per_second max_in_flight retry_schedule)",
            "SELECT",
            "UPDATE (url description event_types headers signing status disabled_reason disabled_at flagged"
            " rate_per_second max_in_flight retry_schedule revision updated_at deleted_at)",
        ],
        "secrets": ["DELETE", "INSERT (endpoint sealed)", "SELECT", "UPDATE (expires_at)"],
        "subscriptions": READS,
        "paces": ["SELECT", "UPDATE (closed_until closed_at closed_why trips troubles failures failing_since)"],
        "seats": ["INSERT (delivery endpoint token)", "SELECT", "UPDATE (token)"],
        "outbox": ["SELECT", "UPDATE (due_at look_at publications taken)"],
        "jobs": ["INSERT (tenant kind parameters)", "SELECT", "UPDATE (status total result updated_at)"],
        "kept_answers": [
            "INSERT (request tenant body status answer)",
            "SELECT",
            "UPDATE (body status answer created_at)",
        ],
        "audit_log": ["INSERT (tenant actor action subject details)", "SELECT"],
        "processes": PRESENCE,
        "counted": READS,
        "repairs": READS,
    },
    "duehook_worker": {
        "schema": USES,
        "schema_version": READS,
        "ids": USES,
        "service": [SERVICE.format(""), TOLD.format("")],
        "api_keys": ["DELETE", "SELECT (seq tenant)"],
        "sql_grants": ["DELETE", "SELECT"],
        "reservations": ["DELETE", "SELECT", "UPDATE (status)"],
        "events": [
            "DELETE",
            "INSERT (tenant origin type key data not_to)",
            "SELECT",
            "UPDATE (fanned_out_at cancelled_at)",
        ],
        "deliveries": [
            "DELETE",
            "INSERT (event endpoint tenant next_attempt_at age_from)",
            "SELECT",
            f"UPDATE (status attempt {OUTCOME})",
        ],
        "attempts": [
            "DELETE",
            "INSERT (delivery number outcome status_code started_at ended_at address key_ids error excerpt location"
            " retry_after)",
            "SELECT",
            "UPDATE (excerpt location)",
        ],
        "dead_letters": READS,
        "endpoints": [
            "DELETE",
            "SELECT",
            "UPDATE (status disabled_reason disabled_at flagged revision updated_at deleted_at)",
        ],
        "secrets": READS,
        "subscriptions": READS,
        "paces": [
            "SELECT",
            "UPDATE (slot_at closed_until closed_at closed_why trips troubles failures failing_since)",
        ],
        "seats": ["DELETE", "INSERT (delivery endpoint token)", "SELECT", "UPDATE (token)"],
        "outbox": [
            "DELETE",
            "INSERT (ref kind tenant endpoint due_at look_at)",
            "SELECT",
            "UPDATE (kind tenant endpoint due_at look_at publications taken taken_until)",
        ],
        "jobs": [
            "DELETE",
            "SELECT",
            "UPDATE (status place done total result failures next_step_at updated_at)",
        ],
        "kept_answers": ["DELETE", "SELECT (request tenant created_at)", "UPDATE (created_at)"],
        "audit_log": ["INSERT (tenant actor action subject details)"],
        "audit_marks": ["SELECT", "UPDATE (mark walked_at)"],
        "repairs": ["INSERT (kind number last_at)", "SELECT", "UPDATE (number last_at)"],
        "poison_messages": [
            "INSERT (lane reason task error body size digest)",
            "SELECT (error digest seen)",
            "UPDATE (error seen last_at)",
        ],
        "processes": PRESENCE,
    },
    "duehook_producer": {
        "schema": USES,
        "ids": USES,
        "own_tenants": READS,
        "reservations": ["INSERT (tenant id resource expires_at exclusive data)", "SELECT", "UPDATE (status)"],
        "events": ["INSERT (tenant type key data due_at)", "SELECT"],
    },
}
MADE_WITH = ["next_id", "rfc3339", "event_head"]
CALLS = {
    "duehook_relay": ["now", "horizon", "max_age", "bucket", "crowds"],
    "duehook_api": [
        *["now", "horizon", "max_age", *MADE_WITH, "event_digest", "is_tenant", "patterns"],
        *["accept_events", "begin_once", "lock_of", "first_event_since"],
    ],
    "duehook_worker": [
        *["now", "horizon", "max_age", *MADE_WITH, "event_digest", "is_tenant", "patterns", "bucket", "crowds"],
        *["first_event_since", "erasing", "erase_event", "make_attempt_days", "prune_audit_log"],
    ],
    "duehook_producer": ["now", *MADE_WITH],
}
ERASED = "(tenant = ANY (( SELECT erasing() AS erasing)::text[]))"
DISABLED = "((type = 'endpoint.disabled'::text) AND starts_with(key, 'endpoint.disabled:'::text))"
OWN = "(tenant = ANY (ARRAY( SELECT own_tenants.tenant FROM own_tenants)))"
ROWS = {
    "duehook_api": {
        "api_keys ALL": "true",
        "sql_grants ALL": "true",
        "reservations SELECT": "true",
        "reservations INSERT": " -> true",
        "reservations UPDATE": "true",
        "events SELECT": "true",
        "events INSERT": " -> ((origin = 'producer'::text) OR ((type = 'ping'::text) AND (key IS NULL))"
        f" OR {DISABLED})",
        "events UPDATE": "true",
        "deliveries SELECT": "true",
        "deliveries UPDATE": "true -> (status = ANY (ARRAY['scheduled'::text, 'leased'::text, 'cancelled'::text]))",
    },
    "duehook_worker": {
        "api_keys ALL": ERASED,
        "sql_grants ALL": ERASED,
        "reservations SELECT": "true",
        "reservations UPDATE": "true",
        "reservations DELETE": ERASED,
        "events SELECT": "true",
        "events INSERT": f" -> ((origin = 'service'::text) AND {DISABLED[1:-1]})",
        "events UPDATE": "true",
        "events DELETE": ERASED,
        "deliveries ALL": "true",
    },
    "duehook_producer": {"reservations ALL": OWN, "events ALL": OWN},
}
DENIED = "42501"
NO_TABLE, NO_ROW = "permission denied", "new row violates row-level security policy"
# What whoever has broken into a program would try first. `{0}` is a delivery that waits.
FORBIDDEN = {
    "relay": [
        ("SELECT data FROM duehook.events", NO_TABLE),
        ("SELECT head FROM duehook.events", NO_TABLE),
        ("SELECT data FROM duehook.reservations", NO_TABLE),
        ("SELECT sealed FROM duehook.secrets", NO_TABLE),
        ("SELECT url FROM duehook.endpoints", NO_TABLE),
        ("SELECT hash FROM duehook.api_keys", NO_TABLE),
        ("SELECT answer FROM duehook.kept_answers", NO_TABLE),
        ("SELECT body FROM duehook.poison_messages", NO_TABLE),
        ("SELECT excerpt FROM duehook.attempts", NO_TABLE),
        ("SELECT FROM duehook.audit_log", NO_TABLE),
        ("SELECT lock_salt FROM duehook.service", NO_TABLE),
        ("UPDATE duehook.deliveries SET status = 'delivered'", NO_TABLE),
        ("DELETE FROM duehook.deliveries", NO_TABLE),
        ("DELETE FROM duehook.outbox", NO_TABLE),
        ("UPDATE duehook.outbox SET tenant = 'other'", NO_TABLE),
        (
            "INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at) VALUES (1, 'job', 'a', now(), now())",
            NO_TABLE,
        ),
        ("UPDATE duehook.service SET scan_share = 100", NO_TABLE),
        ("UPDATE duehook.service SET erasing = '{{acme}}'", NO_TABLE),
        ("SELECT duehook.next_id()", NO_TABLE),
        ("SELECT duehook.erase_event(1)", NO_TABLE),
        ("SELECT FROM duehook.counted", NO_TABLE),
    ],
    "api": [
        (
            "INSERT INTO duehook.attempts (delivery, number, outcome, started_at) VALUES (1, 1, 'delivered', now())",
            NO_TABLE,
        ),
        ("UPDATE duehook.attempts SET outcome = 'delivered'", NO_TABLE),
        ("DELETE FROM duehook.attempts", NO_TABLE),
        ("UPDATE duehook.deliveries SET status = 'delivered', delivered_at = now() WHERE id = {0}", NO_ROW),
        ("UPDATE duehook.deliveries SET status = 'dead', reason = 'gone' WHERE id = {0}", NO_ROW),
        ("UPDATE duehook.deliveries SET attempt = 2", NO_TABLE),
        ("UPDATE duehook.deliveries SET tenant = 'other'", NO_TABLE),
        ("INSERT INTO duehook.deliveries (event, endpoint, tenant) VALUES (1, 1, 'acme')", NO_TABLE),
        ("DELETE FROM duehook.deliveries", NO_TABLE),
        ("DELETE FROM duehook.events", NO_TABLE),
        ("UPDATE duehook.events SET data = '1'", NO_TABLE),
        (
            "INSERT INTO duehook.events (tenant, origin, type, data) VALUES ('a', 'service', 'job.completed', '1')",
            NO_ROW,
        ),
        (
            "INSERT INTO duehook.events (tenant, origin, type, key, data)"
            " VALUES ('default', 'service', 'endpoint.disabled', 'reservation.expired:rsv_1:v2', '1')",
            NO_ROW,
        ),
        (
            "INSERT INTO duehook.events (tenant, origin, type, key, data)"
            " VALUES ('default', 'service', 'ping', 'reservation.expired:rsv_1:v2', '1')",
            NO_ROW,
        ),
        ("UPDATE duehook.reservations SET expires_at = 'infinity'", NO_TABLE),
        ("DELETE FROM duehook.reservations", NO_TABLE),
        ("INSERT INTO duehook.api_keys (tenant, scope, hash) VALUES ('*', 'operator', sha256(''))", NO_TABLE),
        ("UPDATE duehook.api_keys SET scope = 'operator', tenant = '*'", NO_TABLE),
        ("INSERT INTO duehook.sql_grants VALUES ('duehook_producer', 'acme')", NO_TABLE),
        ("UPDATE duehook.audit_log SET actor = 'somebody else'", NO_TABLE),
        ("DELETE FROM duehook.audit_log", NO_TABLE),
        ("SELECT duehook.prune_audit_log('1 s', 1000)", NO_TABLE),
        ("SELECT duehook.erase_event(1)", NO_TABLE),
        ("DELETE FROM duehook.endpoints", NO_TABLE),
        ("UPDATE duehook.secrets SET sealed = ''", NO_TABLE),
        ("SELECT body FROM duehook.poison_messages", NO_TABLE),
    ],
    "worker": [
        ("SELECT hash FROM duehook.api_keys", NO_TABLE),
        ("SELECT scope FROM duehook.api_keys", NO_TABLE),
        ("INSERT INTO duehook.api_keys (tenant, scope, hash) VALUES ('*', 'operator', sha256(''))", NO_TABLE),
        ("UPDATE duehook.api_keys SET revoked_at = NULL", NO_TABLE),
        ("INSERT INTO duehook.sql_grants VALUES ('duehook_producer', 'acme')", NO_TABLE),
        ("UPDATE duehook.events SET data = '1'", NO_TABLE),
        ("UPDATE duehook.events SET type = 'order.paid'", NO_TABLE),
        ("INSERT INTO duehook.events (tenant, type, data) VALUES ('acme', 'order.paid', '1')", NO_ROW),
        (
            "INSERT INTO duehook.events (tenant, origin, type, data) VALUES ('a', 'service', 'job.completed', '1')",
            NO_ROW,
        ),
        (
            "INSERT INTO duehook.events (tenant, origin, type, key, data)"
            " VALUES ('default', 'service', 'endpoint.disabled', 'reservation.expired:rsv_1:v2', '1')",
            NO_ROW,
        ),
        ("INSERT INTO duehook.reservations (tenant, resource, expires_at) VALUES ('acme', 'seat', now())", NO_TABLE),
        ("UPDATE duehook.reservations SET expires_at = now()", NO_TABLE),
        ("UPDATE duehook.endpoints SET url = 'http://elsewhere/'", NO_TABLE),
        ("UPDATE duehook.endpoints SET tenant = 'other'", NO_TABLE),
        ("INSERT INTO duehook.secrets (endpoint, sealed) VALUES (1, '')", NO_TABLE),
        ("DELETE FROM duehook.secrets", NO_TABLE),
        ("UPDATE duehook.deliveries SET tenant = 'other'", NO_TABLE),
        ("UPDATE duehook.attempts SET outcome = 'delivered'", NO_TABLE),
        ("SELECT answer FROM duehook.kept_answers", NO_TABLE),
        ("SELECT FROM duehook.audit_log", NO_TABLE),
        ("DELETE FROM duehook.audit_log", NO_TABLE),
        ("INSERT INTO duehook.jobs (tenant, kind, parameters) VALUES ('acme', 'erase_tenant', '{{}}')", NO_TABLE),
        ("UPDATE duehook.service SET erasing = '{{acme}}'", NO_TABLE),
        ("SELECT lock_salt FROM duehook.service", NO_TABLE),
        ("SELECT body FROM duehook.poison_messages", NO_TABLE),
    ],
}
EVERYBODY = [
    "CREATE TABLE duehook.mine ()",
    "CREATE FUNCTION duehook.mine() RETURNS int RETURN 1",
    "CREATE OR REPLACE FUNCTION duehook.now() RETURNS timestamptz LANGUAGE sql RETURN timestamptz '2030-01-01Z'",
    "ALTER TABLE duehook.deliveries DISABLE TRIGGER ALL",
    "ALTER TABLE duehook.events DISABLE ROW LEVEL SECURITY",
    "DROP TRIGGER append_only ON duehook.audit_log",
    "TRUNCATE duehook.repairs",
    "CREATE TRIGGER mine AFTER INSERT ON duehook.events EXECUTE FUNCTION duehook.close_deleted()",
    "CREATE ROLE mine",
    "COPY duehook.service TO PROGRAM 'true'",
    "SET ROLE duehook",
]
LogIn = Callable[[str], Connection]


@pytest.fixture
def db(connect: Connect) -> Connection:
    """The ledger's owner."""
    return connect(autocommit=True)


@pytest.fixture
def log_in(database_url: str) -> Iterator[LogIn]:
    """Connects as a program does; a repeat gets the same connection."""
    opened: dict[str, Connection] = {}

    def connect(program: str) -> Connection:
        if program not in opened:
            opened[program] = psycopg.connect(as_program(database_url, program), autocommit=True)
        return opened[program]

    yield connect
    for connection in opened.values():
        connection.close()


def test_each_role_has_exactly_these_rights(db: Connection) -> None:
    assert rights.tables(db) == RIGHTS


def test_each_role_may_call_exactly_these_functions(db: Connection) -> None:
    found = rights.functions(db)
    assert {role: sorted(names) for role, names in found.items()} == {
        role: sorted(names) for role, names in CALLS.items()
    }


def test_row_level_security_lets_each_role_at_exactly_these_rows(db: Connection) -> None:
    found = {
        role: {what: " ".join(which.split()) if which.strip() == which else which for what, which in policies.items()}
        for role, policies in rights.policies(db).items()
    }
    assert found == ROWS
    secured: list[str] = column(
        db,
        """SELECT relname::text FROM pg_class WHERE relnamespace = 'duehook'::regnamespace AND relrowsecurity
            ORDER BY 1""",
    )
    assert secured == ["api_keys", "deliveries", "events", "reservations", "sql_grants"]


def test_a_role_of_a_program_owns_nothing_and_can_do_nothing_else(db: Connection, log_in: LogIn) -> None:
    for program, role in ROLES.items():
        log_in(program)
        for name, can_login in ((role, False), (f"{role}_login", True)):
            attributes = db.execute(
                """SELECT rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls
                     FROM pg_roles WHERE rolname = %s""",
                [name],
            ).fetchone()
            assert attributes == (can_login, False, False, False, False, False)
        memberships: list[str] = column(
            db,
            """SELECT r.rolname::text FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid
                 JOIN pg_roles l ON l.oid = m.member WHERE l.rolname = ANY (%s)""",
            [[role, f"{role}_login"]],
        )
        assert memberships == [role]
    owned = "SELECT count(*) FROM pg_shdepend WHERE deptype = 'o' AND refobjid = ANY (%s::regrole[])"
    assert value(db, owned, [list(ROLES.values())]) == 0


@pytest.mark.parametrize(
    ("program", "statement", "words"),
    [(program, *each) for program, those in FORBIDDEN.items() for each in those],
    ids=lambda each: each if each not in (NO_TABLE, NO_ROW) else "",
)
def test_a_program_is_refused_what_it_has_no_business_with(
    db: Connection, log_in: LogIn, program: str, statement: str, words: str
) -> None:
    insert(db, "endpoints", url="http://127.0.0.1:9/", event_types=["*"])
    insert(db, "events", type="a", data="{}")
    insert(db, "reservations", resource="seat", expires_at="2100-01-01Z")
    delivery = value(db, "SELECT id FROM duehook.deliveries")
    with refused(log_in(program), DENIED, words):
        log_in(program).execute(statement.format(delivery).encode())


@pytest.mark.parametrize("statement", EVERYBODY)
@pytest.mark.parametrize("program", ROLES)
def test_no_program_can_change_the_schema_or_become_somebody_else(log_in: LogIn, program: str, statement: str) -> None:
    with refused(log_in(program), DENIED):
        log_in(program).execute(statement.encode())


def test_a_producer_touches_neither_deliveries_nor_what_the_programs_have(db: Connection, database_url: str) -> None:
    db.execute("DROP ROLE IF EXISTS a_producer")
    db.execute(sql.SQL("CREATE ROLE a_producer LOGIN PASSWORD {} IN ROLE duehook_producer").format(PASSWORD))
    try:
        with psycopg.connect(database_url, user="a_producer", password=PASSWORD, autocommit=True) as producer:
            for table in {name for of in RIGHTS.values() for name in of} - RIGHTS["duehook_producer"].keys():
                with refused(producer, DENIED):
                    producer.execute(sql.SQL("SELECT FROM duehook.{}").format(sql.Identifier(table)))
            for role in ROLES.values():
                with refused(producer, DENIED):
                    producer.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    finally:
        db.execute("DROP ROLE a_producer")


def test_a_worker_deletes_of_a_tenant_only_while_that_is_being_erased(db: Connection, log_in: LogIn) -> None:
    for tenant in ("acme", "other"):
        insert(db, "events", tenant=tenant, type="a", data="{}")
        insert(db, "reservations", tenant=tenant, resource="seat", expires_at="2100-01-01Z")
        insert(db, "api_keys", tenant=tenant, scope="operator", hash=tenant.encode().ljust(32))
        insert(db, "sql_grants", tenant=tenant, role="duehook_producer")
    worker = log_in("worker")
    tables = ("events", "reservations", "api_keys", "sql_grants")
    delete = {table: sql.SQL("DELETE FROM duehook.{}").format(sql.Identifier(table)) for table in tables}
    assert {table: worker.execute(delete[table]).rowcount for table in tables} == dict.fromkeys(tables, 0)
    assert column(worker, "SELECT tenant FROM duehook.api_keys") == []
    insert(db, "jobs", tenant="acme", kind="erase_tenant", parameters="{}")
    assert {table: worker.execute(delete[table]).rowcount for table in tables} == dict.fromkeys(tables, 1)
    for table in tables:
        left = sql.SQL("SELECT tenant FROM duehook.{}").format(sql.Identifier(table))
        assert [tenant for (tenant,) in db.execute(left)] == ["other"]


def test_a_worker_sees_the_open_transactions_that_an_erasure_waits_for(
    connect: Connect, database_url: str, log_in: LogIn
) -> None:
    """Or it would take a tenant's row for the last one while somebody is about to commit another."""
    from app.ledger import erasures
    from app.ledger.database import connect_engine

    engine = connect_engine(as_program(database_url, "worker"), application_name="test")
    open_one = connect()
    open_one.execute("SELECT")
    with engine.begin() as connection:
        fence = erasures.fence(connection)
        assert len(fence.open) == 1
    with engine.begin() as connection:
        assert erasures.anything_left(connection, "acme", fence=fence)
    open_one.rollback()
    with engine.begin() as connection:
        assert not erasures.anything_left(connection, "acme", fence=fence)
    engine.dispose()


def test_a_worker_makes_the_days_of_attempts_that_only_their_owner_may(db: Connection, log_in: LogIn) -> None:
    days = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'duehook.attempts'::regclass"
    before = value(db, days)
    assert value(log_in("worker"), "SELECT duehook.make_attempt_days(9)") == 2
    assert value(db, days) == before + 2
    owners: list[bool] = column(
        db,
        """SELECT DISTINCT c.relowner = t.relowner FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             JOIN pg_class t ON t.oid = i.inhparent WHERE i.inhparent = 'duehook.attempts'::regclass""",
    )
    assert owners == [True]


def test_a_worker_prunes_the_audit_log_by_age_alone(db: Connection, log_in: LogIn) -> None:
    insert(db, "audit_log", actor="cli:me", action="key.created", at=value(db, "SELECT duehook.now() - interval '9 d'"))
    insert(db, "audit_log", actor="cli:me", action="key.created")
    prune = "SELECT duehook.prune_audit_log(%s, 1000)"
    assert column(log_in("worker"), prune, [timedelta(days=1)]) == [1]
    with refused(log_in("worker"), "DH004"):
        log_in("worker").execute(prune, [timedelta()])


def test_a_worker_erases_no_event_that_nobody_has_asked_to_be_erased(db: Connection, log_in: LogIn) -> None:
    worker = log_in("worker")
    event, other = (insert(db, "events", type="a", data="{}")["seq"] for _ in range(2))
    asked = "INSERT INTO duehook.jobs (tenant, kind, parameters, status) VALUES (%s, %s, %s, %s)"
    db.execute(asked, ["acme", "erase_event", f'{{"event": {event}}}', "completed"])
    db.execute(asked, ["acme", "redrive", f'{{"event": {event}}}', "queued"])
    db.execute(asked, ["rival", "erase_event", f'{{"event": {event}}}', "queued"])
    db.execute(asked, ["acme", "erase_event", f'{{"event": {other}}}', "queued"])
    with refused(worker, "DH003", "nobody has asked"):
        worker.execute("SELECT duehook.erase_event(%s)", [event])
    assert worker.execute("SELECT duehook.erase_event(%s)", [other]).fetchone() == (True,)


@pytest.mark.parametrize("numbers", ['{"a": "x"}', '{"a": null}', '{"a": {"b": 1}}', '{"a": 1e101}', "[]", "1"])
@pytest.mark.parametrize("column_", ["counted", "gauges"])
def test_no_program_writes_numbers_that_the_others_could_not_add_up(log_in: LogIn, column_: str, numbers: str) -> None:
    """All take away the rows of the dead, and what those had counted is added up: an error there would stop them."""
    relay = log_in("relay")
    with refused(relay, "23514", f"processes_{column_}_check"):
        relay.execute(
            f"""INSERT INTO duehook.processes (id, role, host, pid, version, clock_offset, {column_})
                VALUES (gen_random_uuid(), 'relay', 'here', 1, '1', '0', %s)""".encode(),
            [numbers],
        )


def test_a_revoked_key_stays_revoked_whoever_asks(db: Connection, log_in: LogIn) -> None:
    db.execute(
        """INSERT INTO duehook.api_keys (tenant, scope, hash, revoked_at)
           VALUES ('*', 'operator', sha256('a'), now()), ('*', 'operator', sha256('b'), NULL)"""
    )
    for asking in (log_in("api"), db):
        for at in ("NULL", "now() + interval '1 day'"):
            with refused(asking, "DH001", "stays revoked"):
                asking.execute(f"UPDATE duehook.api_keys SET revoked_at = {at} WHERE revoked_at IS NOT NULL".encode())
    revoked = "UPDATE duehook.api_keys SET revoked_at = coalesce(revoked_at, now()) RETURNING seq"
    assert log_in("api").execute(revoked.encode()).rowcount == 2
