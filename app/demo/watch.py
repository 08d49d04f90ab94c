"""Looks, ten times a second, at how far the work has come."""

import asyncio
from collections.abc import Callable, Mapping

import psycopg

from app.demo.receivers import ReceiverProcess
from app.demo.tally import Tally

LOOK_SECONDS = 0.1

_PROGRESS = """
    SELECT (SELECT count(*) FROM duehook.reservations WHERE status = 'expired'),
           (SELECT count(*) FROM duehook.outbox)"""


async def watch(
    tally: Tally, database_url: str, receivers: Mapping[str, ReceiverProcess], show: Callable[[], None]
) -> None:
    """Keep the tally up to date, and show it, until cancelled."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        while True:
            async for row in await connection.execute(_PROGRESS):
                tally.expired, tally.open = row
            tally.receivers = {name: receiver.ledger.counts() for name, receiver in receivers.items()}
            show()
            await asyncio.sleep(LOOK_SECONDS)


async def until(condition: Callable[[], bool]) -> None:
    """Return once it is true; the caller sets the deadline."""
    while not condition():
        await asyncio.sleep(LOOK_SECONDS / 2)
