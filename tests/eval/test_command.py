"""`duehook eval` as a command: what it refuses, and that its page in the docs has all of it."""

import json
from pathlib import Path

import pytest

from app.eval.faults import FAULTS
from app.eval.thresholds import FIGURES
from tests.service import duehook

DOCS = (Path(__file__).parents[2] / "docs" / "eval.md").read_text()


def test_the_list_names_every_fault_and_which_would_hurt_others() -> None:
    listed = json.loads(duehook("eval", "--list", "--json").stdout)
    assert [each["name"] for each in listed] == list(FAULTS)
    assert {each["name"] for each in listed if each["disruptive"]} == {
        *("worker-killed", "relay-killed", "broker-emptied", "lease-lost", "consumer-paused", "poison-event")
    }
    assert all(name in duehook("eval", "--list").stdout for name in FAULTS)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--only", "relay-kiled"], 2, "'relay-kiled' is not a fault; did you mean relay-killed? --list shows them."),
        (["--list", "--print-thresholds"], 2, "--list and --print-thresholds print different things: ask for one"),
        (["--disruptive"], 2, "--disruptive goes with --existing: a service of its own is always treated badly."),
        (["--thresholds", "/nowhere.toml"], 2, "/nowhere.toml can't be read (No such file or directory)."),
        (["--html", "/nowhere/page.html"], 1, "/nowhere/page.html can't be written (No such file or directory)"),
        (["--existing"], 1, "no service: nothing runs in "),
    ],
)
def test_wrong_use_is_told_in_a_sentence(tmp_path: Path, arguments: list[str], code: int, sentence: str) -> None:
    done = duehook("eval", *arguments, home=tmp_path / "home")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"duehook: {sentence}"), done.stderr


def test_a_database_without_its_api_is_not_enough() -> None:
    done = duehook("eval", "--existing", database_url="postgresql://127.0.0.1:1/nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("duehook: DUEHOOK_API_URL is not set; with DUEHOOK_DATABASE_URL, set it to the API")


def test_a_database_that_does_not_answer_is_told_in_a_sentence() -> None:
    done = duehook(
        "eval", "--existing", database_url="postgresql://me:secret@127.0.0.1:1/x", api_url="http://127.0.0.1:1"
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("duehook: The database can't be used: ")
    assert "secret" not in done.stderr


def test_thresholds_are_printed_as_a_file_that_can_be_used(tmp_path: Path) -> None:
    printed = duehook("eval", "--print-thresholds").stdout
    file = tmp_path / "limits.toml"
    file.write_text(printed)
    assert duehook("eval", "--print-thresholds", "--thresholds", str(file)).stdout == printed


@pytest.mark.parametrize("name", [*FAULTS, *FIGURES])
def test_every_fault_and_every_threshold_is_in_the_docs(name: str) -> None:
    assert f"`{name}`" in DOCS
