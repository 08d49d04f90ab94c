"""What the Python client sends over: TLS, transports of the caller's own, and nothing that the environment names."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from app.client import AsyncClient, Client, Retries, UnavailableError, UnknownOutcomeError
from tests.contract.clients import ACCEPTED, GOOD, KEY, QUICK, asking, headers_of, serve, take
from tests.hostile.certificates import Authority
from tests.hostile.server import HostileServer, drip, hang, reset, start_tls

IMPATIENT = Retries(tries=2, seconds=1, timeout=0.4, first=0.01)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """What this machine trusts."""
    trusted = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", trusted.bundle)
    return trusted


def post(port: int, *, awaited: bool, retries: Retries = QUICK) -> str:
    """The id of an event that is posted over TLS."""
    url = f"https://127.0.0.1:{port}"
    if not awaited:
        with Client(url, KEY, retries=retries) as client:
            return client.events.post("a", 1).id

    async def work() -> str:
        async with AsyncClient(url, KEY, retries=retries) as client:
            return (await client.events.post("a", 1)).id

    return asyncio.run(work())


@pytest.mark.parametrize("awaited", [False, True])
def test_tls_is_spoken_with_who_is_trusted(authority: Authority, awaited: bool) -> None:
    secure = start_tls(authority.server_context("127.0.0.1"))
    with HostileServer([secure, take, reset()], [secure, *serve(GOOD)]) as server:
        assert post(server.port, awaited=awaited) == "evt_1"


@pytest.mark.parametrize("awaited", [False, True])
def test_who_is_not_trusted_gets_nothing(authority: Authority, awaited: bool) -> None:
    for context in (authority.stranger().server_context("127.0.0.1"), authority.server_context("elsewhere.example")):
        told = pytest.raises(UnavailableError, match=r"nothing has happened.*CERTIFICATE_VERIFY_FAILED")
        with HostileServer([start_tls(context), *serve(GOOD)]) as server, told as refused:
            post(server.port, awaited=awaited)
        assert not isinstance(refused.value, UnknownOutcomeError)
        assert server.requests == []


@pytest.mark.parametrize("awaited", [False, True])
def test_the_deadline_holds_over_tls_and_in_its_handshake(authority: Authority, awaited: bool) -> None:
    secure = start_tls(authority.server_context("127.0.0.1"))
    began = time.monotonic()
    with HostileServer([secure, take, drip(GOOD, every=0.1), hang()]) as server, pytest.raises(UnknownOutcomeError):
        post(server.port, awaited=awaited, retries=IMPATIENT)
    with HostileServer([hang()]) as server, pytest.raises(UnavailableError, match=r"no connection within") as never:
        post(server.port, awaited=awaited, retries=IMPATIENT)
    assert not isinstance(never.value, UnknownOutcomeError), "no byte of the request has left"
    assert time.monotonic() - began < 5


def test_a_transport_of_the_callers_own_may_answer_whole() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["idempotency-key"]
        return httpx.Response(202, json=ACCEPTED)

    with Client("http://h/behind/a/path", KEY, transport=httpx.MockTransport(answer)) as client:
        assert client.events.post("a", 1).id == "evt_1"

    async def work() -> str:
        async with AsyncClient("http://h", KEY, transport=httpx.MockTransport(answer)) as awaited:
            return (await awaited.events.post("a", 1)).id

    assert asyncio.run(work()) == "evt_1"


def test_a_service_may_live_below_a_path() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(202, json=ACCEPTED)

    for url in ("http://h/duehook", "http://h/duehook/", "http://h"):
        with Client(url, KEY, tenant="acme", transport=httpx.MockTransport(answer)) as client:
            client.events.post("a", 1)
    assert asked == [*["http://h/duehook/v1/events?tenant=acme"] * 2, "http://h/v1/events?tenant=acme"]


def test_the_environment_names_no_proxy_and_no_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login l password p\n", encoding="ascii")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with HostileServer() as proxy, HostileServer(serve(GOOD)) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        with asking(server.port) as client:
            client.events.post("a", 1)
    assert proxy.connections == 0
    sent = headers_of(server.requests[0])
    assert (sent["authorization"], sent["accept-encoding"]) == (f"Bearer {KEY}", "identity")
    assert sent["content-type"] == "application/json"
