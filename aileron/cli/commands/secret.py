"""`aileron secret`: passwords and tokens in the vault. Values can be stored, but no command shows them."""

from __future__ import annotations

import base64
from typing import Annotated

from aileron.api.daemon import Removed
from aileron.api.secrets import SecretList, SecretStored, SetSecret
from aileron.cli import output
from aileron.cli.commands.completion import secret_names
from aileron.cli.commands.options import AsJson, PassphraseFile, Source, SourceToken, Yes
from aileron.cli.declared import Argument, Exit
from aileron.cli.prompts import passphrase_from, read_secret
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible

__all__ = ["list_", "remove", "set_"]

Name = Annotated[
    str,
    Argument(metavar="NAME", help="Name: lower-case letters, digits, '.', '_' and '-'.", autocompletion=secret_names),
]


def set_(
    name: Name,
    source: Source = None,
    token: SourceToken = None,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Store a secret, read from standard input or typed at a terminal.

    With --from, Aileron stores where the secret is kept instead, and fetches it from there when a connector needs it. If
    decisions are signed, the approver must sign before a secret that bindings use is replaced.
    """
    from aileron.cli.bind import SOURCE_S, check_source
    from aileron.cli.commands.done import tell_done
    from aileron.cli.decision_dialogue import carry_through

    check_source(source, token)
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    supervisor.open_or_create_vault()
    if source is None:
        body = SetSecret(value_base64=base64.b64encode(read_secret(name)).decode())
    else:
        body = SetSecret(reference=source, token=token)
    answer = supervisor.change(SecretStored, "PUT", path_of("v1", "secrets", name), body, wait_s=SOURCE_S)
    raise Exit(carry_through(supervisor, answer, tell_done, yes=yes, as_json=as_json))


def list_(as_json: AsJson = False) -> None:
    """List the names of secrets. Values are never shown."""
    found = Supervisor().fetch(SecretList, "GET", "/v1/secrets")
    output.print_list(
        found,
        ("NAME", "CREATED", "CHANGED", "KEPT AT"),
        (
            (
                entry.name,
                output.local_time(entry.created_at),
                output.local_time(entry.updated_at),
                entry.elsewhere.reference if entry.elsewhere else "here",
            )
            for entry in found.secrets
        ),
        as_json=as_json,
        empty="no secrets stored\n  fix: aileron secret set NAME",
    )


def remove(name: Name) -> None:
    """Remove a secret that no binding uses."""
    Supervisor().fetch(Removed, "DELETE", path_of("v1", "secrets", name))
    output.note(f"removed {visible(name)}")
