"""The evaluation on an installation that runs already: in a tenant of its own, of which nothing is left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from app.client import Client
from app.demo.display import Display
from app.eval.faults import FAULTS
from app.eval.installation import Installation
from app.eval.main import Wanted, perform
from app.eval.report import Report
from app.eval.thresholds import built_in
from tests.service import DUEHOOK, Up, environment, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SHORT: dict[str, Any] = {"deadline_seconds": 2, "lease_seconds": 4, "publish_lease_seconds": 3}
LIMITS = built_in(lease=4, deadline=2)
QUICK = "timeout-after-acceptance"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One installation, with a tenant `default` that has something."""
    home = tmp_path_factory.mktemp("eval") / "home"
    with running(home, allowed_networks="127.0.0.0/8", **SHORT) as service:
        found = service.connection
        with Client(found["api_url"], found["api_key"]) as client:
            client.endpoints.create("http://127.0.0.1:9/", ["order.*"])
            client.events.post("order.placed", {"total": 1}, key="order-1", delay_seconds=3600)
            client.reservations.hold("seat", hold_seconds=3600, id="rsv_mine")
        yield service


def evaluated(up: Up, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*DUEHOOK, "eval", "--existing", *arguments],
        env=environment(home=up.home, **{**SHORT, **settings}),
        cwd=up.home.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def rows(up: Up, statement: str) -> list[Any]:
    with psycopg.connect(up.connection["database_url"]) as connection:
        return connection.execute(statement.encode()).fetchall()


def left(up: Up) -> dict[str, int]:
    """What there is of tenants of evaluations, by table, beside the audit log and the job that erased them."""
    tables = rows(
        up,
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'duehook' AND column_name = 'tenant'",
    )
    counts = {
        table: rows(up, f"SELECT count(*) FROM duehook.{table} WHERE tenant LIKE 'eval-%'")[0][0]
        for (table,) in tables
        if table != "audit_log"
    }
    counts["jobs"] = rows(
        up,
        "SELECT count(*) FROM duehook.jobs WHERE tenant LIKE 'eval-%'"
        " AND (kind, status) <> ('erase_tenant', 'completed')",
    )[0][0]
    counts["secrets"] = rows(
        up,
        "SELECT count(*) FROM duehook.secrets s"
        " WHERE NOT EXISTS (SELECT FROM duehook.endpoints WHERE seq = s.endpoint)",
    )[0][0]
    return {table: number for table, number in counts.items() if number}


def others(up: Up) -> list[Any]:
    """Everything of the other tenant, row by row."""
    return [
        rows(up, f"SELECT t::text FROM duehook.{table} t WHERE tenant = 'default' ORDER BY 1")
        for table in ("endpoints", "subscriptions", "events", "reservations", "deliveries", "outbox")
    ]


def installation(up: Up) -> Installation:
    found = up.connection
    return Installation(
        name="an installation",
        api_url=found["api_url"],
        database_url=found["database_url"],
        broker_url=found["broker_url"],
        pids=lambda: up.pids,
        lease=4,
        deadline=2,
        is_ours=False,
    )


def performed(up: Up, name: str, program: Sequence[str]) -> Report:
    with Display() as display:
        return perform(Wanted([FAULTS[name]], LIMITS, installation(up), program=program), display)


def wrong(how: str) -> Sequence[str]:
    """The program of receivers that do it wrong."""
    return sys.executable, str(Path(__file__).parent / "wrong_receiver.py"), how


def test_nothing_of_its_tenant_is_left_others_have_what_they_had_and_what_was_left_out_is_named(up: Up) -> None:
    before, pids = others(up), up.pids
    done = evaluated(up, "--json", "--only", QUICK, "--only", "worker-killed", "--only", "confirm-against-expiry")
    report = json.loads(done.stdout)
    assert (done.returncode, report["problems"]) == (0, []), done.stderr
    assert [fault["name"] for fault in report["faults"]] == [QUICK, "confirm-against-expiry"]
    ((name, reason),) = [(each["name"], each["reason"]) for each in report["not_run"]]
    assert (name, reason) == (
        "worker-killed",
        "it would hurt others who use this installation: --disruptive runs it all the same",
    )
    assert report["tenant"].startswith("eval-")
    assert left(up) == {}
    assert others(up) == before
    assert up.pids == pids, "nobody was killed"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_evaluation_leaves_nothing_of_its_tenant_and_nobody_stopped(
    up: Up, tmp_path: Path, ending: signal.Signals
) -> None:
    command = [*DUEHOOK, "eval", "--existing", "--disruptive", "--only", "consumer-paused"]
    given = environment(home=up.home, **SHORT) | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=given, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as ran:
        assert ran.stderr
        wait_until(lambda: all(is_stopped(pid) for pid in up.pids["worker-delivery"]), deadline=120)
        ran.send_signal(ending)
        said = b""
        while b"Erasing" not in said:
            line = ran.stderr.readline()
            assert line, said
            said += line
        ran.send_signal(ending)  # somebody is impatient: that does not leave half of it
        said += ran.stderr.read()
        ran.wait(150)
    assert ran.returncode not in (0, None)
    assert b"Traceback" not in said, said
    assert left(up) == {}
    assert not any(is_stopped(pid) for pid in up.pids["worker-delivery"])
    assert os.listdir(tmp_path) == []


def test_workers_go_on_when_the_evaluation_that_has_stopped_them_is_killed(up: Up, tmp_path: Path) -> None:
    """Its tenant can't be erased by itself then; the documented command does that."""
    command = [*DUEHOOK, "eval", "--existing", "--disruptive", "--only", "consumer-paused"]
    given = environment(home=up.home, **SHORT) | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=given, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as ran:
        wait_until(lambda: all(is_stopped(pid) for pid in up.pids["worker-delivery"]), deadline=120)
        ran.kill()
    wait_until(lambda: not any(is_stopped(pid) for pid in up.pids["worker-delivery"]), deadline=30)
    ((tenant,),) = rows(up, "SELECT DISTINCT tenant FROM duehook.api_keys WHERE tenant LIKE 'eval-%'")
    erased = subprocess.run(
        [*DUEHOOK, "tenants", "erase", tenant, "--yes"], env=environment(home=up.home), timeout=120, check=False
    )
    assert erased.returncode == 0
    assert left(up) == {}


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended meanwhile
        return False


def test_a_threshold_that_is_too_tight_fails_and_is_named(up: Up, tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text("[faults.timeout-after-acceptance]\nduplicates_per_event_naive = 0.01\n")
    done = evaluated(up, "--only", QUICK, "--thresholds", str(tmp_path / "limits.toml"))
    assert done.returncode == 1
    assert f"✗ {QUICK}: duplicates_per_event_naive is 0.325, and may be 0.01 at most." in done.stdout
    assert left(up) == {}


def test_a_receiver_that_loses_effects_is_noticed_although_every_delivery_was_accepted(up: Up) -> None:
    report = performed(up, QUICK, wrong("lose"))
    (fault,) = report.faults
    assert fault.figures["lost_effects"] == 8, "four of forty at both that deduplicate; the naive one has its own way"
    assert {name: each.lost_effects for name, each in fault.destinations.items()} == {
        "careful": 4,
        "naive": 0,
        "bystander": 4,
    }
    assert f"{QUICK}: lost_effects is 8, and may be 0 at most." in report.problems()


def test_a_receiver_that_doubles_effects_is_noticed(up: Up) -> None:
    report = performed(up, QUICK, wrong("double"))
    assert report.faults[0].figures["duplicate_effects_deduplicating"] == 8
    assert f"{QUICK}: duplicate_effects_deduplicating is 8, and may be 0 at most." in report.problems()


def test_a_broker_that_is_emptied_keeps_what_is_not_duehook_s(up: Up) -> None:
    with redis.Redis.from_url(up.connection["broker_url"]) as broker:
        broker.set("somebody:else", "1")
        done = evaluated(up, "--disruptive", "--only", "broker-emptied")
        assert (done.returncode, broker.get("somebody:else")) == (0, b"1"), done.stdout
    assert left(up) == {}


def test_faults_of_the_queue_are_not_run_where_the_scan_notices_a_part(up: Up) -> None:
    def share(number: int) -> None:
        command = [*DUEHOOK, "wakeups", "set", "scan", "--share", str(number)]
        subprocess.run(command, env=environment(home=up.home), check=True, timeout=60, stdout=subprocess.DEVNULL)

    share(10)
    try:
        done = evaluated(up, "--disruptive", "--only", "relay-killed", "--only", QUICK, "--json")
    finally:
        share(0)
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert [fault["name"] for fault in report["faults"]] == [QUICK]
    ((name, reason),) = [(each["name"], each["reason"]) for each in report["not_run"]]
    assert (name, reason) == ("relay-killed", "the scan notices 10 % of its work, and this is about the queue")


def test_an_installation_that_can_not_be_used_is_told_why_in_a_sentence(
    up: Up,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running(tmp_path_factory.mktemp("closed") / "home", **SHORT) as closed:
        done = evaluated(closed, "--only", QUICK)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1] == (
            "duehook: The installation does not send to 127.0.0.1, where the receivers are: add 127.0.0.0/8 to"
            " DUEHOOK_ALLOWED_NETWORKS of its processes and start them again."
        )
        assert left(closed) == {}
        theirs = closed.connection["database_url"]
        done = evaluated(up, "--only", QUICK, database_url=theirs, api_url=up.connection["api_url"])
        assert (done.returncode, done.stdout) == (1, "")
        last = done.stderr.splitlines()[-1]
        assert "they are of two installations; set DUEHOOK_API_URL and DUEHOOK_DATABASE_URL of one" in last
        assert urlsplit(theirs).password not in last
        assert left(closed) == {}
