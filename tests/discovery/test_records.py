"""Records of DNS, from a name server that may be anybody's."""

from __future__ import annotations

import random

import pytest

from aileron.discovery.offers import DiscoveryError
from aileron.discovery.records import MAX_RECORDS, Records
from aileron.model.names import HostPort
from tests.discovery.conftest import Domain
from tests.support.ports import reserve_ports


def test_records_are_in_the_order_of_their_priority(domain: Domain) -> None:
    """The lowest number is first, whatever order the name server sends."""
    domain.publish("imaps", "srv:20 0 993 c.example.com", "srv:0 5 993 a.example.com", "srv:10 9 993 b.example.com")

    found = domain.records().services("imaps", "example.com")

    assert [record.destination.host[0] for record in found.records] == ["a", "b", "c"]


def test_records_of_one_priority_are_drawn_by_their_weights(domain: Domain) -> None:
    """About nine in ten of 400 searches begin with the weight of 90; weight 0 comes first next to never."""
    domain.publish("imaps", "srv:0 90 993 a.example.com", "srv:0 10 993 b.example.com", "srv:0 0 993 c.example.com")
    chance = random.Random(1)
    records = Records(HostPort("127.0.0.1", domain.names.port), question_s=30.0, all_s=120.0, draw=chance.randrange)

    first = [records.services("imaps", "example.com").records[0].destination.host[0] for _ in range(400)]

    assert 330 <= first.count("a") <= 385
    assert first.count("c") <= 15


@pytest.mark.abuse_case("SA1")
@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1",
        "10.0.0.1",
        "2130706433",
        "a.0x7f",
        "localhost",
        "imap_1.example.com",
        "-imap.example.com",
        "imap.exa mple.com",
        "imap.example.com\x1b[2J",
        "*.example.com",
        "imap.example.com/x",
        "imap@example.com",
    ],
)
def test_a_target_that_is_not_a_host_name_is_refused(domain: Domain, target: str) -> None:
    """The other record, with a name, stays. Hidden characters do not get into the reason."""
    domain.publish("imaps", f"srv:0 1 993 {target}", "srv:5 1 993 IMAP.Example.com")

    found = domain.records().services("imaps", "example.com")

    assert [str(record.destination) for record in found.records] == ["imap.example.com:993"]
    assert found.refused is not None
    assert "\x1b" not in found.refused


def test_port_0_is_refused(domain: Domain) -> None:
    """A server cannot listen there."""
    domain.publish("imaps", "srv:0 1 0 imap.example.com")

    found = domain.records().services("imaps", "example.com")

    assert found.records == ()
    assert "port '0'" in str(found.refused)


@pytest.mark.abuse_case("SA3")
def test_a_thousand_records_are_cut_to_those_that_come_first(domain: Domain) -> None:
    """The answer comes by TCP. The preferred record is the last that the server sends."""
    many = [f"srv:{1000 - number} 1 993 h{number}.example.com" for number in range(1000)]
    domain.publish("imaps", *many)

    found = domain.records().services("imaps", "example.com")

    assert len(found.records) == MAX_RECORDS
    assert found.records[0].destination.host == "h999.example.com"


@pytest.mark.abuse_case("SA3")
def test_a_dot_among_other_targets_denies_nothing(domain: Domain) -> None:
    """Only a dot alone says that there is no such service (RFC 2782)."""
    domain.publish("imaps", "srv:0 1 993 .", "srv:1 1 993 imap.example.com")
    domain.publish("submissions", "srv:0 1 993 .")
    records = domain.records()

    imaps, submissions = (records.services(name, "example.com") for name in ("imaps", "submissions"))

    assert ([str(record.destination) for record in imaps.records], imaps.is_denied) == (["imap.example.com:993"], False)
    assert (submissions.records, submissions.is_denied) == ((), True)


def test_a_name_that_does_not_exist_has_no_records(domain: Domain) -> None:
    """NXDOMAIN and a name with other records alone are the same: nothing, and no denial."""
    domain.publish("imap", "txt:hello")
    records = domain.records()

    for service in ("imaps", "imap"):
        found = records.services(service, "example.com")
        assert (found.records, found.is_denied, found.refused) == ((), False, None)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("path=/dav/", "/dav/"),
        ("PATH=/dav/", "/dav/"),
        ("path=https://evil.example/", None),
        ("path=/a\x1b[2J", None),
        ("path=/" + "a" * 240, None),
        ("other=/x", None),
    ],
)
def test_the_path_of_a_service_is_a_plain_path_or_none(domain: Domain, text: str, path: str | None) -> None:
    """The text is a stranger's."""
    domain.publish("caldavs", f"txt:{text}")

    assert domain.records().path("caldavs", "example.com") == path


def test_a_port_at_which_nobody_listens_is_told_plainly() -> None:
    """The kernel refuses each question, and the search does not go on for longer than its deadline."""
    (port,) = reserve_ports(1)

    with pytest.raises(DiscoveryError, match=r"is this machine online|cannot"):
        Records(HostPort("127.0.0.1", port), question_s=0.5).services("imaps", "example.com")


def test_all_questions_together_have_a_deadline(domain: Domain) -> None:
    """The search sends no further question after its time is used up."""
    domain.say("imaps", "silent")
    records = Records(HostPort("127.0.0.1", domain.names.port), question_s=5.0, all_s=0.3)
    with pytest.raises(DiscoveryError, match="no name server answered"):
        records.services("imaps", "example.com")
    asked = len(domain.names.asked)

    with pytest.raises(DiscoveryError, match="too slow"):
        records.services("imap", "example.com")
    assert len(domain.names.asked) == asked
