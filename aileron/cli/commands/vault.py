"""`aileron vault`: the encrypted file that secrets are in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import UNSET, UnsetType

from aileron.api.secrets import (
    BackUpVault,
    InitVault,
    KeyringKeyBody,
    NewVault,
    RestoredVault,
    RestoreVault,
    RotateVault,
    UnlockVault,
    VaultBackup,
    VaultState,
)
from aileron.cli import output
from aileron.cli.commands.options import AsJson, PassphraseFile
from aileron.cli.problem import USAGE, Problem
from aileron.cli.prompts import ask_unseen, can_ask, new_passphrase_from, passphrase_from
from aileron.cli.supervisor import Supervisor

__all__ = ["backup", "init", "lock", "restore", "rotate", "status", "unlock"]

_STATUS = "/v1/vault/status"
_KEY_DERIVATION_S = 30.0
_COPY_S = 60.0
"""For 16 MiB to a slow stick."""
_WAYS = "AILERON_VAULT_PASSPHRASE, --passphrase-file, or a terminal to type it at"
_NEW_WAYS = "AILERON_NEW_VAULT_PASSPHRASE, --new-passphrase-file, or a terminal to type it at"
_OR_CODE = ", or a recovery code"
_RecoveryCodes = Annotated[
    bool, typer.Option("--recovery-codes", help="Make recovery codes too, and print them this once.")
]
_Keyring = Annotated[bool, typer.Option("--keyring", help="Also keep a key to it in the desktop's keyring.")]


def init(
    passphrase_file: PassphraseFile = None, recovery_codes: _RecoveryCodes = False, keyring: _Keyring = False
) -> None:
    """Make it, and leave it unlocked."""
    supervisor = Supervisor()
    is_typed = passphrase_from(passphrase_file)() is None and can_ask()
    if is_typed and supervisor.fetch(VaultState, "GET", _STATUS).exists:  # nobody types one twice for nothing
        raise Problem("there is a vault already", exit_code=USAGE, name="invalid_request", fix="aileron vault unlock")
    if keyring:
        _check_keyring()
    passphrase = _passphrase("init", "New passphrase of the vault", passphrase_file, twice=True)
    body = InitVault(passphrase=passphrase, recovery_codes=recovery_codes)
    found = _with_new_key(supervisor, "/v1/vault/init", body, keyring=keyring)
    output.note("the vault is there, and unlocked until the daemon stops or you lock it")
    _show_codes(found.codes)
    if can_ask() and not recovery_codes:
        other = "the key in the keyring, or " if keyring else ""
        output.note(f"there is no way in without {other}the passphrase: keep it where you keep such things")


def unlock(
    passphrase_file: PassphraseFile = None,
    keyring: Annotated[bool, typer.Option("--keyring", help="With the key that the desktop's keyring has.")] = False,
) -> None:
    """Unlock it until the daemon stops or you lock it."""
    supervisor = Supervisor()
    found = _status(supervisor)  # or there is none, and nobody types a passphrase for it
    if keyring:
        from aileron.cli.keyring import fetch

        if not found.keyring:
            raise Problem(
                "this vault has no key in a keyring",
                exit_code=USAGE,
                name="invalid_request",
                fix="aileron vault rotate --keyring",
            )
        body = UnlockVault(keyring_key_base64=fetch(found.keyring))
        supervisor.fetch(VaultState, "POST", "/v1/vault/unlock", body, wait_s=_KEY_DERIVATION_S)
    else:
        supervisor.unlock(_passphrase("unlock", _question(found), passphrase_file, twice=False))
    output.note("the vault is unlocked")


def lock() -> None:
    """Forget its key."""
    Supervisor().fetch(VaultState, "POST", "/v1/vault/lock")
    output.note("the vault is locked")


def status(as_json: AsJson = False) -> None:
    """Show whether it is there, and locked."""
    found = Supervisor().fetch(VaultState, "GET", _STATUS)
    if as_json:
        output.print_json(found)
        return
    output.print_facts(
        [
            ("vault", state_of(found)),
            ("secrets", None if found.secrets is UNSET else found.secrets),
            ("bindings", None if found.bindings is UNSET else found.bindings),
            (
                "opened by",
                _ways_in(found, found.recovery_codes) if found.exists and found.recovery_codes is not UNSET else None,
            ),
            ("locks itself", _locks(int(found.lock_after_s), found.locks_at) if found.lock_after_s else None),
        ]
    )


def rotate(
    passphrase_file: PassphraseFile = None,
    new_passphrase_file: Annotated[
        str | None,
        typer.Option("--new-passphrase-file", metavar="FILE", help="Read the new passphrase from FILE."),
    ] = None,
    recovery_codes: _RecoveryCodes = False,
    keyring: _Keyring = False,
) -> None:
    """Give it a new passphrase and a new key.

    Every other way in ends. A recovery code stands in for a passphrase that was forgotten.
    """
    supervisor = Supervisor()
    was = _status(supervisor)
    if keyring:
        _check_keyring()
    passphrase = _passphrase("rotate", _question(was), passphrase_file, twice=False)
    if (new := new_passphrase_from(new_passphrase_file)()) is None:
        if not can_ask():
            fix = "aileron vault rotate --new-passphrase-file FILE"
            raise Problem.usage("there is no new passphrase", why=f"it comes from {_NEW_WAYS}", fix=fix)
        new = ask_unseen("New passphrase of the vault", twice=True)
    body = RotateVault(passphrase=passphrase, new_passphrase=new, recovery_codes=recovery_codes)
    found = _with_new_key(supervisor, "/v1/vault/rotate", body, keyring=keyring)
    _forget_key(was.keyring or None)
    output.note("the vault has its new passphrase and a new key, and is unlocked")
    ended = ["the old passphrase"]
    ended += ["the old recovery codes"] if was.recovery_codes else []
    ended += ["the old key in the keyring"] if was.keyring else []
    output.note(f"{', '.join(ended)}: of no use any more, but for copies that were made before")
    _show_codes(found.codes)


def backup(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where the copy is to be.")],
    replace: Annotated[bool, typer.Option("--replace", help="Also where a file is there already.")] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Write a copy of it to FILE, as it is: still sealed.

    A locked one is not unlocked for it, but takes its passphrase: what is copied is verified first.
    """
    supervisor = Supervisor()
    found = _status(supervisor)
    passphrase = _passphrase("backup FILE", _question(found), passphrase_file, twice=False) if found.locked else None
    body = BackUpVault(file=str(Path(file).absolute()), passphrase=passphrase, replace=replace)
    supervisor.fetch(VaultBackup, "POST", "/v1/vault/backup", body, wait_s=_COPY_S)
    output.note(f"{file} is a copy of the vault; what opens the vault now opens it")


def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A copy, as `vault backup` wrote it.")],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Put a copy in its place, locked.

    The vault that is there is kept beside it. The passphrase is the one that the copy was made under.
    """
    supervisor = Supervisor()
    passphrase = _passphrase("restore FILE", f"Passphrase of that copy{_OR_CODE}", passphrase_file, twice=False)
    body = RestoreVault(file=str(Path(file).absolute()), passphrase=passphrase)
    found = supervisor.fetch(RestoredVault, "POST", "/v1/vault/restore", body, wait_s=_COPY_S)
    output.note(f"the vault is what {file} is, and locked: `aileron vault unlock`, with that copy's passphrase")
    if found.aside:
        output.note(f"the one that was there is {found.aside}")


def state_of(status: VaultState) -> str:
    """In words."""
    if not status.exists:
        return "none"
    if status.problem:
        return f"not readable: {status.problem}"
    return "locked" if status.locked else "unlocked"


def _status(supervisor: Supervisor) -> VaultState:
    supervisor.is_vault_locked()  # Problem where there is none
    return supervisor.fetch(VaultState, "GET", _STATUS)


def _question(status: VaultState) -> str:
    return f"Passphrase of the vault{_OR_CODE if status.recovery_codes else ''}"


def _ways_in(status: VaultState, count: int) -> str:
    ways = ["the passphrase"]
    if count:
        ways.append(f"{count} recovery codes" if count > 1 else "1 recovery code")
    if status.keyring:
        ways.append("a key in the keyring")
    return ", ".join(ways)


def _locks(seconds: int, at: str | UnsetType | None) -> str:
    unit, size = next((unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if seconds % size == 0)
    after = f"after {seconds // size}{unit} without use"
    return f"{after}: {output.local_time(at)}" if at else after


def _with_new_key(supervisor: Supervisor, path: str, body: InitVault | RotateVault, *, keyring: bool) -> NewVault:
    """Ask for a new key, and have the keyring keep it too. What was put there for a key that did not come is taken out again."""
    kept = None
    if keyring:
        from aileron.cli.keyring import keep_new

        kept = keep_new()
        body = msgspec.structs.replace(body, keyring=KeyringKeyBody(id=kept.id, key_base64=kept.key_base64))
    try:
        found = supervisor.fetch(NewVault, "POST", path, body, wait_s=_KEY_DERIVATION_S)
    except Problem as problem:
        if problem.name not in ("daemon_unreachable", "outcome_unknown"):  # else it may have been done
            _forget_key(None if kept is None else kept.id)
        raise
    if kept is not None:
        output.note(f"a key to the vault is in the keyring ({kept.keyring}): `aileron vault unlock --keyring`")
    return found


def _check_keyring() -> None:
    from aileron.cli.keyring import check

    check()


def _forget_key(key_id: str | None) -> None:
    if key_id is None:
        return
    from aileron.cli.keyring import forget

    if not forget(key_id):
        output.note(f"the keyring still has a key that opens nothing any more: service 'aileron vault', name {key_id}")


def _show_codes(codes: list[str]) -> None:
    if not codes:
        return
    output.note("each of these opens the vault without its passphrase. They are not shown again:")
    for code in codes:
        output.write(code)
    output.note("keep them on paper, in more than one place; `aileron vault rotate` ends them")


def _passphrase(command: str, question: str, file: str | None, *, twice: bool) -> str:
    if (given := passphrase_from(file)()) is not None:
        return given
    if can_ask():
        return ask_unseen(question, twice=twice)
    raise Problem.usage(
        "there is no passphrase", why=f"it comes from {_WAYS}", fix=f"aileron vault {command} --passphrase-file FILE"
    )
