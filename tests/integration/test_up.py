"""`duehook up` from outside: real processes, killed and stopped in every way."""

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
import redis

from app.local.up.readiness import answers
from tests.service import DUEHOOK, Up, duehook, environment, left_of, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # several starts of everything, on a busy machine
WORKING = ["api", "relay", "worker-expiry", "worker-delivery", "worker-upkeep", "scan", "beat", "flower"]
ROLES = ["postgres", "redis", *WORKING]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One service for the tests that leave it running."""
    home = tmp_path_factory.mktemp("up") / "home"
    with running(home) as service:
        yield service
    assert not left_of(home)


def get(url: str, **headers: str) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    connection.request("GET", f"{parts.path or '/'}?{parts.query}", headers=headers)
    return connection.getresponse().status


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_connection_json_says_how_to_get_in_and_to_its_owner_only(up: Up) -> None:
    found = up.connection
    assert list(found["pids"]) == ROLES
    assert all(found["pids"].values()) and all(alive(pid) for pids in found["pids"].values() for pid in pids)
    assert len(found["pids"]["worker-delivery"]) == len(os.sched_getaffinity(0))
    assert list(found["logs"]) == ROLES and all(Path(log).exists() for log in found["logs"].values())
    assert found["ops_url"] == f"{found['api_url']}/ops"
    assert stat.S_IMODE((up.home / "connection.json").stat().st_mode) == 0o600


def test_everything_in_it_works(up: Up) -> None:
    found = up.connection
    assert get(f"{found['api_url']}/readyz") == 200
    login = b64encode(f"{found['flower_user']}:{found['flower_password']}".encode()).decode()
    assert get(f"{found['flower_url']}/") == 401
    assert get(f"{found['flower_url']}/", Authorization=f"Basic {login}") == 200
    with psycopg.connect(found["database_url"]) as connection:
        connection.execute("SELECT FROM duehook.outbox")
    with redis.Redis.from_url(found["broker_url"]) as client:
        assert client.ping()
    assert get(f"{found['api_url']}/v1/events") == 401
    assert get(f"{found['api_url']}/v1/events", Authorization=f"Bearer {found['api_key']}") == 200
    assert get(f"{found['api_url']}/v1/events?tenant=acme", Authorization=f"Bearer {found['operator_key']}") == 200


def test_no_process_has_what_it_began_with_collected_again_and_again(up: Up) -> None:
    logs = up.connection["logs"]
    for role in ("api", "relay", "worker-expiry", "worker-delivery", "worker-upkeep", "scan"):
        log = Path(logs[role])
        wait_until(lambda: '"set_up"' in log.read_text(), what=f"{role} has set up")  # noqa: B023 - waits here
        said = [json.loads(line) for line in log.read_text().splitlines() if '"set_up"' in line]
        assert all(each["kept"] > 10_000 for each in said), role


def test_what_it_prints_is_the_connection_and_on_standard_error_what_happens(up: Up) -> None:
    wait_until(lambda: "\n}\n" in up.said(), what="it said how to get in")
    said = up.said()
    assert said.startswith(f"Starting duehook in {up.home}.\n")
    assert "The API listens on port" in said and "DUEHOOK_API_PORT is 0" in said
    assert json.loads(said[said.index("{") : said.rindex("}") + 1])["api_key"] == up.connection["api_key"]


def test_a_second_up_in_the_same_home_is_refused(up: Up) -> None:
    second = duehook("up", home=up.home)
    assert second.returncode == 1
    assert second.stderr == (
        f"duehook: A duehook (pid {up.process.pid}) already runs in {up.home}: stop it first, or set DUEHOOK_HOME "
        "to another folder.\n"
    )
    assert up.connection["pids"], "and the first one never notices"


def test_commands_find_it_by_its_home(up: Up) -> None:
    listed = duehook("keys", "list", "--json", home=up.home)
    assert {key["tenant"] for key in json.loads(listed.stdout)} == {"default", "*"}
    status = json.loads(duehook("status", "--json", home=up.home).stdout)
    assert status["broker"] == {"reachable": True, "error": None}
    assert len(status["workers"]) == 2 + len(os.sched_getaffinity(0))
    assert status["adapters"]["queue"] == {"share": 100, "processes": 1, "lacking": []}
    assert status["adapters"]["scan"] == {"share": 0, "processes": 1, "lacking": []}


@pytest.mark.parametrize("role", ["api", "relay", "worker-expiry", "worker-delivery", "scan", "beat", "flower"])
def test_a_child_that_dies_is_started_again(up: Up, role: str) -> None:
    before = up.pids
    os.kill(before[role][0], signal.SIGKILL)
    wait_until(lambda: up.pids != before and len(up.pids[role]) == len(before[role]), deadline=30, what="it ran again")
    assert before[role][0] not in up.pids[role]
    assert f"{role} was ended by SIGKILL; it is started again in " in up.said()
    assert {name: pids for name, pids in up.pids.items() if name != role} == {
        name: pids for name, pids in before.items() if name != role
    }


@pytest.mark.parametrize("role", ["postgres", "redis"])
def test_an_embedded_server_that_dies_is_started_again_with_its_data(up: Up, role: str) -> None:
    before = up.connection
    with psycopg.connect(before["database_url"], autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept AS SELECT 1 AS number")
    os.kill(before["pids"][role][0], signal.SIGKILL)
    wait_until(lambda: up.pids[role] not in ([], before["pids"][role]), deadline=30, what="it ran again")
    assert (up.connection["database_url"], up.connection["broker_url"]) == (
        before["database_url"],
        before["broker_url"],
    )
    wait_until(lambda: answers(f"{before['api_url']}/readyz"), deadline=30, what="the API was ready again")
    with psycopg.connect(before["database_url"]) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (1,)


def test_the_data_outlives_a_drain_a_kill_and_an_interrupted_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home) as first:
        known = first.connection
        hold_a_seat(known["database_url"])
        assert first.end(signal.SIGTERM) == 0, first.said()
    assert "Draining" in first.said() and "Killed" not in first.said()
    assert not left_of(home) and not (home / "connection.json").exists()
    assert not [log for log in (home / "logs").iterdir() if b"Traceback" in log.read_bytes()]

    with running(home, json=False) as second:
        assert {name: second.connection[name] for name in LASTING} == {name: known[name] for name in LASTING}
        assert seats(known["database_url"]) == [("rsv_1", "held")]
        wait_until(lambda: "\nHome " in second.said(), what="it said where everything is")
        for line in (
            f"API      {known['api_url']}",
            f"API key  {known['api_key']} ",
            f"Flower   {known['flower_url']}",
        ):
            assert f"\n{line}" in second.said()
        second.end(signal.SIGKILL)
        wait_until(lambda: not left_of(home), deadline=30, what="all its processes were gone")
    assert (home / "connection.json").exists(), "nobody was there to remove it"
    refused = duehook("keys", "list", home=home)
    assert refused.returncode == 1 and "the database does not answer" in refused.stderr

    killed = ready_files(home)
    third = Up(home)
    wait_until(lambda: ready_files(home) - killed, deadline=60, what="some of its processes were ready")
    assert third.end(signal.SIGINT) == 0, third.said()
    assert not left_of(home) and not (home / "connection.json").exists()


LASTING = ["api_url", "flower_url", "flower_password", "api_key", "operator_key", "database_url", "broker_url"]


def ready_files(home: Path) -> set[str]:
    try:
        return {file.read_text() for file in (home / "run").glob("*.ready")}
    except FileNotFoundError:  # removed meanwhile
        return set()


def hold_a_seat(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO duehook.reservations (tenant, id, resource, expires_at) "
            "VALUES ('default', 'rsv_1', 'seat', now() + interval '1 day')"
        )


def seats(database_url: str) -> list[tuple[str, str]]:
    with psycopg.connect(database_url) as connection:
        return connection.execute("SELECT id, status FROM duehook.reservations").fetchall()


def test_a_signal_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    up = Up(home)
    wait_until(lambda: (home / "lock").exists(), what="it had begun")
    assert up.end(signal.SIGTERM) == 0, up.said()
    assert "Traceback" not in up.said()
    assert not left_of(home)


def test_given_servers_are_used_and_it_serves_on_when_nobody_reads_what_it_prints(
    tmp_path: Path, database_url: str, broker_url: str
) -> None:
    home = tmp_path / "home"
    reader, writer = os.pipe()
    settings = {"home": home, "api_port": 0, "flower_port": 0, "database_url": database_url, "broker_url": broker_url}
    process = subprocess.Popen([*DUEHOOK, "up"], env=environment(**settings), stdout=writer, stderr=writer)
    os.close(writer)
    os.close(reader)
    try:
        wait_until((home / "connection.json").exists, deadline=60, what="it was ready")
        found = json.loads((home / "connection.json").read_text())
        assert (found["database_url"], found["broker_url"]) == (database_url, broker_url)
        assert not {"postgres", "redis"} & found["pids"].keys()
        assert not (home / "postgres").exists() and not (home / "redis").exists()
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert not left_of(home)


def test_a_port_that_was_asked_for_and_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused = duehook("up", home=tmp_path / "home", api_port=port)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"duehook: Port {port} of 127.0.0.1 is taken: end the program that listens there, "
        "or set DUEHOOK_API_PORT to another port, or to 0 for any free one.\n"
    )
    assert not left_of(tmp_path / "home")


@pytest.mark.parametrize(
    ("settings", "code", "sentence"),
    [
        ({"deadline_seconds": "60"}, 2, "duehook: DUEHOOK_DEADLINE_SECONDS (60) must be less than"),
        ({"prot": "1"}, 2, "duehook: DUEHOOK_PROT is not a setting of duehook; did you mean"),
        ({"database_url": "postgresql://127.0.0.1:1/d"}, 1, "duehook: PostgreSQL at 127.0.0.1:1 can't be used"),
        ({"broker_url": "redis://127.0.0.1:1/0"}, 1, "duehook: Redis at 127.0.0.1:1 can't be used"),
        ({"home": "/proc/nowhere"}, 1, "duehook: The home folder /proc/nowhere can't be used"),
    ],
)
def test_what_can_t_work_is_refused_in_one_sentence(
    tmp_path: Path, settings: dict[str, str], code: int, sentence: str
) -> None:
    refused = duehook("up", **{"home": tmp_path / "home", **settings})
    assert (refused.returncode, refused.stderr.count("\n")) == (code, 1), refused.stderr
    assert refused.stderr.startswith(sentence)
    assert not left_of(tmp_path / "home")


def test_its_secrets_key_is_rotated_by_a_list_in_the_home(tmp_path: Path) -> None:
    """As the help of `duehook keys reencrypt` says, with the pauses that one machine allows itself."""
    home = tmp_path / "home"
    new, kept = "a newer key of this home with 32 characters or more", home / "secrets.key"
    with running(home) as up:
        at = f"{up.connection['api_url']}/v1/endpoints"
        client = httpx.Client(headers={"Authorization": f"Bearer {up.connection['api_key']}"}, timeout=30)
        made = client.post(at, json={"url": "https://shop.example/", "event_types": ["*"], "headers": {"x-a": "1"}})
        assert made.status_code == 201, made.text
    kept.write_text(f"{new}, {kept.read_text()}\n")
    with running(home):
        first, again = (duehook("keys", "reencrypt", "--json", home=home) for _ in range(2))
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    counts = [
        tuple(json.loads(each.stdout)[name] for name in ("headers_resealed", "secrets_resealed", "key_moved"))
        for each in (first, again)
    ]
    assert counts == [(1, 1, True), (0, 0, False)]
    kept.write_text(new)
    with running(home) as up:
        at = f"{up.connection['api_url']}/v1/endpoints/{made.json()['id']}"
        assert client.get(f"{at}/secret").json() == {"secret": made.json()["secret"]}
        assert client.get(at).json()["headers"] == {"x-a": "********"}
    client.close()
