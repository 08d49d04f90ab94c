"""What an operator does over HTTP is in the audit log: the entry is written in the transaction of what it tells of."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from app.api.auth import Call
from app.core.reservations import Refused
from app.domain.auditing import Action
from app.domain.identity import Prefix, public_id
from app.ledger import audit

Thing = TypeVar("Thing")


def audited(
    call: Call,
    action: Action,
    prefix: Prefix,
    act: Callable[[Connection, str, int], Thing | Refused | None],
    **details: object,
) -> Callable[[Connection, str, int], Thing | Refused | None]:
    """`act`, with an entry about its thing when it was done; what was refused, or is not there, leaves none.

    A repeat that changed nothing leaves one too: it was asked for and granted.
    """

    def acting(connection: Connection, tenant: str, key: int) -> Thing | Refused | None:
        done = act(connection, tenant, key)
        if done is not None and not isinstance(done, Refused):
            note(connection, call, action, public_id(prefix, key), **details)
        return done

    return acting


def note(connection: Connection, call: Call, action: Action, subject: str, **details: object) -> None:
    """An entry about a thing that has only now got its id."""
    audit.write(connection, call.actor, call.tenant, action, subject, **details)
