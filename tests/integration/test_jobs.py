"""Jobs in steps: whoever goes on, wherever it was stopped, everything is done once and counted right."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.event import listens_for

from app.core import by_hand, deliveries, events, redrives, replays
from app.core import jobs as core
from app.core.jobs import MOST_FAILURES, advance
from app.core.reservations import Refused
from app.core.steps import Step
from app.domain.states import DeadReason, JobKind, JobStatus
from app.domain.steps import MOMENT, MOST, USUAL_RATE, pause_after, rows_after, rows_of
from app.domain.wakeups import Answer, Kind
from app.ledger import endpoint_changes, jobs, outbox
from app.ledger import events as event_ledger
from app.ledger.dead_letters import Filter
from app.ledger.jobs import Job
from tests.clock import Clock
from tests.conftest import Connect
from tests.ledgers import TENANT, TERMS, an_endpoint, buried, claimed, dead, deliveries_of, row, rows, some_events
from tests.plain import refused

TOKEN = UUID(int=7)
FAST = 100_000.0  # per second: a clock that stands still needs to move by little from step to step


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of seven rows, which look through eleven and count thirteen."""
    monkeypatch.setattr(core, "rows_of", lambda rate: 7)
    monkeypatch.setattr(core, "rows_after", lambda rows, seconds: 7)
    monkeypatch.setattr("app.ledger.dead_letters.STRETCH", 11)
    monkeypatch.setattr("app.ledger.replays.STRETCH", 11)
    for kind in (redrives, replays):
        monkeypatch.setattr(kind, "COUNTED_AT_ONCE", 13)


def redrive(engine: Engine, rate: float | None = FAST, **wanted: Any) -> int:
    with engine.begin() as connection:
        return redrives.start(connection, TENANT, Filter(**wanted), rate).seq


def job(engine: Engine, seq: int) -> Job:
    with engine.begin() as connection:
        found = jobs.find(connection, TENANT, seq)
    assert found is not None
    return found


def steps(engine: Engine, clock: Clock, seq: int, most: int = 1000) -> int:
    """Goes on until the job has ended, each step when it is due; returns how many there were."""
    for number in range(most):
        if advance(engine, [seq]).answers[seq] is Answer.GONE:
            return number
        clock.advance(seconds=60)
    return most


def status_of(engine: Engine) -> dict[tuple[str, int], int]:
    """How many deliveries there are of each status and round."""
    with engine.begin() as connection:
        found = connection.execute(text("SELECT status, round, count(*) FROM duehook.deliveries GROUP BY 1, 2")).all()
    return {(status, round): count for status, round, count in found}


def told(engine: Engine) -> list[dict[str, Any]]:
    """The data of every event about a job."""
    query = "SELECT data::text FROM duehook.events WHERE type = 'job.completed' ORDER BY seq"
    return [json.loads(each) for each in rows(engine, query)]


def test_a_redrive_opens_everything_once_and_tells_of_it(engine: Engine, clock: Clock, small: None) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 40)
    seq = redrive(engine)
    assert (job(engine, seq).status, job(engine, seq).total) == (JobStatus.QUEUED, None)
    assert steps(engine, clock, seq) == 6
    ended = job(engine, seq)
    assert (ended.status, ended.done, ended.total) == (JobStatus.COMPLETED, 40, 40)
    assert ended.result == {"reopened": 40, "made": 0, "skipped": {}}
    assert status_of(engine) == {("scheduled", 2): 40}
    assert rows(engine, "SELECT DISTINCT (attempt, step, abandoned)::text FROM duehook.deliveries") == ["(1,0,0)"]
    (data,) = told(engine)
    assert (data["id"], data["status"], data["done"], data["result"]) == (ended.id, "completed", 40, ended.result)
    assert rows(engine, "SELECT ref FROM duehook.outbox WHERE kind = 'job'") == []


def test_progress_is_right_after_every_step(engine: Engine, clock: Clock, small: None) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 20)
    seq, seen = redrive(engine), []
    while advance(engine, [seq]).answers[seq] is Answer.TAKEN:
        found = job(engine, seq)
        seen.append((found.status, found.done, found.total))
        assert status_of(engine).get(("scheduled", 2), 0) == found.done
        clock.advance(seconds=1)
    running, completed = JobStatus.RUNNING, JobStatus.COMPLETED
    assert seen == [(running, 7, None), (running, 14, 20), (completed, 20, 20)]


def test_what_is_committed_late_makes_the_total_larger(engine: Engine, clock: Clock, small: None) -> None:
    """It had died before the job was made, in a transaction that ended when all had been counted."""
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 12)
    seq = redrive(engine)
    advance(engine, [seq])
    assert job(engine, seq).total == 12
    made_at = clock.now
    clock.advance(seconds=1)
    late = dead(engine, 3)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE duehook.dead_letters SET died_at = :at WHERE delivery = ANY (:late)"),
            {"at": made_at, "late": late},
        )
    steps(engine, clock, seq)
    assert (job(engine, seq).status, job(engine, seq).done, job(engine, seq).total) == (JobStatus.COMPLETED, 15, 15)


def test_only_what_was_dead_when_it_was_made_is_opened(engine: Engine, clock: Clock, small: None) -> None:
    an_endpoint(engine, event_types=["order.*"])
    first = dead(engine, 10)
    seq = redrive(engine)
    clock.advance(seconds=1)
    later = dead(engine, 3)
    advance(engine, [seq])
    again = [each for each in first if row(engine, "deliveries", "id", each)["round"] == 2][:2]
    clock.advance(seconds=1)
    claims = claimed(engine, *again)
    deliveries.record(engine, [buried(each, DeadReason.GONE) for each in claims], max_age=TERMS.max_age)
    steps(engine, clock, seq)
    dead_now = set(rows(engine, "SELECT delivery FROM duehook.dead_letters"))
    assert dead_now == {*later, *again}, "neither what died afterwards, nor what it has opened and died again"
    assert (job(engine, seq).done, job(engine, seq).total) == (10, 10)


def test_a_filter_takes_its_own_and_nothing_else(engine: Engine, clock: Clock, small: None) -> None:
    one, other = (an_endpoint(engine, event_types=["order.*"]) for _ in range(2))
    dead(engine, 12)
    clock.advance(minutes=1)
    since = clock.now
    gone = dead(engine, 12, DeadReason.GONE)
    until = clock.now
    clock.advance(minutes=1)
    dead(engine, 12, DeadReason.GONE)
    seq = redrive(engine, reason="gone", endpoint=one, since=since, until=until)
    steps(engine, clock, seq)
    opened = set(rows(engine, "SELECT id FROM duehook.deliveries WHERE round = 2"))
    assert opened == {each for each in gone if row(engine, "deliveries", "id", each)["endpoint"] == one}
    assert (job(engine, seq).done, job(engine, seq).total) == (12, 12)
    with engine.begin() as connection:
        assert redrives.matching(connection, TENANT, Filter(reason="gone", endpoint=other)) == (24, False)
        assert redrives.matching(connection, "another", Filter()) == (0, False)


def test_what_can_t_be_opened_is_counted_by_reason(engine: Engine, clock: Clock) -> None:
    kept, deleted = (an_endpoint(engine, event_types=["order.*"]) for _ in range(2))
    dead(engine, 4)
    first, second = rows(engine, "SELECT seq FROM duehook.events ORDER BY seq LIMIT 2")
    with engine.begin() as connection:
        endpoint_changes.delete(connection, deleted)
        events.cancel(connection, TENANT, first)
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(
            text("UPDATE duehook.deliveries SET round = 32767 WHERE event = :event AND endpoint = :endpoint"),
            {"event": second, "endpoint": kept},
        )
    seq = redrive(engine)
    steps(engine, clock, seq)
    skipped = {"event_cancelled": 2, "worn_out": 1, "endpoint_deleted": 3}
    assert job(engine, seq).result == {"reopened": 2, "made": 0, "skipped": skipped}
    assert (job(engine, seq).done, job(engine, seq).total) == (8, 8)
    with engine.begin() as connection:  # the audit of the invariants knows no round without attempts
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text("UPDATE duehook.deliveries SET round = 1 WHERE round = 32767"))


def test_what_somebody_opens_by_hand_meanwhile_is_not_opened_twice(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its being chosen and its event's being locked."""
    an_endpoint(engine, event_types=["order.*"])
    taken, left = dead(engine, 2)
    lock_all = event_ledger.lock_all

    def somebody_is_faster(connection: Connection, tenant: str, seqs: list[int]) -> dict[int, str | None]:
        with engine.begin() as other:
            by_hand.retry(other, TENANT, taken)
        return lock_all(connection, tenant, seqs)

    monkeypatch.setattr(event_ledger, "lock_all", somebody_is_faster)
    seq = redrive(engine)
    advance(engine, [seq])
    assert job(engine, seq).result == {"reopened": 1, "made": 0, "skipped": {"not_dead": 1}}
    assert [row(engine, "deliveries", "id", each)["round"] for each in (taken, left)] == [2, 2]


def test_what_dies_again_between_the_choice_and_the_lock_stays_dead(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Re-opened by hand, sent and dead again: another death than the one that was to be redriven."""
    an_endpoint(engine, event_types=["order.*"])
    (delivery,) = dead(engine)
    lock_all = event_ledger.lock_all

    def somebody_is_faster(connection: Connection, tenant: str, seqs: list[int]) -> dict[int, str | None]:
        clock.advance(seconds=1)
        with engine.begin() as other:
            by_hand.retry(other, TENANT, delivery)
        (claim,) = claimed(engine, delivery)
        deliveries.record(engine, [buried(claim, DeadReason.GONE)], max_age=TERMS.max_age)
        return lock_all(connection, tenant, seqs)

    monkeypatch.setattr(event_ledger, "lock_all", somebody_is_faster)
    seq = redrive(engine)
    advance(engine, [seq])
    assert job(engine, seq).result == {"reopened": 0, "made": 0, "skipped": {"not_dead": 1}}
    assert row(engine, "deliveries", "id", delivery)["reason"] == "gone"


@pytest.mark.parametrize(
    "point", ["jobs.lock", "dead_letters.count", "events.lock_all", "deliveries.reopen", "jobs.record", "COMMIT"]
)
def test_a_step_that_is_cut_anywhere_has_done_nothing(engine: Engine, clock: Clock, small: None, point: str) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 20)
    seq = redrive(engine)
    advance(engine, [seq])
    clock.advance(seconds=1)
    before = (job(engine, seq), status_of(engine), rows(engine, "SELECT (look_at, due_at) FROM duehook.outbox"))
    with cut(engine, point), pytest.raises(KilledError):
        advance(engine, [seq])
    after = (job(engine, seq), status_of(engine), rows(engine, "SELECT (look_at, due_at) FROM duehook.outbox"))
    assert after == before
    steps(engine, clock, seq)
    assert status_of(engine) == {("scheduled", 2): 20}
    assert (job(engine, seq).done, job(engine, seq).total) == (20, 20)


class KilledError(BaseException):
    """As nobody catches it: the process is gone."""


class cut:  # noqa: N801 - used as a context
    """While this lasts whoever comes to a statement of this name, or to a COMMIT, is dead."""

    def __init__(self, engine: Engine, point: str) -> None:
        self._engine, self._point, self._on = engine, point, True

    def __enter__(self) -> None:
        @listens_for(self._engine, "before_cursor_execute")
        def die(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if self._on and f"/* {self._point} */" in statement:
                raise KilledError

        @listens_for(self._engine, "commit")
        def die_too(_connection: Any) -> None:
            if self._on and self._point == "COMMIT":
                raise KilledError

    def __exit__(self, *_: object) -> None:
        self._on = False


def test_two_at_once_do_one_step(engine: Engine, clock: Clock, small: None) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 20)
    seq = redrive(engine)
    with engine.begin() as holder:
        assert jobs.lock(holder, seq)
        assert advance(engine, [seq]).answers == {seq: Answer.LOCKED}
        assert advance(engine, [seq]).again == []
    assert advance(engine, [seq]).answers == {seq: Answer.TAKEN}
    assert advance(engine, [seq]).answers == {seq: Answer.EARLY}, "the pace holds for whoever comes"
    assert job(engine, seq).done == 7


def test_a_relay_that_was_publishing_meanwhile_does_not_move_the_next_look(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 3)
    seq = redrive(engine, rate=1)
    with engine.begin() as connection:
        assert outbox.take(connection, TOKEN, {Kind.JOB: outbox.Room(10)})
    advance(engine, [seq])
    with engine.begin() as connection:
        outbox.move(connection, TOKEN, [seq], timedelta(minutes=1))
    assert row(engine, "outbox", "ref", seq)["look_at"] == clock.now + timedelta(seconds=1)


def test_an_early_wakeup_leaves_the_look_at_the_next_step(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 2)
    seq = redrive(engine, rate=0.1)
    assert advance(engine, [seq]).answers == {seq: Answer.TAKEN}
    with engine.begin() as connection:
        connection.execute(text("UPDATE duehook.outbox SET look_at = look_at + '1 h' WHERE kind = 'job'"))
    assert advance(engine, [seq]).answers == {seq: Answer.EARLY}
    assert row(engine, "outbox", "ref", seq)["look_at"] == clock.now + timedelta(seconds=10)


@pytest.mark.parametrize(("rate", "rows_each"), [(0.5, 1), (3, 1), (50, 10), (1000, 200), (None, 200), (9e4, 200)])
def test_the_pace_is_never_above_the_rate_and_nothing_is_made_up_for(
    engine: Engine, clock: Clock, rate: float | None, rows_each: int
) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 3 * rows_each + 1)
    seq = redrive(engine, rate=rate)
    opened = []
    for late in (0, 0, 3600):  # the last after an hour in which nobody worked
        assert advance(engine, [seq]).answers == {seq: Answer.TAKEN}
        opened.append(job(engine, seq).done)
        pause = job(engine, seq).next_step_at - clock.now
        assert pause == timedelta(seconds=rows_each / (rate or USUAL_RATE))
        clock.advance(seconds=pause.total_seconds() - 1e-6)
        assert advance(engine, [seq]).answers == {seq: Answer.EARLY}
        clock.advance(seconds=1e-6 + late)
    assert opened == [rows_each, 2 * rows_each, 3 * rows_each]


def test_how_much_a_step_tries() -> None:
    assert [rows_of(rate) for rate in (None, 0.01, 4, 10, 1e9)] == [MOST, 1, 1, 2, MOST]
    assert [rows_after(100, seconds) for seconds in (MOMENT, MOMENT + 0.01)] == [200, 50]
    assert (rows_after(1, 9), rows_after(150, 0)) == (1, MOST)
    assert pause_after(0, 5) == timedelta()


def test_a_cancel_in_the_middle_leaves_the_rest_as_it_was(engine: Engine, clock: Clock, small: None) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 20)
    seq = redrive(engine)
    advance(engine, [seq])
    clock.advance(seconds=1)
    for _ in range(2):
        with engine.begin() as connection:
            cancelled = core.cancel(connection, TENANT, seq)
        assert isinstance(cancelled, Job)
        assert (cancelled.status, cancelled.done) == (JobStatus.CANCELLED, 7)
    assert advance(engine, [seq]).answers == {seq: Answer.GONE}
    assert status_of(engine) == {("scheduled", 2): 7, ("dead", 1): 13}
    assert [each["status"] for each in told(engine)] == ["cancelled"], "once"


def test_a_job_that_has_ended_can_t_be_cancelled(engine: Engine, clock: Clock) -> None:
    seq = redrive(engine)
    steps(engine, clock, seq)
    with engine.begin() as connection:
        assert isinstance(core.cancel(connection, TENANT, seq), Refused)
        assert core.cancel(connection, "another", seq) is None
        assert core.cancel(connection, TENANT, seq + 1) is None
    assert job(engine, seq).status is JobStatus.COMPLETED


def test_a_kind_that_nobody_knows_ends_as_failed_and_says_so(engine: Engine, clock: Clock) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO duehook.jobs (tenant, kind, parameters) VALUES (:tenant, 'erase', '{}')"),
            {"tenant": TENANT},
        )
    (seq,) = rows(engine, "SELECT seq FROM duehook.jobs")
    assert steps(engine, clock, seq) == 1
    failed = job(engine, seq)
    assert failed.status is JobStatus.FAILED
    assert failed.result == {"error": "this version of duehook knows no job of the kind 'erase'"}
    assert [each["result"] for each in told(engine)] == [failed.result]


def broken(connection: Connection, job: Job, most: int) -> Step:
    raise RuntimeError("a secret payload")


def refused_by_the_database(connection: Connection, job: Job, most: int) -> Step:
    connection.execute(text("SELECT 1 / 0"))
    raise AssertionError


@pytest.mark.parametrize(("work", "cause"), [(broken, "RuntimeError"), (refused_by_the_database, "DivisionByZero")])
def test_a_step_that_raises_is_tried_a_few_times_and_ends_its_job(
    engine: Engine, clock: Clock, small: None, monkeypatch: pytest.MonkeyPatch, work: Callable[..., Step], cause: str
) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 20)
    seq, healthy = redrive(engine), redrive(engine, reason="gone")
    advance(engine, [seq])
    monkeypatch.setitem(core.STEPS, JobKind.REDRIVE, work)
    pauses = []
    for _ in range(MOST_FAILURES):
        clock.advance(seconds=60)
        assert advance(engine, [seq]).answers == {seq: Answer.FAILED}
        pauses.append((job(engine, seq).next_step_at - clock.now).total_seconds())
    assert pauses[:-1] == [1, 2, 4, 8]
    failed = job(engine, seq)
    assert (failed.status, failed.done) == (JobStatus.FAILED, 7)
    assert failed.result is not None
    assert failed.result["error"] == f"a step of it failed 5 times in a row ({cause})"
    assert failed.result["reopened"] == 7, "what it had done before stays told"
    assert advance(engine, [seq]).answers == {seq: Answer.GONE}
    monkeypatch.undo()
    steps(engine, clock, healthy)


def test_a_step_that_succeeds_forgets_the_failures_before_it(
    engine: Engine, clock: Clock, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 20)
    seq = redrive(engine)
    monkeypatch.setitem(core.STEPS, JobKind.REDRIVE, broken)
    advance(engine, [seq])
    assert job(engine, seq).failures == 1
    monkeypatch.undo()
    clock.advance(seconds=60)
    advance(engine, [seq])
    assert (job(engine, seq).failures, job(engine, seq).done) == (0, 20)


def test_what_somebody_s_transaction_holds_is_waited_for_and_no_failure(
    engine: Engine, clock: Clock, connect: Connect
) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, 3)
    seq = redrive(engine)
    holder = connect()
    holder.execute("SELECT FROM duehook.events FOR UPDATE")
    assert advance(engine, [seq]).answers == {seq: Answer.LOCKED}
    assert (job(engine, seq).failures, job(engine, seq).done) == (0, 0)
    holder.rollback()
    steps(engine, clock, seq)
    assert job(engine, seq).done == 3


def test_many_jobs_do_not_hold_up_whoever_was_woken_for_them(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seqs = [redrive(engine) for _ in range(3)]
    with engine.begin() as connection:
        connection.execute(text("UPDATE duehook.outbox SET look_at = look_at + '1 min'"))
    monkeypatch.setattr(core, "BUSY", -1.0)
    answers = advance(engine, seqs).answers
    assert list(answers.values()) == [Answer.TAKEN, Answer.NO_ROOM, Answer.NO_ROOM]
    looks = rows(engine, "SELECT look_at FROM duehook.outbox WHERE kind = 'job'")
    assert looks == [clock.now, clock.now], "looked at again at once"
    monkeypatch.undo()
    for seq in seqs:
        steps(engine, clock, seq)


@pytest.fixture
def db(connect: Connect, clock: Clock) -> psycopg.Connection[Any]:
    return connect(autocommit=True)


def test_the_database_itself_keeps_jobs_legal(engine: Engine, clock: Clock, db: psycopg.Connection[Any]) -> None:
    seq = redrive(engine)
    for change in (
        "tenant = 'other'",
        "kind = 'replay'",
        "parameters = '{\"a\": 1}'",
        "created_at = updated_at - interval '1 s'",
    ):
        with refused(db, "DH001"):
            db.execute(f"UPDATE duehook.jobs SET {change}".encode())
    db.execute("UPDATE duehook.jobs SET status = 'running', done = 3, result = '{\"reopened\": 3}'")
    for change in ("status = 'queued'", "done = 2"):
        with refused(db, "DH001"):
            db.execute(f"UPDATE duehook.jobs SET {change}".encode())
    with refused(db, "23514"):
        db.execute("UPDATE duehook.jobs SET total = 2")
    with refused(db, "23514"):
        db.execute("UPDATE duehook.jobs SET status = 'paused'")
    steps(engine, clock, seq)
    for change in ("status = 'running'", "done = done + 1, total = 9", "result = '{}'", "total = 7"):
        with refused(db, "DH001"):
            db.execute(f"UPDATE duehook.jobs SET {change}".encode())


def test_a_new_job_has_a_row_that_says_now(engine: Engine, clock: Clock) -> None:
    seq = redrive(engine)
    wakeup = row(engine, "outbox", "ref", seq)
    assert (wakeup["kind"], wakeup["tenant"], wakeup["due_at"]) == ("job", TENANT, clock.now)
    assert wakeup["look_at"] == clock.now


def test_a_job_that_is_deleted_leaves_no_row(engine: Engine, clock: Clock, db: psycopg.Connection[Any]) -> None:
    redrive(engine)
    db.execute("DELETE FROM duehook.jobs")
    assert rows(engine, "SELECT ref FROM duehook.outbox") == []


def test_its_end_is_told_to_whom_it_may_concern(engine: Engine, clock: Clock) -> None:
    wants = an_endpoint(engine, event_types=["job.completed"])
    an_endpoint(engine, event_types=["order.*"])
    seq = redrive(engine)
    steps(engine, clock, seq)
    (event,) = rows(engine, "SELECT seq FROM duehook.events")
    (delivery,) = deliveries_of(engine, event)
    assert row(engine, "deliveries", "id", delivery)["endpoint"] == wants
    assert rows(engine, "SELECT key FROM duehook.events") == [f"job.completed:{job(engine, seq).id}"]


def test_events_before_it_does_not_matter_how_many(engine: Engine, clock: Clock) -> None:
    assert some_events(engine, 3)
    seq = redrive(engine)
    assert steps(engine, clock, seq) == 1
    assert job(engine, seq).total == 0
