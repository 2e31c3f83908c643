"""The exact hosts of a document's service.

Pure. A server's URL can have variables, and can be relative to the document's URL. The result is an origin
for the manifest and a path below it; otherwise the error says what the author must specify.

Source: OpenAPI Specification 3.1.1, sections 4.8.5 (Server Object) and 4.8.6 (Server Variable Object); RFC 3986 section 5.
Not here: whether a host may be reached (egress decides that per request).

>>> origin_of("https://api.example.com/v1/")
Origin(host=HostPort(host='api.example.com', port=443), is_plain=False, base='/v1')
"""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from aileron.importing.reading import DocumentError
from aileron.model.names import HostPort

__all__ = ["Origin", "chosen", "origin_of", "remarks", "url_of"]

_VARIABLE: Final = re.compile(r"\{([^{}]{1,64})\}")
_BASE: Final = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]+)*")
_MAX_URL: Final = 1000
_MAX_VALUE: Final = 253
"""Maximum number of characters of a variable's value, the longest possible host name."""
_PORTS: Final = {"https": 443, "http": 80}


class Origin(msgspec.Struct, frozen=True):
    """A host, a flag for requests without TLS, and the path that begins all requests (`` or `/v1`)."""

    host: HostPort
    is_plain: bool
    base: str

    @property
    def url(self) -> str:
        """URL of the origin, as in a packed document."""
        scheme = "http" if self.is_plain else "https"
        port = "" if self.host.port == _PORTS[scheme] else f":{self.host.port}"
        return f"{scheme}://{self.host.host}{port}{self.base}"


def chosen(
    servers: Sequence[Any], found_at: str | None, given: HostPort | None, variables: Mapping[str, str]
) -> Origin | None:
    """Return the origin of the first server of a document or operation. None if only a host is missing, which the
    author must specify.

    `found_at` is the URL that the document came from. `given` replaces the host. Raises DocumentError for an invalid URL.
    """
    url = url_of(servers[0] if servers else {"url": "/"}, variables)
    try:
        if found_at is not None:
            url = urllib.parse.urljoin(found_at, url)
        path = urllib.parse.urlsplit(url).path
    except ValueError as error:
        raise DocumentError(f"server {url[:200]}: {error}") from None
    if given is not None:
        return Origin(given, is_plain=False, base=_base(path, url[:200]))
    if not url.startswith(("https://", "http://")):
        return None
    return origin_of(url)


def url_of(server: Any, variables: Mapping[str, str]) -> str:
    """Return the URL of a Server Object with a value for each variable: from `variables`, or else the default.

    Raises DocumentError if neither is known.
    """
    if not isinstance(server, dict) or not isinstance(server.get("url"), str) or len(server["url"]) > _MAX_URL:
        raise DocumentError("a server without a URL")
    known = server.get("variables")

    def value(place: re.Match[str]) -> str:
        name = place[1]
        if name in variables:
            return variables[name]
        variable = known.get(name) if isinstance(known, dict) else None
        default = variable.get("default") if isinstance(variable, dict) else None
        if not isinstance(default, str) or len(default) > _MAX_VALUE:
            raise DocumentError(f"server {server['url'][:200]}: no value for {name}; give --variable {name}=VALUE")
        return default

    url: str = server["url"]
    for _ in range(2):  # a default may have a variable in it
        url = _VARIABLE.sub(value, url)
        if len(url) > _MAX_URL:
            raise DocumentError(f"server {server['url'][:200]}: its address has more than {_MAX_URL} characters")
    return url


def origin_of(url: str) -> Origin:
    """Return the parts of an absolute URL. Raises DocumentError if a manifest cannot express the URL."""
    told = url[:200]
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
        host = parts.hostname or ""
        if not host.isascii():
            raise ValueError(f"{host!r} is not ASCII; if it is the host that you mean, give its xn-- form with --host")
        found = HostPort.parse(f"{host}:{port}")
    except ValueError as error:
        raise DocumentError(f"server {told}: {error}") from None
    if parts.scheme not in _PORTS or parts.username is not None or parts.query or parts.fragment:
        raise DocumentError(f"server {told}: expected https://HOST/PATH, without user, query and fragment")
    return Origin(found, parts.scheme == "http", _base(parts.path, told))


def _base(path: str, told: str) -> str:
    base = path.rstrip("/")
    if not _BASE.fullmatch(base) or {".", ".."} & set(base.split("/")):
        raise DocumentError(f"server {told}: the path {base!r} is not plain; correct it in a copy of the document")
    return base


def remarks(origin: Origin, *, private: Collection[HostPort] = (), plain: Collection[HostPort] = ()) -> list[str]:
    """Return remarks on a host for a person who binds a key to it. `private` and `plain` are the hosts that egress allows."""
    host, told = origin.host.host, []
    if any(label.startswith("xn--") for label in host.split(".")):
        spelled = _spelled(host)
        told.append(f"{origin.host} is an international name ({spelled}), which can look like another one")
    try:
        is_private = not ipaddress.ip_address(host).is_global
    except ValueError:
        is_private = host == "localhost" or "." not in host or host.endswith((".local", ".internal", ".localhost"))
    is_allowed = origin.host in plain or (origin.host in private and not origin.is_plain)
    if (is_private or origin.is_plain) and not is_allowed:
        told.append(_permission(origin))
    return told


def _permission(origin: Origin) -> str:
    """Return a note for the person that says how to allow a host that egress refuses. For a host on this machine, the note has
    a command for each case, with TLS and without.
    """
    name = origin.host
    allow = "it is refused until you allow it\n  fix: aileron config add egress."
    if origin.is_plain:
        return f"{name} has no TLS, so {allow}private_plain {name}"
    if name.host in ("localhost", "127.0.0.1"):
        plain = f"aileron config add egress.private_plain {name}"
        return f"{name} is on this machine, so {allow}private {name}\n  or, if it has no TLS: {plain}"
    return f"{name} is in a private network, so {allow}private {name}"


def _spelled(host: str) -> str:
    try:
        return host.encode("ascii").decode("idna")
    except UnicodeError:
        return "not a valid one"
