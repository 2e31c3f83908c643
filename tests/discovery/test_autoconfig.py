"""The parser of files of mail servers: the format's choices, and any bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.discovery.address import MailAddress
from aileron.discovery.autoconfig import parse_autoconfig
from aileron.discovery.offers import DiscoveryError
from aileron.model.names import HostPort

ANN = MailAddress("ann", "example.com")
BOMB = b'<!DOCTYPE a [<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;&b;">]><clientConfig>&c;</clientConfig>'


def _file(*servers: bytes) -> bytes:
    joined = b"".join(servers)
    return b'<clientConfig version="1.1"><emailProvider id="x">' + joined + b"</emailProvider></clientConfig>"


def _server(
    host: bytes = b"imap.example.com",
    port: bytes = b"993",
    encryption: bytes = b"SSL",
    login: bytes = b"",
    kind: bytes = b"imap",
    username: bytes = b"",
) -> bytes:
    name = b"outgoingServer" if kind == b"smtp" else b"incomingServer"
    return (
        b'<%b type="%b"><hostname>%b</hostname><port>%b</port><socketType>%b</socketType>%b<username>%b</username></%b>'
        % (name, kind, host, port, encryption, login, username, name)
    )


def test_tls_from_the_start_goes_before_starttls() -> None:
    """Otherwise the file's order stays."""
    data = _file(_server(b"a.example.com", b"143", b"STARTTLS"), _server(b"b.example.com"), _server(b"c.example.com"))

    found = parse_autoconfig(data, ANN)

    assert [(server.destination.host[0], server.encryption) for server in found.of("imap")] == [
        ("b", "tls"),
        ("c", "tls"),
        ("a", "starttls"),
    ]


@pytest.mark.abuse_case("SA1")
@pytest.mark.parametrize(
    "server",
    [
        _server(encryption=b"plain"),
        _server(encryption=b""),
        _server(kind=b"pop3"),
        _server(kind=b"exchange"),
        _server(port=b"0"),
        _server(port=b"99999"),
        _server(port=b"9" * 5000),
        _server(port="٩٩٣".encode()),
        _server(host=b"127.0.0.1"),
        _server(host=b"localhost"),
        _server(host=b"imap.example.com/x"),
        _server(host=b""),
        _server(login=b"<authentication>OAuth2</authentication>"),
        b"<incomingServer/>",
        b'<incomingServer type="smtp"><hostname>a.example.com</hostname><port>25</port></incomingServer>',
    ],
)
def test_a_server_that_cannot_be_used_is_left_out(server: bytes) -> None:
    """The usable one beside it stays."""
    found = parse_autoconfig(_file(server, _server()), ANN)

    assert [str(kept.destination) for kept in found.servers] == ["imap.example.com:993"]


def test_a_server_that_takes_a_password_or_a_token_is_kept() -> None:
    """The connector uses the password."""
    logins = b"<authentication>OAuth2</authentication><authentication>password-cleartext</authentication>"

    assert len(parse_autoconfig(_file(_server(login=logins)), ANN).servers) == 1


@pytest.mark.parametrize(
    ("said", "username"),
    [
        (b"%EMAILADDRESS%", "ann@example.com"),
        (b"%EMAILLOCALPART%", "ann"),
        (b"%EMAILLOCALPART%-%EMAILDOMAIN%", "ann-example.com"),
        (b"", None),
        (b"%EMAILHASH%", None),
        (b"a\nb", None),
        ("a\u202eb".encode(), None),
        (b"a" * 300, None),
    ],
)
def test_the_user_name_is_filled_in_or_left_out(said: bytes, username: str | None) -> None:
    """A name with hidden characters, or of absurd length, is none."""
    assert parse_autoconfig(_file(_server(username=said)), ANN).username == username


def test_a_host_can_have_the_domain_in_it() -> None:
    """A provider serves all of its domains with the same file."""
    found = parse_autoconfig(_file(_server(b"imap.%EMAILDOMAIN%")), ANN)

    assert found.servers[0].destination == HostPort("imap.example.com", 993)


def test_a_server_outside_of_its_place_does_not_count() -> None:
    """Only servers directly below the provider are read."""
    wrapped = _file(b"<x>" + _server() + b"</x>")

    assert parse_autoconfig(wrapped, ANN).servers == ()


@pytest.mark.abuse_case("SA5")
@pytest.mark.parametrize(
    "data", [BOMB, b"<!DOCTYPE clientConfig><clientConfig/>", b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>']
)
def test_a_doctype_is_refused(data: bytes) -> None:
    """The parser expands no entity and reads no file."""
    with pytest.raises(DiscoveryError, match="DOCTYPE"):
        parse_autoconfig(data, ANN)


@pytest.mark.abuse_case("SA5")
@given(st.binary(max_size=2000))
@example(b"\xff\xfe<\x00a\x00/\x00>\x00")
@example(b'<?xml version="1.0" encoding="utf-7"?><a/>')
@example(b"\x00")
@example(b"")
def test_any_bytes_give_a_result_or_the_rooms_error(data: bytes) -> None:
    """The parser raises no exception of expat or Python."""
    with contextlib.suppress(DiscoveryError):
        parse_autoconfig(data, ANN)


@given(
    st.lists(
        st.builds(
            _server,
            st.binary(max_size=40),
            st.binary(max_size=8),
            st.sampled_from([b"SSL", b"STARTTLS", b"plain"]),
            st.sampled_from([b"", b"<authentication>x</authentication>", b"<authentication>", b"<!ENTITY>"]),
            st.sampled_from([b"imap", b"smtp", b'"']),
            st.binary(max_size=40),
        ),
        max_size=4,
    ),
    st.integers(0, 600),
    st.binary(max_size=4),
)
def test_any_change_of_a_file_gives_a_result_or_the_rooms_error(servers: list[bytes], at: int, put: bytes) -> None:
    """Every kept server has a host name, whatever the file says."""
    data = _file(*servers)
    with contextlib.suppress(DiscoveryError):
        for server in parse_autoconfig(data[:at] + put + data[at:], ANN).servers:
            assert "." in server.destination.host
            assert server.destination.host.isascii()
