"""Which addresses nothing may be sent to."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.addresses import Networks, embedded_ipv4, parse_networks, why_refused

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "93.184.215.14",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2000::1",
    "2001:200::1",
    "2606:4700:4700::1111",
    "2a00:1450:4001:80b::200e",
    "3ffe::1",
]

SPECIAL = {
    "this network": ["0.0.0.0", "0.255.255.255"],
    "private": ["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255"],
    "shared": ["100.64.0.0", "100.127.255.255", "100.100.100.200"],
    "loopback": ["127.0.0.1", "127.255.255.255", "::1"],
    "metadata": ["169.254.169.254", "169.254.0.0", "fd00:ec2::254", "168.63.129.16", "192.0.0.192"],
    "protocol assignments": ["192.0.0.0", "192.0.0.9", "2001:1::1", "2001:2::1", "2001:20::1", "2001:1ff:ffff::1"],
    "documentation": ["192.0.2.1", "198.51.100.7", "203.0.113.255", "2001:db8::1", "3fff::1", "3fff:fff::1"],
    "benchmarking": ["198.18.0.0", "198.19.255.255"],
    "sinkholes and relays": ["192.31.196.1", "192.52.193.1", "192.88.99.1", "192.175.48.1", "2620:4f:8000::1"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1"],
    "reserved": ["240.0.0.0", "255.255.255.255", "::", "1::1", "4000::1", "e000::1", "5f00::1"],
    "discard": ["100::1", "100:0:0:1::1"],
    "local IPv6": ["fc00::1", "fdff::1", "fe80::1", "febf::1", "fec0::1"],
    "local translation": ["64:ff9b:1::808:808", "64:ff9b:1:ffff::1"],
    "translated": ["::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"],
}


def forms_of(ipv4: str) -> list[str]:
    """The IPv6 addresses that stand for an IPv4 address: compatible, mapped, NAT64, 6to4, Teredo (client, server)."""
    bits = int(ipaddress.IPv4Address(ipv4))
    public = int(ipaddress.IPv4Address("8.8.8.8"))
    return [
        str(ipaddress.IPv6Address(form))
        for form in (
            bits,
            0xFFFF << 32 | bits,
            0x64FF9B << 96 | bits,
            0x2002 << 112 | bits << 80,
            0x20010000 << 96 | public << 64 | bits ^ 0xFFFFFFFF,
            0x20010000 << 96 | bits << 64 | public ^ 0xFFFFFFFF,
        )
    ]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not_refused(address: str) -> None:
    assert why_refused(address) is None


@pytest.mark.parametrize("address", [address for addresses in SPECIAL.values() for address in addresses])
def test_a_special_address_is_refused_by_name(address: str) -> None:
    reason = why_refused(address)
    assert reason and str(ipaddress.ip_address(address)) in reason


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "0.1.2.3", "224.0.0.1"])
def test_no_ipv6_form_hides_a_special_ipv4_address(address: str) -> None:
    for form in forms_of(address):
        reason = why_refused(form)
        assert reason and address in reason, form


def test_an_ipv6_form_of_a_public_ipv4_address_is_judged_by_it() -> None:
    assert [why_refused(form) for form in forms_of("8.8.4.4")] == [None] * 6


def test_teredo_is_refused_by_its_server_or_its_client() -> None:
    server, client = embedded_ipv4(ipaddress.IPv6Address("2001:0:0808:0808:0:0:f5ff:fffe"))
    assert (str(server), str(client)) == ("8.8.8.8", "10.0.0.1")


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f.0.0.1", "127.0.0.01", "1.2.3.4.5", "[::1]", "::1%"])
def test_what_is_no_address_is_refused(text: str) -> None:
    assert why_refused(text)


@pytest.mark.parametrize("address", ["fe80::1%eth0", "2606:4700::1111%1", "::1%lo"])
def test_a_zone_is_refused_even_where_the_address_is_allowed(address: str) -> None:
    assert "zone" in str(why_refused(address, parse_networks(["::/0"])))


ALLOWED: Networks = parse_networks(["127.0.0.0/8", " fd00::/8 ", "192.168.7.7"])


@pytest.mark.parametrize("address", ["127.0.0.1", "127.255.255.255", "fd12::1", "192.168.7.7", "::ffff:127.0.0.1"])
def test_allowed_networks_win_over_the_table(address: str) -> None:
    assert why_refused(address) and why_refused(address, ALLOWED) is None


@pytest.mark.parametrize("address", ["128.0.0.1%", "::1", "fc00::1", "192.168.7.8", "10.0.0.1", "::ffff:10.0.0.1"])
def test_allowed_networks_allow_nothing_else(address: str) -> None:
    assert why_refused(address, ALLOWED)


@pytest.mark.parametrize("cidr", ["10.0.0.1/8", "10/8", "", "localhost", "::/129"])
def test_a_network_that_is_none_is_an_error(cidr: str) -> None:
    with pytest.raises(ValueError):
        parse_networks([cidr])


@given(st.ip_addresses(v=4))
def test_nothing_is_public_that_python_knows_to_be_special(address: ipaddress.IPv4Address) -> None:
    assert address.is_global or why_refused(address)


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_outside_global_unicast_is_public_only_through_ipv4(address: ipaddress.IPv6Address) -> None:
    inside = address in ipaddress.IPv6Network("2000::/3")
    assert inside or embedded_ipv4(address) or why_refused(address)


@given(st.ip_addresses(v=4).filter(lambda address: int(address) > 1))  # `::` and `::1` are not compatible forms
def test_all_forms_of_an_address_have_the_same_verdict(address: ipaddress.IPv4Address) -> None:
    verdicts = {why_refused(form) is None for form in forms_of(str(address))}
    assert verdicts == {why_refused(address) is None}
