"""Choice of the one credential that the chosen operations need, in the form that a manifest declares.

Pure. A connector has one kind of credential. The security scheme that suits the most operations is chosen. An operation that
needs another, or two at once, is not imported, and this is reported. An author can choose a scheme, or specify one that the
document omits.

Source: OpenAPI Specification 3.1.1, sections 4.8.27 (Security Scheme Object) to 4.8.30 (Security Requirement Object);
docs/reference/connector-manifest.md. Not here: the manifest's text (manifest.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, assert_never

import msgspec

from aileron.importing.found import Described, FoundOperation
from aileron.importing.key_forms import form_in_text, form_of, form_of_value, is_form
from aileron.importing.reading import DocumentError
from aileron.importing.words import is_visible, line
from aileron.model.json_value import JSON, JSONObject
from aileron.registry.manifest_fields import may_be_credential

__all__ = ["NONE", "Credential", "ImportedKind", "Need", "choose", "needs_of"]

_QUERY: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}")
_URL: Final = re.compile(r"https://[a-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*")
_MAX_WAYS: Final = 16
"""Maximum number of alternative sets of security schemes that one operation accepts, and of schemes in one set.

Further ones are ignored; the operation may then seem to need another credential.
"""
_MAX_SCOPES: Final = 200
_MAX_TRIED: Final = 200
"""Maximum number of operations whose parameters are searched for an example of the header `Authorization`."""
_GIVEN: Final = re.compile(r"(bearer|basic|none)|(header|query):(.+)")
_HINT: Final = "--auth 'header:Authorization=Bot {key}'"


ImportedKind = Literal["api_key", "basic", "oauth2", "oauth2_client"]
"""Kinds of credential that documents describe."""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a manifest's [capabilities.credential].

    `scheme` is the document's name for it; if empty, the author specified the credential.
    """

    scheme: str
    kind: ImportedKind | None
    """Kind of the credential; None if no credential is used."""
    header: str | None = None
    format: str | None = None
    query: str | None = None
    is_guess: bool = False
    """True if the document does not specify the form of the key in `Authorization`, so the form is a guess."""
    authorize_url: str = ""
    token_url: str = ""
    scopes: tuple[str, ...] = ()
    """OAuth scopes that the chosen operations require, or that an MCP server requests."""
    client_id: str | None = None
    registration_url: str | None = None
    resource: str | None = None
    issuer: str | None = None
    issuer_in_answer: bool = True
    revocation_url: str | None = None
    """Address at which tokens are revoked.

    This field and the four above are for OAuth, with values discovered for an MCP server (authorization.py).
    """

    @property
    def form(self) -> str:
        """Value of the credential's header, for people."""
        return (self.format or "Bearer {key}").replace("{key}", "KEY")

    @property
    def words(self) -> str:
        """Description of the credential, for people."""
        match self.kind:
            case None:
                return "none"
            case "basic":
                return "a user name and a password"
            case "oauth2":
                hosts = dict.fromkeys(url.split("/")[2] for url in (self.authorize_url, self.token_url))
                return f"a sign-in (OAuth 2) at {' and '.join(hosts)}, scopes {' '.join(self.scopes) or 'none'}"
            case "oauth2_client":
                host, scopes = self.token_url.split("/")[2], " ".join(self.scopes) or "none"
                return f"tokens that Aileron gets as a client of its own (OAuth 2) at {host}, scopes {scopes}"
            case "api_key" if self.query:
                return f"an API key, as the query parameter {self.query}"
            case "api_key" if self.header:
                return f"an API key, as the header {self.header}{'' if self.form == 'KEY' else f': {self.form}'}"
            case "api_key":
                return (
                    f"an API key, as Authorization: {self.form}" if self.format else "a token, as Authorization: Bearer"
                )
            case impossible:
                assert_never(impossible)

    @property
    def asked_at(self) -> tuple[str, ...]:
        """Origins that issue OAuth tokens and register clients, as `https://host`; empty for other kinds of credential."""
        urls = (self.token_url, self.revocation_url, None if self.client_id else self.registration_url)
        return tuple(dict.fromkeys("/".join(url.split("/")[:3]) for url in urls if url))


NONE: Final = Credential(scheme="", kind=None)


class Need(msgspec.Struct, frozen=True):
    """The credentials that one operation accepts: alternative sets of security schemes, each scheme with its scopes.

    `is_optional` means that the operation also accepts requests without a credential. `bearers` are all schemes that
    use `Authorization: Bearer`; a set of such schemes needs only one token, which can be obtained in several ways.
    """

    ways: tuple[Mapping[str, tuple[str, ...]], ...]
    is_optional: bool
    bearers: frozenset[str] = frozenset()

    @property
    def are_several(self) -> bool:
        """True if every alternative takes more than one credential."""
        return bool(self.ways) and all(len(way) > 1 and not set(way) <= self.bearers for way in self.ways)

    def scopes(self, scheme: str) -> tuple[str, ...] | None:
        """Return the scopes that an operation needs with this security scheme alone; None if the scheme alone does not
        suffice.
        """
        for way in self.ways:
            if scheme in way and (set(way) == {scheme} or set(way) <= self.bearers):
                return way[scheme]
        return None


def needs_of(operation: FoundOperation, described: Described) -> Need:
    """Return the credentials that an operation accepts, as specified by the operation or else by the document."""
    raw = operation.raw.get("security")
    said = raw if isinstance(raw, list) else described.security
    if not said:
        return Need((), is_optional=True)
    ways = [
        _way(requirement)
        for requirement in said[:_MAX_WAYS]
        if isinstance(requirement, dict) and len(requirement) <= _MAX_WAYS
    ]
    bearers = frozenset(name for name, raw in described.schemes.items() if _is_bearer(raw))
    return Need(tuple(way for way in ways if way), is_optional=any(not way for way in ways), bearers=bearers)


def _is_bearer(raw: Any) -> bool:
    return isinstance(raw, dict) and (
        raw.get("type") in ("oauth2", "openIdConnect") or str(raw.get("scheme", "")).lower() == "bearer"
    )


def _way(raw: JSONObject) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(scope for scope in scopes[:_MAX_SCOPES] if isinstance(scope, str))
        if isinstance(scopes, list)
        else ()
        for name, scopes in raw.items()
    }


def choose(described: Described, operations: Iterable[FoundOperation], given: str | None) -> Credential:
    """Return the credential of a connector with these operations. `given` is the author's choice; None if there is none.

    `given` is `bearer`, `basic`, `none`, `header:NAME`, `header:NAME=FORM` with `{key}` in the form, `query:NAME`, or a scheme in
    the document.

    Raises DocumentError for a scheme that the document does not have, or that is not supported.
    """
    needs = [needs_of(operation, described) for operation in operations]
    if given is not None:
        if given in described.schemes:
            return _checked(_credential(given, described, needs), given)
        return _own(given, described)
    usable: dict[str, Credential] = {}
    for name in described.schemes:
        credential = _credential(name, described, needs)
        if isinstance(credential, Credential):
            usable[name] = credential
    served = Counter({name: sum(need.scopes(name) is not None for need in needs) for name in usable})
    order = list(usable)
    best = max(
        usable,
        key=lambda name: (served[name], _rank(usable[name], _type(described, name)), -order.index(name)),
        default=None,
    )
    return NONE if best is None or not served[best] else usable[best]


def _type(described: Described, name: str) -> object:
    raw = described.schemes[name]
    return raw.get("type") if isinstance(raw, dict) else None


def _rank(credential: Credential, type_: object) -> int:
    """Return the rank (higher is better) of a security scheme among those that suit equally many operations. A pasted
    token ranks before an OAuth application, which takes more work to set up.

    The last resort is an OAuth token for which no supported sign-in exists.
    """
    match credential.kind:
        case "oauth2":
            return 4
        case "basic" | "oauth2_client":
            return 3
        case "api_key" | None if type_ == "oauth2":
            return 1
        case "api_key" | None:
            return 2 if credential.query else 6 if credential.header is None else 5
        case impossible:
            assert_never(impossible)


def _checked(found: Credential | str, name: str) -> Credential:
    if isinstance(found, str):
        raise DocumentError(f"security scheme {name}: {found}")
    return found


def _own(given: str, described: Described) -> Credential:
    match = _GIVEN.fullmatch(given)
    if match is None:
        known = ", ".join(sorted(described.schemes)[:20]) or "none"
        raise DocumentError(
            f"--auth {given[:64]!r} is not bearer, basic, none, header:NAME, header:NAME=FORM, query:NAME "
            f"or a security scheme of the document ({known})"
        )
    word, place, name = match.groups()
    if word is not None:
        return {"none": NONE, "basic": Credential(scheme="", kind="basic")}.get(
            word, Credential(scheme="", kind="api_key")
        )
    name, has_form, form = name.partition("=") if place == "header" else (name, "", "")
    found = _checked(_key(place, name, ""), given)
    if not has_form:
        return found
    if not is_form(form):
        raise DocumentError(
            f"--auth {given[:64]!r}: expected {{key}} once in the form, in visible ASCII, as in {_HINT}"
        )
    return msgspec.structs.replace(found, format=form, is_guess=False)


def _credential(name: str, described: Described, needs: Iterable[Need]) -> Credential | str:
    """Return the security scheme called `name` as a credential, or the reason why it cannot be one."""
    try:
        raw = described.references.resolved(described.schemes[name], described.references.root).value
    except DocumentError as error:
        return str(error)
    if not isinstance(raw, dict):
        return "it is no object"
    match raw.get("type"), str(raw.get("scheme", "")).lower():
        case "http", "basic":
            return Credential(scheme=name, kind="basic")
        case ("http", "bearer") | ("openIdConnect", _):
            return Credential(scheme=name, kind="api_key")
        case "apiKey", _:
            found = _key(str(raw.get("in")), str(raw.get("name", "")), name)
            is_open = isinstance(found, Credential) and found.is_guess
            return _with_form(found, raw, described) if is_open else found  # type: ignore[arg-type]
        case "oauth2", _:
            return _oauth2(name, raw, needs)
        case kind, scheme:
            return f"{str(scheme or kind)[:40]!r} is not supported"


def _key(place: str, name: str, scheme: str) -> Credential | str:
    if place == "header" and not may_be_credential(name):
        return f"a key in the header {line(name, 60)!r}, which is not one that a credential may use"
    if place == "header":
        if name.lower() == "authorization":
            # Documents use this form for tokens as well as for plain keys; most of them mean a token.
            return Credential(scheme=scheme, kind="api_key", is_guess=True)
        return Credential(scheme=scheme, kind="api_key", header=name, format="{key}")
    if place == "query" and _QUERY.fullmatch(name):
        return Credential(scheme=scheme, kind="api_key", query=name)
    return f"a key in {place[:20]!r} is not supported"


def _with_form(found: Credential, raw: Mapping[str, JSON], described: Described) -> Credential:
    """Return the credential for a key in `Authorization`, with the form of the header value that the document's prose
    or examples show.
    """
    said = raw.get("description")
    form = form_of([said] if isinstance(said, str) else []) or _form_of_parameters(described)
    form = form or form_in_text(described.description)
    if form is None and not re.search("(?i)bearer", found.scheme):
        is_bot = re.match("(?i)bot", found.scheme) is not None
        return msgspec.structs.replace(found, format="Bot {key}") if is_bot else found
    return msgspec.structs.replace(found, format=None if form in (None, "Bearer {key}") else form, is_guess=False)


def _form_of_parameters(described: Described) -> str | None:
    """Return the form of the header value that an operation's header parameter `Authorization` shows; None if no
    operation's parameter shows one. Such a parameter is otherwise ignored.
    """
    for operation in described.operations[:_MAX_TRIED]:
        said = operation.raw.get("parameters")
        for raw in (*operation.shared, *(said if isinstance(said, list) else ())):
            parameter = described.references.maybe(raw, operation.file)
            if parameter.get("in") != "header" or str(parameter.get("name")).lower() != "authorization":
                continue
            parts = (parameter, described.references.maybe(parameter.get("schema"), operation.file))
            values = [part.get(key) for part in parts for key in ("example", "x-example", "default")]
            forms = (form_of_value(value) for value in values if isinstance(value, str))
            words = parameter.get("description")
            found = next((form for form in forms if form), None) or form_of([words] if isinstance(words, str) else [])
            if found is not None:
                return found
    return None


def _oauth2(name: str, raw: JSONObject, needs: Iterable[Need]) -> Credential:
    """Return a credential for the scheme `name`: for its OAuth flow in which a person signs in, or else for its flow
    without a person.

    If the scheme has neither, its tokens are pasted like keys.
    """
    found = {scope for need in needs for scope in need.scopes(name) or () if _is_scope(scope)}
    scopes = tuple(sorted(found))
    if scopes and (addresses := _addresses(raw, "authorizationCode", "authorizationUrl", "tokenUrl")):
        return Credential(scheme=name, kind="oauth2", authorize_url=addresses[0], token_url=addresses[1], scopes=scopes)
    if addresses := _addresses(raw, "clientCredentials", "tokenUrl"):
        return Credential(scheme=name, kind="oauth2_client", token_url=addresses[0], scopes=scopes)
    return Credential(scheme=name, kind="api_key")


def _addresses(raw: JSONObject, flow: str, *keys: str) -> list[str]:
    """Return the addresses under `keys` in an OAuth Flow Object; empty unless all of them are present."""
    flows = raw.get("flows")
    said = flows.get(flow) if isinstance(flows, dict) else None
    found = [str(said.get(key, "")) for key in keys] if isinstance(said, dict) else []
    return found if all(map(_URL.fullmatch, found)) else []


def _is_scope(text: str) -> bool:
    """Return whether a text is a valid scope (RFC 6749 section 3.3)."""
    return 0 < len(text) <= 256 and is_visible(text) and text.isascii() and not set(text) & set(' "\\')
