"""How an operation fails so that the caller knows why.

Raise one of these and the caller sees its class, its words and its details; anything else that escapes an operation is
reported as `connector_runtime_error`, a bug of the connector, with the traceback in the log. Classes are those of
docs/reference/failures.md; one that is made up arrives there as `connector_runtime_error` too, under `connector_class`.

Words are for people and agents: what happened, and the cure if known; no header values and no bodies.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["BadInput", "ConnectorError", "ExternalApiError", "NetworkError", "Refused", "redirect_place"]

_MAX_PLACE: Final = 300
"""Characters of a place; a longer one is no address that a person would type."""


class ConnectorError(Exception):
    """A failure with a class of its own. `details` are JSON values."""

    def __init__(self, failure_class: str, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.failure_class: Final = failure_class
        self.message: Final = message
        self.details: Final[dict[str, Any]] = details or {}


class BadInput(ConnectorError):
    """The caller must change an argument. `argument` names it where it is one."""

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__("bad_input", message, details={"argument": argument} if argument else None)


class ExternalApiError(ConnectorError):
    """The service answered, and not with what was asked for.

    `status` is its HTTP status; with `retry_after_s` it said when to come back. The host retries an idempotent step for
    status 429 and 5xx only.
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
    """The host did not do the request, or could not finish it; `failure_class` says which kind of failure it was."""


class NetworkError(Refused):
    """The service could not be reached, or the connection broke."""

    def __init__(self, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__("network_error", message, details=details)


def redirect_place(location: str, url: str = "") -> str:
    """The place where a redirect from `url` leads, for a message: without query and user, in which a key can be.

    `location` is the service's word; empty where it names no place. Without a `url`, what is relative stays so.
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
