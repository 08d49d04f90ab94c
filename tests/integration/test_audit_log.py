"""The audit log in the database and on the command line: only ever added to, and no command forgets it."""

import json
import os
import pwd
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import typer
from sqlalchemy import Engine, text
from typer.main import get_command

from app.cli.commands import app
from app.core import keys
from app.core.reconciliation import TERMS as AUDIT_TERMS
from app.core.upkeep import upkeep
from app.domain.auditing import Action
from app.domain.identity import public_id
from app.domain.states import KeyScope
from app.ledger import audit, grants
from tests.clock import Clock
from tests.conftest import Connect
from tests.integration.test_cli import Quick, quick
from tests.integration.test_dead_cli import working
from tests.ledgers import TENANT, an_endpoint, dead, some_events
from tests.plain import refused
from tests.processes import KEY

__all__ = ["quick"]
ME = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"


def write(engine: Engine, number: int = 1, tenant: str = TENANT) -> None:
    with engine.begin() as connection:
        for n in range(number):
            audit.write(connection, "cli:tester", tenant, Action.ENDPOINT_CHANGED, f"end_{n + 1}", members=["url"])


def told(engine: Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        found = text("SELECT tenant, actor, action, subject FROM duehook.audit_log ORDER BY seq")
        return [tuple(each) for each in connection.execute(found)]


def test_an_entry_is_never_changed_deleted_or_truncated(engine: Engine, connect: Connect) -> None:
    write(engine)
    db = connect(autocommit=True)
    for statement in (
        "UPDATE duehook.audit_log SET actor = 'nobody'",
        "UPDATE duehook.audit_log SET actor = 'nobody' WHERE false",
        "DELETE FROM duehook.audit_log",
        "DELETE FROM duehook.audit_log WHERE at < '1970-01-01Z'",
        "TRUNCATE duehook.audit_log",
        "INSERT INTO duehook.audit_log SELECT * FROM duehook.audit_log"
        " ON CONFLICT (seq) DO UPDATE SET actor = 'nobody'",
        "SELECT set_config('duehook.pruning', 'on', true); UPDATE duehook.audit_log SET actor = 'nobody'",
        "SELECT set_config('duehook.pruning', 'on', true); TRUNCATE duehook.audit_log",
        "SELECT duehook.prune_audit_log('1 day', 100); DELETE FROM duehook.audit_log",
    ):
        with refused(db, "DH006", "the audit log is only ever added to"):
            db.execute(statement.encode())
    assert told(engine) == [(TENANT, "cli:tester", "endpoint.changed", "end_1")]


def test_a_program_that_produces_can_neither_read_nor_write_it(engine: Engine, connect: Connect) -> None:
    db = connect(autocommit=True)
    db.execute("SET ROLE duehook_producer")
    for statement in (
        "SELECT FROM duehook.audit_log",
        "INSERT INTO duehook.audit_log (tenant, actor, action) VALUES ('acme', 'x', 'x')",
        "SELECT duehook.prune_audit_log('1 day', 1)",
        "SELECT duehook.erase_event(1)",
    ):
        with refused(db, "42501"):
            db.execute(statement.encode())


def test_entries_go_by_age_alone_the_oldest_first_and_a_bounded_number_at_a_time(
    engine: Engine, connect: Connect, clock: Clock
) -> None:
    write(engine, 5)
    clock.advance(days=20)
    write(engine, 3, "rival")
    clock.advance(days=11)
    with engine.begin() as connection:
        assert audit.prune(connection, timedelta(days=30), most=2) == 2
    upkeep(engine, replace(AUDIT_TERMS, kept=timedelta(days=30)))
    assert [each[0] for each in told(engine)] == ["rival"] * 3
    with engine.begin() as connection:
        assert audit.prune(connection, timedelta(days=30), most=100) == 0
    upkeep(engine)
    assert len(told(engine)) == 3, "nobody said how long they are kept"
    for kept in ("0", "-1 day"):
        with refused(connect(autocommit=True), "DH004"):
            connect(autocommit=True).execute("SELECT duehook.prune_audit_log(%s, 100)", [kept])


# Commands.


def a_key(engine: Engine) -> str:
    with engine.begin() as connection:
        return keys.public_id(keys.create(connection, TENANT, KeyScope.PRODUCER)[0])


def a_dead_letter(engine: Engine) -> str:
    an_endpoint(engine)
    return public_id("dlv", dead(engine)[0])


def an_event(engine: Engine) -> str:
    return public_id("evt", some_events(engine)[0])


def a_role(engine: Engine) -> str:
    """Roles belong to the cluster, and outlive a test."""
    name = f"program_{uuid4().hex}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {name}"))
    return name


def a_producer(engine: Engine) -> str:
    role = a_role(engine)
    with engine.begin() as connection:
        grants.insert(connection, role, TENANT)
    return role


def nothing(engine: Engine) -> str:
    return ""


MINE = ["--tenant", TENANT]
# The command, what is there before, what comes after the command and that thing, and what the log tells then.
CHANGES: dict[str, list[tuple[Callable[[Engine], str], list[str], tuple[str, Action]]]] = {
    "keys create": [(nothing, [TENANT], (TENANT, Action.KEY_CREATED))],
    "keys revoke": [(a_key, [], (TENANT, Action.KEY_REVOKED))],
    "keys grant-sql": [
        (a_role, [TENANT], (TENANT, Action.SQL_GRANTED)),
        (a_producer, [TENANT, "--revoke"], (TENANT, Action.SQL_REVOKED)),
    ],
    "keys reencrypt": [(nothing, [], ("*", Action.KEYS_REENCRYPTED))],
    "dead redrive": [
        (a_dead_letter, MINE, (TENANT, Action.DELIVERY_REDRIVEN)),
        (nothing, MINE, (TENANT, Action.REDRIVE_ASKED)),
    ],
    "wakeups set": [(nothing, ["scan"], ("*", Action.WAKEUPS_DIVIDED))],
    "events erase": [(an_event, MINE, (TENANT, Action.EVENT_ERASURE_ASKED))],
    "tenants erase": [(nothing, [TENANT, "--yes"], (TENANT, Action.TENANT_ERASURE_ASKED))],
}
# These only look, or run something; what `up` makes are keys, by the same code as `keys create`.
UNTOLD = {
    *("up", "demo", "eval", "status", "migrate", "api", "relay", "worker", "scan", "beat", "flower", "bench recovery"),
    *("bench isolation", "bench accept", "bench peers", "keys list", "keys list-sql", "wakeups show", "wakeups shadow"),
    *("dead list", "dead show", "audit list"),
    # By HTTP, where their key is the actor.
    *("events post", "events list", "events show", "events cancel", "endpoints list", "endpoints show"),
    *(
        "endpoints create",
        "endpoints delete",
        "endpoints enable",
        "endpoints disable",
        "endpoints ping",
        "deliveries list",
    ),
    *("deliveries show", "deliveries retry", "jobs list", "jobs show", "jobs cancel"),
}


def commands(of: Any, name: str = "") -> set[str]:
    """The names of all commands that do something."""
    if not hasattr(of, "commands"):
        return {name}
    return {each for word, one in of.commands.items() for each in commands(one, f"{name} {word}".strip())}


def test_every_command_that_changes_something_is_here() -> None:
    assert isinstance(app, typer.Typer)
    assert commands(get_command(app)) == CHANGES.keys() | UNTOLD


@pytest.mark.parametrize(
    ("command", "making", "options", "expected"),
    [(command, *each) for command, some in CHANGES.items() for each in some],
)
def test_every_change_by_a_command_leaves_an_entry_that_names_who_ran_it(
    engine: Engine,
    database_url: str,
    quick: Quick,
    command: str,
    making: Callable[[Engine], str],
    options: list[str],
    expected: tuple[str, Action],
) -> None:
    thing = [each] if (each := making(engine)) else []
    with working(engine):
        done = quick(*command.split(), *thing, *options, "--json", database_url=database_url, secrets_key=KEY)
    assert done.returncode == 0, done.stderr
    first = told(engine)[0]
    tenant, action = expected
    assert first[:3] == (tenant, ME, action)
    if thing:
        assert first[3] == thing[0]
    listed = json.loads(quick("audit", "list", "--tenant", tenant, "--json", database_url=database_url).stdout)
    assert (listed[-1]["actor"], listed[-1]["action"], listed[-1]["subject"]) == (ME, action, first[3])


def test_the_list_takes_filters_and_shows_everybody_s_without_a_tenant(
    engine: Engine, database_url: str, quick: Quick
) -> None:
    write(engine, 3)
    write(engine, 1, "rival")

    def subjects(*options: str) -> list[tuple[str, str]]:
        done = quick("audit", "list", "--json", *options, database_url=database_url)
        return [(each["tenant"], each["subject"]) for each in json.loads(done.stdout)]

    ours = [(TENANT, "end_3"), (TENANT, "end_2"), (TENANT, "end_1")]
    assert subjects() == [("rival", "end_1"), *ours]
    assert subjects("--tenant", TENANT) == ours
    assert subjects("--subject", "end_1") == [("rival", "end_1"), ours[2]]
    assert subjects("--action", "endpoint.changed", "--limit", "2") == [("rival", "end_1"), ours[0]]
    assert subjects("--action", "key.created") == []
    line = quick("audit", "list", "--tenant", "rival", database_url=database_url).stdout.splitlines()[1]
    assert line.split("\t")[1:] == ["rival", "cli:tester", "endpoint.changed", "end_1", "members=['url']"]
    for wrong in (["--action", "endpoint.made"], ["--tenant", "a.b"], ["--limit", "0"]):
        assert quick("audit", "list", *wrong, database_url=database_url).returncode == 2


def test_an_erasure_of_all_asks_first_and_says_what_went(engine: Engine, database_url: str, quick: Quick) -> None:
    an_endpoint(engine)
    some_events(engine, 2)
    refused_ = quick("tenants", "erase", TENANT, database_url=database_url)
    assert (refused_.returncode, refused_.stdout) == (2, "")
    assert refused_.stderr == "duehook: nobody is there to be asked: add --yes to erase all of it.\n"
    assert told(engine) == []
    with working(engine):
        done = quick("tenants", "erase", TENANT, "--yes", database_url=database_url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(": erased 2 events, 2 deliveries, 1 endpoints.\n")


def test_what_can_t_be_erased_is_said_in_one_sentence(engine: Engine, database_url: str, quick: Quick) -> None:
    for arguments, code, sentence in (
        (["events", "erase", "evt_1", *MINE], 1, "there is no event 'evt_1' of the tenant 'acme'."),
        (["events", "erase", "dlv_1"], 2, "'dlv_1' is not the id of an event: use one like evt_66f1c20b3a00001."),
        (["tenants", "erase", "a.b", "--yes"], 2, "'a.b' can't name a tenant: use 1 to 64 letters, digits, _ and -, a"),
    ):
        done = quick(*arguments, database_url=database_url)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(f"duehook: {sentence}")
