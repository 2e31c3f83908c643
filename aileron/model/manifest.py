"""Connector manifests and action files as frozen values, after parsing and validation.

Only the parsers (registry/manifest.py, actions/manifest.py) make these values, so each has passed every check that can be
made with one file alone. Checks that need two files (is the operation granted, is the credential bound) are made when an
invocation is resolved.
"""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.model.effect import Effect
from aileron.model.json_value import JSONObject
from aileron.model.login import LoginTarget
from aileron.model.names import Fqn, HostPort
from aileron.model.request_signing import AwsScope, HmacTemplate, TokenGrant

__all__ = [
    "ActionFile",
    "ApprovalRule",
    "ConnectorManifest",
    "CredentialKind",
    "CredentialNeed",
    "Effect",
    "HostFunction",
    "InputSpec",
    "InputType",
    "LimitsSpec",
    "OAuth2Provider",
    "Operation",
    "OperationLogin",
    "Parameter",
    "ParameterType",
    "PreviewRule",
    "RequiredConnector",
    "StepSpec",
]

CredentialKind = Literal["api_key", "basic", "oauth2", "login", "aws_sigv4", "hmac", "mtls", "digest", "oauth2_client"]
InputType = Literal["string", "integer", "number", "boolean", "array", "object"]
OperationLogin = Literal["read_only", "previewed"]
ParameterType = Literal["string", "integer", "number", "boolean", "array", "object", "null"]


class HostFunction(enum.StrEnum):
    """A function of the supervisor that a connector can call. Each must be listed in `[capabilities.runtime] imports`."""

    LOG = "log"
    PROGRESS = "progress"
    AUDIT = "audit"
    HTTP = "http"
    TCP = "tcp"
    WEBSOCKET = "websocket"


class CredentialNeed(msgspec.Struct, frozen=True, kw_only=True):
    """The values of `[capabilities.credential]`: a kind of credential, never a concrete credential.

    `header` and `format` are the wire form of an api_key (default `Authorization` and `Bearer {key}`); `query` names a
    query parameter that carries the key instead, `path` the beginning of a path that contains `{key}`, `body` a place in the body
    (`json:/POINTER` or `form:NAME`), and `first_message` a WebSocket's first text, which contains `{key}`. `scope` is text for
    people.

    A field that is UNSET is left out of plans, so that the digests of plans made before the field existed do not change.
    """

    kind: CredentialKind
    scope: str
    header: str = "Authorization"
    format: str = "Bearer {key}"
    query: str | None = None
    logins: tuple[LoginTarget, ...] = ()
    """Places where the supervisor logs in: with user name and password or key for `login`, with an access token for `oauth2`."""
    commands: tuple[str, ...] = ()
    """Commands that can be executed at an `ssh` login; `*` stands for characters without a quote, blank or control character."""
    path: str | UnsetType = UNSET
    body: str | UnsetType = UNSET
    first_message: str | UnsetType = UNSET
    aws: AwsScope | UnsetType = UNSET
    hmac: HmacTemplate | UnsetType = UNSET
    token: TokenGrant | UnsetType = UNSET


class OAuth2Provider(msgspec.Struct, frozen=True, kw_only=True):
    """The values of `[capabilities.credential.oauth2]`: the publisher's OAuth application, or where each sign-in registers one.

    `client_secret` is set at release, and everybody who installs the connector can read it, so PKCE protects the flow. If there
    is no `client_id`, there is a `registration_url`; if both are set, the `client_id` is used.
    """

    authorize_url: str
    token_url: str
    client_id: str | None = None
    client_secret: str | None = None
    registration_url: str | None = None
    """Address where a sign-in registers its own client (RFC 7591) if there is no `client_id`."""
    resource: str | None = None
    """Resource that the tokens are for, as the service names itself (RFC 8707); None if the provider chooses."""
    scopes: tuple[str, ...]
    issuer: str | None = None
    """Required `iss` of the provider's response (RFC 9207).

    If None, an `iss` that is sent must have the origin of `authorize_url`.
    """
    issuer_in_answer: bool = True
    """True if a provider's response without `iss` is refused when `issuer` is set; False for a provider that never
    sends `iss`.
    """
    device_authorization_url: str | None = None
    """Address for sign-ins on machines without a browser (RFC 8628); None if the provider has none."""
    revocation_url: str | None = None
    """Address for revoking tokens (RFC 7009). If None, tokens are only deleted here and remain valid until they expire."""
    authorize_params: tuple[tuple[str, str], ...] = ()
    """Additional parameters that the provider needs, sorted by name, such as `access_type=offline`."""

    @property
    def token_endpoints(self) -> tuple[str, ...]:
        """Endpoints that issue or revoke tokens or register clients.

        A connector cannot send requests to them, even if it declares their host.
        """
        endpoints = (self.token_url, self.device_authorization_url, self.revocation_url, self.registration_url)
        return tuple(sorted({url for url in endpoints if url is not None}))

    def __repr__(self) -> str:
        return f"<provider {self.client_words} at {self.token_url}>"

    @property
    def client_words(self) -> str:
        """The application in one line: its id, or the address where a client is registered."""
        return f"registered at {self.registration_url}" if self.client_id is None else self.client_id


class LimitsSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The `[limits]` table of a connector's manifest.

    `memory_mb` is in MiB, in addition to what the interpreter itself takes; `timeout_s` is in seconds of real time; `subprocess`
    is true if the connector may start processes.
    """

    memory_mb: int = 64
    timeout_s: int = 30
    subprocess: bool = False


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """An `[[operations.parameters]]` entry: the constraints on a JSON value. An empty or null field sets no constraint.

    `enum` applies to strings and numbers, the lengths to strings, `minimum` and `maximum` to numbers. `items` are the types of
    the members of an array.
    """

    name: str
    required: bool = True
    types: tuple[ParameterType, ...] = ()
    items: tuple[ParameterType, ...] = ()
    enum: tuple[str | int, ...] = ()
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An `[[operations]]` entry: an operation of a connector. If `rest` is true, it accepts arguments that `parameters`
    does not list.

    `network` is true if the operation may send requests, and `credential` if it may send them with a credential. Both default to
    true.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    rest: bool = False
    network: bool = True
    credential: bool = True
    login: OperationLogin | UnsetType = UNSET
    """Limit on the login. `read_only`: only as a database role that cannot write. `previewed`: only changes that a person saw."""


class ConnectorManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A connector's `manifest.toml`. Empty `hosts` means no network; if `credential` is None, no credential is used.

    `operations` has all operations of the connector. If it is None, the manifest lists none, and only a run shows which exist.
    """

    name: Fqn
    version: str
    publisher: str | None = None
    provenance_hash: str | None = None
    document_hash: str | None = None
    """Hash of the document (such as an OpenAPI document) that the connector was made from."""
    idempotent_by_default: bool = True
    hosts: tuple[HostPort, ...] = ()
    credential: CredentialNeed | None = None
    oauth2: OAuth2Provider | None = None
    imports: frozenset[HostFunction] = frozenset()
    limits: LimitsSpec = LimitsSpec()
    intents: tuple[str, ...] = ()
    operations: tuple[Operation, ...] | None = None

    @property
    def token_endpoints(self) -> tuple[str, ...]:
        """Endpoints to which only the supervisor sends requests, for a sign-in or to get tokens without a person."""
        if self.credential is not None and self.credential.token is not UNSET:
            return (self.credential.token.token_url,)
        return () if self.oauth2 is None else self.oauth2.token_endpoints

    def operation(self, name: str) -> Operation:
        """Return the operation with this name.

        If the manifest does not list it, return an operation that accepts all arguments and may use network and credential.
        """
        found = (operation for operation in self.operations or () if operation.name == name)
        return next(found, Operation(name=name, rest=True))


class InputSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An `[[inputs]]` entry of an action file."""

    name: str
    type: InputType
    description: str
    required: bool = True
    label: str | None = None
    multiline: bool = False
    rule: JSONObject = {}
    """Constraint on a value in addition to its type, in the keywords of JSON Schema (actions/inputs.py)."""
    default: Any = msgspec.UNSET
    """Value used if the argument is not given; UNSET if there is no default."""

    @property
    def is_always_there(self) -> bool:
        """True if the input has a value in every call."""
        return self.required or self.default is not msgspec.UNSET


class RequiredConnector(msgspec.Struct, frozen=True, kw_only=True):
    """A `[[requires.connectors]]` entry: a connector's pin, the subset of its operations that the action uses, and whose
    credential it uses.
    """

    name: Fqn
    version: str
    hash: str
    capabilities: tuple[str, ...]
    identity: str | None = None
    """Last part of the only bindings that the action uses for this connector; None if the caller of a run can choose."""


class StepSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An `[[execute]]` entry of an action file: one step.

    `inputs` holds literals and `${args.x}` references, not yet resolved. `effect` is None if the file does not declare it.
    """

    id: str
    connector: Fqn
    op: str
    idempotent: bool = False
    effect: Effect | None = None
    inputs: JSONObject = {}

    @property
    def does(self) -> Effect | None:
        """Effect of the step: the declared one, else `read` for an idempotent step, else None, that is, unknown."""
        return Effect.READ if self.effect is None and self.idempotent else self.effect


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True):
    """The `[approval]` table of an action file. Times are in seconds. If the file does not set `irreversible`, a run
    counts as irreversible.
    """

    required: bool = False
    expires_in_s: int = 900
    irreversible: bool = True
    undo_window_s: int = 0
    """Seconds for which an approved run is held before it begins, and can still be cancelled."""


class PreviewRule(msgspec.Struct, frozen=True, kw_only=True):
    """The `[approval.preview]` table of an action file: an operation that only reads, run for the person who decides,
    and the parts of its result that they see.

    `inputs` holds literals and `${args.x}` references; `render` maps a label to a dotted path into the operation's result, in the
    order of the file; `multiline` are the labels whose text may have several lines.
    """

    connector: Fqn
    op: str
    inputs: JSONObject = {}
    render: dict[str, str]
    multiline: frozenset[str] = frozenset()


class ActionFile(msgspec.Struct, frozen=True, kw_only=True):
    """An action file: its frontmatter as values, `body` (the Markdown after that), and `digest` over the file's bytes."""

    name: str
    version: str
    source: str | None
    intent: str
    summary: str | None = None
    """Sentence that says what a call does, with placeholders for values (actions/summary.py)."""
    tags: tuple[str, ...] = ()
    """Words that classify the action, used to select and find it."""
    connectors: tuple[RequiredConnector, ...]
    steps: tuple[StepSpec, ...]
    inputs: tuple[InputSpec, ...]
    approval: ApprovalRule
    preview: PreviewRule | None = None
    body: str
    text: str
    digest: str
