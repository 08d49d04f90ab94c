"""From a wake-up to a recorded outcome, in one process with a real receiver."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.event import listens_for
from sqlalchemy.exc import OperationalError

from app import settings as settings_of
from app.core import deliveries as core
from app.core import dispatch
from app.core.clock import LedgerClock
from app.core.dispatch import Dispatcher
from app.core.leases import Leases
from app.core.pings import ping
from app.core.requests import Request
from app.domain.wakeups import Answer
from app.ledger.deliveries import Claim
from app.ledger.events import Event
from app.ledger.sealing import Sealer
from app.runtime import make_dispatcher, open_runtime
from app.sending.engine import Engine as Sender
from app.sending.engine import Places, Send
from tests.clock import Clock
from tests.conftest import Connect
from tests.ledgers import ROOM, TENANT, TERMS, an_endpoint, claimed, deliveries_of, row, rows, some_events
from tests.processes import KEY
from tests.receivers import Answer as Reply
from tests.receivers import Receiver
from tests.recording import slow_recording
from tests.waiting import wait_until


@dataclass(slots=True)
class Statements:
    """What a dispatcher has sent to the database, by name; `away` is what the database doesn't answer now."""

    sent: list[str] = field(default_factory=list)
    away: str | None = None

    def listen(self, engine: Engine) -> None:
        @listens_for(engine, "before_cursor_execute")
        def note(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            found = re.search(r"/\* ([\w.]+) \*/", statement)
            name = found[1] if found else ""
            if name == self.away:
                self.sent.append(f"{name} in vain")
                raise OperationalError(statement, {}, psycopg.OperationalError("the connection is lost"))
            self.sent.append(name)


Dispatching = Callable[..., tuple[Dispatcher, Statements]]


@pytest.fixture
def dispatching(engine: Engine, database_url: str) -> Iterator[Dispatching]:
    """Makes dispatchers of the settings it is given; they are stopped at the end."""
    with ExitStack() as opened:

        def make(**settings: float) -> tuple[Dispatcher, Statements]:
            loaded = settings_of.load(
                database_url=database_url, secrets_key=KEY, allowed_networks="127.0.0.0/8", **settings
            )
            runtime = open_runtime(loaded, application_name="test", pool_size=4)
            statements = Statements()
            statements.listen(runtime.engine)
            opened.callback(runtime.close)
            made = make_dispatcher(runtime, LedgerClock(runtime.engine))
            opened.callback(made.stop)
            return made, statements

        yield make


@pytest.fixture
def dispatcher(dispatching: Dispatching) -> Dispatcher:
    made, _ = dispatching()
    return made


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def ids_of(engine: Engine, events: list[int]) -> list[int]:
    return [each for event in events for each in deliveries_of(engine, event)]


def states(engine: Engine) -> list[str]:
    return rows(engine, "SELECT status FROM duehook.deliveries ORDER BY id")


def test_a_delivery_whose_event_is_gone_is_buried_and_the_others_go_out(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    receiver.register(engine)
    events = some_events(engine, 3)
    ids = ids_of(engine, events)
    with engine.begin() as connection:  # as nobody can but the owner, with the guards switched off
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text("DELETE FROM duehook.events WHERE seq = :seq"), {"seq": events[1]})
    dispatcher.deliver(ids)
    wait_until(lambda: states(engine) == ["delivered", "dead", "delivered"])
    assert row(engine, "dead_letters", "delivery", ids[1])["reason"] == "poison"
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM duehook.deliveries WHERE id = :id"), {"id": ids[1]})


@pytest.mark.parametrize("value", ["a\r\nx-other: b", "a\nb", "a\0b", "\N{SNOWMAN}"])
def test_a_header_that_would_break_the_request_is_not_sent_and_harms_no_other(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver, value: str
) -> None:
    """The API refuses it; it could only have been written past that."""
    receiver.register(engine, headers=Sealer([KEY]).seal_headers({"x-broken": value}))
    receiver.register(engine)
    ids = ids_of(engine, some_events(engine, 2))
    dispatcher.deliver(ids)
    wait_until(lambda: sorted(states(engine)) == ["dead", "dead", "delivered", "delivered"])
    assert rows(engine, "SELECT DISTINCT reason FROM duehook.dead_letters") == ["poison"]
    assert len(receiver.received) == 2


def test_an_endpoint_that_can_t_be_signed_for_harms_no_other(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    receiver.register(engine)
    without_secret = an_endpoint(engine)
    (event,) = some_events(engine)
    dispatcher.deliver(deliveries_of(engine, event))
    wait_until(lambda: sorted(states(engine)) == ["dead", "delivered"])
    assert rows(engine, "SELECT endpoint FROM duehook.dead_letters") == [without_secret]


def test_a_410_buries_the_delivery_and_disables_the_endpoint_and_tells_the_others(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    endpoint = receiver.register(engine, event_types=["order.*"])
    receiver.answer = lambda _: Reply(410)
    (event,) = some_events(engine)
    dispatcher.deliver(deliveries_of(engine, event))
    wait_until(lambda: row(engine, "endpoints", "seq", endpoint)["status"] == "disabled")
    assert row(engine, "endpoints", "seq", endpoint)["disabled_reason"] == "gone"
    assert rows(engine, "SELECT reason FROM duehook.dead_letters") == ["gone"]
    assert rows(engine, "SELECT type FROM duehook.events WHERE origin = 'service'") == ["endpoint.disabled"]


def test_a_410_to_a_ping_is_a_dead_letter_and_disables_nothing(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    endpoint = receiver.register(engine, event_types=["order.*"])
    receiver.answer = lambda _: Reply(410)
    with engine.begin() as connection:
        pinged = ping(connection, TENANT, endpoint)
    assert isinstance(pinged, Event)
    dispatcher.deliver(deliveries_of(engine, pinged.seq))
    wait_until(lambda: rows(engine, "SELECT reason FROM duehook.dead_letters") == ["gone"])
    receiver.answer = lambda _: Reply(401)
    (event,) = some_events(engine)  # whose outcome is told after the ping's, by the same thread
    dispatcher.deliver(deliveries_of(engine, event))
    wait_until(lambda: row(engine, "endpoints", "seq", endpoint)["flagged"])
    assert row(engine, "endpoints", "seq", endpoint)["status"] == "enabled"
    assert rows(engine, "SELECT type FROM duehook.events WHERE origin = 'service'") == ["ping"]


def test_a_401_flags_the_endpoint_and_is_tried_again_in_minutes(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    endpoint = receiver.register(engine)
    receiver.answer = lambda _: Reply(401)
    (event,) = some_events(engine)
    dispatcher.deliver(deliveries_of(engine, event))
    wait_until(lambda: row(engine, "endpoints", "seq", endpoint)["flagged"])
    assert states(engine) == ["scheduled"]
    assert rows(engine, "SELECT next_attempt_at > now() + interval '299 s' FROM duehook.deliveries") == [True]


def test_an_outcome_of_an_older_revision_says_nothing_about_the_endpoint(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    endpoint = receiver.register(engine)

    def move_and_answer(_: object) -> Reply:
        with engine.begin() as connection:
            connection.execute(text("UPDATE duehook.endpoints SET revision = revision + 1"))
        return Reply(410)

    receiver.answer = move_and_answer
    (event,) = some_events(engine)
    dispatcher.deliver(deliveries_of(engine, event))
    wait_until(lambda: states(engine) == ["dead"])
    (again,) = some_events(engine)
    receiver.answer = lambda _: Reply(200)
    dispatcher.deliver(deliveries_of(engine, again))
    wait_until(lambda: states(engine) == ["dead", "delivered"])
    assert row(engine, "endpoints", "seq", endpoint)["status"] == "enabled"


def test_a_repeated_wake_up_sends_nothing_twice(engine: Engine, dispatcher: Dispatcher, receiver: Receiver) -> None:
    receiver.register(engine)
    ids = ids_of(engine, some_events(engine, 20))
    dispatcher.deliver(ids)
    assert set(dispatcher.deliver(ids).answers.values()) <= {Answer.HELD, Answer.GONE, Answer.LOCKED}
    wait_until(lambda: set(states(engine)) == {"delivered"})
    assert set(receiver.events.values()) == {1}


def lease_until(engine: Engine) -> Any:
    return rows(engine, "SELECT max(lease_until) FROM duehook.deliveries")[0]


def claims_of_another(engine: Engine, ids: Sequence[int]) -> set[Answer]:
    """What another worker's claim of these is told."""
    return set(core.claim(engine, ids, TERMS, ROOM).looked.answers.values())


def test_nothing_is_renewed_at_the_proportions_of_the_defaults_though_every_send_takes_its_whole_deadline(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    defaults = settings_of.load()
    deadline = 1.0
    lease = deadline * defaults.lease_seconds / defaults.deadline_seconds
    dispatcher, statements = dispatching(deadline_seconds=deadline, lease_seconds=lease)
    receiver.register(engine)
    hold = threading.Event()
    receiver.answer = lambda _: Reply(hold=hold)
    dispatcher.deliver(ids_of(engine, some_events(engine, 20)))
    wait_until(lambda: rows(engine, "SELECT DISTINCT outcome FROM duehook.attempts") == ["unknown"])
    wait_until(lambda: states(engine) == ["scheduled"] * 20)
    hold.set()
    assert "deliveries.renew" not in statements.sent


def test_a_claim_whose_outcome_is_slow_to_be_recorded_is_renewed_and_nobody_else_s(
    engine: Engine, dispatching: Dispatching, receiver: Receiver, connect: Connect
) -> None:
    """In a worker that was told to stop: what is in the air is still its own."""
    lease = timedelta(seconds=1.65)
    dispatcher, statements = dispatching(deadline_seconds=1.5, lease_seconds=lease.total_seconds())
    clock = Clock(connect(autocommit=True))
    receiver.register(engine)
    ids = ids_of(engine, some_events(engine, 20))
    with slow_recording(connect):
        dispatcher.deliver(ids)
        wait_until(lambda: len(receiver.received) == 20)
        stopping = threading.Thread(target=dispatcher.stop)
        stopping.start()
        clock.advance(seconds=1)
        wait_until(lambda: lease_until(engine) == clock.now + lease, what="the leases are renewed")
        clock.advance(seconds=1)  # beyond their first end
        assert claims_of_another(engine, ids) == {Answer.HELD}
        assert statements.sent.count("deliveries.renew") == 1, "one statement for all of them"
    stopping.join(10)
    assert states(engine) == ["delivered"] * 20
    assert set(receiver.events.values()) == {1}


def test_the_end_of_a_claim_leaves_a_newer_one_of_the_same_delivery_its_renewals() -> None:
    """As when a process claims anew what it has lost, and then hears of what it had."""
    older, newer = (Claim(1, uuid4(), event=1, endpoint=1, revision=1, attempt=n, step=0) for n in (1, 2))
    asked: list[Mapping[int, UUID]] = []

    def renew(tokens: Mapping[int, UUID]) -> Collection[int]:
        asked.append(tokens)
        return tokens.keys()

    leases = Leases(renew, lease=0.3, deadline=0.29)
    for claim in (older, newer):
        leases.keep([claim], time.monotonic())
    leases.drop([older])
    wait_until(lambda: asked)
    leases.drop([newer])
    leases.stop()
    assert asked == [{1: newer.token}]


class Stuck:
    """An engine whose sends never end."""

    def start(self, sends: Sequence[Send[Request]]) -> None:
        """Never tells."""

    def stop(self) -> None:
        """There is nothing to stop."""


def test_a_send_that_is_stuck_is_renewed_no_longer_than_one_may_take(
    engine: Engine, dispatching: Dispatching, receiver: Receiver, connect: Connect
) -> None:
    dispatcher, statements = dispatching(deadline_seconds=0.3, lease_seconds=0.33)
    dispatcher._engine.stop()
    dispatcher._engine = cast("Sender[Request]", Stuck())
    endpoint = receiver.register(engine)
    (event,) = some_events(engine)
    ids = deliveries_of(engine, event)
    began = time.monotonic()
    dispatcher.deliver(ids)
    wait_until(lambda: time.monotonic() > began + 1.5, what="five leases have passed")
    assert statements.sent.count("deliveries.renew") <= 2
    assert claims_of_another(engine, ids) == {Answer.TAKEN}, "its lease ended, somebody else has it"
    dispatcher._places.give([endpoint])  # nobody waits for it when all is over


def test_a_send_that_could_not_begin_before_its_lease_ended_does_not_begin(
    engine: Engine, dispatching: Dispatching, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher, _ = dispatching(deadline_seconds=0.1, lease_seconds=0.2)
    receiver.register(engine)
    ids = ids_of(engine, some_events(engine, 2))
    prepare = dispatcher._requests.prepare

    def slow(*arguments: Any) -> Any:
        prepared = prepare(*arguments)
        wait_until(lambda: rows(engine, "SELECT bool_and(lease_until < now()) FROM duehook.deliveries") == [True])
        claimed(engine, ids[0])
        return prepared

    monkeypatch.setattr(dispatcher._requests, "prepare", slow)
    dispatcher.deliver(ids)
    dispatcher.stop()
    assert receiver.received == []
    assert states(engine) == ["leased", "scheduled"], "one is somebody else's by now, the other was given back"
    assert rows(engine, "SELECT attempt FROM duehook.deliveries ORDER BY id") == [2, 1]


def test_outcomes_that_waited_for_the_database_are_recorded_before_anything_is_renewed_or_claimed(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    """Their leases have ended meanwhile, and their wake-ups come to the very process that has the outcomes."""
    dispatcher, statements = dispatching(deadline_seconds=0.6, lease_seconds=0.66)
    receiver.register(engine)
    ids = ids_of(engine, some_events(engine, 3))
    statements.away = "deliveries.record"
    dispatcher.deliver(ids)
    wait_until(lambda: "deliveries.record in vain" in statements.sent)
    wait_until(lambda: rows(engine, "SELECT bool_and(lease_until < now()) FROM duehook.deliveries") == [True])
    again = threading.Thread(target=dispatcher.deliver, args=[ids])
    again.start()
    tries = len(statements.sent)
    wait_until(lambda: len(statements.sent) > tries + 1, what="the recorder tries on")
    statements.away = None
    again.join(10)
    wait_until(lambda: states(engine) == ["delivered"] * 3)
    assert set(receiver.events.values()) == {1}
    since = statements.sent[statements.sent.index("deliveries.record in vain") :]
    *first, last = (name for name in since if name != "deliveries.record in vain")
    assert (set(first), last) == ({"deliveries.record"}, "deliveries.claim")


def test_a_delivery_that_somebody_holds_keeps_no_other_outcome_waiting(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver, connect: Connect
) -> None:
    receiver.register(engine)
    ids = ids_of(engine, some_events(engine, 5))
    arrived = threading.Semaphore(0)
    hold = threading.Event()

    def answer(_: object) -> Reply:
        arrived.release()
        return Reply(hold=hold)

    receiver.answer = answer
    dispatcher.deliver(ids)
    for _ in ids:
        assert arrived.acquire(timeout=10)
    holder = connect()
    holder.execute("SELECT FROM duehook.deliveries WHERE id = %s FOR UPDATE", [ids[0]])
    hold.set()
    wait_until(lambda: states(engine) == ["leased", *["delivered"] * 4])
    holder.rollback()
    wait_until(lambda: states(engine) == ["delivered"] * 5)
    assert set(receiver.events.values()) == {1}


def test_a_burst_at_an_endpoint_that_keeps_up_goes_out_without_going_back(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    dispatcher, statements = dispatching(max_in_flight_each=10)
    receiver.register(engine)
    ids = ids_of(engine, some_events(engine, 16))
    looked = dispatcher.deliver(ids)
    wait_until(lambda: states(engine) == ["delivered"] * 16)
    assert Counter(looked.answers.values()) == {Answer.TAKEN: 10, Answer.WAITING: 6}
    assert not {"outbox.look_sooner", "deliveries.park"} & set(statements.sent)


def test_what_is_due_for_a_quick_endpoint_waits_for_its_turn_and_is_not_parked(
    engine: Engine, dispatching: Dispatching, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher, statements = dispatching(max_in_flight_each=20)
    receiver.register(engine)
    monkeypatch.setattr(Places, "soon", lambda *_: 20)
    monkeypatch.setattr(Places, "quick", lambda *_: True)
    monkeypatch.setattr(dispatch, "MOMENT", 5.0)  # a machine that is busy with something else is not an endpoint's pace
    ids = ids_of(engine, some_events(engine, 600))
    for first in range(0, 600, 20):
        assert Answer.PARKED not in dispatcher.deliver(ids[first : first + 20]).answers.values()
    wait_until(lambda: states(engine) == ["delivered"] * 600)
    assert "deliveries.park" not in statements.sent


def test_nobody_waits_here_for_a_disabled_endpoint(engine: Engine, dispatching: Dispatching) -> None:
    dispatcher, statements = dispatching()
    endpoint = an_endpoint(engine)
    ids = ids_of(engine, some_events(engine, 3))
    with engine.begin() as connection:
        connection.execute(text("UPDATE duehook.endpoints SET status = 'disabled', disabled_at = now()"))
    assert set(dispatcher.deliver(ids).answers.values()) == {Answer.PARKED}
    wait_until(lambda: rows(engine, "SELECT bool_and(parked) FROM duehook.deliveries") == [True])
    dispatcher.attend([endpoint])
    assert statements.sent.count("deliveries.claim") == 1


def test_who_waits_for_its_endpoint_holds_up_no_other(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    dispatcher, _ = dispatching(max_in_flight=40, max_in_flight_each=10)
    hold = threading.Event()
    slow, quick = Receiver(), receiver
    slow.answer = lambda _: Reply(hold=hold)
    slow.register(engine, event_types=["slow.one"])
    quick.register(engine, event_types=["quick.one"])
    held = ids_of(engine, some_events(engine, 60, type="slow.one"))
    others = ids_of(engine, some_events(engine, 10, type="quick.one"))
    dispatcher.deliver(held)
    wait_until(lambda: len(slow.received) == 10)
    assert set(dispatcher.deliver(others).answers.values()) == {Answer.TAKEN}
    wait_until(lambda: len(quick.received) == 10)
    assert len(slow.received) == 10
    hold.set()
    slow.close()


def test_what_waits_for_a_receiver_that_hangs_is_parked_behind_one_row(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    dispatcher, _ = dispatching(max_in_flight_each=2)
    hold = threading.Event()
    receiver.answer = lambda _: Reply(hold=hold)
    endpoint = receiver.register(engine)
    first, second = (ids_of(engine, some_events(engine, 5)) for _ in range(2))
    dispatcher.deliver(first)
    dispatcher._places._since[endpoint] -= 6  # it hangs for so long
    assert set(dispatcher.deliver(second).answers.values()) == {Answer.PARKED}
    wait_until(lambda: rows(engine, "SELECT count(*) FROM duehook.deliveries WHERE parked") == [8], what="its patience")
    due = "SELECT kind FROM duehook.outbox WHERE look_at <= now() + interval '50 s'"
    assert Counter(rows(engine, due)) == {"delivery": 2, "endpoint": 1}, "two leases and one look"
    hold.set()


def test_no_transaction_is_open_while_a_receiver_takes_its_time(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver, connect: Connect
) -> None:
    watcher = connect(autocommit=True)
    counts: list[int] = []

    def open_ones() -> int:
        found = watcher.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchone()
        assert found is not None
        return int(found[0])

    def answer(_: object) -> Reply:
        """A moment later, for whatever else has begun one: nobody holds one for as long as the request takes."""
        until = time.monotonic() + 3
        while open_ones() and time.monotonic() < until:
            time.sleep(0.01)
        counts.append(open_ones())
        return Reply()

    receiver.answer = answer
    receiver.register(engine)
    dispatcher.deliver(ids_of(engine, some_events(engine)))
    wait_until(lambda: states(engine) == ["delivered"])
    assert counts == [0]


def test_a_receiver_gets_the_very_bytes_of_the_event_on_every_attempt(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    spelled = ' { "b" : 1.0, "a":1e2, "a":"\\u00e9" } '
    receiver.answer = lambda request: Reply(500 if request.attempt == 1 else 200)
    receiver.register(engine, retry_schedule=[0.01])
    ids = ids_of(engine, some_events(engine, data=spelled))
    dispatcher.deliver(ids)
    wait_until(lambda: rows(engine, "SELECT step FROM duehook.deliveries") == [1])
    wait_until(lambda: dispatcher.deliver(ids) and states(engine) == ["delivered"])
    first, second = receiver.received
    assert first.body == second.body
    assert first.body.endswith(b'"data":' + spelled.encode() + b"}")
    assert first.event_id == second.event_id
