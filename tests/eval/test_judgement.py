"""The judgement: figures from what receivers' ledgers and rows of the ledger say, each wrong one noticed."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.demo.ledger import Reader, open_ledger
from app.eval.judgement import contradictions, destination, recovery
from app.eval.trial import Attempted

DELIVERIES = [
    {"event": f"evt_{n}", "key": f"throttled:{n}", "status": "delivered", "reason": None, "delivered_at": 100.0 + n}
    for n in range(3)
]
OUTCOMES = [{"outcome": "delivered", "number": 3}, {"outcome": "unknown", "number": 1}]


def attempted() -> Attempted:
    found = Attempted("throttled", began=99.0, began_fault=99.5, ended_fault=101.0, ended=110.0, settled=True)
    found.expected["careful"] = {f"throttled:{n}" for n in range(3)}
    found.events = {f"evt_{n}" for n in range(3)}
    return found


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Of a receiver where everything of the fault has happened once, and something of another one."""
    with closing(open_ledger(tmp_path / "ledger")) as ledger:
        for n in range(3):
            ledger.execute("INSERT INTO effects VALUES (?, ?, 0)", [f"throttled:{n}", f"evt_{n}"])
            ledger.execute("INSERT INTO requests VALUES (?, 1, 'applied', 0)", [f"evt_{n}"])
        ledger.execute("INSERT INTO effects VALUES ('poison-event:1', 'evt_99', 0)")
        ledger.execute("INSERT INTO requests VALUES ('evt_99', 1, 'unverified', 0)")
    read = Reader(tmp_path / "ledger")
    yield read
    read.close()


def judged(reader: Reader) -> dict[str, Any]:
    found = destination("careful", attempted(), reader, DELIVERIES, OUTCOMES)
    return {name: getattr(found, name) for name in found.__slots__}


def test_what_happened_once_is_right_and_what_belongs_to_another_fault_is_left_to_that(reader: Reader) -> None:
    assert judged(reader) == {
        "deduplicates": True,
        "expected_effects": 3,
        "effects": 3,
        "duplicate_effects": 0,
        "lost_effects": 0,
        "unexpected_effects": 0,
        "signatures_rejected": 0,
        "answers": {"applied": 3},
        "outcomes": {"delivered": 3, "unknown": 1},
        "ends": {"delivered": 3},
    }


@pytest.mark.parametrize(
    ("statement", "figure"),
    [
        ("DELETE FROM effects WHERE key = 'throttled:1'", "lost_effects"),
        ("INSERT INTO effects VALUES ('throttled:1', 'evt_1', 1)", "duplicate_effects"),
        ("INSERT INTO requests VALUES ('evt_1', 2, 'unverified', 1)", "signatures_rejected"),
    ],
)
def test_each_wrong_thing_at_a_receiver_is_counted(reader: Reader, tmp_path: Path, statement: str, figure: str) -> None:
    with closing(open_ledger(tmp_path / "ledger")) as ledger:
        ledger.execute(statement)
    assert judged(reader)[figure] == 1


def test_an_effect_that_nobody_had_reason_to_expect_is_counted(reader: Reader) -> None:
    """As of the poison, which is delivered to the others and must have no effect where it kills."""
    found = attempted()
    found.expected["careful"].discard("throttled:1")
    assert destination("careful", found, reader, DELIVERIES, OUTCOMES).unexpected_effects == 1


def test_a_dead_delivery_s_end_has_its_reason(reader: Reader) -> None:
    dead = [{**DELIVERIES[0], "status": "dead", "reason": "poison"}, *DELIVERIES[1:]]
    found = destination("careful", attempted(), reader, dead, OUTCOMES)
    assert found.ends == {"dead: poison": 1, "delivered": 2}


def test_recovery_is_from_the_fault_s_end_to_the_last_acceptance_and_nothing_unsettled_recovers() -> None:
    found = attempted()
    assert recovery(found, DELIVERIES) == 1.0
    found.ended_fault = 105.0
    assert recovery(found, DELIVERIES) == 0.0
    found.settled = False
    assert recovery(found, DELIVERIES) is None
    found.settled = True
    assert recovery(found, []) is None


def reservation(number: int, status: str, *transitions: str) -> dict[str, Any]:
    told = [f"reservation.{each}" for each in transitions or [status]]
    return {"id": f"rsv_{number}", "status": status, "version": 2, "transitions": told}


RIGHT = [reservation(0, "confirmed"), reservation(1, "expired"), reservation(2, "expired")]


@pytest.mark.parametrize(
    ("rows", "number"),
    [
        (RIGHT, 0),
        ([*RIGHT, reservation(9, "held")], 0),  # somebody else's
        (RIGHT[:2], 1),  # one is gone
        ([reservation(0, "confirmed"), reservation(1, "confirmed"), RIGHT[2]], 1),  # although it was told: too late
        ([*RIGHT[:2], reservation(2, "held")], 1),
        ([*RIGHT[:2], reservation(2, "expired", "expired", "expired")], 1),
        ([reservation(0, "confirmed", "confirmed", "expired"), *RIGHT[1:]], 1),
        ([reservation(0, "released"), *RIGHT[1:]], 2),  # confirmed no more, and not expired either
    ],
)
def test_every_promise_about_a_reservation_that_was_broken_is_counted(rows: list[dict[str, Any]], number: int) -> None:
    found = attempted()
    found.reservations = ["rsv_0", "rsv_1", "rsv_2"]
    found.confirmed, found.late = {"rsv_0"}, {"rsv_1"}
    assert contradictions(found, rows) == number
