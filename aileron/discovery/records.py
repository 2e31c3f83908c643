"""The records of DNS that name a domain's servers: SRV, and the path in the TXT record beside one.

Asks the name servers of this machine (resolv.conf(5)), and believes no answer: DNS is rarely signed, and whoever is between here
and there can forge it.

Rules
- A target is a host name of at least two labels, or is refused. A target of "." alone says that the domain has no such service.
- Records are sorted by priority, and drawn by weight within one. At most MAX_RECORDS count.
- Each question has a deadline, and so have all of them together. A name server that does not answer ends the search.

Source: RFC 2782, RFC 6763 section 6 (TXT), RFC 6764 section 4 (path). Not here: which are asked for (mail.py, calendars.py).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aileron.discovery.offers import DiscoveryError, server
from aileron.model.names import HostPort

if TYPE_CHECKING:
    import dns.rdatatype
    import dns.resolver
    import dns.rrset
    from dns.rdtypes.IN.SRV import SRV

__all__ = ["MAX_RECORDS", "Records", "ServiceRecord", "ServiceRecords"]

MAX_RECORDS: Final = 20
"""Maximum number of records that are considered. Providers publish up to five; a message can hold more than a thousand."""
_QUESTION_S: Final = 3.0
"""Seconds to wait for one answer: enough to ask the first name server twice, or a second one."""
_ALL_S: Final = 6.0
"""Seconds to wait for all answers together: the person waits at the terminal."""
_MAX_UDP: Final = 1232
"""Bytes of an answer by UDP that no network fragments (DNS flag day 2020). A longer one is asked for again by TCP."""
_MAX_PATH: Final = 200


class ServiceRecord(NamedTuple):
    """An SRV record with a valid target."""

    priority: int
    weight: int
    destination: HostPort


class ServiceRecords(NamedTuple):
    """The SRV records of a service, the preferred one first."""

    records: tuple[ServiceRecord, ...] = ()
    is_denied: bool = False
    """True if the domain says that it does not have the service."""
    refused: str | None = None
    """Reason why a record was refused; None if none was."""


class Records:
    """Look-ups of one search. `name_server` replaces those of this machine. `draw` returns a number below its argument."""

    def __init__(
        self,
        name_server: HostPort | None = None,
        *,
        question_s: float = _QUESTION_S,
        all_s: float = _ALL_S,
        draw: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._name_server: Final = name_server
        self._question_s: Final = question_s
        self._left_s = all_s
        self._draw: Final = draw

    def services(self, service: str, domain: str) -> ServiceRecords:
        """Return the servers of a service such as `imaps`. Raises DiscoveryError if no name server answers."""
        import dns.name
        import dns.rdatatype

        found = self._ask(f"_{service}._tcp.{domain}.", dns.rdatatype.SRV)
        given: list[SRV] = [] if found is None else sorted(found, key=lambda record: record.priority)[:MAX_RECORDS]
        named = [record for record in given if record.target != dns.name.root]
        records, refused = [], None
        for record in named:
            try:
                destination = server(record.target.to_text(omit_final_dot=True), record.port)
            except ValueError as error:
                refused = str(error)
            else:
                records.append(ServiceRecord(record.priority, record.weight, destination))
        return ServiceRecords(tuple(_in_order(records, self._draw)), bool(given) and not named, refused)

    def path(self, service: str, domain: str) -> str | None:
        """Return the path that the service has at its servers, if DNS has one. Raises DiscoveryError as `services` does."""
        import dns.rdatatype

        found = self._ask(f"_{service}._tcp.{domain}.", dns.rdatatype.TXT)
        for record in () if found is None else found:
            for text in record.strings:
                name, _, value = text.partition(b"=")
                path = str(value, "ascii", "replace")
                if name.lower() == b"path" and path.startswith("/") and path.isprintable() and len(path) <= _MAX_PATH:
                    return path
        return None

    def _ask(self, name: str, kind: dns.rdatatype.RdataType) -> dns.rrset.RRset | None:
        """Return the records of a name; None if there are none. Raises DiscoveryError."""
        import dns.exception
        import dns.resolver

        domain = name.partition("._tcp.")[2].removesuffix(".")
        if self._left_s <= 0:
            raise DiscoveryError(f"the name servers are too slow to look for the servers of {domain}")
        began = time.monotonic()
        try:
            answer = self._resolver().resolve(
                name,
                kind,
                raise_on_no_answer=False,
                search=False,
                lifetime=min(self._question_s, self._left_s),
            )
        except dns.resolver.NXDOMAIN:
            return None
        except (dns.exception.DNSException, OSError, ValueError) as error:
            raise DiscoveryError(_what_failed(error, domain)) from None
        finally:
            self._left_s -= time.monotonic() - began
        return answer.rrset

    def _resolver(self) -> dns.resolver.Resolver:
        import dns.resolver

        resolver = dns.resolver.Resolver(configure=self._name_server is None)
        if self._name_server is not None:
            resolver.nameservers = [self._name_server.host]
            resolver.port = self._name_server.port
        resolver.use_edns(0, 0, _MAX_UDP)
        return resolver


def _in_order(records: Sequence[ServiceRecord], draw: Callable[[int], int]) -> list[ServiceRecord]:
    """Return the records in the order in which to try them: RFC 2782, "Usage rules" and the algorithm for weights."""
    ordered = []
    for priority in sorted({record.priority for record in records}):
        left = sorted((record for record in records if record.priority == priority), key=lambda record: record.weight)
        while left:
            drawn = draw(sum(record.weight for record in left) + 1)
            total = 0
            for record in left:  # those of weight 0 are first, and so have a very small chance of being drawn
                total += record.weight
                if total >= drawn:
                    break
            ordered.append(record)
            left.remove(record)
    return ordered


def _what_failed(error: Exception, domain: str) -> str:
    import dns.exception
    import dns.resolver

    if isinstance(error, dns.resolver.NoResolverConfiguration):
        return "this machine has no name server (/etc/resolv.conf)"
    if isinstance(error, dns.exception.Timeout):
        return f"no name server answered about {domain}; is this machine online?"
    if isinstance(error, dns.resolver.NoNameservers):
        # One entry for each try: name server, TCP or not, port, exception, response.
        if all(isinstance(attempt[3], OSError) for attempt in error.kwargs["errors"]):
            return "no name server can be reached; is this machine online?"
        return f"the name servers cannot answer about {domain}"
    return f"the servers of {domain} cannot be looked up ({type(error).__name__})"
