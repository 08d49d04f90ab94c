"""What every noun of the client is made of: methods that hold a talk, and are carried out as their client does.

A method returns a talk, or the pages of a list. The two descriptors here make of it, for a `Client`, a method that
returns the result, and for an `AsyncClient` one that is awaited: so each is written, typed and documented once.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from functools import wraps
from math import inf
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from app.client.calls import Call, get
from app.client.carriers import Awaited, Blocking, Pages
from app.client.reading import page
from app.client.retries import Retries
from app.client.shapes import Page
from app.client.talks import Talk, ask

P = ParamSpec("P")
T = TypeVar("T")
Carrier = TypeVar("Carrier", bound=Blocking | Awaited)


class Noun(Generic[Carrier]):
    """The calls about one kind of thing, for one tenant."""

    def __init__(self, carrier: Carrier, retries: Retries, tenant: str | None) -> None:
        self._carrier = carrier
        self._retries = retries
        self._tenant = tenant

    def _ask(self, call: Call[T], *, within: float = inf) -> Talk[T]:
        whose = {} if self._tenant is None else {"tenant": self._tenant}
        retries = replace(self._retries, seconds=min(self._retries.seconds, within))
        return ask(replace(call, query={**call.query, **whose}), retries)

    def _pages(self, shape: type[T], path: str, **query: str | int | None) -> Pages[T]:
        def one(cursor: str | None) -> Talk[Page[T]]:
            return self._ask(get(path, page(shape), **query, cursor=cursor))

        return one


class talks(Generic[P, T]):  # noqa: N801  a decorator
    """Of a method that returns a talk."""

    def __init__(self, method: Callable[Concatenate[Any, P], Talk[T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, noun: None, kind: type) -> Self: ...
    @overload
    def __get__(self, noun: Noun[Blocking], kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, noun: Noun[Awaited], kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, noun: Noun[Any] | None, kind: type) -> Any:
        if noun is None:
            return self

        @wraps(self._method)
        def carry_out(*arguments: P.args, **named: P.kwargs) -> Any:
            return noun._carrier.run(self._method(noun, *arguments, **named))

        return carry_out


class lists(Generic[P, T]):  # noqa: N801  a decorator
    """Of a method that returns pages: its caller iterates over what is on all of them."""

    def __init__(self, method: Callable[Concatenate[Any, P], Pages[T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, noun: None, kind: type) -> Self: ...
    @overload
    def __get__(self, noun: Noun[Blocking], kind: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, noun: Noun[Awaited], kind: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, noun: Noun[Any] | None, kind: type) -> Any:
        if noun is None:
            return self

        @wraps(self._method)
        def carry_out(*arguments: P.args, **named: P.kwargs) -> Any:
            return noun._carrier.each(self._method(noun, *arguments, **named))

        return carry_out
