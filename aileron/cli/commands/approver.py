"""`aileron approver`: the key and the passkeys that sign decisions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.approver import (
    Appointment,
    ApproverFacts,
    ApproverNamed,
    PasskeyList,
)
from aileron.api.daemon import Removed
from aileron.cards.subject import SYNCED, binding_lines
from aileron.cli import output
from aileron.cli.commands.options import AsJson, PassphraseFile
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.problem import FAILED, INTEGRITY, OK, UNKNOWN, UNREACHABLE, Problem, local_work
from aileron.cli.prompts import can_ask, is_yes, passphrase_from
from aileron.cli.signing import TRIES, ApproverStatus, alone, approver_status, as_shown, ask_until_right, text_of
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.consent import BindingConsent
from aileron.model.decision import ApproverStatement, MismatchError, moment
from aileron.model.failure import AileronError, FailureClass
from aileron.model.json_value import JSONObject
from aileron.model.secret import Secret
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.approver_key.keyfile import ApproverKey

__all__ = ["create", "init", "passkeys", "revoke_passkey", "status"]

_ROUTE: Final = "/v1/approver"
_INVENTORY: Final = "/v1/approver/inventory"
_PASSKEYS: Final = "/v1/passkeys"
_KEY_DERIVATION_S: Final = 30.0
"""Seconds to wait while the daemon derives the vault's key once more, which is slow on a machine under load."""
_COLUMN: Final = 14
_NOTHING: Final = object()
_LAST: Final = {"bindings": 1, "connectors": 2, "actions": 3}
"""Parts of the inventory that are printed at the end, in this order."""
_AFTER_REPLACE: Final = """\
The current key and all passkeys stop working, and grants made with them end. Everything listed above counts as approved.
"""
_AFTER: Final = """\
With a key, decisions count only if they are signed, and only you know the passphrase that signing needs. \
New and wider actions, installs, bindings, grants and settings that allow more access need a signature too. \
Everything listed above counts as approved.
"""


def init(
    replace: Annotated[
        bool, Option("--replace", help="Replace the existing key. You need its passphrase once more.")
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Create the key that signs decisions.

    Needs a terminal. Aileron lists what is installed and configured, which counts as approved from then on. It then asks for the
    vault's passphrase and for a new passphrase for the key.
    """
    if not can_ask():
        raise Problem.usage(
            "creating an approver needs a terminal",
            why="its passphrase is typed there, and never read from a file, variable or pipe",
            fix="run `aileron approver init` in a terminal of your own",
        )
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    raise Exit(create(supervisor, passphrase_from(passphrase_file)(), replace=replace))


def create(supervisor: Supervisor, vault_passphrase: str | None, *, replace: bool = False) -> int:
    """Create the approver's key at this terminal, and return the exit code. Without the vault's passphrase, ask for it.

    Raises Problem if that fails or is not allowed.
    """
    return alone(lambda: _Init(supervisor, vault_passphrase, replace=replace).perform())


def status(as_json: AsJson = False) -> None:
    """Show whether decisions are signed, and where the key is."""
    supervisor = Supervisor()
    found = supervisor.fetch(ApproverFacts, "GET", _ROUTE)
    file = _file_status(supervisor.home / "approver.json", found.key_id or None)
    if as_json:
        output.print_json({**msgspec.to_builtins(found), "file": file})
        return
    words = {
        "none": "none: decisions are not signed, and any process of this user can make them",
        "locked": "exists; unlock the vault to see which",
        "ready": "ready: decisions must be signed",
    }
    said, count = found.status, found.passkeys
    output.print_facts(
        [
            ("approver", words.get(said, f"{said}: {found.problem or 'see `aileron doctor`'}")),
            ("key", found.key_id or None),
            ("since", output.local_time(found.created_at) if found.created_at else None),
            ("passkeys", f"{count} can sign too: see `aileron approver passkeys`" if count else None),
            ("key file", f"{file.path} ({_FILE_WORDS[file.status]})"),
            ("its key", file.key_id or None if file.key_id != found.key_id else None),
        ]
    )
    fix = _FIXES.get((said, file.status)) or _FIXES.get((said, None))
    if fix and output.is_terminal():
        output.note(f"  fix: {fix}")


def passkeys(as_json: AsJson = False) -> None:
    """List the passkeys that can sign decisions."""
    found = Supervisor().fetch(PasskeyList, "GET", _PASSKEYS)
    output.print_list(
        found,
        ("NAME", "ID", "SINCE", "COPIED", "PAGE"),
        (
            (
                passkey.name,
                passkey.id,
                output.local_time(passkey.enrolled_at),
                SYNCED.get(passkey.synced, passkey.synced),
                passkey.origin if passkey.usable else f"{passkey.origin}: no longer this home's address",
            )
            for passkey in found.passkeys
        ),
        as_json=as_json,
        empty="no passkeys",
    )


def revoke_passkey(
    passkey: Annotated[str, Argument(metavar="NAME", help="Name or id of the passkey.")],
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a passkey. This needs no signature."""
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    found = supervisor.fetch(PasskeyList, "GET", _PASSKEYS)
    meant = [entry for entry in found.passkeys if passkey in (entry.id, entry.name)]
    if len(meant) != 1:
        raise Problem.missing(f"no passkey {passkey!r}", fix="aileron approver passkeys")
    removed = supervisor.fetch(Removed, "DELETE", path_of("v1", "passkeys", meant[0].id))
    output.print_done(removed, f"revoked {visible(meant[0].name)}: it can no longer sign decisions", as_json=as_json)


_FILE_WORDS: Final = {
    "absent": "missing",
    "matches": "present, matches",
    "waiting": "key exchange was interrupted; not in place yet",
    "another": "present, but a different key",
    "unknown": "there",
    "damaged": "present, but not usable",
}
_FIXES: Final[dict[tuple[str, str | None], str]] = {
    ("none", None): "aileron approver init",
    ("locked", None): "aileron vault unlock",
    ("ready", "waiting"): "aileron approver init",
    ("ready", "absent"): "restore approver.json from a backup",
    ("ready", "another"): "restore approver.json from a backup",
    ("ready", "damaged"): "restore approver.json from a backup",
}


class _Init:
    """An execution of `approver init`, in a process that no other process can inspect."""

    def __init__(self, supervisor: Supervisor, given: str | None, *, replace: bool) -> None:
        self._supervisor: Final = supervisor
        self._file: Final = supervisor.home / "approver.json"
        self._given: Final = given
        self._replace: Final = replace

    def perform(self) -> int:
        """Create or replace the key, and return the exit code. Raises Problem if that fails or is not allowed."""
        from aileron.approver_key import keyfile

        with local_work(), keyfile.locked(self._file):
            vault = self._opened_vault()
            standing = approver_status(self._supervisor)
            if self._finish_earlier(standing):
                return OK
            self._check_may(standing)
            inventory = self._agreed_inventory()
            if inventory is None:
                output.note("nothing changed")
                return FAILED
            vault = vault or self._vault_passphrase("Vault passphrase")
            if not self._replace:
                return self._exchange(standing, inventory, vault, None)
            with self._old_key(standing) as old:
                return self._exchange(standing, inventory, vault, old)

    def _opened_vault(self) -> Secret | None:
        """Unlock the vault if it is locked. Return the vault's passphrase if the person was asked for it, otherwise None."""
        is_locked = self._supervisor.is_vault_locked()
        return self._vault_passphrase("The vault is locked. Its passphrase") if is_locked else None

    def _vault_passphrase(self, question: str) -> Secret:
        """Return the vault's passphrase, checked by the daemon.

        Raises Problem for a third wrong passphrase, or for a wrong passphrase that was given beforehand.
        """

        def tried(passphrase: Secret) -> Secret:
            self._supervisor.unlock(text_of(passphrase))
            return passphrase

        if self._given is not None:
            return tried(Secret(self._given.encode()))
        return ask_until_right(question, tried)

    def _finish_earlier(self, standing: ApproverStatus) -> bool:
        """Finish an earlier `approver init` that was interrupted after it had changed the vault: move the key that it
        made to the path of the approver's key.

        Return whether there was such an `init`.
        """
        from aileron.approver_key import keyfile

        if standing.key_id is None or keyfile.key_in(keyfile.staged(self._file)) != standing.key_id:
            return False
        keyfile.put_in_place(self._file)
        output.note(f"the key from the previous attempt is now in place: {self._file}")
        output.note(f"  key: {visible(standing.key_id)}")
        return True

    def _check_may(self, standing: ApproverStatus) -> None:
        if standing.status == "none" and self._replace:
            raise Problem.usage("there is no approver to replace", fix="aileron approver init")
        if standing.status != "none" and not self._replace:
            raise Problem.usage(
                f"an approver already exists: {standing.key_id}",
                why="only its signature can authorize another key",
                fix="aileron approver init --replace",
            )
        if standing.status == "none" and (found := _file_status(self._file, None)).status != "absent":
            raise Problem.usage(
                f"{self._file} already exists, but this home's vault names no approver",
                why=f"the file holds {found.key_id or 'no readable key'}",
                fix="move the file away if you no longer need it",
            )

    def _agreed_inventory(self) -> str | None:
        """Show the inventory, which lists all that a new approver approves by signing, and ask the person to approve it.

        If the person approves, return the inventory's digest, computed from the shown content; otherwise None.
        """
        from aileron.model.canonical import canonical_json, sha256_digest

        answer = self._supervisor.ask("GET", _INVENTORY)
        inventory, named = (answer.get("inventory"), answer.get("digest")) if isinstance(answer, dict) else (None, None)
        try:
            computed = sha256_digest(canonical_json(inventory))
        except ValueError as error:
            computed = f"nothing that has a digest ({error})"
        with as_shown():
            if named != computed:
                raise MismatchError.between("inventory", named, computed)
        _show(inventory)
        output.note(_AFTER_REPLACE if self._replace else _AFTER)
        question = "Replace the approver's key? [y/N] " if self._replace else "Create the approver's key? [y/N] "
        return computed if is_yes(question) else None

    def _old_key(self, standing: ApproverStatus) -> ApproverKey:
        from aileron.approver_key import isolation, keyfile

        if keyfile.key_in(self._file) != standing.key_id:
            raise Problem(
                f"the approver's key, {standing.key_id}, is not in {self._file}",
                exit_code=INTEGRITY,
                name="hash_mismatch",
                why="it must sign its replacement",
                fix="restore approver.json from a backup",
            )
        return keyfile.open_key(self._file, isolation.ask_passphrase("Passphrase of the approver's current key"))

    def _exchange(self, standing: ApproverStatus, inventory: str, vault: Secret, old: ApproverKey | None) -> int:
        """Make the key, have the vault record its id, and move the key to its path, in this order (see keyfile.py)."""
        from aileron.approver_key import keyfile

        new = keyfile.staged(self._file)
        with keyfile.create(new, _new_passphrase(vault), replace=True) as key:
            body = _statement(key, inventory, old, vault)
            try:
                self._supervisor.fetch(ApproverNamed, "POST", _ROUTE, body, wait_s=_KEY_DERIVATION_S)
            except Problem as problem:
                if problem.exit_code in (UNKNOWN, UNREACHABLE):  # it may have been done: the next `init` finds out
                    problem.fix = "aileron approver init"
                else:
                    keyfile.remove_staged(self._file)
                raise
            keyfile.put_in_place(self._file)
            output.note(f"{key.key_id} now signs decisions for this home")
        output.note(f"  key file: {self._file}")
        output.note("  the passphrase you just typed is the only way to use it: store both safely")
        if old is not None:
            output.note(f"  {visible(str(standing.key_id))} can no longer sign decisions")
        return OK


def _statement(key: ApproverKey, inventory: str, old: ApproverKey | None, vault: Secret) -> Appointment:
    statement = ApproverStatement(
        public_key=key.public_key.hex(),
        inventory=inventory,
        replaces=None if old is None else old.key_id,
        at=moment(time.time()),
        key_id=key.key_id,
    )
    return Appointment(
        passphrase=text_of(vault),
        public_key=statement.public_key,
        inventory=inventory,
        at=statement.at,
        signature=key.sign(statement),
        replaces=statement.replaces,
        old_signature=None if old is None else old.sign(statement),
    )


def _new_passphrase(vault: Secret) -> Secret:
    """Ask for a passphrase that differs from the vault's, because the vault's passphrase alone must not suffice to decide.

    Raises Problem for a third unsuitable one.
    """
    from aileron.approver_key import isolation, keyfile

    output.note(
        "\nchoose a passphrase for the approver's key, of 8 bytes or more; do not reuse the vault's, which "
        "files and variables may hold"
    )
    for left in range(TRIES - 1, -1, -1):
        typed = isolation.ask_passphrase("New approver passphrase", twice=True)
        try:
            keyfile.check_passphrase(typed)
        except AileronError as failed:
            problem = Problem.of_failure(failed)
        else:
            if typed != vault:
                return typed
            problem = Problem.usage("this is the vault's passphrase: choose another one")
        if not left:
            raise problem
        output.note(f"{problem.what}; try again ({left} left)")
    raise AssertionError("the last try returns or raises")


def _show(inventory: Any) -> None:
    """Show the complete inventory, even parts that this version does not know, because the person must see everything that they
    approve.

    Actions, connectors and bindings are printed last, where a small terminal shows them. Settings with default values are only
    counted.
    """
    parts = inventory if isinstance(inventory, dict) else {"inventory": inventory}
    output.note("installed and configured now:\n")
    facts: list[tuple[str, Any]] = []
    for name in sorted(parts, key=lambda name: (_LAST.get(name, 0), name)):
        part = parts[name]
        if name == "settings" and isinstance(part, dict):
            facts.append((name, _settings_lines(part)))
        elif name == "bindings" and isinstance(part, list):
            facts.append((name, [line for entry in part for line in _binding_lines(entry)] or "none"))
        elif isinstance(part, dict):
            facts.append((visible(str(name)), [f"{key}: {_shown(part[key])}" for key in sorted(part)] or "none"))
        elif isinstance(part, list):
            facts.append((visible(str(name)), [line for entry in part for line in _lines(entry)] or "none"))
        else:
            facts.append((visible(str(name)), _shown(part)))
    output.print_facts(facts, "stderr", column=_COLUMN)
    output.note("")


def _settings_lines(settings: JSONObject) -> list[str]:
    from aileron.config import Settings

    usual = Settings().consented()
    others = [
        f"{key}: {_shown(settings[key])}" for key in sorted(settings) if settings[key] != usual.get(key, _NOTHING)
    ]
    if len(others) == len(settings):
        return others
    rest = f"the other {len(settings) - len(others)}" if others else f"all {len(settings)}"
    return [*others, f"{rest}: defaults (aileron config get)"]


def _binding_lines(entry: Any) -> list[str]:
    """Return a binding in words if this version knows all its facts; otherwise as lines from `_lines`, which omits no fact."""
    try:
        known = msgspec.convert({**entry, "kind": "binding"}, BindingConsent)
    except (TypeError, msgspec.ValidationError):
        return _lines(entry)
    said = msgspec.json.decode(msgspec.json.encode(known))
    if any(name not in said or said[name] != value for name, value in entry.items()):
        return _lines(entry)
    return binding_lines(known)


def _lines(entry: Any) -> list[str]:
    """Return an entry of the inventory as lines: `NAME VERSION; gated: yes; reaches: a.example:443`, then each digest
    on its own line, without a label.
    """
    if not isinstance(entry, dict):
        return [_shown(entry)]
    named = [str(entry[key]) for key in ("name", "version") if key in entry]
    rest = {key: _shown(value) for key, value in sorted(entry.items()) if key not in ("name", "version")}
    digests = {key: value for key, value in rest.items() if value.startswith("sha256:")}
    facts = [f"{key}: {value}" for key, value in rest.items() if key not in digests]
    first = "; ".join([" ".join(named), *facts] if named else facts)
    return [*([first] if first else []), *digests.values()]


def _shown(value: Any) -> str:
    """Return a value of the inventory as text. The text is made safe for a terminal only when it is printed."""
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return ", ".join(value) or "nothing"
    if value is None:
        return "none"
    return value if isinstance(value, str) else output.as_text(value)


class _KeyFile(msgspec.Struct):
    """The status of the approver's key file, also for `--json`."""

    path: str
    status: str
    key_id: str | UnsetType = UNSET


def _file_status(path: Path, named: str | None) -> _KeyFile:
    """Return the status of the key file at `path`, and whether it has the id that the vault records.

    The key is not verified, because that needs the passphrase.
    """
    from aileron.approver_key import keyfile

    if named is not None and keyfile.key_in(path) != named and keyfile.key_in(keyfile.staged(path)) == named:
        return _KeyFile(str(keyfile.staged(path)), "waiting", named)
    try:
        found = keyfile.public_of(path).key_id
    except AileronError as failed:
        absent = failed.failure.failure_class is FailureClass.NOT_FOUND
        return _KeyFile(str(path), "absent" if absent else "damaged")
    how = "unknown" if named is None else "matches" if found == named else "another"
    return _KeyFile(str(path), how, found)
