"""Upkeep: what somebody must do every so often, whoever it is; twice or by two at once does no harm."""

from collections import Counter

import structlog
from sqlalchemy import Engine

from app.core.reconciliation import TERMS, audit
from app.ledger import audit as audit_log
from app.ledger import upkeep as ledger
from app.ledger.database import in_transaction
from app.ledger.reconciliation import Terms

log = structlog.get_logger("duehook.upkeep")
MOST_PRUNED = 5_000  # entries of the audit log that one call looks at


def upkeep(engine: Engine, terms: Terms = TERMS) -> Counter[str]:
    """Audit the ledger and make the days ahead that attempts are kept in; returns and logs the repairs by kind.

    Entries of the audit log that are too old go too.
    """
    repairs = audit(engine, terms)
    if repairs:
        log.warning("repaired", **repairs)
    if made := in_transaction(engine, ledger.make_attempt_days):
        log.info("attempt_days_made", days=made)
    if (kept := terms.kept) and (
        pruned := in_transaction(engine, lambda connection: audit_log.prune(connection, kept, most=MOST_PRUNED))
    ):
        log.info("audit_log_pruned", entries=pruned)
    return repairs
