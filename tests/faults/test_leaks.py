"""A whole run in which everything goes wrong once, and then a look at every place where people look: nothing leaks.

A secret, a payload and a webhook URL are planted as canaries; only what an owner asks the API for may show them.
"""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
import redis

from app.local.access import free_port
from tests.leaks import (
    MARK,
    Loud,
    Tap,
    arguments_of,
    canary,
    dump,
    ed25519_secret,
    flower_pages,
    found,
    hmac_secret,
    poison,
    sessions,
    tapped,
)
from tests.messages import EMBEDDED, HEADERS, envelope
from tests.service import Up, duehook
from tests.service import running as running_up
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SETTINGS: dict[str, Any] = {
    "log_level": "debug",
    "allowed_networks": "127.0.0.0/8",
    "deadline_seconds": 2,
    "lease_seconds": 3,
    "publish_lease_seconds": 2,
    "horizon_seconds": 2,
    "sweep_seconds": 1,
    "visibility_timeout_seconds": 20,
    "secrets_key": canary("SettingsKey").ljust(40, "k"),
    "flower_login": f"admin:{canary('FlowerPassword')}",
    "metrics_token": canary("MetricsToken"),
}
PATHS = ("200", "404", "500", "429", "302", "401", "hang", "garbage", "close")
HEADER = {"x-token": canary("Header"), "authorization": f"Bearer {canary('Bearer')}"}
DATA = {"card": canary("Payload"), "password": canary("PayloadPassword")}
REFUSED = canary("Refused")
QUOTING = canary("Quoted")
# A row that PostgreSQL refuses and quotes; and a time in which each statement is answered with a quotation.
REFUSE = f"ALTER TABLE duehook.events ADD CONSTRAINT test_refused CHECK (data::text NOT LIKE '%{REFUSED}%') NOT VALID"
QUOTE = f"""CREATE OR REPLACE FUNCTION duehook.now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
            BEGIN
                IF current_query() LIKE '/* poison.record */%' THEN RETURN clock_timestamp(); END IF;
                RAISE EXCEPTION 'refused' USING DETAIL = '{QUOTING}';
            END $$"""
POISON = [
    f'{{"password": "{canary("Broker")}", "url": "https://hooks.example/{canary("BrokerUrl")}"}}'.encode(),
    envelope([[[1], [1]], {"token": canary("BrokerToken")}, EMBEDDED], {"task": "somebody.else"}),
    envelope([[[1], [1]], {"api_key": canary("BrokerKey")}, EMBEDDED], {}),
    envelope({"secret": canary("BrokerSecret")}, HEADERS | {"task": "duehook.nothing"}),
]


@pytest.fixture(scope="module")
def loud() -> Iterator[Loud]:
    with closing(Loud()) as made:
        yield made


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    home = tmp_path_factory.mktemp("leaks") / "home"
    with running_up(home, **SETTINGS) as service:
        yield service
    written = {log.name: log.read_bytes() for log in (home / "logs").iterdir()}
    nothing_in(written, ())  # nor when all of it drains and stops


@dataclass(frozen=True, slots=True)
class Run:
    """What Redis was told in its course, and what Flower showed when a task had raised."""

    tap: Tap
    flower: dict[str, bytes]


@pytest.fixture(scope="module")
def run(up: Up, loud: Loud) -> Iterator[Run]:
    """It is over by now."""
    with tapped(up.connection["broker_url"]) as tap:
        yield Run(tap, go_through_everything(up, loud))


@pytest.fixture(scope="module")
def exact(up: Up) -> tuple[str, ...]:
    """Secrets that the service has made itself."""
    connection = up.connection
    passwords = [connection[url].split("@")[0].rpartition(":")[2] for url in ("database_url", "broker_url")]
    return (*passwords, connection["api_key"], connection["operator_key"], hmac_secret()[6:], ed25519_secret()[5:])


def client_of(up: Up) -> httpx.Client:
    connection = up.connection
    return httpx.Client(
        base_url=connection["api_url"], headers={"authorization": f"Bearer {connection['api_key']}"}, timeout=30
    )


def open_ledger(up: Up) -> psycopg.Connection[Any]:
    return psycopg.connect(up.connection["database_url"], autocommit=True)


def values(up: Up, statement: str) -> list[Any]:
    with suppress(psycopg.OperationalError), open_ledger(up) as connection:
        return [row[0] for row in connection.execute(statement)]
    return []


def go_through_everything(up: Up, loud: Loud) -> dict[str, bytes]:
    """Each kind of end that a delivery, an expiry, a message and a process may come to; returns Flower's pages."""
    with client_of(up) as client:
        subscribe(client, loud)
        damage(up)
        post(client)
        refuse_a_row(up, client)
    attempted = "SELECT count(DISTINCT outcome) FROM duehook.attempts"
    wait_until(lambda: values(up, attempted)[0] >= 9, deadline=60, what="every outcome was recorded")
    logged(up, "row_refused")
    send_poison(up)
    have_every_statement_refused(up)
    shown = wait_until(lambda: flower_of(up), deadline=60, what="Flower showed a task that raised")
    restart(up, "postgres")
    restart(up, "redis")
    with client_of(up) as client:
        wait_until(lambda: is_posted(client), deadline=60, what="it works again")
    stop(up, "worker-delivery")
    return shown


def flower_of(up: Up) -> dict[str, bytes]:
    """Empty until there is something to see: a restart of the broker may have it begin anew."""
    connection = up.connection
    pages = flower_pages(connection["flower_url"], (connection["flower_user"], connection["flower_password"]))
    return pages if any(b"FailedError" in page for name, page in pages.items() if "/task/" in name) else {}


def subscribe(client: httpx.Client, loud: Loud) -> None:
    """To receivers of every kind, with a literal address that nobody may be sent to among them."""
    closed = free_port()
    urls = [loud.url(path) for path in PATHS] + [
        loud.url("200", "https"),  # speaks no TLS
        loud.url("200").replace(str(loud.port), str(closed)),
        f"https://nowhere.invalid/{canary('Path')}?token={canary('Query')}",
        *(f"{loud.url('200')}&{name}" for name in ("damaged", "sealed", "private")),
    ]
    for number, url in enumerate(urls):
        signing = {"signing": "ed25519", "secret": ed25519_secret()} if number % 2 else {"secret": hmac_secret()}
        wanted = {"url": url, "event_types": ["*"], "headers": HEADER, "retry_schedule": [1, 1], **signing}
        assert client.post("/v1/endpoints", json=wanted).status_code == 201


def damage(up: Up) -> None:
    """What only somebody with the database in his hands can do to an endpoint."""
    with open_ledger(up) as connection:
        like = "WHERE url LIKE '%%' || %s"
        connection.execute(
            f"UPDATE duehook.endpoints SET url = 'gopher://x/' || %s {like}",
            [canary("Damaged"), "&damaged"],
        )
        connection.execute(
            f"UPDATE duehook.endpoints SET headers = %s {like}",
            [canary("Sealed").encode(), "&sealed"],
        )
        connection.execute(
            f"UPDATE duehook.endpoints SET url = 'http://10.0.0.1/' || %s {like}",
            [canary("Private"), "&private"],
        )


def post(client: httpx.Client) -> None:
    assert client.post("/v1/events", json={"type": "order.placed", "data": DATA}).status_code == 202
    held = {"resource": canary("Resource"), "hold_seconds": 1, "data": DATA}
    assert client.post("/v1/reservations", json=held).status_code == 201


def refuse_a_row(up: Up, client: httpx.Client) -> None:
    """An expiry whose event the database refuses, quoting all of it."""
    with open_ledger(up) as connection:
        connection.execute(REFUSE)
    held = {"resource": "seat", "hold_seconds": 0.5, "data": {"note": REFUSED}}
    assert client.post("/v1/reservations", json=held).status_code == 201


def send_poison(up: Up) -> None:
    with redis.Redis.from_url(up.connection["broker_url"]) as client:
        client.lpush("duehook:delivery", *POISON)
        client.publish("duehook:/0.celery.pidbox", json.dumps({"password": canary("Control")}))
    count = "SELECT count(*) FROM duehook.poison_messages WHERE reason <> 'raised'"
    wait_until(lambda: values(up, count) == [len(POISON)], deadline=30, what="all of it was kept")


def have_every_statement_refused(up: Up) -> None:
    """Until a task has raised because of it: the sweep that beat sends is one."""
    with open_ledger(up) as connection:
        (usual,) = connection.execute("SELECT pg_get_functiondef('duehook.now'::regproc)").fetchone() or ("",)
        connection.execute(QUOTE)
        logged(up, "task_raised")
        connection.execute(usual)


def restart(up: Up, role: str) -> None:
    before = up.pids[role]
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: up.pids.get(role) not in (None, before), deadline=30, what=f"{role} was started again")


def stop(up: Up, role: str) -> None:
    before = up.pids[role][0]
    os.kill(before, signal.SIGTERM)
    wait_until(lambda: before not in up.pids.get(role, [before]), deadline=30, what=f"{role} was started again")


def is_posted(client: httpx.Client) -> bool:
    with suppress(httpx.HTTPError):
        return client.post("/v1/events", json={"type": "order.placed", "data": DATA}).status_code == 202
    return False


def logs(up: Up) -> dict[str, bytes]:
    return {role: Path(log).read_bytes() for role, log in up.connection["logs"].items()}


def logged(up: Up, event: str) -> None:
    wait_until(
        lambda: any(f'"event":"{event}"'.encode() in log for log in logs(up).values()),
        deadline=60,
        what=f"{event} was logged",
    )


def nothing_in(places: dict[str, bytes], exact: tuple[str, ...]) -> None:
    assert all(places.values()), {name: len(raw) for name, raw in places.items()}
    leaks = {name: sorted(leaked) for name, raw in places.items() if (leaked := found(raw, exact))}
    assert not leaks


def test_the_run_was_one(up: Up, loud: Loud, run: Run) -> None:
    """Everything that is looked for went through: or nothing below would mean anything."""
    for name in ("Path", "Query", "Header", "Bearer", "Payload"):
        assert canary(name).encode() in loud.heard
    with open_ledger(up) as connection:
        whole = dump(connection).decode()
        outcomes = {row[0] for row in connection.execute("SELECT DISTINCT outcome FROM duehook.attempts")}
    for name in ("Payload", "Resource", "Location", "Damaged", "Refused"):
        assert canary(name) in whole
    assert b"duehook.deliver" in run.tap.heard
    assert {"delivered", "rejected", "redirected", "refused", "throttled", "failed", "unreached", "unknown"} < outcomes
    assert "blocked" in outcomes
    text = b"".join(logs(up).values()).decode()
    for event in ("attempt", "unsendable", "endpoint_sealed_under_another_key", "endpoint_unusable", "row_refused"):
        assert f'"event":"{event}"' in text, event
    for event in ("task_raised", "poison_message", "relay_waits", "control_message_dropped"):
        assert f'"event":"{event}"' in text, event


def test_no_log_holds_any_of_it(up: Up, run: Run, exact: tuple[str, ...]) -> None:
    said = up.said()
    shown = said[said.index("\n{") : said.rindex("\n}")]  # what connects to it, on purpose
    nothing_in({**logs(up), "up": said.replace(shown, "").encode()}, exact)


def test_no_celery_argument_holds_any_of_it(run: Run, exact: tuple[str, ...]) -> None:
    """As Redis was told, the poison that this test has sent itself set aside."""
    own = [line for line in run.tap.heard.splitlines() if b"LPUSH duehook:delivery" in line and found(line, ())]
    assert len(own) == 1
    lines = [line for line in run.tap.heard.splitlines() if line not in own and b"pidbox" not in line]
    # Poison goes through unacknowledged, wrapped as it came: what matters is who else says such a thing.
    ours = [line for line in lines if b"x-duehook-poison" not in line and b"unacked" not in line]
    nothing_in({"messages": b"\n".join(ours)}, exact)


def test_flower_shows_none_of_it(run: Run, exact: tuple[str, ...]) -> None:
    nothing_in(run.flower, exact)


def test_neither_a_command_nor_ps_nor_a_session_shows_any_of_it(up: Up, run: Run, exact: tuple[str, ...]) -> None:
    shown = {
        " ".join(command): duehook(*command, home=up.home)
        for command in (["status"], ["status", "--json"], ["keys", "list"], ["wakeups", "show"])
    }
    assert all(done.returncode == 0 for done in shown.values()), shown
    with open_ledger(up) as connection:
        nothing_in(
            {
                **{command: (done.stdout + done.stderr).encode() for command, done in shown.items()},
                "ps": arguments_of(up.pids),
                "pg_stat_activity": sessions(connection),
            },
            exact,
        )


def test_what_the_api_shows_without_a_key_and_its_metrics_hold_none_of_it(
    up: Up, run: Run, exact: tuple[str, ...]
) -> None:
    with httpx.Client(base_url=up.connection["api_url"], timeout=30) as client:
        pages = {path: client.get(path) for path in ("/healthz", "/readyz", "/openapi.json", "/docs")}
        pages["/metrics"] = client.get("/metrics", headers={"authorization": f"Bearer {SETTINGS['metrics_token']}"})
    assert all(page.status_code == 200 for path, page in pages.items() if path != "/metrics")
    nothing_in({path: page.content for path, page in pages.items()}, exact)


def test_what_is_kept_of_poison_is_redacted(up: Up, run: Run, exact: tuple[str, ...]) -> None:
    with open_ledger(up) as connection:
        nothing_in({"poison_messages": poison(connection)}, exact)


def test_secrets_and_header_values_are_in_no_table_as_they_are(up: Up, run: Run, exact: tuple[str, ...]) -> None:
    """Payloads and URLs are: the ledger is where they live."""
    sealed = {canary(name) for name in ("Header", "Bearer", "HmacBytes", "EdBytes", "SettingsKey", "FlowerPassword")}
    with open_ledger(up) as connection:
        whole = dump(connection)
    assert not {leak for leak in found(whole, exact) if leak in sealed or leak in exact}


HOSTILE: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/v1/endpoints", {"json": {"url": f"ftp://{MARK}", "event_types": ["*"]}}),
    ("POST", "/v1/endpoints", {"json": {"url": f"http://u:{MARK}@h.example/{MARK}", "event_types": ["*"]}}),
    ("POST", "/v1/endpoints", {"json": {"url": f"http://10.0.0.1/{MARK}", "event_types": ["*"]}}),
    ("POST", "/v1/endpoints", {"json": {"url": f"http://{MARK} .example/", "event_types": ["*"]}}),
    ("POST", "/v1/endpoints", {"json": {"url": "http://h.example/", "event_types": [f"{MARK} "]}}),
    ("POST", "/v1/endpoints", {"json": {"url": "http://h.example/", "event_types": ["*"], "secret": f"whsec_{MARK}"}}),
    ("POST", "/v1/endpoints", {"json": {"url": "http://h.example/", "event_types": ["*"], "secret": MARK}}),
    ("POST", "/v1/endpoints", {"json": {"url": "http://h.example/", "event_types": ["*"], "signing": MARK}}),
    (
        "POST",
        "/v1/endpoints",
        {"json": {"url": "http://h.example/", "event_types": ["*"], "headers": {"x-token": f"{MARK}\n"}}},
    ),
    ("POST", "/v1/endpoints", {"json": {"url": "http://h.example/", "event_types": ["*"], "retry_schedule": [MARK]}}),
    ("POST", "/v1/endpoints", {"json": {"url": "http://h.example/", "event_types": ["*"], "max_in_flight": MARK}}),
    ("POST", "/v1/events", {"json": {"type": f"{MARK} ", "data": {}}}),
    ("POST", "/v1/events", {"json": {"type": "order.placed", "data": MARK, "key": 5}}),
    ("POST", "/v1/events", {"json": {"type": "order.placed", "data": {}, "deliver_at": MARK}}),
    ("POST", "/v1/events", {"content": f'{{"type":"order.placed","data":{{"a":"{MARK}"'}),
    ("POST", "/v1/events", {"content": f'{{"type":"order.placed","data":{{"a":"{MARK}}}}}'}),
    ("POST", "/v1/events", {"content": f'{{"type":"a","data":{"[" * 600}"{MARK}"{"]" * 600}}}'}),
    ("POST", "/v1/events", {"content": f'[{{"type":"a","data":"{MARK}"}},5]'}),
    ("POST", "/v1/reservations", {"json": {"resource": "seat", "hold_seconds": MARK}}),
    ("POST", "/v1/reservations", {"json": {"resource": [MARK], "hold_seconds": 5}}),
    ("POST", "/v1/reservations", {"json": {"id": f"{MARK}.", "resource": "seat", "hold_seconds": 5}}),
    ("POST", f"/v1/endpoints/end_{MARK}/rotate-secret", {"json": {"overlap_seconds": MARK}}),
    ("PATCH", f"/v1/endpoints/end_{MARK}", {"json": {"url": f"http://{MARK}"}}),
    ("GET", f"/v1/events/{MARK}", {}),
    ("GET", f"/v1/events?limit={MARK}", {}),
    ("GET", f"/v1/events?cursor={MARK}", {}),
    ("GET", f"/v1/deliveries?status={MARK}", {}),
    ("GET", f"/v1/events?tenant={MARK}", {}),
    ("GET", f"/{MARK}", {}),
    ("DELETE", f"/v1/events/{MARK}", {}),
    ("POST", "/v1/events", {"json": {"type": "a", "data": 1}, "headers": {"authorization": f"Bearer dhk_{MARK}"}}),
    ("POST", "/v1/events", {"content": MARK, "headers": {"content-type": f"text/{MARK}"}}),
]


def test_no_problem_says_a_value_again_that_it_refuses(up: Up, run: Run, exact: tuple[str, ...]) -> None:
    answers = {}
    with client_of(up) as client:
        for number, (method, path, sent) in enumerate(HOSTILE):
            headers = {"content-type": "application/json", **sent.pop("headers", {})}
            answer = client.request(method, path, headers=headers, **sent)
            assert 400 <= answer.status_code < 500, (method, path, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            answers[f"{number} {method} {path.split('?')[0]}"] = answer.content
    answers["what is no HTTP"] = say_to(up.connection["api_url"], f"{MARK}\r\n{MARK}: {MARK}\r\n\r\n".encode())
    nothing_in(answers, exact)
    nothing_in(logs(up), exact)


def say_to(url: str, raw: bytes) -> bytes:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(raw)
        return connection.recv(65536)
