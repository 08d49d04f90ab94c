"""The commands from outside: exit codes, JSON, pipes, terminals, and one sentence for whatever goes wrong."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, text

from app.cli.main import main
from app.local.connection import Connection
from app.local.postgres import Postgres
from tests.conftest import Connect
from tests.service import DUEHOOK, duehook, environment

COMMANDS = [
    [],
    ["up"],
    ["demo"],
    ["status"],
    ["migrate"],
    ["api"],
    ["relay"],
    ["worker"],
    ["scan"],
    ["beat"],
    ["flower"],
    ["wakeups"],
    ["wakeups", "show"],
    ["wakeups", "set"],
    ["wakeups", "shadow"],
    ["keys"],
    ["keys", "create"],
    ["keys", "list"],
    ["keys", "revoke"],
    ["keys", "reencrypt"],
    ["keys", "grant-sql"],
    ["keys", "list-sql"],
    ["dead"],
    ["dead", "list"],
    ["dead", "show"],
    ["dead", "redrive"],
    ["events"],
    ["events", "erase"],
    ["tenants"],
    ["tenants", "erase"],
    ["audit"],
    ["audit", "list"],
]
Done = subprocess.CompletedProcess[str]
Quick = Callable[..., Done]
NOBODY = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Quick:
    """Runs a command within this process, where a process of its own would show nothing more."""

    def run(*arguments: str, **settings: object) -> Done:
        for name, value in settings.items():
            monkeypatch.setenv(f"DUEHOOK_{name.upper()}", str(value))
        monkeypatch.setattr(sys, "argv", ["duehook", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code is None or isinstance(ended.value.code, int)
        return Done(arguments, ended.value.code or 0, *capsys.readouterr())

    return run


def seen(engine: Engine, role: str, *, pid: int = 4711, seconds_ago: float = 0, unready: str | None = None) -> None:
    """A process that has said then that it works."""
    with engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO duehook.processes (id, role, host, pid, version, seen_at, unready)
                    VALUES (gen_random_uuid(), :role, 'here', :pid, '1',
                            duehook.now() - make_interval(secs => :ago), :unready)"""),
            {"role": role, "pid": pid, "ago": seconds_ago, "unready": unready},
        )


def give_to_the_scan(engine: Engine, share: int) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE duehook.service SET scan_share = :share"), {"share": share})


def test_it_tells_its_version(quick: Quick) -> None:
    told = quick("--version")
    assert (told.returncode, told.stdout) == (0, f"duehook {version('duehook')}\n")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(quick: Quick, command: list[str]) -> None:
    shown = quick(*command, "--help")
    assert shown.returncode == 0
    assert "Usage: duehook" in shown.stdout
    if command not in (["keys"], ["wakeups"], ["dead"], ["events"]):
        assert "Example: " in shown.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["[/bold]"],
        ["up", "--[red]"],
        ["keys"],
        ["keys", "create"],
        ["worker", "[/b]"],
        ["up", "extra"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_exit_code_2(quick: Quick, arguments: list[str]) -> None:
    assert quick(*arguments).returncode == 2


def test_a_command_that_is_not_there_is_refused_by_the_installed_one_too() -> None:
    refused = duehook("[/bold]")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Usage: duehook" in refused.stderr and "No such command '[/bold]'" in refused.stderr


@pytest.mark.parametrize("command", [["keys", "list"], ["status"], ["migrate"], ["worker"], ["api"]], ids=" ".join)
def test_without_a_service_a_command_says_how_to_get_one(quick: Quick, home: Path, command: list[str]) -> None:
    refused = quick(*command, home=home)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"duehook: no service: nothing runs in {home}; start one with `duehook up`, "
        "or set DUEHOOK_DATABASE_URL or DUEHOOK_HOME.\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        ["events", "erase", "evt_1"],
        ["dead", "list"],
        ["audit", "list"],
        ["status"],
        ["keys", "list"],
        ["tenants", "erase", "acme", "--yes"],
        ["wakeups", "show"],
    ],
    ids=" ".join,
)
def test_with_an_api_alone_a_command_on_the_database_says_that_it_is_one(
    quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = quick(*command, home=".there", api_url="http://127.0.0.1:1", api_key="k")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"duehook: no service: nothing runs in {tmp_path / '.there'}, and this command works on the database, not over "
        "DUEHOOK_API_URL; start one with `duehook up`, or set DUEHOOK_DATABASE_URL or DUEHOOK_HOME.\n"
    )


@pytest.mark.parametrize(
    "command", [["keys", "list"], ["keys", "create", "acme"], ["status"], ["migrate"]], ids=" ".join
)
def test_a_database_that_is_away_is_one_sentence(quick: Quick, command: list[str]) -> None:
    refused = quick(*command, database_url=NOBODY)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert refused.stderr.startswith("duehook: the database does not answer: connection failed:")


@pytest.mark.parametrize("command", [["status"], ["worker", "expiry"], ["up"]], ids=" ".join)
def test_wrong_settings_are_wrong_use(quick: Quick, command: list[str]) -> None:
    refused = quick(*command, databse_url="x")
    assert refused.returncode == 2
    assert refused.stderr == (
        "duehook: DUEHOOK_DATABSE_URL is not a setting of duehook; did you mean DUEHOOK_DATABASE_URL?\n"
    )


def test_a_connection_file_that_is_damaged_is_one_sentence(quick: Quick, home: Path) -> None:
    home.mkdir()
    for damage in ("{", "[]", '{"api_url": "x"}', "\x00"):
        (home / "connection.json").write_text(damage)
        refused = quick("status", home=home)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert "connection.json can't be read (it is not what `duehook up` writes)" in refused.stderr


def test_migrate_makes_the_schema_and_may_be_repeated(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE duehook_to_migrate")
    url = postgres.url_of("duehook_to_migrate")
    before = duehook("status", database_url=url)
    assert (before.returncode, before.stderr) == (
        1,
        "duehook: the database has no duehook schema yet: run `duehook migrate`.\n",
    )
    commands = [[*DUEHOOK, "migrate", "--json"]] * 2
    both = [subprocess.Popen(each, env=environment(database_url=url), stdout=subprocess.PIPE) for each in commands]
    answers = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert answers[0] == answers[1] and answers[0]["version"]
    assert "is at version" in duehook("migrate", database_url=url).stdout
    assert duehook("status", database_url=url).returncode == 0


def test_a_user_who_may_not_migrate_is_told_so(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE duehook_forbidden")
        connection.execute("CREATE ROLE somebody LOGIN PASSWORD 'x'")
    refused = duehook("migrate", database_url=f"postgresql://somebody:x@127.0.0.1:{postgres.port}/duehook_forbidden")
    assert refused.returncode == 1
    assert refused.stderr.startswith("duehook: the database forbids it: permission denied")


def test_a_key_is_made_listed_and_revoked(database_url: str) -> None:
    made = json.loads(duehook("keys", "create", "acme", "--json", database_url=database_url).stdout)
    assert list(made) == ["id", "tenant", "scope", "key"]
    assert (made["tenant"], made["scope"]) == ("acme", "producer")
    listed = json.loads(duehook("keys", "list", "--json", database_url=database_url).stdout)
    assert [(key["id"], key["revoked_at"]) for key in listed] == [(made["id"], None)]
    assert made["key"] not in json.dumps(listed), "it is shown once"
    revoked = json.loads(duehook("keys", "revoke", made["id"], "--json", database_url=database_url).stdout)
    assert revoked["id"] == made["id"] and revoked["revoked_at"].endswith("Z")
    again = json.loads(duehook("keys", "revoke", made["id"], "--json", database_url=database_url).stdout)
    assert again == revoked, "a repeat changes nothing"


@pytest.mark.parametrize(("tenant", "scope"), [("acme", "operator"), ("*", "operator")])
def test_an_operator_s_key(quick: Quick, database_url: str, tenant: str, scope: str) -> None:
    made = quick("keys", "create", tenant, "--operator", "--json", database_url=database_url)
    assert (json.loads(made.stdout)["tenant"], json.loads(made.stdout)["scope"]) == (tenant, scope)


def test_a_key_for_all_tenants_is_an_operator_s(quick: Quick) -> None:
    refused = quick("keys", "create", "*")
    assert (refused.returncode, refused.stderr) == (
        2,
        "duehook: a key for all tenants is an operator's: add --operator.\n",
    )


@pytest.mark.parametrize("tenant", ["[/bold]", "a b", "", "-", "_x", "x" * 65, "ä"])
def test_a_tenant_that_can_t_be_is_refused(quick: Quick, tenant: str) -> None:
    refused = quick("keys", "create", "--", tenant)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"duehook: {tenant!r} can't name a tenant: use ")


@pytest.mark.parametrize("key_id", ["key_1", "[/bold]", "key_" + "f" * 40, "rsv_1"])
def test_revoking_a_key_that_is_not_there_fails(quick: Quick, database_url: str, key_id: str) -> None:
    refused = quick("keys", "revoke", key_id, database_url=database_url)
    assert (refused.returncode, refused.stderr) == (1, f"duehook: there is no key {key_id!r}.\n")


def test_a_pipe_gets_lines_with_tabs_and_nothing_cut(database_url: str) -> None:
    made = json.loads(duehook("keys", "create", "x" * 64, "--json", database_url=database_url).stdout)
    lines = duehook("keys", "list", database_url=database_url).stdout.splitlines()
    assert lines[0].split("\t") == ["id", "tenant", "scope", "created", "revoked"]
    assert lines[1].split("\t")[:3] == [made["id"], "x" * 64, "producer"]


def test_a_narrow_terminal_gets_everything_folded(database_url: str) -> None:
    duehook("keys", "create", "x" * 64, database_url=database_url)
    shown = at_a_terminal(["keys", "list"], columns=30, database_url=database_url)
    assert "…" not in shown
    assert shown.count("x") == 64
    assert max(map(len, shown.splitlines())) <= 30


def at_a_terminal(arguments: list[str], *, columns: int, **settings: object) -> str:
    """What a command prints to a terminal of this width, without its colours."""
    owner, terminal = pty.openpty()
    env = environment(**settings) | {"COLUMNS": str(columns), "LINES": "40", "TERM": "dumb", "NO_COLOR": "1"}
    with subprocess.Popen([*DUEHOOK, *arguments], env=env, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                read = os.read(owner, 4096)
            except OSError:  # the last writer has closed it
                break
            shown += read
    os.close(owner)
    assert process.returncode == 0, shown
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", ["keys list", "eval --list", "eval --print-thresholds"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_is_full_is_told_in_a_sentence(database_url: str, command: str, unbuffered: str) -> None:
    env = environment(database_url=database_url) | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*DUEHOOK, *command.split()], env=env, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1
    assert done.stderr.decode() == "duehook: not all of it could be written (No space left on device).\n"


@pytest.mark.parametrize("command", [["--help"], ["keys", "list"], ["status", "--json"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error_to_speak_of(database_url: str, command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*DUEHOOK, *command],
        env=environment(database_url=database_url),
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(writer)
    assert done.stderr == b""


def test_status_of_an_idle_ledger_is_all_zero(database_url: str, broker_url: str) -> None:
    status = json.loads(duehook("status", "--json", database_url=database_url, broker_url=broker_url).stdout)
    assert status.pop("database")["connections_used"] >= 1
    assert status == {
        "reservation_oldest_due_age_seconds": 0.0,
        "delivery_oldest_due_age_seconds": 0.0,
        "backlog": {"expiry": 0, "delivery": 0, "upkeep": 0},
        "in_flight": 0,
        "parked": 0,
        "dead": 0,
        "at_least": [],
        "broker": {"reachable": True, "error": None},
        "workers": [],
        "adapters": {
            "queue": {"share": 100, "processes": 0, "lacking": ["relay", "worker expiry delivery upkeep"]},
            "scan": {"share": 0, "processes": 0, "lacking": []},
        },
        "processes": [],
    }


def test_status_tells_how_late_both_clocks_are(
    quick: Quick, database_url: str, broker_url: str, connect: Connect
) -> None:
    with connect() as connection:
        connection.execute(
            "INSERT INTO duehook.reservations (tenant, resource, expires_at) VALUES"
            " ('acme', 'seat', clock_timestamp() + interval '0.2 s'), ('acme', 'seat', now() + interval '1 day')"
        )
        connection.execute(
            "INSERT INTO duehook.endpoints (tenant, url, event_types) VALUES ('acme', 'http://h/', '{*}')"
        )
        connection.execute("INSERT INTO duehook.events (tenant, type, data) VALUES ('acme', 'order.placed', '{}')")
        connection.commit()
        connection.execute("SELECT pg_sleep(0.3)")
    settings = {"database_url": database_url, "broker_url": broker_url}
    status = json.loads(duehook("status", "--json", **settings).stdout)
    assert status["backlog"] == {"expiry": 1, "delivery": 1, "upkeep": 0}
    assert 0.05 < status["reservation_oldest_due_age_seconds"] < 60
    assert status["delivery_oldest_due_age_seconds"] > status["reservation_oldest_due_age_seconds"]
    told = quick("status", **settings).stdout
    assert "backlog of delivery     1\n" in told and "processes               none seen\n" in told


def test_status_works_while_the_broker_is_away(engine: Engine, database_url: str) -> None:
    seen(engine, "worker expiry", pid=1)
    done = duehook("status", "--json", database_url=database_url, broker_url="redis://:hidden@127.0.0.1:1/0")
    status = json.loads(done.stdout)
    assert (done.returncode, status["broker"]["reachable"], status["workers"]) == (0, False, ["expiry-1@here"])
    assert "Redis at 127.0.0.1:1 can't be used" in status["broker"]["error"]
    assert "hidden" not in done.stdout


def told_of_the_fleet(quick: Quick, database_url: str, broker_url: str | None) -> tuple[dict[str, str], list[str]]:
    """What `status` tells people: its fields, and the sentences after them."""
    told = quick("status", database_url=database_url, **({"broker_url": broker_url} if broker_url else {}))
    assert told.returncode == 0, told.stderr
    values, _, faults = told.stdout.rstrip("\n").partition("\n\n")
    return {line[:22].rstrip(): line[22:].strip() for line in values.splitlines()}, faults.splitlines()


def test_status_tells_who_is_there_and_who_notices(
    engine: Engine, quick: Quick, database_url: str, broker_url: str
) -> None:
    give_to_the_scan(engine, 30)
    for role in ("relay", "worker expiry", "worker delivery", "worker delivery", "worker upkeep", "scan"):
        seen(engine, role)
    values, faults = told_of_the_fleet(quick, database_url, broker_url)
    assert values["noticed by"] == "queue 70 %, scan 30 %"
    assert values["processes"] == "relay 1, scan 1, worker delivery 2, worker expiry 1, worker upkeep 1"
    assert (values["broker"], faults) == ("reachable", [])


def assert_silent(fault: str, seconds: int) -> None:
    """For so long, and as long as it took the command to look: on a busy machine that is seconds."""
    told = re.fullmatch(r"scan 4711 on here silent for (\d+) s", fault)
    assert told, fault
    assert seconds <= int(told[1]) < seconds + 60


def test_status_tells_who_is_silent_or_takes_no_work(
    engine: Engine, quick: Quick, database_url: str, broker_url: str
) -> None:
    for role in ("relay", "worker expiry-upkeep"):
        seen(engine, role)
    seen(engine, "worker delivery", pid=7, unready="the clock is off")
    seen(engine, "scan", seconds_ago=34)
    seen(engine, "worker delivery", pid=8, seconds_ago=400)  # of old
    values, faults = told_of_the_fleet(quick, database_url, broker_url)
    assert values["processes"] == "relay 1, worker delivery 1, worker expiry-upkeep 1"
    assert_silent(faults[0], 34)
    assert faults[1:] == ["worker delivery 7 on here takes no work: the clock is off"]
    status = json.loads(quick("status", "--json", database_url=database_url).stdout)
    assert [(each["role"], each["silent"], each["unready"]) for each in status["processes"]] == [
        ("relay", False, None),
        ("worker delivery", False, "the clock is off"),
        ("worker expiry-upkeep", False, None),
        ("scan", True, None),
    ]
    assert status["workers"] == ["delivery-7@here", "expiry-upkeep-4711@here"]


def test_status_says_that_nobody_does_a_part_of_the_work(
    engine: Engine, quick: Quick, database_url: str, broker_url: str
) -> None:
    give_to_the_scan(engine, 30)
    seen(engine, "worker expiry")
    assert told_of_the_fleet(quick, database_url, broker_url)[1] == [
        "nobody notices 70 %: no relay has been seen",
        "nobody does all that the queue notices: no worker for delivery or upkeep has been seen",
        "nobody notices 30 %: no scan has been seen",
    ]
    seen(engine, "scan", seconds_ago=20)
    give_to_the_scan(engine, 100)
    nobody, silent = told_of_the_fleet(quick, database_url, broker_url)[1]
    assert nobody == "nobody notices 100 %: no scan has been seen lately"
    assert_silent(silent, 20)


def test_a_deployment_without_a_broker_is_whole_when_the_scan_has_all_the_work(
    engine: Engine, quick: Quick, database_url: str
) -> None:
    give_to_the_scan(engine, 99)
    assert told_of_the_fleet(quick, database_url, None)[0]["broker"] == "DUEHOOK_BROKER_URL is not set"
    give_to_the_scan(engine, 100)
    seen(engine, "scan")
    values, faults = told_of_the_fleet(quick, database_url, None)
    assert (values["broker"], faults) == ("none (not needed: the scan has all the work)", [])
    status = json.loads(quick("status", "--json", database_url=database_url).stdout)
    assert status["broker"] == {"reachable": False, "error": None}


def test_a_program_gets_what_the_home_knows_and_takes_the_command_s_place(home: Path, tmp_path: Path) -> None:
    """A folder called `app` where the user stands, or a package of the same name there, must not be run instead."""
    home.mkdir()
    (home / "connection.json").write_text(json.dumps(dict.fromkeys(CONNECTION, "") | {"database_url": NOBODY}))
    (tmp_path / "outbox_relay").mkdir()
    (tmp_path / "outbox_relay" / "__main__.py").write_text("print('not ours')")
    done = subprocess.run(
        [*DUEHOOK, "relay"],
        env=environment(home=home),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("duehook relay: ")


CONNECTION = [field.name for field in fields(Connection)]
