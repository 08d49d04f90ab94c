"""What is kept of broker messages that nobody can act on, and what is not poison."""

import hashlib
import json
import traceback
from typing import Any

import pytest
from celery import Celery
from psycopg.errors import UniqueViolation
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from app import broker
from app import settings as settings_of
from app.core import events
from app.core.poison import FailedError, Keeper, Poison, PoisonReason, raised_by
from app.domain.wakeups import Kind, Lane
from app.ledger.database import connect_engine
from app.local.postgres import Postgres
from tests.conftest import Connect
from tests.ledgers import row, rows
from tests.waiting import wait_until
from workers import tasks
from workers.host import Host

DELIVER = broker.TASK[Kind.DELIVERY]
UNDECODABLE = PoisonReason.UNDECODABLE


def keep(engine: Engine, *found: Poison) -> None:
    keeper, kept = Keeper(engine), list[Poison]()
    for each in found:
        keeper.keep(each, lambda each=each: kept.append(each))  # type: ignore[misc]
    wait_until(lambda: len(kept) == len(found))


def test_a_message_is_kept_with_its_size_and_digest_and_no_more_than_four_kibibytes_of_it(engine: Engine) -> None:
    raw = b"nothing odd " * 10_000
    keep(engine, Poison("delivery", UNDECODABLE, "it is not JSON", raw))
    kept = row(engine, "poison_messages", "digest", hashlib.sha256(raw).digest())
    assert (kept["lane"], kept["reason"], kept["error"], kept["task"]) == (
        "delivery",
        "undecodable",
        "it is not JSON",
        None,
    )
    assert (kept["size"], kept["seen"]) == (len(raw), 1)
    assert bytes(kept["body"]) == raw[:4096]


def test_a_message_that_comes_again_counts_up(engine: Engine) -> None:
    keep(engine, *[Poison("delivery", UNDECODABLE, "it is not JSON", b"the same")] * 3)
    assert rows(engine, "SELECT seen FROM duehook.poison_messages") == [3]
    assert rows(engine, "SELECT last_at > first_at FROM duehook.poison_messages") == [True]


@pytest.mark.parametrize("raw", [b"", b"\0\xff", b'"\\ud800"', b'{"\\u0000": "\\ud800"}', b"[" * 5000])
def test_whatever_the_bytes_and_texts_are_the_ledger_takes_them(engine: Engine, raw: bytes) -> None:
    odd = "\0 \ud800 " + "long " * 1000
    keep(engine, Poison("delivery", PoisonReason.UNKNOWN, odd, raw, odd))
    kept = row(engine, "poison_messages", "digest", hashlib.sha256(raw).digest())
    assert "\0" not in kept["task"]
    assert len(kept["task"]) <= 300


def test_no_secret_is_kept_nor_logged(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "correct horse battery"
    raw = json.dumps({"password": secret, "url": "https://hooks.example/T0/horse"}).encode()
    keep(engine, Poison("delivery", PoisonReason.UNKNOWN, f"password={secret}", raw, f"token={secret}"))
    kept = row(engine, "poison_messages", "digest", hashlib.sha256(raw).digest())
    assert b"horse" not in bytes(kept["body"])
    assert "horse" not in kept["task"] + kept["error"]
    assert "hooks.example" in bytes(kept["body"]).decode()
    logged = "".join(capfd.readouterr())
    assert "horse" not in logged
    assert hashlib.sha256(raw).hexdigest()[:12] in logged


def test_what_is_raised_is_recorded_with_the_ids_and_goes_on_without_its_words(engine: Engine) -> None:
    with (
        pytest.raises(FailedError, match=r"^ZeroDivisionError$") as failed,
        raised_by(engine, Lane.DELIVERY, DELIVER, [[7, 8], [1, 2]]),
    ):
        _ = 1 / 0
    (kept,) = rows(engine, "SELECT body FROM duehook.poison_messages WHERE reason = 'raised' AND lane = 'delivery'")
    assert json.loads(kept) == {"task": DELIVER, "args": [[7, 8], [1, 2]]}
    assert rows(engine, "SELECT error FROM duehook.poison_messages") == ["ZeroDivisionError"]
    assert "by zero" not in "".join(traceback.format_exception(failed.value))


def test_an_error_of_the_database_holds_none_of_the_row(engine: Engine) -> None:
    """What PostgreSQL says itself may quote a row; what SQLAlchemy adds must not."""
    with pytest.raises(DBAPIError) as caught, engine.begin() as connection:
        connection.execute(text("SELECT CAST(:data AS text), 1 / 0"), {"data": "payload"})
    assert "payload" not in str(caught.value) + repr(caught.value)


def test_the_log_of_the_database_holds_neither_a_refused_statement_nor_its_row(
    engine: Engine, connect: Connect, postgres: Postgres
) -> None:
    db = connect(autocommit=True)
    statement = (
        "INSERT INTO duehook.events (tenant, type, key, data) VALUES ('acme', 'a', 'a-hidden-key', '\"hidden\"')"
    )
    db.execute(statement)
    before = len(postgres.log.read_text())
    with pytest.raises(UniqueViolation, match="a-hidden-key"):
        db.execute(statement)
    wait_until(lambda: "events_key" in postgres.log.read_text()[before:], what="the refusal is logged")
    assert "hidden" not in postgres.log.read_text()[before:]


def test_a_statement_that_the_database_refuses_is_recorded(engine: Engine) -> None:
    with pytest.raises(FailedError), raised_by(engine, Lane.UPKEEP, broker.AUDIT, []), engine.begin() as connection:
        connection.execute(text("SELECT * FROM duehook.nothing"))
    (error,) = rows(engine, "SELECT error FROM duehook.poison_messages WHERE reason = 'raised'")
    assert error == "ProgrammingError < UndefinedTable 42P01"


def test_a_lost_database_is_not_poison(engine: Engine) -> None:
    away = connect_engine("postgresql://127.0.0.1:9/nowhere", application_name="test")
    with pytest.raises(FailedError), raised_by(engine, Lane.DELIVERY, DELIVER, [[1], [1]]):
        events.fan_out(away, [1])
    with pytest.raises(FailedError), raised_by(away, Lane.DELIVERY, DELIVER, [[1], [1]]):
        events.fan_out(away, [1])
    assert not rows(engine, "SELECT * FROM duehook.poison_messages")


def test_what_is_raised_is_told_although_its_record_can_t_be_made() -> None:
    away = connect_engine("postgresql://127.0.0.1:9/nowhere", application_name="test")
    with pytest.raises(FailedError, match=r"^ZeroDivisionError$"), raised_by(away, Lane.DELIVERY, DELIVER, [[1], [1]]):
        _ = 1 / 0


def test_a_full_pool_is_not_poison(engine: Engine, database_url: str) -> None:
    small = connect_engine(database_url, application_name="test", pool_size=1, pool_timeout=0.05)
    with small.connect(), pytest.raises(FailedError), raised_by(engine, Lane.DELIVERY, DELIVER, [[1], [1]]):
        events.fan_out(small, [1])
    small.dispose()
    assert not rows(engine, "SELECT * FROM duehook.poison_messages")


class Raising(Host):
    """A host with a bug."""

    def __init__(self) -> None:
        self.calls = 0

    def wake(self, *_: object) -> None:
        self.calls += 1
        raise KeyError("a bug")

    def audit(self) -> dict[str, int]:
        raise KeyError("a bug")


@pytest.mark.parametrize(("name", "args"), [*((name, [[5], [6]]) for name in broker.TASK.values()), (broker.AUDIT, [])])
def test_every_task_of_ours_records_what_it_raises(engine: Engine, name: str, args: list[Any]) -> None:
    celery: Celery = broker.make_celery(settings_of.load(broker_url="redis://127.0.0.1:1/0"))
    tasks.register(celery, Raising(), engine)
    assert celery.tasks[name].apply(args).failed()
    assert rows(engine, "SELECT task FROM duehook.poison_messages WHERE reason = 'raised'") == [name]
