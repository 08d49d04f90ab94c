"""A claim that was told to mind a pace which is gone when it comes back."""

from typing import Any

from sqlalchemy import Engine, event, text

from app.core import deliveries as core
from app.domain.wakeups import Answer
from app.ledger import paces
from tests.ledgers import ROOM, TERMS, an_endpoint, deliveries_of, some_events

CLOSE = text("""
    INSERT INTO duehook.paces AS p (endpoint, closed_until, closed_at, closed_why)
    VALUES (:endpoint, duehook.now() + interval '1 hour', duehook.now(), 'retry_after')
    ON CONFLICT (endpoint) DO UPDATE
       SET closed_until = excluded.closed_until, closed_at = excluded.closed_at, closed_why = excluded.closed_why""")


def test_a_pace_that_ends_while_its_lock_is_passed_over_costs_the_claim_nothing(engine: Engine) -> None:
    endpoint = an_endpoint(engine)
    (delivery,) = deliveries_of(engine, some_events(engine)[0])
    with engine.begin() as connection:
        connection.execute(CLOSE, {"endpoint": endpoint})
    opening = engine.connect()
    paces.reset(opening, endpoint)  # holds the lock

    @event.listens_for(engine, "after_cursor_execute")
    def commit_behind_the_lock(*happened: Any) -> None:
        if "/* paces.read */" in happened[2]:
            opening.commit()

    with opening:
        claimed = core.claim(engine, [delivery], TERMS, ROOM)
    event.remove(engine, "after_cursor_execute", commit_behind_the_lock)
    assert claimed.looked.answers == {delivery: Answer.TAKEN}
    assert [each.delivery for each in claimed.claims] == [delivery]
