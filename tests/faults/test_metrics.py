"""`/metrics` of a host is right however many processes there are, and its sums never fall when one ends or dies."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, text

from tests.integration.test_suspects import some_suspects
from tests.ledgers import rows, some_events
from tests.processes import Process, Service
from tests.receivers import Answer, Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scraped(url: str, name: str, token: str | None = None, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(url, headers=headers, timeout=10)
    assert answer.status_code == 200
    return sum(
        sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


@contextmanager
def api_of(running: Service) -> Iterator[str]:
    running.environment["DUEHOOK_API_PORT"] = str(free_port())
    process = running.start("app.api")
    url = f"http://127.0.0.1:{running.environment['DUEHOOK_API_PORT']}/metrics"
    wait_until(lambda: answers(url), deadline=30, what="the API answers")
    yield url
    process.stop()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def deliver(engine: Engine, count: int) -> None:
    some_events(engine, count)
    wait_until(
        lambda: rows(engine, "SELECT count(*) FROM duehook.deliveries WHERE status <> 'delivered'") == [0],
        deadline=60,
        what="all are delivered",
    )


def test_sums_cover_every_process_and_never_fall(engine: Engine, running: Service, receiver: Receiver) -> None:
    receiver.register(engine)
    relay, first = running.relay().wait_ready(), running.worker("delivery").wait_ready()
    with api_of(running) as url:

        def delivered() -> float:
            return scraped(url, "duehook_attempts_total", outcome="delivered")

        def ends(worker: Process, how: signal.Signals) -> Process:
            """Its successor; what the former counted is there before it ends, or is told by its end."""
            if how is signal.SIGKILL:
                wait_until(lambda: delivered() == len(receiver.received), deadline=30, what="it has told")
                worker.kill()
            else:
                worker.stop()
            return running.worker("delivery").wait_ready()

        deliver(engine, 5)
        second = ends(first, signal.SIGTERM)
        wait_until(lambda: delivered() == 5, deadline=30, what="what the first counted stays")
        deliver(engine, 3)
        third = ends(second, signal.SIGKILL)
        deliver(engine, 2)
        wait_until(lambda: delivered() == 10, deadline=30, what="and what the second did")
        assert scraped(url, "duehook_delivery_lag_seconds_count") == 10
        assert scraped(url, "duehook_claim_to_commit_seconds_count") == 10
        assert scraped(url, "duehook_published_ids_total", lane="delivery") >= 10
        assert scraped(url, "duehook_processes", role="worker delivery") >= 1
        assert scraped(url, "duehook_ledger_up") == scraped(url, "duehook_broker_up") == 1
        assert scraped(url, "duehook_broker_used_bytes") > 0
        third.stop()
        relay.stop()


def test_each_end_of_a_delivery_and_each_expiry_is_counted(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine, retry_schedule=[0.01])
    receiver.answer = lambda received: Answer(404 if received.attempt == 1 else 500)
    running.relay(), running.worker("delivery", "expiry")
    with engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO duehook.reservations (tenant, resource, expires_at)
                    VALUES ('rival', 'truck', duehook.now() + interval '0.3 s')""")
        )
    some_events(engine)
    with api_of(running) as url:
        wait_until(
            lambda: scraped(url, "duehook_dead_total", reason="attempts_exhausted") == 1,
            deadline=60,
            what="the death is counted",
        )
        wait_until(lambda: scraped(url, "duehook_expiry_lag_seconds_count") == 1, deadline=60, what="the expiry too")
        assert scraped(url, "duehook_attempts_total", outcome="refused") == 1
        assert scraped(url, "duehook_attempts_total", outcome="failed") == 1
        assert scraped(url, "duehook_retry_age_seconds_count") == 1
        assert scraped(url, "duehook_dead_letters") == 1


def test_a_death_of_age_is_counted_by_its_reason(engine: Engine, running: Service, receiver: Receiver) -> None:
    running.environment["DUEHOOK_MAX_AGE_SECONDS"] = "2"
    receiver.register(engine)
    receiver.answer = lambda _: Answer(500)  # to be tried again in 5 s, when it is too old
    running.relay(), running.worker("delivery")
    with api_of(running) as url:
        some_events(engine)
        wait_until(
            lambda: scraped(url, "duehook_dead_total", reason="age_exhausted") == 1, deadline=60, what="it is counted"
        )
        assert scraped(url, "duehook_attempts_total", outcome="failed") == 1


def test_what_is_late_shows_before_anybody_works(engine: Engine, running: Service, receiver: Receiver) -> None:
    receiver.register(engine)
    some_events(engine)
    with api_of(running) as url:
        wait_until(
            lambda: scraped(url, "duehook_delivery_oldest_due_age_seconds") > 3, deadline=30, what="it has become late"
        )
        assert scraped(url, "duehook_backlog", lane="delivery") == 1
        assert scraped(url, "duehook_outbox_oldest_due_age_seconds") > 0
        assert scraped(url, "duehook_reservation_oldest_due_age_seconds") == 0


def test_a_process_can_serve_its_own_and_asks_for_the_token(running: Service) -> None:
    port = free_port()
    running.environment |= {"DUEHOOK_METRICS_PORT": str(port), "DUEHOOK_METRICS_TOKEN": "sesame"}
    relay = running.relay().wait_ready()
    url = f"http://127.0.0.1:{port}/metrics"
    refused = httpx.get(url)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert scraped(url, "duehook_publish_failures_total", token="sesame") == 0
    assert httpx.get(f"http://127.0.0.1:{port}/", headers={"authorization": "Bearer sesame"}).status_code == 404
    second = running.relay()
    wait_until(lambda: not second.running, deadline=30, what="the second has found the port taken")
    assert "DUEHOOK_METRICS_PORT" in second.log.read_text() and "Traceback" not in second.log.read_text()
    assert second.exit_code() == 1
    relay.stop()


def test_what_a_child_sent_is_in_the_sums_of_its_host(engine: Engine, running: Service, receiver: Receiver) -> None:
    receiver.register(engine)
    some_suspects(engine, 1)
    running.relay(), running.worker("delivery")
    with api_of(running) as url:
        wait_until(
            lambda: scraped(url, "duehook_attempts_total", outcome="delivered") == 1, deadline=60, what="it is counted"
        )
