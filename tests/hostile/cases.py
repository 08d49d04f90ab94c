"""What receivers do to a sender, by name, and what the sender must make of it.

To add one: a name, the steps of the first connection, the expected `Exchange`. Every case is also held to its
deadline, and afterwards the same transport must be served by a well-behaved receiver on the same port.
"""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.exchange import Answered, Exchange, Phase, Unknown, Unreached
from tests.hostile.server import (
    OK,
    Step,
    drip,
    forever,
    half_close,
    hang,
    read_a_little,
    read_request,
    reset,
    rest,
    send,
    serve_well,
)

DEADLINE = 5.0  # of cases that must be decided long before it
SHORT = 0.25  # of cases that use it up
MIB = b"x" * (1 << 20)
SMALL = b'{"id":"evt_1"}'


@dataclass(frozen=True)
class Expected:
    """Kinds of exchange that are right, and the fields that matter."""

    kinds: tuple[type[Exchange], ...]
    fields: dict[str, Any] = field(default_factory=dict)

    def check(self, result: Exchange) -> None:
        """Fails with the whole result."""
        assert isinstance(result, self.kinds), result
        for name, value in self.fields.items():
            assert getattr(result, name) == value, result


def answered(status: int, **fields: Any) -> Expected:
    return Expected((Answered,), {"status": status, **fields})


UNKNOWN = Expected((Unknown,))
CUT_SHORT = Expected((Unknown,), {"phase": Phase.REQUEST})  # with some of the request still here
NO_ANSWER = Expected((Unknown,), {"phase": Phase.ANSWER})  # although all of it had left
UNREACHED = Expected((Unreached,))
# The receiver closes as soon as it accepts: whether a byte was written by then is a matter of microseconds.
NOT_ANSWERED = Expected((Unreached, Unknown))


@dataclass(frozen=True)
class Case:
    """`body` is the request's; `waits` says that the deadline ends it, otherwise it must be decided long before;
    `kept` that the connection must serve the next request too, otherwise it must not."""

    name: str
    script: Sequence[Step]
    expected: Expected
    body: bytes = SMALL
    waits: bool = False
    kept: bool | None = False

    @property
    def deadline(self) -> float:
        """Seconds."""
        return SHORT if self.waits else DEADLINE


def reply(name: str, answer: bytes, expected: Expected, *then: Step, waits: bool = False) -> Case:
    """A receiver that reads the request, sends `answer`, and goes on with `then` (or closes)."""
    return Case(name, [read_request(), send(answer), *then], expected, waits=waits)


def keeps(name: str, answer: bytes, expected: Expected) -> Case:
    """A receiver that reads the request, sends `answer`, and serves the next request on the same connection."""
    return Case(name, [read_request(), send(answer), serve_well()], expected, kept=True)


def head(status: bytes, *lines: bytes) -> bytes:
    """A response head."""
    return b"\r\n".join([b"HTTP/1.1 " + status, *lines, b"", b""])


EMPTY = b"content-length: 0"
CHUNKED = head(b"200 OK", b"transfer-encoding: chunked")

WELL_BEHAVED = [
    keeps("plain answer", OK, answered(200, excerpt=b"ok", address="127.0.0.1")),
    keeps("accepted", head(b"202 Accepted", EMPTY), answered(202, excerpt=b"")),
    Case(
        "answer in single bytes",
        [read_request(), drip(OK, 0.001), serve_well()],
        answered(200, excerpt=b"ok"),
        kept=True,
    ),
    reply("HTTP/1.0", b"HTTP/1.0 200 OK\r\n\r\nold", answered(200, excerpt=b"old")),
    keeps(
        "HTTP/1.0 kept alive",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        answered(200, excerpt=b"ok"),
    ),
    reply("connection: close", head(b"200 OK", b"connection: close", EMPTY), answered(200), hang()),
    reply("keep-alive for no time", head(b"200 OK", b"keep-alive: timeout=1", EMPTY), answered(200), hang()),
    reply(
        "lower-case and odd-case headers",
        head(b"429 Slow", b"RETRY-after: 7", b"lOcAtIoN: /x", EMPTY),
        answered(429, retry_after="7", location="/x"),
    ),
    reply("no reason phrase", head(b"200", EMPTY), answered(200)),
    reply("reason phrase of broken UTF-8", head(b"200 \xff\xfe\0", EMPTY), answered(200)),
    keeps(
        "chunked with a trailer",
        head(b"200 OK", b"transfer-encoding: chunked") + b"2\r\nok\r\n0\r\nlocation: /no\r\n\r\n",
        answered(200, excerpt=b"ok", location=None),
    ),
    keeps("empty lines before the answer", b"\r\n\r\n" + OK, answered(200, excerpt=b"ok")),
]

INFORMATIONAL = [
    keeps("100 Continue", head(b"100 Continue") + OK, answered(200, excerpt=b"ok")),
    keeps("early hints", head(b"103 Early Hints", b"location: /h") + OK, answered(200, location=None)),
    Case(
        "early hints for ever, fast",
        [read_request(), forever(head(b"103 Early Hints", b"link: </s>"))],
        UNKNOWN,
    ),
    Case(
        "early hints for ever, slow",
        [read_request(), forever(head(b"103 Early Hints", b"link: </s>"), 0.02)],
        UNKNOWN,
        waits=True,
    ),
    reply("early hints, then closed", head(b"103 Early Hints"), UNKNOWN),
    reply("101 without an upgrade", head(b"101 Switching Protocols"), answered(101), hang()),
    reply(
        "101 and another protocol",
        head(b"101 Switching Protocols", b"upgrade: x", b"connection: upgrade") + b"\0\1\2" + OK,
        answered(101),
        hang(),
    ),
]

TIME = [
    Case("silence", [read_request(), hang()], NO_ANSWER, waits=True),
    Case("slow to read", [rest(0.1), read_request(), send(OK), serve_well()], answered(200), MIB * 8, kept=True),
    Case("slow to answer", [read_request(), rest(0.1), send(OK), serve_well()], answered(200), kept=True),
    Case("nothing after early hints", [read_request(), send(head(b"103 Hints")), hang()], NO_ANSWER, waits=True),
    Case("nothing after half a head", [read_request(), send(OK[:20]), hang()], NO_ANSWER, waits=True),
    Case("dripped status line", [read_request(), drip(OK, 0.2)], NO_ANSWER, waits=True),
    Case("dripped head", [read_request(), drip(head(b"200 OK", b"x: " + b"y" * 999))], UNKNOWN, waits=True),
    reply("dripped body", head(b"200 OK", b"content-length: 999"), answered(200), drip(MIB), waits=True),
    reply("body that never comes", head(b"200 OK", b"content-length: 9"), answered(200), hang(), waits=True),
    reply(
        "endless chunked body, slow",
        head(b"500 No", b"transfer-encoding: chunked"),
        answered(500, excerpt=b"abc" * 3),
        send(b"3\r\nabc\r\n" * 3),
        forever(b"1", 0.02),
        waits=True,
    ),
    Case("never reads a large request", [hang()], CUT_SHORT, MIB * 8, waits=True),
    Case(
        "dripped head of a large request",
        [read_a_little(), drip(head(b"200 OK", b"x: " + b"y" * 999))],
        CUT_SHORT,
        MIB * 8,
        waits=True,
    ),
]

SIZE = [
    reply("body of a gigabyte", head(b"200 OK", b"content-length: 1000000000"), answered(200), forever(MIB)),
    reply(
        "endless chunked body, fast",
        head(b"200 OK", b"transfer-encoding: chunked"),
        answered(200, excerpt=b"abc" * 341 + b"a"),
        forever(b"3\r\nabc\r\n" * 999),
    ),
    reply("endless body without a length", head(b"404 No"), answered(404), forever(MIB)),
    reply("20 MB of headers", b"HTTP/1.1 200 OK\r\n", UNKNOWN, *[send(b"x: " + b"y" * 999 + b"\r\n")] * 20_000),
    reply("one header of 20 MB", b"HTTP/1.1 200 OK\r\nx: ", UNKNOWN, *[send(MIB)] * 20),
    reply("a head of 100 KB at once", head(b"200 OK", b"x: " + b"y" * 100_000, EMPTY), UNKNOWN, hang()),
    reply("a thousand headers", head(b"200 OK", *[b"x: y"] * 1000), UNKNOWN, hang()),
    reply("a status line without end", b"HTTP/1.1 200 ", UNKNOWN, forever(MIB)),
    reply("a header name without end", b"HTTP/1.1 200 OK\r\n", UNKNOWN, forever(MIB)),
    reply("empty lines for ever", b"", UNKNOWN, forever(b"\r\n" * 999)),
    reply("a chunk extension without end", CHUNKED + b"1;x=", answered(200), forever(MIB)),
    reply("a chunk of a gigabyte", CHUNKED + b"3b9aca00\r\n", answered(200), forever(MIB)),
    reply("trailers for ever", CHUNKED + b"0\r\n", answered(200), forever(b"x: y\r\n" * 999)),
    reply("error page of a gigabyte", head(b"500 No", b"content-length: 1000000000"), answered(500), forever(MIB)),
]

CUT = [
    Case("closed when accepted", [], NOT_ANSWERED),
    Case("reset when accepted", [reset()], NOT_ANSWERED),
    Case("half-closed when accepted", [half_close(), read_request(), hang()], NOT_ANSWERED),
    Case("closed while the request comes", [read_a_little()], CUT_SHORT, MIB * 16),
    Case("reset while the request comes", [read_a_little(), reset()], CUT_SHORT, MIB * 16),
    reply("closed without an answer", b"", UNKNOWN),
    reply("reset without an answer", b"", UNKNOWN, reset()),
    reply("half-closed without an answer", b"", UNKNOWN, half_close(), hang()),
    reply("closed after early hints", head(b"103 Early Hints"), NO_ANSWER),
    reply("reset after early hints", head(b"103 Early Hints"), NO_ANSWER, reset()),
    reply("half-closed in a header", b"HTTP/1.1 200 OK\r\ncontent-le", NO_ANSWER, half_close(), hang()),
    reply("half-closed in the body", head(b"200 OK", b"content-length: 9"), answered(200), half_close(), hang()),
    reply("reset in a chunk", CHUNKED + b"9\r\nab", answered(200), reset()),
    reply("closed in the status line", b"HTTP/1.1 20", UNKNOWN),
    reply("closed in a header", b"HTTP/1.1 200 OK\r\ncontent-le", UNKNOWN),
    reply("closed before the empty line", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n", UNKNOWN),
    reply("reset in a header", b"HTTP/1.1 200 OK\r\ncontent-le", UNKNOWN, reset()),
    reply("closed in the body", head(b"200 OK", b"content-length: 9") + b"abc", answered(200, excerpt=b"abc")),
    reply("reset in the body", head(b"200 OK", b"content-length: 9"), answered(200), reset()),
    reply("closed in a chunk", head(b"200 OK", b"transfer-encoding: chunked") + b"9\r\nab", answered(200)),
    reply("half-closed after an answer", head(b"200 OK") + b"abc", answered(200, excerpt=b"abc"), half_close(), hang()),
]

EARLY = [
    Case("early answer, closed", [read_a_little(), send(head(b"413 Too Large", EMPTY))], answered(413), MIB),
    Case("early answer, reset", [read_a_little(), send(head(b"413 Too Large", EMPTY)), reset()], answered(413), MIB),
    Case("early answer, nothing more read", [read_a_little(), send(OK), hang()], answered(200, excerpt=b"ok"), MIB * 8),
    Case(
        "early answer before anything was read",
        [send(head(b"401 Unauthorized", EMPTY)), hang()],
        Expected((Answered, Unreached)),
        MIB * 8,
    ),
    Case(
        "early answer, the request read on",
        [read_a_little(), send(OK), serve_well()],
        answered(200, excerpt=b"ok"),
        MIB * 8,
        kept=None,  # kept if the kernel had taken all of the request by then
    ),
    Case("large request read to the end", [read_request(), send(OK), serve_well()], answered(200), MIB * 8, kept=True),
]

UNREADABLE = [
    reply("garbage", b"\0\xff\xfe" * 99, UNKNOWN, hang()),
    reply("another protocol's greeting", b"SSH-2.0-OpenSSH_9.9\r\n", UNKNOWN, hang()),
    reply("HTTP/2 frames", b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80", UNKNOWN, hang()),
    reply("a body without a head", b"<html>hello</html>\r\n\r\n", UNKNOWN),
    reply("conflicting lengths", head(b"200 OK", b"content-length: 2", b"content-length: 3") + b"ok", UNKNOWN, hang()),
    reply(
        "length and chunked",
        head(b"200 OK", b"content-length: 2", b"transfer-encoding: chunked") + b"2\r\nok\r\n0\r\n\r\n",
        UNKNOWN,
        hang(),
    ),
    reply("negative length", head(b"200 OK", b"content-length: -2"), UNKNOWN, hang()),
    reply("length of thirty digits", head(b"200 OK", b"content-length: " + b"9" * 30), UNKNOWN, hang()),
    reply("NUL in a header name", head(b"200 OK", b"x\0: y", EMPTY), UNKNOWN, hang()),
    reply("header without a colon", head(b"200 OK", b"hello", EMPTY), UNKNOWN, hang()),
    reply("HTTP/2.0", b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n", UNKNOWN, hang()),
    reply("HTTP/0.9", b"HTTP/0.9 200 OK\r\ncontent-length: 0\r\n\r\n", UNKNOWN, hang()),
    reply("HTTP/3.0", b"HTTP/3.0 410 Gone\r\ncontent-length: 0\r\n\r\n", UNKNOWN, hang()),
    reply("HTTP/2", b"HTTP/2 200\r\n\r\n", UNKNOWN, hang()),
    reply("HTTP/2.0, then a better answer", b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n" + OK, UNKNOWN, hang()),
    reply("early hints in HTTP/2.0, then an answer", b"HTTP/2.0 103 Hints\r\n\r\n" + OK, UNKNOWN, hang()),
    reply("a thousand headers, then a better answer", head(b"200 OK", *[b"x: y"] * 1000, EMPTY) + OK, UNKNOWN, hang()),
    reply("no version", b"HTTP 200 OK\r\n\r\n", UNKNOWN, hang()),
    reply("lower-case version", b"http/1.1 200 OK\r\n\r\n", UNKNOWN, hang()),
    reply("a request instead of an answer", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", UNKNOWN, hang()),
    reply("two lengths on one line", head(b"200 OK", b"content-length: 2, 3") + b"ok", UNKNOWN, hang()),
    reply("length in hexadecimal", head(b"200 OK", b"content-length: 0x2") + b"ok", UNKNOWN, hang()),
    reply("length with a plus", head(b"200 OK", b"content-length: +2") + b"ok", UNKNOWN, hang()),
    reply("status of four digits", head(b"1000 OK", EMPTY), UNKNOWN, hang()),
    reply("status of two digits", head(b"20 OK", EMPTY), UNKNOWN, hang()),
    reply("status in letters", head(b"2OO OK", EMPTY), UNKNOWN, hang()),
]

UGLY = [
    keeps("HTTP/1.9", OK.replace(b"1.1", b"1.9"), answered(200, excerpt=b"ok")),
    keeps("status 999", head(b"999 What", EMPTY), answered(999)),
    keeps("status 099", head(b"099 What", EMPTY), answered(99)),
    keeps("status 000", head(b"000 What", EMPTY), answered(0)),
    keeps("folded header", head(b"302 Found", b"location: /a", b" /b", EMPTY), answered(302, location="/a /b")),
    keeps("NUL in a header value", head(b"302 Found", b"location: /a\0b", EMPTY), answered(302, location="/a b")),
    keeps("bare line feeds", OK.replace(b"\r", b""), answered(200, excerpt=b"ok")),
    keeps("NUL in the body", head(b"500 No", b"content-length: 3") + b"a\0\xff", answered(500, excerpt=b"a\0\xff")),
    reply("204 with a body", head(b"204 None", b"content-length: 2") + b"ok", answered(204, excerpt=b""), hang()),
    keeps("304 with a length", head(b"304 Same", b"content-length: 2"), answered(304)),
    reply("bad chunk size", head(b"200 OK", b"transfer-encoding: chunked") + b"zz\r\n", answered(200), hang()),
    reply("unknown transfer coding", head(b"200 OK", b"transfer-encoding: gzip") + b"zz", answered(200, excerpt=b"zz")),
    reply("bytes after the answer", OK + b"stray", answered(200, excerpt=b"ok"), hang()),
    reply("two answers at once", OK + head(b"500 No", EMPTY), answered(200, excerpt=b"ok"), hang()),
    reply("half a second answer", OK + b"HTTP/1.1 5", answered(200, excerpt=b"ok"), hang()),
    reply("answer after connection: close", head(b"200 OK", b"connection: close", EMPTY) + OK, answered(200), hang()),
    keeps("gzip of nothing", head(b"200 OK", b"content-encoding: gzip", EMPTY), answered(200)),
    keeps(
        "broken gzip with 200",
        head(b"200 OK", b"content-encoding: gzip", b"content-length: 4") + b"\x1f\x8b\x08\xff",
        answered(200, excerpt=b"\x1f\x8b\x08\xff"),
    ),
    keeps(
        "broken UTF-8 in the body",
        head(b"400 No", b"content-length: 6") + b"\xed\xa0\x80\xf0\x9f\x98",
        answered(400, excerpt=b"\xed\xa0\x80\xf0\x9f\x98"),
    ),
    keeps(
        "a body longer than the excerpt",
        head(b"400 No", b"content-length: 3000") + b"abc" * 1000,
        answered(400, excerpt=b"abc" * 341 + b"a"),
    ),
    reply("205 with a body", head(b"205 Reset", b"content-length: 2") + b"ok", answered(205)),
    keeps(
        "gzip bomb",
        head(
            b"200 OK", b"content-encoding: gzip", b"content-length: %d" % len(BOMB := gzip.compress(bytes(20_000_000)))
        )
        + BOMB,
        answered(200, excerpt=BOMB[:1024]),
    ),
]

HINTS = [
    keeps(f"redirect {status}", head(b"%d Over There" % status, b"location: http://10.0.0.1/", EMPTY), expected)
    for status in (301, 302, 303, 307, 308)
    for expected in [answered(status, location="http://10.0.0.1/")]
] + [
    keeps("redirect to nowhere", head(b"308 Gone", EMPTY), answered(308, location=None)),
    keeps(
        "two Retry-After",
        head(b"503 No", b"retry-after: 5", b"retry-after: 100", EMPTY),
        answered(503, retry_after="5, 100"),
    ),
    keeps(
        "Retry-After of 5,000 nines",
        head(b"429 No", b"retry-after: " + b"9" * 5000, EMPTY),
        answered(429, retry_after="9" * 5000),
    ),
    keeps("Latin-1 in Location", head(b"301 No", b"location: /\xe9\x85", EMPTY), answered(301, location="/é ")),
]

PLAIN: list[Case] = [*WELL_BEHAVED, *INFORMATIONAL, *TIME, *SIZE, *CUT, *EARLY, *UNREADABLE, *UGLY, *HINTS]
