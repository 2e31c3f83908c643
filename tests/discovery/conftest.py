"""A domain on loopback: a name server with its records, and HTTPS servers with certificates of the test's own authority."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from aileron.discovery.address import MailAddress
from aileron.discovery.calendars import CalendarsFound, find_calendars
from aileron.discovery.https import Https
from aileron.discovery.mail import MailFound, find_mail
from aileron.discovery.offers import Offer
from aileron.discovery.records import Records
from aileron.model.names import HostPort
from tests.support.nameserver import Answers, NameServer
from tests.support.upstream import Authority, Script, Seen, Upstream, answer

ANN: Final = MailAddress("ann", "example.com")
NAMES: Final = ("example.com", "*.example.com", "autoconfig.provider.example", "provider.example")
NOT_FOUND: Final = answer(b"no", status="404 Not Found")


class Domain:
    """The domain example.com, and whoever answers for it. Each HTTPS host has a script; a host without one does not exist."""

    def __init__(self, authority: Authority, names: NameServer) -> None:
        self.pages: dict[str, Script] = {}
        self.contacted: list[str] = []
        """Hosts to which a connection was made, in order."""
        self.questions: list[tuple[str, ...]] = []
        """Hosts that the person was asked about, question by question."""
        self.refused: set[str] = set()
        """Hosts that the person does not want to be asked."""
        self.names: Final = names
        self.upstream: Final = Upstream(self._answer, authority.server_context(*NAMES))
        self._ca_pem: Final = authority.ca_pem
        self._asked_of = ""

    def publish(self, service: str, *records: str) -> None:
        """Put records at a service such as `imaps`: `srv:PRIORITY WEIGHT PORT TARGET` or `txt:TEXT`."""
        self.say(service, list(records))

    def say(self, service: str, answers: Answers) -> None:
        """Give the name server's answers for a service."""
        self.names.zone[f"_{service}._tcp.example.com"] = answers

    def records(self, *, question_s: float = 5.0, draw: Callable[[int], int] | None = None) -> Records:
        """Return a client of the name server."""
        where = HostPort("127.0.0.1", self.names.port)
        if draw is None:
            return Records(where, question_s=question_s, all_s=30.0)
        return Records(where, question_s=question_s, all_s=30.0, draw=draw)

    def https(self, *, host_s: float = 20.0, trusts: bool = True) -> Https:
        """Return a client of the HTTPS servers, which trusts their authority or not."""
        return Https(self._ca_pem if trusts else None, connect=self._connect, host_s=host_s)

    def mail(self, records: Records | None = None, https: Https | None = None) -> MailFound:
        """Look for Ann's mail servers."""
        return find_mail(ANN, records or self.records(), https or self.https(), self.may_contact)

    def calendars(self) -> CalendarsFound:
        """Look for Ann's calendar server."""
        return find_calendars(ANN, self.records(), self.https(), self.may_contact)

    def may_contact(self, hosts: tuple[str, ...]) -> bool:
        """Answer for the person."""
        self.questions.append(hosts)
        return not self.refused.intersection(hosts)

    def _connect(self, destination: HostPort, seconds: float) -> socket.socket:
        self.contacted.append(str(destination))
        if destination.host not in self.pages:
            raise socket.gaierror(socket.EAI_NONAME, "no such host")
        self._asked_of = destination.host
        return socket.create_connection(("127.0.0.1", self.upstream.port), seconds)

    def _answer(self, seen: Seen) -> bytes | Iterable[bytes | memoryview]:
        return self.pages[self._asked_of](seen)


@pytest.fixture
def domain(tmp_path: Path) -> Iterator[Domain]:
    """Provide example.com, which has no records and no pages yet."""
    with NameServer() as names:
        made = Domain(Authority(tmp_path), names)
        with made.upstream:
            yield made


def hosts(offers: tuple[Offer, ...]) -> list[str]:
    """Return the servers of offers, each with a mark if it is not the domain's own."""
    return [f"{offer.destination}{'' if offer.is_own else ' (outside)'}" for offer in offers]
