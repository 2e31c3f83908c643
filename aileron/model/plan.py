"""The plan, an invocation made exact: everything that would be done, frozen, with a digest; and the approved plan.

A `Plan` is made by `actions/resolve.py` and holds everything a run needs: after it nothing is looked up again, so what a
person is shown, what is written down and what runs are the same value. `ApprovedPlan` has no public constructor: only
approvals/gate.py makes one, and the executor accepts nothing else. Bypassing the gate is a TypeError.

Source: docs/explanation/architecture.md; the pattern is trio's NoPublicConstructor.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, Self, final

import msgspec
from msgspec import UNSET, UnsetType

from aileron.model.canonical import canonical_json, sha256_digest
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
"""48 KiB of canonical JSON for one step: it travels in one frame header of 64 KiB, beside at most 32 hosts."""


class ConnectorPin(msgspec.Struct, frozen=True):
    """The pin of a connector: name, exact version, and `sha256:…` over its bytes followed by its manifest."""

    name: str
    version: str
    hash: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class CredentialUse(msgspec.Struct, frozen=True, kw_only=True):
    """The credential that a step can use, for which connector, and in which form on the wire. Holds no secret.

    `connector` is the FQN the binding was made for: a name that is revoked and bound to another connector while a plan waits
    must not be lent to this one.
    """

    connector: str
    binding: BindingName
    need: CredentialNeed
    account: str | None = None
    """Owner of the credential, as the provider or the user named it: for people."""
    login: OperationLogin | UnsetType = UNSET
    """Limit on the login. `read_only`: only as a role that cannot write. `previewed`: to change only what a person saw."""
    bound: BoundLogin | UnsetType = UNSET
    """Details of the binding's login, which the loan must match; absent without a login, and in older plans."""

    @property
    def whose(self) -> str:
        """The account and the binding's name, for people; for a login also its place."""
        account = self.account
        if self.bound is not UNSET:
            account = self.bound.words(self.need.logins)
            if self.account is not None and self.account != self.bound.username:
                account += f", signed in as {named(self.account)}"
        return str(self.binding) if account is None else f"{account} ({self.binding})"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits on what one step can send and receive in all."""

    requests: int = 256
    """Requests of one step; an honest operation makes a handful, a paging one some dozens."""
    bytes_up: int = 64 << 20
    """Bytes of request bodies."""
    bytes_down: int = 256 << 20
    """Bytes of response bodies, after decoding."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The reach of one step: manifest ∩ action ∩ binding ∩ the user's private exceptions.

    `hosts` are all destinations; `plain` those of them that the user's `egress.private_plain` names, which are spoken to
    without TLS and only on loopback; `private` those that `egress.private` (or `private_plain`) names, which may resolve to
    an address that is not public.
    """

    hosts: tuple[HostPort, ...] = ()
    plain: frozenset[HostPort] = frozenset()
    private: frozenset[HostPort] = frozenset()
    credential: CredentialUse | None = None
    reserved: tuple[str, ...] = ()
    """URLs of the provider's endpoints (token, device, revocation):
    only the supervisor sends requests there, whatever `hosts` has.
    """
    imports: frozenset[HostFunction] = frozenset()
    budget: Budget = Budget()
    read_only: bool = False
    """True for previews: only requests with a safe method (RFC 9110, section 9.2.1; RFC 4918, 9.1; RFC 3253, 3.6), and only
    streams with a login that can be limited to reading.
    """


class StepValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value in the answer of an earlier step: keys of objects, and places in arrays from 0."""

    step: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"${{{self.step}.{'.'.join(self.path)}}}"


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a step's arguments that is filled when it begins: a JSON pointer (RFC 6901), and the parts of its value.

    A single value keeps its type; between words, its text is put in.
    """

    at: str
    parts: tuple[str | StepValue, ...]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A connector operation with its final arguments, except for the places that answers of earlier steps fill.

    `args` has the reference, as `${STEP.PATH}`, at each place of `filled`; only a place named there is filled.
    """

    id: str
    connector: ConnectorPin
    op: str
    args: dict[str, Any]
    idempotent: bool
    grant: Grant
    limits: LimitsSpec
    filled: tuple[Filled, ...] = ()
    accepted: str | UnsetType = UNSET
    """Digest (`sha256:…`) of a tool that its server changed and a person accepted; absent for every other operation."""

    @property
    def changes_only_seen(self) -> bool:
        """True if it changes only what the approved preview showed (`login = "previewed"`)."""
        return self.grant.credential is not None and self.grant.credential.login == "previewed"


class PlannedPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The operation that is read for the person before they decide, and the parts that they see:
    label → dotted path, in order.
    """

    step: Step
    render: tuple[tuple[str, str], ...]
    multiline: frozenset[str] = frozenset()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan: exactly what would be done. `digest` covers all of it; the caller is not part of it."""

    action: str
    action_version: str
    action_digest: str
    action_text: str
    args: dict[str, Any]
    steps: tuple[Step, ...]
    approval: ApprovalRule
    preview: PlannedPreview | None = None

    @property
    def digest(self) -> str:
        """Digest of this plan: `sha256:…` over its canonical JSON."""
        return sha256_digest(canonical_json(self.to_json()))

    @property
    def changes_only_seen(self) -> bool:
        """True if a step does only what its preview showed: approved without a preview, it would change nothing."""
        return any(step.changes_only_seen for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values, sets sorted: the ledger keeps this, and the digest is made of it."""
        built = msgspec.to_builtins(self, order="sorted")
        if not isinstance(built, dict):
            raise TypeError("a plan is a JSON object")
        preview = built["preview"]
        for step in (*built["steps"], *([] if preview is None else [preview["step"]])):
            _leave_out_no_logins(step["grant"]["credential"])
        return built

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return the plan that `to_json` wrote. msgspec.ValidationError if the value is not a plan."""
        return msgspec.convert(value, cls)


def _leave_out_no_logins(credential: dict[str, Any] | None) -> None:
    """Remove empty logins and commands from a need: older plans have no such fields, and their digests must not change."""
    if credential is not None:
        need = credential["need"]
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
    """A plan that may be carried out, bound to the digest that was admitted or decided."""

    __slots__ = ("approval_id", "digest", "plan", "seen")

    def __init__(self, plan: Plan, digest: str, approval_id: str | None, seen: str | None = None) -> None:
        """Bind a plan to its digest. `seen` is the digest of the effects that the approving person saw.
        ValueError for another digest.
        """
        if plan.digest != digest:
            raise ValueError("the plan is not the one that was approved")
        self.plan = plan
        self.digest = digest
        self.approval_id = approval_id
        self.seen = seen
