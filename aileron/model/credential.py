"""Credentials without their secrets: the reach that a binding was approved for, and the facts about a provider's grant.

Pure values. Only `TokenSet` holds secrets; its `repr` shows nothing, and it is only sealed into the vault and unsealed from it.

Rules
- A binding can be used only for what its consent covers. If a connector asks for more (another host, another scope, another
  form on the wire, another login or command, another application at the provider), `Reach.widened_to` says so, in words for
  people.
- Tokens carry the endpoints and the client they were issued for: a later manifest cannot send a refresh token elsewhere.

Source: docs/reference/bindings.md, docs/reference/vault-format.md; RFC 6749. Not here: getting tokens (oauth/), storing them
(vault/).

>>> agreed = Reach(hosts=("a.example:443",))
>>> agreed.widened_to(Reach(hosts=("a.example:443", "b.example:443")))
('host b.example:443',)
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, NoReturn, Self, assert_never

import msgspec
from msgspec import UNSET

from aileron.model.host_key import shown_fingerprint
from aileron.model.login import BoundLogin, LoginDetails, LoginTarget
from aileron.model.manifest import ConnectorManifest, CredentialKind, CredentialNeed, OAuth2Provider
from aileron.model.names import BindingName
from aileron.model.request_signing import HmacTemplate, KeyForm, MachineGrant, TokenGrant
from aileron.model.secret import Secret

__all__ = [
    "Candidate",
    "Client",
    "Flow",
    "OAuthGrant",
    "Reach",
    "TokenSet",
    "hmac_template_of",
    "login_facts",
    "login_words",
    "wire_facts",
    "wire_words",
]

Flow = Literal["browser", "device"]
"""Way to sign in: on a page of this machine, to which the provider redirects; or with a code, on any other device."""


class Reach(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The allowed uses of a credential. `hosts` (`HOST:PORT`) and `scopes` are sorted.

    `wire` says how the credential is sent, such as `header Authorization: Bearer {key}`. For a credential that logs in, `wire`
    is `KIND login TARGET…` with sorted targets, without KIND if that is `login`; for `ssh`, the commands follow as a JSON
    array. `client` is the application that signs in, as `CLIENT_ID at TOKEN_URL`, followed by ` for RESOURCE` if the tokens are
    for one resource; if tokens are obtained without a person, `client` has GRANT in place of CLIENT_ID. It is null for a
    credential that is not a token.
    """

    hosts: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    wire: str = ""
    client: str | None = None

    @classmethod
    def of(cls, manifest: ConnectorManifest) -> Self:
        """Return the reach that a connector's manifest asks for."""
        need, provider = manifest.credential, manifest.oauth2
        if need is None:
            return cls()
        return cls(
            hosts=tuple(sorted(map(str, manifest.hosts))),
            scopes=tuple(sorted(set(_scopes_of(need, provider)))),
            wire=_wire_of(need),
            client=_client_of(manifest),
        )

    @property
    def token_url(self) -> str | None:
        """Address that issues the tokens, extracted from `client`.

        The search starts at the end of `client`, because a client id can contain ` at `, but an address contains no
        space.
        """
        return None if self.client is None else self.client.rpartition(" at ")[2].partition(" for ")[0]

    @property
    def token_grant(self) -> TokenGrant | None:
        """Approved way to get tokens without a person; None if there is none."""
        kind, _, rest = self.wire.partition(" ")
        try:
            grant = msgspec.json.decode(rest, type=TokenGrant) if kind == "oauth2_client" else None
        except ValueError:  # a text that this program has not written
            return None
        return None if grant is None else msgspec.structs.replace(grant, scopes=self.scopes)

    @property
    def logins(self) -> tuple[LoginTarget, ...]:
        """Targets where the supervisor logs in. Raises ValueError if `wire` was not written by this program."""
        return tuple(map(LoginTarget.parse, _Wire.parse(self.wire).logins))

    def widened_to(self, other: Reach) -> tuple[str, ...]:
        """Return in words everything that `other` asks for beyond this reach, an entry for each thing; empty if it asks
        for no more.
        """
        found = [f"host {host}" for host in other.hosts if host not in self.hosts]
        found += [f"scope {scope}" for scope in other.scopes if scope not in self.scopes]
        agreed, asked = _Wire.parse(self.wire), _Wire.parse(other.wire)
        if asked.form != agreed.form:
            found.append(f"sent as {wire_words(other.wire)}, not as {wire_words(self.wire) or 'agreed'}")
        found += [f"login at {_target_words(login)}" for login in asked.logins if login not in agreed.logins]
        found += [f"command {command}" for command in asked.commands if command not in agreed.commands]
        if other.client != self.client:
            label = "application" if other.token_grant is None else "tokens by"
            found.append(f"{label} {other.client}, not {self.client}")
        return tuple(found)


_Form = CredentialKind | Literal["header", "query", "path", "body", "message"]
"""First word of a `Reach.wire`: the place of a key in a request, or the kind of any other credential."""


class _Wire(NamedTuple):
    """The parts of a `Reach.wire`, as text that is untrusted, because anybody may have written the file it comes from."""

    form: str
    logins: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @classmethod
    def parse(cls, wire: str) -> Self:
        kind, found, rest = wire.partition("login ")
        if not found or kind not in ("", "oauth2 "):
            return cls(wire)
        targets, has_commands, array = rest.partition(" [")
        try:
            commands = msgspec.json.decode(f"[{array}", type=tuple[str, ...]) if has_commands else ()
        except ValueError:  # nobody consented to such a text
            return cls(wire)
        return cls(kind.rstrip() or "login", tuple(targets.split()), commands)


def _wire_of(need: CredentialNeed) -> str:
    match need.kind:
        case "api_key":
            return _place_of(need)
        case "aws_sigv4":
            return need.kind if need.aws is UNSET else f"aws_sigv4 {need.aws.region} {need.aws.service}"
        case "hmac":
            return need.kind if need.hmac is UNSET else f"hmac {msgspec.json.encode(need.hmac).decode()}"
        case "oauth2_client" if need.token is not UNSET:
            unscoped = msgspec.structs.replace(need.token, scopes=())  # `Reach.scopes` has them
            return f"oauth2_client {msgspec.json.encode(unscoped).decode()}"
        case "basic" | "digest" | "mtls" | "oauth2_client":
            return need.kind
        case "login" | "oauth2":
            return _logins_of(need)
        case impossible:
            assert_never(impossible)


def _logins_of(need: CredentialNeed) -> str:
    if not need.logins:
        return need.kind
    kind = () if need.kind == "login" else (need.kind,)
    commands = (msgspec.json.encode(sorted(need.commands)).decode(),) if need.commands else ()
    return " ".join((*kind, "login", *sorted(map(str, need.logins)), *commands))


def _place_of(need: CredentialNeed) -> str:
    places = (("path", need.path), ("body", need.body), ("message", need.first_message))
    for word, place in places:
        if place is not UNSET:
            return f"{word} {place}"
    return f"query {need.query}" if need.query is not None else f"header {need.header}: {need.format}"


def _scopes_of(need: CredentialNeed, provider: OAuth2Provider | None) -> tuple[str, ...]:
    if need.token is not UNSET:
        return need.token.scopes
    return () if provider is None else provider.scopes


def _target_words(target: str) -> str:
    try:
        return LoginTarget.parse(target).words
    except ValueError:
        return target


def _client_of(manifest: ConnectorManifest) -> str | None:
    """Return the application that asks for tokens, the token address and the resource; None if the connector uses no tokens."""
    need, provider = manifest.credential, manifest.oauth2
    if need is not None and need.token is not UNSET:
        words, resource = f"{need.token.grant} at {need.token.token_url}", need.token.resource
    elif provider is not None:
        words, resource = f"{provider.client_words} at {provider.token_url}", provider.resource
    else:
        return None
    return words if resource is None else f"{words} for {resource}"


def wire_words(wire: str) -> str:
    """Return the form of a `Reach.wire` in words for a person: the field of a request that carries the credential.

    >>> [wire_words(wire) for wire in ("oauth2", "header Authorization: Bearer {key}", "query token")]
    ['Authorization: Bearer', 'Authorization: Bearer KEY', 'the query parameter token']
    """
    form, _, rest = _Wire.parse(wire).form.partition(" ")
    try:
        return _said(msgspec.convert(form, _Form), rest)
    except ValueError:  # a text that this program has not written
        return wire


def hmac_template_of(wire: str) -> HmacTemplate | None:
    """Return the template of an HMAC credential's signature from a `Reach.wire`; None if the credential is of another kind.

    Raises ValueError if `wire` was not written by this program.
    """
    form, _, rest = wire.partition(" ")
    return msgspec.json.decode(rest, type=HmacTemplate) if form == "hmac" else None


def _body_words(rest: str) -> str:
    form, _, place = rest.partition(":")
    container = "a form, in the field" if form == "form" else "JSON, in the member"
    return f"the body of each request, which is {container} {place}"


def _aws_words(rest: str) -> str:
    region, _, service = rest.partition(" ")
    return f"an AWS signature for {service} in {region}, without the secret access key"


def _hmac_words(rest: str) -> str:
    template = msgspec.json.decode(rest, type=HmacTemplate)
    fields = ", ".join(f"{name}: {value}" for name, value in template.headers)
    made = f"an HMAC-{template.algorithm.upper()} of {template.message} in {fields}, as {template.encoding}"
    return f"{made}, without the key, which is {_KEY_WORDS[template.key]}"


def _token_words(rest: str) -> str:
    grant = msgspec.json.decode(rest, type=TokenGrant)
    said = () if grant.client_auth == "none" else (grant.client_auth,)
    if grant.has_assertion or grant.algorithm != "RS256":  # RS256 is also the default of a grant that signs nothing
        said = (*said, grant.algorithm)
    way = _GRANT_WORDS[grant.grant] + (f" ({', '.join(said)})" if said else "")
    if grant.grant == "token_exchange":
        way += f" of a stored {grant.subject_token_type}"
    meant = "" if grant.audience is None else f", for the audience {grant.audience}"
    meant += "" if grant.resource is None else f", for the resource {grant.resource}"
    return f"Authorization: Bearer, with a token that Aileron gets by {way} from {grant.token_url}{meant}"


_KEY_WORDS: Final[dict[KeyForm, str]] = {
    "utf8": "text",
    "base64": "base64",
    "hex": "hex",
    "whsec": "base64 after whsec_",
}
_GRANT_WORDS: Final[dict[MachineGrant, str]] = {
    "client_credentials": "client credentials",
    "jwt_bearer": "a signed JWT",
    "token_exchange": "token exchange",
}


def _said(form: _Form, rest: str) -> str:
    match form:
        case "header":
            return rest.replace("{key}", "KEY")
        case "query":
            return f"the query parameter {rest}"
        case "path":
            return f"a part of the path of each request: {rest.replace('{key}', 'KEY')}/…"
        case "body":
            return _body_words(rest)
        case "message":
            return f"the first message of a WebSocket: {rest.replace('{key}', 'KEY')}"
        case "basic":
            return "Authorization: Basic"
        case "oauth2":
            return "Authorization: Bearer"
        case "login":
            return "a login"
        case "aws_sigv4":
            return _aws_words(rest)
        case "hmac":
            return _hmac_words(rest)
        case "mtls":
            return "a client certificate of TLS, without its private key"
        case "digest":
            return "Authorization: Digest, without the password"
        case "oauth2_client":
            return _token_words(rest)
        case "api_key":  # it is sent in one of the first five forms
            raise ValueError("api_key is not a form")
        case impossible:
            assert_never(impossible)


def login_words(wire: str) -> list[str]:
    """Return in words each place where the supervisor logs in, from a `Reach.wire`; empty if there is no login."""
    return [*map(_target_words, _Wire.parse(wire).logins)]


def wire_facts(wire: str) -> tuple[tuple[str, Any], ...]:
    """Return pairs of a name and a value that tell a person where a credential is sent, from a `Reach.wire`.
    A value is None if the fact does not apply.

    >>> dict(wire_facts("login imap+tls://mail.example.com:993"))["logs in at"][0]
    'mail.example.com:993 by IMAP over TLS'
    """
    parts = _Wire.parse(wire)
    is_login = parts.form == "login"
    secret = "password or key" if parts.commands else "password" if is_login else "token"
    never = f"the connector gets the stream behind the login, and never the {secret}"
    return (
        ("sent as", None if is_login else wire_words(wire) or None),
        ("logs in at", [*login_words(wire), never] if parts.logins else None),
        ("executes", list(parts.commands) or None),
    )


def login_facts(details: LoginDetails | None) -> tuple[tuple[str, Any], ...]:
    """Return pairs of a name and a value, as `wire_facts` does, for the facts that the user stated about a login."""
    said = LoginDetails() if details is None else details
    return (
        ("database", said.database),
        ("host key", None if said.host_key is None else [said.host_key, shown_fingerprint(said.host_key)]),
        ("role", "only reads, which is checked after each login" if said.read_only else None),
        ("password", said.password_words),
    )


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A binding as plans see it: its name, its reach, and facts about its credential, but no secret.

    `reach` is None if the binding was created before reaches were stored; such a binding is suspended until it is bound again.
    """

    name: BindingName
    reach: Reach | None
    account: str | None = None
    """Owner of the credential, as named by the provider or the user; for people."""
    read_only: bool = False
    """True if the credential was bound as a role that only reads. Only operations that need such a role can use it."""
    login: BoundLogin | None = None
    """User and details of a login; None unless the binding was approved for logins."""


class OAuthGrant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Public facts about a grant that a provider gave. Times are whole milliseconds since the epoch."""

    scopes: tuple[str, ...]
    """Scopes that the provider granted, sorted."""
    obtained_ms: int
    """Time of the sign-in, in milliseconds since the epoch."""
    account: str | None = None
    """Name of the account at the provider (an ID token's `email`, else `preferred_username`, else `sub`)."""
    refreshable: bool = False
    """True if there is a refresh token."""
    expires_ms: int | None = None
    """Expiry of the access token; None if the provider did not specify one."""
    refreshed_ms: int | None = None
    """Time of the latest renewal."""
    renewing_ms: int | None = None
    """Start of a renewal whose end is not on disk, so that its result at the provider is unknown."""
    failed: str | None = None
    """Error code with which the provider refused a renewal; a person must sign in again."""


class Client(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The client that tokens were issued to: the application and the provider's endpoints, as approved at sign-in."""

    client_id: str
    client_secret: str | None
    token_url: str
    revocation_url: str | None
    resource: str | None = None
    """Resource that the tokens are for (RFC 8707); None if the sign-in named none."""
    is_registered: bool = False
    """True if the sign-in registered the client (RFC 7591).

    Only the provider knows such a client, and each sign-in registers a new one.
    """

    @property
    def resource_parameter(self) -> dict[str, str]:
        """The resource as a parameter of each request for tokens (RFC 8707, section 2)."""
        return {} if self.resource is None else {"resource": self.resource}

    def __repr__(self) -> str:
        return f"<client {self.client_id} at {self.token_url}>"


class _Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON form of a `TokenSet`, stored as one secret in the vault."""

    access_token: str
    refresh_token: str | None
    expires_at: float | None
    scope: str
    client: Client

    def __repr__(self) -> str:
        return "<stored tokens>"


class TokenSet:
    """The tokens of one grant. `expires_at` is in seconds since the epoch; `scopes` are those that the provider granted."""

    __slots__ = ("access", "client", "expires_at", "refresh", "scopes")

    def __init__(
        self,
        *,
        access: Secret,
        refresh: Secret | None,
        expires_at: float | None,
        scopes: tuple[str, ...],
        client: Client,
    ) -> None:
        self.access: Final = access
        self.refresh: Final = refresh
        self.expires_at: Final = expires_at
        self.scopes: Final = scopes
        self.client: Final = client

    def sealed(self) -> Secret:
        """Return the tokens as the value of one vault secret."""
        return Secret(
            msgspec.json.encode(
                _Stored(
                    access_token=self.access.reveal().decode(),
                    refresh_token=None if self.refresh is None else self.refresh.reveal().decode(),
                    expires_at=self.expires_at,
                    scope=" ".join(self.scopes),
                    client=self.client,
                )
            )
        )

    @classmethod
    def unsealed(cls, value: Secret) -> Self:
        """Return the tokens in a value that `sealed` returned.

        Raises ValueError, without quoting the value, for any other value.
        """
        try:
            stored = msgspec.json.decode(value.reveal(), type=_Stored)
        except (ValueError, RecursionError):
            raise ValueError("the stored value is not a token set") from None
        return cls(
            access=Secret(stored.access_token.encode()),
            refresh=None if stored.refresh_token is None else Secret(stored.refresh_token.encode()),
            expires_at=stored.expires_at,
            scopes=tuple(stored.scope.split()),
            client=stored.client,
        )

    def __repr__(self) -> str:
        return "<tokens>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("tokens are not pickled or copied")
