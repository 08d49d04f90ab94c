"""The audit log over HTTP: look. For operators."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from app.api.audit_shapes import Entries, Filter, show
from app.api.auth import Operator
from app.api.openapi import answers
from app.api.paging import answer_page, place
from app.api.turns import InTurn
from app.ledger import audit, listings

router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=InTurn)


@router.get("", response_model=Entries, responses=answers())
def newest(call: Operator, filters: Annotated[Filter, Query()]) -> Response:
    """Who changed what, newest first: everything but what producers do, which reservations and events tell themselves.

    A filtered page may be short, or empty, and yet have a `next_cursor`.
    """
    (below,) = place("audit", filters) or (listings.NEWEST,)
    with call.runtime.engine.begin() as connection:
        page = listings.audit(
            connection,
            call.tenant,
            action=filters.action,
            subject=filters.subject,
            limit=filters.limit,
            below=below,
        )
        return answer_page("audit", page, lambda seqs: audit.load(connection, seqs), show)
