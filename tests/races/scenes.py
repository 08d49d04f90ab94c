"""What the actors of the orders meet: a few things in the ledger, each at a given point of its life."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Engine

from app.core import deliveries as core
from app.core import endpoints, erasures, redrives, replays, reservations
from app.core import events as event_core
from app.core.endpoints import Wanted
from app.core.reservations import Hold
from app.domain.states import DeadReason, DeliveryStatus
from app.domain.wakeups import Kind
from app.ledger import outbox
from app.ledger.database import in_transaction
from app.ledger.dead_letters import Filter
from app.ledger.deliveries import Claim
from app.ledger.outbox import Room, Taken
from app.ledger.sealing import Sealer
from tests.clock import Clock
from tests.ledgers import TENANT, TERMS, buried, claimed, deliveries_of, ending, rows, some_events
from tests.processes import KEY
from tests.races.stage import Stage

SEALER = Sealer([KEY])
RESOURCE = "truck 7"
HELD = timedelta(seconds=5)
ROOMS = {kind: Room(10) for kind in Kind}


@dataclass(slots=True)
class Scene:
    """The things by their keys; those that a scene has not are 0 or None."""

    stage: Stage
    reservation: int = 0
    reservation_id: str = ""
    endpoint: int = 0
    event: int = 0
    deliveries: list[int] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    job: int = 0
    token: UUID | None = None
    taken: list[Taken] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        return self.stage.engine

    @property
    def clock(self) -> Clock:
        return self.stage.clock

    def ids(self) -> list[int]:
        return self.deliveries or deliveries_of(self.engine, self.event)


def held(stage: Stage) -> Scene:
    """An exclusive reservation that is held, and due in five seconds."""
    with stage.engine.begin() as connection:
        made = reservations.hold(connection, TENANT, Hold(RESOURCE, hold_seconds=HELD.total_seconds(), exclusive=True))
    assert isinstance(made, reservations.Held)
    (seq,) = rows(stage.engine, "SELECT seq FROM duehook.reservations")
    return Scene(stage, seq, made.reservation.id)


def overdue(stage: Stage) -> Scene:
    """The same a moment too late."""
    scene = held(stage)
    stage.clock.advance(seconds=HELD.total_seconds())
    return scene


def confirmed(stage: Stage) -> Scene:
    """A reservation that is confirmed."""
    scene = held(stage)
    with stage.engine.begin() as connection:
        reservations.confirm(connection, TENANT, scene.reservation_id)
    return scene


def endpoint(stage: Stage, **settings: Any) -> Scene:
    """An endpoint with a secret that wants everything, and nothing for it yet."""
    with stage.engine.begin() as connection:
        made = endpoints.create(connection, SEALER, TENANT, Wanted("http://127.0.0.1:9/", ["*"], **settings))
    return Scene(stage, endpoint=made.endpoint.seq)


def scheduled(stage: Stage, **settings: Any) -> Scene:
    """A delivery that is due."""
    scene = endpoint(stage, **settings)
    (scene.event,) = some_events(stage.engine)
    scene.deliveries = deliveries_of(stage.engine, scene.event)
    return scene


def limited(stage: Stage) -> Scene:
    """A delivery that is due, to an endpoint that takes one at a time and has two parked."""
    scene = endpoint(stage, max_in_flight=1)
    for event in some_events(stage.engine, 2):
        scene.event = event
        scene.deliveries += deliveries_of(stage.engine, event)
    return scene


def leased(stage: Stage) -> Scene:
    """A delivery that is in the air."""
    scene = scheduled(stage)
    scene.claims = claimed(stage.engine, *scene.deliveries)
    return scene


def lapsed(stage: Stage) -> Scene:
    """A delivery whose lease has ended without a record."""
    scene = leased(stage)
    stage.clock.advance(seconds=TERMS.lease.total_seconds())
    return scene


def asked_to_end(stage: Stage) -> Scene:
    """A delivery whose lease has ended, and that was cancelled while it was in the air."""
    scene = lapsed(stage)
    with stage.engine.begin() as connection:
        event_core.cancel(connection, TENANT, scene.event)
    return scene


def parked(stage: Stage) -> Scene:
    """A delivery that is parked, its endpoint to be looked at now."""
    scene = scheduled(stage)
    core.park(stage.engine, scene.deliveries)
    return scene


def parked_and_disabled(stage: Stage) -> Scene:
    """A delivery that is parked for a disabled endpoint."""
    scene = parked(stage)
    with stage.engine.begin() as connection:
        endpoints.disable(connection, TENANT, scene.endpoint)
    return scene


def one_parked(stage: Stage) -> Scene:
    """An endpoint of which one delivery was parked and is claimed, so that its own row is over; another is due."""
    scene = scheduled(stage)
    core.park(stage.engine, scene.deliveries)
    claimed(stage.engine, *scene.deliveries)
    (scene.event,) = some_events(stage.engine)
    scene.deliveries = deliveries_of(stage.engine, scene.event)
    return scene


def dead(stage: Stage) -> Scene:
    """A dead letter, and a job that is about to redrive it."""
    scene = leased(stage)
    core.record(stage.engine, [buried(scene.claims[0], DeadReason.REFUSED)], max_age=TERMS.max_age)
    with stage.engine.begin() as connection:
        scene.job = redrives.start(connection, TENANT, Filter(), None).seq
    return scene


def replayed(stage: Stage) -> Scene:
    """A delivered event that a job is about to replay."""
    scene = leased(stage)
    core.record(stage.engine, [ending(scene.claims[0])], max_age=TERMS.max_age)
    with stage.engine.begin() as connection:
        job = replays.start(
            connection,
            TENANT,
            scene.endpoint,
            since=stage.clock.now - timedelta(minutes=5),
            until=None,
            statuses=[DeliveryStatus.DELIVERED, DeliveryStatus.CANCELLED],
        )
    assert job is not None and not isinstance(job, reservations.Refused)
    scene.job = job.seq
    return scene


def erased(stage: Stage) -> Scene:
    """A delivery that is due, and a job that is about to erase its event."""
    scene = scheduled(stage)
    with stage.engine.begin() as connection:
        job = erasures.start_event(connection, TENANT, scene.event, "somebody")
    assert job is not None
    scene.job = job.seq
    return scene


def waiting(stage: Stage) -> Scene:
    """A scheduled event that is near enough to be fanned out."""
    scene = endpoint(stage)
    (scene.event,) = some_events(stage.engine, delay_seconds=60)
    stage.clock.advance(seconds=55)
    return scene


def taken(stage: Stage) -> Scene:
    """A delivery that is due, whose row the relay has taken and whose wake-up is published."""
    scene = scheduled(stage)
    scene.token = uuid4()
    scene.taken = in_transaction(
        stage.engine, lambda connection: outbox.take(connection, scene.token or uuid4(), ROOMS)
    )
    return scene


def lost_row(stage: Stage) -> Scene:
    """A delivery that is due, and has lost its row in the outbox."""
    scene = scheduled(stage)
    stage.break_("DELETE FROM duehook.outbox")
    return scene


def wrong_row(stage: Stage) -> Scene:
    """A delivery that is due, and whose row in the outbox says that it is due in a year, of another tenant."""
    scene = scheduled(stage)
    stage.break_(
        "UPDATE duehook.outbox SET tenant = 'other', due_at = due_at + interval '1 year', look_at = 'infinity'"
    )
    return scene


def row_of_nothing(stage: Stage) -> Scene:
    """A dead letter that has a row in the outbox all the same."""
    scene = leased(stage)
    core.record(stage.engine, [buried(scene.claims[0], DeadReason.REFUSED)], max_age=TERMS.max_age)
    stage.break_(
        "INSERT INTO duehook.outbox (ref, kind, tenant, endpoint, due_at, look_at)"
        " SELECT id, 'delivery', tenant, endpoint, duehook.now(), duehook.now() FROM duehook.deliveries"
    )
    return scene
