"""The verdict, from what the receivers' ledgers and the database hold in the end. Nobody's counters are believed."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from app.demo.ledger import Reader
from app.demo.plan import SUBSCRIPTIONS, Plan
from app.demo.report import ReceiverReport, ReservationReport, lag_of
from app.domain.identity import patterns_of

TENANT = "default"  # whose keys `duehook up` hands out

_RESERVATIONS = """
    SELECT r.id, r.status, r.version, extract(epoch FROM r.updated_at - r.expires_at)::float8 AS lag,
           ARRAY(SELECT e.type FROM duehook.events e
                  WHERE e.tenant = r.tenant AND e.origin = 'service' AND e.key = ANY (
                    ARRAY['reservation.confirmed:' || r.id || ':v2', 'reservation.expired:' || r.id || ':v2',
                          'reservation.expired:' || r.id || ':v3'])) AS transitions
      FROM duehook.reservations r WHERE r.tenant = %s"""
_DELIVERY_LAGS = """
    SELECT extract(epoch FROM d.delivered_at - e.created_at)::float8 AS lag
      FROM duehook.deliveries d JOIN duehook.events e ON e.seq = d.event WHERE d.status = 'delivered'"""
_OUTCOMES = """
    SELECT e.url, a.outcome, count(*) AS number
      FROM duehook.attempts a
      JOIN duehook.deliveries d ON d.id = a.delivery JOIN duehook.endpoints e ON e.seq = d.endpoint
     GROUP BY e.url, a.outcome"""


@dataclass(frozen=True, slots=True)
class Facts:
    """One snapshot of the database: reservations, seconds from event to acceptance, attempts by URL and outcome."""

    reservations: Sequence[Mapping[str, Any]]
    delivery_lags: Sequence[float]
    outcomes: Sequence[Mapping[str, Any]]

    def transition_keys(self) -> dict[str, str]:
        """The business keys of how the reservations ended, with the type of the event that tells it."""
        return {
            f"reservation.{row['status']}:{row['id']}:v{row['version']}": f"reservation.{row['status']}"
            for row in self.reservations
            if row["status"] != "held"
        }


def read_facts(database_url: str) -> Facts:
    """Look at everything once."""
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return Facts(
            read_reservations(connection, TENANT),
            [row["lag"] for row in connection.execute(_DELIVERY_LAGS)],
            connection.execute(_OUTCOMES).fetchall(),
        )


def read_reservations(connection: psycopg.Connection[dict[str, Any]], tenant: str) -> list[dict[str, Any]]:
    """How each of a tenant's reservations ended, and which events tell of it."""
    return connection.execute(_RESERVATIONS, [tenant]).fetchall()


def judge_reservations(
    facts: Facts, plan: Plan, confirmed: Collection[str], late: Collection[str]
) -> ReservationReport:
    """`confirmed` and `late` are the reservations whose confirm was answered with 200 and with 409."""
    statuses = Counter(row["status"] for row in facts.reservations)
    return ReservationReport(
        planned=plan.reservations,
        held=len(facts.reservations),
        confirmed=statuses["confirmed"],
        expired=statuses["expired"],
        confirms_accepted=len(confirmed),
        confirms_too_late=len(late),
        confirmed_yet_expired=sum(confirmed_yet_expired(row, confirmed) for row in facts.reservations),
        not_expired_once=sum(not_expired_once(row) for row in facts.reservations),
        expiry_lag=lag_of([row["lag"] for row in facts.reservations if row["status"] == "expired"]),
    )


def confirmed_yet_expired(row: Mapping[str, Any], confirmed: Collection[str]) -> bool:
    """Whether one was confirmed, to its client or in the ledger, and has expired all the same."""
    was_confirmed = row["id"] in confirmed or "reservation.confirmed" in row["transitions"]
    return was_confirmed and (row["status"] == "expired" or "reservation.expired" in row["transitions"])


def not_expired_once(row: Mapping[str, Any]) -> bool:
    """Whether one that is not confirmed has not expired, or has not exactly one event that says so."""
    expired_once = row["status"] == "expired" and row["transitions"] == ["reservation.expired"]
    return row["status"] != "confirmed" and not expired_once


def judge_receiver(name: str, url: str, ledger: Reader, facts: Facts, plan: Plan) -> ReceiverReport:
    """What has happened at a receiver against what had to: every order, and the end of every reservation."""
    keys = facts.transition_keys() | dict.fromkeys(plan.order_keys(), "order.placed")
    expected = {key for key, event_type in keys.items() if wants(name, event_type)}
    effects, answers = ledger.effects(), ledger.counts().answers
    return ReceiverReport(
        requests=sum(answers.values()),
        answers=answers,
        outcomes={row["outcome"]: row["number"] for row in facts.outcomes if row["url"] == url},
        expected_effects=len(expected),
        effects=sum(effects.values()),
        duplicates_received=answers.get("duplicate", 0),
        duplicate_effects=sum(times - 1 for times in effects.values()),
        lost_effects=len(expected - effects.keys()),
        unexpected_effects=len(effects.keys() - expected),
    )


def wants(receiver: str, event_type: str) -> bool:
    """Whether a receiver subscribes to it."""
    return not set(SUBSCRIPTIONS[receiver]).isdisjoint(patterns_of(event_type))


def audit_repairs(logs: Iterable[Path]) -> int:
    """How much the audit had to repair, as the workers logged it."""
    lines = [line for log in logs if log.exists() for line in log.read_text(errors="replace").splitlines()]
    said = [json.loads(line) for line in lines if line.startswith("{") and '"repaired"' in line]
    return sum(
        number for line in said if line["event"] == "repaired" for number in line.values() if isinstance(number, int)
    )
