"""The steps of events and deliveries, as rules; what endpoints add is in `test_endpoints`."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from app.core import by_hand, deliveries, events, redrives
from app.core.deliveries import Room, Terms
from app.core.events import Accepted, KeyTaken
from app.core.reservations import Refused
from app.domain.outcomes import Again, Bury, Done, verdict
from app.domain.states import DeliveryStatus, Outcome
from app.ledger import endpoints
from app.ledger.deliveries import Claim, Ending
from app.ledger.events import NewEvent
from tests.ledgers import TENANT
from tests.machines.ground import MAX_AGE, Ground, Rows
from tests.machines.ledger import LEASE, Ledger
from tests.machines.relaying import ALL, Relaying, beside, number, some
from tests.machines.things import HARDLY_CURABLE, Delivery, Endpoint, Event, follows

TERMS = Terms(LEASE, MAX_AGE)
STATUS = {Done: DeliveryStatus.DELIVERED, Again: DeliveryStatus.SCHEDULED, Bury: DeliveryStatus.DEAD}
OUTCOMES = [each for each in Outcome if each is not Outcome.ABANDONED]
kinds = st.sampled_from(["order.placed", "shop"])
keys = st.sampled_from([None, None, None, "first", "second"])
delays = st.sampled_from([None, None, None, 15, 100])
outcomes = st.sampled_from(OUTCOMES)


interruptions = st.sampled_from([None, None, None, None, "cancel", "cancel", "lease", "age"])


@dataclass
class Held:
    """A claim that was handed out once; whoever has it may do anything with it, at any time, and again."""

    claim: Claim
    delivery: Delivery
    claimed_at: datetime
    used: bool = False


class Deliveries(Relaying):
    """Three endpoints: of one more attempt is made, of one none, and one has the usual schedules."""

    tables: ClassVar[Collection[str]] = [
        *("events", "deliveries", "attempts", "dead letters", "outbox", "endpoints", "paces", "seats", "repairs")
    ]

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.ledger = Ledger(lambda: ground.clock.now, self.outbox, self.see)
        self.claims: list[Held] = []
        self.subscribe(("*",), schedule=())
        self.subscribe(("order.*",), schedule=(5.0,))
        self.subscribe(("order.placed", "shop"))

    def subscribe(
        self, patterns: tuple[str, ...], schedule: tuple[float, ...] | None = None, **members: Any
    ) -> Endpoint:
        made = self.ground.do(
            lambda connection: endpoints.insert(
                connection,
                TENANT,
                url="http://127.0.0.1:9/",
                event_types=patterns,
                retry_schedule=schedule,
                rate_per_second=members.get("rate"),
                max_in_flight=members.get("most"),
            )
        )
        self.ledger.endpoints.append(Endpoint(made.seq, patterns, schedule, **members))
        return self.ledger.endpoints[-1]

    def pick(self, index: int) -> Delivery:
        return self.ledger.deliveries[-1 - index % len(self.ledger.deliveries)]

    def picks(self, indexes: list[int]) -> list[Delivery]:
        return list(dict.fromkeys(self.pick(index) for index in indexes))

    def an_event(self, index: int) -> Event:
        return self.ledger.events[-1 - index % len(self.ledger.events)]

    def held(self, index: int, late: bool = False) -> Held:
        """By turns one that holds still, one that somebody newer has superseded, and any; `late`: past its lease."""
        older = [each for each in self.claims if not each.used and each.delivery.token != each.claim.token]
        some = [self.live(), older, self.claims][index % 3] or self.claims
        held = some[-1 - index // 3 % len(some)]
        if late and held in self.live() and held.delivery.lease_until is not None:
            self.go_on_to(held.delivery.lease_until, 0)
        return held

    def live(self) -> list[Held]:
        return [each for each in self.claims if each.delivery.token == each.claim.token]

    # Events

    @rule(batch=st.lists(st.tuples(kinds, keys, delays), min_size=1, max_size=3))
    def accept(self, batch: list[tuple[str, str | None, float | None]]) -> None:
        asked = [
            NewEvent(kind, '{"n": 1.0}', key, None, delay, None if delay is None else str(delay))
            for kind, key, delay in batch
        ]
        answers = self.ground.do(lambda connection: events.accept_each(connection, TENANT, asked))
        for one, answer in zip(asked, answers, strict=True):
            self.expect_accepted(one, answer)

    def expect_accepted(self, asked: NewEvent, answer: Accepted | KeyTaken) -> None:
        """The first of a key is made, whether it came in another batch or in this one."""
        key = ("producer", asked.key)
        existing = next((each for each in self.ledger.events if asked.key and (each.origin, each.key) == key), None)
        if existing is None:
            event = self.ledger.happen(asked.type, asked.key, delay=asked.delay_seconds or 0, request=asked.request)
            count = sum(each.event is event for each in self.ledger.deliveries)
            assert isinstance(answer, Accepted) and (answer.made, answer.deliveries) == (True, count)
            assert (answer.created_at, answer.due_at) == (event.created_at, event.due_at)
            event.seq = int(answer.id.removeprefix("evt_"), 16)
            self.see(*["an event waits for its time"] * event.waits)
        elif (existing.kind, existing.request) == (asked.type, asked.request):
            assert isinstance(answer, Accepted) and not answer.made and answer.id == f"evt_{existing.seq:x}"
            self.see("the same event again")
        else:
            assert isinstance(answer, KeyTaken) and answer.event.seq == existing.seq
            self.see("another event with the same key")

    @precondition(lambda self: self.ledger.events)
    @rule(indexes=some | st.just(ALL))
    def fan_out(self, indexes: list[int]) -> None:
        chosen = list(dict.fromkeys(map(self.an_event, indexes)))
        expected = {}
        for event in chosen:
            if not event.waits:
                expected[event.seq] = "gone"
                self.see(*["a cancelled event is not fanned out"] * (event.fanned_out_at is None))
            elif self.ledger.is_near(event):
                expected[event.seq] = "taken"
                self.ledger.fan_out(event)
                self.see("a waiting event is fanned out")
            else:
                expected[event.seq] = "early"
                self.outbox.sooner(event.seq, self.now)
        looked = events.fan_out(self.ground.engine, list(expected))
        assert (looked.answers, looked.again) == (expected, [])

    @precondition(lambda self: self.ledger.events)
    @rule(index=number)
    def cancel_event(self, index: int) -> None:
        event = self.an_event(index)
        expected = self.ledger.cancel_event(event)
        answer = self.ground.do(lambda connection: events.cancel(connection, TENANT, event.seq))
        assert answer is not None and (answer.cancelled, answer.in_flight, answer.finished) == expected
        self.see(*["an event is cancelled while a delivery is in the air"] * bool(expected[1]))

    @precondition(lambda self: self.ledger.events)
    @rule(index=number, column=st.sampled_from(["data = '{}'", "key = 'x'", "due_at = due_at + interval '1 s'"]))
    def sql_rewrites_an_event(self, index: int, column: str) -> None:
        """By the owner of the tables himself: its bytes, its key, its times."""
        event = self.an_event(index)
        statements = [column, "fanned_out_at = duehook.now() + interval '1 s'", "cancelled_at = NULL"]
        refused = [
            True,
            event.fanned_out_at is not None or event.cancelled_at is not None,
            event.cancelled_at is not None,
        ]
        for change, expected in zip(statements, refused, strict=True):
            if expected:
                statement: Any = f"UPDATE duehook.events SET {change} WHERE seq = %s"
                assert self.ground.refused(statement, event.seq) == "DH003"

    # Claims

    @precondition(lambda self: self.ledger.deliveries)
    @rule(
        indexes=some | st.just(ALL),
        total=st.sampled_from([1000, 1000, 1000, 1]),
        suspects=st.sampled_from([1000, 0, 1]),
    )
    def claim(self, indexes: list[int], total: int, suspects: int) -> None:
        some = self.picks(indexes)
        ids = [each.id for each in some]
        claimed = deliveries.claim(self.ground.engine, ids, TERMS, Room(total, 1000, {}, suspects))
        tokens = {each.delivery: each.token for each in claimed.claims}
        expected = self.ledger.claim(some, tokens, total, suspects)
        assert (claimed.looked.answers, claimed.looked.again) == (expected, [])
        assert set(tokens) == {each for each, answer in expected.items() if answer == "taken"}
        away = {each.id: each.endpoint.seq for each in some if expected[each.id] in ("no_room", "paced", "disabled")}
        assert claimed.turned_away == away
        by_id = {each.id: each for each in some}
        for claim in claimed.claims:
            one = by_id[claim.delivery]
            assert (claim.attempt, claim.step, claim.abandoned) == (one.attempt, one.step, one.abandoned)
            assert (claim.event, claim.endpoint, claim.revision) == (
                one.event.seq,
                one.endpoint.seq,
                one.endpoint.revision,
            )
            self.claims.append(Held(claim, one, self.now))
        self.see(*(f"answered {answer}" for answer in expected.values()))

    @precondition(lambda self: self.claims)
    @rule(indexes=st.lists(number, min_size=1, max_size=3), outcome=outcomes, late=st.booleans())
    def record(self, indexes: list[int], outcome: Outcome, late: bool = False) -> None:
        """Several at once, by any tokens there ever were: the newest, stale ones, one that was used, the same twice."""
        helds = [self.held(index, late) for index in indexes]
        expected: dict[int, str] = {}
        endings = [self.ending(held, outcome) for held in helds]
        for held in helds:
            self.expect_record(held, outcome, expected)
        assert deliveries.record(self.ground.engine, endings, max_age=MAX_AGE) == expected

    def ending(self, held: Held, outcome: Outcome) -> Ending:
        """As the engine makes one."""
        judged = verdict(
            outcome,
            step=held.claim.step,
            literal_blocked=False,
            schedule=held.delivery.endpoint.schedule,
            retry_after=None,
            jitter=0,
            max_retry_after=timedelta(hours=6),
        )
        return Ending(
            held.claim.delivery,
            held.claim.token,
            STATUS[type(judged)],
            outcome,
            held.claimed_at,
            self.now,
            after=judged.after if isinstance(judged, Again) else timedelta(),
            reason=judged.reason if isinstance(judged, Bury) else None,
        )

    def expect_record(self, held: Held, outcome: Outcome, expected: dict[int, str]) -> None:
        one, now = held.delivery, self.now
        if one.token != held.claim.token:
            self.see("a token is used twice" if held.used else "a stale record is refused")
            self.see(*["an older claim is refused while a newer one runs"] * (one.status == "leased"))
            return
        assert one.lease_until is not None
        self.see(*["a lapsed lease is recorded"] * (one.lease_until <= now))
        status, after, reason = follows(outcome, one.step, one.endpoint.schedule)
        if status != "delivered" and one.cancel_requested:
            status, reason = "cancelled", None
            self.see("cancel_requested met by a record")
        elif status == "scheduled" and now + after >= one.dies_at:
            status, reason = "dead", "age_exhausted"
            self.see("too old for another attempt")
        self.see(*["delivered although a cancel was asked for"] * (status == "delivered" and one.cancel_requested))
        self.see(*[f"died: {reason}"] * (status == "dead"))
        self.see(*["died of what only a person can change"] * (reason in HARDLY_CURABLE))
        self.ledger.attempts.append((one, one.attempt, outcome, held.claimed_at))
        ended = now if status == "delivered" else None
        members = {"step": one.step + 1, "abandoned": 0, "next_attempt_at": now + after, "reason": reason}
        self.ledger.end_claim(one, status, delivered_at=ended, **members)
        held.used = True
        expected[one.id] = status

    @precondition(lambda self: self.claims)
    @rule(index=number, seconds=st.sampled_from([0, 10]), cancelled=st.booleans())
    def give_back(self, index: int, seconds: int, cancelled: bool) -> None:
        held = self.held(index)
        if cancelled:
            self.cancel_delivery(self.ledger.deliveries[::-1].index(held.delivery))
        one, mine = held.delivery, held.claim.token == held.delivery.token
        if mine:
            status = "cancelled" if one.cancel_requested else "scheduled"
            self.see("given back", *["cancel_requested met by a give-back"] * one.cancel_requested)
            self.ledger.end_claim(one, status, next_attempt_at=self.now + timedelta(seconds=seconds))
            held.used = True
        given = deliveries.give_back(self.ground.engine, [held.claim], after=timedelta(seconds=seconds))
        assert given == [one.id] * mine

    @precondition(lambda self: self.claims)
    @rule(index=number, late=st.booleans())
    def renew(self, index: int, late: bool) -> None:
        held = self.held(index, late)
        one, mine = held.delivery, held.claim.token == held.delivery.token
        if mine and one.lease_until is not None:
            self.see("renewed", *["a lapsed lease is renewed"] * (one.lease_until <= self.now))
            self.ledger.change(one, lease_until=self.now + LEASE)
        assert deliveries.renew(self.ground.engine, {one.id: held.claim.token}, LEASE) == [one.id] * mine

    @precondition(lambda self: self.claims)
    @rule(index=number)
    def sender_dies(self, index: int) -> None:
        """Its parent tells at once, without waiting for the lease."""
        held = self.held(index)
        one, mine = held.delivery, held.claim.token == held.delivery.token
        if mine:
            self.see("abandoned by its parent")
            self.ledger.attempts.append((one, one.attempt, "abandoned", held.claimed_at))
            status = "cancelled" if one.cancel_requested else "scheduled"
            after = self.now + timedelta(seconds=5)
            self.ledger.end_claim(one, status, next_attempt_at=after, abandoned=one.abandoned + 1)
        assert deliveries.abandon(self.ground.engine, held.claim, after=timedelta(seconds=5)) is mine

    @precondition(lambda self: self.ledger.deliveries)
    @rule(index=number, beside=beside, times=st.sampled_from([1, 5]), suspects=st.sampled_from([0, 1, 9]))
    def lease_ends(self, index: int, beside: float, times: int, suspects: int) -> None:
        """Whoever comes then meets it on either side of its end; he may die of it, and the next one too."""
        if not self.live():
            self.claim(ALL, 1000, 1000)
        for _ in range(times):
            if live := self.live():
                one = live[-1 - index % len(live)].delivery
                assert one.lease_until is not None
                self.go_on_to(one.lease_until, beside)
                self.claim(ALL, 1000, suspects)

    @precondition(lambda self: self.ledger.deliveries)
    @rule(index=number, beside=beside, age=st.sampled_from([False, False, False, True]))
    def time_goes_on_to_a_delivery(self, index: int, beside: float, age: bool) -> None:
        """To its next attempt or to the end of its days, and there it is claimed."""
        one = self.pick(index)
        self.go_on_to(one.dies_at if age else one.next_attempt_at, beside)
        self.claim([index], 1000, 1000)

    @precondition(lambda self: self.ledger.deliveries)
    @rule(index=number, outcome=outcomes, meanwhile=interruptions, times=st.sampled_from([1, 3]))
    def is_sent(self, index: int, outcome: Outcome, meanwhile: str | None, times: int) -> None:
        """What happens every day, in one: claimed when it is due and recorded, or something comes between."""
        open_ones = [each for each in self.ledger.deliveries if not each.is_closed] or self.ledger.deliveries
        one = open_ones[-1 - index % len(open_ones)]
        place = self.ledger.deliveries[::-1].index(one)
        for _ in range(times):
            self.go_on_to(one.next_attempt_at, 0)
            self.claim([place], 1000, 1000)
            if one.lease_until is None:
                return
            if meanwhile == "cancel":
                self.cancel_delivery(place)
            elif meanwhile is not None:
                self.go_on_to(one.dies_at if meanwhile == "age" else one.lease_until, -0.001)
            held = next(held for held in self.claims if held.claim.token == one.token)
            self.record([3 * self.claims[::-1].index(held) + 2], outcome)

    @precondition(lambda self: self.ledger.deliveries)
    @rule(outcome=outcomes)
    def all_are_sent(self, outcome: Outcome) -> None:
        self.claim(ALL, 1000, 1000)
        if live := self.live():
            self.record([3 * place for place in range(len(live))], outcome)

    # By hand

    @precondition(lambda self: self.ledger.deliveries)
    @rule(index=number)
    def cancel_delivery(self, index: int) -> None:
        one = self.pick(index)
        refused = one.status in ("delivered", "dead")
        self.ledger.give_up(one)
        answer = self.ground.do(lambda connection: by_hand.cancel(connection, TENANT, one.id))
        assert isinstance(answer, Refused) is refused

    @precondition(lambda self: self.ledger.deliveries)
    @rule(index=number, redrive=st.booleans())
    def reopen(self, index: int, redrive: bool) -> None:
        ended = [each for each in self.ledger.deliveries if each.is_closed]
        waiting = [each for each in self.ledger.deliveries if each.status == "scheduled"]
        some = [ended, waiting, self.ledger.deliveries][index % 3] or self.ledger.deliveries
        one = some[-1 - index // 3 % len(some)]
        refused = redrive and one.status != "dead"
        was = one.status
        if not refused:
            refused = self.ledger.reopen(one) != "open"
            self.see(f"reopened: {was}" if not refused else f"not reopened: {was}")
        call = redrives.redrive if redrive else by_hand.retry
        answer = self.ground.do(lambda connection: call(connection, TENANT, one.id))
        assert isinstance(answer, Refused) is refused

    @precondition(lambda self: self.ledger.deliveries)
    @rule(index=number)
    def sql_breaks_a_delivery(self, index: int) -> None:
        """A second one of the same event and endpoint; a state that is not to be left; a token without a claim."""
        one, sql = self.pick(index), self.ground.refused
        twin = """INSERT INTO duehook.deliveries (event, endpoint, tenant, next_attempt_at, age_from)
            SELECT event, endpoint, tenant, next_attempt_at, age_from FROM duehook.deliveries WHERE id = %s"""
        assert sql(twin, one.id) == "23505"
        other = "UPDATE duehook.deliveries SET attempt = attempt + 1 WHERE id = %s"
        stolen = "UPDATE duehook.deliveries SET token = gen_random_uuid() WHERE id = %s"
        back = (
            """UPDATE duehook.deliveries SET status = 'scheduled', reason = NULL, delivered_at = NULL WHERE id = %s"""
        )
        if one.is_closed:
            assert [sql(back, one.id), sql(other, one.id)] == ["DH001", "DH001"]
        elif one.status == "leased":
            assert sql(stolen, one.id) == "DH001"
        else:
            assert sql(other, one.id) == "DH001"

    def expected(self, found: Rows) -> Rows:
        self.ledger.adopt(found)
        return self.ledger.rows()
