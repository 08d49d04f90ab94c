"""Reconciliation: the slow second path, and an audit of what the outbox promises."""

from collections import Counter

from sqlalchemy import Connection, Engine

from app.domain.wakeups import Kind
from app.ledger import reconciliation
from app.ledger.database import in_transaction

STRETCH = 5_000


def audit(engine: Engine, *, stretch: int = STRETCH) -> Counter[str]:
    """Walk the next `stretch` of each table and repair what breaks the promise; returns repairs by kind.

    It moves nothing that has a row: it can't tell what is lost from what is queued behind others. Two at once are
    harmless: the second finds the lock taken and returns nothing. On a healthy day everything is zero.
    """
    return in_transaction(engine, lambda connection: _audit(connection, stretch))


def _audit(connection: Connection, stretch: int) -> Counter[str]:
    if not reconciliation.lock_audit(connection):
        return Counter()
    repairs = {
        f"{kind}_without_row": reconciliation.repair_missing(connection, kind, stretch)
        for kind in (Kind.RESERVATION, Kind.EVENT, Kind.DELIVERY)
    }
    return Counter(repairs) + Counter(row_of_nothing=reconciliation.delete_orphans(connection, stretch))
