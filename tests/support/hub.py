"""Archives as `aileron connector release` leaves them, under names of a Hub, and the folders from which a Hub is built.

    release = Release(tmp_path / "out")
    release.key(KEY.public)
    release.connector(signed_by=KEY)
    build_site(release.path, tmp_path / "site", parse_action)

Each archive is complete: a program that could be run and a manifest, or an action file, and a signature if a key is given.
`static` is the script of an Upstream that serves the built site, with nothing but the files.
"""

from __future__ import annotations

import email.utils
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from aileron.model.secret import Secret
from aileron.registry.connector_build import build
from aileron.registry.content import content_hash
from aileron.registry.signatures import PublicKey, SigningKey
from aileron.registry.tarball import pack
from tests.support.upstream import Seen, answer

__all__ = ["CONNECTOR", "KEY", "OTHER", "SEND", "Release", "connector_archive", "static"]

KEY, OTHER = SigningKey(Secret(b"k" * 32)), SigningKey(Secret(b"o" * 32))
CONNECTOR: Final = "hub://acme/mail"
SEND: Final = "hub://acme/mail/actions/send-email"
_MANIFEST: Final = """\
[connector]
name = "{name}"
version = "{version}"
publisher = "Acme Mail"

[capabilities.network]
hosts = ["mail.example.com:443"]

[capabilities.credential]
kind = "api_key"
scope = "Send mail as you"

[capabilities.runtime]
imports = ["http", "log"]

[provides]
intents = ["send_email", "list_folders"]
"""
_ACTION: Final = """\
+++
name = "{handle}"
version = "{version}"
source = "{name}@{version}"

[[requires.connectors]]
name = "{connector}"
version = "{needs}"
hash = "{pin}"
capabilities = ["send_email"]

[match]
intent = "send an email"

[[execute]]
id = "send"
connector = "{connector}"
op = "send_email"
+++

# Send an email

Writes a letter
and sends it at once.

More than that.
"""


def connector_archive(
    folder: Path,
    name: str = CONNECTOR,
    version: str = "1.0.0",
    *,
    signed_by: SigningKey | None = None,
    edit: Callable[[str], str] = lambda text: text,
) -> tuple[bytes, str]:
    """Return the archive of a small connector, and its pin; `edit` changes the manifest after the build, as a publisher could."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.toml").write_text(_MANIFEST.format(name=name, version=version), encoding="utf-8")
    (folder / "connector.py").write_text("print('never run here')\n", encoding="utf-8")
    built = build(folder)
    manifest = edit(built.manifest.decode()).encode()
    members = {"connector": built.connector, "manifest.toml": manifest}
    if signed_by is not None:
        members["signature.sig"] = signed_by.sign(built.connector + manifest)
    return pack(members), content_hash(built.connector, manifest)


class Release:
    """A folder of archives and keys, each under a number of its own unless a test names the place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._sources = path.parent / f"{path.name}-sources"

    def put(self, archive: bytes, at: str | None = None) -> Path:
        """Store any archive in the release. Return its file."""
        at = at if at is not None else str(sum(1 for _ in self.path.rglob("aileron.tar.gz")))
        file = self.path / at / "aileron.tar.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(archive)
        return file

    def connector(
        self,
        name: str = CONNECTOR,
        version: str = "1.0.0",
        *,
        signed_by: SigningKey | None = None,
        at: str | None = None,
        edit: Callable[[str], str] = lambda text: text,
    ) -> str:
        """Add a connector to the release. Return its pin."""
        archive, pin = connector_archive(self._sources, name, version, signed_by=signed_by, edit=edit)
        self.put(archive, at)
        return pin

    def action(
        self,
        name: str = SEND,
        version: str = "1.0.0",
        *,
        needs: tuple[str, str, str],
        signed_by: SigningKey | None = None,
        at: str | None = None,
        edit: Callable[[str], str] = lambda text: text,
    ) -> str:
        """Add an action that needs a connector (name, version, pin). Return its text."""
        handle, (connector, needed, pin) = name.rpartition("/")[2], needs
        text = edit(
            _ACTION.format(handle=handle, version=version, name=name, connector=connector, needs=needed, pin=pin)
        )
        members = {"action.md": text.encode()}
        if signed_by is not None:
            members["signature.sig"] = signed_by.sign(text.encode())
        self.put(pack(members), at)
        return text

    def key(
        self, key: PublicKey = KEY.public, repository: str = "acme/mail", *, former: Sequence[PublicKey] = ()
    ) -> None:
        """Add the publisher's keys to the release."""
        folder = self.path / repository / "keys"
        (folder / "former").mkdir(parents=True, exist_ok=True)
        (folder / "publisher.pub").write_text(key.to_pem())
        for number, old in enumerate(former):
            (folder / "former" / f"{number}.pub").write_text(old.to_base64())


def static(root: Path, prefix: str = "/hub") -> Callable[[Seen], bytes]:
    """Return a file server's script for the files below `root`: each with its time, or 404."""

    def answered(seen: Seen) -> bytes:
        path = unquote(urlsplit(seen.target).path)
        file = root / path.removeprefix(f"{prefix}/")
        if seen.method != "GET" or not path.startswith(f"{prefix}/") or ".." in path or not file.is_file():
            return answer(b"no", status="404 Not Found")
        return answer(file.read_bytes(), f"Last-Modified: {email.utils.formatdate(file.stat().st_mtime, usegmt=True)}")

    return answered
