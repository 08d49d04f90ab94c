"""`duehook wakeups`: who notices what is due, shown and chosen."""

import json
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from app.ledger import status
from app.ledger import wakeups as ledger
from tests.integration.test_cli import Quick, quick, seen
from tests.ledgers import an_endpoint, deliveries_of, rows, some_events
from tests.service import duehook

__all__ = ["quick"]
Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def wakeups(quick: Quick, database_url: str) -> Ask:
    """Runs `duehook wakeups` on this test's ledger."""
    return lambda *arguments: quick("wakeups", *arguments, database_url=database_url)


def shares(wakeups: Ask) -> tuple[int, int]:
    shown = json.loads(wakeups("show", "--json").stdout)
    return shown["queue"]["share"], shown["scan"]["share"]


def test_at_first_the_queue_notices_everything(engine: Engine, wakeups: Ask) -> None:
    nothing = {"processes": 0, "due": 0, "oldest_due_age_seconds": 0.0}
    assert json.loads(wakeups("show", "--json").stdout) == {
        "queue": {"share": 100, "workers": 0, **nothing},
        "scan": {"share": 0, **nothing},
        "at_least": [],
    }


@pytest.mark.parametrize(
    ("chosen", "queue", "scan"),
    [
        (["scan"], 0, 100),
        (["queue"], 100, 0),
        (["scan", "--share", "30"], 70, 30),
        (["queue", "--share", "30"], 30, 70),
        (["scan", "--share", "0"], 100, 0),
        (["--share", "100", "scan"], 0, 100),
    ],
)
def test_the_choice_is_kept_in_the_ledger(
    engine: Engine, wakeups: Ask, chosen: list[str], queue: int, scan: int
) -> None:
    done = wakeups("set", *chosen)
    assert done.returncode == 0
    assert f"The queue notices {queue} % of what is due, the scan {scan} %" in done.stdout
    assert shares(wakeups) == (queue, scan)
    assert rows(engine, "SELECT scan_share FROM duehook.service") == [scan]


@pytest.mark.parametrize("share", ["101", "-1", "x", "", "30.5", "٣٠", "1e2", "9" * 5000, "[/b]"])
def test_a_share_that_can_t_be_is_refused_in_one_sentence(engine: Engine, wakeups: Ask, share: str) -> None:
    refused = wakeups("set", "scan", "--share", share)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"duehook: {share!r} is not a share: use a whole number from 0 to 100.\n"
    assert shares(wakeups) == (100, 0)


def test_an_adapter_that_is_not_there_is_refused(engine: Engine, wakeups: Ask) -> None:
    refused = wakeups("set", "celery")
    assert (refused.returncode, refused.stderr) == (2, "duehook: 'celery' is not an adapter: use queue or scan.\n")


def test_what_is_due_is_shown_in_the_part_that_it_belongs_to(engine: Engine, wakeups: Ask) -> None:
    an_endpoint(engine)
    ids = [each for event in some_events(engine, 50) for each in deliveries_of(engine, event)]
    some_events(engine, 5, delay_seconds=60)  # not due
    wakeups("set", "scan", "--share", "30")
    scanned = rows(engine, "SELECT count(*) FROM duehook.outbox WHERE kind = 'delivery' AND duehook.bucket(ref) < 30")[
        0
    ]
    assert 0 < scanned < len(ids)
    shown = json.loads(wakeups("show", "--json").stdout)
    assert (shown["queue"]["due"], shown["scan"]["due"]) == (len(ids) - scanned, scanned)
    assert 0 < shown["queue"]["oldest_due_age_seconds"] < 60
    lines = [line.split("\t") for line in wakeups("show").stdout.splitlines()]
    assert lines[0] == ["adapter", "share", "processes", "due", "oldest due"]
    assert [line[:4] for line in lines[1:]] == [
        ["queue", "70 %", "relay 0, workers 0", str(len(ids) - scanned)],
        ["scan", "30 %", "scan 0", str(scanned)],
    ]
    assert all(re.fullmatch(r"\d+\.\d s ago", line[4]) for line in lines[1:])


def test_no_more_is_counted_than_a_bounded_number(
    engine: Engine, wakeups: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ledger.wakeups.MOST", 3)
    an_endpoint(engine)
    some_events(engine, 5)
    shown = json.loads(wakeups("show", "--json").stdout)
    assert (shown["queue"]["due"], shown["at_least"]) == (3, ["queue.due"])
    assert "\t3 or more\t" in wakeups("show").stdout


def test_the_index_is_read_in_its_order_and_only_as_far_as_the_bound(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
                    SELECT n, 'delivery', 'acme', now(), now() FROM generate_series(1, 5000) n""")
        )
        status.read_in_order(connection)
        explain = text("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + ledger._DUE.text)
        parameters = {"kinds": ["delivery"], "ahead": timedelta(minutes=15), "most": 100}
        plan = "\n".join(connection.execute(explain, parameters).scalars())
        connection.rollback()
    assert "Index Scan using outbox_look on outbox (actual rows=100" in plan


def test_who_gives_the_work_to_an_adapter_that_nobody_runs_is_told_so(engine: Engine, wakeups: Ask) -> None:
    done = wakeups("set", "scan", "--share", "30")
    assert done.stderr == (
        "duehook: no relay has been seen; start one with `duehook relay`.\n"
        "duehook: no worker for expiry or delivery or upkeep has been seen; "
        "start one with `duehook worker expiry delivery upkeep`.\n"
        "duehook: no scan has been seen; start one with `duehook scan`.\n"
    )
    assert "relay" not in wakeups("set", "scan").stderr, "it has nothing to do"


def test_an_adapter_s_processes_are_what_its_work_needs(engine: Engine, wakeups: Ask) -> None:
    for role in ("relay", "worker expiry", "worker delivery", "worker delivery", "worker upkeep", "scan", "scan"):
        seen(engine, role)
    seen(engine, "relay", seconds_ago=16)
    seen(engine, "worker expiry", seconds_ago=16)
    lines = [line.split("\t") for line in wakeups("show").stdout.splitlines()]
    assert [line[2] for line in lines] == ["processes", "relay 1, workers 4", "scan 2"]
    shown = json.loads(wakeups("show", "--json").stdout)
    assert (shown["queue"]["processes"], shown["queue"]["workers"], shown["scan"]["processes"]) == (1, 4, 2)
    assert "workers" not in shown["scan"]
    assert wakeups("set", "queue", "--share", "50").stderr == ""


def test_a_lane_that_no_worker_is_there_for_is_told(engine: Engine, wakeups: Ask) -> None:
    seen(engine, "relay")
    seen(engine, "worker expiry-upkeep")
    assert wakeups("set", "queue").stderr == (
        "duehook: no worker for delivery has been seen; start one with `duehook worker delivery`.\n"
    )


def test_it_is_the_installed_command_too(database_url: str) -> None:
    done = duehook("wakeups", "set", "scan", "--json", database_url=database_url)
    assert (done.returncode, json.loads(done.stdout)["scan"]["share"]) == (0, 100)
