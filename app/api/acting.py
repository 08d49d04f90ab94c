"""Answering a request in one transaction; doing something to one thing of a tenant, 404 and 409 if it can't be done."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from starlette.responses import Response

from app.api import idempotency
from app.api.auth import Call
from app.api.idempotency import Work
from app.api.problems import ProblemError, conflict, not_found
from app.core.reservations import Refused
from app.ledger.database import in_transaction

Key = TypeVar("Key", int, str)
Thing = TypeVar("Thing")


def perform(call: Call, work: Work) -> Response:
    """The answer of `work`, once however often the request is sent if it has an `Idempotency-Key`. Every POST's way.

    A problem that `work` returns lets stand what it did: a late confirm is one, and has expired the reservation. One
    that it raises undoes it.
    """
    request = idempotency.named(call)
    answered = in_transaction(call.runtime.engine, work if request is None else idempotency.once(request, work))
    if isinstance(answered, ProblemError):
        raise answered
    return answered


def act_on(
    call: Call,
    noun: str,
    key: Key | None,
    act: Callable[[Connection, str, Key], Thing | Refused | None],
    show: Callable[[Thing], Response],
) -> Response:
    """`show` of what `act` makes of the thing of this key; a key of None is an id that can't be one."""
    if key is None:
        raise not_found(noun)

    def work(connection: Connection) -> Response | ProblemError:
        found = act(connection, call.tenant, key)
        if found is None:
            return not_found(noun)
        return conflict(found.why) if isinstance(found, Refused) else show(found)

    return perform(call, work)
