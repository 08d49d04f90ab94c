"""Where a fault can't or may not be run, and which installation is the one that the settings name."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.installation import existing_installation
from app.eval.faults import FAULTS
from app.eval.installation import Installation
from app.local import connection
from app.local.connection import Connection

URL = "postgresql://duehook:secret@127.0.0.1:9/duehook"
WHERE = Installation(
    name="an installation",
    api_url="http://127.0.0.1:9",
    database_url=URL,
    broker_url="redis://127.0.0.1:9/0",
    pids=lambda: {"worker-delivery": [1, 2], "relay": [3]},
    lease=45,
    deadline=15,
    is_ours=False,
)


def stopped(where: Installation, *, disruptive: bool) -> dict[str, str]:
    found = {name: fault.obstacle(where, disruptive=disruptive) for name, fault in FAULTS.items()}
    return {name: why for name, why in found.items() if why}


def test_faults_that_would_hurt_others_run_on_our_own_or_when_it_is_asked_for() -> None:
    disruptive = {name for name, fault in FAULTS.items() if fault.disruptive}
    assert stopped(WHERE, disruptive=False).keys() == disruptive
    assert stopped(WHERE, disruptive=True) == {}
    assert stopped(replace(WHERE, is_ours=True), disruptive=False) == {}


@pytest.mark.parametrize(
    ("change", "names", "reason"),
    [
        (
            {"pids": None},
            ("worker-killed", "relay-killed", "broker-emptied", "lease-lost", "consumer-paused", "poison-event"),
            "its processes are not known: only `duehook up` in DUEHOOK_HOME tells them",
        ),
        ({"pids": lambda: {"worker-delivery": [1]}}, ("lease-lost",), "it has 1 delivery worker, and another must"),
        ({"broker_url": "amqp://127.0.0.1"}, ("relay-killed", "broker-emptied"), "its broker is not Redis"),
        (
            {"scan_share": 10},
            ("worker-killed", "relay-killed", "broker-emptied", "lease-lost", "consumer-paused"),
            "the scan notices 10 % of its work, and this is about the queue",
        ),
        ({"broker_url": None}, ("duplicate-task", "relay-killed", "broker-emptied"), "its broker is not known"),
    ],
)
def test_what_a_fault_can_not_do_without_is_named(
    change: dict[str, object], names: tuple[str, ...], reason: str
) -> None:
    found = stopped(replace(WHERE, **change), disruptive=True)  # type: ignore[arg-type]
    assert found.keys() == set(names)
    assert all(why.startswith(reason) for why in found.values())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a service that runs there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUEHOOK_HOME", str(tmp_path))
    running = Connection(
        api_url="http://127.0.0.1:1",
        ops_url="",
        flower_url="",
        flower_user="",
        flower_password="",
        api_key="",
        operator_key="",
        database_url=URL,
        broker_url="redis://127.0.0.1:2/0",
        pids={"relay": [7]},
        logs={},
    )
    connection.write(tmp_path, running)
    return tmp_path


def test_the_service_of_the_home_is_found_with_its_broker_and_processes(home: Path) -> None:
    found = existing_installation()
    assert (found.api_url, found.database_url, found.broker_url) == ("http://127.0.0.1:1", URL, "redis://127.0.0.1:2/0")
    assert found.pids is not None and found.pids() == {"relay": [7]}
    assert not found.is_ours


def test_the_processes_in_the_home_are_not_those_of_another_database(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be killed for nothing."""
    monkeypatch.setenv("DUEHOOK_DATABASE_URL", "postgresql://127.0.0.1:9/other")
    monkeypatch.setenv("DUEHOOK_API_URL", "http://127.0.0.1:3")
    found = existing_installation()
    assert (found.api_url, found.broker_url, found.pids) == ("http://127.0.0.1:3", None, None)


def test_a_place_is_told_without_its_password() -> None:
    assert WHERE.database_place == "127.0.0.1:9/duehook"
