"""Jobs over HTTP: look, cancel. For operators."""

from fastapi import APIRouter
from starlette.responses import Response

from app.api.acting import act_on
from app.api.answers import answer
from app.api.auditing import audited
from app.api.auth import Operator
from app.api.fields import Id
from app.api.job_shapes import Jobs, JobView, show, view
from app.api.openapi import answers
from app.api.paging import Plain, answer_page, place
from app.api.problems import BODY, CONFLICT, NOT_FOUND
from app.api.reading import Nothing
from app.api.turns import InTurn
from app.core import jobs as core
from app.domain.auditing import Action
from app.domain.identity import number
from app.ledger import jobs, listings

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=InTurn)


@router.get("", response_model=Jobs, responses=answers())
def newest(call: Operator, listing: Plain) -> Response:
    """Jobs, newest first."""
    (below,) = place("jobs", listing) or (listings.NEWEST,)
    with call.runtime.engine.begin() as connection:
        page = listings.jobs(connection, call.tenant, limit=listing.limit, below=below)
        return answer_page("jobs", page, lambda seqs: jobs.load(connection, seqs), show)


@router.get("/{id}", response_model=JobView, responses=answers(NOT_FOUND))
def one(call: Operator, id: Id) -> Response:
    """One job, and how far it has come."""
    return act_on(call, "job", number("job", id), jobs.find, lambda job: answer(view(job)))


@router.post("/{id}/cancel", response_model=JobView, responses=answers(*BODY, NOT_FOUND, CONFLICT))
def cancel(call: Operator, id: Id, _: Nothing) -> Response:
    """Cancel a job where it is; what it has done stays done. 409 when it has ended otherwise."""
    cancelling = audited(call, Action.JOB_CANCELLED, "job", core.cancel)
    return act_on(call, "job", number("job", id), cancelling, lambda job: answer(view(job)))
