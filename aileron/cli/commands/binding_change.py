"""`aileron binding`: commands that bind, change and revoke. binding.py has the commands that only read."""

from __future__ import annotations

from typing import Annotated, Literal

from aileron.api.bindings import BindingDetail, RevokedBinding
from aileron.cli import output
from aileron.cli.bind import BindOptions, bind, bind_request_of, check_source, facts_of, keep_at, print_new
from aileron.cli.bind import reauthorize as sign_in_anew
from aileron.cli.bind import rebind as bind_anew
from aileron.cli.commands.binding import Name, needs_provider
from aileron.cli.commands.completion import secret_names
from aileron.cli.commands.options import AsJson, PassphraseFile, Source, SourceToken, Yes
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.plan import COLUMN
from aileron.cli.problem import OK, UNFINISHED, Problem, parsed
from aileron.cli.prompts import can_ask, is_yes, passphrase_from
from aileron.cli.signin import How
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.host_key import check_host_key
from aileron.model.login import LoginDetails, PasswordForm
from aileron.model.visible import visible

__all__ = ["reauthorize", "rebind", "revoke", "setup"]


_Username = Annotated[
    str | None,
    Option(
        "--username",
        metavar="USER",
        help="User name, or ID of a key, if the kind has one; for a sign-in, who logs in with it.",
    ),
]
_Secret = Annotated[
    str | None,
    Option(
        "--secret",
        metavar="NAME",
        help="Stored secret to use (`aileron secret set NAME`).",
        autocompletion=secret_names,
    ),
]
_Database = Annotated[
    str | None, Option("--database", metavar="NAME", help="Database, for a login at PostgreSQL, MySQL or Redis.")
]
_HostKey = Annotated[
    str | None, Option("--host-key", metavar="'TYPE BASE64'", help="Public key of the server, for a login by ssh.")
]
_ReadOnly = Annotated[
    bool, Option("--read-only", help="Bind a database role that cannot write, which is checked at each login.")
]
_ReadWrite = Annotated[
    bool, Option("--read-write", help="Bind a database role that can write, in place of --read-only.")
]
_WeakPassword = Annotated[
    Literal["md5", "cleartext"] | None,
    Option("--allow-password-form", help="Let a PostgreSQL server have the password in a form weaker than SCRAM."),
]
_PasswordForm = Annotated[
    Literal["md5", "cleartext", "scram"] | None,
    Option("--allow-password-form", help="As in `binding setup`; with scram, nothing weaker is allowed from now on."),
]
_Device = Annotated[bool, Option("--device", help="Sign in with a code that you type on another device.")]
_NoBrowser = Annotated[
    bool, Option("--no-browser", help="Sign in without opening a browser; print the address instead.")
]


def setup(
    connector: Annotated[str, Argument(metavar="CONNECTOR", help="Full name of the connector.")],
    name: Annotated[str | None, Option("--name", metavar="KIND/SERVICE/IDENTITY", help="Name for the binding.")] = None,
    username: _Username = None,
    secret: _Secret = None,
    source: Source = None,
    token: SourceToken = None,
    database: _Database = None,
    host_key: _HostKey = None,
    read_only: _ReadOnly = False,
    allow_password_form: _WeakPassword = None,
    device: _Device = False,
    no_browser: _NoBrowser = False,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a connector use a stored secret or a sign-in.

    At a terminal, Aileron shows what the connector wants and asks for what you do not give. It stores a password that you type in
    the vault, and opens a browser for a sign-in. If decisions are signed, the approver must sign too.
    """
    _check_secret(secret, source, token)
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    wanted = bind_request_of(supervisor, connector)
    details = LoginDetails(
        database=database, host_key=_checked(host_key), read_only=read_only, weak_password=allow_password_form
    )
    given = BindOptions(name, username, secret, source, token, How(device, no_browser, as_json), yes, details=details)
    if details != LoginDetails() and wanted.kind != "login":
        raise Problem.usage(
            "--database, --host-key, --read-only and --allow-password-form apply to a login, but this credential is of kind "
            f"{wanted.kind}"
        )
    if (device or no_browser) and (wanted.kind != "oauth2" or (secret or source) is not None):
        raise Problem.usage(
            f"--device and --no-browser apply to a sign-in, but this credential is of kind {wanted.kind}"
        )
    if can_ask() and not as_json:
        kept_at = source if token is None else f"{source}, with the token {token}"
        facts = [("connector", connector), *facts_of(wanted, is_here=source is None), ("kept at", kept_at)]
        output.print_facts(facts, "stderr", column=COLUMN)
        output.note("")
    _warn(details)
    raise Exit(bind(supervisor, wanted, given))


def rebind(
    name: Name,
    secret: _Secret = None,
    source: Source = None,
    token: SourceToken = None,
    username: _Username = None,
    database: _Database = None,
    host_key: _HostKey = None,
    read_only: _ReadOnly = False,
    read_write: _ReadWrite = False,
    allow_password_form: _PasswordForm = None,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Approve a wider use of a binding, or change its secret.

    Use it if a new version of the connector asks for more, or if a secret that is kept outside the vault has a new value.
    Aileron first shows what is new. New scopes need the provider's consent: use `binding reauthorize`.
    """
    _check_secret(secret, source, token)
    if read_only and read_write:
        raise Problem.usage("--read-only and --read-write cannot be used together")
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    shown = supervisor.fetch(BindingDetail, "GET", path_of("v1", "bindings", name))
    weak = _weaker(allow_password_form)
    only_scram = allow_password_form is not None and weak is None
    details = LoginDetails(database=database, host_key=_checked(host_key), read_only=read_only, weak_password=weak)
    given = BindOptions(
        name,
        username,
        secret,
        source,
        token,
        How(as_json=as_json),
        yes,
        details=details,
        read_write=read_write,
        only_scram=only_scram,
    )
    _warn(details)
    is_new = print_new(shown.connector, shown.suspended)
    _check_changed_here(shown, secret, source)
    if is_new and can_ask() and not yes and not as_json and not is_yes("Approve all of this? [y/N] "):
        output.note("nothing changed")
        raise Exit(UNFINISHED)
    raise Exit(_bound_anew(supervisor, shown, given, as_json=as_json))


def _check_changed_here(shown: BindingDetail, secret: str | None, source: str | None) -> None:
    """Check that the binding can be changed as requested without a new sign-in at its provider.

    Raises Problem if it is a sign-in and `source` is given, or if only the provider can grant the new scopes.
    """
    if source is not None and shown.grant:
        raise Problem.usage(
            f"{shown.name} is a sign-in, whose tokens are kept in the vault",
            fix=f"aileron binding revoke {shown.name}",
        )
    if secret is None and shown.grant and needs_provider(shown):
        raise Problem(
            "only the provider can grant this",
            exit_code=4,
            name="binding_failed",
            fix=f"aileron binding reauthorize {shown.name}",
        )


def _bound_anew(supervisor: Supervisor, shown: BindingDetail, given: BindOptions, *, as_json: bool) -> int:
    """Have the binding use its secret's current value, if the secret is in an external store or moves to one. Then
    rebind if anything else changes.

    Return the exit code.
    """
    if given.source is not None or (shown.elsewhere and given.secret is None):
        rest = given._replace(source=None, token=None, yes=False, how=How())
        is_all = not shown.suspended and rest == BindOptions(shown.name)
        code = keep_at(supervisor, shown, given, as_json=as_json and is_all)
        if code != OK or is_all:
            return code
    return bind_anew(supervisor, shown.name, given)


def reauthorize(
    name: Name,
    username: _Username = None,
    device: _Device = False,
    no_browser: _NoBrowser = False,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Sign in again.

    Use it for new scopes, another account, or an expired sign-in. The old sign-in stays in use until the new one is complete.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    shown = supervisor.fetch(BindingDetail, "GET", path_of("v1", "bindings", name))
    if shown.kind != "oauth2":
        raise Problem.usage(
            f"{name} is not a sign-in; it uses the secret {shown.secret}", fix=f"aileron secret set {shown.secret}"
        )
    print_new(shown.connector, shown.suspended)
    given = BindOptions(name, username, how=How(device, no_browser, as_json), yes=yes)
    raise Exit(sign_in_anew(supervisor, shown, given))


def revoke(name: Name, passphrase_file: PassphraseFile = None, as_json: AsJson = False) -> None:
    """Revoke a binding.

    A sign-in is also revoked at the provider, if the provider supports that. A stored secret stays in the vault.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    answer = supervisor.fetch(RevokedBinding, "DELETE", path_of("v1", "bindings", name), wait_s=_PROVIDER_S)
    words = f"revoked {visible(name)}\n{_at_provider(answer.at_provider)}"
    output.print_done(answer, words, as_json=as_json)


_PROVIDER_S = 15.0
"""Seconds to wait while the provider revokes a sign-in; the daemon allows 10 s."""


def _at_provider(said: str | None) -> str:
    match said:
        case None:
            return "its secret stays in the vault: aileron secret list"
        case "revoked":
            return "also revoked at the provider"
        case "not offered":
            return (
                "the provider does not support revocation: the tokens are deleted here; end the access in your "
                "account there too"
            )
        case _:
            return (
                f"the provider could not be reached ({visible(said.removeprefix('failed: '))}): end the access in "
                "your account there"
            )


def _check_secret(secret: str | None, source: str | None, token: str | None) -> None:
    if secret is not None and source is not None:
        raise Problem.usage("--secret and --from cannot be used together")
    check_source(source, token)


def _weaker(form: Literal["md5", "cleartext", "scram"] | None) -> PasswordForm | None:
    return None if form == "scram" else form


def _warn(details: LoginDetails) -> None:
    """Print a note about the weak form of password that the login may use, if the person allows one."""
    if details.password_words is not None:
        output.note(f"password: {details.password_words}")


def _checked(host_key: str | None) -> str | None:
    if host_key is None:
        return None
    key = " ".join(host_key.split()[:2])  # a comment may follow, as in OpenSSH's files
    return parsed("--host-key:", check_host_key, key)
