"""The address table: each special range, its edges, and what the user's exceptions open and do not open."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.cli.problem import message_and_fix
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
def test_addresses_are_classified_as_public_loopback_private_or_forbidden(kind: AddressKind) -> None:
    """The samples include both edges of ranges and the metadata servers of the large clouds."""
    table = {
        AddressKind.PUBLIC: PUBLIC,
        AddressKind.LOOPBACK: LOOPBACK,
        AddressKind.PRIVATE: PRIVATE,
        AddressKind.FORBIDDEN: FORBIDDEN,
    }[kind]

    assert dict.fromkeys(table, kind) == {address: classify(address)[0] for address in table}


@pytest.mark.parametrize(("network", "kind"), [(network, kind) for network, kind, _what in TABLE])
def test_both_ends_of_each_row_of_the_address_table_have_the_kind_of_that_row_or_are_forbidden(
    network: str, kind: AddressKind
) -> None:
    """The first and last address of every row get that row's kind, or the stricter one of a row inside it."""
    parsed = ipaddress.ip_network(network)
    for address in (parsed[0], parsed[-1]):
        assert classify(str(address))[0] in {kind, AddressKind.FORBIDDEN}


F, P, L, PUB = AddressKind.FORBIDDEN, AddressKind.PRIVATE, AddressKind.LOOPBACK, AddressKind.PUBLIC

BORDERS: list[tuple[str, AddressKind, AddressKind | None, AddressKind | None]] = [
    # network, its kind, the kind of the address before it, and of the one after it (None: there is none)
    ("0.0.0.0/8", F, None, PUB),
    ("10.0.0.0/8", P, PUB, PUB),
    ("100.64.0.0/10", P, PUB, PUB),
    ("100.100.100.200/32", F, P, P),
    ("127.0.0.0/8", L, PUB, PUB),
    ("168.63.129.16/32", F, PUB, PUB),
    ("169.254.0.0/16", F, PUB, PUB),
    ("169.254.169.254/32", F, F, F),
    ("169.254.170.2/32", F, F, F),
    ("172.16.0.0/12", P, PUB, PUB),
    ("192.0.0.0/24", F, PUB, PUB),
    ("192.0.2.0/24", F, PUB, PUB),
    ("192.88.99.0/24", F, PUB, PUB),
    ("192.168.0.0/16", P, PUB, PUB),
    ("198.18.0.0/15", P, PUB, PUB),
    ("198.51.100.0/24", F, PUB, PUB),
    ("203.0.113.0/24", F, PUB, PUB),
    ("224.0.0.0/4", F, PUB, F),
    ("240.0.0.0/4", F, F, None),
    ("255.255.255.255/32", F, F, None),
    ("::/128", F, None, L),
    ("::1/128", L, F, F),
    ("::2/127", F, L, F),
    ("::ffff:0:0/96", F, F, F),
    ("::ffff:8.8.8.8/128", F, F, F),
    ("64:ff9b::/96", F, F, F),
    ("64:ff9b:1::/48", F, F, F),
    ("100::/64", F, F, F),
    ("2000::/16", PUB, F, F),
    ("2001::/32", F, PUB, F),
    ("2001::/23", F, PUB, PUB),
    ("2001:db8::/32", F, PUB, PUB),
    ("2002::/16", F, PUB, PUB),
    ("2003::/16", PUB, F, PUB),
    ("3fff::/20", F, PUB, PUB),
    ("3fff:8000::/17", PUB, PUB, F),
    ("4000::/3", F, PUB, F),
    ("5f00::/16", F, F, F),
    ("fc00::/8", P, F, P),
    ("fd00:ec2::/32", F, P, P),
    ("fd00:ec2::254/128", F, F, F),
    ("fd20:ce::254/128", F, P, P),
    ("fdff::/16", P, P, F),
    ("fe80::/10", F, F, F),
    ("fec0::/10", F, F, F),
    ("ff00::/8", F, F, None),
]


@pytest.mark.abuse_case("E5")
@pytest.mark.parametrize(("network", "kind", "before", "after"), BORDERS, ids=[row[0] for row in BORDERS])
def test_the_first_and_last_address_of_each_range_and_their_outer_neighbours_have_the_expected_kind(
    network: str, kind: AddressKind, before: AddressKind | None, after: AddressKind | None
) -> None:
    """First and last address of each range and their outer neighbours have the right kind. BORDERS is not made from the table."""
    parsed = ipaddress.ip_network(network)
    first, last = parsed[0], parsed[-1]
    neighbours = {
        first: kind,
        last: kind,
        **({} if before is None else {first - 1: before}),
        **({} if after is None else {last + 1: after}),
    }
    assert {address: classify(str(address))[0] for address in neighbours} == neighbours


@pytest.mark.abuse_case("E5")
def test_every_row_of_the_address_table_has_boundary_tests() -> None:
    """A new row of the table needs a line in BORDERS."""
    tested = [ipaddress.ip_network(row[0]) for row in BORDERS]
    for network, _kind, _what in TABLE:
        row = ipaddress.ip_network(network)
        assert any(row.version == each.version and row[0] in each and row[0] == each[0] for each in tested), network
        assert any(row.version == each.version and row[-1] in each and row[-1] == each[-1] for each in tested), network


@pytest.mark.abuse_case("E4")
@pytest.mark.parametrize(
    "text", ["", "localhost", "127.1", "0177.0.0.1", "2130706433", "fe80::1%eth0", "::1%lo", "1.2.3.4 "]
)
def test_a_text_that_is_not_a_plain_address_is_rejected(text: str) -> None:
    """Other spellings and scope ids raise ValueError; a resolver's answer of that form counts as forbidden."""
    with pytest.raises(ValueError, match=r"scope id|IPv4 or IPv6"):
        classify(text)
    with pytest.raises(RefusedError) as caught:
        check_addresses(WHERE, [text], plain=False, private=True)
    assert caught.value.reason is Reason.ADDRESS_FORBIDDEN


@pytest.mark.abuse_case("E5")
@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_an_address_that_python_calls_special_is_not_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """The table is at least as strict as the standard library's, and stricter where that one is wrong."""
    if classify(str(address))[0] is AddressKind.PUBLIC:
        assert address.is_global


def reasons(addresses: list[str], **allowed: bool) -> Reason | None:
    """Return the reason for which these answers are refused, or None if they are not."""
    try:
        check_addresses(WHERE, addresses, plain=allowed.get("plain", False), private=allowed.get("private", False))
    except RefusedError as error:
        return error.reason
    return None


@pytest.mark.abuse_case("E15")
def test_a_dns_response_with_one_private_address_among_public_ones_is_refused() -> None:
    """Order and address family make no difference; a response with only the public addresses passes."""
    assert reasons(["1.1.1.1", "2606:4700::1111"]) is None
    assert reasons(["1.1.1.1", "10.0.0.1"]) is Reason.ADDRESS_NOT_PUBLIC
    assert reasons(["10.0.0.1", "1.1.1.1"]) is Reason.ADDRESS_NOT_PUBLIC
    assert reasons(["1.1.1.1", "::1"]) is Reason.ADDRESS_NOT_PUBLIC


def test_the_setting_egress_private_allows_private_addresses_but_never_forbidden_ones() -> None:
    """`egress.private` opens home networks and loopback; metadata servers stay closed."""
    assert reasons(["192.168.1.5"]) is Reason.ADDRESS_NOT_PUBLIC
    assert reasons(["192.168.1.5"], private=True) is None
    assert reasons(["127.0.0.1"], private=True) is None
    assert reasons(["169.254.169.254"], private=True) is Reason.ADDRESS_FORBIDDEN
    assert reasons(["192.168.1.5", "0.0.0.0"], private=True) is Reason.ADDRESS_FORBIDDEN


def test_connections_without_tls_are_allowed_only_to_loopback_addresses() -> None:
    """The user's other exceptions do not change that."""
    assert reasons(["127.0.0.1", "::1"], plain=True) is None
    assert reasons(["127.0.0.1", "1.1.1.1"], plain=True) is Reason.ADDRESS_NOT_LOOPBACK
    assert reasons(["192.168.1.5"], plain=True, private=True) is Reason.ADDRESS_NOT_LOOPBACK


@pytest.mark.parametrize(
    ("has_tls", "setting", "end"),
    [
        (True, "egress.private", "127.0.0.1 (loopback (RFC 1122))"),
        (False, "egress.private_plain", "or for a service with TLS the same with egress.private"),
    ],
)
def test_the_fix_for_a_refused_loopback_address_depends_on_whether_the_service_has_tls(
    has_tls: bool, setting: str, end: str
) -> None:
    """The fix assumes no TLS unless the service is known to have it: most services on this machine have none."""
    with pytest.raises(RefusedError) as caught:
        check_addresses(WHERE, ["127.0.0.1"], plain=False, private=False, has_tls=has_tls)

    what, fix = message_and_fix(str(caught.value))
    assert fix == f"aileron config add {setting} api.example.com:443"
    assert what.partition("; to allow")[0].endswith("127.0.0.1 (loopback (RFC 1122))")
    assert what.endswith(end)


def test_the_refusal_of_an_address_names_the_setting_to_change() -> None:
    """The message names the address, its kind, and the setting."""
    with pytest.raises(
        RefusedError, match=r"10\.0\.0\.1 \(private use.*run `aileron config add egress\.private api\.example\.com:443`"
    ):
        check_addresses(WHERE, ["10.0.0.1"], plain=False, private=False)
