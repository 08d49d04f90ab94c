"""The judge of a chaos run is judged: a right world has no violation, and each way to be wrong is named."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import verdict as judges
from tests.chaos.load import Told
from tests.chaos.plan import payload_of
from tests.chaos.receiver import Receiver
from tests.chaos.verdict import Attempt, Committed, Request, Verdict

NOW = 1_000_000.0


@dataclass
class World:
    """All that the judge is given of one tenant with one receiver."""

    events: list[Committed]
    reservations: list[tuple[str, str, str, float]]
    effects: list[tuple[str, str | None, str]]
    requests: list[Request]
    attempts: list[Attempt]
    told: Told


def event(id: str, key: str, due_at: float, *, origin: str = "producer", type: str = "order.placed") -> Committed:
    data = payload_of(key)
    return Committed("acme", id, key, origin, type, data, due_at, json.dumps({"id": id, "data": data}))


def request(of: Committed, attempt: int, answer: str, came_at: float) -> Request:
    return Request(of.id, attempt, f"dlv_{of.id}", hashlib.sha256(of.body.encode()).hexdigest(), answer, came_at)


def world() -> World:
    """One event was delivered at once, one scheduled one at the third try, and a reservation has expired."""
    single, scheduled = event("e1", "single:1:0", NOW), event("e2", "scheduled:2:0", NOW + 10)
    end = event("e3", "reservation.expired:rsv_3:v2", NOW + 5, origin="service", type="reservation.expired")
    events = [single, scheduled, end]
    return World(
        events,
        [("acme", "rsv_3", "expired", NOW + 5)],
        [(each.id, each.key, each.type) for each in events],
        [
            request(single, 1, "applied", NOW + 0.1),
            request(scheduled, 1, "throttled", NOW + 10),
            request(scheduled, 2, "applied", NOW + 11),
            request(scheduled, 3, "duplicate", NOW + 12),
            request(end, 2, "applied", NOW + 6),
        ],
        [
            Attempt("dlv_e1", 1, "delivered", NOW),
            Attempt("dlv_e2", 1, "throttled", NOW + 10),
            Attempt("dlv_e2", 2, "unknown", NOW + 11),
            Attempt("dlv_e2", 3, "delivered", NOW + 12),
            Attempt("dlv_e3", 1, "unreached", NOW + 5),
            Attempt("dlv_e3", 2, "delivered", NOW + 6),
        ],
        Told(
            expected={("acme", "single:1:0"), ("acme", "scheduled:2:0")},
            rolled_back={("acme", "rolled-back:9:0")},
            ids={("acme", "single:1:0"): {"e1"}, ("acme", "scheduled:2:0"): {"e2"}},
            due={"e2": NOW + 10},
            held={"rsv_3": NOW + 5},
            tenants={"rsv_3": "acme"},
            refused={"rsv_3"},
        ),
    )


def judged(of: World) -> Verdict:
    verdict = Verdict()
    judges.judge_what_was_committed(verdict, of.events, of.told)
    judges.judge_reservations(verdict, of.reservations, of.told)
    judges.judge_receiver(verdict, "r", of.effects, of.requests, of.events)
    judges.judge_promises(verdict, "r", "acme", of.effects, of.told)
    judges.judge_times(verdict, "r", of.requests, of.events, of.told)
    judges.judge_attempts(verdict, of.requests, of.attempts)
    return verdict


def test_a_right_world_has_no_violation() -> None:
    verdict = judged(world())
    assert not verdict.violations
    assert (verdict.wanted, verdict.lost, verdict.duplicate_effects, verdict.requests) == (3, 0, 0, 5)


def put(things: list[Any], place: int, **changes: object) -> None:
    things[place] = replace(things[place], **changes)


WRONG: dict[str, tuple[Callable[[World], object], str]] = {
    "an accepted event is gone": (lambda w: w.events.pop(0), "accepted events are not there"),
    "a rolled back event is there": (
        lambda w: w.events.append(event("e9", "rolled-back:9:0", NOW)),
        "though they were rolled back",
    ),
    "an event that nobody posted": (lambda w: w.events.append(event("e9", "x", NOW)), "that nobody posted"),
    "an event twice": (lambda w: w.events.append(event("e9", "single:1:0", NOW)), "that nobody posted"),
    "other data": (lambda w: put(w.events, 0, data={}), "hold something else than was posted"),
    "another type": (lambda w: put(w.events, 0, type="order.x"), "hold something else than was posted"),
    "another id than was told": (lambda w: w.told.ids.update({("acme", "single:1:0"): {"e8"}}), "have another id"),
    "two ids for a repeat": (lambda w: w.told.ids[("acme", "single:1:0")].add("e8"), "have another id"),
    "a reservation is gone": (lambda w: w.reservations.clear(), "reservations are missing"),
    "another end than was promised": (
        lambda w: w.told.held.update(rsv_3=NOW + 4),
        "end at another time than was promised",
    ),
    "expired though confirmed": (lambda w: w.told.ends.update(rsv_3="confirmed"), "rsv_3 is expired though"),
    "confirmed though it was refused": (
        lambda w: w.reservations.__setitem__(0, ("acme", "rsv_3", "confirmed", NOW + 5)),
        "rsv_3 is confirmed though",
    ),
    "held for ever": (
        lambda w: w.reservations.__setitem__(0, ("acme", "rsv_3", "held", NOW + 5)),
        "rsv_3 is held though",
    ),
    "an effect is lost": (lambda w: w.effects.pop(0), "1 effects are lost"),
    "an effect twice": (lambda w: w.effects.append(w.effects[0]), "1 effects happened twice"),
    "an effect of nothing": (lambda w: w.effects.append(("e9", None, "order.placed")), "never committed"),
    "a lost event, effect and all": (
        lambda w: (w.events.pop(0), w.effects.pop(0)),
        "had an effect without a promise or none in spite of it",
    ),
    "an effect of what was rolled back": (
        lambda w: w.effects.append(("e9", "rolled-back:9:0", "order.placed")),
        "had an effect without a promise",
    ),
    "an end that was never told": (lambda w: w.effects.pop(), "not told once that rsv_3 is expired"),
    "an end that was told by two events": (
        lambda w: w.effects.append(("e9", "reservation.expired:rsv_3:v3", "reservation.expired")),
        "not told once that rsv_3 is expired",
    ),
    "another end than happened": (
        lambda w: w.effects.__setitem__(2, ("e3", "reservation.released:rsv_3:v2", "reservation.released")),
        "not told once that rsv_3 is expired",
    ),
    "the end of another's reservation": (
        lambda w: w.effects.append(("e9", "reservation.expired:rsv_8:v2", "reservation.expired")),
        "told of reservations that nobody has",
    ),
    "an unverified request": (lambda w: put(w.requests, 0, answer="unverified no_match"), "did not verify"),
    "other bytes on a retry": (lambda w: put(w.requests, 3, body="0"), "1 requests had other bytes"),
    "one attempt on two requests": (lambda w: w.requests.append(w.requests[0]), "the same attempt number"),
    "before its time": (lambda w: put(w.requests, 1, came_at=NOW + 9.9), "1 requests came before their time"),
    "before the time that was told": (lambda w: w.told.due.update(e2=NOW + 11), "came before their time"),
    "expired before its promised end": (lambda w: w.told.held.update(rsv_3=NOW + 7), "came before their time"),
    "a request without an attempt": (lambda w: w.attempts.pop(1), "of which no attempt is kept"),
    "accepted, and recorded as failed": (lambda w: put(w.attempts, 2, outcome="failed"), "recorded as something else"),
    "throttled, and recorded as delivered": (
        lambda w: put(w.attempts, 1, outcome="delivered"),
        "recorded as something else",
    ),
    "delivered, and nobody accepted it": (
        lambda w: put(w.attempts, 4, outcome="delivered"),
        "kept as delivered that nobody accepted",
    ),
    "never sent, and it came": (lambda w: put(w.attempts, 1, outcome="unreached"), "kept as never sent that came"),
    "sent again though its outcome was known": (
        lambda w: put(w.attempts, 2, outcome="throttled"),
        "accepted more often than an outcome was unknown",
    ),
    "never recorded as delivered": (
        lambda w: put(w.attempts, 0, outcome="unknown"),
        "tried and never recorded as delivered",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    wrong, (spoil, sentence) = world(), WRONG[name]
    spoil(wrong)
    assert any(sentence in each for each in judged(wrong).violations), judged(wrong).violations


def test_the_judge_reads_what_a_receiver_has_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Receiver(path, "whsec_" + "A" * 32, 0.0)
    assert judges.remembered(path) == ([], [])
