"""A file of mail servers that a domain publishes, in Mozilla's format: the IMAP and SMTP servers, and the user name.

Pure; parses hostile bytes. Any bytes give a result or DiscoveryError.

Rules
- A DOCTYPE is refused, and with it every entity. Bytes and depth are bounded. The text is UTF-8, whatever the file says.
- A server without encryption, without password logins, or with a name that is not a host's is left out.

Source: https://wiki.mozilla.org/Thunderbird:Autoconfiguration:ConfigFileFormat. Not here: fetching the file (mail.py).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple
from xml.parsers import expat

from aileron.discovery.address import MailAddress
from aileron.discovery.https import MAX_BODY_BYTES
from aileron.discovery.offers import DiscoveryError, MailProtocol, server
from aileron.model.names import HostPort

__all__ = ["Autoconfig", "MailServer", "parse_autoconfig"]

_MAX_DEPTH: Final = 16
"""Maximum depth of elements; the format has six levels."""
_MAX_USERNAME: Final = 254
_SERVERS: Final = {"incomingServer": "imap", "outgoingServer": "smtp"}
_ENCRYPTIONS: Final[dict[str, Literal["tls", "starttls"]]] = {"ssl": "tls", "tls": "tls", "starttls": "starttls"}
_PASSWORDS: Final = frozenset({"password-cleartext", "plain", "password-encrypted", "secure"})
"""Ways to log in with a password: `plain` and `secure` are the format's older words for them."""


class MailServer(NamedTuple):
    """A mail server of the file. `username` is None if the file has none, or none that can be used."""

    protocol: MailProtocol
    destination: HostPort
    encryption: Literal["tls", "starttls"]
    username: str | None


class Autoconfig(NamedTuple):
    """The usable servers of a file, those with TLS from the start first, otherwise in the file's order."""

    servers: tuple[MailServer, ...] = ()

    def of(self, protocol: MailProtocol) -> tuple[MailServer, ...]:
        """Return the servers of a protocol."""
        return tuple(found for found in self.servers if found.protocol == protocol)

    @property
    def username(self) -> str | None:
        """The user name of the first server that has one; the connector uses one name for both."""
        return next((found.username for found in (*self.of("imap"), *self.of("smtp")) if found.username), None)


def parse_autoconfig(data: bytes, address: MailAddress) -> Autoconfig:
    """Parse the file for an address. Raises DiscoveryError if it is not such a file."""
    if len(data) > MAX_BODY_BYTES:
        raise DiscoveryError(f"the file of mail servers has more than {MAX_BODY_BYTES} bytes")
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise DiscoveryError(f"the file of mail servers is not XML: {error}") from None
    if not reader.is_autoconfig:
        raise DiscoveryError("the file of mail servers is in another format")
    usable = [found for stated in reader.servers if (found := _usable(stated, address)) is not None]
    return Autoconfig(tuple(sorted(usable, key=lambda found: found.encryption != "tls")))


class _Stated:
    """A server as the file states it: the text of each element, the first of a name."""

    def __init__(self, protocol: MailProtocol) -> None:
        self.protocol: Final = protocol
        self.texts: dict[str, str] = {}
        self.logins: list[str] = []

    def take(self, name: str, text: str) -> None:
        """Keep the text of an element of the server."""
        if name == "authentication":
            self.logins.append(text.lower())
        else:
            self.texts.setdefault(name, text)


class _Reader:
    """A parser that keeps the IMAP and SMTP servers: `clientConfig/emailProvider/SERVER/NAME`."""

    def __init__(self) -> None:
        self.servers: list[_Stated] = []
        self.is_autoconfig = False
        self._path: list[str] = []
        self._server: _Stated | None = None
        self._text = ""
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = _refuse
        self.parser.EntityDeclHandler = _refuse
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        self._text = ""
        if len(self._path) > _MAX_DEPTH:
            raise DiscoveryError("the file of mail servers is nested too deeply")
        self.is_autoconfig = self.is_autoconfig or self._path == ["clientConfig"]
        if self._path[:-1] == ["clientConfig", "emailProvider"] and attributes.get("type") == _SERVERS.get(name, 0):
            self._server = _Stated("imap" if name == "incomingServer" else "smtp")
            self.servers.append(self._server)

    def _end(self, name: str) -> None:
        if self._server is not None and len(self._path) == 4:
            self._server.take(name, self._text.strip())
        self._path.pop()
        if len(self._path) == 2:
            self._server = None

    def _characters(self, text: str) -> None:
        self._text += text


def _refuse(*_: object) -> None:
    raise DiscoveryError("the file of mail servers has a DOCTYPE, which its format does not need")


def _usable(stated: _Stated, address: MailAddress) -> MailServer | None:
    encryption = _ENCRYPTIONS.get(stated.texts.get("socketType", "").lower())
    port = stated.texts.get("port", "")
    if encryption is None or not port.isascii() or not port.isdecimal() or len(port) > 5:
        return None
    if stated.logins and not _PASSWORDS.intersection(stated.logins):
        return None
    try:
        destination = server(_filled(stated.texts.get("hostname", ""), address), int(port))
    except ValueError:
        return None
    return MailServer(stated.protocol, destination, encryption, _username(stated, address))


def _username(stated: _Stated, address: MailAddress) -> str | None:
    username = _filled(stated.texts.get("username", ""), address)
    is_name = username.isprintable() and len(username) <= _MAX_USERNAME and "%EMAIL" not in username
    return username if username and is_name else None


def _filled(text: str, address: MailAddress) -> str:
    """Return a text of the file with the parts of the address.

    >>> _filled("%EMAILLOCALPART%.%EMAILDOMAIN%", MailAddress("ann", "example.com"))
    'ann.example.com'
    """
    values = {"%EMAILADDRESS%": str(address), "%EMAILLOCALPART%": address.local, "%EMAILDOMAIN%": address.domain}
    for place, value in values.items():
        text = text.replace(place, value)
    return text
