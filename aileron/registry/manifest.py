"""A connector's `manifest.toml`: what it asks of the supervisor, as a value that has passed every check.

Pure. The manifest is a publisher's request; nothing is granted that it does not name, so every key is known,
every name exact, and a request that contradicts itself is refused rather than read kindly.

Rules
- Hosts are exact `host:port` pairs, at most 32; no wildcards.
- A credential is a kind, never a concrete one, and its wire form cannot break a header.
- Asking for hosts needs the `http` or `tcp` host function; asking for a credential needs hosts.
- A login is at one of the hosts, by one protocol; an ssh login stands alone, since its server has a key, and names its commands.
- `hosts = ["bound-at-build"]`, `logins = ["imap://bound-at-build"]` and `client_id = "bound-at-release"` are a source manifest's;
  what is installed has real ones.
- A provider's addresses are spelled in one way, the one in which egress/url.py reads them as they stand: nobody who reads one
  later can understand another host or path by it.
- Operations are all there or not there at all: one that is not among them is refused before a person is asked.
- Whoever signs in does so as the publisher's application, or as a client that is registered at an address of the manifest.
- What this side says when it sends a person to a provider, or what would replace it, is not a manifest's to say.

Source: docs/reference/connector-manifest.md, checked against `SCHEMA`. Not here: hashing (content.py),
whether a person agrees to what is asked.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence, Set
from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET

from aileron.model.commands import check_command_pattern
from aileron.model.document import MAX_NUMBER, Field, Kind, Table, read_document, refusal
from aileron.model.failure import Boundary
from aileron.model.login import (
    HAVE_PREVIEWED,
    HAVE_ROLES,
    MAX_COMMAND_PATTERN,
    MAX_COMMANDS,
    MAX_LOGINS,
    PROTOCOLS,
    LoginTarget,
)
from aileron.model.manifest import (
    ConnectorManifest,
    CredentialKind,
    CredentialNeed,
    HostFunction,
    LimitsSpec,
    OAuth2Provider,
    Operation,
    OperationLogin,
    Parameter,
    ParameterType,
)
from aileron.model.names import (
    FQN,
    MAX_VERSION,
    OP_NAME,
    PIN,
    SEMVER,
    Fqn,
    HostPort,
    check_host,
    check_pin,
    check_semver,
)

__all__ = [
    "MAX_ENUM",
    "MAX_LENGTH",
    "MAX_OPERATIONS",
    "MAX_PARAMETERS",
    "PARAMETER_NAME",
    "SCHEMA",
    "UNBOUND_HOSTS",
    "UNBOUND_LOGIN",
    "WASI_NAMES",
    "may_be_credential",
    "parse_connector_manifest",
]

UNBOUND_HOSTS: Final = "bound-at-build"
UNBOUND_LOGIN: Final = re.compile(rf"({'|'.join(PROTOCOLS)})://{UNBOUND_HOSTS}")
"""Of a source manifest: the protocol of a login whose host is bound at build."""
_MAX_HOSTS: Final = 32
"""Hosts of one connector: they travel in one frame header, and a person reads them before agreeing."""
_MAX_INTENTS: Final = 64
"""Intents: a catalogue's search terms; real connectors name a dozen."""
MAX_OPERATIONS: Final = 256
"""Operations of one connector; the widest API wrapped so far has about a hundred."""
MAX_PARAMETERS: Final = 64
"""Parameters of one operation: as many as a table of an action's input may have."""
MAX_ENUM: Final = 256
"""Values of one `enum`, as of an action's input."""
MAX_LENGTH: Final = 1 << 20
"""The largest count that a parameter may name: all arguments of a step together have 48 KiB."""
PARAMETER_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""What Python takes for one, in ASCII."""
_PARAMETER_TYPES: Final[tuple[ParameterType, ...]] = get_args(ParameterType)

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
_HAVE_XOAUTH2: Final = frozenset({"smtp", "imap", "pop3"})
_LOGIN_KINDS: Final = frozenset({"login", "oauth2"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1"})

_UNBOUND: Final = "bound-at-"
_PLACEHOLDER: Final = re.compile(rf"{_UNBOUND}.*|.*(?:<.*>|\$\{{|\{{\{{).*")
_MAX_CLIENT: Final = 512
"""Characters; providers give out less than a hundred."""
_CLIENT: Final = re.compile(rf"[\x20-\x7e]{{1,{_MAX_CLIENT}}}")  # RFC 6749 appendix A, VSCHAR
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")  # RFC 6749 section 3.3, scope-token
_MAX_SCOPES: Final = 64
"""Scopes of one connector: a person reads them before agreeing; the widest known application has a dozen."""
_PCHAR: Final = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_PROVIDER_URL: Final = re.compile(
    rf"(?P<scheme>https?)://(?P<host>[a-z0-9.-]+)(?::(?P<port>[1-9][0-9]{{0,4}}))?(?P<path>(?:/{_PCHAR}*)*)"
)
_QUERY_OF_RESOURCE: Final = re.compile(rf"(?:{_PCHAR}|[/?])*")
_ADDRESS: Final = rf"https?://[a-z0-9.-]+(?::[1-9][0-9]{{0,4}})?(?:/{_PCHAR}*)*"
"""The same for an editor, without names of groups, which ECMA 262 spells otherwise."""
_MAX_PROVIDER_URL: Final = 512
"""Characters of a provider's address: they are shown to a person, and written down."""
_DOTS: Final = re.compile(r"/(?:\.|%2e){1,2}(?:;|/|$)", re.IGNORECASE)
_PARAM: Final = re.compile(r"[A-Za-z0-9._~-]{1,64}")
_PARAM_VALUE: Final = re.compile(r"[\x20-\x7e]{1,256}")
_MAX_PARAMS: Final = 16
"""Parameters of one provider: known ones want two."""
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

_OAUTH2: Final = {
    "authorize_url": Field(
        Kind.STRING,
        required=True,
        says="an [address](#addresses-of-a-provider): where the person is sent to sign in",
        pattern=_ADDRESS,
        example="https://accounts.example.com/o/oauth2/auth",
    ),
    "token_url": Field(
        Kind.STRING,
        required=True,
        says="an address: where tokens are issued and renewed. No "
        "[request of the connector](egress.md#the-providers-endpoints) can reach it",
        pattern=_ADDRESS,
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
        pattern=_ADDRESS,
        example="https://oauth2.example.com/register",
    ),
    "resource": Field(
        Kind.STRING,
        says="what the tokens are for, as the service names itself (RFC 8707): an address that may have a query, such as "
        '`resource = "https://mcp.example.com/mcp"`. It is sent with every request for tokens',
        pattern=_ADDRESS + rf"(?:\?(?:{_PCHAR}|[/?])*)?",
        example="https://mcp.example.com/mcp",
    ),
    "scopes": Field(
        Kind.STRINGS,
        required=True,
        says="the provider's scopes, each once; `[]` if the provider needs none",
        bounds=range(_MAX_SCOPES + 1),
        is_unique=True,
        pattern=_SCOPE.pattern,
        example=["openid", "email"],
    ),
    "issuer": Field(
        Kind.STRING,
        says='an address: the provider as it names itself, such as `issuer = "https://accounts.example.com"`. An answer from '
        "another issuer is refused (RFC 9207)",
        pattern=_ADDRESS,
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
        pattern=_ADDRESS,
        example="https://oauth2.example.com/device/code",
    ),
    "revocation_url": Field(
        Kind.STRING,
        says="an address: where `aileron binding revoke` revokes tokens (RFC 7009). Without it, they are only deleted here, and "
        "expire on their own",
        pattern=_ADDRESS,
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

_CREDENTIAL: Final = {
    "kind": Field(Kind.STRING, required=True, says="kind of credential, never a specific one", choices=_KINDS),
    "scope": Field(
        Kind.STRING,
        required=True,
        says="what the credential is used for, as people read it",
        pattern=r".*\S.*",
        example="Send mail in your name",
    ),
    "header": Field(
        Kind.STRING,
        says="`api_key` only: the header that carries it",
        pattern=_TOKEN.pattern,
        default=CredentialNeed(kind="api_key", scope="").header,
    ),
    "format": Field(
        Kind.STRING,
        says="`api_key` only: the header's value, with `{key}` once",
        pattern=_FORMAT.pattern,
        default=CredentialNeed(kind="api_key", scope="").format,
    ),
    "query": Field(
        Kind.STRING,
        says="`api_key` only: a query parameter that carries it instead",
        pattern=_QUERY.pattern,
        example="api_key",
    ),
    "logins": Field(
        Kind.STRINGS,
        says="`login`, required, and `oauth2` only: [where Aileron logs in](#logins), as `PROTOCOL://HOST:PORT`. "
        f"`PROTOCOL://{UNBOUND_HOSTS}` in sources: `aileron connector build --login PROTOCOL://NAME:PORT` replaces it",
        bounds=range(1, MAX_LOGINS + 1),
        is_unique=True,
        pattern=rf"({'|'.join(PROTOCOLS)})(\+(tls|starttls|plain))?://([a-z0-9.-]+:[1-9][0-9]{{0,4}}|{UNBOUND_HOSTS})",
        example=["imap://imap.example.com:993"],
    ),
    "commands": Field(
        Kind.STRINGS,
        says="`ssh` logins only, required: [what may be executed](#commands), such as `git-upload-pack 'team/*.git'`",
        bounds=range(1, MAX_COMMANDS + 1),
        is_unique=True,
        pattern=rf"[!-~](?:[ -~]{{0,{MAX_COMMAND_PATTERN - 2}}}[!-~])?",
        example=["git-upload-pack 'team/*.git'"],
    ),
    "oauth2": Field(Kind.TABLE, says="the publisher's own application at the provider", fields=_OAUTH2),
}

_TYPES: Final = "|".join(_PARAMETER_TYPES)
_PARAMETER: Final = {
    "name": Field(
        Kind.STRING, required=True, says="name of the argument", pattern=PARAMETER_NAME.pattern, example="subject"
    ),
    "required": Field(Kind.BOOLEAN, says="whether each call must have it", default=True),
    "types": Field(
        Kind.STRINGS,
        says=f"allowed types: {', '.join(f'`{name}`' for name in _PARAMETER_TYPES)}. Default: any",
        bounds=range(1, len(_PARAMETER_TYPES) + 1),
        is_unique=True,
        pattern=_TYPES,
        example=["string", "null"],
    ),
    "items": Field(
        Kind.STRINGS,
        says="allowed types of an array's members",
        bounds=range(1, len(_PARAMETER_TYPES) + 1),
        is_unique=True,
        pattern=_TYPES,
        example=["string"],
    ),
    "enum": Field(
        Kind.VALUES,
        says="allowed values of a string or a number: strings and integers",
        bounds=range(1, MAX_ENUM + 1),
        example=["asc", "desc"],
    ),
    "minimum": Field(Kind.NUMBER, says="lowest value of a number"),
    "maximum": Field(Kind.NUMBER, says="highest value of a number"),
    "min_length": Field(Kind.INTEGER, says="lowest number of characters in a string", bounds=range(MAX_LENGTH + 1)),
    "max_length": Field(Kind.INTEGER, says="highest number of characters in a string", bounds=range(MAX_LENGTH + 1)),
}

SCHEMA: Final = {
    "connector": Field(
        Kind.TABLE,
        required=True,
        says="name and version",
        fields={
            "name": Field(
                Kind.STRING,
                required=True,
                says="full name, see [names](names.md)",
                pattern=FQN.pattern,
                example="github://acme/mail",
            ),
            "version": Field(
                Kind.STRING,
                required=True,
                says="strict SemVer",
                pattern=SEMVER.pattern,
                bounds=range(5, MAX_VERSION + 1),
                example="1.2.0",
            ),
            "publisher": Field(Kind.STRING, says="name of the publisher, as people read it", example="Acme, Inc."),
            "document_hash": Field(
                Kind.STRING,
                says="sha256 of the OpenAPI document, or of the MCP server's tools, that it was "
                "[made from](../how-to/import-an-api.md), for whoever compares",
                pattern=PIN.pattern,
            ),
            "provenance_hash": Field(
                Kind.STRING,
                says="sha256 of the program alone, as the publisher released it; checked before every run",
                pattern=PIN.pattern,
            ),
            "idempotency": Field(
                Kind.TABLE,
                says="whether its operations can be run again",
                fields={
                    "default": Field(
                        Kind.STRING,
                        required=True,
                        says="with `not_idempotent`, no step is ever retried automatically, whatever an action says",
                        choices=tuple(_IDEMPOTENCY),
                    )
                },
            ),
        },
    ),
    "capabilities": Field(
        Kind.TABLE,
        says="what it needs; nothing else is granted",
        fields={
            "network": Field(
                Kind.TABLE,
                says="hosts that it can reach",
                fields={
                    "hosts": Field(
                        Kind.STRINGS,
                        required=True,
                        says=f'exact `host:port` pairs. `["{UNBOUND_HOSTS}"]` in the sources of a connector for a service '
                        "that people run: `aileron connector build --host NAME:PORT` replaces it",
                        bounds=range(1, _MAX_HOSTS + 1),
                        is_unique=True,
                        pattern=rf"[a-z0-9.-]+:[1-9][0-9]{{0,4}}|{UNBOUND_HOSTS}",
                        example=["api.example.com:443"],
                    )
                },
            ),
            "credential": Field(Kind.TABLE, says="kind of credential that it needs", fields=_CREDENTIAL),
            "runtime": Field(
                Kind.TABLE,
                says="host functions that it calls",
                fields={
                    "imports": Field(
                        Kind.STRINGS,
                        says=f"host functions that it calls: {', '.join(f'`{name}`' for name in HostFunction)}; none by default",
                        pattern="|".join([*HostFunction, rf"(?:{'|'.join(WASI_NAMES)})(?:@.*)?"]),
                        example=["http", "log"],
                    )
                },
            ),
        },
    ),
    "limits": Field(
        Kind.TABLE,
        says="limits on resources",
        fields={
            "memory_mb": Field(
                Kind.INTEGER,
                says="in addition to what the interpreter needs (nothing, for a compiled program), for all of its "
                "processes [together](jail.md#memory)",
                bounds=_MEMORY_MB,
                default=LimitsSpec().memory_mb,
            ),
            "timeout_s": Field(
                Kind.INTEGER,
                says="seconds for one operation over all its tries, and seconds of CPU time",
                bounds=_TIMEOUT_S,
                default=LimitsSpec().timeout_s,
            ),
            "subprocess": Field(
                Kind.BOOLEAN,
                says="whether it can start processes in its jail: up to 16 with itself, which end with it; needs a control group",
                default=LimitsSpec().subprocess,
            ),
        },
    ),
    "operations": Field(
        Kind.TABLES,
        says="all operations of the connector",
        bounds=range(1, MAX_OPERATIONS + 1),
        fields={
            "name": Field(
                Kind.STRING, required=True, says="name, as in `op`", pattern=OP_NAME.pattern, example="send_email"
            ),
            "rest": Field(
                Kind.BOOLEAN, says="whether it accepts arguments that are not among its parameters", default=False
            ),
            "network": Field(
                Kind.BOOLEAN, says="false if it sends no requests: its hosts need not be allowed", default=True
            ),
            "credential": Field(
                Kind.BOOLEAN, says="false if none of its requests use a credential: no binding is needed", default=True
            ),
            "login": Field(
                Kind.STRING,
                says="`read_only`: it runs only as a database role [that cannot write](#a-role-that-only-reads); `previewed`: it "
                "changes only [what a person saw](#changes-that-a-person-has-seen)",
                choices=get_args(OperationLogin),
            ),
            "parameters": Field(
                Kind.TABLES, says="its arguments", bounds=range(1, MAX_PARAMETERS + 1), fields=_PARAMETER
            ),
        },
    ),
    "provides": Field(
        Kind.TABLE,
        says="how catalogues find it",
        fields={
            "intents": Field(
                Kind.STRINGS,
                says="names for catalogues",
                bounds=range(_MAX_INTENTS + 1),
                pattern=".+",
                example=["send_email"],
            )
        },
    ),
}


def parse_connector_manifest(data: bytes, *, file: str, allow_unbound: bool = False) -> ConnectorManifest:
    """Read `manifest.toml`; `file` is how errors name it. AileronError(invalid_request) with line and cure.

    `allow_unbound` reads `hosts = ["bound-at-build"]` as no hosts, and the placeholders of a client as they stand: only for
    what `connector build` will bind.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        problem = f"not valid UTF-8 (byte {error.start})"
        raise refusal(file, None, problem, Boundary.CONNECTOR_MANIFEST) from None
    table = read_document(text, SCHEMA, file=file, boundary=Boundary.CONNECTOR_MANIFEST)
    connector = table.table("connector")
    capabilities = table.table("capabilities")
    hosts = _hosts(capabilities.table("network"), allow_unbound)
    imports = _imports(capabilities.table("runtime"))
    credential = _credential(capabilities, hosts, imports, allow_unbound) if "credential" in capabilities else None
    _check_consistent(capabilities, imports, has_credential=credential is not None)
    return ConnectorManifest(
        name=connector.parsed("name", Fqn.parse),
        version=connector.parsed("version", check_semver),
        publisher=connector.maybe_string("publisher"),
        document_hash=connector.parsed("document_hash", check_pin) if "document_hash" in connector else None,
        provenance_hash=connector.parsed("provenance_hash", check_pin) if "provenance_hash" in connector else None,
        idempotent_by_default=_is_idempotent(connector),
        hosts=hosts,
        credential=credential,
        oauth2=_oauth2(capabilities.table("credential"), allow_unbound),
        imports=imports,
        limits=_limits(table.table("limits")),
        intents=_intents(table.table("provides")),
        operations=_operations(table, credential, allow_unbound),
    )


def _is_idempotent(connector: Table) -> bool:
    if "idempotency" not in connector:
        return True
    table = connector.table("idempotency")
    return _IDEMPOTENCY[table.string("default")]


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
        raise network.refuse("hosts", "hosts is empty; remove [capabilities.network] if it needs no network")
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


def _credential(
    capabilities: Table, hosts: Sequence[HostPort], imports: frozenset[HostFunction], allow_unbound: bool
) -> CredentialNeed:
    table = capabilities.table("credential")
    kind = table.string("kind")
    if not table.string("scope").strip():
        raise table.refuse("scope", "scope is empty; describe what the credential is used for")
    wire = _wire_form(table, kind)
    need = CredentialNeed(
        kind=msgspec.convert(kind, CredentialKind),
        scope=table.string("scope"),
        logins=_logins(table, kind, hosts, allow_unbound),
        commands=_commands(table),
        **wire,
    )
    if need.logins:
        _check_logins(table, need, imports)
    return need


def _logins(table: Table, kind: str, hosts: Sequence[HostPort], allow_unbound: bool) -> tuple[LoginTarget, ...]:
    """Where the supervisor logs in; none of a source whose hosts are not bound."""
    texts = table.strings("logins")
    if "logins" in table and kind not in _LOGIN_KINDS:
        raise table.refuse("logins", f'logins needs kind = "login" or "oauth2", but this is {kind!r}')
    if not texts and ("logins" in table or kind == "login"):
        cure = 'name where to log in, such as logins = ["imap://imap.example.com:993"]'
        raise table.refuse("logins", f"a credential of kind {kind} with no logins; {cure}")
    if len(texts) > MAX_LOGINS:
        raise table.refuse("logins", f"{len(texts)} logins; at most {MAX_LOGINS}")
    if unbound := [text for text in texts if UNBOUND_LOGIN.fullmatch(text)]:
        if not allow_unbound or len(unbound) != len(texts) or len(set(texts)) != len(texts):
            protocol = unbound[0].partition(":")[0]
            cure = f"build it with `aileron connector build DIR --login {protocol}://NAME:PORT`"
            raise table.refuse("logins", f"logins has the placeholder {unbound[0]!r}: {cure}")
        if hosts:
            cure = f'hosts = ["{UNBOUND_HOSTS}"] takes the hosts of logins too'
            raise table.refuse("logins", f"logins has the placeholder {unbound[0]!r}, and hosts has none: {cure}")
        return ()
    logins = tuple(table.attempt("logins", LoginTarget.parse, text) for text in texts)
    if len({one.destination for one in logins}) != len(logins):
        raise table.refuse("logins", "two logins at one HOST:PORT; each destination has one protocol")
    for login in logins:
        if login.destination not in hosts and not (allow_unbound and not hosts):
            cure = f'add "{login.destination}" there'
            raise table.refuse("logins", f"{login.destination} is not in [capabilities.network] hosts; {cure}")
    return logins


def _commands(table: Table) -> tuple[str, ...]:
    commands = table.strings("commands")
    if "commands" in table and not (1 <= len(commands) <= MAX_COMMANDS and len(set(commands)) == len(commands)):
        raise table.refuse("commands", f"{len(commands)} commands; 1 to {MAX_COMMANDS}, each once")
    for command in commands:
        table.attempt("commands", _check_command, command)
    has_ssh = any(text.startswith("ssh") for text in table.strings("logins"))
    if commands and not has_ssh:
        raise table.refuse("commands", "commands without an ssh login; leave it out: other protocols execute nothing")
    if has_ssh and not commands:
        cure = "such as commands = [\"git-upload-pack 'team/*.git'\"]"
        raise table.refuse("commands", f"an ssh login without commands could do nothing; name what it may run, {cure}")
    return commands


def _check_command(command: str) -> str:
    if (
        len(command) > MAX_COMMAND_PATTERN or not command.isascii()
    ):  # a person reads it, and takes no letter for another
        raise ValueError(f"{command[:80]!a} is not ASCII, or has more than {MAX_COMMAND_PATTERN} characters")
    check_command_pattern(command)
    return command


def _check_logins(table: Table, need: CredentialNeed, imports: frozenset[HostFunction]) -> None:
    protocols = {login.protocol for login in need.logins}
    if "ssh" in protocols and protocols != {"ssh"}:
        problem = "ssh and other protocols: an ssh login has a host key and a private key, and the others a password"
        raise table.refuse("logins", f"{problem}; make two connectors of it")
    if "ssh" in protocols and len(need.logins) > 1:
        problem = "several ssh logins: a binding pins the host key of one server"
        raise table.refuse("logins", f"{problem}; make a connector for each")
    if need.kind == "oauth2" and (others := sorted(protocols - _HAVE_XOAUTH2)):
        problem = f'{", ".join(others)} cannot log in with an access token; use kind = "login"'
        raise table.refuse("logins", problem)
    if HostFunction.TCP not in imports:
        raise table.refuse(
            "logins", 'logins without "tcp" in [capabilities.runtime] imports: no stream could be opened'
        )


def _wire_form(table: Table, kind: str) -> dict[str, Any]:
    """`header`, `format`, `query`: how an api_key travels. The other kinds have one form and may not name
    another.
    """
    wire = {key: table.string(key) for key in ("header", "format", "query") if key in table}
    for key in wire:
        if kind != "api_key":
            raise table.refuse(key, f'{key} needs kind = "api_key", but this is {kind!r}')
    if "query" in wire and len(wire) > 1:
        raise table.refuse("query", "query and header or format together: a key is sent in one place only")
    if "header" in wire and not may_be_credential(wire["header"]):
        raise table.refuse("header", f"header {wire['header']!r} is not a header field name that a credential may use")
    if "format" in wire and (not _FORMAT.fullmatch(wire["format"]) or wire["format"].count("{") != 1):
        raise table.refuse("format", f"format {wire['format']!r} must be printable ASCII with {{key}} once")
    if "query" in wire and not _QUERY.fullmatch(wire["query"]):
        raise table.refuse("query", f"query {wire['query']!r} is not a parameter name of letters, digits, '._~-'")
    return wire


def may_be_credential(name: str) -> bool:
    """Whether a credential may be sent in the header field of this name."""
    lower = name.lower()
    is_reserved = lower in _RESERVED_HEADERS or lower.startswith(("proxy-", "sec-", "x-forwarded-"))
    return _TOKEN.fullmatch(name) is not None and not is_reserved


def _oauth2(credential: Table, allow_unbound: bool) -> OAuth2Provider | None:
    is_oauth2 = "kind" in credential and credential.string("kind") == "oauth2"
    if is_oauth2 != ("oauth2" in credential):
        raise credential.refuse("kind", 'kind = "oauth2" and [capabilities.credential.oauth2] must be used together')
    if not is_oauth2:
        return None
    table = credential.table("oauth2")
    return OAuth2Provider(
        authorize_url=table.parsed("authorize_url", _check_provider_url),
        token_url=table.parsed("token_url", _check_provider_url),
        client_id=_client_id(table, allow_unbound),
        client_secret=_client(table, "client_secret", allow_unbound) if "client_secret" in table else None,
        registration_url=_maybe_url(table, "registration_url"),
        resource=table.parsed("resource", _check_resource) if "resource" in table else None,
        scopes=_scopes(table),
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
    """The publisher's `client_id` or `client_secret`. A message quotes neither, but for the placeholder."""
    value = table.string(key)
    if _PLACEHOLDER.fullmatch(value):
        if allow_unbound:
            return value
        cure = "bind the publisher's own with `aileron connector build DIR --client-id ID --client-secret-file FILE`"
        raise table.refuse(key, f"{key} is {value if value.startswith(_UNBOUND) else '…'!r}, a placeholder: {cure}")
    if not _CLIENT.fullmatch(value):
        raise table.refuse(key, f"{key} is empty, longer than 512 characters or not printable ASCII")
    return value


def _scopes(table: Table) -> tuple[str, ...]:
    scopes = table.strings("scopes")
    if not all(map(_SCOPE.fullmatch, scopes)):
        problem = "scopes is not a list of the provider's scopes, one string each, without blanks and quotes"
        raise table.refuse("scopes", problem)
    if len(scopes) > _MAX_SCOPES or len(set(scopes)) != len(scopes):
        raise table.refuse("scopes", f"{len(scopes)} scopes; at most {_MAX_SCOPES}, each once")
    return scopes


def _maybe_url(table: Table, key: str) -> str | None:
    return table.parsed(key, _check_provider_url) if key in table else None


def _check_provider_url(text: str) -> str:
    """An https address, or http on loopback for tests, in its only spelling. ValueError otherwise."""
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


def _check_resource(text: str) -> str:
    """As an address, with a query or without (RFC 8707, section 2): it is sent, and never fetched. ValueError otherwise."""
    address, mark, query = text.partition("?")
    _check_provider_url(address)
    if len(text) > _MAX_PROVIDER_URL or not _QUERY_OF_RESOURCE.fullmatch(query) or (mark and not query):
        raise ValueError(f"{text[:_MAX_PROVIDER_URL]!r} is not an address of at most {_MAX_PROVIDER_URL} characters")
    return text


def _authorize_params(table: Table) -> tuple[tuple[str, str], ...]:
    params = table.free("authorize_params")
    if len(params) > _MAX_PARAMS:
        raise table.refuse("authorize_params", f"{len(params)} parameters; at most {_MAX_PARAMS}")
    for name, value in params.items():
        if not _PARAM.fullmatch(name):
            problem = f"parameter {name!r} is not a name of letters, digits, '._~-'"
        elif name.lower() in _RESERVED_PARAMS:
            problem = f"parameter {name} {_RESERVED_PARAMS[name.lower()]}; leave it out"
        elif not isinstance(value, str) or not _PARAM_VALUE.fullmatch(value):
            problem = f"parameter {name} is not a string of 1 to 256 printable ASCII characters"
        else:
            continue
        raise table.refuse("authorize_params", problem, name)
    return tuple(sorted(params.items()))


def _check_consistent(capabilities: Table, imports: frozenset[HostFunction], *, has_credential: bool) -> None:
    has_network = "network" in capabilities
    if has_network and not imports & {HostFunction.HTTP, HostFunction.TCP}:
        problem = '[capabilities.network] without "http" or "tcp" in [capabilities.runtime] imports'
        raise capabilities.refuse("network", f"{problem}: the hosts would not be reachable")
    if has_credential and not has_network:
        problem = "[capabilities.credential] without [capabilities.network]"
        raise capabilities.refuse("credential", f"{problem}: the credential could not be sent anywhere")


def _limits(table: Table) -> LimitsSpec:
    defaults = LimitsSpec()
    return LimitsSpec(
        memory_mb=table.integer("memory_mb", defaults.memory_mb),
        timeout_s=table.integer("timeout_s", defaults.timeout_s),
        subprocess=table.boolean("subprocess", defaults.subprocess),
    )


def _intents(provides: Table) -> tuple[str, ...]:
    intents = provides.strings("intents")
    if len(intents) > _MAX_INTENTS or not all(intents):
        raise provides.refuse("intents", f"intents is not a list of at most {_MAX_INTENTS} names")
    return intents


def _operations(table: Table, need: CredentialNeed | None, allow_unbound: bool) -> tuple[Operation, ...] | None:
    if "operations" not in table:
        return None
    protocols = set[str]() if need is None else {login.protocol for login in need.logins}
    if need is not None and allow_unbound and not need.logins:
        protocols = set(HAVE_PREVIEWED)  # those that it is built for are checked then
    found = tuple(_operation(one, protocols) for one in table.tables("operations"))
    if not 1 <= len(found) <= MAX_OPERATIONS or len({one.name for one in found}) != len(found):
        raise table.refuse("operations", f"{len(found)} operations; 1 to {MAX_OPERATIONS}, each once")
    return found


def _only(protocols: Set[str], among: Set[str]) -> bool:
    """One credential serves all logins: what an operation promises holds at each of them, or it does not."""
    return bool(protocols) and protocols <= among


def _operation(table: Table, protocols: Set[str]) -> Operation:
    name = table.string("name")
    if not OP_NAME.fullmatch(name):
        raise table.refuse("name", f"name {name!r} is not a lower-case letter, then letters, digits, '_', at most 64")
    parameters = tuple(map(_parameter, table.tables("parameters")))
    if len(parameters) > MAX_PARAMETERS or len({one.name for one in parameters}) != len(parameters):
        raise table.refuse("parameters", f"{len(parameters)} parameters; at most {MAX_PARAMETERS}, each once")
    if "login" in table and not _only(protocols, HAVE_ROLES):
        problem = (
            "login needs postgres or mysql logins in [capabilities.credential] logins, and no others; leave it out"
        )
        raise table.refuse("login", f"{problem}: only their servers say what a role may do")
    if table.maybe_string("login") == "previewed" and not _only(protocols, HAVE_PREVIEWED):
        problem = (
            'login = "previewed" needs postgres logins in [capabilities.credential] logins, and no others; leave it out'
        )
        raise table.refuse("login", f"{problem}: of other protocols no transaction is held to what was seen")
    if "login" in table and not table.boolean("credential", True):
        raise table.refuse("login", "login and credential = false: an operation without a credential logs in nowhere")
    return Operation(
        name=name,
        parameters=parameters,
        rest=table.boolean("rest", False),
        network=table.boolean("network", True),
        credential=table.boolean("credential", True),
        login=msgspec.convert(table.string("login"), OperationLogin) if "login" in table else UNSET,
    )


def _parameter(table: Table) -> Parameter:
    name = table.string("name")
    if not PARAMETER_NAME.fullmatch(name):
        raise table.refuse("name", f"name {name!r} is not a letter or '_', then letters, digits, '_', at most 64")
    return Parameter(
        name=name,
        required=table.boolean("required", True),
        types=_types(table, "types"),
        items=_types(table, "items"),
        enum=_enum(table),
        minimum=table.value("minimum") if "minimum" in table else None,
        maximum=table.value("maximum") if "maximum" in table else None,
        min_length=table.integer("min_length", 0) if "min_length" in table else None,
        max_length=table.integer("max_length", 0) if "max_length" in table else None,
    )


def _types(table: Table, key: str) -> tuple[ParameterType, ...]:
    names = table.strings(key)
    if key in table and (not names or len(set(names)) != len(names) or not set(names) <= set(_PARAMETER_TYPES)):
        raise table.refuse(key, f"{key} is not some of {', '.join(_PARAMETER_TYPES)}, each once")
    return msgspec.convert(names, tuple[ParameterType, ...])


def _enum(table: Table) -> tuple[str | int, ...]:
    values = tuple(table.value("enum")) if "enum" in table else ()
    if "enum" in table and not (1 <= len(values) <= MAX_ENUM and all(map(_is_choice, values))):
        raise table.refuse("enum", f"enum is not 1 to {MAX_ENUM} strings and integers")
    return values


def _is_choice(value: object) -> bool:
    is_integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER
    return is_integer or isinstance(value, str)
