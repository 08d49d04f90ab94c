"""What an actor may do to a scene: the product's own calls, in the transactions that the product makes for them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, text

from app.core import by_hand, endpoints, events, jobs, pacing, redrives, reservations
from app.core import deliveries as core
from app.core.endpoints import Wanted
from app.core.pacing import News
from app.core.reservations import Hold
from app.domain.pacing import TROUBLES, Heard
from app.domain.states import DeadReason, Outcome
from app.domain.wakeups import Kind
from app.ledger import outbox, reconciliation
from app.ledger.database import in_transaction
from app.ledger.outbox import EVERY_BUCKET
from app.ledger.reconciliation import Walk
from app.ledger.walking import TOP
from tests.ledgers import ROOM, TENANT, TERMS, buried, ending
from tests.races.scenes import RESOURCE, ROOMS, SEALER, Scene

Doing = Callable[[Scene, Engine], Any]
ACTIONS: dict[str, Doing] = {}
PUBLISH_LEASE = timedelta(minutes=1)
STRETCH = 100


def action(name: str) -> Callable[[Doing], Doing]:
    def add(doing: Doing) -> Doing:
        ACTIONS[name] = doing
        return doing

    return add


def by_owner(name: str, work: Callable[[Scene, Connection], Any]) -> None:
    """What the API does: one transaction, run again whole after a deadlock."""
    ACTIONS[name] = lambda scene, engine: in_transaction(engine, lambda connection: work(scene, connection))


# Reservations.
by_owner("confirm", lambda s, c: reservations.confirm(c, TENANT, s.reservation_id))
by_owner("release", lambda s, c: reservations.release(c, TENANT, s.reservation_id))
by_owner("hold the same", lambda _, c: reservations.hold(c, TENANT, Hold(RESOURCE, hold_seconds=60, exclusive=True)))


@action("expire")
def expire(scene: Scene, engine: Engine) -> Any:
    return reservations.expire(engine, [scene.reservation]).answers


@action("confirm in vain")
def confirm_in_vain(scene: Scene, engine: Engine) -> None:
    """As somebody's own transaction that is rolled back after it."""
    with engine.connect() as connection:
        reservations.confirm(connection, TENANT, scene.reservation_id)
        connection.rollback()


@action("time passes")
def time_passes(scene: Scene, engine: Engine) -> None:
    """The moment at which what is due in five seconds is due."""
    with engine.begin() as connection:
        connection.execute(text("/* test.clock */ UPDATE duehook.test_clock SET at = at + interval '5 s'"))


# Workers.
@action("claim")
def claim(scene: Scene, engine: Engine) -> Any:
    claimed = core.claim(engine, scene.ids(), TERMS, ROOM)
    return claimed.looked.answers


def _record(name: str, end: Callable[[Any], Any]) -> None:
    ACTIONS[name] = lambda scene, engine: core.record(
        engine, [end(each) for each in scene.claims], max_age=TERMS.max_age
    )


_record("record success", ending)
_record("record failure", lambda claim: ending(claim, Outcome.FAILED))
_record("record death", lambda claim: buried(claim, DeadReason.REFUSED))


@action("claim and fail")
def claim_and_fail(scene: Scene, engine: Engine) -> Any:
    """Claim, send and record in one go: it is due again in five seconds."""
    claims = core.claim(engine, scene.ids(), TERMS, ROOM).claims
    failed = [ending(each, Outcome.FAILED, after=timedelta(seconds=5)) for each in claims]
    return core.record(engine, failed, max_age=TERMS.max_age) if failed else {}


@action("give back")
def give_back(scene: Scene, engine: Engine) -> Any:
    return core.give_back(engine, scene.claims)


@action("renew")
def renew(scene: Scene, engine: Engine) -> Any:
    return core.renew(engine, {each.delivery: each.token for each in scene.claims}, TERMS.lease)


@action("abandon")
def abandon(scene: Scene, engine: Engine) -> Any:
    return [each.delivery for each in scene.claims if core.abandon(engine, each, after=timedelta())]


@action("park")
def park(scene: Scene, engine: Engine) -> Any:
    return core.park(engine, scene.deliveries).answers


@action("attend")
def attend(scene: Scene, engine: Engine) -> Any:
    return pacing.attend(engine, {scene.endpoint: 200}).looked.answers


def _hear(name: str, outcome: Outcome, times: int) -> None:
    def doing(scene: Scene, engine: Engine) -> None:
        news = News(scene.endpoint, 1, Heard(outcome, scene.clock.now), "said")
        pacing.hear(engine, [news] * times, timedelta(days=5))

    ACTIONS[name] = doing


_hear("hear of trouble", Outcome.FAILED, TROUBLES)
_hear("hear of success", Outcome.DELIVERED, 1)


@action("hear that it is gone")
def hear_gone(scene: Scene, engine: Engine) -> None:
    in_transaction(engine, lambda c: endpoints.hear(c, scene.endpoint, 1, Outcome.GONE, event=scene.event))


@action("fan out")
def fan_out(scene: Scene, engine: Engine) -> Any:
    return events.fan_out(engine, [scene.event]).answers


@action("do the job's step")
def step(scene: Scene, engine: Engine) -> Any:
    return jobs.advance(engine, [scene.job]).answers


# Owners.
by_owner("cancel the event", lambda s, c: events.cancel(c, TENANT, s.event))
by_owner("cancel the delivery", lambda s, c: by_hand.cancel(c, TENANT, s.deliveries[0]))
by_owner("retry", lambda s, c: by_hand.retry(c, TENANT, s.deliveries[0]))
by_owner("redrive", lambda s, c: redrives.redrive(c, TENANT, s.deliveries[0]))
by_owner("cancel the job", lambda s, c: jobs.cancel(c, TENANT, s.job))
by_owner("enable", lambda s, c: endpoints.enable(c, TENANT, s.endpoint))
by_owner("disable", lambda s, c: endpoints.disable(c, TENANT, s.endpoint))
by_owner("delete the endpoint", lambda s, c: endpoints.delete(c, TENANT, s.endpoint))
by_owner("rotate", lambda s, c: endpoints.rotate(c, SEALER, TENANT, s.endpoint, timedelta(hours=1)))
by_owner(
    "another endpoint", lambda _, c: endpoints.create(c, SEALER, TENANT, Wanted("http://127.0.0.1:8/", ["order.*"]))
)


def _change(name: str, **members: Any) -> None:
    by_owner(name, lambda s, c: endpoints.change(c, SEALER, TENANT, s.endpoint, members))


_change("change its URL", url="http://127.0.0.1:10/")
_change("change its types", event_types=["nothing.of.it"])
_change("limit its rate", rate_per_second=1.0)
_change("limit it to one in flight", max_in_flight=1)


# The relay, and upkeep.
@action("relay")
def relay(scene: Scene, engine: Engine) -> Any:
    """Two transactions, between which the wake-ups are published."""
    token = uuid4()
    taken = in_transaction(engine, lambda c: outbox.take(c, token, ROOMS))
    refs = [each.ref for each in taken]
    if refs:
        in_transaction(engine, lambda c: outbox.move(c, token, refs, PUBLISH_LEASE))
    return refs


@action("move what was published")
def move(scene: Scene, engine: Engine) -> Any:
    assert scene.token is not None
    token = scene.token
    return in_transaction(engine, lambda c: outbox.move(c, token, [each.ref for each in scene.taken], PUBLISH_LEASE))


@action("the broker was emptied")
def emptied(_: Scene, engine: Engine) -> Any:
    return in_transaction(engine, lambda c: outbox.look_at_published(c, list(Kind), EVERY_BUCKET, PUBLISH_LEASE))


def _audit(name: str, which: Walk) -> None:
    def doing(_: Scene, engine: Engine) -> Any:
        """One stretch of the audit, in the transaction that the core makes for it."""

        def work(connection: Connection) -> Any:
            if not reconciliation.lock_audit(connection):
                return None
            terms = reconciliation.Terms()
            found = reconciliation.look(connection, which, TOP, STRETCH, terms)
            return dict(reconciliation.repair(connection, which, found.suspects, terms)) if found.suspects else {}

        return in_transaction(engine, work)

    ACTIONS[name] = doing


AUDITED = {
    Walk.OUTBOX: "rows",
    Walk.RESERVATION: "reservations",
    Walk.DELIVERY: "deliveries",
    Walk.EVENT: "events",
    Walk.FAN_OUT: "fan-outs",
    Walk.ENDPOINT: "endpoints",
    Walk.JOB: "jobs",
}
for _walk, _name in AUDITED.items():
    _audit(f"audit the {_name}", _walk)
