"""Options that several commands share, declared once."""

from __future__ import annotations

from typing import Annotated

from aileron.cli.commands.completion import secret_names
from aileron.cli.declared import Option

__all__ = [
    "AsJson",
    "ClientId",
    "ClientSecretFile",
    "Hosts",
    "Inject",
    "Logins",
    "Only",
    "PassphraseFile",
    "Region",
    "Source",
    "SourceToken",
    "Yes",
]

AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
PassphraseFile = Annotated[
    str | None, Option("--passphrase-file", metavar="FILE", help="Read the vault's passphrase from FILE.")
]
Yes = Annotated[
    bool,
    Option("--yes", "-y", help="Skip the confirmation. A signature, if decisions are signed, is still required."),
]
Source = Annotated[
    str | None,
    Option(
        "--from",
        metavar="REFERENCE",
        help="Where the secret is kept: pass:PATH, vault://HOST:PORT/MOUNT/PATH#FIELD or op://VAULT/ITEM/FIELD.",
    ),
]
SourceToken = Annotated[
    str | None,
    Option(
        "--from-token",
        metavar="NAME",
        help="Stored secret that authenticates to where --from is.",
        autocompletion=secret_names,
    ),
]
Hosts = Annotated[
    list[str] | None,
    Option("--host", metavar="NAME:PORT", help='Value for hosts = ["bound-at-build"] in the manifest. Repeatable.'),
]
Logins = Annotated[
    list[str] | None,
    Option(
        "--login",
        metavar="PROTOCOL://NAME:PORT",
        help="Value for PROTOCOL://bound-at-build in the manifest's logins and hosts. Repeatable.",
    ),
]
Region = Annotated[
    str | None,
    Option(
        "--region",
        metavar="REGION",
        help='Value for region = "bound-at-build" in the manifest: the AWS region to sign for.',
    ),
]
ClientId = Annotated[
    str | None,
    Option(
        "--client-id", metavar="ID", help='Value for client_id = "bound-at-release": your application at the provider.'
    ),
]
ClientSecretFile = Annotated[
    str | None,
    Option(
        "--client-secret-file",
        metavar="FILE",
        help='File with the value for client_secret = "bound-at-release".',
    ),
]
Inject = Annotated[
    bool, Option("--inject", help="Add your actions as tools to the agent's requests to its model, not by MCP.")
]
Only = Annotated[
    list[str] | None,
    Option(
        "--only",
        metavar="SELECTOR",
        help="Actions that the agent can use: tag:NAME, connector:FULL_NAME or a name with *. Repeatable.",
    ),
]
