"""The approver's key in its file: it opens with its passphrase and signs, and no change to the file is accepted."""

from __future__ import annotations

import copy
import json
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aileron.approver_key import keyfile
from aileron.approver_key.keyfile import ApproverKey, create, open_key, public_of
from aileron.model.decision import HeadStatement, check_signature, key_id_of, moment
from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret
from tests.approver_key import page_reader
from tests.approver_key.conftest import MADE_S, PASSPHRASE, refused

pytestmark = pytest.mark.usefixtures("real_derivation")

Json = dict[str, Any]
STATEMENT = HeadStatement(head="7:" + "ab" * 32, at=moment(1.5), key_id="ed25519:" + "0" * 32)


def test_a_key_file_opens_to_the_key_that_was_written(path: Path, key: ApproverKey) -> None:
    """The public key in the file verifies signatures of both, and rejects a changed statement."""
    with open_key(path, Secret(PASSPHRASE)) as opened:
        assert (opened.key_id, opened.public_key) == (key.key_id, key.public_key)
        assert opened.sign(STATEMENT) == key.sign(STATEMENT)
        check_signature(key.public_key, STATEMENT, opened.sign(STATEMENT))
        other = HeadStatement(head="8:" + "ab" * 32, at=moment(1.5), key_id=STATEMENT.key_id)
        with refused(FailureClass.UNAUTHORIZED):
            check_signature(key.public_key, other, opened.sign(STATEMENT))
    public = public_of(path)
    assert (public.key_id, public.public_key, public.created_at) == (key.key_id, key.public_key, MADE_S)
    assert key.key_id == key_id_of(key.public_key)


def test_a_wrong_passphrase_does_not_open_the_key_file(path: Path) -> None:
    """An empty passphrase and one of 5,000 bytes are tried too."""
    for passphrase in (PASSPHRASE[:-1], b"", b"x" * 5000):
        with refused(FailureClass.UNAUTHORIZED, "wrong passphrase"):
            open_key(path, Secret(passphrase))
    open_key(path, Secret(PASSPHRASE)).wipe()


def test_a_program_written_from_the_reference_page_alone_can_open_the_key_file(path: Path, key: ApproverKey) -> None:
    """A reader written from docs/reference/signed-decisions.md gets the same key."""
    file = json.loads(path.read_bytes())
    private = page_reader.private_key(file, PASSPHRASE)
    assert private.public_key().public_bytes_raw() == key.public_key
    assert page_reader.key_id(key.public_key) == file["key_id"]
    assert page_reader.canonical(file) + b"\n" == path.read_bytes()


def test_the_key_file_is_private_and_contains_neither_the_plain_key_nor_its_passphrase(
    path: Path, tmp_path: Path
) -> None:
    """The file is 0600 in a new 0700 directory, whatever the umask is; neither passphrase nor seed is in it."""
    before = os.umask(0)
    try:
        new = tmp_path / "home" / "deep" / "approver.json"
        key = create(new, Secret(PASSPHRASE))
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert stat.S_IMODE(new.parent.stat().st_mode) == 0o700
    data = new.read_bytes()
    assert PASSPHRASE not in data
    assert bytes(key._seed) not in data
    assert bytes(key._seed).hex().encode() not in data
    assert [entry.name for entry in new.parent.iterdir()] == ["approver.json"]


def test_an_existing_key_file_is_replaced_only_on_request(path: Path) -> None:
    """A new key takes its place only with the argument `replace`."""
    before = path.read_bytes()
    with refused(FailureClass.INVALID_REQUEST, "aileron approver init --replace"):
        create(path, Secret(PASSPHRASE))
    assert path.read_bytes() == before
    create(path, Secret(PASSPHRASE), replace=True)
    assert path.read_bytes() != before


@pytest.mark.parametrize("length", [0, 7, 1025])
def test_an_approver_passphrase_of_an_unsuitable_length_is_refused(tmp_path: Path, length: int) -> None:
    """Seven bytes can be guessed, and more than 1024 were not typed. Nothing is written. Eight are enough."""
    with refused(FailureClass.BAD_INPUT, f"{length} bytes"):
        create(tmp_path / "approver.json", Secret(b"x" * length))
    assert list(tmp_path.iterdir()) == []


def test_a_key_file_that_is_not_private_is_refused_with_the_fix(path: Path) -> None:
    """The cases are permissions, links and other kinds of file; for a missing file the message names the command that
    makes one.
    """
    path.chmod(0o640)
    with refused(FailureClass.INVALID_REQUEST, "chmod 600"):
        open_key(path, Secret(PASSPHRASE))
    path.chmod(0o600)
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))
    with refused(FailureClass.INVALID_REQUEST, "symbolic link"):
        public_of(path)
    path.unlink()
    with refused(FailureClass.NOT_FOUND, "aileron approver init"):
        public_of(path)
    os.mkfifo(path, 0o600)
    with refused(FailureClass.INVALID_REQUEST, "not a regular file"):
        public_of(path)


def test_an_approvers_key_cannot_be_pickled_copied_or_printed(key: ApproverKey) -> None:
    """The repr of a key is its public name, and only 256 bits make a key."""
    assert repr(key) == f"<approver key {key.key_id}>"
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            escape(key)
    with pytest.raises(ValueError, match="32 bytes"):
        ApproverKey(bytearray(16))


def test_a_wiped_approvers_key_cannot_sign(path: Path) -> None:
    """The seed is overwritten in place at the end of its block, and a signature by a key of zeros is impossible."""
    with open_key(path, Secret(PASSPHRASE)) as opened:
        room = opened._seed
        assert any(room)
    assert room == bytearray(32)
    with pytest.raises(RuntimeError, match="wiped"):
        opened.sign(STATEMENT)


def to(*where: str, value: Any) -> Callable[[Json], None]:
    """Return a change: the value at `where` becomes `value`, or the result of calling `value` with it."""

    def change(file: Json) -> None:
        target = file
        for step in where[:-1]:
            target = target[step]
        old = target[where[-1]]
        target[where[-1]] = value(old) if callable(value) else value

    return change


OTHER_PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


def another_key(file: Json) -> None:
    """Put in key and id of another person, who has the private half."""
    file.update(public_key=OTHER_PUBLIC, key_id=page_reader.key_id(bytes.fromhex(OTHER_PUBLIC)))


UNSEEN = {
    "another public key and its id": another_key,
    "another date": to("created_ms", value=1_750_000_000_501),
    "a dearer cost": to("argon2id", "passes", value=4),
    "fewer lanes": to("argon2id", "lanes", value=1),
    "another salt": to("salt", value=lambda text: ("B" if text[0] == "A" else "A") + text[1:]),
    "another nonce": to("sealed", "nonce", value=lambda text: ("B" if text[0] == "A" else "A") + text[1:]),
    "another key in it": to("sealed", "ciphertext", value=lambda text: ("B" if text[0] == "A" else "A") + text[1:]),
}
SEEN = {
    "another one's": to("key_id", value="ed25519:" + "0" * 32),
    "64 hex digits": to("public_key", value="D7" * 32),
    "its date is no date": to("created_ms", value=-1),
    "argon2id memory of 65535 KiB": to("argon2id", "memory_kib", value=65535),
    "argon2id memory of 1048577 KiB": to("argon2id", "memory_kib", value=(1 << 20) + 1),
    "2 argon2id passes": to("argon2id", "passes", value=2),
    "9 argon2id passes": to("argon2id", "passes", value=9),
    "17 argon2id lanes": to("argon2id", "lanes", value=17),
    "salt has another length": to("salt", value="AAAA"),
    "nonce has another length": to("sealed", "nonce", value="AAAA"),
    "sealed key has another length": to("sealed", "ciphertext", value="AAAA"),
    "JSON is broken": to("sealed", value=[]),
}


def written(path: Path, change: Callable[[Json], None]) -> None:
    """Write the file with one change, in canonical form."""
    file = json.loads(path.read_bytes())
    change(file)
    path.write_bytes(page_reader.canonical(file) + b"\n")


@pytest.mark.parametrize("what", UNSEEN)
def test_a_key_file_with_a_changed_field_does_not_open(path: Path, what: str) -> None:
    """The sealed key authenticates all plain fields; the error says that the passphrase may be right."""
    written(path, UNSEEN[what])
    public_of(path)  # well formed: without the passphrase nobody can tell
    with refused(FailureClass.UNAUTHORIZED, "or the file was changed"):
        open_key(path, Secret(PASSPHRASE))


@pytest.mark.parametrize("words", SEEN)
def test_an_invalid_key_file_is_refused_before_the_slow_key_derivation(path: Path, words: str) -> None:
    """Each rule is tested alone, by its reason, and no passphrase is needed."""
    written(path, SEEN[words])
    for attempt in (lambda: public_of(path), lambda: open_key(path, Secret(PASSPHRASE))):
        with refused(FailureClass.HASH_MISMATCH, words):
            attempt()


def test_a_key_file_whose_public_key_does_not_match_its_sealed_key_is_refused(path: Path, key: ApproverKey) -> None:
    """Anyone who knows the passphrase can seal another key; the public half is computed and not believed."""
    file = page_reader.resealed(json.loads(path.read_bytes()), PASSPHRASE, bytes(range(32)))
    path.write_bytes(page_reader.canonical(file) + b"\n")
    with refused(FailureClass.HASH_MISMATCH, "not the one it names"):
        open_key(path, Secret(PASSPHRASE))


def test_a_key_file_of_a_later_format_is_refused_with_a_hint_to_upgrade(path: Path) -> None:
    """The file must count as newer, not as damaged."""
    path.write_bytes(b'{"anything":[],"format":2}\n')
    with refused(FailureClass.INVALID_REQUEST, "upgrade aileron"):
        public_of(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_key_file_in_any_but_the_canonical_encoding_is_refused(
    path: Path, made: tuple[bytes, ApproverKey], data: st.DataObject
) -> None:
    """Changed bytes are refused, or are exactly the canonical form of what they say."""
    raw = bytearray(made[0])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    path.write_bytes(bytes(raw))
    try:
        public_of(path)
    except AileronError as error:
        failure = error.failure
    else:
        assert page_reader.canonical(json.loads(raw)) + b"\n" == bytes(raw)
        return
    assert failure.failure_class in (FailureClass.HASH_MISMATCH, FailureClass.INVALID_REQUEST)
    assert failure.message.isprintable()


def test_a_truncated_or_too_large_key_file_is_refused(path: Path, made: tuple[bytes, ApproverKey]) -> None:
    """Every proper prefix of a valid file is tried."""
    for length in range(len(made[0])):
        path.write_bytes(made[0][:length])
        with refused(FailureClass.HASH_MISMATCH):
            public_of(path)
    path.write_bytes(made[0] + b" " * 5000)
    with refused(FailureClass.INVALID_REQUEST, "larger than 4096"):
        public_of(path)


def test_a_staged_key_file_leaves_the_old_key_file_complete_until_it_is_put_in_place(path: Path) -> None:
    """The old file is complete until then. A staged key that is not needed is removed."""
    old, staged = path.read_bytes(), keyfile.staged(path)
    new = create(staged, Secret(PASSPHRASE), replace=True)
    assert path.read_bytes() == old
    keyfile.put_in_place(path)
    assert (public_of(path).key_id, staged.exists()) == (new.key_id, False)
    with pytest.raises(FileNotFoundError):
        keyfile.put_in_place(path)
    create(staged, Secret(PASSPHRASE))
    keyfile.remove_staged(path)
    keyfile.remove_staged(path)
    assert (public_of(path).key_id, staged.exists()) == (new.key_id, False)
