"""Endpoints: changed, disabled, paced, parked for, redriven and replayed, while deliveries go on as ever."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from app.core import deliveries, endpoints, jobs, pacing, pings, redrives, replays
from app.core.endpoints import Rotated
from app.core.reservations import Refused
from app.domain.pacing import Heard
from app.domain.states import DeliveryStatus, Outcome
from app.ledger.dead_letters import Filter
from app.ledger.jobs import Job
from app.ledger.sealing import Sealer
from tests.ledgers import TENANT
from tests.machines.deliveries import Deliveries, outcomes
from tests.machines.ground import Ground, Rows
from tests.machines.pace import AHEAD, News, interval, look_at, reopen
from tests.machines.relaying import ALL, FAR, number, some
from tests.machines.running import PATIENCE, run
from tests.machines.things import Endpoint
from tests.machines.work import Work

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE)]

SEALER = Sealer(["a key of the machines"])
DISABLE_AFTER = timedelta(minutes=2)
often = st.sampled_from([False, False, True])
SITUATIONS = [
    *(f"answered {each}" for each in ("paced", "disabled", "cancelled", "taken")),
    "gone disables an endpoint",
    "gone is of an older revision",
    "a ping's gone disables nothing",
    "rejected flags an endpoint",
    "failing disables an endpoint",
    "news of an older revision",
    "a breaker closes",
    "a probe is claimed",
    "a breaker opens",
    "a hint closes an endpoint",
    "parked",
    "parked for a disabled endpoint",
    "slots are given away",
    "nothing is parked any more",
    "enabled with something parked",
    "deleted with something open",
    "patched while something is in the air",
    "a fleet-wide limit is reached",
    "rotated",
    "too many secrets",
    "a redrive takes several steps",
    "a job's step is early",
    "a job is completed",
    "a job is cancelled",
    "a redrive passes over a cancelled event",
    "a replay makes what is missing",
    "a replay re-opens",
    "a replay fails for its endpoint is deleted",
    "a replay is refused",
]


class Endpoints(Deliveries):
    """Deliveries, and one endpoint with a rate and one with a limit in flight besides."""

    tables: ClassVar[Collection[str]] = [*Deliveries.tables, "secrets", "jobs"]

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.paces = self.ledger.paces
        self.jobs: list[Work] = []
        self.subscribe(("order.*",), rate=1.0)
        self.subscribe(("*",), most=1)

    def endpoint(self, index: int) -> Endpoint:
        return self.ledger.endpoints[-1 - index % len(self.ledger.endpoints)]

    # Its owner

    @rule(index=number)
    def disable(self, index: int) -> None:
        one = self.endpoint(index)
        found = not one.deleted
        if found:
            self.disabled(one, "requested")
        answer = self.ground.do(lambda connection: endpoints.disable(connection, TENANT, one.seq))
        assert (answer is not None) is found

    def disabled(self, one: Endpoint, reason: str) -> None:
        if one.status == "enabled":
            one.status, one.reason = "disabled", reason
            one.revision += 1
            key = f"endpoint.disabled:{one.id}:v{one.revision}"
            self.ledger.happen("endpoint.disabled", key, origin="service", not_to=one)

    @rule(index=number)
    def enable(self, index: int) -> None:
        one = self.endpoint(index)
        found = not one.deleted
        if found:
            self.see(*["enabled with something parked"] * (one.status == "disabled" and self.has_parked(one)))
            one.revision += one.status == "disabled"
            one.status, one.reason, one.flagged = "enabled", None, False
            self.begin_anew(one, keep_hint=True)
        answer = self.ground.do(lambda connection: endpoints.enable(connection, TENANT, one.seq))
        assert (answer is not None) is found

    def has_parked(self, one: Endpoint) -> bool:
        return any(each.parked and each.endpoint is one for each in self.ledger.deliveries)

    def begin_anew(self, one: Endpoint, *, keep_hint: bool = False) -> None:
        if not (keep_hint and one.closed_why == "retry_after"):
            reopen(one)
        one.trips = one.troubles = one.failures = 0
        one.failing_since = None
        look_at(self.outbox, one, self.now)

    @rule(index=number, sure=st.sampled_from([True, False, False]))
    def delete(self, index: int, sure: bool) -> None:
        """Seldom: nothing else can be done with it afterwards. Another one takes its place."""
        one = self.endpoint(index)
        if not sure:
            return
        if not one.deleted:
            one.deleted = True
            one.revision += 1
            mine = [each for each in self.ledger.deliveries if each.endpoint is one]
            self.see(*["deleted with something open"] * any(not each.is_closed for each in mine))
            for each in mine:
                self.ledger.give_up(each)
            look_at(self.outbox, one, self.now)
            answer = self.ground.do(lambda connection: endpoints.delete(connection, TENANT, one.seq))
            self.subscribe(one.patterns, one.schedule, rate=one.rate, most=one.most)
        else:
            answer = self.ground.do(lambda connection: endpoints.delete(connection, TENANT, one.seq))
            assert not answer
            return
        assert answer

    @rule(
        index=number,
        members=st.sampled_from(
            [
                {"url": "http://127.0.0.1:9/other"},
                {"description": "mine"},
                {"rate_per_second": 2.0},
                {"rate_per_second": None},
                {"max_in_flight": 2},
                {"max_in_flight": None},
            ]
        ),
    )
    def patch(self, index: int, members: dict[str, Any]) -> None:
        one = self.endpoint(index)
        found = not one.deleted
        if found:
            flying = [each for each in self.ledger.deliveries if each.endpoint is one and each.token is not None]
            self.see(*["patched while something is in the air"] * bool(flying))
            one.revision += "description" not in members
            if members.get("max_in_flight") and one.most is None:
                self.paces.seats |= {each: each.token for each in flying}
            one.rate = members.get("rate_per_second", one.rate)
            one.most = members.get("max_in_flight", one.most)
            if "url" in members:
                self.begin_anew(one)
            elif "description" not in members:
                look_at(self.outbox, one, self.now)
        answer = self.ground.do(lambda connection: endpoints.change(connection, SEALER, TENANT, one.seq, members))
        assert (answer is not None) is found

    @rule(index=number, overlap=st.sampled_from([0, 60, 60, 86400]), times=st.sampled_from([1, 6]))
    def rotate(self, index: int, overlap: int, times: int) -> None:
        one = self.endpoint(index)
        for _ in range(times):
            self.rotate_once(one, timedelta(seconds=overlap))

    def rotate_once(self, one: Endpoint, overlap: timedelta) -> None:
        answer = self.ground.do(lambda connection: endpoints.rotate(connection, SEALER, TENANT, one.seq, overlap))
        live = [at for at in one.secrets if at is None or at > self.now]
        if one.deleted:
            assert answer is None
        elif overlap and len(live) >= 5:
            assert isinstance(answer, Refused)
            self.see("too many secrets")
        else:
            ends = [min(at or FAR, self.now + overlap) for at in live]
            one.secrets = [*ends, None]
            one.revision += 1
            assert isinstance(answer, Rotated) and answer.previous_expires_at == max(ends, default=None)
            self.see("rotated")

    @rule(index=number)
    def ping(self, index: int) -> None:
        one = self.endpoint(index)
        answer = self.ground.do(lambda connection: pings.ping(connection, TENANT, one.seq))
        if one.deleted:
            assert answer is None
        elif one.status == "disabled":
            assert isinstance(answer, Refused)
        else:
            self.ledger.happen("ping", origin="service", only_to=one)

    # What comes back

    @precondition(lambda self: self.claims)
    @rule(index=number, outcome=st.sampled_from([Outcome.GONE, Outcome.GONE, Outcome.REJECTED, Outcome.DELIVERED]))
    def endpoint_hears(self, index: int, outcome: Outcome) -> None:
        """What an outcome says about the endpoint at the revision that was sent to."""
        pings = [each for each in self.claims if each.delivery.event.only_to is not None]
        held = pings[-1] if pings and index % 4 == 3 else self.held(index)
        one, current = held.delivery.endpoint, held.claim.revision == held.delivery.endpoint.revision
        if outcome is Outcome.GONE and held.delivery.event.only_to is not None:
            self.see("a ping's gone disables nothing")
        elif outcome is Outcome.GONE and current and one.status == "enabled":
            self.disabled(one, "gone")
            self.see("gone disables an endpoint")
        elif outcome is Outcome.GONE:
            self.see("gone is of an older revision")
        elif outcome is Outcome.REJECTED and current:
            one.flagged = True
            self.see("rejected flags an endpoint")
        self.ground.do(
            lambda connection: endpoints.hear(connection, one.seq, held.claim.revision, outcome, event=held.claim.event)
        )

    @precondition(lambda self: self.claims)
    @rule(index=number, outcome=outcomes, hint=st.sampled_from([None, 1, 100]), times=st.sampled_from([1, 1, 10]))
    def pace_hears(self, index: int, outcome: Outcome, hint: int | None, times: int) -> None:
        """The same outcome of several deliveries at once; the answer is that somebody could be told."""
        held = self.held(index)
        one, revision, after = held.delivery.endpoint, held.claim.revision, hint and timedelta(seconds=hint)
        closed = one.closed_until
        current = revision == one.revision and one.status == "enabled"
        news = [News(one, revision, outcome, held.claimed_at, after or None)] * times
        self.paces.hear(one, news, self.outbox)
        told = [pacing.News(one.seq, revision, Heard(outcome, held.claimed_at, after or None), outcome)] * times
        self.tell_paces(one, closed, current)
        if current and one.failures >= 10 and one.failing_since and self.now - one.failing_since >= DISABLE_AFTER:
            since = f"{one.failing_since:%Y-%m-%dT%H:%M:%SZ}"
            self.disabled(
                one,
                f"failing: {one.failures} attempts in a row since {since} were no delivery, the last was {outcome}",
            )
            self.see("failing disables an endpoint")
        assert pacing.hear(self.ground.engine, told, DISABLE_AFTER) == []

    def tell_paces(self, one: Endpoint, closed: object, current: bool) -> None:
        self.see(*["news of an older revision"] * (not current))
        if closed != one.closed_until and one.closed_until is None:
            self.see("a breaker opens")
        elif closed != one.closed_until:
            self.see("a breaker closes" if one.closed_why == "failing" else "a hint closes an endpoint")

    @precondition(lambda self: any(one.closed_until and one.status == "enabled" for one in self.ledger.endpoints))
    @rule(outcome=outcomes)
    def probe_comes_back(self, outcome: Outcome) -> None:
        """The first that is sent to a closed endpoint decides; nothing else that is in the air does."""
        one = next(one for one in self.ledger.endpoints if one.closed_until and one.status == "enabled")
        assert one.closed_until is not None
        self.go_on_to(one.closed_until, 0)
        self.claim(ALL, 1000, 1000)
        live = self.live()[::-1]
        mine = [place for place, held in enumerate(live) if held.delivery.endpoint is one]
        if mine:
            self.pace_hears(3 * mine[0], outcome, None, 1)

    # Parking

    @precondition(lambda self: self.ledger.deliveries)
    @rule(indexes=some | st.just(ALL), parks=st.sampled_from([True, True, False]))
    def is_turned_away(self, indexes: list[int], parks: bool) -> None:
        chosen = self.picks(indexes)
        expected, again = {}, []
        for one in chosen:
            can = parks and one.status == "scheduled" and one.next_attempt_at <= self.now
            expected[one.id] = "parked" if can else "put_off"
            if can and not one.parked:
                self.ledger.change(one, parked=True)
                self.see("parked", *["parked for a disabled endpoint"] * (one.endpoint.status == "disabled"))
        for one in chosen:
            if expected[one.id] == "put_off":
                again += [] if one.id in self.outbox.looks else [one.id]
                self.outbox.sooner(one.id, self.now)
        call = deliveries.park if parks else deliveries.put_off
        looked = call(self.ground.engine, [one.id for one in chosen])
        assert (looked.answers, looked.again) == (expected, again)

    @rule(most=st.sampled_from([1, 50]))
    def attend(self, most: int) -> None:
        """Each endpoint is looked at, those too that have no row."""
        expected: dict[int, str] = {}
        slots: dict[int, list[tuple[Any, int]]] = {}
        for one in self.ledger.endpoints:
            expected[one.seq] = "taken" if one.seq in self.outbox.looks else "gone"
            if one.seq in self.outbox.looks:
                slots[one.seq] = self.look_at_parked(one, most)
        attended = pacing.attend(self.ground.engine, dict.fromkeys(expected, most))
        assert attended.looked.answers == expected
        assert {seq: list(given) for seq, given in attended.slots.items()} == slots
        self.see(*["slots are given away"] * any(slots.values()))

    def look_at_parked(self, one: Endpoint, most: int) -> list[tuple[Any, int]]:
        """The slots that are given away; the row says when the next ones are."""
        parked = sorted(each.id for each in self.ledger.deliveries if each.parked and each.endpoint is one)
        ids, times = parked[: most + 1], self.paces.slots(one, most)
        next_slot = self.paces.next_slot(one, counts=False)
        if not ids:
            self.outbox.close(one.seq)
            self.see("nothing is parked any more")
            return []
        if one.status == "disabled" and not one.deleted:
            look_at(self.outbox, one, FOREVER)
            return []
        if one.deleted or not times:
            at = max(self.now, next_slot)
        elif one.rate is None or one.closed_until is not None or len(ids) <= len(times):
            at = self.now + AHEAD
        else:
            at = times[-1] + interval(one)
        look_at(self.outbox, one, at)
        if one.deleted:
            return [(self.now, each) for each in ids[:most]]
        return list(zip(times * (3 if one.closed_until is not None else 1), ids, strict=False))

    # Jobs

    @precondition(lambda self: any(each.status == "dead" for each in self.ledger.deliveries))
    @rule(index=st.none() | number, rate=st.sampled_from([None, 5.0]), cancelled=st.booleans())
    def redrive_starts(self, index: int | None, rate: float | None, cancelled: bool) -> None:
        one = None if index is None else self.endpoint(index)
        wanted = Filter(endpoint=None if one is None else one.seq)
        job = self.ground.do(lambda connection: redrives.start(connection, TENANT, wanted, rate))
        self.begins(Work(job.seq, "redrive", self.now, self.now, one, rate))
        dead = [each for each in self.ledger.deliveries if each.status == "dead"]
        if cancelled:
            self.cancel_event(self.ledger.events[::-1].index(dead[-1].event))

    @rule(
        index=number,
        since=st.sampled_from([0, 30, 100_000]),
        statuses=st.sampled_from(["dead cancelled", "delivered"]),
        deleted=often,
    )
    def replay_starts(self, index: int, since: int, statuses: str, deleted: bool) -> None:
        one, begin = self.endpoint(index), self.now - timedelta(seconds=since)
        which = [DeliveryStatus(each) for each in statuses.split()]
        job = self.ground.do(
            lambda connection: replays.start(connection, TENANT, one.seq, since=begin, until=None, statuses=which)
        )
        if one.deleted:
            assert job is None
        elif one.status == "disabled":
            assert isinstance(job, Refused)
            self.see("a replay is refused")
        else:
            assert isinstance(job, Job)
            self.begins(Work(job.seq, "replay", self.now, self.now, one, None, begin, tuple(statuses.split())))
            self.delete(index, deleted)

    def begins(self, work: Work) -> None:
        self.jobs.append(work)
        self.outbox.set(work.seq, "job", 0, work.next_step_at, work.next_step_at)

    @precondition(lambda self: self.jobs)
    @rule(index=number, waits=often, times=st.sampled_from([1, 4]))
    def job_advances(self, index: int, waits: bool, times: int) -> None:
        for _ in range(times):
            self.advance_job(index, waits)

    def advance_job(self, index: int, waits: bool) -> None:
        open_ones = [each for each in self.jobs if each.is_open] or self.jobs
        work = open_ones[-1 - index % len(open_ones)]
        if waits and work.is_open:
            self.go_on_to(max(work.next_step_at, self.now), 0)
        expected = "taken" if work.is_open else "gone"
        if not work.is_open:
            pass
        elif work.next_step_at > self.now:
            expected = "early"
            self.outbox.sooner(work.seq, self.now, work.next_step_at - self.now)
            self.see("a job's step is early")
        else:
            self.see(*["a redrive takes several steps"] * (work.kind == "redrive" and work.done > 0))
            work.step(self.ledger)
            self.outbox.set(work.seq, "job", 0, work.next_step_at, work.next_step_at)
            if work.status != "running":
                self.ends(work)
        looked = jobs.advance(self.ground.engine, [work.seq])
        assert looked.answers == {work.seq: expected}

    def ends(self, work: Work) -> None:
        self.outbox.close(work.seq)
        self.ledger.happen("job.completed", f"job.completed:job_{work.seq:x}", origin="service")
        self.see(f"a job is {work.status}")

    @precondition(lambda self: self.jobs)
    @rule(index=number)
    def job_is_cancelled(self, index: int) -> None:
        work = self.jobs[-1 - index % len(self.jobs)]
        was = work.status
        if work.is_open:
            work.status = "cancelled"
            self.ends(work)
        answer = self.ground.do(lambda connection: jobs.cancel(connection, TENANT, work.seq))
        assert isinstance(answer, Refused) is (was in ("completed", "failed"))

    # What must be there

    def expected(self, found: Rows) -> Rows:
        rows = super().expected(found)
        now = self.now
        secrets = {
            one.seq: (one.secrets.count(None), sum(at is not None and at > now for at in one.secrets))
            for one in self.ledger.endpoints
            if one.secrets
        }
        return {**rows, "secrets": secrets, "jobs": {each.seq: each.row() for each in self.jobs}}


FOREVER = FAR.replace(year=9999)


def test_endpoints_are_as_the_model_says_after_every_step(ground: Ground) -> None:
    run(ground, Endpoints, examples=20, steps=1500, situations=SITUATIONS)
