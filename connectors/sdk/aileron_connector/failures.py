"""Exceptions with which an operation fails so that the caller knows the reason.

Raise one of these and the caller sees its class, its message and its details; any other exception that escapes an operation
is reported as `connector_runtime_error`, a bug of the connector, with the traceback in the log. Classes are those of
docs/reference/failures.md; an unknown one arrives as `connector_runtime_error` too, with its name under `connector_class`.

Messages are for people and agents: they say what happened, and the fix if known, with no header values and no bodies.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["BadInput", "ConnectorError", "ExternalApiError", "NetworkError", "Refused", "redirect_place"]

_MAX_PLACE: Final = 300
"""Maximum number of characters of a redirect's place; nobody would type a longer address."""


class ConnectorError(Exception):
    """A failure with a class of its own; `details` are JSON values."""

    def __init__(self, failure_class: str, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.failure_class: Final = failure_class
        self.message: Final = message
        self.details: Final[dict[str, Any]] = details or {}


class BadInput(ConnectorError):
    """The caller must change an argument; `argument` is its name if only one is wrong."""

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__("bad_input", message, details={"argument": argument} if argument else None)


class ExternalApiError(ConnectorError):
    """The service answered with something other than what was requested.

    `status` is its HTTP status; `retry_after_s` is the wait that the service asked for. The host retries an idempotent step
    for status 429 and 5xx only.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        facts = {"status": status, "retry_after_s": retry_after_s}
        known = {name: value for name, value in facts.items() if value is not None}
        super().__init__("external_api_error", message, details={**known, **(details or {})})
        self.status: Final = status


class Refused(ConnectorError):
    """The host did not send the request or could not finish it; `failure_class` is the kind of failure."""


class NetworkError(Refused):
    """The service could not be reached, or the connection broke."""

    def __init__(self, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__("network_error", message, details=details)


def redirect_place(location: str, url: str = "") -> str:
    """Return where a redirect from `url` leads, for a message: without query and user, which can contain a key.

    `location` is what the service sent; if it names no place, the result is empty. Without a `url`, a relative place stays so.
    """
    import urllib.parse  # seldom needed

    try:
        place = urllib.parse.urlsplit(urllib.parse.urljoin(url, location)) if location else None
        if place is None:
            return ""
        port = f":{place.port}" if place.port else ""
        text = f"{place.scheme}://{place.hostname}{port}{place.path}" if place.hostname else "" if url else place.path
    except ValueError:
        return ""
    return "".join([char if char.isprintable() else "?" for char in text])[:_MAX_PLACE]
