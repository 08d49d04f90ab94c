"""examples/node-producer before a running service: what it commits is delivered, and nothing else ever is."""

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.ledger.database import connect_engine
from app.local.postgres import Postgres
from app.local.services import LocalServices
from tests.invariants import assert_invariants
from tests.ledgers import TENANT
from tests.pages import blocks_of
from tests.plain import Connection, column, value
from tests.processes import service
from tests.receivers import Receiver
from tests.service import duehook
from tests.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "node-producer"
SLOT = "2030-05-01T08:00Z"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Trucks:
    """The program, let in for the tenant; a relay and a worker for deliveries run, and a receiver wants everything."""

    node: str
    environment: Mapping[str, str]
    receiver: Receiver
    db: Connection

    def start(self, *arguments: str, lines: list[dict[str, str]] | None = None) -> subprocess.Popen[str]:
        """A command that runs; `lines` are what it imports."""
        process = subprocess.Popen(
            [self.node, "truck-slots.js", *arguments],
            cwd=EXAMPLE,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        if lines is not None:
            process.stdin.write("".join(f"{json.dumps(line)}\n" for line in lines))
            process.stdin.close()
            process.stdin = None
        return process

    def run(self, *arguments: str, lines: list[dict[str, str]] | None = None) -> Done:
        """A command to its end."""
        process = self.start(*arguments, lines=lines)
        out, err = process.communicate(timeout=60)
        return Done(arguments, process.returncode, out, err)

    def told(self, *arguments: str, lines: list[dict[str, str]] | None = None) -> dict[str, Any]:
        """What it prints when it is done."""
        done = self.run(*arguments, lines=lines)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def refused(self, *arguments: str, lines: list[dict[str, str]] | None = None) -> str:
        """What it says when the business says no."""
        done = self.run(*arguments, lines=lines)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        return done.stderr.strip()

    def received(self, customer: str) -> Counter[str]:
        """The types of the events about this customer that have arrived, each event counted once."""
        bodies = {each.event_id: json.loads(each.body) for each in self.receiver.received}
        return Counter(body["type"] for body in bodies.values() if f'"{customer}"' in json.dumps(body["data"]))

    def rows_of(self, customer: str) -> tuple[int, int]:
        """Reservations and bookings of a customer."""
        held = value(self.db, "SELECT count(*) FROM duehook.reservations WHERE data ->> 'customer' = %s", [customer])
        booked = value(self.db, "SELECT count(*) FROM trucks.bookings WHERE customer = %s", [customer])
        return held, booked

    def is_blocked(self) -> bool:
        """Whether a command waits for somebody's lock."""
        waiting = """SELECT count(*) FROM pg_stat_activity
                      WHERE application_name = 'truck slots' AND cardinality(pg_blocking_pids(pid)) > 0"""
        return bool(value(self.db, waiting))

    def nothing_is_left_of(self, customer: str) -> bool:
        """Neither a row, nor an event, nor a delivery; what is posted after this has arrived before we say so."""
        told = "SELECT count(*) FROM duehook.events WHERE data::text ~ %s"
        left = (*self.rows_of(customer), value(self.db, told, [f'"{customer}"']))
        return left == (0, 0, 0) and not self.received(customer)


@pytest.fixture(scope="module")
def trucks(
    postgres: Postgres, template: str, services: LocalServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trucks]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    if not (EXAMPLE / "node_modules" / "pg").exists():
        pytest.skip("npm's packages are not installed: `make verifiers` does")
    with psycopg.connect(postgres.url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE trucks TEMPLATE {template}")
        url = postgres.url_of("trucks")
        environment = {"PATH": str(Path(node).parent), "TENANT": TENANT, "ADMIN_URL": url}
        for _ in range(2):  # it may be run again
            made = subprocess.run(
                [node, "setup.js"], cwd=EXAMPLE, env=environment, capture_output=True, text=True, timeout=60, check=True
            )
        assert duehook("keys", "grant-sql", "truck_slots", TENANT, database_url=url).returncode == 0
        receiver = Receiver()
        engine = connect_engine(url, application_name="test")
        receiver.register(engine)
        engine.dispose()
        with (
            service(url, services.broker_url, tmp_path_factory.mktemp("trucks")) as running,
            psycopg.connect(url, autocommit=True) as db,
        ):
            for process in (running.relay(), running.worker("delivery")):
                process.wait_ready()
            yield Trucks(node, environment | {"DATABASE_URL": made.stdout.strip()}, receiver, db)
        receiver.close()
        assert_invariants(url)
        server.execute("DROP DATABASE trucks WITH (FORCE)")
        server.execute("DROP ROLE truck_slots")


def test_what_is_committed_is_delivered_once(trucks: Trucks) -> None:
    booked = trucks.told("book", "truck 1", SLOT, "Alan")
    for _ in range(2):
        assert trucks.told("confirm", booked["id"]) == {"confirmed": booked["id"]}
        assert trucks.told("ship", booked["id"])["customer"] == "Alan"
    wait_until(lambda: len(trucks.received("Alan")) == 2, deadline=30, what="both events arrived")
    assert trucks.received("Alan") == {"reservation.confirmed": 1, "booking.shipped": 1}
    (shipped,) = [each for each in trucks.receiver.received if b"booking.shipped" in each.body]
    assert json.loads(shipped.body)["key"] == f"booking-{booked['id']}-shipped"


def test_the_steps_of_the_readme_do_what_they_say(trucks: Trucks) -> None:
    steps = [each.text for each in blocks_of(EXAMPLE / "README.md", "sh") if "node truck-slots.js" in each.text]
    before = value(
        trucks.db, "SELECT nextval(pg_get_serial_sequence('trucks.bookings', 'id'))"
    )  # other tests' bookings
    script = re.sub(r"(confirm|ship) (\d)", lambda found: f"{found[1]} {before + int(found[2])}", "\n".join(steps))
    environment = {**trucks.environment, "PATH": f"{trucks.environment['PATH']}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=EXAMPLE, env=environment, capture_output=True, text=True, timeout=60
    )
    told = [next(iter(json.loads(line))) for line in done.stdout.splitlines()]
    assert told == ["id", "confirmed", "truck", "id", "imported"], done.stderr
    said = done.stderr.splitlines()
    assert (said[0], said[1][:9], said[2]) == ("the slot is taken", "too late:", "the slot is taken"), said
    expected = {"Ada": {"reservation.confirmed": 1, "booking.shipped": 1}, "Edsger": {"reservation.confirmed": 100}}
    wait_until(lambda: {each: trucks.received(each) for each in expected} == expected, deadline=30, what="all arrived")


def test_a_slot_that_is_taken_is_refused_and_leaves_nothing(trucks: Trucks) -> None:
    trucks.told("book", "truck 2", SLOT, "Mary")
    assert trucks.refused("book", "truck 2", "2030-05-01T10:00+02:00", "Joan") == "the slot is taken"
    assert trucks.nothing_is_left_of("Joan")


def test_what_is_too_late_can_not_be_confirmed_whether_or_not_its_expiry_was_recorded(trucks: Trucks) -> None:
    booked = trucks.told("book", "truck 3", SLOT, "Barbara", "0.05")
    overdue = "SELECT expires_at <= duehook.now() FROM duehook.reservations WHERE id = %s"
    wait_until(lambda: value(trucks.db, overdue, [booked["reservation"]]), what="it is overdue")
    said = trucks.refused("confirm", booked["id"])
    assert said.startswith(f"too late: reservation {booked['reservation']} expired at ")
    trucks.db.execute("UPDATE duehook.reservations SET status = 'expired' WHERE id = %s", [booked["reservation"]])
    said = trucks.refused("confirm", booked["id"])
    assert said == f"too late: reservation {booked['reservation']} is expired, it can't become confirmed"
    assert trucks.refused("ship", booked["id"]) == f"booking {booked['id']} is not confirmed"
    wait_until(lambda: trucks.received("Barbara"), deadline=30, what="the expiry arrived")
    assert trucks.received("Barbara") == {"reservation.expired": 1}


def test_a_thousand_bookings_in_one_transaction_are_all_delivered(trucks: Trucks) -> None:
    lines = [{"truck": f"truck {number}", "slot": SLOT, "customer": "Donald"} for number in range(1000, 2000)]
    assert trucks.told("import", lines=lines) == {"imported": 1000}
    assert trucks.rows_of("Donald") == (1000, 1000)
    wait_until(lambda: trucks.received("Donald").total() == 1000, deadline=60, what="all arrived")
    assert trucks.received("Donald") == {"reservation.confirmed": 1000}
    made = column(trucks.db, "SELECT DISTINCT xmin::text FROM trucks.bookings WHERE customer = 'Donald'")
    assert len(made) == 1, "in one transaction"


@pytest.mark.parametrize(
    ("last", "says"),
    [({"customer": ""}, "bookings_customer_check"), ({"truck": "truck 5000"}, "the slot is taken")],
    ids=["its own rule", "taken by itself"],
)
def test_an_import_that_fails_at_its_end_leaves_nothing(trucks: Trucks, last: dict[str, str], says: str) -> None:
    lines = [{"truck": f"truck {number}", "slot": SLOT, "customer": "Niklaus"} for number in range(5000, 5600)]
    done = trucks.run("import", lines=[*lines, {"truck": "truck 9", "slot": SLOT, "customer": "Niklaus", **last}])
    assert done.returncode != 0 and says in done.stderr
    told = trucks.told("book", f"truck after {says}", SLOT, f"after {says}")
    trucks.told("confirm", told["id"])
    wait_until(lambda: trucks.received(f"after {says}"), deadline=30, what="what came later arrived")
    assert trucks.nothing_is_left_of("Niklaus")


def test_a_program_that_is_killed_before_its_commit_leaves_nothing(trucks: Trucks, postgres: Postgres) -> None:
    """Half of it is written when it meets a slot that somebody else's open transaction holds."""
    lines = [{"truck": f"truck {number}", "slot": SLOT, "customer": "Tony"} for number in range(6000, 7000)]
    with psycopg.connect(postgres.url_of("trucks")) as somebody:
        take(somebody, "truck 6900")
        process = trucks.start("import", lines=lines)
        wait_until(trucks.is_blocked, deadline=30, what="it waits in the middle")
        process.kill()
        process.communicate(timeout=30)
        somebody.rollback()
    connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'truck slots'"
    wait_until(lambda: value(trucks.db, connected) == 0, deadline=30, what="PostgreSQL has noticed")
    trucks.told("confirm", trucks.told("book", "truck 7000", SLOT, "Leslie")["id"])
    wait_until(lambda: trucks.received("Leslie"), deadline=30, what="what came later arrived")
    assert trucks.nothing_is_left_of("Tony")
    assert trucks.told("import", lines=lines) == {"imported": 1000}, "and it can simply be run again"


def test_what_was_never_booked_is_neither_confirmed_nor_shipped(trucks: Trucks) -> None:
    assert trucks.refused("confirm", "999999") == "there is no such booking"
    assert trucks.refused("ship", "999999") == "booking 999999 is not confirmed"


def take(connection: Connection, truck: str) -> None:
    """What somebody else's transaction does; open, it makes the program wait."""
    connection.execute(
        """INSERT INTO duehook.reservations (tenant, resource, expires_at, exclusive)
           VALUES (%s, %s || ' at 2030-05-01T08:00:00.000Z', duehook.now() + interval '1 hour', true)""",
        [TENANT, truck],
    )


def test_after_a_deadlock_the_program_runs_the_whole_transaction_again(trucks: Trucks, postgres: Postgres) -> None:
    lines = [{"truck": truck, "slot": SLOT, "customer": "Radia"} for truck in ("truck 80", "truck 81")]
    trucks.db.execute("ALTER ROLE truck_slots SET deadlock_timeout = '3s'")  # who has waited for this long is ended
    with psycopg.connect(postgres.url_of("trucks")) as somebody:
        somebody.execute("SET deadlock_timeout = '30s'")
        take(somebody, "truck 81")
        process = trucks.start("import", lines=lines)
        wait_until(trucks.is_blocked, deadline=30, what="it has taken truck 80 and waits for truck 81")
        take(somebody, "truck 80")
        somebody.rollback()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, '{"imported":2}\n'), err
    counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'trucks'"
    wait_until(lambda: value(trucks.db, counted) >= 1, what="PostgreSQL has counted one")
    assert trucks.rows_of("Radia") == (2, 2)


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["toString"]])
def test_wrong_use_is_told(trucks: Trucks, arguments: list[str]) -> None:
    done = trucks.run(*arguments)
    assert done.returncode == 2 and "usage: node truck-slots.js book" in done.stderr


def test_the_npm_package_is_named_exactly_and_by_no_address() -> None:
    package, lock = ((EXAMPLE / name).read_text() for name in ("package.json", "package-lock.json"))
    assert all(version[0].isdigit() for version in json.loads(package)["dependencies"].values())
    assert "://" not in lock and "resolved" not in lock
    assert all("integrity" in each for name, each in json.loads(lock)["packages"].items() if name)
