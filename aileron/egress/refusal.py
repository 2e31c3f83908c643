"""The closed list of reasons for which egress refuses a request, and the two exceptions that the pure modules of egress
raise.

A check raises `RefusedError` if a request must not leave. It has a `Reason`, so that no program has to parse prose to identify
the rule. A check raises `BadAnswerError` if an upstream's response must not be accepted. A request, stream or WebSocket reports
a `RefusedError` as `capability_denied` and a `BadAnswerError` as `network_error` (failures.py). Outside this package, callers
of url.py handle RefusedError themselves.

Rules
- A message holds no query string, no header value and no body: it reaches logs, the ledger and the agent.
- A message is cut to MAX_REFUSAL characters, because a name that it quotes, such as a header field's, may be as long as
  a connector makes it.
- A new reason gets a row in docs/reference/egress.md (a test compares them).

>>> Reason.HOST_NOT_GRANTED.boundary
<Boundary.CONNECTOR_MANIFEST: 'connector_manifest'>
"""

from __future__ import annotations

import enum
from typing import Final

from aileron.model.failure import Boundary, shortened
from aileron.model.names import HostPort

__all__ = ["MAX_REFUSAL", "BadAnswerError", "Reason", "RefusedError", "unencrypted"]

MAX_REFUSAL: Final = 800
"""Maximum number of characters of a refusal's message. Our own longest message, with a host name of 253 characters, has
some 600.
"""


class Reason(enum.StrEnum):
    """The rule that refused a request (`details.reason` of the failure)."""

    URL_LENGTH = "url_length"
    URL_CHARACTERS = "url_characters"
    URL_SCHEME = "url_scheme"
    URL_USERINFO = "url_userinfo"
    URL_FRAGMENT = "url_fragment"
    URL_HOST = "url_host"
    URL_PORT = "url_port"
    URL_PATH = "url_path"
    URL_QUERY = "url_query"
    PLAIN_HTTP = "plain_http"
    HOST_NOT_GRANTED = "host_not_granted"
    PROVIDER_ENDPOINT = "provider_endpoint"
    CREDENTIAL_NOT_GRANTED = "credential_not_granted"
    STREAM_CREDENTIAL = "stream_credential"
    LOGIN_COMMAND = "login_command"
    LOGIN_REQUEST = "login_request"
    LOGIN_ROLE = "login_role"
    NOT_ALLOWED = "not_allowed"
    NOT_SEEN = "not_seen"
    METHOD = "method"
    READ_ONLY = "read_only"
    HEADER_NAME = "header_name"
    HEADER_VALUE = "header_value"
    HEADER_LIMIT = "header_limit"
    HEADER_CREDENTIAL = "header_credential"
    PATH_CREDENTIAL = "path_credential"
    BODY_CREDENTIAL = "body_credential"
    ANSWER_CREDENTIAL = "answer_credential"
    UPGRADE = "upgrade"
    BODY_LENGTH = "body_length"
    BODY_HELD = "body_held"
    BODY_SIGNATURE = "body_signature"
    ADDRESS_NOT_PUBLIC = "address_not_public"
    ADDRESS_NOT_LOOPBACK = "address_not_loopback"
    ADDRESS_FORBIDDEN = "address_forbidden"
    ADDRESS_OWN = "address_own"
    SYSTEM_CALL = "system_call"
    """Reason without a request: the connector tried to use the network itself, and was killed by its jail."""
    TUNNEL_CALLER = "tunnel_caller"
    """First of the reasons that concern only tunnels out of a cell; they are in the order of tunnel/way_out.py. Tunnels are
    also refused for reasons above.
    """
    TUNNEL_LIMIT = "tunnel_limit"
    TUNNEL_HEAD = "tunnel_head"
    TUNNEL_METHOD = "tunnel_method"
    TUNNEL_ADDRESS = "tunnel_address"
    HOST_NOT_LISTED = "host_not_listed"
    HOST_DENIED = "host_denied"
    HOST_UNANSWERED = "host_unanswered"
    HOST_LIMIT = "host_limit"
    TUNNEL_NO_TLS = "tunnel_no_tls"
    TUNNEL_NO_NAME = "tunnel_no_name"
    TUNNEL_OTHER_NAME = "tunnel_other_name"
    TUNNEL_SLOW = "tunnel_slow"

    @property
    def boundary(self) -> Boundary:
        """Boundary (who set the limit) that the rule belongs to: the manifest's if the manifest could have declared the
        request, else the runtime's or the sandbox's.
        """
        declared = {Reason.HOST_NOT_GRANTED, Reason.CREDENTIAL_NOT_GRANTED}
        if self is Reason.SYSTEM_CALL:
            return Boundary.SANDBOX
        return Boundary.CONNECTOR_MANIFEST if self in declared else Boundary.RUNTIME


class RefusedError(Exception):
    """Error: a rule of egress refuses a request, which must not be sent."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(shortened(message, MAX_REFUSAL))
        self.reason = reason


def unencrypted(problem: str, instead: str, destination: HostPort) -> RefusedError:
    """Return the refusal of an unencrypted connection, which `problem` describes. `instead` says what to use; for a
    local service, the message also names the command that allows connections without TLS.
    """
    allow = f"`aileron config add egress.private_plain {destination}`"
    return RefusedError(Reason.PLAIN_HTTP, f"{problem}; {instead}, or for a local service run {allow}")


class BadAnswerError(Exception):
    """Error: a response must not be accepted. The message never quotes the response, because it may echo a credential."""
