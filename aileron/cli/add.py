"""The dialogue of `aileron add`: what a service can reach, which actions, the credential, one consent, and a read that shows that
it works.

Runs in a command. Everything that is asked can be given as an option; without a terminal, what is missing is an error that names
the option. The daemon decides and installs.

Rules
- A person is told what the service reaches and what it costs before anything is asked.
- A typed secret is stored first, and removed again if the service is then not added.
- Enter alone takes the answer that is shown. An action that writes without approval, such as one that stores a draft, is named as
  such before the person chooses.

Source: docs/how-to/add-a-service.md. Not here: options (commands/add.py), servers (add_servers.py), the decision
(decision_dialogue.py), sign-ins (signin.py).
"""

from __future__ import annotations

import base64
import contextlib
import shlex
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from aileron.api.daemon import Removed
from aileron.api.fetches import Installed
from aileron.api.secrets import SecretStored, SetSecret
from aileron.api.services import AddService, ServiceCredential, ServiceList, SignInToService
from aileron.catalogue.preparing import FIRST, label
from aileron.catalogue.service import Service
from aileron.cli import output
from aileron.cli.add_servers import GivenServers, choose_servers
from aileron.cli.bind import BindRequest, asked_details, free_name, typed_secret
from aileron.cli.decision_dialogue import carry_through
from aileron.cli.plan import COLUMN
from aileron.cli.problem import INTERRUPTED, OK, UNFINISHED, Problem, tell
from aileron.cli.prompts import ask, ask_unseen, can_ask, choose, is_yes
from aileron.cli.signin import How, browser, open_page, sign_in_to_service
from aileron.cli.supervisor import Supervisor, path_of
from aileron.cli.trial import asked_arguments, told
from aileron.model.login import LoginDetails, LoginTarget
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import BINDING_PART
from aileron.model.visible import visible

__all__ = ["AddOptions", "add_service"]

_READS, _ALL, _SOME = "1", "2", "3"
_CHECK_S: Final = 25.0
"""Seconds that the check of a service may take: as long as `aileron run` waits by itself."""
_NOT_THE_CREDENTIAL: Final = frozenset({"capability_denied", "network_error"})
"""Classes of failures that another credential does not change."""


class AddOptions(NamedTuple):
    """Options of the command line. What is None is asked at a terminal, or not needed."""

    address: str | None = None
    """Mail address by which the servers are found."""
    identity: str | None = None
    actions: str | None = None
    """`reads`, `all`, or names of actions separated by commas."""
    hosts: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    region: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    username: str | None = None
    secret: str | None = None
    """Name of a stored secret."""
    host_key: str | None = None
    database: str | None = None
    yes: bool = False
    as_json: bool = False


def add_service(supervisor: Supervisor, service: Service, manifest: ConnectorManifest, given: AddOptions) -> int:
    """Add a service for one account. Return the exit code. Raises Problem if a value is missing or it cannot be added."""
    if can_ask() and not given.as_json:
        _introduce(service, manifest)
    supervisor.open_or_create_vault()
    identity = _identity(supervisor, service, given)
    servers = choose_servers(service, GivenServers(given.address, given.hosts, given.logins, given.yes))
    if given.username is None and given.secret is not None:
        given = given._replace(username=servers.username)
    asked = AddService(
        service=service.name,
        directory=None if service.is_bundled else service.directory,
        identity=identity,
        hosts=servers.hosts,
        logins=servers.logins,
        region=_region(service, given),
        actions=_actions(service, given),
    )
    client_id, client_secret = _application(service, given)
    asked = msgspec.structs.replace(asked, client_id=client_id, client_secret=client_secret)
    wanted = None if manifest.credential is None else _request(manifest, asked)
    credentials: tuple[ServiceCredential, ...] = ()
    stored: list[str] = []
    if wanted is not None:
        if "application" not in service.asks:  # otherwise the person has read it
            _tell_where(service)
        typed = _typed_credentials(service, wanted, given, servers.username)
        credentials, stored = _stored(supervisor, service, wanted, identity, typed, given)
    is_signed_in_to = wanted is not None and wanted.kind == "oauth2" and not credentials
    try:
        if is_signed_in_to:
            code = _signed_in(supervisor, asked, given)
        else:
            code = _added(supervisor, msgspec.structs.replace(asked, credentials=credentials), given)
    except BaseException:
        _remove(supervisor, stored)
        raise
    if code not in (OK, UNFINISHED, INTERRUPTED):
        _remove(supervisor, stored)
    if code != OK:
        return code
    secret = credentials[0].secret if credentials else None
    return _checked(supervisor, service, identity, given, secret)


# What is asked


def _introduce(service: Service, manifest: ConnectorManifest) -> None:
    reaches = [str(host) for host in manifest.hosts] or "the server or servers that you name next, and nothing else"
    need = manifest.credential
    facts = [
        ("service", f"{service.title}: {service.line}"),
        ("reaches", reaches),
        ("wants", None if need is None else need.scope),
        ("costs", service.credential.costs),
    ]
    output.print_facts(facts, "stderr", column=COLUMN)
    output.note("")


def _identity(supervisor: Supervisor, service: Service, given: AddOptions) -> str:
    """Return the name of the account: the given one, `me` for the first account of a service, or one that the person gives."""
    taken = {
        entry.identity
        for entry in supervisor.fetch(ServiceList, "GET", "/v1/services").services
        if entry.name == label(service.name, entry.identity)
    }
    identity = given.identity or (FIRST if FIRST not in taken else None)
    while identity is None or identity in taken or not BINDING_PART.fullmatch(identity):
        problem = (
            f"{service.name} is connected already, as {', '.join(sorted(taken))}"
            if identity is None or identity in taken
            else f"{identity!r} is not lower-case letters, digits, '.', '_' or '-'"
        )
        if not can_ask() or given.identity is not None:
            raise Problem.usage(problem, fix=f"aileron add {service.name} --as NAME")
        output.note(visible(problem))
        identity = ask("A name for this account, such as work")
    return identity


def _actions(service: Service, given: AddOptions) -> tuple[str, ...]:
    """Return the names of the chosen actions."""
    every = service.actions
    reads = tuple(name for name in every if service.only_reads(name))
    if given.actions is not None:
        return {"reads": reads, "all": every}.get(given.actions) or _named(given.actions)
    if not can_ask():
        raise Problem.usage("no terminal to choose actions at", fix=f"aileron add {service.name} --actions reads|all")
    gated = [name for name in every if service.asks_each_time(name)]
    unasked = [name for name in every if name not in gated and name not in reads]
    more = [f"and these write without asking you: {_short(unasked)}"] if unasked else []
    choices = [
        (f"  {_READS}", f"only those that read: {_short(reads)}"),
        (f"  {_ALL}", [f"all; these ask you each time: {_short(gated)}", *more]),
        (f"  {_SOME}", "one by one"),
    ]
    output.print_facts(choices, "stderr", column=5)
    match choose(f"Which actions? [{_READS}-{_SOME}, Enter for {_ALL}] ", (_READS, _ALL, _SOME)):
        case "" | "2":
            return every
        case "1":
            return reads
        case "3":
            return tuple(name for name in every if is_yes(f"{name} ({_what_it_does(service, name)})? [y/N] "))
        case _:
            raise Problem("nothing added", exit_code=6, name="cancelled")


def _named(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _short(names: Sequence[str]) -> str:
    """Return some names in a line, and the number of the rest."""
    shown = ", ".join(names[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown or "nothing"


def _what_it_does(service: Service, name: str) -> str:
    if service.only_reads(name):
        return "only reads"
    return "asks you each time" if service.asks_each_time(name) else "writes without asking you"


def _region(service: Service, given: AddOptions) -> str | None:
    if "region" not in service.asks:
        return None
    if given.region is None and not can_ask():
        raise Problem.usage("no terminal to ask for a region at", fix=f"aileron add {service.name} --region REGION")
    return given.region or ask("Region, such as eu-central-1", "us-east-1")


def _application(service: Service, given: AddOptions) -> tuple[str | None, str | None]:
    """Return the client ID and the client secret of the person's own application at the provider, if the service needs one."""
    if "application" not in service.asks or given.client_id is not None:
        return given.client_id, given.client_secret
    if not can_ask():
        raise Problem.usage(
            f"{service.title} needs {service.credential.costs}",
            why=" ".join(service.credential.steps),
            fix=f"aileron add {service.name} --client-id ID --client-secret-file FILE",
        )
    _tell_where(service)
    return ask("Client ID"), ask_unseen("Client secret (Enter if it has none)", may_be_empty=True) or None


def _tell_where(service: Service) -> None:
    """Tell the person where to get a credential with the least rights, and open the page if they want."""
    if not can_ask():
        return
    output.note("")
    for number, step in enumerate(service.credential.steps, start=1):
        output.note(f"  {number}. {step}" if len(service.credential.steps) > 1 else f"  {step}")
    for permission in service.credential.permissions:
        output.note(f"     {permission.name}: {permission.access}; for {permission.needed_for}")
    page = service.credential.page
    if page is None:
        return
    output.note(f"  {page}")
    opener = browser()
    if opener is not None and is_yes("Open this page? [y/N] "):
        open_page(opener, page)


# The credential


class _TypedCredential(NamedTuple):
    """A credential that the person typed, for a role of the service (empty if it has no roles)."""

    role: str
    username: str | None
    value: bytes
    details: LoginDetails


def _typed_credentials(
    service: Service, wanted: BindRequest, given: AddOptions, likely_user: str | None
) -> list[_TypedCredential]:
    """Return the credentials that the person types; none if an option names a secret, or if the person signs in later.

    Enter takes `likely_user` as the user name. Raises Problem if there is no terminal to type at.
    """
    if wanted.kind == "oauth2" or given.secret is not None:
        return []
    if not can_ask():
        raise Problem.usage("no terminal to type a credential at", fix=f"aileron add {service.name} --secret NAME")
    typed: list[_TypedCredential] = []
    for role in service.roles or ("",):
        if role == "writer" and not is_yes("Does another role change rows? [y/N] "):
            continue
        # Of an access key, too, which the daemon takes without an ID if its secret is JSON that has both
        asks = wanted.asks_username or wanted.username is not None
        username = given.username or (ask(_user_words(wanted, role), likely_user) if asks else None)
        details = LoginDetails(read_only=role == "reader", host_key=given.host_key, database=given.database)
        try:
            details = asked_details(wanted, details, asks_role=False)
        except Problem as problem:
            problem.fix = f"aileron add {service.name}"
            raise
        typed.append(_TypedCredential(role, username, typed_secret(wanted), details))
    return typed


def _stored(
    supervisor: Supervisor,
    service: Service,
    wanted: BindRequest,
    identity: str,
    typed: Sequence[_TypedCredential],
    given: AddOptions,
) -> tuple[tuple[ServiceCredential, ...], list[str]]:
    """Store the typed credentials. Return all credentials for the service, and the names of the secrets that are new."""
    if given.secret is not None:
        is_login = wanted.kind == "login"
        details = LoginDetails()
        if is_login:  # of a service with two roles, the one that only reads
            details = LoginDetails(read_only=bool(service.roles), host_key=given.host_key, database=given.database)
        return (_credential(given.secret, given.username, details),), []
    credentials: list[ServiceCredential] = []
    stored: list[str] = []
    try:
        for credential in typed:
            of = service.name if not credential.role else f"{service.name}-{credential.role}"
            name = free_name(supervisor, f"{wanted.kind}/{of}/{identity}")
            body = SetSecret(value_base64=base64.b64encode(credential.value).decode())
            supervisor.fetch(SecretStored, "PUT", path_of("v1", "secrets", name), body)
            stored.append(name)
            credentials.append(_credential(name, credential.username, credential.details))
    except BaseException:
        _remove(supervisor, stored)
        raise
    return tuple(credentials), stored


def _user_words(wanted: BindRequest, role: str) -> str:
    words = "User name" if wanted.username is None else wanted.username.words
    return {"reader": f"{words} of the role that only reads", "writer": f"{words} of the role that writes"}.get(
        role, words
    )


def _credential(secret: str, username: str | None, details: LoginDetails) -> ServiceCredential:
    return ServiceCredential(secret=secret, username=username, details=None if details == LoginDetails() else details)


def _remove(supervisor: Supervisor, stored: Sequence[str]) -> None:
    for name in stored:
        with contextlib.suppress(Problem):  # used meanwhile, or the daemon is gone: `aileron secret list` shows it
            supervisor.fetch(Removed, "DELETE", path_of("v1", "secrets", name))


def _request(manifest: ConnectorManifest, asked: AddService) -> BindRequest:
    """Return the credential request of the connector as it will be built."""
    logins = tuple(LoginTarget.parse(login) for login in asked.logins)
    return BindRequest.of_manifest(manifest, logins=logins, hosts=tuple(asked.hosts))


# Adding and checking


def _added(supervisor: Supervisor, asked: AddService, given: AddOptions) -> int:
    answer = supervisor.change(Installed, "POST", "/v1/services", asked, wait_s=60.0)
    return carry_through(supervisor, answer, _tell, yes=given.yes, as_json=given.as_json)


def _tell(result: Any) -> None:
    if not isinstance(result, Installed):
        return
    if not output.is_terminal():
        for action in result.actions:
            output.write(visible(action.name))
    count = len(result.actions)
    listed = "; to see them: aileron action list" if output.is_terminal() else ""
    output.note(f"added, with {count} action{'' if count == 1 else 's'}{listed}")


def _signed_in(supervisor: Supervisor, asked: AddService, given: AddOptions) -> int:
    """Add a service after the person has signed in to it. Return the exit code."""

    def finish(answer: msgspec.Struct) -> int:
        return carry_through(supervisor, answer, _tell, yes=given.yes, as_json=given.as_json)

    how = How(as_json=given.as_json)
    body = SignInToService(**{name: getattr(asked, name) for name in AddService.__struct_fields__}, flow=how.flow)
    return sign_in_to_service(supervisor, body, how, finish)


def _checked(supervisor: Supervisor, service: Service, identity: str, given: AddOptions, secret: str | None) -> int:
    """Run the read that shows that the service works, and tell what it found. Return the exit code.

    If it fails, the service stays added, and the person is told how to replace the credential. `secret` is its name.
    """
    name = label(service.name, identity)
    check = service.check
    if given.as_json or not can_ask():
        return OK
    if check is None:
        output.note("next: aileron launch AGENT")
        return OK
    if (args := asked_arguments(check)) is None:
        return OK
    action = name + check.action.removeprefix(service.name)
    command = shlex.join(["aileron", "run", action, *(f"{name}={args[name]}" for name in check.asks)])
    path = f"{path_of('v1', 'actions', action, 'run')}?wait={_CHECK_S}"
    try:
        answer = supervisor.ask("POST", path, {"args": args}, wait_s=_CHECK_S)
        if answer.get("status", "completed") != "completed":
            raise Problem.of_state(answer)
    except Problem as problem:
        code = tell(problem)
        if secret is not None and problem.name not in _NOT_THE_CREDENTIAL:
            output.note(f"{visible(name)} is added. If the credential is wrong, replace it, and try again:")
            output.note(f"  fix: aileron secret set {secret}\n  then: {visible(command)}")
        return code
    output.note(f"{name}: {visible(told(check, answer.get('result')))}")
    output.note(f"next: aileron launch AGENT, or {visible(command)}")
    return OK
