"""Which adapter notices what is due: how the work is divided, how each part stands, and who is there to do it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, Engine

from app.domain.auditing import Action
from app.domain.wakeups import Adapter, Kind, Lane
from app.ledger import audit, processes, service, status, wakeups
from app.ledger.database import in_transaction
from app.ledger.processes import Present
from app.ledger.wakeups import Due

ROLE = {Adapter.QUEUE: "relay", Adapter.SCAN: "scan"}
WORKER = "worker "  # and its lanes with a hyphen between them: the role of a worker
SILENT = timedelta(seconds=11)  # two words missed: dead, frozen or cut off
GONE = timedelta(minutes=5)  # silent for longer than anybody needs to be told


@dataclass(frozen=True, slots=True)
class Fleet:
    """Who works on this ledger: those that are there, and those that were a few minutes ago and say nothing now."""

    there: Sequence[Present]
    silent: Sequence[Present]

    def count(self, adapter: Adapter) -> int:
        """How many processes notice what is due for this adapter."""
        return sum(each.who.role == ROLE[adapter] for each in self.there)

    def workers(self) -> list[Present]:
        """Of any lanes."""
        return [each for each in self.there if each.who.role.startswith(WORKER)]

    def roles(self) -> Mapping[str, int]:
        """How many are there of each role, in order of the roles."""
        return Counter(each.who.role for each in self.there)

    def unattended(self) -> list[Lane]:
        """The lanes that no worker is there for."""
        attended = {lane for each in self.workers() for lane in each.who.role.removeprefix(WORKER).split("-")}
        return [lane for lane in Lane if lane not in attended]

    def lacking(self, adapter: Adapter) -> list[str]:
        """Who isn't there and the adapter's work needs, as `duehook` would start them; the scan needs no worker."""
        noticing = [] if self.count(adapter) else [ROLE[adapter]]
        lanes = self.unattended() if adapter is Adapter.QUEUE else []
        return noticing + ([f"worker {' '.join(lanes)}"] if lanes else [])

    def unseen(self, who: str) -> str:
        """The half of a sentence about one that is `lacking`."""
        role, *lanes = who.split()
        lately = " lately" if any(each.who.role.split()[0] == role for each in self.silent) else ""
        return f"no {role} {_for(lanes)}has been seen{lately}"


def _for(lanes: Sequence[str]) -> str:
    return f"for {' or '.join(lanes)} " if lanes else ""


@dataclass(frozen=True, slots=True)
class Part:
    """One adapter's: the per cent of the work that it notices, and what is due of it."""

    adapter: Adapter
    share: int
    due: Due


def fleet(connection: Connection) -> Fleet:
    """Who is there now."""
    known = processes.listing(connection, GONE)
    return Fleet(
        there=[each for each in known if each.silent < SILENT],
        silent=[each for each in known if each.silent >= SILENT],
    )


def shares(connection: Connection) -> dict[Adapter, int]:
    """The per cent of the work that each adapter notices."""
    scan = service.scan_share(connection)
    return {Adapter.QUEUE: 100 - scan, Adapter.SCAN: scan}


def read(engine: Engine) -> tuple[list[Part], Fleet]:
    """Both parts, as they are now, and who is there for them."""
    with engine.begin() as connection:
        status.read_in_order(connection)
        due = wakeups.due(connection, (Kind.RESERVATION, Kind.EVENT, Kind.DELIVERY, Kind.JOB))
        return [Part(each, share, due[each]) for each, share in shares(connection).items()], fleet(connection)


def divide(engine: Engine, adapter: Adapter, share: int, actor: str) -> None:
    """Give `share` per cent of the work to this adapter and the rest to the other; every process follows in seconds.

    What the other has noticed already it does: both may wake the same thing then, which changes nothing.
    """
    scan = share if adapter is Adapter.SCAN else 100 - share

    def work(connection: Connection) -> None:
        service.set_scan_share(connection, scan)
        audit.write(connection, actor, audit.EVERY_TENANT, Action.WAKEUPS_DIVIDED, queue=100 - scan, scan=scan)

    in_transaction(engine, work)
