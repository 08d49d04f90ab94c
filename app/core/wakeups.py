"""Which adapter notices what is due: how the work is divided, and how each part stands."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Engine

from app.domain.wakeups import Adapter, Kind
from app.ledger import processes, service, status, wakeups
from app.ledger.database import in_transaction
from app.ledger.wakeups import Due

ROLE = {Adapter.QUEUE: "relay", Adapter.SCAN: "scan"}
SILENT = timedelta(seconds=15)  # three words missed: dead, frozen or cut off


@dataclass(frozen=True, slots=True)
class Part:
    """One adapter's: the per cent of the work that it notices, how many processes do that, what is due of it."""

    adapter: Adapter
    share: int
    processes: int
    due: Due


def read(engine: Engine) -> list[Part]:
    """Both parts, as they are now."""
    with engine.begin() as connection:
        status.read_in_order(connection)
        due = wakeups.due(connection, (Kind.RESERVATION, Kind.EVENT, Kind.DELIVERY))
        scan = service.scan_share(connection)
        present = [each.who.role for each in processes.listing(connection) if each.silent < SILENT]
    shares = {Adapter.QUEUE: 100 - scan, Adapter.SCAN: scan}
    return [Part(each, shares[each], present.count(ROLE[each]), due[each]) for each in Adapter]


def divide(engine: Engine, adapter: Adapter, share: int) -> None:
    """Give `share` per cent of the work to this adapter and the rest to the other; every process follows in seconds.

    What the other has noticed already it does: both may wake the same thing then, which changes nothing.
    """
    scan = share if adapter is Adapter.SCAN else 100 - share
    in_transaction(engine, lambda connection: service.set_scan_share(connection, scan))
