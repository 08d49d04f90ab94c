"""The erasure of an event against those who send it and those who re-open it, in every order."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from app.core import by_hand, deliveries, endpoints
from app.core import events as event_core
from app.core.endpoints import Wanted
from app.core.erasures import start_event
from app.core.requests import Requests
from app.domain.states import DeadReason
from app.ledger import erasures, events
from app.ledger.deliveries import Claim, Ending
from app.ledger.sealing import Sealer
from app.sending.engine import Places
from tests.ledgers import ROOM, TENANT, TERMS, buried, claimed, deliveries_of, ending, row, some_events
from tests.processes import KEY
from tests.races.orders import Work, every_order

SEALER = Sealer([KEY])
DATA = '{"name": "Ada"}'


class Erased:
    """An event with one delivery that is due, about to be erased."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        (self.event,) = some_events(engine, data=DATA)
        (self.delivery,) = deliveries_of(engine, self.event)
        with engine.begin() as connection:
            assert start_event(connection, TENANT, self.event, "cli:tester")
            self.body = events.bodies(connection, [self.event])[self.event][1]
        self.claims: Sequence[Claim] = []
        self.sent: list[bytes] = []
        self._endings: list[Ending] = []

    def erase(self, engine: Engine) -> None:
        """What the first step of the job does, but for what it tells of it."""
        with engine.begin() as connection:
            event_core.cancel(connection, TENANT, self.event)
            assert erasures.event(connection, self.event)

    def claim(self, engine: Engine) -> None:
        self.claims = deliveries.claim(engine, [self.delivery], TERMS, ROOM).claims

    def send(self, requests: Requests, engine: Engine) -> None:
        """What a worker does of its claims."""
        prepared = requests.prepare(self.claims, datetime.now(UTC))
        assert not prepared.unsendable
        self.sent += [each.body for each in prepared.sends]
        if prepared.erased:
            deliveries.give_back(engine, prepared.erased)
        self._endings = [ending(each.subject.claim, excerpt=b"hello Ada") for each in prepared.sends]
        self.record(engine)

    def record(self, engine: Engine) -> None:
        if self._endings:
            deliveries.record(engine, self._endings, max_age=TERMS.max_age)

    def retry(self, engine: Engine) -> None:
        with engine.begin() as connection:
            assert by_hand.retry(connection, TENANT, self.delivery) is not None

    def check(self) -> None:
        self.record(self._engine)  # again, as a worker does of what somebody held
        found = row(self._engine, "events", "seq", self.event)
        assert found["data"] is None and found["digest"] is not None
        assert set(self.sent) <= {self.body}, "all of it or nothing"
        delivery = row(self._engine, "deliveries", "id", self.delivery)["status"]
        assert delivery == ("delivered" if self.sent else "cancelled")


@pytest.fixture(autouse=True)
def endpoint(engine: Engine) -> None:
    with engine.begin() as connection:
        endpoints.create(connection, SEALER, TENANT, Wanted("http://127.0.0.1:9/", ["*"]))


def requests_of(engine: Engine) -> Requests:
    return Requests(engine, SEALER, Places(10, 10), version="1", deadline=timedelta(seconds=15))


def test_a_worker_sends_all_of_an_event_or_nothing_of_it(engine: Engine, database_url: str) -> None:
    warm, first = requests_of(engine), Erased(engine)
    first.claim(engine)
    first.send(warm, engine)
    sent = []

    def begin() -> tuple[Sequence[Work], Callable[[], None]]:
        erased = Erased(engine)
        erased.claim(engine)

        def send(own: Engine) -> None:
            requests = requests_of(own)
            requests._targets.update(warm._targets)  # as it is after the first: statements less to stop at
            erased.send(requests, own)

        def check() -> None:
            erased.check()
            sent.append(bool(erased.sent))

        return [send, erased.erase], check

    assert every_order(database_url, begin) > 20
    assert set(sent) == {True, False}, "both happened"


def test_a_claim_takes_it_before_or_finds_it_gone(engine: Engine, database_url: str) -> None:
    def begin() -> tuple[Sequence[Work], Callable[[], None]]:
        erased = Erased(engine)

        def check() -> None:
            erased.send(requests_of(engine), engine)
            assert erased.sent == []
            erased.check()

        return [erased.claim, erased.erase], check

    assert every_order(database_url, begin) > 5


def test_a_retry_finds_it_erased_or_is_cancelled_by_it(engine: Engine, database_url: str) -> None:
    def begin() -> tuple[Sequence[Work], Callable[[], None]]:
        erased = Erased(engine)
        (claim,) = claimed(engine, erased.delivery)
        deliveries.record(engine, [buried(claim, DeadReason.REFUSED)], max_age=TERMS.max_age)

        def check() -> None:
            found = row(engine, "deliveries", "id", erased.delivery)
            assert (found["status"], found["round"]) in (("dead", 1), ("cancelled", 2))

        return [erased.retry, erased.erase], check

    assert every_order(database_url, begin) > 1
