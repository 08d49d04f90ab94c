"""Each class of answer from a real socket to the ledger: its outcome, its schedule, and what is kept of the attempt."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from sqlalchemy import Engine

from app import settings as settings_of
from app.core import deliveries as core
from app.core.clock import LedgerClock
from app.core.dispatch import Dispatcher
from app.domain.signing_keys import hmac_secret
from app.ledger import endpoints
from app.ledger.sealing import Sealer
from app.local.access import free_port
from app.runtime import make_dispatcher, open_runtime
from tests.clock import Clock
from tests.ledgers import TENANT, TERMS, a_delivery, claimed, deliveries_of, ending, row, rows, some_events
from tests.processes import KEY
from tests.waiting import wait_until

FULL, SHORT = 5.0, 300.0  # the first steps
LENGTH = re.compile(rb"content-length: ([0-9]+)")
HANG = b"(nothing)"  # no answer; the connection stays
Dispatching = Callable[..., Dispatcher]


class Scripted:
    """Reads a request, answers with the next of the script (the last for ever), and closes; keeps what it read."""

    def __init__(self) -> None:
        self.script: list[bytes] = []
        self.requests: list[bytes] = []
        self._kept: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for each in self._kept:
            each.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        self.requests.append(request := _read(connection))
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if answer == HANG or not request.startswith(b"POST"):
            self._kept.append(connection)
            if answer == HANG:
                return
        connection.sendall(answer)
        connection.close()


def _read(connection: socket.socket) -> bytes:
    """One request, or what came when it is none (a TLS greeting)."""
    read = b""
    while b"\r\n\r\n" not in read:
        if not (more := connection.recv(65536)) or not (read + more).startswith(b"POST"):
            return read + more
        read += more
    head, _, body = read.partition(b"\r\n\r\n")
    length = LENGTH.search(head)
    while length and len(body) < int(length[1]):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Words", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode("latin-1") + body


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.close()


@pytest.fixture
def dispatching(engine: Engine, database_url: str) -> Iterator[Dispatching]:
    """Makes a dispatcher of the settings it is given; stopped at the end."""
    with ExitStack() as opened:

        def make(**settings: Any) -> Dispatcher:
            given = {"allowed_networks": "127.0.0.0/8", "deadline_seconds": 1.0, "lease_seconds": 10.0, **settings}
            loaded = settings_of.load(database_url=database_url, secrets_key=KEY, **given)
            runtime = open_runtime(loaded, application_name="test", pool_size=4)
            opened.callback(runtime.close)
            made = make_dispatcher(runtime, LedgerClock(runtime.engine))
            opened.callback(made.stop)
            return made

        yield make


def subscribe(engine: Engine, url: str, *, keys: int = 1, **fields: Any) -> int:
    with engine.begin() as connection:
        made = endpoints.insert(connection, TENANT, url=url, event_types=["order.*"], **fields)
        for number in range(keys):
            sealed = Sealer([KEY]).seal(hmac_secret(bytes([number]) * 32))
            endpoints.add_secret(connection, made.seq, sealed)
    return made.seq


def sent_once(engine: Engine, dispatcher: Dispatcher, url: str, **fields: Any) -> dict[str, Any]:
    """The delivery of a new event to a new endpoint, after its first attempt was recorded."""
    subscribe(engine, url, **fields)
    (event,) = some_events(engine)
    (delivery,) = deliveries_of(engine, event)
    dispatcher.deliver([delivery])
    wait_until(lambda: rows(engine, "SELECT number FROM duehook.attempts"), what="an attempt was recorded")
    return row(engine, "deliveries", "id", delivery)


def pause_of(delivery: dict[str, Any]) -> float:
    """Seconds from the record of an attempt to the next."""
    return float((delivery["next_attempt_at"] - delivery["updated_at"]).total_seconds())


@dataclass(frozen=True, slots=True)
class Case:
    """`wait` is the step before jitter; without one the delivery is over: delivered, or dead of `reason`."""

    outcome: str
    wait: float | None = None
    reason: str | None = None
    status: int | None = None
    url: str = "http://127.0.0.1:{port}/"
    settings: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


def of_status(status: int, outcome: str, wait: float | None = None, reason: str | None = None) -> Case:
    return Case(outcome, wait, reason, status)


OK = answer(200)
CASES: dict[str, tuple[bytes, Case]] = {
    **{f"{status}": (answer(status), of_status(status, "delivered")) for status in (200, 201, 204, 299)},
    "410": (answer(410), of_status(410, "gone", reason="gone")),
    **{f"{status}": (answer(status), of_status(status, "rejected", SHORT)) for status in (401, 403)},
    **{f"{status}": (answer(status), of_status(status, "redirected", SHORT)) for status in (300, 301, 302, 304, 308)},
    **{f"{status}": (answer(status), of_status(status, "refused", SHORT)) for status in (400, 404, 409, 422, 499)},
    "429": (answer(429), of_status(429, "throttled", FULL)),
    "503 with a hint": (answer(503, retry_after="0"), of_status(503, "throttled", FULL)),
    "503 without": (answer(503), of_status(503, "failed", FULL)),
    "503 with a hint that nobody can read": (answer(503, retry_after="soon"), of_status(503, "failed", FULL)),
    **{
        f"{status}": (answer(status), of_status(status, "failed", FULL))
        for status in (408, 425, 500, 504, 599, 600, 999)
    },
    "refused connection": (OK, Case("unreached", FULL, url="http://127.0.0.1:{closed}/", error="connection refused")),
    "no such name": (OK, Case("unreached", FULL, url="http://nowhere.invalid/", error="could not be resolved")),
    "no TLS": (
        OK,
        Case("unreached", FULL, url="https://127.0.0.1:{port}/", error="tls: the receiver does not speak TLS"),
    ),
    "no answer": (HANG, Case("unknown", FULL, error="deadline")),
    "closed after the request": (b"", Case("unknown", FULL, error="closed")),
    "half a head": (b"HTTP/1.1 200 OK\r\ncontent-le", Case("unknown", FULL, error="closed")),
    "101": (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        of_status(101, "unknown", FULL),
    ),
    "garbage": (b"\x00\x01\x02 nothing of HTTP\r\n\r\n", Case("unknown", FULL, error="unreadable response")),
    "two lengths": (
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        Case("unknown", FULL, error="unreadable response"),
    ),
    "a literal address": (
        OK,
        Case("blocked", reason="blocked", url="http://10.0.0.1/", error="private"),
    ),
    "a name's address": (
        OK,
        Case("blocked", SHORT, url="http://localhost:{port}/", settings={"allowed_networks": ""}, error="loopback"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_class_has_its_outcome_its_schedule_and_its_record(
    name: str, engine: Engine, dispatching: Dispatching, scripted: Scripted
) -> None:
    said, case = CASES[name]
    scripted.script = [said]
    url = case.url.format(port=scripted.port, closed=free_port())
    delivery = sent_once(engine, dispatching(**case.settings), url)
    attempt = row(engine, "attempts", "delivery", delivery["id"])

    assert (attempt["outcome"], attempt["status_code"], attempt["number"]) == (case.outcome, case.status, 1)
    assert (delivery["attempt"], delivery["step"]) == (1, 1)
    assert delivery["reason"] == case.reason
    if case.wait is not None:
        assert delivery["status"] == "scheduled"
        assert case.wait <= pause_of(delivery) <= case.wait * 1.2
    else:
        assert delivery["status"] == ("dead" if case.reason else "delivered")
    assert attempt["started_at"] <= attempt["ended_at"]
    assert len(attempt["key_ids"]) == 1
    if case.status is None:
        assert attempt["error"] and (case.error or "") in attempt["error"]
    else:
        assert attempt["error"] is None
        assert attempt["address"] == "127.0.0.1"


RETRIED = {401: SHORT, 302: SHORT, 404: SHORT, 408: FULL, 425: FULL, 429: FULL, 500: FULL, 503: FULL}


def in_an_hour() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


FORMS: dict[str, Callable[[], str]] = {
    "seconds": lambda: "3600",
    "date": lambda: format_datetime(in_an_hour(), usegmt=True),
    "date of RFC 850": lambda: in_an_hour().strftime("%A, %d-%b-%y %H:%M:%S GMT"),
    "date of asctime": lambda: in_an_hour().strftime("%a %b %e %H:%M:%S %Y"),
}


@pytest.mark.parametrize("status", RETRIED)
@pytest.mark.parametrize("form", FORMS)
def test_a_hint_in_any_form_counts_on_every_answer_that_is_retried(
    status: int, form: str, engine: Engine, dispatching: Dispatching, scripted: Scripted
) -> None:
    scripted.script = [answer(status, retry_after=FORMS[form]())]
    delivery = sent_once(engine, dispatching(), f"http://127.0.0.1:{scripted.port}/")
    assert 3590 < pause_of(delivery) <= 3600
    assert rows(engine, "SELECT retry_after > interval '3590 s' FROM duehook.attempts") == [True]


@pytest.mark.parametrize("status", RETRIED)
@pytest.mark.parametrize("hint", ["9" * 30, "31536000", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_hint_is_bounded_on_every_answer(
    status: int, hint: str, engine: Engine, dispatching: Dispatching, scripted: Scripted
) -> None:
    scripted.script = [answer(status, retry_after=hint)]
    delivery = sent_once(engine, dispatching(max_retry_after_seconds=600), f"http://127.0.0.1:{scripted.port}/")
    assert pause_of(delivery) == 600


@pytest.mark.parametrize(
    "hint", ["soon", "-1", "1_000", "+5", "5, 100", "inf", "1e300", "Sun, 06 Nov 1994 25:49:37 GMT"]
)
def test_a_hint_that_nobody_can_read_is_none(
    hint: str, engine: Engine, dispatching: Dispatching, scripted: Scripted
) -> None:
    scripted.script = [answer(429, retry_after=hint)]
    delivery = sent_once(engine, dispatching(), f"http://127.0.0.1:{scripted.port}/")
    assert FULL <= pause_of(delivery) <= FULL * 1.2
    assert rows(engine, "SELECT retry_after FROM duehook.attempts") == [None]


def until_dead(engine: Engine, dispatcher: Dispatcher, delivery: int) -> dict[str, Any]:
    def over() -> bool:
        dispatcher.deliver([delivery])
        return bool(row(engine, "deliveries", "id", delivery)["status"] == "dead")

    wait_until(over, what="it was dead")
    return row(engine, "deliveries", "id", delivery)


@pytest.mark.parametrize(("status", "reason"), [(500, "attempts_exhausted"), (404, "refused"), (302, "redirected")])
@pytest.mark.parametrize("schedule", [[], [0.05], [0.05, 0.1, 0.05]])
def test_an_endpoint_s_own_schedule_of_n_entries_is_n_and_one_attempts(
    status: int, reason: str, schedule: list[float], engine: Engine, dispatching: Dispatching, scripted: Scripted
) -> None:
    scripted.script = [answer(status)]
    dispatcher = dispatching()
    first = sent_once(engine, dispatcher, f"http://127.0.0.1:{scripted.port}/", retry_schedule=schedule)
    dead = until_dead(engine, dispatcher, first["id"])
    assert (dead["attempt"], dead["step"], dead["reason"]) == (len(schedule) + 1, len(schedule) + 1, reason)
    assert len(scripted.requests) == len(schedule) + 1


def test_an_unknown_end_keeps_its_identity(engine: Engine, dispatching: Dispatching, scripted: Scripted) -> None:
    scripted.script = [b"", OK]
    dispatcher = dispatching()
    url = f"http://127.0.0.1:{scripted.port}/"
    delivery = sent_once(engine, dispatcher, url, retry_schedule=[0.05])["id"]

    def delivered() -> bool:
        dispatcher.deliver([delivery])
        return bool(row(engine, "deliveries", "id", delivery)["status"] == "delivered")

    wait_until(delivered)
    first, second = scripted.requests
    assert first.partition(b"\r\n\r\n")[2] == second.partition(b"\r\n\r\n")[2]
    for name in (b"webhook-id", b"duehook-delivery-id"):
        value = re.compile(name + rb": .*\r\n")
        assert value.findall(first) == value.findall(second) != []
    assert (b"duehook-attempt: 1\r\n" in first, b"duehook-attempt: 2\r\n" in second) == (True, True)


def test_a_retry_that_would_come_too_late_is_buried_at_once(
    engine: Engine, dispatching: Dispatching, scripted: Scripted
) -> None:
    scripted.script = [answer(500, retry_after="120")]
    delivery = sent_once(engine, dispatching(max_age_seconds=60), f"http://127.0.0.1:{scripted.port}/")
    assert (delivery["status"], delivery["reason"]) == ("dead", "age_exhausted")
    assert rows(engine, "SELECT outcome FROM duehook.attempts") == ["failed"]


def test_an_abandoned_claim_is_no_step(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    assert (claim.attempt, claim.step) == (1, 0)
    clock.advance(seconds=TERMS.lease.total_seconds() + 1)
    (claim,) = claimed(engine, delivery)
    assert (claim.attempt, claim.step) == (2, 0)
    core.record(engine, [ending(claim)], max_age=TERMS.max_age)
    recorded = row(engine, "deliveries", "id", delivery)
    assert (recorded["attempt"], recorded["step"], recorded["status"]) == (2, 1, "delivered")


BYTES = bytes(range(256)) * 12


def test_what_came_back_is_kept_whatever_bytes_it_is_made_of(
    engine: Engine, dispatching: Dispatching, scripted: Scripted
) -> None:
    where = "https://else.example/" + "x" * 3000
    scripted.script = [answer(302, BYTES, location=where, retry_after="7")]
    delivery = sent_once(engine, dispatching(), f"http://127.0.0.1:{scripted.port}/", keys=3)
    attempt = row(engine, "attempts", "delivery", delivery["id"])
    assert bytes(attempt["excerpt"]) == BYTES[:1024]
    assert attempt["location"] == where[:2048]
    assert attempt["retry_after"] == timedelta(seconds=7)
    assert (attempt["address"], attempt["status_code"], attempt["error"]) == ("127.0.0.1", 302, None)
    assert len(set(attempt["key_ids"])) == 3


def test_what_a_body_does_after_a_readable_head_changes_nothing(
    engine: Engine, dispatching: Dispatching, scripted: Scripted
) -> None:
    scripted.script = [b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\ncut"]
    delivery = sent_once(engine, dispatching(), f"http://127.0.0.1:{scripted.port}/")
    assert delivery["status"] == "delivered"
    assert rows(engine, "SELECT excerpt FROM duehook.attempts") == [b"cut"]


@pytest.mark.parametrize("value", ["a\r\nx-evil: b", "secret \u20ac", "a\0"])
def test_an_endpoint_whose_header_can_t_be_sent_harms_no_other(
    value: str, engine: Engine, dispatching: Dispatching, scripted: Scripted, capfd: pytest.CaptureFixture[str]
) -> None:
    """Somebody has written it past the API, with the key. Both deliveries are claimed in one go."""
    scripted.script = [OK]
    url = f"http://127.0.0.1:{scripted.port}/"
    damaged = subscribe(engine, url, headers=Sealer([KEY]).seal_headers({"x-token": value}))
    sound = subscribe(engine, url)
    (event,) = some_events(engine)
    dispatching().deliver(deliveries_of(engine, event))
    wait_until(lambda: sorted(rows(engine, "SELECT status FROM duehook.deliveries")) == ["dead", "delivered"])
    assert row(engine, "dead_letters", "endpoint", damaged)["reason"] == "poison"
    assert row(engine, "deliveries", "endpoint", sound)["status"] == "delivered"
    errors = rows(engine, "SELECT error FROM duehook.attempts WHERE outcome = 'unreached'")
    assert not any("u20ac" in ascii(each) for each in (*errors, *capfd.readouterr()))
