import json
import re
import sys
import tracemalloc
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain import json_value
from app.domain.json_value import BadValueError, TooDeepError, value_end, without_escapes


def refuse(constant: str) -> None:
    raise ValueError(constant)


# Python's own parser, held to the RFC: no NaN, no control characters, and numbers of any length.
oracle = json.JSONDecoder(parse_constant=refuse, parse_int=len, parse_float=len, strict=True)


def is_json(text: str) -> bool:
    try:
        oracle.decode(text)
    except ValueError:
        return False
    return True


def is_value(text: str) -> bool:
    """Whether our scanner takes the whole text, blanks round it aside, as one value."""
    inside = without_escapes(text + "}")
    start = len(text) - len(text.lstrip(" \t\n\r"))
    try:
        end = value_end(inside, start)
    except BadValueError:
        return False
    return text[end:].strip(" \t\n\r") == ""


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values: st.SearchStrategy[object] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=6),
    max_leaves=15,
)
texts = st.builds(
    json.dumps,
    values,
    ensure_ascii=st.booleans(),
    indent=st.none() | st.integers(0, 2),
    separators=st.just((", ", ": ")),
)
tokens = st.sampled_from(
    [
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        '"a"',
        '"]"',
        '"',
        "1",
        "-",
        "0",
        ".5",
        "e9",
        "true",
        "null",
        " ",
        "\n",
        "\\",
        '"\\"',
    ]
)
token_soup = st.lists(tokens, max_size=20).map("".join)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """JSON with one character taken out, put in or replaced."""
    text = draw(texts)
    at = draw(st.integers(0, len(text)))
    keep = draw(st.integers(0, 1))
    other: str = draw(st.sampled_from([*'[]{},:"\\ 01-.eE\n\tu\x00\x1f', ""]))
    return text[:at] + other + text[at + keep :]


@given(texts)
def test_every_value_that_python_writes_is_one(text: str) -> None:
    assert is_value(text)


@settings(max_examples=400)
@given(damaged() | token_soup | st.text())
def test_pythons_parser_and_the_scanner_agree_on_what_is_json(text: str) -> None:
    assert is_value(text) == is_json(text)


@settings(max_examples=300)
@given(damaged() | token_soup)
def test_a_value_that_spans_many_runs_is_judged_the_same(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_value, "_runs", [re.compile(f"(?>{json_value._TOKEN}{{1,{most}}})") for most in (1, 2)])
        assert is_value(text) == is_json(text)


def test_every_short_sequence_of_tokens_is_judged_like_pythons_parser_does() -> None:
    alphabet = ["[", "]", "{", "}", ",", ":", '"a"', "1"]
    for length in range(1, 6):
        for sequence in product(alphabet, repeat=length):
            text = "".join(sequence)
            assert is_value(text) == is_json(text), text


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-0",
        "1.0",
        "1e400",
        "1E+9",
        "-1.50e-07",
        "9" * 5000,
        "0." + "3" * 100_000,
        "true",
        "null",
        '""',
        '"\\u0000"',
        '"\\ud800"',
        '"\\udfff\\ud800"',
        '"\\\\"',
        '"\\\\\\""',
        '"\\/\\b\\f\\n\\r\\t"',
        '"\\uABCD\\uabcd"',
        '"\u2028\x7f😀\ufeff"',
        "[]",
        "{}",
        "[ \n\t\r]",
        "{ }",
        '{"a":1,"a":2}',
        '{"":{"":[{}]}}',
        "[[],[],{}]",
        '["]","}",","]',
    ],
)
def test_json_is_taken_however_it_is_spelled(text: str) -> None:
    assert is_value(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "NaN",
        "Infinity",
        "-Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x1",
        "1_0",
        "１",
        "١",
        "True",
        "nul",
        "truefalse",
        "1 2",
        '"a" "b"',
        '"',
        '"\n"',
        '"\x00"',
        '"\x1f"',
        '"\\x41"',
        '"\\u12"',
        '"\\u123g"',
        '"\\u１234"',
        '"\\"',
        "'a'",
        "\\n",
        "[\\n]",
        "[\\u0020]",
        "_",
        "__",
        "[1,]",
        "[,1]",
        "[1,,2]",
        "[1 2]",
        "[",
        "]",
        "[1}",
        "{1}",
        '{"a"}',
        '{"a":}',
        '{"a":,}',
        '{"a":1,}',
        '{"a":1 "b":2}',
        '{"a":1,2}',
        '{,"a":1}',
        "{:1}",
        '{"a"::1}',
        '["a":1]',
        '[1,"a":1]',
        '{"a":[1,"b":2]}',
        '[{"a":1,[]]}',
        "{[]}",
        "{{}}",
        "[1]]",
        "\u00a01",
        "[\u00a0]",
        "[\v]",
        "\ufeff1",
        "[1]//",
        "/**/1",
    ],
)
def test_what_other_parsers_let_pass_is_not_json(text: str) -> None:
    assert not is_value(text)
    assert not is_json(text)


@pytest.mark.parametrize(("opener", "closer"), [("[", "]"), ('{"a":', "}"), ('[1,{"a":2,"b":', ',"c":0},3]')])
def test_500_levels_are_taken_and_501_are_not(opener: str, closer: str) -> None:
    levels = opener.count("[") + opener.count("{")
    fits = opener * (500 // levels) + "1" + closer * (500 // levels)
    assert value_end(fits + "}", 0) == len(fits)
    with pytest.raises(TooDeepError):
        value_end(f"[{fits}]}}", 0)


def test_the_bracket_that_is_one_too_many_is_pointed_at() -> None:
    with pytest.raises(TooDeepError) as deep:
        value_end("[1," * 30 + "[" * 600, 0, levels=40)
    assert deep.value.index == 3 * 30 + 10


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("[1,2,x]", 5),
        ("[1,2, ]", 6),
        ("[x]", 1),
        ("[1,2}", 4),
        ('{"a":1,2}', 6),
        ('["a":1]', 1),
        ("[" + "0," * 5000 + "1}", 10002),
        ("[" + '"]",' * 5000 + "{]", 20001),
    ],
)
def test_the_token_that_is_wrong_is_pointed_at(text: str, index: int) -> None:
    with pytest.raises(BadValueError) as bad:
        value_end(text + "}", 0)
    assert bad.value.index == index


@given(texts, st.sampled_from([",", "}", "]", ' ,"b":[1]}', "\n]]]", ',{"x":']))
def test_a_value_ends_where_it_ends_whatever_follows(text: str, rest: str) -> None:
    assert value_end(without_escapes(text + rest), 0) == len(text)


@given(st.text('\\"/bfnrtu0aF_ ', max_size=30))
def test_overwriting_escapes_moves_nothing(text: str) -> None:
    plain = without_escapes(text)
    assert len(plain) == len(text)
    assert all(new in (old, "_") for old, new in zip(text, plain, strict=True))


def test_deep_nesting_needs_no_stack() -> None:
    text = "[" * 500 + "]" * 500 + "}"

    def at_depth(frames: int) -> int:
        return at_depth(frames - 1) if frames else value_end(text, 0)

    assert at_depth(sys.getrecursionlimit() - 200) == 1000


def test_brackets_are_not_made_into_lists() -> None:
    text = "[" + "[]," * 100_000 + "[]]}"
    tracemalloc.start()
    try:
        value_end(text, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
