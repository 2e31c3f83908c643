"""The public key of an SSH server, in OpenSSH's form and as the fingerprint that people compare.

Pure. A key is the text of a line of `ssh-keyscan` or of `/etc/ssh/ssh_host_*_key.pub` without its comment.

Source: RFC 4253 section 6.6, RFC 5656, RFC 8709; ssh-keygen(1), `-l`. Not here: the key that a server presents (aileron/logins).

>>> check_host_key("ssh-ed25519 nothing")
Traceback (most recent call last):
ValueError: the host key is not 'TYPE BASE64', as `ssh-keyscan HOST` prints it after the host
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from aileron.model.sha256 import sha256

__all__ = ["HOST_KEY_TYPES", "check_host_key", "fingerprint", "shown_fingerprint"]

HOST_KEY_TYPES: Final = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
MAX_HOST_KEY: Final = 2800
"""Maximum number of characters of a key: RSA with 16,384 bits, the longest key that OpenSSH makes."""
_HOST_KEY: Final = re.compile(rf"({'|'.join(HOST_KEY_TYPES)}) ([A-Za-z0-9+/]+={{0,2}})")


def check_host_key(text: str) -> str:
    """Return `text` unchanged if it is a host key. Otherwise raises ValueError saying what is wrong with it."""
    _blob(text)
    return text


def fingerprint(text: str) -> str:
    """Return `SHA256:…` as `ssh-keygen -l` prints it. Raises ValueError if `text` is not a host key."""
    return f"SHA256:{base64.b64encode(sha256(_blob(text))).decode().rstrip('=')}"


def shown_fingerprint(text: str) -> str:
    """Return the fingerprint for a person to read, or words saying that the untrusted `text` is not a key."""
    try:
        return fingerprint(text)
    except ValueError:
        return "NOT A KEY"


def _blob(text: str) -> bytes:
    found = _HOST_KEY.fullmatch(text) if len(text) <= MAX_HOST_KEY else None
    blob = b"" if found is None else _decoded(found[2])
    # RFC 4253, section 6.6: the type once more, as a string, and then the key.
    if found is None or not blob.startswith(len(found[1]).to_bytes(4, "big") + found[1].encode()):
        raise ValueError("the host key is not 'TYPE BASE64', as `ssh-keyscan HOST` prints it after the host")
    return blob


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
