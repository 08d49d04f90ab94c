"""What must be true of the three accounts, each against the others. Every judge adds sentences to the verdict."""

import hashlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from tests.chaos.accounts import Accounts, Committed, Kept, Ledger
from tests.chaos.load import RESOURCE, Told
from tests.chaos.plan import payload_of

# Everybody but the worker of the fault reads the machine's one clock, and that one's is never asked: the database's
# decides. So this is no allowance for a clock that is off, it is what rounding may cost.
SLOP = 0.001
LATE = 60.0  # seconds after the faults, or after its time if that comes later, by which everything is accepted
PLACED = "order.placed"
# What an answer of a receiver may have been recorded as: as it was, or by somebody who never got it.
RECORDED = {
    "applied": {"delivered", "unknown", "abandoned"},
    "duplicate": {"delivered", "unknown", "abandoned"},
    "failed": {"failed", "unknown", "abandoned"},
    "throttled": {"throttled", "unknown", "abandoned"},
}
ACCEPTED = ("applied", "duplicate")
REPEATABLE = ("unknown", "abandoned")  # outcomes after which a receiver may have the request, so that it is sent again
NEVER_CAME = ("unreached", "blocked")  # outcomes that say that no receiver has seen the request


@dataclass(slots=True)
class Verdict:
    """`violations` are sentences; a run is right when there is none."""

    events: int = 0
    wanted: int = 0  # deliveries
    lost: int = 0
    duplicate_effects: int = 0
    duplicates_received: int = 0
    repeatable: int = 0  # attempts that ended without a record, or as unknown: as many may have come twice
    overtaken: int = 0  # requests that arrived after one of a later attempt
    requests: int = 0
    latest: float = 0.0  # seconds from the end of the faults, or from its time, until the last effect
    violations: list[str] = field(default_factory=list)
    duplicates_by_kind: Counter[str] = field(default_factory=Counter)
    bound_by_kind: Counter[str] = field(default_factory=Counter)

    def unless(self, right: bool, sentence: str) -> None:
        if not right:
            self.violations.append(sentence)

    def none(self, wrong: Iterable[object], sentence: str) -> None:
        """Nobody may be like this."""
        if found := list(wrong):
            self.violations.append(f"{len(found)} {sentence}, such as {found[:3]}")


def judge_accounts(verdict: Verdict, accounts: Accounts, over_at: float) -> None:
    """All of it; `over_at` is when the last fault was over."""
    verdict.events = len(accounts.events)
    verdict.repeatable = sum(each.outcome in REPEATABLE for each in accounts.attempts)
    verdict.violations += accounts.told.contradictions
    judge_events(verdict, accounts.events, accounts.told)
    judge_reservations(verdict, accounts.reservations, accounts.told)
    judge_ends(verdict, accounts.events, accounts.told)
    judge_deliveries(verdict, accounts)
    judge_attempts(verdict, accounts)
    times = promised_times(accounts)
    for ledger in accounts.ledgers:
        events = accounts.events_of(ledger.place.tenant)
        judge_ledger(verdict, ledger, events)
        judge_promises(verdict, ledger, accounts.told)
        judge_times(verdict, ledger, times, over_at)


def judge_events(verdict: Verdict, events: Iterable[Committed], told: Told) -> None:
    """The database's events against what producers committed, asked for and were answered."""
    posted = [each for each in events if each.origin == "producer"]
    keys = Counter((each.tenant, each.key) for each in posted)
    verdict.none(sorted(told.expected - keys.keys()), "accepted events are not there")
    verdict.none(sorted(keys.keys() & told.rolled_back), "events are there though they were rolled back")
    verdict.none(keys.keys() - told.expected - told.rolled_back, "events are there that nobody posted")
    verdict.none((key for key, times in keys.items() if times > 1), "events are there more than once")
    other = (each.key for each in posted if (each.type, each.data) != (PLACED, payload_of(each.key)))
    verdict.none(other, "events hold something else than was posted")
    id_of = {(each.tenant, each.key): each.id for each in posted}
    wrong = (key for key, ids in told.ids.items() if ids != {id_of.get(key)})
    verdict.none(wrong, "events have another id than producers were told")
    moved = (each.key for each in posted if not _is_as_told(each.key, each.due_at, told.due, told))
    verdict.none(moved, "events are due at another time than was asked for or told")


def judge_reservations(verdict: Verdict, reservations: Iterable[Kept], told: Told) -> None:
    """The database's reservations against what producers asked for and were answered."""
    kept = {each.id: each for each in reservations}
    verdict.none(told.held.keys() ^ kept.keys(), "reservations are missing, or nobody asked for them")
    strange = (each.id for each in kept.values() if each.tenant != told.tenants.get(each.id, each.tenant))
    verdict.none(strange, "reservations are another tenant's")
    moved = (each.id for each in kept.values() if not _is_as_told(each.id, each.expires_at, told.held, told))
    verdict.none(moved, "reservations end at another time than was asked for or told")
    other = ((each.id, each.status, told.end_of(each.id)) for each in kept.values())
    verdict.none((each for each in other if each[1] != each[2]), "reservations ended otherwise than was told")
    for id, act in told.acts.items():
        ends_at = told.held.get(id, kept[id].expires_at if id in kept else act.asked_at)
        late = act.yes and act.what == "confirm" and act.asked_at > ends_at + SLOP
        verdict.unless(not late, f"{id} was confirmed though it was asked for after its end")
        soon = not act.yes and act.answered_at < ends_at - SLOP
        verdict.unless(not soon, f"{act.what} of {id} was refused before its end")


def _is_as_told(name: str, at: float, answered: dict[str, float], told: Told) -> bool:
    """Whether this is the time that the API answered, if it did, and one that who asked for it can have meant."""
    soonest, latest = told.windows.get(name, (at, at))
    return answered.get(name, at) == at and soonest - SLOP <= at <= latest + SLOP


def judge_ends(verdict: Verdict, events: Iterable[Committed], told: Told) -> None:
    """Every reservation has the one event that tells of its end, of this kind and with this in it, and no other."""
    news: dict[str | None, list[Committed]] = defaultdict(list)
    for each in events:
        if each.origin == "service":
            news[_reservation_of(each.type, each.key)].append(each)
    verdict.none((each.key for id in news.keys() - told.held.keys() for each in news[id]), "events end no reservation")
    for id, ends_at in told.held.items():
        said = [(each.tenant, *_end_in(each.data), each.key) for each in news[id]]
        end = told.end_of(id)
        wanted = (told.tenants[id], id, end, RESOURCE, 2, ends_at, f"reservation.{end}:{id}:v2")
        verdict.unless(said == [wanted], f"{id} is {end}, and its events say {said}")


def _reservation_of(type: str, key: str | None) -> str | None:
    """Whose end an event tells by its type and key; None when they tell of none."""
    begins, _, rest = (key or "").partition(":")
    return rest.rpartition(":")[0] if type.startswith("reservation.") and begins == type else None


def _end_in(data: Any) -> tuple[object, ...]:
    try:
        at = datetime.fromisoformat(data["expires_at"]).timestamp()
        return (data["id"], data["status"], data["resource"], data["version"], at)
    except (KeyError, TypeError, ValueError):
        return (data,)


def judge_deliveries(verdict: Verdict, accounts: Accounts) -> None:
    """Every event goes once to each receiver of its tenant and is delivered; every request belongs to such a one."""
    places = [ledger.place for ledger in accounts.ledgers]
    wanted = {(each.id, place.url) for each in accounts.events for place in places if place.tenant == each.tenant}
    events = {each.id for each in accounts.events}
    there = Counter((each.event, each.url) for each in accounts.deliveries if each.event in events)
    verdict.none(wanted - there.keys(), "deliveries are not there")
    verdict.none(there.keys() - wanted, "deliveries go where they should not")
    verdict.none((each for each, times in there.items() if times > 1), "deliveries are there more than once")
    undelivered = (each.id for each in accounts.deliveries if each.status != "delivered")
    verdict.none(undelivered, "deliveries are not delivered")
    whose = {each.id: (each.event, each.url) for each in accounts.deliveries}
    for ledger in accounts.ledgers:
        strange = (r.delivery for r in ledger.requests if whose.get(r.delivery) != (r.event, ledger.place.url))
        verdict.none(strange, f"requests came to {ledger.place.name} of deliveries that are not its own")


def judge_attempts(verdict: Verdict, accounts: Accounts) -> None:
    """Every request against the attempt that was recorded of it, and every attempt against the receivers' ledgers."""
    outcomes = {(each.delivery, each.number): each.outcome for each in accounts.attempts}
    requests = [each for ledger in accounts.ledgers for each in ledger.requests]
    answers = {(each.delivery, each.attempt): each.answer for each in requests}
    verdict.none((key for key in answers if key not in outcomes), "requests came of which no attempt is kept")
    wrong = (
        (key, answer, outcomes[key])
        for key, answer in answers.items()
        if key in outcomes and outcomes[key] not in RECORDED.get(answer, outcomes.values())
    )
    verdict.none(wrong, "answers were recorded as something else")
    delivered = [key for key, outcome in outcomes.items() if outcome == "delivered"]
    false = (key for key in delivered if answers.get(key) not in ACCEPTED)
    verdict.none(false, "attempts are kept as delivered that nobody accepted")
    reached = (key for key, outcome in outcomes.items() if outcome in NEVER_CAME and key in answers)
    verdict.none(reached, "attempts are kept as never sent that came")
    accepted = Counter(each.delivery for each in requests if each.answer in ACCEPTED)
    repeatable = Counter(each.delivery for each in accounts.attempts if each.outcome in REPEATABLE)
    often = (delivery for delivery, times in accepted.items() if times > 1 + repeatable[delivery])
    verdict.none(often, "deliveries were accepted more often than an outcome was unknown")
    times = Counter(delivery for delivery, _ in delivered)
    without = (each.id for each in accounts.deliveries if each.status == "delivered" and times[each.id] != 1)
    verdict.none(without, "deliveries are delivered without the one attempt that was")


def judge_ledger(verdict: Verdict, ledger: Ledger, events: Iterable[Committed]) -> None:
    """A receiver's ledger against the events of its tenant."""
    name, requests = ledger.place.name, ledger.requests
    bodies = {each.id: hashlib.sha256(each.body.encode()).hexdigest() for each in events}
    times = Counter(event for event, _, _ in ledger.effects)
    lost, doubled = bodies.keys() - times.keys(), sum(each - 1 for each in times.values())
    verdict.wanted += len(bodies)
    verdict.lost += len(lost)
    verdict.duplicate_effects += doubled
    verdict.requests += len(requests)
    verdict.none(sorted(lost), f"effects are lost at {name}")
    verdict.unless(not doubled, f"{doubled} effects happened twice at {name}")
    verdict.none(times.keys() - bodies.keys(), f"effects of events that were never committed happened at {name}")
    unverified = (each.answer for each in requests if each.answer.startswith("unverified"))
    verdict.none(unverified, f"signatures did not verify at {name}")
    other = (each.delivery for each in requests if bodies.get(each.event) != each.body)
    verdict.none(other, f"requests to {name} had other bytes than the event")
    numbers: dict[str, list[int]] = defaultdict(list)
    for each in requests:
        numbers[each.delivery].append(each.attempt)
    # A frozen worker may send an older attempt after a newer one; no attempt is ever sent twice.
    twice = (delivery for delivery, each in numbers.items() if len(each) != len(set(each)))
    verdict.none(twice, f"deliveries to {name} had the same attempt number on two requests")
    verdict.overtaken += sum(later < earlier for each in numbers.values() for earlier, later in pairwise(each))


def judge_promises(verdict: Verdict, ledger: Ledger, told: Told) -> None:
    """A receiver's effects against what producers were told, whatever the database holds: one for each, of its kind."""
    name, tenant = ledger.place.name, ledger.place.tenant
    placed = Counter(key for _, key, type in ledger.effects if type == PLACED)
    promised: Counter[str | None] = Counter(key for owner, key in told.expected if owner == tenant)
    verdict.none((promised - placed).elements(), f"promised effects did not happen at {name}")
    verdict.none((placed - promised).elements(), f"effects happened at {name} that nobody was promised")
    ended: dict[str | None, list[str]] = defaultdict(list)
    for _, key, type in ledger.effects:
        if type != PLACED:
            ended[_reservation_of(type, key)].append(type)
    for id in (each for each, owner in told.tenants.items() if owner == tenant):
        end = told.end_of(id)
        verdict.unless(ended.pop(id, []) == [f"reservation.{end}"], f"{name} was not told once of {id}, which is {end}")
    verdict.none(ended.values(), f"news came to {name} of reservations that nobody has")


def promised_times(accounts: Accounts) -> dict[str, float]:
    """When each event is due: as its producer was told, or else as the database has it."""
    told = accounts.told
    return {each.id: _promised_time(each, told) for each in accounts.events}


def _promised_time(event: Committed, told: Told) -> float:
    if event.type == "reservation.expired":
        return told.held.get(_reservation_of(event.type, event.key) or "", event.due_at)
    return told.due.get(event.key, event.due_at)


def judge_times(verdict: Verdict, ledger: Ledger, times: dict[str, float], over_at: float) -> None:
    """Nothing comes before the time that was promised, and nothing long after it."""
    first, name = dict(_first_accepted(ledger)), ledger.place.name
    early = (each.event for each in ledger.requests if each.came_at < times.get(each.event, 0.0) - SLOP)
    verdict.none(early, f"requests came to {name} before their time")
    took = {event: at - max(times[event], over_at) for event, at in first.items() if event in times}
    verdict.latest = max(verdict.latest, *took.values(), 0.0)
    late = (event for event, seconds in took.items() if seconds > LATE)
    verdict.none(late, f"events were accepted at {name} later than {LATE:g} s after their time and the faults")


def _first_accepted(ledger: Ledger) -> Iterator[tuple[str, float]]:
    """Each event with when its first accepted request came."""
    seen: set[str] = set()
    for each in sorted(ledger.requests, key=lambda request: request.came_at):
        if each.answer in ACCEPTED and each.event not in seen:
            seen.add(each.event)
            yield each.event, each.came_at


def claims_between(accounts: Accounts, began_at: float, ended_at: float) -> int:
    """How many attempts began then; they are in order of time."""
    started = [each.started_at for each in accounts.attempts]
    return bisect_left(started, ended_at) - bisect_left(started, began_at)
