"""Lookup of the two granted hosts: the IMAP server and the SMTP server.

Runs in the jail. Source: RFC 8314 section 7.3, RFC 6409 section 3.1 (the ports).
"""

from __future__ import annotations

from typing import Any, Final

from aileron_connector import ConnectorError, hosts

__all__ = ["receiving", "sending"]

_IMAP: Final = frozenset({143, 993})
_SMTP: Final = frozenset({25, 465, 587})


def receiving() -> Any:
    """Return the granted host that speaks IMAP."""
    return _two()[0]


def sending() -> Any:
    """Return the granted host that speaks SMTP."""
    return _two()[1]


def _two() -> tuple[Any, Any]:
    """Return the IMAP host and the SMTP host, recognised by their usual ports. With other ports, the first host in the
    manifest is the IMAP host.
    """
    granted = hosts()
    if len(granted) != 2:
        words = f"the connector was built for {len(granted)} hosts: build it with one --login imap://… and one --login smtp://…"
        raise ConnectorError("connector_runtime_error", words)
    first, second = granted
    is_reversed = first.port in _SMTP or second.port in _IMAP
    return (second, first) if is_reversed else (first, second)
