"""What an endpoint's URL and headers may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.urls import (
    MAX_HEADERS,
    MAX_HEADERS_BYTES,
    MAX_URL_CHARACTERS,
    EndpointUrl,
    Origin,
    Unacceptable,
    literal_address,
    parse_headers,
    parse_url,
)

CANONICAL = {
    "http://h.example": "http://h.example/",
    "HTTPS://H.Example:443/A?B=c": "https://h.example/A?B=c",
    "http://h.example:80": "http://h.example/",
    "http://h.example:443/": "http://h.example:443/",
    "https://h.example:08443/": "https://h.example:8443/",
    "http://h.example./x": "http://h.example/x",
    "http://h.example?a=1": "http://h.example/?a=1",
    "http://h.example//a//../b/./": "http://h.example//a//../b/./",
    "http://h.example/a%20b%zz?q=%41&r[]=1": "http://h.example/a%20b%zz?q=%41&r[]=1",
    "http://h.example/ü/☃?ключ=ß": "http://h.example/%C3%BC/%E2%98%83?%D0%BA%D0%BB%D1%8E%D1%87=%C3%9F",
    'http://h.example/"<>{}|^`': "http://h.example/%22%3C%3E%7B%7D%7C%5E%60",
    "http://h.example/a:b@c": "http://h.example/a:b@c",
    "http://bücher.example/": "http://xn--bcher-kva.example/",
    "http://BÜCHER.example/": "http://xn--bcher-kva.example/",
    "http://h。example/": "http://h.example/",
    "http://receiver:9000/": "http://receiver:9000/",
    "http://my_service/": "http://my_service/",
    "http://1.2.3.4:8080/": "http://1.2.3.4:8080/",
    "http://1.2.3.4./": "http://1.2.3.4/",
    "http://3com.example/": "http://3com.example/",
    "http://0xabc.example/": "http://0xabc.example/",
    "https://[::1]/": "https://[::1]/",
    "https://[2001:DB8:0:0::0001]:8443": "https://[2001:db8::1]:8443/",
    "http://[::FFFF:127.0.0.1]/": "http://[::ffff:7f00:1]/",
}

REFUSED = {
    "other schemes": ["", "h.example", "//h.example/", "ftp://h.example/", "file:///etc/passwd", "http:h.example",
                      "http:/h.example", "httpx://h.example/", "javascript:alert(1)", "http+unix://x/"],
    "no host": ["http://", "http:///x", "http://?x", "http://:80/", "https://[]/"],
    "ports": ["http://h.example:0/", "http://h.example:65536/", "http://h.example:99999/", "http://h.example:/",
              "http://h.example:-1/", "http://h.example:+80/", "http://h.example:8 0/", "http://h.example:８０/",
              "http://h.example:80:80/", "http://h.example:0x50/", "http://h.example:000080/"],
    "user names": ["http://u@h.example/", "http://u:p@h.example/", "http://@h.example/", "http://a@b@h.example/",
                   "http://127.0.0.1:80@h.example/"],
    "fragments": ["http://h.example/#", "http://h.example/#x", "http://h.example#@evil.example/"],
    "characters": ["http://h.example\\@evil.example/", "http:\\\\h.example/", "http://h.example/a b", " http://h.example/",
                   "http://h.example/\n", "http://h.example/\r\nx: y", "http://h.example/\0", "http://h.example/\x7f",
                   "http://h\t.example/", "http://h.example/\ud800", "http://h.example/\x85", "http://h.example/\xa0"],
    "host names": ["http://h..example/", "http://.h.example/", "http://h.example../", "http://./", "http://-h.example/",
                   "http://h-.example/", "http://h%2eexample/", "http://h,example/", "http://h*.example/",
                   "http://" + "a" * 64 + ".example/", "http://" + "a." * 127 + "example/", "http://h.exa'mple/",
                   "http://a<b/", "http://[::1/", "http://::1/", "http://1::/"],
    "numbers that resolvers take for addresses": [
        "http://127.1/", "http://0x7f.1/", "http://0x7f.0.0.1/", "http://2130706433/", "http://0177.0.0.1/",
        "http://127.0.0.01/", "http://0x7f000001/", "http://1.2.3/", "http://1.2.3.4.5/", "http://256.1.1.1/",
        "http://h.example.1/", "http://h.0x/", "http://１２７.１/", "http://127。1/", "http://0/", "http://00/"],
    "IPv6 literals": ["http://[::1%eth0]/", "http://[fe80::1%25eth0]/", "http://[v1.x]/", "http://[1.2.3.4]/",
                      "http://[::1]x/", "http://[::1]:/", "http://[:::]/", "http://[12345::]/", "http://[[::1]]/"],
    "names without one IDNA form": ["http://straße.example/", "http://STRAẞE.example/", "http://φίλος.example/",
                                    "http://a\u200db.example/", "http://\u00ad/", "http://℀.example/",
                                    "http://" + "ü" * 64 + ".example/"],
}  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), CANONICAL.items())
def test_an_acceptable_url_has_one_canonical_form(text: str, canonical: str) -> None:
    parsed = parse_url(text)
    assert isinstance(parsed, EndpointUrl) and parsed.canonical == canonical
    assert parse_url(canonical) == parsed


@pytest.mark.parametrize("text", [text for texts in REFUSED.values() for text in texts])
def test_any_other_url_is_refused_in_a_sentence_that_does_not_quote_it(text: str) -> None:
    refusal = parse_url(text)
    assert isinstance(refusal, Unacceptable)
    assert refusal.sentence and "example" not in refusal.sentence


def test_a_url_is_bounded() -> None:
    longest = "http://h.example/".ljust(MAX_URL_CHARACTERS, "x")
    assert isinstance(parse_url(longest), EndpointUrl)
    assert isinstance(parse_url(longest + "x"), Unacceptable)


def test_the_pieces_are_what_a_request_needs() -> None:
    parsed = parse_url("https://H.example:8443/a/ü?b=c")
    assert isinstance(parsed, EndpointUrl)
    assert parsed.origin == Origin("https", "h.example", 8443)
    assert (parsed.target, parsed.authority, parsed.literal) == (b"/a/%C3%BC?b=c", "h.example:8443", None)


@pytest.mark.parametrize(
    ("host", "address"), [("1.2.3.4", "1.2.3.4"), ("[::1]", "::1"), ("h.example", "None"), ("4.example", "None")]
)
def test_a_literal_address_is_recognised(host: str, address: str) -> None:
    parsed = parse_url(f"http://{host}/")
    assert isinstance(parsed, EndpointUrl) and str(parsed.literal) == address
    assert literal_address(parsed.origin.host) == parsed.literal


@given(st.text(max_size=40), st.sampled_from(["", "http://", "https://h.example", "http://h.example:", "http://["]))
def test_any_text_is_accepted_or_refused_and_never_raises(text: str, start: str) -> None:
    parsed = parse_url(start + text)
    if isinstance(parsed, EndpointUrl):
        assert parse_url(parsed.canonical) == parsed
        assert parsed.origin.host.isascii() and b" " not in parsed.target
        assert not any(byte < 0x21 or byte > 0x7E for byte in parsed.target)


GOOD_HEADERS = {
    "Authorization": "Bearer x.y",
    "X-Api-Key": "a b~!",
    "cookie": "a=b; c=d",
    "x_y": "1",
    "accept-language": "de",
}

BAD_HEADERS = {
    "names that are no tokens": [("", "x"), ("a b", "x"), ("a:", "x"), ("a\n", "x"), ("ä", "x"), ("(a)", "x"),
                                 ("a" * 129, "x"), (":path", "x"), ("a\0", "x")],
    "names of the connection": [(name, "x") for name in (
        "Connection", "keep-alive", "Proxy-Connection", "proxy-authorization", "TE", "trailer", "Transfer-Encoding",
        "upgrade", "http2-settings", "transfer-x")],
    "names of the sender": [(name, "x") for name in (
        "host", "HOST", "content-type", "Content-Length", "content-x", "expect", "webhook-id", "Webhook-Signature",
        "duehook-attempt", "user-agent", "accept", "Accept-Encoding")],
    "values": [("a", value) for value in (
        "", " ", " x", "x ", "x\n", "x\r\ny: z", "x\0", "\x7f", "ü", "a\tb", "x\x85")],
}  # fmt: skip


def test_good_headers_come_back_with_lower_case_names() -> None:
    accepted = parse_headers(GOOD_HEADERS)
    assert accepted == {name.lower(): value for name, value in GOOD_HEADERS.items()}


@pytest.mark.parametrize(("name", "value"), [pair for pairs in BAD_HEADERS.values() for pair in pairs])
def test_a_header_that_may_not_be_sent_is_refused_without_its_value(name: str, value: str) -> None:
    refusal = parse_headers({"x-ok": "1", name: value})
    assert isinstance(refusal, Unacceptable)
    assert len(refusal.sentence) < 300 and refusal.sentence.isascii() and "\n" not in refusal.sentence


def test_a_header_given_twice_is_refused() -> None:
    assert isinstance(parse_headers({"x-a": "1", "X-A": "2"}), Unacceptable)


def test_headers_are_bounded_in_number_and_size() -> None:
    assert isinstance(parse_headers({f"x-{n}": "1" for n in range(MAX_HEADERS)}), dict)
    assert isinstance(parse_headers({f"x-{n}": "1" for n in range(MAX_HEADERS + 1)}), Unacceptable)
    assert isinstance(parse_headers({"a": "x" * (MAX_HEADERS_BYTES - 1)}), dict)
    assert isinstance(parse_headers({"a": "x" * MAX_HEADERS_BYTES}), Unacceptable)
