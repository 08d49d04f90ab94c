"""Events and deliveries as a model: what each step must change, by the design's invariants and nothing else."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tests.machines.ground import HORIZON, Row, Rows
from tests.machines.outbox import Outbox
from tests.machines.pace import Paces
from tests.machines.things import POISON, SUSPECTED, Delivery, Endpoint, Event

LEASE = timedelta(seconds=45)
ENDS = {"cancelled": "cancelled", "buried": "dead", "poisoned": "dead"}
REASONS = {"buried": "age_exhausted", "poisoned": "poison"}


class Ledger:
    """`now` asks the clock; everything is by object, the database's numbers are taken over by `adopt`."""

    def __init__(self, now: Callable[[], datetime], outbox: Outbox, see: Callable[..., None]) -> None:
        self.now = now
        self.outbox = outbox
        self.see = see
        self.endpoints: list[Endpoint] = []
        self.events: list[Event] = []
        self.deliveries: list[Delivery] = []
        self.attempts: list[tuple[Delivery, int, str, datetime]] = []
        self.paces = Paces(now)

    # Events

    def happen(
        self,
        kind: str,
        key: str | None = None,
        *,
        origin: str = "producer",
        delay: float = 0,
        request: str | None = None,
        only_to: Endpoint | None = None,
        not_to: Endpoint | None = None,
    ) -> Event:
        """A new event, fanned out at once if its time is near."""
        due = self.now() + timedelta(seconds=delay)
        event = Event(origin, kind, key, due, self.now(), request, only_to, not_to)
        self.events.append(event)
        if self.is_near(event):
            self.fan_out(event)
        return event

    def is_near(self, event: Event) -> bool:
        return event.due_at <= self.now() + HORIZON

    def fan_out(self, event: Event) -> None:
        event.fanned_out_at = self.now()
        self.outbox.close(event.seq)
        self.deliveries += [
            Delivery(event, endpoint, event.due_at, event.due_at)
            for endpoint in self.endpoints
            if event.is_for(endpoint)
        ]

    def cancel_event(self, event: Event) -> tuple[int, int, int]:
        event.cancelled_at = event.cancelled_at or self.now()
        if event.waits or event.fanned_out_at is None:
            self.outbox.close(event.seq)
        mine = [each for each in self.deliveries if each.event is event]
        before = Counter(each.status for each in mine)
        for each in mine:
            self.give_up(each)
        return before["scheduled"], before["leased"], len(mine) - before["scheduled"] - before["leased"]

    # Deliveries

    def change(self, one: Delivery, **members: object) -> None:
        """The one place where a delivery changes, and its row of the outbox with it."""
        before = (one.status, one.next_attempt_at, one.lease_until, one.parked)
        for name, value in members.items():
            setattr(one, name, value)
        if one.is_closed:
            self.outbox.close(one.id)
        elif before != (one.status, one.next_attempt_at, one.lease_until, one.parked):
            self.outbox.set(one.id, "delivery", one.endpoint.seq, *one.looks())
        if one.status == "dead":
            one.died_at = one.died_at or self.now()
        if one.parked and one.endpoint.seq not in self.outbox.looks:
            self.outbox.set(one.endpoint.seq, "endpoint", one.endpoint.seq, self.now(), self.now())

    def end_claim(self, one: Delivery, status: str, **members: object) -> None:
        self.change(one, status=status, token=None, claimed_at=None, lease_until=None, **members)

    def give_up(self, one: Delivery) -> None:
        """What waits ends; what is in the air is asked to."""
        if one.status == "scheduled":
            self.change(one, status="cancelled", cancel_requested=True, parked=False)
        elif one.status == "leased":
            one.cancel_requested = True

    def claim(self, some: Sequence[Delivery], tokens: Mapping[int, UUID], total: int, suspects: int) -> dict[int, str]:
        """The answers by id; `tokens` are those handed out. Endpoints with a pace come second, behind its lock."""
        answers = {each.id: self.judge(each) for each in some}
        due = [each for each in some if answers[each.id] == "due"]
        answers |= self.seat(due, total, suspects, {})
        paced = [each for each in due if answers[each.id] == "paced"]
        taken = [each for each in due if answers[each.id] == "taken"]
        are_suspect = sum(map(self.is_suspect, taken))
        self.carry_out(some, answers, tokens)
        endpoints = list(dict.fromkeys(each.endpoint for each in paced))
        allowed = {endpoint: self.paces.lock(endpoint) for endpoint in endpoints}
        full = [each for each in endpoints if each.most is not None and self.paces.in_flight(each) >= each.most]
        self.see(*["a fleet-wide limit is reached"] * bool(full))
        second = self.seat(paced, total - len(taken) + are_suspect, suspects - are_suspect, allowed)
        probes = [each for each in paced if second[each.id] == "taken" and each.endpoint.closed_until is not None]
        self.see(*["a probe is claimed"] * bool(probes))
        self.carry_out(paced, second, tokens)
        for endpoint in endpoints:
            self.paces.grant(
                endpoint, [each for each in paced if (each.endpoint, second[each.id]) == (endpoint, "taken")]
            )
        return answers | second

    def judge(self, one: Delivery) -> str:
        lapsed = one.lease_until is not None and one.lease_until <= self.now()
        if one.is_closed:
            return "gone"
        if one.status == "leased" and not lapsed:
            return "held"
        if one.cancel_requested or one.endpoint.deleted:
            return "cancelled"
        if one.dies_at <= self.now():
            return "buried"
        if one.abandoned + lapsed >= POISON:
            return "poisoned"
        if not lapsed and one.next_attempt_at > self.now():
            return "early"
        return "disabled" if one.endpoint.status == "disabled" else "due"

    def seat(
        self, due: Sequence[Delivery], total: int, suspects: int, allowed: Mapping[Endpoint, int]
    ) -> dict[int, str]:
        """Who of what is due gets a place: the longest due first, suspects last of their endpoint."""
        in_turn = sorted(due, key=lambda each: (each.next_attempt_at, each.id))
        places: Counter[Endpoint] = Counter()
        answers, left = {}, {False: total, True: suspects}
        for each in sorted(in_turn, key=self.is_suspect):
            places[each.endpoint] += 1
            suspect, place = self.is_suspect(each), places[each.endpoint]
            most = allowed.get(each.endpoint, 0) if self.paces.has(each) else place
            if suspect and not suspects:
                answers[each.id] = "suspect"
            elif place > most:
                answers[each.id] = "paced"
            elif place > (each.endpoint.most or place) or not left[suspect]:
                answers[each.id] = "no_room"
            else:
                left[suspect] -= 1
                answers[each.id] = "taken"
        return answers

    def is_suspect(self, one: Delivery) -> bool:
        return one.abandoned + (one.status == "leased") >= SUSPECTED

    def carry_out(self, some: Sequence[Delivery], answers: Mapping[int, str], tokens: Mapping[int, UUID]) -> None:
        for one in some:
            answer = answers[one.id]
            if answer in ("early", "suspect"):
                self.outbox.sooner(one.id, self.now())
            if answer not in ("taken", *ENDS):
                continue
            lapsed = one.status == "leased"
            self.tell(one, answer, lapsed)
            if lapsed:
                assert one.claimed_at is not None
                self.attempts.append((one, one.attempt, "abandoned", one.claimed_at))
            abandoned = one.abandoned + lapsed
            if answer == "taken":
                one.attempt += 1
                one.token, one.claimed_at = tokens.get(one.id), self.now()
                self.change(one, status="leased", lease_until=self.now() + LEASE, abandoned=abandoned, parked=False)
            else:
                reason = REASONS.get(answer)
                self.end_claim(one, ENDS[answer], abandoned=abandoned, parked=False, reason=reason)

    def tell(self, one: Delivery, answer: str, lapsed: bool) -> None:
        asked = "cancel_requested met by a claim" if one.cancel_requested else "a claim finds its endpoint deleted"
        told = {"buried": "age exhausted", "poisoned": "poison", "cancelled": asked}
        if answer in told:
            self.see(told[answer])
        elif lapsed:
            self.see("a lapsed lease is claimed anew")

    def reopen(self, one: Delivery) -> str:
        """Tried now; what had ended begins a round."""
        if one.status == "leased":
            return "in_flight"
        if one.endpoint.deleted:
            return "endpoint_deleted"
        if one.is_closed:
            one.round += 1
            one.step = one.abandoned = 0
            one.age_from, one.reason, one.delivered_at, one.died_at = self.now(), None, None, None
        self.change(one, status="scheduled", next_attempt_at=self.now(), parked=False, cancel_requested=False)
        return "open"

    # What the database must have

    def adopt(self, found: Rows) -> None:
        """Take over the numbers of what is expected to be new; what is there besides will differ."""
        known = {event.seq for event in self.events}
        fresh = [(seq, row) for seq, row in sorted(found["events"].items()) if seq not in known]
        for event in self.events:
            if not event.seq:
                same = (each for each in fresh if each[1][:3] == (event.origin, event.kind, event.key))
                if first := next(same, None):
                    event.seq = first[0]
                    fresh.remove(first)
            if not event.body and event.seq in found["events"]:
                event.body = found["events"][event.seq][-1]
                if event.waits:
                    self.outbox.set(event.seq, "event", 0, event.due_at, event.due_at - HORIZON)
        ids = {(row[0], row[1]): id_ for id_, row in found["deliveries"].items()}
        for one in self.deliveries:
            if not one.id:
                one.id = ids.get((one.event.seq, one.endpoint.seq), 0)
                self.outbox.set(one.id, "delivery", one.endpoint.seq, *one.looks())

    def rows(self) -> Rows:
        attempts: dict[str, Row] = {f"({one.id},{number})": (outcome, at) for one, number, outcome, at in self.attempts}
        dead = [one for one in self.deliveries if one.status == "dead"]
        return {
            "events": {each.seq: each.row() for each in self.events},
            "deliveries": {each.id: each.row() for each in self.deliveries},
            "attempts": attempts,
            "dead letters": {one.id: (one.endpoint.seq, one.reason, one.died_at) for one in dead},
            "outbox": self.outbox.rows(),
            "endpoints": {each.seq: each.row() for each in self.endpoints},
            "paces": {each.seq: each.pace_row() for each in self.endpoints},
            "seats": self.paces.rows(),
            "repairs": {},
        }
