"""Tenants over HTTP: erase one. For keys of all tenants."""

from fastapi import APIRouter
from starlette.responses import Response

from app.api.answers import answer
from app.api.auth import Overseer
from app.api.job_shapes import JobView, queued, view
from app.api.openapi import answers
from app.api.problems import CONFLICT, conflict
from app.api.turns import InTurn
from app.core import erasures
from app.domain.states import JobKind
from app.ledger.database import in_transaction

router = APIRouter(prefix="/v1/tenants", tags=["tenants"], route_class=InTurn)


@router.delete(
    "/{tenant}",
    status_code=202,
    response_model=JobView,
    responses=answers(CONFLICT, shows={202: queued(JobKind.ERASE_TENANT)}),
)
def erase(call: Overseer) -> Response:
    """Erase everything of a tenant but its audit log; a job. Takes a key of all tenants.

    At once its keys are revoked and nothing is made for it any more; from the job's first steps on nothing is sent for
    it. What is in the air ends as delivered or cancelled, and the job waits for that. It tells nobody of its end, for
    nobody is left: poll it, with `?tenant=`. A repeat answers the job that does it already. The name may be used again
    when it has ended; cancelled, it leaves the rest as it is, and a repeat goes on with that.
    """
    job = in_transaction(
        call.runtime.engine, lambda connection: erasures.start_tenant(connection, call.tenant, call.actor)
    )
    if job is None:
        raise conflict("the erasure of this tenant has ended this very moment; ask again for another one")
    return answer(view(job), 202)
