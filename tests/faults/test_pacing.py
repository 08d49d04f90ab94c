"""Endpoints that are slow, limited, failing or disabled, served by real workers, and the others beside them."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from app.core import endpoints
from app.ledger.sealing import Sealer
from tests.ledgers import TENANT, row, rows, some_events
from tests.processes import KEY, PATIENT, Service
from tests.receivers import Answer, Received, Receiver
from tests.waiting import wait_until

Notice = Callable[[], object]


@pytest.fixture
def other() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(params=["queue", "scan"])
def working(request: pytest.FixtureRequest, running: Service, engine: Engine) -> Service:
    """A relay and two delivery workers, or two scans."""
    if request.param == "scan":
        with engine.begin() as connection:
            connection.execute(text("UPDATE duehook.service SET scan_share = 100"))
        started = [running.scan(), running.scan()]
    else:
        started = [running.relay(), running.worker("delivery"), running.worker("delivery")]
    for each in started:
        each.wait_ready()
    return running


def statuses(engine: Engine, endpoint: int) -> Counter[str]:
    state = "CASE WHEN parked THEN 'parked' ELSE status END"
    return Counter(rows(engine, f"SELECT {state} FROM duehook.deliveries WHERE endpoint = :seq", seq=endpoint))


def done(engine: Engine, endpoint: int, count: int) -> Callable[[], bool]:
    return lambda: statuses(engine, endpoint) == {"delivered": count}


def change(engine: Engine, endpoint: int, **members: Any) -> None:
    with engine.begin() as connection:
        endpoints.change(connection, Sealer([KEY]), TENANT, endpoint, members)


def timed(receiver: Receiver) -> list[float]:
    """Fills with the times at which requests come."""
    times: list[float] = []

    def answer(_: Received) -> Answer:
        times.append(time.monotonic())
        return Answer()

    receiver.answer = answer
    return times


def most_within(times: list[float], seconds: float) -> int:
    return max(sum(first <= each < first + seconds for each in times) for first in times)


def test_a_receiver_that_hangs_holds_up_no_other_and_gets_everything_once_it_recovers(
    engine: Engine, working: Service, receiver: Receiver, other: Receiver
) -> None:
    hold = threading.Event()
    receiver.answer = lambda _: Answer(hold=hold)
    hanging, healthy = receiver.register(engine, retry_schedule=[1] * 50), other.register(engine)
    some_events(engine, 400)
    wait_until(done(engine, healthy, 400), deadline=30)
    wait_until(lambda: statuses(engine, hanging)["parked"] > 250, deadline=30)
    wait_until(lambda: row(engine, "paces", "endpoint", hanging)["closed_why"] == "failing", deadline=30)
    receiver.answer = lambda _: Answer()
    hold.set()
    wait_until(done(engine, hanging, 400), deadline=90)
    assert len({each.event_id for each in receiver.received}) == 400
    assert rows(engine, "SELECT count(*) FROM duehook.outbox WHERE kind <> 'endpoint'") == [0]


def test_workers_that_die_with_parked_deliveries_in_their_hands_strand_none(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    hold = threading.Event()
    receiver.answer = lambda _: Answer(hold=hold)
    running.environment |= {"DUEHOOK_MAX_IN_FLIGHT_EACH": "5"}
    endpoint = receiver.register(engine)
    relay, *workers = running.relay(), running.worker("delivery"), running.worker("delivery")
    for each in (relay, *workers):
        each.wait_ready()
    some_events(engine, 100)
    wait_until(lambda: statuses(engine, endpoint)["parked"] >= 80, deadline=30)
    for each in workers:
        each.kill()
    receiver.answer = lambda _: Answer()
    hold.set()
    running.worker("delivery")
    wait_until(done(engine, endpoint, 100), deadline=60)


def test_a_rate_holds_over_two_workers_and_a_change_of_it_counts_at_once(
    engine: Engine, working: Service, receiver: Receiver
) -> None:
    endpoint = receiver.register(engine, rate_per_second=10)
    times = timed(receiver)
    some_events(engine, 400)
    wait_until(lambda: len(times) >= 40, deadline=30)
    assert most_within(times, 1.0) <= 13, "ten, what is made up for, and the edges"
    assert times[39] - times[0] < 8, "and they do come ten a second"
    change(engine, endpoint, rate_per_second=0.1)
    wait_until(lambda: statuses(engine, endpoint)["leased"] == 0, what="what had its claim by then has been sent")
    slowed = len(times)
    changed = time.monotonic()
    wait_until(lambda: time.monotonic() > changed + 3)
    assert len(times) - slowed <= 1
    change(engine, endpoint, rate_per_second=500)
    wait_until(done(engine, endpoint, 400), deadline=30)


def test_a_limit_of_what_is_in_flight_holds_over_two_workers_and_is_used(
    engine: Engine, working: Service, receiver: Receiver
) -> None:
    endpoint = receiver.register(engine, max_in_flight=3)
    flying: list[int] = [0]
    most, lock = [0], threading.Lock()

    def answer(_: Received) -> Answer:
        with lock:
            flying[0] += 1
            most[0] = max(most[0], flying[0])
        time.sleep(0.05)
        with lock:
            flying[0] -= 1
        return Answer()

    receiver.answer = answer
    some_events(engine, 120)
    wait_until(done(engine, endpoint, 120), deadline=60)
    assert most[0] == 3


def test_a_retry_after_stops_the_whole_endpoint_until_then(
    engine: Engine, working: Service, receiver: Receiver, other: Receiver
) -> None:
    endpoint, healthy = receiver.register(engine), other.register(engine)
    times: list[float] = []

    def answer(_: Received) -> Answer:
        times.append(time.monotonic())
        return Answer(429, {"retry-after": "3"}) if len(times) == 1 else Answer()

    receiver.answer = answer
    some_events(engine)
    wait_until(lambda: row(engine, "paces", "endpoint", endpoint)["closed_why"] == "retry_after")
    some_events(engine, 50)
    wait_until(done(engine, healthy, 51))
    wait_until(done(engine, endpoint, 51), deadline=30)
    assert 2.9 <= times[1] - times[0] <= 6


def test_an_endpoint_that_only_fails_is_disabled_and_goes_on_where_it_was_when_enabled(
    engine: Engine, running: Service, receiver: Receiver, other: Receiver
) -> None:
    running.environment |= {"DUEHOOK_DISABLE_AFTER_DAYS": "0.00001"}
    for each in (running.relay(), running.worker("delivery")):
        each.wait_ready()
    receiver.answer = lambda _: Answer(308, {"location": "https://shop.example/hooks/"})
    endpoint = receiver.register(engine, event_types=["order.*"], retry_schedule=[1, 1, 1, 1, 1])
    other.register(engine, event_types=["endpoint.disabled"])
    some_events(engine, 12)
    wait_until(lambda: row(engine, "endpoints", "seq", endpoint)["status"] == "disabled", deadline=30)
    assert (
        "redirected (308 https://shop.example/hooks/)" in row(engine, "endpoints", "seq", endpoint)["disabled_reason"]
    )
    wait_until(lambda: b"https://shop.example/hooks/" in b"".join(each.body for each in other.received))
    wait_until(lambda: statuses(engine, endpoint) == {"parked": 12}, deadline=30)
    receiver.answer = lambda _: Answer()
    with engine.begin() as connection:
        endpoints.enable(connection, TENANT, endpoint)
    wait_until(done(engine, endpoint, 12), deadline=30)


def test_a_worker_that_stops_hands_on_what_waits_in_it(engine: Engine, running: Service, receiver: Receiver) -> None:
    running.environment |= PATIENT | {"DUEHOOK_MAX_IN_FLIGHT_EACH": "4", "DUEHOOK_PUBLISH_LEASE_SECONDS": "60"}
    hold = threading.Event()
    receiver.answer = lambda _: Answer(hold=hold)
    endpoint = receiver.register(engine)
    relay, first = running.relay(), running.worker("delivery")
    for each in (relay, first):
        each.wait_ready()
    some_events(engine, 60)
    wait_until(lambda: statuses(engine, endpoint)["leased"] == 4)
    first.send(signal.SIGTERM)
    receiver.answer = lambda _: Answer()
    running.worker("delivery")
    hold.set()
    wait_until(done(engine, endpoint, 60), deadline=30)
