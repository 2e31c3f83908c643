"""An independent reader of approver.json, written from docs/reference/signed-decisions.md alone; it shares no code with
Aileron's.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

Json = dict[str, Any]


def canonical(value: Json) -> bytes:
    """Return JSON with sorted keys, no spaces, in UTF-8: enough of RFC 8785 for ASCII keys and integers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def wrapping_key(file: Json, passphrase: bytes) -> bytes:
    """Return Argon2id of the passphrase, with the parameters of the file."""
    cost, salt = file["argon2id"], base64.b64decode(file["salt"])
    return Argon2id(
        salt=salt, length=32, iterations=cost["passes"], lanes=cost["lanes"], memory_cost=cost["memory_kib"]
    ).derive(passphrase)


def context(file: Json) -> bytes:
    """Return everything in the file beside the sealed key, as bytes to authenticate."""
    said = {name: value for name, value in file.items() if name != "sealed"}
    salt = base64.b64decode(file["salt"]).hex()
    return canonical({**said, "use": "aileron approver 1: key", "salt": salt})


def private_key(file: Json, passphrase: bytes) -> Ed25519PrivateKey:
    """Return the private key."""
    sealed = file["sealed"]
    nonce, ciphertext = base64.b64decode(sealed["nonce"]), base64.b64decode(sealed["ciphertext"])
    return Ed25519PrivateKey.from_private_bytes(
        AESGCM(wrapping_key(file, passphrase)).decrypt(nonce, ciphertext, context(file))
    )


def resealed(file: Json, passphrase: bytes, seed: bytes) -> Json:
    """Return the file with another key sealed in it, correctly."""
    nonce = bytes(12)
    ciphertext = AESGCM(wrapping_key(file, passphrase)).encrypt(nonce, seed, context(file))
    return {**file, "sealed": {"nonce": _text(nonce), "ciphertext": _text(ciphertext)}}


def key_id(public: bytes) -> str:
    """Return the key id that a decision names."""
    return "ed25519:" + hashlib.sha256(public).hexdigest()[:32]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
