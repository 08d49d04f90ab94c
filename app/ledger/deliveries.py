"""Deliveries: claimed with a token until the lease ends, ended by that token and by nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, text

from app.domain.states import DeadReason, DeliveryStatus, Outcome
from app.domain.suspicion import POISON_AFTER, SUSPECTED_AFTER
from app.domain.wakeups import Answer

# Due, but its endpoint takes nothing now.
TURNED_AWAY = frozenset({Answer.NO_ROOM, Answer.PACED, Answer.DISABLED})


class Claim(NamedTuple):
    """A delivery taken by this token: the right to send it once and to record what came of it."""

    delivery: int
    token: UUID
    event: int
    endpoint: int
    revision: int
    attempt: int
    step: int
    troubled: bool = False  # a success would be news about its endpoint
    abandoned: int = 0  # claims in a row before this one that ended without a record
    lapsed: bool = False  # the last of them until just now
    since: float = 0.0  # when it was due first, or re-opened last; seconds since 1970, as the next
    claimed_at: float = 0.0

    @property
    def suspect(self) -> bool:
        """Whether it may be what its claimers died of."""
        return self.abandoned >= SUSPECTED_AFTER


# Decided in one statement over rows that nobody else can change: those that somebody holds are passed over.
# `due` are the rows that may be taken; room first by endpoint, then over all, the longest due first. An endpoint that
# has a pace to keep is passed over unless the caller has locked the pace and says what it allows; a ping asks nobody,
# for it is how an owner finds out whether a closed one works again. A `suspect` has room of its own; it takes of its
# endpoint's what the others leave.
_CLAIM = text("""/* deliveries.claim */
    WITH seen AS MATERIALIZED (
        SELECT d.id, d.event, d.endpoint, d.status, d.attempt, d.step, d.claimed_at, d.next_attempt_at,
               d.lease_until, d.age_from, d.cancel_requested,
               d.abandoned + CASE d.status WHEN 'leased' THEN 1 ELSE 0 END AS abandoned,
               e.revision, e.max_in_flight, e.status AS endpoint_status,
               e.deleted_at IS NOT NULL AS endpoint_deleted,
               CASE WHEN num_nonnulls(e.rate_per_second, e.max_in_flight, p.closed_until) > 0 THEN NOT EXISTS (
                    SELECT FROM duehook.events v WHERE v.seq = d.event AND v.only_to IS NOT NULL OFFSET 0)
                    ELSE false END AS paced,
               coalesce(p.closed_until IS NOT NULL OR p.failures > 0, false) AS troubled
          FROM duehook.deliveries d JOIN duehook.endpoints e ON e.seq = d.endpoint
          LEFT JOIN duehook.paces p ON p.endpoint = d.endpoint
         WHERE d.id = ANY (CAST(:ids AS bigint[]))
         ORDER BY d.id FOR UPDATE OF d SKIP LOCKED),
    judged AS (
        SELECT s.*, at, CASE
                WHEN status IN ('delivered', 'dead', 'cancelled') THEN 'gone'
                WHEN status = 'leased' AND lease_until > at THEN 'held'
                WHEN cancel_requested OR endpoint_deleted THEN 'cancelled'
                WHEN age_from + :max_age <= at THEN 'buried'
                WHEN abandoned >= :poison THEN 'poisoned'
                WHEN status = 'scheduled' AND next_attempt_at > at THEN 'early'
                WHEN endpoint_status = 'disabled' THEN 'disabled'
                ELSE 'due' END AS judgement,
               abandoned >= :suspected AS suspect
          FROM seen s, (SELECT duehook.now() AS at OFFSET 0) clock),
    queued AS (
        SELECT j.*, coalesce(r.free, j.max_in_flight, :room_each) AS free,
               CASE WHEN j.paced THEN coalesce(a.allowed, 0) END AS allowed,
               row_number() OVER (PARTITION BY judgement, j.endpoint ORDER BY suspect, next_attempt_at, id) AS place
          FROM judged j
          LEFT JOIN unnest(CAST(:endpoints AS bigint[]), CAST(:frees AS integer[])) AS r(endpoint, free)
            ON r.endpoint = j.endpoint
          LEFT JOIN unnest(CAST(:paced AS bigint[]), CAST(:allowed AS integer[])) AS a(endpoint, allowed)
            ON a.endpoint = j.endpoint),
    answered AS MATERIALIZED (
        SELECT q.*, CASE WHEN judgement <> 'due' THEN judgement
                         WHEN suspect AND :room_suspects = 0 THEN 'suspect'
                         WHEN place > allowed THEN 'paced'
                         WHEN place > free OR row_number() OVER (
                            PARTITION BY judgement, suspect, place > least(free, allowed) ORDER BY next_attempt_at, id)
                            > CASE WHEN suspect THEN :room_suspects ELSE :room END THEN 'no_room'
                         ELSE 'taken' END AS answer
          FROM queued q),
    changed AS (
        UPDATE duehook.deliveries d
           SET status = CASE a.answer WHEN 'taken' THEN 'leased' WHEN 'cancelled' THEN 'cancelled' ELSE 'dead' END,
               attempt = d.attempt + CASE a.answer WHEN 'taken' THEN 1 ELSE 0 END,
               abandoned = a.abandoned,
               token = CASE a.answer WHEN 'taken' THEN CAST(:token AS uuid) END,
               claimed_at = CASE a.answer WHEN 'taken' THEN now.at END,
               lease_until = CASE a.answer WHEN 'taken' THEN now.at + :lease END,
               reason = CASE a.answer WHEN 'buried' THEN 'age_exhausted' WHEN 'poisoned' THEN 'poison' END,
               parked = false, updated_at = now.at
          FROM answered a, (SELECT duehook.now() AS at OFFSET 0) now
         WHERE d.id = ANY (CAST(:ids AS bigint[])) AND d.id = a.id
           AND a.answer IN ('taken', 'buried', 'poisoned', 'cancelled')),
    abandoned AS (
        INSERT INTO duehook.attempts (delivery, number, outcome, started_at)
        SELECT id, attempt, 'abandoned', claimed_at FROM answered
         WHERE status = 'leased' AND answer IN ('taken', 'buried', 'poisoned', 'cancelled'))
    SELECT id, answer, event, endpoint, revision, attempt + 1 AS attempt, step, troubled, abandoned,
           status = 'leased' AS lapsed, extract(epoch FROM age_from)::double precision AS since,
           extract(epoch FROM at)::double precision AS claimed_at
      FROM answered""")

_EXISTING = text("/* deliveries.existing */ SELECT id FROM duehook.deliveries WHERE id = ANY (CAST(:ids AS bigint[]))")


def claim(
    connection: Connection,
    ids: Sequence[int],
    *,
    token: UUID,
    lease: timedelta,
    max_age: timedelta,
    room: int,
    room_each: int,
    room_of: Mapping[int, int],
    allowed: Mapping[int, int],
    room_suspects: int = 0,
) -> tuple[list[Claim], dict[int, Answer], dict[int, int]]:
    """Claim those of `ids` that are due and have room; the second value answers for every id.

    The third has the endpoints of those that found no room or no slot, or a disabled endpoint.

    `room` bounds the claims of this call, `room_each` those of one endpoint unless its own limit or `room_of` say
    otherwise. An endpoint that has a pace to keep needs its `allowed` claims, decided behind the lock of its pace. A
    lapsed lease is claimed anew: the abandoned one becomes an attempt without an outcome of its own, the step
    stays. A repeat finds its own lease and answers `held`. What was abandoned too often in a row is a suspect, whose
    claims `room_suspects` bounds, and in the end a dead letter.
    """
    parameters = {
        "ids": list(ids),
        "token": token,
        "lease": lease,
        "max_age": max_age,
        "room": room,
        "room_each": room_each,
        "endpoints": list(room_of),
        "frees": list(room_of.values()),
        "paced": list(allowed),
        "allowed": list(allowed.values()),
        "room_suspects": room_suspects,
        "suspected": SUSPECTED_AFTER,
        "poison": POISON_AFTER,
    }
    rows = connection.execute(_CLAIM, parameters).all()
    answers = {row.id: Answer(row.answer) for row in rows}
    claims = [  # the statement names its columns in the order of a claim's fields
        Claim(id, token, event, endpoint, *rest)
        for id, answer, event, endpoint, *rest in rows
        if answer == Answer.TAKEN
    ]
    if passed_over := [each for each in ids if each not in answers]:
        locked = set(connection.execute(_EXISTING, {"ids": passed_over}).scalars())
        answers |= {each: Answer.LOCKED if each in locked else Answer.GONE for each in passed_over}
    return claims, answers, {row.id: row.endpoint for row in rows if row.answer in TURNED_AWAY}


# Only what waits for nothing but its endpoint. Its own row of the outbox, and the endpoint's, follow by trigger.
_PARK = text("""/* deliveries.park */
    WITH free AS MATERIALIZED (
        SELECT id FROM duehook.deliveries
         WHERE id = ANY (CAST(:ids AS bigint[])) AND status = 'scheduled'
           AND next_attempt_at <= (SELECT duehook.now())
         ORDER BY id FOR UPDATE SKIP LOCKED),
    changed AS (
        UPDATE duehook.deliveries SET parked = true WHERE id = ANY (ARRAY(SELECT id FROM free)) AND NOT parked)
    SELECT id FROM free""")


def park(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Have these due deliveries wait for their endpoint's next slot; returns those that do, now or already.

    The others were claimed or ended meanwhile, are locked by somebody, or have a lapsed lease to be claimed.
    """
    return list(connection.execute(_PARK, {"ids": list(ids)}).scalars())


class Ending(NamedTuple):
    """What came of a claim: the attempt as seen, and what the schedule makes of it.

    `status` is delivered, dead (with `reason`) or scheduled (`after` from now, by the database's clock).
    """

    delivery: int
    token: UUID
    status: DeliveryStatus
    outcome: Outcome
    started_at: datetime
    ended_at: datetime
    after: timedelta = timedelta()
    reason: DeadReason | None = None
    status_code: int | None = None
    address: str | None = None
    key_ids: Sequence[str] = ()
    error: str | None = None
    excerpt: bytes | None = None
    location: str | None = None
    retry_after: timedelta | None = None


# The token alone decides. Locked in order first, because a cancel or a deletion locks many of them too; what somebody
# holds is passed over, so that one open transaction does not hold up the outcomes of two hundred others until their
# leases end. A cancel that was asked for while it was in the air, and the age, are decided from the row as the lock
# found it: the snapshot may be older than a cancel that has just been committed. One delivery may be told of by several
# tokens, an older claim's outcome beside the newer one's: the attempt is that of the token that ended it.
_RECORD = text("""/* deliveries.record */
    WITH told AS MATERIALIZED (
        SELECT * FROM unnest(
            CAST(:ids AS bigint[]), CAST(:tokens AS uuid[]), CAST(:statuses AS text[]), CAST(:outcomes AS text[]),
            CAST(:starts AS timestamptz[]), CAST(:ends AS timestamptz[]), CAST(:afters AS interval[]),
            CAST(:reasons AS text[]), CAST(:codes AS smallint[]), CAST(:addresses AS text[]),
            CAST(:key_ids AS text[]), CAST(:errors AS text[]), CAST(:excerpts AS bytea[]),
            CAST(:locations AS text[]), CAST(:hints AS interval[])
        ) AS t(id, token, status, outcome, started_at, ended_at, after, reason, status_code, address, key_ids, error,
               excerpt, location, retry_after)),
    mine AS MATERIALIZED (
        SELECT d.id, t.token, t.status, t.after, t.reason, d.cancel_requested, d.age_from
          FROM duehook.deliveries d JOIN told t ON t.id = d.id AND t.token = d.token
         WHERE d.id = ANY (CAST(:ids AS bigint[])) ORDER BY d.id FOR UPDATE OF d SKIP LOCKED),
    judged AS MATERIALIZED (
        SELECT m.id, m.token, now.at, now.at + m.after AS next_attempt_at, CASE
                WHEN m.status = 'delivered' THEN 'delivered'
                WHEN m.cancel_requested THEN 'cancelled'
                WHEN m.status = 'scheduled' AND now.at + m.after >= m.age_from + :max_age THEN 'dead'
                ELSE m.status END AS status,
               CASE WHEN m.status = 'scheduled' THEN 'age_exhausted' ELSE m.reason END AS reason
          FROM mine m, (SELECT duehook.now() AS at OFFSET 0) now),
    ended AS (
        UPDATE duehook.deliveries d
           SET status = j.status, step = least(d.step + 1, 32767), abandoned = 0, next_attempt_at = j.next_attempt_at,
               reason = CASE j.status WHEN 'dead' THEN j.reason END,
               delivered_at = CASE j.status WHEN 'delivered' THEN j.at END,
               token = NULL, claimed_at = NULL, lease_until = NULL, updated_at = j.at
          FROM judged j
         WHERE d.id = ANY (CAST(:ids AS bigint[])) AND d.id = j.id AND d.token = j.token
        RETURNING d.id, d.attempt, d.status),
    kept AS (
        INSERT INTO duehook.attempts (delivery, number, outcome, status_code, started_at, ended_at, address, key_ids,
                                      error, excerpt, location, retry_after)
        SELECT e.id, e.attempt, t.outcome, t.status_code, t.started_at, t.ended_at, t.address,
               string_to_array(t.key_ids, ' '), t.error, t.excerpt, t.location, t.retry_after
          FROM ended e JOIN judged j USING (id) JOIN told t ON t.id = j.id AND t.token = j.token)
    SELECT id, status FROM ended""")

_STILL = text("""/* deliveries.still_leased */
    SELECT d.id FROM duehook.deliveries d
      JOIN unnest(CAST(:ids AS bigint[]), CAST(:tokens AS uuid[])) AS t(id, token) ON t.id = d.id AND t.token = d.token
     WHERE d.id = ANY (CAST(:ids AS bigint[]))""")


def record(connection: Connection, endings: Sequence[Ending], *, max_age: timedelta) -> dict[int, DeliveryStatus]:
    """End claims with what came of them; returns the state of those that the tokens ended.

    One that is `leased` still is locked by somebody's open transaction: nothing is written, record it again. A
    delivery that is missing from the answer has been re-claimed, or was recorded before by the same token (a
    COMMIT whose answer was lost): somebody newer owns it, and nothing is written. A lapsed lease that nobody
    re-claimed still records. Of one token told twice the first counts.
    """
    endings = list({(ending.delivery, ending.token): ending for ending in reversed(endings)}.values())
    parameters = {
        "ids": [ending.delivery for ending in endings],
        "tokens": [ending.token for ending in endings],
        "statuses": [ending.status for ending in endings],
        "outcomes": [ending.outcome for ending in endings],
        "starts": [ending.started_at for ending in endings],
        "ends": [ending.ended_at for ending in endings],
        "afters": [ending.after for ending in endings],
        "reasons": [ending.reason for ending in endings],
        "codes": [ending.status_code for ending in endings],
        "addresses": [ending.address for ending in endings],
        "key_ids": [" ".join(ending.key_ids) or None for ending in endings],
        "errors": [_storable(ending.error) for ending in endings],
        "excerpts": [ending.excerpt for ending in endings],
        "locations": [_storable(ending.location) for ending in endings],
        "hints": [ending.retry_after for ending in endings],
        "max_age": max_age,
    }
    states = {row.id: DeliveryStatus(row.status) for row in connection.execute(_RECORD, parameters)}
    if missing := [ending for ending in endings if ending.delivery not in states]:
        parameters = {"ids": [each.delivery for each in missing], "tokens": [each.token for each in missing]}
        states |= dict.fromkeys(connection.execute(_STILL, parameters).scalars(), DeliveryStatus.LEASED)
    return states


def _storable(words: str | None) -> str | None:
    """What a receiver sends may hold NUL or half a surrogate pair; PostgreSQL's text takes neither."""
    return words and words.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


_GIVE_BACK = text("""/* deliveries.give_back */
    WITH mine AS MATERIALIZED (
        SELECT id FROM duehook.deliveries
         WHERE id = ANY (CAST(:ids AS bigint[])) AND token = :token ORDER BY id FOR UPDATE)
    UPDATE duehook.deliveries
       SET status = CASE WHEN cancel_requested THEN 'cancelled' ELSE 'scheduled' END,
           next_attempt_at = duehook.now() + :after, token = NULL, claimed_at = NULL, lease_until = NULL,
           updated_at = duehook.now()
     WHERE id = ANY (ARRAY(SELECT id FROM mine)) AND token = :token
    RETURNING id""")


def give_back(connection: Connection, ids: Sequence[int], *, token: UUID, after: timedelta) -> list[int]:
    """End claims that were never sent: due again in `after`, no attempt recorded, same step; returns them."""
    return list(connection.execute(_GIVE_BACK, {"ids": list(ids), "token": token, "after": after}).scalars())


# The token alone decides, as it does for the outcome: only a leased row has one. What somebody holds is passed over:
# while he holds it nobody can claim it, and who waited for him would let the leases of the others end.
_RENEW = text("""/* deliveries.renew */
    WITH mine AS MATERIALIZED (
        SELECT d.id FROM duehook.deliveries d
          JOIN unnest(CAST(:ids AS bigint[]), CAST(:tokens AS uuid[])) AS t(id, token)
            ON t.id = d.id AND t.token = d.token
         WHERE d.id = ANY (CAST(:ids AS bigint[])) ORDER BY d.id FOR UPDATE OF d SKIP LOCKED)
    UPDATE duehook.deliveries SET lease_until = now.at + :lease, updated_at = now.at
      FROM (SELECT duehook.now() AS at OFFSET 0) now
     WHERE id = ANY (ARRAY(SELECT id FROM mine))
    RETURNING id""")


def renew(connection: Connection, ids: Sequence[int], tokens: Sequence[UUID], lease: timedelta) -> list[int]:
    """Let claims hold for `lease` from now, each by its own token; returns those that do.

    What is missing belongs to somebody newer, has ended, or is locked by somebody: nothing of it is touched, and a
    repeat may find it free. A lapsed lease that nobody re-claimed is renewed, as it would record.
    """
    parameters = {"ids": list(ids), "tokens": list(tokens), "lease": lease}
    return list(connection.execute(_RENEW, parameters).scalars())


_CANCEL = text("""/* deliveries.cancel_of_event */
    WITH open AS MATERIALIZED (
        SELECT id FROM duehook.deliveries
         WHERE event = :event AND status IN ('scheduled', 'leased') ORDER BY id FOR UPDATE),
    ended AS (
        UPDATE duehook.deliveries
           SET status = CASE status WHEN 'scheduled' THEN 'cancelled' ELSE status END,
               cancel_requested = true, parked = false, updated_at = duehook.now()
         WHERE id = ANY (ARRAY(SELECT id FROM open)) AND status IN ('scheduled', 'leased')
        RETURNING status)
    SELECT count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
           count(*) FILTER (WHERE status = 'leased') AS in_flight,
           (SELECT count(*) FROM duehook.deliveries WHERE event = :event) - count(*) AS finished
      FROM ended""")


@dataclass(frozen=True, slots=True)
class Cancelled:
    """How many deliveries ended by the cancel, how many are in the air, how many were finished before."""

    cancelled: int
    in_flight: int
    finished: int


def cancel_of_event(connection: Connection, event: int) -> Cancelled:
    """Cancel what waits, and ask what is in the air to end as cancelled unless it is delivered.

    The event must be locked by an earlier statement: this one's snapshot has to see every delivery that a fan-out
    made which we waited for.
    """
    return Cancelled(**connection.execute(_CANCEL, {"event": event}).one()._mapping)
