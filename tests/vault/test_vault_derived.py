"""The derivations that tests remember (tests/support/derived.py) are those of Argon2id, and open no more than those would."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import aileron.passphrase
from aileron.model.secret import Secret
from aileron.passphrase import COST, KEY_BYTES, EnvelopeError, seal_key, unseal_key
from tests.support import derived

GOOD = Secret(b"correct horse battery")
SALT = bytes(range(16))


def stretched(by: Callable[..., None], passphrase: Secret = GOOD, salt: bytes = SALT) -> bytes:
    """Return one derived key."""
    made = bytearray(KEY_BYTES)
    by(passphrase, salt, COST, made)
    return bytes(made)


def test_a_stored_key_derivation_equals_that_of_argon2id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first call runs Argon2id; the second takes the stored result. Another salt or passphrase is derived anew."""
    asked: list[bytes] = []
    monkeypatch.setattr(aileron.passphrase, "stretch", None)
    monkeypatch.setattr(aileron.passphrase, "new_salt", None)

    def noted(passphrase: Secret, salt: bytes, *rest: object) -> None:
        asked.append(salt)
        real(passphrase, salt, *rest)

    real: Callable[..., None] = derived.STRETCH
    monkeypatch.setattr(derived, "STRETCH", noted)
    (tmp_path / "salt").write_bytes(SALT)
    derived.remember(tmp_path)
    remembering: Callable[..., None] = aileron.passphrase.stretch

    first, second = stretched(remembering), stretched(remembering)
    others = [stretched(remembering, salt=bytes(16)), stretched(remembering, Secret(b"another horse battery"))]

    assert first == second == stretched(real)
    assert len({first, *others}) == 3
    assert asked == [SALT, bytes(16), SALT]
    assert aileron.passphrase.new_salt() == SALT


def test_a_wrong_passphrase_unseals_no_key_however_often_it_is_tried() -> None:
    """Two keys are sealed under one salt, as in the tests; each opens only with its own passphrase."""
    keys = {passphrase: bytearray(passphrase.encode() * 4) for passphrase in ("mine4567", "yours567")}
    salt = aileron.passphrase.new_salt()
    sealed = {
        passphrase: seal_key(key, Secret(passphrase.encode()), salt, COST, context=b"")
        for passphrase, key in keys.items()
    }

    for _ in range(2):
        for mine, yours in (("mine4567", "yours567"), ("yours567", "mine4567")):
            assert unseal_key(sealed[mine], Secret(mine.encode()), salt, COST, context=b"") == keys[mine]
            with pytest.raises(EnvelopeError):
                unseal_key(sealed[mine], Secret(yours.encode()), salt, COST, context=b"")
            with pytest.raises(EnvelopeError):
                unseal_key(sealed[mine], Secret(mine.encode()), salt, COST, context=b"elsewhere")


@pytest.mark.usefixtures("real_derivation")
def test_salts_of_the_product_are_random() -> None:
    """Only the tests share one salt, so that derivations can be stored."""
    assert len({aileron.passphrase.new_salt() for _ in range(100)}) == 100
    assert {len(aileron.passphrase.new_salt())} == {16}


def test_processes_of_one_test_run_share_their_stored_key_derivations() -> None:
    """A forked process, like each shard of the tests, finds what this process has derived."""
    mine = derived.folder()
    assert derived.is_first("tests", "remember")
    child = os.fork()
    if child == 0:
        os._exit(derived.folder() != mine or derived.is_first("tests", "remember") or not derived.is_first("another"))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert mine.is_dir()
