"""The fleet of a run: real servers and processes, a breakable network between them, and who starts again what died."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from app.client import Client, Retries
from app.core import keys, wakeups
from app.domain.states import KeyScope
from app.domain.wakeups import Adapter
from app.ledger.database import connect_engine
from app.ledger.migrate import migrate
from app.local.access import free_port
from app.local.services import LocalServices
from tests.chaos import plan
from tests.chaos.plan import LEASE, PROCESSES, RECEIVERS, TENANTS
from tests.leaks import hmac_secret
from tests.processes import ROOT, Process, Service
from tests.proxy import Network, Proxy

COMMANDS = {
    "relay": ("outbox_relay",),
    "worker-delivery-1": ("workers", "worker", "delivery"),
    "worker-delivery-2": ("workers", "worker", "delivery"),
    "worker-expiry-1": ("workers", "worker", "expiry"),
    "worker-expiry-2": ("workers", "worker", "expiry"),
    "worker-upkeep": ("workers", "worker", "upkeep"),
    "beat": ("workers", "beat"),
    "api": ("app.api",),
    "scan": ("workers", "scan"),
}
SCANNED = 10  # per cent of the work
SETTINGS = {
    "DUEHOOK_DEADLINE_SECONDS": "3",
    "DUEHOOK_LEASE_SECONDS": f"{LEASE:g}",
    "DUEHOOK_PUBLISH_LEASE_SECONDS": "2",
    "DUEHOOK_VISIBILITY_TIMEOUT_SECONDS": "20",
}
PROVEN = 40  # looks at it, while it ran: the API has no ready file
UNTIL_ANSWERED = Retries(tries=100_000, seconds=1_800.0, timeout=10.0, first=0.1, longest=1.0)


class Slot:
    """A place in the fleet, the process that fills it now, if one does, and its ways to the two servers."""

    def __init__(self, name: str, database: Proxy, broker: Proxy) -> None:
        self.name = name
        self.ways = {"database": database, "broker": broker}
        self.process: Process | None = None
        self.away = False  # killed by a fault that will have it back
        self.rss: list[int] = []  # pages, sampled; of its latest process

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process and self.process.running else None


class ReceiverSlot:
    """A receiver, its ledger, its port, and the proxy that workers reach it by."""

    def __init__(self, kind: plan.Receiver, folder: Path, network: Network) -> None:
        self.kind = kind
        self.ledger = folder / f"{kind.name}.sqlite"
        self.secret = hmac_secret()
        self._log = folder / f"receiver-{kind.name}.log"
        self._port = free_port()
        self.proxy = network.proxy(self._port)
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}/{plan.CANARY}"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.receiver", self.ledger, str(self._port), str(self.kind.slow)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "CHAOS_SECRET": self.secret},
                start_new_session=True,
            )

    def tell(self, what: str, seconds: float) -> None:
        assert self._popen.stdin
        self._popen.stdin.write(json.dumps({what: seconds}).encode() + b"\n")
        self._popen.stdin.flush()

    def kill(self) -> bool:
        """Whether it ran, and died of this."""
        ran = self._popen.poll() is None
        self._popen.kill()
        return ran and self._popen.wait(10) == -signal.SIGKILL

    def answered(self, since: float, *answers: str) -> int:
        """How many requests that came since then were answered like this, as it remembers."""
        with closing(sqlite3.connect(self.ledger)) as connection:
            found = connection.execute("SELECT answer FROM requests WHERE came_at >= ?", [since]).fetchall()
        return sum(answer in answers for (answer,) in found)


class Fleet:
    """Everything that runs. `ended` names what ended though nobody killed it."""

    def __init__(self, folder: Path, services: LocalServices, network: Network) -> None:
        assert services.postgres and services.valkey
        self.folder = folder
        self.postgres, self.valkey = services.postgres, services.valkey
        self.receivers = {each.name: ReceiverSlot(each, folder, network) for each in RECEIVERS}
        self.slots = {
            name: Slot(name, network.proxy(self.postgres.port), network.proxy(self.valkey.port)) for name in PROCESSES
        }
        self.ended: list[str] = []
        self.keys: dict[str, str] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._api_port = free_port()
        self.service = Service(
            self.postgres.url,
            self.valkey.url,
            folder,
            **SETTINGS,
            DUEHOOK_API_PORT=str(self._api_port),
            DUEHOOK_FLOWER_PORT="0",
        )
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may say."""
        words = {self.postgres.password, self.valkey.password, self.service.environment["DUEHOOK_SECRETS_KEY"]}
        return (*words, *self.keys.values(), *(each.secret for each in self.receivers.values()))

    def ways(self, name: str) -> list[Proxy]:
        """Those of everybody to the database or the broker, one process's, as in `relay to broker`, or a receiver's."""
        if name in self.receivers:
            return [self.receivers[name].proxy]
        process, _, server = name.rpartition(" to ")
        return [slot.ways[server] for slot in self.slots.values() if process in ("", slot.name)]

    def client(self, tenant: str) -> Client:
        return Client(f"http://127.0.0.1:{self._api_port}", self.keys[tenant], retries=UNTIL_ANSWERED)

    def start(self) -> None:
        """All of it, the subscriptions too."""
        migrate(self.postgres.url)
        engine = connect_engine(self.postgres.url, application_name="chaos")
        with engine.begin() as connection:
            self.keys = {tenant: keys.create(connection, tenant, KeyScope.OPERATOR)[1] for tenant in TENANTS}
        wakeups.divide(engine, Adapter.SCAN, SCANNED, "chaos")
        engine.dispose()
        for slot in self.slots.values():
            self._fill(slot)
        for slot in self.slots.values():
            if slot.process and slot.name != "api":  # which tells by answering
                slot.process.wait_ready()
        for receiver in self.receivers.values():
            with self.client(receiver.kind.tenant) as duehook:
                duehook.endpoints.create(receiver.url, plan.EVENTS, secret=receiver.secret, retry_schedule=plan.RETRIES)
        self._supervisor.start()

    def kill(self, name: str) -> bool:
        """SIGKILL; it stays away until `restore`. Whether it ran, and died of this."""
        with self._lock:
            slot = self.slots[name]
            slot.away = True
            if not (slot.process and slot.process.running):
                return False
            slot.process.kill()
            return slot.process.exit_code() == -signal.SIGKILL

    def restore(self, name: str) -> None:
        self.slots[name].away = False

    def extra(self, environment: Mapping[str, str], *command: str) -> Process:
        """One more process, in another environment; nobody starts it again."""
        return self.service.start(*command, **environment)

    def close(self) -> None:
        self._stopped.set()
        if self._supervisor.is_alive():
            self._supervisor.join(10)
        self.service.close()
        for receiver in self.receivers.values():
            receiver.kill()

    def _fill(self, slot: Slot) -> None:
        slot.process = self.service.start(
            *COMMANDS[slot.name],
            DUEHOOK_DATABASE_URL=through(self.postgres.url, slot.ways["database"]),
            DUEHOOK_BROKER_URL=through(self.valkey.url, slot.ways["broker"]),
        )
        slot.rss = []

    def _supervise(self) -> None:
        while not self._stopped.wait(0.3):
            with self._lock:
                for slot in self.slots.values():
                    self._look_at(slot)

    def _look_at(self, slot: Slot) -> None:
        process = slot.process
        assert process
        if process.running:
            if pages := _rss(process.pid):
                slot.rss.append(pages)
        elif not slot.away:
            code = process.exit_code()
            was_ready = process.ready_file.exists() or len(slot.rss) > PROVEN
            if code != -signal.SIGKILL and was_ready:
                self.ended.append(f"{process.name} ended with {code}")
            self._fill(slot)


def _rss(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has ended meanwhile
        return 0


def through(url: str, proxy: Proxy) -> str:
    """The same URL by way of a proxy."""
    port = urlsplit(url).port
    return url.replace(f":{port}/", f":{proxy.port}/")


@contextmanager
def running(folder: Path) -> Iterator[Fleet]:
    """Ready inside the block; nothing is left after it."""
    with ExitStack() as stack:
        home = folder / "home"
        home.mkdir()
        services = stack.enter_context(LocalServices(home, postgres_settings={"full_page_writes": "on"}))
        network = stack.enter_context(Network())
        fleet = Fleet(folder, services, network)
        stack.callback(fleet.close)
        fleet.start()
        yield fleet


def asked(fleet: Fleet, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Rows straight from the database, asked again until it answers."""
    until = time.monotonic() + 120
    while True:
        try:
            with psycopg.connect(fleet.postgres.url, connect_timeout=5, autocommit=True) as connection:
                return connection.execute(query.encode(), parameters).fetchall()
        except psycopg.Error:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
