"""Doing something to one thing of a tenant: in one transaction, with 404 and 409 for what can't be done."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from app.api.auth import Call
from app.api.problems import conflict, not_found
from app.core.reservations import Refused
from app.ledger.database import in_transaction

Key = TypeVar("Key", int, str)
Thing = TypeVar("Thing")


def act_on(
    call: Call, noun: str, key: Key | None, act: Callable[[Connection, str, Key], Thing | Refused | None]
) -> Thing:
    """What `act` answers for the thing of this key; a key of None is an id that can't be one.

    A refusal commits too: a late confirm is one, and has expired the reservation.
    """
    found = None
    if key is not None:
        found = in_transaction(call.runtime.engine, lambda connection: act(connection, call.tenant, key))
    if found is None:
        raise not_found(noun)
    if isinstance(found, Refused):
        raise conflict(found.why)
    return found
