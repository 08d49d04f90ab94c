"""Real actors on real connections, stopped where a race is decided.

Each actor runs ledger or core code in a thread of its own, over an engine of its own, and stops at every point
`before <statement>`, `after <statement>`, `before commit` and `before rollback`, where <statement> is the name in the
comment that every statement of the ledger begins with. The test lets one actor go at a time. An actor that waits for a
lock is found in PostgreSQL's own tables, never guessed by a timeout.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import Engine, ExceptionContext, event

from app.ledger.database import connect_engine
from tests.waiting import wait_until

NAME = re.compile(r"/\* ([\w.]+) \*/")
DEADLINE = 10.0
LOOK = 0.003  # seconds that it may take to arrive before anybody asks whether it is blocked
# Reading a table locks it too, and so does FOR UPDATE, in ways by which nobody waits: they are there to be read off.
# PostgreSQL's own tables are nobody's race.
_LOCKS = """
    SELECT array_agg(key) FILTER (WHERE mode = 'AccessShareLock'),
           array_agg(key) FILTER (WHERE mode <> 'AccessShareLock')
      FROM (SELECT mode, CASE locktype WHEN 'relation' THEN relation::text
                                       ELSE concat_ws(' ', 'advisory', classid, objid) END AS key
              FROM pg_locks WHERE pid = %s AND (locktype = 'relation' AND relation >= 16384
                                                OR locktype = 'advisory')) held"""
# By another actor: a vacuum that cuts a table's end holds everybody up too, and it goes by.
_BLOCKED = "SELECT pid FROM unnest(%s::integer[]) AS pid WHERE pg_blocking_pids(pid) && %s::integer[]"
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Touched:
    """The tables, indexes and advisory locks that an open transaction has read, and those it has written or locked."""

    reads: frozenset[str] = NOTHING
    writes: frozenset[str] = NOTHING


class Actor:
    """One piece of work, run step by step."""

    def __init__(
        self,
        name: str,
        database_url: str,
        watcher: psycopg.Connection[Any],
        session: dict[str, str] | None,
        stopped: threading.Condition,
        afterwards: bool,
    ) -> None:
        self.name = name
        self.result: Any = None
        self.error: BaseException | None = None
        self.point: str | None = None
        self.refusals: list[str | None] = []  # the SQLSTATE of each error that a statement of it got
        self._watcher = watcher
        self._engine = connect_engine(database_url, application_name=f"actor {name}", pool_size=1, session=session)
        self._pid = 0
        self._turn = threading.Semaphore(0)
        self._stopped = stopped
        self._afterwards = afterwards
        self._free = False
        self._thread: threading.Thread | None = None
        self._listen()

    def start(self, work: Callable[[Engine], Any]) -> "Actor":
        """Begin; the actor stops at its first point. One that has ended may begin anew."""
        self.result, self.error, self.point, self._free = None, None, None, False
        self.refusals = []

        def run() -> None:
            try:
                self.result = work(self._engine)
            except BaseException as error:  # noqa: BLE001 - handed to the test, which looks at it
                self.error = error
            finally:
                self._arrive("done")

        self._thread = threading.Thread(target=run, name=self.name, daemon=True)
        self._thread.start()
        self._wait_stopped()
        return self

    def until(self, point: str) -> "Actor":
        """Let it run until it stands at `point`."""
        while self.point != point:
            if self.point is None:  # it was blocked, and goes on by itself when the lock is free
                self._wait_stopped()
                continue
            assert self.point != "done", f"{self.name} ended without reaching {point!r}: {self.error!r}"
            self._go()
            self._wait_stopped()
        return self

    def go(self) -> None:
        """Let it run on to its next point; nobody waits for it here."""
        self._go()

    def step(self) -> None:
        """Let it run to its next statement or commit, to its end, or until it waits for somebody's lock."""
        while True:
            self._go()
            self.wait()
            if self.point is None or not self.point.startswith("after "):
                return

    def wait(self) -> None:
        """Wait until it stands at a point, has ended, or waits for somebody's lock."""
        wait_until(lambda: self._arrived(LOOK) or self.blocked, what=f"{self.name} stops or is blocked")

    def _arrived(self, patience: float) -> bool:
        with self._stopped:
            return self._stopped.wait_for(lambda: self.point is not None, patience)

    def until_blocked(self) -> "Actor":
        """Let it run until PostgreSQL says that it waits for somebody's lock."""
        while True:
            self._go()
            self.wait()
            if self.point is None:
                return self
            assert self.point != "done", f"{self.name} ended without being blocked: {self.error!r}"

    def finish(self) -> Any:
        """Let it run to its end; returns its result or raises its error."""
        self.free()
        self.end()
        return self.outcome()

    def outcome(self) -> Any:
        """The result of one that has ended, or its error raised."""
        if self.error is not None:
            raise self.error
        return self.result

    def free(self) -> None:
        """Let it run to its end; nobody waits for it here."""
        self._free = True
        if self.point not in (None, "done"):
            self._go()

    def end(self) -> None:
        """Wait until one that was let go has ended; its result and its error are left to be looked at."""
        assert self._thread is not None
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), f"{self.name} did not end (at {self.point!r}, blocked: {self.blocked})"

    @property
    def pid(self) -> int:
        """Of the session that works for it; 0 before it has connected."""
        return self._pid

    @property
    def blocked(self) -> bool:
        """Whether it waits for a lock that another session holds."""
        found = self._watcher.execute("SELECT pg_blocking_pids(%s) <> '{}'", [self._pid]).fetchone()
        return bool(found and found[0])

    def kill(self) -> None:
        """Cut its connection as a SIGKILL of its process would: what it has not committed is gone."""
        self._watcher.execute("SELECT pg_terminate_backend(%s, 5000)", [self._pid])
        self.free()
        self.end()

    def close(self) -> None:
        """Let go of everything, whatever the test left it doing."""
        if self._thread is not None and self._thread.is_alive():
            self.kill()
        self._engine.dispose()

    def _listen(self) -> None:
        @event.listens_for(self._engine, "connect")
        def connected(dbapi_connection: Any, _record: Any) -> None:
            self._pid = dbapi_connection.info.backend_pid

        @event.listens_for(self._engine, "before_cursor_execute")
        def before(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if found := NAME.search(statement):
                self._arrive(f"before {found[1]}")

        @event.listens_for(self._engine, "after_cursor_execute")
        def after(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if self._afterwards and (found := NAME.search(statement)):
                self._arrive(f"after {found[1]}")

        @event.listens_for(self._engine, "commit")
        def commit(_c: Any) -> None:
            self._arrive("before commit")

        @event.listens_for(self._engine, "rollback")
        def rollback(_c: Any) -> None:
            self._arrive("before rollback")

        @event.listens_for(self._engine, "handle_error")
        def refused(context: ExceptionContext) -> None:
            self.refusals.append(getattr(context.original_exception, "sqlstate", None))

    def _arrive(self, point: str) -> None:
        if point != "done" and self._free:
            return
        with self._stopped:
            self.point = point
            self._stopped.notify_all()
        if point != "done":
            self._turn.acquire()

    def _go(self) -> None:
        assert self.point is not None, f"{self.name} is running"
        self.point = None
        self._turn.release()

    def _wait_stopped(self) -> None:
        with self._stopped:
            arrived = self._stopped.wait_for(lambda: self.point is not None, DEADLINE)
        assert arrived, f"{self.name} reached no point within {DEADLINE} s (blocked: {self.blocked})"


class Race:
    """Makes actors on one database and lets all of them go at the end."""

    def __init__(self, database_url: str, session: dict[str, str] | None) -> None:
        self._url = database_url
        self._session = session
        self._watcher = psycopg.connect(database_url, autocommit=True, prepare_threshold=0)
        self._actors: list[Actor] = []
        self._stopped = threading.Condition()

    def actor(self, name: str, work: Callable[[Engine], Any] | None = None, *, afterwards: bool = True) -> Actor:
        """An actor, standing at the first point of its work if it has one.

        From `after` a statement to `before` the next it does nothing that others could see: who tries every order may
        do without stops `afterwards`.
        """
        actor = Actor(name, self._url, self._watcher, self._session, self._stopped, afterwards)
        self._actors.append(actor)
        return actor if work is None else actor.start(work)

    def settle(self, actors: Sequence[Actor]) -> list[Actor]:
        """Wait until each of them stands before a statement or an end, has ended, or waits for another's lock; returns
        those that wait. All at once in a ring is a deadlock, which PostgreSQL breaks."""
        until = time.monotonic() + DEADLINE
        while True:
            running = self._running(actors, LOOK)
            blocked = self._blocked(running, actors) if running else []
            same = self._running(actors, 0) == running
            if same and len(blocked) == len(running) and (not running or any(_stands(each) for each in actors)):
                return running
            assert time.monotonic() < until, f"{[each.name for each in running]} neither stop nor are blocked"

    def touched(self, actor: Actor) -> Touched:
        """What its open transaction has touched so far."""
        found = self._watcher.execute(_LOCKS, [actor.pid]).fetchone()
        return Touched(*(frozenset(some or ()) for some in found or ()))

    def _running(self, actors: Sequence[Actor], patience: float) -> list[Actor]:
        """Those that have not come to a point after so many seconds."""
        with self._stopped:
            self._stopped.wait_for(lambda: all(each.point is not None for each in actors), patience)
            return [each for each in actors if each.point is None]

    def _blocked(self, actors: Sequence[Actor], by: Sequence[Actor]) -> list[int]:
        pids = [[each.pid for each in some] for some in (actors, by)]
        return [pid for (pid,) in self._watcher.execute(_BLOCKED, pids)]

    def close(self) -> None:
        for actor in self._actors:
            actor.close()
        self._watcher.close()


def _stands(actor: Actor) -> bool:
    return actor.point not in (None, "done")


@contextmanager
def race(database_url: str, session: dict[str, str] | None = None) -> Iterator[Race]:
    """A race on `database_url`, in sessions like the service's own unless told otherwise.

    Every actor is let go at the end, whatever happened.
    """
    running = Race(database_url, session)
    try:
        yield running
    finally:
        running.close()
