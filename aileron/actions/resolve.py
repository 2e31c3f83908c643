"""The resolver, which turns an invocation and an action file into a `Plan`: exactly what would be done, frozen.

Pure: manifests and names of bindings are read through two Protocols, nothing is written, and no secret is
handled. All inputs are untrusted: an agent gives the arguments, an unknown author the file, a
publisher the manifest. A plan grants only what all three allow.

In this order
1. Every argument is declared by the action, and of its type. No coercion.
2. Every pinned connector is installed with exactly those bytes.
3. Every step's operation is in the action's own `capabilities`.
4. Every credential that a connector needs is bound for all that it requests, and exactly one binding is chosen (choosing.py).
5. `${args.NAME}` is replaced once; a value that looks like a reference stays as it is. `${STEP.PATH}` stays too; the plan lists
   each place with such a reference, and the run fills only these places.
6. Every operation exists in its connector, and accepts its arguments (fitting.py).

A preview is resolved with its action, as a step that only reads. Egress limits the step's Grant to safe methods, and to
streams with a login that can be limited to reading. A preview takes at most 5 seconds, and gets only its own `inputs`.

Source: docs/reference/action-file.md. Not here: whether a person must be asked (approvals/), reading connector bytes and
secrets (the run).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from aileron.actions.choosing import Bindings, Choice, choices, credentials
from aileron.actions.fitting import check_call, check_seen
from aileron.actions.inputs import EXPECTED, argument_problem
from aileron.actions.manifest import parse_action
from aileron.actions.references import Argument, pieces
from aileron.config import Settings
from aileron.model.canonical import canonical_json
from aileron.model.credential import Candidate
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Invocation, Scope
from aileron.model.json_value import JSON, JSONObject
from aileron.model.manifest import (
    ActionFile,
    ApprovalRule,
    ConnectorManifest,
    HostFunction,
    LimitsSpec,
    PreviewRule,
    RequiredConnector,
    StepSpec,
)
from aileron.model.names import BindingName
from aileron.model.near import did_you_mean
from aileron.model.plan import (
    MAX_ARGS_BYTES,
    ConnectorPin,
    CredentialUse,
    Filled,
    Grant,
    Plan,
    PlannedPreview,
    Step,
    StepValue,
)

__all__ = [
    "Accepted",
    "Bindings",
    "Choice",
    "Connectors",
    "account_choices",
    "check_as_resolved",
    "grant_of",
    "nothing_accepted",
    "preview_plan",
    "resolve",
    "used_credentials",
    "with_args",
]


class Connectors(Protocol):
    """The installed connectors, as listed by the registry's store."""

    def manifest(self, pin: ConnectorPin) -> ConnectorManifest:
        """Return the verified manifest of the connector with exactly this pin.

        Raises AileronError: not_found if the connector is not installed, hash_mismatch if its bytes differ.
        """


class Accepted(Protocol):
    """Lookup of the tool definitions that a person accepted after an MCP server changed its tools."""

    def __call__(self, pin: ConnectorPin, op: str, /) -> str | None:
        """Return the digest of the changed definition of the tool `op` that a person accepted last; None if the
        definition that the connector was made from still applies.
        """


def nothing_accepted(_pin: ConnectorPin, _op: str, /) -> str | None:
    """Return None: no changed tool was accepted, so every tool must be as it was when its connector was made."""
    return None


PREVIEW_STEP: Final = "preview"
"""The id of a preview's only step."""
_MAX_UNKNOWN: Final = 10
"""Maximum number of undeclared arguments that an error lists; a request body of a megabyte has room for a hundred thousand."""
_MAX_SHOWN: Final = 64
"""Maximum number of characters of an undeclared argument's name that an error shows. A declared input's name is not longer."""
PREVIEW_TIMEOUT_S: Final = 5
"""Maximum duration of a preview in seconds. A person waits for it; most services answer a read in under one second."""


def resolve(
    invocation: Invocation,
    action: ActionFile,
    *,
    connectors: Connectors,
    bindings: Bindings,
    settings: Settings,
    accepted: Accepted = nothing_accepted,
) -> Plan:
    """Return the plan of what `invocation` of `action` would do.
    Raises AileronError saying which of the module's checks refused, and the fix.
    """
    args = _checked_args(invocation.args, action)  # 1
    required = {connector.name: connector for connector in action.connectors}
    preview = None if action.preview is None else _preview_spec(action.preview)
    manifests: dict[str, ConnectorManifest] = {}
    for step in action.steps if preview is None else (*action.steps, preview):
        connector = required[step.connector]
        pin = _pin(connector)
        if str(pin) not in manifests:
            manifests[str(pin)] = connectors.manifest(pin)  # 2
        _check_capability(step, connector, manifests[str(pin)])  # 3
    check_seen(action, {connector: manifests.get(str(_pin(pinned))) for connector, pinned in required.items()})
    roles = _roles(action, manifests)
    uses = credentials(invocation.binding, roles.manifests, bindings, roles.idle, roles.reading, roles.identities)  # 4

    def planned(step: StepSpec, final: _Final) -> Step:  # 5
        pin = _pin(required[step.connector])
        use = uses[roles.keys[str(pin), step.op]]
        if use is not None and manifests[str(pin)].operation(step.op).login == "previewed":
            use = msgspec.structs.replace(use, login="previewed")
        grant = grant_of(manifests[str(pin)], use, settings)
        made = _step(step, pin, manifests[str(pin)], final, grant)
        if (digest := accepted(pin, step.op)) is not None:
            made = msgspec.structs.replace(made, accepted=digest)
        check_call(made, manifests[str(pin)])  # 6
        return made

    steps = [planned(step, _final_args(step, args)) for step in action.steps]
    return Plan(
        action=action.name,
        action_version=action.version,
        action_digest=action.digest,
        action_text=action.text,
        args=args,
        steps=tuple(steps),
        approval=action.approval,
        preview=None
        if action.preview is None or preview is None
        else _preview(action.preview, planned(preview, _preview_args(preview, args))),
    )


def with_args(plan: Plan, args: JSONObject, *, connectors: Connectors) -> Plan:
    """Return `plan` with `args` as the arguments of the call. The arguments of its steps and preview change
    accordingly; nothing else changes.

    Pins, hosts, credentials and limits stay those of `plan`; `connectors` is used to check the operations. Raises AileronError:
    bad_input as for a run; not_found if a connector is gone; hash_mismatch if the plan's steps do not match its own text.
    """
    action = parse_action(plan.action_text, file=f"{plan.action}.md")
    _check_own_text(plan, action)
    checked = _checked_args(args, action)
    steps = tuple(
        msgspec.structs.replace(step, **_final_args(spec, checked)._asdict())
        for spec, step in zip(action.steps, plan.steps, strict=True)
    )
    preview = plan.preview
    if preview is not None and action.preview is not None:
        given = _preview_args(_preview_spec(action.preview), checked)
        preview = msgspec.structs.replace(preview, step=msgspec.structs.replace(preview.step, **given._asdict()))
    for step in steps if preview is None else (*steps, preview.step):
        check_call(step, connectors.manifest(step.connector))
    return msgspec.structs.replace(plan, args=checked, steps=steps, preview=preview)


def preview_plan(plan: Plan) -> Plan:
    """Return the plan that runs only the preview of `plan`, to show it to a person. It needs no approval.

    Raises AileronError(invalid_request) if the action has no preview.
    """
    if plan.preview is None:
        message = f"action {plan.action!r} has no preview"
        raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.ACTION)
    rule = ApprovalRule(required=False, irreversible=False)
    return msgspec.structs.replace(plan, steps=(plan.preview.step,), approval=rule, preview=None)


def check_as_resolved(
    plan: Plan,
    *,
    connectors: Connectors,
    bindings: Bindings,
    settings: Settings,
    accepted: Accepted = nothing_accepted,
) -> ActionFile:
    """Return the action file inside `plan` after checking that resolving that file again gives the same plan.

    The file is resolved with the plan's arguments and bindings. This check is needed if a part of the plan, such as its
    preview, runs before a person has signed the plan. Others can write the file that stores the plan, so nothing that the plan
    says about hosts, credentials or read-only access is trusted. The caller must still check that the action file has consent.
    Raises AileronError: hash_mismatch if the plans differ, or what `resolve` raises.
    """
    action = parse_action(plan.action_text, file=f"{plan.action}.md")
    _check_own_text(plan, action)
    steps = plan.steps if plan.preview is None else (*plan.steps, plan.preview.step)
    uses = {(use.connector, use.binding) for step in steps if (use := step.grant.credential) is not None}
    invocation = Invocation(action=plan.action, args=plan.args, scope=Scope.OPERATOR)
    now = resolve(
        invocation,
        action,
        connectors=connectors,
        bindings=_Chosen(bindings, frozenset(uses)),
        settings=settings,
        accepted=accepted,
    )
    if now.digest != plan.digest:
        raise _not_its_own(plan)
    return action


class _Chosen:
    """The list of existing bindings, limited to those that a plan uses."""

    def __init__(self, bindings: Bindings, uses: frozenset[tuple[str, BindingName]]) -> None:
        self._bindings = bindings
        self._uses = uses

    def candidates(self, connector: str, kind: str) -> Sequence[Candidate]:
        """Return the bindings of `kind` that were made for this connector and that the plan uses."""
        return [
            candidate
            for candidate in self._bindings.candidates(connector, kind)
            if (connector, candidate.name) in self._uses
        ]


def account_choices(action: ActionFile, *, connectors: Connectors, bindings: Bindings) -> tuple[Choice, ...]:
    """Return the values that a caller of `action` can give as the invocation's `binding`; empty if there is no choice.

    Choices for its preview are included, as in a run. Raises AileronError if a connector is not installed.
    """
    pins = {connector.name: _pin(connector) for connector in action.connectors}
    used = {step.connector for step in action.steps} | ({action.preview.connector} if action.preview else set())
    manifests = {str(pins[name]): connectors.manifest(pins[name]) for name in sorted(used)}
    roles = _roles(action, manifests)
    return choices(roles.manifests, bindings, roles.idle, roles.reading, roles.identities)


def used_credentials(
    action: ActionFile, *, connectors: Connectors, bindings: Bindings, binding: str | None = None
) -> tuple[str, ...]:
    """Return the sorted names of the bindings that a run of `action` would use now, without those of its preview.

    `binding` chooses between several bindings, as in an invocation. Raises AileronError as for a run.
    """
    required = {connector.name: connector for connector in action.connectors}
    pins = [_pin(required[step.connector]) for step in action.steps]
    roles = _roles(action, {str(pin): connectors.manifest(pin) for pin in pins})
    used = {roles.keys[str(pin), step.op] for pin, step in zip(pins, action.steps, strict=True)}
    manifests = {key: manifest for key, manifest in roles.manifests.items() if key in used}
    uses = credentials(binding, manifests, bindings, roles.idle, roles.reading, roles.identities)
    return tuple(sorted({str(use.binding) for use in uses.values() if use is not None}))


class _Roles(NamedTuple):
    """The roles in which an action uses its connectors. Each role has its own credential, if it needs one.

    Each connector has one role, and a second, read-only role if some of its operations run only as a read-only role.
    """

    keys: dict[tuple[str, str], str]
    """Key of the role that each used operation runs in, by the connector's pin and the operation's name."""
    manifests: dict[str, ConnectorManifest]
    """Manifests of the connectors, by the key of the role."""
    idle: frozenset[str]
    """Keys of the roles in which no used operation names a credential."""
    reading: frozenset[str]
    """Keys of the read-only roles."""
    identities: dict[str, str]
    """Identities that the action names for its connectors, by the key of the role."""


def _roles(action: ActionFile, manifests: dict[str, ConnectorManifest]) -> _Roles:
    """Return the roles in which the action's operations run. `manifests` has the connectors' manifests by pin."""
    required = {connector.name: str(_pin(connector)) for connector in action.connectors}
    named = {required[connector.name]: connector.identity for connector in action.connectors if connector.identity}
    used = [(required[step.connector], step.op) for step in action.steps]
    if action.preview is not None:
        used.append((required[action.preview.connector], action.preview.op))
    used = [(pin, op) for pin, op in used if pin in manifests]
    naming = {(pin, op): pin for pin, op in used if manifests[pin].operation(op).credential}
    reading = {(pin, op): f"{pin} read_only" for pin, op in naming if manifests[pin].operation(op).login == "read_only"}
    naming |= reading
    own = {pin: key for (pin, _), key in naming.items()}
    # An idle role needs no credential, so no person is asked about one.
    keys = {(pin, op): naming.get((pin, op), own.get(pin, pin)) for pin, op in used}
    return _Roles(
        keys=keys,
        manifests={key: manifests[pin] for (pin, _), key in sorted(keys.items())},
        idle=frozenset(keys.values()) - frozenset(naming.values()),
        reading=frozenset(reading.values()),
        identities={keys[pin, op]: named[pin] for pin, op in used if pin in named},
    )


def _check_own_text(plan: Plan, action: ActionFile) -> None:
    """Raise AileronError(hash_mismatch) unless the text in `plan` matches its digest,
    and the steps of `plan` match the text.

    The check is needed because others can write the file that stores the plan.
    """
    planned = [(step.id, step.connector.name, step.op) for step in plan.steps]
    written = [(step.id, str(step.connector), step.op) for step in action.steps]
    if (
        action.digest == plan.action_digest
        and planned == written
        and (plan.preview is None) == (action.preview is None)
    ):
        return
    raise _not_its_own(plan)


def _not_its_own(plan: Plan) -> AileronError:
    return AileronError(
        FailureClass.HASH_MISMATCH,
        f"the frozen plan of {plan.action!r} no longer matches its action file, bindings and settings: "
        "request the run again",
    )


def _checked_args(given: JSONObject, action: ActionFile) -> JSONObject:
    """Return the arguments in declared order. One AileronError reports all problems, so that an agent can fix them together."""
    declared = {spec.name: spec for spec in action.inputs}
    problems: dict[str, str] = {}
    unknown = [name for name in given if name not in declared]
    for name in unknown[:_MAX_UNKNOWN]:
        shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}…"
        hint = did_you_mean(shown, declared, f"declared: {', '.join(declared) or 'none'}")
        problems[shown] = f"no such input; {hint}"
    for name, spec in declared.items():
        if name in given:
            if problem := argument_problem(spec, given[name]):
                problems[name] = problem
        elif spec.required:
            problems[name] = f"missing; expected {EXPECTED[spec.type]}"
    if problems:
        raise _bad_input(f"action {action.name!r}", problems, unsaid=max(len(unknown) - _MAX_UNKNOWN, 0))
    stands = {name: spec.default for name, spec in declared.items() if spec.default is not msgspec.UNSET}
    return {name: (stands | given)[name] for name in declared if name in stands or name in given}


def _bad_input(subject: str, problems: dict[str, str], unsaid: int = 0) -> AileronError:
    told = "; ".join(f"argument {name!r}: {problem}" for name, problem in problems.items())
    if unsaid:
        told += f"; {unsaid} more are not inputs"
    return AileronError(
        FailureClass.BAD_INPUT, f"{subject}: {told}", boundary=Boundary.ACTION, details={"arguments": problems}
    )


def _pin(connector: RequiredConnector) -> ConnectorPin:
    return ConnectorPin(str(connector.name), connector.version, connector.hash)


def _check_capability(step: StepSpec, connector: RequiredConnector, manifest: ConnectorManifest) -> None:
    """Raise AileronError if the action's capabilities for a connector do not include the step's operation.

    Capabilities include an operation by name, or by the kind or a scope of the connector's credential.
    """
    whole_credential = set[str]()
    if manifest.credential is not None:
        whole_credential = {manifest.credential.kind, manifest.credential.scope}
        whole_credential.update(manifest.oauth2.scopes if manifest.oauth2 else ())
    if step.op in connector.capabilities or whole_credential.intersection(connector.capabilities):
        return
    pin = _pin(connector)
    granted = ", ".join(connector.capabilities)
    raise AileronError(
        FailureClass.CAPABILITY_DENIED,
        f"step {step.id!r}: operation {step.op!r} of {pin} is not in the action's capabilities "
        f"({granted}); to allow it, add it to [[requires.connectors]]",
        boundary=Boundary.ACTION,
        details={
            "connector": str(pin),
            "requested": f"op:{step.op}",
            "granted": [f"op:{capability}" for capability in connector.capabilities],
            "step": step.id,
        },
    )


def grant_of(manifest: ConnectorManifest, credential: CredentialUse | None, settings: Settings) -> Grant:
    """Return everything that a step of this connector can reach with these settings and this credential."""
    hosts = frozenset(manifest.hosts)
    plain = hosts & settings.egress_private_plain
    return Grant(
        hosts=manifest.hosts,
        plain=plain,
        private=(hosts & settings.egress_private) | plain,
        credential=credential,
        reserved=manifest.token_endpoints,
        imports=manifest.imports,
    )


def _step(step: StepSpec, pin: ConnectorPin, manifest: ConnectorManifest, final: _Final, grant: Grant) -> Step:
    return Step(
        id=step.id,
        connector=pin,
        op=step.op,
        args=final.args,
        filled=final.filled,
        idempotent=step.idempotent and manifest.idempotent_by_default,
        grant=grant,
        limits=manifest.limits,
    )


def _preview_spec(rule: PreviewRule) -> StepSpec:
    return StepSpec(id=PREVIEW_STEP, connector=rule.connector, op=rule.op, idempotent=True, inputs=rule.inputs)


def _preview(rule: PreviewRule, step: Step) -> PlannedPreview:
    """Return the preview that runs `step`, limited to reading, and to a few seconds because a person waits for it.

    WebSockets, and streams without a login, are removed, because they cannot be limited to reading.
    """
    replace = msgspec.structs.replace
    use, imports = step.grant.credential, step.grant.imports - {HostFunction.WEBSOCKET}
    if use is None or not use.need.logins:
        imports -= {HostFunction.TCP}
    grant = replace(step.grant, read_only=True, imports=imports)
    limits: LimitsSpec = replace(step.limits, timeout_s=min(step.limits.timeout_s, PREVIEW_TIMEOUT_S))
    return PlannedPreview(
        step=replace(step, idempotent=True, grant=grant, limits=limits),
        render=tuple(rule.render.items()),
        multiline=rule.multiline,
    )


class _Final(NamedTuple):
    """The arguments that a step's operation is called with, and the places in them to fill from results of earlier steps."""

    args: JSONObject
    filled: tuple[Filled, ...]


def _final_args(step: StepSpec, args: JSONObject) -> _Final:
    """Return the arguments of a step's operation: `args`, the call's arguments, replaced or extended by the file's own
    `inputs` for the step.
    """
    given = _preview_args(step, args)
    return _bounded(step, _Final(args | given.args, given.filled))


def _preview_args(step: StepSpec, args: JSONObject) -> _Final:
    """Return the arguments of a preview's operation: only the file's own `inputs` for it, because the call's arguments
    are not passed on to it.
    """
    filled: list[Filled] = []
    given = _substituted(step.inputs, args, "", filled)
    return _bounded(step, _Final(given, tuple(filled)))


def _bounded(step: StepSpec, final: _Final) -> _Final:
    size = len(canonical_json(final.args))
    if size > MAX_ARGS_BYTES:
        raise _bad_input(f"step {step.id!r}", {"*": f"{size} bytes in total; at most {MAX_ARGS_BYTES}"})
    return final


class _Absent:
    """Type of the marker for a reference to an optional input that was not given."""


_ABSENT: Final = _Absent()


def _substituted(inputs: JSONObject, args: JSONObject, at: str, filled: list[Filled]) -> JSONObject:
    """Return `inputs` with references to arguments replaced; the inserted values are not scanned again.
    A reference to an absent optional input is removed together with its key.

    `at` is the JSON pointer of these inputs; places that are filled from results are added to `filled`.
    """
    replaced = {key: _value(value, args, f"{at}/{_escaped(key)}", filled) for key, value in inputs.items()}
    return {key: value for key, value in replaced.items() if value is not _ABSENT}


def _value(value: Any, args: JSONObject, at: str, filled: list[Filled]) -> Any:
    match value:
        case dict():
            return _substituted(value, args, at, filled)
        case list():
            members: list[JSON] = []
            for member in value:  # a member that is left out moves those behind it
                if (final := _value(member, args, f"{at}/{len(members)}", filled)) is not _ABSENT:
                    members.append(final)
            return members
        case str():
            return _text(value, args, at, filled)
        case _:
            return value


def _text(value: str, args: JSONObject, at: str, filled: list[Filled]) -> Any:
    found = pieces(value)
    if len(found) == 1 and isinstance(found[0], Argument):
        return args.get(found[0].name, _ABSENT)  # keeps its type
    # One pass: a value that is put in is never scanned again. The parser admits only inputs here that are always there.
    parts = [_spelled(args[piece.name]) if isinstance(piece, Argument) else piece for piece in found]
    if any(isinstance(part, StepValue) for part in parts):
        filled.append(Filled(at=at, parts=tuple(parts)))
    return "".join(map(str, parts))


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")  # RFC 6901, section 3


def _spelled(value: JSON) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode()
