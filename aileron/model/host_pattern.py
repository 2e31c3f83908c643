"""Patterns for the hosts that a cell's agent can reach, as a person writes them.

    github.com          this name, at port 443
    github.com:8443     this name at port 8443
    *.example.com       every name below example.com, however deep, and not example.com itself
    *.example.com:8443  those names at port 8443

A closed syntax of names: lower case, international names in their `xn--` form, one spelling each. IP addresses are not allowed,
because the requested host must be the name that TLS shows. A wildcard stands before at least two labels, because nobody means
every name below `com`. There is no list of longer public suffixes (`co.uk`). Pure.

>>> HostPattern.parse("*.example.com").matches(HostPort("www.example.com", 443))
True
>>> str(HostPattern.parse("example.com:443"))
'example.com'

Source: docs/reference/sessions.md#cells; RFC 1123 section 2.1; RFC 5890 section 2.3.2.1 (A-labels). Not here: the session that
a list of patterns belongs to (daemon/http/sessions.py), addresses (egress/).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

import msgspec

from aileron.model.names import HostPort, check_host

__all__ = ["DEFAULT_PORT", "MAX_HOST_PATTERNS", "HostPattern", "parse_host_patterns"]

DEFAULT_PORT: Final = 443
"""The port of HTTPS, because connections out of a cell use TLS."""
MAX_HOST_PATTERNS: Final = 128
"""Maximum number of patterns in a list: all presets together have thirty. The longest 128 take 34 KiB of a row in the ledger."""
_WILDCARD: Final = "*."


class HostPattern(msgspec.Struct, frozen=True, order=True):
    """A pattern for one host, or with `is_wildcard` for every host below it, at one port. Made by `parse`."""

    name: str
    port: int = DEFAULT_PORT
    is_wildcard: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `NAME`, `NAME:PORT`, `*.NAME` or `*.NAME:PORT`. Raises ValueError saying what is wrong and how to fix it."""
        host, separator, port = text.rpartition(":")
        if not separator:
            host, port = text, str(DEFAULT_PORT)
        is_wildcard = host.startswith(_WILDCARD)
        name = host.removeprefix(_WILDCARD)
        if "*" in name:
            raise ValueError(f"{_shown(text)}: * stands for the first labels only, as in *.example.com")
        try:
            found = HostPort.parse(f"{name}:{port}")
        except ValueError:
            raise ValueError(f"{_shown(text)} is not a host: {_why(name, port)}") from None
        if found.host.rpartition(".")[2].isdigit():  # a name that ends in a number is an address (names.py)
            raise ValueError(f"{_shown(text)} is an address: name the host, as its certificate does")
        if is_wildcard and "." not in found.host:
            raise ValueError(f"{_shown(text)} is too wide: write at least two labels after *., as in *.example.com")
        return cls(found.host, found.port, is_wildcard)

    def matches(self, asked: HostPort) -> bool:
        """Return whether the pattern includes the destination `asked`."""
        if asked.port != self.port:
            return False
        return asked.host.endswith(f".{self.name}") if self.is_wildcard else asked.host == self.name

    def __str__(self) -> str:
        host = _WILDCARD * self.is_wildcard + self.name
        return host if self.port == DEFAULT_PORT else f"{host}:{self.port}"


def parse_host_patterns(texts: Iterable[str]) -> tuple[HostPattern, ...]:
    """Return the parsed patterns in their order, each at most once; an empty list is valid.

    Raises ValueError for an invalid pattern, and for more than MAX_HOST_PATTERNS.
    """
    found = tuple(dict.fromkeys(map(HostPattern.parse, texts)))
    if len(found) > MAX_HOST_PATTERNS:
        raise ValueError(f"{len(found)} hosts; at most {MAX_HOST_PATTERNS}")
    return found


def _why(name: str, port: str) -> str:
    try:
        check_host(name)
    except ValueError:
        return "expected NAME, NAME:PORT, *.NAME or *.NAME:PORT, in lower case, an international name as xn--…"
    return f"the port {port[:20]!r} is not a number from 1 to 65535"


def _shown(text: str) -> str:
    return repr(text[:80])
