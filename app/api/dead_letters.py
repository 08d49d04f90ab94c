"""Dead letters over HTTP: look, try one again, try again all that match. For operators."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection
from starlette.responses import Response

from app.api.acting import act_on, perform
from app.api.answers import Answer, Value, answer
from app.api.auditing import audited, note
from app.api.auth import Operator
from app.api.bodies import parse
from app.api.dead_letter_shapes import (
    DeadLetters,
    DeadLetterWithAttempts,
    Filter,
    Matching,
    Redrive,
    RedriveFilter,
)
from app.api.deliveries import MOST_ATTEMPTS
from app.api.delivery_shapes import DeliveryWithAttempts, attempt_view, view
from app.api.fields import Id
from app.api.job_shapes import JobView, queued
from app.api.job_shapes import view as job_view
from app.api.openapi import answers, takes
from app.api.paging import cursor, place
from app.api.problems import BODY, CONFLICT, NOT_FOUND
from app.api.reading import Nothing, Small
from app.api.turns import InTurn
from app.core import redrives as core
from app.core.reservations import Refused
from app.domain.auditing import Action
from app.domain.identity import number
from app.domain.states import DeliveryStatus, JobKind
from app.ledger import by_hand, dead_letters
from app.ledger.by_hand import Delivery
from app.ledger.dead_letters import LAST, Place

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"], route_class=InTurn)
NOUN = "dead letter"
EXAMPLE = {"filter": {"reason": "attempts_exhausted"}, "rate_per_second": 50, "dry_run": True}
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_LATEST = (LAST.died_at - _EPOCH) // _MICROSECOND


@router.get("", response_model=DeadLetters, responses=answers())
def newest(call: Operator, filters: Annotated[Filter, Query()]) -> Response:
    """Dead letters, the last to die first. A filtered page may be short, or empty, and yet have a `next_cursor`."""
    wanted = dead_letters.Filter(filters.reason, filters.endpoint_id)
    below = _place(place("dead-letters", filters, parts=2))
    with call.runtime.engine.begin() as connection:
        places, rest = dead_letters.newest(connection, call.tenant, wanted, limit=filters.limit, below=below)
        rows = by_hand.load(connection, [each.delivery for each in places])
    data = [
        {**view(rows[each.delivery]), "died_at": each.died_at}
        for each in places
        if each.delivery in rows and rows[each.delivery].status is DeliveryStatus.DEAD  # nobody has re-opened it since
    ]
    return answer({"data": data, "next_cursor": None if rest is None else cursor("dead-letters", *_numbers(rest))})


@router.post(
    "/redrive",
    status_code=202,
    response_model=JobView,
    openapi_extra=takes(Redrive, EXAMPLE),
    responses=answers(*BODY, also={200: (Matching, "A dry run: so many match.")}, shows={202: queued(JobKind.REDRIVE)}),
)
def redrive_matching(call: Operator, body: Small) -> Response:
    """Redrive all dead letters that match and are dead now, each in a new round; a job, which keeps to the rate.

    What has no endpoint any more, or whose event is cancelled, is passed over. What waits for a disabled endpoint
    goes on waiting. Each call makes a job; two at once open nothing twice.
    """
    asked = parse(Redrive, body).asked
    wanted = _wanted(asked.filter)

    def work(connection: Connection) -> Answer:
        if asked.dry_run:
            matching, more = core.matching(connection, call.tenant, wanted)
            return answer({"matching": matching, "more": more})
        job = core.start(connection, call.tenant, wanted, asked.rate_per_second)
        note(connection, call, Action.REDRIVE_ASKED, job.id, **asked.model_dump(mode="json", exclude={"dry_run"}))
        return answer(job_view(job), 202)

    return perform(call, work)


@router.get("/{id}", response_model=DeadLetterWithAttempts, responses=answers(NOT_FOUND))
def one(call: Operator, id: Id) -> Response:
    """One dead letter with its attempts; its id is the delivery's."""

    def find(connection: Connection, tenant: str, key: int) -> Mapping[str, Value] | None:
        found, died = by_hand.find(connection, tenant, key), dead_letters.died(connection, [key])
        if found is None or found.status is not DeliveryStatus.DEAD or key not in died:
            return None
        return {**view(found), "died_at": died[key], "attempts": _attempts(connection, key)}

    return act_on(call, NOUN, number("dlv", id), find, answer)


@router.post(
    "/{id}/redrive",
    status_code=202,
    response_model=DeliveryWithAttempts,
    responses=answers(*BODY, NOT_FOUND, CONFLICT),
)
def redrive(call: Operator, id: Id, _: Nothing) -> Response:
    """Redrive one dead letter, now and in a new round; its id is the delivery's. 409 when it is none of the dead."""

    def redriven(connection: Connection, tenant: str, key: int) -> Mapping[str, Value] | Refused | None:
        found = core.redrive(connection, tenant, key)
        if not isinstance(found, Delivery):
            return found
        return {**view(found), "attempts": _attempts(connection, key)}

    redriving = audited(call, Action.DELIVERY_REDRIVEN, "dlv", redriven)
    return act_on(call, NOUN, number("dlv", id), redriving, lambda shown: answer(shown, 202))


def _attempts(connection: Connection, key: int) -> list[Value]:
    return [attempt_view(each) for each in by_hand.attempts(connection, key, most=MOST_ATTEMPTS)]


def _wanted(asked: RedriveFilter) -> dead_letters.Filter:
    return dead_letters.Filter(asked.reason, asked.endpoint_id, asked.since, asked.until)


def _numbers(place: Place) -> tuple[int, int]:
    return (place.died_at - _EPOCH) // _MICROSECOND, place.delivery


def _place(numbers: tuple[int, ...] | None) -> Place:
    match numbers:
        case (microseconds, delivery) if microseconds <= _LATEST:
            return Place(_EPOCH + microseconds * _MICROSECOND, delivery)
        case _:
            return LAST
