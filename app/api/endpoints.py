"""Endpoints over HTTP: subscribe, look, change, rotate, switch on and off, delete. For operators."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.responses import Response

from app.api.acting import act_on, perform
from app.api.answers import Answer, Json, answer, write
from app.api.auditing import audited, note
from app.api.auth import Call, Operator
from app.api.bodies import Judge, parse
from app.api.endpoint_shapes import (
    CreatedView,
    EndpointChange,
    Endpoints,
    EndpointView,
    NewEndpoint,
    RotatedView,
    Rotation,
    SecretView,
    view,
)
from app.api.fields import Id
from app.api.limits import ENDPOINTS_RETRY_SECONDS, too_many
from app.api.openapi import answers, takes
from app.api.paging import Plain, answer_page, place
from app.api.problems import BODY, CONFLICT, NOT_FOUND, Flaw
from app.api.reading import Nothing, Small, SmallOrNone
from app.api.turns import InTurn
from app.core import endpoints as core
from app.core import vetting
from app.core.endpoints import Rotated, Wanted
from app.core.reservations import Refused
from app.domain.auditing import Action
from app.domain.identity import number
from app.ledger import endpoints, listings, paces
from app.ledger.endpoints import Endpoint

router = APIRouter(prefix="/v1/endpoints", tags=["endpoints"], route_class=InTurn)
Thing = TypeVar("Thing")
EXAMPLE = {"url": "https://shop.example/hooks", "event_types": ["order.*", "reservation.expired"]}
NO_STORE = {"Cache-Control": "no-store"}


@router.post(
    "",
    status_code=201,
    response_model=CreatedView,
    openapi_extra=takes(NewEndpoint, EXAMPLE),
    responses=answers(*BODY),
)
def create(call: Operator, body: Small) -> Response:
    """Subscribe a URL; the answer is the only one that holds both the endpoint and its secret."""
    members = parse(NewEndpoint, body, judge=_vetting(call)).asked.model_dump()
    wanted = Wanted(**members)
    sealer = call.runtime.sealer

    def work(connection: Connection) -> Answer:
        _refuse_more(connection, call)
        made = core.create(connection, sealer, call.tenant, wanted)
        note(connection, call, Action.ENDPOINT_CREATED, made.endpoint.id)
        return answer({**view(made.endpoint, sealer), "secret": made.secret}, 201, NO_STORE)

    return perform(call, work)


def _refuse_more(connection: Connection, call: Call) -> None:
    most = call.runtime.settings.tenant_endpoints
    if most is not None and core.has(connection, call.tenant, most):
        why = f"this tenant may have {most} endpoints; delete some first"
        raise too_many(why, ENDPOINTS_RETRY_SECONDS)


@router.get("", response_model=Endpoints, responses=answers())
def newest(call: Operator, listing: Plain) -> Response:
    """Endpoints, newest first."""
    (below,) = place("endpoints", listing) or (listings.NEWEST,)
    with call.runtime.engine.begin() as connection:
        page = listings.endpoints(connection, call.tenant, limit=listing.limit, below=below)

        def load(seqs: Sequence[int]) -> dict[int, Json]:
            held_up = paces.shown(connection, seqs)
            return {
                each.seq: Json(write(view(each, call.runtime.sealer, held_up.get(each.seq))))
                for each in endpoints.load(connection, seqs)
            }

        return answer_page("endpoints", page, load, lambda shown: shown)


@router.get("/{id}", response_model=EndpointView, responses=answers(NOT_FOUND))
def one(call: Operator, id: Id) -> Response:
    """One endpoint."""
    return _show(call, id, endpoints.find)


@router.patch(
    "/{id}",
    response_model=EndpointView,
    openapi_extra=takes(EndpointChange, {"rate_per_second": 5}),
    responses=answers(*BODY, NOT_FOUND, CONFLICT),
)
def change(call: Operator, id: Id, body: Small) -> Response:
    """Change an endpoint; the next attempt of whatever waits is made by the new settings."""
    members = parse(EndpointChange, body, judge=_vetting(call)).asked.model_dump(exclude_unset=True)
    sealer = call.runtime.sealer
    changing = audited(
        call,
        Action.ENDPOINT_CHANGED,
        "end",
        lambda *on: core.change(on[0], sealer, on[1], on[2], members),
        members=sorted(members),
    )
    return _show(call, id, changing)


@router.delete("/{id}", status_code=204, response_class=Response, responses=answers(NOT_FOUND))
def delete(call: Operator, id: Id) -> Response:
    """Delete an endpoint; what waits for it is cancelled, what is in the air ends as delivered or cancelled."""
    deleting = audited(call, Action.ENDPOINT_DELETED, "end", lambda *on: core.delete(*on) or None)
    return _on(call, id, deleting, lambda _: Response(status_code=204))


@router.get("/{id}/secret", response_model=SecretView, responses=answers(NOT_FOUND))
def secret(call: Operator, id: Id) -> Response:
    """What the receiver of an endpoint verifies the newest signatures with."""
    sealer = call.runtime.sealer
    reading = audited(call, Action.SECRET_READ, "end", lambda *on: core.secret(on[0], sealer, on[1], on[2]))
    return _on(call, id, reading, lambda found: answer({"secret": found}, headers=NO_STORE))


@router.post(
    "/{id}/rotate-secret",
    response_model=RotatedView,
    openapi_extra=takes(Rotation, {"overlap_seconds": 3600}, required=False),
    responses=answers(*BODY, NOT_FOUND, CONFLICT),
)
def rotate_secret(call: Operator, id: Id, body: SmallOrNone) -> Response:
    """Rotate an endpoint's secret: a new one from the next attempt on.

    The live ones sign beside it for a while; at most five live ones.
    """
    overlap = timedelta(seconds=parse(Rotation, body.strip() or b"{}").asked.overlap_seconds)
    sealer = call.runtime.sealer

    def shown(rotated: Rotated) -> Answer:
        return answer({"secret": rotated.secret, "previous_expires_at": rotated.previous_expires_at}, headers=NO_STORE)

    rotating = audited(
        call,
        Action.SECRET_ROTATED,
        "end",
        lambda *on: core.rotate(on[0], sealer, on[1], on[2], overlap),
        overlap_seconds=overlap.total_seconds(),
    )
    return _on(call, id, rotating, shown)


@router.post("/{id}/enable", response_model=EndpointView, responses=answers(*BODY, NOT_FOUND))
def enable(call: Operator, id: Id, _: Nothing) -> Response:
    """Enable an endpoint and clear its flag; what has waited is sent, paced."""
    return _show(call, id, audited(call, Action.ENDPOINT_ENABLED, "end", core.enable))


@router.post("/{id}/disable", response_model=EndpointView, responses=answers(*BODY, NOT_FOUND))
def disable(call: Operator, id: Id, _: Nothing) -> Response:
    """Disable an endpoint; what waits for it goes on waiting, until it is enabled or too old."""
    return _show(call, id, audited(call, Action.ENDPOINT_DISABLED, "end", core.disable))


def _on(
    call: Call,
    id: str,
    act: Callable[[Connection, str, int], Thing | Refused | None],
    show: Callable[[Thing], Response],
) -> Response:
    return act_on(call, "endpoint", number("end", id), act, show)


def _show(call: Call, id: str, act: Callable[[Connection, str, int], Endpoint | Refused | None]) -> Response:
    """Act, and answer the endpoint as it is then."""

    def work(connection: Connection, tenant: str, seq: int) -> dict[str, Any] | Refused | None:
        endpoint = act(connection, tenant, seq)
        if not isinstance(endpoint, Endpoint):
            return endpoint
        return view(endpoint, call.runtime.sealer, paces.shown(connection, [seq]).get(seq))

    return _on(call, id, work, answer)


def _vetting(call: Call) -> Judge:
    allowed = tuple(call.runtime.settings.allowed_networks)
    return lambda members: [Flaw(f"/{each.member}", each.why) for each in vetting.vet(members, allowed)]
