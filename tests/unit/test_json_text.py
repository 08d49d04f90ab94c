import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.json_text import JsonTextError, NotJsonError, pointer, read_batch, read_object

DATA = frozenset({"data"})


def error_of(read: Callable[[], object]) -> JsonTextError:
    with pytest.raises(JsonTextError) as raised:
        read()
    return raised.value


def refusal(body: str | bytes) -> tuple[str, str]:
    """Pointer and detail of a body that is JSON with something wrong in it."""
    raw = body if isinstance(body, bytes) else body.encode()
    error = error_of(lambda: read_object(raw, DATA))
    assert not isinstance(error, NotJsonError), error
    return error.pointer, error.detail


@pytest.mark.parametrize(
    "data",
    [
        "1.0",
        "1e400",
        "-0",
        "9" * 5000,
        "null",
        '"😀\u2028"',
        '"\\u0000"',
        '"\\ud800"',
        '{"b":1,"a":2,"b":3}',
        "[ 1 ,\n\t2 ]",
        '"\\"}]"',
        "[" * 500 + "]" * 500,
    ],
)
def test_data_is_kept_byte_for_byte_without_the_blanks_round_it(data: str) -> None:
    body = f' {{ "type" : "a" , "data" :\r\n {data}\t, "delay_seconds" : 1.5 }} '.encode()
    assert read_object(body, DATA) == {"type": "a", "data": data, "delay_seconds": 1.5}


@given(
    st.dictionaries(
        st.text(max_size=5), st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(), max_size=5
    )
)
def test_members_are_read_as_python_reads_them(members: dict[str, Any]) -> None:
    storable = {name.replace("\0", ""): value for name, value in members.items() if "\0" not in str(value)}
    assert read_object(json.dumps(storable).encode()) == storable


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=10,
    )
)
def test_any_json_comes_back_as_the_text_it_was(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert read_object(f'{{"x":{{}},"data":{text}}}'.encode(), DATA)["data"] == text


def test_a_member_is_known_by_its_name_however_it_is_escaped() -> None:
    assert read_object(b'{"d\\u0061ta": 1.0}', DATA) == {"data": "1.0"}


def test_an_empty_object_has_no_members() -> None:
    assert read_object(b" {\n} ") == {}


def test_without_verbatim_members_everything_is_read() -> None:
    assert read_object(b'{"data": {"a": [1, 2.5, "x", null]}}') == {"data": {"a": [1, 2.5, "x", None]}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"}",
        b"{]",
        b'{"a"}',
        b'{"a":1',
        b'{"a":1,}',
        b'{"a":1}}',
        b'{"a":1} x',
        b'{"a":1}{}',
        b"{'a':1}",
        b"{a:1}",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"data":NaN}',
        b'{"data":[1,]}',
        b'{"data":"\n"}',
        b'{"data":"\x00"}',
        b'{"data":"\\x"}',
        b'{"data":01}',
        b'{"data":}',
        b'{"data":1 2}',
        b'{"a\n":1}',
        b"\xef\xbb\xbf{}",
        b"\xff",
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xc0\x80"}',
        b"x",
        b"{\\u0022a\\u0022:1}",
    ],
)
def test_a_body_that_is_not_json_says_so(body: bytes) -> None:
    assert isinstance(error_of(lambda: read_object(body, DATA)), NotJsonError)
    assert isinstance(error_of(lambda: read_batch(body, DATA, most=5)), NotJsonError)


def test_a_body_that_is_not_json_tells_where() -> None:
    error = error_of(lambda: read_object(b'{"type": "a",\n  "data": [1, 2, tru]}', DATA))
    assert (error.pointer, error.detail) == ("/data", "is not JSON at line 2, column 18")
    assert str(error) == "/data is not JSON at line 2, column 18"


def test_a_body_that_is_not_utf8_tells_where() -> None:
    assert error_of(lambda: read_object(b'{"a":"\xff"}')).detail == "is not UTF-8 at byte 6"


@pytest.mark.parametrize("body", ["[]", "[{}]", "1", '"a"', "null", "true", " -1"])
def test_a_body_has_to_be_an_object(body: str) -> None:
    assert refusal(body) == ("", "has to be an object")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ('{"a":1,"a":1}', "/a"),
        ('{"a":1,"\\u0061":1}', "/a"),
        ('{"data":1,"data":1}', "/data"),
        ('{"a~/b":1,"a~/b":1}', "/a~0~1b"),
        ('{"":1,"":1}', "/"),
    ],
)
def test_a_name_that_is_there_twice_is_refused(body: str, pointer: str) -> None:
    assert refusal(body) == (pointer, "is there twice")


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ('{"b":1,"b":2}', "has two members of the same name"),
        ('[[{"b":1,"\\u0062":2}]]', "has two members of the same name"),
        ("9223372036854775808", "has a number beyond 2^63"),
        ("-9223372036854775809", "has a number beyond 2^63"),
        ("9" * 5000, "has a number beyond 2^63"),
        ("[1e19]", "has a number beyond 2^63"),
        ("1e400", "has a number beyond 2^63"),
        ("-1e999999999", "has a number beyond 2^63"),
        ("9223372036854775808.0", "has a number beyond 2^63"),
        ('"\\u0000"', "has a NUL or half a surrogate pair in a string"),
        ('"\\ud800"', "has a NUL or half a surrogate pair in a string"),
        ('"\\ude00\\ud83d"', "has a NUL or half a surrogate pair in a string"),
        ('{"x":["\\udfff"]}', "has a NUL or half a surrogate pair in a string"),
        ('{"\\u0000":1}', "has a NUL or half a surrogate pair in a string"),
        ("[" * 17 + "]" * 17, "has more than 16 levels of nesting"),
        ("[" * 100_000 + "]" * 100_000, "has more than 16 levels of nesting"),
        ('"' + "x" * 262_143 + '"', "is longer than 262144 characters"),
    ],
)
def test_outside_data_what_parsers_disagree_on_is_refused(value: str, detail: str) -> None:
    assert refusal(f'{{"data":1,"a":{value}}}') == ("/a", detail)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ('"\\ud83d\\ude00"', "😀"),
        ('"\\\\u0000"', "\\u0000"),
        ('"\u2028"', "\u2028"),
        ("[" * 16 + "]" * 16, json.loads("[" * 16 + "]" * 16)),
        ("1e-999", 0.0),
    ],
)
def test_outside_data_what_is_merely_unusual_is_read(value: str, expected: object) -> None:
    assert read_object(f'{{"a":{value}}}'.encode()) == {"a": expected}


def test_data_has_500_levels_at_most() -> None:
    assert refusal('{"data":' + "[" * 501 + "]" * 501 + "}") == ("/data", "has more than 500 levels of nesting")


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("\\u0000", "has a NUL or half a surrogate pair in a string"),
        ("\\ud800", "has a NUL or half a surrogate pair in a string"),
        ("x" * 129, "has a member name of more than 128 characters"),
    ],
)
def test_a_name_that_no_pointer_could_hold_is_told_of_the_object(name: str, detail: str) -> None:
    assert refusal(f'{{"{name}":1}}') == ("", detail)


def test_an_object_of_endless_members_is_not_worked_through() -> None:
    def members(count: int) -> str:
        return "{" + ",".join(f'"a{number}":0' for number in range(count)) + "}"

    assert len(read_object(members(64).encode())) == 64
    assert refusal(members(65)) == ("", "has more than 64 members")


def test_a_batch_is_read_in_order() -> None:
    body = b' [ {"type":"a","data": 1.0} ,\n{"type":"b","data":[ ]},{}] '
    assert read_batch(body, DATA, most=3) == [{"type": "a", "data": "1.0"}, {"type": "b", "data": "[ ]"}, {}]


def test_where_a_batch_may_stand_one_object_may_too() -> None:
    assert read_batch(b' {"data": 1.0}', DATA, most=3) == {"data": "1.0"}


def test_an_empty_batch_is_an_empty_list() -> None:
    assert read_batch(b"[ ]", DATA, most=3) == []


@pytest.mark.parametrize(
    ("body", "pointer", "detail"),
    [
        ("[{},{},{},{}]", "", "has more than 3 elements"),
        ("[{},1]", "/1", "has to be an object"),
        ("[[]]", "/0", "has to be an object"),
        ('[{},{"a":1,"a":2}]', "/1/a", "is there twice"),
        ('[{},{"a":1e99}]', "/1/a", "has a number beyond 2^63"),
        ('[{},{"data":' + "[" * 501 + "]" * 501 + "}]", "/1/data", "has more than 500 levels of nesting"),
        ("1", "", "has to be an object"),
    ],
)
def test_an_error_in_a_batch_names_the_element(body: str, pointer: str, detail: str) -> None:
    error = error_of(lambda: read_batch(body.encode(), DATA, most=3))
    assert not isinstance(error, NotJsonError)
    assert (error.pointer, error.detail) == (pointer, detail)


@pytest.mark.parametrize(
    "body", ["[", "[}", "[{}", "[{},]", "[,{}]", "[{}{}]", "[{}] x", "[{}]]", '[{"data":x}]', "[x]"]
)
def test_a_batch_that_is_not_json_says_so(body: str) -> None:
    assert isinstance(error_of(lambda: read_batch(body.encode(), DATA, most=3)), NotJsonError)


@pytest.mark.parametrize(
    "body", [b'{"data":"s3cret}', b'{"a":"s3cret\\u0000"}', b'{"a":{"s3cret":1,"s3cret":2}}', b'{"s3cret\\u0000":1}']
)
def test_an_error_does_not_repeat_what_was_sent(body: bytes) -> None:
    error = error_of(lambda: read_object(body, DATA))
    assert "s3cret" not in repr(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize(
    ("parts", "expected"), [((), ""), (("a",), "/a"), ((3, "data"), "/3/data"), (("~/",), "/~0~1"), (("",), "/")]
)
def test_a_pointer_is_that_of_rfc_6901(parts: tuple[str | int, ...], expected: str) -> None:
    assert pointer(*parts) == expected


@given(st.binary(max_size=60) | st.text('[]{},:"\\ua01.e-\n d', max_size=60).map(str.encode))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    with suppress(JsonTextError):
        read_object(body, DATA)
    with suppress(JsonTextError):
        read_batch(body, DATA, most=3)


@given(st.text())
def test_every_pointer_can_be_put_into_an_answer(name: str) -> None:
    key = json.dumps(name)
    with suppress(JsonTextError):
        read_object(f"{{{key}:1,{key}:1}}".encode())
        pytest.fail("a name that is there twice was taken")
