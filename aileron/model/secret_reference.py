r"""References to secrets that are not in the vault: one line of text, in three forms.

    pass:PATH                             the first line of `pass show PATH`
    vault://HOST:PORT/MOUNT/PATH#FIELD    a field in the key-value store (version 2) of HashiCorp Vault or OpenBao
    op://VAULT/ITEM/[SECTION/]FIELD       a field of an item in 1Password

A reference is not secret: it is shown, recorded and approved. Pure.

Rules
- A reference has one spelling: the parsed text is exactly the shown text. So nothing is decoded, and a path has no empty part, no
  `.` and no `..`.
- Every part has only plain characters, so that none can be a program's option, a second header, or another path or query of a
  URL.
- The forms `env-file`, `env`, `file` and `.env` are refused with an error of their own, because every program of the same user
  can read a file of environment variables.

Source: pass(1); HashiCorp, "KV secrets engine - version 2 (API)"; 1Password, "Secret reference syntax". Not here: fetching the
secret (aileron/secret_stores).

>>> SecretReference.parse("vault://vault.example.com:8200/secret/mail/home#password").path
('mail', 'home')
>>> SecretReference.parse("pass:../mail")
Traceback (most recent call last):
ValueError: 'pass:../mail': '..' cannot be a part of a path
"""

from __future__ import annotations

import re
from typing import Final, Literal, Self, get_args

import msgspec

from aileron.model.names import HostPort

__all__ = ["MAX_REFERENCE", "Elsewhere", "ReferenceKind", "SecretReference"]

ReferenceKind = Literal["pass", "vault", "op"]
"""Store that holds the secret: the program pass(1), a server with HashiCorp Vault's API, or 1Password's program `op`."""

MAX_REFERENCE: Final = 512
"""Maximum number of characters of a reference, because a person reads it before approving it."""
_MAX_PARTS: Final = 16
_PASS_PART: Final = re.compile(r"[A-Za-z0-9_@+=.,~][A-Za-z0-9_@+=.,~ -]*(?<! )")
_VAULT_PART: Final = re.compile(r"[A-Za-z0-9_@+=.~][A-Za-z0-9_@+=.~-]*")
_OP_PART: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_. -]*(?<! )")
_FILES: Final = ("env-file", "env", "file", ".env")
_FORMS: Final = "pass:PATH, vault://HOST:PORT/MOUNT/PATH#FIELD or op://VAULT/ITEM/FIELD"


class SecretReference(msgspec.Struct, frozen=True):
    """A parsed reference; `text` is the reference as given.

    `path` has the parts of the path: for `vault` without the mount; for `op` the vault, item, optional section and field.
    """

    kind: ReferenceKind
    text: str
    path: tuple[str, ...]
    host: HostPort | None = None
    mount: str = ""
    field: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a reference. Raises ValueError saying which part is not valid."""
        if len(text) > MAX_REFERENCE:
            raise ValueError(f"a reference of {len(text)} characters; at most {MAX_REFERENCE}")
        kind, colon, rest = text.partition(":")
        if kind in _FILES or text in _FILES:
            raise ValueError(
                f"{kind!r} is not supported: an agent that runs as you could read the file. Store the value instead, with "
                "`aileron secret set NAME`"
            )
        if not colon or kind not in get_args(ReferenceKind):
            raise ValueError(f"{text!a} is not a reference to a secret; expected {_FORMS}")
        if kind == "pass":
            return cls("pass", text, _parts(text, rest, _PASS_PART))
        if not rest.startswith("//"):
            raise ValueError(f"{text!a} is not a reference to a secret; expected {_FORMS}")
        return cls._op(text, rest[2:]) if kind == "op" else cls._vault(text, rest[2:])

    @classmethod
    def _op(cls, text: str, rest: str) -> Self:
        path = _parts(text, rest, _OP_PART)
        if not 3 <= len(path) <= 4:
            raise ValueError(
                f"{text!a} has {len(path)} parts; expected op://VAULT/ITEM/FIELD or op://VAULT/ITEM/SECTION/FIELD"
            )
        return cls("op", text, path, field=path[-1])

    @classmethod
    def _vault(cls, text: str, rest: str) -> Self:
        where, hash_sign, field = rest.partition("#")
        host, _, path = where.partition("/")
        if not hash_sign or not _VAULT_PART.fullmatch(field):
            raise ValueError(f"{text!a} names no field; expected vault://HOST:PORT/MOUNT/PATH#FIELD")
        destination = HostPort.parse(host)
        mount, *parts = _parts(text, path, _VAULT_PART)
        if not parts:
            raise ValueError(f"{text!a} names no path in the mount; expected vault://HOST:PORT/MOUNT/PATH#FIELD")
        return cls("vault", text, tuple(parts), destination, mount, field)

    def __str__(self) -> str:
        return self.text


class Elsewhere(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The place of a secret outside the vault, and the means to fetch it: the absolute path of a program, the name of a
    stored token, or both.
    """

    reference: str
    program: str | None = None
    token: str | None = None

    @property
    def parsed(self) -> SecretReference:
        """The reference in its parsed form. Raises ValueError if `reference` was not written by this program."""
        return SecretReference.parse(self.reference)

    @property
    def place(self) -> str:
        """The program (its path) or server (HOST:PORT) that is asked for the secret and receives the token."""
        return self.program or str(self.parsed.host)

    @property
    def words(self) -> str:
        """The reference, the program and the token's name in one line, for people."""
        with_program = "" if self.program is None else f", read by {self.program}"
        return f"{self.reference}{with_program}{'' if self.token is None else f', with the token {self.token}'}"


def _parts(text: str, path: str, part: re.Pattern[str]) -> tuple[str, ...]:
    found = tuple(path.split("/"))
    if len(found) > _MAX_PARTS:
        raise ValueError(f"{text!a} has {len(found)} parts; at most {_MAX_PARTS}")
    for segment in found:
        if segment in (".", ".."):
            raise ValueError(f"{text!a}: {segment!r} cannot be a part of a path")
        if not part.fullmatch(segment):
            raise ValueError(
                f"{text!a}: {segment!a} cannot be a part of a path (letters, digits and a few signs; not empty)"
            )
    return found
