"""The store: the bytes that were hashed are the bytes that run, and an install is complete or absent."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aileron.cli.problem import Problem
from aileron.model.canonical import sha256_digest
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import Fqn
from aileron.model.plan import ConnectorPin
from aileron.registry.connector_build import Built, build
from aileron.registry.content import ContentStore, content_hash
from tests.registry.conftest import refusal

pytestmark = pytest.mark.abuse_case("F9")

MAIL = Fqn.parse("github://acme/mail")


@pytest.fixture
def built(source: Path) -> Built:
    """Build the small connector."""
    return build(source)


@pytest.fixture
def pin(store: ContentStore, built: Built) -> ConnectorPin:
    """Install the small connector, and return its pin."""
    return store.put(built.connector, built.manifest)


@pytest.fixture
def entry(tmp_path: Path, pin: ConnectorPin) -> Path:
    """Return the directory of the installed connector's files."""
    return tmp_path / "home" / "store" / "connectors" / "sha256" / pin.hash.removeprefix("sha256:")


def rewrite(path: Path, data: bytes) -> None:
    """Change a stored file as an attacker of the same user would."""
    path.chmod(0o600)
    path.write_bytes(data)


def test_opening_gives_exactly_the_stored_bytes(store: ContentStore, built: Built, pin: ConnectorPin) -> None:
    """The pin covers program and manifest, and the descriptor holds those bytes from the start."""
    assert pin == ConnectorPin("github://acme/mail", "1.2.0", sha256_digest(built.connector + built.manifest))
    with store.open(pin) as opened:
        assert os.read(opened.program_fd, len(built.connector) + 1) == built.connector
        assert opened.manifest_bytes == built.manifest
        assert (opened.manifest.name, opened.kind) == (MAIL, "python")
    assert store.manifest(pin) == opened.manifest
    opened.close()  # twice is fine


def test_an_opened_connector_is_opened_again_from_memory(store: ContentStore, built: Built, pin: ConnectorPin) -> None:
    """Each opening of a verified connector gets a sealed memory file of its own. Before the first opening, none is kept."""
    assert store.open_kept(pin) is None
    store.open(pin).close()
    opened, other = store.open_kept(pin), store.open_kept(pin)
    assert opened is not None
    assert other is not None
    with opened, other:
        assert os.fstat(opened.program_fd).st_ino != os.fstat(other.program_fd).st_ino
        assert os.read(opened.program_fd, len(built.connector) + 1) == built.connector
        assert os.lseek(other.program_fd, 0, os.SEEK_CUR) == 0
        with pytest.raises(PermissionError):
            os.write(other.program_fd, b"x")
        assert opened.manifest == store.manifest(pin)


@pytest.mark.parametrize("name", ["connector", "manifest.toml", "meta.json"])
def test_a_rewritten_file_is_verified_again(store: ContentStore, pin: ConnectorPin, entry: Path, name: str) -> None:
    """A file rewritten with identical bytes is verified and cached anew. Other bytes are refused, even if the
    modification time is restored and the old bytes are cached.
    """
    store.open(pin).close()
    file = entry / name
    good, before = file.read_bytes(), file.stat()
    rewrite(file, good[:-1] + bytes([good[-1] ^ 1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.open_kept(pin) is None
    assert refusal(lambda: store.open(pin)).failure_class is FailureClass.HASH_MISMATCH
    assert store.open_kept(pin) is None
    rewrite(file, good)
    assert store.open_kept(pin) is None
    store.open(pin).close()
    kept = store.open_kept(pin)
    assert kept is not None
    kept.close()


def test_removed_or_large_programs_are_not_cached(store: ContentStore, built: Built, pin: ConnectorPin) -> None:
    """Copying a large program would block the event loop. Cached bytes are refused under another connector's name."""
    store.open(pin).close()
    renamed = ConnectorPin("github://acme/other", pin.version, pin.hash)
    assert refusal(lambda: store.open_kept(renamed)).failure_class is FailureClass.HASH_MISMATCH
    store.remove(pin)
    assert store.open_kept(pin) is None
    large = store.put(Path("/bin/bash").read_bytes(), built.manifest)
    store.open(large).close()
    assert store.open_kept(large) is None


def test_at_most_32_programs_are_cached(store: ContentStore, built: Built) -> None:
    """The program that was opened longest ago is evicted."""
    pins = [store.put(built.connector, built.manifest.replace(b"1.2.0", f"1.2.{n}".encode())) for n in range(33)]
    for pin in pins:
        store.open(pin).close()
    found = [store.open_kept(pin) for pin in pins]
    assert [opened is not None for opened in found] == [False, *[True] * 32]
    for opened in found:
        if opened is not None:
            opened.close()


def test_the_opened_program_runs_from_its_descriptor(store: ContentStore, pin: ConnectorPin) -> None:
    """Python imports the zip through the descriptor alone."""
    with store.open(pin) as opened:
        ran = subprocess.run(
            [sys.executable, "-I", f"/dev/fd/{opened.program_fd}"],
            pass_fds=[opened.program_fd],
            check=True,
            capture_output=True,
            text=True,
        )
    assert ran.stdout == "hello from the zip\n"


def test_an_opened_elf_program_can_be_executed(store: ContentStore, built: Built) -> None:
    """The memory file is executable even where such files are not by default."""
    pin = store.put(Path("/bin/echo").read_bytes(), built.manifest)
    with store.open(pin) as opened:
        assert opened.kind == "elf"
        ran = subprocess.run(
            ["echo", "hello"],
            executable=f"/dev/fd/{opened.program_fd}",
            pass_fds=[opened.program_fd],
            check=True,
            capture_output=True,
            text=True,
        )
    assert ran.stdout == "hello\n"


def test_an_opened_program_cannot_be_changed(store: ContentStore, pin: ConnectorPin) -> None:
    """The descriptor is sealed against writing, growing, shrinking and unsealing, and is not inherited."""
    with store.open(pin) as opened:
        for change in (
            lambda: os.write(opened.program_fd, b"x"),
            lambda: os.ftruncate(opened.program_fd, 0),
            lambda: os.ftruncate(opened.program_fd, 1 << 20),
            lambda: fcntl.fcntl(opened.program_fd, fcntl.F_ADD_SEALS, 0),
        ):
            with pytest.raises(PermissionError) as caught:
                change()
            assert caught.value.errno == errno.EPERM
        assert not os.get_inheritable(opened.program_fd)


@pytest.mark.parametrize("name", ["connector", "manifest.toml", "meta.json"])
def test_a_stored_file_with_one_changed_byte_is_refused_with_the_expected_hash(
    store: ContentStore, pin: ConnectorPin, entry: Path, name: str
) -> None:
    """The change is found even after the manifest was read and cached, and no part of the file is used."""
    assert store.manifest(pin)
    data = bytearray((entry / name).read_bytes())
    data[len(data) // 2] ^= 1
    rewrite(entry / name, bytes(data))

    for attempt in (lambda: store.open(pin), lambda: store.manifest(pin)):
        failure = refusal(attempt)
        assert failure.failure_class is FailureClass.HASH_MISMATCH
        assert f"expected {pin.hash}" in failure.message
        assert failure.details["expected"] == pin.hash


def test_a_stored_manifest_with_an_added_host_is_refused_as_a_hash_mismatch(
    store: ContentStore, pin: ConnectorPin, entry: Path
) -> None:
    """An added host is the most useful edit for an attacker."""
    text = (entry / "manifest.toml").read_text()
    rewrite(entry / "manifest.toml", text.replace('["mail', '["evil.example.com:443", "mail').encode())

    assert refusal(lambda: store.open(pin)).failure_class is FailureClass.HASH_MISMATCH
    assert refusal(lambda: store.manifest(pin)).failure_class is FailureClass.HASH_MISMATCH


def test_a_change_that_keeps_size_and_modification_time_is_found(
    store: ContentStore, pin: ConnectorPin, entry: Path
) -> None:
    """The memory of a check depends on the change time, which a user cannot set."""
    assert store.manifest(pin)
    path = entry / "manifest.toml"
    before = path.stat()
    rewrite(path, path.read_bytes().replace(b"mail.example.com:443", b"evil.example.com:443"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert refusal(lambda: store.manifest(pin)).failure_class is FailureClass.HASH_MISMATCH


def test_the_same_bytes_split_elsewhere_into_program_and_manifest_are_not_stored(
    store: ContentStore, built: Built
) -> None:
    """The hash covers both joined; the program's format says where it ends, so at most one split is valid."""
    program, manifest = Path("/bin/echo").read_bytes(), b"# the first line could belong to either\n" + built.manifest
    pin = store.put(program, manifest)
    line = manifest.index(b"\n") + 1
    longer, shorter = (program + manifest[:line], manifest[line:]), (program[:-line], program[-line:] + manifest)
    assert {content_hash(*longer), content_hash(*shorter)} == {pin.hash}

    failure = refusal(lambda: store.put(*longer))
    assert failure.failure_class is FailureClass.INVALID_REQUEST
    assert f"the connector's ELF file has {line} extra bytes at its end" in failure.message
    assert refusal(lambda: store.put(*shorter)).failure_class is FailureClass.INVALID_REQUEST
    assert store.put(program, manifest) == pin


def test_stored_files_are_refused_after_bytes_were_moved_from_the_manifest_to_the_program(
    store: ContentStore, built: Built, tmp_path: Path
) -> None:
    """Pin and joined bytes match, but the manifest does not. Recording the new lengths does not help an attacker."""
    program, manifest = Path("/bin/echo").read_bytes(), b"# the first line could belong to either\n" + built.manifest
    pin = store.put(program, manifest)
    entry = tmp_path / "home" / "store" / "connectors" / "sha256" / pin.hash.removeprefix("sha256:")
    line = manifest.index(b"\n") + 1
    rewrite(entry / "connector", program + manifest[:line])
    rewrite(entry / "manifest.toml", manifest[line:])

    by_length = refusal(lambda: store.open(pin))
    lengths = {"connector_bytes": len(program) + line, "manifest_bytes": len(manifest) - line}
    rewrite(entry / "meta.json", json.dumps(lengths).encode())
    by_program = refusal(lambda: store.open(pin))

    assert {by_length.failure_class, by_program.failure_class} == {FailureClass.HASH_MISMATCH}
    assert "split elsewhere" in by_length.message
    assert "extra bytes at its end" in by_program.message


def test_a_pin_with_another_name_or_version_is_a_mismatch(store: ContentStore, pin: ConnectorPin) -> None:
    """The right hash under a wrong name is not what a person approved."""
    for wrong in (ConnectorPin(pin.name, "1.2.1", pin.hash), ConnectorPin("github://acme/other", "1.2.0", pin.hash)):
        for attempt in (lambda: store.open(wrong), lambda: store.manifest(wrong)):  # noqa: B023  # called at once
            failure = refusal(attempt)
            assert failure.failure_class is FailureClass.HASH_MISMATCH
            assert "the bytes of github://acme/mail@1.2.0" in failure.message


def test_an_absent_connector_is_not_found_and_a_pin_with_another_hash_is_a_mismatch(
    store: ContentStore, pin: ConnectorPin
) -> None:
    """The first failure says how to install it; the second names both hashes."""
    absent = refusal(lambda: store.open(ConnectorPin("github://acme/other", "1.0.0", "sha256:" + "0" * 64)))
    moved = refusal(lambda: store.open(ConnectorPin(pin.name, pin.version, "sha256:" + "0" * 64)))

    assert absent.failure_class is FailureClass.NOT_FOUND
    assert "github://acme/other@1.0.0 is not installed: aileron sync" in absent.message
    assert moved.failure_class is FailureClass.HASH_MISMATCH
    assert (moved.details["expected"], moved.details["actual"]) == ("sha256:" + "0" * 64, pin.hash)


@pytest.mark.parametrize("pin_hash", ["sha256:../../..", "sha256:" + "A" * 64, "", "sha256:" + "a" * 63])
def test_a_malformed_hash_cannot_name_a_path_outside_the_store(
    store: ContentStore, pin: ConnectorPin, pin_hash: str
) -> None:
    """The hash becomes a directory's name only after its form was checked."""
    assert "is not sha256: and 64" in refusal(lambda: store.open(ConnectorPin(pin.name, pin.version, pin_hash))).message


@pytest.mark.parametrize("name", ["connector", "manifest.toml", "meta.json"])
def test_links_in_the_store_are_not_followed(store: ContentStore, pin: ConnectorPin, entry: Path, name: str) -> None:
    """A link to identical bytes is refused too, because its target may change between two checks."""
    (entry / name).rename(entry.parent / name)
    (entry / name).symlink_to(entry.parent / name)

    assert "symbolic link" in refusal(lambda: store.open(pin)).message


def test_an_entry_that_others_may_write_is_refused(store: ContentStore, pin: ConnectorPin, entry: Path) -> None:
    """An entry's directory belongs to the user alone."""
    entry.chmod(0o777)

    assert "open for others to write" in refusal(lambda: store.open(pin)).message


def test_the_next_install_repairs_a_damaged_entry(
    store: ContentStore, built: Built, pin: ConnectorPin, entry: Path
) -> None:
    """The damage is a changed byte, a missing file, or a link in its place."""

    def move_and_link() -> None:
        entry.rename(entry.parent / "moved")
        entry.symlink_to("moved")

    damage: Callable[[], object]
    for damage in (
        lambda: rewrite(entry / "connector", b"x"),
        lambda: (entry / "meta.json").unlink(),
        move_and_link,
    ):
        damage()
        assert refusal(lambda: store.open(pin)).failure_class is not FailureClass.INTERNAL_ERROR
        assert store.put(built.connector, built.manifest) == pin
        store.open(pin).close()


def test_a_provenance_hash_is_checked_if_given(store: ContentStore, built: Built) -> None:
    """The publisher states this hash for the program alone. A connector with a wrong one is not stored."""

    def manifest(digest: str) -> bytes:
        return built.manifest.replace(b'"1.2.0"', f'"1.2.0"\nprovenance_hash = "{digest}"'.encode(), 1)

    pin = store.put(built.connector, manifest(sha256_digest(built.connector)))
    failure = refusal(lambda: store.put(built.connector, manifest("sha256:" + "0" * 64)))

    store.open(pin).close()
    assert failure.failure_class is FailureClass.HASH_MISMATCH
    assert "provenance_hash" in failure.message
    assert "only its publisher can fix that" in failure.message
    assert Problem.of_failure(AileronError.of(failure)).fix is None, "no command of the user's mends it"
    assert [found.pin for found in store.list_connectors()] == [pin]


def test_entries_are_listed_and_found_by_name_and_version(
    store: ContentStore, built: Built, pin: ConnectorPin, entry: Path
) -> None:
    """Different bytes of one version live side by side; a damaged entry is listed with its problem, and not found."""
    other = store.put(built.connector, built.manifest + b"# other\n")
    newer = store.put(built.connector, built.manifest.replace(b"1.2.0", b"1.10.0"))

    assert {found.pin for found in store.list_connectors()} == {pin, other, newer}
    assert set(store.find(MAIL, "1.2.0")) == {pin, other}
    assert store.find(MAIL, "9.9.9") == ()

    rewrite(entry / "connector", b"x")
    broken = store.list_connectors()[-1]
    assert (broken.hash, broken.pin) == (pin.hash, None)
    assert "expected" in (broken.problem or "")
    assert store.find(MAIL, "1.2.0") == (other,)


def test_a_removed_connector_cannot_be_opened_or_removed_again(
    store: ContentStore, pin: ConnectorPin, entry: Path
) -> None:
    """Removing it a second time fails with `not_found`."""
    store.remove(pin)

    assert not entry.exists()
    assert refusal(lambda: store.open(pin)).failure_class is FailureClass.NOT_FOUND
    assert refusal(lambda: store.remove(pin)).failure_class is FailureClass.NOT_FOUND


def test_stored_files_are_readable_by_the_user_alone(entry: Path) -> None:
    """The umask makes no difference."""
    assert {path.name: path.stat().st_mode & 0o777 for path in entry.iterdir()} == {
        "connector": 0o400,
        "manifest.toml": 0o400,
        "meta.json": 0o400,
    }
    assert [path.stat().st_mode & 0o777 for path in (entry, entry.parent, entry.parent.parent)] == [0o700] * 3


def test_an_invalid_connector_is_not_stored(store: ContentStore, built: Built, tmp_path: Path) -> None:
    """Every check comes before the first byte is written."""
    for connector, manifest in ((b"#!/bin/sh", built.manifest), (built.connector, b""), (b"", b"")):
        assert refusal(lambda: store.put(connector, manifest)).failure_class is FailureClass.INVALID_REQUEST  # noqa: B023
    assert not (tmp_path / "home").exists()


def test_concurrent_installs_of_the_same_bytes_all_succeed(store: ContentStore, built: Built, tmp_path: Path) -> None:
    """Eight processes at once all succeed, and leave one entry and no temporary file."""
    children = [in_child(lambda: store.put(built.connector, built.manifest)) for _ in range(8)]

    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 8
    assert len(store.find(MAIL, "1.2.0")) == 1
    assert list((tmp_path / "home" / "store" / "connectors" / "tmp").iterdir()) == []


def in_child(task: Callable[[], object], die_at: int | None = None) -> int:
    """Run `task` in a forked process and return its id. With `die_at`, that process ends at its n-th writing call."""
    child = os.fork()
    if child == 0:
        if die_at is not None:
            dying(die_at)
        code = 1
        try:
            task()
            code = 0
        finally:
            os._exit(code)
    return child


_WRITING = ("open", "mkdir", "write", "fchmod", "fsync", "rename", "unlink", "rmdir")


def dying(at: int) -> None:
    """Make this process end, as kill -9 would end it, just before its n-th call that may change the disk."""
    left = iter(range(at, -1, -1))

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*args: object, **kwargs: object) -> object:
            if next(left) == 0:
                os._exit(9)
            return call(*args, **kwargs)

        return wrapper

    for name in _WRITING:
        setattr(os, name, counted(getattr(os, name)))


def test_a_crash_at_any_step_leaves_the_connector_whole_or_absent(built: Built, tmp_path: Path) -> None:
    """The next install succeeds over the leftovers."""
    for at in range(200):
        store = ContentStore(tmp_path / f"home{at}")
        child = in_child(lambda: store.put(built.connector, built.manifest), die_at=at)  # noqa: B023  # called at once
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        assert code in (0, 9)
        assert [found.problem for found in store.list_connectors()] in ([], [None])
        pin = store.put(built.connector, built.manifest)
        store.open(pin).close()
        if code == 0:
            break
    assert 15 < at < 100  # it died at every step, and in the end at none


def test_leftovers_of_a_crash_are_removed_after_an_hour(store: ContentStore, built: Built, tmp_path: Path) -> None:
    """A younger leftover may be an install in progress, and stays."""
    store.put(built.connector, built.manifest)
    staging = tmp_path / "home" / "store" / "connectors" / "tmp"
    for name in ("old", "young"):
        (staging / name).mkdir()
        (staging / name / "connector").write_bytes(b"half")
    os.utime(staging / "old", (time.time() - 7200, time.time() - 7200))
    store.put(built.connector, built.manifest + b"# another\n")

    assert [path.name for path in staging.iterdir()] == ["young"]


def test_a_full_disk_is_reported_and_leaves_no_files(
    store: ContentStore, built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to do, and the store is unchanged."""

    def full(descriptor: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    failure = refusal(lambda: store.put(built.connector, built.manifest))
    monkeypatch.undo()

    assert re.search(r"cannot be stored: No space left on device; free some space", failure.message)
    assert store.list_connectors() == ()
    assert list((tmp_path / "home" / "store" / "connectors" / "tmp").iterdir()) == []
