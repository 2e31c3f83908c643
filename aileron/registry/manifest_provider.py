"""The table `[capabilities.credential.oauth2]` of a connector's manifest: the application that a person signs in with.

Pure. Used by manifest_credential.py alone.

Rules
- A provider's URL has only one valid spelling, which egress/url.py parses without normalizing, so no other parser can see
  another host or path in it.
- A person signs in with the publisher's application, or with a client that Aileron registers at the manifest's registration
  URL.
- A manifest cannot set the parameters that the supervisor itself sends to a provider, nor parameters that would replace them.

Source: docs/reference/connector-manifest.md; RFC 6749, 8707, 9207. Not here: a client that gets tokens without a person
(manifest_signing.py).
"""

from __future__ import annotations

import re
from typing import Final

from aileron.model.document import Field, Kind, Table
from aileron.model.manifest import OAuth2Provider
from aileron.model.names import check_host

__all__ = ["ADDRESS", "MAX_SCOPES", "OAUTH2", "check_provider_url", "check_resource", "parse_provider", "parse_scopes"]

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1"})
_UNBOUND: Final = "bound-at-"
_PLACEHOLDER: Final = re.compile(rf"{_UNBOUND}.*|.*(?:<.*>|\$\{{|\{{\{{).*")
_MAX_CLIENT: Final = 512
"""Maximum number of characters in a client id or secret; real ones have less than a hundred."""
_CLIENT: Final = re.compile(rf"[\x20-\x7e]{{1,{_MAX_CLIENT}}}")  # RFC 6749 appendix A, VSCHAR
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")  # RFC 6749 section 3.3, scope-token
MAX_SCOPES: Final = 64
"""Maximum number of scopes per connector: a person reads them before they consent; the widest known application has a dozen."""
_PCHAR: Final = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_PROVIDER_URL: Final = re.compile(
    rf"(?P<scheme>https?)://(?P<host>[a-z0-9.-]+)(?::(?P<port>[1-9][0-9]{{0,4}}))?(?P<path>(?:/{_PCHAR}*)*)"
)
_QUERY_OF_RESOURCE: Final = re.compile(rf"(?:{_PCHAR}|[/?])*")
ADDRESS: Final = rf"https?://[a-z0-9.-]+(?::[1-9][0-9]{{0,4}})?(?:/{_PCHAR}*)*"
"""Pattern of a provider's address for the JSON schema that editors use: it has no named groups, because ECMA 262 writes those
differently.
"""
_MAX_PROVIDER_URL: Final = 512
"""Maximum number of characters in a provider's address: addresses are shown to a person, and recorded."""
_DOTS: Final = re.compile(r"/(?:\.|%2e){1,2}(?:;|/|$)", re.IGNORECASE)
_PARAM: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}")
_PARAM_VALUE: Final = re.compile(r"[\x20-\x7e]{1,256}")
_MAX_PARAMS: Final = 16
"""Maximum number of parameters per provider: known providers need two."""
_OURS, _REPLACING, _WIDENING = (
    "is set by the supervisor",
    "would replace a value that the supervisor sets",
    "would request more than `scopes`, which is what the person approves",
)
_RESERVED_PARAMS: Final = {
    # RFC 6749 and 7636, OpenID Connect Core
    "client_id": _OURS,
    "client_secret": _OURS,
    "code_challenge": _OURS,
    "code_challenge_method": _OURS,
    "code_verifier": _OURS,
    "grant_type": _OURS,
    "nonce": _OURS,
    "redirect_uri": _OURS,
    "resource": _OURS,
    "response_mode": _OURS,
    "response_type": _OURS,
    "scope": _OURS,
    "state": _OURS,
    # RFC 9101, OpenID Connect Core section 6 and 7
    "registration": _REPLACING,
    "request": _REPLACING,
    "request_uri": _REPLACING,
    # RFC 9396; Google's incremental authorization
    "authorization_details": _WIDENING,
    "include_granted_scopes": _WIDENING,
}

OAUTH2: Final = {
    "authorize_url": Field(
        Kind.STRING,
        required=True,
        says="an [address](#addresses-of-a-provider): where the person is sent to sign in",
        pattern=ADDRESS,
        example="https://accounts.example.com/o/oauth2/auth",
    ),
    "token_url": Field(
        Kind.STRING,
        required=True,
        says="an address: where tokens are issued and renewed. No "
        "[request of the connector](egress.md#the-providers-endpoints) can reach it",
        pattern=ADDRESS,
        example="https://oauth2.example.com/token",
    ),
    "client_id": Field(
        Kind.STRING,
        says="the ID of the publisher's application, in printable ASCII: one that the provider issued, or the https address of "
        "its [client ID metadata document](#the-application). Required unless there is a `registration_url`",
        bounds=range(1, _MAX_CLIENT + 1),
        example="bound-at-release",
    ),
    "client_secret": Field(
        Kind.STRING,
        says='its secret; only if the provider requires one of an installed application, such as `client_secret = "GOCSPX-…"`. '
        "Anyone who installs the connector can read it",
        bounds=range(1, _MAX_CLIENT + 1),
        example="bound-at-release",
    ),
    "registration_url": Field(
        Kind.STRING,
        says="an address: where each sign-in [registers a client](sign-in.md#registering-a-client) of its own (RFC 7591) if "
        "there is no `client_id`",
        pattern=ADDRESS,
        example="https://oauth2.example.com/register",
    ),
    "resource": Field(
        Kind.STRING,
        says="what the tokens are for, as the service names itself (RFC 8707): an address that may have a query, such as "
        '`resource = "https://mcp.example.com/mcp"`. It is sent with every request for tokens',
        pattern=ADDRESS + rf"(?:\?(?:{_PCHAR}|[/?])*)?",
        example="https://mcp.example.com/mcp",
    ),
    "scopes": Field(
        Kind.STRINGS,
        required=True,
        says="the provider's scopes, each once; `[]` if the provider needs none",
        bounds=range(MAX_SCOPES + 1),
        is_unique=True,
        pattern=_SCOPE.pattern,
        example=["openid", "email"],
    ),
    "issuer": Field(
        Kind.STRING,
        says='an address: the provider as it names itself, such as `issuer = "https://accounts.example.com"`. An answer from '
        "another issuer is refused (RFC 9207)",
        pattern=ADDRESS,
        example="https://accounts.example.com",
    ),
    "issuer_in_answer": Field(
        Kind.BOOLEAN,
        says="whether an answer that names no issuer is refused too, if there is an `issuer`. `false` is for a provider whose "
        "metadata does not have `authorization_response_iss_parameter_supported`",
        default=True,
    ),
    "device_authorization_url": Field(
        Kind.STRING,
        says="an address: signing in from a machine without a browser (RFC 8628). Leave it out if the provider has none",
        pattern=ADDRESS,
        example="https://oauth2.example.com/device/code",
    ),
    "revocation_url": Field(
        Kind.STRING,
        says="an address: where `aileron binding revoke` revokes tokens (RFC 7009). Without it, they are only deleted here, and "
        "expire on their own",
        pattern=ADDRESS,
        example="https://oauth2.example.com/revoke",
    ),
    "authorize_params": Field(
        Kind.FREE,
        says="further parameters that the provider expects: strings of 1 to 256 printable ASCII characters, such as "
        '`access_type = "offline"`',
        bounds=range(_MAX_PARAMS + 1),
        example={"access_type": "offline"},
    ),
}


def parse_provider(credential: Table, allow_unbound: bool) -> OAuth2Provider | None:
    """Return the sign-in's provider from a credential's table; None if the credential is not `oauth2`. Raises
    AileronError(invalid_request) with line and fix.
    """
    is_oauth2 = "kind" in credential and credential.string("kind") == "oauth2"
    if is_oauth2 != ("oauth2" in credential):
        raise credential.refuse("kind", 'kind = "oauth2" and [capabilities.credential.oauth2] must be used together')
    if not is_oauth2:
        return None
    table = credential.table("oauth2")
    return OAuth2Provider(
        authorize_url=table.parsed("authorize_url", check_provider_url),
        token_url=table.parsed("token_url", check_provider_url),
        client_id=_client_id(table, allow_unbound),
        client_secret=_client(table, "client_secret", allow_unbound) if "client_secret" in table else None,
        registration_url=_maybe_url(table, "registration_url"),
        resource=table.parsed("resource", check_resource) if "resource" in table else None,
        scopes=parse_scopes(table),
        issuer=_maybe_url(table, "issuer"),
        issuer_in_answer=_issuer_in_answer(table),
        device_authorization_url=_maybe_url(table, "device_authorization_url"),
        revocation_url=_maybe_url(table, "revocation_url"),
        authorize_params=_authorize_params(table),
    )


def _client_id(table: Table, allow_unbound: bool) -> str | None:
    if "client_id" in table:
        return _client(table, "client_id", allow_unbound)
    if "registration_url" not in table:
        raise table.refuse("client_id", "neither client_id nor registration_url: nobody could sign in; add one of them")
    if "client_secret" in table:
        raise table.refuse(
            "client_secret", "client_secret without client_id; remove it, or add the client_id it belongs to"
        )
    return None


def _issuer_in_answer(table: Table) -> bool:
    if "issuer_in_answer" not in table:
        return True
    if "issuer" not in table:
        raise table.refuse("issuer_in_answer", "issuer_in_answer without issuer; add the issuer, or remove it")
    return table.boolean("issuer_in_answer", True)


def _client(table: Table, key: str, allow_unbound: bool) -> str:
    """Return the publisher's `client_id` or `client_secret`, as `key` says. An error message quotes the value only if
    it is the placeholder.
    """
    value = table.string(key)
    if _PLACEHOLDER.fullmatch(value):
        if allow_unbound:
            return value
        fix = "bind the publisher's own with `aileron connector build DIR --client-id ID --client-secret-file FILE`"
        raise table.refuse(key, f"{key} is {value if value.startswith(_UNBOUND) else '…'!r}, a placeholder: {fix}")
    if not _CLIENT.fullmatch(value):
        raise table.refuse(key, f"{key} is empty, longer than 512 characters or not printable ASCII")
    return value


def parse_scopes(table: Table) -> tuple[str, ...]:
    """Return the `scopes` of a table. Raises AileronError(invalid_request) if they are not valid."""
    scopes = table.strings("scopes")
    if not all(map(_SCOPE.fullmatch, scopes)):
        problem = "scopes is not a list of the provider's scopes, one string each, without blanks and quotes"
        raise table.refuse("scopes", problem)
    return scopes


def _maybe_url(table: Table, key: str) -> str | None:
    return table.parsed(key, check_provider_url) if key in table else None


def check_provider_url(text: str) -> str:
    """Return `text` if it is a valid https address, or http on loopback for tests.

    Raises ValueError for any other text, including another spelling of a valid address, such as a host in capitals.
    """
    found = _PROVIDER_URL.fullmatch(text)
    if found is None or len(text) > _MAX_PROVIDER_URL or _DOTS.search(found["path"]):
        raise ValueError(
            f"{text[:_MAX_PROVIDER_URL]!r} is not an https address of at most {_MAX_PROVIDER_URL} characters: lower-case host, "
            "no user, query, fragment or dot segment"
        )
    host, port = check_host(found["host"]), found["port"]
    if port is not None and int(port) > 65535:
        raise ValueError(f"{text!r} has a port that is not a number from 1 to 65535")
    if found["scheme"] != "https" and host not in _LOOPBACK:
        raise ValueError(f"{text!r} is not https; http is allowed only for a provider on localhost, in tests")
    return text


def check_resource(text: str) -> str:
    """Check a resource's address, which may have a query and is sent but never fetched (RFC 8707, section 2).

    Raises ValueError if the address is not valid.
    """
    address, mark, query = text.partition("?")
    check_provider_url(address)
    if len(text) > _MAX_PROVIDER_URL or not _QUERY_OF_RESOURCE.fullmatch(query) or (mark and not query):
        raise ValueError(f"{text[:_MAX_PROVIDER_URL]!r} is not an address of at most {_MAX_PROVIDER_URL} characters")
    return text


def _authorize_params(table: Table) -> tuple[tuple[str, str], ...]:
    params = table.free("authorize_params")
    checked: list[tuple[str, str]] = []
    for name, value in params.items():
        if not _PARAM.fullmatch(name):
            problem = f"parameter {name!r} is not a name of letters, digits, '._~-'"
        elif name.lower() in _RESERVED_PARAMS:
            problem = f"parameter {name} {_RESERVED_PARAMS[name.lower()]}; leave it out"
        elif not isinstance(value, str) or not _PARAM_VALUE.fullmatch(value):
            problem = f"parameter {name} is not a string of 1 to 256 printable ASCII characters"
        else:
            checked.append((name, value))
            continue
        raise table.refuse("authorize_params", problem, name)
    return tuple(sorted(checked))
