"""`aileron binding`: which credential serves which connector.

`setup` asks a person for what is missing; without a terminal it says which options are.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

from aileron.cli import output
from aileron.cli.commands.done import tell_done
from aileron.cli.commands.options import AsJson, PassphraseFile, Yes
from aileron.cli.deciding import carry_through
from aileron.cli.problem import INTERRUPTED, NOT_FOUND, OK, UNFINISHED, Problem
from aileron.cli.prompts import ask, ask_unseen, can_ask, passphrase_from
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible

__all__ = ["list_", "revoke", "setup"]

_MAX_NAME = 60
"""Characters of a derived secret name; the vault takes 64, and a number may follow."""
_MOST_NAMES = 20
_CONNECTOR_PREFIX = re.compile(r"^(aileron-)?connector-")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


def setup(
    connector: Annotated[str, typer.Argument(metavar="CONNECTOR", help="Its full name.")],
    name: Annotated[str | None, typer.Option(metavar="KIND/SERVICE/IDENTITY", help="What to call the binding.")] = None,
    username: Annotated[str | None, typer.Option(metavar="USER", help="For kind basic.")] = None,
    secret: Annotated[
        str | None, typer.Option(metavar="NAME", help="A secret that is stored: `aileron secret set NAME`.")
    ] = None,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a stored secret serve a connector.

    At a terminal, asks for what is not given; a password typed there is stored in the vault first. Where an approver exists
    it waits for their signature, which is asked for there as well.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    kind = _kind_of(supervisor, connector)
    _check_given(connector, kind, name, username, secret)
    supervisor.open_vault()
    name = _ask_name(kind, connector) if name is None else name
    if username is None and kind == "basic":
        username = ask("User name")
    binding = {"connector": connector, "name": name, "username": username}

    def finish(answer: Any) -> int:
        return carry_through(supervisor, answer, tell_done, kind="binding", yes=yes, as_json=as_json)

    raise typer.Exit(_bind(supervisor, binding, secret, finish))


def list_(as_json: AsJson = False) -> None:
    """List the bindings."""
    bindings = Supervisor().ask("GET", "/v1/bindings")["bindings"]
    if as_json:
        output.print_json({"bindings": bindings})
        return
    output.print_table(
        ("NAME", "USER", "SECRET", "CONNECTOR"),
        [
            (
                entry.get("name"),
                entry.get("username"),
                entry.get("secret"),
                entry.get("connector"),
            )
            for entry in bindings
        ],
        folds=("NAME",),
        empty="nothing is bound\n  fix: aileron binding setup CONNECTOR",
    )


def revoke(name: Annotated[str, typer.Argument(metavar="KIND/SERVICE/IDENTITY", help="The binding.")]) -> None:
    """End a binding; its secret stays in the vault."""
    Supervisor().ask("DELETE", path_of("v1", "bindings", name))
    output.note(f"revoked {visible(name)}")


def _kind_of(supervisor: Supervisor, connector: str) -> str:
    """The kind of credential the installed connector needs."""
    installed = [
        entry for entry in supervisor.ask("GET", "/v1/connectors")["connectors"] if entry.get("name") == connector
    ]
    if not installed:
        raise Problem.missing(f"no connector {connector!r} is installed", fix="aileron connector list")
    kinds = {str(entry["credential"]["kind"]) for entry in installed if entry.get("credential")}
    if not kinds:
        raise Problem.usage(f"{connector} needs no credential", fix=f"aileron connector show {connector}")
    return min(kinds)  # versions of one connector seldom differ; the daemon checks the name's kind against all


def _check_given(connector: str, kind: str, name: str | None, username: str | None, secret: str | None) -> None:
    """What is said has to be a name; and without a person, everything has to be said."""
    if name is not None and (problem := _problem_of(name)):
        raise Problem.usage(f"--name {problem}")
    if can_ask():
        return
    missing = []
    if name is None:
        missing.append(f"--name {kind}/SERVICE/IDENTITY")
    if username is None and kind == "basic":
        missing.append("--username USER")
    if secret is None:
        missing.append("--secret NAME")
    if missing:
        raise Problem.usage(
            f"there is no terminal to ask at, and {' and '.join(option.split()[0] for option in missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing",
            fix=f"aileron binding setup {connector} {' '.join(missing)}",
        )


def _ask_name(kind: str, connector: str) -> str:
    service = _as_name(_CONNECTOR_PREFIX.sub("", connector.rpartition("/")[2])) or None
    identity = _as_name(getpass.getuser()) or "me"
    while True:
        name = f"{kind}/{ask('Service', service)}/{ask('Identity, whose credential it is', identity)}"
        if problem := _problem_of(name):
            output.note(visible(problem))
        else:
            return name


def _problem_of(name: str) -> str | None:
    from aileron.model.names import BindingName

    try:
        BindingName.parse(name)
    except ValueError as error:
        return str(error)
    return None


def _bind(supervisor: Supervisor, binding: dict[str, Any], secret: str | None, finish: Callable[[Any], int]) -> int:
    """Bind; a secret typed for it goes into the vault first, and out again if it then cannot be bound, or is denied."""
    if secret is not None:
        return finish(_post(supervisor, {**binding, "secret": secret}))
    value = ask_unseen("Password or token").encode()
    stored = _free_name(supervisor, str(binding["name"]))
    supervisor.ask("PUT", path_of("v1", "secrets", stored), {"value_base64": base64.b64encode(value).decode()})
    try:
        answer = _post(supervisor, {**binding, "secret": stored})
    except BaseException:
        supervisor.ask("DELETE", path_of("v1", "secrets", stored))
        raise
    code = finish(answer)
    if code not in (OK, UNFINISHED, INTERRUPTED):
        with contextlib.suppress(Problem):  # somebody else may have approved it meanwhile: then it is in use
            supervisor.ask("DELETE", path_of("v1", "secrets", stored))
    return code


def _post(supervisor: Supervisor, binding: dict[str, Any]) -> Any:
    try:
        return supervisor.ask("POST", "/v1/bindings", binding)
    except Problem as problem:
        if problem.exit_code == NOT_FOUND and problem.what.startswith("no secret"):
            problem.fix = f"aileron secret set {binding['secret']}"
        raise


def _free_name(supervisor: Supervisor, binding: str) -> str:
    """A name for the secret, after the binding's; none that is taken, so that nothing is overwritten."""
    taken = {entry["name"] for entry in supervisor.ask("GET", "/v1/secrets")["secrets"]}
    base = _as_name(binding.partition("/")[2].replace("/", "-"))[:_MAX_NAME]
    for name in (base, *(f"{base}-{number}" for number in range(2, _MOST_NAMES))):
        if name not in taken:
            return name
    raise Problem.usage(f"{base} and {_MOST_NAMES - 2} more names are taken", fix="aileron secret list")


def _as_name(text: str) -> str:
    return _NOT_IN_NAMES.sub("-", text.lower()).strip("._-")
