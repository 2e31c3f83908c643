"""A server that a domain names for a service, as an offer to the person, and the names that an offer can have.

Pure. Not here: looking for servers (mail.py, calendars.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from aileron.model.names import HostPort, check_host

__all__ = [
    "MAX_OFFERS",
    "DiscoveryError",
    "MailProtocol",
    "MayContact",
    "Offer",
    "Source",
    "check_server_name",
    "server",
]

MailProtocol = Literal["imap", "smtp"]
Source = Literal["dns", "autoconfig", "well_known"]
"""Place of an offer: a record of DNS, a file of mail servers at an HTTPS server, or an HTTPS server's redirect to calendars."""
MayContact = Callable[[tuple[str, ...]], bool]
"""Type of a function that asks the person whether these hosts may be asked for servers."""
MAX_OFFERS: Final = 3
"""Maximum number of servers that are offered for one service, because the person is asked about each. Domains name one or two."""


class DiscoveryError(Exception):
    """A question that got no usable answer. The message says whom was asked, and what is wrong, for a person."""


class Offer(NamedTuple):
    """A server that was found. `by` is the host name that says so: the domain, or the HTTPS server that answered."""

    destination: HostPort
    encryption: Literal["tls", "starttls"]
    source: Source
    by: str
    is_own: bool
    """True if the server is the address's own domain or below it. Any other server could be an attacker's: DNS can be forged."""


def server(host: str, port: int) -> HostPort:
    """Return the host and port of a server that somebody named. Raises ValueError if it is not a host name of the Internet."""
    return HostPort.parse(f"{check_server_name(host.lower())}:{port}")


def check_server_name(host: str) -> str:
    """Return the host unchanged if it is a name of at least two labels, and not an IP address. Raises ValueError otherwise.

    An address or a name such as `localhost` would lead to this machine or its network, and no certificate of the public
    authorities names it.
    """
    check_host(host)
    labels = host.split(".")
    if len(labels) < 2:
        raise ValueError(f"{host[:80]!r} has no domain")
    if labels[-1].isdigit():
        raise ValueError(f"{host[:80]!r} is an IP address, not a name")
    return host
