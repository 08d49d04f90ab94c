"""What one tenant asks of the API is not another's delay."""

import threading
import time

import httpx
import psycopg

from app.api.app import CONNECTIONS
from tests.contract.served import Api
from tests.waiting import wait_until

ASKED = 2 * CONNECTIONS
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%reservations%'"


def test_a_tenant_whose_requests_all_wait_for_one_lock_leaves_the_others_room(api: Api) -> None:
    """Each would hold a connection for as long as a lock is waited for, and there are not as many as requests."""
    with api.client("acme") as acme, api.client("other") as other, psycopg.connect(api.database_url) as locker:
        held = acme.post("/v1/reservations", json={"resource": "truck", "hold_seconds": 600}).json()["id"]
        locker.execute("SELECT FROM duehook.reservations WHERE id = %s FOR UPDATE", [held])
        answered: list[int] = []
        threads = [threading.Thread(target=_confirm, args=(api, acme, held, answered)) for _ in range(ASKED)]
        for thread in threads:
            thread.start()
        with psycopg.connect(api.database_url, autocommit=True) as looking:
            wait_until(lambda: bool(_count(looking)), what="somebody waits for the lock")
            began = time.monotonic()
            for _ in range(5):
                assert other.post("/v1/events", json={"type": "a.b", "data": 1}).status_code == 202
            assert 0 < _count(looking) < CONNECTIONS
            assert time.monotonic() - began < 5
        locker.rollback()
        for thread in threads:
            thread.join(60)
        assert len(answered) == ASKED and set(answered) <= {200, 503}


def _confirm(api: Api, client: httpx.Client, id: str, answered: list[int]) -> None:
    answer = httpx.post(f"{api.url}/v1/reservations/{id}/confirm", headers=client.headers, timeout=60)
    answered.append(answer.status_code)


def _count(looking: "psycopg.Connection[tuple[int]]") -> int:
    (found,) = looking.execute(WAITING).fetchall()
    return found[0]
