"""A second reader of vault.json, written from docs/reference/vault-format.md alone; it shares no code with the first.

It shows that the page is enough to get one's secrets back without Aileron, and it lets the tests make files that are
properly sealed and wrong all the same. Sections of the page are named where they are followed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

Json = dict[str, Any]


def canonical(value: Json) -> bytes:
    """Return canonical JSON by the page's 'Spelling': sorted keys, no spaces. Enough of RFC 8785 for ASCII and integers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def load(path: Path) -> Json:
    """Return the file as JSON."""
    read: Json = json.loads(path.read_bytes())
    return read


def store(path: Path, vault: Json) -> None:
    """Write the vault as the page spells it, in place, so that owner and permissions stay."""
    path.write_bytes(canonical(vault) + b"\n")


def data_key(vault: Json, passphrase: bytes) -> bytes:
    """Return the data key, following the page's 'From the passphrase to the data key'."""
    slot = vault["slots"][0]
    cost, salt = slot["argon2id"], base64.b64decode(slot["salt"])
    stretch = Argon2id(
        salt=salt, length=32, iterations=cost["passes"], lanes=cost["lanes"], memory_cost=cost["memory_kib"]
    )
    context = canonical(
        {
            "use": "aileron vault 1: slot",
            "vault": vault["vault"],
            "kind": slot["kind"],
            "argon2id": cost,
            "salt": salt.hex(),
        }
    )
    return _open(stretch.derive(passphrase), slot["key"], context)


def data_key_by_code(vault: Json, code: str) -> bytes:
    """Return the data key of the first recovery slot that the code opens, following the page's 'Recovery codes'."""
    spelled = code.upper().replace("I", "1").replace("L", "1").encode()
    for slot in vault["slots"]:
        if slot["kind"] == "recovery":
            try:
                return _wrapped(vault, slot, spelled, b"aileron vault 1: recovery", {})
            except InvalidTag:
                continue
    raise ValueError("no slot of that code")


def data_key_by_keyring(vault: Json, key: bytes) -> bytes:
    """Return the data key, following the page's 'A key in a keyring'."""
    slot = next(slot for slot in vault["slots"] if slot["kind"] == "keyring")
    return _wrapped(vault, slot, key, b"aileron vault 1: keyring", {"id": slot["id"]})


def _wrapped(vault: Json, slot: Json, material: bytes, info: bytes, more: Json) -> bytes:
    salt = base64.b64decode(slot["salt"])
    said = {"use": "aileron vault 1: slot", "vault": vault["vault"], "kind": slot["kind"], "salt": salt.hex(), **more}
    return _open(HKDF(SHA256(), 32, salt, info).derive(material), slot["key"], canonical(said))


def secret(vault: Json, key: bytes, name: str) -> bytes:
    """Return the value of a secret, following the page's 'Secrets'."""
    entry = next(entry for entry in vault["secrets"] if entry["name"] == name)
    said = {field: value for field, value in entry.items() if field != "sealed"}
    context = canonical({"use": "aileron vault 1: secret", "vault": vault["vault"], **said})
    return _open(_derived(key, b"aileron vault 1: entries"), entry["sealed"], context)


def seal(vault: Json, key: bytes) -> Json:
    """Return the vault with the seal that it should have, following the page's 'The seal'."""
    said = canonical({**vault, "seal": ""}) + b"\n"
    made = hmac.new(_derived(key, b"aileron vault 1: list"), said, hashlib.sha256).digest()
    return {**vault, "seal": base64.b64encode(made).decode()}


def _derived(key: bytes, purpose: bytes) -> bytes:
    return HKDFExpand(SHA256(), 32, purpose).derive(key)


def _open(key: bytes, sealed: dict[str, str], context: bytes) -> bytes:
    nonce, ciphertext = base64.b64decode(sealed["nonce"]), base64.b64decode(sealed["ciphertext"])
    return AESGCM(key).decrypt(nonce, ciphertext, context)
