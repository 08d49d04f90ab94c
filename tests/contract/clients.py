"""The Python client against the API of these tests, or against whoever listens there."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.client import AsyncClient, Client, Retries
from app.domain.states import KeyScope
from tests.contract.served import Api

ONCE = Retries(tries=1, timeout=10)
QUICK = Retries(tries=4, seconds=20, timeout=5, first=0.01, longest=0.02)
KEY = "dhk_of_nobody"


def client_of(api: Api, tenant: str, scope: KeyScope = KeyScope.OPERATOR) -> Client:
    """Of a tenant; the first failure counts."""
    return Client(api.url, api.key(tenant, scope), retries=ONCE)


def async_client_of(api: Api, tenant: str) -> AsyncClient:
    """The same, to be awaited."""
    return AsyncClient(api.url, api.key(tenant), retries=ONCE)


@contextmanager
def asking(port: int, retries: Retries = QUICK) -> Iterator[Client]:
    """Who asks a server of the test's own."""
    with Client(f"http://127.0.0.1:{port}", KEY, retries=retries) as client:
        yield client
