"""The faults of a run, each a block: it is there inside, and undone after it.

Each counts in `seen` what shows that it hit something, as whoever was hit would know it: a fault that did nothing
proves nothing.
"""

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.local.server import Server
from tests.chaos.fleet import Fleet, asked
from tests.chaos.plan import Fault
from tests.proxy import Mode

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
CLOCK = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "+240", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
MANY = 20  # in the air
LEASED = "SELECT count(*) FROM duehook.deliveries WHERE status = 'leased'"
OURS = "application_name LIKE 'duehook %%' AND pid <> pg_backend_pid()"
FULL = (
    "CREATE SEQUENCE public.chaos_refused",
    """CREATE OR REPLACE FUNCTION public.chaos_full() RETURNS trigger LANGUAGE plpgsql
       SECURITY DEFINER AS $$
       BEGIN
           PERFORM nextval('public.chaos_refused'); -- stays, though the transaction does not
           RAISE 'no space left on device' USING ERRCODE = '53100';
       END $$""",
    *(
        f"CREATE TRIGGER chaos_full BEFORE INSERT OR UPDATE ON duehook.{table} EXECUTE FUNCTION public.chaos_full()"
        for table in ("reservations", "events", "deliveries", "outbox")
    ),
)
REFUSED = "SELECT coalesce(last_value, 0) FROM pg_sequences WHERE sequencename = 'chaos_refused'"
CLOCK_SEEN = "SELECT count(*) FROM duehook.processes WHERE pid = %s AND abs(extract(epoch FROM clock_offset)) > 200"
Seen = Counter[str]
Undone = AbstractContextManager[None]


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault that happened, with the deliveries that were leased as it began and what it was seen to hit.

    Times are the wall clock's.
    """

    fault: Fault
    began_at: float
    ended_at: float
    leased: int
    seen: Seen

    @property
    def hit(self) -> bool:
        return self.seen.total() > 0


def inflict(fleet: Fleet, fault: Fault, sleep: Callable[[float], object]) -> Happened:
    """Let it happen for as long as it is to last; everything is as before when this returns."""
    ((leased,),) = asked(fleet, LEASED)
    began, seen = time.time(), Seen()
    with FAULTS[fault.kind](fleet, fault.target, seen):
        sleep(fault.seconds)
    return Happened(fault, began, time.time(), int(str(leased)), seen)


@contextmanager
def killed(fleet: Fleet, name: str, seen: Seen) -> Iterator[None]:
    """A delivery worker dies after the effects of what it has in the air, and before any record, where it has some."""
    with in_the_air(fleet) if name.startswith("worker-delivery") else nullcontext():
        seen["died"] += fleet.kill(name)
    yield
    fleet.restore(name)


@contextmanager
def in_the_air(fleet: Fleet) -> Iterator[None]:
    """Receivers apply and don't answer, until some deliveries are leased or there is nothing to send."""
    for each in fleet.receivers.values():
        each.tell("stall", 60)
    until = time.monotonic() + 2
    while asked(fleet, LEASED)[0][0] in range(MANY) and time.monotonic() < until:
        time.sleep(0.05)
    yield
    for each in fleet.receivers.values():
        each.tell("stall", 0)


@contextmanager
def frozen(fleet: Fleet, name: str, seen: Seen) -> Iterator[None]:
    with stopped(fleet.slots[name].pid, seen):
        yield


@contextmanager
def stopped(pid: int | None, seen: Seen) -> Iterator[None]:
    with suppress(ProcessLookupError):
        if pid:
            os.kill(pid, signal.SIGSTOP)
    yield
    with suppress(ProcessLookupError):
        if pid:
            seen["stood still"] += stands(pid)
            os.kill(pid, signal.SIGCONT)


def stands(pid: int) -> bool:
    """Whether every thread of it is stopped."""
    try:
        states = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/status")]
    except OSError:  # it ends
        return False
    return bool(states) and all("\nState:\tT" in each for each in states)


@contextmanager
def redis_emptied(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    with _broker(fleet) as broker:
        seen["keys gone"] += int(broker.dbsize())
        broker.flushall()
    yield


@contextmanager
def redis_killed(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    with _dead(fleet.valkey, seen):
        yield


@contextmanager
def redis_without_its_data(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    with _dead(fleet.valkey, seen):
        for file in (fleet.valkey.folder / "appendonlydir").glob("*"):
            file.unlink()
        yield


@contextmanager
def _dead(server: Server, seen: Seen) -> Iterator[None]:
    """By SIGKILL; `start` waits for what is left of it."""
    ran = server.running
    server.kill()
    yield
    seen["died"] += ran and not server.running and not _listens(server.port)
    server.start()


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def redis_frozen(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    with stopped(fleet.valkey.pid, seen):
        yield


@contextmanager
def redis_read_only(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    with _broker(fleet) as broker:
        broker.execute_command("REPLICAOF", "127.0.0.1", "9")
        with refusing(broker, "READONLY", seen):
            yield
        broker.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def redis_out_of_memory(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    with _broker(fleet) as broker:
        broker.config_set("maxmemory", 1)
        with refusing(broker, "OOM", seen):
            yield
        broker.config_set("maxmemory", 0)


@contextmanager
def refusing(broker: "redis.Redis", error: str, seen: Seen) -> Iterator[None]:
    before = _refused(broker, error)
    yield
    seen[f"{error} said"] += _refused(broker, error) - before


def _refused(broker: "redis.Redis", error: str) -> int:
    """How often it has answered with this error since it was started."""
    return int(broker.info("errorstats").get(f"errorstat_{error}", {}).get("count", 0))


def _broker(fleet: Fleet) -> "redis.Redis":
    return redis.Redis.from_url(fleet.valkey.url, socket_timeout=30, retry=Retry(NoBackoff(), 0))


@contextmanager
def postgres_killed(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    """The postmaster by SIGKILL; its children see that and end. `start` waits for them, then recovers."""
    with _dead(fleet.postgres, seen):
        yield


@contextmanager
def connections_cut(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    cut = asked(fleet, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
    seen["cut"] += sum(each for (each,) in cut)
    yield


@contextmanager
def statements_cancelled(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    """What runs is ended with 57014, as statement_timeout does; the service's sessions set that one themselves."""
    for _again in range(40):
        told = asked(fleet, f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {OURS} AND state = 'active'")
        seen["cancelled"] += sum(each for (each,) in told)
        time.sleep(0.02)
    yield


@contextmanager
def disk_full(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    """A trigger raises 53100 for every write of the ledger's, as a full disk does."""
    _as_owner(fleet, *FULL)
    yield
    seen["writes refused"] += int(asked(fleet, REFUSED)[0][0])
    _as_owner(fleet, "DROP FUNCTION public.chaos_full() CASCADE", "DROP SEQUENCE public.chaos_refused")


@contextmanager
def rows_locked(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    """Somebody's transactions hold rows that are open, and a snapshot.

    Two of them: by the snapshot nobody could lock a row that was changed since.
    """
    url = fleet.postgres.url
    with psycopg.connect(url) as snapshot, psycopg.connect(url) as connection:
        snapshot.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        snapshot.execute("SELECT count(*) FROM duehook.deliveries")
        for table, open_ones in (("reservations", "('held')"), ("deliveries", "('scheduled', 'leased')")):
            lock = f"SELECT FROM duehook.{table} WHERE status IN {open_ones} LIMIT 20 FOR UPDATE SKIP LOCKED"
            seen[f"{table} locked"] += connection.execute(lock.encode()).rowcount
        yield
        connection.rollback()
        snapshot.rollback()


def _as_owner(fleet: Fleet, *statements: str) -> None:
    """In one transaction, again until it is through."""
    until = time.monotonic() + 120
    while True:
        try:
            with psycopg.connect(fleet.postgres.url, options="-c lock_timeout=2s") as connection:
                for statement in statements:
                    connection.execute(statement.encode())
            return
        except psycopg.Error:
            if time.monotonic() > until:
                raise


def network(mode: Mode) -> Callable[[Fleet, str, Seen], Undone]:
    """The way to somebody, broken like this; what was open at the end is cut, as what comes back from such is."""

    @contextmanager
    def broken(fleet: Fleet, name: str, seen: Seen) -> Iterator[None]:
        ways = fleet.ways(name)
        before = sum(way.hits for way in ways)
        for way in ways:
            way.set(mode, delay=0.2)
        yield
        seen["hits"] += (meanwhile := sum(way.hits for way in ways)) - before
        seen["ways shut"] += mode is Mode.REFUSE and sum(not _listens(way.port) for way in ways)
        for way in ways:
            way.set(Mode.PASS)
            if mode in (Mode.BLACK_HOLE, Mode.DEAF):
                way.cut()
        seen["cut at its end"] += sum(way.hits for way in ways) - meanwhile

    return broken


@contextmanager
def receiver_killed(fleet: Fleet, name: str, seen: Seen) -> Iterator[None]:
    seen["died"] += fleet.receivers[name].kill()
    yield
    fleet.receivers[name].start()


def receiver(what: str, *answers: str) -> Callable[[Fleet, str, Seen], Undone]:
    """A receiver that behaves like this; `answers` are what it then keeps of a request."""

    @contextmanager
    def behaving(fleet: Fleet, name: str, seen: Seen) -> Iterator[None]:
        each, began = fleet.receivers[name], time.time()
        each.tell(what, 60)
        yield
        seen["requests"] += each.answered(began, *answers)
        each.tell(what, 0)

    return behaving


@contextmanager
def clock_off(fleet: Fleet, _: str, seen: Seen) -> Iterator[None]:
    """One more worker, on a host whose clock is four minutes ahead; skipped where libfaketime is missing."""
    if FAKETIME is None:
        yield
        return
    worker = fleet.extra(CLOCK, "workers", "worker", "delivery", "expiry")
    yield
    seen["a clock was off"] += int(asked(fleet, CLOCK_SEEN, worker.pid)[0][0])
    worker.kill()


FAULTS: dict[str, Callable[[Fleet, str, Seen], Undone]] = {
    "killed": killed,
    "frozen-shortly": frozen,
    "frozen-past-the-lease": frozen,
    "redis-emptied": redis_emptied,
    "redis-killed": redis_killed,
    "redis-restarted-without-its-data": redis_without_its_data,
    "redis-frozen": redis_frozen,
    "redis-read-only": redis_read_only,
    "redis-out-of-memory": redis_out_of_memory,
    "postgres-killed": postgres_killed,
    "postgres-connections-cut": connections_cut,
    "postgres-statements-cancelled": statements_cancelled,
    "postgres-disk-full": disk_full,
    "postgres-rows-locked": rows_locked,
    "network-cut": network(Mode.CUT),
    "network-refused": network(Mode.REFUSE),
    "network-slow": network(Mode.SLOW),
    "network-black-hole": network(Mode.BLACK_HOLE),
    "network-half-open": network(Mode.DEAF),
    "answer-cut": network(Mode.CUT_BEFORE_ANSWER),
    "receiver-killed": receiver_killed,
    "receiver-failing": receiver("fail", "failed"),
    "receiver-throttling": receiver("throttle", "throttled"),
    "receiver-never-answering": receiver("stall", "applied", "duplicate"),
    "clock-off": clock_off,
}
