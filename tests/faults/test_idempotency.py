"""Requests with an `Idempotency-Key` whose API or client goes away in the middle: one effect, and nobody is blocked."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import Engine

from app.core import keys
from app.domain.states import KeyScope
from app.local.access import free_port
from tests.conftest import Connect
from tests.ledgers import TENANT, rows
from tests.processes import Process, Service
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
POSTED = '{"type":"order.placed","data":1}'
EVENTS = "SELECT 1 FROM duehook.events"
AT_THE_END = """SELECT 1 FROM pg_stat_activity
    WHERE query LIKE '/* idempotency.keep */%' AND wait_event_type = 'Lock' AND datname = current_database()"""

FIRSTS = """SELECT 1 FROM pg_locks JOIN pg_database d ON d.oid = database
    WHERE locktype = 'advisory' AND datname = current_database()"""


class Api:
    """A process that serves, and how to post to it."""

    def __init__(self, running: Service, key: str) -> None:
        self.port = free_port()
        running.environment["DUEHOOK_API_PORT"] = str(self.port)
        self.process: Process = running.start("app.api")
        self.headers = {
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
            "idempotency-key": "k-1",
        }

    def wait_ready(self) -> "Api":
        wait_until(self._is_ready, deadline=30, what="the API is ready")
        return self

    def _is_ready(self) -> bool:
        assert self.process.running, self.process.log.read_text()
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def post(self) -> httpx.Response:
        url = f"http://127.0.0.1:{self.port}/v1/events"
        return httpx.post(url, content=POSTED, headers=self.headers, timeout=30)

    @contextmanager
    def posting(self) -> Iterator[None]:
        """The client hangs up at the end, without a look at the answer."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        head = f"POST /v1/events HTTP/1.1\r\nhost: x\r\n{lines}content-length: {len(POSTED)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port)) as stream:
            stream.sendall(head.encode() + POSTED.encode())
            yield


@pytest.fixture
def key(engine: Engine) -> str:
    with engine.begin() as connection:
        return keys.create(connection, TENANT, KeyScope.PRODUCER)[1]


@pytest.fixture
def holder(connect: Connect) -> psycopg.Connection[Any]:
    """Lets every request under a key have its effect, but not keep its answer, until it rolls back."""
    connection = connect()
    connection.execute("LOCK TABLE duehook.kept_answers IN EXCLUSIVE MODE")
    return connection


def test_an_api_killed_between_the_effect_and_its_commit_leaves_neither_and_blocks_nobody(
    engine: Engine, running: Service, holder: psycopg.Connection[Any], key: str
) -> None:
    dying, living = Api(running, key), Api(running, key)
    for each in (dying, living):
        each.wait_ready()
    with ThreadPoolExecutor(1) as another:
        lost = another.submit(dying.post)
        wait_until(lambda: rows(engine, AT_THE_END), what="the effect is there, uncommitted")
        dying.process.kill()
        with pytest.raises(httpx.TransportError):
            lost.result(10)
    still = living.post()
    assert (still.status_code, still.headers["retry-after"]) == (409, "1"), "its transaction has not ended"
    assert rows(engine, EVENTS) == []
    holder.rollback()
    wait_until(lambda: not rows(engine, FIRSTS), what="PostgreSQL has noticed that its client is gone")
    answer, again = living.post(), living.post()
    assert (answer.status_code, "idempotency-replayed" in answer.headers) == (202, False)
    assert (again.text, again.headers["idempotency-replayed"]) == (answer.text, "true")
    assert rows(engine, EVENTS) == [1]


def test_a_client_that_hung_up_before_the_answer_gets_it_when_it_comes_back(
    engine: Engine, running: Service, holder: psycopg.Connection[Any], key: str
) -> None:
    api = Api(running, key).wait_ready()
    with api.posting():
        wait_until(lambda: rows(engine, AT_THE_END), what="the effect is there, uncommitted")
    holder.rollback()
    wait_until(lambda: rows(engine, EVENTS), what="it was done nevertheless")
    answer = api.post()
    assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (202, "true")
    assert rows(engine, EVENTS) == [1]
