"""Everything that duehook does, on real processes that have the rights of their programs and no others."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis
from psycopg import sql

from app.ledger.logins import ROLES, login_of
from tests.contract.served import NO_TLS
from tests.invariants import assert_invariants
from tests.plain import column, rows, value
from tests.processes import QUICK
from tests.receivers import Answer, Received, Receiver
from tests.service import Up, duehook, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]
SETTINGS: dict[str, Any] = {name.removeprefix("DUEHOOK_").lower(): each for name, each in QUICK.items()}
PATIENCE = 60.0
REFUSALS = ("permission denied", "InsufficientPrivilege", "row-level security")  # logs name classes, no SQLSTATE
QUEUE = "duehook:delivery"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service of its own; at the end its ledger is whole and no process was refused anything."""
    with running(tmp_path_factory.mktemp("up") / "home", **SETTINGS) as service:
        yield service
        assert_invariants(service.connection["database_url"])
        for role, log in service.connection["logs"].items():
            said = Path(log).read_text(errors="replace")
            assert not [each for each in REFUSALS if each in said], f"{role} was refused something, see {log}"


@pytest.fixture
def owner(up: Up) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(up.connection["database_url"], autocommit=True) as connection:
        yield connection


@pytest.fixture
def client(up: Up) -> Iterator[httpx.Client]:
    """An operator of all tenants; each test names its own."""
    headers = {"Authorization": f"Bearer {up.connection['operator_key']}"}
    with httpx.Client(base_url=up.connection["api_url"], headers=headers, timeout=30, verify=NO_TLS) as made:
        yield made


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    with closing(made):
        yield made


class Tenant:
    """Asks for one tenant, and takes nothing for an answer but what was expected."""

    def __init__(self, client: httpx.Client, name: str) -> None:
        self._client = client
        self._name = name

    def ask(self, method: str, path: str, body: object = None, *, wanted: int = 200, **headers: str) -> Any:
        answer = self._client.request(
            method,
            path,
            json=body,
            params={"tenant": self._name},
            headers={k.replace("_", "-"): v for k, v in headers.items()},
        )
        assert answer.status_code == wanted, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def subscribe(self, receiver: Receiver, **members: object) -> str:
        wanted = {"url": receiver.url, "event_types": ["*"], "secret": receiver.secret, **members}
        return str(self.ask("POST", "/v1/endpoints", wanted, wanted=201)["id"])

    def post(self, **members: object) -> str:
        return str(self.ask("POST", "/v1/events", {"type": "order.placed", "data": {}, **members}, wanted=202)["id"])

    def deliveries(self, event: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("GET", f"/v1/events/{event}/deliveries")["data"]
        return found

    def wait_for(self, event: str, *statuses: str) -> list[dict[str, Any]]:
        what = f"{event} is {statuses}"
        wait_until(
            lambda: [each["status"] for each in self.deliveries(event)] == list(statuses), deadline=PATIENCE, what=what
        )
        return self.deliveries(event)

    def finished(self, job: dict[str, Any]) -> dict[str, Any]:
        wait_until(
            lambda: self.ask("GET", f"/v1/jobs/{job['id']}")["status"] == "completed",
            deadline=PATIENCE,
            what=job["kind"],
        )
        found: dict[str, Any] = self.ask("GET", f"/v1/jobs/{job['id']}")
        return found


def test_each_process_is_connected_as_its_program_and_beat_and_flower_not_at_all(
    up: Up, owner: psycopg.Connection[Any]
) -> None:
    connected = rows(
        owner,
        """SELECT DISTINCT split_part(application_name, ' ', 2) AS program, usename::text AS login
             FROM pg_stat_activity WHERE application_name LIKE 'duehook %%'""",
    )
    assert {(each["program"], each["login"]) for each in connected} == {
        *((program, login_of(program)) for program in ROLES),
        ("scan", login_of("worker")),
    }
    for role in ("beat", "flower"):
        (pid,) = up.pids[role]
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"DUEHOOK_DATABASE_URL" not in environ and b"DUEHOOK_SECRETS_KEY" not in environ


def test_reservations_are_held_confirmed_released_and_expired_and_told_of(
    client: httpx.Client, receiver: Receiver
) -> None:
    tenant = Tenant(client, "holding")
    tenant.subscribe(receiver)
    hold = {"resource": "seat", "hold_seconds": 60}
    confirmed, released = (tenant.ask("POST", "/v1/reservations", hold, wanted=201)["id"] for _ in range(2))
    tenant.ask("POST", f"/v1/reservations/{confirmed}/confirm")
    tenant.ask("POST", f"/v1/reservations/{released}/release")
    short = {"resource": "seat", "hold_seconds": 0.5, "exclusive": True}
    expired = tenant.ask("POST", "/v1/reservations", short, wanted=201)["id"]
    wait_until(lambda: len(receiver.received) == 3, deadline=PATIENCE, what="three transitions are told of")
    assert {json.loads(each.body)["key"].split(":")[:2][1] for each in receiver.received} == {
        confirmed,
        released,
        expired,
    }
    tenant.ask("POST", f"/v1/reservations/{expired}/confirm", wanted=409)
    # And one that an overdue exclusive holder makes room for, and one that expires by a late confirm.
    tenant.ask("POST", "/v1/reservations", short, wanted=201)


def test_events_go_out_now_later_in_lists_once_by_key_and_not_at_all_when_cancelled(
    client: httpx.Client, receiver: Receiver
) -> None:
    tenant = Tenant(client, "posting")
    tenant.subscribe(receiver)
    now, later, far = tenant.post(), tenant.post(delay_seconds=4), tenant.post(delay_seconds=3600)
    many = tenant.ask("POST", "/v1/events", [{"type": "a.b", "data": n, "key": f"k{n}"} for n in range(20)], wanted=202)
    again = tenant.ask("POST", "/v1/events", {"type": "a.b", "data": 3, "key": "k3"})
    assert again["id"] == many["data"][3]["id"]
    for _ in range(2):
        assert tenant.ask("POST", "/v1/events", {"type": "x", "data": 1}, wanted=202, idempotency_key="once")["id"]
    tenant.ask("POST", f"/v1/events/{far}/cancel")
    for event in (now, later):
        tenant.wait_for(event, "delivered")
    wait_until(lambda: len(receiver.received) == 23, deadline=PATIENCE, what="all of them have come, each once")


def test_a_producer_s_sql_is_delivered(
    up: Up, owner: psycopg.Connection[Any], client: httpx.Client, receiver: Receiver
) -> None:
    tenant = Tenant(client, "sql")
    tenant.subscribe(receiver)
    owner.execute("CREATE ROLE shop LOGIN PASSWORD 'x'")
    assert duehook("keys", "grant-sql", "shop", "sql", home=up.home).returncode == 0
    with psycopg.connect(up.connection["database_url"], user="shop", password="x") as producer:
        producer.execute("INSERT INTO duehook.events (tenant, type, data) VALUES ('sql', 'order.paid', '1')")
        producer.execute(
            """INSERT INTO duehook.reservations (tenant, resource, expires_at)
               VALUES ('sql', 'seat', duehook.now() + interval '1 s')"""
        )
    wait_until(lambda: len(receiver.received) == 2, deadline=PATIENCE, what="the event and the expiry have come")


def test_what_fails_is_tried_again_dies_and_is_redriven_replayed_retried_and_cancelled(
    client: httpx.Client, receiver: Receiver
) -> None:
    tenant = Tenant(client, "failing")
    status = {"now": 500}
    receiver.answer = lambda _: Answer(status["now"])
    endpoint = tenant.subscribe(receiver, retry_schedule=[0.2])
    dying = [tenant.post() for _ in range(4)]
    for event in dying:
        tenant.wait_for(event, "dead")
    (first, *_), (second, *_) = (tenant.deliveries(event) for event in dying[:2])
    assert len(tenant.ask("GET", f"/v1/deliveries/{first['id']}")["attempts"]) == 2
    assert len(tenant.ask("GET", "/v1/dead-letters")["data"]) == 4
    status["now"] = 200
    tenant.ask("POST", f"/v1/deliveries/{first['id']}/retry")
    tenant.ask("POST", f"/v1/dead-letters/{second['id']}/redrive", wanted=202)
    for event in dying[:2]:
        tenant.wait_for(event, "delivered")
    redrive = tenant.ask("POST", "/v1/dead-letters/redrive", {"filter": {"endpoint_id": endpoint}}, wanted=202)
    assert tenant.finished(redrive)["result"]["reopened"] == 2
    for event in dying:
        tenant.wait_for(event, "delivered")
    late = Receiver()
    with closing(late):
        catching_up = tenant.subscribe(late)
        since = {"since": "2020-01-01T00:00:00Z", "status": ["delivered"]}
        replay = tenant.ask("POST", f"/v1/endpoints/{catching_up}/replay", since, wanted=202)
        tenant.finished(replay)
        wait_until(lambda: set(dying) <= set(late.events), deadline=PATIENCE, what="it has what it missed")
    receiver.answer = lambda _: Answer(503, {"retry-after": "3600"})
    (waiting, *_) = [each for each in tenant.deliveries(tenant.post()) if each["endpoint_id"] == endpoint]
    path = f"/v1/deliveries/{waiting['id']}"
    wait_until(
        lambda: [(now := tenant.ask("GET", path))["attempt"], now["status"]] == [1, "scheduled"],
        deadline=PATIENCE,
        what="it waits for its second try: in the air it could only be asked to be cancelled",
    )
    tenant.ask("POST", f"{path}/cancel")


def test_endpoints_are_changed_paced_disabled_enabled_pinged_rotated_and_deleted(
    client: httpx.Client, receiver: Receiver
) -> None:
    tenant = Tenant(client, "owning")
    receiver.verify = lambda _body, _headers: None
    other = Receiver(receiver.secret)
    endpoint = tenant.subscribe(receiver, headers={"x-token": "a"}, rate_per_second=50, max_in_flight=1)
    path = f"/v1/endpoints/{endpoint}"
    with closing(other):
        told = tenant.subscribe(other, event_types=["endpoint.*"])
        events = [tenant.post() for _ in range(10)]
        for event in events:
            tenant.wait_for(event, "delivered")
        tenant.ask("PATCH", path, {"max_in_flight": 5, "rate_per_second": None, "signing": "ed25519"})
        tenant.ask("POST", f"{path}/ping", wanted=202)
        tenant.ask("GET", f"{path}/secret")
        tenant.ask("POST", f"{path}/rotate-secret", {"overlap_seconds": 60})
        tenant.ask("POST", f"{path}/rotate-secret", {"overlap_seconds": 0})
        tenant.ask("POST", f"{path}/disable")
        wait_until(lambda: len(other.received) == 1, deadline=PATIENCE, what="the others are told")
        waiting = tenant.post()
        time.sleep(0.5)  # it may be parked meanwhile, and need not be
        tenant.ask("POST", f"{path}/enable")
        tenant.wait_for(waiting, "delivered")
        receiver.answer = lambda _: Answer(401)
        tenant.post()
        wait_until(lambda: tenant.ask("GET", path)["flagged"], deadline=PATIENCE, what="it is flagged")
        receiver.answer = lambda _: Answer(410)
        tenant.post()
        wait_until(lambda: tenant.ask("GET", path)["status"] == "disabled", deadline=PATIENCE, what="gone disables it")
        wait_until(lambda: len(other.received) == 2, deadline=PATIENCE, what="the others are told of that too")
        tenant.ask("DELETE", path, wanted=204)
        tenant.ask("DELETE", f"/v1/endpoints/{told}", wanted=204)


def test_an_event_and_a_tenant_are_erased(
    owner: psycopg.Connection[Any], client: httpx.Client, receiver: Receiver, up: Up
) -> None:
    tenant = Tenant(client, "leaving")
    tenant.subscribe(receiver)
    made = json.loads(duehook("keys", "create", "leaving", "--json", home=up.home).stdout)
    owner.execute("INSERT INTO duehook.sql_grants VALUES ('duehook_producer', 'leaving')")
    event = tenant.post(data={"name": "Ada"})
    tenant.post(delay_seconds=3600)
    tenant.wait_for(event, "delivered")
    tenant.ask("POST", "/v1/reservations", {"resource": "r", "hold_seconds": 60}, wanted=201, idempotency_key="r")
    tenant.finished(tenant.ask("POST", f"/v1/events/{event}/erase", wanted=202))
    assert tenant.ask("GET", f"/v1/events/{event}")["erased_at"]
    job = tenant.ask("DELETE", "/v1/tenants/leaving", wanted=202)
    tenant.finished(job)
    for table in ("events", "deliveries", "reservations", "endpoints", "api_keys", "sql_grants", "kept_answers"):
        left = sql.SQL("SELECT FROM duehook.{} WHERE tenant = 'leaving'").format(sql.Identifier(table))
        assert owner.execute(left).rowcount == 0, table
    answer = httpx.get(f"{client.base_url}/v1/events", headers={"Authorization": f"Bearer {made['key']}"})
    assert answer.status_code == 401
    log = tenant.ask("GET", "/v1/audit")["data"]
    assert {"tenant.erased", "event.erased"} <= {each["action"] for each in log}


def test_poison_in_the_broker_is_kept_and_a_poison_delivery_and_a_lost_broker_are_survived(
    up: Up, owner: psycopg.Connection[Any], client: httpx.Client, receiver: Receiver
) -> None:
    tenant = Tenant(client, "hurt")
    tenant.subscribe(receiver)
    with redis.Redis.from_url(up.connection["broker_url"]) as broker:
        broker.lpush(QUEUE, b"garbage", b"garbage")
        seen = "SELECT coalesce(max(seen), 0) FROM duehook.poison_messages"
        wait_until(lambda: value(owner, seen) == 2, deadline=PATIENCE, what="it is kept")
        broker.flushall()
    tenant.wait_for(tenant.post(), "delivered")


def test_the_scan_takes_over_upkeep_repairs_and_the_commands_go_on_as_the_owner(
    up: Up, owner: psycopg.Connection[Any], client: httpx.Client, receiver: Receiver
) -> None:
    tenant = Tenant(client, "scanned")
    tenant.subscribe(receiver)
    assert duehook("wakeups", "set", "scan", home=up.home).returncode == 0
    tenant.wait_for(tenant.post(), "delivered")
    assert duehook("wakeups", "shadow", "--candidate", "queue", home=up.home).returncode == 0
    assert duehook("wakeups", "set", "queue", home=up.home).returncode == 0
    held = tenant.ask("POST", "/v1/reservations", {"resource": "r", "hold_seconds": 1800}, wanted=201)["id"]
    owner.execute("DELETE FROM duehook.outbox WHERE ref = (SELECT seq FROM duehook.reservations WHERE id = %s)", [held])
    repaired = "SELECT count(*) FROM duehook.repairs WHERE kind = 'reservation_without_row'"
    wait_until(lambda: value(owner, repaired) == 1, deadline=PATIENCE, what="upkeep has repaired it")
    owner.execute(
        """INSERT INTO duehook.kept_answers (request, tenant, body, status, answer, created_at)
           VALUES (sha256('old'), 'scanned', sha256(''), 200, '', now() - interval '2 days')"""
    )
    old = "SELECT count(*) FROM duehook.kept_answers WHERE request = sha256('old')"
    wait_until(lambda: value(owner, old) == 0, deadline=PATIENCE, what="upkeep has pruned old answers")
    owner.execute(
        """INSERT INTO duehook.audit_log (seq, tenant, actor, action, at)
           VALUES (1, 'scanned', 'cli:me', 'key.created', now() - interval '900 days')"""
    )
    pruned = "SELECT count(*) FROM duehook.audit_log WHERE seq = 1"
    wait_until(lambda: value(owner, pruned) == 0, deadline=PATIENCE, what="and old entries of the audit log")
    for command in (
        ["status"],
        ["keys", "list"],
        ["dead", "list", "--tenant", "failing"],
        ["audit", "list"],
        ["keys", "reencrypt"],
    ):
        done = duehook(*command, "--json", home=up.home)
        assert done.returncode == 0, done.stderr
    assert column(owner, "SELECT DISTINCT unready FROM duehook.processes") == [None]


def test_a_worker_that_is_killed_in_the_air_loses_nothing(up: Up, client: httpx.Client, receiver: Receiver) -> None:
    tenant = Tenant(client, "killed")
    tenant.subscribe(receiver)
    release = threading.Event()
    receiver.answer = lambda _: Answer(hold=release)
    event = tenant.post()
    wait_until(lambda: len(receiver.received) == 1, deadline=PATIENCE, what="it is in the air")
    for pid in up.pids["worker-delivery"]:
        os.kill(pid, signal.SIGKILL)
    release.set()
    receiver.answer = _fine
    tenant.wait_for(event, "delivered")


def _fine(_: Received) -> Answer:
    return Answer()
