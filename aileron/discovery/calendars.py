"""The CalDAV server of a mail address: by DNS first, then by the domain's well-known address.

The well-known address leads to the server by a redirect, or is the server. It is asked as a client of calendars asks, and without
a credential: a server of calendars answers that it needs one.

Rules
- Only servers with TLS are looked for: `_caldav._tcp` is without.
- The domain's HTTPS server is asked after the person allowed it, and a host outside of the domain before it is asked in turn.

Source: RFC 6764. Not here: finding the account's calendars at the server (connectors/caldav/dav.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aileron.discovery.address import MailAddress
from aileron.discovery.https import Https, Reply, Url
from aileron.discovery.offers import MAX_OFFERS, DiscoveryError, MayContact, Offer
from aileron.discovery.records import Records
from aileron.model.names import HostPort

__all__ = ["CalendarsFound", "find_calendars"]

_SERVICE: Final = "caldavs"
_WELL_KNOWN: Final = "/.well-known/caldav"
_IS_CALDAV: Final = frozenset({207, 401})
"""Statuses with which a CalDAV server answers a PROPFIND without a credential. A plain web server answers 404 or 405."""


class CalendarsFound(NamedTuple):
    """The offered servers, the best first. `path` is where DNS says that calendars are at them."""

    offers: tuple[Offer, ...] = ()
    path: str | None = None
    notes: tuple[str, ...] = ()
    """Sentences for the person: what the domain denies, and who did not answer as they should."""


def find_calendars(address: MailAddress, records: Records, https: Https, may_contact: MayContact) -> CalendarsFound:
    """Look for the calendar server of an address. Raises DiscoveryError if no name server answers."""
    domain = address.domain
    found = records.services(_SERVICE, domain)
    notes = []
    if found.refused is not None:
        notes.append(f"the DNS of {domain} names a server that cannot be used: {found.refused}")
    if found.is_denied:
        return CalendarsFound(notes=(*notes, f"the DNS of {domain} says that it has no calendar server"))
    if found.records:
        servers = [record.destination for record in found.records[:MAX_OFFERS]]
        offers = tuple(Offer(server, "tls", "dns", domain, address.owns(server.host)) for server in servers)
        return CalendarsFound(offers, records.path(_SERVICE, domain), tuple(notes))
    offer = None
    if may_contact((domain,)):
        try:
            offer = _by_well_known(address, https, may_contact)
        except DiscoveryError as error:
            notes.append(str(error))
    return CalendarsFound(() if offer is None else (offer,), None, tuple(notes))


def _by_well_known(address: MailAddress, https: Https, may_contact: MayContact) -> Offer | None:
    """Return the server that the well-known address leads to; None if there is none. Raises DiscoveryError."""

    def may_follow(url: Url) -> bool:
        """Follow redirects within the domain, and what moves the well-known address elsewhere. Another host is the server."""
        if address.owns(url.server.host):
            return True
        return _is_well_known(url) and may_contact((url.server.host,))

    reply = https.ask("PROPFIND", Url(HostPort(address.domain, 443), _WELL_KNOWN), may_follow)
    if reply.redirect is not None:
        # A well-known address at another host was refused by the person.
        return None if _is_well_known(reply.redirect) else _offer(address, reply.redirect.server, reply)
    return _offer(address, reply.url.server, reply) if reply.status in _IS_CALDAV else None


def _is_well_known(url: Url) -> bool:
    return url.path.rstrip("/") == _WELL_KNOWN


def _offer(address: MailAddress, found: HostPort, reply: Reply) -> Offer:
    return Offer(found, "tls", "well_known", reply.url.server.host, address.owns(found.host))
