"""Deliveries whose senders died: the end of such a claim, by its token, without waiting for its lease."""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import Connection, text

# What the claim does with a lapsed lease, in the same order; that it is poison by now, the next claim decides.
_ABANDON = text("""/* suspects.abandon */
    WITH mine AS MATERIALIZED (
        SELECT id, attempt, claimed_at FROM duehook.deliveries WHERE id = :id AND token = :token FOR UPDATE),
    ended AS (
        UPDATE duehook.deliveries
           SET status = CASE WHEN cancel_requested THEN 'cancelled' ELSE 'scheduled' END,
               abandoned = abandoned + 1, next_attempt_at = duehook.now() + :after,
               token = NULL, claimed_at = NULL, lease_until = NULL, updated_at = duehook.now()
         WHERE id = ANY (ARRAY(SELECT id FROM mine))
        RETURNING id)
    INSERT INTO duehook.attempts (delivery, number, outcome, started_at)
    SELECT id, attempt, 'abandoned', claimed_at FROM mine JOIN ended USING (id)""")


def abandon(connection: Connection, delivery: int, *, token: UUID, after: timedelta) -> bool:
    """End a claim that its sender can't record any more: due again in `after`, same step, one more abandoned.

    False when it was recorded, or belongs to somebody newer: nothing is written then.
    """
    return connection.execute(_ABANDON, {"id": delivery, "token": token, "after": after}).rowcount == 1
