"""The only parser of URLs: it takes a connector's text, and returns a `Url` or raises `RefusedError`.

Policy, dial, SNI, `Host`, ledger and approval text all use the value made here, so no two parts can disagree about
where a request goes. Pure; runs in the daemon on text that a jailed connector chose. Every doubtful spelling is refused
and nothing is repaired, because an attack on two parsers needs a text that one of them repairs.

Rules
- Visible ASCII only, no backslash: characters that urllib or a browser would strip, fold or encode are refused.
- `https://` or `http://`, any case; for a WebSocket `wss://` or `ws://` instead, which a `Url` stores as `https` or
  `http`, as on the wire. No userinfo, no fragment (neither has a meaning on the wire).
- The host is a lower-cased RFC 1123 name or a canonical dotted quad. No trailing dot, no percent sign, no
  underscore, no IPv6 literal (a manifest cannot name one), no other spelling of an IPv4 address.
- The port is 1 to 65535 without sign or leading zero; if absent, it is the scheme's default. An empty port is refused.
- The target of CONNECT is only host and port, with the port written out and a name as host; the same rules apply.
- Path and query go on the wire byte for byte. Dot segments, also as `%2e` or before a `;`, are refused, so the path
  that is recorded is the path that is served; `%2f`, `//` and `;x` are left alone, as services use them.

Source: RFC 3986; docs/reference/egress.md. Not here: the check that the destination is granted (rules.py).

>>> parse_url("https://API.example.com/v1/items?x=1")
Url(scheme='https', host='api.example.com', port=443, path='/v1/items', query='x=1')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from aileron.egress.refusal import Reason, RefusedError
from aileron.model.names import HostPort, check_host

__all__ = [
    "HTTP_SCHEMES",
    "MAX_URL_CHARS",
    "WEBSOCKET_SCHEMES",
    "Url",
    "has_dot_segment",
    "parse_connect_target",
    "parse_url",
]

MAX_URL_CHARS: Final = 16 << 10  # 16 KiB: servers stop at 8 KiB (nginx, Apache) or 16 KiB (Node) by default

HTTP_SCHEMES: Final = {"https": "https", "http": "http"}
WEBSOCKET_SCHEMES: Final = {"wss": "https", "ws": "http"}
"""Schemes of WebSocket URLs, each with the HTTP scheme that is used on the wire (RFC 6455 section 4.1)."""
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_VISIBLE: Final = re.compile(r"[\x21-\x5b\x5d-\x7e]*")  # visible ASCII without the backslash
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_PCHAR: Final = r"[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2}"
_PATH: Final = re.compile(rf"(?:/|{_PCHAR})*")
# RFC 3986 keeps [ and ] for IPv6; in a query they are common (`filter[name]=x`) and have no other meaning.
_QUERY: Final = re.compile(rf"(?:[/?\[\]]|{_PCHAR})*")
_ENCODED_DOT: Final = re.compile(r"%2e", re.IGNORECASE)


class Url(msgspec.Struct, frozen=True):
    """A parsed URL. `path` begins with a slash; `query` is None if the URL has no `?`."""

    scheme: str
    host: str
    port: int
    path: str
    query: str | None

    @property
    def destination(self) -> HostPort:
        """Host and port of the URL, which a grant must contain."""
        return HostPort(self.host, self.port)

    @property
    def target(self) -> str:
        """Path and query of the URL as they are in the request line."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def authority(self) -> str:
        """Value of the `Host` field for this URL, with the port only if it is not the scheme's default."""
        return self.host if self.port == _DEFAULT_PORTS[self.scheme] else f"{self.host}:{self.port}"


def parse_url(text: str, schemes: Mapping[str, str] = HTTP_SCHEMES) -> Url:
    """Parse a URL, or raise RefusedError. `schemes` maps each scheme that `text` can have to the scheme that the
    returned `Url` gets.

    Raises RefusedError with a `url_*` reason for text that two readers could understand differently.
    """
    if len(text) > MAX_URL_CHARS:
        raise RefusedError(Reason.URL_LENGTH, f"the URL has {len(text)} characters; at most {MAX_URL_CHARS}")
    if not _VISIBLE.fullmatch(text):
        raise RefusedError(Reason.URL_CHARACTERS, "the URL has a character that is not visible ASCII, or a backslash")
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in schemes:
        raise _other_scheme(scheme, schemes)
    scheme = schemes[scheme]
    if "#" in rest:
        raise RefusedError(Reason.URL_FRAGMENT, "the URL has a fragment; drop everything from # on")
    authority, path, query = _split(rest)
    host, port = _parse_authority("URL", authority, _DEFAULT_PORTS[scheme])
    return Url(scheme, host, port, _check_path(path), _check_query(query))


def _other_scheme(scheme: str, schemes: Mapping[str, str]) -> RefusedError:
    fix = ""
    if scheme in WEBSOCKET_SCHEMES:
        fix = ": open a WebSocket with the host function websocket instead of sending an HTTP request"
    elif scheme in HTTP_SCHEMES and "wss" in schemes:
        fix = ": a WebSocket's URL is written with wss://"
    expected = " or ".join(f"{allowed}://" for allowed in schemes)
    return RefusedError(Reason.URL_SCHEME, f"the URL does not start with {expected}{fix}")


def _split(rest: str) -> tuple[str, str, str | None]:
    before_query, question, query = rest.partition("?")
    authority, slash, path = before_query.partition("/")
    return authority, slash + path or "/", query if question else None


def parse_connect_target(text: str) -> HostPort:
    """Parse the target of CONNECT (RFC 9110 section 9.3.6): a name and a port. Raises RefusedError (url_* or
    tunnel_address) if it is malformed.
    """
    if len(text) > MAX_URL_CHARS:
        raise RefusedError(Reason.URL_LENGTH, f"the target has {len(text)} characters; at most {MAX_URL_CHARS}")
    if not _VISIBLE.fullmatch(text):
        raise RefusedError(
            Reason.URL_CHARACTERS, "the target has a character that is not visible ASCII, or a backslash"
        )
    if text.startswith("["):
        raise _address()
    destination = HostPort(*_parse_authority("target", text, None))
    if destination.host.replace(".", "").isdigit():
        raise _address()
    return destination


def _address() -> RefusedError:
    return RefusedError(
        Reason.TUNNEL_ADDRESS, "the target is an IP address; only names can be allowed: connect to the host by its name"
    )


def _parse_authority(of: str, authority: str, default_port: int | None) -> tuple[str, int]:
    """Return the host and port in `authority`, the `HOST:PORT` of a URL or the target of CONNECT. The port may be
    missing only if there is a default. `of` names the parsed text in the message of a refusal.
    """
    if "@" in authority:
        raise RefusedError(
            Reason.URL_USERINFO, f"the {of} has userinfo (text before an @); it cannot carry credentials"
        )
    host, colon, port = authority.partition(":")
    if "[" in host:
        raise RefusedError(
            Reason.URL_HOST, f"the {of} has an IPv6 literal, which cannot be allowed: name the host instead"
        )
    if colon and (not _PORT.fullmatch(port) or int(port) > 65535):
        raise RefusedError(Reason.URL_PORT, f"the {of}'s port is not a plain number from 1 to 65535")
    if not colon and default_port is None:
        raise RefusedError(Reason.URL_PORT, "the port is missing; expected HOST:PORT")
    try:
        return check_host(host.lower()), int(port) if default_port is None or colon else default_port
    except ValueError as error:
        raise RefusedError(Reason.URL_HOST, f"the {of}'s host: {error}") from None


def _check_path(path: str) -> str:
    if not _PATH.fullmatch(path):
        raise RefusedError(
            Reason.URL_PATH, "the URL's path has a character or percent sign that must be percent-encoded"
        )
    if has_dot_segment(path):
        raise RefusedError(Reason.URL_PATH, "the URL's path has a dot segment; send the path it stands for")
    return path


def has_dot_segment(path: str) -> bool:
    """Return whether some server would interpret one of the path's segments as `.` or `..`, and so serve another path."""
    # `..;x`: some servers cut path parameters before they resolve dot segments.
    return any(_ENCODED_DOT.sub(".", segment.partition(";")[0]) in {".", ".."} for segment in path.split("/"))


def _check_query(query: str | None) -> str | None:
    if query is not None and not _QUERY.fullmatch(query):
        raise RefusedError(
            Reason.URL_QUERY, "the URL's query has a character or percent sign that must be percent-encoded"
        )
    return query
