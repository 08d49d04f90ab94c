"""The Python client: every noun and method, on the API as it is."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, assert_type

import pytest

from app.client import (
    Accepted,
    AsyncClient,
    Client,
    ConflictError,
    DuehookError,
    Event,
    Flaw,
    ForbiddenError,
    InvalidError,
    NewEvent,
    NotEndedError,
    NotFoundError,
    RefusedError,
    TooLargeError,
    UnauthorizedError,
)
from app.core.jobs import advance
from app.core.keys import EVERY_TENANT
from app.domain.states import KeyScope
from tests.clock import Clock
from tests.contract.clients import ONCE, async_client_of, client_of
from tests.contract.served import Api, number_of
from tests.contract.test_bytes import DATA
from tests.contract.test_deliveries import bury

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
URL = "http://127.0.0.1:9/"


@pytest.fixture
def duehook(api: Api, tenant: str) -> Iterator[Client]:
    """An operator of this test's tenant."""
    with client_of(api, tenant) as client:
        yield client


def dead(api: Api, client: Client, data: object = 1) -> str:
    """The id of a delivery that has died, to the newest endpoint."""
    (delivery, *_) = client.events.deliveries(client.events.post("a", data).id)
    bury(api, delivery.id)
    return delivery.id


def test_a_reservation_is_held_looked_at_confirmed_and_released(duehook: Client) -> None:
    held = duehook.reservations.hold("seat", hold_seconds=60, id="rsv_1", exclusive=True, data={"cart": 7})
    assert (held.id, held.status, held.version, held.exclusive, held.data) == ("rsv_1", "held", 1, True, {"cart": 7})
    assert (held.expires_at, held.overdue) == (NOON + timedelta(seconds=60), False)
    assert duehook.reservations.hold("seat", hold_seconds=60, id="rsv_1", exclusive=True, data={"cart": 7}) == held
    with pytest.raises(ConflictError):
        duehook.reservations.hold("seat", hold_seconds=61, exclusive=True)
    assert duehook.reservations.get("rsv_1") == held
    confirmed = duehook.reservations.confirm("rsv_1")
    assert (confirmed.status, confirmed.version) == ("confirmed", 2)
    assert duehook.reservations.confirm("rsv_1") == confirmed
    assert duehook.reservations.release("rsv_1").status == "released"
    until = duehook.reservations.hold("other", expires_at=NOON + timedelta(hours=1))
    assert (until.expires_at, until.data) == (NOON + timedelta(hours=1), None)
    assert [each.id for each in duehook.reservations.list(status="released")] == ["rsv_1"]
    assert [each.id for each in duehook.reservations.list(resource="other")] == [until.id]


def test_a_late_confirm_loses_and_says_so(duehook: Client, clock: Clock) -> None:
    held = duehook.reservations.hold("seat", hold_seconds=60)
    clock.advance(seconds=61)
    with pytest.raises(ConflictError) as refused:
        duehook.reservations.confirm(held.id)
    assert (refused.value.status, refused.value.type) == (409, "/problems/conflict")
    assert str(refused.value) == refused.value.detail != ""
    assert duehook.reservations.get(held.id).status == "expired"


def test_an_event_is_posted_looked_at_and_cancelled(duehook: Client) -> None:
    duehook.endpoints.create(URL, ["order.*"])
    posted = duehook.events.post("order.placed", {"total": 12.5, "note": "¡Olé! 🚀"}, key="order-1")
    assert (posted.type, posted.key, posted.due_at, posted.deliveries) == ("order.placed", "order-1", NOON, 1)
    assert duehook.events.post("order.placed", {"total": 12.5, "note": "¡Olé! 🚀"}, key="order-1") == posted
    event = duehook.events.get(posted.id)
    assert event.data == {"total": 12.5, "note": "¡Olé! 🚀"}
    assert event.raw_data == '{"total":12.5,"note":"¡Olé! 🚀"}'
    (delivery,) = duehook.events.deliveries(posted.id)
    assert (delivery.event_id, delivery.status, delivery.attempts) == (posted.id, "scheduled", ())
    ended = duehook.events.cancel(posted.id)
    assert (ended.cancelled, ended.in_flight, ended.finished) == (1, 0, 0)
    assert duehook.events.get(posted.id).cancelled_at == NOON


def test_many_events_are_posted_in_order_all_or_nothing(duehook: Client) -> None:
    at = datetime(2030, 1, 1, 14, tzinfo=UTC).astimezone()
    events = [
        NewEvent("a", 1),
        NewEvent("b", raw_data='{ "x" : 1.0 }', key="k"),
        NewEvent("c", None, deliver_at=at),
        NewEvent("d", [], delay_seconds=60.5),
    ]
    accepted = duehook.events.post_many(events)
    assert [each.type for each in accepted] == ["a", "b", "c", "d"]
    assert [each.due_at - NOON for each in accepted[2:]] == [timedelta(hours=2), timedelta(seconds=60.5)]
    assert duehook.events.get(accepted[1].id).raw_data == '{ "x" : 1.0 }'
    with pytest.raises(InvalidError) as refused:
        duehook.events.post_many([NewEvent("e", 1), NewEvent("not a type", 1)])
    assert [each.pointer for each in refused.value.errors] == ["/1/type"]
    assert [each.type for each in duehook.events.list()] == ["d", "c", "b", "a"]


@pytest.mark.parametrize("name", DATA)
def test_raw_data_goes_in_and_comes_out_byte_for_byte(duehook: Client, name: str) -> None:
    posted = duehook.events.post("a", raw_data=DATA[name])
    held = duehook.reservations.hold("r", hold_seconds=60, raw_data=DATA[name])
    found = [
        duehook.events.get(posted.id).raw_data,
        next(duehook.events.list()).raw_data,
        held.raw_data,
        next(duehook.reservations.list()).raw_data,
    ]
    assert found == [DATA[name]] * 4


def test_values_that_json_spells_oddly_arrive(duehook: Client) -> None:
    values: list[Any] = ["\ud800", "\u2028\0\x7f", 10**400, -0.0, {"": [[]]}, None, True, "é🚀"]
    for value in values:
        event = duehook.events.get(duehook.events.post("a", value).id)
        assert event.data == value
    long = duehook.events.get(duehook.events.post("a", raw_data="9" * 5000).id)
    assert str(long.data) == "9" * 5000


def test_lists_go_over_all_pages_and_only_as_far_as_one_looks(duehook: Client) -> None:
    posted = [duehook.events.post("a", number).id for number in range(7)]
    assert [each.id for each in duehook.events.list(page_size=2)] == posted[::-1]
    newest = duehook.events.list(page_size=2)
    assert [each.data for each in islice(newest, 2)] == [6, 5]
    late = duehook.events.post("a", 7)
    assert late.id not in [each.id for each in newest], "no row twice, none missed, though others arrive"
    assert list(duehook.reservations.list()) == []


def test_an_endpoint_from_its_creation_to_its_end(duehook: Client) -> None:
    made = duehook.endpoints.create(
        URL, ("a", "b.*"), headers={"x-token": "t"}, rate_per_second=5, retry_schedule=[1, 2.5], description="d"
    )
    assert made.secret is not None and made.secret.startswith("whsec_")
    assert made.secret not in repr(made)
    assert (made.event_types, made.retry_schedule, made.rate_per_second) == (("a", "b.*"), (1, 2.5), 5)
    shown = duehook.endpoints.get(made.id)
    assert shown.secret is None and shown.headers == {"x-token": "********"}
    assert list(duehook.endpoints.list()) == [shown]
    assert duehook.endpoints.secret(made.id) == made.secret
    changed = duehook.endpoints.change(made.id, rate_per_second=None, retry_schedule=[], event_types=["*"])
    assert (changed.rate_per_second, changed.retry_schedule, changed.event_types) == (None, (), ("*",))
    assert changed.description == "d", "what is not given stays"
    rotated = duehook.endpoints.rotate_secret(made.id, overlap_seconds=60)
    assert rotated.secret == duehook.endpoints.secret(made.id) != made.secret
    assert rotated.previous_expires_at == NOON + timedelta(seconds=60)
    assert duehook.endpoints.rotate_secret(made.id).previous_expires_at == NOON + timedelta(days=1)
    assert duehook.endpoints.disable(made.id).disabled_reason == "requested"
    assert duehook.endpoints.enable(made.id).status == "enabled"
    ping = duehook.endpoints.ping(made.id)
    assert (ping.type, ping.deliveries) == ("ping", 1)
    duehook.endpoints.delete(made.id)
    with pytest.raises(NotFoundError):
        duehook.endpoints.get(made.id)
    with pytest.raises(NotFoundError):
        duehook.endpoints.delete(made.id)


def test_a_delivery_is_looked_at_tried_again_and_given_up(api: Api, duehook: Client) -> None:
    endpoint = duehook.endpoints.create(URL, ["a"])
    delivery = dead(api, duehook)
    shown = duehook.deliveries.get(delivery)
    assert (shown.status, shown.reason, [each.outcome for each in shown.attempts]) == ("dead", "refused", ["refused"])
    assert shown.attempts[0].started_at == NOON
    assert [each.id for each in duehook.deliveries.list(status="dead", endpoint_id=endpoint.id)] == [delivery]
    assert list(duehook.deliveries.list(event_id="evt_1")) == []
    with pytest.raises(ConflictError):
        duehook.deliveries.cancel(delivery)
    assert duehook.deliveries.retry(delivery).status == "scheduled"
    assert duehook.deliveries.cancel(delivery).status == "cancelled"


def test_dead_letters_are_looked_at_counted_and_tried_again(api: Api, duehook: Client) -> None:
    endpoint = duehook.endpoints.create(URL, ["a"])
    first, second = dead(api, duehook), dead(api, duehook)
    assert {each.id for each in duehook.dead_letters.list(reason="refused")} == {first, second}
    letter = duehook.dead_letters.get(first)
    assert (letter.died_at, letter.attempts[0].outcome, letter.endpoint_id) == (NOON, "refused", endpoint.id)
    counted = duehook.dead_letters.matching(endpoint_id=endpoint.id, since=NOON, until=NOON)
    assert (counted.matching, counted.more) == (2, False)
    assert duehook.dead_letters.matching(reason="gone").matching == 0
    assert list(duehook.jobs.list()) == [], "to count makes no job"
    assert duehook.dead_letters.redrive(first).status == "scheduled"
    with pytest.raises(ConflictError):
        duehook.dead_letters.redrive(first)
    job = duehook.dead_letters.redrive_all(reason="refused", rate_per_second=100)
    assert (job.kind, job.status, job.result, job.has_ended) == ("redrive", "queued", None, False)
    assert list(duehook.jobs.list()) == [job]
    assert duehook.jobs.cancel(job.id).status == "cancelled"


def test_a_job_is_waited_for_until_it_has_ended(api: Api, duehook: Client) -> None:
    endpoint = duehook.endpoints.create(URL, ["a"])
    dead(api, duehook)
    job = duehook.endpoints.replay(endpoint.id, since=NOON, status=["dead"])
    with pytest.raises(NotEndedError, match=rf"^{job.id} is queued after 0\.2 s, and goes on by itself$"):
        duehook.jobs.wait(job.id, seconds=0.2)
    worker = threading.Timer(0.15, lambda: advance(api.runtime.engine, [number_of(job.id)]))
    worker.start()
    ended = duehook.jobs.wait(job.id, seconds=30)
    worker.join()
    assert (ended.status, ended.has_ended, ended.done, ended.total) == ("completed", True, 1, 1)
    assert ended.result is not None
    assert (ended.result.reopened, ended.result.made, ended.result.skipped) == (1, 0, {})


def test_health_needs_no_right_key(api: Api) -> None:
    with Client(api.url, "nonsense", retries=ONCE) as stranger:
        assert stranger.health.live().status == "ok"
        ready = stranger.health.ready()
        assert (ready.is_ready, ready.database, ready.broker) == (True, "ok", "not set")
        with pytest.raises(UnauthorizedError):
            next(stranger.events.list())


def test_each_refusal_is_an_error_of_its_own(api: Api, tenant: str, duehook: Client) -> None:
    with client_of(api, tenant, KeyScope.PRODUCER) as producer, pytest.raises(ForbiddenError) as forbidden:
        producer.endpoints.create(URL, ["a"])
    assert str(forbidden.value) == "a producer key can't do that, it takes an operator's"
    with pytest.raises(TooLargeError):
        duehook.events.post("a", "x" * (api.runtime.settings.max_event_bytes + 100_000))
    with pytest.raises(InvalidError) as invalid:
        duehook.events.post("not a type", 1, key="", delay_seconds=-1)
    pointers = {each.pointer for each in invalid.value.errors}
    assert pointers == {"/type", "/key", "/delay_seconds"}
    assert all(isinstance(each, Flaw) and each.detail for each in invalid.value.errors)
    with pytest.raises(NotFoundError, match=r"^there is no such event$"):
        duehook.events.get("evt_1")
    with pytest.raises(InvalidError) as limit:
        next(duehook.events.list(page_size=501))
    assert [each.pointer for each in limit.value.errors] == ["/limit"]
    assert issubclass(RefusedError, DuehookError)


def test_a_key_of_all_tenants_goes_with_the_name_of_one(api: Api, tenant: str, duehook: Client) -> None:
    key = api.key(EVERY_TENANT)
    with Client(f"{api.url}/", key, tenant=tenant, retries=ONCE) as operator:
        assert duehook.events.get(operator.events.post("a", 1).id).data == 1
        assert len(list(operator.events.list(page_size=1))) == 1
    with Client(api.url, key, retries=ONCE) as nobody, pytest.raises(InvalidError):
        nobody.events.post("a", 1)


def test_the_awaited_client_is_the_same(api: Api, tenant: str, duehook: Client) -> None:
    async def work(client: AsyncClient) -> list[object]:
        async with client:
            endpoint = await client.endpoints.create(URL, ["a"])
            posted = await asyncio.gather(*(client.events.post("a", number) for number in range(5)))
            listed = [each.data async for each in client.events.list(page_size=2)]
            job = await client.endpoints.replay(endpoint.id, since=NOON)
            with pytest.raises(NotEndedError):
                await client.jobs.wait(job.id, seconds=0.1)
            with pytest.raises(NotFoundError):
                await client.reservations.confirm("rsv_1")
            await client.endpoints.delete(endpoint.id)
            return [len(posted), sorted(listed)]

    assert asyncio.run(work(async_client_of(api, tenant))) == [5, [0, 1, 2, 3, 4]]
    assert len(list(duehook.events.list())) == 5


def test_type_checkers_tell_the_two_apart(duehook: Client, api: Api, tenant: str) -> None:
    assert_type(duehook.events.post("a", 1), Accepted)
    assert_type(duehook.events.list(), Iterator[Event])

    async def work(client: AsyncClient) -> None:
        async with client:
            assert_type(await client.events.post("a", 1), Accepted)
            assert_type(client.events.list(), AsyncIterator[Event])

    asyncio.run(work(async_client_of(api, tenant)))
    assert str(duehook.events.post.__doc__).startswith("Post one.")


def test_a_client_serves_threads_at_once(duehook: Client) -> None:
    threads = [threading.Thread(target=duehook.events.post, args=("a", number)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(each.data for each in duehook.events.list()) == list(range(8))


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
UNSENDABLE: dict[str, Callable[[Client], object]] = {
    "a naive time": lambda client: client.events.post("a", 1, deliver_at=datetime(2030, 1, 1)),  # noqa: DTZ001
    "no data": lambda client: client.events.post("a"),
    "data twice": lambda client: client.events.post("a", 1, raw_data="1"),
    "data null and raw": lambda client: client.events.post("a", None, raw_data="1"),
    "NaN": lambda client: client.events.post("a", float("nan")),
    "a key that is no text": lambda client: client.events.post("a", {(1, 2): 3}),
    "no JSON type": lambda client: client.events.post("a", object()),
    "a circle": lambda client: client.events.post("a", CIRCLE),
    "raw: a member more": lambda client: client.events.post("a", raw_data='1,"key":"k"'),
    "raw: an event more": lambda client: client.events.post_many([NewEvent("a", raw_data='1},{"type":"b","data":2')]),
    "raw: nothing": lambda client: client.events.post("a", raw_data=""),
    "raw: NaN": lambda client: client.events.post("a", raw_data="NaN"),
    "raw: cut": lambda client: client.events.post("a", raw_data='{"a":'),
    "raw: two": lambda client: client.events.post("a", raw_data="1 2"),
    "raw: too deep": lambda client: client.events.post("a", raw_data="[" * 501 + "]" * 501),
    "raw: a lone surrogate": lambda client: client.events.post("a", raw_data='"\ud800"'),
    "no id": lambda client: client.events.get(""),
    "a way out": lambda client: client.events.get(".."),
    "a path": lambda client: client.events.cancel("evt_1/../../x"),
    "a query": lambda client: client.jobs.get("job_1?tenant=x"),
    "an empty key": lambda client: client.events.post("a", 1, idempotency_key=""),
    "a key with a blank": lambda client: client.events.post("a", 1, idempotency_key="a b"),
    "a key with a line": lambda client: client.endpoints.ping("end_1", idempotency_key="a\r\nx: y"),
    "a key that is long": lambda client: client.events.post("a", 1, idempotency_key="k" * 256),
}


@pytest.mark.parametrize("name", UNSENDABLE)
def test_what_can_not_be_sent_is_a_value_error_and_is_not_sent(name: str) -> None:
    with Client("http://127.0.0.1:1", "k", retries=ONCE) as client, pytest.raises(ValueError) as refused:
        UNSENDABLE[name](client)
    assert not isinstance(refused.value, UnicodeError)


@pytest.mark.parametrize(
    "api_url",
    [
        "",
        "duehook.example",
        "ftp://duehook.example",
        "http://",
        "http://a:b@c",
        "http://h?x=1",
        "http://h:99999",
        "//h",
    ],
)
def test_an_address_that_can_be_none_is_refused(api_url: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match=r"^api_url is the service's address"):
            kind(api_url, "k")


@pytest.mark.parametrize("key", ["", "a b", "a\r\nx: y", "ключ"])
def test_a_key_that_can_be_none_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError) as refused:
        Client("http://h", key)
    assert not key or key not in str(refused.value)
