"""An invocation and an action file, made exact: what would be done, frozen as a `Plan`.

Pure: the manifests and the names of bindings come in through two Protocols, nothing is written, no secret is
seen. Trusts neither side: the arguments are an agent's, the file is a stranger's, the manifest is a
publisher's. A plan grants no more than all of them agree on.

In this order
1. Every argument is one the action declares, of its type. No coercion.
2. Every pinned connector is installed with exactly those bytes.
3. Every step's operation is in the action's own `capabilities`.
4. Every credential a connector needs is bound, and which binding is not in doubt.
5. `${args.NAME}` is replaced once; a value that looks like a reference stays as it is.

Source: docs/reference/action-file.md. Not here: who must be asked (approvals/), opening bytes and secrets
(the run).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from aileron.actions.manifest import REFERENCE
from aileron.config import Settings
from aileron.model.canonical import canonical_json
from aileron.model.document import MAX_NUMBER
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.manifest import ActionFile, ConnectorManifest, InputSpec, RequiredConnector, StepSpec
from aileron.model.names import BindingName
from aileron.model.plan import ConnectorPin, CredentialUse, Grant, Plan, Step

__all__ = ["Bindings", "Connectors", "resolve"]


class Connectors(Protocol):
    """The installed connectors, as the registry's store knows them."""

    def manifest(self, pin: ConnectorPin) -> ConnectorManifest:
        """The verified manifest of exactly these bytes; AileronError(not_found) or (hash_mismatch)."""


class Bindings(Protocol):
    """The names of bound credentials, as the vault knows them. No secret, and no need to unlock."""

    def candidates(self, connector: str, kind: str) -> Sequence[BindingName]:
        """Every binding of `kind` made for this connector."""


MAX_ARGS_BYTES: Final = 48 << 10
"""48 KiB of canonical JSON for one step: it travels in one frame header of 64 KiB, beside at most 32 hosts.
"""


def resolve(
    invocation: Invocation,
    action: ActionFile,
    *,
    connectors: Connectors,
    bindings: Bindings,
    settings: Settings,
) -> Plan:
    """What `invocation` of `action` would do. AileronError says which of the steps above refused, and the
    cure.
    """
    args = _checked_args(invocation, action)  # 1
    required = {connector.name: connector for connector in action.connectors}
    manifests: dict[str, ConnectorManifest] = {}
    for step in action.steps:
        connector = required[step.connector]
        pin = _pin(connector)
        if str(pin) not in manifests:
            manifests[str(pin)] = connectors.manifest(pin)  # 2
        _check_capability(step, connector, manifests[str(pin)])  # 3
    credentials = _credentials(invocation, manifests, bindings)  # 4
    steps = []
    for step in action.steps:
        pin = _pin(required[step.connector])
        grant = _grant(manifests[str(pin)], credentials[str(pin)], settings)
        steps.append(_step(step, pin, manifests[str(pin)], args, grant))
    return Plan(
        action=action.name,
        action_version=action.version,
        action_digest=action.digest,
        action_text=action.text,
        args=args,
        steps=tuple(steps),
        approval=action.approval,
    )


def _checked_args(invocation: Invocation, action: ActionFile) -> dict[str, Any]:
    """The arguments in declared order. All problems in one error, so that an agent mends them in one go."""
    declared = {spec.name: spec for spec in action.inputs}
    problems: dict[str, str] = {}
    for name in invocation.args:
        if name not in declared:
            near = difflib.get_close_matches(name, declared, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"declared: {', '.join(declared) or 'none'}"
            problems[name] = f"no such input; {hint}"
    for name, spec in declared.items():
        if name in invocation.args:
            if problem := _type_problem(spec, invocation.args[name]):
                problems[name] = problem
        elif spec.required:
            problems[name] = f"missing; expected {_EXPECTED[spec.type]}"
    if problems:
        raise _bad_input(f"action {action.name!r}", problems)
    return {name: invocation.args[name] for name in declared if name in invocation.args}


def _bad_input(subject: str, problems: dict[str, str]) -> AileronError:
    told = "; ".join(f"argument {name!r}: {problem}" for name, problem in problems.items())
    return AileronError(
        FailureClass.BAD_INPUT, f"{subject}: {told}", boundary=Boundary.ACTION, details={"arguments": problems}
    )


_EXPECTED: Final = {
    "string": "a string",
    "integer": "an integer below 2**53",
    "number": "a number below 2**53",
    "boolean": "true or false",
}


def _type_problem(spec: InputSpec, value: object) -> str | None:
    """None, or what was found and what was expected. The value itself is not quoted: it may be long, or
    private.
    """
    if _IS_OF_TYPE[spec.type](value):
        return None
    hint = "; leave an optional input out" if value is None and not spec.required else ""
    return f"{_found(value)}; expected {_EXPECTED[spec.type]}{hint}"


def _found(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string that is not valid Unicode" if not _is_unicode(value) else "a string"
        case int():
            return "an integer" if abs(value) <= MAX_NUMBER else "an integer of 2**53 or more"
        case float():
            return "a number with a fraction or exponent" if _is_number(value) else "not finite, or 2**53 or more"
        case list():
            return "an array"
        case _:
            return "an object"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON's \u escapes can spell
        return False
    return True


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= MAX_NUMBER  # false for NaN


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and _is_number(value)


_IS_OF_TYPE: Final[dict[str, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str) and _is_unicode(value),
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
}


def _pin(connector: RequiredConnector) -> ConnectorPin:
    return ConnectorPin(str(connector.name), connector.version, connector.hash)


def _check_capability(step: StepSpec, connector: RequiredConnector, manifest: ConnectorManifest) -> None:
    """The action's own subset: the operation by name, or by the kind or a scope of the connector's
    credential.
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
        f"step {step.id!r}: operation {step.op!r} of {pin} is not in the action's capabilities ({granted}); "
        "add it to [[requires.connectors]] if the action is meant to use it",
        boundary=Boundary.ACTION,
        details={
            "connector": str(pin),
            "requested": f"op:{step.op}",
            "granted": [f"op:{capability}" for capability in connector.capabilities],
            "step": step.id,
        },
    )


def _credentials(
    invocation: Invocation, manifests: dict[str, ConnectorManifest], bindings: Bindings
) -> dict[str, CredentialUse | None]:
    """For each connector the one binding to use. Which is never guessed; `invocation.binding` decides between
    several.
    """
    wanted = invocation.binding
    uses: dict[str, CredentialUse | None] = {}
    is_wanted_used = False
    for pin, manifest in manifests.items():
        if manifest.credential is None:
            uses[pin] = None
            continue
        candidates = tuple(bindings.candidates(str(manifest.name), manifest.credential.kind))
        matching = tuple(name for name in candidates if wanted in {str(name), name.identity})
        is_wanted_used = is_wanted_used or bool(matching)
        # A name that is meant for another connector of this action leaves this one's only choice alone.
        choices = matching or candidates
        if len(choices) != 1:
            raise _unbound(manifest, choices, wanted)
        uses[pin] = CredentialUse(connector=str(manifest.name), binding=choices[0], need=manifest.credential)
    if wanted is not None and not is_wanted_used:
        bound = ", ".join(str(use.binding) for use in uses.values() if use) or "none is used"
        raise AileronError(
            FailureClass.BINDING_REQUIRED,
            f"no credential of this action is bound as {wanted!r}; bound: {bound}",
            boundary=Boundary.USER,
            details={"binding": wanted},
        )
    return uses


def _unbound(manifest: ConnectorManifest, choices: tuple[BindingName, ...], wanted: str | None) -> AileronError:
    need = manifest.credential
    assert need is not None
    details: dict[str, Any] = {"connector": str(manifest.name), "kind": need.kind}
    if choices:
        names = [str(name) for name in choices]
        problem = f"{len(names)} credentials could serve" if wanted is None else f"{wanted!r} names several"
        message = f"{manifest.name}: {problem}; choose one with --as: {', '.join(names)}"
        details["choices"] = names
    else:
        user = " --username USER" if need.kind == "basic" else ""
        setup = f"aileron binding setup {manifest.name} --name {need.kind}/SERVICE/IDENTITY{user} --secret NAME"
        message = f"{manifest.name} needs a credential of kind {need.kind} ({need.scope}), none is bound: {setup}"
        details["setup"] = setup
    return AileronError(FailureClass.BINDING_REQUIRED, message, boundary=Boundary.USER, details=details)


def _grant(manifest: ConnectorManifest, credential: CredentialUse | None, settings: Settings) -> Grant:
    hosts = frozenset(manifest.hosts)
    plain = hosts & settings.egress_private_plain
    return Grant(
        hosts=manifest.hosts,
        plain=plain,
        private=(hosts & settings.egress_private) | plain,
        credential=credential,
        imports=manifest.imports,
    )


def _step(step: StepSpec, pin: ConnectorPin, manifest: ConnectorManifest, args: dict[str, Any], grant: Grant) -> Step:
    final = args | _substituted(step.inputs, args)  # what the file says wins over an argument of that name
    size = len(canonical_json(final))
    if size > MAX_ARGS_BYTES:
        raise _bad_input(f"step {step.id!r}", {"*": f"{size} bytes in all; at most {MAX_ARGS_BYTES}"})
    return Step(
        id=step.id,
        connector=pin,
        op=step.op,
        args=final,
        idempotent=step.idempotent and manifest.idempotent_by_default,
        grant=grant,
        limits=manifest.limits,
    )


class _Absent:
    """The value of a reference to an optional input that was not given."""


_ABSENT: Final = _Absent()


def _substituted(inputs: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
    """References replaced, once. What refers to an absent optional input is left out, key and all."""
    replaced = {key: _value(value, args) for key, value in inputs.items()}
    return {key: value for key, value in replaced.items() if value is not _ABSENT}


def _value(value: Any, args: dict[str, Any]) -> Any:
    match value:
        case dict():
            return _substituted(value, args)
        case list():
            return [item for item in (_value(member, args) for member in value) if item is not _ABSENT]
        case str():
            return _text(value, args)
        case _:
            return value


def _text(value: str, args: dict[str, Any]) -> Any:
    if whole := REFERENCE.fullmatch(value):
        return args.get(whole[1], _ABSENT)  # keeps its type
    # One pass: what is put in is never looked at again. The parser admits only required inputs here.
    return REFERENCE.sub(lambda match: _spelled(args[match[1]]), value)


def _spelled(value: str | int | float | bool) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode()
