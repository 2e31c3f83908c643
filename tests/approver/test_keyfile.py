"""The approver's key in its file: it opens with its passphrase, signs, and nothing that is changed in it is believed."""

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

from aileron.approver import keyfile
from aileron.approver.keyfile import ApproverKey, create, open_key, public_of
from aileron.model.decision import HeadStatement, check_signature, key_id_of, moment
from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret
from tests.approver import page_reader
from tests.approver.conftest import MADE_S, PASSPHRASE, refused

pytestmark = pytest.mark.usefixtures("real_derivation")

Json = dict[str, Any]
STATEMENT = HeadStatement(head="7:" + "ab" * 32, at=moment(1.5), key_id="ed25519:" + "0" * 32)


def test_a_key_signs_and_its_file_opens_to_the_same_key(path: Path, key: ApproverKey) -> None:
    """What either signs, the public half that the file names verifies; another statement it does not."""
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


def test_another_passphrase_opens_nothing(path: Path) -> None:
    """Nor does an empty one, nor a book."""
    for passphrase in (PASSPHRASE[:-1], b"", b"x" * 5000):
        with refused(FailureClass.UNAUTHORIZED, "wrong passphrase"):
            open_key(path, Secret(passphrase))
    open_key(path, Secret(PASSPHRASE)).wipe()


def test_the_page_is_enough_to_sign_without_aileron(path: Path, key: ApproverKey) -> None:
    """A reader written from docs/reference/signed-decisions.md opens the file, and its signature counts."""
    file = json.loads(path.read_bytes())
    private = page_reader.private_key(file, PASSPHRASE)
    assert private.public_key().public_bytes_raw() == key.public_key
    assert page_reader.key_id(key.public_key) == file["key_id"]
    assert page_reader.canonical(file) + b"\n" == path.read_bytes()


def test_the_file_is_the_persons_alone_and_shows_no_key(path: Path, tmp_path: Path) -> None:
    """0600 in a directory of 0700 that is made for it, whatever the umask; neither passphrase nor seed is in it."""
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


def test_a_file_that_is_there_is_not_lost_by_mistake(path: Path) -> None:
    """Another key takes its place only where that is said."""
    before = path.read_bytes()
    with refused(FailureClass.INVALID_REQUEST, "aileron approver init --replace"):
        create(path, Secret(PASSPHRASE))
    assert path.read_bytes() == before
    create(path, Secret(PASSPHRASE), replace=True)
    assert path.read_bytes() != before


@pytest.mark.parametrize("length", [0, 7, 1025])
def test_a_passphrase_that_protects_nothing_is_refused(tmp_path: Path, length: int) -> None:
    """Seven bytes are guessed; more than a line was not typed. Nothing is written. Eight will do."""
    with refused(FailureClass.BAD_INPUT, f"{length} bytes"):
        create(tmp_path / "approver.json", Secret(b"x" * length))
    assert list(tmp_path.iterdir()) == []


def test_what_others_may_use_is_refused_with_its_cure(path: Path) -> None:
    """Permissions, links and other kinds of file; and no file at all says which command makes one."""
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


def test_a_key_does_not_show_or_travel(key: ApproverKey) -> None:
    """Its repr is its public name; no pickle, no copy; only 256 bits are a key."""
    assert repr(key) == f"<approver key {key.key_id}>"
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            escape(key)
    with pytest.raises(ValueError, match="32 bytes"):
        ApproverKey(bytearray(16))


def test_a_wiped_key_signs_nothing(path: Path) -> None:
    """It is overwritten where it lay at the end of its block, and fails rather than sign with what anybody knows."""
    with open_key(path, Secret(PASSPHRASE)) as opened:
        room = opened._seed
        assert any(room)
    assert room == bytearray(32)
    with pytest.raises(RuntimeError, match="wiped"):
        opened.sign(STATEMENT)


def to(*where: str, value: Any) -> Callable[[Json], None]:
    """A change: what is at `where` becomes `value`, or what `value` makes of it."""

    def change(file: Json) -> None:
        target = file
        for step in where[:-1]:
            target = target[step]
        old = target[where[-1]]
        target[where[-1]] = value(old) if callable(value) else value

    return change


OTHER_PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


def another_key(file: Json) -> None:
    """Key and id of somebody else, who has the private half."""
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
    """The file with one change, well spelled."""
    file = json.loads(path.read_bytes())
    change(file)
    path.write_bytes(page_reader.canonical(file) + b"\n")


@pytest.mark.parametrize("what", UNSEEN)
def test_a_changed_file_opens_with_no_passphrase(path: Path, what: str) -> None:
    """All that is said openly is bound to the sealed key; that it need not be the passphrase is said."""
    written(path, UNSEEN[what])
    public_of(path)  # well formed: without the passphrase nobody can tell
    with refused(FailureClass.UNAUTHORIZED, "or the file was changed"):
        open_key(path, Secret(PASSPHRASE))


@pytest.mark.parametrize("words", SEEN)
def test_what_aileron_would_not_write_is_refused_before_it_costs_anything(path: Path, words: str) -> None:
    """Each rule on its own, by its reason, without any passphrase."""
    written(path, SEEN[words])
    for attempt in (lambda: public_of(path), lambda: open_key(path, Secret(PASSPHRASE))):
        with refused(FailureClass.HASH_MISMATCH, words):
            attempt()


def test_a_key_under_another_ones_name_is_refused(path: Path, key: ApproverKey) -> None:
    """Whoever knows the passphrase can seal another key properly; its public half is computed, not believed."""
    file = page_reader.resealed(json.loads(path.read_bytes()), PASSPHRASE, bytes(range(32)))
    path.write_bytes(page_reader.canonical(file) + b"\n")
    with refused(FailureClass.HASH_MISMATCH, "not the one it names"):
        open_key(path, Secret(PASSPHRASE))


def test_a_later_format_asks_for_a_newer_aileron(path: Path) -> None:
    """It is not damage."""
    path.write_bytes(b'{"anything":[],"format":2}\n')
    with refused(FailureClass.INVALID_REQUEST, "upgrade aileron"):
        public_of(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_there_is_one_spelling(path: Path, made: tuple[bytes, ApproverKey], data: st.DataObject) -> None:
    """Bytes that differ anywhere are refused, or are exactly what would be written of what they say."""
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


def test_a_file_cut_short_anywhere_is_refused(path: Path, made: tuple[bytes, ApproverKey]) -> None:
    """Every proper prefix, and one that is larger than any; the whole is read."""
    for length in range(len(made[0])):
        path.write_bytes(made[0][:length])
        with refused(FailureClass.HASH_MISMATCH):
            public_of(path)
    path.write_bytes(made[0] + b" " * 5000)
    with refused(FailureClass.INVALID_REQUEST, "larger than 4096"):
        public_of(path)


def test_a_new_key_waits_beside_the_old_one_and_then_takes_its_place(path: Path) -> None:
    """Before, the old one is there whole; after, the new one; nothing else is left. One that nothing names goes away."""
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
