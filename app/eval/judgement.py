"""From what receivers and ledger hold in the end to figures. Nobody's counters are believed, our own included."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from app.demo.ledger import Reader
from app.demo.receivers import ReceiverProcess
from app.demo.report import Lag, lag_of
from app.demo.verdict import confirmed_yet_expired, not_expired_once
from app.eval.faults import FAULTS
from app.eval.lag import Samples
from app.eval.ledger import Ledger
from app.eval.report import Check, Destination, FaultReport, Sample
from app.eval.thresholds import FIGURES
from app.eval.trial import DEDUPLICATING, NAIVE, Attempted

Rows = Sequence[Mapping[str, Any]]


def judge(
    found: Attempted,
    ledger: Ledger,
    receivers: Mapping[str, ReceiverProcess],
    samples: Samples,
    limits: Mapping[str, float],
) -> FaultReport:
    """One fault, when all of them are over: what came late for it has come by now."""
    endpoints = found.endpoints
    deliveries, outcomes = ledger.deliveries(endpoints.values()), ledger.outcomes(endpoints.values())
    destinations = {
        name: destination(name, found, receivers[name].ledger, _of(deliveries, seq), _of(outcomes, seq))
        for name, seq in endpoints.items()
    }
    seen = samples.between(found.began, found.ended)
    acceptance = lag_of([each["seconds"] for each in deliveries if each["seconds"] is not None])
    figures = _figures(found, destinations, deliveries, acceptance, contradictions(found, ledger.reservations()))
    figures["oldest_due_seconds"] = max((max(each.reservation, each.delivery) for each in seen), default=None)
    ordered = {name: _rounded(figures[name]) for name in FIGURES}
    return FaultReport(
        name=found.name,
        title=FAULTS[found.name].title,
        happened=found.happened,
        hits=found.hits,
        missed=found.missed,
        settled=found.settled,
        seconds=round(found.ended - found.began, 1),
        began_fault=_since(found, found.began_fault),
        ended_fault=_since(found, found.ended_fault),
        events=len(found.events),
        reservations=len(found.reservations),
        destinations=destinations,
        acceptance=acceptance,
        figures=ordered,
        checks=[Check(name, ordered[name], limit) for name, limit in limits.items()],
        samples=[
            Sample(round(each.at - found.began, 2), round(each.reservation, 3), round(each.delivery, 3), each.open)
            for each in seen
        ],
    )


def _of(rows: Rows, endpoint: int) -> Rows:
    return [row for row in rows if row["endpoint"] == endpoint]


def destination(name: str, found: Attempted, receiver: Reader, deliveries: Rows, outcomes: Rows) -> Destination:
    """The receiver's own ledger says what happened there; which events are this fault's, the ledger of duehook."""
    events = {each["event"] for each in deliveries} | found.events
    keys = {each["key"] for each in deliveries} | found.expected[name]
    effects = {key: times for key, times in receiver.effects().items() if key in keys}
    answers = Counter(answer for event, answer in receiver.requests() if event in events)
    return Destination(
        deduplicates=name in DEDUPLICATING,
        expected_effects=len(found.expected[name]),
        effects=sum(effects.values()),
        duplicate_effects=sum(times - 1 for times in effects.values()),
        lost_effects=len(found.expected[name] - effects.keys()),
        unexpected_effects=len(effects.keys() - found.expected[name]),
        signatures_rejected=answers["unverified"],
        answers=dict(answers),
        outcomes={row["outcome"]: row["number"] for row in outcomes},
        ends=dict(Counter(_end_of(each) for each in deliveries)),
    )


def _end_of(delivery: Mapping[str, Any]) -> str:
    return f"dead: {delivery['reason']}" if delivery["status"] == "dead" else str(delivery["status"])


def contradictions(found: Attempted, reservations: Rows) -> int:
    """Each of the two clocks' promises that was broken, by the ledger's rows and by what the API had answered."""
    rows = [row for row in reservations if row["id"] in found.reservations]
    missing = len(found.reservations) - len(rows)
    unkept = sum(row["id"] in found.confirmed and row["status"] != "confirmed" for row in rows)
    undone = sum(row["id"] in found.late and row["status"] == "confirmed" for row in rows)
    both = sum(confirmed_yet_expired(row, found.confirmed) for row in rows)
    return missing + int(unkept + undone + both) + sum(not_expired_once(row) for row in rows)


def _figures(
    found: Attempted,
    destinations: Mapping[str, Destination],
    deliveries: Rows,
    acceptance: Lag | None,
    contradictions: int,
) -> dict[str, float | None]:
    careful = [each for each in destinations.values() if each.deduplicates]
    naive = destinations[NAIVE]
    every = destinations.values()
    events = naive.effects - naive.duplicate_effects
    return {
        "lost_effects": sum(each.lost_effects for each in every),
        "duplicate_effects_deduplicating": sum(each.duplicate_effects for each in careful),
        "duplicates_per_event_naive": naive.duplicate_effects / events if events else None,
        "unexpected_effects": sum(each.unexpected_effects for each in every),
        "contradictions": contradictions,
        "dead_deliveries": sum(each["status"] in ("dead", "cancelled") for each in deliveries),
        "signatures_rejected_deduplicating": sum(each.signatures_rejected for each in careful),
        "signatures_rejected_naive": naive.signatures_rejected,
        "abandoned_by_leases": sum(each.outcomes.get("abandoned", 0) for each in every),
        "acceptance_p50_seconds": acceptance.p50 if acceptance else None,
        "acceptance_p95_seconds": acceptance.p95 if acceptance else None,
        "acceptance_p99_seconds": acceptance.p99 if acceptance else None,
        "recovery_seconds": recovery(found, deliveries),
    }


def recovery(found: Attempted, deliveries: Rows) -> float | None:
    """From the fault's end to the last acceptance; nothing recovers while something is open still."""
    accepted: list[float] = [each["delivered_at"] for each in deliveries if each["delivered_at"] is not None]
    if found.ended_fault is None or not accepted or not found.settled:
        return None
    return max(0.0, max(accepted) - found.ended_fault)


def _since(found: Attempted, at: float | None) -> float | None:
    return None if at is None else round(at - found.began, 2)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
