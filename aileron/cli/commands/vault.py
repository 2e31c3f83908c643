"""`aileron vault`: the encrypted file that holds the secrets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.secrets import (
    BackUpVault,
    InitVault,
    KeyringKeyBody,
    NewVault,
    RestoredVault,
    RestoreVault,
    RotateVault,
    VaultBackup,
    VaultState,
)
from aileron.cli import output
from aileron.cli.commands.options import AsJson, PassphraseFile
from aileron.cli.commands.status import state_of
from aileron.cli.declared import Argument, Option
from aileron.cli.problem import USAGE, Problem
from aileron.cli.prompts import ask_unseen, can_ask, new_passphrase_from, passphrase_from, until_right
from aileron.cli.supervisor import Supervisor

__all__ = ["backup", "can_use_keyring", "create", "init", "lock", "restore", "rotate", "status", "unlock"]

_STATUS = "/v1/vault/status"
_KEY_DERIVATION_S = 30.0
_COPY_S = 60.0
"""Seconds to wait for a copy of 16 MiB to a slow USB stick."""
_WAYS = "use AILERON_VAULT_PASSPHRASE, --passphrase-file, or a terminal"
_NEW_WAYS = "use AILERON_NEW_VAULT_PASSPHRASE, --new-passphrase-file, or a terminal"
_T = TypeVar("_T")
_OR_CODE = ", or a recovery code"
_RecoveryCodes = Annotated[bool, Option("--recovery-codes", help="Create recovery codes and print them once.")]
_Keyring = Annotated[bool, Option("--keyring", help="Also store a vault key in the desktop's keyring.")]


def init(
    passphrase_file: PassphraseFile = None, recovery_codes: _RecoveryCodes = False, keyring: _Keyring = False
) -> None:
    """Create the vault and unlock it."""
    supervisor = Supervisor()
    is_typed = passphrase_from(passphrase_file)() is None and can_ask()
    # Before the person types a passphrase twice for nothing
    if is_typed and supervisor.fetch(VaultState, "GET", _STATUS).exists:
        raise Problem("the vault already exists", exit_code=USAGE, name="invalid_request", fix="aileron vault unlock")
    if keyring:
        _check_keyring()
    passphrase = _passphrase("init", "New vault passphrase", passphrase_file, twice=True)
    create(supervisor, passphrase, recovery_codes=recovery_codes, keyring=keyring)


def create(supervisor: Supervisor, passphrase: str, *, recovery_codes: bool = False, keyring: bool = False) -> None:
    """Create the vault, open it, and tell the person what opens it from now on. Raises Problem if that fails."""
    body = InitVault(passphrase=passphrase, recovery_codes=recovery_codes)
    found = _with_new_key(supervisor, "/v1/vault/init", body, keyring=keyring)
    output.note("vault created; it stays unlocked until you lock it or the daemon stops")
    _show_codes(found.codes)
    if can_ask() and not recovery_codes:
        other = "the key in the keyring, or " if keyring else ""
        output.note(f"without {other}the passphrase, the vault cannot be opened: store it safely")


def can_use_keyring() -> bool:
    """Return whether the desktop has a keyring that can keep a key for the vault."""
    try:
        _check_keyring()
    except Problem:
        return False
    return True


def unlock(
    passphrase_file: PassphraseFile = None,
    keyring: Annotated[bool, Option("--keyring", help="Use the key in the desktop's keyring.")] = False,
) -> None:
    """Unlock the vault until you lock it or the daemon stops."""
    supervisor = Supervisor()
    found = _status(supervisor)  # raises if there is no vault, before a passphrase is typed
    if keyring:
        if not found.keyring:
            raise Problem(
                "this vault has no key in the keyring",
                exit_code=USAGE,
                name="invalid_request",
                fix="aileron vault rotate --keyring",
            )
        supervisor.unlock_by_keyring(found.keyring)
    elif passphrase_from(passphrase_file)() is None and can_ask():
        supervisor.unlock_here(found, "Vault passphrase")
    else:
        supervisor.unlock(_passphrase("unlock", _question(found), passphrase_file, twice=False))
    output.note("vault unlocked")


def lock() -> None:
    """Lock the vault."""
    Supervisor().fetch(VaultState, "POST", "/v1/vault/lock")
    output.note("vault locked")


def status(as_json: AsJson = False) -> None:
    """Show whether the vault exists and is locked."""
    found = Supervisor().fetch(VaultState, "GET", _STATUS)
    output.print_object(
        found,
        [
            ("vault", state_of(found)),
            ("secrets", None if found.secrets is UNSET else found.secrets),
            ("bindings", None if found.bindings is UNSET else found.bindings),
            (
                "opened by",
                _ways_in(found, found.recovery_codes) if found.exists and found.recovery_codes is not UNSET else None,
            ),
            ("locks itself", _locks(int(found.lock_after_s), found.locks_at) if found.lock_after_s else None),
        ],
        as_json=as_json,
    )


def rotate(
    passphrase_file: PassphraseFile = None,
    new_passphrase_file: Annotated[
        str | None,
        Option("--new-passphrase-file", metavar="FILE", help="Read the new passphrase from FILE."),
    ] = None,
    recovery_codes: _RecoveryCodes = False,
    keyring: _Keyring = False,
) -> None:
    """Change the vault's passphrase and re-encrypt every secret.

    Old recovery codes and keyring keys stop working. If you forgot the passphrase, use a recovery code.
    """
    supervisor = Supervisor()
    was = _status(supervisor)
    if keyring:
        _check_keyring()
    new = new_passphrase_from(new_passphrase_file)()

    def rotate_with(passphrase: str) -> NewVault:
        nonlocal new
        if new is None:  # do not ask again after a typo in the old one
            new = _typed_new_passphrase()
        body = RotateVault(passphrase=passphrase, new_passphrase=new, recovery_codes=recovery_codes)
        return _with_new_key(supervisor, "/v1/vault/rotate", body, keyring=keyring)

    found = _with_passphrase("rotate", _question(was), passphrase_file, rotate_with)
    _forget_key(was.keyring or None)
    output.note("passphrase changed and secrets re-encrypted; the vault is unlocked")
    ended = ["the old passphrase"]
    ended += ["the old recovery codes"] if was.recovery_codes else []
    ended += ["the old key in the keyring"] if was.keyring else []
    output.note(f"no longer valid, except for older copies of the vault: {', '.join(ended)}")
    _show_codes(found.codes)


def backup(
    file: Annotated[str, Argument(metavar="FILE", help="File to write the backup to.")],
    replace: Annotated[bool, Option("--replace", help="Overwrite an existing file.")] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Write an encrypted backup of the vault to FILE.

    The backup is verified first. A locked vault needs its passphrase for that, and stays locked.
    """
    supervisor = Supervisor()
    found = _status(supervisor)

    def back_up(passphrase: str | None) -> VaultBackup:
        body = BackUpVault(file=str(Path(file).absolute()), passphrase=passphrase, replace=replace)
        return supervisor.fetch(VaultBackup, "POST", "/v1/vault/backup", body, wait_s=_COPY_S)

    if found.locked:
        _with_passphrase("backup FILE", _question(found), passphrase_file, back_up)
    else:
        back_up(None)
    output.note(f"backup written to {file}; the current passphrase opens it")


def restore(
    file: Annotated[str, Argument(metavar="FILE", help="Backup that `vault backup` wrote.")],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Replace the vault with a backup.

    The vault is locked afterwards, and the replaced one is kept beside it. Use the passphrase that the backup was made with.
    """
    supervisor = Supervisor()

    def put_back(passphrase: str) -> RestoredVault:
        body = RestoreVault(file=str(Path(file).absolute()), passphrase=passphrase)
        return supervisor.fetch(RestoredVault, "POST", "/v1/vault/restore", body, wait_s=_COPY_S)

    found = _with_passphrase("restore FILE", f"Passphrase of the backup{_OR_CODE}", passphrase_file, put_back)
    output.note(
        f"vault restored from {file} and locked; to open it with the backup's passphrase: `aileron vault unlock`"
    )
    if found.aside:
        output.note(f"the previous vault is kept in {found.aside}")


def _status(supervisor: Supervisor) -> VaultState:
    supervisor.is_vault_locked()  # Problem if there is no vault
    return supervisor.vault_state()


def _question(status: VaultState) -> str:
    return f"Vault passphrase{_OR_CODE if status.recovery_codes else ''}"


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
    """Have the daemon create or rotate the vault with new keys, and return its response.

    With `keyring`, a key is also stored in the desktop's keyring, and removed from there if the daemon refuses.
    """
    kept = None
    if keyring:
        from aileron.cli.keyring import keep_new

        kept = keep_new()
        body = msgspec.structs.replace(body, keyring=KeyringKeyBody(id=kept.id, key_base64=kept.key_base64))
    try:
        found = supervisor.fetch(NewVault, "POST", path, body, wait_s=_KEY_DERIVATION_S)
    except Problem as problem:
        if problem.name not in ("daemon_unreachable", "outcome_unknown"):  # otherwise the key may be in use
            _forget_key(None if kept is None else kept.id)
        raise
    if kept is not None:
        output.note(f"the keyring ({kept.keyring}) holds a vault key: `aileron vault unlock --keyring`")
    return found


def _check_keyring() -> None:
    from aileron.cli.keyring import check

    check()


def _forget_key(key_id: str | None) -> None:
    if key_id is None:
        return
    from aileron.cli.keyring import forget

    if not forget(key_id):
        output.note(f"the keyring still holds an outdated key: service 'aileron vault', name {key_id}")


def _show_codes(codes: list[str]) -> None:
    if not codes:
        return
    output.note("each recovery code opens the vault without the passphrase. They are not shown again:")
    for code in codes:
        output.write(code)
    output.note("keep them on paper, in more than one place; `aileron vault rotate` revokes them")


def _with_passphrase(command: str, question: str, file: str | None, use: Callable[[str], _T]) -> _T:
    """Return the result of `use`, called with the passphrase from `file`, from the environment or from the person. A
    person can retype a wrong passphrase.
    """
    if passphrase_from(file)() is None and can_ask():
        return until_right(lambda: ask_unseen(question), use)
    return use(_passphrase(command, question, file, twice=False))


def _typed_new_passphrase() -> str:
    if not can_ask():
        fix = "aileron vault rotate --new-passphrase-file FILE"
        raise Problem.usage("no new passphrase", why=_NEW_WAYS, fix=fix)
    return ask_unseen("New vault passphrase", twice=True)


def _passphrase(command: str, question: str, file: str | None, *, twice: bool) -> str:
    if (given := passphrase_from(file)()) is not None:
        return given
    if can_ask():
        return ask_unseen(question, twice=twice)
    raise Problem.usage("no passphrase", why=_WAYS, fix=f"aileron vault {command} --passphrase-file FILE")
