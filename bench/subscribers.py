"""The endpoints at the sink: one for each of a hundred event types, and one for expired reservations."""

import secrets

from app.domain.signing_keys import hmac_secret
from app.ledger import endpoints
from app.ledger.database import connect_engine
from app.ledger.sealing import Sealer
from bench.receiver import Receiver

TENANT = "bench"


def event_type(number: int) -> str:
    """What the endpoint of this number subscribes to."""
    return f"order.placed.{number}"


def subscribe(database_url: str, key: str, receiver: Receiver, number: int) -> None:
    """Make `number` endpoints for orders and the one for expiries, each with a secret of its own."""
    wanted = [event_type(each) for each in range(number)] + ["reservation.expired"]
    sealer = Sealer([key])
    engine = connect_engine(database_url, application_name="duehook bench", pool_size=1)
    try:
        with engine.begin() as connection:
            for place, each in enumerate(wanted):
                made = endpoints.insert(connection, TENANT, url=receiver.url(place), event_types=[each])
                endpoints.add_secret(connection, made.seq, sealer.seal(hmac_secret(secrets.token_bytes(32))))
    finally:
        engine.dispose()
