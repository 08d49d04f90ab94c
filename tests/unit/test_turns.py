"""Tenants take turns at the threads that answer."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from app.api.turns import Turns

THREADS = 4  # a tenant's share is one
Scene = Callable[[Turns], Awaitable[None]]


def play(scene: Scene, threads: int = THREADS, kind: type[Turns] = Turns) -> None:
    async def played() -> None:
        await asyncio.wait_for(scene(kind(threads)), 20)

    asyncio.run(played())


async def settled() -> None:
    """Everything that can go on without a thread has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)


class Held:
    """Work that ends when it is told to, and the order in which it began."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._gates: dict[str, threading.Event] = {}
        self._began: dict[str, threading.Event] = {}

    def work(self, name: str) -> Callable[[], str]:
        gate = self._gates[name] = threading.Event()
        began = self._began[name] = threading.Event()

        def run() -> str:
            self.begun.append(name)
            began.set()
            assert gate.wait(20)
            return name

        return run

    async def began(self, name: str) -> None:
        assert await asyncio.to_thread(self._began[name].wait, 20), name

    def end(self, *names: str) -> None:
        for name in names:
            self._gates[name].set()


def ask(turns: Turns, held: Held, tenant: str, name: str) -> "asyncio.Task[str]":
    return asyncio.get_running_loop().create_task(turns.run(tenant, held.work(name)))


def test_a_tenant_holds_a_quarter_of_the_threads_however_much_it_asks() -> None:
    async def scene(turns: Turns) -> None:
        held = Held()
        asked = [ask(turns, held, "flood", f"flood {number}") for number in range(10)]
        await held.began("flood 1")
        await settled()
        other = ask(turns, held, "quiet", "quiet")
        await held.began("quiet")
        held.end("quiet")
        assert await other == "quiet"  # which leaves a thread free for anybody else
        later = ask(turns, held, "later", "later")
        await held.began("later")
        assert held.begun == ["flood 0", "flood 1", "quiet", "later"]
        held.end("later", *(f"flood {number}" for number in range(10)))
        assert await later == "later"
        assert await asyncio.gather(*asked) == [f"flood {number}" for number in range(10)]

    play(scene, threads=8)


def test_a_tenant_has_one_long_request_at_a_time_and_a_short_one_beside_it() -> None:
    async def scene(turns: Turns) -> None:
        held = Held()
        loop = asyncio.get_running_loop()
        lists = [loop.create_task(turns.run("lists", held.work(name), is_long=True)) for name in ("l0", "l1")]
        await held.began("l0")
        short = ask(turns, held, "other", "other")
        await held.began("other")
        assert held.begun == ["l0", "other"]
        held.end("l0")
        await held.began("l1")
        beside = ask(turns, held, "lists", "beside")
        await held.began("beside")
        held.end("l1", "other", "beside")
        assert await asyncio.gather(*lists, short, beside) == ["l0", "l1", "other", "beside"]

    play(scene, threads=16)


def test_a_long_request_is_not_passed_by_the_short_ones_of_its_tenant() -> None:
    async def scene(turns: Turns) -> None:
        held = Held()
        before = [ask(turns, held, "a", name) for name in ("s0", "s1")]
        await held.began("s0")
        await held.began("s1")
        long = asyncio.get_running_loop().create_task(turns.run("a", held.work("long"), is_long=True))
        await settled()
        after = ask(turns, held, "a", "s2")  # there would be room for it
        await settled()
        held.end("s0")
        await held.began("long")
        await held.began("s1")
        assert held.begun.index("long") == 2
        held.end("s1", "long", "s2")
        await asyncio.gather(*before, long, after)
        assert held.begun[3:] == ["s2"]

    play(scene, threads=16)


def test_a_long_request_that_ends_makes_room_for_as_many_short_ones_as_it_weighed() -> None:
    async def scene(turns: Turns) -> None:
        held = Held()
        long = asyncio.get_running_loop().create_task(turns.run("a", held.work("long"), is_long=True))
        await held.began("long")
        short = [ask(turns, held, "a", f"s{number}") for number in range(4)]
        await held.began("s0")
        await settled()
        held.end("long")
        for number in range(1, 4):
            await held.began(f"s{number}")
        held.end(*(f"s{number}" for number in range(4)))
        assert await asyncio.gather(long, *short) == ["long", "s0", "s1", "s2", "s3"]

    play(scene, threads=16)


def test_those_who_wait_are_served_in_turn_and_not_in_the_order_in_which_they_came() -> None:
    async def scene(turns: Turns) -> None:
        held = Held()
        first = [ask(turns, held, tenant, tenant) for tenant in ("a", "b", "c", "d")]
        for tenant in ("a", "b", "c", "d"):
            await held.began(tenant)
        rest = [ask(turns, held, "e", f"e{number}") for number in range(3)]
        rest += [ask(turns, held, "f", "f0")]
        await settled()
        for done, follows in (("a", "e0"), ("e0", "f0"), ("f0", "e1"), ("e1", "e2")):
            held.end(done)
            await held.began(follows)
        held.end("b", "c", "d", "e2")
        await asyncio.gather(*first, *rest)
        assert held.begun == ["a", "b", "c", "d", "e0", "f0", "e1", "e2"]

    play(scene)


def test_work_that_fails_gives_its_turn_back() -> None:
    def fail() -> None:
        raise ValueError("no")

    async def scene(turns: Turns) -> None:
        for _ in range(2 * THREADS):
            with pytest.raises(ValueError, match="no"):
                await turns.run("a", fail)
        assert await turns.run("a", lambda: "done") == "done"

    play(scene)


def test_who_gives_up_waiting_takes_nobody_s_turn() -> None:
    async def scene(turns: Turns) -> None:
        held = Held()
        first = ask(turns, held, "a", "a0")
        await held.began("a0")
        gone, last = ask(turns, held, "a", "a1"), ask(turns, held, "a", "a2")
        await settled()
        gone.cancel()
        held.end("a0")
        await held.began("a2")
        held.end("a2")
        assert (await first, await last) == ("a0", "a2")
        assert held.begun == ["a0", "a2"]

    play(scene)


class Hasty(Turns):
    """Somebody gives up at the very moment at which a turn was handed on."""

    leaving: "asyncio.Task[str] | None" = None

    def _give_back(self, tenant: str, weight: int) -> None:
        super()._give_back(tenant, weight)
        if self.leaving:
            self.leaving.cancel()


def test_a_turn_that_was_given_to_somebody_who_gives_up_just_then_goes_on_to_the_next() -> None:
    async def scene(turns: Turns) -> None:
        assert isinstance(turns, Hasty)
        held = Held()
        first = ask(turns, held, "a", "a0")
        await held.began("a0")
        turns.leaving, last = ask(turns, held, "a", "a1"), ask(turns, held, "a", "a2")
        await settled()
        held.end("a0")
        await held.began("a2")
        held.end("a2")
        assert (await first, await last) == ("a0", "a2")
        assert turns.leaving.cancelled()
        assert held.begun == ["a0", "a2"]

    play(scene, kind=Hasty)
