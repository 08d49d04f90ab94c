"""Receives events of duehook: POST /hooks. Each has its effect once, however often it comes."""

import os
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request

from app.receiver import UnverifiedError, receive
from database import apply, create_tables, engine

SECRETS = os.environ["WEBHOOK_SECRETS"].split()  # during a rotation both
MOST_BYTES = 2 * 1024 * 1024  # the sender allows 1 MiB of data

create_tables()
api = FastAPI()


async def bytes_of(request: Request) -> bytes:
    """The body as it came: JSON that was parsed and written anew has another signature."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise HTTPException(413, "larger than any event")
    return bytes(body)


@api.post("/hooks")
def hook(request: Request, body: Annotated[bytes, Depends(bytes_of)]) -> dict[str, Any]:
    """200 once the effect is committed, 401 when nobody who knows a secret has sent this just now.

    Whatever else goes wrong is a 500 and has left nothing: the event comes again. Not async, so that FastAPI calls it
    in a thread of its own, where it may wait for the database.
    """
    with engine.connect() as connection:
        try:
            receipt = receive(connection, request.headers, body, SECRETS, apply)
        except UnverifiedError as reason:
            raise HTTPException(401, f"not verified: {reason}") from None
    return {"outcome": receipt.outcome, "duplicate": receipt.duplicate}
