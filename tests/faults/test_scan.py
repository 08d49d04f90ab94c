"""The scan as a process, with no broker anywhere: whole, killed, overrun, told to stop."""

import json
import signal
import statistics
import subprocess
import sys
import time

import httpx
import pytest
from sqlalchemy import Engine, text

from app.core import keys, reservations
from app.core.reservations import Hold
from app.domain.states import KeyScope
from app.ledger import service
from app.local.access import free_port
from app.local.postgres import Postgres
from tests.faults.test_crash_table import all_delivered, stalled
from tests.ledgers import TENANT, rows, some_events
from tests.processes import PATIENT, Service
from tests.receivers import Answer, Received, Receiver
from tests.service import duehook
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def running(running: Service) -> Service:
    """The same without a broker."""
    del running.environment["DUEHOOK_BROKER_URL"]
    return running


@pytest.fixture
def scanning(engine: Engine, running: Service) -> Service:
    """All the work is the scan's."""
    set_share(engine, 100)
    return running


def set_share(engine: Engine, share: int) -> None:
    with engine.begin() as connection:
        service.set_scan_share(connection, share)


def hold(engine: Engine, seconds: float, count: int = 1) -> None:
    with engine.begin() as connection:
        for _ in range(count):
            reservations.hold(connection, TENANT, Hold("seat", hold_seconds=seconds))


def expired(engine: Engine) -> int:
    return int(rows(engine, "SELECT count(*) FROM duehook.reservations WHERE status = 'expired'")[0])


def published(engine: Engine) -> bool:
    """Whether everything in the outbox has been moved to the end of a publish lease."""
    return bool(rows(engine, "SELECT bool_and(publications > 0) FROM duehook.outbox")[0])


def an_api(running: Service) -> str:
    """The URL of an API that is ready."""
    port = free_port()
    running.environment["DUEHOOK_API_PORT"] = str(port)
    process, url = running.start("app.api"), f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        assert process.running, process.log.read_text()
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    wait_until(is_ready, deadline=30, what="the API is ready")
    return url


def test_with_no_broker_anywhere_a_deployment_is_whole(engine: Engine, running: Service, receiver: Receiver) -> None:
    """Hold → expire → event → delivery → retry, upkeep, with API, scan and PostgreSQL, and nothing else."""
    url = an_api(running)
    process = running.scan().wait_ready()
    wait_until(lambda: "nobody_notices" in process.log.read_text(), what="it says what is missing")
    damage(engine)
    with engine.begin() as connection:
        _, key = keys.create(connection, TENANT, KeyScope.OPERATOR)
    receiver.answer = lambda received: Answer(503 if received.attempt == 1 else 200)
    with httpx.Client(base_url=f"{url}/v1", headers={"Authorization": f"Bearer {key}"}) as client:
        endpoint = {"url": receiver.url, "event_types": ["*"], "secret": receiver.secret, "retry_schedule": [0.3]}
        assert client.post("/endpoints", json=endpoint).status_code == 201
        assert client.post("/reservations", json={"resource": "seat", "hold_seconds": 0.7}).status_code == 201
        assert client.post("/events", json={"type": "order.placed", "data": 1, "delay_seconds": 2}).status_code == 202
        chosen = duehook("wakeups", "set", "scan", database_url=running.environment["DUEHOOK_DATABASE_URL"])
        assert (chosen.returncode, chosen.stderr) == (0, "")
        wait_until(lambda: all_delivered(engine, 2), deadline=30)
        events = {event["type"]: event["id"] for event in client.get("/events").json()["data"]}
    assert expired(engine) == 1
    assert sorted(events) == ["order.placed", "reservation.expired"]
    assert receiver.events == dict.fromkeys(events.values(), 2)
    wait_until(lambda: repaired(engine), deadline=20, what="upkeep has made what was missing")
    text_of_log = process.log.read_text()
    assert text_of_log.count("nobody_notices") == 1
    assert process.stop() == 0
    told = [json.loads(line) for line in process.log.read_text().splitlines()]
    assert [(each["event"], each.get("share")) for each in told if each["event"].startswith("scan_")] == [
        ("scan_began", 0),
        ("scan_share", 100),
        ("scan_ended", None),
    ]
    assert "Traceback" not in text_of_log


def damage(engine: Engine) -> None:
    """A held reservation without its outbox row, and a day of attempts that has no place."""
    hold(engine, 3600)
    with engine.begin() as connection:  # as nobody can but the owner, with the guards switched off
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text("DELETE FROM duehook.outbox"))
        connection.execute(text("SELECT duehook.make_attempt_days(0)"))
        for table in attempt_days(engine)[1:]:
            connection.execute(text(f"DROP TABLE duehook.{table}"))


def attempt_days(engine: Engine) -> list[str]:
    return rows(
        engine,
        "SELECT relname FROM pg_class WHERE relname ~ '^attempts_[0-9]+$' AND relkind = 'r' ORDER BY relname",
    )


def repaired(engine: Engine) -> bool:
    found = rows(engine, "SELECT count(*) FROM duehook.outbox WHERE kind = 'reservation'")
    return found == [1] and len(attempt_days(engine)) >= 8


def test_it_loads_nothing_of_celery_s(running: Service) -> None:
    code = "import workers.scan, sys; print(*{'celery', 'kombu', 'redis'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_scheduled_deliveries_arrive_moments_after_they_are_due(
    engine: Engine, scanning: Service, receiver: Receiver
) -> None:
    arrived: dict[str, float] = {}

    def note(received: Received) -> Answer:
        arrived[received.event_id] = time.time()
        return Answer()

    receiver.answer = note
    receiver.register(engine)
    scanning.scan().wait_ready()
    for n in range(200):
        some_events(engine, 1, delay_seconds=2.1 + n / 100)
    wait_until(lambda: all_delivered(engine, 200), deadline=30)
    with engine.connect() as connection:
        due = connection.execute(text("SELECT id, extract(epoch FROM due_at)::float8 FROM duehook.events")).all()
    late = [arrived[event] - at for event, at in due]
    print(f"late by {1000 * statistics.median(late):.1f} ms at the median, {1000 * max(late):.1f} ms at most")
    assert min(late) > 0
    assert statistics.median(late) < 0.1


def test_what_a_killed_scan_was_sending_or_held_heals_through_another(
    engine: Engine, scanning: Service, receiver: Receiver
) -> None:
    """At the end of the lease, attempt + 1 and the same bytes; at the end of the publish lease, as if it were new."""
    receiver.register(engine)
    arrived, _ = stalled(receiver)
    first = scanning.scan().wait_ready()
    (sent,) = some_events(engine)
    assert arrived.wait(15)
    some_events(engine, 5, delay_seconds=1.8)
    hold(engine, 1.8, count=5)
    wait_until(lambda: rows(engine, "SELECT count(*) FROM duehook.outbox WHERE publications = 1") == [10])
    first.kill()
    assert len(receiver.received) == 1, "killed before anything else was due"
    receiver.answer = lambda _: Answer()
    scanning.scan()
    wait_until(lambda: all_delivered(engine, 11), deadline=30)
    assert expired(engine) == 5
    (event,) = rows(engine, "SELECT id FROM duehook.events WHERE seq = :seq", seq=sent)
    assert receiver.events.pop(event) == 2
    twice = [each for each in receiver.received if each.event_id == event]
    assert ([each.attempt for each in twice], len({each.body for each in twice})) == ([1, 2], 1)
    assert rows(engine, "SELECT outcome FROM duehook.attempts WHERE outcome <> 'delivered'") == ["abandoned"]
    assert rows(engine, "SELECT count(*) FROM duehook.deliveries WHERE attempt = 1") == [10]


def test_a_scan_told_to_stop_ends_what_is_in_the_air_and_hands_back_what_it_holds(
    engine: Engine, scanning: Service, receiver: Receiver
) -> None:
    receiver.register(engine)
    arrived, release = stalled(receiver)
    first = scanning.scan().wait_ready()
    some_events(engine)
    assert arrived.wait(15)
    some_events(engine, 5, delay_seconds=1.8)
    wait_until(lambda: rows(engine, "SELECT min(publications) FROM duehook.outbox WHERE publications > 0") == [1])
    first.send(signal.SIGTERM)
    wait_until(lambda: rows(engine, "SELECT count(*) FROM duehook.outbox WHERE look_at <= now()") == [5])
    release.set()
    wait_until(lambda: not first.running)
    assert first.stop() == 0
    assert rows(engine, "SELECT count(*) FROM duehook.deliveries WHERE status = 'delivered'") == [1]
    assert len(receiver.received) == 1


def test_a_scan_interrupted_while_it_stops_leaves_what_is_in_the_air_to_its_lease(
    engine: Engine, scanning: Service, receiver: Receiver
) -> None:
    scanning.environment |= PATIENT
    receiver.register(engine)
    arrived, _ = stalled(receiver)
    first = scanning.scan().wait_ready()
    some_events(engine)
    assert arrived.wait(15)
    first.send(signal.SIGTERM)
    wait_until(lambda: not first.ready_file.exists(), what="it has heard")
    first.send(signal.SIGTERM)  # says nothing new
    assert first.running
    first.send(signal.SIGINT)
    wait_until(lambda: not first.running, what="it has ended long before its deadline")
    assert rows(engine, "SELECT status FROM duehook.deliveries") == ["leased"]


def test_two_scans_side_by_side_do_everything_once(engine: Engine, scanning: Service, receiver: Receiver) -> None:
    scanning.environment |= PATIENT
    receiver.register(engine)
    both = [each.wait_ready() for each in (scanning.scan(), scanning.scan())]  # or one does it all before the other
    some_events(engine, 600)
    hold(engine, 1, count=200)
    wait_until(lambda: all_delivered(engine, 800), deadline=40)
    assert set(receiver.events.values()) == {1}
    assert rows(engine, "SELECT max(attempt) FROM duehook.deliveries") == [1]
    assert all('"taken":' in each.log.read_text() for each in both)


def test_of_a_divided_work_each_part_is_noticed_by_its_adapter_alone(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str
) -> None:
    """No worker runs: what the relay notices stays published, and what the scan notices is done.

    Nothing is parked: that would wait for its endpoint, which is noticed by one of them.
    """
    running.environment |= PATIENT | {"DUEHOOK_BROKER_URL": broker_url}
    running.environment |= {"DUEHOOK_MAX_IN_FLIGHT": "600", "DUEHOOK_MAX_IN_FLIGHT_EACH": "300"}
    set_share(engine, 30)
    receiver.register(engine)
    running.scan().wait_ready()
    running.relay().wait_ready()
    some_events(engine, 300)
    done = "SELECT d.id FROM duehook.deliveries d WHERE d.status = 'delivered'"
    scanned = set(rows(engine, "SELECT id FROM duehook.deliveries WHERE duehook.bucket(id) < 30"))
    wait_until(lambda: set(rows(engine, done)) == scanned and published(engine), deadline=30)
    assert 0 < len(scanned) < 300
    assert len(rows(engine, "SELECT ref FROM duehook.outbox")) == 300 - len(scanned)


def test_deliveries_to_receivers_that_hang_do_not_hold_up_expiries(
    engine: Engine, scanning: Service, receiver: Receiver
) -> None:
    scanning.environment |= PATIENT | {"DUEHOOK_MAX_IN_FLIGHT": "8"}  # half of them for one endpoint
    receiver.register(engine, event_types=["order.*"])
    arrived, release = stalled(receiver)
    scanning.scan().wait_ready()
    some_events(engine, 100)
    assert arrived.wait(15)
    wait_until(lambda: len(receiver.received) == 4)
    hold(engine, 0.5, count=50)
    hold(engine, 1, count=50)
    wait_until(lambda: expired(engine) == 100, deadline=20)
    late = rows(engine, "SELECT extract(epoch FROM max(updated_at - expires_at))::float8 FROM duehook.reservations")[0]
    assert late < 1
    assert len(receiver.received) == 4
    receiver.answer = lambda _: Answer()
    release.set()
    wait_until(lambda: all_delivered(engine, 100), deadline=30)


def test_a_database_that_is_away_is_waited_for(
    engine: Engine, scanning: Service, receiver: Receiver, postgres: Postgres
) -> None:
    receiver.register(engine)
    process = scanning.scan().wait_ready()
    some_events(engine, 5)
    some_events(engine, 5, delay_seconds=3)
    hold(engine, 3, count=5)
    wait_until(lambda: len(receiver.received) == 5)
    postgres.kill()
    wait_until(lambda: process.log.read_text().count("scan_waits") >= 4, deadline=20)
    postgres.start()
    engine.dispose()
    wait_until(lambda: all_delivered(engine, 15), deadline=30)
    assert set(receiver.events.values()) == {1}
    assert process.running
    assert "Traceback" not in process.log.read_text()
