"""Upkeep: by whom and however often it is done, damage is repaired once, and nobody is held up."""

import json
import signal
import time
from collections import Counter

import pytest
import redis
from celery.beat import ScheduleEntry
from pydantic import SecretStr
from sqlalchemy import Engine, text

from app.broker import make_celery
from app.core.upkeep import upkeep
from app.ledger.upkeep import make_attempt_days
from app.settings import load
from tests.clock import Clock
from tests.conftest import Connect
from tests.ledgers import rows, some_events
from tests.plain import value
from tests.processes import Service
from tests.receivers import Receiver
from tests.waiting import wait_until
from workers.beat import JITTER, WAITING, Sweeps

DAYS = """SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
           WHERE i.inhparent = 'duehook.attempts'::regclass AND c.relname LIKE 'attempts_2030%' ORDER BY 1"""
ATTEMPT = "INSERT INTO duehook.attempts (delivery, number, outcome, started_at) VALUES (1, 1, 'failed', %s)"


def test_the_days_that_attempts_are_kept_in_are_there_from_the_start(connect: Connect) -> None:
    db = connect(autocommit=True)
    db.execute(ATTEMPT, ["now"])
    assert value(db, "SELECT count(*) FROM duehook.attempts_rest") == 0


def test_upkeep_makes_the_days_ahead_and_touches_nothing_when_they_are_there(engine: Engine, clock: Clock) -> None:
    assert upkeep(engine) == Counter()
    made = rows(engine, DAYS)
    assert made == [f"attempts_2030010{day}" for day in range(1, 9)]
    with engine.begin() as connection:
        assert make_attempt_days(connection) == 0
        locks = "SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'duehook.attempts'::regclass"
        assert connection.execute(text(locks)).all() == []
    clock.advance(days=1)
    upkeep(engine)
    assert rows(engine, DAYS) == [*made, "attempts_20300109"]


def test_no_login_can_hold_up_the_days_and_no_recorder_does(engine: Engine, clock: Clock, connect: Connect) -> None:
    stranger, recorder = connect(), connect()
    stranger.execute("SELECT pg_advisory_lock(hashtext('duehook.attempts'))")
    recorder.execute(ATTEMPT, ["now"])
    upkeep(engine)
    assert len(rows(engine, DAYS)) == 8


def test_making_the_days_holds_up_no_recorder(engine: Engine, clock: Clock, connect: Connect) -> None:
    recorder = connect(options="-c lock_timeout=1s")
    with engine.begin() as connection:
        assert make_attempt_days(connection) == 8
        recorder.execute(ATTEMPT, ["now"])


def test_days_that_somebody_is_in_the_way_of_are_made_another_time(
    engine: Engine, clock: Clock, connect: Connect
) -> None:
    reader = connect()
    value(reader, "SELECT count(*) FROM duehook.attempts")
    began = time.monotonic()
    assert upkeep(engine) == Counter()
    assert time.monotonic() - began < 5, "those who come after it wait as long"
    assert rows(engine, DAYS) == []
    reader.rollback()
    upkeep(engine)
    assert len(rows(engine, DAYS)) == 8


class Ticking:
    """Sweeps of 30 s on a clock that the test moves; `sent` is when each was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broker_url: str) -> None:
        self.monotonic = 1000.0
        self.sent: list[float] = []
        celery = make_celery(load(broker_url=SecretStr(broker_url)))
        monkeypatch.setattr("workers.beat.time.monotonic", lambda: self.monotonic)
        self.sweeps = Sweeps(app=celery)
        monkeypatch.setattr(Sweeps, "apply_entry", self._send)

    def _send(self, _entry: ScheduleEntry, producer: object) -> None:
        self.sent.append(self.monotonic)

    def run(self, seconds: float) -> None:
        until = self.monotonic + seconds
        while self.monotonic < until:
            pause = self.sweeps.tick()
            assert 0 <= pause <= 5
            self.monotonic += max(pause, 0.001)


def test_beat_sends_about_every_so_many_seconds_whatever_its_host_s_clock_does(
    monkeypatch: pytest.MonkeyPatch, broker_url: str
) -> None:
    ticking = Ticking(monkeypatch, broker_url)
    monkeypatch.setattr("time.time", iter(range(10**9, 0, -3600)).__next__)
    ticking.run(3000)
    gaps = [after - before for before, after in zip(ticking.sent, ticking.sent[1:], strict=False)]
    assert ticking.sent[0] < 1030.1
    assert all(30 * JITTER[0] <= gap <= 30 * JITTER[1] + 0.1 for gap in gaps)
    assert max(gaps) - min(gaps) > 1, "two beats would keep sweeping at the same moment"


def test_beat_sends_nothing_while_enough_of_it_waits(broker_url: str) -> None:
    sweeps = Sweeps(app=make_celery(load(broker_url=SecretStr(broker_url))))
    (entry,) = sweeps.schedule.values()
    with redis.Redis.from_url(broker_url) as client:
        for number in (1, 2, 3, 4, 4, 4):
            sweeps.apply_async(entry, producer=sweeps.producer)
            assert client.llen(UPKEEP) == min(number, WAITING)
        message = json.loads(client.lindex(UPKEEP, 0) or b"")
        assert message["headers"]["expires"] is None, "by which clock?"
        client.rpop(UPKEEP)
        sweeps.apply_async(entry, producer=sweeps.producer)
        assert client.llen(UPKEEP) == WAITING
    sweeps.close()


UPKEEP = "duehook:upkeep"
WALKED = "SELECT walked_at FROM duehook.audit_marks WHERE kind = 'outbox'"
REPAIRS = "SELECT kind || ' ' || number FROM duehook.repairs ORDER BY kind"


def walks(engine: Engine, count: int) -> None:
    """Returns when so many more audits have begun."""
    for _ in range(count):
        before = rows(engine, WALKED)
        wait_until(lambda: rows(engine, WALKED) != before, what="somebody audits")  # noqa: B023 - called at once


def damage(engine: Engine) -> None:
    """Ten rows lost of things that wait for an hour, five that say infinity, five of nothing, one delivery missing."""
    waiting = "SELECT ref FROM duehook.outbox WHERE kind = 'event' ORDER BY ref LIMIT 5"
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        for statement, count in {
            "UPDATE duehook.subscriptions SET since = since - interval '2 minutes'": 1,
            f"UPDATE duehook.outbox SET look_at = 'infinity' WHERE ref IN ({waiting})": 5,
            f"DELETE FROM duehook.outbox WHERE ref IN ({waiting} OFFSET 5)": 5,
            "DELETE FROM duehook.outbox WHERE kind = 'reservation'": 5,
            """INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
               SELECT n, 'event', 'acme', now(), now() + interval '1 h' FROM generate_series(1, 5) n""": 5,
            "DELETE FROM duehook.deliveries WHERE id IN (SELECT id FROM duehook.deliveries LIMIT 1)": 1,
        }.items():
            assert connection.execute(text(statement)).rowcount == count, statement


@pytest.mark.slow
def test_two_beats_and_two_upkeep_workers_repair_damage_once_and_health_never(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str, connect: Connect
) -> None:
    receiver.register(engine)
    some_events(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE duehook.outbox SET look_at = '-infinity'"))  # the relay takes it at once
    some_events(engine, 10, delay_seconds=3600)
    db = connect(autocommit=True)
    for _ in range(5):
        db.execute(
            "INSERT INTO duehook.reservations (tenant, resource, expires_at) VALUES ('acme', 'a', now() + '1 h')"
        )
    upkeepers = [running.worker("upkeep") for _ in range(2)]
    beats = [running.start("workers", "beat") for _ in range(2)]
    everybody = [running.relay(), running.worker("delivery"), *upkeepers, *beats]
    for process in everybody:
        process.wait_ready()

    for _ in range(15):
        some_events(engine, 10)
        wait_until(lambda: delivered(engine) % 10 == 1, deadline=30, what="what is posted is delivered")
    walks(engine, 2)
    assert rows(engine, REPAIRS) == []

    damage(engine)
    repaired = ["delivery_missing 1", "event_without_row 5", "look_too_late 5", "reservation_without_row 5"]
    repaired.append("row_of_nothing 5")
    wait_until(lambda: rows(engine, REPAIRS) == repaired, deadline=30, what="all of it is repaired")
    walks(engine, 2)
    assert rows(engine, REPAIRS) == repaired
    wait_until(lambda: sum(receiver.events.values()) == 152, what="what was missing is delivered")

    for worker in upkeepers:
        worker.send(signal.SIGSTOP)
    with redis.Redis.from_url(broker_url) as client:
        for beat in beats:
            wait_until(lambda: beat.log.read_text().count("sweep_held_back") > 1, deadline=30)  # noqa: B023
        assert client.llen(UPKEEP) <= WAITING + len(beats) - 1
        for worker in upkeepers:
            worker.send(signal.SIGCONT)
        wait_until(lambda: client.llen(UPKEEP) == 0, deadline=30, what="what waited is taken")
    assert all(process.running for process in everybody)


def delivered(engine: Engine) -> int:
    return int(rows(engine, "SELECT count(*) FROM duehook.deliveries WHERE status = 'delivered'")[0])
