"""An egress proxy, well-behaved and otherwise: what it is asked for, what is made of it, what it never hears."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from app import settings
from app.domain.exchange import Blocked, Phase, Unreached
from app.runtime import make_transport
from app.sending.transport import PinnedTransport
from tests.hostile.cases import DEADLINE, SHORT, UNKNOWN, answered
from tests.hostile.certificates import Authority
from tests.hostile.conftest import Run
from tests.hostile.proxying import CREDENTIALS, ESTABLISHED, PASSWORD, proxy_at, read_connect, tunnel
from tests.hostile.sending import LOOPBACK, UNHURRIED, keeps_deadline, post, post_timed
from tests.hostile.server import (
    HostileServer,
    Step,
    close,
    drip,
    forever,
    hang,
    read_request,
    reset,
    send,
    serve_well,
    start_tls,
)
from tests.hostile.test_connecting import BLACK_HOLE, black_hole

NAME = "receiver.test"
SERVED = answered(200, excerpt=b"ok", address="127.0.0.1")


@dataclass(frozen=True)
class Case:
    """What the proxy does with its first connection; `why` is how what is said of it begins; `waits` says that the
    deadline ends it."""

    name: str
    script: Sequence[Step]
    phase: Phase
    why: str
    waits: bool = False


def says(name: str, answer: bytes, phase: Phase, why: str, *then: Step) -> Case:
    return Case(name, [read_connect(), send(answer), *then], phase, f"the egress proxy{why}")


def refuses(status: bytes, phase: Phase, why: str) -> Case:
    echo = b"HTTP/1.1 %s\r\nx-login: %s\r\n\r\n%s" % (status, CREDENTIALS, PASSWORD.encode())
    return says(status.decode(), echo, phase, why, hang())


UNREADABLE, ENDED = "'s answer can't be read", " ended the connection before it answered"
LATE = "no connection through the egress proxy in time"

CASES = [
    refuses(b"403 Forbidden " + CREDENTIALS, Phase.PROXY, " refused: it answered 403"),
    refuses(b"407 Wrong: " + CREDENTIALS, Phase.PROXY, " wants other credentials: it answered 407"),
    refuses(b"302 Found", Phase.PROXY, " refused: it answered 302"),
    refuses(b"404 Not Found", Phase.PROXY, " refused: it answered 404"),
    refuses(b"100 Continue", Phase.PROXY, " refused: it answered 100"),
    refuses(b"500 Unable to connect", Phase.CONNECT, " did not get through: it answered 500"),
    refuses(b"502 Bad Gateway", Phase.CONNECT, " did not get through: it answered 502"),
    refuses(b"503 Service Unavailable", Phase.CONNECT, " did not get through: it answered 503"),
    refuses(b"504 Gateway Timeout", Phase.CONNECT, " did not get through: it answered 504"),
    Case("never answers", [read_connect(), hang()], Phase.CONNECT, LATE, waits=True),
    Case("never reads", [hang()], Phase.CONNECT, LATE, waits=True),
    Case("drips its answer", [read_connect(), drip(ESTABLISHED, 0.02)], Phase.CONNECT, LATE, waits=True),
    says("drips headers for ever", b"HTTP/1.1 200 OK\r\n", Phase.PROXY, UNREADABLE, forever(b"x: y\r\n", 0.0)),
    says("headers of 20 MB", b"HTTP/1.1 200 OK\r\n", Phase.PROXY, UNREADABLE, *[send(b"x: " + b"y" * 999)] * 20_000),
    Case("closes when accepted", [], Phase.PROXY, "the egress proxy" + ENDED),
    Case("resets when accepted", [reset()], Phase.PROXY, "the egress proxy"),
    says("closes without an answer", b"", Phase.PROXY, ENDED),
    says("resets without an answer", b"", Phase.PROXY, ENDED, reset()),
    says("closes in its answer", b"HTTP/1.1 200 Conn", Phase.PROXY, ENDED),
    says("garbage", b"\0\xff\xfe" * 9, Phase.PROXY, UNREADABLE, hang()),
    says("another protocol's greeting", b"SSH-2.0-OpenSSH_9.9\r\n", Phase.PROXY, UNREADABLE, hang()),
    says("HTTP/2.0", b"HTTP/2.0 200 OK\r\n\r\n", Phase.PROXY, UNREADABLE, hang()),
    says("a status of two digits", b"HTTP/1.1 20 OK\r\n\r\n", Phase.PROXY, UNREADABLE, hang()),
    Case(
        "an answer nobody asked for",
        [read_connect(), send(ESTABLISHED + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), hang()],
        Phase.CONNECT,
        "bytes came before the request was sent",
    ),
]


def through(server: HostileServer, authority: Authority, **given: object) -> PinnedTransport:
    options = {"lookup": lambda _: ["127.0.0.1"], **given}
    return PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, proxy=proxy_at(server), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_proxy_costs_its_deadline_and_the_receiver_has_nothing(
    case: Case, run: Run, authority: Authority
) -> None:
    async def story() -> None:
        transport, url = through(proxy, authority), f"http://{NAME}:{receiver.port}/"
        deadline = SHORT if case.waits else DEADLINE
        result, seconds = await post_timed(transport, url, seconds=deadline)
        assert isinstance(result, Unreached) and result.phase is case.phase, result
        assert result.why.startswith(case.why), result
        assert not any(secret in repr(result) for secret in (PASSWORD, CREDENTIALS.decode()))
        assert keeps_deadline(seconds, deadline) if case.waits else seconds < UNHURRIED, seconds
        assert not receiver.requests
        SERVED.check(await post(transport, url))
        transport.close()

    with HostileServer() as receiver, HostileServer(case.script, [tunnel()]) as proxy:
        run(story())


def test_a_proxy_is_asked_for_the_address_and_the_receiver_for_its_name(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = through(proxy, authority)
        SERVED.check(await post(transport, f"https://{NAME}:{secure.port}/a?b"))
        SERVED.check(await post(transport, f"http://{NAME}:{plain.port}/a?b"))
        transport.close()

    serve_securely = [start_tls(authority.server_context(NAME)), serve_well()]
    with HostileServer(serve_securely) as secure, HostileServer() as plain, HostileServer([tunnel()]) as proxy:
        run(story())
    for server, connect in zip((secure, plain), proxy.requests, strict=True):
        assert connect == (
            b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nproxy-authorization: Basic %s\r\n\r\n"
        ) % (server.port, server.port, CREDENTIALS)
        assert server.requests[0].startswith(b"POST /a?b HTTP/1.1\r\nhost: receiver.test:%d\r\n" % server.port)
        assert b"proxy" not in server.requests[0]


def test_an_ipv6_address_is_asked_for_in_brackets(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = through(proxy, authority)
        answered(200, address="::1").check(await post(transport, f"http://[::1]:{receiver.port}/"))
        transport.close()

    with HostileServer(host="::1") as receiver, HostileServer([tunnel()]) as proxy:
        run(story())
    assert proxy.requests[0].startswith(b"CONNECT [::1]:%d HTTP/1.1\r\n" % receiver.port)


def test_a_certificate_is_held_to_the_name_behind_a_proxy_too(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = through(proxy, authority)
        result = await post(transport, f"https://{NAME}:{receiver.port}/")
        assert isinstance(result, Unreached) and result.phase is Phase.TLS and "other.test" not in result.why
        assert result.why.startswith("certificate refused: Hostname mismatch")
        transport.close()

    context = authority.server_context("other.test")
    with HostileServer([start_tls(context), serve_well()]) as receiver, HostileServer([tunnel()]) as proxy:
        run(story())
    assert not receiver.requests


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 204\r\nvia: x\r\n\r\n",
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",  # which means nothing there (RFC 9110, 9.3.6)
    ],
)
def test_any_2xx_of_a_proxy_opens_the_tunnel(answer: bytes, run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = through(proxy, authority)
        SERVED.check(await post(transport, f"http://{NAME}:{receiver.port}/"))
        transport.close()

    with HostileServer() as receiver, HostileServer([tunnel(answer)]) as proxy:
        run(story())


@pytest.mark.parametrize("addresses", [["10.0.0.1"], ["127.0.0.1", "10.0.0.1"], ["::ffff:10.0.0.1"]], ids=" ".join)
def test_a_proxy_never_hears_of_an_address_that_is_not_allowed(
    addresses: list[str], run: Run, authority: Authority
) -> None:
    async def story() -> None:
        transport = through(proxy, authority, lookup=lambda _: addresses)
        for host in (NAME, "10.0.0.1", "[::ffff:10.0.0.1]", "[64:ff9b::10.0.0.1]"):
            assert isinstance(await post(transport, f"http://{host}/"), Blocked)
        transport.close()

    with HostileServer([tunnel()]) as proxy:
        run(story())
    assert proxy.connections == 0


def test_a_kept_connection_goes_through_its_tunnel_again_and_each_origin_has_its_own(
    run: Run, authority: Authority
) -> None:
    async def story() -> None:
        transport = through(proxy, authority)
        for port in (one.port, one.port, other.port, other.port, one.port):
            SERVED.check(await post(transport, f"http://{NAME}:{port}/"))
        transport.close()

    with HostileServer() as one, HostileServer() as other, HostileServer([tunnel()]) as proxy:
        run(story())
    assert [proxy.connections, one.connections, other.connections] == [2, 1, 1]
    assert len(one.requests) == 3


def test_the_next_address_is_asked_for_when_a_proxy_does_not_get_through(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = through(proxy, authority, lookup=lambda _: ["127.0.0.9", "127.0.0.1"])
        SERVED.check(await post(transport, f"http://{NAME}:{receiver.port}/"))
        transport.close()

    with (
        HostileServer() as receiver,
        HostileServer([read_connect(), send(b"HTTP/1.1 502 \r\n\r\n")], [tunnel()]) as proxy,
    ):
        run(story())
    assert proxy.requests[0].startswith(b"CONNECT 127.0.0.9:")


def test_a_tunnel_that_breaks_after_the_request_is_unknown(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = through(proxy, authority)
        UNKNOWN.check(await post(transport, f"http://{NAME}:1/"))
        transport.close()

    with HostileServer([read_connect(), send(ESTABLISHED), read_request(), close()]) as proxy:
        run(story())


def test_a_tunnel_that_breaks_in_the_handshake_is_unreached(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = through(proxy, authority)
        result = await post(transport, f"https://{NAME}:1/")
        assert isinstance(result, Unreached) and result.phase is Phase.TLS
        transport.close()

    with HostileServer([read_connect(), send(ESTABLISHED), close()]) as proxy:
        run(story())


@pytest.mark.parametrize(
    ("host", "lookup", "why"),
    [
        ("127.0.0.2", None, "connection refused"),
        (BLACK_HOLE, None, "no connection in time"),
        ("proxy.test", [OSError(-2, "Name or service not known")], "resolve"),
    ],
    ids=["refused", "black-holed", "no such name"],
)
def test_a_proxy_that_is_down_is_no_trouble_of_the_receivers(
    host: str, lookup: list[OSError] | None, why: str, run: Run, authority: Authority
) -> None:
    def look_up(name: str) -> list[str]:
        if name == "proxy.test" and lookup:
            raise lookup[0]
        return ["127.0.0.1"]

    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, proxy=proxy_at(server, host), lookup=look_up)
        result, seconds = await post_timed(transport, f"http://{NAME}:{server.port}/", seconds=SHORT)
        assert isinstance(result, Unreached) and result.phase is Phase.PROXY, result
        assert result.why.startswith("the egress proxy can't be reached: ") and why in result.why
        assert keeps_deadline(seconds, SHORT) if host == BLACK_HOLE else seconds < SHORT
        transport.close()

    with HostileServer() as server, black_hole(server.port):
        run(story())
    assert not server.requests


def test_the_settings_reach_the_sender(run: Run, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        transport = make_transport(settings.load())
        SERVED.check(await post(transport, f"https://127.0.0.1:{receiver.port}/"))
        transport.close()

    serve_securely = [start_tls(authority.server_context("127.0.0.1")), serve_well()]
    with HostileServer(serve_securely) as receiver, HostileServer([tunnel()]) as proxy:
        monkeypatch.setenv("DUEHOOK_ALLOWED_NETWORKS", "127.0.0.0/8")
        monkeypatch.setenv("DUEHOOK_CA_BUNDLE", authority.bundle)
        monkeypatch.setenv("DUEHOOK_EGRESS_PROXY", f"http://duehook:{PASSWORD}@127.0.0.1:{proxy.port}")
        run(story())
    assert CREDENTIALS in proxy.requests[0]


def test_the_environments_proxies_and_netrc_are_never_read(
    run: Run, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text(f"machine {NAME} login somebody password {PASSWORD}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))

    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=lambda _: ["127.0.0.1"])
        SERVED.check(await post(transport, f"http://{NAME}:{receiver.port}/"))
        transport.close()
        proxied = through(proxy, authority)
        monkeypatch.setenv("NO_PROXY", "*")
        SERVED.check(await post(proxied, f"http://{NAME}:{receiver.port}/"))
        proxied.close()

    with HostileServer() as receiver, HostileServer([tunnel()]) as proxy, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{nobody.getsockname()[1]}")
        run(story())
    assert proxy.connections == 1
    assert not any(b"authorization" in request.lower() for request in receiver.requests)
