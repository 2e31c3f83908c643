"""The manifest of an imported connector: hosts, credential and operations, with only what the chosen operations need.

Pure. Source: docs/reference/connector-manifest.md. Not here: the arguments of an operation (operations.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, assert_never, cast

from aileron.importing.inputs import Input
from aileron.importing.operations import Imported
from aileron.importing.rules import Rule
from aileron.importing.security import Credential
from aileron.importing.toml import toml_of
from aileron.importing.words import line
from aileron.model.manifest import Operation, Parameter, ParameterType
from aileron.model.names import Fqn
from aileron.registry.operations import as_toml
from aileron.registry.placeholders import UNBOUND_CLIENT, UNRELEASED

__all__ = ["manifest_text", "operations_of"]

_HEADER: Final = """\
# What this connector asks for; nothing that is not named here is granted. A release binds the version.
# Made from {title} {version}, {made_from}. `aileron connector import` made it; change it as you like.
"""
_OPERATIONS: Final = "# What the document says that each operation takes."
_TIMEOUT_S: Final = 60
_MEMORY_MB: Final = 128
"""Memory of the connector in MiB, twice the usual, because responses of some MiB are parsed, checked and encoded again."""
_MAX_INTENTS: Final = 64
_MAX_SCOPE: Final = 200
_SCALARS: Final[tuple[ParameterType, ...]] = ("string", "integer", "number", "boolean")
_LARGEST: Final = 1 << 20


def manifest_text(
    connector: Fqn,
    title: str,
    version: str,
    digest: str,
    hosts: Sequence[str],
    credential: Credential,
    client_id: str | None,
    operations: Sequence[Imported],
    *,
    made_from: str = "an OpenAPI document",
    imports: Sequence[str] = ("http", "log"),
) -> str:
    """Return the complete manifest. Requests go to the first of `hosts` unless an operation specifies another."""
    parts = [
        _HEADER.format(title=title, version=version, made_from=made_from),
        "\n".join(
            [
                "[connector]",
                f"name = {toml_of(str(connector))}",
                f"version = {toml_of(UNRELEASED)}",
                f"document_hash = {toml_of(digest)}",
            ]
        ),
        "\n".join(["[capabilities.network]", f"hosts = {toml_of(list(hosts))}"]),
        "\n".join(_credential(credential, client_id, title, operations)),
        "\n".join(["[capabilities.runtime]", f"imports = {toml_of(list(imports))}"]),
        "\n".join(["[limits]", f"memory_mb = {_MEMORY_MB}", f"timeout_s = {_TIMEOUT_S}"]),
        "\n".join(["[provides]", f"intents = {toml_of([operation.name for operation in operations][:_MAX_INTENTS])}"]),
        as_toml(operations_of(operations), header=_OPERATIONS),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _credential(
    credential: Credential, client_id: str | None, title: str, operations: Sequence[Imported]
) -> Iterator[str]:
    if credential.kind is None:
        return
    changes = any(not operation.found.reads for operation in operations)
    words = f"{'Read and change' if changes else 'Read'} your data at {title}"
    yield "[capabilities.credential]"
    yield f"kind = {toml_of(credential.kind)}"
    yield f"scope = {toml_of(line(words, _MAX_SCOPE))}"
    for key in ("header", "format", "query"):
        if getattr(credential, key) is not None:
            yield f"{key} = {toml_of(getattr(credential, key))}"
    match credential.kind:
        case "oauth2_client":
            yield from _machine_grant(credential)
        case "oauth2":
            yield from _sign_in(credential, client_id)
        case "api_key" | "basic":
            pass
        case impossible:
            assert_never(impossible)


def _machine_grant(credential: Credential) -> Iterator[str]:
    yield ""
    yield "[capabilities.credential.oauth2_client]"
    yield 'grant = "client_credentials"'
    yield f"token_url = {toml_of(credential.token_url)}"
    yield 'client_auth = "client_secret_basic"  # a document does not say; RFC 6749 has every server take it'
    if credential.scopes:
        yield f"scopes = {toml_of(list(credential.scopes))}"


def _sign_in(credential: Credential, client_id: str | None) -> Iterator[str]:
    yield ""
    yield "[capabilities.credential.oauth2]"
    yield f"authorize_url = {toml_of(credential.authorize_url)}"
    yield f"token_url = {toml_of(credential.token_url)}"
    client_id = client_id or credential.client_id
    if client_id is None and credential.registration_url is not None:
        yield f"registration_url = {toml_of(credential.registration_url)}"
    else:
        yield f"client_id = {toml_of(client_id or UNBOUND_CLIENT)}"
    yield f"scopes = {toml_of(list(credential.scopes))}"
    for key in ("resource", "issuer", "revocation_url"):
        if getattr(credential, key) is not None:
            yield f"{key} = {toml_of(getattr(credential, key))}"
    if not credential.issuer_in_answer:
        yield "issuer_in_answer = false"


def operations_of(operations: Sequence[Imported]) -> list[Operation]:
    """Return the operations as a manifest records them, so that an invalid call is refused before a person is asked."""
    return [
        Operation(
            name=operation.name,
            parameters=tuple(_parameter(given) for given in operation.inputs),
            credential=bool(operation.packed.security),
        )
        for operation in operations
    ]


def _item_type(rule: Rule) -> ParameterType | None:
    """Return the type of an array's members if it is a scalar."""
    items = rule.get("items")
    return next((kind for kind in _SCALARS if isinstance(items, dict) and items.get("type") == kind), None)


def _parameter(given: Input) -> Parameter:
    rule, kind = given.rule, cast(ParameterType, given.kind)
    items = _item_type(rule) if kind == "array" else None
    choices = [value for value in rule.get("enum", ()) if isinstance(value, str | int) and not isinstance(value, bool)]
    return Parameter(
        name=given.name,
        required=given.required,
        types=(kind,),
        items=(items,) if items is not None else (),
        enum=tuple(choices)
        if kind in ("string", "integer", "number") and len(choices) == len(rule.get("enum", ()))
        else (),
        minimum=rule.get("minimum"),
        maximum=rule.get("maximum"),
        min_length=rule.get("minLength"),
        max_length=rule.get("maxLength"),
    )
