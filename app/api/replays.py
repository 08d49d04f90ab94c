"""What an owner sends to one endpoint again, or to try it, over HTTP: replay, ping. For operators."""

from fastapi import APIRouter
from starlette.responses import Response

from app.api.acting import act_on
from app.api.answers import answer, rfc3339
from app.api.auditing import audited
from app.api.auth import Operator
from app.api.bodies import parse
from app.api.event_shapes import AcceptedView, accepted_view
from app.api.fields import Id
from app.api.job_shapes import JobView, queued, view
from app.api.openapi import answers, takes
from app.api.problems import BODY, CONFLICT, NOT_FOUND
from app.api.reading import Nothing, Small
from app.api.replay_shapes import Replay
from app.api.turns import InTurn
from app.core import pings, replays
from app.domain.auditing import Action
from app.domain.identity import number
from app.domain.states import DeliveryStatus, JobKind

router = APIRouter(prefix="/v1/endpoints", tags=["endpoints"], route_class=InTurn)
EXAMPLE = {"since": "2030-01-31T12:00:00Z", "until": "2030-01-31T18:00:00Z", "status": ["dead", "cancelled"]}


@router.post(
    "/{id}/replay",
    status_code=202,
    response_model=JobView,
    openapi_extra=takes(Replay, EXAMPLE),
    responses=answers(*BODY, NOT_FOUND, CONFLICT, shows={202: queued(JobKind.REPLAY)}),
)
def replay(call: Operator, id: Id, body: Small) -> Response:
    """Replay to an endpoint the events created in a window that match its patterns now; a job.

    What it never got is made, what it has had is re-opened by its status; cancelled events and pings are passed over.
    The same event id and bytes: its receiver may have had them. At most 1,000 a second are opened, and sent at the
    endpoint's own pace. 409 while it is disabled.
    """
    asked = parse(Replay, body).asked
    statuses = [DeliveryStatus(each) for each in asked.status]
    replaying = audited(
        call,
        Action.ENDPOINT_REPLAYED,
        "end",
        lambda *on: replays.start(*on, since=asked.since, until=asked.until, statuses=statuses),
        since=rfc3339(asked.since),
        until=asked.until and rfc3339(asked.until),
        status=statuses,
    )
    return act_on(call, "endpoint", number("end", id), replaying, lambda job: answer(view(job), 202))


@router.post(
    "/{id}/ping",
    status_code=202,
    response_model=AcceptedView,
    responses=answers(*BODY, NOT_FOUND, CONFLICT),
)
def ping(call: Operator, id: Id, _: Nothing) -> Response:
    """Ping an endpoint: an event of type `ping`, whatever its patterns, and to nobody else; each call sends one.

    What came back is in the event's delivery; a 410 disables nothing. 409 while it is disabled.
    """
    pinging = audited(call, Action.ENDPOINT_PINGED, "end", pings.ping)
    return act_on(call, "endpoint", number("end", id), pinging, lambda event: answer(accepted_view(event), 202))
