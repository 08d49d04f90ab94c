import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.identity import (
    is_event_type,
    is_pattern,
    is_reservation_id,
    is_service_type,
    is_tenant,
    matches,
    number,
    patterns_of,
    public_id,
)

MOST = 2**63 - 1
words = st.text(string.ascii_letters + string.digits + "_", min_size=1, max_size=6)
event_types = st.lists(words, min_size=1, max_size=6).map(".".join)


def test_a_public_id_is_the_prefix_and_the_number_in_lower_case_hex() -> None:
    assert public_id("evt", 0x19F3C2A9B4D00A31) == "evt_19f3c2a9b4d00a31"
    assert public_id("dlv", MOST) == "dlv_7fffffffffffffff"


@pytest.mark.parametrize("outside", [0, -1, MOST + 1])
def test_a_number_that_no_row_has_gets_no_public_id(outside: int) -> None:
    with pytest.raises(ValueError, match="63-bit"):
        public_id("evt", outside)


@given(st.integers(1, MOST))
def test_every_public_id_leads_back_to_its_number(row: int) -> None:
    assert number("evt", public_id("evt", row)) == row


@given(st.text("evt_0123456789abcdefABCDEF\n.", max_size=24))
def test_one_number_has_one_spelling(text: str) -> None:
    row = number("evt", text)
    assert row is None or public_id("evt", row) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "evt",
        "evt_",
        "_1",
        "evt_0",
        "evt_01",
        "evt_A",
        "EVT_1",
        "dlv_1",
        "evt_1 ",
        " evt_1",
        "evt_1\n",
        "evt_1.2",
        "evt_-1",
        "evt_+1",
        "evt_1_0",
        "evt__1",
        "evt_0x1",
        "evt_١",
        "evt_８",
        "evt_8000000000000000",
        "evt_ffffffffffffffff",
        "evt_10000000000000000",
        "evt_\0",
        "evt_\ud800",
    ],
)
def test_what_is_not_spelled_like_a_public_id_is_no_number(text: str) -> None:
    assert number("evt", text) is None


@pytest.mark.parametrize("text", ["rsv_1", "rsv_8f31", "rsv_Z" + "a" * 63])
def test_a_client_may_choose_letters_and_digits_for_a_reservation(text: str) -> None:
    assert is_reservation_id(text)


@pytest.mark.parametrize(
    "text", ["", "rsv_", "rsv_a.b", "rsv_a-b", "rsv_a_b", "rsv_é", "rsv_1\n", "evt_1", "rsv_" + "a" * 65]
)
def test_a_reservation_id_has_no_dot_and_nothing_else_that_is_special(text: str) -> None:
    assert not is_reservation_id(text)


@pytest.mark.parametrize("name", ["a", "default", "0", "Tenant_1-x", "a" * 64])
def test_a_tenant_may_be_called(name: str) -> None:
    assert is_tenant(name)


@pytest.mark.parametrize("name", ["", "*", "-a", "_a", "a b", "a\n", "a.b", "é", "a" * 65, "..", "a/b"])
def test_a_tenant_may_not_be_called(name: str) -> None:
    assert not is_tenant(name)


@pytest.mark.parametrize("text", ["ping", "order.paid", "A_1.b.C", "1", "a" * 128])
def test_dotted_words_are_an_event_type(text: str) -> None:
    assert is_event_type(text)
    assert is_pattern(text)


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "a-b", "a b", "a.b\n", "é", "order.*", "*", "a" * 129, "١", "a.\0"]
)
def test_anything_else_is_no_event_type(text: str) -> None:
    assert not is_event_type(text)


@pytest.mark.parametrize("text", ["*", "a.*", "a.b.*", "a" * 126 + ".*"])
def test_a_star_stands_alone_or_at_the_end(text: str) -> None:
    assert is_pattern(text)


@pytest.mark.parametrize("text", ["", "**", ".*", "*.a", "a.*.b", "a*", "a.b*", "*\n", "a.*\n", "a" * 127 + ".*"])
def test_a_star_anywhere_else_is_no_pattern(text: str) -> None:
    assert not is_pattern(text)


@pytest.mark.parametrize(
    ("event_type", "patterns"),
    [
        ("a", ("a", "*")),
        ("a.b", ("a.b", "a.*", "*")),
        ("a.b.c", ("a.b.c", "a.b.*", "a.*", "*")),
    ],
)
def test_the_patterns_of_a_type_go_from_narrow_to_wide(event_type: str, patterns: tuple[str, ...]) -> None:
    assert patterns_of(event_type) == patterns


@given(event_types, event_types)
def test_a_prefix_pattern_matches_exactly_what_is_deeper_than_the_prefix(prefix: str, event_type: str) -> None:
    assert matches(f"{prefix}.*", event_type) == event_type.startswith(f"{prefix}.")
    assert matches(f"{prefix}.*", f"{prefix}.{event_type}")
    assert not matches(f"{prefix}.*", prefix)


@given(event_types)
def test_every_pattern_of_a_type_is_one_that_an_endpoint_may_subscribe_to(event_type: str) -> None:
    patterns = patterns_of(event_type)
    assert all(is_pattern(pattern) for pattern in patterns)
    assert len(set(patterns)) == len(patterns)


def test_case_matters_to_a_pattern() -> None:
    assert not matches("Order.*", "order.paid")


@pytest.mark.parametrize("event_type", ["reservation.expired", "endpoint.x.y", "job.completed", "ping"])
def test_only_the_service_makes_events_of_its_own_types(event_type: str) -> None:
    assert is_service_type(event_type)


@pytest.mark.parametrize(
    "event_type", ["reservation", "reservations.x", "endpoint", "jobs", "ping.x", "Ping", "a.job.x"]
)
def test_a_producer_may_use_names_that_are_only_near(event_type: str) -> None:
    assert not is_service_type(event_type)
