"""The accept benchmark, as small as it gets: everything was measured, and its goals are told from its figures."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.accept.plan import Plan
from bench.accept.report import Report
from bench.accept.run import Accepted, Beside, Round
from bench.machine import Machine
from bench.spread import Spread
from tests.processes import ROOT

RUN = [sys.executable, "-m", "app.cli.main", "bench", "accept", "--quick", "--json", "-"]
LEVEL = Spread(5, 10, 20, 30)
ROUND = Round(
    Accepted(500, LEVEL, {"api": 1.5, "postgres": 0.5, "total": 2.0}, 0.1),
    Accepted(3_000, LEVEL, {"api": 0.2, "postgres": 0.1, "total": 0.3}, 0.1),
    LEVEL,
    Beside(replace(LEVEL, p99=70), 400),
    Beside(replace(LEVEL, p99=70), 2_000),
)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_quick_run_measures_everything_and_leaves_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        RUN, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=110
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    (measured,) = report["rounds"]
    assert measured == report["median"]
    for accepted in (measured["singles"], measured["lists"]):
        assert accepted["per_second"] > 0 and set(accepted["cpu"]) == {"api", "postgres", "total"}
        assert 0 < accepted["milliseconds"]["p50"] <= accepted["milliseconds"]["p99"]
    for beside in (measured["singles_beside"], measured["lists_beside"]):
        assert beside["flood"] > 0 and beside["milliseconds"]["p99"] > 0
    assert len(report["goals"]) == 4 and all("met" in goal for goal in report["goals"])
    assert list(tmp_path.iterdir()) == []


def met(measured: Round) -> list[bool]:
    report = Report("duehook", Plan(), Machine(2, "a model", 16, "6.1", 0.5), {}, measured, [measured])
    return [goal.met for goal in report.goals()]


def test_goals_are_met_at_their_bounds_and_missed_beyond_them() -> None:
    assert met(ROUND) == [True] * 4
    slower = replace(
        ROUND,
        singles=replace(ROUND.singles, per_second=499),
        lists=replace(ROUND.lists, per_second=2_999),
        singles_beside=Beside(replace(LEVEL, p99=70.01), 400),
        lists_beside=Beside(replace(LEVEL, p99=70.01), 2_000),
    )
    assert met(slower) == [False] * 4


def test_beside_a_flood_others_may_take_twice_as_long_where_that_is_more() -> None:
    calm = replace(LEVEL, p99=100)
    assert met(replace(ROUND, calm=calm, lists_beside=Beside(replace(LEVEL, p99=200), 1)))[3]
    assert not met(replace(ROUND, calm=calm, lists_beside=Beside(replace(LEVEL, p99=200.01), 1)))[3]
