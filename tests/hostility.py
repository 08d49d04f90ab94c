"""Sessions that programs of others may have: their search paths, settings and time zones."""

import json
from datetime import timedelta
from functools import partial
from typing import LiteralString

from psycopg import sql

from tests.clock import Clock
from tests.plain import Connection, column, sqlstate_of, value

TIME_SETTINGS = [
    ("UTC", "ISO, MDY"),
    ("Asia/Kathmandu", "ISO, DMY"),
    ("America/St_Johns", "SQL, DMY"),
    ("Pacific/Kiritimati", "German"),
    ("<-12>+12", "Postgres, YMD"),
]

# Each is legal for anybody. The first once let `a"b` through as an event type, and so broke the JSON of the body.
SESSIONS = [
    {"standard_conforming_strings": "off", "backslash_quote": "on", "escape_string_warning": "off"},
    {"plpgsql.extra_errors": "all", "plpgsql.extra_warnings": "all", "check_function_bodies": "off"},
    {"transform_null_equals": "on", "array_nulls": "off", "IntervalStyle": "sql_standard", "extra_float_digits": "-15"},
    {"plan_cache_mode": "force_generic_plan", "enable_indexscan": "off", "enable_hashjoin": "off", "work_mem": "64kB"},
    {"client_encoding": "LATIN1", "quote_all_identifiers": "on", "bytea_output": "escape"},
    {"default_transaction_isolation": "repeatable\\ read"},
    {"default_transaction_isolation": "serializable"},
]

OPERATORS = {
    ("text", "text"): ["=", "<>", "||", "~", "!~", "<", "<="],
    ("bigint", "bigint"): ["=", "<>", "<", "<=", "|"],
    ("integer", "integer"): ["=", "<>", "+", "<", ">"],
    ("bigint", "integer"): ["=", "<<", "*"],
    ("timestamptz", "timestamptz"): ["=", "<", "<=", ">", ">=", "<>"],
    ("timestamptz", "interval"): ["+", "-"],
    ("text[]", "text[]"): ["&&", "||", "="],
    ("boolean", "boolean"): ["=", "<>"],
}
FUNCTIONS = [
    ("now", ""),
    ("clock_timestamp", ""),
    ("next_id", ""),
    ("horizon", ""),
    ("length", "text"),
    ("octet_length", "text"),
    ("to_hex", "bigint"),
    ("to_json", "text"),
    ("to_char", "timestamp, text"),
    ("quote_literal", "text"),
    ("patterns", "text"),
    ("job_json", "bigint"),
    ("is_tenant", "text"),
    ("rfc3339", "timestamptz"),
    ("string_to_array", "text, text"),
    ("cardinality", "bigint[]"),
]
TABLES = (
    "reservations",
    "events",
    "deliveries",
    "outbox",
    "endpoints",
    "service",
    "dead_letters",
    "jobs",
    "new_rows",
    "old_rows",
)


def trap(connection: Connection) -> None:
    """Makes schema evil, where everything is named like something that the ledger uses, and raises."""
    connection.execute("CREATE SCHEMA evil")
    body = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$"
    script = [f"CREATE TABLE evil.{name} (seq text, id text)" for name in TABLES]
    script += [f"CREATE FUNCTION evil.{name}({arguments}) RETURNS text {body}" for name, arguments in FUNCTIONS]
    for (left, right), operators in OPERATORS.items():
        script.append(f"CREATE FUNCTION evil.trapped({left}, {right}) RETURNS boolean {body}")
        script += [
            f"CREATE OPERATOR evil.{operator} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = evil.trapped)"
            for operator in operators
        ]
    script += ["CREATE DOMAIN evil.timestamptz AS integer", "CREATE DOMAIN evil.json AS integer"]
    for statement in script:
        connection.execute(statement.encode())


def set_decoys(connection: Connection) -> None:
    """Puts into schema public what matches our arguments better than PostgreSQL's own functions do, and raises."""
    body = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$"
    for statement in (
        f"CREATE FUNCTION public.cardinality(text[]) RETURNS integer {body}",
        f"CREATE FUNCTION public.num_nonnulls(uuid, timestamptz, timestamptz) RETURNS integer {body}",
        f"CREATE FUNCTION public.to_json(text) RETURNS json {body}",
        f"CREATE FUNCTION public.times(numeric, integer) RETURNS numeric {body}",
        "CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.times)",
    ):
        connection.execute(statement.encode())


def life_of_everything(connection: Connection, clock: Clock) -> None:
    """Reservations, events and deliveries from their beginning to their end; no statement of it needs an operator."""
    connection.execute(
        "INSERT INTO duehook.endpoints (tenant, url, event_types) VALUES ('acme', 'http://127.0.0.1:9/', '{order.*}')"
    )
    _life_of_reservations(connection, clock)
    _life_of_events(connection)
    _life_of_deliveries(connection)
    _life_of_jobs(connection)
    for table in ("jobs", "deliveries", "events", "reservations"):
        assert connection.execute(sql.SQL("DELETE FROM duehook.{}").format(sql.Identifier(table))).rowcount > 0
    assert value(connection, "SELECT count(*) FROM duehook.outbox") == 0


def _life_of_reservations(connection: Connection, clock: Clock) -> None:
    hold: LiteralString = """INSERT INTO duehook.reservations (tenant, id, resource, expires_at, exclusive, data)
        VALUES ('acme', %s, 'seat', %s, true, '{"é": 1.0}')"""
    move: LiteralString = "UPDATE duehook.reservations SET status = %s"
    connection.execute(hold, ["rsv_1", clock.now + timedelta(hours=1)])
    assert connection.execute(move, ["expired"]).rowcount == 0
    clock.advance(hours=1)
    assert sqlstate_of(connection, lambda: connection.execute(move, ["confirmed"])) == "DH002"
    assert sqlstate_of(connection, lambda: connection.execute(hold, ["rsv-2", clock.now])) == "DH004"
    connection.execute(hold, ["rsv_2", clock.now + timedelta(hours=1)])  # which expires the first
    assert sqlstate_of(connection, lambda: connection.execute(move, ["released"])) == "DH001"
    keys: LiteralString = "SELECT key FROM duehook.events ORDER BY seq"
    assert column(connection, keys) == ["reservation.expired:rsv_1:v2"]
    connection.execute("DELETE FROM duehook.reservations WHERE status OPERATOR(pg_catalog.=) 'expired'")
    for status in ("confirmed", "confirmed", "released"):
        assert connection.execute(move, [status]).rowcount == 1
    rewrite: LiteralString = "UPDATE duehook.reservations SET resource = 'table'"
    assert sqlstate_of(connection, lambda: connection.execute(rewrite)) == "DH003"
    assert column(connection, keys)[1:] == ["reservation.confirmed:rsv_2:v2", "reservation.released:rsv_2:v3"]
    for members in column(connection, "SELECT data::text FROM duehook.events"):
        assert json.loads(members)["data"] == {"é": 1.0}


def _life_of_events(connection: Connection) -> None:
    post: LiteralString = """INSERT INTO duehook.events (tenant, type, key, data, due_at)
        VALUES ('acme', %s, %s, '{}', %s) ON CONFLICT DO NOTHING"""
    for bad, sqlstate in (('a"b', "DH004"), ("a..b", "DH004"), ("job.done", "DH005")):
        assert sqlstate_of(connection, partial(connection.execute, post, [bad, None, "2030-01-01Z"])) == sqlstate
    posted = [
        connection.execute(post, ["order.placed", key, due]).rowcount
        for key, due in (('"now"', "2030-01-01Z"), ('"now"', "2030-01-01Z"), ('"later"', "2031-01-01Z"))
    ]
    assert posted == [1, 0, 1]
    assert column(connection, "SELECT kind FROM duehook.outbox ORDER BY kind") == ["delivery", "event"]
    connection.execute("UPDATE duehook.events SET fanned_out_at = coalesce(fanned_out_at, due_at)")
    assert column(connection, "SELECT kind FROM duehook.outbox ORDER BY kind") == ["delivery", "delivery"]
    rewrite: LiteralString = "UPDATE duehook.events SET data = '{ }'"
    assert sqlstate_of(connection, lambda: connection.execute(rewrite)) == "DH003"
    for body in column(connection, "SELECT pg_catalog.concat(head, data::text, '}') FROM duehook.events"):
        assert list(json.loads(body)) == ["id", "type", "key", "timestamp", "data"]


def _life_of_jobs(connection: Connection) -> None:
    connection.execute("""INSERT INTO duehook.jobs (tenant, kind, parameters) VALUES ('acme', '"', '{"a": 1.0}')""")
    move: LiteralString = "UPDATE duehook.jobs SET status = %s, result = '{\"é\":1.0}'"
    for status in ("running", "running", "failed"):
        assert connection.execute(move, [status]).rowcount == 1
    assert sqlstate_of(connection, lambda: connection.execute(move, ["running"])) == "DH001"
    told: LiteralString = "SELECT data::text FROM duehook.events WHERE type OPERATOR(pg_catalog.=) 'job.completed'"
    (data,) = map(json.loads, column(connection, told))
    assert (data["kind"], data["status"], data["result"]) == ('"', "failed", {"é": 1.0})


def _life_of_deliveries(connection: Connection) -> None:
    claim: LiteralString = """UPDATE duehook.deliveries SET status = 'leased', attempt = %s, claimed_at = updated_at,
        token = '00000000-0000-0000-0000-000000000001', lease_until = '2030-01-01 14:00:00Z'"""
    assert sqlstate_of(connection, lambda: connection.execute(claim, [0])) == "DH001"
    assert connection.execute(claim, [1]).rowcount == 2
    assert column(connection, "SELECT DISTINCT look_at FROM duehook.outbox") == column(
        connection, "SELECT DISTINCT lease_until FROM duehook.deliveries"
    )
    connection.execute(
        """UPDATE duehook.deliveries SET status = 'dead', reason = 'refused', claimed_at = NULL, token = NULL,
                  lease_until = NULL"""
    )
    assert value(connection, "SELECT count(*) FROM duehook.dead_letters") == 2
