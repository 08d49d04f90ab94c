"""How workers live through a database's restart, how they stop, and what the far future costs them."""

import os
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from kombu.connection import Connection
from sqlalchemy import Engine, text

from app import settings as settings_of
from app.broker import make_celery
from app.local.postgres import Postgres
from app.local.services import LocalServices
from tests.conftest import Connect
from tests.faults.test_crash_table import all_delivered, stalled
from tests.ledgers import TENANT, deliveries_of, rows, some_events
from tests.messages import wakeup
from tests.processes import Process, Service
from tests.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def patient(running: Service) -> Service:
    """Nothing that a process leaves behind is found by the end of a publish lease or of a visibility timeout."""
    running.environment |= {
        "DUEHOOK_HORIZON_SECONDS": "4",
        "DUEHOOK_PUBLISH_LEASE_SECONDS": "60",
        "DUEHOOK_VISIBILITY_TIMEOUT_SECONDS": "60",
    }
    return running


def hold(engine: Engine, count: int, seconds: float) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO duehook.reservations (tenant, resource, expires_at)
                SELECT :tenant, 'seat', duehook.now() + make_interval(secs => :seconds)
                  FROM generate_series(1, :count)"""),
            {"tenant": TENANT, "count": count, "seconds": seconds},
        )


def expired(engine: Engine) -> int:
    return int(rows(engine, "SELECT count(*) FROM duehook.reservations WHERE status = 'expired'")[0])


def all_published(engine: Engine) -> bool:
    return rows(engine, "SELECT min(publications) FROM duehook.outbox") == [1]


def test_a_restart_of_the_database_delays_what_falls_due_meanwhile_by_seconds(
    engine: Engine, patient: Service, receiver: Receiver, postgres: Postgres
) -> None:
    """With a publish lease of a minute: only that their workers keep the ids explains it."""
    receiver.register(engine, event_types=["order.*"])
    processes = [patient.relay(), patient.worker("expiry"), patient.worker("delivery")]
    for each in processes:
        each.wait_ready()
    hold(engine, 100, seconds=3)
    some_events(engine, 100, delay_seconds=3)
    wait_until(lambda: all_published(engine))
    nearly = "SELECT min(due_at) < duehook.now() + interval '0.5 s' FROM duehook.outbox"
    wait_until(lambda: rows(engine, nearly) == [True], what="they are nearly due")
    postgres.kill()
    for worker in processes[1:]:
        wait_until(lambda worker=worker: "database_away" in worker.log.read_text(), what=f"{worker.name} misses it")  # type: ignore[misc]
    postgres.start()
    back = time.monotonic()
    engine.dispose()
    wait_until(lambda: expired(engine) == 100 and all_delivered(engine, 100), deadline=8)
    print("seconds until all was final:", round(time.monotonic() - back, 2))
    assert set(receiver.events.values()) == {1}
    assert all(each.running for each in processes)


def busy_worker(engine: Engine, service: Service, arrived: threading.Event) -> Process:
    """With a send in the air, ids on its timer, and a message that Celery holds until its ETA."""
    service.relay()
    worker = service.worker("delivery").wait_ready()
    some_events(engine)
    assert arrived.wait(15)
    later(engine, "0.95 + n * 0.2")  # soon enough to be on the timer at once
    later(engine, "3.5 + n * 0")
    published = "SELECT count(*) FROM duehook.outbox WHERE publications = 1 AND due_at > duehook.now()"
    wait_until(lambda: rows(engine, published) == [10])
    return worker


def later(engine: Engine, seconds: str) -> None:
    """Five events in one message; `seconds` may be said in terms of `n`."""
    with engine.begin() as connection:
        connection.execute(
            text(f"""INSERT INTO duehook.events (tenant, type, data, due_at)
                SELECT :tenant, 'order.placed', '{{}}', duehook.now() + make_interval(secs => {seconds})
                  FROM generate_series(0, 4) AS n"""),
            {"tenant": TENANT},
        )


def told(worker: Process, *signals: signal.Signals) -> None:
    """Each to its whole group, as supervisors and terminals do."""
    for number in signals:
        os.killpg(worker.pid, number)
        time.sleep(0.2)  # two at once are one


def ended(worker: Process, within: float) -> int:
    """Its exit code."""
    wait_until(lambda: not worker.running, deadline=within, what=f"{worker.name} has ended")
    return worker.stop()


def test_a_warm_stop_records_what_is_in_the_air_and_nothing_waits_for_what_was_held(
    engine: Engine, patient: Service, receiver: Receiver
) -> None:
    """A second SIGTERM changes nothing."""
    receiver.register(engine)
    arrived, hold = stalled(receiver)
    worker = busy_worker(engine, patient, arrived)
    told(worker, signal.SIGTERM, signal.SIGTERM)
    hold.set()
    assert ended(worker, within=2 + 5) == 0
    assert status_of_the_first(engine) == "delivered"
    patient.worker("delivery").wait_ready()
    wait_until(lambda: all_delivered(engine, 11), deadline=6)
    assert set(receiver.events.values()) == {1}


def test_what_became_of_a_task_is_told_to_flower_also_when_the_worker_stops_at_once(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str
) -> None:
    receiver.register(engine)
    worker = running.worker("delivery").wait_ready()
    celery = make_celery(settings_of.load(broker_url=broker_url))
    (delivery,) = deliveries_of(engine, *some_events(engine))
    told: list[str] = []
    handlers = {"*": lambda event: told.append(event["type"])}
    with (
        celery.connection_for_read() as first,
        celery.events.Receiver(first, handlers=handlers).consumer_context(wakeup=False) as (connection, _, _),
        redis.Redis.from_url(broker_url) as client,
    ):
        wait_until(lambda: hear(connection) and listeners(client) == 2, what="it listens, as the worker does")
        client.lpush("duehook:delivery", wakeup([delivery], [0]))
        wait_until(lambda: receiver.events)
        assert worker.stop() == 0
        wait_until(lambda: hear(connection) and "task-succeeded" in told)
    assert told.count("task-received") == told.count("task-started") == 1


def test_a_broker_that_refuses_the_last_events_keeps_nobody_from_stopping(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str
) -> None:
    """By an answer, and not by a connection that is lost."""
    receiver.register(engine)
    worker = running.worker("delivery").wait_ready()
    (delivery,) = deliveries_of(engine, *some_events(engine))
    with redis.Redis.from_url(broker_url) as client:
        client.lpush("duehook:delivery", wakeup([delivery], [0]))
        wait_until(lambda: receiver.events)
        client.execute_command("ACL", "SETUSER", "default", "-publish")
        try:
            assert worker.stop() == 0
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+publish")
    assert "Error on stopping" not in worker.log.read_text()
    assert rows(engine, "SELECT status FROM duehook.deliveries") == ["delivered"]


def listeners(client: "redis.Redis") -> int:
    return sum(int(each["psub"]) for each in client.client_list())


def hear(connection: Connection) -> bool:
    with suppress(TimeoutError):
        connection.drain_events(timeout=0.1)
    return True


def test_what_a_killed_worker_held_comes_up_again_as_soon_as_it_is_known_to_be_silent(
    engine: Engine, patient: Service
) -> None:
    """With a publish lease of a minute: only that its silence is noticed explains it."""
    patient.relay()
    worker = patient.worker("expiry").wait_ready()
    hold(engine, 100, seconds=3)
    wait_until(lambda: all_published(engine))
    nearly = "SELECT min(due_at) < duehook.now() + interval '0.8 s' FROM duehook.outbox"
    wait_until(lambda: rows(engine, nearly) == [True], what="they are on its timer")
    worker.kill()
    patient.worker("expiry").wait_ready()
    killed = time.monotonic()
    wait_until(lambda: expired(engine) == 100, deadline=18)
    print("seconds until all was expired:", round(time.monotonic() - killed, 2))


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGQUIT], [signal.SIGINT, signal.SIGINT]],
    ids=["quit", "ctrl-c twice"],
)
def test_a_cold_stop_leaves_what_is_in_the_air_to_its_lease_and_nothing_else(
    engine: Engine, patient: Service, receiver: Receiver, signals: list[signal.Signals]
) -> None:
    """With tasks that wait for room, which are threads and can't be killed."""
    patient.environment |= {
        "DUEHOOK_DEADLINE_SECONDS": "4",
        "DUEHOOK_LEASE_SECONDS": "5",
        "DUEHOOK_MAX_IN_FLIGHT": "1",
    }
    receiver.register(engine)
    arrived, hold = stalled(receiver)
    worker = busy_worker(engine, patient, arrived)
    some_events(engine, 3)
    wait_until(lambda: not waiting_to_be_published(engine))
    told(worker, *signals)
    assert ended(worker, within=3) == 1
    assert status_of_the_first(engine) == "leased"
    hold.set()
    patient.worker("delivery").wait_ready()
    wait_until(lambda: all_delivered(engine, 14), deadline=12)
    assert Counter(receiver.events.values()) == {1: 13, 2: 1}
    assert rows(engine, "SELECT outcome FROM duehook.attempts WHERE number = 1 AND outcome <> 'delivered'") == [
        "abandoned"
    ]


def test_a_worker_stops_warm_though_the_broker_is_away(
    engine: Engine, patient: Service, receiver: Receiver, services: LocalServices
) -> None:
    assert services.valkey is not None
    receiver.register(engine)
    arrived, hold = stalled(receiver)
    worker = busy_worker(engine, patient, arrived)
    services.valkey.kill()
    told(worker, signal.SIGINT)
    hold.set()
    assert ended(worker, within=2 + 5) == 0
    services.valkey.start()
    assert status_of_the_first(engine) == "delivered"
    patient.worker("delivery").wait_ready()
    wait_until(lambda: all_delivered(engine, 11), deadline=8)
    assert set(receiver.events.values()) == {1}


def status_of_the_first(engine: Engine) -> str:
    return str(rows(engine, "SELECT status FROM duehook.deliveries ORDER BY event LIMIT 1")[0])


def waiting_to_be_published(engine: Engine) -> list[int]:
    unseen = "SELECT o.ref FROM duehook.outbox o JOIN duehook.deliveries d ON d.id = o.ref"
    return rows(engine, unseen + " WHERE o.publications = 0 AND d.status = 'scheduled'")


def test_a_hundred_thousand_reservations_six_hours_ahead_cost_no_process_memory(
    engine: Engine, running: Service, broker_url: str
) -> None:
    """They are rows, and nothing else, until they are nearly due."""
    processes = [running.relay(), running.worker("expiry")]
    for each in processes:
        each.wait_ready()
    with redis.Redis.from_url(broker_url) as client:
        hold(engine, 50, seconds=0.5)
        wait_until(lambda: expired(engine) == 50, what="everything is warm")
        before = [*(memory(each) for each in processes), used(client)]
        hold(engine, 100_000, seconds=6 * 3600)
        hold(engine, 50, seconds=2)
        wait_until(lambda: expired(engine) == 100, what="what is due goes on")
        after = [*(memory(each) for each in processes), used(client)]
        grown = [now - then for now, then in zip(after, before, strict=True)]
        print("relay, worker, Redis: MiB before", before, "after", after, "grown", grown)
        assert rows(engine, "SELECT count(*) FROM duehook.outbox WHERE publications > 0 OR taken IS NOT NULL") == [0]
        assert max(grown) < 5
    with engine.begin() as connection:  # an audit of so many takes minutes
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text("DELETE FROM duehook.outbox WHERE kind = 'reservation'"))
        connection.execute(text("DELETE FROM duehook.reservations WHERE status = 'held'"))


def memory(process: Process) -> float:
    """MiB resident."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return round(int(next(each for each in lines if each.startswith("VmRSS:")).split()[1]) / 1024, 2)


def used(client: "redis.Redis") -> float:
    return round(int(client.info("memory")["used_memory"]) / 1024**2, 2)


def test_a_message_is_acknowledged_only_after_its_ids_were_acted_on(
    engine: Engine, running: Service, broker_url: str, connect: Connect
) -> None:
    """Acting on them is stopped by a lock; as long as it lasts the broker has the message still."""
    running.worker("expiry").wait_ready()
    hold(engine, 1, 0)
    holder, watcher = connect(), connect(autocommit=True)
    holder.execute("LOCK TABLE duehook.reservations IN SHARE ROW EXCLUSIVE MODE")
    running.relay()
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%reservations.expire%'"
    )
    with redis.Redis.from_url(broker_url) as client:
        wait_until(lambda: watcher.execute(waiting).fetchone() == (1,), what="the worker acts on it")
        assert (client.llen("duehook:expiry"), client.hlen("duehook:unacked")) == (0, 1)
        holder.rollback()
        wait_until(lambda: rows(engine, "SELECT status FROM duehook.reservations") == ["expired"])
        wait_until(lambda: client.hlen("duehook:unacked") == 0, what="it is acknowledged")
