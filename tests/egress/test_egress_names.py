"""Names on the wire: the queries that a request causes at a real name server, and the result of each kind of answer.

The system's own resolver asks a counting name server on loopback, in namespaces of its own (tests/support/lab.py).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import anyio
import pytest

from aileron.egress.addresses import check_addresses
from aileron.egress.lookup import MAX_LOOKUPS, SystemResolver
from aileron.egress.refusal import RefusedError
from aileron.model.names import HostPort
from tests.support.lab import OWN_ADDRESSES, Lab
from tests.support.nameserver import LOOP, NONSENSE, SILENT, NameServer

pytestmark = pytest.mark.jail  # its name server is in namespaces of its own

NAME = "api.test"
URL, HOSTS = "https://api.test:{port}/", ["api.test:{port}"]
BOTH = [(NAME, "A"), (NAME, "AAAA")]
HOME = {NAME: ["127.0.0.1"]}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Start one machine for all tests: each request there has a new engine."""
    with Lab() as made:
        yield made


@pytest.mark.abuse_case("E1", "E2", "E13")
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://evil.test:{port}/", "host_not_granted"),
        ("https://secret-in-a-label.evil.test:{port}/", "host_not_granted"),
        ("https://sub.api.test:{port}/", "host_not_granted"),
        ("https://api.test.evil.test:{port}/", "host_not_granted"),
        ("https://api.test/", "host_not_granted"),
        ("https://api.test.:{port}/", "url_host"),
        ("https://api.test:{port}@evil.test/", "url_userinfo"),
        ("https://api.test:{port}\\@evil.test/", "url_characters"),
        ("https://api_test:{port}/", "url_host"),
        ("http://api.test:{port}/", "plain_http"),
        ("https://api.test:{port}/../x", "url_path"),
    ],
)
def test_a_denied_name_causes_no_lookup(lab: Lab, url: str, reason: str) -> None:
    """A query could carry data out in the name. A granted name causes one query for each address family."""
    zone = {**HOME, "evil.test": ["127.0.0.1"], "sub.api.test": ["127.0.0.1"]}

    denied = lab.ask(url, zone=zone, hosts=HOSTS, private=True)
    assert (denied.asked, denied.connections, denied.reason) == ([], 0, reason)

    granted = lab.ask(URL, zone=zone, hosts=HOSTS, private=True)
    assert (sorted(granted.asked), granted.connections, granted.status) == (BOTH, 1, 200)


@pytest.mark.abuse_case("E15", "E16")
@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (["1.1.1.1", "127.0.0.1"], "address_not_public"),
        (["127.0.0.1", "1.1.1.1"], "address_not_public"),
        (["1.1.1.1", "::1"], "address_not_public"),
        (["2606:4700::1111", "10.0.0.1"], "address_not_public"),
        (["1.1.1.1", "169.254.169.254"], "address_forbidden"),
        (["1.1.1.1", "::ffff:169.254.169.254"], "address_forbidden"),
        (["2606:4700::1111", "fe80::1"], "address_forbidden"),
        (["cname:localhost", "127.0.0.1"], "address_not_public"),
        (["cname:metadata.google.internal", "169.254.169.254"], "address_forbidden"),
    ],
)
def test_a_dns_response_with_one_private_or_forbidden_address_leads_to_no_connection(
    lab: Lab, answers: list[str], reason: str
) -> None:
    """Order, family and aliases make no difference; a response without such an address leads to a connection."""
    mixed = lab.ask(URL, zone={NAME: answers}, hosts=HOSTS)
    assert (mixed.connections, mixed.reason) == (0, reason)

    ordinary = lab.ask(URL, zone={NAME: ["1.1.1.1", "2606:4700::1111"]}, hosts=HOSTS)
    assert (ordinary.reason, sorted(ordinary.asked)) == ("connect", BOTH)  # there is no way to 1.1.1.1 in the lab


@pytest.mark.abuse_case("E14")
def test_the_address_that_was_checked_is_the_address_that_is_dialled(lab: Lab) -> None:
    """DNS rebinding: a second query would get an internal address, so there is no second query."""
    rebound = lab.ask(URL, zone={NAME: ["1.1.1.1"]}, later=HOME, hosts=HOSTS)
    assert (sorted(rebound.asked), rebound.connections, rebound.reason) == (BOTH, 0, "connect")

    inside = lab.ask(URL, zone=HOME, hosts=HOSTS)
    assert (inside.connections, inside.reason) == (0, "address_not_public")
    assert lab.ask(URL, zone=HOME, hosts=HOSTS, private=True).connections == 1


@pytest.mark.abuse_case("E17")
@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (None, "Name or service not known"),
        ([], "name resolution failed"),
        (LOOP, "name resolution failed"),
        (NONSENSE, "Temporary failure"),
        (SILENT, "Temporary failure"),
        (["127.0.0.1"] * 3000, None),
        ([f"127.1.{number >> 8}.{number & 255}" for number in range(4000)], "addresses; 1 to 32 are usable"),
    ],
    ids=[
        "no such name",
        "no address",
        "a loop",
        "nonsense",
        "silence",
        "one address 3000 times",
        "64 KiB of addresses",
    ],
)
def test_a_dns_response_without_usable_addresses_is_a_network_error(
    lab: Lab, answers: list[str] | str | None, words: str | None
) -> None:
    """The message tells a name that does not exist from a name server that does not respond."""
    zone = {} if answers is None else {NAME: answers}
    report = lab.ask(URL, zone=zone, hosts=HOSTS, private=True)

    assert NAME in {name for name, _kind in report.asked}
    if words is None:
        assert report.status == 200
    else:
        assert report.failure is not None
        assert (report.failure["class"], report.reason, report.connections) == ("network_error", "resolve", 0)
        assert words in report.failure["message"]


@pytest.mark.abuse_case("E17")
def test_concurrent_requests_for_one_unanswered_name_share_one_lookup(lab: Lab) -> None:
    """They wait for the same response, so none takes a thread of its own."""
    once = lab.ask(URL, zone={NAME: SILENT}, hosts=HOSTS)
    often = lab.ask(URL, zone={NAME: SILENT}, hosts=HOSTS, times=16)

    assert sorted(often.asked) == sorted(once.asked)
    assert often.reason == "resolve"


@pytest.mark.abuse_case("E18")
def test_a_host_found_through_a_search_domain_needs_a_certificate_for_the_short_name(lab: Lab) -> None:
    """The system may expand a short name; the server found in this way must still have a certificate for it."""
    report = lab.ask("https://api:{port}/", zone={"api.corp.test": ["127.0.0.1"]}, hosts=["api:{port}"], private=True)
    assert ("api.corp.test", "A") in report.asked
    assert report.reason == "connect"
    assert "certificate is not trusted" in (report.failure or {})["message"]


@pytest.mark.abuse_case("E18")
def test_a_name_in_the_hosts_file_needs_no_name_server(lab: Lab) -> None:
    """The file is the user's; its addresses are checked like any others."""
    url, hosts = "https://in-hosts.test:{port}/", ["in-hosts.test:{port}"]
    assert lab.ask(url, zone={}, hosts=hosts).reason == "address_not_public"
    report = lab.ask(url, zone={}, hosts=hosts, private=True)
    assert (report.asked, report.status) == ([], 200)


@pytest.mark.abuse_case("E5")
def test_an_address_of_this_machine_s_interfaces_is_refused(lab: Lab) -> None:
    """A public one would reach services of this machine; a private one is refused for being private."""
    public, private = OWN_ADDRESSES
    assert lab.ask(URL, zone={NAME: [public]}, hosts=HOSTS).reason == "address_own"
    assert lab.ask(URL, zone={NAME: ["1.1.1.1", public]}, hosts=HOSTS).reason == "address_own"
    assert lab.ask(URL, zone={NAME: [private]}, hosts=HOSTS).reason == "address_not_public"
    assert lab.ask(URL, zone={NAME: ["1.1.1.1"]}, hosts=HOSTS).reason == "connect"


@pytest.mark.abuse_case("E6")
@pytest.mark.parametrize(
    ("url", "zone"),
    [
        ("https://localhost:{port}/", {}),
        ("https://127.0.0.1:{port}/", {}),
        ("https://127.9.9.9:{port}/", {}),
        ("https://in-hosts.test:{port}/", {}),
        (URL, {NAME: ["127.0.0.1"]}),
        (URL, {NAME: ["::1"]}),
        (URL, {NAME: ["1.1.1.1", "127.0.0.1"]}),
        (URL, {NAME: [OWN_ADDRESSES[0]]}),
        (URL, {NAME: [OWN_ADDRESSES[1]]}),
    ],
)
def test_the_daemon_s_own_port_is_never_dialled(lab: Lab, url: str, zone: dict[str, list[str]]) -> None:
    """Every name and address of this machine is tried, even with the user's exception; another port is reached."""
    hosts = [url.removeprefix("https://").removesuffix("/")]
    refused = lab.ask(url, zone=zone, hosts=hosts, private=True, is_daemon=True)
    assert (refused.reason, refused.connections) == ("address_own", 0)

    allowed = lab.ask(url, zone=zone, hosts=hosts, private=True)
    assert allowed.reason in {None, "connect"}  # an answer, a certificate for another name, or nobody there


@pytest.mark.abuse_case("E17")
def test_every_one_of_ten_thousand_resolved_addresses_is_checked() -> None:
    """A resolver without DNS messages could return so many. The forbidden address is the last."""
    many = [f"1.{number >> 8}.{number & 255}.1" for number in range(10_000)]
    check_addresses(HostPort(NAME, 443), many, plain=False, private=False)
    with pytest.raises(RefusedError):
        check_addresses(HostPort(NAME, 443), [*many, "127.0.0.1"], plain=False, private=False)


@pytest.mark.abuse_case("E17")
@pytest.mark.anyio
async def test_concurrent_lookups_are_bounded() -> None:
    """A lookup above the bound is refused at once; it works once there is room."""
    resolver = SystemResolver()
    resolver.under_way = dict.fromkeys((f"n{number}.test" for number in range(MAX_LOOKUPS)), None)  # type: ignore[assignment]
    with pytest.raises(socket.gaierror, match="are being looked up"):
        await resolver("localhost", 443)
    resolver.under_way.clear()
    with anyio.fail_after(10):
        assert "127.0.0.1" in await resolver("localhost", 443)
    assert resolver.under_way == {}


@pytest.mark.abuse_case("E13")
def test_the_name_server_of_these_tests_counts_queries() -> None:
    """Positive control: a query from any client is on its list."""
    from tests.support.nameserver import A, question

    with NameServer(HOME) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        client.sendto(question(NAME, A), ("127.0.0.1", server.port))
        assert client.recv(512).endswith(b"\x7f\0\0\1")
    assert server.asked == [(NAME, "A")]
