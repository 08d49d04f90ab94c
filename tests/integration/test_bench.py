"""The benchmarks, as small as they get: figures are there, and nothing was lost or sent twice to make them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.rounds import median_of
from bench.sink import HOSTS
from bench.spread import Spread, spread_of
from tests.processes import ROOT

RUN_BENCH = [sys.executable, "-m", "app.cli.main", "bench", "--quick", "--json", "-"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_quick_run_finds_every_figure_and_everything_delivered_exactly_once(tmp_path: Path) -> None:
    ran = subprocess.run(
        RUN_BENCH, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=220
    )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    (measured,) = report["rounds"]
    assert measured == report["median"]
    assert [each for measure in measured.values() for each in (measure["lost"], measure["repeated"])] == [0] * 8
    assert measured["throughput"]["deliveries"] == 400
    assert measured["throughput"]["per_second"] > 0
    assert set(measured["throughput"]["cpu"]) == {
        *("accepting", "postgres", "redis", "relay", "workers", "sink", "total")
    }
    assert measured["throughput"]["cpu"]["total"] > 0
    assert measured["scheduled"]["milliseconds"]["p50"] > -5, "sent before it was due"
    assert measured["immediate"]["milliseconds"]["most"] > 0
    assert measured["expiry"]["expired"]["p50"] >= 0
    assert measured["expiry"]["not_expired"] == 0
    assert "fsync on, synchronous_commit on" in report["versions"]["postgres"]
    assert report["machine"]["cores"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_median_round_is_made_figure_by_figure() -> None:
    rounds = [{"a": 1.0, "spread": Spread(1, 5, 9, 10)}, {"a": 3.0, "spread": Spread(3, 4, 8, 30)}]
    rounds.append({"a": 2.0, "spread": Spread(2, 6, 7, 20)})
    assert median_of(rounds) == {"a": 2.0, "spread": Spread(2, 5, 8, 20)}


def test_a_spread_is_of_values_that_occurred_in_milliseconds() -> None:
    assert spread_of(number / 1000 for number in range(100, 0, -1)) == Spread(50, 95, 99, 100)


def test_nothing_is_sent_beyond_this_machine() -> None:
    assert len(HOSTS) == 20
    assert all(host.startswith("127.") for host in HOSTS)
