"""The broker restarted ten times under load, with and without its data."""

import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from sqlalchemy import Engine, text

from app.broker import PREFIX
from app.local.services import LocalServices
from app.local.valkey import Valkey
from tests.ledgers import TENANT, rows, some_events
from tests.processes import Service
from tests.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
RESTARTS = 10


@contextmanager
def load(engine: Engine) -> Iterator[None]:
    """Some 40 events and 20 reservations a second, half of the events and all reservations due in two seconds."""
    ended = threading.Event()

    def feed() -> None:
        while not ended.wait(0.1):
            with engine.begin() as connection:
                connection.execute(
                    text("""INSERT INTO duehook.events (tenant, type, data, due_at)
                    SELECT :tenant, 'order.placed', '{}', duehook.now() + make_interval(secs => n % 2 * 2)
                      FROM generate_series(1, 4) AS n"""),
                    {"tenant": TENANT},
                )
                connection.execute(
                    text("""INSERT INTO duehook.reservations (tenant, resource, expires_at)
                    SELECT :tenant, 'seat', duehook.now() + interval '2 s' FROM generate_series(1, 2)"""),
                    {"tenant": TENANT},
                )

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        ended.set()
        feeder.join()


def restart(valkey: Valkey, *, with_data: bool) -> None:
    valkey.kill()
    if not with_data:
        shutil.rmtree(valkey.folder / "appendonlydir")
    valkey.start()


def is_delivered(engine: Engine, event: int) -> bool:
    return rows(engine, "SELECT status FROM duehook.deliveries WHERE event = :event", event=event) == ["delivered"]


def latest(engine: Engine) -> float:
    """Seconds between due and done of the latest delivery and reservation."""
    (delivery,) = rows(
        engine,
        """SELECT extract(epoch FROM max(a.started_at - e.due_at))::float8 FROM duehook.attempts a
             JOIN duehook.deliveries d ON d.id = a.delivery JOIN duehook.events e ON e.seq = d.event
            WHERE a.number = 1""",
    )
    (reservation,) = rows(
        engine, "SELECT extract(epoch FROM max(updated_at - expires_at))::float8 FROM duehook.reservations"
    )
    return float(max(delivery, reservation))


def test_ten_restarts_of_the_broker_under_load_lose_nothing_repeat_nothing_and_cost_seconds(
    engine: Engine, running: Service, receiver: Receiver, services: LocalServices, broker_url: str
) -> None:
    """With a publish lease of a minute: no more than the restart itself may be waited for."""
    assert services.valkey is not None
    running.environment |= {"DUEHOOK_PUBLISH_LEASE_SECONDS": "60", "DUEHOOK_VISIBILITY_TIMEOUT_SECONDS": "90"}
    receiver.register(engine)
    processes = [running.relay(), running.worker("expiry"), running.worker("delivery")]
    for each in processes:
        each.wait_ready()
    fresh: list[float] = []
    with load(engine), redis.Redis.from_url(broker_url) as client:
        for n in range(RESTARTS):
            wait_until(lambda: client.hlen(PREFIX + "unacked") > 0, what="wake-ups are held by their ETA")
            restart(services.valkey, with_data=n % 2 == 0)
            back = time.monotonic()
            (event,) = some_events(engine)
            wait_until(lambda event=event: is_delivered(engine, event), deadline=5)  # type: ignore[misc]
            fresh.append(time.monotonic() - back)
    wait_until(lambda: rows(engine, "SELECT count(*) FROM duehook.outbox") == [0])
    print("fresh events after", [round(each, 2) for each in fresh], "latest", round(latest(engine), 2))
    assert all(each.running for each in processes)
    assert set(receiver.events.values()) == {1}
    assert statistics.median(fresh) < 2
    assert latest(engine) < 5
