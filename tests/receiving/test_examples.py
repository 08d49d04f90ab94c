"""What is around the receivers: their receipts' age, what they need, what they bring."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from app.domain.exchange import Answered, Exchange, Phase, Unknown
from app.domain.outcomes import Again, outcome_of, verdict
from app.domain.states import Outcome
from app.local.postgres import Postgres
from app.receiver import create_table
from tests.plain import column
from tests.processes import ROOT
from tests.receiving.programs import EXAMPLES, PAGE, node

ROWS = re.compile(r"^\| [^|]+ \| ([^|]+) \| `(\w+)`([^|]*) \|$", re.MULTILINE)  # what happened, answer, what follows
SECONDS = {"s": 1, "m": 60, "h": 3600}
LOCKS = sorted(EXAMPLES.glob("*/package-lock.json"))


@pytest.fixture
def shop_url(postgres: Postgres) -> Iterator[str]:
    """An empty database."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE pruned")
        yield postgres.url_of("pruned")
        connection.execute("DROP DATABASE pruned WITH (FORCE)")


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        command,
        env={"PYTHONPATH": str(ROOT), **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


PRUNING = {
    "python-receiver": lambda: (sys.executable, EXAMPLES / "python-receiver" / "prune.py"),
    "node-receiver": lambda: (node(), EXAMPLES / "node-receiver" / "src" / "prune.js"),
}


@pytest.mark.parametrize("example", PRUNING)
def test_an_example_deletes_receipts_by_age(example: str, shop_url: str) -> None:
    command = PRUNING[example]()
    with psycopg.connect(shop_url, autocommit=True) as connection:
        create_table(connection)
        connection.execute("""INSERT INTO duehook_receipts (webhook_id, received_at)
            SELECT 'evt_' || days, extract(epoch FROM now() - days * interval '1 day')
              FROM generate_series(0, 1300) days""")
        assert run(*command, DATABASE_URL=shop_url) == "1271 receipts deleted"
        assert len(column(connection, "SELECT 1 FROM duehook_receipts")) == 30
        assert run(*command, DATABASE_URL=shop_url) == "0 receipts deleted"


CUT_WHILE_APPLYING = """
import { createTables, pool } from "./src/database.js";
import { receive } from "./src/receipts.js";

const slow = async (client) => {
  await pool.query("SELECT pg_terminate_backend($1)", [client.processID]);
  await new Promise((resolve) => client.once("end", resolve));
};
await createTables();
const failed = await receive(pool, { id: "evt_1" }, slow).catch(() => "failed");
const { rowCount } = await pool.query("SELECT 1 FROM duehook_receipts");
console.log(failed, rowCount);
await pool.end();
"""


def test_the_example_in_node_survives_a_connection_that_is_cut_while_its_effect_does_something_else(
    shop_url: str,
) -> None:
    command = [node(), "--input-type=module", "--eval", CUT_WHILE_APPLYING]
    assert run(*command, DATABASE_URL=shop_url, cwd=EXAMPLES / "node-receiver") == "failed 0"


def test_app_receiver_needs_cryptography_and_nothing_else_that_is_installed() -> None:
    """As docs/receivers.md says: it can be installed without the rest of the service."""
    program = """
import sys
before = set(sys.modules)
import app.receiver
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))
"""
    assert set(run(sys.executable, "-c", program).split()) == {"app", "cryptography", "_cffi_backend", "_openssl"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.parent.name)
def test_npm_packages_are_named_exactly_and_by_no_address(lock: Path) -> None:
    package = json.loads(lock.with_name("package.json").read_text())
    assert all(version[0].isdigit() for version in package["dependencies"].values())
    assert "://" not in lock.read_text()
    assert all("integrity" in each for name, each in json.loads(lock.read_text())["packages"].items() if name)


@pytest.mark.parametrize(("answer", "outcome", "follows"), ROWS.findall(PAGE.read_text()))
def test_every_answer_leads_to_what_the_page_says(answer: str, outcome: str, follows: str) -> None:
    hint = "10" if "Retry-After" in answer else None
    answers = [Answered(int(status), "", retry_after=hint) for status in re.findall(r"\b[2-5]\d\d\b", answer)]
    came: Sequence[Exchange] = answers or [Unknown(Phase.ANSWER, "", "")]
    assert {outcome_of(exchange) for exchange in came} == {outcome}
    said = [int(number) * SECONDS[unit] for number, unit in re.findall(r"(\d+) ([smh])\b", follows)]
    assert bool(said) == ("again after" in follows)
    for step, seconds in enumerate(said):
        verdict_of_step = verdict(
            Outcome(outcome),
            step=step,
            literal_blocked=False,
            schedule=None,
            retry_after=None,
            jitter=0,
            max_retry_after=timedelta(),
        )
        assert verdict_of_step == Again(timedelta(seconds=seconds))


def test_the_page_has_a_row_for_every_outcome_that_a_receiver_can_bring_about() -> None:
    told = {outcome for _, outcome, _ in ROWS.findall(PAGE.read_text())}
    not_answers = {Outcome.UNREACHED, Outcome.BLOCKED, Outcome.ABANDONED, Outcome.REDIRECTED}
    assert told == set(Outcome) - not_answers
