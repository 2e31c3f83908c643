"""Options that several commands have, spelled once."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["AsJson", "ClientId", "ClientSecretFile", "Hosts", "PassphraseFile", "Yes"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PassphraseFile = Annotated[
    str | None, typer.Option("--passphrase-file", metavar="FILE", help="Read the vault's passphrase from FILE.")
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Where it needs an approval: the answer is yes; the signature is still asked for."
    ),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="NAME:PORT", help='Replaces hosts = ["bound-at-build"]; may be given again.'),
]
ClientId = Annotated[
    str | None,
    typer.Option(
        "--client-id", metavar="ID", help='Replaces client_id = "bound-at-release": your application at the provider.'
    ),
]
ClientSecretFile = Annotated[
    str | None,
    typer.Option(
        "--client-secret-file",
        metavar="FILE",
        help='Where what replaces client_secret = "bound-at-release" is read from.',
    ),
]
