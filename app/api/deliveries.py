"""Deliveries over HTTP: look, retry, cancel. For operators."""

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection
from starlette.responses import Response

from app.api.acting import act_on
from app.api.answers import Answer, answer
from app.api.auditing import audited
from app.api.auth import Call, Operator, Producer
from app.api.delivery_shapes import Deliveries, DeliveryWithAttempts, Filter, attempt_view, view
from app.api.fields import Id
from app.api.openapi import answers
from app.api.paging import Listing, Plain, cursor, place
from app.api.problems import BODY, CONFLICT, NOT_FOUND, not_found
from app.api.reading import Nothing
from app.api.turns import InTurn
from app.core import by_hand as core
from app.core.reservations import Refused
from app.domain.auditing import Action
from app.domain.identity import number
from app.domain.states import DeliveryStatus
from app.ledger import by_hand, endpoints, events, listings
from app.ledger.by_hand import Delivery
from app.ledger.listings import NEWEST, Place

router = APIRouter(tags=["deliveries"], route_class=InTurn)
NOBODY = 0  # a number that no row has
MOST_ATTEMPTS = 100  # of one delivery that an answer shows, the last ones


@router.get("/v1/deliveries", response_model=Deliveries, responses=answers())
def newest(call: Operator, filters: Annotated[Filter, Query()]) -> Response:
    """Deliveries, those of the newest event first, or of one endpoint, the newest first.

    A filtered page may be short, or empty, and yet have a `next_cursor`. A filter by what does not exist finds
    nothing.
    """
    event, endpoint = filters.event_id, filters.endpoint_id
    with call.runtime.engine.begin() as connection:
        if event is None and endpoint is not None:
            return _of_endpoint(connection, call, endpoint, filters)
        return _of_events(connection, call, filters, event=event, endpoint=endpoint, status=filters.status)


@router.get("/v1/events/{id}/deliveries", tags=["events"], response_model=Deliveries, responses=answers(NOT_FOUND))
def of_event(call: Producer, id: Id, listing: Plain) -> Response:
    """The deliveries of one event, that to the newest endpoint first."""
    event = number("evt", id)
    with call.runtime.engine.begin() as connection:
        if event is None or not events.exists(connection, call.tenant, event):
            raise not_found("event")
        return _of_events(connection, call, listing, event=event)


def _of_endpoint(connection: Connection, call: Call, endpoint: int, filters: Filter) -> Response:
    (below,) = place("endpoint-deliveries", filters) or (NEWEST,)
    ours = any(each.tenant == call.tenant for each in endpoints.load(connection, [endpoint]))
    page = listings.deliveries_of_endpoint(
        connection, endpoint if ours else NOBODY, status=filters.status, limit=filters.limit, below=below
    )
    return _page(connection, page.keys, "endpoint-deliveries", None if page.below is None else (page.below,))


def _of_events(
    connection: Connection,
    call: Call,
    listing: Listing,
    *,
    event: int | None = None,
    endpoint: int | None = None,
    status: DeliveryStatus | None = None,
) -> Response:
    mark = place("deliveries", listing, parts=2)
    page = listings.deliveries(
        connection,
        call.tenant,
        event=event,
        endpoint=endpoint,
        status=status,
        limit=listing.limit,
        below=None if mark is None else Place(*mark),
    )
    return _page(connection, page.ids, "deliveries", page.below)


def _page(connection: Connection, ids: Sequence[int], of: str, below: tuple[int, ...] | None) -> Response:
    rows = by_hand.load(connection, ids)
    next_cursor = None if below is None else cursor(of, *below)
    return answer({"data": [view(rows[id]) for id in ids if id in rows], "next_cursor": next_cursor})


@router.get("/v1/deliveries/{id}", response_model=DeliveryWithAttempts, responses=answers(NOT_FOUND))
def one(call: Operator, id: Id) -> Response:
    """One delivery with its attempts."""
    return _on(call, id, by_hand.find)


@router.post(
    "/v1/deliveries/{id}/retry", response_model=DeliveryWithAttempts, responses=answers(*BODY, NOT_FOUND, CONFLICT)
)
def retry(call: Operator, id: Id, _: Nothing) -> Response:
    """Retry a delivery now: a finished one in a new round, its schedule and age anew; 409 while it is in the air."""
    return _on(call, id, audited(call, Action.DELIVERY_RETRIED, "dlv", core.retry))


@router.post(
    "/v1/deliveries/{id}/cancel",
    response_model=DeliveryWithAttempts,
    responses=answers(*BODY, NOT_FOUND, CONFLICT, also={202: (DeliveryWithAttempts, "It is in the air: asked for.")}),
)
def cancel(call: Operator, id: Id, _: Nothing) -> Response:
    """Cancel a delivery; one in the air is answered 202, and ends as delivered or cancelled. 409 when finished."""
    cancelling = audited(call, Action.DELIVERY_CANCELLED, "dlv", core.cancel)
    return _on(call, id, cancelling, status_of=lambda found: 202 if found.status is DeliveryStatus.LEASED else 200)


def _on(
    call: Call,
    id: str,
    act: Callable[[Connection, str, int], Delivery | Refused | None],
    status_of: Callable[[Delivery], int] = lambda _: 200,
) -> Response:
    def with_attempts(connection: Connection, tenant: str, key: int) -> Answer | Refused | None:
        found = act(connection, tenant, key)
        if not isinstance(found, Delivery):
            return found
        attempts = by_hand.attempts(connection, key, most=MOST_ATTEMPTS)
        return answer({**view(found), "attempts": [attempt_view(each) for each in attempts]}, status_of(found))

    return act_on(call, "delivery", number("dlv", id), with_attempts, lambda shown: shown)
