"""The tables of credentials that sign a request or are exchanged for a token, and are not sent themselves:
`[capabilities.credential.aws]`, `.hmac` and `.oauth2_client`.

Pure. Used by manifest_credential.py alone.

Rules
- Each table belongs to one kind of credential: it is required for that kind and refused for others.
- A manifest cannot have requests signed for AWS STS, because that service issues keys.
- A template has known placeholders only. A connector cannot set the header fields that its template has.
- A signed message contains a part of the request or the time, because a signature over constants would be a password.

Source: docs/reference/connector-manifest.md; RFC 2104, 6749, 7523, 8693. Not here: the use of the tables (egress/signing, oauth).
"""

from __future__ import annotations

import re
from typing import Final, get_args

import msgspec

from aileron.model.document import Field, Kind, Table
from aileron.model.request_signing import (
    DIGESTS,
    IN_FIELDS,
    PLACEHOLDER,
    PLACEHOLDERS,
    SIGNING_ALGORITHMS,
    AwsScope,
    ClientAuth,
    Digest,
    HmacTemplate,
    KeyForm,
    MachineGrant,
    SignatureEncoding,
    SigningAlgorithm,
    TokenGrant,
)
from aileron.registry.manifest_fields import may_be_credential
from aileron.registry.manifest_provider import ADDRESS, MAX_SCOPES, check_provider_url, check_resource, parse_scopes
from aileron.registry.placeholders import UNBOUND_BUILD

__all__ = ["AWS", "HMAC", "OAUTH2_CLIENT", "parse_aws", "parse_hmac", "parse_token_grant"]

_REGION: Final = re.compile(r"[a-z0-9-]{1,64}")
_SERVICE: Final = re.compile(r"[a-z0-9.-]{1,64}")
_ISSUER: Final = "sts"
"""The AWS service that issues access keys. A manifest must not name it, since Aileron does not scrub such keys from responses."""
_MAX_TEMPLATE: Final = 256
"""Maximum number of characters in a template for a message or a header field: a person reads it before they consent."""
_MAX_FIELDS: Final = 8
"""Maximum number of header fields per signature; Standard Webhooks has three."""
_TEMPLATE: Final = re.compile(rf"[\x20-\x7e]{{1,{_MAX_TEMPLATE}}}")
_HMAC: Final = HmacTemplate(message="", headers=())
_GRANT: Final = TokenGrant(grant="client_credentials", token_url="", client_auth="none")
"""Empty instances, used only to read the default values of the fields of HmacTemplate and TokenGrant."""
_URN: Final = re.compile(r"[!-~]{1,256}")

AWS: Final = {
    "region": Field(
        Kind.STRING,
        required=True,
        says=f"the region that the hosts are in. `{UNBOUND_BUILD}` in sources: `aileron connector build --region REGION` "
        "replaces it",
        pattern=_REGION.pattern,
        example="us-east-1",
    ),
    "service": Field(
        Kind.STRING,
        required=True,
        says="the name of the service in signatures, such as `s3`, `sqs` or `execute-api`; not `sts`, whose answers are keys",
        pattern=_SERVICE.pattern,
        example="s3",
    ),
}

HMAC: Final = {
    "algorithm": Field(Kind.STRING, says="hash function", choices=DIGESTS, default=_HMAC.algorithm),
    "key": Field(
        Kind.STRING,
        says="how the stored secret is read: as text, decoded, or as Standard Webhooks has it (`whsec_` and base64)",
        choices=get_args(KeyForm),
        default=_HMAC.key,
    ),
    "encoding": Field(
        Kind.STRING, says="how the signature is written", choices=get_args(SignatureEncoding), default=_HMAC.encoding
    ),
    "message": Field(
        Kind.STRING,
        required=True,
        says="what is signed, with [placeholders](#signed-messages)",
        bounds=range(1, _MAX_TEMPLATE + 1),
        example="v0:{time}:{body}",
    ),
    "headers": Field(
        Kind.FREE,
        required=True,
        says="the header fields that Aileron adds, names and values; one of them has `{signature}`",
        bounds=range(1, _MAX_FIELDS + 1),
        example={"X-Signature": "v0={signature}"},
    ),
}

OAUTH2_CLIENT: Final = {
    "grant": Field(
        Kind.STRING,
        required=True,
        says="how Aileron gets a token: `client_credentials` (RFC 6749), `jwt_bearer` (RFC 7523, such as Google's service "
        "accounts), `token_exchange` (RFC 8693)",
        choices=get_args(MachineGrant),
    ),
    "token_url": Field(
        Kind.STRING,
        required=True,
        says="an [address](#addresses-of-a-provider): where tokens are issued. No request of the connector can reach it",
        pattern=ADDRESS,
        example="https://auth.example.com/token",
    ),
    "client_auth": Field(
        Kind.STRING,
        required=True,
        says="how the client authenticates; `none` where the assertion or the exchanged token is enough. With `token_exchange`, "
        'the stored secret then holds both: `{"client_secret": "…", "subject_token": "…"}`',
        choices=get_args(ClientAuth),
    ),
    "scopes": Field(
        Kind.STRINGS,
        says="scopes to ask for, each once",
        bounds=range(MAX_SCOPES + 1),
        is_unique=True,
        example=["invoices.read"],
    ),
    "audience": Field(
        Kind.STRING,
        says="`audience` of the request or, for `jwt_bearer`, `aud` of the assertion; its default there is `token_url`",
        pattern=_URN.pattern,
        example="https://api.example.com",
    ),
    "resource": Field(Kind.STRING, says="what the token is for (RFC 8707)", example="https://api.example.com"),
    "algorithm": Field(
        Kind.STRING,
        says="signature of an assertion (RFC 7518, RFC 8037)",
        choices=SIGNING_ALGORITHMS,
        default=_GRANT.algorithm,
    ),
    "subject_token_type": Field(
        Kind.STRING,
        says="`token_exchange` only: what the stored token is",
        pattern=_URN.pattern,
        default=_GRANT.subject_token_type,
    ),
}


def parse_aws(table: Table, allow_unbound: bool) -> AwsScope:
    """Parse `[capabilities.credential.aws]`.

    Raises AileronError(invalid_request) with line and fix; `allow_unbound` as in parse_connector_manifest.
    """
    if table.string("region") == UNBOUND_BUILD and not allow_unbound:
        fix = "build it with `aileron connector build DIR --region REGION`"
        raise table.refuse("region", f"region is the placeholder {UNBOUND_BUILD!r}: {fix}")
    if table.string("service") == _ISSUER:
        raise table.refuse(
            "service",
            'service "sts" issues new keys, and the connector would read them in the answer; name the service that the connector '
            "uses, and bind a key that has the rights itself",
        )
    for key, pattern in (("region", _REGION), ("service", _SERVICE)):
        if not pattern.fullmatch(table.string(key)):
            raise table.refuse(key, f"{key} {table.string(key)!r} is not a name such as 'us-east-1' or 's3'")
    return AwsScope(region=table.string("region"), service=table.string("service"))


def parse_hmac(table: Table) -> HmacTemplate:
    """Parse `[capabilities.credential.hmac]`. Raises AileronError(invalid_request) with line and fix."""
    message = table.string("message")
    _check_template(table, "message", message, PLACEHOLDERS)
    if not _placeholders(message):
        raise table.refuse("message", "message has no placeholder: the signature would be the same each time")
    headers = table.free("headers")
    fields = tuple((name, _field_value(table, name, value)) for name, value in headers.items())
    if sum("signature" in _placeholders(value) for _, value in fields) != 1:
        raise table.refuse("headers", "headers: one of them has {signature}, and no other")
    keys = {name.lower().replace("_", "-") for name in headers}
    if len(keys) != len(headers):
        raise table.refuse("headers", "headers has one field twice")
    return HmacTemplate(
        algorithm=msgspec.convert(_choice(table, "algorithm", _HMAC.algorithm), Digest),
        key=msgspec.convert(_choice(table, "key", _HMAC.key), KeyForm),
        encoding=msgspec.convert(_choice(table, "encoding", _HMAC.encoding), SignatureEncoding),
        message=message,
        headers=fields,
    )


def _choice(table: Table, key: str, default: str) -> str:
    return table.string(key) if key in table else default


def _field_value(table: Table, name: str, value: object) -> str:
    if not may_be_credential(name):
        raise table.refuse("headers", f"{name!r} is not a header field that a credential may use", name)
    if not isinstance(value, str):
        raise table.refuse("headers", f"{name} is not a string", name)
    _check_template(table, "headers", value, IN_FIELDS)
    if value != value.strip():
        raise table.refuse("headers", f"{name} begins or ends with a space", name)
    return value


def _check_template(table: Table, key: str, text: str, known: frozenset[str]) -> None:
    if not _TEMPLATE.fullmatch(text):
        raise table.refuse(key, f"{key}: a template has 1 to {_MAX_TEMPLATE} printable ASCII characters")
    for name in _placeholders(text):
        if name not in known:
            raise table.refuse(key, f"{key}: unknown placeholder {{{name}}}; known: {', '.join(sorted(known))}")
    if set(PLACEHOLDER.sub("", text)) & set("{}"):
        raise table.refuse(key, f"{key}: a brace outside a placeholder")


def _placeholders(text: str) -> list[str]:
    return PLACEHOLDER.findall(text)


def parse_token_grant(table: Table) -> TokenGrant:
    """Parse `[capabilities.credential.oauth2_client]`. Raises AileronError(invalid_request) with line and fix."""
    grant = table.string("grant")
    client_auth = table.string("client_auth")
    if grant == "client_credentials" and client_auth == "none":
        raise table.refuse("client_auth", 'client_credentials needs a client_auth other than "none"')
    if grant == "jwt_bearer" and client_auth != "none":
        raise table.refuse("client_auth", 'jwt_bearer has client_auth = "none": its assertion says who asks')
    if grant == "token_exchange" and client_auth == "private_key_jwt":
        fix = "client_secret_basic, client_secret_post or none"
        raise table.refuse("client_auth", f"token_exchange has no private key beside the token; client_auth: {fix}")
    if "subject_token_type" in table and grant != "token_exchange":
        raise table.refuse("subject_token_type", 'subject_token_type is for grant = "token_exchange"; leave it out')
    for key in ("audience", "subject_token_type"):
        if key in table and not _URN.fullmatch(table.string(key)):
            raise table.refuse(key, f"{key} is empty, longer than 256 characters or not printable ASCII")
    return TokenGrant(
        grant=msgspec.convert(grant, MachineGrant),
        token_url=table.parsed("token_url", check_provider_url),
        client_auth=msgspec.convert(client_auth, ClientAuth),
        scopes=parse_scopes(table),
        audience=table.maybe_string("audience"),
        resource=table.parsed("resource", check_resource) if "resource" in table else None,
        algorithm=msgspec.convert(_choice(table, "algorithm", _GRANT.algorithm), SigningAlgorithm),
        subject_token_type=_choice(table, "subject_token_type", _GRANT.subject_token_type),
    )
