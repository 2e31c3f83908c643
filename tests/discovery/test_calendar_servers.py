"""Calendar servers by DNS and by the domain's well-known address, with a real name server and a real HTTPS server."""

from __future__ import annotations

import functools

import pytest

from tests.discovery.conftest import NOT_FOUND, Domain, hosts
from tests.support.upstream import Seen, answer

UNAUTHORIZED = answer(b"", 'WWW-Authenticate: Basic realm="dav"', status="401 Unauthorized")


def _always(said: bytes, _seen: Seen) -> bytes:
    return said


def redirect(to: str) -> bytes:
    """Return a redirect."""
    return answer(b"", f"Location: {to}", status="301 Moved Permanently")


def test_a_server_is_found_in_dns_with_its_path(domain: Domain) -> None:
    """The records are enough: no HTTPS server is asked."""
    domain.publish("caldavs", "srv:0 1 8443 dav.provider.example", "txt:path=/dav/")

    found = domain.calendars()

    assert (hosts(found.offers), found.path) == (["dav.provider.example:8443 (outside)"], "/dav/")
    assert (domain.contacted, domain.questions) == ([], [])


def test_the_service_without_tls_is_never_looked_for(domain: Domain) -> None:
    """A credential never goes there."""
    domain.publish("caldav", "srv:0 1 80 dav.example.com")

    assert domain.calendars().offers == ()
    assert ("_caldav._tcp.example.com", "SRV") not in domain.names.asked


def test_a_domain_without_calendars_is_not_asked_by_https(domain: Domain) -> None:
    """The target is a dot."""
    domain.publish("caldavs", "srv:0 0 0 .")

    found = domain.calendars()

    assert (found.offers, found.notes) == ((), ("the DNS of example.com says that it has no calendar server",))
    assert (domain.contacted, domain.questions) == ([], [])


@pytest.mark.abuse_case("SA4")
def test_the_well_known_address_leads_to_a_server_that_is_not_contacted(domain: Domain) -> None:
    """The server is outside of the domain, so the person decides before anybody connects to it."""
    domain.pages["example.com"] = lambda _seen: redirect("https://dav.provider.example/dav/")

    found = domain.calendars()

    assert (hosts(found.offers), found.offers[0].by) == (["dav.provider.example:443 (outside)"], "example.com")
    assert domain.questions == [("example.com",)]
    assert domain.contacted == ["example.com:443"]
    (request,) = domain.upstream.requests
    assert (request.method, request.target) == ("PROPFIND", "/.well-known/caldav")
    assert request.values("authorization") == []


def test_a_server_of_the_domain_is_found_by_its_answer(domain: Domain) -> None:
    """The well-known address moves to another host of the domain, and from there to a path that wants a credential."""

    def dav(seen: Seen) -> bytes:
        return UNAUTHORIZED if seen.target == "/dav/" else redirect("/dav/")

    domain.pages["example.com"] = lambda _seen: redirect("https://dav.example.com/.well-known/caldav")
    domain.pages["dav.example.com"] = dav

    assert hosts(domain.calendars().offers) == ["dav.example.com:443"]


def test_a_web_server_without_calendars_is_no_offer(domain: Domain) -> None:
    """The server finds nothing, does not know the method, ignores it, or leads to its home page."""
    for said in (NOT_FOUND, answer(b"", status="405 Method Not Allowed"), answer(b"<html>")):
        domain.pages["example.com"] = functools.partial(_always, said)
        assert domain.calendars().offers == ()
    domain.pages["example.com"] = lambda seen: answer(b"home") if seen.target == "/" else redirect("/")
    assert domain.calendars().offers == ()


def test_a_well_known_address_elsewhere_is_asked_about_first(domain: Domain) -> None:
    """The host is contacted after a yes, and not after a no."""
    domain.pages["example.com"] = lambda _seen: redirect("https://provider.example/.well-known/caldav")
    domain.pages["provider.example"] = lambda _seen: UNAUTHORIZED
    domain.refused.add("provider.example")

    refused = domain.calendars()
    contacted = domain.contacted[:]
    domain.refused.clear()
    allowed = domain.calendars()

    assert (refused.offers, contacted) == ((), ["example.com:443"])
    assert hosts(allowed.offers) == ["provider.example:443 (outside)"]
    assert domain.questions.count(("provider.example",)) == 2


def test_a_web_server_that_does_not_exist_is_told(domain: Domain) -> None:
    """Many domains have mail and no web server."""
    assert domain.calendars().notes == ("example.com does not exist, or cannot be looked up",)
