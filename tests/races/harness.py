"""Real actors on real connections, stopped where a race is decided.

Each actor runs ledger or core code in a thread of its own, over an engine of its own, and stops at every point
`before <statement>`, `after <statement>` and `before commit`, where <statement> is the name in the comment that every
statement of the ledger begins with. The test lets one actor go at a time. An actor that waits for a lock is found in
PostgreSQL's own tables, never guessed by a timeout.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Engine, event

from app.ledger.database import connect_engine
from tests.waiting import wait_until

NAME = re.compile(r"/\* ([\w.]+) \*/")
DEADLINE = 10.0
LOOK = 0.02  # seconds that it may take to arrive before anybody asks whether it is blocked


class Actor:
    """One piece of work, run step by step."""

    def __init__(
        self, name: str, database_url: str, watcher: psycopg.Connection[Any], session: dict[str, str] | None
    ) -> None:
        self.name = name
        self.result: Any = None
        self.error: BaseException | None = None
        self.point: str | None = None
        self._watcher = watcher
        self._engine = connect_engine(database_url, application_name=f"actor {name}", pool_size=1, session=session)
        self._pid = 0
        self._turn = threading.Semaphore(0)
        self._stopped = threading.Condition()
        self._free = False
        self._thread: threading.Thread | None = None
        self._listen()

    def start(self, work: Callable[[Engine], Any]) -> "Actor":
        """Begin; the actor stops at its first point. One that has ended may begin anew."""
        self.result, self.error, self.point, self._free = None, None, None, False

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
        self._free = True
        if self.point not in (None, "done"):
            self._go()
        assert self._thread is not None
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), f"{self.name} did not end (at {self.point!r}, blocked: {self.blocked})"
        if self.error is not None:
            raise self.error
        return self.result

    @property
    def blocked(self) -> bool:
        """Whether it waits for a lock that another session holds."""
        found = self._watcher.execute("SELECT pg_blocking_pids(%s) <> '{}'", [self._pid]).fetchone()
        return bool(found and found[0])

    def kill(self) -> None:
        """Cut its connection as a SIGKILL of its process would: what it has not committed is gone."""
        self._watcher.execute("SELECT pg_terminate_backend(%s, 5000)", [self._pid])
        self._free = True
        if self.point not in (None, "done"):
            self._go()
        assert self._thread is not None
        self._thread.join(DEADLINE)

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
            if found := NAME.search(statement):
                self._arrive(f"after {found[1]}")

        @event.listens_for(self._engine, "commit")
        def commit(_c: Any) -> None:
            self._arrive("before commit")

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
        self._watcher = psycopg.connect(database_url, autocommit=True)
        self._actors: list[Actor] = []

    def actor(self, name: str, work: Callable[[Engine], Any] | None = None) -> Actor:
        """An actor, standing at the first point of its work if it has one."""
        actor = Actor(name, self._url, self._watcher, self._session)
        self._actors.append(actor)
        return actor if work is None else actor.start(work)

    def close(self) -> None:
        for actor in self._actors:
            actor.close()
        self._watcher.close()


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
