"""Jobs: one step at a time, each a transaction of its own, with the place where the next goes on.

Nothing is remembered between two steps but what the ledger has: whoever is woken next goes on, wherever the last one
was killed. Two at once are harmless: the second finds the job's row locked, or its next step not due yet.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, TimeoutError

from app.core import erasures, redrives, replays
from app.core.reservations import Refused
from app.core.sets import PAUSE, Looked
from app.core.steps import Members, Step, summed
from app.domain.identity import public_id
from app.domain.states import OPEN_JOB, JobKind, JobStatus
from app.domain.steps import pause_after, rows_after, rows_of
from app.domain.wakeups import Answer
from app.ledger import jobs, outbox, service
from app.ledger.database import cause_of, in_transaction, is_impatient, is_lost
from app.ledger.jobs import Job

log = structlog.get_logger("duehook.jobs")
BUSY = 1.0  # seconds that one wake-up is at it; what it has not come to is looked at again at once, by others too
MOST_FAILURES = 5  # tries of one step; the pauses between them double from a second
STEPS: dict[str, Callable[[Connection, Job, int], Step]] = {
    JobKind.REDRIVE: redrives.step,
    JobKind.REPLAY: replays.step,
    JobKind.ERASE_EVENT: erasures.erase_event,
    JobKind.ERASE_TENANT: erasures.erase_tenant,
}


def advance(engine: Engine, seqs: Sequence[int]) -> Looked:
    """Do one step of each of these jobs that has one due; answers for every id.

    A step that raises is tried again a few times, and then ends its job as failed. Raises when the database is lost.
    """
    looked, until = Looked(), time.monotonic() + BUSY
    for position, seq in enumerate(seqs):
        if position and time.monotonic() > until:
            looked.answers |= _leave(engine, seqs[position:])
            break
        looked.answers[seq] = _advance(engine, seq)
    return looked


def _leave(engine: Engine, seqs: Sequence[int]) -> dict[int, Answer]:
    in_transaction(engine, lambda connection: outbox.look_sooner(connection, seqs, timedelta()))
    return dict.fromkeys(seqs, Answer.NO_ROOM)


def _advance(engine: Engine, seq: int) -> Answer:
    try:
        return in_transaction(engine, partial(_step, seq=seq))
    except TimeoutError:
        raise  # no connection of the pool came free
    except DBAPIError as error:
        if is_lost(error):
            raise
        if is_impatient(error):  # somebody's open transaction says nothing about the job
            in_transaction(engine, lambda connection: outbox.look_sooner(connection, [seq], PAUSE))
            return Answer.LOCKED
        return _count_failure(engine, seq, error)
    except Exception as error:  # noqa: BLE001 - whatever it is: it must end its job, not come up for ever
        return _count_failure(engine, seq, error)


def _step(connection: Connection, seq: int) -> Answer:
    job = jobs.lock(connection, seq)
    if job is None:
        return Answer.LOCKED if jobs.is_open(connection, seq) else Answer.GONE
    now = service.now(connection)
    if job.next_step_at > now:
        outbox.look_sooner(connection, [seq], job.next_step_at - now)
        return Answer.EARLY
    work = STEPS.get(job.kind)
    if work is None:
        _fail(connection, job, f"this version of duehook knows no job of the kind {job.kind!r}")
        return Answer.TAKEN
    jobs.wait_briefly(connection)
    began, rows = time.monotonic(), _rows(job)
    step = work(connection, job, rows)
    _record(connection, job, step, rows_after(rows, time.monotonic() - began), now)
    return Answer.TAKEN


def _rows(job: Job) -> int:
    most = rows_of(job.parameters.get("rate_per_second"))
    return most if job.place is None else min(most, int(job.place["rows"]))


def _record(connection: Connection, job: Job, step: Step, rows: int, began_at: datetime) -> None:
    result = summed(job.result, step)
    jobs.record(
        connection,
        job.seq,
        place=None if step.place is None else {**step.place, "rows": rows},
        done=step.done,
        total=job.total if step.total is None else step.total,
        result=result,
        next_step_at=began_at + max(step.pause, pause_after(step.opened, job.parameters.get("rate_per_second"))),
    )
    if step.error is not None:
        _end(connection, job, JobStatus.FAILED, {**result, "error": step.error})
    elif step.place is None:
        _end(connection, job, JobStatus.COMPLETED, result)


def _fail(connection: Connection, job: Job, why: str) -> None:
    _end(connection, job, JobStatus.FAILED, {**(job.result or {}), "error": why})


def _end(connection: Connection, job: Job, status: JobStatus, result: Members | None) -> None:
    jobs.end(connection, job.seq, status, result)
    log.info("job_ended", job=job.id, kind=job.kind, status=status.value)


def cancel(connection: Connection, tenant: str, seq: int) -> Job | Refused | None:
    """End a job after the step that is being done, if one is; what it has done stays done.

    `Refused` when it has ended otherwise; None when there is none. A repeat changes nothing.
    """
    job = jobs.hold(connection, tenant, seq)
    if job is None or job.status is JobStatus.CANCELLED:
        return job
    if job.status not in OPEN_JOB:
        return Refused(f"{job.id} is {job.status} and can't be cancelled")
    _end(connection, job, JobStatus.CANCELLED, job.result)
    return jobs.find(connection, tenant, seq)


def _count_failure(engine: Engine, seq: int, error: Exception) -> Answer:
    cause = cause_of(error) if isinstance(error, DBAPIError) else type(error).__name__
    log.error("job_step_failed", job=public_id("job", seq), error=cause, exc_info=True)

    def work(connection: Connection) -> None:
        job = jobs.lock(connection, seq)
        if job is None:
            return  # somebody else is at it
        if job.failures + 1 < MOST_FAILURES:
            jobs.put_off(connection, seq, timedelta(seconds=2**job.failures))
        else:
            _fail(connection, job, f"a step of it failed {MOST_FAILURES} times in a row ({cause})")

    in_transaction(engine, work)
    return Answer.FAILED
