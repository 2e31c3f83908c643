"""Exceptions that an operation raises to fail with a reason for its caller.

If an operation raises one of these, the caller sees its class, its message and its details; any other exception that escapes
an operation is reported as `connector_runtime_error`, a bug of the connector, with the traceback in the log. Classes are
those of docs/reference/failures.md; an unknown one arrives as `connector_runtime_error` too, with its name under
`connector_class`.

Messages are for people and agents: they say what happened, and the fix if it is known. They contain no header values and no
bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["BadInput", "ConnectorError", "ExternalApiError", "NetworkError", "Refused", "redirect_place"]

_MAX_PLACE: Final = 300
"""Maximum number of characters of a redirect's target in a message. Usual addresses are shorter."""


class ConnectorError(Exception):
    """A failure that an operation reports to its caller: a failure class, a message, and `details` as JSON values."""

    def __init__(self, failure_class: str, message: str, *, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.failure_class: Final = failure_class
        self.message: Final = message
        self.details: Final[Mapping[str, object]] = details or {}


class BadInput(ConnectorError):
    """A failure because the caller must change an argument. `argument` is its name if only one argument is wrong."""

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__("bad_input", message, details={"argument": argument} if argument else None)


class ExternalApiError(ConnectorError):
    """A failure because the service refused a request, or its answer was not usable.

    `status` is the HTTP status of the answer; `retry_after_s` is the wait in seconds that the service asked for. The host
    retries only an idempotent step, and only for status 429 and 5xx.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: int | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        facts = {"status": status, "retry_after_s": retry_after_s}
        known = {name: value for name, value in facts.items() if value is not None}
        super().__init__("external_api_error", message, details={**known, **(details or {})})
        self.status: Final = status


class Refused(ConnectorError):
    """A failure because the host did not send a request, or could not finish it. `failure_class` says why."""


class NetworkError(Refused):
    """A failure because the service could not be reached, or the connection broke."""

    def __init__(self, message: str, *, details: Mapping[str, object] | None = None) -> None:
        super().__init__("network_error", message, details=details)


def redirect_place(location: str, url: str = "") -> str:
    """Return the target of a redirect from `url`, for a message, without query and user name, which can contain a key.

    `location` is the header field that the service sent; if it has no valid target, the result is empty. Without a `url`, a
    relative target stays relative.
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
