"""Choice of the credential for a run: the one that the caller named, or the only one. Aileron never chooses between several
itself.

Pure; handles no secret. Nothing is trusted: the name comes from a caller, and the requests from a publisher's manifest.

For each connector of an action that needs a credential, the candidates are the bindings made for that connector and for the
credential's kind; if the action names an identity for the connector, only those of that identity. An operation that runs as a
read-only role uses only bindings of read-only roles. All other operations never use such bindings.
1. If the caller named some of the candidates, only these are considered; otherwise all usable candidates are.
2. A binding can be used for what its consent covers. If this version of the connector asks for more, the binding is suspended.
3. Exactly one binding is used. If there is none or several, or if it is suspended, the error is `binding_required`, with what a
   person can do. But if the connector's operations name no credential, and the caller named none either, no credential is used.

Rules
- A suspended binding is never chosen. If it is named, or is the only one, the error has its name and what is new.
- A caller names one or more bindings, separated by commas: KIND/SERVICE/IDENTITY, or only the IDENTITY. One name can stand for
  bindings of several connectors. A name that matches no binding of the action, or two bindings of one connector, is refused.

Source: docs/reference/bindings.md, docs/adr/0024-what-a-binding-reaches.md. Not here: lending (vault/lend.py), asking a person
(cli/bind.py).

>>> named("work") is None, named(None) is None, sorted(named("work, home"))
(False, True, ['home', 'work'])
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET

from aileron.model.credential import Candidate, Reach
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fixes import setup_options
from aileron.model.json_value import JSONObject
from aileron.model.manifest import ConnectorManifest, CredentialNeed
from aileron.model.plan import CredentialUse

__all__ = ["MAX_CHOICES", "Bindings", "Choice", "choices", "credentials", "named"]

MAX_CHOICES: Final = 32
"""Maximum number of bindings, or of combinations of bindings, that are listed for a choice. A person or a model reads
all of them, and nobody has more accounts than this.
"""
_MAX_QUOTED: Final = 200
"""Maximum number of characters of a caller's text that a message quotes; a binding's name has at most 194."""
_CALLER_CHOOSES: Final[Mapping[str, str]] = MappingProxyType({})
"""The identities of an action that names none."""


class Bindings(Protocol):
    """The vault's list of bindings. It contains no secrets and can be read while the vault is locked."""

    def candidates(self, connector: str, kind: str) -> Sequence[Candidate]:
        """Return every binding of `kind` made for this connector."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice between several bindings that could be used.

    `value` is the text with which a caller makes this choice; `uses` has the chosen binding for each connector that has several
    usable bindings.
    """

    value: str
    uses: tuple[Candidate, ...]


class _Need(msgspec.Struct, frozen=True, kw_only=True):
    """A connector that an action uses, the credential that it needs, and the bindings made for the connector, by name."""

    connector: str
    version: str
    need: CredentialNeed
    asked: Reach
    bound: tuple[Candidate, ...]
    is_idle: bool
    """True if the operations that the action uses name no credential."""
    only_reads: bool = False
    """True if the connector's operations run only as a read-only role."""
    others: int = 0
    """Number of the connector's bindings that the used operations never use, because those bindings are for the other
    role: able to write, or read-only.
    """
    identity: str | None = None
    """Identity that the action names for the connector; None if the caller can choose."""

    @property
    def other_role(self) -> str:
        """Text for a message: the connector has bindings, but only for the role (able to write, or read-only) that the
        used operations do not use.

        Empty if the connector has no such bindings.
        """
        if not self.others:
            return ""
        return " (what is bound can write)" if self.only_reads else " that can write (what is bound only reads)"

    @property
    def serving(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self.bound if not self.new_for(candidate))

    def new_for(self, candidate: Candidate) -> tuple[str, ...]:
        """Return in words what the connector asks for beyond the binding's consent; empty if the binding can be used."""
        if candidate.reach is None:
            return ("everything: it was created before Aileron recorded what a binding may reach",)
        return candidate.reach.widened_to(self.asked)

    def meant(self, names: frozenset[str] | None) -> tuple[Candidate, ...]:
        return () if names is None else tuple(candidate for candidate in self.bound if _is_named(candidate, names))


def named(wanted: str | None) -> frozenset[str] | None:
    """Return the binding names in `wanted`, which a caller gave separated by commas; None if the caller gave none."""
    return None if wanted is None else frozenset(part.strip() for part in wanted.split(","))


def credentials(
    wanted: str | None,
    manifests: Mapping[str, ConnectorManifest],
    bindings: Bindings,
    idle: frozenset[str] = frozenset(),
    reading: frozenset[str] = frozenset(),
    identities: Mapping[str, str] = _CALLER_CHOOSES,
) -> dict[str, CredentialUse | None]:
    """Return for each key of `manifests` the credential to use, or None if no credential is needed. `wanted` is the
    caller's choice.

    Raises AileronError(binding_required) if there is not exactly one usable binding.

    `idle` has the keys whose operations name no credential: the caller is not asked to choose a binding for them. `reading`
    has the keys whose operations run only as a read-only role. `identities` are those that the action names, by key.
    """
    needs = _needs(manifests, bindings, idle, reading, identities)
    chosen = _chosen(needs, wanted)
    return {key: _use(needs[key], chosen[key]) if key in chosen else None for key in manifests}


def choices(
    manifests: Mapping[str, ConnectorManifest],
    bindings: Bindings,
    idle: frozenset[str] = frozenset(),
    reading: frozenset[str] = frozenset(),
    identities: Mapping[str, str] = _CALLER_CHOOSES,
) -> tuple[Choice, ...]:
    """Return the choices between usable bindings that a caller can make, ordered by the bindings' names.

    Empty if no connector has several usable bindings, or if a connector has none. MAX_CHOICES + 1 choices mean that there are
    more than can be listed. Each choice's value stands for exactly its bindings, whatever other bindings exist now.
    """
    every_need = _needs(manifests, bindings, idle, reading, identities)
    needs = {key: need for key, need in every_need.items() if not need.is_idle}
    if any(not need.serving for need in needs.values()):
        return ()
    several = {key: need for key, need in needs.items() if len(need.serving) > 1}
    if not several:
        return ()
    every = itertools.product(*(need.serving for need in several.values()))
    found = (_choice(needs, dict(zip(several, uses, strict=True))) for uses in itertools.islice(every, MAX_CHOICES + 1))
    return tuple(choice for choice in found if choice is not None)


def _choice(needs: Mapping[str, _Need], uses: Mapping[str, Candidate]) -> Choice | None:
    """Return the choice of the bindings in `uses`, with the shortest text by which a caller can choose exactly these;
    None if there is no such text.
    """
    for value in _spellings(list(uses.values())):
        try:
            chosen = _chosen(needs, value)
        except AileronError:
            continue
        if all(chosen[key] == candidate for key, candidate in uses.items()):
            return Choice(value=value, uses=tuple(uses.values()))
    return None


def _spellings(uses: list[Candidate]) -> Iterator[str]:
    identities = dict.fromkeys(candidate.name.identity for candidate in uses)
    yield ",".join(identities)
    yield ",".join(str(candidate.name) for candidate in uses)


def _needs(
    manifests: Mapping[str, ConnectorManifest],
    bindings: Bindings,
    idle: frozenset[str],
    reading: frozenset[str],
    identities: Mapping[str, str],
) -> dict[str, _Need]:
    needs = {}
    for key, manifest in manifests.items():
        if manifest.credential is None:
            continue
        identity = identities.get(key)
        made = [
            candidate
            for candidate in bindings.candidates(str(manifest.name), manifest.credential.kind)
            if identity is None or candidate.name.identity == identity
        ]
        bound = _ordered(candidate for candidate in made if candidate.read_only == (key in reading))
        needs[key] = _Need(
            connector=str(manifest.name),
            version=manifest.version,
            need=manifest.credential,
            asked=Reach.of(manifest),
            bound=bound,
            is_idle=key in idle,
            only_reads=key in reading,
            others=len(made) - len(bound),
            identity=identity,
        )
    return needs


def _chosen(needs: Mapping[str, _Need], wanted: str | None) -> dict[str, Candidate]:
    names = named(wanted)
    if names is None:
        needs = {key: need for key, need in needs.items() if not need.is_idle or len(need.serving) == 1}
    for need in needs.values():
        if not need.bound:
            raise _unbound(need)
    everything = [candidate for need in needs.values() for candidate in need.bound]
    for name in names or ():
        if not any(_is_named(candidate, frozenset({name})) for candidate in everything):
            raise _unknown(everything, name)
    return {key: _one(need, need.meant(names), wanted) for key, need in needs.items()}


def _one(need: _Need, meant: tuple[Candidate, ...], wanted: str | None) -> Candidate:
    """Return the binding to use for a connector: the only one in `meant` (the bindings that the caller named) or, if
    that is empty, the only usable one.
    """
    several = meant or need.serving
    if not several and len(need.bound) == 1:
        several = need.bound
    match several:
        case [only]:
            if new := need.new_for(only):
                raise _suspended(need, only, new)
            return only
        case _:
            raise _several(need, several or need.bound, wanted)


def _use(need: _Need, candidate: Candidate) -> CredentialUse:
    return CredentialUse(
        connector=need.connector,
        binding=candidate.name,
        need=need.need,
        account=candidate.account,
        login="read_only" if need.only_reads else UNSET,
        bound=candidate.login if need.need.logins and candidate.login is not None else UNSET,
    )


def _is_named(candidate: Candidate, names: frozenset[str]) -> bool:
    return str(candidate.name) in names or candidate.name.identity in names


def _ordered(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    return tuple(sorted(candidates, key=lambda candidate: candidate.name))


def _unbound(need: _Need) -> AileronError:
    role = " --read-only" if need.only_reads else ""
    kind, has_host_key = need.need.kind, bool(need.need.commands)
    options = setup_options(kind, f"{kind}/SERVICE/{need.identity or 'IDENTITY'}", has_host_key=has_host_key)
    setup = f"aileron binding setup {need.connector} {options}{role}"
    whose = "" if need.identity is None else f" of {need.identity}"
    wanted = f"a credential{whose} of kind {kind}{', as a role that only reads,' if role else ''} ({need.need.scope})"
    message = f"{need.connector} needs {wanted} and has none{need.other_role}: {setup}"
    return _required(message, need, setup=setup, **({"read_only": True} if need.only_reads else {}))


def _several(need: _Need, several: tuple[Candidate, ...], wanted: str | None) -> AileronError:
    if wanted is not None and any(_is_named(candidate, named(wanted) or frozenset()) for candidate in several):
        problem = f"{_quoted(wanted)} matches several credentials"
    elif need.serving:
        problem = f"{len(several)} credentials fit; choose one"
    else:
        problem = f"all {len(several)} credentials are suspended; choose one"
    return _required(f"{need.connector}: {problem}: {_listed(several)}", need, **_facts(several))


def _suspended(need: _Need, candidate: Candidate, new: tuple[str, ...]) -> AileronError:
    agreed = candidate.reach
    signs_in = (
        need.need.kind == "oauth2"  # the other kinds need no sign-in by a person: consent is enough
        and agreed is not None
        and (not set(need.asked.scopes) <= set(agreed.scopes) or need.asked.client != agreed.client)
    )
    setup = f"aileron binding {'reauthorize' if signs_in else 'rebind'} {candidate.name}"
    message = (
        f"{candidate.name} is suspended: {need.connector}@{need.version} asks for more than you approved "
        f"({'; '.join(new)}): {setup}"
    )
    facts: JSONObject = {"binding": str(candidate.name), "widened": list(new), "setup": setup}
    return _required(message, need, **facts, **({"signs_in": True} if signs_in else {}))


def _unknown(everything: Iterable[Candidate], wanted: str) -> AileronError:
    bound = _ordered({candidate.name: candidate for candidate in everything}.values())
    message = f"this action has no credential bound as {_quoted(wanted)}; there {_listed(bound, counted=True)}"
    details = {"binding": wanted[:_MAX_QUOTED], **_facts(bound)}
    return AileronError(FailureClass.BINDING_REQUIRED, message, boundary=Boundary.USER, details=details)


def _required(message: str, need: _Need, **more: Any) -> AileronError:
    details = {"connector": need.connector, "kind": need.need.kind, "scope": need.need.scope, **more}
    return AileronError(FailureClass.BINDING_REQUIRED, message, boundary=Boundary.USER, details=details)


def _facts(candidates: Sequence[Candidate]) -> dict[str, object]:
    """Return the `details` of an error: the binding names to choose from, and the account of each binding whose account
    is known.
    """
    listed = candidates[:MAX_CHOICES]
    facts: dict[str, object] = {"choices": [str(candidate.name) for candidate in listed]}
    accounts = {str(candidate.name): candidate.account for candidate in listed if candidate.account is not None}
    return facts | ({"accounts": accounts} if accounts else {})


def _listed(candidates: Sequence[Candidate], *, counted: bool = False) -> str:
    told = ", ".join(
        f"{candidate.name} ({candidate.account})" if candidate.account is not None else str(candidate.name)
        for candidate in candidates[:MAX_CHOICES]
    )
    more = len(candidates) - MAX_CHOICES
    told += f" and {more} more" if more > 0 else ""
    if not counted:
        return told
    return f"{'is' if len(candidates) == 1 else 'are'} {told}" if candidates else "is none"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")
