"""Lists while others write: a number is given when a row is written, and rows are committed in another order.

A reader goes on below the last row of its page. So it sees a row that was committed late exactly once if its place is
below that, and not at all if its place has been passed, as with any row that arrives meanwhile; and it never loses or
repeats another row for that.
"""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, Engine, text

from app.domain.auditing import Action
from app.domain.identity import public_id
from app.domain.states import DeadReason, JobKind
from app.ledger import audit, deliveries, endpoints, events, jobs, replays, reservations
from app.ledger.database import connect_engine
from app.ledger.events import NewEvent
from tests.contract.documented import OPERATIONS
from tests.contract.served import Api, number_of
from tests.ledgers import TERMS, buried, claimed
from tests.waiting import wait_until

WRITERS, ROWS = 3, 20  # each writes so many
MOST = WRITERS * ROWS + 9  # rows of one test


@dataclass
class Source:
    """A list, and a way to write its next row into an open transaction; answers the id as the list has it."""

    path: str
    write: Callable[[Connection], str]
    query: dict[str, Any] = field(default_factory=dict)


Walk = list[tuple[list[str], set[str]]]  # pages, and what was committed before each was asked for
Insert = Callable[[Connection, str], str]


def a_reservation(connection: Connection, tenant: str) -> str:
    held = reservations.hold(connection, tenant, resource="seat", hold_seconds=60)
    assert isinstance(held, reservations.Reservation)
    return held.id


def an_event(connection: Connection, tenant: str) -> str:
    return public_id("evt", _event(connection, tenant))


def an_endpoint(connection: Connection, tenant: str) -> str:
    return endpoints.insert(connection, tenant, url="http://127.0.0.1:9/", event_types=["never"]).id


def a_job(connection: Connection, tenant: str) -> str:
    return jobs.insert(connection, tenant, JobKind.REDRIVE, {"reason": None}).id


def an_entry(connection: Connection, tenant: str) -> str:
    audit.write(connection, "cli:tester", tenant, Action.KEY_CREATED)
    newest = text("SELECT max(seq) FROM duehook.audit_log WHERE tenant = :tenant")
    return public_id("aud", int(connection.execute(newest, {"tenant": tenant}).scalar_one()))


def a_delivery(connection: Connection, tenant: str) -> str:
    return public_id("dlv", _delivery(connection, _event(connection, tenant)))


def _event(connection: Connection, tenant: str) -> int:
    (made,) = events.insert(connection, tenant, [NewEvent(type="order.placed", data="{}")]).values()
    return made.seq


def _delivery(connection: Connection, event: int) -> int:
    found = connection.execute(text("SELECT max(id) FROM duehook.deliveries WHERE event = :event"), {"event": event})
    return int(found.scalar_one())


def _subscribe(connection: Connection, tenant: str) -> str:
    return endpoints.insert(connection, tenant, url="http://127.0.0.1:9/", event_types=["order.placed"]).id


def _plain(path: str, insert: Insert) -> Callable[[Engine, str], Source]:
    return lambda _, tenant: Source(path, lambda connection: insert(connection, tenant))


def of_tenant(engine: Engine, tenant: str) -> Source:
    with engine.begin() as connection:
        _subscribe(connection, tenant)
    return Source("/v1/deliveries", lambda connection: a_delivery(connection, tenant))


def of_endpoint(engine: Engine, tenant: str) -> Source:
    with engine.begin() as connection:
        endpoint = _subscribe(connection, tenant)
    return Source("/v1/deliveries", lambda connection: a_delivery(connection, tenant), {"endpoint_id": endpoint})


def of_event(engine: Engine, tenant: str) -> Source:
    """As a replay makes them: each to another endpoint."""
    with engine.begin() as connection:
        event = _event(connection, tenant)
        others = iter([number_of(an_endpoint(connection, tenant)) for _ in range(MOST)])

    def write(connection: Connection) -> str:
        assert replays.make(connection, tenant, next(others), [event]) == 1
        return public_id("dlv", _delivery(connection, event))

    return Source(f"/v1/events/{public_id('evt', event)}/deliveries", write)


def a_dead_letter(engine: Engine, tenant: str) -> Source:
    with engine.begin() as connection:
        _subscribe(connection, tenant)
        numbers = [_delivery(connection, _event(connection, tenant)) for _ in range(MOST)]
    claims = iter(sorted(claimed(engine, *numbers), key=lambda claim: claim.delivery))

    def write(connection: Connection) -> str:
        claim = next(claims)
        deliveries.record(connection, [buried(claim, DeadReason.REFUSED)], max_age=TERMS.max_age)
        return public_id("dlv", claim.delivery)

    return Source("/v1/dead-letters", write)


LISTS: dict[str, Callable[[Engine, str], Source]] = {
    "/v1/reservations": _plain("/v1/reservations", a_reservation),
    "/v1/events": _plain("/v1/events", an_event),
    "/v1/endpoints": _plain("/v1/endpoints", an_endpoint),
    "/v1/jobs": _plain("/v1/jobs", a_job),
    "/v1/audit": _plain("/v1/audit", an_entry),
    "/v1/deliveries": of_tenant,
    "/v1/deliveries?endpoint_id": of_endpoint,
    "/v1/events/{id}/deliveries": of_event,
    "/v1/dead-letters": a_dead_letter,
}


@pytest.fixture
def writers(api: Api) -> Iterator[Engine]:
    engine = connect_engine(api.database_url, application_name="test")
    yield engine
    engine.dispose()


@pytest.fixture(params=LISTS)
def source(request: pytest.FixtureRequest, writers: Engine, tenant: str) -> Source:
    """Each list, of a tenant that has nothing yet."""
    return LISTS[request.param](writers, tenant)


def read(client: httpx.Client, source: Source, limit: int, cursor: str | None = None) -> tuple[list[str], str | None]:
    query = {**source.query, "limit": limit, **({"cursor": cursor} if cursor else {})}
    page = client.get(source.path, params=query).json()
    return [each["id"] for each in page["data"]], page["next_cursor"]


def rest(client: httpx.Client, source: Source, limit: int, cursor: str | None) -> list[str]:
    """All that is below."""
    found: list[str] = []
    while cursor is not None:
        page, cursor = read(client, source, limit, cursor)
        found += page
    return found


def everything(client: httpx.Client, source: Source) -> list[str]:
    page, cursor = read(client, source, 500)
    return page + rest(client, source, 500, cursor)


def test_every_list_is_read_while_others_write() -> None:
    lists = {path for (_, path), operation in OPERATIONS.items() if "cursor" in str(operation.get("parameters"))}
    assert lists == {path.partition("?")[0] for path in LISTS}


def test_a_row_that_is_committed_late_below_the_page_is_shown_once(
    writers: Engine, acme: httpx.Client, source: Source
) -> None:
    with writers.begin() as connection:
        older = [source.write(connection) for _ in range(3)]
    with writers.connect() as slow:
        late = source.write(slow)
        with writers.begin() as quick:
            newest = source.write(quick)
        page, cursor = read(acme, source, 1)
        assert page == [newest]
        slow.commit()
    found = rest(acme, source, 2, cursor)
    assert found[:4] == [late, *older[::-1]]
    assert len(found) == len(set(found))


def test_a_row_that_is_committed_late_above_hides_and_repeats_no_other(
    writers: Engine, acme: httpx.Client, source: Source
) -> None:
    with writers.begin() as connection:
        older = [source.write(connection) for _ in range(4)]
    with writers.connect() as slow:
        late = source.write(slow)
        with writers.begin() as quick:
            newest = source.write(quick)
        page, cursor = read(acme, source, 3)
        assert page == [newest, older[3], older[2]]
        slow.commit()
    assert rest(acme, source, 1, cursor)[:2] == [older[1], older[0]]
    assert everything(acme, source)[:3] == [newest, late, older[3]], "and whoever begins anew sees it"


class Written:
    """Rows of several writers, committed as they come; a lock makes a row's commit and its note of it one."""

    def __init__(self, engine: Engine, source: Source) -> None:
        self.committed: list[str] = []
        self._engine, self._source = engine, source
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._write, args=(seed,)) for seed in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    @property
    def going_on(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _write(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(ROWS):
            with self._engine.connect() as connection:
                with self._lock:  # one generator of claims and endpoints for all
                    made = self._source.write(connection)
                threading.Event().wait(chance.uniform(0, 0.02))  # so that they are committed in another order
                connection.commit()
                self.committed.append(made)


def test_readers_lose_and_repeat_nothing_while_many_write(writers: Engine, acme: httpx.Client, source: Source) -> None:
    written = Written(writers, source)
    wait_until(lambda: len(written.committed) > 3, what="some rows are there")
    walks: list[Walk] = []
    while written.going_on or len(walks) < 2:
        walks.append(walk(acme, source, written))
    order = {row: place for place, row in enumerate(everything(acme, source))}
    assert order.keys() >= set(written.committed)
    assert len(written.committed) == WRITERS * ROWS
    assert written.committed != sorted(written.committed, key=lambda row: -order[row]), "out of order"
    for pages in walks:
        shown = [row for page, _ in pages for row in page]
        assert len(shown) == len(set(shown)), "a row twice"
        assert all(order[one] < order[next_one] for one, next_one in pairwise(shown))
        passed = -1
        for at, (page, known) in enumerate(pages):
            below = {row for row in known if order[row] > passed}
            assert below <= {row for later, _ in pages[at:] for row in later}, "a row lost"
            passed = order[page[-1]] if page else passed


def walk(client: httpx.Client, source: Source, written: Written) -> Walk:
    """Page by page down to the end."""
    pages: Walk = []
    cursor = None
    while True:
        known = set(written.committed)
        page, cursor = read(client, source, 7, cursor)
        pages.append((page, known))
        if cursor is None:
            return pages
