"""The isolation benchmark, as small as it gets: both runs happened, and the bad endpoints were really there."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.isolation.parked import Parked
from bench.isolation.plan import QUICK, Plan
from bench.isolation.report import Report, Round
from bench.isolation.run import Run
from bench.machine import Machine
from bench.spread import Spread
from tests.processes import ROOT

RUN_ISOLATION = [sys.executable, "-m", "app.cli.main", "bench", "isolation", "--quick", "--json", "-"]
LEVEL = Spread(5, 10, 50, 100)
RUN = Run(200, LEVEL, LEVEL, LEVEL, {"relay": 0.1}, 0.5, {"slow": 0, "hanging": 0}, lost=0, repeated=0)
SAME = {"postgres": 1.0, "relay": 0.5, "workers": 0.5, "total": 2.0}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_quick_run_measures_both_and_loses_and_repeats_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        RUN_ISOLATION,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    (measured,) = report["rounds"]
    assert measured == report["median"]
    for run in measured.values():
        assert (run["lost"], run["repeated"]) == (0, 0)
        assert run["rate"] > QUICK.rate / 2
        assert 0 < run["fast"]["p50"] <= run["fast"]["p99"]
        assert 0 <= run["expired"]["p50"] <= run["expired"]["p99"]
        assert set(run["cpu"]) == {"postgres", "redis", "relay", "workers", "sink"}
    assert set(measured["alone"]["attempts"].values()) == {0}
    assert all(measured["beside"]["attempts"].values()), "both bad endpoints were tried"
    assert report["parked"]["deliveries"] == QUICK.parked
    assert report["parked"]["without"]["total"] > 0
    assert len(report["goals"]) == 4 and all("met" in goal for goal in report["goals"])
    assert list(tmp_path.iterdir()) == []


def report_of(alone: Run, beside: Run, parked: Parked | None = None) -> Report:
    one = Round(alone, beside)
    return Report("duehook", Plan(), Machine(2, "a model", 16, "6.1", 0.5), {}, one, [one], parked)


@pytest.mark.parametrize(
    ("alone", "beside", "met"),
    [(50.0, 70.0, True), (50.0, 70.01, False), (1000.0, 1200.0, True), (1000.0, 1200.01, False)],
)
def test_a_lag_may_grow_by_a_fifth_or_by_twenty_milliseconds(alone: float, beside: float, met: bool) -> None:
    fast, *others = report_of(
        replace(RUN, fast=replace(LEVEL, p99=alone)), replace(RUN, fast=replace(LEVEL, p99=beside))
    ).goals()
    assert fast.met is met
    assert all(other.met for other in others)


def test_what_waits_may_cost_next_to_nothing() -> None:
    costly = replace(Parked(100, 30, None, SAME, SAME), beside=SAME | {"total": 2.6})
    assert [goal.met for goal in report_of(RUN, RUN, Parked(100, 30, 5.0, SAME, SAME)).goals()] == [True] * 4
    assert [goal.met for goal in report_of(RUN, RUN, costly).goals()] == [True, True, True, False]


def test_what_was_lost_or_repeated_is_a_problem_and_a_missed_goal_is_none() -> None:
    slower = replace(RUN, fast=replace(LEVEL, p99=500))
    assert list(report_of(RUN, slower).problems()) == []
    assert list(report_of(RUN, replace(slower, lost=2)).problems()) == [
        "Round 1, beside the bad endpoints: 2 lost, 0 repeated."
    ]
