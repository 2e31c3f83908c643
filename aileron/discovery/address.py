"""A mail address, as the person typed it: its local part, and the domain that is asked for servers.

Pure. Source: RFC 5321 section 4.1.2, without quoted local parts, which no provider gives to people.

>>> MailAddress.parse("Ann@Example.com").domain
'example.com'
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from aileron.discovery.offers import check_server_name

__all__ = ["MailAddress"]

_LOCAL: Final = re.compile(r"[^\s@\"(),:;<>\[\\\]\x00-\x20\x7f]{1,64}")
_MAX_CHARACTERS: Final = 254
"""Maximum number of characters of an address: RFC 5321 section 4.5.3.1.3, without the angle brackets."""


class MailAddress(NamedTuple):
    """A mail address. `domain` is a host name in lower case, not an IP address."""

    local: str
    domain: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `LOCAL@DOMAIN`. Raises ValueError saying what is wrong."""
        local, _, domain = text.rpartition("@")
        if len(text) > _MAX_CHARACTERS or not _LOCAL.fullmatch(local) or not local.isprintable():
            raise ValueError(f"{text[:80]!r} is not a mail address, such as me@example.com")
        if not domain.isascii():
            raise ValueError(f"{domain[:80]!r} has letters outside of ASCII: write it in its xn-- form")
        try:
            return cls(local, check_server_name(domain.lower()))
        except ValueError as error:
            raise ValueError(f"{text[:80]!r} is not a mail address: {error}") from None

    def __str__(self) -> str:
        return f"{self.local}@{self.domain}"

    def owns(self, host: str) -> bool:
        """Return whether the host is the address's domain, or below it.

        >>> ann = MailAddress.parse("ann@example.com")
        >>> ann.owns("imap.example.com"), ann.owns("myexample.com")
        (True, False)
        """
        return host == self.domain or host.endswith(f".{self.domain}")
