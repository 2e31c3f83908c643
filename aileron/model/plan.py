"""The plan, an exact statement of everything that an invocation would do, with its digest; and the approved plan.

A `Plan` is made by `actions/resolve.py` and holds everything a run needs: after that, nothing is looked up again, so what a
person is shown, what is recorded and what runs are the same value. `ApprovedPlan` has no public constructor: only
approvals/gate.py makes one, and the executor accepts nothing else. Code that bypasses the gate gets a TypeError.

Source: docs/explanation/architecture.md; the pattern is trio's NoPublicConstructor.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, Self, final

import msgspec
from msgspec import UNSET, UnsetType

from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.json_value import JSONObject, dict_of
from aileron.model.login import BoundLogin, named
from aileron.model.manifest import ApprovalRule, CredentialNeed, HostFunction, LimitsSpec, OperationLogin
from aileron.model.names import BindingName, HostPort

__all__ = [
    "MAX_ARGS_BYTES",
    "ApprovedPlan",
    "Budget",
    "ConnectorPin",
    "CredentialUse",
    "Filled",
    "Grant",
    "Plan",
    "PlannedPreview",
    "Step",
    "StepValue",
]

MAX_ARGS_BYTES: Final = 48 << 10
"""48 KiB: maximum size of one step's arguments as canonical JSON. They share a frame header of 64 KiB with at most 32 hosts."""


class ConnectorPin(msgspec.Struct, frozen=True):
    """The pin of a connector: its name, exact version, and `sha256:…` over its bytes followed by its manifest."""

    name: str
    version: str
    hash: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class CredentialUse(msgspec.Struct, frozen=True, kw_only=True):
    """The credential that a step can use, with its connector and its form on the wire. Holds no secret.

    `connector` is the FQN that the binding was made for. If a binding's name is revoked and bound to another connector while a
    plan waits, its credential must not be lent to this step.
    """

    connector: str
    binding: BindingName
    need: CredentialNeed
    account: str | None = None
    """Owner of the credential, as named by the provider or the user; for people."""
    login: OperationLogin | UnsetType = UNSET
    """Limit on the login. `read_only`: only as a role that cannot write. `previewed`: only for changes that a person saw."""
    bound: BoundLogin | UnsetType = UNSET
    """The binding's login when the plan was made; the binding is lent only if it is unchanged.

    Absent without a login, and in older plans.
    """

    @property
    def whose(self) -> str:
        """The account and the binding's name, for people; for a login also where it logs in."""
        account = self.account
        if self.bound is not UNSET:
            account = self.bound.words(self.need.logins)
            if self.account is not None and self.account != self.bound.username:
                account += f", signed in as {named(self.account)}"
        return str(self.binding) if account is None else f"{account} ({self.binding})"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits on the total that one step can send and receive."""

    requests: int = 256
    """Maximum number of requests in one step; an honest operation makes a handful, one that reads pages some dozens."""
    bytes_up: int = 64 << 20
    """Maximum total size of request bodies in bytes."""
    bytes_down: int = 256 << 20
    """Maximum total size of response bodies in bytes, after decoding."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The reach of one step: everything that the manifest, the action, the binding and the user's exceptions for
    private hosts all allow.

    `hosts` are all destinations. `plain` are the hosts listed in the user's `egress.private_plain`, which are contacted
    without TLS and only on loopback. `private` are the hosts listed in `egress.private` (or `private_plain`), which may resolve
    to an address that is not public.
    """

    hosts: tuple[HostPort, ...] = ()
    plain: frozenset[HostPort] = frozenset()
    private: frozenset[HostPort] = frozenset()
    credential: CredentialUse | None = None
    reserved: tuple[str, ...] = ()
    """URLs of the OAuth provider's endpoints (token, device, revocation).

    Only the supervisor sends requests to them, even if `hosts` includes their host.
    """
    imports: frozenset[HostFunction] = frozenset()
    budget: Budget = Budget()
    read_only: bool = False
    """True for previews: only requests with a safe method (RFC 9110, section 9.2.1; RFC 4918, 9.1; RFC 3253, 3.6), and only
    streams with a login that can be limited to reading.
    """


class StepValue(msgspec.Struct, frozen=True, kw_only=True):
    """A reference to a value in the result of an earlier step: a path of object keys and array indexes, which start at 0."""

    step: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"${{{self.step}.{'.'.join(self.path)}}}"


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a step's arguments that is filled when the step begins: a JSON pointer (RFC 6901), and the parts of the value.

    A value that fills the place alone keeps its type; a value within text is inserted as text.
    """

    at: str
    parts: tuple[str | StepValue, ...]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A connector operation with its final arguments, except for places that are filled from the results of earlier steps.

    `args` has the reference, as `${STEP.PATH}`, at each place listed in `filled`; no other place is filled.
    """

    id: str
    connector: ConnectorPin
    op: str
    args: JSONObject
    idempotent: bool
    grant: Grant
    limits: LimitsSpec
    filled: tuple[Filled, ...] = ()
    accepted: str | UnsetType = UNSET
    """Digest (`sha256:…`) of a tool that a server changed and a person accepted; absent for every other operation."""

    @property
    def changes_only_seen(self) -> bool:
        """True if the step makes only the changes that the approved preview showed (`login = "previewed"`)."""
        return self.grant.credential is not None and self.grant.credential.login == "previewed"


class PlannedPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The operation that is run for the person before they decide, and the parts of its result that they see.

    `render` maps a label to a dotted path, in order.
    """

    step: Step
    render: tuple[tuple[str, str], ...]
    multiline: frozenset[str] = frozenset()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan: exactly what would be done. `digest` covers the complete plan, which does not include the caller."""

    action: str
    action_version: str
    action_digest: str
    action_text: str
    args: JSONObject
    steps: tuple[Step, ...]
    approval: ApprovalRule
    preview: PlannedPreview | None = None

    @property
    def digest(self) -> str:
        """Digest of this plan: `sha256:…` over its canonical JSON."""
        return sha256_digest(canonical_json(self.to_json()))

    @property
    def changes_only_seen(self) -> bool:
        """True if a step of the plan makes only the changes that its preview showed.

        A run that was approved without a preview would change nothing.
        """
        return any(step.changes_only_seen for step in self.steps)

    def to_json(self) -> JSONObject:
        """Return the plan as JSON values with sorted sets. The ledger stores these, and the digest is computed from them."""
        built = msgspec.to_builtins(self, order="sorted")
        if not isinstance(built, dict):
            raise TypeError("a plan is a JSON object")
        preview = built["preview"]
        for step in (*built["steps"], *([] if preview is None else [preview["step"]])):
            _leave_out_no_logins(step["grant"]["credential"])
        return built

    @classmethod
    def from_json(cls, value: JSONObject) -> Self:
        """Return the plan that `to_json` wrote. Raises msgspec.ValidationError if the value is not a plan."""
        return msgspec.convert(value, cls)


def _leave_out_no_logins(credential: JSONObject | None) -> None:
    """Remove empty `logins` and `commands` from a step's credential, because older plans lack these fields and their
    digests must not change.
    """
    if credential is not None:
        need = dict_of(credential["need"])
        for name in ("logins", "commands"):
            if not need[name]:
                del need[name]


class _OnlyTheGate(type):
    def __call__(cls, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError(f"{cls.__name__} has no public constructor: only the approval gate makes one")

    def _create(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


@final
class ApprovedPlan(metaclass=_OnlyTheGate):
    """A plan that may be executed, bound to the digest that the gate admitted or a person approved."""

    __slots__ = ("approval_id", "digest", "plan", "seen")

    def __init__(self, plan: Plan, digest: str, approval_id: str | None, seen: str | None = None) -> None:
        """Bind a plan to its digest. `seen` is the digest of the effects that the approving person saw.

        Raises ValueError if `digest` is not the plan's.
        """
        if plan.digest != digest:
            raise ValueError("the plan is not the one that was approved")
        self.plan = plan
        self.digest = digest
        self.approval_id = approval_id
        self.seen = seen
