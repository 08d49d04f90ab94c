"""Events over HTTP: post one or many, look, cancel."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection
from starlette.responses import Response

from app.api import idempotency
from app.api.acting import act_on, perform
from app.api.answers import Answer, answer
from app.api.auditing import audited
from app.api.auth import Call, Operator, Producer
from app.api.bodies import Sent, parse_one_or_many
from app.api.event_shapes import (
    AcceptedMany,
    AcceptedView,
    CancelledView,
    Events,
    EventView,
    Filter,
    NewEvent,
    accepted_view,
    show,
)
from app.api.fields import Id
from app.api.job_shapes import JobView, queued
from app.api.job_shapes import view as job_view
from app.api.openapi import answers, takes_one_or_many
from app.api.paging import answer_page, place
from app.api.problems import BODY, CONFLICT, NOT_FOUND, Flaw, ProblemError, conflict, invalid
from app.api.reading import Nothing, OneOrMany
from app.api.turns import InTurn
from app.core import erasures
from app.core import events as core
from app.core.events import Accepted, KeyTaken
from app.domain.auditing import Action
from app.domain.identity import number
from app.domain.states import JobKind
from app.ledger import events, listings, service
from app.ledger.deliveries import Cancelled
from app.ledger.jobs import Job

router = APIRouter(prefix="/v1/events", tags=["events"], route_class=InTurn)
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
    """Post an event, or a list of up to 1,000 in order, all or nothing.

    Each goes to the endpoints that match it when it is due. A second one with the same key, type, data and time is
    the first again: 200 for one alone.
    """
    most_data = call.runtime.settings.max_event_bytes
    sent = parse_one_or_many(NewEvent, body, most=MOST, most_data=most_data)
    if isinstance(sent, list):
        return _accept(call, sent, "/{}", _show_all)
    return _accept_one(call, sent)


def _accept_one(call: Call, sent: Sent[NewEvent]) -> Response:
    """With others of its tenant that come at the same time, unless it needs a transaction of its own."""
    if sent.asked.deliver_at is not None or idempotency.named(call) is not None:
        return _accept(call, [sent], "", lambda accepted: _show_one(*accepted))
    call.limits.take_events(call.tenant, 1)
    accepted = call.together.accept(call.tenant, _asked(sent))
    if isinstance(accepted, KeyTaken):
        raise _taken(accepted, "")
    return _show_one(accepted)


def _accept(
    call: Call, sent: Sequence[Sent[NewEvent]], pointer: str, show_accepted: Callable[[Sequence[Accepted]], Answer]
) -> Response:
    _refuse_twins(sent, pointer)
    asked = [_asked(each) for each in sent]
    call.limits.take_events(call.tenant, len(asked))

    def work(connection: Connection) -> Answer:
        _refuse_far(connection, sent, pointer)
        accepted = core.accept(connection, call.tenant, asked)
        if isinstance(accepted, KeyTaken):
            raise _taken(accepted, pointer.format(accepted.position))  # all or nothing
        return show_accepted(accepted)

    return perform(call, work)


def _taken(taken: KeyTaken, pointer: str) -> ProblemError:
    why = f"the key belongs to {taken.event.id}, which was posted differently"
    return conflict(why, Flaw(f"{pointer}/key", why))


def _show_all(accepted: Sequence[Accepted]) -> Answer:
    return answer({"data": [accepted_view(each) for each in accepted]}, 202)


def _show_one(accepted: Accepted) -> Answer:
    return answer(accepted_view(accepted), 202 if accepted.made else 200)


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
def newest(call: Producer, filters: Annotated[Filter, Query()]) -> Response:
    """Events, newest first, the service's own too; with `key` the one that a producer posted so, or none."""
    (below,) = place("events", filters) or (listings.NEWEST,)
    with call.runtime.engine.begin() as connection:
        page = listings.events(connection, call.tenant, key=filters.key, limit=filters.limit, below=below)
        return answer_page("events", page, lambda seqs: events.load(connection, seqs), show)


@router.get("/{id}", response_model=EventView, responses=answers(NOT_FOUND))
def one(call: Producer, id: Id) -> Response:
    """One event with its data."""
    return act_on(call, "event", number("evt", id), events.find, lambda event: answer(show(event)))


@router.post("/{id}/cancel", response_model=CancelledView, responses=answers(*BODY, NOT_FOUND))
def cancel(call: Producer, id: Id, _: Nothing) -> Response:
    """Cancel an event: every delivery that is neither finished nor in the air ends.

    One in the air ends as delivered or cancelled.
    """

    def shown(done: Cancelled) -> Answer:
        return answer({"cancelled": done.cancelled, "in_flight": done.in_flight, "finished": done.finished})

    cancelling = audited(call, Action.EVENT_CANCELLED, "evt", core.cancel)
    return act_on(call, "event", number("evt", id), cancelling, shown)


@router.post(
    "/{id}/erase",
    status_code=202,
    response_model=JobView,
    responses=answers(*BODY, NOT_FOUND, shows={202: queued(JobKind.ERASE_EVENT)}),
)
def erase(call: Operator, id: Id, _: Nothing) -> Response:
    """Erase an event's data, and what receivers answered to it; a job. Its id, key, digest and history stay.

    What waits is cancelled; what is in the air ends as delivered or cancelled, and the job waits for that. Nothing of
    it can be sent again. A repeat makes another job, which finds what is left to be done.
    """

    def erasing(connection: Connection, tenant: str, seq: int) -> Job | None:
        return erasures.start_event(connection, tenant, seq, call.actor)

    return act_on(call, "event", number("evt", id), erasing, lambda job: answer(job_view(job), 202))
