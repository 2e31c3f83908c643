"""The parser of `manifest.toml`, in which a connector declares what it needs. The result has passed every check.

Pure. A connector gets only the capabilities that its manifest names. So unknown keys are refused, names are exact, and a
manifest that contradicts itself is an error and not interpreted.

Rules
- Hosts are exact `host:port` pairs, at most 32; no wildcards.
- Asking for hosts needs the `http`, `tcp` or `websocket` host function; asking for a credential needs hosts.
- `hosts = ["bound-at-build"]` occurs only in a source manifest; an installed manifest has real hosts.
- Either all operations are listed or none: a call of an unlisted operation is refused before a person is asked.

Source: docs/reference/connector-manifest.md, checked against `SCHEMA`. Not here: the credential (manifest_credential.py), hashing
(content.py), whether a person consents to what is asked.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Final, get_args

import msgspec
from msgspec import UNSET

from aileron.model.document import MAX_NUMBER, Field, Kind, Table, read_document, refusal
from aileron.model.failure import Boundary
from aileron.model.fields import full_name, version
from aileron.model.login import (
    HAVE_PREVIEWED,
    HAVE_ROLES,
)
from aileron.model.manifest import (
    ConnectorManifest,
    CredentialNeed,
    HostFunction,
    LimitsSpec,
    Operation,
    OperationLogin,
    Parameter,
    ParameterType,
)
from aileron.model.names import (
    OP_NAME,
    PIN,
    Fqn,
    HostPort,
    check_host,
    check_pin,
    check_semver,
)
from aileron.model.near import did_you_mean
from aileron.registry.manifest_credential import (
    CREDENTIAL,
    UNBOUND_HOSTS,
    parse_credential,
)
from aileron.registry.manifest_provider import parse_provider

__all__ = [
    "MAX_ENUM",
    "MAX_LENGTH",
    "MAX_OPERATIONS",
    "MAX_PARAMETERS",
    "PARAMETER_NAME",
    "SCHEMA",
    "UNBOUND_HOSTS",
    "WASI_NAMES",
    "parse_connector_manifest",
]

_HTTPS: Final = 443
"""Default port of a host that is given without a port (RFC 9110 section 4.2.2)."""
_MAX_HOSTS: Final = 32
"""Maximum number of hosts per connector: they must fit into one frame header, and a person reads them before they consent."""
_MAX_INTENTS: Final = 64
"""Maximum number of `intents`, search terms for a Hub; real connectors have a dozen."""
MAX_OPERATIONS: Final = 256
"""Maximum number of operations per connector; the widest API wrapped so far has about a hundred."""
MAX_PARAMETERS: Final = 64
"""Maximum number of parameters per operation, the same limit as for fields in an action's input."""
MAX_ENUM: Final = 256
"""Maximum number of values in an `enum`, the same limit as in an action's input."""
MAX_LENGTH: Final = 1 << 20
"""Upper bound for a parameter's `min_length` and `max_length`; the arguments of one step have at most 48 KiB together."""
PARAMETER_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Pattern of a parameter's name: a Python identifier in ASCII, at most 64 characters."""
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
"""Names of WASI interfaces that a manifest can import, each with the host function that it stands for. Some manifests
use them.
"""

_MEMORY_MB: Final = range(1, 1024 + 1)
_TIMEOUT_S: Final = range(1, 300 + 1)
_IDEMPOTENCY: Final = {"idempotent": True, "not_idempotent": False}

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
            "name": full_name("full name, see [names](names.md)"),
            "version": version("strict SemVer"),
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
                        says="exact `host:port` pairs; a name without a port means 443. "
                        f'`["{UNBOUND_HOSTS}"]` in the sources of a connector for a service '
                        "that people run: `aileron connector build --host NAME:PORT` replaces it",
                        bounds=range(1, _MAX_HOSTS + 1),
                        is_unique=True,
                        pattern=rf"[a-z0-9.-]+:[1-9][0-9]{{0,4}}|[a-z0-9-]+(?:[.][a-z0-9-]+)+|{UNBOUND_HOSTS}",
                        example=["api.example.com:443"],
                    )
                },
            ),
            "credential": Field(Kind.TABLE, says="kind of credential that it needs", fields=CREDENTIAL),
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
            "parameters": Field(Kind.TABLES, says="its arguments", bounds=range(MAX_PARAMETERS + 1), fields=_PARAMETER),
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
    """Read `manifest.toml`; `file` is its name in errors. Raises AileronError(invalid_request) with line and fix if
    it is not valid.

    `allow_unbound` accepts a source manifest: `hosts = ["bound-at-build"]` gives no hosts, and the placeholders of an OAuth
    client stay. Only for manifests that `connector build` will bind.
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
    credential = parse_credential(capabilities, hosts, imports, allow_unbound) if "credential" in capabilities else None
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
        oauth2=parse_provider(capabilities.table("credential"), allow_unbound),
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


def _host(text: str) -> HostPort:
    """Parse `host:port`, or a host name with the default port of HTTPS. Raises ValueError otherwise.

    A name without a dot needs a port, because it is a machine on the user's network, or a placeholder.
    """
    if ":" in text or "." not in text or "*" in text:
        return HostPort.parse(text)
    return HostPort(check_host(text), _HTTPS)


def _hosts(network: Table, allow_unbound: bool) -> tuple[HostPort, ...]:
    texts = network.strings("hosts")
    if UNBOUND_HOSTS in texts:
        if not allow_unbound or len(texts) != 1:
            fix = "build it with `aileron connector build DIR --host NAME:PORT`"
            raise network.refuse("hosts", f"hosts is the placeholder {UNBOUND_HOSTS!r}: {fix}")
        return ()
    hosts = tuple(network.attempt("hosts", _host, text) for text in texts)
    if len(set(hosts)) != len(hosts):
        raise network.refuse("hosts", f"hosts has one twice, with and without :{_HTTPS}; write each once")
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
    hint = did_you_mean(name, known, f"expected some of {', '.join(HostFunction)}")
    raise runtime.refuse("imports", f"unknown host function {name!r}; {hint}")


def _check_consistent(capabilities: Table, imports: frozenset[HostFunction], *, has_credential: bool) -> None:
    has_network = "network" in capabilities
    if has_network and not imports & {HostFunction.HTTP, HostFunction.TCP, HostFunction.WEBSOCKET}:
        problem = '[capabilities.network] without "http", "tcp" or "websocket" in [capabilities.runtime] imports'
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
    if not all(intents):
        raise provides.refuse("intents", "intents has an empty name; remove it")
    return intents


def _operations(table: Table, need: CredentialNeed | None, allow_unbound: bool) -> tuple[Operation, ...] | None:
    if "operations" not in table:
        return None
    protocols = set[str]() if need is None else {login.protocol for login in need.logins}
    if need is not None and allow_unbound and not need.logins:
        protocols = set(HAVE_PREVIEWED)  # the real ones are checked once it is built
    found = tuple(_operation(entry, protocols) for entry in table.tables("operations"))
    if len({operation.name for operation in found}) != len(found):
        raise table.refuse("operations", "operations has one name twice; write each once")
    return found


def _only(protocols: Set[str], among: Set[str]) -> bool:
    """Return whether `protocols` is not empty and all of them are in `among`.

    One credential serves all logins, so the `login` of an operation must be possible with each protocol.
    """
    return bool(protocols) and protocols <= among


def _operation(table: Table, protocols: Set[str]) -> Operation:
    name = table.string("name")
    if not OP_NAME.fullmatch(name):
        raise table.refuse("name", f"name {name!r} is not a lower-case letter, then letters, digits, '_', at most 64")
    parameters = tuple(map(_parameter, table.tables("parameters")))
    if len({parameter.name for parameter in parameters}) != len(parameters):
        raise table.refuse("parameters", f"parameters of {name} has one name twice; write each once")
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
    if not set(names) <= set(_PARAMETER_TYPES):
        raise table.refuse(key, f"{key} is not some of {', '.join(_PARAMETER_TYPES)}")
    return msgspec.convert(names, tuple[ParameterType, ...])


def _enum(table: Table) -> tuple[str | int, ...]:
    values = tuple(table.value("enum")) if "enum" in table else ()
    if not all(map(_is_choice, values)):
        raise table.refuse("enum", "enum has a value that is neither a string nor an integer")
    return values


def _is_choice(value: object) -> bool:
    is_integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER
    return is_integer or isinstance(value, str)
