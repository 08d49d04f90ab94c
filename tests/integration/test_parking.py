"""Parked deliveries and the pace of their endpoint: claimed when there is a slot, never stranded, never too many."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from app.core import deliveries as core
from app.core import endpoints, pacing
from app.core.deliveries import Room
from app.core.pacing import News
from app.core.pings import ping
from app.domain.pacing import FAILURES, PAUSE, TROUBLES, Closed, Heard
from app.domain.states import Outcome
from app.domain.wakeups import Answer
from app.ledger import endpoint_changes as changes
from app.ledger import paces
from app.ledger.events import Event
from app.ledger.sealing import Sealer
from tests.clock import Clock
from tests.ledgers import ROOM, TENANT, TERMS, an_endpoint, claimed, deliveries_of, ending, row, rows, some_events
from tests.processes import KEY

DAYS = timedelta(days=5)
SEALER = Sealer([KEY])
AHEAD = 200


def due_deliveries(engine: Engine, count: int = 1) -> list[int]:
    return [each for event in some_events(engine, count) for each in deliveries_of(engine, event)]


def answers(engine: Engine, ids: Sequence[int], room: Room = ROOM) -> Counter[Answer]:
    return Counter(core.claim(engine, ids, TERMS, room).looked.answers.values())


def look_of(engine: Engine, endpoint: int) -> list[Any]:
    """When the endpoint's row comes up, if it has one; `infinity` is no time that Python has."""
    query = "SELECT look_at::text FROM duehook.outbox WHERE ref = :endpoint AND kind = 'endpoint'"
    return rows(engine, query, endpoint=endpoint)


def at(clock: Clock, **later: float) -> list[str]:
    """As `look_of` says it."""
    moment = (clock.now + timedelta(**later)).strftime("%Y-%m-%d %H:%M:%S.%f")
    return [moment.rstrip("0").rstrip(".") + "+00"]


def attend(engine: Engine, endpoint: int, most: int = AHEAD) -> list[int]:
    """The ids that got slots."""
    return [each for _, each in pacing.attend(engine, {endpoint: most}).slots.get(endpoint, [])]


def hear(engine: Engine, clock: Clock, endpoint: int, outcome: Outcome, times: int = 1, **told: Any) -> None:
    revision = told.pop("revision", row(engine, "endpoints", "seq", endpoint)["revision"])
    news = [News(endpoint, revision, Heard(outcome, clock.now, **told), "failed (500)")] * times
    assert pacing.hear(engine, news, DAYS) == []


def change(engine: Engine, endpoint: int, **members: Any) -> None:
    with engine.begin() as connection:
        endpoints.change(connection, SEALER, TENANT, endpoint, members)


def switch(engine: Engine, endpoint: int, on: bool) -> None:
    with engine.begin() as connection:
        (endpoints.enable if on else endpoints.disable)(connection, TENANT, endpoint)


def test_parking_puts_a_delivery_to_its_age_limit_and_wakes_its_endpoint(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    ids = due_deliveries(engine, 3)
    assert core.park(engine, ids).answers == dict.fromkeys(ids, Answer.PARKED)
    assert {row(engine, "outbox", "ref", each)["look_at"] for each in ids} == {clock.now + TERMS.max_age}
    assert look_of(engine, endpoint) == at(clock)
    assert core.park(engine, ids).answers == dict.fromkeys(ids, Answer.PARKED), "a repeat"


def test_only_what_waits_for_nothing_but_its_endpoint_is_parked(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    flying, done, retried, due = due_deliveries(engine, 4)
    claims = {each: claimed(engine, each)[0] for each in (flying, done, retried)}
    core.record(engine, [ending(claims[done])], max_age=DAYS)
    core.record(engine, [ending(claims[retried], Outcome.FAILED, after=timedelta(seconds=5))], max_age=DAYS)
    parked = core.park(engine, [flying, done, retried, due]).answers
    assert [each for each, answer in parked.items() if answer is Answer.PARKED] == [due]


def test_a_parked_delivery_that_is_too_old_is_buried_by_its_own_row(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    (delivery,) = due_deliveries(engine)
    core.park(engine, [delivery])
    clock.advance(days=5)
    assert answers(engine, [delivery]) == {Answer.BURIED: 1}
    assert row(engine, "deliveries", "id", delivery)["reason"] == "age_exhausted"


def test_a_look_gives_slots_to_some_and_comes_again_while_more_are_parked(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    ids = due_deliveries(engine, 5)
    core.park(engine, ids)
    first = attend(engine, endpoint, 3)
    assert len(first) == 3
    assert attend(engine, endpoint, 3) == first, "a repeat gives them again"
    assert look_of(engine, endpoint) == at(clock, seconds=2), "should who got them die"
    assert answers(engine, first) == {Answer.TAKEN: 3}
    rest = attend(engine, endpoint, 3)
    assert sorted(first + rest) == ids
    assert look_of(engine, endpoint) == at(clock, seconds=2)
    assert answers(engine, rest) == {Answer.TAKEN: 2}
    assert attend(engine, endpoint) == []
    assert look_of(engine, endpoint) == [], "nothing is parked"
    assert pacing.attend(engine, {endpoint: AHEAD}).looked.answers == {endpoint: Answer.GONE}


def test_a_backlog_that_is_more_than_one_look_takes_lets_what_is_fresh_go_between(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    ids = due_deliveries(engine, 9)
    core.park(engine, ids)
    assert attend(engine, endpoint, 4) == [ids[0], ids[8], ids[1], ids[7]]
    assert attend(engine, endpoint, 1) == [ids[0]]
    assert attend(engine, endpoint, 9) == ids


def test_an_endpoint_with_a_rate_is_claimed_by_its_slots_alone(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine, rate_per_second=2)
    ids = due_deliveries(engine, 10)
    claim = core.claim(engine, ids, TERMS, ROOM)
    assert Counter(claim.looked.answers.values()) == {Answer.TAKEN: 1, Answer.PACED: 9}
    assert claim.slots == {endpoint: clock.now + timedelta(seconds=0.5)}
    core.park(engine, list(claim.turned_away))
    slots = pacing.attend(engine, {endpoint: AHEAD}).slots[endpoint]
    assert slots == [(clock.now + timedelta(seconds=0.5 * n), ids[n]) for n in range(1, 5)]
    assert look_of(engine, endpoint) == at(clock, seconds=2.5)
    assert answers(engine, ids[1:5]) == {Answer.PACED: 4}, "a slot is a look, and no permission"
    clock.advance(seconds=0.5)
    assert answers(engine, ids[1:5]) == {Answer.TAKEN: 1, Answer.PACED: 3}


def test_another_rate_counts_for_the_next_claim_and_has_what_is_parked_looked_at(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine, rate_per_second=0.01)
    ids = due_deliveries(engine, 50)
    assert answers(engine, ids) == {Answer.TAKEN: 1, Answer.PACED: 49}
    core.park(engine, ids[1:])
    attend(engine, endpoint)
    assert look_of(engine, endpoint) == at(clock, seconds=100)
    clock.advance(seconds=1)
    change(engine, endpoint, rate_per_second=100)
    assert look_of(engine, endpoint) == at(clock)
    assert answers(engine, ids[1:]) == {Answer.TAKEN: 11, Answer.PACED: 38}, "a tenth of a second's worth"
    change(engine, endpoint, rate_per_second=0.01)
    clock.advance(seconds=99)
    assert answers(engine, ids[12:]) == {Answer.PACED: 38}, "and downward"
    change(engine, endpoint, rate_per_second=None)
    assert answers(engine, ids[12:]) == {Answer.TAKEN: 38}


def test_a_limit_of_what_is_in_flight_holds_over_every_claimer(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine, max_in_flight=3)
    ids = due_deliveries(engine, 10)
    assert answers(engine, ids[:2]) == {Answer.TAKEN: 2}
    claim = core.claim(engine, ids[2:5], TERMS, ROOM)
    assert Counter(claim.looked.answers.values()) == {Answer.TAKEN: 1, Answer.PACED: 2}
    assert answers(engine, ids[5:]) == {Answer.PACED: 5}
    core.record(engine, [ending(claim.claims[0])], max_age=DAYS)
    assert answers(engine, ids[5:]) == {Answer.TAKEN: 1, Answer.PACED: 4}
    clock.advance(seconds=46)
    assert answers(engine, ids[5:]) == {Answer.TAKEN: 3, Answer.PACED: 2}, "the leases of a killed worker are over"


def test_a_new_limit_counts_what_is_in_the_air_already(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    ids = due_deliveries(engine, 6)
    claims = claimed(engine, *ids[:4])
    change(engine, endpoint, max_in_flight=3)
    assert answers(engine, ids[4:]) == {Answer.PACED: 2}
    core.record(engine, [ending(each) for each in claims[:2]], max_age=DAYS)
    assert answers(engine, ids[4:]) == {Answer.TAKEN: 1, Answer.PACED: 1}


def test_a_failing_endpoint_is_closed_probed_and_opened_by_one_success(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    ids = due_deliveries(engine, 8)
    core.park(engine, ids[1:])
    hear(engine, clock, endpoint, Outcome.UNREACHED, times=TROUBLES)
    assert look_of(engine, endpoint) == at(clock, seconds=PAUSE.total_seconds())
    assert answers(engine, ids[:1]) == {Answer.PACED: 1}
    assert attend(engine, endpoint) == []
    clock.advance(seconds=5)
    assert attend(engine, endpoint) == ids[1:4], "three that may be the probe"
    assert answers(engine, ids) == {Answer.TAKEN: 1, Answer.PACED: 7}
    hear(engine, clock, endpoint, Outcome.DELIVERED)
    assert look_of(engine, endpoint) == at(clock), "the others go on at once"
    assert answers(engine, ids) == {Answer.HELD: 1, Answer.TAKEN: 7}


def test_a_probe_that_nobody_ends_is_over_with_its_lease(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    ids = due_deliveries(engine, 3)
    hear(engine, clock, endpoint, Outcome.FAILED, times=TROUBLES)
    clock.advance(seconds=5)
    assert answers(engine, ids[:1]) == {Answer.TAKEN: 1}
    clock.advance(seconds=44)
    assert answers(engine, ids[1:]) == {Answer.PACED: 2}
    clock.advance(seconds=1)
    assert answers(engine, ids[1:]) == {Answer.TAKEN: 1, Answer.PACED: 1}


def test_a_ping_asks_a_closed_endpoint_at_once_and_its_success_opens_it(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine, max_in_flight=1)
    hear(engine, clock, endpoint, Outcome.FAILED, times=TROUBLES)
    with engine.begin() as connection:
        sent = ping(connection, TENANT, endpoint)
    (delivery,) = rows(engine, "SELECT id FROM duehook.deliveries")
    assert isinstance(sent, Event)
    (claim,) = claimed(engine, delivery)
    assert claim.troubled


def test_a_claim_says_whether_a_success_would_be_news(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    first, second, third = due_deliveries(engine, 3)
    assert not claimed(engine, first)[0].troubled
    hear(engine, clock, endpoint, Outcome.REFUSED)
    assert claimed(engine, second)[0].troubled
    hear(engine, clock, endpoint, Outcome.DELIVERED)
    assert not claimed(engine, third)[0].troubled


def test_what_an_older_revision_was_answered_changes_nothing(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    hear(engine, clock, endpoint, Outcome.THROTTLED, hint=timedelta(hours=6))
    change(engine, endpoint, url="https://other.example/")
    (delivery,) = due_deliveries(engine)
    hear(engine, clock, endpoint, Outcome.THROTTLED, hint=timedelta(hours=6), revision=1)
    assert answers(engine, [delivery]) == {Answer.TAKEN: 1}, "another receiver has promised nothing"


def test_who_holds_a_pace_delays_that_endpoint_alone(engine: Engine, clock: Clock) -> None:
    held, free = an_endpoint(engine, max_in_flight=5), an_endpoint(engine, max_in_flight=5)
    ids = due_deliveries(engine)
    with engine.begin() as connection:
        paces.lock(connection, [held])
        claim = core.claim(engine, ids, TERMS, ROOM)
        told = [News(each, 1, Heard(Outcome.FAILED, clock.now), "failed") for each in (held, free)]
        assert pacing.hear(engine, told, DAYS) == told[:1], "to be told again"
    assert [each.endpoint for each in claim.claims] == [free]
    assert set(claim.turned_away.values()) == {held}


def test_days_of_nothing_but_failures_disable_an_endpoint_and_tell_the_others_why(engine: Engine, clock: Clock) -> None:
    endpoint, other = an_endpoint(engine), an_endpoint(engine, event_types=["endpoint.*"])
    hear(engine, clock, endpoint, Outcome.REDIRECTED, times=FAILURES)
    clock.advance(days=5)
    assert row(engine, "endpoints", "seq", endpoint)["status"] == "enabled"
    hear(engine, clock, endpoint, Outcome.REDIRECTED)
    disabled = row(engine, "endpoints", "seq", endpoint)
    assert disabled["status"] == "disabled"
    assert disabled["disabled_reason"].startswith(
        f"failing: {FAILURES + 1} attempts in a row since 2030-01-01T12:00:00Z"
    )
    assert "failed (500)" in disabled["disabled_reason"]
    told = (
        "SELECT d.endpoint FROM duehook.deliveries d JOIN duehook.events e ON e.seq = d.event WHERE type ~ 'disabled'"
    )
    assert rows(engine, told) == [other]


def test_a_success_on_the_last_moment_leaves_it_enabled_and_enabling_clears_the_count(
    engine: Engine, clock: Clock
) -> None:
    endpoint = an_endpoint(engine)
    hear(engine, clock, endpoint, Outcome.FAILED, times=FAILURES)
    clock.advance(days=5)
    hear(engine, clock, endpoint, Outcome.DELIVERED)
    hear(engine, clock, endpoint, Outcome.FAILED, times=FAILURES)
    assert row(engine, "endpoints", "seq", endpoint)["status"] == "enabled"
    clock.advance(days=5)
    hear(engine, clock, endpoint, Outcome.FAILED)
    assert row(engine, "endpoints", "seq", endpoint)["status"] == "disabled"
    switch(engine, endpoint, on=True)
    hear(engine, clock, endpoint, Outcome.FAILED)
    assert row(engine, "endpoints", "seq", endpoint)["status"] == "enabled"
    assert row(engine, "paces", "endpoint", endpoint)["failures"] == 1


def test_enabling_forgets_the_failures_and_not_what_the_receiver_asked_for(engine: Engine, clock: Clock) -> None:
    hinted, failing = an_endpoint(engine), an_endpoint(engine)
    hear(engine, clock, hinted, Outcome.THROTTLED, hint=timedelta(seconds=8))
    hear(engine, clock, failing, Outcome.FAILED, times=TROUBLES)
    for each in (hinted, failing):
        switch(engine, each, on=False)
        switch(engine, each, on=True)
    claim = core.claim(engine, due_deliveries(engine), TERMS, ROOM)
    assert [each.endpoint for each in claim.claims] == [failing]
    assert claim.slots[hinted] == clock.now + timedelta(seconds=8)


def test_what_is_due_for_a_disabled_endpoint_is_parked_behind_a_row_that_never_comes_up_until_it_is_enabled(
    engine: Engine, clock: Clock
) -> None:
    endpoint = an_endpoint(engine)
    ids = due_deliveries(engine, 3)
    switch(engine, endpoint, on=False)
    claim = core.claim(engine, ids, TERMS, ROOM)
    assert Counter(claim.looked.answers.values()) == {Answer.DISABLED: 3}
    core.park(engine, list(claim.turned_away))
    assert attend(engine, endpoint) == []
    assert look_of(engine, endpoint) == ["infinity"]
    core.park(engine, due_deliveries(engine))
    assert look_of(engine, endpoint) == ["infinity"], "more of them disturb nobody"
    switch(engine, endpoint, on=True)
    assert look_of(engine, endpoint) == at(clock)
    assert len(attend(engine, endpoint)) == 4


def test_what_is_parked_for_a_deleted_endpoint_is_cancelled_however_much_it_is(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "AT_ONCE", 2)
    endpoint = an_endpoint(engine)
    ids = due_deliveries(engine, 7)
    core.park(engine, ids)
    switch(engine, endpoint, on=False)
    attend(engine, endpoint)
    with engine.begin() as connection:
        assert endpoints.delete(connection, TENANT, endpoint)
    while given := attend(engine, endpoint, 2):
        assert answers(engine, given) == {Answer.CANCELLED: len(given)}
    assert rows(engine, "SELECT DISTINCT status FROM duehook.deliveries") == ["cancelled"]
    assert rows(engine, "SELECT ref FROM duehook.outbox") == []


def test_the_owner_sees_until_when_an_endpoint_is_sent_nothing_and_why(engine: Engine, clock: Clock) -> None:
    endpoint, limited = an_endpoint(engine), an_endpoint(engine, rate_per_second=0.1)
    hear(engine, clock, endpoint, Outcome.THROTTLED, hint=timedelta(seconds=30))
    answers(engine, due_deliveries(engine))
    with engine.begin() as connection:
        shown = paces.shown(connection, [endpoint, limited])
        assert {seq: (each.until, each.why) for seq, each in shown.items()} == {
            endpoint: (clock.now + timedelta(seconds=30), Closed.RETRY_AFTER),
            limited: (clock.now + timedelta(seconds=10), "rate_per_second"),
        }
        assert changes.lock(connection, TENANT, endpoint)
    clock.advance(seconds=30)
    with engine.begin() as connection:
        assert paces.shown(connection, [endpoint, limited]) == {}


def test_endpoints_without_limit_hint_or_trouble_take_no_lock(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    ids = due_deliveries(engine, 5)
    with engine.begin() as connection:
        paces.lock(connection, [endpoint])
        assert answers(engine, ids) == {Answer.TAKEN: 5}
