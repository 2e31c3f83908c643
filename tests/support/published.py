"""A publisher at a forge: connectors and actions, built, signed and released, with any fault that a test wants.

publisher = Publisher(forge)                                  # github://acme/mail, signed with KEY
pin = publisher.connector("1.0.0", hosts=["api.example.com:443"])
source = publisher.action("send-note", "1.0.0", [pin])         # "github://acme/mail/actions/send-note@1.0.0"
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aileron.model.plan import ConnectorPin
from aileron.model.secret import Secret
from aileron.registry.connector_build import build
from aileron.registry.content import content_hash
from aileron.registry.signatures import SigningKey
from aileron.registry.tarball import pack
from tests.support.forge import ForgeServer

__all__ = ["KEY", "OTHER", "Publisher"]

KEY, OTHER = SigningKey(Secret(b"k" * 32)), SigningKey(Secret(b"o" * 32))
_CODE: Final = '''\
"""Says which version it is."""

from aileron_connector import op, run


@op
def say(text: str = "") -> dict:
    """What it was told, and the version that heard it."""
    return {{"version": "{version}", "text": text}}


if __name__ == "__main__":
    run()
'''


class Publisher:
    """A publisher with one repository of a forge."""

    def __init__(
        self, forge: ForgeServer, repository: str = "github://acme/mail", key: SigningKey | None = KEY
    ) -> None:
        self._forge = forge
        self.repository = repository
        self._key = key
        if key is not None:
            forge.keys[repository] = key.public.to_pem()

    def connector(
        self,
        version: str,
        *,
        path: str = "",
        name: str | None = None,
        hosts: Sequence[str] = (),
        credential: str | None = None,
        limits: str = "",
        key: SigningKey | None = None,
        unsigned: bool = False,
        note: str = "",
    ) -> ConnectorPin:
        """Release a connector. `name` and `key` can be another publisher's; `note` makes other bytes of the same version."""
        full = name or f"{self.repository}{path}"
        manifest = f'[connector]\nname = "{full}"\nversion = "{version}"\npublisher = "Acme"\n'
        if hosts:
            listed = ", ".join(f'"{host}"' for host in hosts)
            manifest += f'[capabilities.network]\nhosts = [{listed}]\n[capabilities.runtime]\nimports = ["http"]\n'
        if credential is not None:
            manifest += f'[capabilities.credential]\nkind = "{credential}"\nscope = "Send notes"\n'
        manifest += f"[limits]\n{limits}\n" if limits else ""
        with tempfile.TemporaryDirectory(prefix="ail-published-") as folder:
            (Path(folder) / "manifest.toml").write_text(manifest, encoding="utf-8")
            (Path(folder) / "connector.py").write_text(
                _CODE.format(version=version) + (f"# {note}\n" if note else ""), encoding="utf-8"
            )
            built = build(Path(folder))
        members = {"connector": built.connector, "manifest.toml": built.manifest}
        self._release(f"{self.repository}{path}", version, members, key, unsigned=unsigned)
        return ConnectorPin(full, version, content_hash(built.connector, built.manifest))

    def action(
        self,
        handle: str,
        version: str,
        pins: Sequence[ConnectorPin],
        *,
        gated: bool = False,
        body: str = "Says it.",
        intent: str = "say something",
        source: str | None = None,
        key: SigningKey | None = None,
        unsigned: bool = False,
    ) -> str:
        """Release an action that calls `say` of each pin. Return its NAME@VERSION. `source` can be a false one."""
        name = f"{self.repository}/actions/{handle}"
        text = self.text(handle, version, pins, gated=gated, body=body, intent=intent, source=source)
        self._release(name, version, {"action.md": text.encode()}, key, unsigned=unsigned)
        return f"{name}@{version}"

    def text(
        self,
        handle: str,
        version: str,
        pins: Sequence[ConnectorPin],
        *,
        gated: bool = False,
        body: str = "Says it.",
        intent: str = "say something",
        source: str | None = None,
    ) -> str:
        """Return the text of that action's file."""
        lines = [
            "+++",
            f'name = "{handle}"',
            f'version = "{version}"',
            f'source = "{source or f"{self.repository}/actions/{handle}@{version}"}"',
            "",
        ]
        for pin in pins:
            lines += [
                "[[requires.connectors]]",
                f'name = "{pin.name}"',
                f'version = "{pin.version}"',
                f'hash = "{pin.hash}"',
                'capabilities = ["say"]',
                "",
            ]
        lines += ["[match]", f'intent = "{intent}"', ""]
        for number, pin in enumerate(pins):
            lines += [
                "[[execute]]",
                f'id = "step{number}"',
                f'connector = "{pin.name}"',
                'op = "say"',
                "idempotent = true",
                "",
            ]
        lines += ["[approval]", f"required = {str(gated).lower()}", "+++", "", f"# {handle}", "", body, ""]
        return "\n".join(lines)

    def _release(
        self, name: str, version: str, members: dict[str, bytes], key: SigningKey | None, *, unsigned: bool
    ) -> None:
        signer = None if unsigned else key or self._key
        if signer is not None:
            members["signature.sig"] = signer.sign(b"".join(data for _, data in sorted(members.items())))
        self._forge.publish(name, version, pack(members))
