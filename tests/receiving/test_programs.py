"""Every receiver that we show to people, before the real service: no effect twice and none lost, whatever happens."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import repeat

import pytest

from app.core.pings import ping
from app.domain import signature
from app.domain.identity import public_id
from app.domain.signing_keys import hmac_secret, signing_key
from app.ledger.events import Event
from tests.contract.requests_sent import BODIES
from tests.receiving.conftest import STRANGER
from tests.receiving.shop import Shop
from tests.receiving.wire import Answer, Request, send
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # several processes that start, on a busy machine
NOBODYS = hmac_secret(b"a secret that this receiver has never heard of")


def signed(request: Request, secret: str, *, age: float = 0) -> Request:
    """The same event as its sender would have signed it then."""
    at = int(time.time() - age)
    value = signature.sign([signing_key(secret)], request.event_id, at, request.body)
    return replace(request, headers={**request.headers, "webhook-timestamp": str(at), "webhook-signature": value})


def with_headers(request: Request, **headers: str) -> Request:
    changed = {f"webhook-{name}": value for name, value in headers.items()}
    return replace(request, headers={**request.headers, **changed})


def with_body(request: Request, body: bytes) -> Request:
    return replace(request, body=body, headers={**request.headers, "content-length": str(len(body))})


def without_body(request: Request) -> Request:
    headers = {name: value for name, value in request.headers.items() if not name.startswith("content-")}
    return Request(headers, b"")


def answered(answers: list[Answer | None]) -> list[Answer]:
    return [answer for answer in answers if answer]


def test_every_event_has_its_effect_whatever_it_holds_and_a_type_that_nobody_knows_has_none(shop: Shop) -> None:
    bodies = {**BODIES, "as large as may be": '"' + "x" * (1024 * 1024 - 2) + '"'}
    placed = [shop.place(data) for data in bodies.values()]
    other = shop.place(type="stock.counted")
    for event_id in placed:
        (answer,) = answered(shop.wait_delivered(event_id))
        assert (answer.status, answer.json["duplicate"], shop.effects(event_id)) == (200, False, 1)
    (answer,) = answered(shop.wait_delivered(other))
    assert (answer.status, answer.json["outcome"]) == (200, None)


def test_an_order_without_a_key_has_its_effect(shop: Shop) -> None:
    event_id = shop.place(with_key=False)
    (answer,) = answered(shop.wait_delivered(event_id))
    assert (answer.status, shop.effects(event_id)) == (200, 1)


def test_a_ping_is_answered(shop: Shop) -> None:
    with shop.engine.begin() as connection:
        event = ping(connection, shop.tenant, shop.endpoint)
    assert isinstance(event, Event)
    (answer,) = answered(shop.wait_delivered(public_id("evt", event.seq)))
    assert (answer.status, answer.json["outcome"]) == (200, None)


def test_an_event_that_comes_again_is_answered_with_the_first_outcome(shop: Shop) -> None:
    """As when the answer is lost: the service can't know, and sends it again."""
    shop.wire.lose = lambda request: len(shop.wire.requests(request.event_id)) <= 3
    event_id = shop.place()
    answers = answered(shop.wait_delivered(event_id))
    assert shop.outcomes(event_id) == ["unknown"] * 3 + ["delivered"]
    assert [answer.json["duplicate"] for answer in answers] == [False, True, True, True]
    assert len({answer.json["outcome"]["shipment"] for answer in answers}) == 1
    assert len({request.body for request in shop.wire.requests(event_id)}) == 1
    assert (shop.effects(event_id), shop.receipts(event_id)) == (1, 1)


def test_a_receiver_killed_between_its_commit_and_its_answer_answers_with_the_first_outcome(shop: Shop) -> None:
    """And it was started again with the new secret alone while both sign."""
    new = shop.rotate(timedelta(hours=1))
    killed = threading.Event()

    def kill(_: Request) -> bool:
        if killed.is_set():
            return False
        shop.program.kill()
        killed.set()
        return True  # nothing of its answer reached the service

    shop.wire.lose = kill
    event_id = shop.place()
    assert killed.wait(30)
    assert (shop.effects(event_id), shop.receipts(event_id)) == (1, 1)
    shop.program.start(new)
    answers = answered(shop.wait_delivered(event_id))
    assert [answer.json["duplicate"] for answer in answers] == [False, True]
    assert answers[0].json["outcome"] == answers[1].json["outcome"]
    assert shop.outcomes(event_id)[0] == "unknown"


FORGERIES: dict[str, Callable[[Request], Request]] = {
    "a byte more": lambda request: with_body(request, request.body + b" "),
    "another byte": lambda request: with_body(request, request.body.replace(b"order-", b"order_")),
    "written anew": lambda request: with_body(request, request.body.replace(b",", b", ")),
    "nothing at all": lambda request: with_body(request, b""),
    "no body, and no word of one": without_body,
    "no headers": lambda request: replace(request, headers={"content-length": str(len(request.body))}),
    "another id": lambda request: with_headers(request, id=request.event_id + "0"),
    "another time": lambda request: with_headers(request, timestamp=str(int(time.time()) + 1)),
    "a time that is none": lambda request: with_headers(request, timestamp="now"),
    "no signature": lambda request: with_headers(request, signature=""),
    "half a signature": lambda request: with_headers(request, signature="v1,"),
    "another version": lambda request: with_headers(request, signature="v2" + request.headers["webhook-signature"][2:]),
    "another secret": lambda request: signed(request, NOBODYS),
}


def test_what_was_changed_on_the_way_is_refused_and_the_event_itself_still_has_its_effect(shop: Shop) -> None:
    forgeries = iter(FORGERIES.values())
    before: list[int] = []

    def change(request: Request) -> Request:
        forgery = next(forgeries, None)
        before.append(shop.receipts(request.event_id))
        return forgery(request) if forgery else request

    # Fewer than the ten failures in a row for which the service would leave the receiver alone for seconds.
    for times in (6, len(FORGERIES) - 6):
        shop.wire.change = some(change, times)
        event_id = shop.place()
        answers = answered(shop.wait_delivered(event_id))
        assert [answer.status for answer in answers] == [401] * times + [200]
        assert shop.outcomes(event_id) == ["rejected"] * times + ["delivered"]
        assert (shop.effects(event_id), shop.receipts(event_id)) == (1, 1)
    assert next(forgeries, None) is None
    assert set(before) == {0}


def some(change: Callable[[Request], Request], times: int) -> Callable[[Request], Request]:
    """Only for the next so many requests."""
    left = iter(range(times))
    return lambda request: request if next(left, None) is None else change(request)


def test_a_body_larger_than_any_event_is_refused_and_the_examples_do_not_read_it_all(shop: Shop) -> None:
    event_id = shop.place()
    shop.wait_delivered(event_id)
    large = with_body(shop.wire.requests(event_id)[0], bytes(2 * 1024 * 1024 + 1))
    expected = 413 if shop.program.name in ("python-receiver", "node-receiver") else 401
    assert send(shop.program.port, large).status == expected


@pytest.mark.parametrize("age", [310, 24 * 3600, -310])
def test_what_was_signed_rightly_but_not_now_is_refused(shop: Shop, age: float) -> None:
    """Recorded on its way and sent again, by somebody who kept it from the receiver."""
    shop.wire.change = lambda request: with_headers(request, signature="v1,")
    event_id = shop.place()
    request = wait_until(lambda: shop.wire.requests(event_id), deadline=30, what="it was sent")[0]
    assert send(shop.program.port, signed(request, shop.secrets[-1], age=age)).status == 401
    assert (shop.effects(event_id), shop.receipts(event_id)) == (0, 0)
    shop.wire.restore()
    shop.wait_delivered(event_id)
    assert shop.effects(event_id) == 1
    assert send(shop.program.port, signed(request, shop.secrets[-1])).json["duplicate"]


def test_a_secret_rotated_with_overlap_is_never_refused_and_one_that_leaked_is_at_once(shop: Shop) -> None:
    """Under a stream of events, to a receiver that knows nothing of either rotation."""
    placed = [shop.place()]
    with streaming(shop, placed):
        several(placed)
        shop.rotate(timedelta(hours=1))
        several(placed)
    answers = [answer for event_id in placed for answer in answered(shop.wait_delivered(event_id))]
    assert {answer.status for answer in answers} == {200}
    new = shop.rotate(timedelta())
    event_id = shop.place()
    wait_until(lambda: shop.outcomes(event_id), deadline=30, what="it was sent")
    shop.program.kill()
    shop.program.start(STRANGER, new)
    shop.wait_delivered(event_id)
    assert shop.outcomes(event_id)[0] == "rejected"
    assert (shop.effects(event_id), shop.receipts(event_id)) == (1, 1)


@contextmanager
def streaming(shop: Shop, placed: list[str]) -> Iterator[None]:
    """Places an order every few milliseconds."""
    ending = threading.Event()

    def stream() -> None:
        while not ending.wait(0.03):
            placed.append(shop.place())

    thread = threading.Thread(target=stream)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def several(placed: list[str]) -> None:
    enough = len(placed) + 8
    wait_until(lambda: len(placed) >= enough, deadline=30, what="more orders were placed")


def refusing(table: str, when: str) -> Callable[[Shop], AbstractContextManager[None]]:
    """A trigger that raises."""

    @contextmanager
    def failure(shop: Shop) -> Iterator[None]:
        shop.execute(
            """CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN RAISE EXCEPTION 'the disk is full' USING ERRCODE = '53100'; END $$""",
            f"CREATE {when} EXECUTE FUNCTION refuse()".replace("TABLE", table),
        )
        yield
        shop.execute("DROP FUNCTION refuse CASCADE")

    return failure


@contextmanager
def without_the_table(shop: Shop) -> Iterator[None]:
    shop.execute("ALTER TABLE duehook_receipts RENAME TO gone")
    yield
    shop.execute("ALTER TABLE gone RENAME TO duehook_receipts")


DATABASE_FAILURES: dict[str, Callable[[Shop], AbstractContextManager[None]]] = {
    "the receipt is refused": refusing("duehook_receipts", "TRIGGER t BEFORE INSERT ON TABLE FOR EACH ROW"),
    "the outcome is refused": refusing("duehook_receipts", "TRIGGER t BEFORE UPDATE ON TABLE FOR EACH ROW"),
    "the effect is refused": refusing("shipments", "TRIGGER t AFTER INSERT ON TABLE FOR EACH ROW"),
    "the commit is refused": refusing(
        "duehook_receipts", "CONSTRAINT TRIGGER t AFTER INSERT ON TABLE DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
    ),
    "the table is gone": without_the_table,
    "the database is away": Shop.unreachable,
}


@pytest.mark.parametrize("failure", DATABASE_FAILURES)
def test_a_database_failure_is_no_2xx_and_the_event_has_its_effect_when_it_comes_again(
    shop: Shop, failure: str
) -> None:
    with DATABASE_FAILURES[failure](shop):
        event_id = shop.place()
        wait_until(lambda: shop.outcomes(event_id), deadline=30, what="one attempt failed")
        assert shop.effects(event_id) == 0
    failed = len(shop.wire.answers(event_id))
    answers = answered(shop.wait_delivered(event_id))
    assert len(answers) <= failed + 2, "it failed when the failure was over, not only what was in the air then"
    assert [answer.status for answer in answers] == [*repeat(500, len(answers) - 1), 200]
    assert shop.outcomes(event_id) == [*repeat("failed", len(answers) - 1), "delivered"]
    assert not answers[-1].json["duplicate"]
    assert (shop.effects(event_id), shop.receipts(event_id)) == (1, 1)


def test_a_connection_that_is_cut_while_the_receipt_is_made_is_no_2xx(shop: Shop) -> None:
    with shop.receipts_locked():
        event_id = shop.place()
        wait_until(shop.waiting, deadline=30, what="the receiver makes the receipt")
        shop.cut()
        wait_until(lambda: shop.outcomes(event_id), deadline=30, what="the attempt failed")
    answers = answered(shop.wait_delivered(event_id))
    assert shop.outcomes(event_id)[0] == "failed"
    assert not answers[-1].json["duplicate"]
    assert shop.effects(event_id) == 1


def test_idle_connections_that_are_cut_cost_nothing(shop: Shop) -> None:
    shop.wait_delivered(shop.place())
    shop.cut()
    wait_until(lambda: not shop.backends(), what="they are gone")
    event_id = shop.place()
    shop.wait_delivered(event_id)
    assert shop.outcomes(event_id) == ["delivered"]


def test_of_equal_requests_at_once_one_applies_and_all_answer_the_same(shop: Shop) -> None:
    shop.wire.change = lambda request: with_headers(request, signature="v1,")
    event_id = shop.place()
    request = wait_until(lambda: shop.wire.requests(event_id), deadline=30, what="it was sent")[0]
    again = signed(request, shop.secrets[-1])
    with ThreadPoolExecutor(4) as pool:
        with shop.receipts_locked():
            sent = [pool.submit(send, shop.program.port, again) for _ in range(4)]
            wait_until(lambda: len(shop.waiting()) == 4, deadline=30, what="all of them make the receipt")
        answers = [future.result(30) for future in sent]
    assert [answer.status for answer in answers] == [200] * 4
    assert sorted(answer.json["duplicate"] for answer in answers) == [False, True, True, True]
    assert len({answer.json["outcome"]["shipment"] for answer in answers}) == 1
    shop.wire.restore()
    assert answered(shop.wait_delivered(event_id))[-1].json["duplicate"]
    assert (shop.effects(event_id), shop.receipts(event_id)) == (1, 1)


def test_whoever_waits_too_long_for_another_request_says_so_before_the_deadline(shop: Shop) -> None:
    with shop.receipts_locked():
        event_id = shop.place()
        wait_until(lambda: shop.outcomes(event_id), deadline=30, what="it gave up")
    shop.wait_delivered(event_id)
    assert shop.outcomes(event_id)[0] == "failed"
    assert shop.effects(event_id) == 1
