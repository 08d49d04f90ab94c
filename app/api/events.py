"""Events over HTTP: post one or many, look, cancel."""

import json
from collections.abc import Sequence
from datetime import timedelta

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.responses import Response

from app.api.acting import act_on
from app.api.answers import answer
from app.api.auditing import audited
from app.api.auth import Call, Operator, Producer
from app.api.bodies import Sent, parse_one_or_many
from app.api.event_shapes import (
    AcceptedMany,
    AcceptedView,
    CancelledView,
    Events,
    EventView,
    NewEvent,
    accepted_view,
    show,
)
from app.api.fields import Id
from app.api.job_shapes import JobView
from app.api.job_shapes import view as job_view
from app.api.openapi import answers, takes_one_or_many
from app.api.paging import Plain, answer_page, place
from app.api.problems import BODY, CONFLICT, NOT_FOUND, Flaw, conflict, invalid
from app.api.reading import Nothing, OneOrMany
from app.core import erasures
from app.core import events as core
from app.core.events import Accepted, KeyTaken
from app.domain.auditing import Action
from app.domain.identity import number
from app.ledger import events, listings, service
from app.ledger.database import in_transaction

router = APIRouter(prefix="/v1/events", tags=["events"])
MOST = 1000
LONGEST_WAIT = timedelta(days=3653)


EXAMPLE = {"type": "order.placed", "key": "order-4711", "data": {"order": 4711}}


@router.post(
    "",
    status_code=202,
    response_model=AcceptedView | AcceptedMany,
    openapi_extra=takes_one_or_many(NewEvent, EXAMPLE, MOST),
    responses=answers(*BODY, CONFLICT, also={200: (AcceptedView, "The same event had been posted before.")}),
)
def post(call: Producer, body: OneOrMany) -> Response:
    """Post an event, or a list of up to 1,000 in order, all or nothing, for the endpoints that match it when due."""
    most_data = call.runtime.settings.max_event_bytes
    sent = parse_one_or_many(NewEvent, body, most=MOST, most_data=most_data)
    if isinstance(sent, list):
        return answer({"data": [accepted_view(each.event) for each in _accept(call, sent, "/{}")]}, 202)
    (accepted,) = _accept(call, [sent], "")
    return answer(accepted_view(accepted.event), 202 if accepted.made else 200)


def _accept(call: Call, sent: Sequence[Sent[NewEvent]], pointer: str) -> list[Accepted]:
    _refuse_twins(sent, pointer)
    asked = [_asked(each) for each in sent]

    def work(connection: Connection) -> list[Accepted] | KeyTaken:
        _refuse_far(connection, sent, pointer)
        accepted = core.accept(connection, call.tenant, asked)
        if isinstance(accepted, KeyTaken):
            connection.rollback()  # all or nothing
        return accepted

    accepted = in_transaction(call.runtime.engine, work)
    if isinstance(accepted, KeyTaken):
        why = f"the key belongs to {accepted.event.id}, which was posted differently"
        raise conflict(why, Flaw(f"{pointer.format(accepted.position)}/key", why))
    return accepted


def _asked(sent: Sent[NewEvent]) -> events.NewEvent:
    asked = sent.asked
    assert sent.data is not None, "the model requires it"
    times = {name: sent.members[name] for name in ("deliver_at", "delay_seconds") if sent.members.get(name) is not None}
    return events.NewEvent(
        type=asked.type,
        data=sent.data,
        key=asked.key,
        due_at=asked.deliver_at,
        delay_seconds=asked.delay_seconds,
        request=json.dumps(times) if times else None,
    )


def _refuse_twins(sent: Sequence[Sent[NewEvent]], pointer: str) -> None:
    """Which of two with one key would be the event, and which its repeat, nobody could say."""
    first: dict[str, int] = {}
    for position, each in enumerate(sent):
        key = each.asked.key
        if key is not None and first.setdefault(key, position) != position:
            raise invalid(Flaw(f"{pointer.format(position)}/key", f"item {first[key]} of the list has this key"))


def _refuse_far(connection: Connection, sent: Sequence[Sent[NewEvent]], pointer: str) -> None:
    times = {position: each.asked.deliver_at for position, each in enumerate(sent) if each.asked.deliver_at}
    latest = service.now(connection) + LONGEST_WAIT if times else None
    for position, at in times.items():
        if latest and at > latest:
            raise invalid(Flaw(f"{pointer.format(position)}/deliver_at", "lies more than ten years ahead"))


@router.get("", response_model=Events, responses=answers())
def newest(call: Producer, listing: Plain) -> Response:
    """Events, newest first, the service's own too."""
    (below,) = place("events", listing) or (listings.NEWEST,)
    with call.runtime.engine.begin() as connection:
        page = listings.events(connection, call.tenant, limit=listing.limit, below=below)
        return answer_page("events", page, lambda seqs: events.load(connection, seqs), show)


@router.get("/{id}", response_model=EventView, responses=answers(NOT_FOUND))
def one(call: Producer, id: Id) -> Response:
    """One event with its data."""
    return answer(show(act_on(call, "event", number("evt", id), events.find)))


@router.post("/{id}/cancel", response_model=CancelledView, responses=answers(*BODY, NOT_FOUND))
def cancel(call: Producer, id: Id, _: Nothing) -> Response:
    """End every delivery that is neither finished nor in the air; one in the air ends as delivered or cancelled."""
    done = act_on(call, "event", number("evt", id), audited(call, Action.EVENT_CANCELLED, "evt", core.cancel))
    return answer({"cancelled": done.cancelled, "in_flight": done.in_flight, "finished": done.finished})


@router.post("/{id}/erase", status_code=202, response_model=JobView, responses=answers(*BODY, NOT_FOUND))
def erase(call: Operator, id: Id, _: Nothing) -> Response:
    """Erase its data, and what receivers answered to it; a job. Its id, key, digest and history stay.

    What waits is cancelled; what is in the air ends as delivered or cancelled, and the job waits for that. Nothing of
    it can be sent again. A repeat makes another job, which finds what is left to be done.
    """
    job = act_on(
        call, "event", number("evt", id), lambda c, tenant, seq: erasures.start_event(c, tenant, seq, call.actor)
    )
    return answer(job_view(job), 202)
