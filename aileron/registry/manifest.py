"""A connector's `manifest.toml`: what it asks of the supervisor, as a value that has passed every check.

Pure. The manifest is a publisher's request; nothing is granted that it does not name, so every key is known,
every name exact, and a request that contradicts itself is refused rather than read kindly.

Rules
- Hosts are exact `host:port` pairs, at most 32; no wildcards.
- A credential is a kind, never a concrete one, and its wire form cannot break a header.
- Asking for hosts needs the `http` or `tcp` host function; asking for a credential needs hosts.
- `hosts = ["bound-at-build"]` is a source manifest's; only `aileron connector build --host` reads it.

Source: docs/reference/connector-manifest.md, checked against `SCHEMA`. Not here: hashing (content.py),
whether a person agrees to what is asked.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Final, get_args
from urllib.parse import urlsplit

import msgspec

from aileron.model.document import Field, Kind, Table, read_document, refusal
from aileron.model.failure import Boundary
from aileron.model.manifest import (
    ConnectorManifest,
    CredentialKind,
    CredentialNeed,
    HostFunction,
    LimitsSpec,
    OAuth2Provider,
)
from aileron.model.names import Fqn, HostPort, check_pin, check_semver

__all__ = ["SCHEMA", "UNBOUND_HOSTS", "WASI_NAMES", "parse_connector_manifest"]

UNBOUND_HOSTS: Final = "bound-at-build"
_MAX_HOSTS: Final = 32
"""Hosts of one connector: they travel in one frame header, and a person reads them before agreeing."""
_MAX_INTENTS: Final = 64
"""Intents: a catalogue's search terms; real connectors name a dozen."""

SCHEMA: Final = {
    "connector": Field(
        Kind.TABLE,
        required=True,
        fields={
            "name": Field(Kind.STRING, required=True),
            "version": Field(Kind.STRING, required=True),
            "publisher": Field(Kind.STRING),
            "provenance_hash": Field(Kind.STRING),
            "idempotency": Field(Kind.TABLE, fields={"default": Field(Kind.STRING, required=True)}),
        },
    ),
    "capabilities": Field(
        Kind.TABLE,
        fields={
            "network": Field(Kind.TABLE, fields={"hosts": Field(Kind.STRINGS, required=True)}),
            "credential": Field(
                Kind.TABLE,
                fields={
                    "kind": Field(Kind.STRING, required=True),
                    "scope": Field(Kind.STRING, required=True),
                    "header": Field(Kind.STRING),
                    "format": Field(Kind.STRING),
                    "query": Field(Kind.STRING),
                    "oauth2": Field(
                        Kind.TABLE,
                        fields={
                            "authorize_url": Field(Kind.STRING, required=True),
                            "token_url": Field(Kind.STRING, required=True),
                            "client_id": Field(Kind.STRING, required=True),
                            "client_secret": Field(Kind.STRING),
                            "scopes": Field(Kind.STRINGS, required=True),
                        },
                    ),
                },
            ),
            "runtime": Field(Kind.TABLE, fields={"imports": Field(Kind.STRINGS, required=True)}),
        },
    ),
    "limits": Field(
        Kind.TABLE,
        fields={
            "memory_mb": Field(Kind.INTEGER),
            "timeout_s": Field(Kind.INTEGER),
            "subprocess": Field(Kind.BOOLEAN),
        },
    ),
    "provides": Field(Kind.TABLE, fields={"intents": Field(Kind.STRINGS)}),
}

WASI_NAMES: Final[dict[str, HostFunction | None]] = {
    "wasi:http/outgoing-handler": HostFunction.HTTP,
    "wasi:sockets/tcp": HostFunction.TCP,
    "wasi:cli/stdout": HostFunction.LOG,
    "wasi:cli/stderr": HostFunction.LOG,
    "wasi:logging/logging": HostFunction.LOG,
    "aileron:audit/emit": HostFunction.AUDIT,
    # The kernel gives these to every process; naming them asks for nothing.
    "wasi:clocks/wall-clock": None,
    "wasi:clocks/monotonic-clock": None,
    "wasi:random/random": None,
}
"""Names of the component model's interfaces, accepted for manifests written for it."""

_MEMORY_MB: Final = range(1, 1024 + 1)
_TIMEOUT_S: Final = range(1, 300 + 1)
_KINDS: Final[tuple[str, ...]] = get_args(CredentialKind)
_IDEMPOTENCY: Final = {"idempotent": True, "not_idempotent": False}

# RFC 9110 section 5.6.2, token. What frames or routes a request is the supervisor's to write, whoever asks.
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_RESERVED_HEADERS: Final = frozenset(
    "accept-encoding connection content-encoding content-length content-type cookie date expect host keep-alive "
    "location origin referer set-cookie te trailer transfer-encoding upgrade via".split()
)
_FORMAT: Final = re.compile(r"[\x20-\x7e]*\{key\}[\x20-\x7e]*")
_QUERY: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}")  # RFC 3986 section 2.3, unreserved: needs no escaping
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1"})


def parse_connector_manifest(data: bytes, *, file: str, allow_unbound: bool = False) -> ConnectorManifest:
    """Read `manifest.toml`; `file` is how errors name it. AileronError(invalid_request) with line and cure.

    `allow_unbound` reads `hosts = ["bound-at-build"]` as no hosts: only for what `connector build` will bind.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 at byte {error.start}"
        raise refusal(file, None, problem, Boundary.CONNECTOR_MANIFEST) from None
    table = read_document(text, SCHEMA, file=file, boundary=Boundary.CONNECTOR_MANIFEST)
    connector = table.table("connector")
    capabilities = table.table("capabilities")
    hosts = _hosts(capabilities.table("network"), allow_unbound)
    imports = _imports(capabilities.table("runtime"))
    credential = _credential(capabilities) if "credential" in capabilities else None
    _check_consistent(capabilities, imports, has_credential=credential is not None)
    return ConnectorManifest(
        name=connector.parsed("name", Fqn.parse),
        version=connector.parsed("version", check_semver),
        publisher=connector.maybe_string("publisher"),
        provenance_hash=connector.parsed("provenance_hash", check_pin) if "provenance_hash" in connector else None,
        idempotent_by_default=_is_idempotent(connector),
        hosts=hosts,
        credential=credential,
        oauth2=_oauth2(capabilities.table("credential")),
        imports=imports,
        limits=_limits(table.table("limits")),
        intents=_intents(table.table("provides")),
    )


def _is_idempotent(connector: Table) -> bool:
    if "idempotency" not in connector:
        return True
    table = connector.table("idempotency")
    word = table.string("default")
    if word not in _IDEMPOTENCY:
        raise table.refuse("default", f"default {word!r} is not one of {', '.join(_IDEMPOTENCY)}")
    return _IDEMPOTENCY[word]


def _hosts(network: Table, allow_unbound: bool) -> tuple[HostPort, ...]:
    texts = network.strings("hosts")
    if UNBOUND_HOSTS in texts:
        if not allow_unbound or len(texts) != 1:
            cure = "build it with `aileron connector build DIR --host NAME:PORT`"
            raise network.refuse("hosts", f"hosts is the placeholder {UNBOUND_HOSTS!r}: {cure}")
        return ()
    hosts = tuple(network.attempt("hosts", HostPort.parse, text) for text in texts)
    if len(hosts) > _MAX_HOSTS or len(set(hosts)) != len(hosts):
        raise network.refuse("hosts", f"{len(hosts)} hosts; at most {_MAX_HOSTS}, each once")
    if "hosts" in network and not hosts:
        raise network.refuse("hosts", "hosts is empty; leave [capabilities.network] out for no network")
    return hosts


def _imports(runtime: Table) -> frozenset[HostFunction]:
    functions = (_import(runtime, name) for name in runtime.strings("imports"))
    return frozenset(function for function in functions if function is not None)


def _import(runtime: Table, name: str) -> HostFunction | None:
    if name in HostFunction.__members__.values():
        return HostFunction(name)
    interface = name.split("@", 1)[0]  # wasi:http/outgoing-handler@0.2.0
    if interface in WASI_NAMES:
        return WASI_NAMES[interface]
    known = [*HostFunction, *WASI_NAMES]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {str(near[0])!r}?" if near else f"expected some of {', '.join(HostFunction)}"
    raise runtime.refuse("imports", f"unknown host function {name!r}; {hint}")


def _credential(capabilities: Table) -> CredentialNeed:
    table = capabilities.table("credential")
    kind = table.string("kind")
    if kind not in _KINDS:
        raise table.refuse("kind", f"kind {kind!r} is not one of {', '.join(_KINDS)}")
    if not table.string("scope").strip():
        raise table.refuse("scope", "scope is empty; say for people what the credential is used for")
    wire = _wire_form(table, kind)
    return CredentialNeed(kind=msgspec.convert(kind, CredentialKind), scope=table.string("scope"), **wire)


def _wire_form(table: Table, kind: str) -> dict[str, Any]:
    """`header`, `format`, `query`: how an api_key travels. The other kinds have one form and may not name
    another.
    """
    wire = {key: table.string(key) for key in ("header", "format", "query") if key in table}
    for key in wire:
        if kind != "api_key":
            raise table.refuse(key, f'{key} is for kind = "api_key", and this is {kind!r}')
    if "query" in wire and len(wire) > 1:
        raise table.refuse("query", "query and header or format: a key travels in one place")
    if "header" in wire and not _is_header(wire["header"]):
        raise table.refuse("header", f"header {wire['header']!r} is not a field name, or is not a credential's")
    if "format" in wire and (not _FORMAT.fullmatch(wire["format"]) or wire["format"].count("{") != 1):
        raise table.refuse("format", f"format {wire['format']!r} is not printable ASCII with {{key}} once")
    if "query" in wire and not _QUERY.fullmatch(wire["query"]):
        raise table.refuse("query", f"query {wire['query']!r} is not a parameter name of letters, digits, '._~-'")
    return wire


def _is_header(name: str) -> bool:
    lower = name.lower()
    is_reserved = lower in _RESERVED_HEADERS or lower.startswith(("proxy-", "sec-", "x-forwarded-"))
    return _TOKEN.fullmatch(name) is not None and not is_reserved


def _oauth2(credential: Table) -> OAuth2Provider | None:
    is_oauth2 = "kind" in credential and credential.string("kind") == "oauth2"
    if is_oauth2 != ("oauth2" in credential):
        raise credential.refuse("kind", 'kind = "oauth2" and [capabilities.credential.oauth2] go together')
    if not is_oauth2:
        return None
    table = credential.table("oauth2")
    scopes = table.strings("scopes")
    if not scopes or not all(scopes) or any(" " in scope for scope in scopes):
        raise table.refuse("scopes", "scopes is not a list of the provider's scopes, one string each")
    return OAuth2Provider(
        authorize_url=_provider_url(table, "authorize_url"),
        token_url=_provider_url(table, "token_url"),
        client_id=_present(table, "client_id"),
        client_secret=_present(table, "client_secret") if "client_secret" in table else None,
        scopes=scopes,
    )


def _present(table: Table, key: str) -> str:
    value = table.string(key)
    if not value or value.startswith("bound-at-"):
        raise table.refuse(key, f"{key} is {value!r}; a released manifest has the real one")
    return value


def _provider_url(table: Table, key: str) -> str:
    """An https address, or http on loopback for tests. The egress parser decides again when it is used."""

    def check(text: str) -> str:
        url = urlsplit(text)
        is_safe = url.scheme == "https" or (url.scheme == "http" and url.hostname in _LOOPBACK)
        if not is_safe or not url.hostname or "@" in url.netloc or url.fragment or not text.isascii():
            raise ValueError(f"{text!r} is not an https address (http on localhost) without user or fragment")
        return text

    return table.parsed(key, check)


def _check_consistent(capabilities: Table, imports: frozenset[HostFunction], *, has_credential: bool) -> None:
    has_network = "network" in capabilities
    if has_network and not imports & {HostFunction.HTTP, HostFunction.TCP}:
        problem = '[capabilities.network] without "http" or "tcp" in [capabilities.runtime] imports'
        raise capabilities.refuse("network", f"{problem}: the hosts could not be reached")
    if has_credential and not has_network:
        problem = "[capabilities.credential] without [capabilities.network]"
        raise capabilities.refuse("credential", f"{problem}: the credential could go nowhere")


def _limits(table: Table) -> LimitsSpec:
    defaults = LimitsSpec()
    return LimitsSpec(
        memory_mb=_within(table, "memory_mb", defaults.memory_mb, _MEMORY_MB),
        timeout_s=_within(table, "timeout_s", defaults.timeout_s, _TIMEOUT_S),
        subprocess=table.boolean("subprocess", defaults.subprocess),
    )


def _within(table: Table, key: str, default: int, bounds: range) -> int:
    value = table.integer(key, default)
    if value not in bounds:
        raise table.refuse(key, f"{key} = {value} is not from {bounds.start} to {bounds.stop - 1}")
    return value


def _intents(provides: Table) -> tuple[str, ...]:
    intents = provides.strings("intents")
    if len(intents) > _MAX_INTENTS or not all(intents):
        raise provides.refuse("intents", f"intents is not a list of at most {_MAX_INTENTS} names")
    return intents
