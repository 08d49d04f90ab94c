"""Role duehook_producer may do what section 5 of the contract says, and nothing else."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from tests.clock import Clock
from tests.conftest import Connect
from tests.invariants import assert_invariants
from tests.plain import Connection, blocked, column, columns_of, insert, refused, row, rows, value

HOUR = timedelta(hours=1)
DENIED, GENERATED = "42501", "428C9"
WRITABLE = {
    "reservations": {"tenant", "id", "resource", "expires_at", "exclusive", "data"},
    "events": {"tenant", "type", "key", "data", "due_at"},
}
READABLE = {"reservations", "events", "own_tenants"}
CALLABLE = {"now", "next_id", "rfc3339", "event_head"}
LogIn = Callable[..., Connection]


@pytest.fixture(autouse=True)
def audited(database_url: str) -> Iterator[None]:
    yield
    assert_invariants(database_url)


@pytest.fixture
def db(connect: Connect, clock: Clock) -> Connection:
    """The ledger's owner."""
    return connect(autocommit=True)


@pytest.fixture
def log_in(database_url: str, db: Connection) -> Iterator[LogIn]:
    """Makes a login role that is a producer for these tenants, and connects as it."""
    with ExitStack() as undo:

        def make(*tenants: str, member_of: LiteralString | str = "duehook_producer", **options: Any) -> Connection:
            name, password = f"producer_{secrets.token_hex(4)}", secrets.token_hex(16)
            role = sql.Identifier(name)
            db.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
            undo.callback(db.execute, sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(role))
            db.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(member_of), role))
            for tenant in tenants:
                insert(db, "sql_grants", role=name, tenant=tenant)
            connection = psycopg.connect(database_url, user=name, password=password, autocommit=True, **options)
            undo.callback(connection.close)
            undo.callback(db.execute, "SELECT pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])
            return connection

        yield make


@pytest.fixture
def producer(log_in: LogIn) -> Connection:
    """Logged in for tenant acme."""
    return log_in("acme")


def name_of(connection: Connection) -> str:
    return str(value(connection, "SELECT current_user::text"))


def test_a_producer_holds_confirms_and_releases_with_plain_sql(
    db: Connection, producer: Connection, clock: Clock
) -> None:
    held = rows(
        producer,
        """INSERT INTO duehook.reservations (tenant, resource, expires_at, data)
           VALUES ('acme', 'seat', '2030-01-01T13:00:00Z', '{}'), ('acme', 'seat', '2030-01-01T14:00:00Z', NULL)
           RETURNING *""",
    )
    assert [each["status"] for each in held] == ["held", "held"]
    for version, status in ((2, "confirmed"), (3, "released")):
        moved = producer.execute(
            """UPDATE duehook.reservations SET status = %s WHERE tenant = 'acme' AND id = %s
               RETURNING status, version""",
            [status, held[0]["id"]],
        )
        assert moved.fetchall() == [(status, version)]
    clock.advance(hours=3)
    with refused(producer, "DH002", f"{held[1]['id']} expired at"):
        producer.execute("UPDATE duehook.reservations SET status = 'confirmed' WHERE id = %s", [held[1]["id"]])
    assert row(db, "reservations", held[1]["seq"])["status"] == "held", "the expiry stays for the workers"


def test_a_producer_chooses_an_id_and_takes_an_exclusive_resource_over_from_an_overdue_holder(
    db: Connection, producer: Connection, clock: Clock
) -> None:
    hold = """INSERT INTO duehook.reservations (tenant, id, resource, expires_at, exclusive)
              VALUES ('acme', %s, 'seat', %s, true)"""
    producer.execute(hold, ["rsv_1", clock.now + HOUR])
    with refused(producer, "23505", "reservations_exclusive"):
        producer.execute(hold, ["rsv_2", clock.now + HOUR])
    clock.advance(hours=1)
    producer.execute(hold, ["rsv_2", clock.now + HOUR])
    assert column(db, "SELECT status FROM duehook.reservations ORDER BY id") == ["expired", "held"]


def test_what_a_producer_writes_becomes_deliveries_and_outbox_rows_that_it_never_sees(
    db: Connection, producer: Connection, clock: Clock
) -> None:
    insert(db, "endpoints", url="http://127.0.0.1:9/", event_types=["*"])
    producer.execute("INSERT INTO duehook.events (tenant, type, key, data) VALUES ('acme', 'order.placed', 'one', '1')")
    producer.execute(
        "INSERT INTO duehook.events (tenant, type, data, due_at) VALUES ('acme', 'order.due', '1', '2031-01-01Z')"
    )
    producer.execute(
        """INSERT INTO duehook.reservations (tenant, id, resource, expires_at)
           VALUES ('acme', 'rsv_1', 'seat', '2031-01-01Z')"""
    )
    producer.execute("UPDATE duehook.reservations SET status = 'confirmed'")
    types = "SELECT type FROM duehook.events ORDER BY seq"
    assert column(producer, types) == ["order.placed", "order.due", "reservation.confirmed"]
    assert column(
        db, "SELECT e.type FROM duehook.deliveries d JOIN duehook.events e ON e.seq = event ORDER BY e.seq"
    ) == [
        "order.placed",
        "reservation.confirmed",
    ]
    assert column(db, "SELECT kind FROM duehook.outbox ORDER BY kind") == ["delivery", "delivery", "event"]


@pytest.mark.parametrize(
    "conflict", ["ON CONFLICT DO NOTHING", "ON CONFLICT (tenant, origin, key) WHERE key IS NOT NULL DO NOTHING"]
)
def test_a_producer_repeats_a_key_without_an_error(producer: Connection, clock: Clock, conflict: LiteralString) -> None:
    post = "INSERT INTO duehook.events (tenant, type, key, data) VALUES ('acme', 'order.placed', 'one', %s) "
    assert len(rows(producer, post + conflict + " RETURNING id", ["1"])) == 1
    assert rows(producer, post + conflict + " RETURNING id", ["2"]) == []
    with refused(producer, "23505", "events_key"):
        producer.execute(post, ["3"])


def test_a_producer_copies_into_a_temporary_table_and_inserts_from_it(producer: Connection, clock: Clock) -> None:
    producer.execute("CREATE TEMP TABLE arriving (name text, data json)")
    with producer.cursor().copy("COPY arriving FROM STDIN") as copy:
        for number in range(200):
            copy.write_row([f"seat {number}", f'{{"n": {number}}}'])
    reservations = producer.execute(
        """INSERT INTO duehook.reservations (tenant, resource, expires_at, data)
           SELECT 'acme', name, '2031-01-01Z', data FROM arriving"""
    )
    events = producer.execute(
        "INSERT INTO duehook.events (tenant, type, key, data) SELECT 'acme', 'seat.made', name, data FROM arriving"
    )
    assert (reservations.rowcount, events.rowcount) == (200, 200)


def test_a_producer_gives_a_new_row_no_more_columns_than_the_contract_names(
    db: Connection, producer: Connection, clock: Clock
) -> None:
    values: dict[str, dict[str, Any]] = {
        "reservations": {"resource": "seat", "expires_at": clock.now + HOUR},
        "events": {"type": "order.placed", "data": "1"},
    }
    for table, columns in values.items():
        insert(producer, table, **columns)
        for name in set(columns_of(db, table)) - WRITABLE[table]:
            with refused(producer, GENERATED if name in ("id", "head") else DENIED):
                insert(producer, table, **columns, **{name: None})


def test_a_producer_changes_nothing_but_the_status_of_a_reservation(
    db: Connection, producer: Connection, clock: Clock
) -> None:
    insert(db, "reservations", resource="seat", expires_at=clock.now + HOUR)
    insert(db, "events", type="order.placed", data="1", due_at=clock.now + HOUR)
    for table in WRITABLE:
        for name in set(columns_of(db, table)) - ({"status"} if table == "reservations" else set()):
            with refused(producer, GENERATED if table == "events" and name in ("id", "head") else DENIED):
                producer.execute(
                    sql.SQL("UPDATE duehook.{} SET {} = NULL").format(sql.Identifier(table), sql.Identifier(name))
                )
        for statement in ("DELETE FROM duehook.{}", "TRUNCATE duehook.{}", "LOCK duehook.{} IN ROW SHARE MODE"):
            with refused(producer, DENIED):
                producer.execute(sql.SQL(statement).format(sql.Identifier(table)))
    for strength in ("UPDATE", "KEY SHARE"):
        with refused(producer, DENIED):
            producer.execute(sql.SQL("SELECT FROM duehook.events FOR {}").format(sql.SQL(strength)))


def test_the_privileges_of_the_role_are_exactly_these(db: Connection) -> None:
    """By PostgreSQL's own account, with what PUBLIC may: a table that a later migration forgets to close fails here."""
    privileges = rows(
        db,
        """SELECT c.relname::text AS name, p AS privilege,
                  has_table_privilege('duehook_producer', c.oid, p) AS whole,
                  ARRAY(SELECT attname::text FROM pg_attribute a
                         WHERE a.attrelid = c.oid AND attnum > 0 AND p IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES')
                           AND has_column_privilege('duehook_producer', c.oid, attnum, p)) AS columns
             FROM pg_class c, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) p
            WHERE c.relnamespace = 'duehook'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')""",
    )
    assert {each["name"] for each in privileges if each["whole"] and each["privilege"] == "SELECT"} == READABLE
    assert [each for each in privileges if each["whole"] and each["privilege"] != "SELECT"] == []
    some = {
        (each["name"], each["privilege"]): set(each["columns"])
        for each in privileges
        if each["columns"] and not each["whole"]
    }
    assert some == {
        ("reservations", "INSERT"): WRITABLE["reservations"],
        ("reservations", "UPDATE"): {"status"},
        ("events", "INSERT"): WRITABLE["events"],
    }


def test_nobody_but_the_owner_may_call_a_function_that_producers_do_not_need(db: Connection) -> None:
    may = """SELECT DISTINCT proname::text FROM pg_proc
              WHERE pronamespace = 'duehook'::regnamespace AND has_function_privilege(%s, oid, 'EXECUTE')"""
    assert set(column(db, may, ["duehook_producer"])) == CALLABLE
    everybody = column(
        db,
        """SELECT proname::text FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))
            WHERE pronamespace = 'duehook'::regnamespace AND grantee = 0""",
    )
    assert everybody == []


def test_a_producer_can_not_borrow_the_owners_rights_by_hanging_our_triggers_on_its_own_table(
    db: Connection, producer: Connection, clock: Clock
) -> None:
    """They run with the rights of the ledger's owner, and would write service events for any tenant."""
    producer.execute("CREATE TEMP TABLE mine (seq bigint, tenant text)")
    triggers = column(
        db,
        """SELECT 'duehook.' || proname FROM pg_proc
            WHERE pronamespace = 'duehook'::regnamespace AND prorettype = 'trigger'::regtype""",
    )
    assert len(triggers) > 8
    for function in triggers:
        with refused(producer, DENIED, "permission denied for function"):
            producer.execute(
                sql.SQL("CREATE TRIGGER borrowed AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION {}()").format(
                    sql.SQL(function)
                )
            )


def test_a_producer_makes_nothing_in_our_schema_and_moves_no_sequence(producer: Connection) -> None:
    for statement in ("CREATE TABLE duehook.mine ()", "SELECT setval('duehook.ids', 1)", "SELECT * FROM duehook.ids"):
        with refused(producer, DENIED):
            producer.execute(statement)


def two_tenants(db: Connection, clock: Clock) -> None:
    """The same things for acme and for another tenant, due in an hour."""
    for tenant in ("acme", "other"):
        insert(db, "endpoints", tenant=tenant, url="http://127.0.0.1:9/", event_types=["*"])
        insert(
            db, "reservations", tenant=tenant, id="rsv_1", resource="seat", expires_at=clock.now + HOUR, exclusive=True
        )
        insert(db, "events", tenant=tenant, type="order.placed", key="one", data="1")


def test_a_producer_sees_and_changes_the_rows_of_its_tenants_only(
    db: Connection, producer: Connection, clock: Clock
) -> None:
    two_tenants(db, clock)
    assert column(producer, "SELECT tenant FROM duehook.reservations") == ["acme"]
    assert column(producer, "SELECT tenant FROM duehook.events") == ["acme"]
    anothers = "UPDATE duehook.reservations SET status = 'released' WHERE tenant = 'other'"
    assert producer.execute(anothers).rowcount == 0
    assert column(producer, "UPDATE duehook.reservations SET status = 'released' RETURNING tenant") == ["acme"]
    assert column(db, "SELECT status FROM duehook.reservations ORDER BY tenant") == ["released", "held"]


@pytest.mark.parametrize("conflict", ["", "ON CONFLICT DO NOTHING"])
def test_a_producer_writes_for_no_other_tenant_and_learns_nothing_from_trying(
    db: Connection, producer: Connection, clock: Clock, conflict: LiteralString
) -> None:
    two_tenants(db, clock)
    post = "INSERT INTO duehook.events (tenant, type, key, data) VALUES ('other', 'order.placed', %s, '1') "
    hold = """INSERT INTO duehook.reservations (tenant, id, resource, expires_at, exclusive)
              VALUES ('other', %s, 'seat', '2031-01-01Z', true) """
    clock.advance(hours=1)
    for statement, parameter in ((post, "one"), (post, "new"), (hold, "rsv_1"), (hold, "rsv_new")):
        with refused(producer, DENIED, "new row violates row-level security policy"):
            producer.execute(statement + conflict, [parameter])
    assert column(db, "SELECT status FROM duehook.reservations") == ["held", "held"], "no holder was expired by it"


def test_an_upsert_reaches_no_other_tenants_row(db: Connection, producer: Connection, clock: Clock) -> None:
    two_tenants(db, clock)
    upsert = """INSERT INTO duehook.reservations (tenant, id, resource, expires_at)
                VALUES (%s, 'rsv_1', 'seat', '2031-01-01Z')
                ON CONFLICT (tenant, id) DO UPDATE SET status = 'released' RETURNING tenant, status"""
    assert producer.execute(upsert, ["acme"]).fetchall() == [("acme", "released")]
    with refused(producer, DENIED, "new row violates row-level security policy"):
        producer.execute(upsert, ["other"])
    assert column(db, "SELECT status FROM duehook.reservations ORDER BY tenant") == ["released", "held"]


def test_a_producer_without_a_grant_sees_and_writes_nothing(db: Connection, log_in: LogIn, clock: Clock) -> None:
    two_tenants(db, clock)
    nobody = log_in()
    assert column(nobody, "SELECT id FROM duehook.reservations UNION ALL SELECT id FROM duehook.events") == []
    with refused(nobody, DENIED):
        nobody.execute("INSERT INTO duehook.events (tenant, type, data) VALUES ('acme', 'order.placed', '1')")


def test_a_grant_counts_from_its_commit_to_its_end_and_passes_on_to_members(
    db: Connection, log_in: LogIn, clock: Clock
) -> None:
    two_tenants(db, clock)
    team = log_in("other")
    member = log_in("acme", member_of=name_of(team))
    tenants = "SELECT tenant FROM duehook.events ORDER BY tenant"
    assert column(member, tenants) == ["acme", "other"]
    assert column(team, tenants) == ["other"]
    db.execute("DELETE FROM duehook.sql_grants WHERE role = %s", [name_of(team)])
    assert column(member, tenants) == ["acme"]
    assert column(team, tenants) == []


def test_a_producer_learns_of_no_grants_but_its_own(db: Connection, log_in: LogIn) -> None:
    ours, theirs = log_in("acme", "shop"), log_in("other")
    own = "SELECT tenant FROM duehook.own_tenants ORDER BY tenant"
    assert column(ours, own) == ["acme", "shop"]
    assert column(theirs, own) == ["other"]
    with refused(ours, DENIED):
        ours.execute("SELECT * FROM duehook.sql_grants")


def test_a_grant_to_a_role_that_is_gone_hurts_nobody(db: Connection, producer: Connection, clock: Clock) -> None:
    insert(db, "sql_grants", role="a_role_that_is_gone", tenant="other")
    assert column(producer, "SELECT tenant FROM duehook.own_tenants") == ["acme"]


def test_switching_row_security_off_is_an_error_and_not_a_way_round(
    db: Connection, producer: Connection, clock: Clock
) -> None:
    two_tenants(db, clock)
    producer.execute("SET row_security = off")
    with refused(producer, DENIED, "query would be affected by row-level security"):
        producer.execute("SELECT * FROM duehook.events")


def test_a_producers_search_path_and_temporary_tables_fool_no_trigger(
    db: Connection, log_in: LogIn, clock: Clock
) -> None:
    two_tenants(db, clock)
    producer = log_in("acme", options="-c search_path=pg_temp -c standard_conforming_strings=off")
    for name in ("endpoints", "outbox", "service", "events", "own_tenants", "sql_grants"):
        producer.execute(sql.SQL("CREATE TEMP TABLE {} (tenant text, seq bigint)").format(sql.Identifier(name)))
    producer.execute("INSERT INTO pg_temp.own_tenants VALUES ('other')")
    assert column(producer, "SELECT tenant FROM duehook.events") == ["acme"]
    with refused(producer, "DH004"):
        producer.execute("""INSERT INTO duehook.events (tenant, type, data) VALUES ('acme', 'a"b', '1')""")
    producer.execute("UPDATE duehook.reservations SET status = 'confirmed'")
    assert column(db, "SELECT type FROM duehook.events WHERE origin = 'service'") == ["reservation.confirmed"]
    assert value(producer, "SELECT count(*) FROM pg_temp.outbox") == 0


def test_a_producers_function_lends_its_tenants_to_whom_it_lets_call_it(
    db: Connection, log_in: LogIn, clock: Clock
) -> None:
    db.execute("CREATE SCHEMA shared")
    db.execute("GRANT ALL ON SCHEMA shared TO PUBLIC")
    theirs, ours = log_in("other"), log_in("acme")
    post = "INSERT INTO duehook.events (tenant, type, data) VALUES ('other', 'order.placed', '1') RETURNING tenant"
    theirs.execute(f"CREATE FUNCTION shared.post() RETURNS text LANGUAGE sql SECURITY DEFINER AS $$ {post} $$")
    assert value(ours, "SELECT shared.post()") == "other"
    with refused(ours, DENIED):
        ours.execute(post)


def test_a_producers_open_confirm_blocks_its_own_row_only(
    db: Connection, connect: Connect, producer: Connection, clock: Clock
) -> None:
    two_tenants(db, clock)
    producer.autocommit = False
    producer.execute("UPDATE duehook.reservations SET status = 'confirmed'")
    other = connect(autocommit=True, options="-c lock_timeout=10s")
    assert other.execute("UPDATE duehook.reservations SET status = 'confirmed' WHERE tenant = 'other'").rowcount == 1
    mine: LiteralString = "UPDATE duehook.reservations SET status = 'released' WHERE tenant = 'acme'"
    with blocked(other, lambda: other.execute(mine).rowcount, db) as answer:
        producer.commit()
        assert answer.result(10) == 1
