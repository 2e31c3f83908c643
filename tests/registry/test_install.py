"""Installing a directory or an archive into the store, and what stops an install."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from aileron.model.failure import FailureClass
from aileron.model.names import HostPort
from aileron.registry.artifact import Trust
from aileron.registry.connector_build import build
from aileron.registry.content import ContentStore
from aileron.registry.install import install, read_artifact
from aileron.registry.keyring import Authority, Keyring
from aileron.registry.signatures import SigningKey
from aileron.registry.tarball import pack, unpack
from tests.registry.conftest import refusal


def test_a_directory_and_its_archive_install_as_the_same_connector(
    store: ContentStore, source: Path, tmp_path: Path
) -> None:
    """Both have the same pin, so the second install adds nothing."""
    archive = tmp_path / "aileron.tar.gz"
    archive.write_bytes(build(source).archive)
    first = install(read_artifact(source), store)
    second = install(read_artifact(archive), store)

    assert (first.new, second.new) == (True, False)
    assert first.pin == second.pin
    assert first.manifest == store.manifest(first.pin)


def test_hosts_are_bound_when_a_directory_is_installed(
    store: ContentStore, source: Path, tmp_path: Path, manifest_text: Callable[..., str]
) -> None:
    """They cannot be bound in an archive, because its bytes are fixed."""
    (source / "manifest.toml").write_text(manifest_text(('"mail.example.com:443"', '"bound-at-build"')))
    host = HostPort("cal.example.com", 443)
    installed = install(read_artifact(source, [host]), store)
    archive = tmp_path / "aileron.tar.gz"
    archive.write_bytes(build(source, [host]).archive)

    assert installed.manifest.hosts == (host,)
    assert "--host works only when a directory is built" in refusal(lambda: read_artifact(archive, [host])).message


def test_different_bytes_of_an_installed_version_need_an_explicit_choice(store: ContentStore, source: Path) -> None:
    """The default is a refusal with both hashes. The choices are to replace the old bytes or to keep both."""
    first = install(read_artifact(source), store)
    (source / "connector.py").write_text("print('changed')\n")
    changed = read_artifact(source)

    failure = refusal(lambda: install(changed, store))
    assert failure.failure_class is FailureClass.HASH_MISMATCH
    assert first.pin.hash in failure.message
    assert changed.pin.hash in failure.message
    assert store.find(first.manifest.name, "1.2.0") == (first.pin,)

    assert install(changed, store, on_conflict="keep_both").replaced == ()
    assert set(store.find(first.manifest.name, "1.2.0")) == {first.pin, changed.pin}
    assert not install(changed, store).new
    assert install(changed, store, on_conflict="replace").replaced == (first.pin,)
    assert store.find(first.manifest.name, "1.2.0") == (changed.pin,)


def test_another_version_is_not_a_conflict(store: ContentStore, source: Path) -> None:
    """Versions live side by side."""
    install(read_artifact(source), store)
    manifest = (source / "manifest.toml").read_text()
    (source / "manifest.toml").write_text(manifest.replace("1.2.0", "1.3.0"))

    assert install(read_artifact(source), store).new
    assert len(store.list_connectors()) == 2


def test_a_signed_archive_needs_a_trusted_key(source: Path, tmp_path: Path) -> None:
    """An untrusted key fails and cannot be overridden. Without the signature, the same archive is unsigned."""
    members = unpack(build(source).archive)
    key = SigningKey.generate()
    signed, unsigned = tmp_path / "signed.tar.gz", tmp_path / "unsigned.tar.gz"
    signature = key.sign(members["connector"] + members["manifest.toml"])
    signed.write_bytes(pack({**members, "signature.sig": signature}))
    unsigned.write_bytes(pack(members))
    trust = Trust(keyring=Keyring().trusting(Authority.parse("github://acme/mail"), key.public))

    assert read_artifact(signed, trust=trust).signed.by == key.public.fingerprint
    assert refusal(lambda: read_artifact(signed)).failure_class is FailureClass.SIGNATURE_FAILURE
    assert read_artifact(unsigned).signed.status == "unsigned"
    assert read_artifact(unsigned, trust=trust).signed.expected
    assert read_artifact(signed, trust=trust).pin == read_artifact(unsigned).pin


def test_an_unsigned_connector_is_refused_if_a_signature_is_required(source: Path, tmp_path: Path) -> None:
    """A directory is built locally, so it has no signature and is refused too."""
    archive = tmp_path / "aileron.tar.gz"
    archive.write_bytes(build(source).archive)
    for found in (source, archive):
        failure = refusal(partial(read_artifact, found, trust=Trust(require_signature=True)))
        assert failure.failure_class is FailureClass.SIGNATURE_FAILURE
        assert "connectors.require_signature" in failure.message


def test_a_missing_or_special_file_is_refused(tmp_path: Path) -> None:
    """The refusal names the path, and a FIFO does not block the installer."""
    os.mkfifo(tmp_path / "fifo")

    missing = refusal(lambda: read_artifact(tmp_path / "gone.tar.gz"))
    assert missing.failure_class is FailureClass.NOT_FOUND
    assert "gone.tar.gz cannot be read: No such file" in missing.message
    assert "neither a directory nor a regular file" in refusal(lambda: read_artifact(tmp_path / "fifo")).message


def test_installing_never_runs_the_connector(store: ContentStore, source: Path, tmp_path: Path) -> None:
    """The code would show if it were imported, executed or compiled."""
    (source / "connector.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    (source / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    (source / "syntax_error.py").write_text("this is not Python\n")
    result = install(read_artifact(source), store)
    store.open(result.pin).close()

    assert not (tmp_path / "ran").exists()
