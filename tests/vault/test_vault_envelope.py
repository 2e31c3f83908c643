"""The vault's cryptography on its own: data sealed for one place opens there and nowhere else."""

from __future__ import annotations

import copy
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.secret import Secret
from aileron.vault.envelope import COST, Cost, DataKey, EnvelopeError, Sealed, unwrap_key, wrap_key

pytestmark = pytest.mark.usefixtures("real_derivation")

SALT = bytes(range(16))


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_sealed_data_opens_with_the_same_key_and_context(plaintext: bytes, context: bytes) -> None:
    """The ciphertext is sixteen bytes longer than the plaintext, and does not contain it."""
    key = DataKey.generate()
    sealed = key.seal(plaintext, context=context)
    assert key.open(sealed, context=context) == plaintext
    assert len(sealed.ciphertext) == len(plaintext) + 16
    assert len(plaintext) < 4 or plaintext not in sealed.ciphertext


@given(st.binary(min_size=8, max_size=64), st.data())
def test_sealed_data_does_not_open_with_another_key_context_or_byte(plaintext: bytes, data: st.DataObject) -> None:
    """Each raises the same EnvelopeError, without a message or a cause."""
    key = DataKey.generate()
    sealed = key.seal(plaintext, context=b"here")
    flipped = bytearray(sealed.nonce + sealed.ciphertext)
    flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= data.draw(st.integers(1, 255))
    attempts = [
        (DataKey.generate(), sealed, b"here"),
        (key, sealed, b"there"),
        (key, Sealed(bytes(flipped[:12]), bytes(flipped[12:])), b"here"),
        (key, Sealed(sealed.nonce, sealed.ciphertext[:-1]), b"here"),
        (key, Sealed(sealed.nonce, b""), b"here"),
        (key, Sealed(b"", sealed.ciphertext), b"here"),
        (key, Sealed(b"\0" * 200, sealed.ciphertext), b"here"),
    ]
    for other, what, context in attempts:
        with pytest.raises(EnvelopeError) as caught:
            other.open(what, context=context)
        assert (str(caught.value), caught.value.__cause__) == ("", None)


def test_no_nonce_is_used_twice() -> None:
    """Each sealing draws a new one, so equal secrets have different ciphertexts."""
    key = DataKey.generate()
    sealed = [key.seal(b"the same", context=b"") for _ in range(1000)]
    assert len({each.nonce for each in sealed}) == len({each.ciphertext for each in sealed}) == 1000


def test_an_unwrapped_key_opens_data_that_the_original_key_sealed() -> None:
    """The unwrapped key opens data sealed by the first one; under another passphrase, salt or context it is not unwrapped."""
    key = DataKey.generate()
    sealed = key.seal(b"a secret", context=b"here")
    wrapped = wrap_key(key, Secret(b"passphrase"), SALT, COST, context=b"slot")
    again = unwrap_key(wrapped, Secret(b"passphrase"), SALT, COST, context=b"slot")
    assert again.open(sealed, context=b"here") == b"a secret"
    assert again.authenticate(b"list") == key.authenticate(b"list") != key.authenticate(b"tsil")
    for passphrase, salt, context in (
        (b"Passphrase", SALT, b"slot"),
        (b"passphrase", SALT[::-1], b"slot"),
        (b"passphrase", SALT, b"slit"),
    ):
        with pytest.raises(EnvelopeError):
            unwrap_key(wrapped, Secret(passphrase), salt, COST, context=context)
    for length in (0, 47, 49):  # a key of another length is refused before it costs anything
        with pytest.raises(EnvelopeError):
            unwrap_key(Sealed(wrapped.nonce, bytes(length)), Secret(b"passphrase"), SALT, COST, context=b"slot")


def test_a_derivation_cost_out_of_bounds_is_refused_on_wrapping() -> None:
    """The file's reader checks the cost too, but the function that spends it must not rely on that."""
    for cost in (Cost(1 << 31, 3, 4), Cost(8, 1, 1), Cost(64 << 10, 2**31, 4)):
        with pytest.raises(ValueError, match="argon2id"):
            wrap_key(DataKey.generate(), Secret(b"passphrase"), SALT, cost, context=b"")


def test_a_wiped_key_is_overwritten_and_unusable() -> None:
    """A wiped key consists of zeros, which anybody knows: sealing with it must fail."""
    room = bytearray(os.urandom(32))
    key = DataKey(room)
    sealed = key.seal(b"a secret", context=b"")
    key.wipe()
    assert room == bytes(32)
    for attempt in (
        lambda: key.seal(b"a secret", context=b""),
        lambda: key.open(sealed, context=b""),
        lambda: key.authenticate(b""),
        lambda: wrap_key(key, Secret(b"passphrase"), SALT, COST, context=b""),
    ):
        with pytest.raises(RuntimeError, match="wiped"):
            attempt()


def test_a_key_cannot_be_printed_or_copied() -> None:
    """The repr tells nothing, pickling and copying fail; and only 256 bits are a key."""
    key = DataKey.generate()
    assert repr(key) == "<data key>"
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            escape(key)
    with pytest.raises(ValueError, match="32 bytes"):
        DataKey(bytearray(16))
