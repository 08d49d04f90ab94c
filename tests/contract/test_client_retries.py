"""The Python client when things go wrong: what is tried again, when it gives up, and what it then says."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from app.client import (
    AsyncClient,
    DuehookError,
    NotFoundError,
    Retries,
    TooManyError,
    UnavailableError,
    UnexpectedAnswerError,
    UnknownOutcomeError,
)
from app.client.calls import get, post
from app.client.refusals import Answer
from app.client.talks import Got, Lost, Pause, Send, ask
from tests.contract.clients import (
    ACCEPTED,
    GOOD,
    KEY,
    PAGE,
    QUICK,
    answer,
    asking,
    headers_of,
    problem,
    serve,
    take,
)
from tests.contract.served import Api
from tests.hostile.server import HostileServer, Peer, Step, close, drip, forever, hang, reset, rest, send

LATE = 3.0  # seconds that a bounded call may take on a busy machine


@contextmanager
def measured(most: float = LATE) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < most


# Where a connection can break; whoever knows no more has to ask again.
BREAKS: dict[str, Sequence[Step]] = {
    "closed before anything": [close()],
    "reset before anything": [reset()],
    "reset with the request read": [take, reset()],
    "closed with the request read": [take, close()],
    "no HTTP": [take, send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")],
    "half a head": [take, send(GOOD[:25]), close()],
    "half a body": [take, send(GOOD[:-5]), close()],
    "half a chunk": [take, send(b"HTTP/1.1 202 X\r\ntransfer-encoding: chunked\r\n\r\n40\r\n{"), reset()],
    "502": [take, send(answer(502, b"<html>", media_type="text/html"))],
    "503": [take, send(problem(503, "unavailable", "retry-after: 0"))],
    "504": [take, send(answer(504, b""))],
    "an earlier try still running": [take, send(problem(409, "conflict", "retry-after: 0"))],
}


@pytest.mark.parametrize("broken", BREAKS)
def test_what_breaks_is_tried_again_with_the_same_key_and_bytes(broken: str) -> None:
    with HostileServer(BREAKS[broken], serve(GOOD)) as server, asking(server.port) as client:
        assert client.events.post("a", {"n": 1}).id == "evt_1"
    assert server.connections == 2
    keys = {headers_of(each)["idempotency-key"] for each in server.requests}
    assert len(keys) == 1 and len(keys.pop()) == 32
    assert {each.split(b"\r\n\r\n")[1] for each in server.requests} == {b'{"type":"a","data":{"n":1}}'}


# But for a reset that may come while it still connects.
@pytest.mark.parametrize("broken", [each for each in BREAKS if each != "reset before anything"])
def test_what_stays_broken_is_unknown_and_never_called_a_failure(broken: str) -> None:
    with HostileServer(BREAKS[broken]) as server, asking(server.port) as client:
        with pytest.raises(UnknownOutcomeError) as unknown:
            client.events.post("a", 1)
        with pytest.raises(UnknownOutcomeError, match="to repeat it is safe"):
            client.endpoints.change("end_1", max_in_flight=1)
        with pytest.raises(UnavailableError, match="nothing has happened") as looked:
            client.events.get("evt_1")
    assert not isinstance(looked.value, UnknownOutcomeError), "a look has no outcome"
    assert all("after 4 tries in " in str(each.value) for each in (unknown, looked))
    key = unknown.value.idempotency_key
    assert key is not None
    assert str(unknown.value).startswith("POST /v1/events: its outcome is unknown after 4 tries in ")
    assert f"repeat it with idempotency_key '{key}', and it has no second effect" in str(unknown.value)


@pytest.mark.parametrize("broken", BREAKS)
def test_the_awaited_client_does_as_the_other(broken: str) -> None:
    async def work(port: int) -> None:
        async with AsyncClient(f"http://127.0.0.1:{port}", KEY, retries=QUICK) as client:
            assert (await client.events.post("a", 1)).id == "evt_1"

    with HostileServer(BREAKS[broken], serve(GOOD)) as server:
        asyncio.run(work(server.port))
    assert server.connections == 2


def test_where_nobody_listens_nothing_has_happened() -> None:
    with HostileServer() as server:
        port = server.port
    with (
        asking(port) as client,
        pytest.raises(UnavailableError, match=r"after 4 tries .* nothing has happened") as gone,
    ):
        client.events.post("a", 1)
    assert not isinstance(gone.value, UnknownOutcomeError)


DRIPS: dict[str, Sequence[Step]] = {
    "nothing": [take, hang()],
    "its head a byte at a time": [take, drip(GOOD, every=0.1), hang()],
    "one informational head after another": [take, forever(b"HTTP/1.1 103 X\r\n\r\n", every=0.05)],
    "its body a byte at a time": [take, send(GOOD[:-30]), drip(GOOD[-30:], every=0.1), hang()],
    "a torrent": [take, send(b"HTTP/1.1 202 X\r\n\r\n"), forever(b" " * 1000)],
    "a body without end": [take, send(b"HTTP/1.1 202 X\r\n\r\n"), forever(b" ", every=0.05)],
}
IMPATIENT = Retries(tries=100, seconds=0.7, timeout=0.3, first=0.01, longest=0.02)


@pytest.mark.parametrize("dripped", DRIPS)
def test_a_server_that_only_keeps_one_waiting_is_left_in_time(dripped: str) -> None:
    with HostileServer(DRIPS[dripped]) as server, asking(server.port, IMPATIENT) as client:
        with measured(), pytest.raises(UnknownOutcomeError, match=r"the last try: no answer within 0\."):
            client.events.post("a", 1)
        assert server.connections <= 4


@pytest.mark.parametrize("dripped", DRIPS)
def test_the_awaited_client_leaves_it_too(dripped: str) -> None:
    async def work(port: int) -> None:
        async with AsyncClient(f"http://127.0.0.1:{port}", KEY, retries=IMPATIENT) as client:
            await client.events.post("a", 1)

    with HostileServer(DRIPS[dripped]) as server, measured(), pytest.raises(UnknownOutcomeError):
        asyncio.run(work(server.port))


def test_a_late_sign_of_life_wins_no_time() -> None:
    late = [take, rest(1.3), send(GOOD[:-5]), hang()]
    once = Retries(tries=1, timeout=1.5)
    unknown = pytest.raises(UnknownOutcomeError)
    with HostileServer(late) as server, asking(server.port, once) as client, measured(2.5), unknown:
        client.events.post("a", 1)


def test_a_cancelled_call_ends_at_once_and_leaves_the_client_usable() -> None:
    async def work(port: int) -> None:
        async with AsyncClient(f"http://127.0.0.1:{port}", KEY, retries=QUICK) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.events.post("a", 1)
            assert (await client.events.post("a", 1)).id == "evt_1"

    with HostileServer([take, hang()], serve(GOOD)) as server, measured():
        asyncio.run(work(server.port))


def test_a_connection_that_was_closed_while_idle_is_replaced() -> None:
    with HostileServer([take, send(GOOD)], serve(GOOD)) as server, asking(server.port) as client:
        assert [client.events.post("a", 1).id for _ in range(2)] == ["evt_1", "evt_1"]
    assert server.connections == 2


def test_a_body_without_end_is_read_so_far_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("carriers", "refusals"):
        monkeypatch.setattr(f"app.client.{module}.MOST_BYTES", 1_000_000)
    head, _, body = GOOD.partition(b"\r\n\r\n")
    whole = head.replace(b"content-length", b"x-length") + b"\r\n\r\n" + body
    endless = [take, send(whole), forever(b" " * 65536)]
    told = pytest.raises(UnexpectedAnswerError, match="more than 1000000 bytes")
    with HostileServer(endless) as server, asking(server.port) as client, measured(), told:
        client.events.post("a", 1)
    assert server.connections == 1


def test_every_post_has_a_key_of_its_own_or_the_callers() -> None:
    with HostileServer(serve(GOOD)) as server, asking(server.port) as client:
        for key in (None, None, "order-1001!", "k" * 255):
            client.events.post("a", 1, idempotency_key=key)
        client.endpoints.ping("end_1", idempotency_key="ping-1")
        with pytest.raises(UnexpectedAnswerError):
            client.events.get("evt_1")
    *posts, look = map(headers_of, server.requests)
    first, second, *rest = (each["idempotency-key"] for each in posts)
    assert first != second and rest == ["order-1001!", "k" * 255, "ping-1"]
    assert "idempotency-key" not in look
    assert {each["authorization"] for each in (*posts, look)} == {f"Bearer {KEY}"}


def test_a_delete_whose_answer_was_lost_has_succeeded_when_it_is_gone() -> None:
    gone = problem(404, "not-found")
    with HostileServer([take, reset()], serve(gone)) as server, asking(server.port) as client:
        client.endpoints.delete("end_1")
    with HostileServer(serve(gone)) as server, asking(server.port) as client, pytest.raises(NotFoundError):
        client.endpoints.delete("end_1")
    limited = serve(problem(429, "too-many", "retry-after: 0"), gone)
    with HostileServer(limited) as server, asking(server.port) as client, pytest.raises(NotFoundError):
        client.endpoints.delete("end_1")
    page = serve(answer(404, PAGE, media_type="text/html"))
    told = pytest.raises(UnexpectedAnswerError)
    with HostileServer([take, reset()], page) as server, asking(server.port) as client, told:
        client.endpoints.delete("end_1")


def test_a_page_that_got_lost_is_asked_for_again_and_no_row_is_twice() -> None:
    row: dict[str, Any] = {**ACCEPTED, "cancelled_at": None, "data": 1}
    first = answer(200, {"data": [row, row], "next_cursor": "c"})
    empty, last = (answer(200, {"data": rows, "next_cursor": at}) for rows, at in (([], "d"), ([row], None)))
    broken, ended = [take, reset()], serve(empty, last)

    def one(peer: Peer) -> None:
        take(peer)
        peer.sock.sendall(first)
        take(peer)

    with HostileServer([one], broken, ended) as server, asking(server.port) as client:
        assert len(list(client.events.list())) == 3
    asked = [each.split(b" ")[1].decode() for each in server.requests]
    assert asked == ["/v1/events", *["/v1/events?cursor=c"] * 3, "/v1/events?cursor=d"]


def test_a_job_is_not_waited_for_longer_than_told_though_nobody_answers() -> None:
    told = pytest.raises(UnavailableError)
    with HostileServer([take, hang()]) as server, asking(server.port, Retries()) as client, measured(), told:
        client.jobs.wait("job_1", seconds=0.3)


def test_no_error_repeats_the_key(api: Api) -> None:
    said: list[str] = []
    for script in (*BREAKS.values(), serve(problem(401, "no-key")), serve(answer(200, PAGE, media_type="text/html"))):
        with HostileServer(script) as server, asking(server.port, Retries(tries=1)) as client:
            with pytest.raises(DuehookError) as error:
                client.events.post("a", 1)
            said += [str(error.value), repr(error.value), repr(client), repr(vars(error.value))]
    assert not [each for each in said if KEY in each]


# What follows asks the talk itself, which is given answers and says how long it would wait.


def talk_of(answers: Sequence[Got], retries: Retries, *, look: bool = False) -> list[float]:
    """The waits between these answers; the last ends it."""
    call = get("/v1/jobs", json.loads) if look else post("/v1/jobs", json.loads)
    talk, waits = ask(call, retries), []
    step = next(talk)
    for each in answers:
        assert isinstance(step, Send)
        step = talk.send(each)
        if isinstance(step, Pause):
            waits.append(step.seconds)
            step = talk.send(None)
    return waits


def busy(retry_after: str | None = None, status: int = 503) -> Answer:
    headers = {"content-type": "application/problem+json"} | ({"retry-after": retry_after} if retry_after else {})
    body = problem(status, "too-many" if status == 429 else "unavailable").partition(b"\r\n\r\n")[2]
    return Answer(status, headers, body)


def ahead(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("hint", "least", "most"),
    [
        (lambda: "7", 7, 7.5),
        (lambda: " 007 ", 7, 7.5),
        (lambda: ahead(30), 28, 30.5),
        (lambda: ahead(-30), 0, 0.5),
        (lambda: "0", 0, 0.5),
        (lambda: None, 0, 0.5),
        (lambda: "soon", 0, 0.5),
        (lambda: "-5", 0, 0.5),
        (lambda: "1e3", 0, 0.5),
        (lambda: "7, 8", 0, 0.5),
        (lambda: "٧", 0, 0.5),
    ],
    ids=["seconds", "zeros", "a date", "past", "now", "none", "words", "negative", "float", "two", "other digits"],
)
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_retry_after_is_kept_to(hint: Callable[[], str | None], least: float, most: float, status: int) -> None:
    (wait,) = talk_of([busy(hint(), status)], Retries(first=0.5, longest=0.5))
    assert least <= wait <= most


@pytest.mark.parametrize("hint", ["61", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_retry_after_beyond_the_time_there_is_ends_the_call_at_once(hint: str) -> None:
    for status, kind in ((429, TooManyError), (503, UnknownOutcomeError)):
        with pytest.raises(kind) as ended:
            talk_of([busy(hint, status)], Retries(seconds=60))
        assert isinstance(ended.value, TooManyError | UnavailableError)
        assert ended.value.retry_after is not None and ended.value.retry_after > 60


def test_waits_double_up_to_the_longest_and_are_drawn_from_all_of_it() -> None:
    policy = Retries(tries=100, seconds=1e9, first=1, longest=8)
    runs = [talk_of([Lost("x", True)] * 6, policy) for _ in range(200)]
    for column, most in zip(zip(*runs, strict=True), (1, 2, 4, 8, 8, 8), strict=True):
        assert 0 <= min(column) < most * 0.1
        assert most * 0.9 < max(column) <= most
    assert Retries(tries=5000, longest=3).wait(4999, 0) <= 3


def test_one_uncertain_try_among_others_makes_the_outcome_unknown() -> None:
    policy = Retries(tries=3)
    never, perhaps = Lost("refused", False), Lost("lost", True)
    outcomes: list[tuple[list[Got], type[DuehookError]]] = [
        ([never, never, never], UnavailableError),
        ([never, perhaps, never], UnknownOutcomeError),
        ([perhaps, never, busy("0", 429)], UnknownOutcomeError),
        ([never, never, busy("0", 429)], TooManyError),
        ([never, busy("0", 429), never], UnavailableError),
        ([busy(), never, never], UnknownOutcomeError),
    ]
    for answers, kind in outcomes:
        with pytest.raises(DuehookError) as ended:
            talk_of(answers, policy)
        assert type(ended.value) is kind, answers
        assert ended.value.idempotency_key


def test_an_error_says_whether_an_earlier_try_may_have_had_its_effect() -> None:
    perhaps = Lost("lost", True)
    page = Answer(403, {"content-type": "text/html"}, PAGE)
    no, broken = busy(status=401), busy(status=500)
    cases: list[tuple[list[Got], bool]] = [
        ([no], False),
        ([perhaps, no], True),
        ([Lost("refused", False), no], False),
        ([busy("0", 429), no], False),
        ([broken], True),
        ([page], True),
        ([Answer(200, {}, b"")], True),
        ([perhaps] * 6, True),
        ([Lost("refused", False)] * 6, False),
    ]
    for answers, may_have_happened in cases:
        for look in (False, True):
            with pytest.raises(DuehookError) as ended:
                talk_of(answers, Retries(first=0), look=look)
            assert ended.value.may_have_happened is (may_have_happened and not look), answers


def test_a_try_gets_no_more_time_than_is_left() -> None:
    talk = ask(get("/v1/jobs", json.loads), Retries(seconds=5, timeout=20))
    step = next(talk)
    assert isinstance(step, Send) and 4 < step.seconds <= 5


@pytest.mark.parametrize(
    "wrong",
    [{"tries": 0}, {"seconds": 0}, {"timeout": -1}, {"first": -1}, {"longest": -0.1}, {"seconds": float("nan")}],
    ids=str,
)
def test_a_policy_that_can_not_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="retries need"):
        Retries(**wrong)


def passed_on(api: Api, peer: Peer) -> httpx.Response:
    """What the API answers to the request that comes next."""
    take(peer)
    head, _, body = peer.server.requests[-1].partition(b"\r\n\r\n")
    method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
    told = {name: each for name, each in headers_of(head).items() if name not in ("host", "content-length")}
    return httpx.request(method, api.url + path, headers=told, content=body, timeout=30)


def forgetting(api: Api) -> list[Step]:
    """A connection whose one request is done, and its answer lost."""

    def step(peer: Peer) -> None:
        assert passed_on(api, peer).is_success
        reset()(peer)

    return [step]


def passing(api: Api) -> list[Step]:
    """A connection that works."""

    def step(peer: Peer) -> None:
        while True:
            back = passed_on(api, peer)
            media_type = back.headers.get("content-type", "")
            peer.sock.sendall(answer(back.status_code, back.content, media_type=media_type))

    return [step]


def test_an_event_with_a_key_is_one_though_the_answer_to_its_post_was_lost(api: Api, tenant: str) -> None:
    with HostileServer(forgetting(api), passing(api)) as server, asking(server.port, key=api.key(tenant)) as client:
        posted = client.events.post("a", 1, key="order-1")
        assert [each.id for each in client.events.list()] == [posted.id]


def test_no_post_has_two_effects_though_its_answer_was_lost(api: Api, tenant: str) -> None:
    key = api.key(tenant)
    with HostileServer(forgetting(api), passing(api)) as server, asking(server.port, key=key) as client:
        posted = client.events.post("a", 1)
        assert [each.id for each in client.events.list()] == [posted.id]
    with HostileServer(forgetting(api), passing(api)) as server, asking(server.port, key=key) as client:
        made = client.endpoints.create("http://127.0.0.1:9/", ["a"])
        assert [each.id for each in client.endpoints.list()] == [made.id]
        assert made.secret == client.endpoints.secret(made.id), "although a replayed answer holds none"
    with HostileServer(forgetting(api), passing(api)) as server, asking(server.port, key=key) as client:
        ping = client.endpoints.ping(made.id)
        assert [each.id for each in client.events.list() if each.type == "ping"] == [ping.id]
