"""The verdict: the receivers' ledgers, the service's database and what producers were told, each against the others.

Nobody's counters are believed.
"""

import hashlib
import re
import sqlite3
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from app.domain.identity import public_id
from tests import leaks
from tests.chaos.faults import Happened
from tests.chaos.fleet import Fleet, asked
from tests.chaos.load import Load, Told
from tests.chaos.plan import LEASE, payload_of
from tests.invariants import violations

NORMAL = 3.0  # seconds of oldest-due age
MOST_RSS = 150_000  # pages of 4 KiB: what no process of ours may ever take
Effects = Sequence[tuple[str, str | None, str]]  # event, key, type
SLOP = 0.01  # seconds that the clocks of two processes of one machine may seem apart
PLACED = "order.placed"
END = re.compile(r"reservation\.([a-z]+):(.+):v[0-9]+")  # the key of the news that a reservation has ended
# What an answer of a receiver may have been recorded as: as it was, or by somebody who never got it.
RECORDED = {
    "applied": {"delivered", "unknown", "abandoned"},
    "duplicate": {"delivered", "unknown", "abandoned"},
    "failed": {"failed", "unknown", "abandoned"},
    "throttled": {"throttled", "unknown", "abandoned"},
}
ACCEPTED = ("applied", "duplicate")
NEVER_CAME = ("unreached", "blocked")  # outcomes that say that no receiver has seen the request
EVENTS = """
    SELECT tenant, id, key, origin, type, data, extract(epoch FROM due_at)::float8, head || data::text || '}'
      FROM duehook.events WHERE type LIKE 'order.%%' OR type LIKE 'reservation.%%'"""
ATTEMPTS = "SELECT delivery, number, outcome, extract(epoch FROM started_at)::float8 FROM duehook.attempts ORDER BY 4"
DELIVERIES = "SELECT id, endpoint, status FROM duehook.deliveries"
RESERVATIONS = "SELECT tenant, id, status, extract(epoch FROM expires_at)::float8 FROM duehook.reservations"


@dataclass(frozen=True, slots=True)
class Committed:
    """An event, as the database has it."""

    tenant: str
    id: str
    key: str
    origin: str
    type: str
    data: Any
    due_at: float
    body: str


@dataclass(frozen=True, slots=True)
class Request:
    """One, as a receiver remembers it; `delivery` is the public id, `body` a digest."""

    event: str
    attempt: int
    delivery: str
    body: str
    answer: str
    came_at: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One, as it was recorded."""

    delivery: str
    number: int
    outcome: str
    started_at: float


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
    violations: list[str] = field(default_factory=list)
    duplicates_by_kind: Counter[str] = field(default_factory=Counter)
    bound_by_kind: Counter[str] = field(default_factory=Counter)

    def unless(self, right: bool, sentence: str) -> None:
        if not right:
            self.violations.append(sentence)


def judge(fleet: Fleet, load: Load, happened: Sequence[Happened]) -> Verdict:
    """Once everything has settled."""
    verdict = Verdict()
    events = [Committed(*row) for row in asked(fleet, EVENTS)]
    attempts = [Attempt(public_id("dlv", row[0]), *row[1:]) for row in asked(fleet, ATTEMPTS)]
    verdict.events = len(events)
    judge_what_was_committed(verdict, events, load.told)
    judge_reservations(verdict, asked(fleet, RESERVATIONS), load.told)
    came: list[Request] = []
    for receiver in fleet.receivers.values():
        effects, requests = remembered(receiver.ledger)
        tenant, name = receiver.kind.tenant, receiver.kind.name
        judge_receiver(verdict, name, effects, requests, [each for each in events if each.tenant == tenant])
        judge_promises(verdict, name, tenant, effects, load.told)
        judge_times(verdict, name, requests, events, load.told)
        _count_duplicates(verdict, requests, happened)
        came += requests
    judge_attempts(verdict, came, attempts)
    _bound_duplicates(verdict, attempts, happened)
    open_still = asked(fleet, "SELECT status, count(*) FROM duehook.deliveries WHERE status <> 'delivered' GROUP BY 1")
    verdict.unless(not open_still, f"deliveries are not delivered: {open_still}")
    # Or what the outbox had lost would be healed by the audit, and nobody would know.
    mended = asked(fleet, "SELECT kind, number FROM duehook.repairs")
    verdict.unless(not mended, f"the audit had to mend the ledger: {mended}")
    with psycopg.connect(fleet.postgres.url) as connection:
        verdict.violations += [f"broken invariant: {name}: {who[:5]}" for name, who in violations(connection).items()]
    _judge_processes(verdict, fleet)
    return verdict


def remembered(ledger: Path) -> tuple[Effects, list[Request]]:
    """What a receiver has in its ledger: its effects as (event, key, type), and every request in order."""
    with closing(sqlite3.connect(ledger)) as connection:
        effects = connection.execute("SELECT event, key, type FROM effects").fetchall()
        requests = connection.execute(
            "SELECT event, attempt, delivery, body, answer, came_at FROM requests ORDER BY rowid"
        ).fetchall()
    return effects, [Request(*row) for row in requests]


def judge_what_was_committed(verdict: Verdict, events: Sequence[Committed], told: Told) -> None:
    """The database's events against what producers committed and were answered."""
    posted = [each for each in events if each.origin == "producer"]
    keys = Counter((each.tenant, each.key) for each in posted)
    missing, uncommitted = told.expected - keys.keys(), keys.keys() & told.rolled_back
    verdict.unless(not missing, f"{len(missing)} accepted events are not there, such as {sorted(missing)[:3]}")
    verdict.unless(not uncommitted, f"{len(uncommitted)} events are there though they were rolled back")
    more = keys.keys() - told.expected - told.rolled_back
    verdict.unless(not more and keys.total() == len(keys), f"{len(more)} events are there that nobody posted")
    other = [each.key for each in posted if (each.type, each.data) != (PLACED, payload_of(each.key))]
    verdict.unless(not other, f"{len(other)} events hold something else than was posted, such as {other[:3]}")
    id_of = {(each.tenant, each.key): each.id for each in posted}
    wrong = [key for key, ids in told.ids.items() if ids != {id_of.get(key)}]
    verdict.unless(not wrong, f"{len(wrong)} events have another id than producers were told, such as {wrong[:3]}")


def judge_reservations(verdict: Verdict, rows: Sequence[tuple[Any, ...]], told: Told) -> None:
    """The database's reservations (tenant, id, status, end) against what producers were answered."""
    status = {id: was for _, id, was, _ in rows}
    ends = {id: (tenant, at) for tenant, id, _, at in rows}
    verdict.unless(told.held.keys() == status.keys(), "reservations are missing, or nobody asked for them")
    moved = [id for id, at in told.held.items() if ends.get(id, (told.tenants[id], at)) != (told.tenants[id], at)]
    verdict.unless(not moved, f"{len(moved)} reservations end at another time than was promised, such as {moved[:3]}")
    for id, was in status.items():
        verdict.unless(
            was == told.ends.get(id, "expired"),
            f"{id} is {was} though its producer was told {told.ends.get(id, 'nothing, or that it was too late')}",
        )


def judge_receiver(
    verdict: Verdict, name: str, effects: Effects, requests: Sequence[Request], events: Sequence[Committed]
) -> None:
    """A receiver's ledger against the events of its tenant."""
    bodies = {each.id: hashlib.sha256(each.body.encode()).hexdigest() for each in events}
    times = Counter(event for event, _, _ in effects)
    lost, doubled = bodies.keys() - times.keys(), sum(each - 1 for each in times.values())
    verdict.wanted += len(bodies)
    verdict.lost += len(lost)
    verdict.duplicate_effects += doubled
    verdict.requests += len(requests)
    verdict.unless(not lost, f"{name}: {len(lost)} effects are lost, such as {sorted(lost)[:3]}")
    verdict.unless(not doubled, f"{name}: {doubled} effects happened twice")
    verdict.unless(times.keys() <= bodies.keys(), f"{name}: effects of events that were never committed")
    unverified = Counter(each.answer for each in requests if each.answer.startswith("unverified"))
    verdict.unless(not unverified, f"{name}: signatures did not verify: {dict(unverified)}")
    other = sum(bodies.get(each.event) != each.body for each in requests)
    verdict.unless(not other, f"{name}: {other} requests had other bytes than the event")
    numbers: dict[str, list[int]] = defaultdict(list)
    for each in requests:
        numbers[each.delivery].append(each.attempt)
    # A frozen worker may send an older attempt after a newer one; no attempt is ever sent twice.
    twice = sum(len(each) != len(set(each)) for each in numbers.values())
    verdict.unless(not twice, f"{name}: {twice} deliveries had the same attempt number on two requests")
    verdict.overtaken += sum(later < earlier for each in numbers.values() for earlier, later in pairwise(each))


def judge_promises(verdict: Verdict, name: str, tenant: str, effects: Effects, told: Told) -> None:
    """A receiver's effects against what producers were told, whatever the database holds: one for each, of its kind."""
    placed = Counter(key for _, key, type in effects if type == PLACED)
    promised = {key for owner, key in told.expected if owner == tenant}
    verdict.unless(
        placed == Counter(promised),
        f"{name}: {len(placed.keys() ^ promised)} events had an effect without a promise"
        f" or none in spite of it, {placed.total() - len(placed)} too many",
    )
    ended: dict[str, list[str]] = defaultdict(list)
    for _, key, type in effects:
        if found := END.fullmatch(key or ""):
            ended[found[2]].append(found[1] if type == f"reservation.{found[1]}" else f"{type} as {key}")
    for id in (each for each, owner in told.tenants.items() if owner == tenant):
        end = told.ends.get(id, "expired")
        verdict.unless(ended.pop(id, []) == [end], f"{name}: it was not told once that {id} is {end}")
    verdict.unless(not ended, f"{name}: it was told of reservations that nobody has, such as {sorted(ended)[:3]}")


def judge_times(
    verdict: Verdict, name: str, requests: Sequence[Request], events: Sequence[Committed], told: Told
) -> None:
    """Nothing comes before its time: neither by what the database holds nor by what producers were told."""
    due = {each.id: each.due_at for each in events}
    for each in events:
        found = END.fullmatch(each.key or "") if each.type == "reservation.expired" else None
        due[each.id] = max(due[each.id], told.held.get(found[2], 0.0) if found else told.due.get(each.id, 0.0))
    early = [each.event for each in requests if each.came_at < due.get(each.event, 0.0) - SLOP]
    verdict.unless(not early, f"{name}: {len(early)} requests came before their time, such as {early[:3]}")


def judge_attempts(verdict: Verdict, requests: Sequence[Request], attempts: Sequence[Attempt]) -> None:
    """Every request against the attempt that was recorded of it, and every attempt against the receivers' ledgers."""
    outcomes = {(each.delivery, each.number): each.outcome for each in attempts}
    answers = {(each.delivery, each.attempt): each.answer for each in requests}
    unknown = [key for key in answers if key not in outcomes]
    verdict.unless(not unknown, f"{len(unknown)} requests came of which no attempt is kept, such as {unknown[:3]}")
    wrong = [
        (key, answer, outcomes[key])
        for key, answer in answers.items()
        if key in outcomes and outcomes[key] not in RECORDED.get(answer, outcomes.values())
    ]
    verdict.unless(not wrong, f"{len(wrong)} answers were recorded as something else, such as {wrong[:3]}")
    delivered = [key for key, outcome in outcomes.items() if outcome == "delivered"]
    false = [key for key in delivered if answers.get(key) not in ACCEPTED]
    verdict.unless(not false, f"{len(false)} attempts are kept as delivered that nobody accepted, such as {false[:3]}")
    reached = [key for key, outcome in outcomes.items() if outcome in NEVER_CAME and key in answers]
    verdict.unless(not reached, f"{len(reached)} attempts are kept as never sent that came, such as {reached[:3]}")
    accepted = Counter(each.delivery for each in requests if each.answer in ACCEPTED)
    allowed = Counter(each.delivery for each in attempts if each.outcome in ("delivered", "unknown", "abandoned"))
    often = [delivery for delivery, number in accepted.items() if number > allowed[delivery]]
    verdict.unless(not often, f"{len(often)} deliveries were accepted more often than an outcome was unknown")
    open_still = {each.delivery for each in attempts} - {delivery for delivery, _ in delivered}
    verdict.unless(not open_still, f"{len(open_still)} deliveries were tried and never recorded as delivered")


def _count_duplicates(verdict: Verdict, requests: Sequence[Request], happened: Sequence[Happened]) -> None:
    applied: dict[str, float] = {}
    for each in requests:
        if each.answer in ACCEPTED and each.event in applied:
            verdict.duplicates_received += 1
            verdict.duplicates_by_kind[_blamed(applied[each.event], happened)] += 1
        elif each.answer == "applied":
            applied[each.event] = each.came_at


def _blamed(at: float, happened: Sequence[Happened]) -> str:
    """The kind of the fault that was there when the first request came, or else of the next, or the one just over."""
    for before, after in ((0.0, 0.0), (LEASE, 0.0), (LEASE, LEASE)):
        for each in happened:
            if each.began_at - before <= at <= each.ended_at + after:
                return each.fault.kind
    return "no fault"


def _bound_duplicates(verdict: Verdict, attempts: Sequence[Attempt], happened: Sequence[Happened]) -> None:
    """By kind of fault: what was leased as one began, and every claim made until it was over."""
    verdict.repeatable = sum(each.outcome in ("unknown", "abandoned") for each in attempts)
    started = [each.started_at for each in attempts]
    for each in happened:
        meanwhile = bisect_left(started, each.ended_at) - bisect_left(started, each.began_at)
        verdict.bound_by_kind[each.fault.kind] += each.leased + meanwhile


def _judge_processes(verdict: Verdict, fleet: Fleet) -> None:
    verdict.violations += fleet.ended
    for path in fleet.folder.glob("*.log"):
        said = leaks.found(path.read_bytes(), fleet.secrets)
        verdict.unless(not said, f"{path.name} says {sorted(said)}")
        traceback = re.search(rb"Traceback.*", path.read_bytes())
        verdict.unless(not traceback or path.name.startswith("receiver"), f"{path.name} holds a traceback")
    for slot in fleet.slots.values():
        verdict.unless(max(slot.rss, default=0) < MOST_RSS, f"{slot.name} took {max(slot.rss, default=0) // 256} MiB")
