r"""Whether a stored value can be what a binding logs in with: a password or token of one line or, for `ssh`, a private key.

Pure. Looks at values and quotes none.

Rules
- A value has line ends only if it is a private key, and a private key serves only `ssh` logins: anywhere else its line ends
  would end a header or a command early.
- A private key has no passphrase: nobody is there to type it.
- A password for a login has no control character: `\0` and `\1` separate the parts of SASL's messages, and a line is a command.

Source: RFC 7468, OpenSSH's PROTOCOL.key; RFC 4616. Not here: whether a server takes it (aileron/logins).
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from aileron.model.secret import Secret
from aileron.vault.bindings import Binding

__all__ = ["check_fits", "is_private_key"]

_PEM: Final = re.compile(
    rb"-----BEGIN (?P<kind>(?:[A-Z]+ )*)PRIVATE KEY-----\n(?P<body>[\x20-\x7e\n]+)\n-----END (?P=kind)PRIVATE KEY-----\n*"
)
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")
_OPENSSH: Final = b"openssh-key-v1\0"
_NO_CIPHER: Final = b"\0\0\0\x04none"
"""PROTOCOL.key, section 1: the name of the cipher comes first."""


def is_private_key(value: Secret) -> bool:
    """Whether it is one in PEM or OpenSSH's form, encrypted or not."""
    return _PEM.fullmatch(value.reveal()) is not None


def check_fits(binding: Binding, value: Secret) -> None:
    """Return if `binding` can log in with it. ValueError says what to do, and quotes nothing of it."""
    key, has_ssh = _PEM.fullmatch(value.reveal()), any(login.protocol == "ssh" for login in binding.logins)
    if key is not None and not has_ssh:
        raise ValueError(
            f"secret {binding.secret!r} is a private key, which only an ssh login uses; give another --secret"
        )
    if key is not None and _is_encrypted(key["kind"], key["body"]):
        cure = "remove it from a copy with `ssh-keygen -p -N '' -f COPY`, and store that"
        raise ValueError(
            f"secret {binding.secret!r} is a private key with a passphrase, which nobody could type: {cure}"
        )
    if key is None and binding.logins and binding.grant is None and _CONTROL.search(value.reveal()):
        cure = f"set the password again, without it: aileron secret set {binding.secret}"
        raise ValueError(f"secret {binding.secret!r} has a control character, which would end the login early; {cure}")


def _is_encrypted(kind: bytes, body: bytes) -> bool:
    if kind == b"ENCRYPTED " or b"ENCRYPTED" in body.partition(b"\n\n")[0]:  # PKCS #8; RFC 1421, Proc-Type
        return True
    if kind != b"OPENSSH ":
        return False
    try:
        decoded = base64.b64decode(body.replace(b"\n", b""), validate=True)
    except binascii.Error:
        return False
    return decoded.startswith(_OPENSSH) and not decoded.startswith(_OPENSSH + _NO_CIPHER)
