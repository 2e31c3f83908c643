"""Discovery of where a person signs in for an MCP server, from the server's metadata, for the manifest.

    1 fetch the metadata of the protected resource, from the address in the challenge (challenges.py) or a well-known address
    2 check that the metadata is this server's · 3 choose an authorization server · 4 fetch the metadata of that server
    5 check that this metadata is that server's own, and that the server supports enough

Runs in the author's command. Every document is untrusted: it is requested through egress, like every request of the
daemon, with one GET, a size limit and a deadline; redirects are not followed.

Rules
- Requests go only to public addresses, to those that the settings allow (`egress.private`), and for a local server to this
  machine. So a server on the internet cannot probe the author's own network.
- `resource` is the server's address, or its origin with a leading part of its path. `issuer` is exactly the requested issuer,
  except for the slash of an empty path.
- A server without resource metadata uses the authorization server that the author names. If the author names none, it
  counts as its own authorization server, provided that its origin has the metadata of an authorization server (revision
  2025-03-26 of the protocol).
- The authorization server must list PKCE with S256; otherwise a sign-in is refused.
- Only values that a manifest can hold are used, because a person consents to these values, and the daemon uses them.

Source: Model Context Protocol 2025-11-25, Authorization; RFC 9728 sections 3 and 5, RFC 8414 sections 2 and 3, OpenID Connect
Discovery 1.0 section 4, RFC 9207 section 3. Not here: signing in (mcp_signin.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import anyio
import msgspec

from aileron.config import Settings
from aileron.egress import Egress, EgressRequest
from aileron.egress.own import OwnAnswer, ask, own_grant
from aileron.egress.refusal import RefusedError
from aileron.egress.url import Url, parse_url
from aileron.importing.challenges import Bearer, is_scope
from aileron.importing.reading import DocumentError
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject, checked_text, list_of, maybe_text
from aileron.model.visible import visible
from aileron.oauth.answers import read_json, same_issuer
from aileron.oauth.problems import ProviderError
from aileron_connector.failures import redirect_place

__all__ = ["Authorization", "Discovery", "NoMetadataError", "settings_for"]

_MAX_BYTES: Final = 64 << 10
"""Maximum size of a metadata document in bytes; known ones have 2 KiB."""
_DEADLINE_S: Final = 30.0
"""Seconds to wait for one metadata document."""
_ALL_S: Final = 60.0
"""Seconds to wait for all metadata documents together; there are at most five."""
_MAX_SERVERS: Final = 16
_MAX_SCOPES: Final = 64
"""Maximum number of scopes of a sign-in; the same limit as in a manifest."""
_MAX_NAMES: Final = 1000
"""Maximum number of names in one of a server's lists; some servers list each of their scopes."""
_MAX_URL: Final = 512
"""Maximum number of characters of a URL; the same limit as in a manifest."""
_MAX_TOLD: Final = 200
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1"})
_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_OAUTH: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"
_FIELDS: Final = (("Accept", "application/json"), ("User-Agent", "aileron"))


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the discovery: where to sign in, for which resource and scopes, and how clients register there."""

    resource: str
    issuer: str
    authorize_url: str
    token_url: str
    scopes: tuple[str, ...]
    """Scopes to request; if empty, the authorization server decides."""
    revocation_url: str | None = None
    registration_url: str | None = None
    takes_documents: bool = False
    """True if the address of a client's own metadata is accepted as its client id."""
    names_issuer: bool = False
    """True if the authorization server states that its responses have `iss`."""


class NoMetadataError(DocumentError):
    """Error: the server has no information about signing in, neither in a challenge nor at its well-known addresses."""


class _Absent(Exception):
    """Error: the document is absent. The message says what was found instead."""


def settings_for(settings: Settings, server: Url, asked: Sequence[str]) -> Settings:
    """Return settings that also allow the addresses in `asked` that are on this machine. If the server is not on this machine,
    return `settings` unchanged.
    """
    if server.host not in _LOOPBACK:
        return settings
    urls = [url for url in map(parse_url, asked) if url.host in _LOOPBACK]
    return msgspec.structs.replace(
        settings,
        egress_private=settings.egress_private | {url.destination for url in urls},
        egress_private_plain=settings.egress_private_plain | {url.destination for url in urls if url.scheme == "http"},
    )


class Discovery:
    """The discovery for one server; its deadline begins when it is created.

    `url` is the server's address. Every failure is a DocumentError.
    """

    def __init__(self, url: str, egress: Egress, settings: Settings) -> None:
        self._server: Final = _address(url, "the server")
        self._egress: Final = egress
        self._settings: Final = settings
        self._until: Final = anyio.current_time() + _ALL_S

    async def found(self, challenge: Bearer | None, *, auth_server: str | None, scopes: Sequence[str]) -> Authorization:
        """Find out where a person signs in: from the metadata that `challenge` names, or from the server's well-known
        addresses.

        `auth_server` chooses one of several authorization servers; `scopes`, if any, replace those that the server requests.
        """
        try:
            where, resource = await self._resource(challenge)
        except NoMetadataError as missing:
            return await self._without_resource(missing, challenge, auth_server, scopes)
        name = self._checked_resource(resource, where)
        supported = _names(resource, "scopes_supported", where)
        return await self._of(name, _chosen_issuer(resource, where, auth_server), challenge, scopes, supported)

    async def _without_resource(
        self, missing: NoMetadataError, challenge: Bearer | None, auth_server: str | None, scopes: Sequence[str]
    ) -> Authorization:
        """Return the authorization for a server without resource metadata: from the author's authorization server, or
        from the server's own origin if that has an authorization server's metadata (MCP 2025-03-26, Authorization,
        section 2.3).
        """
        origin = f"{self._server.scheme}://{self._server.authority}"
        name = f"{origin}{self._server.path}"
        if auth_server is not None:
            return await self._of(name, auth_server, challenge, scopes, ())
        try:
            return await self._of(name, origin, challenge, scopes, ())
        except DocumentError as error:
            raise NoMetadataError(f"{missing}; nor is its origin an authorization server: {error}") from None

    async def _of(
        self, name: str, issuer: str, challenge: Bearer | None, scopes: Sequence[str], supported: Sequence[str]
    ) -> Authorization:
        issuer, at, metadata = await self._issuer(issuer)
        said = () if challenge is None else challenge.scopes
        wanted = tuple(scopes) or _with_renewal(tuple(said or supported), metadata, at)
        _check_scopes(wanted)
        return _authorization(name, issuer, metadata, at, wanted)

    # the protected resource

    async def _resource(self, challenge: Bearer | None) -> tuple[str, JSONObject]:
        """Return the address of the protected resource's metadata, and the metadata itself."""
        if challenge is not None and challenge.resource_metadata:
            url = challenge.resource_metadata
            try:
                return url, await self._document(url, "the server's resource_metadata")
            except _Absent as absent:
                raise DocumentError(f"{_told(url)}, which the server names: {absent}") from None
        server = self._server
        origin = f"{server.scheme}://{server.authority}"
        # RFC 9728, section 3.1: only the slash after the host is dropped.
        path = "" if server.path == "/" else server.path
        places = [f"{origin}{_RESOURCE}{path}", *([f"{origin}{_RESOURCE}"] if path else [])]
        fix = "give a token: --auth bearer or --auth header:NAME"
        return await self._first(places, NoMetadataError, f"the server has no metadata for a sign-in; {fix}")

    def _checked_resource(self, resource: JSONObject, where: str) -> str:
        """Return the server's resource identifier from its metadata. It must be the server's address or a leading part
        of that (RFC 9728, 3.3; MCP, canonical URI).
        """
        name = resource.get("resource")
        if not isinstance(name, str):
            raise DocumentError(f"{where}: no resource, which says which server it is about")
        found, server = _named(name, f"{where}: resource"), self._server
        if (found.scheme, found.destination) != (server.scheme, server.destination):
            raise DocumentError(
                f"{where}: it is about {_told(name)}, and the server is at "
                f"{server.scheme}://{server.authority}: give the address that the service names, or tell the service"
            )
        own, its = server.path.rstrip("/"), found.path.rstrip("/")
        if own != its and not own.startswith(f"{its}/"):
            raise DocumentError(
                f"{where}: it is about the path {found.path}, and the server's is {server.path}: give the address that the "
                "service names, or tell the service"
            )
        methods = _names(resource, "bearer_methods_supported", where)
        if methods and "header" not in methods:
            raise DocumentError(f"{where}: the server takes no token in the Authorization header")
        return name

    # the authorization server

    async def _issuer(self, issuer: str) -> tuple[str, str, JSONObject]:
        """Return an authorization server's issuer identifier, the address of its metadata, and the metadata.

        Addresses are tried in the order of the specification: the well-known path of RFC 8414, then OpenID's, first
        inserted before the issuer's path and then appended to it.
        """
        url = _named(issuer, "the authorization server")
        self._check_local(url, "the authorization server")
        origin, path = f"{url.scheme}://{url.authority}", url.path.rstrip("/")
        places = [f"{origin}{_OAUTH}{path}", f"{origin}{_OPENID}{path}"]
        if path:
            places.append(f"{origin}{path}{_OPENID}")
        problem = f"the authorization server {_told(issuer)} has no metadata; tell the service"
        at, metadata = await self._first(places, DocumentError, problem)
        said = metadata.get("issuer")
        if not isinstance(said, str) or not same_issuer(said, issuer):
            raise DocumentError(
                f"{at}: its issuer is {_told(said) if isinstance(said, str) else 'none'}, and {issuer} was asked for; "
                "they have to be the same (RFC 8414, section 3.3): tell the service"
            )
        for key in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"):
            if key in metadata:
                self._check_local(_endpoint(metadata, key, at), f"{at}: {key}")
        return said, at, metadata

    def _check_local(self, url: Url, told: str) -> None:
        """Raise DocumentError if `url` is on this machine and the server is not.

        Only a local server may cause requests to this machine.
        """
        if url.host in _LOOPBACK and self._server.host not in _LOOPBACK:
            raise DocumentError(f"{told} is at {url.authority}, on this machine, and the server is not")

    # documents

    async def _first(self, places: Sequence[str], kind: type[DocumentError], problem: str) -> tuple[str, JSONObject]:
        """Return the first of the addresses `places` that has metadata, and the metadata itself. Raises `kind` with
        `problem` if no address has metadata.
        """
        absent = []
        for place in places:
            try:
                return place, await self._document(place, "an address of metadata")
            except _Absent as why:
                absent.append(f"{place}: {why}")
        raise kind(f"{problem} ({'; '.join(absent)})")

    async def _document(self, text: str, told: str) -> JSONObject:
        """Fetch a metadata document and return its JSON object. Null values are left out, because some servers write
        null for a missing value. `told` names the URL `text` in errors.

        Raises `_Absent` if there is no document, and DocumentError if it cannot be used.
        """
        url = _address(text, told)
        self._check_local(url, told)
        status, kind, data, place = await self._fetched(text, url)
        if 300 <= status <= 399:
            raise _Absent(f"it redirects{place} (status {status}), which is not followed")
        if 400 <= status <= 499:
            raise _Absent(f"status {status}")
        if status != 200:
            raise DocumentError(f"{text}: status {status}; try again later")
        if kind != "application/json":
            raise _Absent(f"it is {_told(kind) or 'of no content type'}, and no application/json")
        try:
            return {key: value for key, value in read_json(data, url.authority).items() if value is not None}
        except ProviderError:
            raise DocumentError(f"{text}: it is not one JSON object with each key once") from None

    async def _fetched(self, text: str, url: Url) -> tuple[int, str, bytes, str]:
        """Request a URL; return the response's status, media type and body, and ` to ADDRESS` if the response is a
        redirect, otherwise an empty string.
        """
        to = url.destination
        allowed = settings_for(self._settings, self._server, [text])
        grant = own_grant(to, allowed, _MAX_BYTES)
        request, deadline = EgressRequest("GET", text, _FIELDS), min(anyio.current_time() + _DEADLINE_S, self._until)
        try:
            answer = await ask(self._egress, request, grant, deadline)
        except AileronError as error:
            problem = error.failure.message
        else:
            location = next((value for name, value in answer.headers if name.lower() == "location"), "")
            place = redirect_place(location, text)
            return answer.status, _kind_of(answer), answer.body, f" to {place}" if place else ""
        raise DocumentError(f"{text}: {problem}")


def _kind_of(answer: OwnAnswer) -> str:
    """Return the media type of a response without parameters; the first one if a server sends several."""
    kinds = [value for name, value in answer.headers if name.lower() == "content-type"]
    return "".join(kinds[:1]).partition(";")[0].strip().lower()


def _address(text: str, told: str) -> Url:
    """Parse a URL with egress's own parser; `told` names the URL in errors. Raises DocumentError unless it is https, or
    http on this machine.
    """
    try:
        url = parse_url(text)
    except RefusedError as error:
        raise DocumentError(f"{told} {_told(text)}: {error}") from None
    if url.scheme != "https" and url.host not in _LOOPBACK:
        raise DocumentError(f"{told} {_told(text)} is not https")
    if len(text) > _MAX_URL:
        raise DocumentError(f"{told} {_told(text)} has more than {_MAX_URL} characters")
    return url


def _endpoint(metadata: JSONObject, key: str, at: str) -> Url:
    value = metadata[key]
    if not isinstance(value, str):
        raise DocumentError(f"{at}: {key} is no address")
    return _named(value, f"{at}: {key}")


def _named(text: str, told: str) -> Url:
    """Parse an address that will be written to the manifest; `told` names it in errors. Raises DocumentError if it has
    a query or is not in canonical form.
    """
    url = _address(text, told)
    if url.query is not None:
        raise DocumentError(f"{told} {_told(text)} has a query, which is not supported here")
    if text not in (spelled := f"{url.scheme}://{url.authority}{url.path}", spelled.removesuffix("/")):
        raise DocumentError(f"{told} {_told(text)} is spelled otherwise than {spelled}: tell the service")
    return url


def _chosen_issuer(resource: JSONObject, where: str, wanted: str | None) -> str:
    servers = _names(resource, "authorization_servers", where)
    if not servers:
        raise DocumentError(f"{where}: it names no authorization server; give a token: --auth bearer")
    if len(servers) > _MAX_SERVERS:
        raise DocumentError(f"{where}: {len(servers)} authorization servers; at most {_MAX_SERVERS}")
    if wanted is None:
        return servers[0]
    if not any(same_issuer(server, wanted) for server in servers):
        known = ", ".join(_told(server) for server in servers)
        raise DocumentError(f"--auth-server {_told(wanted)}: the server does not name it; it names {known}")
    return wanted


def _check_scopes(scopes: Sequence[str]) -> None:
    if len(scopes) > _MAX_SCOPES:
        raise DocumentError(f"{len(scopes)} scopes, and a connector has at most {_MAX_SCOPES}: choose with --scope")
    for scope in scopes:
        if not is_scope(scope):
            raise DocumentError(f"{_told(scope)!r} is no scope that can be asked for: choose others with --scope")


def _with_renewal(scopes: tuple[str, ...], metadata: JSONObject, at: str) -> tuple[str, ...]:
    """Return `scopes`, plus `offline_access`, which makes tokens renewable, if the authorization server's metadata
    lists that scope. A server refuses the whole sign-in for an unknown scope.

    `offline_access` is not added alone: if no scope is requested, the authorization server decides.
    """
    known = _names(metadata, "scopes_supported", at)
    is_more = scopes and "offline_access" in known and "offline_access" not in scopes
    return (*scopes, "offline_access") if is_more else scopes


def _authorization(resource: str, issuer: str, metadata: JSONObject, at: str, scopes: tuple[str, ...]) -> Authorization:
    """Return the parts of an authorization server's metadata that a sign-in uses. Raises DocumentError if a needed part
    is missing or unsupported.
    """
    for problem in _missing(metadata, at):
        raise DocumentError(f"{at}: {problem}")
    return Authorization(
        resource=resource,
        issuer=issuer,
        authorize_url=checked_text(metadata["authorization_endpoint"]),
        token_url=checked_text(metadata["token_endpoint"]),
        revocation_url=maybe_text(metadata.get("revocation_endpoint")),
        registration_url=maybe_text(metadata.get("registration_endpoint")),
        scopes=scopes,
        takes_documents=metadata.get("client_id_metadata_document_supported") is True,
        names_issuer=metadata.get("authorization_response_iss_parameter_supported") is True,
    )


def _missing(metadata: JSONObject, at: str) -> Iterator[str]:
    for key in ("authorization_endpoint", "token_endpoint"):
        if key not in metadata:
            yield f"no {key}"
    if "code" not in _names(metadata, "response_types_supported", at):
        yield "it does not say that it gives codes (response_types_supported has no code)"
    if "S256" not in _names(metadata, "code_challenge_methods_supported", at):
        yield (
            "it does not say that it supports PKCE with S256 (code_challenge_methods_supported), without which a code could be "
            "used by whoever sees it: tell the service, or give a token: --auth bearer"
        )
    if "authorization_code" not in (_names(metadata, "grant_types_supported", at) or ("authorization_code",)):
        yield "it does not take codes (grant_types_supported)"
    methods = _names(metadata, "token_endpoint_auth_methods_supported", at)
    if methods and not {"none", "client_secret_post"} & set(methods):
        yield f"clients are authenticated by {_told(', '.join(methods))} only, which is not supported"


def _names(document: JSONObject, key: str, at: str) -> tuple[str, ...]:
    """Return the list of strings under `key`, without duplicates; empty if the key is absent."""
    found = document.get(key)
    if found is None:
        return ()
    names = [name for name in list_of(found) if isinstance(name, str)]
    if not isinstance(found, list) or len(found) > _MAX_NAMES or len(names) < len(found):
        raise DocumentError(f"{at}: {key} is not a list of strings")
    return tuple(dict.fromkeys(names))


def _told(text: str) -> str:
    """Return untrusted text for use in a sentence: escaped and shortened."""
    return visible(text[:_MAX_TOLD])
