"""Options that several commands have, spelled once."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["AsJson", "PassphraseFile", "Yes"]

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
