"""Boxes sealed to one command: each opens there, in its context, and nowhere else."""

from __future__ import annotations

import copy
import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from aileron.approver_key.box import MAX_PLAINTEXT_BYTES, Recipient, seal
from aileron.model.failure import FailureClass
from tests.approver_key.conftest import refused

RECIPIENT = Recipient()


@given(st.binary(max_size=300), st.binary(max_size=100))
def test_a_text_sealed_in_a_box_opens_for_its_recipient(plaintext: bytes, context: bytes) -> None:
    """The box is 48 bytes longer than its text, differs each time, and contains nothing of the text."""
    first, second = (seal(RECIPIENT.public, plaintext, context) for _ in range(2))
    assert RECIPIENT.open(first, context) == RECIPIENT.open(second, context) == plaintext
    assert first != second
    assert len(first) == len(plaintext) + 48
    assert len(plaintext) < 4 or plaintext not in first


@given(st.binary(min_size=1, max_size=64), st.data())
def test_a_box_does_not_open_for_another_recipient_or_context_or_with_a_changed_byte(
    plaintext: bytes, data: st.DataObject
) -> None:
    """The error does not say which of them was wrong."""
    sealed = seal(RECIPIENT.public, plaintext, b"what asked")
    flipped = bytearray(sealed)
    flipped[data.draw(st.integers(0, len(sealed) - 1))] ^= data.draw(st.integers(1, 255))
    shorter = sealed[: data.draw(st.integers(0, len(sealed) - 1))]
    for who, what, context in (
        (Recipient(), sealed, b"what asked"),
        (RECIPIENT, sealed, b"what else asked"),
        (RECIPIENT, shorter, b"what asked"),
        (RECIPIENT, sealed + b"\0", b"what asked"),
    ):
        with refused(FailureClass.HASH_MISMATCH, "not sealed to this command"):
            who.open(what, context)
    # X25519 ignores the highest bit of a public key (RFC 7748, section 5); the salt of the derivation does not.
    with refused(FailureClass.HASH_MISMATCH):
        RECIPIENT.open(bytes(flipped), b"what asked")


def test_a_program_written_from_the_reference_page_alone_can_open_a_box() -> None:
    """The test follows docs/reference/signed-decisions.md and uses no code of Aileron."""
    private = X25519PrivateKey.generate()
    own = private.public_key().public_bytes_raw()
    sealed = seal(own.hex(), b"a preview", b"context")
    ephemeral, ciphertext = sealed[:32], sealed[32:]
    shared = private.exchange(X25519PublicKey.from_public_bytes(ephemeral))
    derived = HKDF(SHA256(), 44, salt=ephemeral + own, info=b"aileron box 1").derive(shared)
    assert AESGCM(derived[:32]).decrypt(derived[32:], ciphertext, b"context") == b"a preview"


LOW_ORDER = ("00" * 32, "01" + "00" * 31, "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f")


@pytest.mark.parametrize("recipient", ["", "ab", "AB" * 32, "zz" * 32, "ab" * 33, *LOW_ORDER])
def test_an_invalid_public_key_of_a_box_recipient_is_refused(recipient: str) -> None:
    """The cases are another length, another alphabet, and points that make every shared secret zero (RFC 7748, section 6.1)."""
    with refused(FailureClass.INVALID_REQUEST, "X25519"):
        seal(recipient, b"a preview", b"")


def test_a_box_whose_sender_key_is_a_low_order_point_is_refused() -> None:
    """The sender of such a point would know the key."""
    for point in LOW_ORDER:
        derived = HKDF(
            SHA256(), 44, salt=bytes.fromhex(point) + bytes.fromhex(RECIPIENT.public), info=b"aileron box 1"
        ).derive(bytes(32))
        forged = bytes.fromhex(point) + AESGCM(derived[:32]).encrypt(derived[32:], b"forged", b"")
        with refused(FailureClass.HASH_MISMATCH):
            RECIPIENT.open(forged, b"")


def test_a_text_above_the_size_limit_can_be_neither_sealed_in_a_box_nor_opened() -> None:
    """A text of exactly the limit is accepted."""
    most = bytes(MAX_PLAINTEXT_BYTES)
    sealed = seal(RECIPIENT.public, most, b"")
    assert RECIPIENT.open(sealed, b"") == most
    with refused(FailureClass.RESOURCE_LIMIT_EXCEEDED, str(MAX_PLAINTEXT_BYTES)):
        seal(RECIPIENT.public, most + b"\0", b"")
    with refused(FailureClass.HASH_MISMATCH):
        RECIPIENT.open(sealed + b"\0", b"")


def test_a_box_recipient_object_cannot_be_pickled_or_copied_and_prints_no_private_key() -> None:
    """The repr is the start of the public key, which everyone may know."""
    assert repr(RECIPIENT) == f"<recipient {RECIPIENT.public[:16]}>"
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            escape(RECIPIENT)
