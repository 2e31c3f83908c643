"""The addresses that a request may go to: one explicit table, first match wins.

Python's `ipaddress.is_global` is not used, because it passes NAT64, 6to4, IPv4-compatible and multicast addresses and
Azure's metadata server, and its answers changed between releases. Pure; runs in the daemon on a resolver's answers. The
owner of any granted name controls those answers.

Rules
- An IPv4 address is public unless a row says otherwise. An IPv6 address is public only inside 2000::/3, and there also only if
  no row says otherwise.
- A FORBIDDEN address is never dialled, whatever the user allowed: it cannot be a TCP destination, contains another
  address, or belongs to a cloud's metadata server, which gives out credentials (all of 169.254.0.0/16; no service there
  is meant for a connector).
- LOOPBACK and PRIVATE are dialled only for a host:port that the user allowed by name.

Source: the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890, RFC 8190), each row with its RFC; for the
metadata servers, the providers' manuals. Not here: the addresses of this machine itself (dial.py asks the kernel).

>>> classify("64:ff9b::a00:1")
(<AddressKind.FORBIDDEN: 'forbidden'>, 'outside 2000::/3, the global unicast range')
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Sequence
from typing import Final

from aileron.egress.refusal import Reason, RefusedError
from aileron.model.names import HostPort

__all__ = ["TABLE", "AddressKind", "check_addresses", "classify"]


class AddressKind(enum.StrEnum):
    """Classes of addresses, by whether Aileron connects to them: always, only if the user allowed it, or never."""

    PUBLIC = "public"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    FORBIDDEN = "forbidden"


_F, _P, _L = AddressKind.FORBIDDEN, AddressKind.PRIVATE, AddressKind.LOOPBACK

TABLE: Final[tuple[tuple[str, AddressKind, str], ...]] = (
    ("0.0.0.0/8", _F, "this network (RFC 791)"),
    ("10.0.0.0/8", _P, "private use (RFC 1918)"),
    ("100.100.100.200/32", _F, "metadata server (Alibaba Cloud)"),
    ("100.64.0.0/10", _P, "shared address space (RFC 6598)"),
    ("127.0.0.0/8", _L, "loopback (RFC 1122)"),
    ("168.63.129.16/32", _F, "metadata server (Azure)"),
    ("169.254.0.0/16", _F, "link local (RFC 3927) and metadata servers (AWS, Azure, Google Cloud)"),
    ("172.16.0.0/12", _P, "private use (RFC 1918)"),
    ("192.0.0.0/24", _F, "IETF protocol assignments (RFC 6890) and a metadata server (Oracle Cloud)"),
    ("192.0.2.0/24", _F, "documentation (RFC 5737)"),
    ("192.88.99.0/24", _F, "6to4 relay anycast (RFC 7526)"),
    ("192.168.0.0/16", _P, "private use (RFC 1918)"),
    ("198.18.0.0/15", _P, "benchmarking (RFC 2544)"),
    ("198.51.100.0/24", _F, "documentation (RFC 5737)"),
    ("203.0.113.0/24", _F, "documentation (RFC 5737)"),
    ("224.0.0.0/4", _F, "multicast (RFC 5771)"),
    ("240.0.0.0/4", _F, "reserved (RFC 1112) and broadcast (RFC 919)"),
    ("::1/128", _L, "loopback (RFC 4291)"),
    ("fd00:ec2::/32", _F, "metadata servers (AWS)"),
    ("fd20:ce::254/128", _F, "metadata server (Google Cloud)"),
    ("fc00::/7", _P, "unique local (RFC 4193)"),
    ("2001::/23", _F, "IETF protocol assignments (RFC 2928), Teredo (RFC 4380)"),
    ("2001:db8::/32", _F, "documentation (RFC 3849)"),
    ("2002::/16", _F, "6to4 (RFC 3056)"),
    ("3fff::/20", _F, "documentation (RFC 9637)"),
)
_ROWS: Final = tuple((ipaddress.ip_network(network), kind, use) for network, kind, use in TABLE)
_GLOBAL_UNICAST_V6: Final = ipaddress.ip_network("2000::/3")  # RFC 4291 section 2.4: all that IANA hands out today


def classify(address: str) -> tuple[AddressKind, str]:
    """Return the kind of an address literal, and the description of the matching row of the table. Raises ValueError if
    the text is not an address or has a scope id.
    """
    parsed = ipaddress.ip_address(address)
    if "%" in address:
        raise ValueError(f"{address!r} has a scope id")
    for network, kind, use in _ROWS:
        if parsed.version == network.version and parsed in network:
            return kind, use
    if parsed.version == 6 and parsed not in _GLOBAL_UNICAST_V6:
        return AddressKind.FORBIDDEN, "outside 2000::/3, the global unicast range"
    return AddressKind.PUBLIC, "public"


def check_addresses(
    destination: HostPort, addresses: Sequence[str], *, plain: bool, private: bool, has_tls: bool = True
) -> None:
    """Raise RefusedError unless every address may be dialled. One address that must not be dialled is enough to refuse
    the name.

    A name that resolves to both a public and a private address is either misconfigured or an attempt to get past a
    check that looks at only one of the two. `plain`: the connection has no TLS, so only loopback is allowed. `private`:
    the user allowed this host:port by name. `has_tls`: the service is known to have TLS; a connector's request has TLS
    unless the user allowed the service without TLS.
    """
    for address in addresses:
        kind, use = _classify_answer(address)
        found = f"{destination} resolves to {address} ({use})"
        if kind is AddressKind.FORBIDDEN:
            raise RefusedError(Reason.ADDRESS_FORBIDDEN, f"{found}, which is always blocked")
        if plain and kind is not AddressKind.LOOPBACK:
            raise RefusedError(Reason.ADDRESS_NOT_LOOPBACK, f"{found}; without TLS only loopback addresses are allowed")
        if kind is not AddressKind.PUBLIC and not (plain or private):
            raise RefusedError(Reason.ADDRESS_NOT_PUBLIC, f"{found}; {_allowing(destination, kind, has_tls=has_tls)}")


def _allowing(destination: HostPort, kind: AddressKind, *, has_tls: bool) -> str:
    """Return the end of a refusal's message: the command with which the user can allow the address. For a loopback
    service that is not known to have TLS, the first suggestion is `egress.private_plain`, because most local services
    have no TLS.
    """
    if kind is AddressKind.LOOPBACK and not has_tls:
        plain = f"`aileron config add egress.private_plain {destination}`"
        return f"to allow it, run {plain}, or for a service with TLS the same with egress.private"
    return f"to allow it, run `aileron config add egress.private {destination}`"


def _classify_answer(address: str) -> tuple[AddressKind, str]:
    try:
        return classify(address)
    except ValueError:
        return AddressKind.FORBIDDEN, "not an address"
