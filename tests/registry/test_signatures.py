"""Keys as people have them, and signatures as other tools make and check them."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.secret import Secret
from aileron.registry.signatures import FINGERPRINT, PublicKey, SigningKey

# RFC 8032, section 7.1, test 2
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
KEY = SigningKey(Secret(SEED))


def test_it_is_ed25519_as_the_rfc_says() -> None:
    """Key, signature and check, against the published vector."""
    assert KEY.public.raw == PUBLIC
    assert KEY.sign(b"\x72") == SIGNATURE
    assert KEY.public.is_signature(SIGNATURE, b"\x72")


@given(st.integers(0, 63), st.integers(1, 255), st.binary(max_size=40))
def test_any_other_signature_or_message_is_not_its_own(at: int, flip: int, message: bytes) -> None:
    """One changed byte, another length, another message, another key."""
    signature = KEY.sign(message)
    changed = bytearray(signature)
    changed[at] ^= flip

    assert KEY.public.is_signature(signature, message)
    assert not KEY.public.is_signature(bytes(changed), message)
    assert not KEY.public.is_signature(signature[:at], message)
    assert not KEY.public.is_signature(signature, message + b"x")
    assert not SigningKey.generate().public.is_signature(signature, message)


def test_keys_come_as_people_have_them() -> None:
    """PEM or base64, with blanks around; and go out as PEM."""
    pem = KEY.public.to_pem()

    assert PublicKey.parse(pem) == PublicKey.parse(f"\n{base64.b64encode(PUBLIC).decode()}\n") == KEY.public
    assert PublicKey.parse(f"Acme's key, 2026\n{pem}\n") == KEY.public
    assert SigningKey.parse(KEY.to_pem()).public == KEY.public
    assert SigningKey.parse(Secret(base64.b64encode(SEED))).public == KEY.public


def test_openssl_makes_and_checks_the_same(tmp_path: Path) -> None:
    """A key of its own signs here and verifies there, and the other way round."""
    key, public, message, signature = (tmp_path / name for name in ("key", "public", "message", "signature"))
    message.write_bytes(b"connector" + b"manifest")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=tmp_path, timeout=30)

    openssl("genpkey", "-algorithm", "ed25519", "-out", "key")
    openssl("pkey", "-in", "key", "-pubout", "-out", "public")
    ours = SigningKey.parse(Secret(key.read_bytes()))
    signature.write_bytes(ours.sign(message.read_bytes()))
    openssl("pkeyutl", "-verify", "-pubin", "-inkey", "public", "-rawin", "-in", "message", "-sigfile", "signature")
    openssl("pkeyutl", "-sign", "-inkey", "key", "-rawin", "-in", "message", "-out", "signature")

    assert PublicKey.parse(public.read_text()) == ours.public
    assert ours.public.is_signature(signature.read_bytes(), message.read_bytes())


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["genpkey", "-algorithm", "RSA"], "a key of another kind"),
        (["genpkey", "-algorithm", "x25519"], "a key of another kind"),
        (["genpkey", "-algorithm", "ed25519", "-aes-256-cbc", "-pass", "pass:hunter2-hunter2"], "it is encrypted"),
    ],
)
def test_another_key_is_told_apart(command: list[str], problem: str) -> None:
    """And nothing of a private key is in the message."""
    pem = subprocess.run(["openssl", *command], check=True, capture_output=True, timeout=60).stdout
    with pytest.raises(ValueError, match=problem) as refused:
        SigningKey.parse(Secret(pem))

    assert pem.decode().splitlines()[1] not in str(refused.value)
    with pytest.raises(ValueError, match="it is a private key"):
        PublicKey.parse(pem.decode())


@pytest.mark.parametrize(
    "text", ["", "x", "AAAA", base64.b64encode(b"x" * 33).decode(), "-----BEGIN PUBLIC KEY-----\nAAAA\n"]
)
def test_what_is_no_key_is_refused(text: str) -> None:
    """Also one that is cut short."""
    with pytest.raises(ValueError, match="it is not"):
        PublicKey.parse(text)
    with pytest.raises(ValueError, match="it is not"):
        SigningKey.parse(Secret(text.encode()))


def test_a_fingerprint_can_be_compared_with_what_openssl_says() -> None:
    """The first 22 characters of the base64 of the key's sha256."""
    digest = subprocess.run(
        ["openssl", "dgst", "-sha256", "-binary"], input=PUBLIC, check=True, capture_output=True, timeout=30
    )

    assert KEY.public.fingerprint == f"sha256:{base64.b64encode(digest.stdout).decode()[:22]}"
    assert FINGERPRINT.fullmatch(KEY.public.fingerprint)


def test_a_private_key_prints_nowhere() -> None:
    """Not in a repr, a string, a format or a traceback's locals."""
    assert repr(KEY) == str(KEY) == f"{KEY}" == "<signing key>"
    assert repr(KEY.to_pem()) == "<secret>"
    assert repr(KEY.public) == f"<key {KEY.public.fingerprint}>"
