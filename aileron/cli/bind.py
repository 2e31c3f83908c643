"""Binds a connector's credential at the terminal: shows the person its purpose, and asks for a name and a secret or
sign-in.

Runs in commands: `binding setup`, `rebind`, `reauthorize`, and in `run` if no credential is bound yet or several match. The
publisher of the connector specifies the credential that it needs.

Rules
- The person sees what is wanted before they are asked for a secret, a sign-in, or an approval.
- A typed secret is stored first, and removed again if it is then not bound.
- After a fix, the run starts again with exactly the same arguments and idempotency key, because no part of the run had
  been carried out.

Source: docs/reference/bindings.md. Not here: the commands (commands/binding.py), a sign-in's page (signin.py).
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import os
import re
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, assert_never

import msgspec

from aileron.api.approvals import ApprovalList, ConsentAnswer
from aileron.api.bindings import AddBinding, BindingDetail, BindingEntry, BindingList, ChangeBinding
from aileron.api.connectors import ConnectorList
from aileron.api.daemon import Removed
from aileron.api.secrets import SecretList, SecretStored, SetSecret
from aileron.cli import output
from aileron.cli.commands.done import tell_done
from aileron.cli.decision_dialogue import carry_through
from aileron.cli.plan import COLUMN
from aileron.cli.problem import INTERRUPTED, NOT_FOUND, OK, UNFINISHED, Problem, parsed
from aileron.cli.prompts import ask, ask_now, ask_unseen, can_ask, is_yes, passphrase_from, pem_in
from aileron.cli.signin import How, browser, sign_in
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.credential import Reach
from aileron.model.credential_kind import UserNameRule, maybe_credential_facts
from aileron.model.host_key import fingerprint
from aileron.model.json_value import dict_of, list_of
from aileron.model.login import LoginDetails, LoginTarget, protocol_facts
from aileron.model.manifest import ConnectorManifest, CredentialKind
from aileron.model.request_signing import StoredAs
from aileron.model.secret_reference import SecretReference
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.cli.run import RunCommand
from aileron.cards.plan import host_line
from aileron.model.names import BindingName, precedence

__all__ = [
    "SOURCE_S",
    "BindOptions",
    "BindRequest",
    "asked_details",
    "bind",
    "bind_request_of",
    "check_source",
    "facts_of",
    "free_name",
    "keep_at",
    "mended",
    "print_new",
    "reauthorize",
    "rebind",
    "typed_secret",
]

_MAX_NAME = 60
"""Maximum number of characters of a derived secret name. The vault allows 64, and a number may be appended."""
_MOST_NAMES = 20
_MOST_ANSWERS = 3
_CONNECTOR_PREFIX = re.compile(r"^(aileron-)?connector-")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")
_BOTH = (("client_secret", "client_secret"), ("subject_token", "token"))
"""Keys of the JSON object that holds a client secret and the token to exchange, each with the name of the form
(`_Form`) that has the prompt for its value.
"""
_Stored = CredentialKind | StoredAs | Literal["ssh"]
"""Form in which a secret is stored: its kind, unless the kind has several forms."""
SOURCE_S = 15.0
"""Seconds to wait while the daemon fetches a secret from an external store; the daemon itself waits at most 10 s."""


class _Form(NamedTuple):
    """The words for a person about one form in which a credential is stored. `meaning` describes the credential; None
    for a sign-in.

    `{stored}` in `meaning` is replaced by words that say that the vault stores the secret, or by nothing.
    """

    meaning: str | None
    prompt: str = "Secret"
    """Prompt for the secret, or for its file."""
    in_file: str | None = None
    """Expected content of the secret's file; None if the person types the secret."""


def _form_of(stored: str) -> _Form:
    """Return the words for a credential of the form `stored`; without a `meaning` if this version does not know the
    form.
    """
    try:
        known: _Stored = msgspec.convert(stored, _Stored)
    except msgspec.ValidationError:
        return _Form(None)
    match known:
        case "basic":
            return _Form("a user name and a password{stored}", "Password or token")
        case "login" | "digest":
            return _Form("a user name and a password{stored}", "Password")
        case "api_key":
            return _Form("a key or token{stored}", "API key or token")
        case "oauth2" | "oauth2_client":
            return _Form(None)
        case "hmac":
            return _Form("a secret that signs requests{stored}", "Signing secret")
        case "aws_sigv4":
            return _Form("an access key ID and a secret access key that signs requests{stored}", "Secret access key")
        case "ssh":
            return _Form(
                "a user name and a private key{stored}; and the public key of the server",
                "File of the private key, without a passphrase",
                "a private key (-----BEGIN … PRIVATE KEY-----)",
            )
        case "mtls":
            return _Form(
                "a client certificate and its private key{stored}",
                "File of the certificate and its private key, in PEM",
                "a certificate and its private key (-----BEGIN CERTIFICATE-----, -----BEGIN … PRIVATE KEY-----)",
            )
        case "private_key":
            return _Form(
                "a client ID and a private key, or a service account's key file{stored}, with which Aileron gets tokens",
                "File of the private key (PEM or JWK), or of a service account's key (JSON)",
                "a private key: PEM (-----BEGIN … PRIVATE KEY-----), a JWK, or a service account's key file in JSON",
            )
        case "client_secret":
            return _Form("a client ID and its secret{stored}, with which Aileron gets tokens", "Client secret")
        case "token":
            return _Form("a token{stored}, which Aileron exchanges for others", "Token to exchange")
        case "client_secret_and_token":
            return _Form("a client ID, its secret and a token{stored}, which Aileron exchanges for others")
        case impossible:
            assert_never(impossible)


class BindRequest(NamedTuple):
    """A connector's request for a credential, from the newest installed version of the connector that needs one."""

    connector: str
    kind: str
    scope: str
    hosts: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    provider: str | None = None
    has_device: bool = False
    logins: tuple[LoginTarget, ...] = ()
    commands: tuple[str, ...] = ()
    has_readers: bool = False
    """True if some of the connector's operations run only with a read-only role."""
    sent_as: str | None = None
    """Description, for people, of how requests carry the credential; None if the connector logs in instead."""
    stores: StoredAs | None = None
    """Form in which the secret of an OAuth client that requests tokens is stored; None for other credentials."""

    @classmethod
    def of_manifest(
        cls, manifest: ConnectorManifest, *, logins: Sequence[LoginTarget] = (), hosts: Sequence[str] = ()
    ) -> Self:
        """Return the request of a connector that is not installed yet; `logins` and `hosts` are in place of its placeholders.

        Raises Problem if the connector needs no credential.
        """
        need = manifest.credential
        if need is None:
            raise Problem.usage(f"{manifest.name} needs no credential")
        return cls(
            connector=str(manifest.name),
            kind=need.kind,
            scope=need.scope,
            hosts=(*map(str, manifest.hosts or hosts), *(str(login.destination) for login in logins)),
            scopes=() if manifest.oauth2 is None else manifest.oauth2.scopes,
            logins=tuple(logins),
            commands=need.commands,
        )

    @property
    def asks_username(self) -> bool:
        """True if a person is asked for a user name before the secret."""
        return self.needs_username or bool(self.logins)

    @property
    def stored(self) -> str:
        """Form in which the secret is stored: `_Stored`; `oauth2` for a sign-in, which needs no secret of
        the person.
        """
        return "ssh" if self.ssh is not None else self.stores or self.kind

    @property
    def username(self) -> UserNameRule | None:
        """The rules for the user name; None if this kind of credential has no user name, or if this version does not
        know the kind.
        """
        facts = maybe_credential_facts(self.kind)
        return None if facts is None else facts.username

    @property
    def needs_username(self) -> bool:
        """True if a binding needs a user name."""
        return self.username is not None and self.username.is_required

    @property
    def ssh(self) -> LoginTarget | None:
        """The target of the SSH login; None if the connector does not log in by SSH."""
        return next((login for login in self.logins if login.protocol == "ssh"), None)


class BindOptions(NamedTuple):
    """Options of the command line for a binding."""

    name: str | None = None
    username: str | None = None
    secret: str | None = None
    source: str | None = None
    """Reference to the external store that has the secret; None if the vault has it."""
    token: str | None = None
    """Name of the stored secret that authenticates to the external store."""
    how: How = How()
    yes: bool = False
    is_part: bool = False
    """True if the binding is part of a run; standard output is then only for the run's result."""
    details: LoginDetails = LoginDetails()
    """Details of a login that the options give, such as its database or the server's key."""
    read_write: bool = False
    """True to withdraw, on rebinding, the promise that the login's role is read-only."""
    only_scram: bool = False
    """True to require SCRAM on rebinding, so that a weaker form of password is no longer allowed."""

    @property
    def words(self) -> list[str]:
        """The options of `binding setup` that say what is bound, as words of a command line."""
        options = {
            "--name": self.name,
            "--username": self.username,
            "--secret": self.secret,
            "--from": self.source,
            "--from-token": self.token,
            "--database": self.details.database,
            "--host-key": self.details.host_key,
            "--allow-password-form": self.details.weak_password,
        }
        said = [word for option, value in options.items() if value is not None for word in (option, value)]
        return [*said, "--read-only"] if self.details.read_only else said


def bind_request_of(supervisor: Supervisor, connector: str) -> BindRequest:
    """Return the credential request of `connector`. Raises Problem if the connector is not installed or needs no credential."""
    every = supervisor.fetch(ConnectorList, "GET", "/v1/connectors").connectors
    installed = [entry for entry in every if entry.name == connector]
    if not installed:
        raise Problem.missing(f"connector {connector!r} is not installed", fix="aileron connector list")
    needy = [(precedence(str(entry.version)), entry.hosts, entry.credential) for entry in installed if entry.credential]
    if not needy:
        raise Problem.usage(f"{connector} needs no credential", fix=f"aileron connector show {connector}")
    _, hosts, need = max(needy, key=lambda row: row[0])
    return BindRequest(
        connector=connector,
        kind=need.kind,
        scope=str(need.scope),
        hosts=tuple(hosts or ()),
        scopes=tuple(need.scopes or ()),
        provider=need.provider or None,
        has_device=bool(need.device),
        logins=tuple(LoginTarget.parse(text) for text in need.logins or ()),
        commands=tuple(need.commands or ()),
        has_readers=bool(need.read_only),
        sent_as=need.sent_as or None,
        stores=need.stores or None,
    )


def facts_of(wanted: BindRequest, *, is_here: bool = True) -> list[tuple[str, Any]]:
    """Return labeled facts about the requested credential, for printing. `is_here` is true if the vault will store the secret."""
    where = "" if wanted.provider is None else f" at {host_line(wanted.provider)}"
    meaning = _form_of(wanted.stored).meaning or f"you sign in{where}; Aileron never sees your password"
    return [
        ("wants", f"{wanted.kind}: {meaning.replace('{stored}', ', stored in the vault' if is_here else '')}"),
        ("for", wanted.scope),
        ("tokens from", host_line(wanted.provider) if wanted.provider and wanted.kind == "oauth2_client" else None),
        ("scopes", list(wanted.scopes) or ("none: the provider decides" if wanted.kind == "oauth2" else None)),
        ("reaches", [host_line(host) for host in wanted.hosts] or "nothing"),
        ("sent as", wanted.sent_as),
        ("logs in at", [login.words for login in wanted.logins] or None),
        ("executes", list(wanted.commands) or None),
    ]


def bind(supervisor: Supervisor, wanted: BindRequest, given: BindOptions) -> int:
    """Bind the credential that the person has or types, or sign in. Return the exit code. Raises Problem if that fails."""
    _check_given(wanted, given)
    supervisor.open_or_create_vault()
    name = _ask_name(supervisor, wanted) if given.name is None else given.name
    finish = _finish(supervisor, given, name)
    if wanted.kind == "oauth2" and given.secret is None and given.source is None:
        how = fitting(wanted, given.how)
        return sign_in(supervisor, wanted.connector, name, how, finish, username=given.username)
    rule, username = wanted.username, given.username
    if username is None and wanted.asks_username:
        username = ask("User name" if rule is None else rule.words)
    has_secret = given.secret is not None or given.source is not None
    secret = None if has_secret or wanted.stores != "private_key" else typed_secret(wanted)
    if username is None and rule is not None and not has_secret and not _says_who(wanted, secret):
        username = ask(rule.words)
    details = given.details
    if wanted.kind == "login":
        is_whole = given.username is not None and has_secret
        details = asked_details(wanted, details, asks_role=not is_whole)
    binding = AddBinding(
        connector=wanted.connector,
        name=name,
        secret=given.secret or "",
        username=username,
        details=None if details == LoginDetails() else details,
    )
    if given.secret is not None:
        return finish(_post(supervisor, binding))
    if given.source is not None:
        body = SetSecret(reference=given.source, token=given.token)
    else:
        body = SetSecret(value_base64=base64.b64encode(secret or typed_secret(wanted)).decode())
    return _bind_stored(supervisor, binding, body, given, finish)


def check_source(source: str | None, token: str | None) -> None:
    """Check the options `--from` and `--from-token`. Raises Problem if one is invalid."""
    if source is None:
        if token is not None:
            raise Problem.usage("--from-token belongs to --from")
        return
    parsed("--from:", SecretReference.parse, source)


def asked_details(wanted: BindRequest, given: LoginDetails, *, asks_role: bool) -> LoginDetails:
    """Return the details of a login: those in `given`, and others that the person at this terminal is asked for. Raises
    Problem if the person does not confirm the server's key.

    `asks_role` is false if options specified the user name and the secret, because they could have specified the role too.
    """
    replace = msgspec.structs.replace
    if not can_ask():
        return given
    if wanted.ssh is not None and given.host_key is None:
        given = replace(given, host_key=_asked_host_key(wanted, wanted.ssh))
    if given.database is None and any(protocol_facts(login.protocol).databases == "named" for login in wanted.logins):
        name = ask_now("Database (empty for the server's default): ")
        given = replace(given, database=name or None)
    if asks_role and wanted.has_readers and not given.read_only:
        given = replace(given, read_only=is_yes("Is this a role that only reads? [y/N] "))
    return given


def _asked_host_key(wanted: BindRequest, target: LoginTarget) -> str:
    output.note(f"fetching the public key of {visible(str(target.destination))}")
    from aileron.cli.host_key import fetched_host_key  # imports asyncio, which only an SSH binding needs

    key = fetched_host_key(target)
    output.print_facts([("key", key), ("fingerprint", fingerprint(key))], "stderr", column=COLUMN)
    output.note(
        "Anyone on the way could have shown this key. Compare the fingerprint with what the server's owner publishes."
    )
    if not is_yes("Is it the same? [y/N] "):
        fix = f"aileron binding setup {wanted.connector} --host-key 'TYPE BASE64'"
        raise Problem("nothing bound: the server's key is not known", exit_code=UNFINISHED, fix=fix)
    return key


def rebind(supervisor: Supervisor, name: str, given: BindOptions) -> int:
    """Replace the binding `name` by one with everything that its connector asks for now. Return the exit code."""
    supervisor.open_vault()
    says_nothing = given.details == LoginDetails() and not (given.read_write or given.only_scram)
    details = None if says_nothing else _merged_details(supervisor, name, given)
    body = ChangeBinding(secret=given.secret, username=given.username, details=details)
    answer = supervisor.change(BindingEntry, "PATCH", path_of("v1", "bindings", name), body)
    return _finish(supervisor, given, name)(answer)


def keep_at(supervisor: Supervisor, shown: BindingDetail, given: BindOptions, *, as_json: bool) -> int:
    """Have a binding use the value that its secret has now in its external store, or in the store that the options
    give. Return the exit code.
    """
    if given.source is None and shown.elsewhere:
        body = SetSecret(reference=shown.elsewhere.reference, token=shown.elsewhere.token)
    else:
        body = SetSecret(reference=given.source, token=given.token)
    supervisor.open_vault()
    answer = supervisor.change(SecretStored, "PUT", path_of("v1", "secrets", shown.secret), body, wait_s=SOURCE_S)

    def tell(_result: msgspec.Struct) -> None:
        output.note(f"{visible(shown.name)} uses the secret that is at {visible(str(body.reference))} now")

    return carry_through(supervisor, answer, tell, yes=given.yes, as_json=as_json)


def _merged_details(supervisor: Supervisor, name: str, options: BindOptions) -> LoginDetails:
    """Return the binding's login details, in which details from the options replace the stored details."""
    given = options.details
    before = supervisor.fetch(BindingDetail, "GET", path_of("v1", "bindings", name)).details or LoginDetails()
    weak_password = before.weak_password if given.weak_password is None else given.weak_password
    return LoginDetails(
        database=before.database if given.database is None else given.database,
        host_key=before.host_key if given.host_key is None else given.host_key,
        read_only=(before.read_only or given.read_only) and not options.read_write,
        weak_password=None if options.only_scram else weak_password,
    )


def reauthorize(supervisor: Supervisor, shown: BindingDetail, given: BindOptions) -> int:
    """Sign in again for the binding `shown`. Return the exit code."""
    supervisor.open_vault()
    how = fitting(bind_request_of(supervisor, shown.connector), given.how)
    finish = _finish(supervisor, given, shown.name, shown.account or "")
    return sign_in(supervisor, shown.connector, shown.name, how, finish, replace=True, username=given.username)


def fitting(wanted: BindRequest, how: How) -> How:
    """Return how the person signs in: as the options say, otherwise by device code if this machine has no browser and
    the provider supports device codes.

    Raises Problem if the options say nothing and there is no terminal, because nobody would see the address to open.
    """
    if how.is_said:
        return how
    if not can_ask():
        option = "--device" if wanted.has_device else "--no-browser"
        raise Problem.usage("no terminal to sign in at", fix=f"aileron binding setup {wanted.connector} {option}")
    # Without a browser here, the answer of a page elsewhere cannot come back: it goes to this machine's own loopback.
    return how._replace(device=True) if browser() is None and wanted.has_device else how


def print_new(connector: str, new: list[str]) -> bool:
    """Print `new`, which lists what a connector asks for beyond its binding. Return whether there is anything to print."""
    if new:
        output.note(f"{visible(connector)} asks for more than you approved:\n")
        output.print_facts([("new", new)], "stderr", column=COLUMN)
        output.note("")
    return bool(new)


def mended(asked: RunCommand, problem: Problem) -> RunCommand | int:
    """Fix a run that needs a credential, with the person's help. Return the run to start instead, or an exit code.

    Raises Problem if the fix fails. Raises `problem` itself if the person declines, or if nothing can be fixed here,
    because credentials are bound on the daemon's machine, and a dry run changes nothing.
    """
    details = problem.details
    if details.get("choices"):
        return _chosen(asked, problem)
    if not details.get("setup") or os.environ.get("AILERON_URL") or asked.dry_run:
        raise problem
    supervisor = Supervisor(passphrase=passphrase_from(asked.passphrase_file))
    connector, name = str(details.get("connector")), details.get("binding")
    if details.get("widened") and isinstance(name, str):
        return _agreed(asked, problem, supervisor, name)
    wanted = bind_request_of(supervisor, connector)
    output.note(f"{visible(connector)} needs a credential, and has none\n")
    output.print_facts(facts_of(wanted), "stderr", column=COLUMN)
    if not is_yes("\nBind one now and continue? [y/N] "):
        raise problem
    role = LoginDetails(read_only=details.get("read_only") is True)
    code = bind(supervisor, wanted, BindOptions(is_part=True, details=role))
    output.note("")
    return asked if code == OK else code


def _agreed(asked: RunCommand, problem: Problem, supervisor: Supervisor, name: str) -> RunCommand | int:
    """Show what a suspended binding's connector newly asks for, and ask the person; then rebind it or sign in again.

    Return the run to start, or an exit code. Raises `problem` if the person declines.
    """
    shown = supervisor.fetch(BindingDetail, "GET", path_of("v1", "bindings", name))
    output.note(f"{visible(name)} is suspended")
    print_new(shown.connector, [str(words) for words in list_of(problem.details["widened"])])
    signs_in = problem.details.get("signs_in") is True
    if not is_yes("Sign in again for all of this? [y/N] " if signs_in else "Approve all of this? [y/N] "):
        raise problem
    given = BindOptions(is_part=True)
    code = reauthorize(supervisor, shown, given) if signs_in else rebind(supervisor, name, given)
    output.note("")
    return asked if code == OK else code


def _chosen(asked: RunCommand, problem: Problem) -> RunCommand:
    """Let the person choose among the bindings that match, and return the run with the chosen binding.

    A binding that was specified for another connector of the action stays specified. Raises `problem` if the person
    chooses none of them.
    """
    choices = [str(name) for name in list_of(problem.details["choices"])]
    accounts = dict_of(problem.details.get("accounts"))
    width = max(map(len, choices))
    unknown = problem.details.get("binding")
    subject = problem.details.get("connector") or "this action"
    if unknown is not None:
        output.note(f"no binding {visible(repr(unknown))}")
    counted = "1 credential" if len(choices) == 1 else f"{len(choices)} credentials"
    output.note(f"{counted} of {visible(str(subject))} match\n")
    for number, name in enumerate(choices, start=1):
        account = visible(str(accounts.get(name, "")))
        output.note(f"  {number:>2}  {name.ljust(width)}  {account}".rstrip())
    meant = _which(choices)
    if meant is None:
        raise problem
    others = [
        binding
        for binding in (asked.binding or "").split(",")
        if binding and binding != unknown and binding not in _names_of(choices)
    ]
    chosen = ",".join([*others, meant])
    output.note(f"next time: --as {chosen}\n")
    return asked._replace(binding=chosen)


def _which(choices: list[str]) -> str | None:
    """Ask which binding to use, by its number, its name or the identity at the name's end. Return its name.

    Return None for an empty answer, and after _MOST_ANSWERS wrong answers.
    """
    for _ in range(_MOST_ANSWERS):
        typed = ask_now(f"Which? [1-{len(choices)}] ")
        if not typed:
            return None
        meant = [
            name
            for number, name in enumerate(choices, start=1)
            if typed in (str(number), name, name.rpartition("/")[2])
        ]
        if len(meant) == 1:
            return meant[0]
        output.note("no match" if not meant else "several match that")
    return None


def _names_of(choices: list[str]) -> set[str]:
    return {*choices, *(name.rpartition("/")[2] for name in choices)}


def _finish(supervisor: Supervisor, given: BindOptions, name: str, was: str = "") -> Callable[[msgspec.Struct], int]:
    """Return a function that handles the daemon's answer to a binding: it asks for consent if that is needed, reports
    the binding, and returns the exit code.

    `was` is the previous account if the person signs in again.
    """

    def tell(result: Any) -> None:
        if given.is_part:
            output.note(f"bound {visible(name)}")
        else:
            tell_done(result)
        if isinstance(result, BindingEntry) and result.kind == "oauth2":
            _tell_granted(supervisor.fetch(BindingDetail, "GET", path_of("v1", "bindings", name)), was)

    def finish(answer: msgspec.Struct) -> int:
        return carry_through(supervisor, answer, tell, yes=given.yes, as_json=given.how.as_json)

    return finish


def _tell_granted(shown: BindingDetail, was: str) -> None:
    """Print what the provider granted and refused, whether the account differs from `was`, and how to revoke the binding."""
    grant, reach = shown.grant, shown.reach or Reach()
    if grant is None:
        return
    missing = [scope for scope in reach.scopes if scope not in grant.scopes]
    output.print_facts(
        [
            ("granted", grant.scopes or ("nothing" if reach.scopes else "access, without scopes")),
            ("NOT granted", [*missing, "requests that need this will fail"] if missing else None),
            ("reaches", [host_line(host) for host in reach.hosts] or "nothing"),
            ("renewed", "automatically" if grant.refreshable else "no; sign in again when it expires"),
            ("to revoke", f"aileron binding revoke {shown.name}"),
        ],
        "stderr",
        column=COLUMN,
    )
    if was and shown.account and shown.account != was:
        output.note(
            f"this is a different account from before ({visible(was)}); if that is a mistake\n  fix: aileron "
            f"binding reauthorize {visible(shown.name)}"
        )


def _check_given(wanted: BindRequest, given: BindOptions) -> None:
    """Check that the name given for a binding is valid and that, without a terminal, no option is missing. Raises
    Problem otherwise.
    """
    if given.name is not None and (problem := _problem_of(given.name)):
        raise Problem.usage(f"--name {problem}")
    if can_ask():
        return
    why = None
    missing = []
    has_secret = given.secret is not None or given.source is not None
    if given.name is None:
        missing.append(f"--name {wanted.kind}/SERVICE/IDENTITY")
    if given.username is None and (wanted.needs_username or (wanted.logins and has_secret)):
        missing.append("--username USER")
    if not has_secret and wanted.kind != "oauth2":
        missing.append("--secret NAME")
    if not has_secret and wanted.kind == "oauth2" and not given.how.is_said:
        missing.append("--device" if wanted.has_device else "--no-browser")
    if wanted.ssh is not None and given.details.host_key is None:
        missing.append("--host-key 'TYPE BASE64'")
        destination = wanted.ssh.destination
        why = f"`ssh-keyscan -p {destination.port} {destination.host}` prints the server's keys; compare them with its owner's"
    if missing:
        raise Problem.usage(
            f"no terminal to ask at, and {' and '.join(option.split()[0] for option in missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing",
            why=why,
            fix=" ".join(["aileron binding setup", wanted.connector, *map(shlex.quote, given.words), *missing]),
        )


def _ask_name(supervisor: Supervisor, wanted: BindRequest) -> str:
    taken = {entry.name for entry in supervisor.fetch(BindingList, "GET", "/v1/bindings").bindings}
    service = _as_name(_CONNECTOR_PREFIX.sub("", wanted.connector.rpartition("/")[2])) or None
    identity = _as_name(getpass.getuser()) or "me"
    while True:
        name = f"{wanted.kind}/{ask('Service', service)}/{ask('Identity, whose credential it is', identity)}"
        if problem := _problem_of(name):
            output.note(visible(problem))
        elif name in taken:
            output.note(f"{name} already exists; choose another identity")
        else:
            return name


def _problem_of(name: str) -> str | None:
    try:
        BindingName.parse(name)
    except ValueError as error:
        return str(error)
    return None


def typed_secret(wanted: BindRequest) -> bytes:
    """Return the secret that the person types, or the content of the file whose name they type."""
    stored = wanted.stored
    form = _form_of(stored)
    if form.in_file is not None:
        return pem_in(ask(form.prompt), form.in_file, signs=stored == "private_key")
    if stored == "client_secret_and_token":
        return msgspec.json.encode({key: ask_unseen(_form_of(name).prompt) for key, name in _BOTH})
    return ask_unseen(form.prompt).encode()


def _says_who(wanted: BindRequest, secret: bytes | None) -> bool:
    """Return whether no client ID is needed: a service account's key file contains it, or a token is exchanged
    without a client.
    """
    if secret is None:
        return wanted.stores == "token"
    try:
        return "client_email" in msgspec.json.decode(secret, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return False


def _bind_stored(
    supervisor: Supervisor,
    binding: AddBinding,
    secret: SetSecret,
    given: BindOptions,
    finish: Callable[[msgspec.Struct], int],
) -> int:
    """Store `secret` under an unused name, and make the binding with it. Return the exit code.

    Store the secret in the vault first, and remove it if the binding fails or is denied.
    """
    stored = free_name(supervisor, binding.name)
    path = path_of("v1", "secrets", stored)
    kept = supervisor.change(SecretStored, "PUT", path, secret, wait_s=SOURCE_S)
    if isinstance(kept, ConsentAnswer):  # consent for its token comes first
        code = carry_through(supervisor, kept, _tell_nothing, yes=given.yes, as_json=given.how.as_json)
        if code in (UNFINISHED, INTERRUPTED):
            output.note(f"once it is approved, bind it\n  fix: {_to_bind(binding, stored)}")
        if code != OK:
            return code
    try:
        answer = _post(supervisor, msgspec.structs.replace(binding, secret=stored))
    except BaseException:
        supervisor.fetch(Removed, "DELETE", path)
        raise
    code = finish(answer)
    if code not in (OK, UNFINISHED, INTERRUPTED):
        with contextlib.suppress(Problem):  # another surface may have approved it meanwhile: then it is in use
            supervisor.fetch(Removed, "DELETE", path)
    return code


def _to_bind(binding: AddBinding, secret: str) -> str:
    """Return the command that binds this stored secret with the same options, as one line for a shell."""
    given = BindOptions(binding.name, binding.username, secret, details=binding.details or LoginDetails())
    return shlex.join(["aileron", "binding", "setup", binding.connector, *given.words])


def _tell_nothing(_result: msgspec.Struct) -> None:
    """Print nothing about a secret that was stored, because the report on the binding follows."""


def _post(supervisor: Supervisor, binding: AddBinding) -> msgspec.Struct:
    try:
        return supervisor.change(BindingEntry, "POST", "/v1/bindings", binding)
    except Problem as problem:
        if problem.exit_code == NOT_FOUND and problem.what.startswith("no secret"):
            problem.fix = f"aileron secret set {binding.secret}"
        raise


def free_name(supervisor: Supervisor, binding: str) -> str:
    """Return an unused name for the secret, derived from the binding's name.

    Names in pending approvals count as used, so that no secret is overwritten.
    """
    taken = {entry.name for entry in supervisor.fetch(SecretList, "GET", "/v1/secrets").secrets}
    asked = supervisor.fetch(ApprovalList, "GET", "/v1/action-approvals").approvals
    taken |= {entry.name for entry in asked if entry.kind == "secret" and isinstance(entry.name, str)}
    base = _as_name(binding.partition("/")[2].replace("/", "-"))[:_MAX_NAME]
    for name in (base, *(f"{base}-{number}" for number in range(2, _MOST_NAMES))):
        if name not in taken:
            return name
    raise Problem.usage(f"{base} and {_MOST_NAMES - 2} more names are taken", fix="aileron secret list")


def _as_name(text: str) -> str:
    return _NOT_IN_NAMES.sub("-", text.lower()).strip("._-")
