"""Answers that are kept, so that a request that is sent again has one effect."""

import zlib
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto

from sqlalchemy import Connection, text

KEPT_FOR = timedelta(hours=24)
QUICKLY = 1  # zlib's level: a list of a thousand events shrinks to a tenth even so


@dataclass(frozen=True, slots=True)
class Request:
    """A request that its sender gave a key: `id` names it and `body` tells it from another one, 32 bytes each."""

    id: bytes
    tenant: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """How it was answered; `text` is JSON."""

    status: int
    text: bytes = field(repr=False)


class Begun(Enum):
    """What a request is that has no kept answer."""

    FIRST = auto()
    RUNNING = auto()  # the first one is, in another transaction
    ANOTHER = auto()  # its key was used with another body


_BEGIN = text("/* idempotency.begin */ SELECT * FROM duehook.begin_once(:id, :kept_for)")


def begin(connection: Connection, request: Request) -> Kept | Begun:
    """Become the first of these requests until the transaction ends, or find what became of the first; waits never.

    Nobody else is the first meanwhile. Two requests of different ids can be taken for one for a moment, with a chance
    of one in 2^64: the later is `RUNNING`, and can be sent again.
    """
    row = connection.execute(_BEGIN, {"id": request.id, "kept_for": KEPT_FOR}).one()
    if row.status is None:
        return Begun.FIRST if row.first else Begun.RUNNING
    return Kept(row.status, zlib.decompress(row.answer)) if row.body == request.body else Begun.ANOTHER


_KEEP = text("""/* idempotency.keep */
    INSERT INTO duehook.kept_answers AS k (request, tenant, body, status, answer)
    VALUES (:id, :tenant, :body, :status, :answer)
    ON CONFLICT (request) DO UPDATE
       SET body = excluded.body, status = excluded.status, answer = excluded.answer, created_at = excluded.created_at
     WHERE k.created_at <= (SELECT duehook.now()) - :kept_for""")


def keep(connection: Connection, request: Request, kept: Kept) -> bool:
    """Keep the answer for a day; False when one is kept already, and then the caller must roll back."""
    parameters = {
        "id": request.id,
        "tenant": request.tenant,
        "body": request.body,
        "status": kept.status,
        "answer": zlib.compress(kept.text, QUICKLY),
        "kept_for": KEPT_FOR,
    }
    return connection.execute(_KEEP, parameters).rowcount == 1


_PRUNE = text("""/* idempotency.prune */
    DELETE FROM duehook.kept_answers WHERE request = ANY (ARRAY(
        SELECT request FROM duehook.kept_answers WHERE created_at <= (SELECT duehook.now()) - :kept_for
         ORDER BY created_at LIMIT :most FOR UPDATE SKIP LOCKED))""")


def prune(connection: Connection, *, most: int) -> int:
    """Delete some that are older than a day, the oldest first; returns how many."""
    return connection.execute(_PRUNE, {"kept_for": KEPT_FOR, "most": most}).rowcount
