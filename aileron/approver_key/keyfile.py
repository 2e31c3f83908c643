"""The approver's private key: a small file encrypted with a passphrase, and signatures while the key is open.

Runs in the process of one command at a terminal (isolation.py), or in the daemon for one unlocked page
(daemon/http/page.py). An agent of the same user can read and write the file: its contents are of no use without the
passphrase, and are checked, bounded and authenticated before they are used. Nobody can make the file sign for another
key: every unencrypted field is bound to the sealed private key, and the public half is computed again from that key.

Rules
- The file has exactly one form, the canonical JSON (RFC 8785) of its fields and one line end; any other is refused.
- The cost of checking a passphrase is limited beforehand (passphrase.py), in the same way as a vault's.
- The key is a `bytearray`, overwritten after use. The passphrase is `bytes`, as everywhere (model/secret.py).
- A new key is written to a separate file and moved into place when the vault names it, so that after a crash at any moment
  the key that the vault names is in one of the two files.

Source: docs/reference/signed-decisions.md; RFC 8032 (Ed25519), RFC 9106 (Argon2). Not here: what is signed (model/decision.py),
the process that may open it (isolation.py).
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, NoReturn, final

import msgspec

import aileron.passphrase
from aileron import files
from aileron.model.canonical import canonical_json
from aileron.model.decision import Statement, key_id_of
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.secret import Secret
from aileron.passphrase import (
    COST,
    KEY_BYTES,
    NONCE_BYTES,
    SALT_BYTES,
    TAG_BYTES,
    Cost,
    EnvelopeError,
    Sealed,
    seal_key,
    unseal_key,
)

__all__ = [
    "MAX_PASSPHRASE_BYTES",
    "MIN_PASSPHRASE_BYTES",
    "ApproverKey",
    "PublicHalf",
    "check_passphrase",
    "create",
    "file_of",
    "key_in",
    "locked",
    "open_key",
    "public_of",
    "put_in_place",
    "remove_staged",
    "staged",
]

FORMAT: Final = 1
MAX_FILE_BYTES: Final = 4096  # 4 KiB: the file has about 500 bytes, whatever its values are
MIN_PASSPHRASE_BYTES: Final = 8  # the same as for a vault: NIST SP 800-63B
MAX_PASSPHRASE_BYTES: Final = 1024  # one line; a terminal returns at most 4095 bytes of a line, termios(3)
LOCK_S: Final = 1.0
"""Seconds to wait for another command that changes the key.

The other command holds the lock while a person types, so a longer wait would not help.
"""
_LARGEST: Final = 2**53 - 1  # RFC 8785, by way of I-JSON
_LATEST_MS: Final = 253402300799000  # the last second of the year 9999
_PUBLIC: Final = re.compile(r"[0-9a-f]{64}")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the key's file; `sealed` is the encrypted private key (RFC 8032: 32 random bytes)."""

    format: int
    key_id: str
    public_key: str
    created_ms: int
    argon2id: Cost
    salt: bytes
    sealed: Sealed

    def context(self) -> bytes:
        """Return the bytes that are authenticated together with the sealed key: all other fields, as canonical JSON."""
        fields = {name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(self).items()}
        del fields["sealed"]
        return canonical_json({"use": f"aileron approver {FORMAT}: key", **fields, "salt": self.salt.hex()})


class _Format(msgspec.Struct):
    format: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]


class PublicHalf(msgspec.Struct, frozen=True):
    """The unencrypted fields of a key's file. The fields are unverified: only the passphrase, or the vault that names
    the key, can prove them.
    """

    key_id: str
    public_key: bytes
    created_at: float
    """Creation time in seconds since the epoch."""


@final
class ApproverKey:
    """The approver's private key, decrypted for one thread and one command. `wipe` it after use, or use it in a `with`."""

    __slots__ = ("_seed", "key_id", "public_key")

    def __init__(self, seed: bytearray) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if len(seed) != KEY_BYTES:
            raise ValueError(f"a private key has {KEY_BYTES} bytes")
        self._seed: Final = seed
        self.public_key: Final = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        self.key_id: Final = key_id_of(self.public_key)

    def sign(self, statement: Statement) -> str:
        """Sign `statement.signed_bytes()` with Ed25519; return base64. Raises RuntimeError after `wipe`."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if not any(self._seed):
            raise RuntimeError("this key was wiped")
        signature = Ed25519PrivateKey.from_private_bytes(self._seed).sign(statement.signed_bytes())
        return base64.b64encode(signature).decode()

    def wipe(self) -> None:
        """Overwrite the key, which can no longer sign afterwards."""
        self._seed[:] = bytes(KEY_BYTES)

    def __enter__(self) -> ApproverKey:
        return self

    def __exit__(self, *_: object) -> None:
        self.wipe()

    def __repr__(self) -> str:
        return f"<approver key {self.key_id}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an approver's key is not pickled or copied")


def create(path: Path, passphrase: Secret, *, replace: bool = False, clock_s: float | None = None) -> ApproverKey:
    """Create an open key, and write it to `path` encrypted with `passphrase`: mode 0600, flushed. Takes as long as `open_key`.

    The directory is created if needed, with mode 0700. Raises AileronError: bad_input if the passphrase is too short or too
    long; invalid_request if a file exists, unless `replace` states that the existing key is no longer needed.
    """
    check_passphrase(passphrase)
    key = ApproverKey(bytearray(os.urandom(KEY_BYTES)))
    with _wiped_on_failure(key), _memory():
        now_ms = int((time.time() if clock_s is None else clock_s) * 1000)
        unsealed = _File(
            FORMAT,
            key.key_id,
            key.public_key.hex(),
            now_ms,
            COST,
            aileron.passphrase.new_salt(),
            Sealed(bytes(NONCE_BYTES), b""),
        )
        sealed = seal_key(key._seed, passphrase, unsealed.salt, COST, context=unsealed.context())
        _write(path, _encode(msgspec.structs.replace(unsealed, sealed=sealed)), replace=replace)
    return key


def open_key(path: Path, passphrase: Secret) -> ApproverKey:
    """Open the key in `path`.

    Raises AileronError (not_found), (unauthorized) for a wrong passphrase, (hash_mismatch) for damage.
    """
    file = _read(path)
    wrong = AileronError(
        FailureClass.UNAUTHORIZED, f"wrong passphrase for {path} (or the file was changed)", boundary=Boundary.USER
    )
    if len(passphrase) > MAX_PASSPHRASE_BYTES:
        raise wrong
    with _memory():
        try:
            seed = unseal_key(file.sealed, passphrase, file.salt, file.argon2id, context=file.context())
        except EnvelopeError:
            raise wrong from None
    key = ApproverKey(seed)
    if (key.key_id, key.public_key.hex()) != (file.key_id, file.public_key):
        key.wipe()
        raise _damaged(path, "the key in it is not the one it names")
    return key


def public_of(path: Path) -> PublicHalf:
    """Return the unencrypted fields of the key file at `path`, unverified; this needs no passphrase. Raises
    AileronError (not_found, hash_mismatch).
    """
    file = _read(path)
    return PublicHalf(file.key_id, bytes.fromhex(file.public_key), file.created_ms / 1000)


def check_passphrase(passphrase: Secret) -> None:
    """Raise AileronError(bad_input) if the passphrase is too short to protect a file that anybody can copy, or too long."""
    if not MIN_PASSPHRASE_BYTES <= len(passphrase) <= MAX_PASSPHRASE_BYTES:
        bounds = f"{MIN_PASSPHRASE_BYTES} to {MAX_PASSPHRASE_BYTES} are needed"
        reason = "whoever copies the file can try shorter ones one by one"
        message = f"the passphrase has {len(passphrase)} bytes; {bounds} ({reason})"
        raise AileronError(FailureClass.BAD_INPUT, message, boundary=Boundary.USER)


def key_in(path: Path) -> str | None:
    """Return the id of the key in a file, unverified; None if no key can be read there."""
    try:
        return public_of(path).key_id
    except AileronError:
        return None


def file_of(path: Path, key_id: str | None) -> Path:
    """Return the path of the file that has the key with this id. This is the staged file if a command ended before it moved the
    new key into place; otherwise it is `path`.
    """
    new = staged(path)
    return new if key_id is not None and key_in(new) == key_id else path


def staged(path: Path) -> Path:
    """Return the path beside `path` where a new key is stored until the vault names it."""
    return path.with_name(f"{path.name}.new")


def put_in_place(path: Path) -> None:
    """Move the staged key to `path`, durably. Raises FileNotFoundError if no key is staged, AileronError if the move fails."""
    new = staged(path)
    with (
        files.open_directory(path.parent, files.OTHERS_MAY_WRITE) as directory,
        files.translated(path, "cannot be put there"),
    ):
        os.rename(new.name, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)


def remove_staged(path: Path) -> None:
    """Delete a staged key that no vault names. Does nothing if no key is staged."""
    with (
        files.open_directory(path.parent, files.OTHERS_MAY_WRITE) as directory,
        files.translated(path, "cannot be tidied"),
        contextlib.suppress(FileNotFoundError),
    ):
        os.unlink(staged(path).name, dir_fd=directory)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of commands that change the key. Raises AileronError(busy) after LOCK_S."""
    files.make_directory(path.parent)
    with files.open_directory(path.parent, files.OTHERS_MAY_WRITE) as directory, files.locked(directory, path, LOCK_S):
        yield


def _read(path: Path) -> _File:
    try:
        with files.open_directory(path.parent, files.OTHERS_MAY_WRITE) as directory:
            data = files.read(directory, path, MAX_FILE_BYTES, files.OTHERS_MAY_USE)
    except FileNotFoundError:
        message = f"there is no approver's key at {path}: aileron approver init"
        raise AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.USER) from None
    return _decode(path, data)


def _write(path: Path, data: bytes, *, replace: bool) -> None:
    files.make_directory(path.parent)
    with files.open_directory(path.parent, files.OTHERS_MAY_WRITE) as directory:
        if not replace and _exists(directory, path.name):
            message = f"{path} already exists; to replace the key, run `aileron approver init --replace`"
            raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
        files.replace(directory, path, data)


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _encode(file: _File) -> bytes:
    return msgspec.json.encode(file, order="sorted") + b"\n"  # canonical: ASCII keys, strings and whole numbers only


def _decode(path: Path, data: bytes) -> _File:
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found != FORMAT:
            message = f"{path} has format {found}, where this version of aileron reads format {FORMAT}; upgrade aileron"
            raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
        file = msgspec.json.decode(data, type=_File)
        if _encode(file) != data:
            raise ValueError("not spelled as aileron spells it")
        _check(file)
    except (ValueError, RecursionError) as error:
        is_ours = type(error) is ValueError  # msgspec's errors quote the file, which may contain hidden characters
        raise _damaged(path, str(error) if is_ours else "its JSON is broken or not that of a key") from None
    return file


def _check(file: _File) -> None:
    """Raise ValueError if a field of a key file has a value that this program would not write. Fields are checked in
    their order.
    """
    _expect(_PUBLIC.fullmatch(file.public_key) is not None, "the public key is not 64 hex digits")
    _expect(file.key_id == key_id_of(bytes.fromhex(file.public_key)), "the key's id is another one's")
    _expect(0 <= file.created_ms <= _LATEST_MS, "its date is no date")
    file.argon2id.check()
    _expect(len(file.salt) == SALT_BYTES, "the salt has another length")
    _expect(len(file.sealed.nonce) == NONCE_BYTES, "the nonce has another length")
    _expect(len(file.sealed.ciphertext) == KEY_BYTES + TAG_BYTES, "the sealed key has another length")


def _expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ValueError(otherwise)


def _damaged(path: Path, how: str) -> AileronError:
    message = f"{path} is not as aileron wrote it: {how}; put a backup in its place"
    return AileronError(FailureClass.HASH_MISMATCH, message, details={"file": str(path)})


@contextlib.contextmanager
def _wiped_on_failure(key: ApproverKey) -> Iterator[None]:
    try:
        yield
    except BaseException:
        key.wipe()
        raise


@contextlib.contextmanager
def _memory() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        message = "not enough memory to derive the approver's key; free some and try again"
        raise AileronError(FailureClass.INTERNAL_ERROR, message, retriable=True) from None
