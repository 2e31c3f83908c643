"""Mail servers by DNS and by the domain's own file, with a real name server and a real HTTPS server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from aileron.discovery.https import Https
from aileron.discovery.offers import DiscoveryError
from aileron.model.names import HostPort
from tests.discovery.conftest import NOT_FOUND, Domain, hosts
from tests.support.nameserver import FAILING, LOOP, NONSENSE, SILENT
from tests.support.upstream import Seen, answer

FILE = b"""<?xml version="1.0"?>
<clientConfig version="1.1"><emailProvider id="example.com">
  <incomingServer type="imap"><hostname>imap.example.com</hostname><port>993</port><socketType>SSL</socketType>
    <authentication>password-cleartext</authentication><username>%EMAILLOCALPART%</username></incomingServer>
  <outgoingServer type="smtp"><hostname>smtp.provider.example</hostname><port>587</port><socketType>STARTTLS</socketType>
    <authentication>password-cleartext</authentication><username>%EMAILADDRESS%</username></outgoingServer>
</emailProvider></clientConfig>"""


def redirect(to: str) -> bytes:
    """Return a redirect."""
    return answer(b"", f"Location: {to}", status="302 Found")


def test_servers_are_found_in_dns_without_any_contact(domain: Domain) -> None:
    """Both services with TLS are published. No HTTPS server is asked, and the person is asked nothing."""
    domain.publish("imaps", "srv:0 1 993 imap.example.com")
    domain.publish("submissions", "srv:0 1 465 mail.provider.example")

    found = domain.mail()

    assert hosts(found.imap) == ["imap.example.com:993"]
    assert hosts(found.smtp) == ["mail.provider.example:465 (outside)"]
    assert {offer.encryption for offer in (*found.imap, *found.smtp)} == {"tls"}
    assert (domain.questions, domain.contacted) == ([], [])


def test_starttls_is_offered_only_if_nothing_has_tls_from_the_start(domain: Domain) -> None:
    """The control publishes both; then the second is not even looked up."""
    domain.publish("imap", "srv:0 1 143 imap.example.com")
    domain.publish("submission", "srv:0 1 587 smtp.example.com")
    domain.publish("submissions", "srv:0 1 465 smtp.example.com")

    found = domain.mail()

    assert (hosts(found.imap), found.imap[0].encryption) == (["imap.example.com:143"], "starttls")
    assert (hosts(found.smtp), found.smtp[0].encryption) == (["smtp.example.com:465"], "tls")
    assert ("_submission._tcp.example.com", "SRV") not in domain.names.asked


def test_a_service_that_the_domain_denies_is_looked_for_no_further(domain: Domain) -> None:
    """The target "." of all records for SMTP leaves SMTP empty, although the file names a server; IMAP is found there."""
    for service in ("submissions", "submission"):
        domain.publish(service, "srv:0 0 0 .")
    domain.pages["autoconfig.example.com"] = lambda _seen: answer(FILE)

    found = domain.mail()

    assert hosts(found.imap) == ["imap.example.com:993"]
    assert found.smtp == ()
    assert found.notes == ("the DNS of example.com says that it has no SMTP server for people",)


def test_a_domain_that_denies_everything_is_not_asked_by_https(domain: Domain) -> None:
    """The denials leave nothing to look for."""
    for service in ("imaps", "imap", "submissions", "submission"):
        domain.publish(service, "srv:0 0 0 .")

    assert domain.mail().imap == ()
    assert (domain.questions, domain.contacted) == ([], [])


def test_the_file_is_fetched_after_one_question_that_names_both_hosts(domain: Domain) -> None:
    """The address goes to the domain's own server; no credential and no cookie does."""
    domain.pages["autoconfig.example.com"] = lambda _seen: answer(FILE)

    found = domain.mail()

    assert domain.questions == [("autoconfig.example.com", "example.com")]
    assert domain.contacted == ["autoconfig.example.com:443"]
    assert (hosts(found.imap), hosts(found.smtp)) == (["imap.example.com:993"], ["smtp.provider.example:587 (outside)"])
    assert (found.smtp[0].encryption, found.username) == ("starttls", "ann")
    assert found.imap[0].by == "autoconfig.example.com"
    (request,) = domain.upstream.requests
    assert request.target == "/mail/config-v1.1.xml?emailaddress=ann%40example.com"
    assert {name.lower() for name, _ in request.fields} == {
        "host",
        "user-agent",
        "accept",
        "accept-encoding",
        "connection",
    }


def test_the_well_known_file_is_the_second_place(domain: Domain) -> None:
    """The first answers with 404. The second gets no address."""
    domain.pages["autoconfig.example.com"] = lambda _seen: NOT_FOUND
    domain.pages["example.com"] = lambda _seen: answer(FILE)

    found = domain.mail()

    assert hosts(found.imap) == ["imap.example.com:993"]
    assert domain.upstream.requests[-1].target == "/.well-known/autoconfig/mail/config-v1.1.xml"


def test_no_https_server_is_contacted_if_the_person_says_no(domain: Domain) -> None:
    """The search finds nothing and connects to no host."""
    domain.pages["autoconfig.example.com"] = lambda _seen: answer(FILE)
    domain.refused.add("example.com")

    assert domain.mail().imap == ()
    assert domain.contacted == []


@pytest.mark.abuse_case("SA4")
def test_a_redirect_outside_of_the_domain_is_asked_about_first(domain: Domain) -> None:
    """A yes lets the search follow the redirect, and a no does not."""
    domain.pages["autoconfig.example.com"] = lambda _seen: redirect("https://autoconfig.provider.example/x.xml")
    domain.pages["autoconfig.provider.example"] = lambda _seen: answer(FILE)

    followed = domain.mail()
    contacted, domain.contacted[:] = domain.contacted[:], []
    domain.refused.add("autoconfig.provider.example")
    refused = domain.mail()

    assert (hosts(followed.imap), followed.imap[0].by) == (["imap.example.com:993"], "autoconfig.provider.example")
    assert contacted == ["autoconfig.example.com:443", "autoconfig.provider.example:443"]
    assert ("autoconfig.provider.example",) in domain.questions
    assert refused.imap == ()
    assert "autoconfig.provider.example:443" not in domain.contacted


@pytest.mark.abuse_case("SA4")
@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("http://autoconfig.example.com/x.xml", "does not start with https://"),
        ("https://127.0.0.1/x.xml", "is an IP address"),
        ("https://localhost/x.xml", "has no domain"),
        ("https://me:secret@www.example.com/x.xml", "the URL has userinfo"),
        ("https://www.example.com:99999/x.xml", "the URL's port is not a plain number from 1 to 65535"),
        ("file:///etc/passwd", "does not start with https://"),
        ("https://[::1]/x.xml", "the URL has an IPv6 literal"),
        ("https://[/", "Invalid IPv6 URL"),
        ("/loop", "redirects more than 3 times"),
    ],
)
def test_a_redirect_to_anything_else_is_not_followed(domain: Domain, to: str, why: str) -> None:
    """Only https hosts with a name are followed, and only three times."""
    domain.pages["autoconfig.example.com"] = lambda _seen: redirect(to)
    domain.pages["example.com"] = lambda _seen: NOT_FOUND

    found = domain.mail()

    assert found.imap == ()
    assert why in found.notes[0]
    assert set(domain.contacted) == {"autoconfig.example.com:443", "example.com:443"}


@pytest.mark.abuse_case("SA6")
def test_a_server_without_a_trusted_certificate_is_not_believed(domain: Domain) -> None:
    """The test's own authority is not trusted here, and the file is not read. Its control is every test above."""
    domain.pages["autoconfig.example.com"] = domain.pages["example.com"] = lambda _seen: answer(FILE)

    found = domain.mail(https=domain.https(trusts=False))

    assert found.imap == ()
    assert all("certificate that is not trusted" in note for note in found.notes)
    assert len(found.notes) == 2
    assert domain.upstream.requests == []


@pytest.mark.abuse_case("SA5")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<clientConfig>" + b" " * (64 << 10), "sends more than 65536 bytes"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]>' + FILE, "has a DOCTYPE"),
        (b"<html></html>", "in another format"),
        (b"not XML", "is not XML"),
        (b"<clientConfig/>", "names no mail server"),
        (b"<a>" * 40, "nested too deeply"),
    ],
)
def test_a_hostile_file_is_refused_with_its_reason(domain: Domain, body: bytes, why: str) -> None:
    """The next place is asked nevertheless, and has no file."""
    domain.pages["autoconfig.example.com"] = lambda _seen: answer(body)
    domain.pages["example.com"] = lambda _seen: NOT_FOUND

    found = domain.mail()

    assert (found.imap, found.smtp) == ((), ())
    assert why in found.notes[0]


@pytest.mark.abuse_case("SA6")
def test_a_server_that_drips_is_left_at_the_deadline(domain: Domain) -> None:
    """Each byte comes in time, and the whole does not. The search ends all the same."""
    stopped = threading.Event()

    def drip(_seen: Seen) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"
        while not stopped.wait(0.02):
            yield b" "

    domain.pages["autoconfig.example.com"] = drip
    try:
        found = domain.mail(https=domain.https(host_s=0.5))
    finally:
        stopped.set()

    assert found.imap == ()
    assert found.notes[0] == "autoconfig.example.com did not answer in time"


@pytest.mark.abuse_case("SA6")
def test_a_name_that_the_system_cannot_look_up_in_time_does_not_hold_the_search(domain: Domain) -> None:
    """The look-up blocks until the test releases it, as getaddrinfo(3) can."""
    released = threading.Event()

    def blocked(_destination: HostPort, _seconds: float) -> socket.socket:
        released.wait(60)
        raise OSError

    try:
        found = domain.mail(https=Https(connect=blocked, host_s=0.2))
    finally:
        released.set()

    assert [note.partition(" ")[2] for note in found.notes] == ["did not answer in time"] * 2


@pytest.mark.abuse_case("SA7")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        (SILENT, "no name server answered about example.com"),
        (FAILING, "the name servers cannot answer about example.com"),
        (NONSENSE, "example.com"),
        (LOOP, "example.com"),
    ],
)
def test_a_name_server_that_does_not_answer_ends_the_search(domain: Domain, said: str, why: str) -> None:
    """The search asks no HTTPS server then, and the person names the servers."""
    domain.say("imaps", said)

    with pytest.raises(DiscoveryError, match=why):
        domain.mail(records=domain.records(question_s=0.5))
    assert domain.contacted == []
