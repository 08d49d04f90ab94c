"""A peer: its programs, started on a ground, in the language that it is written in."""

import importlib.util
import json
import os
import secrets
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from shutil import copy, which

from app.domain.signing_keys import hmac_secret
from app.local.up.roles import cores
from app.settings import PREFIX
from bench.cpu import cpu_seconds
from bench.peers.contestant import Contestant, Ground
from bench.peers.program import Producer, Program
from bench.peers.webhook import DATABASE_URL, ENDPOINTS, REDIS_URL

NODE_FILES = Path(__file__).parent / "node"
NODE_HOME = Path(__file__).parents[2] / ".cache" / "peers"  # where `make bench` installs npm's packages
NO_NODE = "npm's packages, which `make bench` installs once there is npm (apt-get install nodejs npm)"
Command = Sequence[str | Path]


class RunningPeer:
    """Its workers, and the producer."""

    def __init__(self, producer: Producer, workers: Sequence[Program]) -> None:
        self._producer = producer
        self._workers = workers

    def cpu(self) -> Mapping[str, float]:
        """See Running."""
        for each in self._workers:
            each.check()
        return cpu_seconds({"workers": [each.pid for each in self._workers], "producer": [self._producer.pid]})

    def hold(self) -> None:
        """See Running."""
        for each in self._workers:
            each.hold()

    def release(self) -> None:
        """See Running."""
        for each in self._workers:
            each.release()

    def enqueue(self, number: int) -> Collection[str]:
        """See Running."""
        prefix = f"evt_{secrets.token_hex(8)}_"
        self._producer.produce(prefix, number)
        return {f"{prefix}{place}" for place in range(number)}


class Peer(Contestant):
    """Everything but its commands."""

    @contextmanager
    def running(self, ground: Ground) -> Iterator[RunningPeer]:
        """See Contestant."""
        environment = _environment(ground)
        with ExitStack() as stack:

            def log(what: str) -> Path:
                return ground.home / f"{self.name}-{what}.log"

            if command := self.prepare(ground):
                Program(command, log=log("prepare"), environment=environment).finish()
            workers = []
            for command in self.workers(ground):
                workers.append(Program(command, log=log("worker"), environment=environment))
                stack.callback(workers[-1].end)
            producer = Producer(self.producer(ground), log=log("producer"), environment=environment)
            stack.callback(producer.end)
            producer.wait_until_ready()
            yield RunningPeer(producer, workers)

    @abstractmethod
    def prepare(self, ground: Ground) -> Command | None:
        """Makes its tables."""

    @abstractmethod
    def workers(self, ground: Ground) -> Sequence[Command]:
        """Send."""

    @abstractmethod
    def producer(self, ground: Ground) -> Command:
        """Hands in."""


@dataclass
class PythonPeer(Peer):
    """A module here; `worker` are the arguments of Python, run `count` times, `{place}` in them a number of its own."""

    name: str
    title: str
    module: str
    packages: Sequence[str]
    worker: Sequence[str]
    count: int
    share: float
    arguments: Sequence[str] = ()
    preparation: Sequence[str] = ()

    @property
    def lacking(self) -> str:
        """See Contestant."""
        lacking = [each for each in self.packages if importlib.util.find_spec(each) is None]
        return f"{' and '.join(lacking)}, which `make bench` installs" if lacking else ""

    def versions(self) -> Mapping[str, str]:
        """See Contestant."""
        return {each: version(each) for each in self.packages}

    def prepare(self, ground: Ground) -> Command | None:
        """See Peer."""
        return self._python("-m", f"bench.peers.{self.module}", *self.preparation) if self.preparation else None

    def workers(self, ground: Ground) -> Sequence[Command]:
        """See Peer."""
        return [self._python(*(each.format(place=place) for each in self.worker)) for place in range(self.count)]

    def producer(self, ground: Ground) -> Command:
        """See Peer."""
        return self._python("-m", f"bench.peers.{self.module}", *self.arguments)

    def _python(self, *arguments: str) -> Command:
        return [sys.executable, "-P", *arguments]


@dataclass
class NodePeer(Peer):
    """A file in the folder `node`, run once for each core."""

    name: str
    title: str
    package: str
    has_tables: bool
    count: int = field(default_factory=cores)

    @property
    def lacking(self) -> str:
        """See Contestant."""
        installed = self._node and (NODE_HOME / "node_modules" / self.package / "package.json").exists()
        return "" if installed else NO_NODE

    def versions(self) -> Mapping[str, str]:
        """See Contestant."""
        node = subprocess.run([self._node or "node", "--version"], capture_output=True, text=True, check=True)
        names = [self.package, "undici", "pg" if self.has_tables else "ioredis"]
        manifests = {each: (NODE_HOME / "node_modules" / each / "package.json").read_text() for each in names}
        return {"node": node.stdout.strip(), **{each: json.loads(text)["version"] for each, text in manifests.items()}}

    def prepare(self, ground: Ground) -> Command | None:
        """See Peer."""
        return self._function(ground, "prepare") if self.has_tables else None

    def workers(self, ground: Ground) -> Sequence[Command]:
        """See Peer."""
        return [self._function(ground, "work")] * self.count

    def producer(self, ground: Ground) -> Command:
        """See Peer."""
        return self._function(ground, "produce")

    @cached_property
    def _node(self) -> str | None:
        """The one that npm has brought, or else the machine's."""
        brought = next(NODE_HOME.glob("node_modules/node-linux-*/bin/node"), None)
        return str(brought) if brought else _new_enough(which("node"))

    def program(self, folder: Path, file: str, *arguments: str) -> Command:
        """Imports are looked up from where a file is: so ours go into `folder`, beside a link to the packages."""
        for each in NODE_FILES.glob("*.mjs"):
            copy(each, folder)
        packages = folder / "node_modules"
        if not packages.exists():
            packages.symlink_to(NODE_HOME / "node_modules")
        return [self._node or "node", folder / file, *arguments]

    def _function(self, ground: Ground, name: str) -> Command:
        return self.program(ground.home, f"{self.package}.mjs", name)


def _new_enough(node: str | None) -> str | None:
    if node is None:
        return None
    ran = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    numbers = [int(each) for each in ran.stdout.strip().removeprefix("v").split(".") if each.isdigit()]
    return node if numbers >= [22, 19] else None


def _environment(ground: Ground) -> Mapping[str, str]:
    """The variables of a program that is measured: nothing of the user's own settings."""
    file = ground.home / "endpoints.json"
    urls = (ground.receiver.url(place) for place in range(ground.endpoints))
    file.write_text(json.dumps([{"url": url, "secret": hmac_secret(secrets.token_bytes(32))} for url in urls]))
    ours = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "PG", "NODE_"))}
    return {
        **ours,
        "NODE_ENV": "production",
        DATABASE_URL: ground.database_url,
        REDIS_URL: ground.services.broker_url,
        ENDPOINTS: str(file),
    }
