"""One delivery at its owner's hand: tried again, or given up."""

from typing import assert_never

from sqlalchemy import Connection

from app.core.reservations import Refused
from app.domain.identity import public_id
from app.domain.states import DeliveryStatus
from app.ledger import by_hand, events
from app.ledger.by_hand import Delivery, Reopening


def retry(connection: Connection, tenant: str, delivery: int) -> Delivery | Refused | None:
    """Have a delivery tried now, a terminal one in a new round with its schedule and age anew.

    `Refused` while it is in the air, for its outcome decides; None when there is none. A repeat finds it waiting
    and due, and only moves the time.
    """
    found = lock(connection, tenant, delivery)
    if found is None:
        return None
    name = public_id("dlv", delivery)
    reopening = by_hand.reopen(connection, tenant, [delivery])[delivery]
    match reopening:
        case Reopening.OPEN:
            return by_hand.find(connection, tenant, delivery)
        case Reopening.IN_FLIGHT:
            return Refused(f"{name} is in the air just now; its outcome decides")
        case Reopening.ENDPOINT_DELETED:
            return Refused(f"{name} has no endpoint any more; it was deleted")
        case Reopening.EVENT_ERASED:
            return Refused(f"{name} can't be sent again; its event was erased")
        case Reopening.WORN_OUT:
            return Refused(f"{name} has been re-opened {by_hand.MOST_ROUNDS} times; that is enough")
        case _:
            assert_never(reopening)


def cancel(connection: Connection, tenant: str, delivery: int) -> Delivery | Refused | None:
    """Give a delivery up; one in the air ends as delivered or, whatever else comes back, as cancelled.

    `Refused` when it is delivered or dead; None when there is none. A repeat changes nothing.
    """
    found = lock(connection, tenant, delivery)
    if found is None:
        return None
    was = by_hand.cancel(connection, tenant, [delivery])[delivery]
    if was in (DeliveryStatus.DELIVERED, DeliveryStatus.DEAD):
        return Refused(f"{public_id('dlv', delivery)} is {was} and can't become cancelled")
    return by_hand.find(connection, tenant, delivery)


def lock(connection: Connection, tenant: str, delivery: int) -> Delivery | None:
    """One delivery behind the lock of its event, the order that a cancel of the event takes too; None without any.

    Until the end of the transaction nobody re-opens it.
    """
    found = by_hand.find(connection, tenant, delivery)
    if found is None:
        return None
    events.lock(connection, tenant, found.event)
    return by_hand.find(connection, tenant, delivery)
