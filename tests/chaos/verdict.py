"""The verdict on a run: its three accounts, the invariants of its database, and the processes that it left behind.

Nobody's counters are believed.
"""

import re
from collections.abc import Sequence

import psycopg

from tests import leaks
from tests.chaos.accounts import Accounts, Ledger, Place, read
from tests.chaos.faults import Happened
from tests.chaos.fleet import Fleet
from tests.chaos.judges import ACCEPTED, Verdict, claims_between, judge_accounts
from tests.chaos.load import Load
from tests.chaos.plan import LEASE
from tests.invariants import violations

NORMAL = 3.0  # seconds of oldest-due age
MOST_RSS = 150_000  # pages of 4 KiB: what no process of ours may ever take


def judge(fleet: Fleet, load: Load, happened: Sequence[Happened]) -> Verdict:
    """Once everything has settled."""
    verdict = Verdict()
    places = [Place(each.kind.name, each.kind.tenant, each.url, each.ledger) for each in fleet.receivers.values()]
    with psycopg.connect(fleet.postgres.url) as connection:
        accounts = read(connection, places, load.told)
        # Or what the outbox had lost would be healed by the audit, and nobody would know.
        mended = connection.execute("SELECT kind, number FROM duehook.repairs").fetchall()
        broken = violations(connection)
    judge_accounts(verdict, accounts, max((each.ended_at for each in happened), default=0.0))
    verdict.none(mended, "times the audit had to mend the ledger")
    verdict.violations += [f"broken invariant: {name}: {who[:5]}" for name, who in broken.items()]
    for ledger in accounts.ledgers:
        _count_duplicates(verdict, ledger, happened)
    _bound_duplicates(verdict, accounts, happened)
    _judge_processes(verdict, fleet)
    return verdict


def _count_duplicates(verdict: Verdict, ledger: Ledger, happened: Sequence[Happened]) -> None:
    applied: dict[str, float] = {}
    for each in ledger.requests:
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


def _bound_duplicates(verdict: Verdict, accounts: Accounts, happened: Sequence[Happened]) -> None:
    """By kind of fault: what was leased as one began, and every claim made until it was over."""
    for each in happened:
        verdict.bound_by_kind[each.fault.kind] += each.leased + claims_between(accounts, each.began_at, each.ended_at)


def _judge_processes(verdict: Verdict, fleet: Fleet) -> None:
    verdict.violations += fleet.ended
    for path in fleet.folder.glob("*.log"):
        said = leaks.found(path.read_bytes(), fleet.secrets)
        verdict.unless(not said, f"{path.name} says {sorted(said)}")
        traceback = re.search(rb"Traceback.*", path.read_bytes())
        verdict.unless(not traceback or path.name.startswith("receiver"), f"{path.name} holds a traceback")
    for slot in fleet.slots.values():
        verdict.unless(max(slot.rss, default=0) < MOST_RSS, f"{slot.name} took {max(slot.rss, default=0) // 256} MiB")
