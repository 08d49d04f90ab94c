"""The endpoints at the sink, and the types of event that each wants."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.signing_keys import hmac_secret
from app.ledger import endpoints
from app.ledger.database import connect_engine
from app.ledger.sealing import Sealer
from bench.receiver import Receiver

TENANT = "bench"
EXPIRED = "reservation.expired"


@dataclass(frozen=True, slots=True)
class Subscription:
    """An endpoint of a tenant wants one type of event, and no other endpoint of that tenant does.

    `manner` is how it answers: at once (`hooks`), after ten seconds (`slow`), never (`hanging`).
    """

    tenant: str
    type: str
    manner: str = "hooks"


def orders(number: int, tenant: str = TENANT) -> list[Subscription]:
    """To so many types of order."""
    return [Subscription(tenant, f"order.placed.{each}") for each in range(number)]


def expiries(tenant: str = TENANT) -> Subscription:
    """To its expired reservations."""
    return Subscription(tenant, EXPIRED)


def subscribe(database_url: str, key: str, receiver: Receiver, wanted: Sequence[Subscription]) -> None:
    """Make an endpoint for each, with a secret of its own."""
    sealer = Sealer([key])
    engine = connect_engine(database_url, application_name="duehook bench", pool_size=1)
    try:
        with engine.begin() as connection:
            for place, each in enumerate(wanted):
                url = receiver.url(place, each.manner)
                made = endpoints.insert(connection, each.tenant, url=url, event_types=[each.type])
                endpoints.add_secret(connection, made.seq, sealer.seal(hmac_secret(secrets.token_bytes(32))))
    finally:
        engine.dispose()
