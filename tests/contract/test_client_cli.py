"""The commands that ask the API: what they show, as JSON and to people, and how they end."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.core.jobs import advance
from app.core.keys import EVERY_TENANT
from app.local import connection
from app.local.connection import Connection
from tests.contract.clients import client_of
from tests.contract.served import Api, number_of
from tests.contract.test_bytes import DATA
from tests.contract.test_deliveries import bury
from tests.integration.test_cli import Done, Quick, quick
from tests.service import duehook

__all__ = ["quick"]
Ask = Callable[..., Done]
COMMANDS = {
    "events": ["post", "list", "show", "cancel"],
    "endpoints": ["list", "show", "create", "enable", "disable", "ping", "delete"],
    "deliveries": ["list", "show", "retry"],
    "jobs": ["list", "show", "cancel"],
}
NOON = "2030-01-01T12:00:00.000000Z"


@pytest.fixture
def ask(api: Api, tenant: str, quick: Quick, tmp_path: Path) -> Ask:
    """Runs a command on the API, as this test's tenant."""
    key = api.key(tenant)
    return lambda *arguments: quick(*arguments, api_url=api.url, api_key=key, home=tmp_path / "none")


def shown(done: Done) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", [(noun, verb) for noun, verbs in COMMANDS.items() for verb in verbs], ids=" ".join)
def test_every_one_has_help_with_an_example(quick: Quick, command: tuple[str, str]) -> None:
    told = quick(*command, "--help")
    assert told.returncode == 0
    assert "Usage: duehook" in told.stdout and "Example: duehook " in told.stdout
    assert "--json" in told.stdout and "--tenant" in told.stdout


def test_an_event_is_posted_listed_shown_and_cancelled(ask: Ask) -> None:
    shown(ask("endpoints", "create", "http://127.0.0.1:9/", "order.*", "--json"))
    posted = shown(ask("events", "post", "order.placed", '{ "total" : 12.50 }', "--key", "order-1", "--json"))
    assert posted == {
        "id": posted["id"],
        "type": "order.placed",
        "key": "order-1",
        "created_at": NOON,
        "due_at": NOON,
        "deliveries": 1,
    }
    (listed,) = shown(ask("events", "list", "--json"))
    assert listed == {**posted, "cancelled_at": None, "erased_at": None, "data": {"total": 12.5}}
    whole = ask("events", "show", posted["id"], "--json")
    assert shown(whole) == listed
    assert whole.stdout.endswith(',\n  "data": { "total" : 12.50 }\n}\n'), "the text that was sent"
    told = ask("events", "show", posted["id"]).stdout.splitlines()
    assert told[0] == f"id            {posted['id']}"
    assert 'data          { "total" : 12.50 }' in told
    lines = ask("events", "list").stdout.splitlines()
    assert lines == [
        "id\ttype\tkey\tcreated_at\tdue_at\tdeliveries",
        f"{posted['id']}\torder.placed\torder-1\t{NOON}\t{NOON}\t1",
    ]
    cancelled = shown(ask("events", "cancel", posted["id"], "--json"))
    assert cancelled == {"cancelled": 1, "in_flight": 0, "finished": 0}


def test_an_erased_event_is_told_from_one_whose_data_is_null(
    api: Api, tenant: str, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    null = shown(ask("events", "post", "a", "null", "--json"))["id"]
    gone = shown(ask("events", "post", "a", "1", "--json"))["id"]
    with api.client(tenant) as client:
        job = client.post(f"/v1/events/{gone}/erase").json()["id"]
        while client.get(f"/v1/jobs/{job}").json()["status"] in ("queued", "running"):
            advance(api.runtime.engine, [number_of(job)])
    capsys.readouterr()  # what the steps have logged
    assert [shown(ask("events", "show", each, "--json"))["erased_at"] for each in (null, gone)] == [None, NOON]
    assert [shown(ask("events", "show", each, "--json"))["data"] for each in (null, gone)] == [None, None]
    assert f"erased_at     {NOON}" in ask("events", "show", gone).stdout.splitlines()
    with client_of(api, tenant) as client:
        found = client.events.get(gone)
    assert found.erased_at is not None and (found.raw_data, found.data) == ("null", None)


def test_an_event_is_found_by_its_key(api: Api, tenant: str, ask: Ask) -> None:
    one = shown(ask("events", "post", "a", "1", "--key", "ö rder&1", "--json"))["id"]
    ask("events", "post", "a", "1", "--key", "ö rder&10")
    ask("events", "post", "a", "1")
    assert [each["id"] for each in shown(ask("events", "list", "--key", "ö rder&1", "--json"))] == [one]
    assert shown(ask("events", "list", "--key", "ö rder", "--json")) == []
    assert ask("events", "list", "--key", "").returncode == 2
    with client_of(api, tenant) as client:
        assert [each.id for each in client.events.list(key="ö rder&1")] == [one]


@pytest.mark.parametrize("name", DATA)
def test_data_is_shown_byte_for_byte(ask: Ask, name: str) -> None:
    posted = ask("events", "post", "a", DATA[name], "--json").stdout
    assert f'"data": {DATA[name]}\n}}' in ask("events", "show", json.loads(posted)["id"], "--json").stdout
    assert f'"data": {DATA[name]}\n}}' in ask("events", "list", "--json").stdout


def test_data_may_come_from_standard_input(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("[1,\n2]\n"))
    posted = shown(ask("events", "post", "a", "-", "--delay", "60", "--json"))
    assert posted["due_at"] == "2030-01-01T12:01:00.000000Z"
    assert '"data": [1,\n2]\n}' in ask("events", "show", posted["id"], "--json").stdout
    later = shown(ask("events", "post", "a", "1", "--at", "2030-01-01T14:00:00+01:00", "--json"))
    assert later["due_at"] == "2030-01-01T13:00:00.000000Z"
    assert [each["id"] for each in shown(ask("events", "list", "--limit", "1", "--json"))] == [later["id"]]


def test_an_endpoint_is_made_switched_off_and_on_and_tried(ask: Ask) -> None:
    made = shown(ask("endpoints", "create", "http://127.0.0.1:9/", "a", "b.*", "--rate", "2.5", "--json"))
    assert (
        made["event_types"] == ["a", "b.*"] and made["secret"].startswith("whsec_") and made["rate_per_second"] == 2.5
    )
    assert shown(ask("endpoints", "disable", made["id"], "--json"))["disabled_reason"] == "requested"
    assert shown(ask("endpoints", "list", "--json"))[0]["status"] == "disabled"
    refused = ask("endpoints", "ping", made["id"])
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("duehook: ") and refused.stderr.endswith(".\n")
    assert shown(ask("endpoints", "enable", made["id"], "--json"))["status"] == "enabled"
    assert shown(ask("endpoints", "ping", made["id"], "--json"))["type"] == "ping"
    assert f"{made['id']}\tenabled\thttp://127.0.0.1:9/\ta b.*\t\t\tFalse\n" in ask("endpoints", "list").stdout
    assert "event_types      a b.*\n" in ask("endpoints", "show", made["id"]).stdout


def test_a_flagged_endpoint_is_listed_as_one(api: Api, ask: Ask) -> None:
    flagged = shown(ask("endpoints", "create", "http://127.0.0.1:9/", "a", "--json"))["id"]
    fine = shown(ask("endpoints", "create", "http://127.0.0.1:9/", "a", "--json"))["id"]
    with api.runtime.engine.begin() as connection:
        connection.execute(text("UPDATE duehook.endpoints SET flagged = true WHERE id = :id"), {"id": flagged})
    lines = [line.split("\t") for line in ask("endpoints", "list").stdout.splitlines()]
    assert [(line[0], line[-1]) for line in lines] == [("id", "flagged"), (fine, "False"), (flagged, "True")]


def test_an_endpoint_is_deleted(ask: Ask) -> None:
    one, other = (
        shown(ask("endpoints", "create", "http://127.0.0.1:9/", "a", "--json"))["id"] for _ in ("one", "other")
    )
    assert ask("endpoints", "delete", one).stdout == f"{one} is deleted; what waited for it is cancelled.\n"
    assert shown(ask("endpoints", "delete", other, "--json")) == {"id": other, "deleted": True}
    assert shown(ask("endpoints", "list", "--json")) == []
    again = ask("endpoints", "delete", one)
    assert (again.returncode, again.stderr) == (1, "duehook: there is no such endpoint.\n")


def test_a_secret_is_shown_by_create_alone(ask: Ask) -> None:
    told = ask("endpoints", "create", "http://127.0.0.1:9/", "a").stdout
    assert "\nsecret " in told
    made = told.split()[1]
    for command in (["show", made], ["disable", made], ["enable", made]):
        assert "secret" not in ask("endpoints", *command).stdout
        assert "secret" not in shown(ask("endpoints", *command, "--json"))
    assert "secret" not in ask("endpoints", "list", "--json").stdout


def test_a_delivery_is_shown_with_its_attempts_and_tried_again(api: Api, ask: Ask) -> None:
    ask("endpoints", "create", "http://127.0.0.1:9/", "a")
    event = shown(ask("events", "post", "a", "1", "--json"))["id"]
    (delivery,) = shown(ask("deliveries", "list", "--event", event, "--status", "scheduled", "--json"))
    assert "attempts" not in delivery, "a list has none, which is not to say that there were none"
    bury(api, delivery["id"])
    dead = shown(ask("deliveries", "show", delivery["id"], "--json"))
    assert (dead["reason"], [each["outcome"] for each in dead["attempts"]]) == ("refused", ["refused"])
    assert dead["attempts"][0]["started_at"] == NOON
    members, table = ask("deliveries", "show", delivery["id"]).stdout.split("\n\n")
    assert "reason           refused\n" in members and "attempts" not in members
    attempt = dead["attempts"][0]
    assert table.splitlines() == [
        "attempt\toutcome\tstatus\tstarted\tended\terror\tlocation",
        f"1\trefused\t{attempt['status_code'] or ''}\t{NOON}\t{NOON}\t{attempt['error'] or ''}\t",
    ]
    assert shown(ask("deliveries", "retry", delivery["id"], "--json"))["status"] == "scheduled"
    assert shown(ask("deliveries", "list", "--status", "dead", "--json")) == []


def test_a_job_is_listed_shown_and_cancelled(api: Api, tenant: str, ask: Ask) -> None:
    with client_of(api, tenant) as client:
        job = client.dead_letters.redrive_all(reason="gone").id
    assert shown(ask("jobs", "show", job, "--json"))["status"] == "queued"
    assert [each["id"] for each in shown(ask("jobs", "list", "--json"))] == [job]
    assert ask("jobs", "cancel", job).returncode == 0
    assert shown(ask("jobs", "show", job, "--json"))["status"] == "cancelled"
    assert f"{job}\tredrive\tcancelled\t0\t" in ask("jobs", "list").stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ["events", "post", "a", "{"],
        ["events", "post", "a", '1,"key":"k"'],
        ["events", "post", "not a type", "1"],
        ["events", "post", "a", "1", "--at", "tomorrow"],
        ["events", "post", "a", "1", "--at", "2030-01-01T12:00:00"],
        ["events", "post", "a", "1", "--delay", "-1"],
        ["events", "show", "../keys"],
        ["events", "list", "--limit", "501"],
        ["endpoints", "create", "http://127.0.0.1:9/"],
        ["endpoints", "create", "ftp://h", "a"],
        ["deliveries", "list", "--status", "bored"],
        ["jobs"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_2_and_one_sentence(ask: Ask, wrong: list[str]) -> None:
    done = ask(*wrong)
    assert done.returncode == 2
    assert done.stderr or wrong == ["jobs"]
    assert done.stdout == "" or wrong == ["jobs"]


@pytest.mark.parametrize(
    ("data", "why"),
    {
        "nojson": "is not JSON at character 1",
        "{total: 12}": "is not JSON at character 1",
        "  [1, x]": "is not JSON at character 7",
        "": "is not JSON at character 1",
        '1,"key":"k"': "is more than one JSON text",
        '"\ud800"': "holds a lone surrogate: write it as an escape",
    }.items(),
)
def test_data_that_is_no_json_is_told_as_data(ask: Ask, monkeypatch: pytest.MonkeyPatch, data: str, why: str) -> None:
    refused = ask("events", "post", "order.x", data)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"duehook: data {why}; in a shell put it in single quotes.\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(data))
    assert ask("events", "post", "order.x", "-").stderr == f"duehook: data {why}.\n"


def test_what_is_not_there_is_1_and_one_sentence(ask: Ask) -> None:
    for command in (["events", "show", "evt_1"], ["jobs", "cancel", "job_1"], ["deliveries", "retry", "dlv_1"]):
        done = ask(*command)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("duehook: there is no such ") and done.stderr.count("\n") == 1


def test_a_service_that_is_not_there_or_not_known_is_told(
    quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "none"
    nowhere = quick("jobs", "list", home="none")
    assert (nowhere.returncode, nowhere.stderr) == (
        1,
        f"duehook: no service: nothing runs in {home}; start one with `duehook up`, "
        "or set DUEHOOK_API_URL and DUEHOOK_API_KEY, or DUEHOOK_HOME.\n",
    )
    keyless = quick("jobs", "list", home=home, api_url="http://127.0.0.1:1")
    assert (keyless.returncode, keyless.stderr) == (
        2,
        "duehook: DUEHOOK_API_KEY is not set; with DUEHOOK_API_URL, set it to a key of that service.\n",
    )
    wrong = quick("jobs", "list", home=home, api_url="localhost:8300", api_key="k")
    assert wrong.returncode == 2 and wrong.stderr.startswith("duehook: api_url is the service's address, such as ")


def test_in_a_home_it_finds_the_service_and_a_key_for_every_tenant(
    api: Api, tenant: str, quick: Quick, tmp_path: Path
) -> None:
    written = Connection(
        api_url=api.url,
        ops_url="",
        flower_url="",
        flower_user="",
        flower_password="",
        api_key=api.key(tenant),
        operator_key=api.key(EVERY_TENANT),
        database_url="",
        broker_url="",
        pids={},
        logs={},
    )
    connection.write(tmp_path, written)
    posted = shown(duehook("events", "post", "a", "1", "--json", home=tmp_path))
    assert shown(quick("events", "show", posted["id"], "--tenant", tenant, "--json", home=tmp_path))["data"] == 1
    assert quick("events", "show", posted["id"], "--tenant", "other", home=tmp_path).returncode == 1
    assert quick("events", "list", "--tenant", "a b", home=tmp_path).returncode == 2
