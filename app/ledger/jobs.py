"""Jobs: long work, and how far it has come. A step and the place it leaves are one transaction."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from app.domain.states import JobKind, JobStatus

Members = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A row of `duehook.jobs`; `kind` is a text, for another version may have made it."""

    seq: int
    id: str
    tenant: str
    kind: str
    status: JobStatus
    parameters: Members
    place: Members | None
    done: int
    total: int | None
    result: Members | None
    failures: int
    next_step_at: datetime
    created_at: datetime
    updated_at: datetime


_COLUMNS = """seq, id, tenant, kind, status, parameters, place, done, total, result, failures, next_step_at, created_at,
    updated_at"""
_INSERT = text(f"""/* jobs.insert */
    INSERT INTO duehook.jobs (tenant, kind, parameters) VALUES (:tenant, :kind, CAST(:parameters AS json))
    RETURNING {_COLUMNS}""")
_LOAD = text(f"/* jobs.load */ SELECT {_COLUMNS} FROM duehook.jobs WHERE seq = ANY (CAST(:seqs AS bigint[]))")
_FIND = text(f"/* jobs.find */ SELECT {_COLUMNS} FROM duehook.jobs WHERE tenant = :tenant AND seq = :seq")
_HOLD = text(f"/* jobs.hold */ SELECT {_COLUMNS} FROM duehook.jobs WHERE tenant = :tenant AND seq = :seq FOR UPDATE")


def insert(connection: Connection, tenant: str, kind: JobKind, parameters: Members) -> Job:
    """A queued job; its first step is due now."""
    members = {"tenant": tenant, "kind": kind, "parameters": _text(parameters)}
    return _job(connection.execute(_INSERT, members).one())


def load(connection: Connection, seqs: Sequence[int]) -> dict[int, Job]:
    """Jobs by seq."""
    return {row.seq: _job(row) for row in connection.execute(_LOAD, {"seqs": list(seqs)})}


def find(connection: Connection, tenant: str, seq: int) -> Job | None:
    """One job; None when the tenant has none of that id."""
    row = connection.execute(_FIND, {"tenant": tenant, "seq": seq}).one_or_none()
    return None if row is None else _job(row)


def hold(connection: Connection, tenant: str, seq: int) -> Job | None:
    """The same behind its lock; waits for a step that is being done, a moment at most."""
    row = connection.execute(_HOLD, {"tenant": tenant, "seq": seq}).one_or_none()
    return None if row is None else _job(row)


_LOCK = text(f"""/* jobs.lock */
    SELECT {_COLUMNS} FROM duehook.jobs
     WHERE seq = :seq AND status IN ('queued', 'running') FOR UPDATE SKIP LOCKED""")
_IS_OPEN = text("""/* jobs.is_open */
    SELECT EXISTS (SELECT FROM duehook.jobs WHERE seq = :seq AND status IN ('queued', 'running'))""")


def lock(connection: Connection, seq: int) -> Job | None:
    """An open job, to do a step of it; None when it has ended, or when somebody else is at it just now."""
    row = connection.execute(_LOCK, {"seq": seq}).one_or_none()
    return None if row is None else _job(row)


def is_open(connection: Connection, seq: int) -> bool:
    """Whether there is more to do."""
    return bool(connection.execute(_IS_OPEN, {"seq": seq}).scalar_one())


_WAIT_BRIEFLY = text("/* jobs.wait_briefly */ SET LOCAL lock_timeout = '1s'")


def wait_briefly(connection: Connection) -> None:
    """For the rest of this transaction no lock is waited for longer than a second: the step is tried again then."""
    connection.execute(_WAIT_BRIEFLY)


_RECORD = text("""/* jobs.record */
    UPDATE duehook.jobs
       SET status = 'running', place = CAST(:place AS json), done = done + :done,
           total = CASE WHEN CAST(:total AS bigint) IS NOT NULL THEN greatest(:total, done + :done) END,
           result = CAST(:result AS json), failures = 0, next_step_at = :next_step_at, updated_at = duehook.now()
     WHERE seq = :seq""")


def record(
    connection: Connection,
    seq: int,
    *,
    place: Members | None,
    done: int,
    total: int | None,
    result: Members,
    next_step_at: datetime,
) -> None:
    """Write what a step of a locked job did, in its transaction: where the next goes on, and when."""
    parameters = {
        "seq": seq,
        "place": None if place is None else _text(place),
        "done": done,
        "total": total,
        "result": _text(result),
        "next_step_at": next_step_at,
    }
    connection.execute(_RECORD, parameters)


_END = text("""/* jobs.end */
    UPDATE duehook.jobs
       SET status = :status, result = CAST(:result AS json), updated_at = duehook.now(),
           total = CASE CAST(:status AS text) WHEN 'completed' THEN done ELSE total END
     WHERE seq = :seq AND status IN ('queued', 'running')""")
_PUT_OFF = text("""/* jobs.put_off */
    UPDATE duehook.jobs
       SET failures = failures + 1, next_step_at = duehook.now() + :pause, updated_at = duehook.now()
     WHERE seq = :seq""")


def end(connection: Connection, seq: int, status: JobStatus, result: Members | None) -> None:
    """End a locked job; its subscribers are told in the same transaction. One that has ended stays as it is."""
    shown = None if result is None else _text(result)
    connection.execute(_END, {"seq": seq, "status": status, "result": shown})


def put_off(connection: Connection, seq: int, pause: timedelta) -> None:
    """Count a step of a locked job that raised, and try it again after `pause`."""
    connection.execute(_PUT_OFF, {"seq": seq, "pause": pause})


def _text(members: Members) -> str:
    return json.dumps(members, separators=(",", ":"))


def _job(row: Row[Any]) -> Job:
    return Job(**{**row._mapping, "status": JobStatus(row.status)})
