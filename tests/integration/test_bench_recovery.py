"""The recovery benchmark, as small as it gets: what it inserts is genuine, and what it counts as a fault is one."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from app.cli.main import main
from app.domain.signing_keys import hmac_secret
from app.ledger import endpoints
from bench.expiry import End, Expiry
from bench.goal import Goal
from bench.machine import Machine
from bench.paced import Paced
from bench.receiver import Arrival
from bench.recovery import plan
from bench.recovery.cohort import fill
from bench.recovery.effects import Faults, faults
from bench.recovery.main import NO_PLOT
from bench.recovery.plan import QUICK, Plan
from bench.recovery.report import Drain, Lags, Moment, Report, Use
from bench.recovery.watch import Sample
from bench.spread import Spread
from bench.throughput import Throughput
from tests.conftest import Connect
from tests.processes import ROOT
from tests.waiting import wait_until

RUN_RECOVERY = [sys.executable, "-m", "app.cli.main", "bench", "recovery", "--quick"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_quick_run_catches_up_with_a_day_and_loses_and_repeats_nothing(tmp_path: Path) -> None:
    home, figures, plot = (tmp_path / name for name in ("home", "figures.json", "plot.png"))
    home.mkdir()
    ran = subprocess.run(
        [*RUN_RECOVERY, "--json", str(figures), "--plot", str(plot)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(home)},
        capture_output=True,
        text=True,
        timeout=220,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Nothing was lost, nothing came twice." in ran.stdout
    assert list(home.iterdir()) == []
    drawn = importlib.util.find_spec("matplotlib") is not None
    assert (plot.exists(), NO_PLOT in ran.stderr) == (drawn, not drawn)
    report = json.loads(figures.read_text())
    assert report["faults"] == {"lost": 0, "repeated": 0}
    assert report["drain"]["deliveries"] >= QUICK.deliveries + QUICK.expiries
    assert report["drain"]["deliveries_per_second"] > 0
    assert report["instant"]["not_expired"] == 0
    assert (
        set(report["lags"])
        == set(report["lags_over_time"])
        == {*("flooded", "others", "expired", "told_flooded", "told_others")}
    )
    assert all(report["lags_over_time"].values())
    first, *_, last = report["moments"]
    assert first["sample"]["oldest_delivery"] > 23 * 3600 > 60 > last["sample"]["oldest_delivery"]
    assert (last["reservations_left"], last["deliveries_left"]) == (0, 0)
    used = {**report["connections"], **report["sockets"]}
    assert set(report["sockets"]) == {"relay", "worker-expiry", "worker-delivery"}
    assert all(0 < use["most"] <= use["allowed"] for use in used.values()), used
    assert {goal["what"]: goal["bound"] for goal in report["goals"]}["deliveries per second, of the steady rate"] == 0.8


def test_what_is_overdue_is_as_the_product_makes_it(engine: Engine, connect: Connect) -> None:
    with engine.begin() as connection:
        for number, each in enumerate(plan.subscriptions()):
            made = endpoints.insert(connection, each.tenant, url=f"http://{number}.example", event_types=[each.type])
            endpoints.add_secret(connection, made.seq, hmac_secret(bytes(32)).encode())
    cohort = fill(connect(autocommit=True), Plan(expiries=50, deliveries=400))
    assert (len(cohort.reservations), len(cohort.events)) == (50, 400)
    assert 0.2 < len(cohort.others) / 400 < 0.4
    with engine.begin() as connection:
        kinds = connection.execute(
            text(
                """SELECT kind, count(*) AS number, count(DISTINCT tenant) AS tenants,
                          extract(epoch FROM duehook.now() - max(due_at)) AS youngest,
                          extract(epoch FROM duehook.now() - min(due_at)) / 3600 AS oldest
                     FROM duehook.outbox WHERE look_at < duehook.now() GROUP BY kind ORDER BY kind"""
            )
        ).all()
    assert [(row.kind, row.number) for row in kinds] == [("delivery", 400), ("reservation", 50)]
    for row in kinds:
        assert row.tenants > 5
        assert 60 <= row.youngest < 120
        assert 23.9 < row.oldest < 24.1


def test_most_of_it_is_one_tenant_s_and_every_event_has_one_subscriber() -> None:
    everybody = plan.subscriptions()
    assert len(everybody) == len(set(everybody)) == 100
    assert len({each.tenant for each in everybody}) == len(plan.tenants()) == 20
    turns = plan.mixed()
    share = sum(each in plan.flooded() for each in turns) / len(turns)
    assert 0.69 < share < 0.71
    assert set(turns) == {each for each in everybody if each.type != "reservation.expired"}


GOOD: dict[str, Any] = {
    "reservations": [1],
    "ends": [End(1, "evt_b", 0.0)],
    "expected": ["evt_a", "evt_b"],
    "recorded": ["evt_a", "evt_b"],
    "arrivals": [Arrival("evt_a", "dlv_a", 0.0), Arrival("evt_b", "dlv_b", 0.0)],
}
ANOTHER = {
    "a reservation did not expire": ("reservations", 2, Faults(1, 0)),
    "a reservation expired twice": ("ends", End(1, "evt_b", 1.0), Faults(0, 1)),
    "an event neither came nor was recorded": ("expected", "evt_c", Faults(2, 0)),
    "an event has two deliveries": ("recorded", "evt_a", Faults(0, 1)),
    "a delivery came twice": ("arrivals", Arrival("evt_a", "dlv_a", 1.0), Faults(0, 1)),
    "an event came in another delivery too": ("arrivals", Arrival("evt_a", "dlv_c", 1.0), Faults(0, 1)),
    "an event came that nobody made": ("arrivals", Arrival("evt_d", "dlv_d", 1.0), Faults(0, 1)),
}


@pytest.mark.parametrize(("where", "what", "counted"), ANOTHER.values(), ids=list(ANOTHER))
def test_everything_that_is_lost_or_comes_twice_is_counted(where: str, what: object, counted: Faults) -> None:
    assert faults(**GOOD) == Faults(0, 0)
    assert faults(**{**GOOD, where: [*GOOD[where], what]}) == counted


def test_what_came_and_was_not_recorded_is_lost_and_what_was_recorded_and_never_came_too() -> None:
    assert faults(**{**GOOD, "recorded": ["evt_a"]}) == Faults(1, 0)
    assert faults(**{**GOOD, "arrivals": GOOD["arrivals"][:1]}) == Faults(1, 0)


def test_two_events_in_one_delivery_are_one_too_many() -> None:
    arrivals = [Arrival("evt_a", "dlv_a", 0.0), Arrival("evt_b", "dlv_a", 0.0)]
    assert faults(**{**GOOD, "arrivals": arrivals}) == Faults(0, 1)


def test_a_goal_is_met_at_its_bound_from_the_right_side() -> None:
    assert Goal("share", 0.8, 0.8, at_least=True).met and not Goal("share", 0.79, 0.8, at_least=True).met
    assert Goal("lag", 2000, 2000).met and not Goal("lag", 2001, 2000).met


def test_what_ends_something_paced_comes_up_where_it_was_begun() -> None:
    calls: list[int] = []

    def act(number: int) -> None:
        calls.append(number)
        if number == 3:
            raise RuntimeError("enough")

    paced = Paced(1000, act)
    with pytest.raises(RuntimeError, match="enough"), paced:
        wait_until(lambda: len(calls) == 4)
    assert calls == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="enough"):
        paced.check()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--quick", "recovery"], "options of recovery come after its name."),
        (["recovery", "--plot", "plot.txt"], "plot.txt should end in .png, .svg, .pdf."),
    ],
    ids=["an option before the name", "a plot of no known kind"],
)
def test_wrong_use_is_one_sentence(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["duehook", "bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (2, f"duehook: {sentence}\n")


@pytest.mark.parametrize("command", [[], ["recovery"]], ids=["bench", "bench recovery"])
def test_each_of_the_benchmarks_has_help_with_an_example(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["duehook", "bench", *command, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"Usage: duehook {' '.join(['bench', *command])} " in shown and "Example: duehook bench" in shown


def a_report(*, lost: int = 0) -> Report:
    """Of a run that nobody made."""
    spread, use = Spread(1.0, 2.0, 3.0, 4.0), Use(1, 2)
    sample = Sample(0.0, 86_400.0, 86_400.0, {"expiry": 1}, {"expiry": 1}, {"duehook relay": 1}, {"relay": 3}, {}, 1)
    cost = {"total": 1.0, "accepting": 0.1}
    return Report(
        "duehook bench recovery",
        QUICK,
        Machine(2, "processor", 4.0, "6.1", 0.5),
        {"python": "3.11", "postgres": "17", "redis": "Valkey 9", "celery": "5.7"},
        1.0,
        Throughput(400, 1.0, 100.0, cost, 0.0, 0, 0),
        Drain(1.0, 1.0, 10.0, 1200, 120.0, 1.2, 1.1, 5.0, 2.0, 150.0, {"total": 1.0}, 0.0),
        Lags(spread, spread, spread, spread, spread),
        Faults(lost, 0),
        {"duehook relay": use},
        {"relay": use},
        Expiry(200, 3.0, spread, spread, 0, 0, 0),
        [Moment(0.0, 300, 900, sample), Moment(1.0, 0, 0, sample)],
        {"flooded": [(0.5, 12.0)], "others": [(0.5, 0.0)]},
    )


@pytest.mark.parametrize(("lost", "code"), [(0, 0), (1, 1)], ids=["nothing lost", "something lost"])
def test_the_exit_code_says_whether_anything_was_lost(
    lost: int, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bench.recovery.main.measure", lambda *_: a_report(lost=lost))
    monkeypatch.setattr("bench.recovery.main.interrupt_on_signals", lambda: None)
    figures = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["duehook", "bench", "recovery", "--json", str(figures)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code or 0) == code
    assert json.loads(figures.read_text())["faults"]["lost"] == lost


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_report_is_drawn_where_matplotlib_is_there(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="an extra: bench")
    from bench.recovery.plot import draw

    draw(a_report(), tmp_path / f"plot.{suffix}")
    assert (tmp_path / f"plot.{suffix}").stat().st_size > 5_000
