"""The two clients, which differ in who waits."""

import ssl
from types import TracebackType
from typing import Generic, Self
from urllib.parse import urlsplit

import httpx

from app.client.carriers import Awaited, Blocking
from app.client.dead_letters import DeadLetters
from app.client.deadline import DeadlineTransport
from app.client.deliveries import Deliveries
from app.client.endpoints import Endpoints
from app.client.events import Events
from app.client.health import Health
from app.client.jobs import Jobs
from app.client.nouns import Carrier
from app.client.reservations import Reservations
from app.client.retries import Retries


class _Nouns(Generic[Carrier]):
    """What there is to talk about."""

    def __init__(self, carrier: Carrier, retries: Retries, tenant: str | None) -> None:
        self.reservations = Reservations(carrier, retries, tenant)
        self.events = Events(carrier, retries, tenant)
        self.endpoints = Endpoints(carrier, retries, tenant)
        self.deliveries = Deliveries(carrier, retries, tenant)
        self.dead_letters = DeadLetters(carrier, retries, tenant)
        self.jobs = Jobs(carrier, retries, tenant)
        self.health = Health(carrier, retries, None)


class Client(_Nouns[Blocking]):
    """The API at `api_url` with an API key; for several threads, not across a fork. Close it, or use it with `with`.

    `tenant` goes with a key of all tenants. The environment's proxies are not used: give an `httpx.HTTPTransport` of
    your own for one, or for authorities to trust; then `retries.timeout` bounds each read rather than the whole.
    ValueError for a URL or a key that can't be one.
    """

    def __init__(
        self,
        api_url: str,
        key: str,
        *,
        tenant: str | None = None,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(
            base_url=_checked(api_url),
            headers=_headers(key),
            transport=transport or DeadlineTransport(_context(api_url)),
        )
        super().__init__(Blocking(self._http), retries or Retries(), tenant)

    def close(self) -> None:
        """Close its connections; a repeat does nothing."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Nouns[Awaited]):
    """The same for one asyncio loop: its methods are awaited, its lists iterated with `async for`.

    Close it with `aclose`, or use it with `async with`.
    """

    def __init__(
        self,
        api_url: str,
        key: str,
        *,
        tenant: str | None = None,
        retries: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(
            base_url=_checked(api_url),
            headers=_headers(key),
            transport=transport or httpx.AsyncHTTPTransport(verify=_context(api_url)),
        )
        super().__init__(Awaited(self._http), retries or Retries(), tenant)

    async def aclose(self) -> None:
        """Close its connections; a repeat does nothing."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _checked(api_url: str) -> str:
    try:
        parts = urlsplit(api_url)
        fit = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        httpx.URL(api_url)
    except (ValueError, httpx.InvalidURL):
        fit = False
    if not fit or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("api_url is the service's address, such as https://duehook.example or http://127.0.0.1:8300")
    return api_url


def _headers(key: str) -> dict[str, str]:
    """Nothing is compressed: an answer is bounded by the bytes that come in."""
    if not key or not all("!" <= each <= "~" for each in key):
        raise ValueError("the key is not one: it has visible ASCII characters only, such as dhk_…")
    return {
        "authorization": f"Bearer {key}",
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "duehook-python",
    }


def _context(api_url: str) -> ssl.SSLContext:
    """For plain HTTP one that trusts nobody: to read the machine's authorities takes longer than most calls."""
    if api_url.startswith("https:"):
        return httpx.create_ssl_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
