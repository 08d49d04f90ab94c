"""The same sender under httpx: what it refuses, what it never does, and how the cases become exceptions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from app.sending.transport import PinnedTransport
from tests.hostile.cases import SHORT, head
from tests.hostile.certificates import Authority
from tests.hostile.conftest import Run
from tests.hostile.sending import LOOPBACK
from tests.hostile.server import OK, HostileServer, Script, hang, read_request, send, serve_well

Use = Callable[[httpx.AsyncClient, str], Awaitable[None]]


@pytest.fixture
def through_httpx(run: Run, authority: Authority) -> Callable[[Script, Use], HostileServer]:
    """Lets `use` have a client and the URL of a receiver with that script."""

    def through(script: Script, use: Use) -> HostileServer:
        async def story(url: str) -> None:
            transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
            async with httpx.AsyncClient(transport=transport, timeout=5) as client:
                await use(client, url)

        with HostileServer(script) as server:
            run(story(f"http://127.0.0.1:{server.port}"))
        return server

    return through


Through = Callable[[Script, Use], HostileServer]


def test_a_request_arrives_as_httpx_made_it(through_httpx: Through) -> None:
    async def use(client: httpx.AsyncClient, url: str) -> None:
        answer = await client.post(f"{url}/a?b=c#d", json={"x": 1}, headers={"x-own": "1"})
        assert (answer.status_code, answer.text, answer.headers["content-length"]) == (200, "ok", "2")

    [request] = through_httpx([serve_well()], use).requests
    assert request.startswith(b"POST /a?b=c HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nx-own: 1\r\n" in request.lower() and request.endswith(b'\r\n\r\n{"x":1}')


def test_a_streamed_body_is_sent_with_its_length_and_never_chunked(through_httpx: Through) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"c"

    async def use(client: httpx.AsyncClient, url: str) -> None:
        await client.put(url, content=parts(), headers={"expect": "100-continue", "host": "elsewhere"})

    [request] = through_httpx([serve_well()], use).requests
    assert b"content-length: 3\r\n" in request and request.endswith(b"\r\n\r\nabc")
    assert not any(word in request.lower() for word in (b"chunked", b"expect", b"elsewhere"))


def test_nothing_is_decoded_and_the_body_is_capped(through_httpx: Through) -> None:
    async def use(client: httpx.AsyncClient, url: str) -> None:
        answer = await client.get(url)
        assert answer.status_code == 200 and len(answer.content) <= 65536
        assert "content-encoding" not in answer.headers

    through_httpx([read_request(), send(head(b"200 OK", b"content-encoding: gzip") + b"z" * 99_999)], use)


def test_a_redirect_is_an_answer(through_httpx: Through) -> None:
    async def use(client: httpx.AsyncClient, url: str) -> None:
        answer = await client.get(url)
        assert answer.status_code == 308 and answer.headers["location"] == "/elsewhere"

    script = [read_request(), send(head(b"308 No", b"location: /elsewhere", b"content-length: 0")), serve_well()]
    assert len(through_httpx(script, use).requests) == 1


def test_what_the_receiver_cannot_have_is_a_connect_error(through_httpx: Through) -> None:
    async def use(client: httpx.AsyncClient, url: str) -> None:
        for elsewhere in ("http://127.0.0.2:1/", "http://10.0.0.1/", "http://[::ffff:10.0.0.1]/"):
            with pytest.raises(httpx.ConnectError):
                await client.get(elsewhere)

    through_httpx([serve_well()], use)


def test_what_the_receiver_may_have_is_a_read_error_at_the_deadline(through_httpx: Through) -> None:
    async def use(client: httpx.AsyncClient, url: str) -> None:
        with pytest.raises(httpx.ReadError) as caught:
            async with asyncio.timeout(SHORT + 10):  # whoever has no deadline is not waited for
                await client.get(url, timeout=SHORT)
        assert "deadline" in str(caught.value)

    through_httpx([read_request(), hang()], use)


@pytest.mark.parametrize("bad", ["http://h\\@evil/", "http://127.1/", "http://u:p@127.0.0.1/", "http://h:99999/"])
def test_a_url_that_no_endpoint_may_have_is_refused(bad: str, through_httpx: Through) -> None:
    async def use(client: httpx.AsyncClient, url: str) -> None:
        with pytest.raises((httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.ConnectError)):
            await client.get(bad)

    assert not through_httpx([serve_well()], use).requests


def test_a_header_cannot_add_a_request(through_httpx: Through) -> None:
    async def use(client: httpx.AsyncClient, url: str) -> None:
        for value in ("a\r\nx: y", "a\nb", "a\rb", "a\0b"):
            with pytest.raises(httpx.LocalProtocolError):
                await client.get(url, headers={"x": value})

    assert not through_httpx([serve_well()], use).requests


def test_methods_whose_answers_have_no_body_are_refused(through_httpx: Through) -> None:
    async def use(client: httpx.AsyncClient, url: str) -> None:
        with pytest.raises(httpx.UnsupportedProtocol):
            await client.head(url)

    assert not through_httpx([send(OK)], use).requests
