"""Names and addresses chosen by an adversary, and resolvers that lie, fail or hang."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from app.domain.addresses import parse_networks
from app.domain.exchange import Answered, Blocked, Unreached
from app.domain.proxies import Proxy
from app.domain.urls import Origin
from app.sending import guard
from app.sending.transport import PinnedTransport
from tests.hostile.cases import DEADLINE, SHORT
from tests.hostile.certificates import Authority
from tests.hostile.conftest import Run
from tests.hostile.sending import LOOPBACK, UNHURRIED, keeps_deadline, post, post_timed
from tests.hostile.server import HostileServer

DISGUISES = [
    "::ffff:127.0.0.1",
    "::127.0.0.1",
    "::ffff:a9fe:a9fe",
    "64:ff9b::7f00:1",
    "64:ff9b:1::7f00:1",
    "2002:7f00:1::",
    "2001:0:7f00:1::",
    "2001::f5ff:fffe",
    "::1",
    "::",
    "fe80::1",
    "fd00:ec2::254",
]


class Resolver:
    """Answers each lookup with the next of its answers, the last one for ever, and counts."""

    def __init__(self, *answers: list[str] | Callable[[], list[str]] | Exception) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self, host: str) -> list[str]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer


@pytest.mark.parametrize("address", DISGUISES)
def test_an_ipv6_literal_that_means_a_private_address_is_blocked(address: str, run: Run, authority: Authority) -> None:
    async def story() -> None:
        result = await post(PinnedTransport(ca_bundle=authority.bundle), f"http://[{address}]:1/")
        assert isinstance(result, Blocked) and result.literal

    run(story())


@pytest.mark.parametrize(
    "answer",
    [["127.0.0.1"], ["93.184.215.14", "127.0.0.1"], ["127.0.0.1", "93.184.215.14"], ["fe80::1%lo"], ["999.1.1.1"]]
    + [[address] for address in DISGUISES],
    ids=" ".join,
)
def test_a_name_with_one_address_that_is_not_allowed_is_blocked(
    answer: list[str], run: Run, authority: Authority
) -> None:
    async def story() -> None:
        transport = PinnedTransport(ca_bundle=authority.bundle, lookup=Resolver(answer))
        result = await post(transport, f"http://receiver.test:{server.port}/")
        assert isinstance(result, Blocked) and not result.literal and result.address in answer
        assert isinstance(await post(transport, f"http://127.0.0.1:{server.port}/"), Blocked)

    with HostileServer() as server:
        run(story())
    assert server.connections == 0


@pytest.mark.parametrize("host", ["127.1", "127.0.1", "0x7f.1", "0177.0.0.1", "0x7f000001", "2130706433", "localhost"])
def test_what_only_a_resolver_takes_for_an_address_is_vetted_too(host: str, run: Run, authority: Authority) -> None:
    """No endpoint can have such a URL; should one get past that, it is still a name, and asked for like one."""

    async def story() -> None:
        transport = PinnedTransport(ca_bundle=authority.bundle)
        deadline = asyncio.get_running_loop().time() + DEADLINE
        result = await transport.send(Origin("http", host, server.port), b"POST / HTTP/1.1\r\n\r\n", b"", deadline)
        assert isinstance(result, Blocked) and not result.literal, result
        assert result.error.startswith("address: 127.0.0.1 is in 127.0.0.0/8 (loopback") or result.address == "::1"
        transport.close()

    with HostileServer() as server:
        run(story())
    assert server.connections == 0


@pytest.mark.parametrize(
    ("allowed", "host", "passes"),
    [
        ("127.0.0.0/8", "127.0.0.1", True),
        ("127.0.0.1/32", "127.0.0.1", True),
        ("127.0.0.2/32", "127.0.0.1", False),
        ("10.0.0.0/8", "127.0.0.1", False),
        ("::1/128", "127.0.0.1", False),
        ("127.0.0.0/8", "[::1]", False),
        ("127.0.0.0/8", "[::ffff:127.0.0.1]", True),
        ("::ffff:0:0/96", "[::ffff:127.0.0.1]", True),
        ("10.0.0.0/8", "[::ffff:127.0.0.1]", False),
    ],
)
def test_allowed_networks_open_what_they_name_and_nothing_else(
    allowed: str, host: str, passes: bool, run: Run, authority: Authority
) -> None:
    async def story() -> None:
        transport = PinnedTransport(parse_networks([allowed]), ca_bundle=authority.bundle)
        result = await post(transport, f"http://{host}:{server.port}/")
        assert isinstance(result, Answered if passes else Blocked), result
        transport.close()

    with HostileServer() as server:
        run(story())


def test_a_kept_connection_ends_with_the_vetting_of_its_address(run: Run, authority: Authority) -> None:
    """Busy all the time, it would otherwise outlive every change of the name."""

    async def story() -> None:
        resolver = Resolver(["127.0.0.1"], ["10.0.0.1"])
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=resolver, pinned_seconds=0.3)
        url, began = f"http://receiver.test:{server.port}/", asyncio.get_running_loop().time()
        while isinstance(result := await post(transport, url), Answered):
            assert asyncio.get_running_loop().time() < began + UNHURRIED
            await asyncio.sleep(0.005)
        assert isinstance(result, Blocked) and result.address == "10.0.0.1"
        assert asyncio.get_running_loop().time() >= began + 0.3
        transport.close()

    with HostileServer() as server:
        run(story())
    assert server.connections == 1


def test_a_name_that_moves_to_a_private_address_is_blocked_from_then_on(run: Run, authority: Authority) -> None:
    async def story() -> None:
        allowed = parse_networks(["127.0.0.1/32"])
        resolver = Resolver(["127.0.0.1"], ["127.0.0.2"])
        transport = PinnedTransport(allowed, ca_bundle=authority.bundle, lookup=resolver, pinned_seconds=0.05)
        url = f"http://receiver.test:{server.port}/"
        assert isinstance(await post(transport, url), Answered)
        await asyncio.sleep(0.06)
        assert isinstance(await post(transport, url), Blocked)
        assert resolver.asked == 2

    with HostileServer(host="0.0.0.0") as server:
        run(story())
    assert server.connections == 1


def test_between_check_and_connect_nobody_is_asked_again(run: Run, authority: Authority) -> None:
    async def story() -> None:
        resolver = Resolver(["127.0.0.1"], AssertionError("asked twice"))
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=resolver)
        url = f"http://receiver.test:{server.port}/"
        results = await asyncio.gather(*(post(transport, url) for _ in range(20)))
        assert all(isinstance(result, Answered) for result in results)
        transport.close()
        assert resolver.asked == 1

    with HostileServer() as server:
        run(story())


def test_a_name_is_asked_for_again_when_nothing_at_its_addresses_answers(run: Run, authority: Authority) -> None:
    async def story() -> None:
        resolver = Resolver(["127.0.0.2"], ["127.0.0.1"])
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=resolver)
        url = f"http://receiver.test:{server.port}/"
        assert isinstance(await post(transport, url), Unreached)
        assert isinstance(await post(transport, url), Answered)
        transport.close()

    with HostileServer() as server:
        run(story())


@pytest.mark.parametrize(
    "answer",
    [OSError(-2, "Name or service not known"), UnicodeError("label too long"), KeyError("bug"), []],
    ids=["no such name", "not a name", "a bug in a given lookup", "no addresses"],
)
def test_a_name_that_does_not_resolve_is_unreached(
    answer: list[str] | Exception, run: Run, authority: Authority
) -> None:
    async def story() -> None:
        transport = PinnedTransport(ca_bundle=authority.bundle, lookup=Resolver(answer))
        result, seconds = await post_timed(transport, "http://receiver.test/")
        assert isinstance(result, Unreached) and seconds < UNHURRIED

    run(story())


def test_the_system_resolver_finds_localhost(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        result = await post(transport, f"http://localhost:{server.port}/")
        assert isinstance(result, Answered) and result.address == "127.0.0.1"
        transport.close()

    with HostileServer() as server:
        run(story())


def test_a_lookup_that_hangs_is_unreached_at_the_deadline_and_is_shared(run: Run, authority: Authority) -> None:
    released = threading.Event()

    def hang() -> list[str]:
        released.wait()
        return ["127.0.0.1"]

    async def story() -> None:
        resolver = Resolver(hang)
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=resolver)
        url = f"http://receiver.test:{server.port}/"
        for result, seconds in await asyncio.gather(*(post_timed(transport, url, seconds=SHORT) for _ in range(20))):
            assert isinstance(result, Unreached) and keeps_deadline(seconds, SHORT)
        late = asyncio.create_task(post(transport, url))
        await asyncio.sleep(0)
        released.set()
        assert isinstance(await late, Answered) and resolver.asked == 1
        transport.close()

    try:
        with HostileServer() as server:
            run(story())
    finally:
        released.set()


def test_a_transport_that_is_closed_for_good_leaves_no_lookup_in_the_loop(run: Run, authority: Authority) -> None:
    released = threading.Event()

    def hang(_: str) -> list[str]:
        released.wait()
        return []

    async def story() -> None:
        proxy = Proxy("proxy.test", 3128)
        for transport, url in (
            (PinnedTransport(lookup=hang), "http://receiver.test/"),
            (PinnedTransport(LOOPBACK, lookup=hang, proxy=proxy), "http://127.0.0.1/"),
        ):
            assert isinstance(await post(transport, url, seconds=0.05), Unreached)
            await transport.aclose()
            assert asyncio.all_tasks() == {asyncio.current_task()}
        released.set()

    try:
        run(story())
    finally:
        released.set()


FEW = guard.THREADS_PER_ZONE
ONE_ZONE = [f"slow-{n}.hang.test" for n in range(2 * guard.QUICK_THREADS)]
MANY_ZONES = [f"slow-{n}.hang-{zone}.test" for zone in range(guard.QUICK_THREADS // FEW + 1) for n in range(FEW)]


@pytest.mark.parametrize(
    ("names", "hangs_from"),
    [(ONE_ZONE, 1), (MANY_ZONES, FEW + 1)],
    ids=["one zone, from its first lookup", "many zones, from their second round on"],
)
def test_names_that_hang_do_not_delay_the_others(
    names: list[str], hangs_from: int, run: Run, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, asked = threading.Event(), Counter[str]()
    monkeypatch.setattr(guard, "SLOW_SECONDS", 0.005)

    def look_up(host: str) -> list[str]:
        zone = host.split(".")[-2]
        asked[zone] += 1
        if zone.startswith("hang"):
            released.wait(0.01 if asked[zone] < hangs_from else None)
        return ["127.0.0.1"]

    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=look_up, pinned_seconds=0.0)
        urls = [f"http://{name}:{server.port}/" for name in names]
        if hangs_from > 1:
            await asyncio.gather(*(post(transport, url) for url in urls))
        hanging = [asyncio.create_task(post(transport, url)) for url in urls]
        for _ in range(10):  # turns of the loop, until all of them are in a thread or wait for one
            await asyncio.sleep(0)
        result, seconds = await post_timed(transport, f"http://quick.receiver.test:{server.port}/")
        assert isinstance(result, Answered) and seconds < UNHURRIED
        assert not any(task.done() for task in hanging)
        released.set()
        await asyncio.gather(*hanging)
        transport.close()

    try:
        with HostileServer() as server:
            run(story())
    finally:
        released.set()
