"""TLS: the name stays the name although the address is pinned, and a broken handshake is never "unknown"."""

import datetime
import ssl
from collections.abc import Callable

import pytest

from app.domain.exchange import Answered, Phase
from app.sending.tls import client_context
from app.sending.transport import PinnedTransport
from tests.hostile.cases import UNKNOWN, UNREACHED, Case, Expected, answered, head
from tests.hostile.certificates import Authority
from tests.hostile.conftest import Run
from tests.hostile.sending import LOOPBACK, hold_to, post
from tests.hostile.server import (
    OK,
    HostileServer,
    Step,
    cut_tls,
    drip,
    half_close,
    hang,
    read_a_little,
    read_request,
    read_what_is_there,
    reset,
    send,
    serve_well,
    start_tls,
)

NAME = "receiver.test"
Context = Callable[[Authority], ssl.SSLContext]


def good(authority: Authority) -> ssl.SSLContext:
    return authority.server_context(NAME, "127.0.0.1")


def expired(authority: Authority) -> ssl.SSLContext:
    return authority.server_context(NAME, valid_for=-datetime.timedelta(days=1))


def wrong_name(authority: Authority) -> ssl.SSLContext:
    return authority.server_context("other.test")


def self_signed(authority: Authority) -> ssl.SSLContext:
    return authority.self_signed_context(NAME)


def old_version(authority: Authority) -> ssl.SSLContext:
    context = authority.server_context(NAME)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def not_yet_valid(authority: Authority) -> ssl.SSLContext:
    return authority.server_context(NAME, valid_for=datetime.timedelta(days=90))


def unknown_authority(authority: Authority) -> ssl.SSLContext:
    return authority.stranger().server_context(NAME)


def wants_ours(authority: Authority) -> ssl.SSLContext:
    context = authority.server_context(NAME)
    context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_2
    return context


def unreached(why: str) -> Expected:
    return Expected(UNREACHED.kinds, {"phase": Phase.TLS, "why": why})


def refused(reason: str) -> Expected:
    return unreached(f"certificate refused: {reason}")


NOT_TLS = unreached("the receiver does not speak TLS on this port")
RESET = unreached("connection reset by peer")
LATE = unreached("the handshake did not end in time")


WITHOUT_LENGTH = head(b"200 OK") + b"all of it"

CASES: list[tuple[Context | None, Case]] = [
    (good, Case("well served", [serve_well()], answered(200, excerpt=b"ok"), kept=True)),
    (good, Case("large request", [serve_well()], answered(200), b"x" * (1 << 20), kept=True)),
    (
        good,
        Case("no close_notify", [read_request(), send(WITHOUT_LENGTH), cut_tls()], answered(200, excerpt=b"all of it")),
    ),
    (good, Case("cut in the head", [read_request(), send(b"HTTP/1.1 2"), cut_tls()], UNKNOWN)),
    (good, Case("cut in the body", [read_request(), send(OK[:-1]), cut_tls()], answered(200, excerpt=b"o"))),
    (good, Case("reset without an answer", [read_request(), reset()], UNKNOWN)),
    (good, Case("plain bytes in between", [read_request(), cut_tls(), send(OK), hang()], UNKNOWN)),
    (good, Case("early answer", [read_a_little(), send(OK), hang()], answered(200), b"x" * (1 << 23))),
    (good, Case("bytes after the answer", [read_request(), send(OK + b"stray"), hang()], answered(200))),
    (good, Case("dripped body", [read_request(), send(OK[:-2]), drip(b"o"), hang()], answered(200), waits=True)),
    (good, Case("silence", [read_request(), hang()], UNKNOWN, waits=True)),
    (expired, Case("expired", [serve_well()], refused("certificate has expired"))),
    (self_signed, Case("self-signed", [serve_well()], refused("self-signed certificate"))),
    (
        wrong_name,
        Case("wrong name", [serve_well()], refused("Hostname mismatch, certificate is not valid for 'receiver.test'.")),
    ),
    (not_yet_valid, Case("not yet valid", [serve_well()], refused("certificate is not yet valid"))),
    (unknown_authority, Case("unknown authority", [serve_well()], refused("unable to get local issuer certificate"))),
    (wants_ours, Case("wants a certificate of ours", [serve_well()], UNREACHED)),
    (old_version, Case("TLS 1.1", [serve_well()], unreached("the receiver speaks no version of TLS from 1.2 on"))),
    (None, Case("plain HTTP on a TLS port", [read_a_little(), send(OK), hang()], NOT_TLS)),
    (None, Case("another protocol's greeting on a TLS port", [send(b"220 mail.test ESMTP\r\n"), hang()], NOT_TLS)),
    (None, Case("closed in the handshake", [read_a_little()], RESET)),
    (None, Case("reset in the handshake", [read_a_little(), reset()], RESET)),
    (None, Case("half-closed in the handshake", [read_what_is_there(), half_close(), hang()], UNREACHED)),
    (None, Case("handshake never answered", [hang()], LATE, waits=True)),
    (None, Case("handshake dripped", [send(b"\x16\x03\x03\x40\0\x02"), drip(bytes(999))], LATE, waits=True)),
    (None, Case("garbage in the handshake", [send(b"\x16\x03\x01\xff\xff" + b"\0" * 99), hang()], NOT_TLS)),
]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize(("context", "case"), CASES, ids=[case.name for _, case in CASES])
def test_tls_faults_keep_the_deadline_and_the_meaning(
    context: Context | None, case: Case, run: Run, authority: Authority
) -> None:
    opening: list[Step] = [start_tls(context(authority))] if context else []
    well = [start_tls(good(authority)), serve_well()]
    with HostileServer([*opening, *case.script], well) as server:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=lambda _: ["127.0.0.1"])
        run(hold_to(case, transport, f"https://{NAME}:{server.port}/hook", server))


def test_a_literal_address_needs_a_certificate_for_the_address(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        assert isinstance(await post(transport, f"https://127.0.0.1:{server.port}/"), Answered)
        refused("IP address mismatch, certificate is not valid for '127.0.0.2'.").check(
            await post(transport, f"https://127.0.0.2:{server.port}/")
        )
        transport.close()

    with HostileServer([start_tls(good(authority)), serve_well()], host="0.0.0.0") as server:
        run(story())


def test_a_receiver_that_the_system_does_not_trust_is_unreached(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, lookup=lambda _: ["127.0.0.1"])
        result = await post(transport, f"https://{NAME}:{server.port}/")
        refused("unable to get local issuer certificate").check(result)
        transport.close()

    with HostileServer([start_tls(good(authority)), serve_well()]) as server:
        run(story())
    assert not server.requests


def test_a_bundle_is_trusted_beside_the_systems_authorities(
    run: Run, authority: Authority, system_authority: Authority
) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=lambda _: ["127.0.0.1"])
        assert isinstance(await post(transport, f"https://{NAME}:{public.port}/"), Answered)
        assert isinstance(await post(transport, f"https://{NAME}:{internal.port}/"), Answered)
        transport.close()

    with (
        HostileServer([start_tls(good(system_authority)), serve_well()]) as public,
        HostileServer([start_tls(good(authority)), serve_well()]) as internal,
    ):
        run(story())


def test_no_version_of_tls_before_1_2_is_offered_and_no_strictness_of_one_python_alone() -> None:
    context = client_context(None)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


def test_plain_http_to_a_tls_port_is_unknown_since_bytes_left(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        UNKNOWN.check(await post(transport, f"http://127.0.0.1:{server.port}/"))
        transport.close()

    with HostileServer([start_tls(good(authority))]) as server:
        run(story())
