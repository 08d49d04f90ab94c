"""Which IP addresses a receiver may not be at, and why.

The table is ours and not `ipaddress.is_global`: Python 3.11 calls protocol assignments, 6to4, NAT64 and
newer documentation ranges global, and a webhook to one of them reaches a place inside somebody's network
(SSRF). Sources: the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890 and its updates), the
IPv6 address space registry (only 2000::/3 is global unicast) and RFC 5771 for multicast. Every row of the
registries is refused, the few "globally reachable" ones too: anycast relays and sinkholes hold no receiver.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Networks: TypeAlias = tuple[Network, ...]

_SPECIAL_V4 = (
    ("0.0.0.0/8", "this network, RFC 791"),
    ("10.0.0.0/8", "private use, RFC 1918"),
    ("100.64.0.0/10", "shared address space, RFC 6598"),
    ("127.0.0.0/8", "loopback, RFC 1122"),
    ("168.63.129.16/32", "the host agent of a cloud, reachable from its machines only"),
    ("169.254.0.0/16", "link-local and instance metadata, RFC 3927"),
    ("172.16.0.0/12", "private use, RFC 1918"),
    ("192.0.0.0/24", "protocol assignments, RFC 6890"),
    ("192.0.2.0/24", "documentation, RFC 5737"),
    ("192.31.196.0/24", "AS112 sinkhole, RFC 7535"),
    ("192.52.193.0/24", "multicast tunnelling, RFC 7450"),
    ("192.88.99.0/24", "6to4 relays, RFC 7526"),
    ("192.168.0.0/16", "private use, RFC 1918"),
    ("192.175.48.0/24", "AS112 sinkhole, RFC 7534"),
    ("198.18.0.0/15", "benchmarking, RFC 2544"),
    ("198.51.100.0/24", "documentation, RFC 5737"),
    ("203.0.113.0/24", "documentation, RFC 5737"),
    ("224.0.0.0/4", "multicast, RFC 5771"),
    ("240.0.0.0/4", "reserved, RFC 1112"),
)

_SPECIAL_V6 = (
    ("::1/128", "loopback, RFC 4291"),
    ("::/128", "unspecified, RFC 4291"),
    ("64:ff9b:1::/48", "local-use translation, RFC 8215"),
    ("100::/64", "discard only, RFC 6666"),
    ("100:0:0:1::/64", "dummy prefix, RFC 9780"),
    ("2001::/23", "protocol assignments, RFC 2928"),
    ("2001:db8::/32", "documentation, RFC 3849"),
    ("2620:4f:8000::/48", "AS112 sinkhole, RFC 7534"),
    ("3fff::/20", "documentation, RFC 9637"),
    ("5f00::/16", "segment routing, RFC 9602"),
    ("fc00::/7", "unique local, RFC 4193"),
    ("fe80::/10", "link-local, RFC 4291"),
    ("fec0::/10", "site-local, RFC 3879"),
    ("ff00::/8", "multicast, RFC 4291"),
)

_V4 = tuple((IPv4Network(cidr), reason) for cidr, reason in _SPECIAL_V4)
_V6 = tuple((IPv6Network(cidr), reason) for cidr, reason in _SPECIAL_V6)
_GLOBAL_UNICAST = IPv6Network("2000::/3")

_TEREDO = IPv6Network("2001::/32")
_SIX_TO_FOUR = IPv6Network("2002::/16")
# Prefixes whose last 32 bits are the IPv4 address: compatible and mapped (RFC 4291), NAT64 (RFC 6052).
_LAST_32_BITS = tuple(IPv6Network(cidr) for cidr in ("::/96", "::ffff:0:0/96", "64:ff9b::/96"))


def parse_networks(cidrs: Iterable[str]) -> Networks:
    """The networks of a CIDR list; ValueError names the entry that is none, or that has host bits set."""
    return tuple(ip_network(cidr.strip()) for cidr in cidrs)


@lru_cache(maxsize=4096)
def why_refused(address: str | Address, allowed_networks: Networks = ()) -> str | None:
    """Says why nothing may be sent to `address`; None when it may.

    An IPv6 form that carries an IPv4 address is judged by that one, because that is where the packets end up;
    `allowed_networks` wins over the table, for the address itself and for the embedded one.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return "it is not an IP address"
    if isinstance(parsed, IPv6Address) and parsed.scope_id is not None:
        return f"{parsed} has a zone, which only means something on one machine"
    return _judge(parsed, allowed_networks)


def _judge(address: Address, allowed: Networks) -> str | None:
    if any(address in network for network in allowed):
        return None
    if isinstance(address, IPv4Address):
        return _refused_by_table(address)
    embedded = embedded_ipv4(address)
    if not embedded:
        return _refused_by_table(address)
    reasons = (_judge(inner, allowed) for inner in embedded)
    return next((f"{address} carries an IPv4 address: {reason}" for reason in reasons if reason), None)


def _refused_by_table(address: Address) -> str | None:
    table = _V4 if isinstance(address, IPv4Address) else _V6
    for network, reason in table:
        if address in network:
            return f"{address} is in {network} ({reason})"
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return f"{address} is outside {_GLOBAL_UNICAST}, the only global unicast space of IPv6"
    return None


def embedded_ipv4(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses an IPv6 address stands for: mostly none, or one; Teredo's server and client."""
    bits = int(address)
    if bits <= 1:  # `::` and `::1` are themselves, not IPv4-compatible
        return ()
    if address in _TEREDO:  # RFC 4380: the client's address is stored inverted
        return IPv4Address(bits >> 64 & 0xFFFFFFFF), IPv4Address(~bits & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:  # RFC 3056
        return (IPv4Address(bits >> 80 & 0xFFFFFFFF),)
    if any(address in network for network in _LAST_32_BITS):
        return (IPv4Address(bits & 0xFFFFFFFF),)
    return ()
