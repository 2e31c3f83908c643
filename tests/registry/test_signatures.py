"""Keys in the forms that people have them, and signatures that other tools make and check."""

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


def test_keys_and_signatures_match_the_vector_of_rfc_8032() -> None:
    """The test checks key, signature and verification against section 7.1, test 2."""
    assert KEY.public.raw == PUBLIC
    assert KEY.sign(b"\x72") == SIGNATURE
    assert KEY.public.is_signature(SIGNATURE, b"\x72")


@given(st.integers(0, 63), st.integers(1, 255), st.binary(max_size=40))
def test_a_changed_signature_or_message_does_not_verify(at: int, flip: int, message: bytes) -> None:
    """The cases are one changed byte, another length, another message and another key."""
    signature = KEY.sign(message)
    changed = bytearray(signature)
    changed[at] ^= flip

    assert KEY.public.is_signature(signature, message)
    assert not KEY.public.is_signature(bytes(changed), message)
    assert not KEY.public.is_signature(signature[:at], message)
    assert not KEY.public.is_signature(signature, message + b"x")
    assert not SigningKey.generate().public.is_signature(signature, message)


def test_keys_are_read_as_pem_or_base64() -> None:
    """Blanks and other text may surround a key, and Aileron writes keys as PEM."""
    pem = KEY.public.to_pem()

    assert PublicKey.parse(pem) == PublicKey.parse(f"\n{base64.b64encode(PUBLIC).decode()}\n") == KEY.public
    assert PublicKey.parse(f"Acme's key, 2026\n{pem}\n") == KEY.public
    assert SigningKey.parse(KEY.to_pem()).public == KEY.public
    assert SigningKey.parse(Secret(base64.b64encode(SEED))).public == KEY.public


def test_openssl_and_aileron_accept_each_others_signatures(tmp_path: Path) -> None:
    """The key is one that openssl made."""
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
def test_a_key_of_another_kind_is_refused(command: list[str], problem: str) -> None:
    """The message quotes no part of a private key."""
    pem = subprocess.run(["openssl", *command], check=True, capture_output=True, timeout=60).stdout
    with pytest.raises(ValueError, match=problem) as refused:
        SigningKey.parse(Secret(pem))

    assert pem.decode().splitlines()[1] not in str(refused.value)
    with pytest.raises(ValueError, match="it is a private key"):
        PublicKey.parse(pem.decode())


@pytest.mark.parametrize(
    "text", ["", "x", "AAAA", base64.b64encode(b"x" * 33).decode(), "-----BEGIN PUBLIC KEY-----\nAAAA\n"]
)
def test_an_invalid_key_is_refused(text: str) -> None:
    """A truncated key is one of the cases."""
    with pytest.raises(ValueError, match="it is not"):
        PublicKey.parse(text)
    with pytest.raises(ValueError, match="it is not"):
        SigningKey.parse(Secret(text.encode()))


def test_a_fingerprint_can_be_computed_with_openssl() -> None:
    """A fingerprint is the first 22 characters of the base64 of the key's SHA-256."""
    digest = subprocess.run(
        ["openssl", "dgst", "-sha256", "-binary"], input=PUBLIC, check=True, capture_output=True, timeout=30
    )

    assert KEY.public.fingerprint == f"sha256:{base64.b64encode(digest.stdout).decode()[:22]}"
    assert FINGERPRINT.fullmatch(KEY.public.fingerprint)


def test_a_private_key_is_never_printed() -> None:
    """Neither repr, str nor a format shows it, so the locals in a traceback do not either."""
    assert repr(KEY) == str(KEY) == f"{KEY}" == "<signing key>"
    assert repr(KEY.to_pem()) == "<secret>"
    assert repr(KEY.public) == f"<key {KEY.public.fingerprint}>"
