"""Upkeep: what somebody must do every so often, whoever it is; twice or by two at once does no harm."""

import time
from collections import Counter
from functools import partial

import structlog
from sqlalchemy import Engine

from app.core.reconciliation import TERMS, audit
from app.ledger import audit as audit_log
from app.ledger import idempotency
from app.ledger import upkeep as ledger
from app.ledger.database import in_transaction
from app.ledger.reconciliation import Terms

log = structlog.get_logger("duehook.upkeep")
PRUNED_AT_ONCE = 1000
PRUNING_SECONDS = 1.0
MOST_PRUNED = 5_000  # entries of the audit log that one call looks at


def upkeep(engine: Engine, terms: Terms = TERMS) -> Counter[str]:
    """Audit the ledger, make the days ahead that attempts are kept in, delete what is too old.

    That is answers nobody may ask for any more, and entries of the audit log. Returns and logs the repairs by kind.
    """
    repairs = audit(engine, terms)
    if repairs:
        log.warning("repaired", **repairs)
    if made := in_transaction(engine, ledger.make_attempt_days):
        log.info("attempt_days_made", days=made)
    if pruned := _prune(engine):
        log.info("kept_answers_pruned", count=pruned)
    if (kept := terms.kept) and (
        pruned := in_transaction(engine, lambda connection: audit_log.prune(connection, kept, most=MOST_PRUNED))
    ):
        log.info("audit_log_pruned", entries=pruned)
    return repairs


def _prune(engine: Engine) -> int:
    """A portion at a time, for a moment: the next call goes on. Returns how many."""
    until, pruned = time.monotonic() + PRUNING_SECONDS, 0
    while some := in_transaction(engine, partial(idempotency.prune, most=PRUNED_AT_ONCE)):
        pruned += some
        if time.monotonic() >= until:
            break
    return pruned
