"""Values in a manifest that say how to sign requests, or get tokens, with a secret that itself is not sent.

Pure values, without a secret. A binding's consent covers each of these values, so each is part of `Reach.wire` (credential.py).
The conversion of a stored text to a key is here too, because the code that binds the key and the code that signs must agree.

Source: docs/reference/connector-manifest.md. Not here: making a signature (egress/signing), getting a token (oauth).
"""

from __future__ import annotations

import binascii
import re
from typing import Final, Literal, get_args

import msgspec

__all__ = [
    "DIGESTS",
    "IN_FIELDS",
    "PLACEHOLDER",
    "PLACEHOLDERS",
    "SIGNING_ALGORITHMS",
    "AwsScope",
    "ClientAuth",
    "Digest",
    "HmacTemplate",
    "KeyForm",
    "MachineGrant",
    "Placeholder",
    "SignatureEncoding",
    "SigningAlgorithm",
    "StoredAs",
    "TokenGrant",
    "hmac_key",
]

Digest = Literal["sha256", "sha1", "sha512"]
DIGESTS: Final[tuple[Digest, ...]] = get_args(Digest)
KeyForm = Literal["utf8", "base64", "hex", "whsec"]
"""Encoding of the HMAC's key in the stored text. `whsec` is base64 after `whsec_`, as in Standard Webhooks."""
SignatureEncoding = Literal["hex", "base64"]
Placeholder = Literal["method", "host", "path", "query", "target", "body", "body_sha256", "time", "time_ms", "id"]
"""Part of a request that a template can contain: `path`, `query` and `target` as they are sent, `time` in seconds and
`time_ms` in milliseconds since the epoch, `id` different for each request.
"""
PLACEHOLDERS: Final = frozenset[str](get_args(Placeholder))
IN_FIELDS: Final = (PLACEHOLDERS - {"body"}) | {"signature"}
"""Placeholders allowed in header fields. `body` is not, because it can have bytes that are not allowed in a field."""
PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
"""Pattern of a placeholder in a template; its group is the placeholder's name, known or not."""
MachineGrant = Literal["client_credentials", "jwt_bearer", "token_exchange"]
"""OAuth grant with which a program gets a token without a person (RFC 6749 section 4.4, RFC 7523 section 2.1, RFC 8693)."""
ClientAuth = Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]
"""Way in which the client authenticates (RFC 6749 section 2.3.1, RFC 7523 section 2.2).

With `none`, the grant alone identifies the client.
"""
_WHSEC: Final = b"whsec_"
SigningAlgorithm = Literal["RS256", "PS256", "ES256", "EdDSA"]
SIGNING_ALGORITHMS: Final[tuple[SigningAlgorithm, ...]] = get_args(SigningAlgorithm)


StoredAs = Literal["client_secret", "private_key", "token", "client_secret_and_token"]
"""Kind of secret stored for a grant. `client_secret_and_token` is a JSON object with both (oauth/token_request.py)."""


class AwsScope(msgspec.Struct, frozen=True, kw_only=True):
    """The values of `[capabilities.credential.aws]`: region and service that a signature is valid for (`us-east-1`, `s3`)."""

    region: str
    service: str


class HmacTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The values of `[capabilities.credential.hmac]`: the signed message, and the header fields that carry the signature.

    `message` can contain `PLACEHOLDERS` in braces. The values of `headers` (names and values, in the order of the file) can
    contain `IN_FIELDS`.
    """

    algorithm: Digest = "sha256"
    key: KeyForm = "utf8"
    encoding: SignatureEncoding = "hex"
    message: str
    headers: tuple[tuple[str, str], ...]

    @property
    def placeholders(self) -> frozenset[str]:
        """Names of all placeholders in the template, known or not."""
        texts = (self.message, *(value for _name, value in self.headers))
        return frozenset(name for text in texts for name in PLACEHOLDER.findall(text))


def hmac_key(form: KeyForm, stored: bytes) -> bytes:
    """Return the key of an HMAC, decoded from the stored text.

    Raises ValueError, without quoting the text, if the text is not in the encoding `form`.

    >>> hmac_key("whsec", b"whsec_c2VzYW1lLTEyMzQ1")
    b'sesame-12345'
    """
    if form == "utf8":
        return stored
    if form == "whsec" and not stored.startswith(_WHSEC):
        raise ValueError("does not begin with whsec_")
    text = stored.removeprefix(_WHSEC) if form == "whsec" else stored
    try:
        key = binascii.unhexlify(text) if form == "hex" else binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error is one
        key = b""
    if form != "hex" and len(text) % 4:  # Python accepts such a text if it has one `=` too many
        key = b""
    if not key:
        raise ValueError(_NOT_DECODED[form])
    return key


_NOT_DECODED: Final[dict[KeyForm, str]] = {
    "base64": "is not base64",
    "hex": "is not hexadecimal",
    "whsec": "is not base64 after whsec_",
}


class TokenGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The values of `[capabilities.credential.oauth2_client]`: how the supervisor gets access tokens without a person.

    The stored secret is the client secret, the private key (PEM, a JWK, or a service account's key file), or the token that is
    exchanged for an access token. `audience` and `resource` say what the access token is for.
    """

    grant: MachineGrant
    token_url: str
    client_auth: ClientAuth
    scopes: tuple[str, ...] = ()
    audience: str | None = None
    resource: str | None = None
    algorithm: SigningAlgorithm = "RS256"
    subject_token_type: str = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name
    """Type of the token that is exchanged for an access token (RFC 8693 section 3)."""

    @property
    def stores(self) -> StoredAs:
        """Kind of the secret that is stored for the grant."""
        if self.has_assertion:
            return "private_key"
        if self.grant == "client_credentials":
            return "client_secret"
        return "token" if self.client_auth == "none" else "client_secret_and_token"

    @property
    def has_assertion(self) -> bool:
        """True if the grant sends an assertion signed with `algorithm`, which is valid only while the clocks agree."""
        return self.grant == "jwt_bearer" or self.client_auth == "private_key_jwt"

    def serves(self, asked: TokenGrant) -> bool:
        """Return whether the tokens of this grant suffice for `asked`, that is, `asked` is the same grant with no
        additional scope.
        """
        return set(asked.scopes) <= set(self.scopes) and msgspec.structs.replace(asked, scopes=self.scopes) == self
