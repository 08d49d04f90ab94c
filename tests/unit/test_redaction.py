"""What may be kept and read of bytes that nobody knows."""

import base64
import json
import pickle
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.domain.redaction import MOST_READ, redact

RUN = "A1b2" * 8  # 32 characters that could be a key


def enveloped(body: bytes) -> bytes:
    whole = {"body": base64.b64encode(body).decode(), "headers": {}, "properties": {"body_encoding": "base64"}}
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b'{"password": "hunter2"}',
        b'{"client_secret": ["hunter2", {"a": "hunter2"}]}',
        rb'{"p\u0061ssword": "hunter2"}',
        b'{"token-%b": "hunter2"}' % (b"of-somebody-" * 5),
        rb'{"\ud800": 1, "p\u0061ssword": "hunter2"}',
        b'{"a": {"X-Api-Key": "hunter2"}, "signature": "hunter2"}',
        b'[["Authorization", "hunter2"]]',
        b'not json "token": "hunter2", "a": 1',
        b'not json "token": "a \\" b hunter2", "a": 1',
        b"{'token': 'a, b; hunter2'}",
        b'level="{\\"secret\\": \\"a \\\\\\" hunter2\\"}"',
        b"password=hunter2&user=bob",
        b"api_key = hunter2",
        b"APIKEY: a, b; hunter2",
        b"secrets: [a, hunter2]",
        b'secrets: ["a", "hunter2"]',
        b"the password is hunter2",
        b"access-key%3Dhunter2",
        b"Authorization: Basic hunter2",
        b"curl -H 'bearer hunter2'",
        b"Cookie: a=b; session=hunter2",
        b"redis://:hunter2@host:6379/0",
        b"postgresql://user:hu@hunter2@host/db",
        b"redis://:a/hunter2@host",
        b"redis://:hunter2/a@host",
        b"https://hooks.example/hunter2",
        b"https://hooks.example?hunter2",
        b"https://user:hunter2@hooks.example",
        b"https:\\/\\/hooks.example\\/hunter2",
        b"https%3A%2F%2Fhooks.example%2Fhunter2",
        b"-----BEGIN RSA PRIVATE KEY-----\nhunter2\nhunter2\n-----END RSA PRIVATE KEY-----",
        b"whsec_hunter2",
        b"whsk_hunter2",
        b"dhk_hunter2",
        b"eyJhbGciOiJIUzI1NiJ9.hunter2.abc",
        b'{"password": "hunter2"}'.decode().encode("utf-16"),
        b'{"password": "hunter2"}'.decode().encode("utf-16-be") + b"\xff",
        pickle.dumps({"password": "hunter2"}),
        enveloped(b'{"password": "hunter2"}'),
        enveloped(b"password=hunter2"),
        enveloped(pickle.dumps({"password": "hunter2"})),
        b'{"body": "password=hunter2", "properties": {"body_encoding": "base64"}}',
        b"[" * 5000 + b'"password": "hunter2"',
    ],
)
def test_a_secret_is_masked(raw: bytes) -> None:
    masked = redact(raw)
    assert b"hunter2" not in masked
    assert b"***" in masked


@pytest.mark.parametrize(
    "run", [RUN, "a" * 32, RUN[:-1] + "=", "v-_" + RUN, "%2B" + RUN[:30], RUN[:16] + "\\/" + RUN[:15]]
)
def test_a_long_word_may_be_a_key(run: str) -> None:
    assert redact(f"x {run} y".encode()) == b"x *** y"
    assert redact(RUN[1:].encode()) == RUN[1:].encode()


@pytest.mark.parametrize(
    ("raw", "readable"),
    [
        (b"[[1796042774227577, 1796042774227578], [0, -5]]", b"[[1796042774227577, 1796042774227578], [0, -5]]"),
        (b"garbage \xff\x80", b"garbage \xff\x80"),
        (b"an author, 31 words", b"an author, 31 words"),
        (b"", b""),
        (b"get https://user@hooks.example:8443/a?b then", b"get https://***@hooks.example:8443/*** then"),
        (b"see http://[::1]:80 then", b"see http://[::1]:80 then"),
        (b"password=a&user=bob", b"password=***&user=bob"),
        (b'{"secrets": ["x", {}], "user": "bob"}', b'{"secrets": "***", "user": "bob"}'),
        ('{"price": "5 \u20ac"}'.encode(), '{"price": "5 \u20ac"}'.encode()),
    ],
)
def test_what_is_no_secret_stays_readable(raw: bytes, readable: bytes) -> None:
    assert redact(raw) == readable


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'[[1, 2], {"token": "abc"}]', [[1, 2], {"token": "***"}]),
        (b"plain words", "plain words"),
        (b"\x80\x05plain", "\\x80\x05plain"),
    ],
)
def test_the_body_of_an_envelope_is_opened(body: bytes, shown: object) -> None:
    opened = json.loads(redact(enveloped(body)))
    assert opened["body"] == shown
    assert opened["properties"] == {"body_encoding": "base64"}


def test_of_much_the_beginning_is_kept_but_not_the_word_that_was_cut() -> None:
    words = b"word " * (MOST_READ // 5)
    assert redact(words + b"hunter2" * 10_000) == words + b"***"


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
@example(b'{"a": "', b'"}')
@example(rb'{"\ud800": "', b'"}')
@example(b"\xff", b"\0")
def test_a_key_is_masked_whatever_is_around_it(before: bytes, behind: bytes) -> None:
    key = b"whsec_" + RUN.encode()
    for raw in (before + key + behind, enveloped(before + key + behind), json.dumps(before.hex() + RUN).encode()):
        assert RUN.encode() not in redact(raw)


@pytest.mark.parametrize(
    "piece",
    [
        *(bytes([each]) for each in b"a0:/@\\\"'%[{+=- "),
        b"://",
        b"://a@",
        b"://a/",
        b":/",
        b"pwd",
        b"pwd:\\",
        b"pwd ",
        b"pwd\x01",
        b"basic ",
        b"eyJ",
        b"\\/",
        b"-----BEGIN KEY-----",
        b'"password":"',
        b"token,",
    ],
    ids=repr,
)
def test_redaction_takes_time_in_proportion(piece: bytes) -> None:
    raw = piece * (MOST_READ // len(piece))
    started = time.process_time()
    redact(raw)
    assert time.process_time() - started < 2, "it takes a tenth of a second, and minutes when it is quadratic"
