"""Who calls: the API key, its tenant and its scope."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import Annotated

from fastapi import Path, Query, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.api import problems
from app.api.limits import Limits
from app.api.problems import Flaw, ProblemError, invalid
from app.api.turns import Turns
from app.core import keys
from app.core.keys import EVERY_TENANT, ApiKey
from app.core.together import Together
from app.domain.identity import is_tenant
from app.domain.states import KeyScope
from app.runtime import Runtime

REMEMBERED_SECONDS = 2.0
LOOK_UPS = 2  # of keys at once
_bearer = HTTPBearer(auto_error=False, scheme_name="key", description="An API key: `duehook keys create TENANT`.")


@dataclass(frozen=True, slots=True)
class Call:
    """An authorised request: for whom, by which key, and what it needs to be answered."""

    tenant: str
    actor: str
    runtime: Runtime
    turns: Turns
    limits: Limits
    together: Together
    request: Request = field(repr=False)


class KeyRing:
    """The keys that were used in the last seconds, so that not every request asks the database for its key.

    A revoked key is honoured for `REMEMBERED_SECONDS` at most. Unknown keys are never remembered: a new one works
    at once, and strangers can't fill the memory. They are looked up on a few `threads` of their own: strangers can't
    take every connection either.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.threads = ThreadPoolExecutor(LOOK_UPS, "key")
        self._runtime = runtime
        self._known: dict[str, tuple[float, ApiKey]] = {}

    def recall(self, secret: str) -> ApiKey | None:
        """The key when it was looked up just now."""
        until, key = self._known.get(secret, (0.0, None))
        return key if until > monotonic() else None

    def look_up(self, secret: str) -> ApiKey | None:
        """The key as the ledger knows it now."""
        with self._runtime.engine.begin() as connection:
            key = keys.find(connection, secret)
        if key is None:
            self._known.pop(secret, None)
        else:
            self._known[secret] = (monotonic() + REMEMBERED_SECONDS, key)
        return key


def _needs(*scopes: KeyScope) -> Callable[..., Awaitable[Call]]:
    async def call(
        request: Request,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
        tenant: Annotated[str | None, Query(description="With a key of all tenants: whose things.")] = None,
    ) -> Call:
        key = await _key(request, credentials)
        if key.scope not in scopes:
            raise ProblemError(problems.WRONG_SCOPE, f"a {key.scope} key can't do that, it takes an operator's")
        return _call(request, key, tenant)

    return call


async def _oversees(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    tenant: Annotated[str, Path(description="Its name.")],
) -> Call:
    key = await _key(request, credentials)
    if key.tenant != EVERY_TENANT:
        raise ProblemError(problems.WRONG_SCOPE, "this takes a key of all tenants")
    return _call(request, key, tenant)


def _call(request: Request, key: ApiKey, tenant: str | None) -> Call:
    _refuse_twice(request)
    state = request.app.state
    whose = _tenant(key, tenant)
    state.limits.take_request(whose)
    return Call(whose, keys.public_id(key), state.runtime, state.turns, state.limits, state.together, request)


async def _key(request: Request, credentials: HTTPAuthorizationCredentials | None) -> ApiKey:
    ring: KeyRing = request.app.state.key_ring
    secret = credentials.credentials if credentials else ""
    if len(request.headers.getlist("authorization")) > 1:  # a proxy may have looked at the other one
        raise ProblemError(problems.NO_KEY, "Authorization is given twice", headers={"WWW-Authenticate": "Bearer"})
    found = ring.recall(secret)
    if found is None and keys.looks_right(secret):
        found = await asyncio.get_running_loop().run_in_executor(ring.threads, ring.look_up, secret)
    if found is None:
        sentence = "this key is unknown or revoked" if secret else "this needs an API key"
        raise ProblemError(problems.NO_KEY, sentence, headers={"WWW-Authenticate": "Bearer"})
    return found


def _refuse_twice(request: Request) -> None:
    """Of a query parameter that is given twice one would count, and nobody could say which."""
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen:
            raise invalid(Flaw(f"/{name}", "is given twice"))
        seen.add(name)


def _tenant(key: ApiKey, asked: str | None) -> str:
    if key.tenant != EVERY_TENANT:
        if asked not in (None, key.tenant):
            raise ProblemError(problems.WRONG_SCOPE, f"this key is for the tenant {key.tenant} alone")
        return key.tenant
    if asked is None:
        raise invalid(Flaw("/tenant", "a key of all tenants needs the query parameter tenant"))
    if not is_tenant(asked):
        raise invalid(Flaw("/tenant", "a tenant's name is up to 64 letters, digits, _ and -, a letter or digit first"))
    return asked


# The scopes stand in the document; what holds them is `_needs`.
Producer = Annotated[Call, Security(_needs(KeyScope.PRODUCER, KeyScope.OPERATOR), scopes=[KeyScope.PRODUCER])]
Operator = Annotated[Call, Security(_needs(KeyScope.OPERATOR), scopes=[KeyScope.OPERATOR])]
Overseer = Annotated[Call, Security(_oversees, scopes=[KeyScope.OPERATOR])]
