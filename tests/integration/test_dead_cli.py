"""`duehook dead`: looked at, counted, tried again, watched."""

import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from app.core import deliveries, endpoints
from app.core.jobs import STEPS, advance
from app.core.steps import Step
from app.domain.identity import public_id
from app.domain.states import DeadReason, DeliveryStatus, Outcome
from app.ledger import jobs
from app.ledger.database import in_transaction
from tests.integration.test_cli import Quick, quick
from tests.ledgers import TENANT, TERMS, an_endpoint, claimed, dead, deliveries_of, ending, row, rows, some_events
from tests.service import DUEHOOK, duehook, environment
from tests.waiting import wait_until

__all__ = ["quick"]
Ask = Callable[..., subprocess.CompletedProcess[str]]
MINE = ("--tenant", TENANT)


@pytest.fixture
def dead_letters(quick: Quick, database_url: str) -> Ask:
    """Runs `duehook dead` on this test's ledger."""
    return lambda *arguments: quick("dead", *arguments, database_url=database_url)


@contextmanager
def working(engine: Engine) -> Iterator[None]:
    """Somebody who advances every job meanwhile."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            advance(engine, rows(engine, "SELECT seq FROM duehook.jobs WHERE status IN ('queued', 'running')"))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def shown(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_list_has_the_last_to_die_first_and_takes_filters(engine: Engine, dead_letters: Ask) -> None:
    one = an_endpoint(engine)
    first, second = dead(engine), dead(engine, reason=DeadReason.GONE)
    other = an_endpoint(engine)
    third = dead(engine, reason=DeadReason.GONE)
    names = {each: public_id("dlv", each) for each in (*first, *second, *third)}

    def listed(*options: str) -> set[str]:
        return {each["id"] for each in shown(dead_letters("list", *MINE, "--json", *options))}

    assert listed() == set(names.values())
    assert listed("--reason", "refused") == {names[first[0]]}
    to_other = [each for each in third if row(engine, "deliveries", "id", each)["endpoint"] == other]
    assert listed("--reason", "gone", "--endpoint", public_id("end", other)) == {names[each] for each in to_other}
    assert listed("--endpoint", public_id("end", one), "--reason", "poison") == set()
    assert len(listed("--limit", "2")) == 2
    assert shown(dead_letters("list", "--json")) == [], "the tenant is default unless told"
    lines = dead_letters("list", *MINE).stdout.splitlines()
    assert lines[0] == "id\tdied\treason\tattempts\tendpoint\tevent"
    assert lines[-1].split("\t")[0] == names[first[0]]
    assert len(lines) == 5


def test_a_filtered_list_goes_on_until_it_is_full(
    engine: Engine, dead_letters: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ledger.dead_letters.STRETCH", 3)
    an_endpoint(engine)
    rare = dead(engine, reason=DeadReason.GONE)
    dead(engine, 20)
    found = shown(dead_letters("list", *MINE, "--json", "--reason", "gone", "--limit", "2"))
    assert [each["id"] for each in found] == [public_id("dlv", rare[0])]


def test_one_is_shown_with_its_time_line(engine: Engine, dead_letters: Ask) -> None:
    an_endpoint(engine)
    (event,) = some_events(engine)
    (delivery,) = deliveries_of(engine, event)
    (claim,) = claimed(engine, delivery)
    told = ending(claim, Outcome.REDIRECTED, status_code=308, location="/hooks/", after=timedelta())
    deliveries.record(engine, [told], max_age=TERMS.max_age)
    name = public_id("dlv", delivery)
    missing = dead_letters("show", name, *MINE)
    assert (missing.returncode, missing.stderr) == (
        1,
        f"duehook: there is no dead letter '{name}' of the tenant 'acme'.\n",
    )
    (claim,) = claimed(engine, delivery)
    buried = ending(claim, Outcome.REFUSED, status=DeliveryStatus.DEAD, reason=DeadReason.REFUSED)
    deliveries.record(engine, [buried], max_age=TERMS.max_age)
    letter = shown(dead_letters("show", name, *MINE, "--json"))
    assert (letter["id"], letter["reason"], letter["event_id"]) == (name, "refused", public_id("evt", event))
    assert [(each["number"], each["outcome"], each["location"]) for each in letter["attempts"]] == [
        (1, "redirected", "/hooks/"),
        (2, "refused", None),
    ]
    told_to_people = dead_letters("show", name, *MINE).stdout
    assert "reason       refused\n" in told_to_people
    assert "1\tredirected\t308\t" in told_to_people
    assert dead_letters("show", name).returncode == 1, "not of the tenant default"


def test_one_is_tried_again(engine: Engine, dead_letters: Ask) -> None:
    an_endpoint(engine)
    (delivery,) = dead(engine)
    name = public_id("dlv", delivery)
    assert shown(dead_letters("redrive", name, *MINE, "--json"))["status"] == "scheduled"
    assert row(engine, "deliveries", "id", delivery)["round"] == 2
    again = dead_letters("redrive", name, *MINE)
    assert (again.returncode, again.stderr) == (1, f"duehook: {name} is scheduled and no dead letter.\n")
    assert dead_letters("redrive", "dlv_1", *MINE).returncode == 1


def test_one_whose_endpoint_is_disabled_is_told_to_wait(engine: Engine, dead_letters: Ask) -> None:
    endpoint = an_endpoint(engine)
    first, second = (public_id("dlv", each) for each in dead(engine, 2))
    assert dead_letters("redrive", first, *MINE).stdout == f"{first} is tried again now, in a new round.\n"
    in_transaction(engine, lambda connection: endpoints.disable(connection, TENANT, endpoint))
    assert dead_letters("redrive", second, *MINE).stdout == (
        f"{second} begins a new round, and waits until its endpoint {public_id('end', endpoint)} is enabled again.\n"
    )


def test_a_dry_run_counts_and_makes_no_job(engine: Engine, dead_letters: Ask) -> None:
    an_endpoint(engine)
    dead(engine, 3)
    assert shown(dead_letters("redrive", *MINE, "--dry-run", "--json")) == {"matching": 3, "more": False}
    assert dead_letters("redrive", *MINE, "--dry-run", "--reason", "gone").stdout == "0 would be tried again.\n"
    assert rows(engine, "SELECT seq FROM duehook.jobs") == []


def test_a_redrive_is_watched_until_it_has_ended(engine: Engine, database_url: str) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 3)
    with working(engine):
        ended = shown(duehook("dead", "redrive", *MINE, "--rate", "50", "--json", database_url=database_url))
        assert (ended["status"], ended["done"], ended["total"]) == ("completed", 3, 3)
        assert ended["result"] == {"reopened": 3, "made": 0, "skipped": {}}
        told = duehook("dead", "redrive", *MINE, database_url=database_url)
    assert (told.returncode, told.stdout.split(": ")[1]) == (0, "0 of 0 re-opened.\n")
    assert rows(engine, "SELECT parameters ->> 'rate_per_second' FROM duehook.jobs ORDER BY seq") == ["50.0", None]


def test_a_redrive_that_fails_or_is_cancelled_says_so(
    engine: Engine, dead_letters: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STEPS, "redrive", lambda *_: Step(place=None, error="the sky has fallen"))
    with working(engine):
        failed = dead_letters("redrive", *MINE)
    assert failed.returncode == 1
    assert failed.stderr.endswith(" failed: the sky has fallen.\n")


@pytest.mark.parametrize(
    "wrong",
    [
        ["list", "--reason", "boredom"],
        ["list", "--endpoint", "nonsense"],
        ["list", "--limit", "0"],
        ["list", "--tenant", "a b"],
        ["show", "evt_1"],
        ["redrive", "nonsense"],
        ["redrive", "dlv_1", "--reason", "gone"],
        ["redrive", "--rate", "0"],
        ["redrive", "--rate", "fast"],
        ["redrive", "--rate", "nan"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_2_and_one_sentence(dead_letters: Ask, wrong: list[str]) -> None:
    done = dead_letters(*wrong)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_an_interrupted_watch_leaves_the_job_running_and_says_so(engine: Engine, database_url: str) -> None:
    an_endpoint(engine)
    dead(engine, 2)
    process = subprocess.Popen(
        [*DUEHOOK, "dead", "redrive", *MINE],
        env=environment(database_url=database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    (seq,) = wait_until(lambda: rows(engine, "SELECT seq FROM duehook.jobs"), deadline=30, what="it has begun")
    process.send_signal(signal.SIGINT)
    out, told = process.communicate(timeout=30)
    name = public_id("job", seq)
    assert (process.returncode, out) == (1, "")
    assert told.startswith(f"duehook: {name} goes on by itself, as `GET /v1/jobs/{name}` shows")
    with engine.begin() as connection:
        assert jobs.is_open(connection, seq)
    assert advance(engine, [seq]).answers[seq] == "taken"


def test_at_a_terminal_there_is_a_bar(engine: Engine, database_url: str) -> None:
    an_endpoint(engine)
    dead(engine, 2)
    ours, theirs = pty.openpty()
    with working(engine):
        done = subprocess.run(
            [*DUEHOOK, "dead", "redrive", *MINE, "--rate", "5"],
            env=environment(database_url=database_url) | {"TERM": "xterm", "COLUMNS": "100"},
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=60,
            check=True,
        )
    os.close(theirs)
    told = os.read(ours, 65536).decode()
    os.close(ours)
    assert b"2 of 2 re-opened" in done.stdout
    assert "redrive job_" in told
    assert "2/2" in told
