"""Short hands for tests: things in the ledger at a given point of their life."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, text

from app.core import deliveries as core
from app.core.deliveries import Room, Terms
from app.domain.states import DeadReason, DeliveryStatus, Outcome
from app.ledger import endpoints, events
from app.ledger.deliveries import Claim, Ending
from app.ledger.events import NewEvent

TERMS = Terms(lease=timedelta(seconds=45), max_age=timedelta(days=5))
ROOM = Room(total=1000, each=1000)
TENANT = "acme"


def an_endpoint(engine: Engine, **fields: Any) -> int:
    """The seq of a new endpoint that wants everything."""
    wanted: dict[str, Any] = {"url": "http://127.0.0.1:9/", "event_types": ["*"], **fields}
    with engine.begin() as connection:
        return endpoints.insert(connection, TENANT, **wanted).seq


def some_events(engine: Engine, count: int = 1, **fields: Any) -> list[int]:
    """The seqs of new events."""
    asked = [NewEvent(**{"type": "order.placed", "data": "{}", **fields}) for _ in range(count)]
    with engine.begin() as connection:
        made = events.insert(connection, TENANT, asked)
        return [made[place].seq for place in range(count)]


def deliveries_of(engine: Engine, event: int) -> list[int]:
    """The ids of an event's deliveries."""
    return list(rows(engine, "SELECT id FROM duehook.deliveries WHERE event = :event ORDER BY id", event=event))


def a_delivery(engine: Engine) -> int:
    """A scheduled delivery that is due now."""
    an_endpoint(engine)
    (event,) = some_events(engine)
    (delivery,) = deliveries_of(engine, event)
    return delivery


def claimed(engine: Engine, *ids: int) -> list[Claim]:
    """Claims of these deliveries, all of them."""
    claims = list(core.claim(engine, ids, TERMS, ROOM).claims)
    assert len(claims) == len(ids)
    return claims


def ending(claim: Claim, outcome: Outcome = Outcome.DELIVERED, **fields: Any) -> Ending:
    """What came of a claim, as the engine would tell it."""
    status = DeliveryStatus.DELIVERED if outcome is Outcome.DELIVERED else DeliveryStatus.SCHEDULED
    at = datetime(2030, 1, 1, 12, tzinfo=UTC)
    told = {"status": status, "outcome": outcome, "started_at": at, "ended_at": at, **fields}
    return Ending(claim.delivery, claim.token, **told)


def buried(claim: Claim, reason: DeadReason) -> Ending:
    """A claim that ends dead."""
    return ending(claim, Outcome.REFUSED, status=DeliveryStatus.DEAD, reason=reason)


def dead(engine: Engine, count: int = 1, reason: DeadReason = DeadReason.REFUSED, **fields: Any) -> list[int]:
    """The ids of new deliveries that died, to each endpoint of the tenant; the first died first."""
    made = [each for event in some_events(engine, count, **fields) for each in deliveries_of(engine, event)]
    for start in range(0, len(made), ROOM.total):
        claims = claimed(engine, *made[start : start + ROOM.total])
        core.record(engine, [buried(claim, reason) for claim in claims], max_age=TERMS.max_age)
    return made


def rows(engine: Engine, statement: str, **parameters: Any) -> list[Any]:
    """The first column of each row."""
    with engine.connect() as connection:
        return list(connection.execute(text(statement), parameters).scalars())


def row(engine: Engine, table: str, key: str, value: Any) -> dict[str, Any]:
    """One row of a table of the ledger, by a column of it."""
    with engine.connect() as connection:
        return row_of(connection, table, key, value)


def row_of(connection: Connection, table: str, key: str, value: Any) -> dict[str, Any]:
    found = connection.execute(text(f"SELECT * FROM duehook.{table} WHERE {key} = :value"), {"value": value})
    return dict(found.one()._mapping)
