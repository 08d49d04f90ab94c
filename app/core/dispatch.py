"""From a wake-up of deliveries to recorded outcomes: claim what has room → send → record by token.

Room is taken before the claim, so that no claim waits anywhere while its lease runs. What could not be recorded
because the database was away is kept and tried again, before anything else is claimed or renewed; if this process
dies first, the leases end and heal.
"""

import math
import queue
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID

import structlog
from sqlalchemy import Engine as Database

from app.core import deliveries, endpoints
from app.core.clock import LedgerClock
from app.core.deliveries import Room, Terms
from app.core.leases import Leases
from app.core.requests import Request, Requests
from app.core.sets import PAUSE, Looked
from app.core.threads import start_vital
from app.domain.exchange import Answered, Blocked
from app.domain.identity import public_id
from app.domain.outcomes import Again, Bury, Done, outcome_of, verdict
from app.domain.retry_after import parse_retry_after
from app.domain.states import DeadReason, DeliveryStatus, Outcome
from app.domain.wakeups import Answer
from app.ledger.database import UNDONE, cause_of, in_transaction
from app.ledger.deliveries import Claim, Ending
from app.sending.engine import Engine, Places, Send, Sent

log = structlog.get_logger("duehook.delivery")

PATIENCE = 5.0  # seconds that a wake-up waits for room before its ids go back
MOMENT = 0.25  # seconds that an id waits for its endpoint, if its pace is such that there will be a place
GLANCE = 0.02  # seconds between looks whether there is
MOST_RECORDS = 200  # outcomes in one statement
GATHER = 0.003  # seconds that the first outcome waits for others
SEALED = timedelta(seconds=30)  # until another process, with the right keys, may have it
LOOK = 0.1  # seconds between two looks at whether the wait for what is in the air is cut
ABOUT_ENDPOINT = (Outcome.GONE, Outcome.REJECTED)
STATUS = {Done: DeliveryStatus.DELIVERED, Again: DeliveryStatus.SCHEDULED, Bury: DeliveryStatus.DEAD}
TROUBLE = (0.05, 0.5)  # seconds between tries to record while the database is away
LOCKED = 0.05  # seconds between tries to record what somebody's open transaction holds


class Dispatcher:
    """Delivers; `deliver` may be called from several threads, claims are made by one at a time."""

    def __init__(
        self,
        database: Database,
        clock: LedgerClock,
        requests: Requests,
        make_engine: Callable[[Callable[[Sent[Request]], None]], Engine[Request]],
        places: Places,
        terms: Terms,
        max_retry_after: timedelta,
    ) -> None:
        self._database = database
        self._clock = clock
        self._requests = requests
        self._places = places
        self._terms = terms
        self._max_retry_after = max_retry_after
        self._claiming = threading.Lock()
        self._sent: queue.SimpleQueue[Sent[Request] | None] = queue.SimpleQueue()
        self._caught_up = threading.Event()  # no outcome waits for a database that was away
        self._caught_up.set()
        self._leases = Leases(
            self._renew, lease=terms.lease.total_seconds(), deadline=requests.deadline.total_seconds()
        )
        self._recorder = start_vital("recorder", self._record_all)
        self._engine = make_engine(self._sent.put)

    @property
    def room(self) -> int:
        """How many more could be sent now."""
        return self._free(0, 0)

    def deliver(self, ids: Sequence[int]) -> Looked:
        """Claim and start what is due of `ids`, as room comes free; what finds none in time goes back.

        Who waits for its endpoint holds up nobody else: the others of this call have begun, other calls go on.
        """
        looked = Looked()
        left, until = list(ids), time.monotonic() + MOMENT
        while left:
            left = self._claim_all(left, looked, patient=time.monotonic() < until)
            if left:
                self._places.wait_for_change(GLANCE)
        return looked

    def _claim_all(self, ids: Sequence[int], looked: Looked, *, patient: bool) -> list[int]:
        """Returns those that wait for their endpoint; nobody does who is not `patient`."""
        left, until = list(ids), time.monotonic() + PATIENCE
        with self._claiming:
            while left:
                free = self._free(len(left), until)
                some, left = (left[:free], left[free:]) if free else (left, [])
                one = self._claim(some, free, patient)
                looked.answers |= one.answers
                looked.again += one.again
        return [each for each in ids if looked.answers.get(each) is Answer.WAITING]

    def _turn_away(self, crowded: Mapping[int, int], *, patient: bool) -> dict[int, timedelta]:
        """How long each of those goes back for whose endpoint, by its pace, will have no place in a moment."""
        by_endpoint: dict[int, list[int]] = {}
        for each, endpoint in crowded.items():
            by_endpoint.setdefault(endpoint, []).append(each)
        away = {}
        for endpoint, ids in by_endpoint.items():
            soon = self._places.soon(endpoint, MOMENT) if patient else 0
            away.update(dict.fromkeys(ids[soon:], self._pause(endpoint)))
        return away

    def _pause(self, endpoint: int) -> timedelta:
        """Until its places have been used once more: a receiver that hangs is not asked about every second."""
        turnover = timedelta(seconds=math.ceil(self._places.turnover(endpoint)))
        return min(max(PAUSE, turnover), max(PAUSE, self._requests.deadline))

    def _free(self, wanted: int, until: float) -> int:
        """Places that are free in time; none while outcomes wait for a database that was away.

        Their leases may have ended meanwhile, and it must not be this very process that claims them again.
        """
        if not self._caught_up.wait(max(0.0, until - time.monotonic())):
            return 0
        return self._places.free(wanted, max(0.0, until - time.monotonic()))

    def _claim(self, ids: Sequence[int], free: int, patient: bool) -> Looked:
        each, of = self._places.shares()
        room = Room(total=free, each=each, of=of)
        claimed_at = time.monotonic()
        turn_away = partial(self._turn_away, patient=patient)
        claimed = deliveries.claim(self._database, ids, self._terms, room, turn_away)
        if claimed.claims:
            prepared = self._requests.prepare(claimed.claims, self._clock.now())
            if time.monotonic() >= claimed_at + self._terms.lease.total_seconds():
                log.warning("lease_ended_before_the_send", claims=len(claimed.claims))
                deliveries.give_back(self._database, claimed.claims)  # somebody else may have sent them by now
                return claimed.looked
            self._places.take([send.endpoint for send in prepared.sends])
            self._leases.keep([send.subject.claim for send in prepared.sends], claimed_at)
            self._engine.start(prepared.sends)
            if prepared.sealed:
                deliveries.give_back(self._database, prepared.sealed, after=SEALED)
            if prepared.unsendable:
                self._bury(prepared.unsendable)
        return claimed.looked

    def _bury(self, unsendable: Sequence[tuple[Claim, str]]) -> None:
        """What can never be sent is a dead letter at once: it must not come up for ever, nor stop what is behind it."""
        now = self._clock.now()
        endings = [
            Ending(
                claim.delivery,
                claim.token,
                DeliveryStatus.DEAD,
                Outcome.UNREACHED,  # the receiver can't have it
                now,
                now,
                reason=DeadReason.POISON,
                error=why,
            )
            for claim, why in unsendable
        ]
        deliveries.record(self._database, endings, max_age=self._terms.max_age)
        for claim, why in unsendable:
            log.error("unsendable", delivery=public_id("dlv", claim.delivery), why=why)

    def _renew(self, tokens: Mapping[int, UUID]) -> Collection[int]:
        if not self._caught_up.is_set():
            return ()
        try:
            renewed = deliveries.renew(self._database, tokens, self._terms.lease)
        except UNDONE as error:  # tried again in a moment, for as long as the sends may take
            log.warning("renewal_failed", error=cause_of(error), leases=len(tokens))
            return ()
        log.info("renewed", leases=len(renewed), of=len(tokens))
        return renewed

    def hurry(self) -> None:
        """The end is near: what finds no room goes back at once."""
        self._places.hurry()

    def stop(self, cut: Callable[[], bool] = lambda: False) -> None:
        """Wait for what is in the air, or until `cut`; record it, end; the rest comes up again when its lease ends."""
        until = time.monotonic() + self._requests.deadline.total_seconds() + PATIENCE
        while not cut() and time.monotonic() < until and not self._places.drain(LOOK):
            pass
        self._leases.stop()
        self._engine.stop()
        self._sent.put(None)
        self._recorder.join(PATIENCE)

    def _record_all(self) -> None:
        locked: list[Sent[Request]] = []
        while batch := self._next_batch(locked):
            locked = self._record(batch)

    def _next_batch(self, locked: Sequence[Sent[Request]]) -> list[Sent[Request]]:
        """Waits for an outcome, then a moment for others; what was `locked` comes again after a moment anyway.

        Empty when stopped.
        """
        batch, until = list(locked), time.monotonic() + LOCKED if locked else math.inf
        while len(batch) < len(locked) + MOST_RECORDS:
            try:
                one = self._sent.get(timeout=None if until == math.inf else max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if one is None:
                self._sent.put(None)
                return batch if len(batch) > len(locked) else []
            batch.append(one)
            until = min(until, time.monotonic() + GATHER)
        return batch

    def _record(self, batch: Sequence[Sent[Request]]) -> list[Sent[Request]]:
        """Records until the database has taken it; returns what somebody's open transaction holds."""
        endings = [self._ending(one) for one in batch]
        pause = TROUBLE[0]
        while True:
            try:
                states = deliveries.record(self._database, endings, max_age=self._terms.max_age)
                break
            except UNDONE as error:  # the same tokens again are safe: what was recorded is found recorded
                self._caught_up.clear()
                log.warning("record_waits", error=cause_of(error), endings=len(endings), seconds=pause)
                time.sleep(pause)
                pause = min(pause * 2, TROUBLE[1])
        if self._sent.empty():
            self._caught_up.set()
        locked = {each for each, state in states.items() if state is DeliveryStatus.LEASED}
        self._end([pair for pair in zip(batch, endings, strict=True) if pair[1].delivery not in locked], states)
        return [one for one in batch if one.send.subject.claim.delivery in locked]

    def _end(self, ended: Sequence[tuple[Sent[Request], Ending]], states: Mapping[int, DeliveryStatus]) -> None:
        self._leases.drop([one.send.subject.claim for one, _ in ended])
        self._places.give([one.send.endpoint for one, _ in ended])
        self._tell(ended, states)
        for one, ending in ended:
            if ending.outcome in ABOUT_ENDPOINT and ending.delivery in states:
                self._hear(one.send, ending.outcome)

    def _hear(self, send: Send[Request], outcome: Outcome) -> None:
        endpoint, request = send.endpoint, send.subject
        try:
            in_transaction(
                self._database,
                lambda connection: endpoints.hear(
                    connection, endpoint, request.revision, outcome, event=request.claim.event
                ),
            )
        except UNDONE as error:  # the next delivery's outcome says it again
            log.warning("endpoint_not_told", endpoint=public_id("end", endpoint), error=cause_of(error))

    def _ending(self, sent: Sent[Request]) -> Ending:
        request, exchange = sent.send.subject, sent.exchange
        started, ended = (self._clock.at(at) for at in (sent.started, sent.ended))
        hint = parse_retry_after(exchange.retry_after, ended) if isinstance(exchange, Answered) else None
        outcome = outcome_of(exchange)
        judged = verdict(
            outcome,
            step=request.claim.step,
            schedule=request.schedule,
            literal_blocked=isinstance(exchange, Blocked) and exchange.literal,
            retry_after=hint,
            max_retry_after=self._max_retry_after,
            jitter=random.random(),
        )
        ending = Ending(
            request.claim.delivery,
            request.claim.token,
            STATUS[type(judged)],
            outcome,
            started,
            ended,
            after=judged.after if isinstance(judged, Again) else timedelta(),
            reason=judged.reason if isinstance(judged, Bury) else None,
            address=exchange.address,
            key_ids=request.key_ids,
        )
        if not isinstance(exchange, Answered):
            return replace(ending, error=exchange.error)
        return replace(
            ending,
            status_code=exchange.status,
            excerpt=exchange.excerpt,
            location=exchange.location,
            retry_after=hint,
        )

    def _tell(self, ended: Sequence[tuple[Sent[Request], Ending]], states: Mapping[int, DeliveryStatus]) -> None:
        for one, ending in ended:
            log.info(
                "attempt",
                delivery=public_id("dlv", ending.delivery),
                event_id=public_id("evt", one.send.subject.claim.event),
                endpoint=public_id("end", one.send.endpoint),
                attempt=one.send.subject.claim.attempt,
                outcome=ending.outcome.value,
                status_code=ending.status_code,
                seconds=round(one.ended - one.started, 4),
                state=states.get(ending.delivery, "superseded"),
            )
