"""The audit log: who changed what, written in the transaction of the change and never changed itself."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from app.domain.auditing import Action
from app.domain.identity import public_id

EVERY_TENANT = "*"  # whose, where a change is about all of them
_WRITE = text("""/* audit_log.write */
    INSERT INTO duehook.audit_log (tenant, actor, action, subject, details)
    VALUES (:tenant, :actor, :action, :subject, CAST(:details AS json))""")


def write(
    connection: Connection, actor: str, tenant: str, action: Action, subject: str | None = None, **details: object
) -> None:
    """Add an entry to the transaction of the change that it tells of.

    `details` are what one must know to understand it: ids, counts, names of members. Never a secret, a payload, a URL
    or what else a tenant wrote: entries outlive the erasure of their tenant.
    """
    parameters = {
        "tenant": tenant,
        "actor": actor,
        "action": action,
        "subject": subject,
        "details": json.dumps(details, separators=(",", ":")),
    }
    connection.execute(_WRITE, parameters)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of `duehook.audit_log`; `action` is a text, for another version may have written it."""

    seq: int
    id: str
    at: datetime
    tenant: str
    actor: str
    action: str
    subject: str | None
    details: Mapping[str, Any]


_LOAD = text("""/* audit_log.load */
    SELECT seq, at, tenant, actor, action, subject, details FROM duehook.audit_log
     WHERE seq = ANY (CAST(:seqs AS bigint[]))""")
_PRUNE = text("/* audit_log.prune */ SELECT duehook.prune_audit_log(:kept, :most)")


def load(connection: Connection, seqs: Sequence[int]) -> dict[int, Entry]:
    """Entries by seq."""
    found = connection.execute(_LOAD, {"seqs": list(seqs)})
    return {row.seq: Entry(**row._mapping, id=public_id("aud", row.seq)) for row in found}


def prune(connection: Connection, kept: timedelta, *, most: int) -> int:
    """Delete what is older than `kept` of the oldest `most` entries; returns how many. A repeat goes on."""
    pruned = connection.execute(_PRUNE, {"kept": kept, "most": most}).scalar_one()
    assert isinstance(pruned, int)
    return pruned
