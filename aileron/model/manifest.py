"""Connector manifests and action files as frozen values, after parsing and validation.

The parsers (registry/manifest.py, actions/manifest.py) are the only makers; a value of these types has passed every check
that one file alone allows. What needs two files (is the op granted, is the credential bound) is checked when an
invocation is resolved.
"""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.model.effect import Effect
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
    """What a connector may ask of the supervisor; each must be named in `[capabilities.runtime] imports`."""

    LOG = "log"
    PROGRESS = "progress"
    AUDIT = "audit"
    HTTP = "http"
    TCP = "tcp"
    WEBSOCKET = "websocket"


class CredentialNeed(msgspec.Struct, frozen=True, kw_only=True):
    """`[capabilities.credential]`: a kind of credential, never a concrete one.

    `header` and `format` are the wire form of an api_key (default `Authorization` and `Bearer {key}`); `query` names a
    query parameter to carry it instead, `path` the beginning of a path with `{key}` in it, `body` a place in the body
    (`json:/POINTER` or `form:NAME`), and `first_message` the text, with `{key}` in it, that a WebSocket begins with. `scope` is
    text for people.

    What is UNSET is not in a plan, whose digest stays what it was before there was such a field.
    """

    kind: CredentialKind
    scope: str
    header: str = "Authorization"
    format: str = "Bearer {key}"
    query: str | None = None
    logins: tuple[LoginTarget, ...] = ()
    """Where the supervisor logs in: a user name and a password or key for `login`, an access token for `oauth2`."""
    commands: tuple[str, ...] = ()
    """What may be executed at an `ssh` login; `*` stands for characters without a quote, blank or control character."""
    path: str | UnsetType = UNSET
    body: str | UnsetType = UNSET
    first_message: str | UnsetType = UNSET
    aws: AwsScope | UnsetType = UNSET
    hmac: HmacTemplate | UnsetType = UNSET
    token: TokenGrant | UnsetType = UNSET


class OAuth2Provider(msgspec.Struct, frozen=True, kw_only=True):
    """`[capabilities.credential.oauth2]`: the publisher's own OAuth application, or where one is registered at each sign-in.

    `client_secret` is bound at release and readable by whoever installs the connector; PKCE is what protects the flow. Without
    a `client_id` there is a `registration_url`; with both, the `client_id` is used.
    """

    authorize_url: str
    token_url: str
    client_id: str | None = None
    client_secret: str | None = None
    registration_url: str | None = None
    """RFC 7591: where a sign-in registers a client of its own if there is no `client_id`."""
    resource: str | None = None
    """RFC 8707: what the tokens are for, as the service names itself; None: the provider decides."""
    scopes: tuple[str, ...]
    issuer: str | None = None
    """What `iss` of the provider's answer has to be (RFC 9207); None: if it is sent, it has the origin of `authorize_url`."""
    issuer_in_answer: bool = True
    """Whether an answer without `iss` is refused where there is an `issuer`: not so for a provider that never sends it."""
    device_authorization_url: str | None = None
    """RFC 8628, for machines without a browser; None: the provider has none."""
    revocation_url: str | None = None
    """RFC 7009; None: tokens are forgotten, and end by themselves."""
    authorize_params: tuple[tuple[str, str], ...] = ()
    """What else the provider wants to be asked with, sorted by name, as `access_type=offline`."""

    @property
    def token_endpoints(self) -> tuple[str, ...]:
        """Those that answer with tokens or a client, or end them: whoever declares their host does not get to ask them."""
        endpoints = (self.token_url, self.device_authorization_url, self.revocation_url, self.registration_url)
        return tuple(sorted({url for url in endpoints if url is not None}))

    def __repr__(self) -> str:
        return f"<provider {self.client_words} at {self.token_url}>"

    @property
    def client_words(self) -> str:
        """The application in a line: its ID, or where one is registered."""
        return f"registered at {self.registration_url}" if self.client_id is None else self.client_id


class LimitsSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`[limits]` of a connector: `memory_mb` in MiB, beyond what the interpreter itself takes, `timeout_s` in seconds of real
    time, and `subprocess`, whether it may start processes.
    """

    memory_mb: int = 64
    timeout_s: int = 30
    subprocess: bool = False


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[operations.parameters]]` entry: the constraints on a JSON value. An empty or null field sets none.

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
    """One `[[operations]]` entry: an operation of a connector. With `rest`, it accepts arguments besides its parameters.

    `network` says whether it may send requests, and `credential` whether it may send them with a credential. Both are true unless
    the manifest says otherwise.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    rest: bool = False
    network: bool = True
    credential: bool = True
    login: OperationLogin | UnsetType = UNSET
    """`read_only`: it runs only as a database role that cannot write. `previewed`: it changes only what a person saw."""


class ConnectorManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A connector's `manifest.toml`. `hosts` empty means no network; `credential` None means none.

    `operations` are all it has; None: they are not recorded, and only a run can tell.
    """

    name: Fqn
    version: str
    publisher: str | None = None
    provenance_hash: str | None = None
    document_hash: str | None = None
    """Of the document that it was made from."""
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
        """What only the supervisor asks: for a sign-in, or for tokens without a person."""
        if self.credential is not None and self.credential.token is not UNSET:
            return (self.credential.token.token_url,)
        return () if self.oauth2 is None else self.oauth2.token_endpoints

    def operation(self, name: str) -> Operation:
        """The one of that name; one that takes and may do anything where there is no record of it."""
        found = (one for one in self.operations or () if one.name == name)
        return next(found, Operation(name=name, rest=True))


class InputSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[inputs]]` of an action."""

    name: str
    type: InputType
    description: str
    required: bool = True
    label: str | None = None
    multiline: bool = False
    rule: dict[str, Any] = {}
    """What a value has to fit beside its type, in the keywords of JSON Schema (actions/inputs.py)."""
    default: Any = msgspec.UNSET
    """What stands for an argument that is not given; UNSET: nothing does."""

    @property
    def is_always_there(self) -> bool:
        """Whether each call has a value of it."""
        return self.required or self.default is not msgspec.UNSET


class RequiredConnector(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[requires.connectors]]`: the pin, and the subset of its operations the action uses."""

    name: Fqn
    version: str
    hash: str
    capabilities: tuple[str, ...]


class StepSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[execute]]`. `inputs` holds literals and `${args.x}` references, not yet resolved. `effect` as the file says it."""

    id: str
    connector: Fqn
    op: str
    idempotent: bool = False
    effect: Effect | None = None
    inputs: dict[str, Any] = {}

    @property
    def does(self) -> Effect | None:
        """What it does: as it is said; what may be run again unasked changes nothing; of the rest nobody knows."""
        return Effect.READ if self.effect is None and self.idempotent else self.effect


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True):
    """`[approval]`. Times in seconds. Absent `irreversible` means it cannot be undone."""

    required: bool = False
    expires_in_s: int = 900
    irreversible: bool = True
    undo_window_s: int = 0
    """How long an approved run is held, and may still be cancelled, before it begins."""


class PreviewRule(msgspec.Struct, frozen=True, kw_only=True):
    """`[approval.preview]`: an operation that only reads, run for the person who decides, and what of its answer they see.

    `inputs` holds literals and `${args.x}` references; `render` maps a label to a dotted path into the answer, in the order of
    the file; `multiline` are the labels whose text may have several lines.
    """

    connector: Fqn
    op: str
    inputs: dict[str, Any] = {}
    render: dict[str, str]
    multiline: frozenset[str] = frozenset()


class ActionFile(msgspec.Struct, frozen=True, kw_only=True):
    """One action: the frontmatter as values, `body` (the Markdown after it), and `digest` over the file's bytes."""

    name: str
    version: str
    source: str | None
    intent: str
    summary: str | None = None
    """What a call of it does, in a sentence with places for values (actions/summary.py)."""
    tags: tuple[str, ...] = ()
    """What it belongs to, for selecting and finding it."""
    connectors: tuple[RequiredConnector, ...]
    steps: tuple[StepSpec, ...]
    inputs: tuple[InputSpec, ...]
    approval: ApprovalRule
    preview: PreviewRule | None = None
    body: str
    text: str
    digest: str
