"""`aileron vault`: the encrypted file that secrets are in."""

from __future__ import annotations

from typing import Any

from aileron.cli import output
from aileron.cli.commands.options import AsJson, PassphraseFile
from aileron.cli.problem import Problem
from aileron.cli.prompts import ask_unseen, can_ask, passphrase_from
from aileron.cli.supervisor import Supervisor

__all__ = ["init", "lock", "status", "unlock"]

_KEY_DERIVATION_S = 30.0
_WAYS = "AILERON_VAULT_PASSPHRASE, --passphrase-file, or a terminal to type it at"


def init(passphrase_file: PassphraseFile = None) -> None:
    """Make it, and leave it unlocked."""
    passphrase = _passphrase("init", "New passphrase of the vault", passphrase_file, twice=True)
    Supervisor().ask("POST", "/v1/vault/init", {"passphrase": passphrase}, wait_s=_KEY_DERIVATION_S)
    output.note("the vault is there, and unlocked until the daemon stops or you lock it")
    if can_ask():
        output.note("there is no way in without the passphrase: keep it where you keep such things")


def unlock(passphrase_file: PassphraseFile = None) -> None:
    """Unlock it until the daemon stops or you lock it."""
    supervisor = Supervisor()
    supervisor.is_vault_locked()  # or there is none, and nobody types a passphrase for it
    supervisor.unlock(_passphrase("unlock", "Passphrase of the vault", passphrase_file, twice=False))
    output.note("the vault is unlocked")


def lock() -> None:
    """Forget its key."""
    Supervisor().ask("POST", "/v1/vault/lock")
    output.note("the vault is locked")


def status(as_json: AsJson = False) -> None:
    """Show whether it is there, and locked."""
    found = Supervisor().ask("GET", "/v1/vault/status")
    if as_json:
        output.print_json(found)
        return
    output.print_facts(
        [("vault", state_of(found)), ("secrets", found.get("secrets")), ("bindings", found.get("bindings"))]
    )


def state_of(status: dict[str, Any]) -> str:
    """In words."""
    if not status.get("exists"):
        return "none"
    if status.get("problem"):
        return f"not readable: {status['problem']}"
    return "locked" if status.get("locked") else "unlocked"


def _passphrase(command: str, question: str, file: str | None, *, twice: bool) -> str:
    if (given := passphrase_from(file)()) is not None:
        return given
    if can_ask():
        return ask_unseen(question, twice=twice)
    raise Problem.usage(
        "there is no passphrase", why=f"it comes from {_WAYS}", fix=f"aileron vault {command} --passphrase-file FILE"
    )
