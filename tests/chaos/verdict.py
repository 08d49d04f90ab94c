"""The verdict, from the receivers' ledgers and the service's database: nobody's counters are believed."""

import hashlib
import re
import sqlite3
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

import psycopg

from tests import leaks
from tests.chaos.faults import Happened
from tests.chaos.fleet import Fleet, ReceiverSlot, asked
from tests.chaos.load import Load
from tests.chaos.plan import LEASE
from tests.invariants import violations

NORMAL = 3.0  # seconds of oldest-due age
MOST_RSS = 150_000  # pages of 4 KiB: what no process of ours may ever take
EVENTS = """
    SELECT tenant, id, key, origin, head || data::text || '}' FROM duehook.events
     WHERE type LIKE 'order.%%' OR type LIKE 'reservation.%%'"""
REPEATABLE = "SELECT count(*) FROM duehook.attempts WHERE outcome IN ('unknown', 'abandoned')"
CLAIMED = """
    SELECT extract(epoch FROM started_at)::float8 FROM duehook.attempts ORDER BY 1"""
CONFIRMED_ENDS = "SELECT id, status FROM duehook.reservations"


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
    events = asked(fleet, EVENTS)
    verdict.events = len(events)
    _judge_what_was_committed(verdict, events, load)
    for receiver in fleet.receivers.values():
        bodies = {str(row[1]): _digest(str(row[4])) for row in events if row[0] == receiver.kind.tenant}
        _judge_receiver(verdict, receiver, bodies, happened)
    _judge_duplicates(verdict, fleet, happened)
    _judge_reservations(verdict, fleet, load)
    dead = asked(fleet, "SELECT reason, count(*) FROM duehook.dead_letters GROUP BY 1")
    verdict.unless(not dead, f"deliveries died of faults: {dead}")
    # Or what the outbox had lost would be healed by the audit, and nobody would know.
    mended = asked(fleet, "SELECT kind, number FROM duehook.repairs")
    verdict.unless(not mended, f"the audit had to mend the ledger: {mended}")
    with psycopg.connect(fleet.postgres.url) as connection:
        verdict.violations += [f"broken invariant: {name}: {who[:5]}" for name, who in violations(connection).items()]
    _judge_processes(verdict, fleet)
    return verdict


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _judge_what_was_committed(verdict: Verdict, events: Sequence[tuple[object, ...]], load: Load) -> None:
    keys = Counter((str(row[0]), str(row[2])) for row in events if row[3] == "producer")
    missing, uncommitted = load.expected - keys.keys(), keys.keys() & load.rolled_back
    verdict.unless(not missing, f"{len(missing)} accepted events are not there, such as {sorted(missing)[:3]}")
    verdict.unless(not uncommitted, f"{len(uncommitted)} events are there though they were rolled back")
    more = keys.keys() - load.expected - load.rolled_back
    verdict.unless(not more and keys.total() == len(keys), f"{len(more)} events are there that nobody posted")


def _judge_receiver(
    verdict: Verdict, receiver: ReceiverSlot, bodies: dict[str, str], happened: Sequence[Happened]
) -> None:
    with closing(sqlite3.connect(receiver.ledger)) as ledger:
        effects = Counter(row[0] for row in ledger.execute("SELECT event FROM effects"))
        requests = ledger.execute(
            "SELECT event, attempt, delivery, body, answer, came_at FROM requests ORDER BY rowid"
        ).fetchall()
    lost, name = bodies.keys() - effects.keys(), receiver.kind.name
    doubled = sum(times - 1 for times in effects.values())
    verdict.wanted += len(bodies)
    verdict.lost += len(lost)
    verdict.duplicate_effects += doubled
    verdict.requests += len(requests)
    verdict.unless(not lost, f"{name}: {len(lost)} effects are lost, such as {sorted(lost)[:3]}")
    verdict.unless(not doubled, f"{name}: {doubled} effects happened twice")
    verdict.unless(effects.keys() <= bodies.keys(), f"{name}: effects of events that were never committed")
    unverified = Counter(row[4] for row in requests if row[4].startswith("unverified"))
    verdict.unless(not unverified, f"{name}: signatures did not verify: {dict(unverified)}")
    other = sum(bodies.get(row[0]) != row[3] for row in requests)
    verdict.unless(not other, f"{name}: {other} requests had other bytes than the event")
    _judge_attempts(verdict, name, requests)
    applied: dict[str, float] = {}
    for event, _attempt, _delivery, _body, answer, came_at in requests:
        if answer in ("applied", "duplicate") and event in applied:
            verdict.duplicates_received += 1
            verdict.duplicates_by_kind[_blamed(applied[event], happened)] += 1
        elif answer == "applied":
            applied[event] = came_at


def _judge_attempts(verdict: Verdict, name: str, requests: Sequence[tuple[str, int, str, str, str, float]]) -> None:
    """A frozen worker may send an older attempt after a newer one; no attempt is ever sent twice."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for row in requests:
        numbers[row[2]].append(row[1])
    twice = sum(len(each) != len(set(each)) for each in numbers.values())
    verdict.unless(not twice, f"{name}: {twice} deliveries had the same attempt number on two requests")
    verdict.overtaken += sum(later < earlier for each in numbers.values() for earlier, later in pairwise(each))


def _blamed(at: float, happened: Sequence[Happened]) -> str:
    """The kind of the fault that was there when the first request came, or else of the next, or the one just over."""
    for before, after in ((0.0, 0.0), (LEASE, 0.0), (LEASE, LEASE)):
        for each in happened:
            if each.began_at - before <= at <= each.ended_at + after:
                return each.fault.kind
    return "no fault"


def _judge_duplicates(verdict: Verdict, fleet: Fleet, happened: Sequence[Happened]) -> None:
    """A second request can follow only an attempt that nobody recorded as delivered: that is the bound.

    By kind, it is what was leased as a fault began and every claim made until it was over.
    """
    ((repeatable,),) = asked(fleet, REPEATABLE)
    verdict.repeatable = int(str(repeatable))
    verdict.unless(
        verdict.duplicates_received <= verdict.repeatable,
        f"{verdict.duplicates_received} duplicates were received, but only {repeatable} attempts may have come twice",
    )
    claimed = [float(str(row[0])) for row in asked(fleet, CLAIMED)]
    for each in happened:
        meanwhile = bisect_left(claimed, each.ended_at) - bisect_left(claimed, each.began_at)
        verdict.bound_by_kind[each.fault.kind] += each.leased + meanwhile


def _judge_reservations(verdict: Verdict, fleet: Fleet, load: Load) -> None:
    """What the invariants can't know: what producers were told."""
    status = {str(row[0]): row[1] for row in asked(fleet, CONFIRMED_ENDS)}
    verdict.unless(load.held == status.keys(), "reservations are missing, or nobody asked for them")
    expired = [id for id in load.confirmed if status.get(id) == "expired"]
    verdict.unless(not expired, f"{len(expired)} reservations expired though their confirm was accepted")
    open_still = sum(each == "held" for each in status.values())
    verdict.unless(not open_still, f"{open_still} reservations are held still")


def _judge_processes(verdict: Verdict, fleet: Fleet) -> None:
    verdict.violations += fleet.ended
    for path in fleet.folder.glob("*.log"):
        said = leaks.found(path.read_bytes(), fleet.secrets)
        verdict.unless(not said, f"{path.name} says {sorted(said)}")
        traceback = re.search(rb"Traceback.*", path.read_bytes())
        verdict.unless(not traceback or path.name.startswith("receiver"), f"{path.name} holds a traceback")
    for slot in fleet.slots.values():
        verdict.unless(max(slot.rss, default=0) < MOST_RSS, f"{slot.name} took {max(slot.rss, default=0) // 256} MiB")
