"""Replays: what of a window an endpoint wants now is made or re-opened, each once, and nothing else."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from app.core import by_hand as by_hand_core
from app.core import deliveries, events, pings, replays
from app.core.jobs import advance
from app.core.reservations import Refused
from app.domain.identity import public_id
from app.domain.states import DeadReason, DeliveryStatus, JobStatus
from app.domain.wakeups import Answer
from app.ledger import by_hand, endpoint_changes
from app.ledger import events as event_ledger
from app.ledger.jobs import Job
from app.ledger.replays import make, window
from tests.clock import Clock
from tests.integration.test_jobs import job, small, steps
from tests.ledgers import (
    TENANT,
    TERMS,
    an_endpoint,
    buried,
    claimed,
    dead,
    deliveries_of,
    ending,
    row,
    rows,
    some_events,
)

__all__ = ["small"]
USUAL = (DeliveryStatus.DEAD, DeliveryStatus.CANCELLED)


def replay(
    engine: Engine,
    endpoint: int,
    since: datetime,
    until: datetime | None = None,
    statuses: Sequence[DeliveryStatus] = USUAL,
) -> int:
    with engine.begin() as connection:
        made = replays.start(connection, TENANT, endpoint, since=since, until=until, statuses=statuses)
    assert isinstance(made, Job)
    return made.seq


def result(engine: Engine, seq: int) -> Any:
    found = job(engine, seq)
    assert found.status is JobStatus.COMPLETED
    assert found.done == found.total
    return found.result


def due(engine: Engine, endpoint: int) -> list[int]:
    """The events whose delivery to this endpoint waits to be sent."""
    query = "SELECT event FROM duehook.deliveries WHERE endpoint = :endpoint AND status = 'scheduled' ORDER BY event"
    return rows(engine, query, endpoint=endpoint)


def delivered(engine: Engine, count: int) -> list[int]:
    """The seqs of new events that everybody has got."""
    made = some_events(engine, count)
    claims = claimed(engine, *[each for event in made for each in deliveries_of(engine, event)])
    deliveries.record(engine, [ending(claim) for claim in claims], max_age=TERMS.max_age)
    return made


def test_a_new_endpoint_gets_what_it_never_had(engine: Engine, clock: Clock, small: None) -> None:
    some_events(engine, 30)
    some_events(engine, 5, type="invoice.sent")
    endpoint = an_endpoint(engine, event_types=["order.*", "order.placed"])
    seq = replay(engine, endpoint, clock.now)
    assert steps(engine, clock, seq) > 4
    assert result(engine, seq) == {"reopened": 0, "made": 30, "skipped": {}}
    assert job(engine, seq).done == 35, "all that was looked at"
    assert due(engine, endpoint) == rows(
        engine, "SELECT seq FROM duehook.events WHERE type = 'order.placed' ORDER BY 1"
    )


@pytest.mark.parametrize(
    ("statuses", "again"),
    [
        (USUAL, {"dead", "cancelled"}),
        ([DeliveryStatus.DELIVERED], {"delivered"}),
        ([DeliveryStatus.DEAD], {"dead"}),
        ([], set()),
    ],
)
def test_what_it_has_had_is_opened_by_its_status(
    engine: Engine, clock: Clock, small: None, statuses: Sequence[DeliveryStatus], again: set[str]
) -> None:
    endpoint = an_endpoint(engine, event_types=["order.*"])
    dead(engine, 9)
    delivered(engine, 9)
    given_up(engine, some_events(engine, 9))
    waiting = some_events(engine, 2)
    before = dict(statuses_of(engine))
    seq = replay(engine, endpoint, clock.now, statuses=statuses)
    steps(engine, clock, seq)
    opened = {each for each, status in before.items() if status in again}
    assert result(engine, seq) == {"reopened": len(opened), "made": 0, "skipped": {}}
    assert job(engine, seq).done == 29
    assert set(due(engine, endpoint)) == opened | set(waiting)


def given_up(engine: Engine, seqs: Sequence[int]) -> None:
    """Cancelled one by one, which the event is not."""
    with engine.begin() as connection:
        by_hand.cancel(connection, TENANT, [each for seq in seqs for each in deliveries_of(engine, seq)])


def statuses_of(engine: Engine) -> list[tuple[int, str]]:
    with engine.begin() as connection:
        found = connection.execute(text("SELECT event, status FROM duehook.deliveries")).all()
    return [(row.event, row.status) for row in found]


def test_the_window_is_by_creation_and_both_its_ends_belong_to_it(engine: Engine, clock: Clock, small: None) -> None:
    made = []
    for _ in range(5):
        made.append(some_events(engine, 6))
        clock.advance(minutes=10)
    noon = clock.now - timedelta(minutes=50)
    endpoint = an_endpoint(engine, event_types=["order.*"])
    seq = replay(engine, endpoint, noon + timedelta(minutes=10), noon + timedelta(minutes=30))
    steps(engine, clock, seq)
    assert due(engine, endpoint) == [each for some in made[1:4] for each in some]
    assert job(engine, seq).done == 18
    again = replay(engine, endpoint, noon + timedelta(minutes=30, microseconds=1))
    later = some_events(engine, 3, delay_seconds=60)
    steps(engine, clock, again)
    assert result(engine, again)["made"] == 6
    assert not set(later) & set(due(engine, endpoint)), "not yet fanned out: they come by themselves"


def test_what_is_made_after_it_is_no_part_of_it(engine: Engine, clock: Clock, small: None) -> None:
    some_events(engine, 10)
    endpoint = an_endpoint(engine, event_types=["order.*"])
    seq = replay(engine, endpoint, clock.now, clock.now + timedelta(days=1))
    clock.advance(seconds=1)
    delivered(engine, 3)
    steps(engine, clock, seq)
    assert result(engine, seq) == {"reopened": 0, "made": 10, "skipped": {}}
    assert job(engine, seq).done == 10


def test_of_many_events_the_first_of_the_window_is_found_by_a_few_looks(engine: Engine, clock: Clock) -> None:
    made = []
    for _ in range(40):
        made += some_events(engine, 1)
        clock.advance(minutes=10)
    noon = clock.now - timedelta(minutes=400)
    for number in (0, 1, 17, 39):
        at = noon + timedelta(minutes=10 * number + 1)  # less the minute by which seqs and times may differ
        with engine.begin() as connection:
            found = window(connection, TENANT, at, at + timedelta(minutes=25))
        rest = made[number + 3 :]
        assert (found.first, found.end) == (made[number], rest[0] if rest else 2**63 - 1)
    with engine.begin() as connection:
        assert window(connection, TENANT, clock.now + timedelta(hours=1), clock.now).first == 2**63 - 1
        assert window(connection, "another", noon, clock.now).first == 2**63 - 1


def test_cancelled_events_pings_and_what_it_was_not_meant_for_stay_away(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    other = an_endpoint(engine)
    with engine.begin() as connection:
        assert pings.ping(connection, TENANT, endpoint)
        assert pings.ping(connection, TENANT, other)
        endpoint_changes.disable(connection, endpoint, "requested")  # which it is not told
        endpoint_changes.enable(connection, endpoint)
    for delivery in rows(engine, "SELECT id FROM duehook.deliveries"):
        (claim,) = claimed(engine, delivery)
        deliveries.record(engine, [buried(claim, DeadReason.REFUSED)], max_age=TERMS.max_age)
    (cancelled, live) = some_events(engine, 2)
    given_up(engine, [live])
    with engine.begin() as connection:
        events.cancel(connection, TENANT, cancelled)
    seq = replay(engine, endpoint, clock.now)
    steps(engine, clock, seq)
    assert result(engine, seq) == {"reopened": 1, "made": 0, "skipped": {"event_cancelled": 1}}
    assert due(engine, endpoint) == [live, *rows(engine, "SELECT seq FROM duehook.events WHERE type = 'job.completed'")]


def test_while_disabled_it_is_refused_and_without_endpoint_none(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    with engine.begin() as connection:
        endpoint_changes.disable(connection, endpoint, "requested")
        asked: Any = {"since": clock.now, "until": None, "statuses": USUAL}
        assert isinstance(replays.start(connection, TENANT, endpoint, **asked), Refused)
        assert replays.start(connection, "another", endpoint, **asked) is None
        assert isinstance(pings.ping(connection, TENANT, endpoint), Refused)
        assert pings.ping(connection, "another", endpoint) is None


def test_an_endpoint_that_is_deleted_meanwhile_ends_it(engine: Engine, clock: Clock, small: None) -> None:
    some_events(engine, 20)
    endpoint = an_endpoint(engine, event_types=["order.*"])
    seq = replay(engine, endpoint, clock.now)
    advance(engine, [seq])
    with engine.begin() as connection:
        endpoint_changes.delete(connection, endpoint)
    clock.advance(seconds=1)
    advance(engine, [seq])
    failed = job(engine, seq)
    name = public_id("end", endpoint)
    assert failed.status is JobStatus.FAILED
    assert failed.result == {
        "reopened": 0,
        "made": 7,
        "skipped": {},
        "error": f"{name} was deleted before all of it was replayed",
    }


def test_each_step_is_bounded_and_they_are_apart(engine: Engine, clock: Clock) -> None:
    some_events(engine, 450)
    endpoint = an_endpoint(engine, event_types=["order.*"])
    seq = replay(engine, endpoint, clock.now)
    made = []
    while advance(engine, [seq]).answers[seq] is Answer.TAKEN:
        made.append(len(due(engine, endpoint)))
        if job(engine, seq).status is JobStatus.COMPLETED:
            break
        pause = job(engine, seq).next_step_at - clock.now
        assert pause == timedelta(seconds=0.2)
        clock.advance(seconds=0.2)
    assert made == [200, 400, 450]


def test_a_fan_out_beside_it_makes_no_delivery_twice(engine: Engine, clock: Clock) -> None:
    """An event that waits is fanned out between the choice and the lock, and the endpoint has it then."""
    endpoint = an_endpoint(engine, event_types=["order.*"])
    (waiting,) = some_events(engine, 1, delay_seconds=60)
    clock.advance(seconds=55)
    events.fan_out(engine, [waiting])
    with engine.begin() as connection:
        assert make(connection, TENANT, endpoint, [waiting]) == 0
    assert due(engine, endpoint) == [waiting]


def test_an_event_cancelled_between_the_choice_and_the_lock_is_passed_over(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = some_events(engine, 2)
    endpoint = an_endpoint(engine, event_types=["order.*"])
    lock_all = event_ledger.lock_all

    def somebody_is_faster(connection: Connection, tenant: str, seqs: list[int]) -> dict[int, str | None]:
        with engine.begin() as other:
            events.cancel(other, TENANT, first)
        return lock_all(connection, tenant, seqs)

    monkeypatch.setattr(event_ledger, "lock_all", somebody_is_faster)
    seq = replay(engine, endpoint, clock.now)
    steps(engine, clock, seq)
    assert result(engine, seq) == {"reopened": 0, "made": 1, "skipped": {"event_cancelled": 1}}
    assert due(engine, endpoint) == [second]


def test_one_that_is_opened_by_hand_between_the_choice_and_the_lock_is_left(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = an_endpoint(engine, event_types=["order.*"])
    taken, left = dead(engine, 2)
    lock_all = event_ledger.lock_all

    def somebody_is_faster(connection: Connection, tenant: str, seqs: list[int]) -> dict[int, str | None]:
        with engine.begin() as other:
            by_hand_core.retry(other, TENANT, taken)
        return lock_all(connection, tenant, seqs)

    monkeypatch.setattr(event_ledger, "lock_all", somebody_is_faster)
    seq = replay(engine, endpoint, clock.now)
    steps(engine, clock, seq)
    assert result(engine, seq) == {"reopened": 1, "made": 0, "skipped": {}}
    assert [row(engine, "deliveries", "id", each)["round"] for each in (taken, left)] == [2, 2]
