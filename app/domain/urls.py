"""What an endpoint's URL and headers may be, decided once when they are written.

Parsed by hand and strictly. Lenient parsers disagree about the same text (`http://h.example\\@evil` is one
host to one of them and another to the next; `127.1` and `0x7f.1` are loopback to a resolver), and a check
that reads a URL differently from the sender is no check. Refusals are values with one sentence for the owner;
they never quote the URL, which is often itself a credential.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import quote

MAX_URL_CHARACTERS = 2048
MAX_HEADERS = 32
MAX_HEADER_NAME_CHARACTERS = 128
MAX_HEADERS_BYTES = 8192

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SHAPE = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.IGNORECASE)
_NEVER_IN_A_URL = re.compile("[\x00-\x20\x7f-\xa0\ud800-\udfff\\\\]")
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::(.*))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"[0-9]{1,5}")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
# The four letters that IDNA2003 (the standard library's) and IDNA2008 map to different hosts.
_IDNA_DEVIATIONS = re.compile("[ßς\u200c\u200d]", re.IGNORECASE)
# What stays as the owner wrote it: all that RFC 3986 lets stand in a path or query, and the brackets of `?a[]=1`.
_TARGET_SAFE = "!$&'()*+,-./:;=?@_~%[]"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_RESERVED_PREFIXES = ("content-", "transfer-", "webhook-", "duehook-", "proxy-")
_HOP_BY_HOP = ("connection", "keep-alive", "te", "trailer", "upgrade", "http2-settings")  # RFC 9110, 7.6.1
# What every delivery says of itself: a second one would contradict it.
_OURS = ("host", "expect", "user-agent", "accept", "accept-encoding")
_RESERVED_NAMES = frozenset(_HOP_BY_HOP + _OURS)


class Origin(NamedTuple):
    """Where to connect, and what connections are kept by; `host` is lower-case ASCII without brackets."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class EndpointUrl:
    """A URL that deliveries may be sent to, in the pieces that a request needs.

    `target` is the path and query as they go onto the request line; `literal` is set when the host is an IP
    address instead of a name.
    """

    origin: Origin
    target: bytes = field(repr=False)
    literal: IPv4Address | IPv6Address | None

    @property
    def authority(self) -> str:
        """The value of the Host header: no default port, brackets round IPv6 (RFC 9110, 7.2)."""
        scheme, host, port = self.origin
        name = f"[{host}]" if ":" in host else host
        return name if port == _DEFAULT_PORTS[scheme] else f"{name}:{port}"

    @property
    def canonical(self) -> str:
        """The same URL in one spelling; parsing it gives this value again."""
        return f"{self.origin.scheme}://{self.authority}{self.target.decode('ascii')}"


@dataclass(frozen=True, slots=True)
class Unacceptable:
    """Why a URL or a header is refused: one sentence for its owner."""

    sentence: str


def parse_url(text: str) -> EndpointUrl | Unacceptable:
    """Reads an endpoint's URL, or says in one sentence what is wrong with it.

    Which addresses it may lead to is another question (`app.domain.addresses`), asked again at every send.
    """
    shape = _SHAPE.fullmatch(text)
    if flaw := _flaw_of_text(text) or _flaw_of_shape(shape):
        return Unacceptable(flaw)
    assert shape
    scheme, authority, path, query, _ = shape.groups("")
    place = _parse_authority(authority, _DEFAULT_PORTS[scheme.lower()])
    if isinstance(place, Unacceptable):
        return place
    target = quote((path or "/") + query, safe=_TARGET_SAFE).encode("ascii")
    return EndpointUrl(Origin(scheme.lower(), *place), target, literal_address(place[0]))


def literal_address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _flaw_of_text(text: str) -> str:
    if len(text) > MAX_URL_CHARACTERS:
        return f"a URL has at most {MAX_URL_CHARACTERS} characters"
    if _NEVER_IN_A_URL.search(text):
        return "a URL holds no blanks, backslashes, control characters or lone surrogates"
    return ""


def _flaw_of_shape(shape: re.Match[str] | None) -> str:
    if not shape:
        return "a URL starts with http:// or https://"
    if shape[5] is not None:
        return "a URL holds no fragment: what follows # is never sent"
    if "@" in shape[2]:
        return "a URL holds no user name or password: an authorization header can carry them"
    return ""


def _parse_authority(authority: str, default_port: int) -> tuple[str, int] | Unacceptable:
    match = _AUTHORITY.fullmatch(authority)
    if not match or not match[1]:
        return Unacceptable("a URL names a host")
    host = _parse_ipv6(match[1][1:-1]) if match[1].startswith("[") else _parse_name(match[1])
    if isinstance(host, Unacceptable) or match[2] is None:
        return host if isinstance(host, Unacceptable) else (host, default_port)
    if not _PORT.fullmatch(match[2]) or not 1 <= int(match[2]) <= 65535:
        return Unacceptable("a port is a number from 1 to 65535")
    return host, int(match[2])


def _parse_name(host: str) -> str | Unacceptable:
    """A DNS name or an IPv4 address, without the root's dot.

    Resolvers take `127.1`, `0x7f.1`, `0177.0.0.1` and `2130706433` for addresses, and no name ends in a
    number (WHATWG URL, "ends in a number"): so what does is four decimal numbers, or nothing.
    """
    name = _ascii_name(host)
    if name is None:
        return Unacceptable("a host with other than ASCII letters is written in its xn-- form")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return Unacceptable("a host is a DNS name, an IPv4 address or an IPv6 address in brackets")
    if _NUMERIC_LABEL.fullmatch(labels[-1]) and not literal_address(name):
        return Unacceptable("an IPv4 address is written as four decimal numbers")
    return name


def _parse_ipv6(text: str) -> str | Unacceptable:
    if "%" in text:
        return Unacceptable("an IPv6 address has no zone here: it would mean something on one machine only")
    try:
        return str(IPv6Address(text))
    except ValueError:
        return Unacceptable("what stands in brackets is an IPv6 address")


def _ascii_name(host: str) -> str | None:
    """The name in the form DNS knows; None when IDNA has no single answer for it."""
    if host.isascii():
        return host.lower().removesuffix(".")
    if _IDNA_DEVIATIONS.search(host):
        return None
    try:
        return host.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        return None


def parse_headers(headers: Mapping[str, str]) -> dict[str, str] | Unacceptable:
    """The endpoint's own headers with lower-case names, or a sentence about the first that can't be sent."""
    if len(headers) > MAX_HEADERS:
        return Unacceptable(f"an endpoint has at most {MAX_HEADERS} headers")
    accepted: dict[str, str] = {}
    for name, value in headers.items():
        if flaw := _flaw_of_header(name, value) or ("is given twice" if name.lower() in accepted else ""):
            return Unacceptable(f"the header {name[:MAX_HEADER_NAME_CHARACTERS]!a} {flaw}")
        accepted[name.lower()] = value
    if sum(len(name) + len(value) for name, value in accepted.items()) > MAX_HEADERS_BYTES:
        return Unacceptable(f"an endpoint's headers have at most {MAX_HEADERS_BYTES} bytes together")
    return accepted


def _flaw_of_header(name: str, value: str) -> str:
    lower = name.lower()
    if not _TOKEN.fullmatch(name) or len(name) > MAX_HEADER_NAME_CHARACTERS:
        return "is not named by an HTTP token"
    if lower in _RESERVED_NAMES or lower.startswith(_RESERVED_PREFIXES):
        return "is the sender's own to set"
    if not _VALUE.fullmatch(value):
        return "has a value that is not visible ASCII (blanks only between)"
    return ""
