"""Reading of an AWS key from a stored secret:
the secret access key as text, or the JSON that `credential_process` programs print.

Pure; runs in the daemon. A person stored the value; an error says what is wrong with the value, without quoting the value.

Rules
- A value that is text is the secret access key alone; the access key ID is then the user name of the binding.
- A value that is JSON has `AccessKeyId` and `SecretAccessKey`, and may have `SessionToken` and `Expiration`. The binding
  needs no user name then; if it has one, that must equal `AccessKeyId`.
- A temporary key (`ASIA…`) is refused without its session token.

Source: AWS SDKs and Tools Reference Guide, process credential provider; IAM, unique identifiers. Not here: the signature
(egress/signing/aws.py).

>>> AwsKey.parse("AKIDEXAMPLE", Secret(b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")).access_key_id
'AKIDEXAMPLE'
"""

from __future__ import annotations

import datetime
import re
from typing import Final, Self

import msgspec

from aileron.model.secret import Secret

__all__ = ["AwsKey"]

_ID: Final = re.compile(r"[A-Za-z0-9_.\-]{3,128}")
"""Pattern of an access key ID: 16 to 128 letters and digits at AWS.

Other services with AWS's protocol use shorter IDs or dashes.
"""
_LOOKS_LIKE_AN_ID: Final = re.compile(rb"A(?:KIA|SIA)[A-Z0-9]{12,}")
_SECRET: Final = re.compile(rb"[\x21-\x7e]{8,256}")
_TOKEN: Final = re.compile(rb"[\x21-\x7e]{8,8192}")
_TEMPORARY: Final = "ASIA"
_EXPORT: Final = "`aws configure export-credentials`"


class _Document(msgspec.Struct, rename="pascal"):
    """The JSON output of the AWS CLI's `credential_process`, whose `Version` is 1."""

    access_key_id: str
    secret_access_key: str
    version: int = 1
    session_token: str | None = None
    expiration: datetime.datetime | None = None


class AwsKey(msgspec.Struct, frozen=True):
    """An AWS key that signs requests. `expires_at` is None for a key that does not expire."""

    access_key_id: str
    secret_access_key: Secret
    session_token: Secret | None = None
    expires_at: datetime.datetime | None = None

    @classmethod
    def parse(cls, username: str | None, value: Secret) -> Self:
        """Return the AWS key in `value`, a stored secret; `username` is the access key ID, if that is stored
        separately.

        Raises ValueError saying what is wrong with the value, in words that complete a sentence beginning "the secret".
        """
        data = value.reveal().strip()
        return cls._of_document(username, data) if data.startswith(b"{") else cls._of_text(username, data)

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The secret access key and, if there is one, the session token, as bytes."""
        token = () if self.session_token is None else (self.session_token.reveal(),)
        return (self.secret_access_key.reveal(), *token)

    def check_current(self, now: datetime.datetime) -> None:
        """Raise ValueError if the key has expired."""
        if self.expires_at is not None and self.expires_at <= now:
            raise ValueError(f"expired at {self.expires_at.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC")

    @classmethod
    def _of_text(cls, username: str | None, data: bytes) -> Self:
        if b"-----BEGIN " in data:
            raise ValueError(f"is a private key or a certificate, not a secret access key or the JSON of {_EXPORT}")
        if _LOOKS_LIKE_AN_ID.fullmatch(data):
            raise ValueError("looks like an access key ID: that is the user name; the secret is the secret access key")
        if not _SECRET.fullmatch(data):
            raise ValueError("is not a secret access key: it has a blank, a line end or a character that is not ASCII")
        if not username:
            raise ValueError(f"has no access key ID: give it as the user name, or store the JSON of {_EXPORT}")
        _check_id(username)
        if username.startswith(_TEMPORARY):
            raise ValueError(f"is a temporary key without its session token: store the JSON of {_EXPORT}")
        return cls(username, Secret(data))

    @classmethod
    def _of_document(cls, username: str | None, data: bytes) -> Self:
        try:
            document = msgspec.json.decode(data, type=_Document)
        except (ValueError, RecursionError):  # msgspec's words name fields, but may quote a value
            document = None
        if document is None:
            raise ValueError(
                f"is no AWS key in JSON: it needs AccessKeyId and SecretAccessKey at its top, as {_EXPORT} prints them"
            )
        secret, token = document.secret_access_key.encode(), (document.session_token or "").encode()
        if document.version != 1:
            raise ValueError("has a Version other than 1")
        _check_id(document.access_key_id)
        if not _SECRET.fullmatch(secret) or (token and not _TOKEN.fullmatch(token)):
            raise ValueError(
                "has a SecretAccessKey or SessionToken with a character that none has, or of another length"
            )
        if document.access_key_id.startswith(_TEMPORARY) and not token:
            raise ValueError("is a temporary key without its SessionToken")
        if username and username != document.access_key_id:
            raise ValueError("has another AccessKeyId than the user name of the binding: leave the user name out")
        return cls(
            document.access_key_id, Secret(secret), Secret(token) if token else None, _with_zone(document.expiration)
        )


def _check_id(access_key_id: str) -> None:
    if not _ID.fullmatch(access_key_id):
        raise ValueError("has an access key ID that is none: 3 to 128 letters, digits, `_`, `-` and `.`")


def _with_zone(moment: datetime.datetime | None) -> datetime.datetime | None:
    return moment.replace(tzinfo=datetime.UTC) if moment is not None and moment.tzinfo is None else moment
