"""The address table: each special range, its edges, and what the user's exceptions do and do not open."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.egress.addresses import TABLE, AddressKind, check_addresses, classify
from aileron.egress.refusal import Reason, RefusedError
from aileron.model.names import HostPort

WHERE = HostPort("api.example.com", 443)
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0",
          "2606:4700::1111", "2a00:1450:4001::1", "2003::1"]  # fmt: skip
LOOPBACK = ["127.0.0.1", "127.255.255.254", "::1"]
PRIVATE = ["10.0.0.1", "100.64.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "198.18.0.1", "198.19.255.255",
           "fc00::1", "fd12:3456::1"]  # fmt: skip
FORBIDDEN = [
    "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
    "255.255.255.255", "::", "::1.2.3.4", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:8.8.8.8", "64:ff9b::7f00:1",
    "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1", "3fff::1", "4000::1", "5f00::1", "fe80::1",
    "fec0::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254",
]  # fmt: skip


@pytest.mark.parametrize("kind", AddressKind)
def test_each_address_has_its_kind(kind: AddressKind) -> None:
    """Including both edges of ranges and the metadata servers of the large clouds."""
    table = {
        AddressKind.PUBLIC: PUBLIC,
        AddressKind.LOOPBACK: LOOPBACK,
        AddressKind.PRIVATE: PRIVATE,
        AddressKind.FORBIDDEN: FORBIDDEN,
    }[kind]

    assert dict.fromkeys(table, kind) == {address: classify(address)[0] for address in table}


@pytest.mark.parametrize(("network", "kind"), [(network, kind) for network, kind, _what in TABLE])
def test_both_ends_of_each_row_are_in_it(network: str, kind: AddressKind) -> None:
    """First and last address of every row get that row's kind, or a stricter one of a row inside it."""
    parsed = ipaddress.ip_network(network)
    for address in (parsed[0], parsed[-1]):
        assert classify(str(address))[0] in {kind, AddressKind.FORBIDDEN}


@pytest.mark.parametrize(
    "text", ["", "localhost", "127.1", "0177.0.0.1", "2130706433", "fe80::1%eth0", "::1%lo", "1.2.3.4 "]
)
def test_what_is_not_a_plain_address_is_no_address(text: str) -> None:
    """Other spellings and scope ids are errors, and as an answer forbidden."""
    with pytest.raises(ValueError, match=r"scope id|IPv4 or IPv6"):
        classify(text)
    with pytest.raises(RefusedError) as caught:
        check_addresses(WHERE, [text], plain=False, private=True)
    assert caught.value.reason is Reason.ADDRESS_FORBIDDEN


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_whatever_python_calls_special_is_not_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """The table is at least as strict as the standard library's, and stricter where that one errs."""
    if classify(str(address))[0] is AddressKind.PUBLIC:
        assert address.is_global


def reasons(addresses: list[str], **allowed: bool) -> Reason | None:
    """The reason these answers are refused, None if they are not."""
    try:
        check_addresses(WHERE, addresses, plain=allowed.get("plain", False), private=allowed.get("private", False))
    except RefusedError as error:
        return error.reason
    return None


def test_one_private_answer_among_public_ones_refuses_them_all() -> None:
    """In either order and either family; the public ones alone pass."""
    assert reasons(["1.1.1.1", "2606:4700::1111"]) is None
    assert reasons(["1.1.1.1", "10.0.0.1"]) is Reason.ADDRESS_NOT_PUBLIC
    assert reasons(["10.0.0.1", "1.1.1.1"]) is Reason.ADDRESS_NOT_PUBLIC
    assert reasons(["1.1.1.1", "::1"]) is Reason.ADDRESS_NOT_PUBLIC


def test_an_exception_by_name_opens_private_addresses_but_never_the_forbidden() -> None:
    """`egress.private` opens home networks and loopback; metadata servers stay shut."""
    assert reasons(["192.168.1.5"]) is Reason.ADDRESS_NOT_PUBLIC
    assert reasons(["192.168.1.5"], private=True) is None
    assert reasons(["127.0.0.1"], private=True) is None
    assert reasons(["169.254.169.254"], private=True) is Reason.ADDRESS_FORBIDDEN
    assert reasons(["192.168.1.5", "0.0.0.0"], private=True) is Reason.ADDRESS_FORBIDDEN


def test_without_tls_only_loopback_is_allowed() -> None:
    """Whatever else the user allowed."""
    assert reasons(["127.0.0.1", "::1"], plain=True) is None
    assert reasons(["127.0.0.1", "1.1.1.1"], plain=True) is Reason.ADDRESS_NOT_LOOPBACK
    assert reasons(["192.168.1.5"], plain=True, private=True) is Reason.ADDRESS_NOT_LOOPBACK


def test_the_refusal_says_what_to_write_where() -> None:
    """The message names the address, what it is, and the setting."""
    with pytest.raises(
        RefusedError, match=r"10\.0\.0\.1 \(private use.*add \"api\.example\.com:443\" to egress\.private"
    ):
        check_addresses(WHERE, ["10.0.0.1"], plain=False, private=False)
