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
from uuid import UUID

import structlog
from sqlalchemy import Engine as Database

from app import metrics
from app.core import deliveries, endpoints, pacing
from app.core.clock import LedgerClock
from app.core.deliveries import Claimed, Room, Terms
from app.core.leases import Leases
from app.core.pacing import News
from app.core.parking import Parking
from app.core.requests import Request, Requests
from app.core.sets import PAUSE, Looked
from app.core.suspects import Suspects
from app.core.threads import start_vital
from app.core.waiting import Waiter, Waiting
from app.domain.exchange import Answered, Blocked, Phase, Unreached
from app.domain.identity import public_id
from app.domain.outcomes import Again, Bury, Done, outcome_of, verdict
from app.domain.pacing import Heard
from app.domain.retry_after import parse_retry_after
from app.domain.states import DeadReason, DeliveryStatus, Outcome
from app.domain.wakeups import Answer, Kind
from app.ledger.database import UNDONE, cause_of, in_transaction
from app.ledger.deliveries import Claim, Ending
from app.sending.engine import Engine, Places, Send, Sent

log = structlog.get_logger("duehook.delivery")

PATIENCE = 5.0  # seconds that a wake-up waits for room before its ids go back
MOMENT = 0.25  # seconds that an id waits here for its endpoint, if its pace is such that there will be a place
MOST_AHEAD = 200  # parked ids of one endpoint that wait here for their slots
MOST_UNTOLD = 1000  # outcomes that wait for the pace of their endpoint
MOST_RECORDS = 200  # outcomes in one statement
GATHER = 0.003  # seconds that the first outcome waits for others
SEALED = timedelta(seconds=30)  # until another process, with the right keys, may have it
LOOK = 0.1  # seconds between two looks at whether the wait for what is in the air is cut
ATTEMPTS = {each: metrics.ATTEMPTS.labels(each.value) for each in Outcome}  # looked up once, not for each attempt
ABOUT_ENDPOINT = (Outcome.GONE, Outcome.REJECTED)
STATUS = {Done: DeliveryStatus.DELIVERED, Again: DeliveryStatus.SCHEDULED, Bury: DeliveryStatus.DEAD}
TROUBLE = (0.05, 0.5)  # seconds between tries to record while the database is away
LOCKED = 0.05  # seconds between tries to record what somebody's open transaction holds


def _by_endpoint(endpoints: Mapping[int, int]) -> dict[int, list[int]]:
    """Ids by endpoint."""
    ids: dict[int, list[int]] = {}
    for each, endpoint in endpoints.items():
        ids.setdefault(endpoint, []).append(each)
    return ids


def _enabled(claimed: Claimed) -> dict[int, int]:
    """Those turned away that may have a place soon: a disabled endpoint has none, however long one waits."""
    disabled = set(claimed.looked.of(Answer.DISABLED))
    return {each: endpoint for each, endpoint in claimed.turned_away.items() if each not in disabled}


def _news(sent: Sent[Request], ending: Ending) -> News | None:
    """None where it changes nothing: a delivery without trouble before it, a gone endpoint, what our proxy refused."""
    request = sent.send.subject
    if ending.outcome is Outcome.GONE or (ending.outcome is Outcome.DELIVERED and not request.claim.troubled):
        return None
    if isinstance(sent.exchange, Unreached) and sent.exchange.phase is Phase.PROXY:
        return None
    said = " ".join(str(each) for each in (ending.status_code, ending.error, ending.location) if each is not None)
    return News(
        sent.send.endpoint,
        request.revision,
        Heard(ending.outcome, ending.started_at, ending.retry_after),
        f"{ending.outcome} ({said})" if said else ending.outcome,
    )


def _count(claim: Claim, ending: Ending, state: DeliveryStatus | None, now: float) -> None:
    """An attempt that was recorded at `now` and made it `state`; None: the claim had become somebody else's."""
    if state is None:
        metrics.NOOPS.labels(Kind.DELIVERY.value, "superseded").inc()
        return
    ATTEMPTS[ending.outcome].inc()
    metrics.CLAIM_TO_COMMIT.observe(now - claim.claimed_at)
    if claim.step:
        metrics.RETRY_AGE.observe(ending.started_at.timestamp() - claim.since)
    if state is DeliveryStatus.DELIVERED:
        metrics.DELIVERY_LAG.observe(ending.ended_at.timestamp() - claim.since)
    if state is DeliveryStatus.DEAD:  # without a reason of its own it was to be tried again, and is too old for that
        metrics.DEAD.labels((ending.reason or DeadReason.AGE_EXHAUSTED).value).inc()


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
        disable_after: timedelta,
        child: Sequence[str],
    ) -> None:
        self._database = database
        self._clock = clock
        self._requests = requests
        self._places = places
        self._terms = terms
        self._max_retry_after = max_retry_after
        self._disable_after = disable_after
        self._untold: list[News] = []
        self._waiting = Waiting()
        self._claiming = threading.Lock()
        self._sent: queue.SimpleQueue[Sent[Request] | None] = queue.SimpleQueue()
        self._caught_up = threading.Event()  # no outcome waits for a database that was away
        self._caught_up.set()
        self._leases = Leases(
            self._renew, lease=terms.lease.total_seconds(), deadline=requests.deadline.total_seconds()
        )
        self._recorder = start_vital("recorder", self._record_all)
        self._engine = make_engine(self._sent.put)
        self._suspects = Suspects(
            database,
            child,
            self._claim_suspect,
            lambda claim: places.give([claim.endpoint]),
            deadline=requests.deadline.total_seconds(),
        )
        self._parking = Parking(database)
        self._seating = start_vital("waiting", self._seat_all)

    @property
    def room(self) -> int:
        """How many more could be sent now."""
        return self._free(0, 0)

    def deliver(self, ids: Sequence[int]) -> Looked:
        """Claim and start what is due of `ids`, as room comes free; what finds none in time goes back.

        Who has no place at its endpoint holds up nobody: it waits here if there will be one in a moment, or is parked.
        """
        looked, left, until = Looked(), list(ids), time.monotonic() + PATIENCE
        claimed: list[Claimed] = []
        with self._claiming:
            while left and (free := self._free(len(left), until)):
                claimed.append(self._claim(left[:free], free))
                left = left[free:]
        for one in claimed:
            looked.add(one.looked)
            looked.add(self._turn_away(one))
        if left:
            looked.add(deliveries.put_off(self._database, left))
        return looked

    def attend(self, ids: Sequence[int]) -> Looked:
        """Give the next slots of endpoints (by id) to deliveries that are parked for them, which wait for them here."""
        attended = pacing.attend(self._database, {each: self._most_ahead(each) for each in ids})
        until = time.monotonic() + pacing.AHEAD.total_seconds()
        self._waiting.expect(ids, attended.more, until)
        self._waiting.add(
            Waiter(delivery, endpoint, slot.timestamp(), until, parked=True)
            for endpoint, slots in attended.slots.items()
            for slot, delivery in slots
        )
        self._places.call()
        return attended.looked

    def _most_ahead(self, endpoint: int) -> int:
        """As many as will find a place here while the slots are given that far ahead, or as may do so at once."""
        soon = self._places.share(endpoint) + self._places.soon(endpoint, pacing.AHEAD.total_seconds())
        return min(MOST_AHEAD, max(soon, self._places.limit_of(endpoint)))

    def _look_for_more(self) -> None:
        """Look again at once where more is parked and places come free faster than the looks would: no need to wait."""
        if short := self._waiting.short(lambda each: self._places.share(each) and self._places.limit_of(each)):
            self.attend(short)

    def _turn_away(self, claimed: Claimed) -> Looked:
        """Park those whose endpoint takes nothing, but for those that it will have a place for in a moment.

        For a quick endpoint the caller waits that long until it will have one for all of them: what else is due for it
        stays in the ledger meanwhile, where it is shared fairly, and is not parked in vain.
        """
        now, until = self._clock.time(), time.monotonic() + MOMENT
        waiters: list[Waiter] = []
        for endpoint, ids in _by_endpoint(_enabled(claimed)).items():
            paced = endpoint in claimed.slots
            slot = claimed.slots[endpoint].timestamp() if paced else now
            number = min(1, self._more(endpoint)) if paced else self._more_for(endpoint, len(ids), until)
            if slot <= now + MOMENT and number > 0:
                waiters += [Waiter(each, endpoint, slot, until + MOMENT) for each in ids[:number]]
        self._waiting.add(waiters)
        waiting = dict.fromkeys((each.delivery for each in waiters), Answer.WAITING)
        rest = claimed.turned_away.keys() - waiting.keys()
        self._parking.add(rest)
        return Looked(waiting | dict.fromkeys(rest, Answer.PARKED))

    def _more(self, endpoint: int) -> int:
        """For how many more than wait already an endpoint has a place in a moment."""
        return self._places.soon(endpoint, MOMENT) - self._waiting.number(endpoint)

    def _more_for(self, endpoint: int, wanted: int, until: float) -> int:
        """The same, once it is `wanted` if the endpoint is quick."""
        while (more := self._more(endpoint)) < wanted and self._places.quick(endpoint, MOMENT):
            if (patience := until - time.monotonic()) <= 0:
                break
            self._places.wait_for_change(patience)
        return more

    def _seat_all(self) -> None:
        """Claim for those that wait here as their slots come and places are free."""
        while self._waiting.wait():
            self._places.wait_for_change(self._waiting.next_slot(self._clock.time(), most=MOMENT))
            try:
                self._leave(self._waiting.take_late())
                self._look_for_more()
                if free := self._free(0, 0):
                    self._seat(self._waiting.take(self._clock.time(), self._places.share, free), free)
            except UNDONE as error:
                log.warning("waiting_goes_on", error=cause_of(error))
                time.sleep(TROUBLE[1])

    def _seat(self, waiters: Sequence[Waiter], free: int) -> None:
        if not waiters:
            return
        by_id = {each.delivery: each for each in waiters}
        try:
            with self._claiming:
                claimed = self._claim(list(by_id), free)
        except UNDONE:
            self._waiting.add(waiters)
            raise
        log.info("seated", **claimed.looked.count(Kind.DELIVERY))
        now = self._clock.time()
        slots = {endpoint: slot.timestamp() for endpoint, slot in claimed.slots.items()}
        again = _enabled(claimed)
        self._waiting.add(replace(by_id[each], slot=slots.get(endpoint, now)) for each, endpoint in again.items())
        self._leave([by_id[each] for each in claimed.turned_away.keys() - again.keys()])
        self._waiting.add(replace(by_id[each], slot=now + PAUSE.total_seconds()) for each in claimed.looked.again)

    def _leave(self, late: Sequence[Waiter]) -> None:
        """Who has waited here in vain is woken by its endpoint's row from now on."""
        self._parking.add([each.delivery for each in late if not each.parked])

    def _free(self, wanted: int, until: float) -> int:
        """Places that are free in time; none while outcomes wait for a database that was away.

        Their leases may have ended meanwhile, and it must not be this very process that claims them again.
        """
        if not self._caught_up.wait(max(0.0, until - time.monotonic())):
            return 0
        return self._places.free(wanted, max(0.0, until - time.monotonic()))

    def _claim(self, ids: Sequence[int], free: int) -> Claimed:
        each, of = self._places.shares()
        room = Room(total=free, each=each, of=of)
        claimed_at = time.monotonic()
        claimed = deliveries.claim(self._database, ids, self._terms, room)
        self._suspects.add(claimed.looked.of(Answer.SUSPECT))
        if claimed.claims:
            self.send(claimed.claims, claimed_at)
        return claimed

    def send(self, claims: Sequence[Claim], claimed_at: float) -> None:
        """Start what was claimed; `claimed_at` is the monotonic time before that. A lease that has ended goes back."""
        prepared = self._requests.prepare(claims, self._clock.now())
        if time.monotonic() >= claimed_at + self._terms.lease.total_seconds():
            log.warning("lease_ended_before_the_send", claims=len(claims))
            deliveries.give_back(self._database, claims)  # somebody else may have sent them by now
            return
        self._places.take([send.endpoint for send in prepared.sends])
        self._leases.keep([send.subject.claim for send in prepared.sends], claimed_at)
        self._engine.start(prepared.sends)
        if prepared.erased:
            deliveries.give_back(self._database, prepared.erased)
        if prepared.sealed:
            deliveries.give_back(self._database, prepared.sealed, after=SEALED)
        if prepared.unsendable:
            self._bury(prepared.unsendable)

    def settle(self) -> None:
        """Wait until all that was started is recorded, however long that takes."""
        while not self._places.drain(LOOK):
            pass

    def _claim_suspect(self, delivery: int) -> tuple[Claim, float] | None:
        """Its place is taken until the child has ended with it."""
        with self._claiming:
            if not self._free(1, time.monotonic()):
                return None
            each, of = self._places.shares()
            claimed_at = time.monotonic()
            room = Room(total=0, each=each, of=of, suspects=1)
            claimed = deliveries.claim(self._database, [delivery], self._terms, room)
            self._places.take([claim.endpoint for claim in claimed.claims])
        self._parking.add(claimed.turned_away)
        return (claimed.claims[0], claimed_at) if claimed.claims else None

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
        states = deliveries.record(self._database, endings, max_age=self._terms.max_age)
        metrics.DEAD.labels(DeadReason.POISON.value).inc(len(states))
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
        self._suspects.hurry()
        self._places.hurry()

    def stop(self, cut: Callable[[], bool] = lambda: False) -> None:
        """Wait for what is in the air, or until `cut`; record it, end; the rest comes up again when its lease ends."""
        self._suspects.hurry()
        waiters = self._waiting.close()
        self._seating.join(PATIENCE)
        self._put_off([each.delivery for each in waiters if not each.parked] + self._parking.close())
        until = time.monotonic() + self._requests.deadline.total_seconds() + PATIENCE
        while not cut() and time.monotonic() < until and not self._places.drain(LOOK):
            pass
        self._suspects.stop(0.0 if cut() else PATIENCE)
        self._leases.stop()
        self._engine.stop()
        self._sent.put(None)
        self._recorder.join(PATIENCE)

    def _put_off(self, ids: Sequence[int]) -> None:
        try:
            deliveries.put_off(self._database, sorted(ids))
        except UNDONE as error:  # their publish leases end anyway; what is in the air must still be waited for
            log.warning("held_until_publish_lease", ids=len(ids), error=cause_of(error))

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
        self._tell(ended, states)
        known = [(one, ending) for one, ending in ended if ending.delivery in states]
        for one, ending in known:
            if ending.outcome in ABOUT_ENDPOINT:
                self._hear(one.send, ending.outcome)
        self._hear_paces([news for one, ending in known if (news := _news(one, ending))])
        self._places.give([one.send.endpoint for one, _ in ended])  # last: who gets them must know of a closed endpoint

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

    def _hear_paces(self, news: Sequence[News]) -> None:
        """What could not be told, for somebody held the pace, is told with what comes next."""
        self._untold = [*self._untold, *news][-MOST_UNTOLD:]
        if self._untold:
            try:
                self._untold = pacing.hear(self._database, self._untold, self._disable_after)
            except UNDONE as error:
                log.warning("paces_not_told", endpoints=len(self._untold), error=cause_of(error))

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
        answered = exchange if isinstance(exchange, Answered) else None
        return Ending(
            request.claim.delivery,
            request.claim.token,
            STATUS[type(judged)],
            outcome,
            started,
            ended,
            after=judged.after if isinstance(judged, Again) else timedelta(),
            reason=judged.reason if isinstance(judged, Bury) else None,
            status_code=answered.status if answered else None,
            address=exchange.address,
            key_ids=request.key_ids,
            error=None if isinstance(exchange, Answered) else exchange.error,
            excerpt=answered.excerpt if answered else None,
            location=answered.location if answered else None,
            retry_after=hint,
        )

    def _tell(self, ended: Sequence[tuple[Sent[Request], Ending]], states: Mapping[int, DeliveryStatus]) -> None:
        now = self._clock.time()
        for one, ending in ended:
            _count(one.send.subject.claim, ending, states.get(ending.delivery), now)
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
