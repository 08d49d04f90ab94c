"""Who carries talks out: one that blocks, one that is awaited. Nothing else of the client is there twice."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import httpx

from app.client.refusals import MOST_BYTES, Answer
from app.client.shapes import Page
from app.client.talks import Got, Lost, Pause, Send, Talk

T = TypeVar("T")
Pages: TypeAlias = Callable[[str | None], Talk[Page[T]]]
_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_MARGIN = 0.1  # seconds; what knows in which phase it ran out of time comes first


class Blocking:
    """For programs with threads."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def run(self, talk: Talk[T]) -> T:
        """The talk's result."""
        step = next(talk)
        while True:
            try:
                step = talk.send(self._do(step))
            except StopIteration as end:
                result: T = end.value
                return result

    def each(self, pages: Pages[T]) -> Iterator[T]:
        """What is on the pages, which are asked for as one gets to them."""
        cursor = None
        while True:
            page = self.run(pages(cursor))
            yield from page.data
            cursor = page.next_cursor
            if cursor is None:
                return

    def _do(self, step: Send | Pause) -> Got:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            with self._http.stream(**_request(step)) as response:
                return Answer(response.status_code, response.headers, self._read(response))
        except httpx.TransportError as error:
            return _lost(error, step.seconds)

    def _read(self, response: httpx.Response) -> bytes:
        if response.is_stream_consumed:  # by a transport that has the whole before it answers
            return response.content
        body = bytearray()
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > MOST_BYTES:
                break
        return bytes(body)


class Awaited:
    """For programs on asyncio."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def run(self, talk: Talk[T]) -> T:
        """The talk's result."""
        step = next(talk)
        while True:
            try:
                step = talk.send(await self._do(step))
            except StopIteration as end:
                result: T = end.value
                return result

    async def each(self, pages: Pages[T]) -> AsyncIterator[T]:
        """What is on the pages, which are asked for as one gets to them."""
        cursor = None
        while True:
            page = await self.run(pages(cursor))
            for each in page.data:
                yield each
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _do(self, step: Send | Pause) -> Got:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            async with asyncio.timeout(step.seconds + _MARGIN), self._http.stream(**_request(step)) as response:
                return Answer(response.status_code, response.headers, await self._read(response))
        except (httpx.TransportError, TimeoutError) as error:
            return _lost(error, step.seconds)

    async def _read(self, response: httpx.Response) -> bytes:
        if response.is_stream_consumed:  # by a transport that has the whole before it answers
            return response.content
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MOST_BYTES:
                break
        return bytes(body)


def _request(step: Send) -> dict[str, Any]:
    call = step.call
    headers = {"idempotency-key": call.idempotency_key} if call.idempotency_key else {}
    if call.body is not None:
        headers["content-type"] = "application/json"
    return {
        "method": call.method,
        "url": call.path,
        "params": call.query,
        "content": None if call.body is None else call.body.encode(),
        "headers": headers,
        "timeout": step.seconds,
    }


def _lost(error: httpx.TransportError | TimeoutError, seconds: float) -> Lost:
    never_sent = isinstance(error, _NEVER_SENT)
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return Lost(f"no {'connection' if never_sent else 'answer'} within {seconds:.3g} s", not never_sent)
    what = "it can't be connected to" if never_sent else "the connection was lost"
    return Lost(f"{what}: {error}" if str(error) else what, not never_sent)
