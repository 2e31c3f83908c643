"""The IMAP and SMTP servers of a mail address: by DNS first, then by the file that the domain publishes.

Rules
- A service that is encrypted from the start goes before one with STARTTLS (RFC 8314 section 5.1).
- A service that the domain denies in DNS is looked for no further.
- HTTPS servers are asked after the person allowed their names. They are the domain's own; no central database is asked, because
  it would be told where the person has mail.

Source: RFC 6186, RFC 8314 section 5.1, and for the addresses of the file
https://wiki.mozilla.org/Thunderbird:Autoconfiguration. Not here: whose offer the person takes (cli/add_servers.py).
"""

from __future__ import annotations

import urllib.parse
from typing import Final, Literal, NamedTuple

from aileron.discovery.address import MailAddress
from aileron.discovery.autoconfig import Autoconfig, parse_autoconfig
from aileron.discovery.https import Https, Url
from aileron.discovery.offers import MAX_OFFERS, DiscoveryError, MailProtocol, MayContact, Offer
from aileron.discovery.records import Records
from aileron.model.names import HostPort

__all__ = ["MailFound", "find_mail"]

_SERVICES: Final[dict[MailProtocol, tuple[tuple[str, Literal["tls", "starttls"]], ...]]] = {
    "imap": (("imaps", "tls"), ("imap", "starttls")),
    "smtp": (("submissions", "tls"), ("submission", "starttls")),
}


class MailFound(NamedTuple):
    """The offers for each protocol, the best first, and the user name if one was named."""

    imap: tuple[Offer, ...] = ()
    smtp: tuple[Offer, ...] = ()
    username: str | None = None
    notes: tuple[str, ...] = ()
    """Sentences for the person: what the domain denies, and who did not answer as they should."""

    def of(self, protocol: MailProtocol) -> tuple[Offer, ...]:
        """Return the offers for a protocol."""
        return self.imap if protocol == "imap" else self.smtp


class _ByDns(NamedTuple):
    offers: tuple[Offer, ...]
    is_denied: bool
    notes: tuple[str, ...]


def find_mail(address: MailAddress, records: Records, https: Https, may_contact: MayContact) -> MailFound:
    """Look for the mail servers of an address. Raises DiscoveryError if no name server answers."""
    imap, smtp = _by_dns(address, records, "imap"), _by_dns(address, records, "smtp")
    notes = [*imap.notes, *smtp.notes]
    config = None
    if any(not found.offers and not found.is_denied for found in (imap, smtp)):
        config = _by_autoconfig(address, https, may_contact, notes)
    if config is None:
        return MailFound(imap.offers, smtp.offers, None, tuple(notes))
    return MailFound(
        imap.offers or _of_config(address, config, "imap", is_denied=imap.is_denied),
        smtp.offers or _of_config(address, config, "smtp", is_denied=smtp.is_denied),
        config.config.username,
        tuple(notes),
    )


def _by_dns(address: MailAddress, records: Records, protocol: MailProtocol) -> _ByDns:
    denied = 0
    notes = []
    for service, encryption in _SERVICES[protocol]:
        found = records.services(service, address.domain)
        denied += found.is_denied
        if found.refused is not None:
            notes.append(f"the DNS of {address.domain} names a server that cannot be used: {found.refused}")
        if found.records:
            offers = tuple(
                Offer(record.destination, encryption, "dns", address.domain, address.owns(record.destination.host))
                for record in found.records[:MAX_OFFERS]
            )
            return _ByDns(offers, False, tuple(notes))
    is_denied = denied == len(_SERVICES[protocol])
    if is_denied:
        notes.append(f"the DNS of {address.domain} says that it has no {protocol.upper()} server for people")
    return _ByDns((), is_denied, tuple(notes))


class _Published(NamedTuple):
    config: Autoconfig
    by: str
    """Host that answered."""


def _by_autoconfig(address: MailAddress, https: Https, may_contact: MayContact, notes: list[str]) -> _Published | None:
    """Return the file of mail servers that the domain publishes, if it has one with a server."""
    places = _places(address)
    if not may_contact(tuple(place.server.host for place in places)):
        return None

    def may_follow(url: Url) -> bool:
        return address.owns(url.server.host) or may_contact((url.server.host,))

    for place in places:
        try:
            reply = https.ask("GET", place, may_follow)
            if reply.status != 200:
                continue
            config = parse_autoconfig(reply.body, address)
        except DiscoveryError as error:
            notes.append(str(error))
        else:
            if config.servers:
                return _Published(config, reply.url.server.host)
            notes.append(f"{reply.url.server.host} names no mail server that takes a password over TLS")
    return None


def _places(address: MailAddress) -> tuple[Url, ...]:
    domain = address.domain
    query = urllib.parse.urlencode({"emailaddress": str(address)})
    return (
        Url(HostPort(f"autoconfig.{domain}", 443), f"/mail/config-v1.1.xml?{query}"),
        Url(HostPort(domain, 443), "/.well-known/autoconfig/mail/config-v1.1.xml"),
    )


def _of_config(
    address: MailAddress, published: _Published, protocol: MailProtocol, *, is_denied: bool
) -> tuple[Offer, ...]:
    if is_denied:
        return ()
    return tuple(
        Offer(
            found.destination,
            found.encryption,
            "autoconfig",
            published.by,
            address.owns(found.destination.host),
        )
        for found in published.config.of(protocol)[:MAX_OFFERS]
    )
