"""The demo: the same run that `make demo` does, and whether its verdict would notice what it is there to notice."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.demo import service
from app.demo.display import Display
from app.demo.ledger import Reader, open_ledger
from app.demo.main import perform
from app.demo.plan import Plan, order_key
from app.demo.report import Repairs, Report, lag_of
from app.demo.verdict import Facts, audit_repairs, judge_receiver, judge_reservations
from app.local.errors import LocalServiceError
from tests.waiting import wait_until

RUN_DEMO = [sys.executable, "-c", "import sys; from app.demo.main import run; run(json='--json' in sys.argv)"]
NAMES = ("storefront", "warehouse", "notifications")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_main_job_is_right_in_every_effect_although_everything_goes_wrong_meanwhile(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*RUN_DEMO, "--json"], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=280
    )
    report = json.loads(ran.stdout)
    assert (ran.returncode, report["problems"]) == (0, []), ran.stderr
    assert len(report["faults"]) == 4
    assert report["seconds"] < 120
    reservations = report["reservations"]
    assert reservations["held"] == 2_000
    assert reservations["confirmed"] + reservations["expired"] == 2_000
    assert reservations["confirmed"] + reservations["confirms_too_late"] == 667
    receivers = report["receivers"]
    assert receivers["warehouse"]["answers"]["throttled"] > 0
    assert receivers["notifications"]["answers"]["stalled"] > 0
    assert receivers["notifications"]["duplicates_received"] > 0
    assert report["repairs"]["roles_restarted"] == 1
    assert report["repairs"]["audit_repairs"] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_running_and_nothing_behind(tmp_path: Path, ending: signal.Signals) -> None:
    demo = subprocess.Popen(
        RUN_DEMO, env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert demo.stderr
    wait_until(lambda: b"Ready" in demo.stderr.readline(), deadline=90, what="the demo works")  # type: ignore[union-attr]
    (home,) = tmp_path.iterdir()
    running = [pid for pids in json.loads((home / "connection.json").read_text())["pids"].values() for pid in pids]
    demo.send_signal(ending)
    demo.communicate(timeout=90)
    assert demo.returncode != 0
    assert list(tmp_path.iterdir()) == []
    assert not [pid for pid in running if Path(f"/proc/{pid}").exists()]


def test_a_demo_whose_service_can_not_start_says_why_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(service.SETTINGS, "DUEHOOK_DEADLINE_SECONDS", "9")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Display() as display, pytest.raises(LocalServiceError, match=r"DUEHOOK_DEADLINE_SECONDS .* raise the lease"):
        perform(Plan(), display)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def ledgers(tmp_path: Path) -> Iterator[Mapping[str, Reader]]:
    """The ledgers of receivers where everything has happened once."""
    for name in NAMES:
        with closing(open_ledger(tmp_path / name)) as ledger:
            effects = [order_key(0), order_key(1), "reservation.expired:rsv_demo00001:v2"]
            if name != "notifications":
                effects += ["reservation.confirmed:rsv_demo00000:v2"]
            ledger.executemany("INSERT INTO effects VALUES (?, 'evt_1', 0)", [[key] for key in effects])
            ledger.execute("INSERT INTO requests VALUES ('evt_1', 1, 'applied', 0)")
    readers = {name: Reader(tmp_path / name) for name in NAMES}
    yield readers
    for reader in readers.values():
        reader.close()


def reservation(number: int, status: str, *transitions: str) -> dict[str, Any]:
    """One as the verdict reads it from the database."""
    told = [f"reservation.{each}" for each in transitions or [status]]
    return {"id": f"rsv_demo{number:05}", "status": status, "version": 2, "lag": 0.01, "transitions": told}


def judged(ledgers: Mapping[str, Reader], reservations: list[dict[str, Any]], confirmed: set[str]) -> Report:
    plan = Plan(reservations=2, orders=2)
    facts = Facts(reservations, [0.1], [{"url": "http://storefront", "outcome": "delivered", "number": 1}])
    return Report(
        seed=1,
        seconds=1,
        receivers={n: judge_receiver(n, f"http://{n}", ledgers[n], facts, plan) for n in ledgers},
        reservations=judge_reservations(facts, plan, confirmed, ()),
        delivery_lag=lag_of(facts.delivery_lags),
        faults=[],
        unfinished=[],
        repairs=Repairs(0, 0, 0),
    )


CONFIRMED = {"rsv_demo00000"}
RIGHT = [reservation(0, "confirmed"), reservation(1, "expired")]


def test_a_run_where_everything_happened_once_is_right(ledgers: Mapping[str, Reader]) -> None:
    report = judged(ledgers, RIGHT, CONFIRMED)
    assert report.problems() == []
    assert json.loads(report.to_json())["right"] is True
    assert report.receivers["storefront"].outcomes == {"delivered": 1}
    assert (report.receivers["storefront"].expected_effects, report.receivers["notifications"].expected_effects) == (
        4,
        3,
    )


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("INSERT INTO effects VALUES ('order:00000', 'evt_2', 0)", "1 effects happened more than once at warehouse."),
        ("DELETE FROM effects WHERE key = 'order:00001'", "1 effects never happened at warehouse."),
        ("INSERT INTO effects VALUES ('order:99999', 'evt_2', 0)", "1 effects happened at warehouse for no reason."),
    ],
)
def test_an_effect_too_many_or_too_few_is_noticed(
    ledgers: Mapping[str, Reader], tmp_path: Path, statement: str, problem: str
) -> None:
    with closing(open_ledger(tmp_path / "warehouse")) as ledger:
        ledger.execute(statement)
    assert judged(ledgers, RIGHT, CONFIRMED).problems() == [problem]


@pytest.mark.parametrize(
    ("first", "second", "confirmed", "problem"),
    [
        (reservation(0, "expired"), RIGHT[1], CONFIRMED, "1 reservations were confirmed and expired all the same."),
        (
            reservation(0, "expired", "confirmed", "expired"),
            RIGHT[1],
            set(),
            "1 reservations were confirmed and expired",
        ),
        (reservation(0, "confirmed", "confirmed", "expired"), RIGHT[1], CONFIRMED, "1 reservations were confirmed and"),
        (
            RIGHT[0],
            reservation(1, "held"),
            CONFIRMED,
            "1 reservations that nobody confirmed did not expire exactly once.",
        ),
        (RIGHT[0], reservation(1, "expired", "expired", "expired"), CONFIRMED, "1 reservations that nobody confirmed"),
        (RIGHT[0], RIGHT[1], set(), "0 confirms were accepted, 1 reservations are confirmed."),
    ],
)
def test_a_reservation_that_ended_wrongly_is_noticed(
    ledgers: Mapping[str, Reader], first: dict[str, Any], second: dict[str, Any], confirmed: set[str], problem: str
) -> None:
    found = judged(ledgers, [first, second], confirmed).problems()
    assert any(each.startswith(problem) for each in found), found


def test_a_reservation_that_was_never_made_is_noticed(ledgers: Mapping[str, Reader]) -> None:
    assert "1 reservations were not made." in judged(ledgers, RIGHT[:1], CONFIRMED).problems()


def test_what_the_audit_repaired_is_read_from_the_logs(tmp_path: Path) -> None:
    log = tmp_path / "worker-upkeep.log"
    log.write_text(
        '{"event": "repaired", "delivery_without_row": 2, "row_of_nothing": 1}\nTraceback\n{"event": "woken"}\n'
    )
    assert audit_repairs([log, tmp_path / "missing.log"]) == 3


def test_a_third_is_confirmed_and_half_of_these_in_the_last_moments() -> None:
    confirms = [hold.confirm_before for hold in Plan().holds() if hold.confirm_before is not None]
    assert len(confirms) == 667
    assert sum(before < 0.3 for before in confirms) in range(320, 350)
    assert list(Plan(seed=7).holds()) == list(Plan(seed=7).holds())


def test_every_order_is_shipped_once_some_alone_and_some_together() -> None:
    shipments = list(Plan().shipments())
    assert {order["key"] for each in shipments for order in each.orders} == Plan().order_keys()
    assert {len(each.orders) for each in shipments} == {1, 25}
    assert sum(len(each.orders) for each in Plan(orders=73).shipments()) == 73


def test_percentiles_are_values_that_occurred() -> None:
    lag = lag_of([0.001 * number for number in range(1, 101)])
    assert lag is not None
    assert (lag.p50, lag.p95, lag.p99, lag.most) == (0.05, 0.095, 0.099, 0.1)
    assert lag_of([]) is None
